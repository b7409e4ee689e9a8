"""A writer that repeats what was written before."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vestige.core.ids import content_id
from vestige.judges.base import Judgement, WriterPrompt, Written


def prompt_id(prompt: WriterPrompt) -> str:
    """A prompt's name: the digest of its two messages."""
    return content_id([prompt.system, prompt.user], length=32)


@dataclass(frozen=True)
class ReplayWriter:
    """Replies by `prompt_id`; a prompt without one is "not recorded"."""

    replies: Mapping[str, str]
    name: str = "replay"
    reserved: tuple[str, ...] = ()

    def write(self, prompts: Sequence[WriterPrompt]) -> list[Written]:
        found = [self.replies.get(prompt_id(prompt)) for prompt in prompts]
        return [Written("", "not recorded") if text is None else Written(text) for text in found]


@dataclass(frozen=True)
class Tally:
    """What became of `n` requests: the scores that there are, and the failures by name."""

    n: int
    scores: tuple[float, ...]
    failures: Mapping[str, int]

    @property
    def mean(self) -> float:
        """Over the scores alone. Without one there is no mean, which is an error and not 0."""
        if not self.scores:
            raise ValueError(f"none of {self.n} requests was judged ({dict(self.failures)}), so there is no mean")
        return sum(self.scores) / len(self.scores)


def tally(judgements: Sequence[Judgement]) -> Tally:
    """Scores and failures of some judgements, apart."""
    failures = Counter(str(j.failure) for j in judgements if j.failure)
    scores = tuple(j.score for j in judgements if j.score is not None)
    return Tally(len(judgements), scores, dict(sorted(failures.items())))
