"""Unlearning as a step: a method makes the target forget."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.records import SubjectSpec
from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.methods import find_method
from vestige.methods.base import AsksTarget, Method
from vestige.models.blocks import blocks, output_projection
from vestige.models.load import LoadedModel, ModelSettings, load
from vestige.steps.finetune import items_digest
from vestige.steps.forget_rows import ForgetData, alternatives, mismatched
from vestige.steps.making import Made, make_subject, same_weights
from vestige.training.adapters import add_lora, merge_lora, train_only
from vestige.training.batching import Row, RowSource, Split, UnlearnPlan
from vestige.training.checkpoints import Checkpoints
from vestige.training.job import Job
from vestige.training.loop import Hooks, Outcome, Progress, train
from vestige.training.reference import reference_activations, reference_rows
from vestige.training.settings import UnlearningSettings
from vestige.training.step import Layers, Needs, ReadsLayer, ReferenceRow

VERSION = 1
"""Raised when the same identity would come out as other weights."""


@dataclass(frozen=True)
class UnlearnRequest:
    """What to forget, by which method, and what to keep meanwhile.

    `target_weights` is the digest of the target's weights, `reference_weights` that of another reference's. `idk` holds
    the answers that decline to know. `reference` is the frozen model inside the losses: the target itself, unless
    another is named (PISTOL's released code takes the pretrained one, which never knew the retain set either).
    """

    target: ModelSettings
    target_weights: str
    start: str
    method: str
    method_settings: dict[str, Any]
    forget: str
    forget_items: tuple[Item, ...]
    retain_items: tuple[Item, ...]
    idk: tuple[str, ...]
    training: UnlearningSettings
    seed: int
    reference: ModelSettings | None = None
    reference_weights: str = ""

    @property
    def name(self) -> str:
        """What people call the subject."""
        return f"{self.method} {self.forget}"


def unlearn_spec(request: UnlearnRequest) -> SubjectSpec:
    """The identity of what the request makes."""
    kind = find_method(request.method)
    method = kind.build(request.method_settings, where=f"method {request.method}")
    settings = {
        "dtype": request.target.dtype,
        **request.training.identity(),
        **{f"{request.method}.{k}": v for k, v in method.identity().items()},
        "method_version": kind.version,
        "reference": request.reference_weights if request.reference else "target",
    }
    data = [items_digest(request.forget_items), items_digest(request.retain_items), list(request.idk)]
    return SubjectSpec(
        subject="unlearned",
        name=request.name,
        model=request.start,
        method=request.method,
        forget=request.forget,
        seed=request.seed,
        settings_id=content_id(settings),
        settings=settings,
        data=content_id(data, length=32),
        parent=request.target_weights,
        version=VERSION,
    )


def unlearn(
    folder: SubjectFolder, request: UnlearnRequest, on_step: Callable[[Progress], None] = lambda _: None
) -> Made:
    """The unlearned subject in `folder`; resumes, and does nothing when it is there."""

    def build() -> tuple[LoadedModel, Outcome]:
        method = find_method(request.method).build(request.method_settings, where=f"method {request.method}")
        target = load(request.target)
        same_weights(target, request.target_weights, "the target")
        return _train(folder, request, method, target, on_step)

    return make_subject(folder, unlearn_spec(request), build)


def _train(
    folder: SubjectFolder,
    request: UnlearnRequest,
    method: Method,
    target: LoadedModel,
    on_step: Callable[[Progress], None],
) -> tuple[LoadedModel, Outcome]:
    settings, model = request.training, target.model
    data = _data(request, method, target)
    plan = data.plan(method.needs, batch_size=settings.batch_size, seed=request.seed)
    rows = data.rows(target.prompter)
    layers = _layers(method, target)
    references = _references(_reference(request, target), method.needs, plan, rows, settings.epochs, layers)
    if layers is not None:
        train_only(model, layers, settings, request.seed)
    elif settings.lora_rank:
        add_lora(model, settings, request.seed)
    job = Job(
        objective=method,
        rows=rows,
        plan=plan,
        settings=settings,
        seed=request.seed,
        references=references,
        checkpoints=Checkpoints(folder.checkpoints),
        log=folder.training_log,
        layer=layers.read if layers else None,
    )
    outcome = train(model, job, Hooks(on_step))
    merge_lora(model)
    model.eval()
    return target, outcome


def _layers(method: Method, target: LoadedModel) -> Layers | None:
    if not isinstance(method, ReadsLayer):
        return None
    every = blocks(target.model)
    return method.layers(len(every), output_projection(every[0]))


def _reference(request: UnlearnRequest, target: LoadedModel) -> LoadedModel:
    if request.reference is None:
        return target
    found = load(request.reference)
    same_weights(found, request.reference_weights, "the reference")
    if found.tokenizer.get_vocab() != target.tokenizer.get_vocab():
        raise InputError(
            f"the reference {found.name} has another vocabulary than the target, so its numbers cannot be compared "
            "with the target's; take a reference of the same family"
        )
    return found


def _data(request: UnlearnRequest, method: Method, target: LoadedModel) -> ForgetData:
    """The items, and the answers of the further splits that the method reads."""
    splits = method.needs.splits
    if not request.forget_items:
        raise InputError(f"the forget set {request.forget!r} holds no items")
    if "retain" in splits and not request.retain_items:
        raise InputError(f"method {request.method!r} needs a retain set, and there are no retain items")
    if "idk" in splits and not request.idk:
        raise InputError(f"method {request.method!r} needs answers that decline to know, and there are none")
    answers: dict[Split, tuple[tuple[str, ...], ...]] = {}
    if "idk" in splits:
        answers["idk"] = (request.idk,) * len(request.forget_items)
    if "mismatch" in splits:
        answers["mismatch"] = mismatched(request.forget_items, request.retain_items)
    if isinstance(method, AsksTarget):
        answers["alternative"] = alternatives(target, request.forget_items, method.alternatives(), seed=request.seed)
    return ForgetData(request.forget_items, request.retain_items, answers)


def _references(
    reference: LoadedModel, needs: Needs, plan: UnlearnPlan, rows: RowSource, epochs: int, layers: Layers | None
) -> dict[str, ReferenceRow]:
    """Reference quantities of every row that the plan will draw."""

    def drawn(splits: frozenset[Split]) -> list[Row]:
        batches = (batch for epoch in range(epochs) for batch in plan.epoch(epoch))
        return [rows[s](i) for batch in batches for s in sorted(splits) for i in batch[s]]

    found: dict[str, ReferenceRow] = {}
    for splits, whole in ((needs.distributions, True), (needs.reference - needs.distributions, False)):
        if splits:
            found |= reference_rows(reference.model, drawn(splits), distributions=whole)
    if layers is not None and needs.reference_activations:
        found |= reference_activations(reference.model, drawn(needs.reference_activations), layer=layers.read)
    return found
