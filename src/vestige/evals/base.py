"""What an evaluation is, the words it asks in, and how its values become estimates.

What an evaluation is: a module that fulfils `Evaluation`, and the view from which its records are summed up. The author
of one writes no loop over the data set, no file, no resume: `steps.evaluate` does that for all.

From the values of items to estimates by split, scope and edge, for every evaluation alike. A mean over items, with an
interval; items of one edge share parties and template, so they are clustered by edge.

The words in which questions are put, one function a form; golden files hold what each gives. A plain prompt goes to the
model as it stands; in a chat it is the user's turn. `Answer:` closes it where the answer is to follow on the same line.

What evaluations ask of a model at once: a role, and collecting from one reading for one of them or for several. Whether
another evaluation asked along changes a record by rounding alone.
"""

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from vestige.artifacts.audits import Format
from vestige.artifacts.records import Result
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.core.ids import content_id
from vestige.core.items import Item, Scope
from vestige.core.seeds import derive_seed
from vestige.core.settings import Settings
from vestige.core.text import one_line
from vestige.data.corpus import NamedSplits
from vestige.data.facts import BLANK
from vestige.metrics.intervals import interval_of_mean

if TYPE_CHECKING:
    from vestige.models.generation import Reply, Sampling
    from vestige.models.load import LoadedModel
    from vestige.models.reading import Prompted, Reading

S = TypeVar("S", bound=Settings)
T = TypeVar("T")

Record = Mapping[str, Any]


@dataclass(frozen=True)
class View:
    """How one forget set sees the items: their splits, and how far retained items tell a forget item's answer."""

    forget: str
    splits: Mapping[str, Sequence[str]]
    scopes: Mapping[str, Scope]


def view_of(splits: NamedSplits) -> View:
    """The view of one forget set, by the items' ids."""
    return View(splits.forget, {n: tuple(i.id for i in items) for n, items in splits.splits.items()}, splits.scopes)


class Evaluation(Protocol[S, T]):
    """The names that a module of this room has. S are its settings, T is what is asked about an item."""

    NAME: str
    COLLECT_VERSION: int
    SUMMARY_VERSION: int
    SETTINGS: type[S]

    def asked(self, items: Sequence[Item], views: Sequence[View], settings: S) -> Mapping[str, T]:
        """What is asked, by item id: a record is made of each, whose `item` is that id."""

    def digest(self, questions: Mapping[str, T]) -> str:
        """Content id of everything in `asked` that can change a record."""

    def chunks(self, subject: "LoadedModel", questions: Sequence[T], *, size: int) -> list[list[int]]:
        """Numbers of what is asked, in the portions that collecting works through; fixed by the plan."""

    def collect(self, subject: "LoadedModel", questions: Sequence[T], settings: S) -> list[dict[str, Any]]:
        """One record each, in order; but for rounding, a record depends on its item and not on those beside it."""

    def score(self, record: Record) -> dict[str, float]:
        """The values of one record, by metric; pure."""

    def summarize(
        self, records: Sequence[Record], scores: Sequence[Mapping[str, float]], view: View, *, seed: int
    ) -> tuple[Result, ...]:
        """The estimates of every split, scope and edge; pure."""


@dataclass(frozen=True)
class InAudit:
    """What an audit has to know of an evaluation, whose module says it as `AUDIT` where this is not right.

    `formats` say by which scores knowledge is told; those of Vestige's own are in `auditing.formats`, since judging
    loads no evaluation. `items` are the forget set, those of all splits, some of each split, or what `asked` gives.
    `needs` is what a model has to give, behind an address too, and `label` names the evaluation where one does not.
    An attacked model is asked too `after` an attack, never, or where no model that never knew was given. One that
    offers questions as options is not asked `with_texts` that an attack puts beside the question.
    """

    formats: tuple[Format, ...] = ()
    items: Literal["forget", "all", "some", "asked"] = "forget"
    needs: Literal["replies", "scores", "distributions"] = "replies"
    label: str = ""
    after: Literal["attacks", "uncontrolled", "never"] = "attacks"
    with_texts: bool = True


def audit_of(evaluation: Evaluation[Any, Any]) -> InAudit:
    """What an audit has to know of it."""
    audit: InAudit = getattr(evaluation, "AUDIT", InAudit())
    return audit


BITS, SHARE = "bits", "share"


class Measure(NamedTuple):
    """The name of a value in tables: the format it was asked in, the metric, and its unit (a `share` alone has bounds).

    One that is `exact`, such as chance, has no uncertainty.
    """

    format: str
    metric: str
    unit: str
    exact: bool = False


