"""What one pass says of every token of a text: its log-probability, its rank, and the spread of all tokens' there.

Axes: B rows, T positions, N positions of all rows end to end, V vocabulary. Log-probabilities are in nats, in float32.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from vestige.models.forward import batches_by_length, logits_at, right_padded
from vestige.models.scoring import TOKEN_BUDGET, logits_budget, token_scores
from vestige.models.token_logp import token_logp

# Of the logits of a pass so many at a time are made into something: 8 MiB of them.
_LOGITS_AT_ONCE = 2**21


@dataclass(frozen=True)
class TextSpread:
    """A value for each token of a text but the first, before which the model says nothing.

    `ranks` count from 1, tokens tied sharing the mean of theirs. `mean` and `variance` are those of log p over the
    model's own distribution p at that place.
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
    # A token that cannot come has an infinite value and no weight.
    return torch.where(p > 0, p * values, 0.0).sum(-1)


@torch.inference_mode()
def score_texts(
    model: PreTrainedModel, texts: Sequence[Sequence[int]], *, token_budget: int = TOKEN_BUDGET
) -> list[TextSpread]:
    """Scores of texts of token ids, in the order given; one pass each.

    `token_budget` bounds memory, as the vocabulary does.
    """
    scores: dict[int, TextSpread] = {}
    vocabulary = int(model.config.get_text_config().vocab_size)
    budget = logits_budget(model, token_budget)
    for width, rows in batches_by_length([len(t) for t in texts], token_budget=budget):
        ids = right_padded([texts[i] for i in rows], width, model.device)
        logits = logits_at(model, ids, torch.arange(width, device=ids.device)).flatten(0, 1)
        # The last place of a row has no next token; what is read there is thrown away.
        targets = ids.roll(-1, dims=1).flatten()
        step = max(1, _LOGITS_AT_ONCE // vocabulary)
        parts = [
            torch.stack([*(v[0] for v in token_scores(part[None], target[None])), *moments(part)])
            for part, target in zip(logits.split(step), targets.split(step), strict=True)
        ]
        found = torch.cat(parts, dim=1).unflatten(1, ids.shape).movedim(1, 0).tolist()
        for i, values in zip(rows, found, strict=True):
            scores[i] = TextSpread(*(tuple(v[: len(texts[i]) - 1]) for v in values))
    return [scores[i] for i in range(len(texts))]


def gradient_norm(model: PreTrainedModel, text: Sequence[int], places: Sequence[int]) -> float:
    """L2 norm, over all parameters, of the gradient of the mean negative log-likelihood of the tokens at `places`.

    In a pass of its own. Parameters that are frozen count
    too; which ones are is as before afterwards.
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
