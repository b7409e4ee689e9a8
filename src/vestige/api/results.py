"""The results of the public functions: records with names, which a notebook shows as tables."""

import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from vestige.api.inputs import PathLikeStr
from vestige.core.errors import InputError
from vestige.core.text import Fields, Names, Record, Sentences, TextMapping, closest, one_line

if TYPE_CHECKING:
    from pandas import DataFrame

    from vestige.artifacts.audits import AuditOutcome, VerdictLine
    from vestige.artifacts.holes import HoleTable
    from vestige.artifacts.records import ItemScores, KeptPrompt, Summary
    from vestige.attacks.planning import Attack as PlannedAttackItems
    from vestige.auditing.compare import ComparedQuestion, ComparedScore
    from vestige.auditing.request import AuditRequest

Word: TypeAlias = Literal["pass", "fail", "inconclusive", "not tested"]
"""The verdict on a claim."""


class Rows:
    """A table. A notebook shows its `columns`."""

    columns: ClassVar[Names] = ()
    if TYPE_CHECKING:  # A field or a property; dataclasses would take a property of this class for a field's default.

        @property
        def rows(self) -> Sequence[Record]: ...

    def to_frame(self) -> "DataFrame":
        """The rows as a DataFrame."""
        from pandas import DataFrame

        return DataFrame(list(self.rows))

    def _repr_html_(self) -> str:
        """A table in HTML. Every text in it, which may come from a model or a data set, is escaped."""
        rows = self.rows
        columns = self.columns or tuple(rows[0] if rows else ())
        head = "".join(f"<th>{_safe(column)}</th>" for column in columns)
        body = ""
        for row in rows:
            cells = "".join(f"<td>{_safe(row.get(column))}</td>" for column in columns)
            body += f"<tr>{cells}</tr>"
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _safe(value: Any) -> str:
    if value is None:
        return ""
    return html.escape(one_line(f"{value:.3g}" if isinstance(value, float) else str(value), width=300))


@dataclass(frozen=True)
class Model(Rows):
    """A trained model: its folder, its steps, the reason that training stopped, and notes on the data.

    Pass it to any function that takes a model. `chosen` explains the kept checkpoint if a rule chose one.
    """

    path: Path
    steps: int
    stopped: str
    notes: Sentences = ()
    digest: str = ""
    chosen: Record | None = None

    def __fspath__(self) -> str:
        return str(self.path)

    def training_log(self) -> list[Fields]:
        """Return the log of the training, a row a step: the loss and its terms in nats a token."""
        from vestige.artifacts.layout import SubjectFolder
        from vestige.artifacts.records import read_training_log

        return read_training_log(SubjectFolder(self.path).training_log)

    @property
    def rows(self) -> list[Fields]:
        """The rows of the training log."""
        return self.training_log()

    def _repr_html_(self) -> str:
        return f"<p>{_safe(self.path)}: {self.steps} steps, {_safe(self.stopped)}</p>"


@dataclass(frozen=True, repr=False)
class Results(Rows):
    """Estimates of one model or of an attack on it, with intervals and n. `evidence` is the folder of the records."""

    columns = ("split", "scope", "format", "attack", "metric", "value", "low", "high", "n")
    rows: tuple[Fields, ...]
    evidence: tuple[Path, ...]
    notes: Sentences = ()
    answers: "tuple[ItemScores, ...]" = ()
    summaries: "tuple[Summary, ...]" = ()
    role: str = ""

    def items(self) -> "DataFrame":
        """Return the score of each question, for `vestige.pool`.

        Returns:
            A row per question, split and metric: `split` (`forget:free` contains the questions whose answers do not
            follow from retained contracts), `item`, `edge`, `attribute`, `attack` (empty before one), `metric`
            (`qa.rouge1_recall`) and `value`.
        """
        from pandas import DataFrame

        from vestige.artifacts.records import item_rows

        return DataFrame([*chain.from_iterable(map(item_rows, self.answers))])

    def __repr__(self) -> str:
        """Return one line with the number of estimates and the evidence folder."""
        return f"Results({len(self.rows)} estimates; evidence: {', '.join(map(str, self.evidence))})"


