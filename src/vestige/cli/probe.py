"""`vestige probe`: find the benign knowledge that went with the forget set.

`vestige probe TARGET UNLEARNED` makes adjacent questions, searches for more, and tests which are holes; `adjacent`,
`latent` and `filter` do one part each, in the same folder.
"""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from vestige.cli.asked import refuse_torchrun, say
from vestige.cli.data_words import DataWords, say_notes
from vestige.cli.options import Data, DryStudy, Forget
from vestige.cli.probe_mitigate import mitigate_command
from vestige.cli.probe_prevent import prevent_command
from vestige.cli.probe_tables import tables_command
from vestige.cli.probe_variance import variance_command
from vestige.cli.probe_words import JudgeWords, NearWords, PlaceWords, participants, placebo_names, searches_named
from vestige.cli.progress import progress_bar
from vestige.cli.spread import spread
from vestige.cli.tables import counted, print_columns, print_cost, print_counts, print_json
from vestige.core.text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vestige.artifacts.holes import HoleRow, HoleTable, Placebo
    from vestige.data.probe_sources import ProbeSources
    from vestige.probes.adjacent import AdjacentRequest, KeptQuestion
    from vestige.probes.answering import Participants
    from vestige.probes.holes import ProbeForecast, Size
    from vestige.probes.latent import Yield


TargetName = Annotated[str, typer.Argument(help="The model that knows: a folder, any model, or URL#MODEL.")]
UnlearnedName = Annotated[str, typer.Argument(help="The model that forgot: a folder, any model, or URL#MODEL.")]
PolicyName = Annotated[str, typer.Option("--policy", help="The model that learns to ask; a small one will do.")]
Searches = Annotated[
    str,
    typer.Option(
        help="Ways to search beyond the adjacent questions, apart by commas: latent (RL), random and paraphrase (the "
        "same policy without learning), or none."
    ),
]
Placebos = Annotated[
    list[str] | None,
    typer.Option("--placebo", help="A model that knows what the target knows: its holes are false. May be repeated."),
]
_PROMPT_CHARACTERS = 200
ForgetN = Annotated[
    int | None,
    typer.Option(
        min=1, help="Of a forget set of texts or harmful answers: a sample of so many, drawn by the seed; else all."
    ),
]
ALL = "all"


class _AllByDefault(TyperGroup):
    """A group whose command `all` need not be named: `vestige probe TARGET UNLEARNED`."""

    # Any: typer carries a context class of its own, which has no public name.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = bool(args) and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if named or not args else [ALL, *args])


probe_app = typer.Typer(
    cls=_AllByDefault,
    help="Find knowledge holes: what an unlearned model no longer answers, though it should have kept it. Without a "
    "command: `vestige probe TARGET UNLEARNED`, all parts one after the other.",
    no_args_is_help=True,
)
probe_app.command("prevent")(prevent_command)


@probe_app.command(ALL)
@spread
def all_command(
    target: TargetName,
    unlearned: UnlearnedName,
    data: Data,
    forget: Forget,
    policy: PolicyName = "builtin:smollm2",
    searches: Searches = "latent",
    placebo: Placebos = None,
    forget_n: ForgetN = None,
    dry_run: DryStudy = False,
    *,
    rows: DataWords,
    near: NearWords,
    who: JudgeWords,
    place: PlaceWords,
) -> None:
    """Adjacent questions, searches, and which of both are holes: everything, in one folder, with one judge.

    Each part is kept; the same command goes on where a stopped one ended, and asks and pays for nothing twice.
    """
    refuse_torchrun("probe")
    from vestige.probes.adjacent import make_adjacent
    from vestige.probes.latent import SEARCHES

    who.check()
    who.check_naming(place)
    names = searches_named(searches, SEARCHES)
    sources = _read(rows, data, forget, forget_n)
    request = _adjacent_request(sources, near, who, place)
    place.look_for(target, unlearned, *(placebo or ()))
    if dry_run:
        _foresee(request, who, place, _size(names, len(placebo or ()), place))
        return
    _say_adjacent(make_adjacent(place.folder, request), place)
    models = participants(target, unlearned, who, place)
    for name in names:
        _search(name, policy, models, place)
    _tell(_filtered(sources, models, place, placebo or ()), place)


