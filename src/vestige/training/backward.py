"""One effective batch: its rows through the model in micro-batches, and the gradients of its loss, added up."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from vestige.core.seeds import derive_seed
from vestige.training.batching import BatchPlan, Row, Split
from vestige.training.job import Job
from vestige.training.step import ForwardStep, Slice


@dataclass(frozen=True)
class Measured:
    """What one effective batch gave: the terms of its loss and what the objective observed (nats), tokens computed."""

    terms: dict[str, float]
    observed: dict[str, float]
    n_tokens: int


def backward(model: PreTrainedModel, job: Job, batch: BatchPlan, step: int, state: Mapping[str, float]) -> Measured:
    """Add the gradients of the loss of `batch` to those of the model's trained parameters.

    The random numbers of dropout follow from the seed and the step.
    """
    terms: dict[str, float] = {}
    observed: dict[str, float] = {}
    n_tokens = 0
    with torch.random.fork_rng(devices=_cuda_devices(model)):
        torch.manual_seed(derive_seed(job.seed, "dropout", step))
        for slices in micro_batches(batch, job):
            forward = ForwardStep(job.objective.needs, slices, job.references, state, observed)
            with torch.autocast(model.device.type, torch.bfloat16, enabled=job.settings.precision == "bfloat16"):
                forward.run(model, job.layer)
            found = job.objective.terms(forward)
            _sum(found.values()).backward()
            for name, value in found.items():
                terms[name] = terms.get(name, 0.0) + value.item()
            n_tokens += sum(len(row.ids) for part in slices.values() for row in part.rows)
    return Measured(terms, observed, n_tokens)


def micro_batches(batch: BatchPlan, job: Job) -> Iterator[dict[Split, Slice]]:
    """The effective batch in parts of at most `micro_batch_size` rows a split."""
    rows: dict[Split, list[Row]] = {s: [job.rows[s](i) for i in batch[s]] for s in job.objective.needs.splits}
    sizes = {s: (len(r), sum(row.n_tokens for row in r)) for s, r in rows.items()}
    micro = job.settings.micro_batch_size or job.settings.batch_size
    for start in range(0, max(len(r) for r in rows.values()), micro):
        part = {s: r[start : start + micro] for s, r in rows.items()}
        yield {s: Slice(r, *sizes[s]) for s, r in part.items() if r}


def _sum(values: Iterable[Tensor]) -> Tensor:
    total, *rest = values
    for value in rest:
        total = total + value
    return total


def _cuda_devices(model: PreTrainedModel) -> list[int]:
    return [model.device.index or 0] if model.device.type == "cuda" else []