@dataclass(frozen=True, repr=False)
class Attacked(Results):
    """Estimates before and after an attack.

    Attributes:
        attack: The planned attack, with the items that it tested.
        levels: The summaries of the evaluations by point of the attack. The first point is `before`.
        spent: Upper bounds on the bits that the attack added (`bounds_bits`), and the amounts it used.
        prompt: The prompt that a search found. None for other attacks.
    """

    attack: "PlannedAttackItems | None" = None
    levels: "tuple[tuple[str, Summary], ...]" = ()
    spent: Record = field(default_factory=dict)
    prompt: "KeptPrompt | None" = None


@dataclass(frozen=True)
class Verdict:
    """The verdict on one claim about one model.

    Attributes:
        verdict: `pass`, `fail`, `inconclusive`, or `not tested` if the audit did not judge the claim.
        bound: The estimate with its bound in words, as in `87 % left (at least 75 %), choose`.
        at_least: Lower bound of the deciding quantity, in `unit`. None if nothing was measured.
        at_most: Its upper bound.
        margin: The claim fails if a quantity exceeds this margin with confidence.
        wide: The claim passes if all quantities are below this margin with confidence.
        unit: `share`, `leakage` or `bits`.
        reason: The explanation, in words and numbers.
        against: The reference of the comparison: `retrained`, `chance`, or empty.
    """

    verdict: Word = "not tested"
    bound: str = ""
    at_least: float | None = None
    at_most: float | None = None
    margin: float | None = None
    wide: float | None = None
    unit: str = ""
    reason: str = ""
    against: str = ""


@dataclass(frozen=True)
class ModelVerdicts:
    """The verdicts on one unlearned model, one for each claim."""

    subject: str
    forget: str
    not_expressed: Verdict = field(default_factory=Verdict)
    not_recoverable: Verdict = field(default_factory=Verdict)
    not_stored: Verdict = field(default_factory=Verdict)
    indistinguishable: Verdict = field(default_factory=Verdict)
    utility_preserved: Verdict = field(default_factory=Verdict)
    benchmark_valid: Verdict = field(default_factory=Verdict)

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """The verdicts by claim."""
        every = {name.replace("_", " "): value for name, value in vars(self).items()}
        return {name: value for name, value in every.items() if isinstance(value, Verdict)}

    @property
    def passed(self) -> bool:
        """Whether at least one claim was judged and every judged claim passes."""
        judged = {verdict.verdict for verdict in self.verdicts.values()} - {"not tested"}
        return judged == {"pass"}


def _verdict(outcome: "AuditOutcome", line: "VerdictLine") -> Verdict:
    from vestige.artifacts.verdicts import WORDS, bound_said

    word: Any = WORDS[line.outcome]
    return Verdict(
        verdict=word,
        bound=bound_said(outcome, line),
        at_least=line.at_least,
        at_most=line.at_most,
        margin=line.margin,
        wide=line.wide,
        unit=line.unit,
        reason=line.reason,
        against=line.against,
    )


