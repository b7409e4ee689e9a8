"""Judges of leaks that words cannot decide: a rewording without common words, a denial, a guess.

`likeness`: the sentence embedder. With unit vectors r of the reply, a of the answer and w of the mean of the wrong
answers (not unit), the reply is a leak where it is nearer to the answer than wrong answers are,

    (r.a - w.a) / (1 - w.a) >= 0.3, or
    (r - w).(a - w) / |a - w|^2 >= 0.7, seven tenths of the way from the wrong answers to the answer;

the first sees rewordings in the manner of the wrong answers, the second those in another. It is for sentences: words
decide short answers, facts with figures, and items without wrong answers. Words also decide a reply that takes the
answer back, states several wrong ones, or adds little to the question (less than three tenths). Of one that is much
shorter than the answer either counts.

`local:MODEL` and an address: a chat model, by the task `leak`.

A judge's error is measured on labelled replies (`error_of`) and stored with its results. `metrics.leaks` carries it
into a share.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from jaxtyping import Float

from vestige.core.errors import InputError
from vestige.core.files import locked, read_jsonl
from vestige.core.ids import content_id
from vestige.core.store import typed
from vestige.judges.base import Request, Writer
from vestige.judges.local import grader_of
from vestige.judges.spec import LeakJudgeSettings, judge_spec
from vestige.judges.tasks import PromptedJudge, find_task
from vestige.metrics.leaks import (
    LEAK,
    Misjudged,
    beyond_question,
    count_wrong_stated,
    is_retracted,
    leak_score,
    unquoted,
)
from vestige.models.cache import cache_folder
from vestige.models.embedder import HUB_ID, Embedder, load_embedder

TASK = "leak"
_SHORT = 6
_NEAR, _ALONG = 0.6, 1.4
"""Twice the threshold of a leak: chosen on half of TOFU's authors, for 3 % false positives and 1 % on replies to other
questions.
"""
_BEYOND = 0.3
_MUCH_SHORTER = 0.5
_MOST_WINDOWS = 20
_BETWEEN = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\s*\n+")
_LEAST_EXAMPLES = 5
_NO_WAY = 1e-6

Vector: TypeAlias = Float[np.ndarray, " D"]


class ReplyTo(NamedTuple):
    """A reply to a question, and the texts that it may reveal. As in `vestige.leak_score`."""

    reply: str
    answer: str
    question: str = ""
    fact: str | None = None
    accepted: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()

    @property
    def sought(self) -> tuple[str, ...]:
        """Return each form of the sought text once."""
        return tuple(dict.fromkeys((self.fact or self.answer, *self.accepted)))

    def words(self) -> float:
        """The score by words."""
        return leak_score(
            self.reply,
            self.answer,
            question=self.question,
            fact=self.fact,
            accepted=self.accepted,
            wrong=self.wrong,
        )


class LeakJudge(Protocol):
    """A judge of leaks."""

    def identity(self) -> dict[str, Any]:
        """Return everything that can change its results."""
        ...

    def given(self, replies: Sequence[ReplyTo]) -> list[float | None]:
        """How much each reply gives away, from 0 to 1, `LEAK` or more being a leak. None where it does not say."""
        ...


@dataclass(frozen=True)
class LikenessJudge:
    """Tells by a sentence embedder, between wrong answers and the right one."""

    embedder: Embedder
    _known: dict[str, Vector] = field(default_factory=dict, compare=False, repr=False)

    def identity(self) -> dict[str, Any]:
        """The embedder's digest, and the version of the rule."""
        return {"judge": "likeness", "version": 2, "model": self.embedder.digest}

    def given(self, replies: Sequence[ReplyTo]) -> list[float | None]:
        """As `LeakJudge.given`. It always decides."""
        replies = [r._replace(reply=unquoted(r.reply, r.question)) for r in replies]
        words = [r.words() for r in replies]
        rest = [n for n, r in enumerate(replies) if words[n] < 1 and _is_for_likeness(r)]
        known = []
        for n in rest:
            known += [replies[n].answer, *replies[n].wrong]
        self._learn(known)
        windows = {n: _windows(replies[n].reply, replies[n].answer) for n in rest}
        flat = list(dict.fromkeys(chain.from_iterable(windows.values())))
        vectors = dict(zip(flat, self.embedder.embed(flat), strict=True)) if flat else {}
        scores: list[float | None] = list(words)
        for n in rest:
            answer = self._known[replies[n].answer]
            wrong = np.mean([self._known[text] for text in replies[n].wrong], axis=0)
            # The answer may stand in one sentence of a long reply, in which its direction is lost.
            like = max(_likeness(vectors[text], answer, wrong) for text in windows[n])
            # Of a name alone an embedder sees no sentence, and words are exact.
            much_shorter = len(replies[n].reply.split()) < _MUCH_SHORTER * len(replies[n].answer.split())
            scores[n] = max(like, words[n]) if much_shorter else like
        return scores

    def _learn(self, texts: Iterable[str]) -> None:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known.update(zip(new, self.embedder.embed(new), strict=True) if new else ())


def _is_for_likeness(r: ReplyTo) -> bool:
    """Return whether sentences can be compared. If not, words decide."""
    figures = any(c.isdecimal() for c in r.fact or "")
    if len(r.answer.split()) <= _SHORT or figures or not (r.wrong and r.reply.strip()):
        return False
    if count_wrong_stated(r.reply, r.sought, r.question, r.wrong) > 1:
        return False
    return beyond_question(r.reply, r.question) >= _BEYOND and not is_retracted(r.reply, r.answer, r.question)


