"""The one training loop, with its optimisers, its schedules and its log.

The one training loop: fine-tuning and every unlearning method go through it. Everything random in it follows from the
seed and the number of the step, so a run that was killed and resumed ends with the same bytes as one that was not.

The log of a training: a line a step. Losses and observations are in nats, `rate` is the learning rate, `n_tokens`
counts the tokens of the effective batch, `peak_mb` is in 10^6 bytes.

The optimisers by name, and the learning rate as a function of the step. An optimiser's state is tensors and counts,
kept by `checkpoints`. A schedule needs none, so that a resumed run goes on by its step.
"""

import math
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel

from vestige.artifacts.records import read_training_log
from vestige.core.errors import InputError, NotFinite
from vestige.core.files import append_lines, drop_torn_line, json_line, write_jsonl
from vestige.core.text import Fields, NumberByName, NumberMapping, Record
from vestige.models.forward import on_threads
from vestige.training.backward import Backward, BatchTerms, reading_for, recomputing
from vestige.training.batching import BatchPlan, Plan
from vestige.training.checkpoints import TrainingJob
from vestige.training.parallel import spread_over
from vestige.training.settings import FLOAT16, TrainingSettings
from vestige.training.step import KeepsState
from vestige.training.stopping import ChosenStep


def make_optimizer(parameters: Sequence[nn.Parameter], settings: TrainingSettings) -> torch.optim.Optimizer:
    """AdamW (Loshchilov and Hutter, 1711.05101) over the parameters, as PyTorch's fused kernel has it."""
    return torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True)


def refuse_formats(model: nn.Module) -> None:
    """Reject a model in float16, and trainable weights in bfloat16. Adapters are in float32.

    A weight near 0.02 has a spacing of 1.2e-4 in bfloat16, so that steps of 1e-6 are rounded away: after 1,000 steps 1
    % of the weights have changed.
    """
    if any(p.dtype == torch.float16 for p in model.parameters()):
        raise InputError(f"the model is in float16: {FLOAT16} with --dtype")
    if any(p.dtype == torch.bfloat16 for p in model.parameters() if p.requires_grad):
        raise InputError(
            "The weights to train are in bfloat16, which rounds small steps away. Take --dtype float32 with "
            "--precision bfloat16, or train an adapter by lora_rank."
        )


def total_steps(settings: TrainingSettings, *, steps_per_epoch: int) -> int:
    """Return the number of steps of a training that nothing stops."""
    whole = settings.epochs * steps_per_epoch
    if settings.max_steps is None:
        return whole
    return min(whole, settings.max_steps)


def learning_rate(settings: TrainingSettings, step: int, *, steps_per_epoch: int) -> float:
    """The rate of step 0, 1, ... of all `total_steps`.

    All schedules rise over the warm-up. Then `linear` falls to 0 past the last step, `cosine` does so along half a
    wave, `constant` stays. `one_cycle` follows a cosine up and down (Smith, Super-convergence, 1708.07120).
    """
    total = total_steps(settings, steps_per_epoch=steps_per_epoch)
    warmup_steps = settings.warmup_steps
    warmup = min(round(settings.warmup_epochs * steps_per_epoch) if warmup_steps is None else warmup_steps, total)
    if step < warmup:
        # The schedule begins at 1 / warmup: a first step with a rate of 0 would learn nothing.
        rising = (step + 1) / warmup
        share = rising
        if settings.schedule == "one_cycle":
            share = _half_wave(rising)
    elif settings.schedule == "constant":
        share = 1.0
    else:
        rest = (total - step) / max(1, total - warmup)
        if settings.schedule == "linear":
            share = rest
        else:
            share = _half_wave(rest)
    return settings.learning_rate * share


def _half_wave(share: float) -> float:
    return (1 - math.cos(math.pi * share)) / 2


MEASURED = ("seconds", "tokens_per_second", "peak_mb")
"""The fields of a line that differ from one run to the next. All others are reproducible."""


