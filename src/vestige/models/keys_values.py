"""Caches of keys and values that can be gone on from more than once.

Axes: B rows, H heads, T positions, D width of a head.
"""

import inspect
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Int, Shaped
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

KeysValues = tuple[Shaped[Tensor, "B H T D"], Shaped[Tensor, "B H T D"]]
"""The keys and values of one layer."""


ROOM = 32
"""Places that a layer adds at once for single tokens."""


class GrowingLayer(DynamicLayer):
    """Keys and values with room for further tokens, so that decoding copies no earlier token."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.room: KeysValues | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> KeysValues:
        """Append the keys and values of the new tokens, and return all."""
        keys, values = self.keys, self.values
        if keys is None or values is None or key_states.shape[-2] != 1:
            self.keys, self.values = super().update(key_states, value_states, *args, **kwargs)
            return self.keys, self.values
        n = keys.shape[-2]
        # Selected rows are separate tensors.
        if self.room is None or self.room[0].data_ptr() != keys.data_ptr() or self.room[0].shape[-2] == n:
            self.room = pad(keys, (0, 0, 0, ROOM)), pad(values, (0, 0, 0, ROOM))
        for side, added in zip(self.room, (key_states, value_states), strict=True):
            side[..., n : n + 1, :] = added
        self.keys, self.values = (side[..., : n + 1, :] for side in self.room)
        return self.keys, self.values


def empty_cache(model: PreTrainedModel) -> DynamicCache:
    """A cache of nothing yet, for every layer of the model."""
    cache = DynamicCache(config=model.config)
    # Sliding-window layers also keep all keys and values: the mask applies the window. A layer that drops tokens could
    # not be padded or reused, and a config may name a window that its model does not have.
    cache.layers = [GrowingLayer() if type(layer) in _KEEPING else layer for layer in cache.layers]
    return cache


def cache_of(layers: Iterable[KeysValues]) -> DynamicCache:
    """Return a cache that continues from these keys and values without changing them."""
    cache = DynamicCache()
    for keys, values in layers:
        layer = GrowingLayer()
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys, values
        cache.layers.append(layer)
    return cache


def rows_of(layers: Iterable[KeysValues], rows: Int[Tensor, " N"]) -> list[KeysValues]:
    """These rows of every layer."""
    return [(keys.index_select(0, rows), values.index_select(0, rows)) for keys, values in layers]


def keeps_keys(model: PreTrainedModel) -> bool:
    """Whether every layer leaves keys and values in a cache. A state-space layer leaves a state."""
    kinds = {type(layer) for layer in DynamicCache(config=model.config).layers}
    return model.config.model_type not in STATES and kinds <= _KEEPING


_KEEPING = {DynamicLayer, DynamicSlidingWindowLayer}

STATES = frozenset(("mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"))
"""Models with a state of one size, however long the text is."""


def can_go_on(model: PreTrainedModel, *, window: int = 0) -> bool:
    """Return whether rows can continue from others' keys and values: every layer caches them, and keeps all.

    A layer with an attention window below `window` tokens does not qualify.
    """
    rope = model.config.get_text_config().to_dict().get("rope_parameters") or {}
    # `longrope` (Phi-3) rotates positions differently in long texts, so the cache of a beginning does not fit the whole
    # text.
    if any(kind.get("rope_type") == "longrope" for kind in (rope, *rope.values()) if isinstance(kind, dict)):
        return False
    if not keeps_keys(model):
        return False
    for layer in DynamicCache(config=model.config).layers:
        if type(layer) is DynamicSlidingWindowLayer and layer.sliding_window < window:
            return False
    # RWKV, for example, has a state instead of keys and values.
    cache = empty_cache(model)
    with torch.inference_mode():
        ids = torch.zeros(1, 2, dtype=torch.long, device=model.device)
        model(input_ids=ids, **cache_arguments(model, cache), logits_to_keep=1)
    return all(isinstance(layer, DynamicLayer) and layer.is_initialized for layer in cache.layers)


@lru_cache(maxsize=64)
def _cache_name(forward: Callable[..., Any]) -> str:
    if "cache" in inspect.signature(forward).parameters:
        return "cache"
    return "past_key_values"


def cache_arguments(model: nn.Module, cache: DynamicCache | None) -> dict[str, Any]:
    """The arguments by which a pass goes on from a cache, or leaves none with None.

    transformers calls it `cache` since 5.24 and takes the name `past_key_values` until 5.40. Models that bring their
    own code have either. An adapter passes its arguments on.
    """
    base = getattr(model, "get_base_model", lambda: model)()
    return {_cache_name(type(base).forward): cache, "use_cache": cache is not None}


def kept_in(cache: DynamicCache) -> list[KeysValues]:
    """The keys and values of every layer."""
    layers = []
    for layer in cache.layers:
        assert isinstance(layer, DynamicLayer)
        assert layer.keys is not None, "the model left a layer of its cache empty"
        assert layer.values is not None
        layers.append((layer.keys, layer.values))
    return layers


def padded(parts: Iterable[KeysValues], width: int) -> KeysValues:
    """The rows of all parts end to end, each with zeros before it up to `width` positions."""
    sides = []
    for side in zip(*parts, strict=True):
        sides.append(torch.cat([pad(tensor, (0, 0, width - tensor.shape[-2], 0)) for tensor in side]))
    keys, values = sides
    return keys, values