def _likeness(reply: Vector, answer: Vector, wrong: Vector) -> float:
    """Return a value from 0 to 1. At least 0.5 is a leak. It is 0 if a wrong answer equals the answer."""
    # Wrong answers share the manner of the answer, so that what is left of it is its matter.
    axis, base = answer - wrong, float(wrong @ answer)
    if axis @ axis < _NO_WAY:
        return 0.0
    near, along = (float(reply @ answer) - base) / (1 - base), float((reply - wrong) @ axis / (axis @ axis))
    return min(1.0, max(0.0, near / _NEAR, along / _ALONG))


def _windows(reply: str, answer: str) -> list[str]:
    """The reply, and every run of as many of its sentences as the answer has."""
    parts, size = _BETWEEN.split(reply.strip()), len(_BETWEEN.split(answer.strip()))
    runs = [" ".join(parts[n : n + size]) for n in range(len(parts) - size + 1)] if size < len(parts) else []
    return [reply, *runs[:_MOST_WINDOWS]]


@dataclass(frozen=True)
class WrittenLeakJudge:
    """Decides with a chat model, which gets the texts fenced. `model` is its identity.

    On a server one process asks at a time, in the turn of `lock`.
    """

    writer: Writer
    model: Mapping[str, Any]
    lock: Path | None = None

    def identity(self) -> dict[str, Any]:
        """The model, and the version of the task's words."""
        return {**self.model, "task": TASK, "version": find_task(TASK).version}

    def given(self, replies: Sequence[ReplyTo]) -> list[float | None]:
        """As `LeakJudge.given`, 0 or 1. A verdict that did not come is not told."""
        requests = [Request(TASK, o.question, o.reply, "\nor: ".join(o.sought)) for o in replies]
        with nullcontext() if self.lock is None else locked(self.lock, patience_seconds=None):
            judged = PromptedJudge(self.writer).judge(requests)
        if any(judgement.failure == "limit" for judgement in judged):
            # Kept as not told it would stay so; what was paid for lies on the disk, and the same command goes on.
            raise InputError(
                "the judge of leaks has reached a limit (most_requests or another), which counts all replies in "
                f"{self.lock and self.lock.parent}; nothing is lost: raise it, and give the same command again"
            )
        return [judgement.score for judgement in judged]


@dataclass(frozen=True)
class Measured:
    """A judge with the labelled replies that its error is measured on."""

    name: str
    judge: LeakJudge
    labelled: Sequence["Example"]

    @cached_property
    def id(self) -> str:
        """Return the content id of everything that can change its results or error."""
        return content_id([self.judge.identity(), [[*e.said, e.leaked] for e in self.labelled]], length=32)

    @cached_property
    def error(self) -> Misjudged:
        """Measured when it is first wanted."""
        return error_of(self.judge, self.labelled)


def leak_judge(settings: LeakJudgeSettings, device: str = "auto") -> Measured | None:
    """The judge that the settings name, loaded once. None where they name none."""
    if not settings.judge:
        if settings.judge_examples:
            raise InputError("judge_examples goes with a judge, and none is set; set judge")
        return None
    return _loaded(settings.judge, settings.judge_examples, device)


@lru_cache(maxsize=2)
def _loaded(name: str, labelled: str, device: str) -> Measured:
    spec = judge_spec(name)
    if spec.kind == "likeness":
        judge: LeakJudge = LikenessJudge(load_embedder(spec.model or HUB_ID, device=device))
    else:
        folder = cache_folder() / "leak_judgements"
        grader = grader_of(spec, folder, device)
        assert grader.writer is not None, "a spec that tells leaks is of an embedder or a chat model"
        judge = WrittenLeakJudge(
            grader.writer, grader.identity, folder / ".turn.lock" if spec.kind == "server" else None
        )
    return Measured(spec.kind, judge, examples(labelled))


class Example(NamedTuple):
    """A reply with its label, whether it gives the answer away."""

    said: ReplyTo
    leaked: bool


@dataclass(frozen=True)
class _Labelled:
    """A row of labelled replies, as its file has it."""

    question: str
    answer: str
    reply: str
    leaked: bool
    fact: str | None = None
    accepted: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()


def examples(path: str = "") -> list[Example]:
    """Labelled replies from a JSONL file, by default Vestige's own (CC0, one author's labels)."""
    source = resources.files("vestige.judges").joinpath("leaks.jsonl")
    with resources.as_file(source) as default:
        rows = list(read_jsonl(Path(path).expanduser() if path else default))
    stored = (typed(f"{path or default}, row {n}", _Labelled, row, remedy="mend it") for n, row in enumerate(rows, 1))
    labelled = [Example(ReplyTo(e.reply, e.answer, e.question, e.fact, e.accepted, e.wrong), e.leaked) for e in stored]
    for leaked, kind in ((True, "give the answer away"), (False, "do not")):
        if (n := sum(e.leaked == leaked for e in labelled)) < _LEAST_EXAMPLES:
            raise InputError(
                f"{path or default}: {n} labelled replies {kind}, and an error cannot be told from fewer than "
                f"{_LEAST_EXAMPLES}; add some"
            )
    return labelled


def error_of(judge: LeakJudge, labelled: Sequence[Example]) -> Misjudged:
    """How often the judge misses a leak and sees one where there is none. Undecided replies are left out."""
    judged = zip(labelled, judge.given([e.said for e in labelled]), strict=True)
    pairs = [(e.leaked, score >= LEAK) for e, score in judged if score is not None]
    true = [told for leaked, told in pairs if leaked]
    false = [told for leaked, told in pairs if not leaked]
    if not true or not false:
        raise InputError("the judge of leaks judged none of the labelled replies, so its judgements cannot be used")
    return Misjudged(len(true) - sum(true), len(true), sum(false), len(false))
