"""What the frozen reference says of the rows, computed once before training: never a second model in memory.

Log-probabilities take one number a token. Distributions are kept as the last hidden states (a few hundred numbers a
token instead of a vocabulary's) with a frozen copy of the output head, if that head alone explains the logits; where
the model does more to its logits (soft caps, scales), they are kept whole.
"""

import copy
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from vestige.models.blocks import block_output
from vestige.models.forward import batches_by_width, logits_at, right_padded
from vestige.training.batching import Row
from vestige.training.step import ReferenceRow

TOKEN_BUDGET = 4096


@torch.no_grad()
def reference_rows(model: PreTrainedModel, rows: Sequence[Row], *, distributions: bool) -> dict[str, ReferenceRow]:
    """Reference quantities of each row, by the row's key. `model` is only read, in evaluation mode."""
    was_training = model.training
    model.eval()
    unique = list({r.key: r for r in rows}.values())
    head = copy.deepcopy(model.get_output_embeddings()).requires_grad_(False) if distributions else None
    found: dict[str, ReferenceRow] = {}
    for width, chunk in batches_by_width([len(r.ids) for r in unique], token_budget=TOKEN_BUDGET):
        batch = [unique[i] for i in chunk]
        ids = right_padded([r.ids for r in batch], width, model.device)
        hidden = _last_hidden(model, ids) if head is not None else None
        first, last = min(r.start for r in batch) - 1, max(r.stop for r in batch) - 1
        positions = torch.arange(first, last, device=ids.device)
        logp = logits_at(model, ids, positions).log_softmax(-1)
        for i, row in enumerate(batch):
            place = slice(row.start - 1 - first, row.stop - 1 - first)
            targets = ids[i, row.start : row.stop]
            chosen = logp[i, place].gather(-1, targets[:, None]).squeeze(-1)
            kept = None
            if head is not None and hidden is not None:
                kept = _Kept.of(head, hidden[i, row.start - 1 : row.stop - 1], logp[i, place])
            found[row.key] = ReferenceRow(chosen.clone(), kept)
    model.train(was_training)
    return found


@torch.no_grad()
def reference_activations(model: PreTrainedModel, rows: Sequence[Row], *, layer: int) -> dict[str, ReferenceRow]:
    """The output of block `layer` at every token of each row, by the row's key."""
    was_training = model.training
    model.eval()
    unique = list({r.key: r for r in rows}.values())
    found: dict[str, ReferenceRow] = {}
    for width, chunk in batches_by_width([len(r.ids) for r in unique], token_budget=TOKEN_BUDGET):
        batch = [unique[i] for i in chunk]
        hidden = block_output(model, right_padded([r.ids for r in batch], width, model.device), layer)
        for i, row in enumerate(batch):
            found[row.key] = ReferenceRow(activations=hidden[i, : len(row.ids)].clone())
    model.train(was_training)
    return found


def _last_hidden(model: PreTrainedModel, ids: Tensor) -> Tensor:
    out = model(input_ids=ids, use_cache=False, output_hidden_states=True, logits_to_keep=1)
    last: Tensor = out.hidden_states[-1]
    return last


class _Kept:
    """One row's distributions, kept small where the head explains them."""

    def __init__(self, head: nn.Module | None, states: Tensor) -> None:
        self.head, self.states = head, states

    @classmethod
    def of(cls, head: nn.Module, hidden: Float[Tensor, "T D"], logp: Float[Tensor, "T V"]) -> "_Kept":
        again = head(hidden).float().log_softmax(-1)
        explains = torch.allclose(again, logp, rtol=0, atol=1e-4)
        return cls(head, hidden.clone()) if explains else cls(None, logp.clone())

    @torch.no_grad()
    def __call__(self) -> Float[Tensor, "T V"]:
        if self.head is None:
            return self.states
        logp: Tensor = self.head(self.states).float().log_softmax(-1)
        return logp
