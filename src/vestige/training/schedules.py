"""The learning rate as a function of the step, so that a resumed run needs no scheduler's state."""

import math

from vestige.training.settings import TrainingSettings


def learning_rate(settings: TrainingSettings, step: int, *, steps_per_epoch: int) -> float:
    """The rate of step 0, 1, ... of `settings.epochs` times `steps_per_epoch`.

    All schedules rise over the warm-up; `linear` then falls to 0 past the last step, `constant` stays, `one_cycle`
    follows a cosine up and down (Smith, Super-convergence, 1708.07120).
    """
    total = settings.epochs * steps_per_epoch
    warmup = min(round(settings.warmup_epochs * steps_per_epoch), total)
    if step < warmup:
        rising = (step + 1) / warmup
        share = (1 - math.cos(math.pi * rising)) / 2 if settings.schedule == "one_cycle" else rising
    elif settings.schedule == "constant":
        share = 1.0
    else:
        left = (total - step) / max(1, total - warmup)
        share = (1 - math.cos(math.pi * left)) / 2 if settings.schedule == "one_cycle" else left
    return settings.learning_rate * share
