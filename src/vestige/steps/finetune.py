"""Fine-tuning as a step: a model learns the items' answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.records import SubjectSpec
from vestige.core.errors import InputError
from vestige.core.items import ForgetSet, Item, ItemTuple, taught_digest
from vestige.methods.imitate import Imitate
from vestige.models.load import LoadedModel, ModelSettings, load, pick_device
from vestige.models.places import find, is_adapter
from vestige.models.prompts import Encoded
from vestige.models.scoring import score_answers
from vestige.models.tiny import TINY_MODELS, tiny_model, tiny_tokenizer
from vestige.steps.making import Form, Made, Saving, make_subject
from vestige.training.adapters import adapter_of, add_lora, merge_lora
from vestige.training.batching import FinetunePlan, RowSource, row_of
from vestige.training.checkpoints import Checkpoints, Finetune, TrainingJob
from vestige.training.loop import Hooks, Progress, TrainingEnd, train
from vestige.training.parallel import ALONE, World
from vestige.training.reference import references
from vestige.training.settings import TrainingSettings
from vestige.training.step import Objective, ReferenceRow

VERSION = 3
"""Raised when the same identity would come out as other weights."""


@dataclass(frozen=True)
class FinetuneRequest:
    """The model, the items and the settings of a training.

    `vocabulary` is the text that a built-in tiny model's tokeniser is trained on. All models of a run share it, so it
    can contain more items than the training. `role` and `forget` describe the model in its run. `save` is the form of
    its files. `forgotten` are the omitted items, after the earlier ones of `model`.
    """

    model: ModelSettings
    items: ItemTuple
    vocabulary: ItemTuple
    training: TrainingSettings
    seed: int
    role: str = "target"
    name: str = "target"
    forget: str = ""
    save: Form = "merged"
    forgotten: tuple[ForgetSet, ...] = ()
    imitated: Callable[[], LoadedModel] | None = None
    """Loads the model whose distributions on the answers are taught in place of the tokens (`methods.imitate`)."""
    imitated_digest: str = ""


def starting_model(model: ModelSettings, vocabulary: Sequence[Item], seed: int) -> LoadedModel:
    """The model that training starts from. Built-in tiny ones are made here."""
    if model.model not in TINY_MODELS:
        return load(model)
    check_tiny(model, vocabulary)
    tiny = tiny_model(seed, model.model)
    nn.Module.to(tiny, pick_device(model.device))
    return LoadedModel(tiny.eval(), tiny_tokenizer(vocabulary), model.model, "")


def check_tiny(model: ModelSettings, vocabulary: Sequence[Item]) -> None:
    """Reject a request that a built-in tiny model does not support."""
    if not vocabulary:
        raise InputError(f"{model.model} needs data for its tokeniser, and there are no items. Give data")
    if model.dtype != "float32":
        raise InputError(f"{model.model} is made in float32 and not in {model.dtype}. Leave --dtype out")


def finetune_spec(request: FinetuneRequest, parent: str) -> SubjectSpec:
    """Return the identity of the request's result from the model of digest `parent`."""
    settings = {**model_identity(request.model), **request.training.identity()}
    if request.imitated is not None:
        settings |= {"imitates": request.imitated_digest, "method_version": Imitate.version}
    return SubjectSpec.of(
        request.role,
        request.name,
        request.model.model,
        settings,
        forget=request.forget,
        seed=request.seed,
        data=_data_digest(request.model, request.items, request.vocabulary),
        parent=parent,
        version=VERSION,
        forgotten=request.forgotten,
    )


_UNSAID = ("chat_template", "base", "tokenizer")
"""Settings that are not part of a model's identity if they are empty."""


def model_identity(model: ModelSettings) -> dict[str, Any]:
    """The settings of a model that can change its numbers. The device is not promised to keep them."""
    return {k: v for k, v in model.identity().items() if k != "device" and (v or k not in _UNSAID)}


def _data_digest(model: ModelSettings, items: Sequence[Item], vocabulary: Sequence[Item]) -> str:
    # Only tiny models make their tokeniser from data. For others, the data is not part of the identity.
    return taught_digest(items, vocabulary if model.model in TINY_MODELS else ())


