"""What a training would take, without training: its steps, how its batches are cut, and the memory by a formula.

Sizes are in bytes, and for one process of those that train together.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from vestige.artifacts.layout import SubjectFolder
from vestige.core.errors import InputError
from vestige.methods import build_method
from vestige.methods.base import FromStart
from vestige.models.load import LoadedModel, outline
from vestige.models.tiny import TINY_MODELS, shape_of, tiny_tokenizer
from vestige.steps.finetune import FinetuneRequest, check_tiny, finetuning_job
from vestige.steps.unlearn import UnlearnRequest, recipe_asked, unlearning_job
from vestige.training.backward import micro_batches
from vestige.training.checkpoints import TrainingJob
from vestige.training.loop import refuse_rounding, refuse_unsound, total_steps
from vestige.training.parallel import World
from vestige.training.settings import TrainingSettings

_STATES_A_BLOCK = 16
"""Hidden states that a token leaves in a block: about what a Llama block keeps for the way back."""
_VOCABULARIES_A_LABEL = 3
"""Rows of logits in float32 that a position under loss leaves: logits, log-probabilities, and their gradient."""


@dataclass(frozen=True)
class Forecast:
    """What one training takes: steps, rows of the largest effective batch, parameters, and the memory of one process.

    Weights, gradients and moments are counted; activations are those of the first epoch's heaviest part, by a formula.
    """

    steps: int
    batch_size: int
    n_parameters: int
    n_trained: int
    parameters: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def peak(self) -> int:
        """All of it at one time."""
        return self.parameters + self.gradients + self.optimizer + self.activations


def forecast(model: PreTrainedModel, job: TrainingJob) -> Forecast:
    """What `train(model, job)` takes; only the shapes of `model` are read, so that it may lie on the meta device.

    A reference copy that a method asks is not counted. What `train` would refuse is refused here too.
    """
    settings = job.settings
    refuse_unsound(model, settings, job.world.kind)
    refuse_rounding(model)
    every = list(model.parameters())
    trained = [p for p in every if p.requires_grad]
    batches = job.plan.epoch(0)
    parts = (part for batch in batches for part in micro_batches(batch, job))
    # What a method reads of several splits goes through the model in one part.
    rows = ([row for whole in part.values() for row in whole.rows] for part in parts)
    heaviest = max(
        _activations(model, settings, sum(len(r.ids) for r in part), sum(r.n_tokens for r in part)) for part in rows
    )
    # Two moments of 8 bits and their scales (Dettmers et al., 2110.02861), or of the parameters' own width.
    moments = sum(p.numel() if settings.optimizer == "adamw_8bit" else p.nbytes for p in trained)
    # Only there does a process hold a part of the weights; with ddp each has all.
    shares = job.world.size if job.world.kind == "fsdp" else 1
    return Forecast(
        total_steps(settings, steps_per_epoch=job.plan.steps_per_epoch),
        max(len(rows) for rows in batches[0].values()),
        sum(p.numel() for p in every),
        sum(p.numel() for p in trained),
        -(-sum(p.nbytes for p in every) // shares),
        -(-sum(p.nbytes for p in trained) // shares),
        -(-2 * moments // shares),
        heaviest,
    )


def _activations(model: PreTrainedModel, settings: TrainingSettings, n_tokens: int, n_labels: int) -> int:
    """Tokens times blocks times `_STATES_A_BLOCK` hidden states, and `_VOCABULARIES_A_LABEL` rows of logits a label."""
    config = model.config.get_text_config()
    states = _STATES_A_BLOCK * int(config.num_hidden_layers)
    if settings.gradient_checkpointing:
        # What goes into each block, and one block at a time in full.
        states = int(config.num_hidden_layers) + _STATES_A_BLOCK
    width = 2 if settings.precision == "bfloat16" else 4
    hidden, vocabulary = int(config.hidden_size), int(config.vocab_size)
    return width * n_tokens * states * hidden + 4 * n_labels * _VOCABULARIES_A_LABEL * vocabulary


def untrained_shape(config: PreTrainedConfig, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """A model of that shape without weights, on the meta device."""
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return model


NOWHERE = SubjectFolder(Path("dry-run"))
"""A plan names a folder, and nothing is written to it."""


def forecast_finetuning(request: FinetuneRequest, world: World) -> Forecast:
    """What the fine-tuning takes."""
    if (name := request.model.model) in TINY_MODELS:
        check_tiny(request.model, request.vocabulary)
        start = LoadedModel(untrained_shape(shape_of(name)), tiny_tokenizer(request.vocabulary), name, "")
    else:
        start = outline(request.model)
    encoded = [start.prompter.encode(i.question, i.answer) for i in request.items]
    return forecast(start.model, finetuning_job(NOWHERE, request, start, encoded, world))


def forecast_unlearning(request: UnlearnRequest, world: World) -> Forecast:
    """What the unlearning takes."""
    method = build_method(request.method, request.method_settings)
    if isinstance(method, FromStart):
        return forecast_finetuning(recipe_asked(request).request, world)
    if not method.needs.splits:
        raise InputError(f"method {request.method!r} trains nothing, so there is nothing to estimate")
    target = outline(request.target)
    return forecast(target.model, unlearning_job(NOWHERE, request, method, target, world, planned=True))
