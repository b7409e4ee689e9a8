"""`vestige probe`: find the benign knowledge that went with the forget set.

`vestige probe TARGET UNLEARNED` makes adjacent questions, searches for more, and tests which are holes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vestige.cli.command import Given, Part, command
from vestige.cli.options import (
    MODEL,
    SOURCE,
    AsJson,
    Data,
    DryRun,
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

if TYPE_CHECKING:
    from vestige.artifacts.holes import HoleRow, HoleTable, Placebo
    from vestige.artifacts.layout import ProbeFolder
    from vestige.data.corpus import Corpus
    from vestige.data.probe_sources import ProbeSources
    from vestige.judges.base import Grader
    from vestige.judges.spec import JudgeSpec
    from vestige.models.load import ModelSettings
    from vestige.probes.adjacent import AdjacentRequest, By
    from vestige.probes.answering import AnswerSettings, Participants
    from vestige.probes.holes import ProbeForecast
    from vestige.probes.latent import Searching
    from vestige.steps.subjects import Asked

PARTS = {
    "adjacent": Part("vestige.probes.questions:AdjacentSettings", "Adjacent questions", "adjacent"),
    "neighbours": Part("vestige.probes.adjacent:NeighbourSettings", "Adjacent questions", "neighbours"),
    "latent": Part("vestige.probes.latent:LatentSettings", "Search", "latent", first=("n_iterations", "n_examples")),
    "policy": Part("vestige.training.policy.settings:PolicySettings", "Policy of the search", "policy"),
    "answers": Part("vestige.probes.answering:AnswerSettings", "Answers", "answers"),
    "filter": Part("vestige.probes.filters:FilterSettings", "Holes", "filter"),
}
"""The parts of a search for holes, by the name before their keys."""


def options_of(*names: str) -> tuple[Part, ...]:
    """All parts, of which these have options."""
    return tuple(part if name in names else part._replace(hidden=True) for name, part in PARTS.items())


@dataclass(frozen=True)
class ProbeOptions:
    """Where the findings go, who grades, who embeds, the seed, and the form of what is printed."""

    output_dir: OutputDir
    judge: Annotated[
        str,
        typer.Option(
            help="Who grades: grounded (the target's own answers; no other model), local:MODEL, http://host/v1#name "
            "(key in VESTIGE_JUDGE_KEY), or a package's judge; settings behind a question mark."
        ),
    ] = "grounded"
    embedder: Annotated[
        str | None, typer.Option(help="Folder or hub id of the sentence embedder; all-MiniLM-L6-v2 by default.")
    ] = None
    seed: Seed = 0
    as_json: AsJson = False


@dataclass(frozen=True)
class ProbeCommand:
    """A command of `vestige probe` with everything that was given to it; nothing is loaded before it is wanted."""

    options: ProbeOptions
    given: Given

    @classmethod
    def begin(cls, options: ProbeOptions, given: Given, *open_parts: str) -> "ProbeCommand":
        """The command, unless something that was given is unknown or does not go together."""
        from vestige.judges.spec import judge_spec
        from vestige.probes.hole_table import NO_WRITER

        refuse_torchrun("probe")
        given.refuse_others(*open_parts)
        # Groups are named last, after hours perhaps.
        if not judge_spec(options.judge).by_model and given.part("filter").get("name_groups") == "writer":
            raise InputError(NO_WRITER)
        return cls(options, given)

    @property
    def judge(self) -> "JudgeSpec":
        """Who grades."""
        from vestige.judges.spec import judge_spec

        return judge_spec(self.options.judge)

    @property
    def folder(self) -> "ProbeFolder":
        """The folder of the search for holes. That of a model is refused: who made it would be written over."""
        from vestige.artifacts.layout import ProbeFolder, SubjectFolder

        if SubjectFolder(self.options.output_dir).spec.exists():
            raise InputError(f"{self.options.output_dir} is the folder of a model; give the probe one of its own")
        return ProbeFolder(self.options.output_dir)

    @property
    def device(self) -> str:
        """Where models run."""
        return str(self.given.values.get("device", "auto"))

    def model(self, name: str) -> "ModelSettings":
        """How the model called `name` is read."""
        return model_from(self.given, name)

    def look_for(self, *names: str) -> None:
        """Refuse a model that cannot be loaded before anybody is asked or paid; an address is not looked for."""
        from vestige.models.address import is_address
        from vestige.models.load import look_for

        for name in names:
            if not is_address(name):
                look_for(self.model(name))

    def load(self, name: str) -> "Asked":
        """The model called `name`, loaded."""
        from vestige.steps.subjects import asked_model

        return asked_model(self.model(name), dtype=self.given.values.get("dtype"))

    def sources(self, data: str, forget: str, retain: str | None, forget_n: int | None, *models: str) -> "ProbeSources":
        """What was forgotten and what is kept: nothing of it that one of the models was made to forget before."""
        from vestige.artifacts.records import forgotten_by
        from vestige.data.probe_sources import probe_sources

        before = tuple(dict.fromkeys(forget_set for model in models for forget_set in forgotten_by(model)))
        sources = probe_sources(source_from(self.given, data), forget, retain=retain, n_forget=forget_n, before=before)
        say_notes(sources.splits)
        return sources

    def participants(self, target: str, unlearned: str, answers: "AnswerSettings | None" = None) -> "Participants":
        """Target, unlearned model, embedder and judge, each loaded when it is first wanted."""
        from vestige.models.embedder import HUB_ID, load_embedder
        from vestige.probes.answering import AnswerSettings, Participants

        return Participants(
            partial(self.load, target),
            partial(self.load, unlearned),
            lambda everybody: everybody.graded_by(self.judge, self.folder.judge, self.device),
            partial(load_embedder, self.options.embedder or HUB_ID, device=self.device),
            answers or self.given.build(AnswerSettings),
            self.options.seed,
        )

    def searching(self, searches: str, policy: str, filters: "Mapping[str, Any] | None" = None) -> "Searching":
        """The searches that are named, comma-separated; of "none" there are none. `filters` are defaults of theirs."""
        from vestige.core.text import closest
        from vestige.probes.filters import FilterSettings
        from vestige.probes.latent import SEARCHES, LatentSettings, Searching
        from vestige.training.policy.settings import PolicySettings

        names = tuple(dict.fromkeys(word.strip() for word in searches.split(",") if word.strip()))
        for name in names:
            if name not in SEARCHES and names != ("none",):
                raise InputError(f"no search {one_line(name)!r}; {closest(name, [*SEARCHES, 'none'])}")
        if not names:
            raise InputError(f"--searches names none; give some of {', '.join(SEARCHES)}, or none")
        settings = self.given.build(FilterSettings, filters)
        settings.check()
        build = self.given.build
        sources = () if names == ("none",) else names
        return Searching(sources, self.model(policy), build(PolicySettings), build(LatentSettings), settings)


def harm_grader(judge: "JudgeSpec", replies: Path, device: str, option: str) -> "Grader":
    """Who says whether an answer is harmful; a server's replies lie in the folder `replies`."""
    from vestige.judges.local import grader_of
    from vestige.judges.spec import BY_MODEL

    if not judge.by_model:
        raise InputError(f"{option} {judge.name} cannot say whether an answer is harmful; {BY_MODEL}")
    return grader_of(judge, replies, device)


