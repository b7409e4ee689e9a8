"""How far the weights of several models lie from each other, read from their files part by part.

Axes: K models. Squared distances are sums over all weights that the models share by name and shape, taken of what the
models differ in from the first of them: what they have in common, as the base of several tunings, cancels, and so does
every tensor that none of them changed. An adapter counts as what it adds to its base.

Two models that differ in one tensor alone, where others differ in more, have distance 0: one is a copy of the other,
however far that tensor was moved.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedModel

from vestige.core.errors import InputError
from vestige.models.folders import adapter_config, refusing, stored_tensors
from vestige.models.load import folders_of

_AT_ONCE = 2**20
"""Weights of each model that are in memory at a time."""
_LEAST_SHARED = 0.9
"""Models that share a lesser part of their weights with the first are of another shape, and have no distance.

Of the smaller of the two, since some save tied weights twice.
"""

Rows = Callable[[int, int], Tensor]
"""The rows of a tensor from one to before another, a tensor without axes being one row."""


def cosine(first: PreTrainedModel, second: PreTrainedModel) -> float:
    """The cosine between the weight matrices that both models have by name and shape; 0 where they share none.

    Trainings from initial weights that were drawn apart are at right angles: of the tiny model within 0.04, where those
    from one start have 0.77, though all of their weights were trained.
    """
    weights, sums = dict(second.named_parameters()), np.zeros(3)
    with torch.inference_mode():
        for name, weight in first.named_parameters():
            match = weights.get(name)
            if weight.ndim > 1 and match is not None and match.shape == weight.shape:
                x, y = weight.float(), match.to(weight.device).float()
                sums += [float((a * b).sum(dtype=torch.float64)) for a, b in ((x, y), (x, x), (y, y))]
    return float(sums[0] / math.sqrt(sums[1] * sums[2])) if sums.all() else 0.0


class Weights(NamedTuple):
    """A tensor of a model: its shape, and how its rows are read."""

    shape: tuple[int, ...]
    rows: Rows


def squared_distances(models: Sequence[str]) -> Float[np.ndarray, "K K"]:
    """Squared distances of models in local folders or from the hub; NaN to one that is of another shape than the first.

    An adapter of a kind whose addition to the base is not plain low-rank is refused.
    """
    with ExitStack() as files:
        all_weights = [_tensors(model, files) for model in models]
        first = all_weights[0]
        sizes = [_size(weights, weights) for weights in all_weights]
        alike = [n for n, w in enumerate(all_weights) if _size(first, w) >= _LEAST_SHARED * min(sizes[0], sizes[n])]
        shared = [k for k in first if all(all_weights[n].get(k, _NONE).shape == first[k].shape for n in alike)]
        products = np.zeros((len(alike), len(alike)))
        changed = np.zeros_like(products)
        for name in sorted(shared):
            # A tensor without axes is one row.
            rows, *rest = first[name].shape or (1,)
            differ = np.zeros(products.shape, dtype=bool)
            step = max(1, _AT_ONCE // max(1, math.prod(rest)))
            for start in range(0, rows, step):
                part = [all_weights[n][name].rows(start, min(rows, start + step)).reshape(-1) for n in alike]
                apart = torch.stack([weights - part[0] for weights in part]).double()
                products += (apart @ apart.T).numpy()
                differ |= [[not torch.equal(a, b) for b in part] for a in part]
            changed += differ
    distances = np.full((len(models), len(models)), math.nan)
    squared_norms = np.diag(products)
    # |a - b|^2 = |a|^2 + |b|^2 - 2 a b, which rounding can leave just below 0.
    squares = np.maximum(0.0, squared_norms[:, None] + squared_norms[None] - 2 * products)
    # Pairs that differ in one tensor or none, one of which differs in more from a third model: one is a copy.
    most = changed.max(axis=0)
    copies = (changed <= 1) & (np.maximum(most, most[:, None]) > 1)
    distances[np.ix_(alike, alike)] = np.where(copies, 0.0, squares)
    np.fill_diagonal(distances, 0.0)
    return distances


_NONE = Weights((-1,), lambda first, last: torch.empty(0))


def _size(first: Mapping[str, Weights], other: Mapping[str, Weights]) -> int:
    """How many weights of the first the other has too."""
    return sum(math.prod(w.shape) for name, w in first.items() if other.get(name, _NONE).shape == w.shape)


def _tensors(model: str, files: ExitStack) -> dict[str, Weights]:
    """The floating-point tensors of a model by name."""
    folder, adapter, _ = folders_of(model)
    base = _of_folder(folder, "model.safetensors", files)
    return base if adapter is None else _with_adapter(base, adapter, files)


def _of_folder(folder: Path, file: str, files: ExitStack) -> dict[str, Weights]:
    stored = stored_tensors(folder, file)
    with refusing(f"cannot read {folder}"):
        opened = {path: files.enter_context(safe_open(path, "pt")) for path in {t.file for t in stored.values()}}
    return {
        name: Weights(tensor.shape, partial(_read, opened[tensor.file], name, bool(tensor.shape)))
        for name, tensor in stored.items()
        if tensor.dtype in ("F64", "F32", "BF16", "F16")
    }


def _read(opened: Any, name: str, has_rows: bool, start: int, end: int) -> Tensor:
    rows: Tensor = opened.get_slice(name)[start:end] if has_rows else opened.get_tensor(name)
    return rows.float()


def _with_adapter(base: dict[str, Weights], adapter: Path, files: ExitStack) -> dict[str, Weights]:
    """The base with what a plain low-rank adapter adds to it: scale * B @ A, as peft merges it."""
    config = adapter_config(adapter)
    odd = next(
        (name for name in ("use_dora", "rank_pattern", "alpha_pattern", "modules_to_save") if config.get(name)), ""
    )
    stored = _of_folder(adapter, "adapter_model.safetensors", files)
    adapted = {name.removesuffix(".lora_A.weight") for name in stored if name.endswith(".lora_A.weight")}
    if odd or {f"{layer}.lora_{part}.weight" for layer in adapted for part in "AB"} != stored.keys():
        raise InputError(f"{adapter} adds more than low-rank products to its base ({odd or 'other tensors'})")
    weights = dict(base)
    for layer in adapted:
        name = f"{layer.removeprefix('base_model.model.')}.weight"
        if name not in base:
            raise InputError(f"{adapter} changes {name}, which its base does not hold")
        down, up = stored[f"{layer}.lora_A.weight"], stored[f"{layer}.lora_B.weight"]
        rank = down.shape[0]
        scale = float(config.get("lora_alpha", rank)) / (math.sqrt(rank) if config.get("use_rslora") else rank)
        added = partial(_added, base[name], down, up, scale, bool(config.get("fan_in_fan_out")))
        weights[name] = Weights(base[name].shape, added)
    return weights


def _added(base: Weights, down: Weights, up: Weights, scale: float, turned: bool, start: int, end: int) -> Tensor:
    whole = down.rows(0, down.shape[0])
    if turned:
        return base.rows(start, end) + scale * (up.rows(0, up.shape[0]) @ whole[:, start:end]).T
    return base.rows(start, end) + scale * (up.rows(start, end) @ whole)
