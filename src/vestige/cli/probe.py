"""`vestige probe`: find the benign knowledge that went with the forget set.

`vestige probe TARGET UNLEARNED` makes adjacent questions, searches for more, and tests which are holes; `adjacent`,
`latent` and `filter` do one part each, in the same folder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vestige.cli.command import Given, Part, command
from vestige.cli.options import (
    MODEL,
    SOURCE,
    TRAINING,
    AsJson,
    Data,
    DryRun,
    Embedder,
    Forget,
    OutputDir,
    Retain,
    Seed,
    model_from,
    say_notes,
    source_from,
)
from vestige.cli.output import progress_bar, refuse_torchrun, say
from vestige.cli.tables import counted, print_columns, print_cost, print_counts, print_json
from vestige.core.errors import InputError
from vestige.core.text import one_line
from vestige.judges import JUDGES, known_judges

if TYPE_CHECKING:
    from vestige.artifacts.holes import HoleRow, HoleTable, Placebo
    from vestige.artifacts.layout import ProbeFolder
    from vestige.data.corpus import Corpus
    from vestige.data.probe_sources import ProbeSources
    from vestige.judges.base import Writer
    from vestige.models.embedder import Embedder as LoadedEmbedder
    from vestige.models.load import ModelSettings
    from vestige.probes.adjacent import AdjacentRequest, By, KeptQuestion
    from vestige.probes.answering import AnswerSettings, Grader, Judging, Participants
    from vestige.probes.holes import ProbeForecast
    from vestige.probes.latent import Searching, Yield
    from vestige.steps.subjects import Asked

WAYS = ("graph", "templates", "local", "server")

PARTS = {
    "adjacent": Part("vestige.probes.questions:AdjacentSettings", "Adjacent questions", "adjacent"),
    "neighbours": Part("vestige.probes.adjacent:NeighbourSettings", "Adjacent questions", "neighbours"),
    "latent": Part("vestige.probes.latent:LatentSettings", "Search", "latent", first=("n_iterations", "n_examples")),
    "policy": Part("vestige.training.policy.settings:PolicySettings", "Policy of the search", "policy"),
    "answers": Part("vestige.probes.answering:AnswerSettings", "Answers", "answers"),
    "filter": Part("vestige.probes.filters:FilterSettings", "Holes", "filter"),
    "judge": Part("vestige.judges.server:ServerSettings", "Judge", "judge", renamed={"url": "", "model": ""}),
    "grounded": Part("vestige.judges.grounded:GroundedSettings", "Judge", "grounded"),
    "limits": Part("vestige.models.address:Limits", "Spending on the judge", "limits"),
    "mitigation": Part("vestige.probes.mitigation:MitigationSettings", "Repair", "mitigation"),
    "training": Part(
        "vestige.probes.mitigation:MendingSettings",
        "Training",
        "training",
        first=TRAINING.first,
        panels=TRAINING.panels,
    ),
}
"""The parts of a search for holes, by the name before their keys."""


def shown(*names: str) -> tuple[Part, ...]:
    """All parts, of which these have options."""
    return tuple(part if name in names else part._replace(hidden=True) for name, part in PARTS.items())


@dataclass(frozen=True)
class PlaceOptions:
    """Where the findings go, the seed, and the form of what is printed."""

    output_dir: OutputDir
    seed: Seed = 0
    as_json: AsJson = False


class Place:
    """Where the findings go, the settings, how models are read, and the seed."""

    def __init__(self, options: PlaceOptions, given: Given, *open_parts: str, judges: Sequence[str] = ()) -> None:
        # A judge without a home has settings of other names, such as judge.timeout.
        own = [name for name, kind in known_judges().items() if kind.home and name in judges]
        given.refuse_others(*open_parts, *own)
        self.given = given
        self.output_dir, self.seed, self.as_json = options.output_dir, options.seed, options.as_json
        self.device = given.values.get("device", "auto")

    @property
    def folder(self) -> "ProbeFolder":
        """The folder of the search for holes. That of a model is refused: who made it would be written over."""
        from vestige.artifacts.layout import ProbeFolder, SubjectFolder

        if SubjectFolder(self.output_dir).spec.exists():
            raise InputError(f"{self.output_dir} is the folder of a model; give the probe one of its own")
        return ProbeFolder(self.output_dir)

    def model(self, name: str) -> "ModelSettings":
        """How the model called `name` is read."""
        return model_from(self.given, name)

    def look_for(self, *names: str) -> None:
        """Refuse a model that `asked` would refuse, before anybody is asked or paid; an address is not looked for."""
        from vestige.models.address import is_address
        from vestige.models.load import look_for

        for name in names:
            if not is_address(name):
                look_for(self.model(name))

    def asked(self, name: str) -> "Asked":
        """The model called `name`, loaded."""
        from vestige.steps.subjects import asked_model

        return asked_model(self.model(name), dtype=self.given.values.get("dtype"))


@dataclass(frozen=True)
class JudgeOptions:
    """Who grades answers, and who writes questions where a language model does."""

    judge: Annotated[
        str,
        typer.Option(
            help="Who grades: grounded (the target's own answers; no other model), local, server, or another."
        ),
    ] = "grounded"
    judge_model: Annotated[
        str | None, typer.Option(help="Judge local: any chat model; server: the model's name there.")
    ] = None
    judge_url: Annotated[
        str | None,
        typer.Option(help="Judge server: the URL before /chat/completions; the key is in VESTIGE_JUDGE_KEY."),
    ] = None
    embedder: Embedder = None

    def check(self) -> None:
        """Refuse what does not go together, before anything is loaded."""
        if self.judge not in known_judges():
            raise InputError(f"no judge {one_line(self.judge)!r}; {_nearest(self.judge, tuple(known_judges()))}")
        self._check_model(self.judge, "--judge")

    def _check_model(self, kind: str, option: str) -> None:
        from vestige.models.address import FORM, is_address

        if kind in ("local", "server") and self.judge_model is None:
            raise InputError(f"{option} {kind} needs --judge-model")
        served = is_address(self.judge_model or "")
        if kind == "server" and self.judge_url is None and not served:
            raise InputError(f"{option} server needs --judge-url, or an address as --judge-model: {FORM}")
        if kind == "local" and served:
            raise InputError(f"{option} local asks a model that is here; an address goes with {option} server")

    def check_naming(self, place: Place) -> None:
        """Refuse to name groups by a language model where none judges; they are named last, after hours perhaps."""
        if self.judge not in ("local", "server") and place.given.part("filter").get("name_groups") == "writer":
            from vestige.probes.hole_table import NO_WRITER

            raise InputError(NO_WRITER)

    def judging(self, place: Place, kind: str = "") -> "Judging":
        """Who that is, of the named kind or as --judge says; nothing is loaded yet."""
        from vestige.judges.grounded import GroundedSettings
        from vestige.judges.server import ServerSettings, server_named
        from vestige.models.address import Limits
        from vestige.probes.answering import Judging

        kind = kind or self.judge
        served = server_named(self.judge_model, self.judge_url) if kind == "server" else {}
        return Judging(
            partial(place.asked, str(self.judge_model)) if kind == "local" else None,
            place.given.build(ServerSettings, None, "judge", **served) if kind == "server" else None,
            place.given.build(Limits),
            place.given.build(GroundedSettings) if kind == "grounded" else GroundedSettings(),
            (kind, place.given.part(kind)) if known_judges()[kind].home else None,
        )

    def writer(self, kind: str, place: Place, option: str = "--judge") -> "Writer":
        """The language model, on a server or here."""
        self._check_model(kind, option)
        grader = self.judging(place, kind).by_model(place.folder)
        writer = grader.writer if grader else None
        assert writer is not None, "a language model writes"
        return writer

    def of_harm(self, place: Place, folder: Path, option: str = "--judge") -> "Grader":
        """Who says whether an answer is harmful; replies lie in `folder`."""
        from vestige.artifacts.layout import ProbeFolder

        grader = None if self.judge == "grounded" else self.judging(place).by_model(ProbeFolder(folder))
        if grader is None:
            raise InputError(f"{option} {self.judge} cannot say whether an answer is harmful; take local or server")
        return grader

    def embeds(self, device: str) -> "LoadedEmbedder":
        """The embedder."""
        from vestige.models.embedder import HUB_ID, load_embedder

        return load_embedder(self.embedder or HUB_ID, device=device)


def judge_words(name: str, embedder: str | None) -> JudgeOptions:
    """What --judge WHO says: grounded, local:MODEL or server:URL#MODEL."""
    kind, _, rest = name.partition(":")
    if name == "grounded" or (name in known_judges() and known_judges()[name].home):
        return JudgeOptions(judge=name, embedder=embedder)
    if kind == "local" and rest:
        return JudgeOptions(judge=kind, judge_model=rest, embedder=embedder)
    url, _, model = rest.partition("#")
    if kind == "server" and url and model:
        return JudgeOptions(judge=kind, judge_url=url, judge_model=model, embedder=embedder)
    known = {"local": "local:MODEL, as in local:builtin:smollm2", "server": "server:URL#MODEL"}
    meant = known.get(kind, f"known: {', '.join(JUDGES)}, as grounded, local:MODEL or server:URL#MODEL")
    raise InputError(f"no judge {one_line(name)!r}; {meant}")