@dataclass(frozen=True)
class AdjacentOptions:
    """How adjacent questions are made."""

    by: Annotated[
        str | None,
        typer.Option(
            help="Who writes them: graph (the data's own, of other contracts), templates, local:MODEL, or "
            "http://host/v1#name. By default the graph where the data has one, else templates."
        ),
    ] = None
    k: Annotated[int, typer.Option(min=1, help="At most this many questions of each forget item.")] = 4

    def by_whom(self, corpus: "Corpus", run: ProbeCommand) -> "By":
        """How the questions of this data are made."""
        if self.by == "graph" or (self.by is None and corpus.dataset is not None):
            return "graph"
        if self.by in (None, "templates"):
            return "offline"
        from vestige.core.text import closest
        from vestige.judges.local import grader_of
        from vestige.judges.spec import BY_MODEL, judge_spec

        # With neither it is no address and no local:MODEL, but a slip in one of the two words.
        if "/" not in self.by and ":" not in self.by:
            near = closest(self.by, ["graph", "templates"])
            raise InputError(f"--by {one_line(self.by)}: {near}, or {BY_MODEL}")
        writer = grader_of(judge_spec(self.by), run.folder.judge, run.device).writer
        if writer is None:
            raise InputError(f"--by {one_line(self.by)} writes no questions; {BY_MODEL}")
        return writer


def placebo_names(placebos: Sequence[str]) -> dict[str, str]:
    """The placebos by what tables call them: the last part of the name, or all of it where that tells too little."""
    from vestige.probes.filters import OWN_NAMES

    names = list(dict.fromkeys(placebos))
    # Folders of models often end alike, as in a/model and b/model.
    short = [Path(placebo).name for placebo in names]
    return {
        name if name and short.count(name) == 1 and name not in OWN_NAMES else placebo: placebo
        for name, placebo in zip(short, names, strict=True)
    }


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


