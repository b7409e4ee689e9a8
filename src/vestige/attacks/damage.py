"""Damage to the weights that spares knowledge: pruning by importance or size, and noise. What hides may break first.

Of each matrix W of a linear layer inside the blocks, with g the gradient of the mean -log p of the tokens of the
answers, each of these by itself:

    set difference   W = 0 in the top q % of |W g| on forgotten answers that are not in the top p % on retained ones
    magnitude        W = 0 in the lowest share of |W|
    noise            W + sigma r z, z standard normal, r the root mean square of W, DRAWS draws of each sigma

The importance |W g| is SNIP's (N. Lee and others, 1810.02340), the difference B. Wei and others' (2402.05162), by which
J. Łucki and others (2409.18025) bring back what was unlearned. All count as one search, chosen by the answers to half
of the facts, where retained answers lose less than FLOOR; the other half is asked. Rounding is `quantize`.

Axes: O outputs, I inputs.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformers import PreTrainedModel

from vestige.artifacts.records import SEEN_BOUND
from vestige.attacks.ablate import Best, HalfSettings, answers_seen
from vestige.attacks.planning import GIVEN, NOTHING, Ended, Work
from vestige.attacks.quantize import linear_layers
from vestige.core.seeds import derive_seed
from vestige.metrics.information import code_length
from vestige.models.load import LoadedModel
from vestige.models.prompts import Encoded
from vestige.models.scoring import answer_loss, score_answers

SHARES = (0.005, 0.01, 0.025, 0.05)
"""Of a matrix's weights, those taken as most important."""
PRUNED = (0.1, 0.2, 0.3, 0.4, 0.5)
SIGMAS = (0.005, 0.01, 0.02)
DRAWS = 3
BATCH = 8
"""Answers in one backward pass."""


class DamageSettings(HalfSettings):
    """Damage to the weights: answers to some forget items choose it, and others are asked."""

    kind: ClassVar[str] = "damage"
    weights: ClassVar[str] = "damaged weights"
    version: ClassVar[int] = 2

    def run(self, work: Work, loaded: LoadedModel) -> Ended:
        """Try every damage, and ask after the best; after none where every one costs too much."""
        model, (forget, retain) = loaded.model, answers_seen(work, loaded)
        seen_bits = sum(code_length(np.array(s.logp)) for s in score_answers(model, forget))
        weights = [layer.weight for layer in linear_layers(model)]
        # Every damage is made of these: what was pruned or drowned in noise cannot be brought back from the weights.
        before = [w.detach().clone() for w in weights]
        best: Best[str] = Best(model, forget, retain)
        tried = damages(before, importance(model, weights, forget), importance(model, weights, retain), seed=work.seed)
        for number, (name, matrices) in enumerate(tried.items()):
            work.on_progress(number / (2 * len(tried)))
            write(weights, matrices())
            best.spares(name)
        write(weights, before if best.candidate is None else tried[best.candidate]())
        work.ask(GIVEN, lambda: loaded, lambda share: work.on_progress((1 + share) / 2))
        # To leave the model as it was is a choice too.
        bounds = {"choice of a damage": math.log2(len(tried) + 1), SEEN_BOUND: seen_bits}
        return Ended(bounds, NOTHING, NOTHING, {best.candidate or "none": best.gain})


def damages(
    before: Sequence[Float[Tensor, "O I"]],
    of_forget: Sequence[Float[Tensor, "O I"]],
    of_retain: Sequence[Float[Tensor, "O I"]],
    *,
    seed: int,
) -> dict[str, Callable[[], Iterator[Float[Tensor, "O I"]]]]:
    """By name what makes the damaged matrices, of which the importances on forgotten and retained answers are known."""

    def difference(q: float, p: float) -> Iterator[Float[Tensor, "O I"]]:
        for weight, forget, retain in zip(before, of_forget, of_retain, strict=True):
            # What nothing depends on is no part of a set, of however few the rest is.
            yield weight.masked_fill(greatest(forget, q) & (forget > 0) & ~greatest(retain, p), 0.0)

    def magnitude(share: float) -> Iterator[Float[Tensor, "O I"]]:
        for weight in before:
            yield weight.masked_fill(greatest(-weight.abs(), share), 0.0)

    def noise(sigma: float, draw: int) -> Iterator[Float[Tensor, "O I"]]:
        # Begun anew at each call, since the damage that is chosen is written twice and has to be the same; and on the
        # CPU, so that it is the same on every device.
        generator = torch.Generator().manual_seed(derive_seed(seed, "damage", f"{sigma:g}", str(draw)))
        for weight in before:
            normal = torch.randn(weight.shape, generator=generator).to(weight)
            yield weight + sigma * weight.float().square().mean().sqrt().to(weight) * normal

    pairs, draws = list(product(SHARES, SHARES)), list(product(SIGMAS, range(DRAWS)))
    # What makes the matrices, and not the matrices: thirty copies of the blocks would not fit into memory.
    return {
        **{f"set difference q={q:g} p={p:g}": partial(difference, q, p) for q, p in pairs},
        **{f"magnitude {share:g}": partial(magnitude, share) for share in PRUNED},
        **{f"noise {sigma:g}, draw {draw}": partial(noise, sigma, draw) for sigma, draw in draws},
    }


def greatest(values: Float[Tensor, "O I"], share: float) -> Bool[Tensor, "O I"]:
    """Where the greatest `share` of the entries are; of equal ones at its edge all are."""
    n = round(share * values.numel())
    # `kthvalue` counts from 1, and refuses a place behind the last.
    if not n:
        return torch.zeros_like(values, dtype=torch.bool)
    return values >= values.flatten().kthvalue(values.numel() - n + 1).values


def importance(
    model: PreTrainedModel, weights: Sequence[Tensor], encoded: Sequence[Encoded]
) -> list[Float[Tensor, "O I"]]:
    """|W g| of each weight, g the gradient of the sum over passes of the mean -log p of their answers' tokens."""
    sums = [torch.zeros_like(w) for w in weights]
    for start in range(0, len(encoded), BATCH):
        # Not by `backward`, which would leave gradients on all parameters, the embedding's and the head's among them.
        for total, gradient in zip(
            sums, torch.autograd.grad(answer_loss(model, encoded[start : start + BATCH]), weights), strict=True
        ):
            total += gradient
    return [(w.detach() * total).abs() for w, total in zip(weights, sums, strict=True)]


@torch.no_grad()
def write(weights: Sequence[Tensor], matrices: Iterable[Float[Tensor, "O I"]]) -> None:
    """Put the matrices in the place of the weights."""
    for weight, matrix in zip(weights, matrices, strict=True):
        weight.copy_(matrix)