def participants(
    target: str, unlearned: str, who: JudgeOptions, place: Place, answers: "AnswerSettings | None" = None
) -> "Participants":
    """Target, unlearned model, embedder and judge, each loaded when it is first wanted."""
    from vestige.probes.answering import AnswerSettings, Participants

    who.check()
    return Participants(
        partial(place.asked, target),
        partial(place.asked, unlearned),
        lambda all_: all_.graded_by(who.judging(place), place.folder),
        partial(who.embeds, place.device),
        answers or place.given.build(AnswerSettings),
        place.seed,
    )


def searching_from(place: Place, searches: str, policy: str, drawn: "Mapping[str, Any] | None" = None) -> "Searching":
    """The searches that are named, comma-separated; of "none" there are none. `drawn` are defaults of the filters."""
    from vestige.probes.filters import FilterSettings
    from vestige.probes.latent import SEARCHES, LatentSettings, Searching
    from vestige.training.policy.settings import PolicySettings

    names = tuple(dict.fromkeys(word.strip() for word in searches.split(",") if word.strip()))
    for name in names:
        if name not in SEARCHES and names != ("none",):
            raise InputError(f"no search {one_line(name)!r}; {_nearest(name, (*SEARCHES, 'none'))}")
    if not names:
        raise InputError(f"--searches names none; give some of {', '.join(SEARCHES)}, or none")
    filters = place.given.build(FilterSettings, drawn)
    filters.check()
    build = place.given.build
    sources = () if names == ("none",) else names
    return Searching(sources, place.model(policy), build(PolicySettings), build(LatentSettings), filters)


