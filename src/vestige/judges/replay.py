"""A writer that repeats what was written before: for tests, and to judge a run again without a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vestige.core.ids import content_id
from vestige.judges.base import Prompt, Written


def prompt_id(prompt: Prompt) -> str:
    """A prompt's name: the digest of its two messages."""
    return content_id([prompt.system, prompt.user], length=32)


@dataclass(frozen=True)
class ReplayWriter:
    """Replies by `prompt_id`; a prompt without one is "not recorded", and never answered by guess."""

    replies: Mapping[str, str]
    name: str = "replay"
    reserved: tuple[str, ...] = ()

    def write(self, prompts: Sequence[Prompt]) -> list[Written]:
        """One reply each, in order; nothing is spent."""
        found = [self.replies.get(prompt_id(prompt)) for prompt in prompts]
        return [Written("", "not recorded") if text is None else Written(text) for text in found]


def recorded(prompts: Sequence[Prompt], written: Sequence[Written]) -> dict[str, str]:
    """Replies as `ReplayWriter` takes them, from prompts and what was written; what did not come is left out."""
    pairs = zip(prompts, written, strict=True)
    return {prompt_id(prompt): reply.text for prompt, reply in pairs if reply.failure in {"", "cut short"}}
