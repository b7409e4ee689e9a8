"""From scores to a loss, in two ways: PPO with a value head, and GRPO with groups of replies to one prompt.

Axes: B replies, T their tokens, N tokens of all replies end to end, V vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vestige.core.errors import InputError
from vestige.training.policy import losses
from vestige.training.policy.actor import Replied
from vestige.training.policy.rollouts import Rollouts
from vestige.training.policy.settings import PolicySettings


class Aims(NamedTuple):
    """What the replies are to be learnt by: advantages, and what values should have been (PPO alone reads them)."""

    advantages: Float[Tensor, "B T"]
    returns: Float[Tensor, "B T"]


class Sizes(NamedTuple):
    """Tokens and replies of one step of the optimiser, of which a part may be computed at a time."""

    n_tokens: int
    n_rows: int


def aims(rollouts: Rollouts, scores: Float[Tensor, " B"], settings: PolicySettings) -> Aims:
    """Advantages: whitened over all tokens in PPO, of a reply within its group in GRPO."""
    if settings.estimator == "grpo":
        refuse_unlike_groups(rollouts, settings.group_size)
        advantages = losses.grpo_advantages(scores, group_size=settings.group_size)[:, None].expand_as(rollouts.logp)
        return Aims(advantages, torch.zeros_like(rollouts.logp))
    rewards = losses.token_rewards(
        scores,
        rollouts.logp,
        rollouts.reference_logp,
        rollouts.mask,
        kl_coef=settings.kl_coef,
        entropy_coef=settings.entropy_coef,
    )
    found = losses.gae(rewards, rollouts.values, rollouts.mask, gamma=settings.gamma, lambda_=settings.gae_lambda)
    return Aims(losses.whitened(found.advantages, rollouts.mask), found.returns)


def refuse_unlike_groups(rollouts: Rollouts, size: int) -> None:
    """Refuse rollouts that are not whole groups of neighbours with one prompt each."""
    starts = range(0, len(rollouts.prompts), size)
    if len(rollouts.prompts) % size or any(len(set(rollouts.prompts[at : at + size])) > 1 for at in starts):
        raise InputError(
            f"GRPO compares groups of {size} replies to one prompt, and these {len(rollouts.prompts)} rollouts are no "
            f"such groups; sample each prompt {size} times in a row, or set group_size"
        )


def terms(
    said: Replied, rollouts: Rollouts, aims: Aims, rows: Sequence[int], sizes: Sizes, settings: PolicySettings
) -> dict[str, Float[Tensor, ""]]:
    """The parts of the loss that the replies `rows` have in it, and the share of clipped tokens; see `LOSS`."""
    picked = torch.tensor(list(rows), device=rollouts.mask.device)
    # No wider than the longest of them.
    mask = rollouts.mask[picked]
    mask = mask[:, : int(mask.sum(1).max())]

    def of(x: Float[Tensor, "B T"]) -> Float[Tensor, "b t"]:
        return x[picked, : mask.shape[1]]

    old, advantages = of(rollouts.logp), of(aims.advantages)
    logp = _placed(said.logp, mask)
    left = ((logp.detach() - old).exp() - 1).abs() > settings.clip
    found = {"clip_share": (left & mask).sum() / sizes.n_tokens}
    if settings.estimator == "grpo":
        penalty = settings.kl_coef * losses.k3(logp, of(rollouts.reference_logp))
        found["policy_loss"] = losses.grpo_loss(
            logp, old, penalty, advantages[:, 0], mask, clip=settings.clip, n_rows=sizes.n_rows
        )
        if settings.entropy_coef:
            found["entropy_loss"] = -settings.entropy_coef * losses.entropy(said.logits).sum() / sizes.n_tokens
        return found
    found["policy_loss"] = losses.ppo_policy_loss(
        logp, old, advantages, mask, clip=settings.clip, n_tokens=sizes.n_tokens
    )
    found["value_loss"] = settings.value_coef * losses.value_loss(
        _placed(said.values, mask), of(rollouts.values), of(aims.returns), mask,
        clip=settings.value_clip, n_tokens=sizes.n_tokens,
    )  # fmt: skip
    return found


LOSS = ("policy_loss", "value_loss", "entropy_loss")
"""The terms that add up to the loss."""


def _placed(flat: Float[Tensor, " N"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Numbers of all tokens end to end, each in its reply's row."""
    return torch.zeros(mask.shape, device=flat.device, dtype=flat.dtype).masked_scatter(mask, flat)