@dataclass(frozen=True)
class NearOptions:
    """How adjacent questions are made."""

    by: Annotated[
        str | None,
        typer.Option(
            help="Who writes them: graph (the data's own, of other contracts), templates, local or server (the model "
            "of --judge-model). By default the graph where the data has one, else templates."
        ),
    ] = None
    k: Annotated[int, typer.Option(min=1, help="At most this many questions of each forget item.")] = 4

    def way(self, corpus: "Corpus", judge: JudgeOptions, place: Place) -> "By":
        """How the questions of this data are made."""
        if self.by is not None and self.by not in WAYS:
            raise InputError(f"--by {one_line(self.by)}: {_nearest(self.by, WAYS)}")
        if self.by == "graph" or (self.by is None and corpus.dataset is not None):
            return "graph"
        if self.by in (None, "templates"):
            return "offline"
        return judge.writer(self.by, place, "--by")


def refuse_idle_limits(place: Place, *models: str, judges: Sequence[str]) -> None:
    """Refuse `limits.*` that would bound nothing: they are those of a judge on a server, not of served models."""
    from vestige.models.address import is_address, shown_address

    served = next((name for name in models if is_address(name)), None)
    if served is not None and "server" not in judges and place.given.part("limits"):
        raise InputError(
            f"limits.* bound a judge on a server, and would not bound {one_line(shown_address(served))}; put "
            "most_cost, most_requests or most_tokens, and prices, into the address: "
            "http://host/v1?most_requests=1000#name"
        )


def placebo_names(placebos: Sequence[str]) -> dict[str, str]:
    """The placebos by what tables call them: the last part of the name, or all of it where that tells too little."""
    from vestige.probes.filters import OWN_NAMES

    given = list(dict.fromkeys(placebos))
    short = [Path(placebo).name for placebo in given]
    return {
        one if one and short.count(one) == 1 and one not in OWN_NAMES else placebo: placebo
        for one, placebo in zip(short, given, strict=True)
    }


def _nearest(word: str, known: Sequence[str]) -> str:
    # Loaded late: it brings pydantic, which no --help may load.
    from vestige.core.text import closest

    return closest(word, list(known))


