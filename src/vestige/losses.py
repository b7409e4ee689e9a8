"""Every objective, as a pure function of log-probabilities: no models, no devices, no state.

Axes: B rows, T positions, D hidden width, V vocabulary. Log-probabilities are in nats. A mask is True where a token
counts: the answer and the token that ends the turn, or every token where activations are read. Rows without one are
refused when batches are made.

`n_tokens` and `n_rows` are totals over the effective batch, which the tensors may hold only in part. The parts' values
then add up to the whole's, whatever the lengths.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid


def row_logp(logp: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, " B"]:
    """Log-probability of each row's answer: the sum over its tokens."""
    # Selection instead of multiplication: 0 times an infinite value after a row would be NaN.
    return torch.where(mask, logp, 0.0).sum(dim=1)


def nll(logp: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, n_tokens: int) -> Float[Tensor, ""]:
    """Mean negative log-likelihood per token of the effective batch (nats): long answers weigh more."""
    return -torch.where(mask, logp, 0.0).sum() / n_tokens


def kl(
    policy: Float[Tensor, "B T V"], reference: Float[Tensor, "B T V"], mask: Bool[Tensor, "B T"], *, n_tokens: int
) -> Float[Tensor, ""]:
    """KL(reference || policy), forward as in PISTOL's Eq. 5 and TOFU, mean over the masked positions (nats).

    With the arguments exchanged it is the reverse divergence. The released code averages over padding and prompt too,
    which dilutes the term some ninety times.
    """
    per_token = (reference.exp() * (reference - policy)).sum(dim=-1)
    return torch.where(mask, per_token, 0.0).sum() / n_tokens


def dpo(
    policy_margin: Float[Tensor, " B"], reference_margin: Float[Tensor, " B"], *, beta: float, n_rows: int
) -> Float[Tensor, ""]:
    """-mean log sigmoid(beta (policy margin - reference margin)). A margin is logp(preferred) - logp(dispreferred).

    Rafailov et al., Direct Preference Optimization, 2305.18290, Eq. 7. Log-probabilities are summed over tokens.
    """
    # logsigmoid is one function: the sigmoid of a large negative margin would round to 0, whose logarithm is infinite.
    return -logsigmoid(beta * (policy_margin - reference_margin)).sum() / n_rows


def npo(
    policy_logp: Float[Tensor, " B"], reference_logp: Float[Tensor, " B"], *, beta: float, n_rows: int
) -> Float[Tensor, ""]:
    """-(2 / beta) mean log sigmoid(-beta (policy - reference)), on answers' log-probabilities summed over tokens.

    Zhang et al., Negative Preference Optimization, 2404.05868, Eq. 3. As beta goes to 0 the gradient approaches
    gradient ascent on the summed answers (Proposition 1). (2 / beta) ln 2 where policy and reference agree.
    """
    return -2 / beta * logsigmoid(beta * (reference_logp - policy_logp)).sum() / n_rows


def simnpo(
    logp: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, beta: float, gamma: float, n_rows: int
) -> Float[Tensor, ""]:
    """-(2 / beta) mean log sigmoid(-beta m - gamma), m an answer's mean log-probability per token.

    Fan et al., Simplicity Prevails, 2410.07163, Eq. 4. The released code has -beta (m + gamma): its gamma is ours
    divided by beta.
    """
    mean = row_logp(logp, mask) / mask.sum(dim=1)
    return -2 / beta * logsigmoid(-beta * mean - gamma).sum() / n_rows


def weighted_ascent(
    logp: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, saturation: float, importance: float, n_tokens: int
) -> Float[Tensor, ""]:
    """Mean over tokens of p^saturation (1 - p)^importance log p. No gradient through the weight. Both 0: GA.

    Wang et al., 2502.19301 (WGA: importance 0). Yang et al., 2505.11953 (SatImp).
    """
    kept = torch.where(mask, logp, 0.0)
    # Rounding can lift a log-probability above 0, where a fractional power of 1 - p is not a number.
    known = kept.detach().clamp(max=0)
    # expm1 is used because 1 - p loses its digits if p is close to 1. 0 ** 0 is 1: importance 0 weighs certain tokens
    # too.
    weight = (saturation * known).exp() * (-torch.expm1(known)) ** importance
    return (weight * kept).sum() / n_tokens


