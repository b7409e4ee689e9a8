"""What the frozen reference says of the rows, computed once before training: never a second model in memory.

Log-probabilities take one number a token. Distributions are kept as what the output head is given (a few hundred
numbers a token instead of a vocabulary's) with a frozen copy of the head, if that head alone explains the logits;
where the model does more to its logits (soft caps, scales), they are kept whole.

With `bfloat16` the reference is computed as the policy is, so that the two agree where the weights do; against float32
its log-probabilities are off by some 1e-2.

On disk they are found by what they depend on: the reference model, the rows, the number formats, the layer, the
device's kind and the versions of this code and of torch. Tensors lie end to end in one safetensors file, row after row.
"""

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from vestige.core.errors import InputError
from vestige.core.files import new_folder
from vestige.core.ids import content_id
from vestige.core.store import read_sealed, write_sealed
from vestige.models.blocks import block_output
from vestige.models.forward import batches_by_length, right_padded, within_memory
from vestige.models.head import (
    Pass,
    evaluating,
    hidden_read,
    how_to_read,
    logits_read,
    logits_read_plain,
    packs,
    reads_packed,
)
from vestige.models.products import Precision, attention
from vestige.models.scoring import token_logp
from vestige.training.backward import pass_over
from vestige.training.batching import Plan, Row, RowSource, Split
from vestige.training.loop import total_steps
from vestige.training.settings import TrainingSettings
from vestige.training.step import Finish, KeptDistributions, Needs, ReferenceRow

VERSION = 3
"""Raised when the same key would come out as other numbers."""

Parts = dict[str, list[Float[Tensor, "_ ..."]]]
"""By name, a tensor for each row; the rows' lengths differ."""


@dataclass(frozen=True)
class ReferenceCache:
    """Where the quantities of one reference, of digest `model`, are kept; only one process writes."""

    folder: Path
    model: str
    writes: bool = True

    def keep(self, rows: Sequence[Row], about: dict[str, Any], compute: Callable[[], Parts]) -> Parts:
        """What is kept for these rows, or what `compute` gives, kept from now on.

        `about` is everything besides the model and the rows that the numbers depend on.
        """
        identity = {**about, "model": self.model, "rows": [r.key for r in rows]}
        id_ = content_id({**identity, "version": VERSION, "torch": torch.__version__})
        folder = self.folder / f"references-{id_}"
        if folder.exists():
            # Nothing is lost with a damaged file: what is computed in its place is the same.
            with contextlib.suppress(OSError, SafetensorError, ValueError, KeyError, InputError):
                read_sealed(folder / "state.json")
                return _unpacked(load_file(folder / "rows.safetensors"))
        values = compute()
        if self.writes:
            with new_folder(folder) as partial:
                save_file(_packed(values), partial / "rows.safetensors")
                write_sealed(partial / "state.json", {"about": id_}, [partial / "rows.safetensors"])
        return values


def _packed(parts: Parts) -> dict[str, Tensor]:
    packed: dict[str, Tensor] = {}
    for name, tensors in parts.items():
        packed[name] = torch.cat(tensors).contiguous()
        packed[f"{name} lengths"] = torch.tensor([len(t) for t in tensors])
    return packed


def _unpacked(packed: dict[str, Tensor]) -> Parts:
    names = [name for name in packed if not name.endswith(" lengths")]
    return {
        name: [part.clone() for part in packed[name].split(packed[f"{name} lengths"].tolist())]
        for name in sorted(names)
    }


TOKEN_BUDGET = 1024


def references(
    model: PreTrainedModel,
    needs: Needs,
    plan: Plan,
    rows: RowSource,
    settings: TrainingSettings,
    layer: int | None = None,
    cache: ReferenceCache | None = None,
) -> dict[str, ReferenceRow]:
    """All that an objective reads of the frozen reference, for the rows that the plan will draw, by the row's key.

    `layer` is the block whose output it reads. What `cache` holds is not computed again.
    """
    n_steps = total_steps(settings, steps_per_epoch=plan.steps_per_epoch)
    batches = [batch for epoch in range(settings.epochs) for batch in plan.epoch(epoch)][:n_steps]

    def drawn(splits: frozenset[Split]) -> dict[str, Row]:
        numbers = {(s, i) for batch in batches for s in splits for i in batch[s]}
        return {row.key: row for row in (rows[s](i) for s, i in sorted(numbers))}

    rows_by: dict[str, ReferenceRow] = {}
    whole, values, inner = map(drawn, (needs.distributions, needs.reference, needs.reference_activations))
    for part, distributions in ((whole, True), ({k: r for k, r in values.items() if k not in whole}, False)):
        if part:
            unique = list(part.values())
            rows_by |= reference_rows(
                model, unique, distributions=distributions, precision=settings.precision, cache=cache
            )
    if inner:
        assert layer is not None
        unique = list(inner.values())
        read = reference_activations(model, unique, layer=layer, precision=settings.precision, cache=cache)
        for key, row in read.items():
            rows_by[key] = replace(rows_by.get(key, ReferenceRow()), activations=row.activations)
    return rows_by


def reference_rows(
    model: PreTrainedModel,
    rows: Sequence[Row],
    *,
    distributions: bool,
    precision: Precision = "float32",
    cache: ReferenceCache | None = None,
) -> dict[str, ReferenceRow]:
    """Reference quantities of each row, by the row's key. `model` is only read, in evaluation mode."""
    unique = list({r.key: r for r in rows}.values())
    about = {"read": "distributions" if distributions else "values", "precision": precision}
    with _frozen(model, precision):
        if not distributions:
            cached = _kept(cache, model, unique, about, lambda: _values(model, unique))
            return {row.key: ReferenceRow(logp) for row, logp in zip(unique, cached["logp"], strict=True)}
        head = _head(model, unique[0])
        cached = _kept(cache, model, unique, about, lambda: _distributions(model, unique, head))
        each = zip(unique, cached["logp"], cached["states"], strict=True)
        return {row.key: ReferenceRow(logp, KeptDistributions(states, head or _as_kept)) for row, logp, states in each}