TargetName = Annotated[str, typer.Argument(help="The target model: a folder, any model, or URL#MODEL.")]
UnlearnedName = Annotated[str, typer.Argument(help="The unlearned model: a folder, any model, or URL#MODEL.")]
PolicyName = Annotated[
    str, typer.Option("--policy", help="The model that learns to ask questions; a small one is enough.")
]
Searches = Annotated[
    str,
    typer.Option(
        help="Ways to search beyond the adjacent questions, comma-separated: latent (RL), random and paraphrase "
        "(the same policy without learning), enumeration (adjacent and retained questions as they are), or none."
    ),
]
Placebos = Annotated[
    list[str] | None,
    typer.Option("--placebo", help="A model that knows what the target knows: its holes are false. May be repeated."),
]
ForgetN = Annotated[
    int | None,
    typer.Option(
        min=1, help="Of a forget set of texts or harmful answers: sample this many, by the seed; by default all."
    ),
]


@command(
    *shown("adjacent", "neighbours", "latent", "policy", "answers", "filter", "judge", "grounded", "limits"),
    SOURCE,
    MODEL,
)
def all_command(
    target: TargetName,
    unlearned: UnlearnedName,
    data: Data,
    forget: Forget,
    policy: PolicyName = "builtin:smollm2",
    searches: Searches = "latent",
    retain: Retain = None,
    placebo: Placebos = None,
    forget_n: ForgetN = None,
    dry_run: DryRun = False,
    *,
    near: NearOptions,
    who: JudgeOptions,
    where: PlaceOptions,
    given: Given,
) -> None:
    """Adjacent questions, searches, and which of both are holes: everything, in one folder, with one judge.

    Each part is kept; the same command resumes a stopped run, and repeats only requests that were under way.
    """
    refuse_torchrun("probe")
    place = Place(where, given, judges=[who.judge])
    from vestige.probes.adjacent import make_adjacent

    who.check()
    who.check_naming(place)
    refuse_idle_limits(place, target, unlearned, *(placebo or ()), judges=(who.judge, near.by or ""))
    searching = searching_from(place, searches, policy)
    sources = _read(given, data, forget, retain, forget_n)
    request = _adjacent_request(sources, near, who, place)
    place.look_for(target, unlearned, *(placebo or ()))
    if dry_run:
        _foresee(request, who, place, searching, len(placebo or ()))
        return
    _say_adjacent(make_adjacent(place.folder, request), place)
    models = participants(target, unlearned, who, place)
    for name in searching.sources:
        _search(name, searching, models, place)
    _tell(_filtered(sources, models, place, placebo or ()), place)


@command(*shown("adjacent", "neighbours", "judge", "limits"), SOURCE, MODEL)
def adjacent_command(
    data: Data,
    forget: Forget,
    retain: Retain = None,
    forget_n: ForgetN = None,
    *,
    near: NearOptions,
    who: JudgeOptions,
    where: PlaceOptions,
    given: Given,
) -> None:
    """Write questions near the forget set that it does not answer. A model is used only to write them."""
    refuse_torchrun("probe")
    place = Place(where, given, judges=[who.judge])
    from vestige.probes.adjacent import make_adjacent

    sources = _read(given, data, forget, retain, forget_n)
    kept = make_adjacent(place.folder, _adjacent_request(sources, near, who, place))
    if place.as_json:
        return print_json([{"of": k.of, **asdict(k.question)} for k in kept])
    _say_adjacent(kept, place)
    for one in [k for k in kept if k.of == "forget"][:5]:
        typer.echo(f"  {one_line(one.question.question)}")


@command(*shown("latent", "policy", "answers", "judge", "grounded", "limits"), MODEL)
def latent_command(
    target: TargetName,
    unlearned: UnlearnedName,
    policy: PolicyName = "builtin:smollm2",
    searches: Searches = "latent",
    *,
    who: JudgeOptions,
    where: PlaceOptions,
    given: Given,
) -> None:
    """Search for prompts that UNLEARNED answers badly, from the adjacent questions in the folder."""
    refuse_torchrun("probe")
    place = Place(where, given, judges=[who.judge])
    from vestige.probes.adjacent import beginnings_in

    who.check()
    refuse_idle_limits(place, target, unlearned, judges=(who.judge,))
    searching = searching_from(place, searches, policy)
    # Before any model is loaded.
    beginnings_in(place.folder)
    models = participants(target, unlearned, who, place)
    found = {name: _search(name, searching, models, place) for name in searching.sources}
    if place.as_json:
        print_json({name: one._asdict() for name, one in found.items()})


