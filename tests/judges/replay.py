"""A writer that repeats what was written before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vestige.core.ids import content_id
from vestige.judges.base import Prompt, Written


def prompt_id(prompt: Prompt) -> str:
    """A prompt's name: the digest of its two messages."""
    return content_id([prompt.system, prompt.user], length=32)


@dataclass(frozen=True)
class ReplayWriter:
    """Replies by `prompt_id`; a prompt without one is "not recorded"."""

    replies: Mapping[str, str]
    name: str = "replay"
    reserved: tuple[str, ...] = ()

    def write(self, prompts: Sequence[Prompt]) -> list[Written]:
        found = [self.replies.get(prompt_id(prompt)) for prompt in prompts]
        return [Written("", "not recorded") if text is None else Written(text) for text in found]
