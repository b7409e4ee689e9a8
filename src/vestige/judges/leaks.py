"""Judges of leaks that words cannot decide: a rewording without common words, a denial, a guess.

`local:MODEL` and an address: a chat model, by the task `leak`.

A judge's error is measured on labelled replies (`error_of`) and stored with its results. `metrics.leaks` carries it
into a share.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from vestige.core.errors import InputError
from vestige.core.files import locked, read_jsonl
from vestige.core.ids import content_id
from vestige.core.store import typed
from vestige.core.text import Fields, Record, TextTuple
from vestige.judges.base import Request, Writer
from vestige.judges.spec import LeakJudgeSettings, judge_spec
from vestige.judges.tasks import PromptedJudge, find_task
from vestige.metrics.leaks import LEAK, Misjudged, leak_score
from vestige.models.cache import cache_folder

TASK = "leak"
_LEAST_EXAMPLES = 5


class ReplyTo(NamedTuple):
    """A reply to a question, the texts that it may reveal as in `vestige.leak_score`, and its label if there is one."""

    reply: str
    answer: str
    question: str = ""
    fact: str | None = None
    accepted: TextTuple = ()
    wrong: TextTuple = ()
    leaked: bool | None = None
    """Whether the reply gives the answer away."""

    @property
    def sought(self) -> TextTuple:
        """Return each form of the sought text once."""
        return tuple(dict.fromkeys((self.fact or self.answer, *self.accepted)))

    def words(self) -> float:
        """The score by words."""
        return leak_score(
            self.reply, self.answer, question=self.question, fact=self.fact, accepted=self.accepted, wrong=self.wrong
        )


@dataclass(frozen=True)
class LeakJudge:
    """Decides with a chat model, which gets the texts fenced. `model` is its identity.

    On a server one process asks at a time, in the turn of `lock`.
    """

    writer: Writer
    model: Record
    lock: Path | None = None

    def identity(self) -> Fields:
        """The model, and the version of the task's words."""
        return {**self.model, "task": TASK, "version": find_task(TASK).version}

    def given(self, replies: Sequence[ReplyTo]) -> list[float | None]:
        """Return 1 for each reply that reveals the answer and 0 for others. None if the model does not decide."""
        requests = [Request(TASK, o.question, o.reply, "\nor: ".join(o.sought)) for o in replies]
        with nullcontext() if self.lock is None else locked(self.lock, patience_seconds=None):
            judged = PromptedJudge(self.writer).judge(requests)
        if any(judgement.failure == "limit" for judgement in judged):
            # A stored undecided reply would stay undecided. Paid replies are on disk, and the same command continues.
            raise InputError(
                "the judge of leaks has reached a limit (most_requests or another), which counts all replies in "
                f"{self.lock and self.lock.parent}. Nothing is lost: raise it, and give the same command again"
            )
        return [judgement.score for judgement in judged]


@dataclass(frozen=True)
class Measured:
    """A judge with the labelled replies that its error is measured on."""

    name: str
    judge: LeakJudge
    labelled: Sequence[ReplyTo]

    @cached_property
    def id(self) -> str:
        """Return the content id of everything that can change its results or error."""
        return content_id([self.judge.identity(), list(self.labelled)], length=32)

    @cached_property
    def error(self) -> Misjudged:
        """Measured when it is first wanted."""
        return error_of(self.judge, self.labelled)


def leak_judge(settings: LeakJudgeSettings) -> Measured | None:
    """Return the judge that the settings name, loaded once, or None."""
    if not settings.judge:
        if settings.judge_examples:
            raise InputError("judge_examples goes with a judge, and none is set. Set judge")
        return None
    return _loaded(settings.judge, settings.judge_examples)


@lru_cache(maxsize=2)
def _loaded(name: str, labelled: str) -> Measured:
    from vestige.judges.local import grader_of

    spec = judge_spec(name)
    folder = cache_folder() / "leak_judgements"
    grader = grader_of(spec, folder, "auto")
    assert grader.writer is not None, "a spec that tells leaks is of a chat model"
    lock = folder / ".turn.lock" if spec.kind == "server" else None
    judge = LeakJudge(grader.writer, grader.identity, lock)
    return Measured(spec.kind, judge, examples(labelled))


def examples(path: str = "") -> list[ReplyTo]:
    """Return labelled replies from a JSONL file, by default Vestige's own (CC0, one author's labels)."""
    source = resources.files("vestige.judges").joinpath("leaks.jsonl")
    with resources.as_file(source) as default:
        rows = list(read_jsonl(Path(path).expanduser() if path else default))
    labelled = []
    for n, row in enumerate(rows, 1):
        labelled.append(typed(f"{path or default}, row {n}", ReplyTo, row, remedy="Correct it"))
        if labelled[-1].leaked is None:
            raise InputError(f"{path or default}, row {n}: no field 'leaked'. Label the reply with true or false.")
    for leaked, kind in ((True, "give the answer away"), (False, "do not")):
        if (n := sum(e.leaked == leaked for e in labelled)) < _LEAST_EXAMPLES:
            raise InputError(
                f"{path or default}: {n} labelled replies {kind}, and an error rate needs at least "
                f"{_LEAST_EXAMPLES}. Add some"
            )
    return labelled


def error_of(judge: LeakJudge, labelled: Sequence[ReplyTo]) -> Misjudged:
    """The judge's rates of missed and of invented leaks. Undecided replies are left out."""
    judged = zip(labelled, judge.given(labelled), strict=True)
    pairs = [(e.leaked, score >= LEAK) for e, score in judged if score is not None]
    true = [told for leaked, told in pairs if leaked]
    false = [told for leaked, told in pairs if not leaked]
    if not true or not false:
        raise InputError("the judge of leaks judged none of the labelled replies. Take another judge")
    return Misjudged(len(true) - sum(true), len(true), sum(false), len(false))