@command(*shown("answers", "filter", "judge", "grounded", "limits"), SOURCE, MODEL)
def filter_command(
    target: TargetName,
    unlearned: UnlearnedName,
    data: Data,
    forget: Forget,
    retain: Retain = None,
    placebo: Placebos = None,
    forget_n: ForgetN = None,
    *,
    who: JudgeOptions,
    where: PlaceOptions,
    given: Given,
) -> None:
    """Say which prompts in the folder are holes: filters, fresh answers of both models, placebos, groups."""
    refuse_torchrun("probe")
    place = Place(where, given, judges=[who.judge])
    from vestige.probes.holes import candidates_in

    who.check()
    who.check_naming(place)
    refuse_idle_limits(place, target, unlearned, *(placebo or ()), judges=(who.judge,))
    sources = _read(given, data, forget, retain, forget_n)
    # Before any model is loaded.
    candidates_in(place.folder)
    _tell(_filtered(sources, participants(target, unlearned, who, place), place, placebo or ()), place)


def _read(given: Given, data: str, forget: str, retain: str | None, forget_n: int | None) -> "ProbeSources":
    from vestige.data.probe_sources import probe_sources

    found = probe_sources(source_from(given, data), forget, retain=retain, n_forget=forget_n)
    say_notes(found.splits)
    return found


def _adjacent_request(sources: "ProbeSources", near: NearOptions, who: JudgeOptions, place: Place) -> "AdjacentRequest":
    from vestige.probes.adjacent import AdjacentRequest, NeighbourSettings
    from vestige.probes.questions import AdjacentSettings

    settings = place.given.build(AdjacentSettings, {"k": near.k})
    neighbours = place.given.build(NeighbourSettings, {"k": near.k})
    by, texts = near.way(sources.corpus, who, place), (sources.forget_texts, sources.retain_texts)
    return AdjacentRequest(sources.splits, sources.corpus.dataset, by, settings, neighbours, place.seed, *texts)


def _search(name: str, searching: "Searching", models: "Participants", place: Place) -> "Yield":
    """Make one search and say what it brought."""
    from vestige.probes.latent import Iteration, search, yield_of

    with progress_bar(name) as show:

        def look(i: Iteration) -> None:
            show(i.number / searching.settings.n_iterations, i.collapsed or f"{i.n_latent} with J = 10")

        found = yield_of(search(place.folder, models, name, searching, on_iteration=look))
    if not place.as_json:
        typer.echo(
            f"{name}: {found.n_latent} of {found.n_calls} prompts got J = 10, {found.n_distinct} of them different: "
            f"{found.per_thousand:.1f} for 1,000 calls"
        )
    return found


def _filtered(sources: "ProbeSources", models: "Participants", place: Place, placebos: "Sequence[str]") -> "HoleTable":
    from vestige.probes.filters import FilterSettings
    from vestige.probes.holes import FilterRequest, filter_holes

    settings = place.given.build(FilterSettings)
    settings.check()
    asked = {name: place.asked(placebo) for name, placebo in placebo_names(placebos).items()}
    request = FilterRequest(models, sources.forget, settings, sources.retain, asked, say)
    return filter_holes(place.folder, request)


def _foresee(
    request: "AdjacentRequest", who: JudgeOptions, place: Place, searching: "Searching", n_placebos: int
) -> None:
    """Say what everything would take at most; nothing is asked."""
    from vestige.models.address import Limits
    from vestige.probes.adjacent import adjacent_of
    from vestige.probes.answering import AnswerSettings
    from vestige.probes.holes import forecast_probe, forget_texts

    if isinstance(request.by, str):
        n = len(adjacent_of(request)["forget"].questions)
    else:
        n = request.settings.k * len(request.forget)
    answers, limits = place.given.build(AnswerSettings), place.given.build(Limits)
    forecast = forecast_probe(n, forget_texts(request.forget), searching, answers, limits, n_placebos=n_placebos)
    print_forecast(forecast, grounded=who.judge == "grounded", as_json=place.as_json)


def _tell(table: "HoleTable", place: Place) -> None:
    from vestige.probes.holes import server_notes

    if place.as_json:
        return print_json(table)
    print_holes(table)
    for note in server_notes(place.folder):
        typer.echo(note)
    typer.echo(f"holes in {place.folder.holes}")


