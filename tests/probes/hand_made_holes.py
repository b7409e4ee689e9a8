"""Models, a judge and an embedder of a few words, with every answer and score laid down."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from vestige.judges.base import Judgement, Request
from vestige.probes.answering import PORTION


@dataclass
class Says:
    """Answers by prompt and by how often it was asked before; the last answer stays."""

    name: str
    answers: Mapping[str, Sequence[str | None]]
    n_calls: int = 0
    seeds: list[int] = field(default_factory=list)

    def answer(self, prompts: Sequence[str], *, seed: int) -> list[str | None]:
        """The answers of this round."""
        self.n_calls += len(prompts)
        self.seeds.append(seed)
        round_ = len(self.seeds) - 1
        return [self.answers[p][min(round_, len(self.answers[p]) - 1)] for p in prompts]

    def answer_each(self, prompts: Sequence[str], keep: Callable[[Mapping[str, str]], None], *, seed: int) -> None:
        """The answers of this round, a portion at a time. A prompt without an answer is left out."""
        for start in range(0, len(prompts), PORTION):
            portion = prompts[start : start + PORTION]
            answers = zip(portion, self.answer(portion, seed=seed), strict=True)
            keep({prompt: answer for prompt, answer in answers if answer is not None})


@dataclass
class Marks:
    """An answer "8" scores 8, "?" is not judged; `invalid` prompts are not valid; `supports` names a text."""

    invalid: frozenset[str] = frozenset()
    supports: Mapping[str, str] = field(default_factory=dict)
    asked: list[Request] = field(default_factory=list)
    name: str = "marks"

    def judge(self, requests: Sequence[Request]) -> list[Judgement]:
        """One judgement each."""
        self.asked += requests
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Judgement:
        if "?" in (request.answer, request.sample):
            return Judgement(None, failure="timeout")
        if request.task == "validity":
            return Judgement(float(request.question not in self.invalid))
        if request.task == "overlap":
            return Judgement(float(self.supports.get(request.question) == request.sample))
        return Judgement(float(request.answer))


def directions(texts: Sequence[str]) -> np.ndarray:
    """A text "12a" points to 12 tenths of a right angle; letters behind the number change nothing."""
    angles = np.array([float("".join(c for c in t if c.isdigit()) or 0) for t in texts]) * np.pi / 20
    return np.stack([np.cos(angles), np.sin(angles)], axis=1) if len(texts) else np.zeros((0, 2))
