"""Unlearning as a step: a method makes the target forget."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.records import SubjectSpec
from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.methods import find_method
from vestige.methods.base import Method
from vestige.models.load import LoadedModel, ModelSettings, load
from vestige.models.prompts import Prompter
from vestige.steps.finetune import items_digest
from vestige.steps.making import Made, make_subject, same_weights
from vestige.training.adapters import add_lora, merge_lora
from vestige.training.batching import Row, RowSource, Split, UnlearnPlan, row_of
from vestige.training.checkpoints import Checkpoints
from vestige.training.loop import Hooks, Job, Outcome, Progress, train
from vestige.training.reference import reference_rows
from vestige.training.settings import UnlearningSettings
from vestige.training.step import Needs, ReferenceRow

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
    settings = request.training
    _check_sizes(request, method.needs)
    plan = UnlearnPlan(
        n_forget=len(request.forget_items),
        n_retain=len(request.retain_items) if "retain" in method.needs.splits else 0,
        n_idk=len(request.idk) if "idk" in method.needs.splits else 0,
        batch_size=settings.batch_size,
        seed=request.seed,
    )
    rows = _rows(target.prompter, request)
    read_by = _reference(request, target)
    references = _references(read_by, method.needs, plan, rows, settings.epochs)
    if settings.lora_rank:
        add_lora(target.model, settings, request.seed)
    job = Job(
        objective=method,
        rows=rows,
        plan=plan,
        settings=settings,
        seed=request.seed,
        references=references,
        checkpoints=Checkpoints(folder.checkpoints),
        log=folder.training_log,
    )
    outcome = train(target.model, job, Hooks(on_step))
    merge_lora(target.model)
    target.model.eval()
    return target, outcome


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


def _check_sizes(request: UnlearnRequest, needs: Needs) -> None:
    if not request.forget_items:
        raise InputError(f"the forget set {request.forget!r} holds no items")
    if "retain" in needs.splits and not request.retain_items:
        raise InputError(f"method {request.method!r} needs a retain set, and there are no retain items")
    if "idk" in needs.splits and not request.idk:
        raise InputError(f"method {request.method!r} needs answers that decline to know, and there are none")


def _rows(prompter: Prompter, request: UnlearnRequest) -> RowSource:
    """Rows by split and number, encoded when first asked for: few of the IDK pairs are ever drawn."""
    encoded: dict[tuple[Split, int], Row] = {}

    def row(split: Split, number: int) -> Row:
        if (split, number) not in encoded:
            encoded[split, number] = row_of(prompter.encode(*_pair(request, split, number)))
        return encoded[split, number]

    return {
        "forget": lambda i: row("forget", i),
        "retain": lambda i: row("retain", i),
        "idk": lambda i: row("idk", i),
    }


def _pair(request: UnlearnRequest, split: Split, number: int) -> tuple[str, str]:
    if split == "idk":
        question, line = divmod(number, len(request.idk))
        return request.forget_items[question].question, request.idk[line]
    item = (request.forget_items if split == "forget" else request.retain_items)[number]
    return item.question, item.answer


def _references(
    reference: LoadedModel, needs: Needs, plan: UnlearnPlan, rows: RowSource, epochs: int
) -> dict[str, ReferenceRow]:
    """Reference quantities of every row that the plan will draw."""
    found: dict[str, ReferenceRow] = {}
    for splits, whole in ((needs.distributions, True), (needs.reference - needs.distributions, False)):
        drawn: Sequence[Row] = [
            rows[s](i)
            for epoch in range(epochs)
            for batch in plan.epoch(epoch)
            for s in sorted(splits)
            for i in batch[s]
        ]
        if drawn:
            found |= reference_rows(reference.model, drawn, distributions=whole)
    return found
