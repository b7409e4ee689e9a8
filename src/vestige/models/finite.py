"""Logits that are no numbers end a command in a sentence: which model, at which text, from which layer on."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from vestige.core.errors import NotFinite
from vestige.core.text import one_line
from vestige.models.load import LoadedModel


@contextmanager
def finite_logits(subject: LoadedModel, way_out: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Within it NotFinite is raised by the first pass of the subject's model whose logits hold NaN or infinity.

    Minus infinity is a token that cannot come, and admitted. `way_out` is asked then what is to be done, where that is
    not to make the model again. A server's numbers are looked at where they are read.
    """
    if not subject.here:
        yield
        return

    def check(model: nn.Module, given: tuple[Any, ...], named: dict[str, Any], out: Any) -> None:
        logits = getattr(out, "logits", None)
        if logits is None or not logits.numel() or logits.detach().amax().isfinite():
            return
        ids = named.get("input_ids", given[0] if given else None)
        bad = ~logits.detach().flatten(1).amax(-1).isfinite()
        handle.remove()
        raise _refusal(subject, None if ids is None else ids[int(bad.nonzero()[0])], way_out())

    handle = subject.model.register_forward_hook(check, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _refusal(subject: LoadedModel, ids: Int[Tensor, " T"] | None, way_out: str) -> NotFinite:
    layer = "" if ids is None else first_not_finite(subject.model, ids)
    text = "" if ids is None else subject.tokenizer.decode(ids.tolist(), skip_special_tokens=True)
    at = f" at {one_line(' '.join(str(text).split()), width=100)!r}" if text else ""
    narrow = subject.model.dtype != torch.float32
    way_out = way_out or (
        "ask it in float32 (--dtype)" if narrow else "a training that diverged leaves such a model: make it again"
    )
    return NotFinite(
        f"the model {one_line(subject.name, width=120)} gives logits that are NaN or infinite{at}"
        f"{f', first from its layer {layer} on' if layer else ''}; {way_out}"
    )


@torch.no_grad()
def first_not_finite(model: PreTrainedModel, ids: Int[Tensor, " T"]) -> str:
    """The name of the first module whose output holds NaN or infinity in a pass over a row by itself; "" if none."""
    found: list[str] = []

    def look(name: str, out: Any) -> None:
        first = out[0] if isinstance(out, tuple) and out else out
        if not found and isinstance(first, Tensor) and first.is_floating_point() and not first.isfinite().all():
            found.append(name)

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if name:
                handle = module.register_forward_hook(lambda _, __, out, name=name: look(name, out))
                hooks.callback(handle.remove)
        model(input_ids=ids[None], use_cache=False)
    return found[0] if found else ""
