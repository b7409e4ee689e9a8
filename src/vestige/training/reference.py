"""The frozen reference's values of the rows, computed once before training: never a second model in memory.

Log-probabilities take one number a token. Distributions are stored as the output head's input (a few hundred numbers a
token instead of a vocabulary's) with a frozen copy of the head, if that head alone explains the logits. If the model
changes its logits further (soft caps, scales), they are stored whole.

With `bfloat16` the reference is computed as the policy is, so that the two agree where the weights do. Against float32
its log-probabilities are off by some 1e-2.

They are in memory alone: a training that was stopped and goes on computes them again, which takes a pass a row.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from vestige.models.blocks import block_output
from vestige.models.forward import (
    Pass,
    Precision,
    attention,
    batches_by_length,
    evaluating,
    hidden_read,
    how_to_read,
    logits_read,
    logits_read_plain,
    packs,
    padded_passes,
    reads_packed,
    within_memory,
)
from vestige.models.scoring import token_logp
from vestige.training.backward import pass_over
from vestige.training.batching import Plan, Row, RowSource, Split
from vestige.training.loop import total_steps
from vestige.training.settings import TrainingSettings
from vestige.training.step import Finish, KeptDistributions, Needs, ReferenceRow

TOKEN_BUDGET = 1024


def references(
    model: PreTrainedModel,
    needs: Needs,
    plan: Plan,
    rows: RowSource,
    settings: TrainingSettings,
    layer: int | None = None,
) -> dict[str, ReferenceRow]:
    """Return an objective's values from the frozen reference, for the rows of the plan, by the row's key.

    `layer` is the block whose output it reads. `model` is only read, in evaluation mode.
    """
    n_steps = total_steps(settings, steps_per_epoch=plan.steps_per_epoch)
    batches = [*islice(chain.from_iterable(map(plan.epoch, range(settings.epochs))), n_steps)]

    def drawn(splits: frozenset[Split]) -> dict[str, Row]:
        by_key: dict[str, Row] = {}
        for split in sorted(splits):
            numbers = sorted({*chain.from_iterable(batch[split] for batch in batches)})
            by_key |= {row.key: row for row in map(rows[split], numbers)}
        return by_key

    whole, values, inner = map(drawn, (needs.distributions, needs.reference, needs.reference_activations))
    values_alone = [row for key, row in values.items() if key not in whole]
    rows_by: dict[str, ReferenceRow] = {}
    with _frozen(model, settings.precision):
        if whole:
            rows_by |= _distributions(model, [*whole.values()], _head(model, next(iter(whole.values()))))
        if values_alone:
            rows_by |= _values(model, values_alone)
        if inner:
            assert layer is not None
            for key, hidden in _activations(model, [*inner.values()], layer).items():
                rows_by[key] = replace(rows_by.get(key, ReferenceRow()), activations=hidden)
    return rows_by


@within_memory
def _values(
    model: PreTrainedModel, rows: Sequence[Row], *, token_budget: int = TOKEN_BUDGET
) -> dict[str, ReferenceRow]:
    """Log-probabilities of the rows' loss tokens."""
    rows_by: dict[str, ReferenceRow] = {}
    read = how_to_read(model, rows[0].ids)
    for batch, ids, tokens in _passes(model, rows, token_budget):
        logits = read(model, [ids], torch.arange(len(ids.read), device=ids.read.device))
        rows_by |= {key: ReferenceRow(logp) for key, logp in _by_row(batch, token_logp(logits, tokens)).items()}
    return rows_by


@within_memory
def _distributions(
    model: PreTrainedModel, rows: Sequence[Row], head: Finish | None, *, token_budget: int = TOKEN_BUDGET
) -> dict[str, ReferenceRow]:
    """Return the references, with distributions mapped by `head`, or unchanged without it."""
    rows_by: dict[str, ReferenceRow] = {}
    # Complete distributions stay unchanged.
    finish: Finish = head or (lambda states: states)
    for batch, ids, tokens in _passes(model, rows, token_budget):
        if head is not None:
            read = hidden_read(model, ids)
        else:
            order = torch.arange(len(ids.read), device=ids.read.device)
            read = logits_read(model, [ids], order).float().log_softmax(-1)
        logp = _by_row(batch, finish(read).gather(-1, tokens[:, None]).squeeze(-1))
        for key, states in _by_row(batch, read).items():
            rows_by[key] = ReferenceRow(logp[key], KeptDistributions(states, finish))
    return rows_by


@within_memory
def _activations(
    model: PreTrainedModel, rows: Sequence[Row], layer: int, *, token_budget: int = TOKEN_BUDGET
) -> dict[str, Float[Tensor, "T D"]]:
    """The output of block `layer` at every token of each row."""
    by_row: dict[str, Tensor] = {}
    for chunk, ids in padded_passes([r.ids for r in rows], model.device, token_budget=token_budget):
        hidden = block_output(model, ids, layer)
        by_row |= {rows[i].key: hidden[k, : len(rows[i].ids)].cpu().clone() for k, i in enumerate(chunk)}
    return by_row


@contextmanager
def _frozen(model: PreTrainedModel, precision: Precision) -> Iterator[None]:
    device = model.device.type
    narrow = torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16")
    with evaluating(model), torch.no_grad(), narrow, attention(device, precision):
        yield


def _passes(
    model: PreTrainedModel, rows: Sequence[Row], token_budget: int
) -> Iterator[tuple[list[Row], Pass, Int[Tensor, " N"]]]:
    """Rows of one pass, the positions read, and the tokens predicted there."""
    lengths = [len(r.ids) for r in rows]
    packed = reads_packed(model, rows[0].ids)
    of_length = batches_by_length(lengths, model.device, token_budget=token_budget)
    for chunk in packs(lengths) if packed else (chunk for _, chunk in of_length):
        batch = [rows[i] for i in chunk]
        tokens = [*chain.from_iterable(r.answer_ids for r in batch)]
        width = None if packed else max(len(r.ids) for r in batch)
        yield batch, pass_over(batch, width, model.device), torch.tensor(tokens, device=model.device)


def _by_row(batch: Sequence[Row], values: Float[Tensor, "N ..."]) -> dict[str, Tensor]:
    """The values of each row's loss tokens by the row's key."""
    rows_of: dict[str, Tensor] = {}
    stop = 0
    for row in batch:
        # A copy is made because a slice would keep the whole pass in memory.
        rows_of[row.key] = values[stop : stop + row.n_tokens].cpu().clone()
        stop += row.n_tokens
    return rows_of


def _head(model: PreTrainedModel, row: Row) -> Finish | None:
    """A frozen copy of the output head as a function to log-probabilities, if it gives the model's own on `row`."""
    ids = torch.tensor([row.ids], device=model.device)
    every = torch.arange(ids.shape[1], device=ids.device)
    states = hidden_read(model, Pass(ids, every))
    # The head is copied because training may change it from here on.
    head = copy.deepcopy(model.get_output_embeddings()).requires_grad_(False)
    if torch.is_autocast_enabled(ids.device.type):
        # Distributions are later completed outside autocast, and must be rounded like the policy's.
        head = head.to(torch.bfloat16)

    @torch.no_grad()
    def finish(states: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        logp: Tensor = head(states.to(head.weight.dtype)).float().log_softmax(-1)
        return logp

    expected = logits_read_plain(model, [Pass(ids, every)], every).float().log_softmax(-1)
    if torch.allclose(finish(states), expected, rtol=0, atol=1e-4):
        return finish
    return None