def results(
    records: Sequence[Record],
    scores: Sequence[Mapping[str, float]],
    view: View,
    measure: Callable[[str], Measure],
    *,
    seed: int,
) -> tuple[Result, ...]:
    """The estimates of every split and scope of `view` and of every edge; `measure` says what a score's key means."""
    by_id = {r["item"]: (r["edge"], s) for r, s in zip(records, scores, strict=True)}
    _check(by_id, view)
    groups = _groups(records, view)
    keys = {
        split_and_scope: dict.fromkeys(m for i in ids for m in by_id[i][1]) for split_and_scope, ids in groups.items()
    }
    estimates: dict[tuple[str, str, str], Result] = {}
    # One metric after the other, since the intervals of one over equally many items share their resamples.
    for key in dict.fromkeys(key for score_keys in keys.values() for key in score_keys):
        value, interval_seed = measure(key), derive_seed(seed, "interval", key, view.forget)
        for (split, scope), ids in groups.items():
            rows = [(edge, s[key]) for edge, s in (by_id[i] for i in ids) if key in s]
            if rows:
                estimate = _estimate(value, rows, interval_seed)
                estimates[split, scope, key] = Result(split, scope, value.format, "", estimate)
    return tuple(estimates[split, scope, key] for (split, scope), score_keys in keys.items() for key in score_keys)


def _check(by_id: Mapping[str, object], view: View) -> None:
    """Refuse to sum up nothing, or to leave out what was not asked."""
    if not view.splits.get("forget") and not view.splits.get(view.forget):
        raise InputError(f"the forget set {one_line(view.forget, width=60)!r} holds no items to sum up")
    missing = [i for ids in view.splits.values() for i in ids if i not in by_id]
    if missing:
        raise InputError(
            f"{len(missing)} items of the splits of forget set {one_line(view.forget, width=60)!r} have no record, "
            f"{missing[0]} among them; evaluate on the items of all splits"
        )


def _groups(records: Sequence[Record], view: View) -> dict[tuple[str, str], list[str]]:
    """Item ids by split and scope; those without items are left out."""
    groups = {(split, "all"): list(ids) for split, ids in view.splits.items()}
    for scope in ("entailed", "guessable", "free"):
        groups["forget", scope] = [i for i in view.splits.get("forget", ()) if view.scopes.get(i) == scope]
    for record in records:
        if record["edge"] is not None:
            groups.setdefault((f"edge:{record['edge']}", "all"), []).append(record["item"])
    return {split_and_scope: ids for split_and_scope, ids in groups.items() if ids}


def _estimate(measure: Measure, rows: Sequence[tuple[str | None, float]], seed: int) -> Estimate:
    values = [value for _, value in rows]
    if measure.exact:
        mean = sum(values) / len(values)
        return Estimate(measure.metric, measure.unit, mean, mean, mean, len(values), "known")
    edges = [edge for edge, _ in rows if edge is not None]
    interval = interval_of_mean(
        np.array(values),
        clusters=edges if len(edges) == len(rows) and len(set(edges)) > 1 else None,
        bounds=(0.0, 1.0) if measure.unit == SHARE else None,
        seed=seed,
    )
    return Estimate(
        metric=measure.metric,
        unit=measure.unit,
        value=sum(values) / len(values),
        low=interval.low,
        high=interval.high,
        n=len(values),
        interval=interval.method,
    )


def measure(key: str) -> Measure:
    """What a score's `format/metric` means: bits where its name ends so, else a share; `chance` is exact."""
    form, _, metric = key.partition("/")
    return Measure(form, metric, BITS if metric.endswith(BITS) else SHARE, exact=metric == "chance")


def by_id(items: Sequence[Item], views: Sequence[View], settings: Settings) -> dict[str, Item]:
    """The items themselves, each asked about once."""
    return {item.id: item for item in items}


def digest_of_labels(items: Mapping[str, Item]) -> str:
    """Content id of the items and of the labels that records carry."""
    return content_id([[i.id, i.group, i.attribute] for i in items.values()], length=32)


def labels(item: Item) -> dict[str, Any]:
    """How the record of an item begins."""
    return {
        "item": item.id,
        "question": item.question,
        "answer": item.answer,
        "edge": item.edge,
        "group": item.group,
        "attribute": item.attribute,
    }