def reproducible(line: Record) -> Fields:
    """The line without its times and memory, which no two runs share."""
    return {k: v for k, v in line.items() if k not in MEASURED}


@dataclass
class TrainingLog:
    """The log of one training. Lines wait in memory until they are written, with or before a checkpoint.

    `loss` is the last line's. Only the process that `writes` touches the file.
    """

    path: Path
    writes: bool
    loss: float = math.nan
    waiting: list[str] = field(default_factory=list)

    @classmethod
    def opened(cls, path: Path, *, done: int, writes: bool) -> "TrainingLog":
        """Return the log after `done` steps. Lines after the checkpoint are dropped."""
        log = cls(path, writes)
        if writes:
            drop_torn_line(path)
            rows = [row for row in read_training_log(path) if row["step"] <= done]
            write_jsonl(path, rows)
            log.loss = float(rows[-1]["loss"]) if rows else math.nan
        return log

    def add(self, line: Fields) -> None:
        """Log one step."""
        self.waiting.append(json_line(line))
        self.loss = line["loss"]

    def write(self) -> None:
        """Put what waits on the disk."""
        if self.writes:
            append_lines(self.path, self.waiting)
        self.waiting.clear()


def _measured(seconds: float, n_tokens: int, device: torch.device) -> NumberByName:
    """Return a step's cost: seconds, tokens a second, and the peak of memory so far.

    On CUDA the peak is the allocator's. Elsewhere the process's resident memory, which includes all that it has loaded.
    """
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
    else:
        # The unit is bytes on macOS only.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"seconds": seconds, "tokens_per_second": n_tokens / seconds, "peak_mb": peak / 1e6}


# The maximum training time lost by a kill. Each checkpoint writes the trained weights and two moments.
CHECKPOINT_SECONDS = 20.0


@dataclass(frozen=True)
class Progress:
    """The progress of a training: steps done and planned, epochs done, loss of the last step (nats)."""

    step: int
    n_steps: int
    epoch: int
    loss: float
    ends_epoch: bool = False


@dataclass(frozen=True)
class Hooks:
    """Functions of the caller during training: progress reports, and a reason to stop. Say why to stop.

    `stop` is called after each step, by all processes that train the model together, with the model that computes.
    """

    on_step: Callable[[Progress], None] = lambda _: None
    stop: Callable[[Progress, PreTrainedModel], str | None] = lambda _now, _model: None


@dataclass(frozen=True)
class TrainingEnd:
    """The end of a training: the number of steps, the reason for stopping, and the loss of its last step (nats).

    `chosen` is set if one of several checkpoints was kept.
    """

    steps: int
    stopped: str
    loss: float
    chosen: ChosenStep | None = None


PAUSED = "paused"
"""The reason of a training that paused on request."""


def train(
    model: PreTrainedModel, job: TrainingJob, hooks: Hooks | None = None, *, until: int | None = None
) -> TrainingEnd:
    """Train `model` in place. Resume from the job's newest checkpoint if there is one.

    After `until` steps it pauses, with a checkpoint to go on from. Raises NotFinite when the loss or the gradient is no
    longer finite.
    """
    refuse_formats(model)
    with on_threads(job.settings.threads):
        reading = reading_for(model, job)
        with recomputing(model, job.settings, model.device.type), spread_over(model, job.world) as spread:
            return _train(Backward(spread, job, reading), hooks or Hooks(), until)


