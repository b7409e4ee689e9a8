"""The learning rate as a function of the step, so that a resumed run needs no scheduler's state."""

import math

from vestige.training.settings import TrainingSettings


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