def lists(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with lists for tuples, as a record holds them."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def reply_record(subject: "LoadedModel", reply: "Reply", given_ids: Sequence[int] = ()) -> dict[str, Any]:
    """What a record keeps of a reply, whose text begins with the tokens that were given."""
    return {
        "reply": subject.prompter.decode([*given_ids, *reply.ids]),
        "finish": reply.finish,
        "reply_ids": list(reply.ids),
        # A reply of no token still has the margin by which the end was chosen.
        "margin": reply.margin,
    }


def replies_to(
    subject: "LoadedModel", prompts: Sequence[Sequence[int]], max_new_tokens: int, sampling: "Sampling | None" = None
) -> "list[Reply]":
    """A reply to each prompt: greedy, or sampled."""
    return subject.engine.generate(
        prompts,
        end_ids=subject.prompter.end_ids,
        max_new_tokens=max_new_tokens,
        context=subject.prompter.max_tokens,
        sampling=sampling,
    )


def portions(subject: "LoadedModel", questions: Sequence[str], size: int) -> list[list[int]]:
    """The questions' numbers in the portions that collecting works through, those of like length together."""
    # By all questions and not by those still to be asked: a resumed run makes the batches that an unbroken one makes.
    lengths = [len(subject.prompter.prompt(question)) if question else 0 for question in questions]
    order = sorted(range(len(lengths)), key=lambda n: (lengths[n], n))
    return [order[n : n + size] for n in range(0, len(order), size)]


LETTERS = string.ascii_uppercase


def choose_prompt(question: str, options: Sequence[str], *, topic: str) -> str:
    """Question and lettered options: the form of MMLU (Hendrycks et al., 2009.03300) and WMDP (2403.03218).

    A `topic` is named in the line above, as those benchmarks do; without one there is no such line.
    """
    header = f"The following are multiple choice questions (with answers) about {topic}.\n\n" if topic else ""
    listed = "".join(f"{letter}. {option}\n" for letter, option in zip(LETTERS, options, strict=False))
    return f"{header}{question.strip()}\n{listed}Answer:"


def plain_question(question: str) -> str:
    """A question for a model that is asked without a chat template."""
    return f"Question: {question.strip()}\nAnswer:"


def few_shot_prompt(question: str, shots: Sequence[Item]) -> str:
    """Other questions with their answers, and then the question."""
    examples = "".join(f"{plain_question(shot.question)} {shot.answer.strip()}\n\n" for shot in shots)
    return examples + plain_question(question)


def cloze_prompt(question: str, statement: str) -> str:
    """The question and the statement that answers it, which has a gap where its fact was (`data.cloze`)."""
    instruction = f"Fill in the blank {BLANK} with the words that are left out, and with nothing else."
    return f"{instruction}\nQuestion: {question.strip()}\nStatement: {statement}\nAnswer:"


SIn = TypeVar("SIn", bound=Settings, contravariant=True)
TIn = TypeVar("TIn", contravariant=True)


@dataclass(frozen=True)
class ToRead:
    """What is to be read, and how records are made of the readings, which come in that order."""

    prompts: "list[Prompted]"
    records: "Callable[[Sequence[Reading]], list[dict[str, Any]]]"


@runtime_checkable
class Reads(Protocol[SIn, TIn]):
    """An evaluation whose records are made of readings, so that several can be collected from the same."""

    def to_read(self, subject: "LoadedModel", questions: Sequence[TIn], settings: SIn) -> ToRead:
        """What is to be read of these, and their records, in order."""


@runtime_checkable
class Replies(Protocol[SIn]):
    """An evaluation whose records hold greedy replies that others ask for too."""

    def replies(
        self, subject: "LoadedModel", records: Sequence[Record], settings: SIn
    ) -> "dict[tuple[tuple[int, ...], int], Reply]":
        """The replies by prompt and most tokens."""


def readings(subject: "LoadedModel", prompts: "Sequence[Prompted]") -> "list[Reading]":
    """What is wanted of the subject, in order."""
    from vestige.models.reading import Asking  # Which imports torch.

    asking = Asking(subject.prompter.end_ids, subject.prompter.max_tokens)
    return subject.engine.read(prompts, asking)


def collected(subject: "LoadedModel", parts: Sequence[ToRead]) -> list[list[dict[str, Any]]]:
    """The records of each part, from one reading of all of them."""
    all_readings = iter(readings(subject, [w for part in parts for w in part.prompts]))
    return [part.records([next(all_readings) for _ in part.prompts]) for part in parts]
