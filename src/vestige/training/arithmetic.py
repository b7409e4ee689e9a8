"""Arithmetic on what a training changed: start + factor x (trained - start), weight by weight.

The difference of a fine-tuned model's weights and those that it began with is its task vector (Ilharco et al., Editing
Models with Task Arithmetic, 2212.04089): a factor of 1 is the trained model, 0 the start, -1 takes the task away.
"""

import torch
from transformers import PreTrainedModel


@torch.no_grad()
def scale_update(trained: PreTrainedModel, start: PreTrainedModel, factor: float) -> None:
    """Put start + factor x (trained - start) into `trained`; weights that were not trained keep every bit.

    Adapters have to be merged before. Computed in float32 at least, and rounded once to the weights' own format.
    """
    before = dict(start.named_parameters())
    for name, after in trained.named_parameters():
        wide = torch.promote_types(after.dtype, torch.float32)
        first, last = before[name].to(wide), after.to(wide)
        # At 0 and 1 the sum could miss a weight by a digit, or by the sign of a zero.
        ends = {0.0: first, 1.0: last}
        scaled = ends[factor] if factor in ends else first + factor * (last - first)
        after.copy_(torch.where(last == first, last, scaled))