def reference_activations(
    model: PreTrainedModel,
    rows: Sequence[Row],
    *,
    layer: int,
    precision: Precision = "float32",
    cache: ReferenceCache | None = None,
) -> dict[str, ReferenceRow]:
    """The output of block `layer` at every token of each row, by the row's key."""
    unique = list({r.key: r for r in rows}.values())
    about = {"read": "activations", "layer": layer, "precision": precision}
    with _frozen(model, precision):
        cached = _kept(cache, model, unique, about, lambda: _activations(model, unique, layer))
    return {row.key: ReferenceRow(activations=h) for row, h in zip(unique, cached["activations"], strict=True)}


def _kept(
    cache: ReferenceCache | None,
    model: PreTrainedModel,
    rows: Sequence[Row],
    about: dict[str, Any],
    compute: Callable[[], Parts],
) -> Parts:
    if cache is None:
        return compute()
    return cache.keep(rows, {**about, "dtype": str(model.dtype), "device": model.device.type}, compute)


@within_memory
def _values(model: PreTrainedModel, rows: Sequence[Row], *, token_budget: int = TOKEN_BUDGET) -> Parts:
    """Log-probabilities of the rows' loss tokens."""
    logp: dict[str, Tensor] = {}
    read = how_to_read(model, rows[0].ids)
    for batch, ids, tokens in _passes(model, rows, token_budget):
        logits = read(model, [ids], torch.arange(len(ids.read), device=ids.read.device))
        logp |= _by_row(batch, token_logp(logits, tokens))
    return {"logp": [logp[r.key] for r in rows]}


@within_memory
def _distributions(
    model: PreTrainedModel, rows: Sequence[Row], head: Finish | None, *, token_budget: int = TOKEN_BUDGET
) -> Parts:
    """The same, and what `head` makes the distributions of, or without one the distributions themselves."""
    logp: dict[str, Tensor] = {}
    states: dict[str, Tensor] = {}
    for batch, ids, tokens in _passes(model, rows, token_budget):
        if head is not None:
            read = hidden_read(model, ids)
        else:
            order = torch.arange(len(ids.read), device=ids.read.device)
            read = logits_read(model, [ids], order).float().log_softmax(-1)
        states |= _by_row(batch, read)
        logp |= _by_row(batch, (head or _as_kept)(read).gather(-1, tokens[:, None]).squeeze(-1))
    return {"logp": [logp[r.key] for r in rows], "states": [states[r.key] for r in rows]}


@within_memory
def _activations(model: PreTrainedModel, rows: Sequence[Row], layer: int, *, token_budget: int = TOKEN_BUDGET) -> Parts:
    by_row: dict[str, Tensor] = {}
    for width, chunk in batches_by_length([len(r.ids) for r in rows], model.device, token_budget=token_budget):
        hidden = block_output(model, right_padded([rows[i].ids for i in chunk], width, model.device), layer)
        by_row |= {rows[i].key: hidden[k, : len(rows[i].ids)].cpu().clone() for k, i in enumerate(chunk)}
    return {"activations": [by_row[r.key] for r in rows]}


@contextmanager
def _frozen(model: PreTrainedModel, precision: Precision) -> Iterator[None]:
    device = model.device.type
    narrow = torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16")
    with evaluating(model), torch.no_grad(), narrow, attention(device, precision):
        yield


def _passes(
    model: PreTrainedModel, rows: Sequence[Row], token_budget: int
) -> Iterator[tuple[list[Row], Pass, Int[Tensor, " N"]]]:
    """Rows of one pass, what is read of them, and the tokens that this predicts."""
    lengths = [len(r.ids) for r in rows]
    packed = reads_packed(model, rows[0].ids)
    of_length = batches_by_length(lengths, model.device, token_budget=token_budget)
    for chunk in packs(lengths) if packed else (chunk for _, chunk in of_length):
        batch = [rows[i] for i in chunk]
        tokens = [token for r in batch for token in r.ids[r.start : r.stop]]
        width = None if packed else max(len(r.ids) for r in batch)
        yield batch, pass_over(batch, width, model.device), torch.tensor(tokens, device=model.device)


def _by_row(batch: Sequence[Row], values: Float[Tensor, "N ..."]) -> dict[str, Tensor]:
    """The values of each row's loss tokens by the row's key."""
    rows_of: dict[str, Tensor] = {}
    stop = 0
    for row in batch:
        rows_of[row.key] = values[stop : stop + row.n_tokens].cpu().clone()
        stop += row.n_tokens
    return rows_of


def _as_kept(states: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
    return states


def _head(model: PreTrainedModel, row: Row) -> Finish | None:
    """A frozen copy of the output head as a function to log-probabilities, if it gives the model's own on `row`."""
    ids = torch.tensor([row.ids], device=model.device)
    every = torch.arange(ids.shape[1], device=ids.device)
    states = hidden_read(model, Pass(ids, every))
    head = copy.deepcopy(model.get_output_embeddings()).requires_grad_(False)
    if torch.is_autocast_enabled(ids.device.type):
        head = head.to(torch.bfloat16)

    @torch.no_grad()
    def finish(states: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        logp: Tensor = head(states.to(head.weight.dtype)).float().log_softmax(-1)
        return logp

    expected = logits_read_plain(model, [Pass(ids, every)], every).float().log_softmax(-1)
    return finish if torch.allclose(finish(states), expected, rtol=0, atol=1e-4) else None
