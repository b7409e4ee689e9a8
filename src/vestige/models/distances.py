"""The distances between the weights of several models, read from their files part by part.

Axes: K models. Squared distances are sums over all weights that the models share by name and shape, after subtraction
of the first model's: the common base of several tunings cancels, and so does every tensor that none changed. An adapter
counts as its change of the base.

Two models that differ in one tensor alone, where others differ in more, have distance 0: one is a copy of the other,
however far that tensor was moved. So do two models with the same neurons in another order (`reordered`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from safetensors import safe_open
from torch import Tensor

from vestige.core.errors import InputError
from vestige.models.folders import adapter_config, refusing, stored_tensors
from vestige.models.load import folders_of

_AT_ONCE = 2**20
"""Weights of each model that are in memory at a time."""
_LEAST_SHARED = 0.9
"""A model that shares a smaller part of its weights with the first has another shape, and no distance.

A share of the smaller model, since some models save tied weights twice.
"""

_ALIGNED = 0.1
"""Models that differ by less than this share of their weights have their neurons in the same order."""
_REORDERED = 0.3
"""Below this share of 1 / sqrt(rows x columns), norms are more alike than in two random initialisations.

Sorted norms of two random starts differ by about 1.1 / sqrt(rows x columns) of their size. Those of trained models of
width 64 and 128 by 0.005 to 0.02, and of reordered copies with 1 % noise by 0.0005 to 0.0007.
"""
_DECOMPOSED = 256
"""Matrices of a greater width are compared by norms alone, since their singular values take minutes."""

Rows = Callable[[int, int], Tensor]
"""A function that returns the rows of a tensor from `start` to before `stop`. A tensor without axes has one row."""


class Weights(NamedTuple):
    """A tensor of a model: its shape, and how its rows are read."""

    shape: tuple[int, ...]
    rows: Rows


def squared_distances(models: Sequence[str]) -> Float[np.ndarray, "K K"]:
    """Return squared distances of models in local folders or from the hub. NaN if the shape differs from the first's.

    An adapter of a kind whose addition to the base is not plain low-rank is refused.
    """
    with ExitStack() as files:
        all_weights = [_tensors(model, files) for model in models]
        first = all_weights[0]
        sizes = [_size(weights, weights) for weights in all_weights]
        alike = [n for n, w in enumerate(all_weights) if _size(first, w) >= _LEAST_SHARED * min(sizes[0], sizes[n])]
        shared = []
        for name, weights in first.items():
            if {all_weights[n].get(name, _NONE).shape for n in alike} == {weights.shape}:
                shared.append(name)
        products = np.zeros((len(alike), len(alike)))
        changed = np.zeros_like(products)
        of_matrices = np.zeros_like(products)
        size = 0.0
        for name in sorted(shared):
            # A tensor without axes is one row.
            rows, *rest = first[name].shape or (1,)
            differ = np.zeros(products.shape, dtype=bool)
            step = max(1, _AT_ONCE // max(1, math.prod(rest)))
            for start in range(0, rows, step):
                part = [all_weights[n][name].rows(start, min(rows, start + step)).reshape(-1) for n in alike]
                apart = torch.stack([weights - part[0] for weights in part]).double()
                part_products = (apart @ apart.T).numpy()
                products += part_products
                if len(first[name].shape) > 1:
                    of_matrices += part_products
                    size += float((part[0].double() ** 2).sum())
                equal = [torch.equal(a, b) for a, b in product(part, part)]
                differ |= ~np.reshape(equal, differ.shape)
            changed += differ
        squares = _squares(products)
        unaligned = _squares(of_matrices) > 2 * size * _ALIGNED**2
        if unaligned.any():
            matrices = [name for name in shared if len(first[name].shape) > 1]
            of_models = []
            for n in alike:
                of_models.append([all_weights[n][name] for name in matrices])
            same = reordered(of_models)
            squares = np.where(unaligned & same, 0.0, squares)
    distances = np.full((len(models), len(models)), math.nan)
    # A pair that differs in at most one tensor is a copy, if one of the two differs in more from a third model.
    most = changed.max(axis=0)
    copies = (changed <= 1) & (np.maximum(most, most[:, None]) > 1)
    distances[np.ix_(alike, alike)] = np.where(copies, 0.0, squares)
    np.fill_diagonal(distances, 0.0)
    return distances


def _squares(products: Float[np.ndarray, "K K"]) -> Float[np.ndarray, "K K"]:
    """|a - b|^2 = |a|^2 + |b|^2 - 2 a b, which rounding can leave just below 0."""
    norms = np.diag(products)
    squares: Float[np.ndarray, "K K"] = np.maximum(0.0, norms[:, None] + norms[None] - 2 * products)
    return squares


def reordered(models: Sequence[Sequence[Weights]]) -> Bool[np.ndarray, "K K"]:
    """Whether two models have the same matrices except for the order of their rows and columns, and a little noise.

    Another order of neurons, heads and channels changes no answer, and puts a copy as far from its original as a
    training is. Sorted norms of rows and columns and singular values stay. Two models are the same if the relative
    distance of their norms, or their singular values, is below `_REORDERED` / sqrt(rows x columns), as the mean square
    over matrices by their squared norm.

    Args:
        models: The matrices of each model, in the same order. All models have the same shapes.
    """
    invariants = [_invariants(matrices) for matrices in models]
    same = np.zeros((len(models), len(models)), dtype=bool)
    for i, first in enumerate(invariants):
        for j, second in enumerate(invariants):
            limit = _REORDERED * first.expected
            for a, b in ((first.norms, second.norms), (first.values, second.values)):
                norm = float((a @ a + b @ b).sqrt())
                same[i, j] |= norm > 0 and float((a - b).norm()) < limit * norm
    return same


class Invariants(NamedTuple):
    """The sorted norms of all rows and columns, matrix by matrix, and the singular values of the small ones.

    `expected` is 1 / sqrt(rows x columns), as the mean square over matrices by their squared norm.
    """

    norms: Tensor
    values: Tensor
    expected: float


def _invariants(matrices: Sequence[Weights]) -> Invariants:
    norms, values = [torch.zeros(0, dtype=torch.float64)], [torch.zeros(0, dtype=torch.float64)]
    size = expected = 0.0
    for weights in matrices:
        n, width = weights.shape[0], math.prod(weights.shape[1:])
        rows: list[Tensor] = []
        columns = torch.zeros(width, dtype=torch.float64)
        step = max(1, _AT_ONCE // max(1, width))
        for start in range(0, n, step):
            part = weights.rows(start, min(n, start + step)).reshape(-1, width).double()
            rows.append(part.norm(dim=1))
            columns += (part**2).sum(dim=0)
        norms += [torch.cat(rows).sort().values, columns.sqrt().sort().values]
        squared = float(columns.sum())
        size += squared
        expected += squared / (n * width)
        if min(n, width) <= _DECOMPOSED:
            values.append(torch.linalg.svdvals(weights.rows(0, n).reshape(n, width).double()))
    return Invariants(torch.cat(norms), torch.cat(values), math.sqrt(expected / size) if size else 0.0)


_NONE = Weights((-1,), lambda first, last: torch.empty(0))


def _size(first: Mapping[str, Weights], other: Mapping[str, Weights]) -> int:
    """Return the number of weights in tensors that both models have in the same shape."""
    return sum(math.prod(w.shape) for name, w in first.items() if other.get(name, _NONE).shape == w.shape)


def _tensors(model: str, files: ExitStack) -> dict[str, Weights]:
    """The floating-point tensors of a model by name."""
    folder, adapter, _ = folders_of(model)
    base = _of_folder(folder, "model.safetensors", files)
    if adapter is None:
        return base
    return _with_adapter(base, adapter, files)


def _of_folder(folder: Path, file: str, files: ExitStack) -> dict[str, Weights]:
    stored = stored_tensors(folder, file)
    with refusing(f"cannot read {folder}"):
        paths = {tensor.file for tensor in stored.values()}
        opened = {path: files.enter_context(safe_open(path, "pt")) for path in paths}
    return {
        name: Weights(tensor.shape, partial(_read, opened[tensor.file], name, bool(tensor.shape)))
        for name, tensor in stored.items()
        if tensor.dtype in ("F64", "F32", "BF16", "F16")
    }


def _read(opened: Any, name: str, has_rows: bool, start: int, end: int) -> Tensor:
    rows: Tensor = opened.get_slice(name)[start:end] if has_rows else opened.get_tensor(name)
    return rows.float()


def _with_adapter(base: dict[str, Weights], adapter: Path, files: ExitStack) -> dict[str, Weights]:
    """Return the base plus a plain low-rank adapter: scale * B @ A, as peft merges it."""
    config = adapter_config(adapter)
    odd = next(
        (name for name in ("use_dora", "rank_pattern", "alpha_pattern", "modules_to_save") if config.get(name)), ""
    )
    stored = _of_folder(adapter, "adapter_model.safetensors", files)
    adapted = {name.removesuffix(".lora_A.weight") for name in stored if name.endswith(".lora_A.weight")}
    if odd or {f"{layer}.lora_{part}.weight" for layer, part in product(adapted, "AB")} != stored.keys():
        raise InputError(f"{adapter} adds more than low-rank products to its base ({odd or 'other tensors'}). Merge it")
    weights = dict(base)
    for layer in adapted:
        name = f"{layer.removeprefix('base_model.model.')}.weight"
        if name not in base:
            raise InputError(f"{adapter} changes {name}, which its base does not hold. Give another base")
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
