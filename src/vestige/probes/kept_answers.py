"""Answers on the disk, so that a run that was killed asks no model twice.

But for rounding an answer follows from the model, how it is asked, the prompt and the seed, so it may stand for itself
later. What did not come is not kept, and is asked for again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vestige.core.files import append_lines, drop_torn_line, json_line, read_jsonl
from vestige.core.ids import content_id
from vestige.probes.answering import Answerer

VERSION = 2
"""Of the lines; those of another version are left where they are."""
PORTION = 64
"""Prompts that are asked together and kept as one line, whole or not at all: the most that a kill can cost."""


@dataclass
class KeptAnswers:
    """An answerer that keeps what `inner` said in `folder`; `identity` is all of it that can change an answer."""

    inner: Answerer
    folder: Path
    identity: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The model's."""
        return self.inner.name

    @property
    def n_calls(self) -> int:
        """How many prompts were put to the model itself."""
        return self.inner.n_calls

    def answer(self, prompts: Sequence[str], *, seed: int) -> list[str | None]:
        """One answer each, in order; those that were kept are not asked for."""
        path = self.folder / f"{content_id({'version': VERSION, 'asked': dict(self.identity), 'seed': seed})}.jsonl"
        drop_torn_line(path)
        kept: dict[str, str] = {}
        if path.exists():
            kept = {prompt: answer for portion in read_jsonl(path) for prompt, answer in portion["answers"].items()}
        missing = [prompt for prompt in dict.fromkeys(prompts) if prompt not in kept]
        for start in range(0, len(missing), PORTION):
            portion = missing[start : start + PORTION]
            answers = zip(portion, self.inner.answer(portion, seed=seed), strict=True)
            new = {prompt: answer for prompt, answer in answers if answer is not None}
            append_lines(path, [json_line({"answers": new})])
            kept |= new
        return [kept.get(prompt) for prompt in prompts]
