"""The one place where token ids become logits: rows of one width, logits only where they are read.

Axes: B rows, T positions, K positions read, V vocabulary. Rows are padded on the right to a width that depends on
their own length alone, so that a row's numbers do not depend on its neighbours.
"""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

# Kernels choose their blocking by shape; a width of one's own length rounded up fixes the shape of each row.
WIDTH_STEP = 8
# Below some eight rows a product takes another kernel and the last digits change; so no product has fewer.
LEAST_ROWS = 8


def padded_width(n_tokens: int) -> int:
    """The width of a row of `n_tokens`: the next multiple of WIDTH_STEP."""
    return -(-n_tokens // WIDTH_STEP) * WIDTH_STEP


def batches_by_width(lengths: Sequence[int], *, token_budget: int) -> Iterator[tuple[int, list[int]]]:
    """Widths with the indices of their rows, shortest first, at most `token_budget` tokens (and one row at least)."""
    rows: dict[int, list[int]] = {}
    for index, length in enumerate(lengths):
        rows.setdefault(padded_width(length), []).append(index)
    for width in sorted(rows):
        step = max(1, token_budget // width)
        for start in range(0, len(rows[width]), step):
            yield width, rows[width][start : start + step]


def right_padded(rows: Sequence[Sequence[int]], width: int, device: torch.device) -> Int[Tensor, "B T"]:
    """Token ids, with zeros behind each row. Under a causal mask what stands behind changes nothing before it."""
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
    return ids.to(device)


def logits_at(model: PreTrainedModel, ids: Int[Tensor, "B T"], positions: Int[Tensor, " K"]) -> Float[Tensor, "B K V"]:
    """Logits in float32 at `positions` of every row; the rest of the vocabulary projection is never computed.

    Goes through the root module, so that hooks placed on it (sharding, adapters) run.
    """
    # No mask: rows are padded on the right, and a causal model does not look there.
    out = model(input_ids=ids, use_cache=False, logits_to_keep=positions)
    logits: Tensor = out.logits
    return logits.float()
