"""`vestige probe variance`: how far a probe's scores vary."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli.command import Given, command
from vestige.cli.options import MODEL, DryRun, Embedder
from vestige.cli.output import refuse_torchrun, say
from vestige.cli.probe import (
    JudgeOptions,
    Place,
    PlaceOptions,
    judge_words,
    participants,
    placebo_names,
    refuse_idle_limits,
    shown,
)
from vestige.cli.tables import counted, print_columns, print_json
from vestige.core.errors import InputError
from vestige.core.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vestige.artifacts.holes import ChangeTests, JudgePair, JudgeParts, Outcome, Runs, VarianceRow, VarianceTable


TargetName = Annotated[str, typer.Argument(help="The target model of the probe in the folder.")]
UnlearnedNames = Annotated[
    list[str], typer.Argument(help="Unlearned models, such as trainings of one method at several seeds.")
]
JudgeNames = Annotated[
    list[str] | None,
    typer.Option(
        "--judge",
        metavar="WHO",
        help="grounded (by default), local:MODEL, or server:URL#MODEL (key: VESTIGE_JUDGE_KEY). May be repeated.",
    ),
]
Generations = Annotated[int, typer.Option(min=1, help="How many times each model answers each prompt.")]
Criteria = Annotated[
    bool, typer.Option("--criteria", help="Grade relevancy, accuracy, completeness, fluency and consistency as well.")
]


@command(*shown("answers", "judge", "grounded", "limits"), MODEL)
def variance_command(
    target: TargetName,
    unlearned: UnlearnedNames,
    judge: JudgeNames = None,
    generations: Generations = 3,
    criteria: Criteria = False,
    embedder: Embedder = None,
    dry_run: DryRun = False,
    *,
    where: PlaceOptions,
    given: Given,
) -> None:
    """Measure how far a finished probe's scores vary when several models answer its prompts several times.

    Mean and SD over runs before and after, tests of the change, agreement of judges. Nothing is paid for twice.
    """
    refuse_torchrun("probe variance")
    place = Place(where, given, judges=judge or ())
    from vestige.probes.answering import AnswerSettings
    from vestige.probes.variance import VarianceRequest, count_variance, probed_answers, variance

    if len(set(unlearned)) < len(unlearned):
        raise InputError(f"an unlearned model is given twice ({', '.join(map(one_line, unlearned))}); give each once")
    judges = {name: judge_words(name, embedder) for name in judge or ["grounded"]}
    own = probed_answers(place.folder).identity()
    answers = given.build(AnswerSettings, own)
    place.look_for(target, *unlearned)
    refuse_idle_limits(place, target, *unlearned, judges=[who.judge for who in judges.values()])
    cast = participants(target, "", JudgeOptions(embedder=embedder), place, answers)
    request = VarianceRequest(
        cast,
        {label: partial(place.asked, name) for label, name in placebo_names(unlearned).items()},
        {name: partial(cast.graded_by, who.judging(place), place.folder) for name, who in judges.items()},
        generations,
        criteria,
        say,
    )
    if dry_run:
        count = count_variance(place.folder, request)
        return print_json(count._asdict()) if place.as_json else typer.echo(f"at most; nothing was asked: {count}")
    table = variance(place.folder, request)
    if place.as_json:
        return print_json(table)
    print_variance(table)


_MEASURES = (
    "",
    "before: mean",
    "after: mean",
    "before: at 1",
    "after: at 1",
    "change",
    "p, Student",
    "p, Welch",
    "p over models",
    "p over prompts",
    "variance: models",
    "prompts",
    "models x prompts",
    "generations",
)


def print_variance(table: "VarianceTable") -> None:
    """The table for people. Names of judges and models are hostile text."""
    title = "quality 1 to 10: mean +- SD over runs (how many); change with its 95 % interval"
    print_columns(title, [_MEASURES], [_column(row) for row in table.rows])
    for line in _notes(table):
        typer.echo(line)


def _column(row: "VarianceRow") -> list[str]:
    """A source's and judge's head, and the numbers."""
    n = f"n = {row.n}" if row.n == row.n_judged else f"n = {row.n_judged} of {row.n}"
    parts = (row.parts.model, row.parts.prompt, row.parts.model_by_prompt, row.parts.generation)
    return [
        f"{one_line(row.source)}\n{one_line(row.judge, width=40)}\n{n}",
        _mean(row.before),
        _mean(row.after),
        f"{row.before.lowest:.3f}",
        f"{row.after.lowest:.3f}",
        row.change.said(),
        *(_p(outcome) for outcome in _outcomes(row.tests).values()),
        *("-" if part is None else f"{part:.2f}" for part in parts),
    ]


def _outcomes(tests: "ChangeTests") -> "dict[str, Outcome]":
    """The tests by their names, in the table's order."""
    return {
        "Student's test": tests.student,
        "Welch's test": tests.welch,
        "the test over models": tests.over_models,
        "the test over prompts": tests.over_prompts,
    }


