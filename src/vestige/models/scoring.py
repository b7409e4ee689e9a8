"""Teacher-forced scores: for each token of an answer its log-probability, its rank and whether it came first.

`token_logp` needs one vocabulary-sized buffer for a gradient instead of five. It computes in float32 at least, whatever
the logits are in. Axes: N positions, B rows, K positions, V vocabulary. Log-probabilities are in nats.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from vestige.models.blocks import blocks, hidden_states, outputs_kept, read_out
from vestige.models.forward import batches_by_length, logits_at, padded_passes, right_padded, within_memory
from vestige.models.prompts import Encoded

# The number of positions at a time: their vocabularies fit a core's cache, and bfloat16 logits are never all in
# float32.
CHUNK = 32


def token_logp(logits: Float[Tensor, "N V"], tokens: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Log softmax(logits) at `tokens`.

    Autograd's own way through logsumexp and gather holds five vocabularies a position on the way back.
    """
    logp: Tensor = _TokenLogp.apply(logits, tokens)  # type: ignore[no-untyped-call]
    return logp


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


TOKEN_BUDGET = 8192
# The number of logits in memory if every position is read: 256 MiB in float32.
_LOGITS = 2**26


def logits_budget(model: PreTrainedModel, token_budget: int = TOKEN_BUDGET) -> int:
    """Tokens of a pass that computes logits at all positions."""
    return min(token_budget, _LOGITS // int(model.config.get_text_config().vocab_size))


@dataclass(frozen=True)
class AnswerScore:
    """The values of one answer from one forward pass, one for each token.

    `end_logp` and `end_rank` belong to the token that ends the turn.

    `ranks` count from 1. Tokens tied with the answer's share the mean of their ranks, so that a model which gives
    all tokens one logit is not taken for one that knows.
    """

    logp: tuple[float, ...]
    ranks: tuple[float, ...]
    end_logp: float
    end_rank: float

    @property
    def exact(self) -> bool:
        """Return whether the answer with its end is the model's exact reply."""
        return {*self.ranks, self.end_rank} == {1}


def token_scores(
    logits: Float[Tensor, "B K V"], targets: Int[Tensor, "B K"]
) -> tuple[Float[Tensor, "B K"], Float[Tensor, "B K"]]:
    """Log-probability (nats) and mid-rank of each target."""
    chosen = logits.gather(-1, targets[..., None])
    logp = chosen.squeeze(-1) - logits.logsumexp(-1)
    # Summing booleans into 64 bits takes seven times as long.
    above = (logits > chosen).sum(-1, dtype=torch.int32)
    tied = (logits == chosen).sum(-1, dtype=torch.int32)
    return logp, 1 + above + (tied - 1) / 2


@within_memory
@torch.inference_mode()
def answers_inside(
    model: PreTrainedModel, encoded: Sequence[Encoded], *, token_budget: int = TOKEN_BUDGET
) -> tuple[Float[np.ndarray, "L R D"], Float[np.ndarray, "L R"]]:
    """Return each of L blocks' values of R answers, in order.

    Its mean output over an answer's tokens, and the mean log-probability (nats a token) that the model's own norm and
    head give to these tokens from its output.
    """
    n_blocks = len(blocks(model))
    means = np.zeros((n_blocks, len(encoded), model.config.get_text_config().hidden_size), dtype=np.float32)
    logp = np.zeros((n_blocks, len(encoded)))
    for rows, ids in padded_passes([e.ids for e in encoded], model.device, token_budget=token_budget):
        batch = [encoded[i] for i in rows]
        # The full pass also detects non-finite logits for each text.
        with outputs_kept(model, range(n_blocks), stops=False) as outputs:
            model(input_ids=ids, use_cache=False, logits_to_keep=1)
        counts = torch.tensor([e.stop - e.start for e in batch], device=ids.device)
        owner = torch.arange(len(batch), device=ids.device).repeat_interleave(counts)
        place = torch.cat([torch.arange(e.start, e.stop, device=ids.device) for e in batch])

        def mean(values: Float[Tensor, "N D"], owner: Tensor = owner, counts: Tensor = counts) -> np.ndarray[Any, Any]:
            sums = torch.zeros(len(counts), values.shape[1], device=values.device).index_add_(0, owner, values.float())
            return np.asarray((sums / counts[:, None]).cpu())

        for n in range(n_blocks):
            hidden = hidden_states(outputs[n])
            means[n, rows] = mean(hidden[owner, place])
            before, tokens = hidden[owner, place - 1], ids[owner, place]
            parts = torch.arange(len(owner), device=ids.device).split(logits_budget(model))
            read = [token_logp(read_out(model, before[part]), tokens[part]) for part in parts]
            logp[n, rows] = mean(torch.cat(read)[:, None])[:, 0]
    return means, logp


@within_memory
@torch.inference_mode()
def score_answers(
    model: PreTrainedModel, encoded: Sequence[Encoded], *, token_budget: int = TOKEN_BUDGET
) -> list[AnswerScore]:
    """Scores of the answers, in the order given. `token_budget` bounds memory."""
    scores: dict[int, AnswerScore] = {}
    for rows, ids in padded_passes([e.ids for e in encoded], model.device, token_budget=token_budget):
        batch = [encoded[i] for i in rows]
        first, last = min(e.start for e in batch) - 1, max(e.end for e in batch)
        positions = torch.arange(first, last, device=ids.device)
        logp, ranks = token_scores(logits_at(model, ids, positions), ids[:, positions + 1])
        for i, e, row_logp, row_ranks in zip(rows, batch, logp.tolist(), ranks.tolist(), strict=True):
            start, stop, end = (at - 1 - first for at in (e.start, e.stop, e.end))
            scores[i] = AnswerScore(
                tuple(row_logp[start:stop]), tuple(row_ranks[start:stop]), row_logp[end], row_ranks[end]
            )
    return [scores[i] for i in range(len(encoded))]


# The number of logits of a pass that are processed at a time: 8 MiB.
_LOGITS_AT_ONCE = 2**21


@dataclass(frozen=True)
class TextSpread:
    """Values for each token of a text except the first, which has no prediction.

    `ranks` count from 1, tokens tied sharing the mean of theirs. `mean` and `variance` are the moments of log p over
    the model's own distribution p at that position.
    """

    logp: tuple[float, ...]
    ranks: tuple[float, ...]
    mean: tuple[float, ...]
    variance: tuple[float, ...]


def moments(logits: Float[Tensor, "N V"]) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Mean and variance of log p under p = softmax(logits): sum p log p, and sum p (log p - mean)^2."""
    logp = logits.log_softmax(-1)
    p = logp.exp()
    mean = _weighted(p, logp)
    return mean, _weighted(p, (logp - mean[:, None]).square())


def _weighted(p: Float[Tensor, "N V"], values: Float[Tensor, "N V"]) -> Float[Tensor, " N"]:
    # An impossible token has an infinite value and no weight.
    return torch.where(p > 0, p * values, 0.0).sum(-1)


@torch.inference_mode()
def score_texts(
    model: PreTrainedModel, texts: Sequence[Sequence[int]], *, token_budget: int = TOKEN_BUDGET
) -> list[TextSpread]:
    """Scores of texts of token ids, in the order given. One pass each.

    `token_budget` bounds memory, as the vocabulary does.
    """
    scores: dict[int, TextSpread] = {}
    vocabulary = int(model.config.get_text_config().vocab_size)
    budget = logits_budget(model, token_budget)
    for width, rows in batches_by_length([len(t) for t in texts], model.device, token_budget=budget):
        ids = right_padded([texts[i] for i in rows], width, model.device)
        logits = logits_at(model, ids, torch.arange(width, device=ids.device)).flatten(0, 1)
        # The last position of a row has no next token, and its value is discarded.
        targets = ids.roll(-1, dims=1).flatten()
        step = max(1, _LOGITS_AT_ONCE // vocabulary)
        parts = []
        for part, target in zip(logits.split(step), targets.split(step), strict=True):
            of_targets = [values[0] for values in token_scores(part[None], target[None])]
            parts.append(torch.stack([*of_targets, *moments(part)]))
        values_by_row = torch.cat(parts, dim=1).unflatten(1, ids.shape).movedim(1, 0).tolist()
        for i, values in zip(rows, values_by_row, strict=True):
            scores[i] = TextSpread(*(tuple(v[: len(texts[i]) - 1]) for v in values))
    return [scores[i] for i in range(len(texts))]


def gradient_norm(model: PreTrainedModel, text: Sequence[int], places: Sequence[int]) -> float:
    """L2 norm, over all parameters, of the gradient of the mean negative log-likelihood of the tokens at `places`.

    In a pass of its own. Parameters that are frozen count too. Which ones are is as before afterwards.
    """
    parameters = [p for p in model.parameters() if p.is_floating_point()]
    frozen = [p for p in parameters if not p.requires_grad]
    ids = right_padded([text], len(text), model.device)
    read = torch.tensor(places, device=ids.device)
    try:
        for p in frozen:
            p.requires_grad_(True)
        with torch.enable_grad():
            logits = logits_at(model, ids, torch.arange(ids.shape[1], device=ids.device))[0]
            loss = -token_logp(logits[read - 1], ids[0, read]).mean()
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    finally:
        for p in frozen:
            p.requires_grad_(False)
    return math.sqrt(math.fsum(g.double().square().sum().item() for g in gradients if g is not None))
