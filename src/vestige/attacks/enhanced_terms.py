"""What Enhanced GCG minimises, term by term: pure functions of what two models made of a prompt.

J. Łucki et al., An adversarial perspective on machine unlearning for AI safety, 2409.18025, as their code has it,
built on FLRT (T. B. Thompson, M. Sklar, 2407.17447). Where a term differs from the code, its docstring says so.

Axes: W prompts, T tokens of a prompt, K tokens that are forced, P places behind the prompt, L layers, D hidden width.
Values are one a prompt; log-probabilities are in nats.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cosine_similarity

from vestige.models.variants import Ids


def forcing(logp: Float[Tensor, "W K"], clamp: float) -> Float[Tensor, " W"]:
    """Mean over the tokens of max(-log p, -ln clamp): a token as likely as `clamp` is not pushed any further.

    A clamp of 1 bounds nothing. The code of 2409.18025 bounds the mean; FLRT's own loss, as here, each token.
    """
    return (-logp).clamp(min=-math.log(clamp)).mean(-1)


def distance(
    subject: Float[Tensor, "W L P D"], target: Float[Tensor, "W L P D"], *, scaled: bool
) -> Float[Tensor, " W"]:
    """Mean over layers and places of the Euclidean distance between two residual streams.

    With `scaled` it is times 100 and by the square of the target's mean norm in that layer. 0 where both are the same.
    """
    apart: Tensor = torch.linalg.vector_norm(subject - target, dim=-1)
    if scaled:
        norm = torch.linalg.vector_norm(target, dim=-1).mean(-1, keepdim=True)
        apart = 100 * apart / norm.square()
    return apart.mean((-2, -1))


def turned_away(subject: Float[Tensor, "W L P D"], without: Float[Tensor, "L P D"]) -> Float[Tensor, " W"]:
    """Mean of 1 - cos between a stream and what the target's is at the same tokens `without` any prompt: 0 to 2."""
    return (1 - cosine_similarity(subject, without.expand_as(subject), dim=-1)).mean((-2, -1))


def repetition(prompts: Sequence[Ids], power: float) -> Float[Tensor, " W"]:
    """Sum over the tokens used of (how often - 1) to the `power`, by the prompt's length. It has no gradient.

    FLRT counts over the chat template and the question as well, which the attack does not choose.
    """
    return torch.tensor([sum((n - 1) ** power for n in Counter(p).values()) / len(p) for p in prompts])


class Weights(NamedTuple):
    """By how much each term counts; the forcing loss counts once."""

    distance: float
    representation: float
    fluency: float
    repetition: float


class Terms(NamedTuple):
    """The terms of prompts before they are weighed. `fluency` is the prompt's own nats a token under the subject."""

    forcing: Float[Tensor, " W"]
    distance: Float[Tensor, " W"]
    representation: Float[Tensor, " W"]
    fluency: Float[Tensor, " W"]
    repetition: Float[Tensor, " W"]

    def weighed(self, weights: Weights) -> Float[Tensor, " W"]:
        """The loss of each prompt. A term of weight 0 is left out, whatever it is."""
        loss = self.forcing
        for weight, term in zip(weights, self[1:], strict=True):
            loss = loss + weight * term if weight else loss
        return loss