def _say_adjacent(kept: "Sequence[KeptQuestion]", place: Place) -> None:
    n = sum(one.of == "forget" for one in kept)
    if not place.as_json:
        typer.echo(
            f"{n} questions near the forget set and {len(kept) - n} of the retain set in {place.folder.adjacent}"
        )


def print_holes(table: "HoleTable", *, n_shown: int = 8) -> None:
    """The table for people. Prompts and terms come from models and data, so they are hostile text."""
    _print_rows(table)
    for row in table.rows:
        for placebo in row.placebos:
            typer.echo(_placebo_in_words(row, placebo))
    for source, dropped in table.dropped.items():
        if dropped:
            typer.echo(f"{one_line(source)}, not tested: {counted(dropped)}")
    for source, words in table.selection.items():
        typer.echo(f"{one_line(source)}: {words}")
    for stage, failures in table.failures.items():
        typer.echo(f"not judged, {stage}: {counted(failures)}")
    for source, found in table.diversity.items():
        spread = "" if found.distinct_ngrams is None else f", 1 - avgSelfBLEU {found.distinct_ngrams:.2f}"
        near = "" if found.to_adjacent is None else f", cosine to the nearest adjacent question {found.to_adjacent:.2f}"
        typer.echo(f"{one_line(source)}: {found.n} prompts tested, Vendi / n {found.vendi_share:.2f}{spread}{near}")
    typer.echo(
        f"{table.n_holes} holes, {table.n_distinct_holes} of them different; testing asked the target "
        f"{table.target_calls:,} and the unlearned model {table.unlearned_calls:,} prompts"
    )
    if table.groups and table.naming:
        typer.echo(f"what they are about, {one_line(table.naming, width=160)}:")
    for group in table.groups[:n_shown]:
        sources = f" ({counted(group.by_source)})" if len(group.by_source) > 1 else ""
        typer.echo(f"  {group.n:>4}  {one_line(group.name)}{sources}")


def _print_rows(table: "HoleTable") -> None:
    """Measures down, sources across."""
    if not table.rows:
        typer.echo("no prompt was left to test and judge; docs/holes.md says why (What counts as a hole)")
        return
    measures = ["", "mean before", "mean after", "change", "lowest before", "lowest after", "holes"]
    print_columns("fresh answers: quality 1 to 10, 95 % intervals", [measures], [_column(row) for row in table.rows])


def _column(row: "HoleRow") -> list[str]:
    """A source's head and its estimates."""
    n = f"n = {row.n}" if row.n == row.n_judged else f"n = {row.n_judged} of {row.n}"
    estimates = (row.before, row.after, row.change, row.lowest_before, row.lowest_after, row.holes)
    return [f"{one_line(row.source)}\n{n}", *(estimate.said() for estimate in estimates)]


def _placebo_in_words(row: "HoleRow", placebo: "Placebo") -> str:
    """The rate of false holes; a placebo that says the target's very words shows nothing."""
    name, rate = one_line(placebo.name), placebo.rate
    if placebo.n_same == rate.n:
        return f"{row.source}: the answers of the placebo ({name}) are the target's word for word, so it shows nothing"
    beyond = "" if placebo.excess is None else f"; beyond these {placebo.excess.said()}"
    return f"{row.source}: false holes, of the placebo ({name}): {rate.said()} of {rate.n}{beyond}"


def print_forecast(forecast: "ProbeForecast", *, grounded: bool, as_json: bool) -> None:
    """What probing would take at most; a grounded judge takes passes of the target and no tokens of a server."""
    if as_json:
        return print_json(forecast)
    typer.echo("at most; nothing was asked:")
    models = {"the target model": forecast.target_calls, "the unlearned model": forecast.unlearned_calls}
    models |= {"placebos": forecast.placebo_calls} if forecast.placebo_calls else {}
    print_counts({f"prompts to {who}": n for who, n in models.items()})
    print_counts({f"judgements of {task}": n for task, n in forecast.judge_requests.items()})
    if grounded:
        typer.echo("  the judge is the target itself: no tokens of another model")
        return
    tokens = forecast.judge_prompt_tokens, forecast.judge_most_completion_tokens
    print_counts(dict(zip(("tokens to the judge, estimated", "tokens from the judge"), tokens, strict=True)))
    print_cost(forecast.most_cost)