def _mean(runs: "Runs") -> str:
    spread = "" if runs.sd is None else f" +- {runs.sd:.2f}"
    return f"{runs.mean:.2f}{spread} ({runs.n_runs})"


def _p(outcome: "Outcome") -> str:
    if outcome.p is None:
        return "-"
    return "< 0.001" if outcome.p < 0.001 else f"{outcome.p:.3f}"


def _notes(table: "VarianceTable") -> "Iterator[str]":
    """What stands below the table, a line each."""
    models = f"{len(table.models)} unlearned model{'' if len(table.models) == 1 else 's'}"
    yield f"{models}, {table.generations} generations of each and of the target"
    if table.probed:
        yield f"the prompts were chosen on {one_line(table.probed)}; its scores are fresh, and the others' too"
    else:
        yield "the prompts were chosen on a model that is not among these"
    for row in table.rows:
        yield from _row_notes(row)
    for source, judges in table.unjudged.items():
        for judge, reasons in judges.items():
            yield f"{one_line(source)}, {one_line(judge)}: no prompt was graded in every run: {counted(reasons)}"
    yield from map(_pair, table.pairs)
    yield from (_judge_parts(parts) for parts in table.judge_parts if not parts.why_not)


def _row_notes(row: "VarianceRow") -> "Iterator[str]":
    head = f"{one_line(row.source)}, {one_line(row.judge)}"
    for name, outcome in _outcomes(row.tests).items():
        if outcome.why_not:
            yield f"{head}: {name} was not made: {outcome.why_not}"
    if row.parts.why_not:
        yield f"{head}: variance has no parts: {row.parts.why_not}"
    for side, failures in (("target", row.failures_before), ("unlearned", row.failures_after)):
        if failures:
            yield f"{head}, not judged, answers of the {side}: {counted(failures)}"
    for criterion in row.criteria:
        yield f"{head}, {criterion.criterion} (1 to 5): {criterion.before:.2f} before, {criterion.after:.2f} after"
    if row.criteria_failures:
        yield f"{head}, criteria not judged: {counted(row.criteria_failures)}"


def _pair(pair: "JudgePair") -> str:
    rank, kappa = ("-" if x is None else f"{x:.2f}" for x in (pair.spearman, pair.kappa))
    return (
        f"{one_line(pair.first)} and {one_line(pair.second)}, {pair.n:,} answers: weighted kappa {kappa}, Spearman "
        f"{rank}, equal {pair.equal:.2f}, within 1 {pair.within_one:.2f}, mean difference {pair.difference:.2f}"
    )


def _judge_parts(parts: "JudgeParts") -> str:
    named = {
        "models": parts.model,
        "generations": parts.generation,
        "judges": parts.judge,
        "models x judges": parts.model_by_judge,
        "rest": parts.rest,
    }
    shown = ", ".join(f"{name} {value:.3f}" for name, value in named.items() if value is not None)
    return f"{one_line(parts.source)}: variance of a run's mean after unlearning: {shown}"
