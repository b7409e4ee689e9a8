"""Replies sampled from a policy, with everything that a policy gradient reads.

Axes: B replies, T their tokens, V vocabulary. Log-probabilities and entropies are in nats.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vestige.core.errors import InputError
from vestige.core.seeds import generator
from vestige.models.forward import batches_by_length, right_padded, within_memory
from vestige.models.generation import STEP_TOKENS, TOKEN_BUDGET, Decoding, decode, draw
from vestige.models.load import context_tokens
from vestige.models.variants import Ids
from vestige.training.policy.actor import Actor


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
