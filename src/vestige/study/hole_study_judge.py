"""A judge of questions whose true answers the data hold: right or wrong, and nothing that the data do not ask.

In data whose every question has one answer a wrong answer carries nothing, however fluent it is. So it is here what
gibberish is in the Knowledge Holes paper (2511.00030): J is 10 for a question of the data that is answered wrongly. A
question is valid where the data ask it, in either wording: what a policy makes up has no true answer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from vestige.artifacts.holes import LATENT_J
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.judges.base import Judge, Judgement, Request
from vestige.metrics.answers import contains, normalised


@dataclass(frozen=True)
class KnownAnswersJudge:
    """Tells a judge who reads `truth` what it is. Questions are compared after `normalised`."""

    judge_told: Judge
    items: tuple[Item, ...]

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"{self.judge_told.name}, with known answers"

    @property
    def digest(self) -> str:
        """Content id of all that is known."""
        return content_id(self._truths, length=32)

    def judge(self, requests: Sequence[Request]) -> list[Judgement]:
        """One judgement each, in order."""
        told = [replace(r, truth=r.truth or self._truths.get(normalised(r.question), "")) for r in requests]
        # Whether the data ask a question needs nobody's judgement.
        asked = [r for r in told if r.task != "validity"]
        found = iter(self.judge_told.judge(asked) if asked else [])
        return [self._validity(r) if r.task == "validity" else self._with_truth(r, next(found)) for r in told]

    @cached_property
    def _truths(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for question, answer in _asked(self.items):
            found.setdefault(normalised(question), answer)
        return found

    def _validity(self, request: Request) -> Judgement:
        return Judgement(float(normalised(request.question) in self._truths))

    def _with_truth(self, request: Request, found: Judgement) -> Judgement:
        if request.task != "reward" or found.score is None:
            return found
        if normalised(request.question) not in self._truths:
            return Judgement(0.0, {**found.values, "valid": 0.0})
        if contains(request.answer, request.truth):
            return replace(found, values={**found.values, "valid": 1.0})
        return Judgement(LATENT_J, {**found.values, "valid": 1.0, "gibberish": 1.0})


def _asked(items: Iterable[Item]) -> Iterable[tuple[str, str]]:
    for item in items:
        yield item.question, item.answer
        if item.paraphrase:
            yield item.paraphrase, item.answer