def _train(backward: Backward, hooks: Hooks, until: int | None) -> TrainingEnd:
    job, model, world = backward.job, backward.spread.model, backward.spread.world
    settings, per_epoch = job.settings, job.plan.steps_per_epoch
    n_steps = total_steps(settings, steps_per_epoch=per_epoch)
    optimizer = make_optimizer(backward.spread.trained, settings)
    # The leading process decides, since it alone writes: another may see the folder later, and start elsewhere.
    done = round(world.led({"step": float(job.checkpoints.newest() or 0)})["step"])
    carries = job.objective if isinstance(job.objective, KeepsState) else None
    first = carries.start() if carries else {}
    state = first
    if done:
        state = job.checkpoints.restore(done, model, optimizer)
    log = TrainingLog.opened(job.log, done=done, writes=world.leads)
    saved = time.monotonic()
    model.train()

    def keep(step: int) -> None:
        log.write()
        job.checkpoints.save(step, model, optimizer, state, world)

    for step, batch, ends_epoch in _batches(job.plan, n_steps, done):
        if step == until:
            keep(step)
            return TrainingEnd(step, PAUSED, log.loss)
        began = time.perf_counter()
        rate = learning_rate(settings, step, steps_per_epoch=per_epoch)
        try:
            added, norm = _take_step(backward, optimizer, batch, step, rate, state)
        except NotFinite:
            # Buffered lines would be lost, and they show the cause.
            log.write()
            raise
        took = _measured(time.perf_counter() - began, added.n_tokens, model.device)
        loss = sum(added.terms.values())
        line: Fields = {"step": step + 1, "epoch": step // per_epoch, "loss": loss, "gradient_norm": norm, "rate": rate}
        line |= {**asdict(added), "state": state, **took}
        log.add(line)
        # After the log line, which contains the state used for the step.
        state = carries.advance(state, added.observed) if carries else {}
        now = Progress(step + 1, n_steps, (step + 1) // per_epoch, loss, ends_epoch)
        hooks.on_step(now)
        reason = hooks.stop(now, model)
        # All processes stop or none: a process that continued would wait for the gradients of one that stopped.
        if world.agreed(reason is not None):
            log.write()
            return TrainingEnd(step + 1, reason or "the leading process stopped", loss)
        # One clock decides: processes that save at different steps would wait for each other forever.
        if world.agreed(time.monotonic() - saved > CHECKPOINT_SECONDS):
            keep(step + 1)
            saved = time.monotonic()
    log.write()
    return TrainingEnd(
        n_steps, "all epochs done" if n_steps == settings.epochs * per_epoch else "max_steps done", log.loss
    )


def _batches(plan: Plan, n_steps: int, done: int) -> Iterator[tuple[int, BatchPlan, bool]]:
    for epoch in range(done // plan.steps_per_epoch, math.ceil(n_steps / plan.steps_per_epoch)):
        for n, batch in enumerate(plan.epoch(epoch)):
            step = epoch * plan.steps_per_epoch + n
            if done <= step < n_steps:
                yield step, batch, n == plan.steps_per_epoch - 1


def _take_step(
    backward: Backward, optimizer: torch.optim.Optimizer, batch: BatchPlan, step: int, rate: float, state: NumberMapping
) -> tuple[BatchTerms, float]:
    """Take one optimiser step on one effective batch, and return the gradient's norm before clipping."""
    # Setting the modules of 210 adapters takes 10 ms. An evaluation in between may have changed them.
    if not backward.spread.model.training:
        backward.spread.model.train()
    for group in optimizer.param_groups:
        group["lr"] = rate
    added = backward.add(batch, step, state)
    norm = backward.spread.clip_gradients(backward.job.settings.max_gradient_norm)
    # The check comes before the step, which would produce non-finite weights.
    if not math.isfinite(norm) or not all(math.isfinite(v) for v in added.terms.values()):
        values = ", ".join(f"{k} {v:.4g}" for k, v in added.terms.items())
        if step:
            way_out = "Lower the learning rate, unless `vestige evaluate` shows that the model it began with is broken"
        else:
            way_out = "Nothing was learned yet, so it is the model it began with"
        raise NotFinite(
            f"training is no longer finite at step {step + 1} ({values}, gradient norm {norm:.4g}, learning rate "
            f"{rate:.3g}). {way_out}"
        )
    optimizer.step()
    # Gradients become None, torch's default, which tells `Backward.add` that nothing has been added yet.
    optimizer.zero_grad()
    return added, norm
