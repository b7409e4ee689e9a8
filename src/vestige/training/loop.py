"""The one training loop: fine-tuning and every unlearning method go through it.

Everything random in it follows from the seed and the number of the step, so a run that was killed and resumed ends
with the same bytes as one that was not.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass

import torch
from transformers import PreTrainedModel

from vestige.core.errors import NotFinite
from vestige.models.products import on_threads
from vestige.training.backward import Backward, Measured, reading_for, recomputing
from vestige.training.batching import BatchPlan, Plan
from vestige.training.checkpoints import Job
from vestige.training.optimizers import learning_rate, make_optimizer, refuse_unsound, total_steps
from vestige.training.parallel import spread_over
from vestige.training.step import KeepsState
from vestige.training.stopping import Choice
from vestige.training.tracking import Line, TrainingLog, measured

CHECKPOINT_SECONDS = 20.0


@dataclass(frozen=True)
class Progress:
    """How far a training run is: steps done of all that are planned, epochs done, loss of the last step (nats)."""

    step: int
    n_steps: int
    epoch: int
    loss: float
    ends_epoch: bool = False


@dataclass(frozen=True)
class Hooks:
    """What others may do while a model trains: be told of each step and of its line in the log; say why to stop.

    `stop` is asked after each step, by all processes that train the model together, and given the model that computes.
    """

    on_step: Callable[[Progress], None] = lambda _: None
    on_line: Callable[[Line], None] = lambda _: None
    stop: Callable[[Progress, PreTrainedModel], str | None] = lambda _now, _model: None


@dataclass(frozen=True)
class Outcome:
    """How a training run ended: steps taken, why it stopped, the loss of its last step (nats).

    `chosen` is there where one of several checkpoints was kept.
    """

    steps: int
    stopped: str
    loss: float
    chosen: Choice | None = None


PAUSED = "paused"
"""Why a training stopped that was asked to go no further for now."""


def train(model: PreTrainedModel, job: Job, hooks: Hooks | None = None, *, until: int | None = None) -> Outcome:
    """Train `model` in place; resume from the job's newest checkpoint if there is one.

    After `until` steps it pauses, with a checkpoint to go on from. Raises NotFinite when the loss or the gradient is no
    longer finite.
    """
    refuse_unsound(model, job.settings, job.world.kind)
    with on_threads(job.settings.threads):
        reading = reading_for(model, job)
        with recomputing(model, job.settings, model.device.type), spread_over(model, job.world) as spread:
            return _train(Backward(spread, job, reading), hooks or Hooks(), until)


def _train(backward: Backward, hooks: Hooks, until: int | None) -> Outcome:
    job, model, world = backward.job, backward.spread.model, backward.spread.world
    settings, per_epoch = job.settings, job.plan.steps_per_epoch
    n_steps = total_steps(settings, steps_per_epoch=per_epoch)
    optimizer = make_optimizer(backward.spread.trained, settings)
    done = world.step_agreed(job.checkpoints.newest() or 0)
    state = job.checkpoints.restore(done, model, optimizer) if done else _first_state(job)
    log = TrainingLog.opened(job.log, done=done, writes=world.leads)
    saved = time.monotonic()

    def keep(step: int) -> None:
        log.write()
        job.checkpoints.save(step, model, optimizer, state, world)

    for step, batch, ends_epoch in _batches(job.plan, n_steps, done):
        if step == until:
            keep(step)
            return Outcome(step, PAUSED, log.loss)
        began = time.perf_counter()
        rate = learning_rate(settings, step, steps_per_epoch=per_epoch)
        try:
            found, norm = _take_step(backward, optimizer, batch, step, rate, state)
        except NotFinite:
            log.write()
            raise
        took = measured(time.perf_counter() - began, found.n_tokens, model.device)
        loss = sum(found.terms.values())
        line: Line = {"step": step + 1, "epoch": step // per_epoch, "loss": loss, "gradient_norm": norm, "rate": rate}
        line |= {**asdict(found), "state": state, **took}
        log.add(line)
        hooks.on_line(line)
        state = _next_state(job, state, found)
        now = Progress(step + 1, n_steps, (step + 1) // per_epoch, loss, ends_epoch)
        hooks.on_step(now)
        reason = hooks.stop(now, model)
        if world.agreed(reason is not None):
            log.write()
            return Outcome(step + 1, reason or "the leading process stopped", loss)
        if world.agreed(time.monotonic() - saved > CHECKPOINT_SECONDS):
            keep(step + 1)
            saved = time.monotonic()
    log.write()
    return Outcome(n_steps, "all epochs done" if n_steps == settings.epochs * per_epoch else "max_steps done", log.loss)


def _first_state(job: Job) -> dict[str, float]:
    return job.objective.start() if isinstance(job.objective, KeepsState) else {}


def _next_state(job: Job, state: Mapping[str, float], found: Measured) -> dict[str, float]:
    return job.objective.advance(state, found.observed) if isinstance(job.objective, KeepsState) else {}


def _batches(plan: Plan, n_steps: int, done: int) -> Iterator[tuple[int, BatchPlan, bool]]:
    for epoch in range(done // plan.steps_per_epoch, math.ceil(n_steps / plan.steps_per_epoch)):
        for place, batch in enumerate(plan.epoch(epoch)):
            step = epoch * plan.steps_per_epoch + place
            if done <= step < n_steps:
                yield step, batch, place == plan.steps_per_epoch - 1


def _take_step(
    backward: Backward,
    optimizer: torch.optim.Optimizer,
    batch: BatchPlan,
    step: int,
    rate: float,
    state: Mapping[str, float],
) -> tuple[Measured, float]:
    """One step of the optimiser over one effective batch, and the gradient's norm before clipping."""
    backward.spread.model.train()
    for group in optimizer.param_groups:
        group["lr"] = rate
    found = backward.add(batch, step, state)
    norm = backward.spread.clip_gradients(backward.job.settings.max_gradient_norm)
    if not math.isfinite(norm) or not all(math.isfinite(v) for v in found.terms.values()):
        shown = ", ".join(f"{k} {v:.4g}" for k, v in found.terms.items())
        way_out = (
            "lower the learning rate, unless `vestige evaluate` shows that the model it began with is broken"
            if step
            else "nothing was learned yet, so it is the model it began with"
        )
        raise NotFinite(
            f"training is no longer finite at step {step + 1} ({shown}, gradient norm {norm:.4g}, learning rate "
            f"{rate:.3g}); {way_out}"
        )
    optimizer.step()
    optimizer.zero_grad()
    return found, norm
