"""Teacher-forced scores: for each token of an answer its log-probability, its rank and whether it came first.

Axes: B rows, K positions, V vocabulary. Log-probabilities are in nats, computed in float32 from one pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from vestige.models.forward import batches_by_length, logits_at, right_padded
from vestige.models.prompts import Encoded
from vestige.models.shortage import within_memory

TOKEN_BUDGET = 8192
# Logits that are held at once where every position is read: 256 MiB of them in float32.
_LOGITS = 2**26


def logits_budget(model: PreTrainedModel, token_budget: int = TOKEN_BUDGET) -> int:
    """Tokens of a pass that reads logits at all of them."""
    return min(token_budget, _LOGITS // int(model.config.get_text_config().vocab_size))


@dataclass(frozen=True)
class AnswerScore:
    """What one forward pass says of one answer, a value for each of its tokens.

    `end_logp` and `end_rank` are those of the token that ends the turn.

    `ranks` count from 1. Tokens tied with the answer's share the mean of their ranks, so that a model which gives
    all tokens one logit is not taken for one that knows.
    """

    logp: tuple[float, ...]
    ranks: tuple[float, ...]
    end_logp: float
    end_rank: float


def token_scores(
    logits: Float[Tensor, "B K V"], targets: Int[Tensor, "B K"]
) -> tuple[Float[Tensor, "B K"], Float[Tensor, "B K"]]:
    """Log-probability (nats) and mid-rank of each target."""
    chosen = logits.gather(-1, targets[..., None])
    logp = chosen.squeeze(-1) - logits.logsumexp(-1)
    # A sum of truth values into 64 bits takes seven times as long.
    above = (logits > chosen).sum(-1, dtype=torch.int32)
    tied = (logits == chosen).sum(-1, dtype=torch.int32)
    return logp, 1 + above + (tied - 1) / 2


@within_memory
@torch.inference_mode()
def score_answers(
    model: PreTrainedModel, encoded: Sequence[Encoded], *, token_budget: int = TOKEN_BUDGET
) -> list[AnswerScore]:
    """Scores of the answers, in the order given. `token_budget` bounds memory."""
    scores: dict[int, AnswerScore] = {}
    for width, rows in batches_by_length([len(e.ids) for e in encoded], token_budget=token_budget):
        batch = [encoded[i] for i in rows]
        ids = right_padded([e.ids for e in batch], width, model.device)
        first, last = min(e.start for e in batch) - 1, max(e.end for e in batch)
        positions = torch.arange(first, last, device=ids.device)
        logp, ranks = token_scores(logits_at(model, ids, positions), ids[:, positions + 1])
        for i, e, row_logp, row_ranks in zip(rows, batch, logp.tolist(), ranks.tolist(), strict=True):
            start, stop, end = (place - 1 - first for place in (e.start, e.stop, e.end))
            scores[i] = AnswerScore(
                tuple(row_logp[start:stop]), tuple(row_ranks[start:stop]), row_logp[end], row_ranks[end]
            )
    return [scores[i] for i in range(len(encoded))]
