"""The one training loop: fine-tuning and every unlearning method go through it.

Everything random in it follows from the seed and the number of the step, so a run that was killed and resumed ends
with the same bytes as one that was not.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel

from vestige.core.errors import InputError
from vestige.core.files import append_lines, drop_torn_line, json_line, read_jsonl, write_jsonl
from vestige.training.backward import Measured, backward
from vestige.training.batching import BatchPlan, Plan
from vestige.training.job import Job
from vestige.training.schedules import learning_rate
from vestige.training.step import KeepsState

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


PAUSED = "paused"
"""Why a training stopped that was asked to go no further for now."""


def train(model: PreTrainedModel, job: Job, hooks: Hooks | None = None, *, until: int | None = None) -> Outcome:
    """Train `model` in place; resume from the job's newest checkpoint if there is one.

    After `until` steps it pauses, with a checkpoint to go on from. Raises InputError when the loss or the gradient is
    no longer finite.
    """
    hooks = hooks or Hooks()
    settings, per_epoch = job.settings, job.plan.steps_per_epoch
    n_steps = settings.epochs * per_epoch
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True)
    done = job.checkpoints.newest() or 0
    state = job.checkpoints.restore(done, model, optimizer) if done else _first_state(job)
    loss = _cut_log(job.log, done)
    pending: list[str] = []
    saved = time.monotonic()

    def keep(step: int) -> None:
        append_lines(job.log, pending)
        pending.clear()
        job.checkpoints.save(step, model, optimizer, state)

    for step, batch, ends_epoch in _batches(job.plan, settings.epochs, done):
        if step == until:
            keep(step)
            return Outcome(step, PAUSED, loss)
        rate = learning_rate(settings, step, steps_per_epoch=per_epoch)
        measured, norm = _take_step(model, optimizer, job, batch, step, rate, state)
        loss = sum(measured.terms.values())
        line = {"step": step + 1, "epoch": step // per_epoch, "loss": loss, "gradient_norm": norm, "rate": rate}
        pending.append(json_line({**line, **asdict(measured), "state": state}))
        state = _next_state(job, state, measured)
        now = Progress(step + 1, n_steps, (step + 1) // per_epoch, loss)
        hooks.on_step(now)
        reason = hooks.stop(now) if ends_epoch else None
        if reason:
            append_lines(job.log, pending)
            return Outcome(step + 1, reason, loss)
        if time.monotonic() - saved > CHECKPOINT_SECONDS:
            keep(step + 1)
            saved = time.monotonic()
    append_lines(job.log, pending)
    return Outcome(n_steps, "all epochs done", loss)


def _first_state(job: Job) -> dict[str, float]:
    return job.objective.start() if isinstance(job.objective, KeepsState) else {}


def _next_state(job: Job, state: Mapping[str, float], measured: Measured) -> dict[str, float]:
    return job.objective.advance(state, measured.observed) if isinstance(job.objective, KeepsState) else {}


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
    state: Mapping[str, float],
) -> tuple[Measured, float]:
    """One step of the optimiser over one effective batch, and the gradient's norm before clipping."""
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = rate
    measured = backward(model, job, batch, step, state)
    norm = nn.utils.clip_grad_norm_(
        [p for p in model.parameters() if p.requires_grad], job.settings.max_gradient_norm
    ).item()
    if not math.isfinite(norm) or not all(math.isfinite(v) for v in measured.terms.values()):
        shown = ", ".join(f"{k} {v:.4g}" for k, v in measured.terms.items())
        raise InputError(
            f"training is no longer finite at step {step + 1} ({shown}, gradient norm {norm:.4g}, learning rate "
            f"{rate:.3g}); lower the learning rate"
        )
    optimizer.step()
    optimizer.zero_grad()
    return measured, norm
