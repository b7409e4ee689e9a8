"""Fine-tuning as a step: a model learns the items' answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.records import SubjectSpec
from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.models.load import LoadedModel, ModelSettings, load, pick_device
from vestige.models.scoring import score_answers
from vestige.models.tiny import tiny_model, tiny_tokenizer
from vestige.steps.making import Made, make_subject
from vestige.training.adapters import add_lora, merge_lora
from vestige.training.batching import FinetunePlan, row_of
from vestige.training.checkpoints import Checkpoints
from vestige.training.finetune import Finetune
from vestige.training.job import Job
from vestige.training.loop import Hooks, Outcome, Progress, train
from vestige.training.settings import TrainingSettings

VERSION = 1
"""Raised when the same identity would come out as other weights."""


@dataclass(frozen=True)
class FinetuneRequest:
    """What to train on which items.

    `vocabulary` is the text that a built-in tiny model's tokeniser is trained on; it is shared by the subjects of a
    run, so it may hold more items than are trained on. `role` and `forget` say what the subject is in its run.
    """

    model: ModelSettings
    items: tuple[Item, ...]
    vocabulary: tuple[Item, ...]
    training: TrainingSettings
    seed: int
    role: str = "target"
    name: str = "target"
    forget: str = ""


def items_digest(items: Sequence[Item]) -> str:
    """Content id of the items in their order."""
    return content_id([i.id for i in items], length=32)


def starting_model(model: ModelSettings, vocabulary: Sequence[Item], seed: int) -> LoadedModel:
    """The model that training starts from; `builtin:tiny` is made here."""
    if model.model != "builtin:tiny":
        return load(model)
    if not vocabulary:
        raise InputError("builtin:tiny makes its tokeniser from data, and there are no items")
    made = tiny_model(seed)
    nn.Module.to(made, pick_device(model.device))
    return LoadedModel(made.eval(), tiny_tokenizer(vocabulary), model.model, "")


def finetune_spec(request: FinetuneRequest, parent: str) -> SubjectSpec:
    """The identity of what the request makes from the weights of digest `parent`."""
    settings = {**model_identity(request.model), **request.training.identity()}
    return SubjectSpec(
        subject=request.role,
        name=request.name,
        model=request.model.model,
        method="",
        forget=request.forget,
        seed=request.seed,
        settings_id=content_id(settings),
        settings=settings,
        data=_data_digest(request.model, request.items, request.vocabulary),
        parent=parent,
        version=VERSION,
    )


def model_identity(model: ModelSettings) -> dict[str, Any]:
    """The settings of a model that can change its numbers; the device is not promised to keep them."""
    return {k: v for k, v in model.identity().items() if k != "device"}


def _data_digest(model: ModelSettings, items: Sequence[Item], vocabulary: Sequence[Item]) -> str:
    trained = items_digest(items)
    if model.model != "builtin:tiny":
        return trained
    # The tokeniser is trained on paraphrases too, which are no part of an item's id.
    return content_id([trained, [[i.question, i.paraphrase, i.answer] for i in vocabulary]], length=32)


def finetune(
    folder: SubjectFolder, request: FinetuneRequest, on_step: Callable[[Progress], None] = lambda _: None
) -> Made:
    """The fine-tuned subject in `folder`; resumes, and does nothing when it is there."""
    start = starting_model(request.model, request.vocabulary, request.seed)
    return make_subject(folder, finetune_spec(request, start.digest()), lambda: _train(folder, request, start, on_step))


def untrained(folder: SubjectFolder, model: ModelSettings, vocabulary: Sequence[Item], seed: int) -> Made:
    """The model that fine-tuning would start from, kept as the subject `base`."""
    settings = model_identity(model)
    spec = SubjectSpec(
        subject="base",
        name="base",
        model=model.model,
        method="",
        forget="",
        seed=seed,
        settings_id=content_id(settings),
        settings=settings,
        data=_data_digest(model, (), vocabulary),
        parent="",
        version=VERSION,
    )

    def build() -> tuple[LoadedModel, Outcome]:
        return starting_model(model, vocabulary, seed), Outcome(0, "untrained", 0.0)

    return make_subject(folder, spec, build)


def _train(
    folder: SubjectFolder,
    request: FinetuneRequest,
    start: LoadedModel,
    on_step: Callable[[Progress], None],
) -> tuple[LoadedModel, Outcome]:
    settings = request.training
    encoded = [start.prompter.encode(i.question, i.answer) for i in request.items]
    rows = [row_of(e, loss_on=settings.loss_on) for e in encoded]
    if settings.lora_rank:
        add_lora(start.model, settings, request.seed)
    lengths = tuple(len(r.ids) for r in rows) if settings.bucket else None
    job = Job(
        objective=Finetune(),
        rows={"train": rows.__getitem__},
        plan=FinetunePlan(len(rows), settings.batch_size, request.seed, lengths),
        settings=settings,
        seed=request.seed,
        checkpoints=Checkpoints(folder.checkpoints),
        log=folder.training_log,
    )

    def stop(_: Progress) -> str | None:
        if not settings.stop_when_exact:
            return None
        return "every training answer is exact" if _all_exact() else None

    def _all_exact() -> bool:
        start.model.eval()
        # In parts, since early in training the first part already says no.
        for first in range(0, len(encoded), 64):
            scores = score_answers(start.model, encoded[first : first + 64])
            if any(rank != 1 for s in scores for rank in s.ranks) or any(s.end_rank != 1 for s in scores):
                return False
        return True

    outcome = train(start.model, job, Hooks(on_step, stop))
    merge_lora(start.model)
    start.model.eval()
    return start, outcome
