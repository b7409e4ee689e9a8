"""Gradient checkpointing: a block's activations are computed again when its gradient is, instead of being kept."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from transformers import PreTrainedModel

from vestige.core.errors import InputError
from vestige.models.attention import attention
from vestige.training.settings import TrainingSettings


@contextmanager
def recomputing(model: PreTrainedModel, settings: TrainingSettings, device: str) -> Iterator[None]:
    """Within it `model` computes its blocks again on the way back, if the settings ask for it; on a `device` so named.

    Both the training and the estimate of its memory go through here.
    """
    if not settings.gradient_checkpointing:
        yield
        return
    if not model.supports_gradient_checkpointing:
        raise InputError(f"{type(model).__name__} does not know gradient_checkpointing; leave it off")
    # The backward pass runs outside of the attention that `backward` puts in, and must compute the same again.
    again = attention(device, settings.precision)
    with _old_names():
        # The re-entrant form gives frozen inputs no gradient, and so adapters none.
        how = {"use_reentrant": False, "context_fn": lambda: (nullcontext(), again)}
        model.gradient_checkpointing_enable(how)
    try:
        yield
    finally:
        with _old_names():
            model.gradient_checkpointing_disable()


@contextmanager
def _old_names() -> Iterator[None]:
    """The later name of what is called here, which it warns of, is not in every transformers that is admitted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield
