"""A causal language model that acts: log-probabilities, entropies and values of the tokens that it replied with.

It is the model with its adapters, and a linear head that reads the last hidden states as values. Without the adapters
the model is its own reference, so there is no second one in memory.

Axes: B rows, T tokens of a reply, N tokens of all replies end to end, V vocabulary, D hidden width. Log-probabilities
and entropies are in nats, of the distribution that is sampled from: logits over the temperature. The nucleus is left
out, as everywhere: a token's probability is that before the unlikely ones are cut off.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import torch
from jaxtyping import Float
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from transformers import PreTrainedModel

from vestige.models.forward import Precision, attention, batches_by_length, padded_width, right_padded, within_memory
from vestige.models.head import LogitsRead, Pass
from vestige.models.scoring import CHUNK, token_logp
from vestige.models.variants import Ids
from vestige.training.policy.losses import entropy

TOKEN_BUDGET = 2048
"""Tokens of one pass without gradients."""


class Replied(NamedTuple):
    """The model's values of given replies."""

    logits: Float[Tensor, "N V"]
    logp: Float[Tensor, " N"]
    values: Float[Tensor, " N"]


class Judged(NamedTuple):
    """Log-probability under policy and reference, value, and entropy at each token; 0 behind a reply's end."""

    logp: Float[Tensor, "B T"]
    reference_logp: Float[Tensor, "B T"]
    values: Float[Tensor, "B T"]
    entropy: Float[Tensor, "B T"]


@dataclass(frozen=True)
class Actor:
    """The model, its value head, its adapted layers, and how it is read and multiplied."""

    model: PreTrainedModel
    value_head: nn.Linear
    adapted: tuple[BaseTunerLayer, ...]
    logits_read: LogitsRead
    precision: Precision

    def replied(self, prompts: Sequence[Ids], replies: Sequence[Ids], temperature: float) -> Replied:
        """The model on whole rows, prompt and reply, with gradients where they are wanted.

        Only tokens of replies see the output head. Logits are divided by the temperature already.
        """
        rows = [p + r for p, r in zip(prompts, replies, strict=True)]
        # bfloat16 kernels are made anew for each shape.
        width = padded_width(max(map(len, rows)) - 1)
        device = self.model.device
        # The last token says nothing about what comes before it.
        ids = right_padded([row[:-1] for row in rows], width, device)
        places: list[int] = []
        for at, (prompt, reply) in enumerate(zip(prompts, replies, strict=True)):
            first = at * width + len(prompt) - 1
            places += range(first, first + len(reply))
        read = torch.tensor(places, device=device)
        tokens = torch.tensor([*chain.from_iterable(replies)], device=device)
        # It is the way back through attention that is slow in bfloat16.
        wide = attention(device.type, self.precision) if torch.is_grad_enabled() else nullcontext()
        with self.products(), wide, self._hidden_kept() as cache:
            logits = self.logits_read(self.model, [Pass(ids, read)], torch.arange(len(read), device=device))
        hidden = cache[-1].flatten(0, -2).index_select(0, read)
        logits = logits / temperature
        return Replied(logits, token_logp(logits, tokens), self.value_head(hidden.float()).squeeze(-1))

    @within_memory
    @torch.no_grad()
    def judged(
        self, prompts: Sequence[Ids], replies: Sequence[Ids], temperature: float, *, token_budget: int = TOKEN_BUDGET
    ) -> Judged:
        """What policy and reference say of replies."""
        n = len(prompts)
        width = max(map(len, replies))
        parts = [torch.zeros(n, width, device=self.model.device) for _ in Judged._fields]
        lengths = [len(p) + len(r) - 1 for p, r in zip(prompts, replies, strict=True)]
        for _, rows in batches_by_length(lengths, self.model.device, token_budget=token_budget):
            inputs = [prompts[i] for i in rows], [replies[i] for i in rows]
            reply = self.replied(*inputs, temperature)
            entropies = torch.cat([entropy(part) for part in reply.logits.split(CHUNK)])
            with self.as_reference():
                reference = self.replied(*inputs, temperature).logp
            start = 0
            for i in rows:
                stop = start + len(replies[i])
                for into, values in zip(parts, (reply.logp, reference, reply.values, entropies), strict=True):
                    into[i, : stop - start] = values[start:stop]
                start = stop
        return Judged(*parts)

    @contextmanager
    def as_reference(self) -> Iterator[None]:
        """Inside the context the model equals its state before training: its adapters do nothing."""
        try:
            for layer in self.adapted:
                layer.enable_adapters(False)
            yield
        finally:
            for layer in self.adapted:
                layer.enable_adapters(True)

    @contextmanager
    def products(self) -> Iterator[None]:
        """Within it products are in the precision asked for."""
        # A model whose weights are in bfloat16 multiplies in it by itself.
        narrow = self.precision == "bfloat16" and self.model.dtype != torch.bfloat16
        with torch.autocast(self.model.device.type, torch.bfloat16, enabled=narrow):
            yield

    @contextmanager
    def _hidden_kept(self) -> Iterator[list[Tensor]]:
        """Fills the list with the output head's input before it is cut down to the positions read."""
        head = self.model.get_output_embeddings()
        assert isinstance(head, nn.Module)
        hidden: list[Tensor] = []
        handle = head.register_forward_pre_hook(lambda _, inputs: hidden.append(inputs[0]))
        try:
            yield hidden
        finally:
            handle.remove()
