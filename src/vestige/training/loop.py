"""The one training loop: fine-tuning and every unlearning method go through it.

Everything random in it follows from the seed and the number of the step, so a run that was killed and resumed ends
with the same bytes as one that was not.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from vestige.core.errors import InputError
from vestige.core.files import append_lines, drop_torn_line, json_line, read_jsonl, write_jsonl
from vestige.core.seeds import derive_seed
from vestige.training.batching import BatchPlan, Plan, Row, RowSource, Split
from vestige.training.checkpoints import Checkpoints
from vestige.training.schedules import learning_rate
from vestige.training.settings import TrainingSettings
from vestige.training.step import ForwardStep, Objective, ReferenceRow, Slice

CHECKPOINT_SECONDS = 20.0


@dataclass(frozen=True)
class Progress:
    """How far a training run is: steps done of all that are planned, epochs done, loss of the last step (nats)."""

    step: int
    n_steps: int
    epoch: int
    loss: float


@dataclass(frozen=True)
class Hooks:
    """What others may do while a model trains: be told of each step; at the end of an epoch, say why to stop."""

    on_step: Callable[[Progress], None] = lambda _: None
    stop: Callable[[Progress], str | None] = lambda _: None


@dataclass(frozen=True)
class Outcome:
    """How a training run ended: steps taken, why it stopped, the loss of its last step (nats)."""

    steps: int
    stopped: str
    loss: float


@dataclass(frozen=True)
class Job:
    """One training run: what is minimised, on which rows, in which order, and where its state is kept."""

    objective: Objective
    rows: RowSource
    plan: Plan
    settings: TrainingSettings
    seed: int
    references: dict[str, ReferenceRow]
    checkpoints: Checkpoints
    log: Path


def train(model: PreTrainedModel, job: Job, hooks: Hooks | None = None) -> Outcome:
    """Train `model` in place; resume from the job's newest checkpoint if there is one.

    Raises InputError when the loss or the gradient is no longer finite.
    """
    hooks = hooks or Hooks()
    settings, per_epoch = job.settings, job.plan.steps_per_epoch
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True)
    done = job.checkpoints.newest() or 0
    if done:
        job.checkpoints.restore(done, model, optimizer)
    loss = _cut_log(job.log, done)
    pending: list[str] = []
    saved = time.monotonic()
    for step, batch, ends_epoch in _batches(job.plan, settings.epochs, done):
        rate = learning_rate(settings, step, steps_per_epoch=per_epoch)
        terms, norm = _take_step(model, optimizer, job, batch, step, rate)
        loss = sum(terms.values())
        row = {"step": step + 1, "epoch": step // per_epoch, "loss": loss, "gradient_norm": norm, "rate": rate}
        pending.append(json_line({**row, "terms": terms}))
        now = Progress(step + 1, settings.epochs * per_epoch, (step + 1) // per_epoch, loss)
        hooks.on_step(now)
        reason = hooks.stop(now) if ends_epoch else None
        if reason:
            append_lines(job.log, pending)
            return Outcome(step + 1, reason, loss)
        if time.monotonic() - saved > CHECKPOINT_SECONDS:
            append_lines(job.log, pending)
            pending.clear()
            job.checkpoints.save(step + 1, model, optimizer)
            saved = time.monotonic()
    append_lines(job.log, pending)
    return Outcome(settings.epochs * per_epoch, "all epochs done", loss)


def _batches(plan: Plan, epochs: int, done: int) -> Iterator[tuple[int, BatchPlan, bool]]:
    for epoch in range(done // plan.steps_per_epoch, epochs):
        for place, batch in enumerate(plan.epoch(epoch)):
            step = epoch * plan.steps_per_epoch + place
            if step >= done:
                yield step, batch, place == plan.steps_per_epoch - 1


def _cut_log(log: Path, done: int) -> float:
    """Drop what was logged after the checkpoint; the loss of the last step that is kept."""
    drop_torn_line(log)
    rows = [r for r in read_jsonl(log) if r["step"] <= done] if log.exists() else []
    write_jsonl(log, rows)
    return float(rows[-1]["loss"]) if rows else math.nan


def _take_step(
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    job: Job,
    batch: BatchPlan,
    step: int,
    rate: float,
) -> tuple[dict[str, float], float]:
    """One step of the optimiser over one effective batch; its terms (nats) and the gradient's norm before clipping."""
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = rate
    totals: dict[str, float] = {}
    with torch.random.fork_rng(devices=_cuda_devices(model)):
        torch.manual_seed(derive_seed(job.seed, "dropout", step))
        for slices in _micro_batches(batch, job):
            with torch.autocast(model.device.type, torch.bfloat16, enabled=job.settings.precision == "bfloat16"):
                forward = ForwardStep.run(model, job.objective.needs, slices, job.references)
            terms = job.objective.terms(forward)
            _sum(terms.values()).backward()
            for name, value in terms.items():
                totals[name] = totals.get(name, 0.0) + value.item()
    norm = nn.utils.clip_grad_norm_(
        [p for p in model.parameters() if p.requires_grad], job.settings.max_gradient_norm
    ).item()
    if not math.isfinite(norm) or not all(math.isfinite(v) for v in totals.values()):
        shown = ", ".join(f"{k} {v:.4g}" for k, v in totals.items())
        raise InputError(
            f"training is no longer finite at step {step + 1} ({shown}, gradient norm {norm:.4g}, learning rate "
            f"{rate:.3g}); lower the learning rate"
        )
    optimizer.step()
    optimizer.zero_grad()
    return totals, norm


def _sum(values: Iterable[Tensor]) -> Tensor:
    total, *rest = values
    for value in rest:
        total = total + value
    return total


def _cuda_devices(model: PreTrainedModel) -> list[int]:
    return [model.device.index or 0] if model.device.type == "cuda" else []


def _micro_batches(batch: BatchPlan, job: Job) -> Iterator[dict[Split, Slice]]:
    rows: dict[Split, list[Row]] = {s: [job.rows[s](i) for i in batch[s]] for s in job.objective.needs.splits}
    sizes = {s: (len(r), sum(row.n_tokens for row in r)) for s, r in rows.items()}
    micro = job.settings.micro_batch_size or job.settings.batch_size
    for start in range(0, max(len(r) for r in rows.values()), micro):
        part = {s: r[start : start + micro] for s, r in rows.items()}
        yield {s: Slice(r, *sizes[s]) for s, r in part.items() if r}