def undial(
    policy: Float[Tensor, "B T V"],
    reference: Float[Tensor, "B T V"],
    tokens: Int[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    beta: float,
    n_tokens: int,
) -> Float[Tensor, ""]:
    """Cross-entropy of the policy with the reference whose answer token has its logit lowered by beta, mean per token.

    Dong et al., UNDIAL, 2402.10052. Least, and then the lowered reference's entropy, where the policy is that.
    """
    # Log-probabilities are used as logits: they differ by a constant, which the softmax ignores.
    own = torch.zeros_like(reference).scatter(-1, tokens.unsqueeze(-1), beta)
    per_token = -((reference - own).softmax(-1) * policy).sum(dim=-1)
    return torch.where(mask, per_token, 0.0).sum() / n_tokens


def ce_u(
    policy: Float[Tensor, "B T V"], tokens: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, n_tokens: int
) -> Float[Tensor, ""]:
    """KL(policy with its answer token ruled out, held constant || policy) = -log(1 - p), mean per token.

    Yang, CE-U, 2503.01224. The cross-entropy form adds a constant entropy: the same gradient. The sum over the other
    tokens keeps 1 - p where p rounds to 1.
    """
    others = policy.scatter(-1, tokens.unsqueeze(-1), -torch.inf).logsumexp(dim=-1)
    return -torch.where(mask, others, 0.0).sum() / n_tokens


def logit_margin(policy: Float[Tensor, "B T V"], mask: Bool[Tensor, "B T"], *, n_tokens: int) -> Float[Tensor, ""]:
    """Mean over tokens of (max - mean)^2 over the vocabulary: the same on logits and on log-probabilities.

    Entesari et al., Constrained Entropic Unlearning, 2506.05314. Least, and 0, where the distribution is uniform.
    """
    margin = policy.amax(dim=-1) - policy.mean(dim=-1)
    return torch.where(mask, margin, 0.0).square().sum() / n_tokens


def js(
    policy: Float[Tensor, "B T V"], reference: Float[Tensor, "B T V"], mask: Bool[Tensor, "B T"], *, n_tokens: int
) -> Float[Tensor, ""]:
    """Jensen-Shannon divergence of policy and reference, mean over the masked positions (nats): from 0 to ln 2.

    Singh et al., JensUn, 2509.02820.
    """
    # The computation is in logarithms, where the mean of two vanishing probabilities is still above 0.
    middle = torch.logaddexp(policy, reference) - math.log(2)
    per_token = (policy.exp() * (policy - middle) + reference.exp() * (reference - middle)).sum(dim=-1) / 2
    return torch.where(mask, per_token, 0.0).sum() / n_tokens


def js_to_certainty(logp: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, n_tokens: int) -> Float[Tensor, ""]:
    """Jensen-Shannon divergence from certainty of a token of probability p: ln 2 + (p ln p - (1 + p) ln(1 + p)) / 2.

    Mean per token (nats). As p goes to 0 its gradient vanishes, and NLL's does not.
    """
    # Masked tokens get p = 1, where the divergence is 0.
    masked = torch.where(mask, logp, 0.0)
    p = masked.exp()
    return ((p * masked - (1 + p) * p.log1p()) / 2 + math.log(2)).sum() / n_tokens


def activation_distance(
    hidden: Float[Tensor, "B T D"], target: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"], *, n_rows: int
) -> Float[Tensor, ""]:
    """Mean over rows of the mean over their tokens of the mean over D of (hidden - target)^2.

    Li et al., RMU, 2403.03218, whose sum over D is taken as a mean, as in its code.
    """
    per_token = torch.where(mask.unsqueeze(-1), hidden - target, 0.0).square().mean(dim=-1)
    return (per_token.sum(dim=1) / mask.sum(dim=1)).sum() / n_rows


def rerouting(
    hidden: Float[Tensor, "B T D"], reference: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"], *, n_rows: int
) -> Float[Tensor, ""]:
    """Mean over rows of the mean over their tokens of max(0, cosine of hidden and reference).

    Zou et al., Circuit Breakers, 2406.04313, Algorithm 1. Least, and 0, where the two are orthogonal or opposed.
    """
    read = mask.unsqueeze(-1)
    cosine = torch.cosine_similarity(torch.where(read, hidden, 0.0), torch.where(read, reference, 0.0), dim=-1)
    return (cosine.relu().sum(dim=1) / mask.sum(dim=1)).sum() / n_rows


def activation_norm(
    hidden: Float[Tensor, "B T D"], reference: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"], *, n_rows: int
) -> Float[Tensor, ""]:
    """Mean over rows of the mean over their tokens of the L2 norm over D of hidden - reference.

    Zou et al., Circuit Breakers, 2406.04313, Algorithm 1.
    """
    # Padding is removed before the norm: a NaN there would reach the gradient.
    per_token: Tensor = torch.where(mask.unsqueeze(-1), hidden - reference, 0.0).norm(dim=-1)
    return (per_token.sum(dim=1) / mask.sum(dim=1)).sum() / n_rows