@command(*options_of("adjacent", "neighbours", "latent", "policy", "answers", "filter"), SOURCE, MODEL)
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
    adjacent: AdjacentOptions,
    options: ProbeOptions,
    given: Given,
) -> None:
    """Adjacent questions, searches, and which of both are holes: everything, in one folder, with one judge.

    Each part is kept; the same command resumes a stopped run, and repeats only requests that were under way.
    """
    run = ProbeCommand.begin(options, given)
    from vestige.probes.adjacent import make_adjacent
    from vestige.probes.latent import Iteration, search, yield_of

    searching = run.searching(searches, policy)
    sources = run.sources(data, forget, retain, forget_n, target, unlearned)
    request = _adjacent_request(sources, adjacent, run)
    run.look_for(target, unlearned, *(placebo or ()))
    if dry_run:
        _foresee(request, run, searching, len(placebo or ()))
        return
    questions = make_adjacent(run.folder, request)
    n_near = sum(q.of == "forget" for q in questions)
    if not options.as_json:
        rest = f"{len(questions) - n_near} of the retain set in {run.folder.adjacent}"
        typer.echo(f"{n_near} questions near the forget set and {rest}")
    models = run.participants(target, unlearned)
    for name in searching.sources:
        with progress_bar(name) as show:

            def look(i: Iteration) -> None:
                show(i.number / searching.settings.n_iterations, i.collapsed or f"{i.n_latent} with J = 10")

            brought = yield_of(search(run.folder, models, name, searching, on_iteration=look))
        if not options.as_json:
            typer.echo(
                f"{name}: {brought.n_latent} of {brought.n_calls} prompts got J = 10, {brought.n_distinct} of them "
                f"different: {brought.per_thousand:.1f} for 1,000 calls"
            )
    _print_result(_filtered(sources, models, run, placebo or ()), run)


def _adjacent_request(sources: "ProbeSources", adjacent: AdjacentOptions, run: ProbeCommand) -> "AdjacentRequest":
    from vestige.probes.adjacent import AdjacentRequest, NeighbourSettings
    from vestige.probes.questions import AdjacentSettings

    settings = run.given.build(AdjacentSettings, {"k": adjacent.k})
    neighbours = run.given.build(NeighbourSettings, {"k": adjacent.k})
    by, texts = adjacent.by_whom(sources.corpus, run), (sources.forget_texts, sources.retain_texts)
    return AdjacentRequest(sources.splits, sources.corpus.dataset, by, settings, neighbours, run.options.seed, *texts)


def _filtered(sources: "ProbeSources", models: "Participants", run: ProbeCommand, names: Sequence[str]) -> "HoleTable":
    from vestige.probes.filters import FilterSettings
    from vestige.probes.holes import FilterRequest, filter_holes

    settings = run.given.build(FilterSettings)
    settings.check()
    placebos = {name: run.load(placebo) for name, placebo in placebo_names(names).items()}
    request = FilterRequest(models, sources.forget, settings, sources.retain, placebos, say)
    return filter_holes(run.folder, request)


def _foresee(request: "AdjacentRequest", run: ProbeCommand, searching: "Searching", n_placebos: int) -> None:
    """Say what everything would take at most; nothing is asked."""
    from vestige.probes.adjacent import adjacent_of
    from vestige.probes.answering import AnswerSettings
    from vestige.probes.holes import forecast_probe, forget_texts

    if isinstance(request.by, str):
        n = len(adjacent_of(request)["forget"].questions)
    else:
        # A writer is not asked for a forecast, so this is the most that it may write.
        n = request.settings.k * len(request.forget)
    texts, answers = forget_texts(request.forget), run.given.build(AnswerSettings)
    forecast = forecast_probe(n, texts, searching, answers, run.judge.limits, n_placebos=n_placebos)
    print_forecast(forecast, grounded=not run.judge.by_model, as_json=run.options.as_json)


def _print_result(table: "HoleTable", run: ProbeCommand) -> None:
    from vestige.probes.holes import server_notes

    if run.options.as_json:
        return print_json(table)
    print_holes(table)
    for note in server_notes(run.folder):
        typer.echo(note)
    typer.echo(f"holes in {run.folder.holes}")


def print_holes(table: "HoleTable", *, n_shown: int = 8) -> None:
    """The table for people. Prompts and terms come from models and data, so they are hostile text."""
    if table.rows:
        measures = ["", "mean before", "mean after", "change", "lowest before", "lowest after", "holes"]
        print_columns(
            "fresh answers: quality 1 to 10, 95 % intervals", [measures], [_column(row) for row in table.rows]
        )
    else:
        typer.echo("no prompt was left to test and judge; docs/holes.md says why (What counts as a hole)")
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
    for source, spread in table.diversity.items():
        words = f"{one_line(source)}: {spread.n} prompts tested, Vendi / n {spread.vendi_share:.2f}"
        words += "" if spread.distinct_ngrams is None else f", 1 - avgSelfBLEU {spread.distinct_ngrams:.2f}"
        near = spread.to_adjacent
        typer.echo(words + ("" if near is None else f", cosine to the nearest adjacent question {near:.2f}"))
    typer.echo(
        f"{table.n_holes} holes, {table.n_distinct_holes} of them different; testing asked the target "
        f"{table.target_calls:,} and the unlearned model {table.unlearned_calls:,} prompts"
    )
    if table.groups and table.naming:
        typer.echo(f"what they are about, {one_line(table.naming, width=160)}:")
    for group in table.groups[:n_shown]:
        sources = f" ({counted(group.by_source)})" if len(group.by_source) > 1 else ""
        typer.echo(f"  {group.n:>4}  {one_line(group.name)}{sources}")


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
