"""The log-probability of one token at each position, with one vocabulary-sized buffer instead of five.

Axes: N positions, V vocabulary. Log-probabilities are in nats, and in float32 at least, whatever the logits are in.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

# Positions at a time: so many vocabularies stay in a core's cache, and a bfloat16 head's are never all in float32.
CHUNK = 32


def token_logp(logits: Float[Tensor, "N V"], tokens: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Log softmax(logits) at `tokens`.

    Autograd's own way through logsumexp and gather holds five vocabularies a position on the way back.
    """
    found: Tensor = _TokenLogp.apply(logits, tokens)  # type: ignore[no-untyped-call]
    return found


class _TokenLogp(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, logits: Tensor, tokens: Tensor) -> Tensor:
        total = torch.cat([_wide(part).logsumexp(-1) for part in logits.split(CHUNK)])
        context.save_for_backward(logits, tokens, total)
        chosen = logits.gather(-1, tokens[:, None]).squeeze(-1)
        return _wide(chosen) - total

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        logits, tokens, total = context.saved_tensors
        (gradient,) = gradients
        found = torch.empty_like(logits)
        for start in range(0, len(logits), CHUNK):
            part = slice(start, start + CHUNK)
            # d log p(y) / d logit(v) = [v = y] - p(v).
            share = (_wide(logits[part]) - total[part, None]).exp_().mul_(-gradient[part, None])
            share.scatter_add_(-1, tokens[part, None], gradient[part, None].to(share.dtype))
            found[part] = share
        return found, None


def _wide(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))