@probe_app.command("adjacent")
@spread
def adjacent_command(
    data: Data,
    forget: Forget,
    forget_n: ForgetN = None,
    *,
    rows: DataWords,
    near: NearWords,
    who: JudgeWords,
    place: PlaceWords,
) -> None:
    """Questions near the forget set, none of which it answers; no model is asked unless it is to write them."""
    refuse_torchrun("probe")
    from vestige.probes.adjacent import make_adjacent

    sources = _read(rows, data, forget, forget_n)
    kept = make_adjacent(place.folder, _adjacent_request(sources, near, who, place))
    if place.as_json:
        return print_json([{"of": k.of, **asdict(k.question)} for k in kept])
    _say_adjacent(kept, place)
    for one in [k for k in kept if k.of == "forget"][:5]:
        typer.echo(f"  {one_line(one.question.question)}")


@probe_app.command("latent")
@spread
def latent_command(
    target: TargetName,
    unlearned: UnlearnedName,
    policy: PolicyName = "builtin:smollm2",
    searches: Searches = "latent",
    *,
    who: JudgeWords,
    place: PlaceWords,
) -> None:
    """Search for prompts that UNLEARNED answers badly, from the adjacent questions in the folder.

    Settings: latent.n_iterations, policy.n_rollouts and others; see docs/holes.md.
    """
    refuse_torchrun("probe")
    from vestige.probes.adjacent import beginnings_in
    from vestige.probes.latent import SEARCHES

    who.check()
    names = searches_named(searches, SEARCHES)
    # Before any model is loaded.
    beginnings_in(place.folder)
    models = participants(target, unlearned, who, place)
    found = {name: _search(name, policy, models, place) for name in names}
    if place.as_json:
        print_json({name: one._asdict() for name, one in found.items()})


@probe_app.command("filter")
@spread
def filter_command(
    target: TargetName,
    unlearned: UnlearnedName,
    data: Data,
    forget: Forget,
    placebo: Placebos = None,
    forget_n: ForgetN = None,
    *,
    rows: DataWords,
    who: JudgeWords,
    place: PlaceWords,
) -> None:
    """Say which prompts in the folder are holes: filters, fresh answers of both models, placebos, groups.

    Settings: filter.target_at_least, filter.unlearned_at_most, filter.alike and others; see docs/holes.md.
    """
    refuse_torchrun("probe")
    from vestige.probes.holes import candidates_in

    who.check()
    who.check_naming(place)
    sources = _read(rows, data, forget, forget_n)
    # Before any model is loaded.
    candidates_in(place.folder)
    _tell(_filtered(sources, participants(target, unlearned, who, place), place, placebo or ()), place)


probe_app.command("mitigate")(mitigate_command)
probe_app.command("variance")(variance_command)
probe_app.command("tables")(tables_command)


def _read(rows: DataWords, data: str, forget: str, forget_n: int | None) -> "ProbeSources":
    from vestige.data.probe_sources import probe_sources

    found = probe_sources(rows.source(data), forget, retain=rows.retain, n_forget=forget_n)
    say_notes(found.splits)
    return found


def _adjacent_request(
    sources: "ProbeSources", near: NearWords, who: JudgeWords, place: PlaceWords
) -> "AdjacentRequest":
    from vestige.probes.adjacent import AdjacentRequest, NeighbourSettings
    from vestige.probes.questions import AdjacentSettings

    k = {"k": near.k}
    settings = AdjacentSettings.build(k | place.values("adjacent"), where="settings of adjacent")
    neighbours = NeighbourSettings.build(k | place.values("neighbours"), where="settings of neighbours")
    by, texts = near.way(sources.corpus, who, place), (sources.forget_texts, sources.retain_texts)
    return AdjacentRequest(sources.splits, sources.corpus.dataset, by, settings, neighbours, place.seed, *texts)


