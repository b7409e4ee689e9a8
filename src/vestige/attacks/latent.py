"""Latent steering: one bounded vector, the same for every question, is added to what the middle block gives.

It is searched for on the answers to some forgotten facts and judged by others: L. Schwinn and others, Soft prompt
threats, 2402.09063, with the bound on a block's output as in TamperBench. A vector of its own for each fact would show
nothing, since by one any model can be made to say anything: 2502.15836. With r the root mean square of what the block
gives to the tokens of the questions,

    x' = x + d      |d|_inf <= bound r      d minimises loss(forgotten) + loss(retained) / FLOOR, by Adam

where a loss is the mean -log p of the answers' tokens (nats). One in HELD of the seen facts is not searched on: of
every EVERYth step that one is taken which brings most of these back and costs retained answers less than FLOOR. A
vector of D numbers can hold far more than the answers: only what it brings beyond retrained models is evidence.

Axes: D hidden width.
"""

import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor
from transformers import PreTrainedModel

from vestige.artifacts.records import SEEN_BOUND
from vestige.attacks.ablate import FLOOR, Best, Direction, HalfSettings, answers_seen, changed_output
from vestige.attacks.planning import GIVEN, Ended, Work
from vestige.core.seeds import generator
from vestige.metrics.information import code_length
from vestige.models.blocks import block_output, blocks
from vestige.models.load import LoadedModel
from vestige.models.prompts import Encoded
from vestige.models.scoring import answer_loss, score_answers

EVERY = 20
"""Steps after which the vector is looked at."""
HELD = 4
"""One in so many of the seen facts chooses the step."""
BITS = 16
"""Bits that a number of the vector can hold."""


class LatentVectorSettings(HalfSettings):
    """A vector added to a block: answers to some forget items are seen, and others are asked."""

    kind: ClassVar[str] = "latent"
    weights: ClassVar[str] = "latent perturbation"
    version: ClassVar[int] = 2

    bound: PositiveFloat = 1.0
    """Greatest entry, as a share of a token's root mean square in what the block gives (median of tokens)."""
    steps: PositiveInt = 200
    """Steps of the search."""
    rate: PositiveFloat = 0.01
    """Learning rate, as a share of the bound."""
    batch_size: PositiveInt = 8
    """Forgotten answers per step, and as many retained ones."""

    def run(self, work: Work, loaded: LoadedModel) -> Ended:
        """Search, and ask with the best; without any where every one costs too much."""
        # Gradients are wanted of the vector alone.
        model, (forget, retain) = loaded.model.requires_grad_(False), answers_seen(work, loaded)
        seen_bits = sum(code_length(np.array(s.logp)) for s in score_answers(model, forget))
        block = len(blocks(model)) // 2
        best: Best[Direction] = Best(model, forget[::HELD], retain)
        searched = [e for n, e in enumerate(forget) if n % HELD]
        # The vector's hook lies within the generator: left open where a look fails, it would stay in the model.
        with closing(search(model, block, searched, retain, self, seed=work.seed)) as vectors:
            for step, vector in enumerate(vectors, start=1):
                if step % EVERY == 0:
                    # A copy, since the search goes on to change this tensor in place.
                    best.spares((block, vector.clone()))
                    work.on_progress(step / (2 * self.steps))
        with perturbed(model, best.candidate):
            work.ask(GIVEN, lambda: loaded, lambda share: work.on_progress((1 + share) / 2))
        # The second part is the choice among the vectors that were looked at, or none.
        bits = BITS * model.config.get_text_config().hidden_size + math.log2(self.steps // EVERY + 1)
        spent = {"steps": self.steps, "items_shown": self.steps * self.batch_size}
        return Ended({"numbers of the vector": bits, SEEN_BOUND: seen_bits}, spent, spent, {"gain": best.gain})


def search(
    model: PreTrainedModel,
    block: int,
    forget: Sequence[Encoded],
    retain: Sequence[Encoded],
    settings: LatentVectorSettings,
    *,
    seed: int,
) -> Generator[Float[Tensor, " D"], None, None]:
    """The vector after each step, in effect until the next one is wanted."""
    limit = settings.bound * root_mean_square(model, block, [e.ids[: e.start] for e in forget])
    vector = torch.zeros(model.config.get_text_config().hidden_size, device=model.device, requires_grad=True)
    # A step of Adam moves an entry by about the rate, however large the loss: so the rate is a share of the bound.
    adam = torch.optim.Adam([vector], lr=settings.rate * limit)
    rng = generator(seed, "latent")

    def loss(encoded: Sequence[Encoded]) -> Float[Tensor, ""]:
        rows = rng.permutation(len(encoded))[: settings.batch_size].tolist()
        return answer_loss(model, [encoded[n] for n in rows])

    with perturbed(model, (block, vector)):
        for _ in range(settings.steps):
            # What retained answers may lose at most weighs as much as a nat won on forgotten ones.
            (vector.grad,) = torch.autograd.grad(loss(forget) + loss(retain) / FLOOR, [vector])
            adam.step()
            with torch.no_grad():
                vector.clamp_(-limit, limit)
            yield vector.detach()


def root_mean_square(model: PreTrainedModel, block: int, prompts: Sequence[tuple[int, ...]]) -> float:
    """Of the entries of what a block gives to one token of the prompts, the (lower) median of all tokens.

    A mean would be that of the first token, which in many models is a hundred times as long as any other (M. Sun et
    al., Massive activations in large language models, 2024).
    """
    sizes = []
    for prompt in prompts:
        # By itself, since padding would be counted as tokens in the median.
        ids = torch.tensor([prompt], device=model.device)
        with torch.no_grad():
            sizes.append(block_output(model, ids, block)[0].float().square().mean(dim=-1).sqrt())
    return float(torch.cat(sizes).median())


@contextmanager
def perturbed(model: PreTrainedModel, candidate: Direction | None) -> Iterator[None]:
    """Within it the vector is added to what its block gives; None changes nothing."""
    if candidate is None:
        yield
        return
    block, vector = candidate
    with changed_output(blocks(model)[block], lambda hidden: hidden + vector.to(hidden.dtype)):
        yield
