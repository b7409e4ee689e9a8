"""MT-bench's single-answer grading: one turn of a conversation is rated 1 to 10, by a language model or by likeness.

Zheng et al., 2306.05685. The fields are those of the paper (of the second turn the whole conversation is shown; math,
reasoning and coding are judged beside a reference), the wording is ours. Everything that is judged is fenced.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from vestige.judges.base import Judgement, Prompt, Request, Writer
from vestige.judges.grounded import GroundedJudge
from vestige.judges.tasks import GUARD, LONGEST_TEXT, QUALITY_SCALE, Verdict, fenced, judged, read_rating

VERSION = 2
"""Raised when the words, the fence or the reading of a rating change."""
MOST_TOKENS = 2048
_LABELS = ("first question", "first answer", "second question", "second answer")
_ROLE = (
    "You are an impartial judge of how well an assistant answers a user. Weigh helpfulness, relevance, accuracy, "
    "depth, creativity and level of detail."
)
_SECOND = " You are shown a conversation of two turns: judge the answer to the second question alone, in its context."
_BESIDE = (
    " Reference answers are shown too: compare with them, find the mistakes, and count what contradicts them as wrong. "
    "The references themselves are not rated."
)
_ORDER = (
    "First explain your judgement of the {which} in a few sentences, as objectively as you can. Then rate it on a "
    "scale from 1 (empty, meaningless or of no use) to 10 (could hardly be better), strictly in this form: [[rating]], "
    "for example: Rating: [[5]]"
)


@dataclass(frozen=True)
class Turn:
    """One answer to be rated, with what came before it: `said` is what user and model said in turn, up to the answer.

    `references` are reference answers to as many questions, or none. `own` is the answer of the model that a judge by
    likeness compares with.
    """

    said: tuple[str, ...]
    references: tuple[str, ...] = ()
    own: str = ""

    @property
    def number(self) -> int:
        """1 for the first turn."""
        return len(self.said) // 2


@runtime_checkable
class TurnJudge(Protocol):
    """Who rates turns."""

    @property
    def name(self) -> str:
        """What tables call it."""

    def judge(self, turns: Sequence[Turn]) -> list[Judgement]:
        """One judgement each, in order."""


def prompt_of(turn: Turn, reserved: tuple[str, ...] = ()) -> Prompt:
    """The messages for one turn; the texts in them are fenced."""
    labels = _LABELS[: len(turn.said)] if turn.number > 1 else ("question", "answer")
    shown = dict(zip(labels, turn.said, strict=True))
    if turn.references:
        names = ("reference answer",) if turn.number == 1 else ("first reference answer", "second reference answer")
        shown |= dict(zip(names, turn.references, strict=True))
    blocks, nonce = fenced(shown, reserved)
    role = _ROLE + (_SECOND if turn.number > 1 else "") + (_BESIDE if turn.references else "")
    order = _ORDER.format(which=labels[-1])
    shown_whole = f"{blocks}\n\nThe material ends here.\n{order}"
    return Prompt(f"{role} {GUARD.format(nonce=nonce)}", shown_whole, MOST_TOKENS, lambda text: not _read(text).failure)


def _read(text: str) -> Verdict:
    return read_rating(text, QUALITY_SCALE)


@dataclass(frozen=True)
class WritingTurnJudge:
    """Asks a language model about each turn by itself, so that no judgement depends on its neighbours."""

    writer: Writer

    @property
    def name(self) -> str:
        """The writer's."""
        return self.writer.name

    def judge(self, turns: Sequence[Turn]) -> list[Judgement]:
        """One judgement each, in order. A text beyond `tasks.LONGEST_TEXT` characters is "too long"."""
        asked = [i for i, t in enumerate(turns) if max(map(len, (*t.said, *t.references))) <= LONGEST_TEXT]
        written = self.writer.write([prompt_of(turns[i], self.writer.reserved) for i in asked])
        found = {i: judged(_read, text) for i, text in zip(asked, written, strict=True)}
        return [found.get(i, Judgement(None, failure="too long")) for i in range(len(turns))]


@dataclass(frozen=True)
class LikenessTurnJudge:
    """Rates by how far an answer still is that of another model (`grounded`): what was lost, not what is good.

    A turn without `own`, the other model's answer, is "not judged". The questions so far stand for the question.
    """

    grounded: GroundedJudge

    @property
    def name(self) -> str:
        """The grounded judge's."""
        return self.grounded.name

    def judge(self, turns: Sequence[Turn]) -> list[Judgement]:
        """One judgement each, in order."""
        asked = [i for i, turn in enumerate(turns) if turn.own]
        requests = [Request("quality", "\n\n".join(turns[i].said[::2]), turns[i].said[-1], turns[i].own) for i in asked]
        found = dict(zip(asked, self.grounded.judge(requests), strict=True))
        return [found.get(i, Judgement(None, failure="not judged")) for i in range(len(turns))]