@dataclass(frozen=True, repr=False)
class Audit(Rows):
    """The verdicts of a run.

    `audit["npo"].not_expressed.verdict` is one verdict, and `audit.passed` combines all. `failed` gives the reason for
    each failed task, by the task's name.
    """

    columns = ("subject", "claim", "verdict", "bound")
    path: Path
    outcomes: "tuple[AuditOutcome, ...]"
    failed: TextMapping
    notes: Sentences = ()
    n_tasks: int = 0
    request: "AuditRequest | None" = None

    @property
    def models(self) -> tuple[ModelVerdicts, ...]:
        """The verdicts of each unlearned model and forget set."""
        found = []
        for outcome in self.outcomes:
            for subject in outcome.unlearned:
                lines = [line for line in outcome.verdicts if line.subject == subject]
                claims = {line.claim.replace(" ", "_"): _verdict(outcome, line) for line in lines}
                found.append(ModelVerdicts(subject, outcome.forget, **claims))
        return tuple(found)

    def __getitem__(self, subject: str) -> ModelVerdicts:
        """Return the verdicts on one unlearned model, by its name in the report.

        Raises:
            InputError: No model has this name, or the run has verdicts on it for several forget sets.
        """
        found = [model for model in self.models if model.subject == subject]
        if not found:
            hint = closest(subject, [model.subject for model in self.models])
            raise InputError(f"the audit has no unlearned model {one_line(subject)!r}. {hint}")
        if len(found) > 1:
            raise InputError(f"{one_line(subject)} was judged for {len(found)} forget sets. Read `models`")
        return found[0]

    @property
    def passed(self) -> bool:
        """Whether no task failed and every judged claim about every unlearned model passes."""
        models = self.models
        return bool(models) and not self.failed and all(model.passed for model in models)

    @property
    def warnings(self) -> Sentences:
        """Doubts about the controls, in sentences. They concern every verdict."""
        return tuple(dict.fromkeys(chain.from_iterable(outcome.warnings for outcome in self.outcomes)))

    @property
    def verdicts(self) -> list[Fields]:
        """Return the rows of verdicts.json: `subject`, `claim`, `verdict`, `bound`, `reason` and the evidence."""
        from vestige.artifacts.verdicts import verdict_rows

        return verdict_rows(self.outcomes)

    def regressions(self, baseline: PathLikeStr) -> list[Fields]:
        """Return the verdicts that are worse than in an earlier run, each with `was`.

        Args:
            baseline: The earlier run's folder or its verdicts.json.
        """
        from vestige.artifacts.verdicts import read_baseline, regressions

        return [{**row, "was": was} for row, was in regressions(self.verdicts, read_baseline(Path(baseline)))]

    @property
    def untested(self) -> Sentences:
        """The tests that the audit could not make, in sentences."""
        return tuple(dict.fromkeys(chain.from_iterable(outcome.untested for outcome in self.outcomes)))

    @property
    def rows(self) -> list[Fields]:
        """A row for each verdict."""
        columns = ("subject", "forget", "claim", "verdict", "bound", "at_least", "at_most", "against", "reason")
        return [dict(zip(columns, itemgetter(*columns)(row), strict=True)) for row in self.verdicts]

    def __repr__(self) -> str:
        """Return one line: the folder, and the numbers of passing, failing and open claims."""
        counts = Counter(row["verdict"] for row in self.verdicts)
        subjects = len({row["subject"] for row in self.verdicts})
        verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("pass", "fail", "inconclusive"))
        return f"Audit({str(self.path)!r}: {subjects} {'model' if subjects == 1 else 'models'}, claims: {verdicts})"

    def report(self) -> Path:
        """Write the report and its tables, and return the path of the page."""
        from vestige.report import build_report

        return build_report(self.path)

    def _repr_html_(self) -> str:
        untested = "".join(f"<li>{_safe(sentence)}</li>" for sentence in self.untested)
        return f"{super()._repr_html_()}<details><summary>not tested</summary><ul>{untested}</ul></details>"


@dataclass(frozen=True)
class Holes(Rows):
    """The results of a probe: the table by source, the confirmed holes, and notes on the data."""

    path: Path
    table: "HoleTable"
    notes: Sentences = ()

    @property
    def rows(self) -> list[Fields]:
        """One row for each number of each source, with interval and n. Placebos give the number of false holes."""
        from vestige.artifacts.holes import estimates_of

        rows = []
        for row in self.table.rows:
            for e in estimates_of(row):
                rows.append(
                    {"source": row.source, "metric": e.metric, "value": e.value, "low": e.low, "high": e.high, "n": e.n}
                )
        return rows

    @property
    def holes(self) -> list[Fields]:
        """The confirmed holes: prompt, source, both answers and scores, group."""
        from vestige.artifacts.layout import ProbeFolder
        from vestige.core.files import read_jsonl

        return list(read_jsonl(ProbeFolder(self.path).holes))

    def to_frame(self) -> "DataFrame":
        """A row for each confirmed hole."""
        from pandas import DataFrame

        return DataFrame(self.holes)


@dataclass(frozen=True, repr=False)
class Comparison(Rows):
    """A comparison of models with the first on the same questions. It has one row for each model, task and score."""

    scores: "tuple[ComparedScore, ...]"
    questions: "tuple[ComparedQuestion, ...]" = ()
    verdicts: Sequence[Fields] = ()
    paths: Names = ()

    @property
    def page(self) -> str:
        """Return one HTML page that works offline: verdicts of audits, differences, curves and questions."""
        from vestige.auditing.compare import HEADS, cells_of, common_first
        from vestige.report.page import render_comparison

        common = common_first(self.scores)
        cells = [cells_of(score, common) for score in self.scores]
        return render_comparison(self.scores, self.questions, self.verdicts, HEADS, cells, self.paths, common)

    @property
    def rows(self) -> list[Fields]:
        """The rows as dicts."""
        return [asdict(score) for score in self.scores]

    @property
    def markdown(self) -> str:
        """Markdown tables, for a pull request."""
        from vestige.auditing.compare import markdown

        return markdown(self.scores, self.verdicts)
