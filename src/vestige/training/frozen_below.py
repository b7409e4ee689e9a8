"""The blocks under the lowest trained one, where nothing down there is trained: computed once a row, and kept.

Each row goes through them by itself, so that what is kept is the same bytes as what would be computed again: a resumed
run, whose memory is empty, goes on bit for bit.

Axes: B rows, T positions, D hidden width.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from vestige.models.blocks import block_output, blocks, continued_from, gives_hidden_states_alone
from vestige.models.forward import right_padded
from vestige.training.batching import Row

KEPT_BYTES = 2 << 30
"""What is kept at most; further rows are computed each time that they come."""


@dataclass
class FrozenBelow:
    """What goes into block `lowest`, the first that is trained, by the row's key."""

    lowest: int
    kept: dict[str, Float[Tensor, "T D"]] = field(default_factory=dict)
    n_bytes: int = 0

    @classmethod
    def of(cls, model: PreTrainedModel, layer: int, row: Row) -> "FrozenBelow | None":
        """The frozen blocks of `model`, or None where there are none or `row` shows that they cannot be left out.

        They can where they give the same twice (no dropout) and the model goes on from their output, to 1e-4, as it
        goes from the tokens.
        """
        lowest = _lowest_trained(model)
        if not 0 < lowest <= layer:
            return None
        ids = right_padded([row.ids], len(row.ids), model.device)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            if not gives_hidden_states_alone(model, ids, 0):
                return None
            first, second = block_output(model, ids, lowest - 1), block_output(model, ids, lowest - 1)
            if not torch.equal(first, second):
                return None
            whole = block_output(model, ids, layer)
            after = continued_from(model, ids, first, start=lowest, layer=layer)
        return cls(lowest) if torch.allclose(after, whole, rtol=1e-4, atol=1e-4) else None

    def block_output(self, model: PreTrainedModel, rows: Sequence[Row], layer: int) -> Float[Tensor, "B T D"]:
        """The output of block `layer`; the gradient reaches down to the lowest trained block."""
        below = self._below(model, rows)
        width = max(len(r.ids) for r in rows)
        ids = right_padded([r.ids for r in rows], width, model.device)
        entering = pad_sequence([below[r.key].to(model.device) for r in rows], batch_first=True)
        return continued_from(model, ids, entering, start=self.lowest, layer=layer)

    @torch.no_grad()
    def _below(self, model: PreTrainedModel, rows: Sequence[Row]) -> dict[str, Tensor]:
        found = {r.key: self.kept[r.key] for r in rows if r.key in self.kept}
        missing = list({r.key: r for r in rows if r.key not in found}.values())
        for row in missing:
            # Kept off the device, whose memory is scarce; one row's worth is copied back a step.
            value = block_output(model, right_padded([row.ids], len(row.ids), model.device), self.lowest - 1)[0].cpu()
            found[row.key] = value
            if self.n_bytes + value.nbytes <= KEPT_BYTES:
                self.kept[row.key] = value
                self.n_bytes += value.nbytes
        return found


def _lowest_trained(model: PreTrainedModel) -> int:
    """The number of the lowest block with a trained parameter; 0 where the tokens' embeddings are trained too."""
    if any(p.requires_grad for p in model.get_input_embeddings().parameters()):
        return 0
    every = blocks(model)
    return next((n for n, b in enumerate(every) if any(p.requires_grad for p in b.parameters())), 0)