def _search(name: str, policy: str, models: "Participants", place: PlaceWords) -> "Yield":
    """Make one search and say what it brought."""
    from vestige.probes.answering import AnswerSettings
    from vestige.probes.latent import LatentSettings, SearchRequest, search, yield_of
    from vestige.training.policy.settings import PolicySettings

    settings = place.settings("latent", LatentSettings)
    with progress_bar(name) as show:
        request = SearchRequest(
            source=name,
            policy=place.model(policy),
            policy_settings=place.settings("policy", PolicySettings),
            settings=settings,
            unlearned=models.unlearned,
            answers=place.settings("answers", AnswerSettings),
            grader=models.grader,
            embedder=models.embedder,
            seed=place.seed,
            on_iteration=lambda i: show(i.number / settings.n_iterations, i.collapsed or f"{i.n_latent} with J = 10"),
        )
        found = yield_of(search(place.folder, request))
    if not place.as_json:
        typer.echo(
            f"{name}: {found.n_latent} of {found.n_calls} prompts got J = 10, {found.n_distinct} of them different: "
            f"{found.per_thousand:.1f} for 1,000 calls"
        )
    return found


def _filtered(
    sources: "ProbeSources", models: "Participants", place: PlaceWords, placebos: "Sequence[str]"
) -> "HoleTable":
    from vestige.probes.answering import AnswerSettings
    from vestige.probes.filters import FilterSettings
    from vestige.probes.holes import FilterRequest, filter_holes

    settings = place.settings("filter", FilterSettings)
    settings.check()
    request = FilterRequest(
        forget=sources.forget,
        retain=sources.retain,
        target=models.target,
        unlearned=models.unlearned,
        placebos={name: place.taking_part(placebo) for name, placebo in placebo_names(placebos).items()},
        answers=place.settings("answers", AnswerSettings),
        grader=models.grader,
        embedder=models.embedder,
        settings=settings,
        seed=place.seed,
        on_stage=say,
    )
    return filter_holes(place.folder, request)


def _size(searches: "Sequence[str]", n_placebos: int, place: PlaceWords) -> "Size":
    from vestige.probes.holes import Size
    from vestige.probes.latent import LatentSettings
    from vestige.training.policy.settings import PolicySettings

    rollouts = place.settings("policy", PolicySettings).n_rollouts
    attempts = len(searches) * place.settings("latent", LatentSettings).n_iterations * rollouts
    return Size(n_candidates=0, n_attempts=attempts, n_placebos=n_placebos)


def _foresee(request: "AdjacentRequest", who: JudgeWords, place: PlaceWords, size: "Size") -> None:
    """Say what everything would take at most; `size` has no candidates yet."""
    from vestige.judges.spending import Limits
    from vestige.probes.adjacent import adjacent_of
    from vestige.probes.answering import AnswerSettings
    from vestige.probes.filters import FilterSettings
    from vestige.probes.holes import forecast_probe, forget_texts

    if isinstance(request.by, str):
        n = len(adjacent_of(request)["forget"].questions)
    else:
        n = request.settings.k * len(request.forget)
    texts = forget_texts(request.forget)
    forecast = forecast_probe(
        size._replace(n_candidates=n),
        # A prompt is about as long as the first line of a source: a question, or a title.
        texts[0].splitlines()[0][:_PROMPT_CHARACTERS],
        texts,
        place.settings("filter", FilterSettings),
        answer_tokens=place.settings("answers", AnswerSettings).max_tokens,
        limits=place.settings("limits", Limits),
    )
    print_forecast(forecast, grounded=who.judge == "grounded", as_json=place.as_json)


def _tell(table: "HoleTable", place: PlaceWords) -> None:
    from vestige.probes.holes import server_notes

    if place.as_json:
        return print_json(table)
    print_holes(table)
    for note in server_notes(place.folder):
        typer.echo(note)
    typer.echo(f"holes in {place.folder.holes}")


def _say_adjacent(kept: "Sequence[KeptQuestion]", place: PlaceWords) -> None:
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
        typer.echo(f"{one_line(source)}: {found.n} prompts tested, Vendi / n {found.vendi_share:.2f}{spread}")
    typer.echo(
        f"{table.n_holes} holes, {table.n_distinct_holes} of them different; testing asked the target "
        f"{table.target_calls:,} and the unlearned model {table.unlearned_calls:,} prompts"
    )
    if table.groups and table.naming:
        typer.echo(f"what they are about, {one_line(table.naming, width=160)}:")
    for group in table.groups[:n_shown]:
        typer.echo(f"  {group.n:>4}  {one_line(group.name)}")


def _print_rows(table: "HoleTable") -> None:
    """Measures down, sources across."""
    if not table.rows:
        typer.echo("no prompt was left to be tested and judged; docs/holes.md says what can be done (Nothing left)")
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