def finetune(
    folder: SubjectFolder,
    request: FinetuneRequest,
    on_step: Callable[[Progress], None] = lambda _: None,
    world: World = ALONE,
) -> Made:
    """The fine-tuned subject in `folder`. Resumes, and does nothing when it is there."""
    start = starting_model(request.model, request.vocabulary, request.seed)
    spec = finetune_spec(request, start.digest().id)
    if request.save == "adapter":
        if not request.training.lora_rank:
            raise InputError("lora_rank 0 trains no adapter. Take --save merged, or a lora_rank")
        if request.model.model in TINY_MODELS or is_adapter(find(request.model.model)[0]):
            raise InputError(
                f"an adapter needs a model that can be loaded, and {request.model.model} is made from data or is "
                "an adapter itself: --save merged"
            )
    saving, hooks = Saving(form=request.save), Hooks(on_step)
    return make_subject(folder, spec, lambda: teach(folder, request, start, hooks, world, saving), world, saving)


def untrained(folder: SubjectFolder, model: ModelSettings, vocabulary: Sequence[Item], seed: int) -> Made:
    """The model that fine-tuning would start from, kept as the subject `base`."""
    data = _data_digest(model, (), vocabulary)
    spec = SubjectSpec.of("base", "base", model.model, model_identity(model), seed=seed, data=data, version=VERSION)
    end = TrainingEnd(0, "untrained", 0.0)
    return make_subject(folder, spec, lambda: (starting_model(model, vocabulary, seed), end))


def finetuning_job(
    folder: SubjectFolder, request: FinetuneRequest, start: LoadedModel, encoded: Sequence[Encoded], world: World
) -> TrainingJob:
    """Return the training job. The model gets adapters."""
    settings = request.training
    rows = [row_of(e, loss_on=settings.loss_on) for e in encoded]
    if settings.lora_rank:
        add_lora(start.model, settings, request.seed)
    lengths = tuple(len(r.ids) for r in rows) if settings.bucket else None
    plan = FinetunePlan(len(rows), settings.batch_size, request.seed, lengths)
    sources: RowSource = {"train": rows.__getitem__}
    objective: Objective = Finetune()
    if request.imitated is not None:
        objective = Imitate()
    return TrainingJob(
        objective=objective,
        rows=sources,
        plan=plan,
        settings=settings,
        seed=request.seed,
        references=_imitated(request, start, plan, sources),
        checkpoints=Checkpoints(folder.checkpoints),
        log=folder.training_log,
        world=world,
    )


def _imitated(
    request: FinetuneRequest, start: LoadedModel, plan: FinetunePlan, sources: RowSource
) -> dict[str, ReferenceRow]:
    """The distributions that are taught, computed once: the other model need not stay in memory."""
    if request.imitated is None:
        return {}
    other = request.imitated()
    # Contents are compared: two vocabularies of one size may give one id to different tokens.
    if other.tokenizer.get_vocab() != start.tokenizer.get_vocab():
        raise InputError(
            f"The model {other.name} has another vocabulary, so its distributions cannot be imitated. Name a model "
            "of the same family."
        )
    return references(other.model, Imitate.needs, plan, sources, request.training)


def teach(
    folder: SubjectFolder,
    request: FinetuneRequest,
    start: LoadedModel,
    hooks: Hooks,
    world: World = ALONE,
    saving: Saving | None = None,
) -> tuple[LoadedModel, TrainingEnd]:
    """Train `start` in place by the request, whatever the request's own initial model.

    Log and checkpoints are in `folder`. It goes on from those that are there.
    """
    settings = request.training
    encoded = [start.prompter.encode(i.question, i.answer) for i in request.items]
    job = finetuning_job(folder, request, start, encoded, world)

    def stop(now: Progress, model: PreTrainedModel) -> str | None:
        if not (settings.stop_when_exact and now.ends_epoch):
            return None
        # The mode is not restored here: the loop's next step does that.
        model.eval()
        # The check is done in parts, since early in training the first part already fails.
        for first in range(0, len(encoded), 64):
            if not all(score.exact for score in score_answers(model, encoded[first : first + 64])):
                return None
        return "every training answer is exact"

    outcome = train(start.model, job, replace(hooks, stop=stop))
    if saving and saving.form == "adapter":
        saving.adapter = adapter_of(start.model, base=request.model.model)
    merge_lora(start.model)
    start.model.eval()
    return start, outcome
