"""How many rows go on from what one row left behind: passes through the root module that share keys and values.

Axes: N rows, T tokens read, K positions whose next token is scored, V vocabulary, P positions before, H heads, D width
of a head. Log-probabilities are in nats, in float32.
"""

import copy
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from vestige.models.keys_values import KeysValues, fills_cache, turns_by_length
from vestige.models.products import multiplies_by_onednn, onednn_products
from vestige.models.variant_texts import target_scores

Past = Sequence[KeysValues]
"""Keys and values of each layer, of one row for all or of one row for each; nothing before where there is no layer."""


@runtime_checkable
class Passes(Protocol):
    """How a model reads on."""

    def read_on(self, past: Past, ids: Int[Tensor, "N T"]) -> list[KeysValues]:
        """The keys and values of the past and these tokens."""
        ...

    def scores(self, past: Past, ids: Int[Tensor, "N T"], targets: Int[Tensor, " K"]) -> Float[Tensor, "N K"]:
        """The log-probability of each target after each of the last K of these tokens."""
        ...


def up_to(past: Past, length: int) -> list[KeysValues]:
    """The first positions of a past."""
    return [(keys[:, :, :length], values[:, :, :length]) for keys, values in past]


class _SharedLayer(DynamicLayer):
    """Keys and values that all rows go on from. A class, since this is transformers' way to say what a cache does."""

    def __init__(self, kept: KeysValues | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kept = kept
        if kept is not None:
            self.lazy_initialization(*kept)
            self.keys, self.values = kept

    def update(self, key_states: Tensor, value_states: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Take in new positions; all of them are given back."""
        if self.kept is None:
            self.lazy_initialization(key_states, value_states)
            self.kept = key_states, value_states
        else:
            keys, values = (one.expand(len(key_states), -1, -1, -1) for one in self.kept)
            self.kept = torch.cat([keys, key_states], dim=2), torch.cat([values, value_states], dim=2)
        self.keys, self.values = self.kept
        return self.kept


class RootPasses:
    """Passes through the root module, whatever its family."""

    def __init__(self, model: PreTrainedModel) -> None:
        """`model` is in evaluation mode."""
        self._model = model
        self._n_layers = len(DynamicCache(config=model.config).layers)
        self._onednn = multiplies_by_onednn(model)

    def read_on(self, past: Past, ids: Int[Tensor, "N T"]) -> list[KeysValues]:
        """The keys and values of the past and these tokens."""
        cache = self._cache(past)
        self._logits(cache, ids, 1)
        found = []
        for layer in cache.layers:
            assert isinstance(layer, _SharedLayer)
            assert layer.kept is not None, "the model left a layer of its cache empty"
            found.append(layer.kept)
        return found

    def scores(self, past: Past, ids: Int[Tensor, "N T"], targets: Int[Tensor, " K"]) -> Float[Tensor, "N K"]:
        """The log-probability of each target after each of the last K of these tokens."""
        return target_scores(self._logits(self._cache(past), ids, len(targets)), targets)

    def _cache(self, past: Past) -> DynamicCache:
        cache = DynamicCache()
        kept: Sequence[KeysValues | None] = past or [None] * self._n_layers
        cache.layers = [_SharedLayer(layer) for layer in kept]
        return cache

    def _logits(self, cache: DynamicCache, ids: Int[Tensor, "N T"], n_read: int) -> Float[Tensor, "N K V"]:
        if not self._onednn:
            logits: Tensor = self._model(ids, past_key_values=cache, use_cache=True, logits_to_keep=n_read).logits
            return logits
        with onednn_products(self._model):
            logits = self._model(ids, past_key_values=cache, use_cache=True, logits_to_keep=n_read).logits
        return logits


def can_share(model: PreTrainedModel, context: int) -> bool:
    """Whether rows can go on from one row's keys and values: every layer keeps all that it has seen.

    A layer that looks back a window is taken only where the window holds the whole `context`.
    """
    if turns_by_length(model):
        return False
    layers = DynamicCache(config=model.config).layers
    for layer in layers:
        if type(layer) is DynamicSlidingWindowLayer:
            if layer.sliding_window < context:
                return False
        elif type(layer) is not DynamicLayer:
            return False
    return fills_cache(model)


def in_bfloat16(model: PreTrainedModel) -> PreTrainedModel:
    """A copy with weights in bfloat16 and buffers as they were: rotary frequencies must not be rounded."""
    narrow = {
        id(weight): nn.Parameter(weight.detach().to(torch.bfloat16), requires_grad=False)
        for weight in model.parameters()
    }
    found = copy.deepcopy(model, narrow)
    # Models cut hidden states down to the places that are read, and torch multiplies what does not lie in one piece
    # by a copy of the head for each row: nine tenths of the time at a vocabulary of 4096.
    for layer in found.modules():
        if type(layer) is nn.Linear:
            layer.register_forward_pre_hook(_in_one_piece)
    return found


def _in_one_piece(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (given[0].contiguous(), *given[1:])
