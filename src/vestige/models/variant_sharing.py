"""Prompts in the texts around them, scored together: what they have in common is read once.

Every prompt is read from the first token in which it differs from the most common one, on keys and values of one row;
where texts begin alike, what a prompt leaves behind serves all of them.

Axes: W prompts, T tokens of a prompt, K tokens of a target, N prompts of a chunk.
"""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vestige.models.shortage import within_memory
from vestige.models.variant_passes import Passes, Past, up_to
from vestige.models.variant_texts import Around, Scorer


def sharing_scorer(passes: Passes, texts: Sequence[Around], token_budget: int, device: torch.device) -> Scorer:
    """What stands before the prompts is read here, once."""
    pasts: dict[tuple[int, ...], Past] = {}
    for before in dict.fromkeys(text.before for text in texts):
        pasts[before] = passes.read_on([], torch.tensor([before], device=device)) if before else []
    tails = [torch.tensor((*text.after, *text.target[:-1]), dtype=torch.long, device=device) for text in texts]
    targets = [torch.tensor(text.target, device=device) for text in texts]

    @within_memory
    def score(prompts: Int[Tensor, "W T"], *, token_budget: int = token_budget) -> list[Float[Tensor, "W K"]]:
        found = [torch.empty(len(prompts), len(target), device=device) for target in targets]
        base, first = _in_common(prompts)
        for before, past in pasts.items():
            own = [n for n, text in enumerate(texts) if text.before == before]
            stem = passes.read_on(past, base[None, :-1]) if len(base) > 1 else past
            for rows, start in _chunks(first, prompts.shape[1] + max(len(tails[n]) for n in own), token_budget):
                chunk = _chunk_scores(
                    passes,
                    up_to(stem, len(before) + start),
                    prompts[rows, start:],
                    [tails[n] for n in own],
                    [targets[n] for n in own],
                )
                for n, logp in zip(own, chunk, strict=True):
                    found[n][rows] = logp
        return found

    return score


def _in_common(prompts: Int[Tensor, "W T"]) -> tuple[Int[Tensor, " T"], Int[Tensor, " W"]]:
    """The most common token of each place, and for each prompt the place that it is read from.

    That is where it first differs; a prompt that differs nowhere is read from its last token, whose logits may be
    wanted.
    """
    base = prompts.mode(0).values
    differs = prompts != base
    differs[:, -1] = True
    return base, differs.int().argmax(1)


def _chunks(first: Int[Tensor, " W"], width: int, token_budget: int) -> Iterator[tuple[Int[Tensor, " N"], int]]:
    """Prompts that are read together, and the place that they are read from: the least of theirs."""
    order = first.argsort(stable=True)
    done = 0
    while done < len(order):
        start = int(first[order[done]])
        rows = order[done : done + max(1, token_budget // (width - start))]
        done += len(rows)
        yield rows, start


def _chunk_scores(
    passes: Passes,
    shared: Past,
    own: Int[Tensor, "N T"],
    tails: Sequence[Int[Tensor, " A"]],
    targets: Sequence[Int[Tensor, " K"]],
) -> list[Float[Tensor, "N K"]]:
    if len(tails) == 1:
        return [passes.scores(shared, _followed(own, tails[0]), targets[0])]
    # The last token goes with each text, since its logits are wanted where nothing stands after the prompt.
    left = passes.read_on(shared, own[:, :-1]) if own.shape[1] > 1 else shared
    return [
        passes.scores(left, _followed(own[:, -1:], tail), target) for tail, target in zip(tails, targets, strict=True)
    ]


def _followed(own: Int[Tensor, "N T"], tail: Int[Tensor, " A"]) -> Int[Tensor, "N L"]:
    return torch.cat([own, tail.expand(len(own), -1)], dim=1)
