"""What a training would take, without training: the memory that it needs at most, and how its batches are cut."""

from dataclasses import dataclass
from pathlib import Path

from vestige.artifacts.layout import SubjectFolder
from vestige.core.errors import InputError
from vestige.methods import build_method
from vestige.methods.base import FromStart
from vestige.models.load import LoadedModel, ModelSettings, outline, pick_device
from vestige.models.tiny import tiny_config, tiny_tokenizer
from vestige.steps.finetune import FinetuneRequest, check_tiny, finetuning_job
from vestige.steps.unlearn import UnlearnRequest, recipe_asked, unlearning_job
from vestige.training.backward import micro_batches
from vestige.training.job import Job
from vestige.training.memory import Memory, estimate_memory, untrained_shape
from vestige.training.optimizers import total_steps
from vestige.training.parallel import World

NOWHERE = SubjectFolder(Path("dry-run"))
"""A plan names a folder, and nothing is written to it."""


@dataclass(frozen=True)
class Forecast:
    """What one training takes: processes, steps, rows of the largest effective batch and parts it is cut into, bytes.

    `n_parameters` and `n_trained` are counts.
    """

    kind: str
    rank: int
    n_processes: int
    steps: int
    batch_size: int
    n_parts: int
    n_parameters: int
    n_trained: int
    device: str
    memory: Memory


def forecast_finetuning(request: FinetuneRequest, world: World) -> Forecast:
    """What the fine-tuning takes on the device that it asks for."""
    if request.model.model == "builtin:tiny":
        check_tiny(request.model, request.vocabulary)
        start = LoadedModel(untrained_shape(tiny_config()), tiny_tokenizer(request.vocabulary), "builtin:tiny", "")
    else:
        start = outline(request.model)
    encoded = [start.prompter.encode(i.question, i.answer) for i in request.items]
    return _forecast(start, finetuning_job(NOWHERE, request, start, encoded, world), request.model)


def forecast_unlearning(request: UnlearnRequest, world: World) -> Forecast:
    """What the unlearning takes on the device that it asks for."""
    method = build_method(request.method, request.method_settings)
    if isinstance(method, FromStart):
        return forecast_finetuning(recipe_asked(request).request, world)
    if not method.needs.splits:
        raise InputError(f"method {request.method!r} trains nothing, so there is nothing to foresee")
    target = outline(request.target)
    return _forecast(target, unlearning_job(NOWHERE, request, method, target, world, planned=True), request.target)


def _forecast(start: LoadedModel, job: Job, asked: ModelSettings) -> Forecast:
    device = pick_device(asked.device).type
    parameters = list(start.model.parameters())
    first = job.plan.epoch(0)[0]
    return Forecast(
        kind=job.world.kind or "alone",
        rank=job.world.rank,
        n_processes=job.world.size,
        steps=total_steps(job.settings, steps_per_epoch=job.plan.steps_per_epoch),
        batch_size=max(len(rows) for rows in first.values()),
        n_parts=len(list(micro_batches(first, job))),
        n_parameters=sum(p.numel() for p in parameters),
        n_trained=sum(p.numel() for p in parameters if p.requires_grad),
        device=device,
        memory=estimate_memory(start.model, job, device),
    )
