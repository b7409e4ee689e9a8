"""What a training would take, without training: its steps, how its batches are cut, and the memory by a formula.

Sizes are in bytes, and for one process of those that train together.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from vestige.artifacts.layout import SubjectFolder
from vestige.core.errors import InputError
from vestige.methods import build_method
from vestige.methods.base import FromStart
from vestige.models.load import LoadedModel, ModelSettings, outline, pick_device
from vestige.models.tiny import TINY_MODELS, shape_of, tiny_tokenizer
from vestige.steps.finetune import FinetuneRequest, check_tiny, finetuning_job
from vestige.steps.unlearn import UnlearnRequest, recipe_asked, unlearning_job
from vestige.training.backward import micro_batches
from vestige.training.checkpoints import TrainingJob
from vestige.training.loop import refuse_unsound, total_steps
from vestige.training.parallel import World
from vestige.training.settings import TrainingSettings

# Dettmers et al., 2110.02861, as bitsandbytes does it: blocks of 256 numbers with a scale of 32 bits each, and plain
# moments for tensors that are smaller than this.
_PLAIN_BELOW, _BLOCK = 4096, 256
_STATES_A_BLOCK = 16
"""Hidden states that a token leaves in a block: about what a Llama block keeps for the way back."""
_VOCABULARIES_A_LABEL = 3
"""Rows of logits in float32 that a position under loss leaves: logits, log-probabilities, and their gradient."""


@dataclass(frozen=True)
class Memory:
    """A training's memory (bytes): weights, gradients and moments, which are counted, and activations by a formula."""

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    peak: int
    """All of it at one time."""


def estimate_memory(model: PreTrainedModel, job: TrainingJob) -> Memory:
    """The memory of `train(model, job)`; only the shapes of `model` are read, so that it may lie on the meta device.

    Activations are those of the first epoch's heaviest part: tokens times blocks times `_STATES_A_BLOCK` hidden states,
    and `_VOCABULARIES_A_LABEL` rows of logits a label. A reference copy that a method asks is not counted. What `train`
    would refuse is refused here too.
    """
    refuse_unsound(model, job.settings, job.world.kind)
    trained = [p for p in model.parameters() if p.requires_grad]
    shares = job.world.size if job.world.kind == "fsdp" else 1
    parts = (part for batch in job.plan.epoch(0) for part in micro_batches(batch, job))
    rows = ([row for whole in part.values() for row in whole.rows] for part in parts)
    parameters = -(-sum(p.nbytes for p in model.parameters()) // shares)
    gradients = -(-sum(p.nbytes for p in trained) // shares)
    optimizer = -(-sum(_moments(p, job.settings) for p in trained) // shares)
    activations = max(
        _activations(model, job, sum(len(r.ids) for r in part), sum(r.n_tokens for r in part)) for part in rows
    )
    return Memory(parameters, gradients, optimizer, activations, parameters + gradients + optimizer + activations)


def _activations(model: PreTrainedModel, job: TrainingJob, n_tokens: int, n_labels: int) -> int:
    config = model.config.get_text_config()
    states = _STATES_A_BLOCK * int(config.num_hidden_layers)
    if job.settings.gradient_checkpointing:
        # What goes into each block, and one block at a time in full.
        states = int(config.num_hidden_layers) + _STATES_A_BLOCK
    width = 2 if job.settings.precision == "bfloat16" else 4
    hidden, vocabulary = int(config.hidden_size), int(config.vocab_size)
    return width * n_tokens * states * hidden + 4 * n_labels * _VOCABULARIES_A_LABEL * vocabulary


def _moments(parameter: nn.Parameter, settings: TrainingSettings) -> int:
    n = parameter.numel()
    if settings.optimizer == "adamw_8bit":
        return 2 * (n + 4 * -(-n // _BLOCK)) if n >= _PLAIN_BELOW else 8 * n
    return 2 * parameter.nbytes


def untrained_shape(config: PreTrainedConfig, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """A model of that shape without weights, on the meta device."""
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return model


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
    if (name := request.model.model) in TINY_MODELS:
        check_tiny(request.model, request.vocabulary)
        start = LoadedModel(untrained_shape(shape_of(name)), tiny_tokenizer(request.vocabulary), name, "")
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
        raise InputError(f"method {request.method!r} trains nothing, so there is nothing to estimate")
    target = outline(request.target)
    return _forecast(target, unlearning_job(NOWHERE, request, method, target, world, planned=True), request.target)


def _forecast(start: LoadedModel, job: TrainingJob, settings: ModelSettings) -> Forecast:
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
        device=pick_device(settings.device).type,
        memory=estimate_memory(start.model, job),
    )
