"""Proposals of a search over prompts: which prompts to look at next. Pure; every draw comes from a given generator.

The rule is GCG's: A. Zou et al., Universal and transferable adversarial attacks on aligned language models, 2307.15043,
in the form in which nanoGCG 0.3.0 samples.

Axes: T tokens of a prompt, V vocabulary, k best tokens of a place, W prompts proposed, R places replaced in each.
"""

from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vestige.attacks.vocabulary import Vocabulary
from vestige.core.errors import InputError
from vestige.models.variants import Ids


def best_tokens(gradient: Float[Tensor, "T V"], vocabulary: Vocabulary, k: int) -> Int[np.ndarray, "T k"]:
    """For each place the `k` admissible tokens whose gradient promises the least loss, the best first."""
    check_topk(k, vocabulary)
    ids = torch.tensor(vocabulary.ids, device=gradient.device)
    best = (-gradient.index_select(1, ids)).topk(k, dim=1).indices
    found: Int[np.ndarray, "T k"] = ids[best].cpu().numpy()
    return found


def check_topk(k: int, vocabulary: Vocabulary) -> None:
    """Refuse more tokens for a place than may stand there."""
    if k > len(vocabulary.ids):
        raise InputError(
            f"topk is {k}, and only {len(vocabulary.ids)} tokens of the vocabulary may stand in the prompt; lower "
            "topk or set ascii_only=false"
        )


def swapped(
    prompt: Ids, best: Int[np.ndarray, "T k"], places: Int[np.ndarray, "W R"], ranks: Int[np.ndarray, "W R"]
) -> list[Ids]:
    """The prompt W times, in each the tokens at its `places` replaced by those of the given `ranks` among the best."""
    rows = np.tile(np.array(prompt), (len(places), 1))
    np.put_along_axis(rows, places, best[places, ranks], axis=1)
    return [tuple(row) for row in rows.tolist()]


def swaps_by_gradient(
    prompt: Ids,
    gradient: Float[Tensor, "T V"],
    vocabulary: Vocabulary,
    *,
    width: int,
    topk: int,
    replaced: int,
    rng: np.random.Generator,
) -> list[Ids]:
    """`width` prompts with `replaced` tokens each swapped for one of the `topk` best of its place, all uniformly.

    Places of one prompt differ. Repeats, and the prompt itself, can be among them.
    """
    if replaced > len(prompt):
        raise InputError(f"replaced is {replaced}, and the prompt has {len(prompt)} tokens; lower it")
    best = best_tokens(gradient, vocabulary, topk)
    places = rng.random((width, len(prompt))).argsort(axis=1, kind="stable")[:, :replaced]
    return swapped(prompt, best, places, rng.integers(0, topk, (width, replaced)))


def without_repeats(prompts: Iterable[Ids]) -> list[Ids]:
    """Each prompt once, where it stood first."""
    return list(dict.fromkeys(prompts))
