"""Who is asked the prompts of a probe: a local model, or a model on an OpenAI-compatible server.

But for rounding an answer follows from the prompt and the seed, not from the other prompts; equal prompts of one call
have one answer and are asked once. An answer that did not come is None and never an empty text, which would pass for a
hole.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol, runtime_checkable

from pydantic import NonNegativeFloat, PositiveInt

from vestige.core.errors import InputError
from vestige.core.seeds import derive_seed
from vestige.core.settings import Settings
from vestige.judges.base import Prompt
from vestige.judges.server import ServerSettings, ServerWriter
from vestige.judges.spending import Limits, Register
from vestige.models.finite import finite_logits
from vestige.models.generation import Sampling, generate
from vestige.models.load import LoadedModel, context_tokens

# What servers take for a seed is a whole number of 31 bits, in some of them.
_SERVER_SEEDS = 2**31


@runtime_checkable
class Answerer(Protocol):
    """A model that is asked. `n_calls` counts the prompts that it was asked so far, those without an answer too."""

    @property
    def name(self) -> str:
        """What tables call it."""
        ...

    @property
    def n_calls(self) -> int:
        """How many prompts were put to it."""
        ...

    def answer(self, prompts: Sequence[str], *, seed: int) -> list[str | None]:
        """One answer each, in order; None where none came."""
        ...


class AnswerSettings(Settings):
    """How answers are drawn: at `temperature`, greedily at 0, of at most `max_tokens` tokens.

    The defaults are those at which Curiosity's released code asks its target (Hong et al., 2402.19464).
    """

    temperature: NonNegativeFloat = 0.7
    max_tokens: PositiveInt = 30


@dataclass
class LocalAnswerer:
    """A model in memory. A prompt that its context does not hold has no answer."""

    loaded: LoadedModel
    settings: AnswerSettings = field(default_factory=AnswerSettings)
    n_calls: int = 0
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        """The model's name as it was given."""
        return self.loaded.name

    def answer(self, prompts: Sequence[str], *, seed: int) -> list[str | None]:
        """One answer each, in order, computed in batches. Raises NotFinite where logits are no numbers."""
        asked = list(dict.fromkeys(prompts))
        encoded = {prompt: ids for prompt in asked if (ids := self._ids(prompt))}
        self.n_calls += len(asked)
        if len(encoded) < len(asked):
            self.failures["too long"] += len(asked) - len(encoded)
        with finite_logits(self.loaded):
            replies = generate(
                self.loaded.model,
                list(encoded.values()),
                end_ids=self.loaded.prompter.end_ids,
                max_new_tokens=self.settings.max_tokens,
                context=context_tokens(self.loaded.model),
                sampling=self._sampling(list(encoded), seed),
            )
        texts = (self.loaded.prompter.decode(reply.ids) for reply in replies)
        said = dict(zip(encoded, texts, strict=True))
        return [said.get(prompt) for prompt in prompts]

    def _sampling(self, prompts: Sequence[str], seed: int) -> Sampling | None:
        if self.settings.temperature == 0:
            return None
        seeds = tuple(derive_seed(seed, "answer", prompt) for prompt in prompts)
        return Sampling(self.settings.temperature, 1.0, seeds)

    def _ids(self, prompt: str) -> tuple[int, ...]:
        """The prompt's tokens; none where it is too long."""
        try:
            return self.loaded.prompter.prompt(prompt)
        except InputError:
            return ()


@dataclass
class ServerAnswerer:
    """A model on a server, asked as judges are: retried, limited, and every reply kept in `folder`.

    Of `server` the seed is replaced, and the temperature too unless it is None, which keeps it from being sent. A model
    that stopped at the limit of tokens has answered; a reply that the server filtered out, or that never came, is none.
    """

    server: ServerSettings
    folder: Path
    settings: AnswerSettings = field(default_factory=AnswerSettings)
    limits: Limits = field(default_factory=Limits)
    n_calls: int = 0
    failures: Counter[str] = field(default_factory=Counter)

    @cached_property
    def _read(self) -> Register:
        return Register(self.folder)

    @property
    def name(self) -> str:
        """The model's."""
        return self.server.model

    def answer(self, prompts: Sequence[str], *, seed: int) -> list[str | None]:
        """One answer each, in order. Raises InputError where the limits do not allow for all of them."""
        asked = list(dict.fromkeys(prompts))
        temperature = None if self.server.temperature is None else self.settings.temperature
        sent = self.server.model_copy(update={"temperature": temperature, "seed": seed % _SERVER_SEEDS})
        writer = ServerWriter(sent, self.folder, self.limits, read=self._read)
        # An empty reply is an answer, so that none is asked for again.
        wanted = [Prompt("", prompt, self.settings.max_tokens, accepts=lambda _: True) for prompt in asked]
        written = writer.write(wanted)
        self.n_calls += len(asked)
        said: dict[str, str] = {}
        for prompt, reply in zip(asked, written, strict=True):
            if reply.failure == "limit":
                raise InputError(
                    f"the limits of what {self.name} may be asked are used up; raise them and run the same command "
                    "again, which asks for nothing that was answered"
                )
            if reply.failure in {"", "cut short"}:
                said[prompt] = reply.text
            else:
                self.failures[reply.failure] += 1
        return [said.get(prompt) for prompt in prompts]
