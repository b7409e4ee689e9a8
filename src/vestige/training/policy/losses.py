"""The parts of a policy gradient: rewards, advantages and losses as pure functions, without models or state.

Axes: B replies, T their tokens. Log-probabilities are in nats. A mask is True where a token was sampled, the token that
ended the reply too. `n_tokens` and `n_rows` are totals over one optimiser step, whose rows the tensors may hold only in
part. The parts' values then add up to the whole's.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

VARIANCE_FLOOR = 1e-8
"""Added to a variance before its root is divided by."""
SPREAD_FLOOR = 1e-4
"""Added to the standard deviation of a group's scores: 1e-4 as in TRL."""


class Advantages(NamedTuple):
    """Each token's advantage over the expectation, and the target for its value."""

    advantages: Float[Tensor, "B T"]
    returns: Float[Tensor, "B T"]


def standardised(scores: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """(score - mean) / (standard deviation + 1e-4), deviation by n - 1. One score alone is 0.

    So a value head that begins at 0 is right on average from the first iteration on, and `value_clip`, learning rate
    and the weights of KL and entropy, which Curiosity (2402.19464) chose for scores of 0 to 1, fit scores of any scale.
    """
    if len(scores) > 1:
        spread = scores.std()
    else:
        spread = scores.new_zeros(())
    return (scores - scores.mean()) / (spread + SPREAD_FLOOR)


def token_rewards(
    scores: Float[Tensor, " B"],
    logp: Float[Tensor, "B T"],
    reference_logp: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    kl_coef: float,
    entropy_coef: float,
) -> Float[Tensor, "B T"]:
    """-kl_coef (logp - reference) - entropy_coef logp at each token, and the reply's score on its last one.

    Hong et al., Curiosity-driven Red-teaming, 2402.19464. Their released code also clips the score to +-10 and gives
    replies of one or two tokens the score alone. This function does neither.
    """
    shaped = -kl_coef * (logp - reference_logp) - entropy_coef * logp
    position = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    last = torch.where(mask, position, -1).amax(dim=1, keepdim=True)
    return torch.where(mask, shaped, 0.0) + torch.where(position == last, scores[:, None], 0.0)


def gae(
    rewards: Float[Tensor, "B T"],
    values: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    gamma: float,
    lambda_: float,
) -> Advantages:
    """Generalised advantages sum_k (gamma lambda)^k delta_(t+k), delta_t = r_t + gamma V_(t+1) - V_t. Returns A + V.

    Schulman et al., 1506.02438, Eq. 16. After a reply's last token nothing is to be had, so V is 0 there.
    """
    advantages = torch.zeros_like(values)
    later, value_after = torch.zeros_like(values[:, 0]), torch.zeros_like(values[:, 0])
    for t in reversed(range(values.shape[1])):
        delta = rewards[:, t] + gamma * value_after - values[:, t]
        later = torch.where(mask[:, t], delta + gamma * lambda_ * later, 0.0)
        value_after = torch.where(mask[:, t], values[:, t], 0.0)
        advantages[:, t] = later
    return Advantages(advantages, torch.where(mask, advantages + values, 0.0))


def whitened(x: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """(x - mean) / sqrt(variance + 1e-8) over the masked tokens of all rows, variance by n - 1; 0 elsewhere.

    The reference code includes the padding in mean and variance. A single token is whitened to 0.
    """
    values = x[mask]
    if len(values) > 1:
        variance = values.var()
    else:
        variance = values.new_zeros(())
    return torch.where(mask, (x - values.mean()) * torch.rsqrt(variance + VARIANCE_FLOOR), 0.0)


def ppo_policy_loss(
    logp: Float[Tensor, "B T"],
    old_logp: Float[Tensor, "B T"],
    advantages: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    clip: float,
    n_tokens: int,
) -> Float[Tensor, ""]:
    """-min(ratio A, clip(ratio, 1 - clip, 1 + clip) A), ratio = exp(logp - old), mean over tokens.

    Schulman et al., Proximal Policy Optimization, 1707.06347, Eq. 7, as a loss.
    """
    ratio = (logp - old_logp).exp()
    gained = torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)
    return torch.where(mask, -gained, 0.0).sum() / n_tokens


def value_loss(
    values: Float[Tensor, "B T"],
    old_values: Float[Tensor, "B T"],
    returns: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    clip: float,
    n_tokens: int,
) -> Float[Tensor, ""]:
    """Half the mean of max((V - R)^2, (V' - R)^2), V' being V held within `clip` of the value before the update."""
    clipped = old_values + (values - old_values).clamp(-clip, clip)
    squares = torch.maximum((values - returns) ** 2, (clipped - returns) ** 2)
    return 0.5 * torch.where(mask, squares, 0.0).sum() / n_tokens


def k1(logp: Float[Tensor, "B T"], reference_logp: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Unbiased for KL(policy || reference) on tokens that the policy sampled, logp - reference. May be below 0."""
    return logp - reference_logp


def entropy(logits: Float[Tensor, "N V"]) -> Float[Tensor, " N"]:
    """-sum_v p log p of each position's distribution, in float32 at least."""
    logp = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    return -(logp.exp() * logp).sum(-1)


def mean_over(x: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Mean over the masked tokens of all rows."""
    return torch.where(mask, x, 0.0).sum() / mask.sum()
