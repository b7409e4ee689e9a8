"""The optimisers by name, and the learning rate as a function of the step.

An optimiser's state is tensors and counts, kept by `checkpoints`; a schedule needs none, so that
a resumed run goes on by its step.
"""

import math
from collections.abc import Sequence

import torch
from torch import nn

from vestige.core.errors import InputError
from vestige.training.parallel import Kind
from vestige.training.settings import FLOAT16, TrainingSettings


def make_optimizer(parameters: Sequence[nn.Parameter], settings: TrainingSettings) -> torch.optim.Optimizer:
    """AdamW (Loshchilov and Hutter, 1711.05101) over the parameters.

    `adamw` is PyTorch's fused one. `adamw_8bit` is that of bitsandbytes, which keeps moments in 8 bits a number
    (Dettmers et al., 2110.02861), in 32 bits for tensors below 4,096 numbers.
    """
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True)
    try:
        from bitsandbytes.optim import AdamW8bit
    except ImportError as error:
        raise InputError(
            "the optimizer adamw_8bit needs the package bitsandbytes, which is not installed: pip install "
            "'vestige[bitsandbytes]', or take optimizer=adamw"
        ) from error
    found: torch.optim.Optimizer = AdamW8bit(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay)
    return found


def refuse_unsound(model: nn.Module, settings: TrainingSettings, kind: Kind | None) -> None:
    """Refuse what cannot be trained right, or has not been seen to be: by the weights' format and the processes' kind.

    Weights in float16 are refused also where adapters alone are trained.
    """
    if any(p.dtype == torch.float16 for p in model.parameters()):
        raise InputError(f"the model is in float16: {FLOAT16} with --dtype")
    if kind != "fsdp":
        return
    if settings.optimizer == "adamw_8bit":
        raise InputError("optimizer adamw_8bit has not been tried on shares of weights; take adamw, or --parallel ddp")
    formats = sorted({str(p.dtype).removeprefix("torch.") for p in model.parameters() if p.requires_grad})
    if len(formats) > 1:
        raise InputError(
            f"the trained weights are in {' and '.join(formats)}, and shares of weights can be trained in one format "
            "alone; take --parallel ddp"
        )


def total_steps(settings: TrainingSettings, *, steps_per_epoch: int) -> int:
    """How many steps a training takes unless something stops it."""
    whole = settings.epochs * steps_per_epoch
    return whole if settings.max_steps is None else min(whole, settings.max_steps)


def learning_rate(settings: TrainingSettings, step: int, *, steps_per_epoch: int) -> float:
    """The rate of step 0, 1, ... of all `total_steps`.

    All schedules rise over the warm-up; then `linear` falls to 0 past the last step, `cosine` does so along half a
    wave, `constant` stays. `one_cycle` follows a cosine up and down (Smith, Super-convergence, 1708.07120).
    """
    total = total_steps(settings, steps_per_epoch=steps_per_epoch)
    asked = settings.warmup_steps
    warmup = min(round(settings.warmup_epochs * steps_per_epoch) if asked is None else asked, total)
    if step < warmup:
        rising = (step + 1) / warmup
        share = _half_wave(rising) if settings.schedule == "one_cycle" else rising
    elif settings.schedule == "constant":
        share = 1.0
    else:
        left = (total - step) / max(1, total - warmup)
        share = left if settings.schedule == "linear" else _half_wave(left)
    return settings.learning_rate * share


def _half_wave(share: float) -> float:
    return (1 - math.cos(math.pi * share)) / 2
