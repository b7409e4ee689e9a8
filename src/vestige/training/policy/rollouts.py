"""Replies sampled from a policy, with everything that a policy gradient reads.

The policy is a causal language model with its adapters, and a linear head that reads the last hidden states as values.
Without the adapters the model is its own reference, so there is no second one in memory.

Axes: B replies, T tokens of a reply, N tokens of all replies end to end, V vocabulary, D hidden width.
Log-probabilities and entropies are in nats, of the distribution that is sampled from: logits over the temperature. The
nucleus is left out, as everywhere: a token's probability is that before the unlikely ones are cut off.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from transformers import PreTrainedModel

from vestige.core.errors import InputError
from vestige.core.seeds import generator
from vestige.models.forward import (
    LogitsRead,
    Pass,
    Precision,
    attention,
    batches_by_length,
    padded_width,
    right_padded,
    within_memory,
)
from vestige.models.generation import STEP_TOKENS, TOKEN_BUDGET, Decoding, decode, draw
from vestige.models.load import context_tokens
from vestige.models.scoring import CHUNK, token_logp
from vestige.models.variants import Ids
from vestige.training.policy.losses import entropy

PASS_BUDGET = 2048
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
        # bfloat16 kernels are built for each shape.
        width = padded_width(max(map(len, rows)) - 1)
        device = self.model.device
        # The last token does not predict anything in the row.
        ids = right_padded([row[:-1] for row in rows], width, device)
        places: list[int] = []
        for at, (prompt, reply) in enumerate(zip(prompts, replies, strict=True)):
            first = at * width + len(prompt) - 1
            places += range(first, first + len(reply))
        read = torch.tensor(places, device=device)
        tokens = torch.tensor([*chain.from_iterable(replies)], device=device)
        # In bfloat16, only the backward pass through attention is slow.
        wide = attention(device.type, self.precision) if torch.is_grad_enabled() else nullcontext()
        with self.products(), wide, self._hidden_kept() as cache:
            logits = self.logits_read(self.model, [Pass(ids, read)], torch.arange(len(read), device=device))
        hidden = cache[-1].flatten(0, -2).index_select(0, read)
        logits = logits / temperature
        return Replied(logits, token_logp(logits, tokens), self.value_head(hidden.float()).squeeze(-1))

    @within_memory
    @torch.no_grad()
    def judged(
        self, prompts: Sequence[Ids], replies: Sequence[Ids], temperature: float, *, token_budget: int = PASS_BUDGET
    ) -> Judged:
        """Return the policy's and the reference's values for replies."""
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
        """A context in which products have the requested precision."""
        # A model with bfloat16 weights multiplies in bfloat16 anyway.
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


@dataclass(frozen=True)
class Rollouts:
    """The sampled replies.

    A reply holds the token that ended it, where there was one (`stopped`): that was a choice too. `logp` and
    `reference_logp` are values of the sampling policy and of the reference, `values` its expectations.
    """

    prompts: tuple[Ids, ...]
    replies: tuple[Ids, ...]
    stopped: tuple[bool, ...]
    ids: Int[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]
    logp: Float[Tensor, "B T"]
    reference_logp: Float[Tensor, "B T"]
    values: Float[Tensor, "B T"]
    entropy: Float[Tensor, "B T"]
    temperature: float


@within_memory
def sample(
    actor: Actor,
    prompts: Sequence[Ids],
    *,
    n_tokens: int,
    temperature: float,
    top_p: float,
    stop_ids: Sequence[int],
    seed: int,
    token_budget: int = TOKEN_BUDGET,
) -> Rollouts:
    """A reply to each prompt, of at most `n_tokens` tokens, ended by any of `stop_ids`.

    Each token is drawn from the nucleus of probability `top_p` of the distribution at the temperature. A row's draw
    depends on the seed and its number, so that equal prompts have different replies.
    """
    context = context_tokens(actor.model)
    longest = max(map(len, prompts), default=0)
    if not prompts or not all(prompts):
        raise InputError("there is no prompt, or an empty one, to sample a reply to. Give each at least one token")
    if longest + n_tokens > context:
        raise InputError(
            f"a prompt of {longest} tokens and a reply of {n_tokens} tokens are more than the policy's context of "
            f"{context}. Shorten the prompts or take fewer new tokens"
        )
    uniforms = np.stack([generator(seed, "rollout", row).random(n_tokens) for row in range(len(prompts))])
    replies: dict[int, Ids] = {}
    budget = STEP_TOKENS * n_tokens
    lengths = [len(p) for p in prompts]
    for width, rows in batches_by_length(lengths, actor.model.device, token_budget=token_budget, pass_tokens=budget):
        group = [prompts[i] for i in rows]
        decoded = _decoded(actor, group, width, uniforms[rows], stop_ids, temperature, top_p)
        replies |= dict(zip(rows, decoded, strict=True))
    return judged(actor, prompts, [replies[i] for i in range(len(prompts))], stop_ids, temperature)


def judged(
    actor: Actor, prompts: Sequence[Ids], replies: Sequence[Ids], stop_ids: Sequence[int], temperature: float
) -> Rollouts:
    """Return earlier replies of this policy, with its values."""
    width, device = max(map(len, replies)), actor.model.device
    scores = actor.judged(prompts, replies, temperature)
    return Rollouts(
        prompts=tuple(prompts),
        replies=tuple(replies),
        stopped=tuple(reply[-1] in set(stop_ids) for reply in replies),
        ids=right_padded(replies, width, device),
        mask=right_padded([(1,) * len(reply) for reply in replies], width, device).bool(),
        **scores._asdict(),
        temperature=temperature,
    )


@torch.no_grad()
def _decoded(
    actor: Actor,
    prompts: Sequence[Ids],
    width: int,
    uniforms: Float[np.ndarray, "B T"],
    stop_ids: Sequence[int],
    temperature: float,
    top_p: float,
) -> list[Ids]:
    """Replies to prompts of one padded width, with the tokens that ended them."""
    steps = itertools.count()

    def choose(logits: Float[Tensor, "B V"], rows: list[int]) -> Int[Tensor, " B"]:
        shares = torch.from_numpy(uniforms[rows, next(steps)])
        return draw(logits, shares, temperature=temperature, top_p=top_p)

    ends = torch.tensor(sorted(stop_ids), dtype=torch.long, device=actor.model.device)
    with actor.products():
        decoding = Decoding.of(actor.model, len(prompts), None)
        first = decoding.prefill(prompts, width)
        decoded = decode(decoding, first, ends, choose, [uniforms.shape[1]] * len(prompts), keeps_ends=True)
    return [reply.ids for reply in decoded]
