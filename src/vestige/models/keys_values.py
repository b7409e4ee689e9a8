"""Caches of keys and values that can be gone on from more than once, and that grow without being copied at each token.

Axes: B rows, H heads, T positions, D width of a head.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Int, Shaped
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

# Copied every so many tokens, and not at each.
ROOM = 16

KeysValues = tuple[Shaped[Tensor, "B H T D"], Shaped[Tensor, "B H T D"]]
"""The keys and values of one layer."""


class RoomyLayer(DynamicLayer):
    """Keys and values with room behind them, which new ones are written into.

    A class, since this is transformers' way to say what a cache does. A layer that looks back a window only keeps all
    of them too: the mask holds to the window, and a layer that forgets could not be padded or gone on from twice.
    """

    def __init__(self, stored: KeysValues | None = None) -> None:
        """Begins with what is given, or with nothing."""
        super().__init__()  # type: ignore[no-untyped-call]
        if stored is not None:
            self.update(*stored)

    def update(self, key_states: Tensor, value_states: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Take in new positions; all of them are given back."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._room = (key_states, value_states)
        else:
            (keys, values), n = self._room, self.get_seq_length()
            self._room = _put_in(keys, n, key_states), _put_in(values, n, value_states)
        n = self.get_seq_length() + key_states.shape[-2]
        self.keys, self.values = (room[:, :, :n] for room in self._room)
        return self.keys, self.values

    def batch_select_indices(self, indices: Int[Tensor, " K"]) -> None:
        """Keep these rows only."""
        keys, values = self._room
        self._room = keys[indices], values[indices]
        n = self.get_seq_length()
        self.keys, self.values = (room[:, :, :n] for room in self._room)


def _put_in(room: Tensor, n: int, new: Tensor) -> Tensor:
    n_new = new.shape[-2]
    if n + n_new > room.shape[-2]:
        room = pad(room[:, :, :n], (0, 0, 0, -(-n_new // ROOM) * ROOM))
    room[:, :, n : n + n_new] = new
    return room


def empty_cache(model: PreTrainedModel) -> DynamicCache:
    """A cache of nothing yet, for every layer of the model."""
    cache = DynamicCache(config=model.config)
    cache.layers = [RoomyLayer() for _ in cache.layers]
    return cache


def turns_by_length(model: PreTrainedModel) -> bool:
    """Whether a long text's positions are turned otherwise than a short one's (`longrope`, as in Phi-3).

    Then what a text's beginning left behind is not that of the whole, and cannot be gone on from.
    """
    rope = model.config.get_text_config().to_dict().get("rope_parameters") or {}
    return any(kind.get("rope_type") == "longrope" for kind in (rope, *rope.values()) if isinstance(kind, dict))


@lru_cache(maxsize=64)
def _cache_name(forward: Callable[..., Any]) -> str:
    return "cache" if "cache" in inspect.signature(forward).parameters else "past_key_values"


def cache_arguments(model: nn.Module, cache: DynamicCache | None) -> dict[str, Any]:
    """The arguments by which a pass goes on from a cache, or leaves none with None.

    transformers calls it `cache` since 5.24 and takes the name `past_key_values` until 5.40; models that bring their
    own code have either. An adapter hands on what it is given.
    """
    base = getattr(model, "get_base_model", lambda: model)()
    return {_cache_name(type(base).forward): cache, "use_cache": cache is not None}


@torch.inference_mode()
def fills_cache(model: PreTrainedModel) -> bool:
    """Whether the model leaves keys and values of every layer in a cache; RWKV, say, keeps a state of its own."""
    cache = empty_cache(model)
    ids = torch.zeros(1, 2, dtype=torch.long, device=model.device)
    model(input_ids=ids, **cache_arguments(model, cache), logits_to_keep=1)
    return all(isinstance(layer, RoomyLayer) and layer.is_initialized for layer in cache.layers)


def cache_of(layers: Sequence[KeysValues], rows: Int[Tensor, " N"]) -> DynamicCache:
    """Copies of these rows, to be gone on from."""
    cache = DynamicCache()
    cache.layers = [RoomyLayer((keys.index_select(0, rows), values.index_select(0, rows))) for keys, values in layers]
    return cache


def kept_in(cache: DynamicCache) -> list[KeysValues]:
    """The keys and values of every layer."""
    layers = []
    for layer in cache.layers:
        assert isinstance(layer, RoomyLayer)
        assert layer.keys is not None, "the model left a layer of its cache empty"
        assert layer.values is not None
        layers.append((layer.keys, layer.values))
    return layers


def padded(parts: Sequence[KeysValues], width: int) -> KeysValues:
    """The rows of all parts end to end, each with zeros before it up to `width` positions."""
    keys, values = (
        torch.cat([pad(tensor, (0, 0, width - tensor.shape[-2], 0)) for tensor in side])
        for side in zip(*parts, strict=True)
    )
    return keys, values
