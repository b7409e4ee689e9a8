"""Every objective, as a pure function of log-probabilities: no models, no devices, no state.

Axes: B rows, T positions, V vocabulary. Log-probabilities are in nats. A mask is True where a token counts: the
answer and the token that ends the turn. Rows without one are refused when batches are made.

`n_tokens` and `n_rows` count over the whole effective batch, of which the tensors may hold a part; the values of the
parts then add up to that of the whole, whatever the lengths in them.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import logsigmoid


def row_logp(logp: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, " B"]:
    """Log-probability of each row's answer: the sum over its tokens."""
    return torch.where(mask, logp, 0.0).sum(dim=1)


def nll(logp: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, n_tokens: int) -> Float[Tensor, ""]:
    """Mean negative log-likelihood per token of the effective batch (nats): long answers weigh more."""
    return -torch.where(mask, logp, 0.0).sum() / n_tokens


def kl(
    policy: Float[Tensor, "B T V"],
    reference: Float[Tensor, "B T V"],
    mask: Bool[Tensor, "B T"],
    *,
    n_tokens: int,
) -> Float[Tensor, ""]:
    """KL(reference || policy), forward as in PISTOL's Eq. 5 and TOFU, mean over the masked positions (nats).

    The released code averages over padding and prompt too, which dilutes the term some ninety times.
    """
    per_token = (reference.exp() * (reference - policy)).sum(dim=-1)
    return torch.where(mask, per_token, 0.0).sum() / n_tokens


def dpo(
    policy_margin: Float[Tensor, " B"],
    reference_margin: Float[Tensor, " B"],
    *,
    beta: float,
    n_rows: int,
) -> Float[Tensor, ""]:
    """-mean log sigmoid(beta (policy margin - reference margin)); a margin is logp(preferred) - logp(dispreferred).

    Rafailov et al., Direct Preference Optimization, 2305.18290, Eq. 7. Log-probabilities are summed over tokens.
    """
    return -logsigmoid(beta * (policy_margin - reference_margin)).sum() / n_rows
