"""MT-bench's single-answer grading: one turn of a conversation is rated 1 to 10, by a language model or by likeness.

Zheng et al., 2306.05685. The fields are those of the paper (of the second turn the whole conversation is shown; math,
reasoning and coding are judged beside a reference). The wording is that of FastChat's judge_prompts.jsonl (Apache-2.0)
where the user's folder has it, which published scores were made by, else ours, with everything that is judged fenced.
FastChat's prompts have no fence: texts in them are only made harmless, and a verdict is read as strictly as ever.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from vestige.core.errors import InputError
from vestige.core.files import read_jsonl
from vestige.judges.base import Judgement, Prompt, Request, Writer
from vestige.judges.grounded import GroundedJudge
from vestige.judges.tasks import GUARD, LONGEST_TEXT, QUALITY_SCALE, Verdict, fenced, harmless, judged, read_rating

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


class Wording(NamedTuple):
    """What FastChat tells a judge of one kind of turn; the names of texts stand in braces."""

    system_prompt: str
    prompt_template: str


_NAMES = re.compile(r"\{(\w+)\}")
PUBLISHED = "judge_prompts.jsonl"
_KINDS = ("single-v1", "single-math-v1", "single-v1-multi-turn", "single-math-v1-multi-turn")
"""FastChat's prompts: of the first turn, beside a reference, of the second turn, and of that beside references."""


def published_wording(folder: Path) -> Mapping[str, Wording]:
    """FastChat's prompts by name, from its folder of questions or the one above it; none where they are not there."""
    path = next((place for place in (folder / PUBLISHED, folder.parent / PUBLISHED) if place.is_file()), None)
    if path is None:
        return {}
    rows = {row.get("name"): row for row in read_jsonl(path) if isinstance(row, dict)}
    try:
        return {kind: Wording(*(str(rows[kind][name]) for name in Wording._fields)) for kind in _KINDS}
    except KeyError as error:
        raise InputError(f"{path} lacks {error}; give FastChat's own file, or remove it for Vestige's own") from error


def _published(turn: Turn, wording: Mapping[str, Wording], reserved: tuple[str, ...]) -> Prompt:
    kind = _KINDS[2 * (turn.number > 1) + bool(turn.references)]
    texts = {f"{('question', 'answer')[n % 2]}_{n // 2 + 1}": text for n, text in enumerate(turn.said)}
    texts |= dict(zip(("question", "answer"), turn.said, strict=False))
    texts |= {f"ref_answer_{n}": text for n, text in enumerate(turn.references, 1)}
    role, template = wording[kind]
    if unknown := set(_NAMES.findall(template)) - texts.keys():
        raise InputError(f"{PUBLISHED}, {kind}: nothing is called {sorted(unknown)[0]} here; give FastChat's own file")
    user = _NAMES.sub(lambda found: harmless(texts[found[1]], reserved), template)
    return Prompt(role, user, MOST_TOKENS, lambda text: not _read(text).failure)


def prompt_of(turn: Turn, reserved: tuple[str, ...] = (), wording: Mapping[str, Wording] | None = None) -> Prompt:
    """The messages for one turn: FastChat's where `wording` has them, else ours, with the texts fenced."""
    if wording:
        return _published(turn, wording, reserved)
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
    wording: Mapping[str, Wording] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The writer's."""
        return self.writer.name

    def judge(self, turns: Sequence[Turn]) -> list[Judgement]:
        """One judgement each, in order. A text beyond `tasks.LONGEST_TEXT` characters is "too long"."""
        asked = [i for i, t in enumerate(turns) if max(map(len, (*t.said, *t.references))) <= LONGEST_TEXT]
        written = self.writer.write([prompt_of(turns[i], self.writer.reserved, self.wording) for i in asked])
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
