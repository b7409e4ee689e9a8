"""Replies that a policy draws, with everything that a policy gradient reads of them.

Axes: B replies, T their tokens, V vocabulary. Log-probabilities and entropies are in nats.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vestige.core.errors import InputError
from vestige.core.seeds import generator
from vestige.models.forward import batches_by_length, within_memory
from vestige.models.generation import STEP_TOKENS, TOKEN_BUDGET, Decoding, draw
from vestige.models.load import context_tokens
from vestige.models.variants import Ids
from vestige.training.policy.actor import Actor


@dataclass(frozen=True)
class Rollouts:
    """What was drawn. A reply holds the token that ended it, where there was one (`stopped`): that was a choice too.

    `logp` and `reference_logp` are those of the policy that drew and of the reference, `values` what it expected.
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


@runtime_checkable
class Acts(Protocol):
    """What can be sampled from."""

    @property
    def actor(self) -> Actor:
        """The model, and how it is read."""
        ...


@within_memory
def sample(
    policy: Acts,
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

    Each token is drawn from the nucleus of probability `top_p` of the distribution at the temperature. What a row
    draws follows from the seed and its number, so that equal prompts have replies of their own.
    """
    context = context_tokens(policy.actor.model)
    longest = max(map(len, prompts), default=0)
    if not prompts or not all(prompts):
        raise InputError("there is no prompt, or an empty one, to sample a reply to; give each at least one token")
    if longest + n_tokens > context:
        raise InputError(
            f"a prompt of {longest} tokens and a reply of {n_tokens} tokens are more than the policy's context of "
            f"{context}; shorten the prompts or take fewer new tokens"
        )
    uniforms = np.stack([generator(seed, "rollout", row).random(n_tokens) for row in range(len(prompts))])
    replies: dict[int, list[int]] = {}
    budget = STEP_TOKENS * n_tokens
    lengths, device = [len(p) for p in prompts], policy.actor.model.device
    for width, rows in batches_by_length(lengths, device, token_budget=token_budget, pass_tokens=budget):
        decoded = _decoded(
            policy.actor,
            [prompts[i] for i in rows],
            width,
            uniforms[rows],
            stop_ids,
            temperature,
            top_p,
        )
        replies |= dict(zip(rows, decoded, strict=True))
    return judged(policy, prompts, [tuple(replies[i]) for i in range(len(prompts))], stop_ids, temperature)


def judged(
    policy: Acts, prompts: Sequence[Ids], replies: Sequence[Ids], stop_ids: Sequence[int], temperature: float
) -> Rollouts:
    """Replies that were drawn from this policy before, with what it says of them."""
    width = max(map(len, replies))
    ids = torch.zeros(len(replies), width, dtype=torch.long)
    mask = torch.zeros(len(replies), width, dtype=torch.bool)
    for row, reply in enumerate(replies):
        ids[row, : len(reply)] = torch.tensor(reply)
        mask[row, : len(reply)] = True
    device = policy.actor.model.device
    scores = policy.actor.judged(prompts, replies, temperature)
    return Rollouts(
        prompts=tuple(prompts),
        replies=tuple(replies),
        stopped=tuple(reply[-1] in set(stop_ids) for reply in replies),
        ids=ids.to(device),
        mask=mask.to(device),
        logp=scores.logp,
        reference_logp=scores.reference_logp,
        values=scores.values,
        entropy=scores.entropy,
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
) -> list[list[int]]:
    """Replies to prompts of one padded width; rows that have ended leave the batch when half of it has."""
    stops = set(stop_ids)
    replies: list[list[int]] = [[] for _ in prompts]
    rows = list(range(len(prompts)))
    with actor.products():
        decoding = Decoding.of(actor.model, len(prompts), None)
        logits = decoding.prefill(prompts, width)
        for step in range(uniforms.shape[1]):
            shares = torch.from_numpy(uniforms[rows, step])
            tokens = draw(logits, shares, temperature=temperature, top_p=top_p)
            ended = []
            for row, token in zip(rows, tokens.tolist(), strict=True):
                if not (replies[row] and replies[row][-1] in stops):
                    replies[row].append(token)
                ended.append(replies[row][-1] in stops)
            active = [k for k, end in enumerate(ended) if not end]
            if not active or step + 1 == uniforms.shape[1]:
                break
            if len(active) <= len(rows) // 2:
                alive = torch.tensor(active, device=actor.model.device)
                decoding.keep(alive)
                tokens, rows = tokens[alive], [rows[k] for k in active]
            logits = decoding.step(tokens)
    return replies
