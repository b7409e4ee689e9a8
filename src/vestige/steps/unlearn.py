"""Unlearning as a step: a method makes the target forget, from rows by split, a plan that draws them, and answers.

Task arithmetic (`scale_update`) gives start + factor x (trained - start), weight by weight. The difference of a
fine-tuned model's weights and those that it began with is its task vector (Ilharco et al., Editing Models with Task
Arithmetic, 2212.04089): a factor of 1 is the trained model, 0 the start, -1 takes the task away.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from transformers import PreTrainedModel

from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.records import SubjectSpec, forgotten_by
from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.items import ForgetSet, Item, ItemTuple, items_digest
from vestige.core.seeds import derive_seed
from vestige.core.text import Fields, Record, TextByName, TextTuple, one_line
from vestige.data.corpus import NamedSplits, idk_answers
from vestige.methods import build_method
from vestige.methods.base import Alternatives, AsksTarget, FromStart, Method, ScalesUpdate
from vestige.metrics.answers import normalised
from vestige.models.blocks import blocks, output_projection
from vestige.models.generation import Sampling, generate
from vestige.models.load import LoadedModel, ModelSettings, finite_logits, load
from vestige.models.places import find, is_adapter
from vestige.models.prompts import Prompter
from vestige.steps.controls import Recipe
from vestige.steps.finetune import finetune_spec, teach
from vestige.steps.making import Form, Made, Saving, make_subject, pick_form, shown_model
from vestige.steps.subjects import load_checked, origin_of
from vestige.steps.trajectory import TrajectoryRequest
from vestige.training.adapters import adapter_of, add_lora, merge_lora, train_only
from vestige.training.batching import SPLITS, Row, RowSource, Split, UnlearnPlan, row_of
from vestige.training.checkpoints import Checkpoints, TrainingJob
from vestige.training.loop import Hooks, Progress, TrainingEnd, train
from vestige.training.parallel import ALONE, World
from vestige.training.reference import references
from vestige.training.settings import UnlearningSettings
from vestige.training.step import Layers, ReadsLayer
from vestige.training.trajectory import Trajectory

ROUNDS = 16
"""The number of samples of each question before the search for other answers ends."""


def mismatched(forget: Sequence[Item], retain: Sequence[Item]) -> tuple[TextTuple, ...]:
    """Return retained answers for each forget question. Its own answer is replaced by the next one."""
    # Duplicates are removed, since a frequent answer would be taught more often than the others.
    pool = tuple({normalised(i.answer): i.answer for i in retain}.values())
    if len(pool) < 2:
        raise InputError(
            f"answers to other questions are needed, and the retain set holds {len(pool)} different ones. "
            "Give a retain set with at least two"
        )

    after = dict(zip(pool, (*pool[1:], pool[0]), strict=True))
    answers = []
    for item in forget:
        own = normalised(item.answer)
        answers.append(tuple(after[text] if normalised(text) == own else text for text in pool))
    return tuple(answers)


def alternatives(
    target: LoadedModel, forget: Sequence[Item], settings: Alternatives, *, seed: int, world: World = ALONE
) -> tuple[TextTuple, ...]:
    """For each forget question `asked.n` answers that the target gives itself and that are not the true one.

    Sampled, `ROUNDS` times at most. Where fewer different ones turn up they are taken in turn. Raises InputError where
    there is none. With several processes one samples, since on a GPU two can sample differently.
    """
    with finite_logits(target):
        texts = [_alternatives(target, item, settings, seed) for item in forget] if world.leads else []
    return tuple(tuple(lines) for lines in json.loads(world.said(json.dumps(texts))))


def _alternatives(target: LoadedModel, item: Item, settings: Alternatives, seed: int) -> TextTuple:
    question = settings.prompt.replace("{question}", item.question).replace("{answer}", item.answer)
    prompt = target.prompter.prompt(question)
    texts_by_form: TextByName = {}
    for attempt in range(ROUNDS):
        replies = generate(
            target.model,
            [prompt] * settings.n,
            end_ids=target.prompter.end_ids,
            max_new_tokens=settings.max_new_tokens,
            context=target.prompter.max_tokens,
            sampling=Sampling(
                settings.temperature,
                1.0,
                tuple(derive_seed(seed, "alternative", item.id, attempt, n) for n in range(settings.n)),
            ),
        )
        for reply in replies:
            text = target.prompter.decode(reply.ids).strip()
            # A reply that was cut off may continue with the true answer.
            if reply.finish == "stop" and normalised(text) not in ("", normalised(item.answer)):
                texts_by_form.setdefault(normalised(text), text)
        if len(texts_by_form) >= settings.n:
            break
    if not texts_by_form:
        raise InputError(
            f"the target gave no other answer to {one_line(item.question, width=60)!r} in {ROUNDS * settings.n} "
            f"samples at temperature {settings.temperature:g}. Raise the method's temperature"
        )
    texts = list(texts_by_form.values())[: settings.n]
    return tuple(texts[n % len(texts)] for n in range(settings.n))


VERSION = 4
"""Raised when the same identity would come out as other weights."""


@dataclass(frozen=True)
class UnlearnRequest:
    """The forget set, the method, and the retain set.

    `target_digest` is the target's, which is also the frozen model inside the losses. `idk` holds the answers that
    decline to know. `recipe` is for a method that trains from the start: how the target was made, less the items to
    forget. It takes the place of `training` and `seed` there. With a `trajectory` the model is scored during training,
    and one checkpoint is kept. `save` is the form of the files: a model of its own, or an adapter for the target.
    `before` are the items that the target itself left out or forgot, the oldest first.
    """

    target: ModelSettings
    target_digest: str
    start: str
    method: str
    method_settings: Fields
    forget: str
    forget_items: ItemTuple
    retain_items: ItemTuple
    idk: TextTuple
    training: UnlearningSettings
    seed: int
    recipe: Recipe | None = None
    trajectory: TrajectoryRequest | None = None
    save: Form = "merged"
    before: tuple[ForgetSet, ...] = ()

    @property
    def forgotten(self) -> tuple[ForgetSet, ...]:
        """Return all items that the model has forgotten in the end."""
        return (*self.before, ForgetSet.of(self.forget, self.forget_items))

    @property
    def name(self) -> str:
        """What people call the subject."""
        return f"{self.method} {self.forget}"


def unlearn_request(
    target: ModelSettings,
    splits: NamedSplits,
    method: str,
    training: Callable[[str], UnlearningSettings],
    *,
    method_settings: Record | None = None,
    seed: int = 0,
    idk: Sequence[str] | None = None,
    recipe: Recipe | None = None,
    save: str = "merged",
) -> UnlearnRequest:
    """An unlearning of the forget set of `splits`.

    `training` makes the settings for a model whose history began with the model of that name. With a `recipe` the
    method trains from the start by that.
    """
    origin = origin_of(target)
    return UnlearnRequest(
        target=target,
        target_digest=origin.digest,
        start=origin.model,
        method=method,
        method_settings=dict(method_settings or {}),
        forget=splits.forget,
        forget_items=splits.splits["forget"],
        retain_items=splits.splits.get("retain", ()),
        idk=idk_answers() if idk is None else tuple(idk),
        training=UnlearningSettings() if recipe else training(origin.model),
        seed=seed,
        recipe=recipe,
        before=forgotten_by(target.model),
        save=pick_form(save),
    )


def unlearn_spec(request: UnlearnRequest) -> SubjectSpec:
    """Return the identity of the request's result."""
    method = build_method(request.method, request.method_settings)
    names: Fields = {
        "name": request.name,
        "method": request.method,
        "forget": request.forget,
        "forgotten": request.forgotten,
    }
    if isinstance(method, FromStart):
        # Training, data and seed are those of the target.
        recipe = recipe_asked(request)
        plain = finetune_spec(recipe.request, recipe.start_digest)
        return plain.having({**plain.settings, "method_version": method.version}, subject="unlearned", **names)
    settings = {
        "dtype": request.target.dtype,
        # A method without training does not depend on training settings.
        **(request.training.identity() if method.needs.splits else {}),
        **{f"{request.method}.{k}": v for k, v in method.identity().items()},
        "method_version": method.version,
        # The frozen model of the losses. Earlier versions could take another.
        "reference": "target",
        **(request.trajectory.whole_identity() if request.trajectory else {}),
    }
    data = [items_digest(request.forget_items), items_digest(request.retain_items), list(request.idk)]
    return SubjectSpec.of(
        "unlearned",
        model=request.start,
        settings=settings,
        seed=request.seed,
        data=content_id(data, length=32),
        parent=request.target_digest,
        version=VERSION,
        **names,
    )


def recipe_asked(request: UnlearnRequest) -> Recipe:
    """Return the target's training, for a method that trains from the start. Raise if it is unknown."""
    if request.recipe is None:
        raise InputError(
            f"method {request.method!r} trains from the start, and the target does not record its training. Name the "
            "model to begin with"
        )
    return request.recipe


def unlearn(
    folder: SubjectFolder,
    request: UnlearnRequest,
    on_step: Callable[[Progress], None] = lambda _: None,
    world: World = ALONE,
) -> Made:
    """The unlearned subject in `folder`. Resumes, and does nothing when it is there."""
    method = build_method(request.method, request.method_settings)
    ends_with_it = method.needs.splits and not isinstance(method, FromStart | ScalesUpdate)
    if request.trajectory and not ends_with_it:
        raise InputError(f"method {request.method!r} does not end with the model that it trains: it has no trajectory")
    if request.save == "adapter" and not (ends_with_it and request.training.lora_rank):
        raise InputError(
            f"method {request.method!r} with lora_rank {request.training.lora_rank} leaves no adapter. Take --save "
            "merged, or a method and a lora_rank that train one"
        )
    if request.save == "adapter" and is_adapter(find(request.target.model)[0]):
        raise InputError(f"{request.target.model} is an adapter itself, and adapters cannot be stacked: --save merged")
    facts = {
        "target": shown_model(request.target.model),
        "target_digest": request.target_digest,
        "forget_items": {"n": len(request.forget_items), "digest": items_digest(request.forget_items)},
        "retain_items": {"n": len(request.retain_items), "digest": items_digest(request.retain_items)},
    }
    saving, hooks = Saving(facts, request.save), Hooks(on_step)
    spec = unlearn_spec(request)
    return make_subject(folder, spec, lambda: _train(folder, request, hooks, world, saving), world, saving)


def _train(
    folder: SubjectFolder, request: UnlearnRequest, hooks: Hooks, world: World, saving: Saving
) -> tuple[LoadedModel, TrainingEnd]:
    method = build_method(request.method, request.method_settings)
    if isinstance(method, FromStart):
        recipe = recipe_asked(request)
        # The result is byte for byte that of `finetune`.
        return teach(folder, recipe.request, recipe.start(), hooks, world)
    target = load_checked(request.target, request.target_digest, "the target")
    if not method.needs.splits:
        return target, TrainingEnd(0, "nothing to train", 0.0)
    model, trajectory, watched = target.model, None, request.trajectory
    if watched is not None:
        trajectory = Trajectory(
            settings=watched.settings,
            score=lambda model: watched.score(replace(target, weights=model)),
            log=folder.trajectory,
            weights=folder.checkpoints,
            world=world,
        )
        # This comes before adapters are added: the rules refer to the unchanged target.
        trajectory.begin(model, watched.controls())
    job = unlearning_job(folder, request, method, target, world)
    outcome = train(model, job, replace(hooks, stop=trajectory.look) if trajectory else hooks)
    if trajectory:
        outcome = replace(outcome, chosen=trajectory.restore(model))
    if saving.form == "adapter":
        saving.adapter = adapter_of(model, base=request.target.model)
    merge_lora(model)
    if isinstance(method, ScalesUpdate):
        # The target is loaded again, since training needs the memory.
        scale_update(model, load(request.target).model, method.update_factor)
    model.eval()
    return target, outcome


def unlearning_job(
    folder: SubjectFolder, request: UnlearnRequest, method: Method, target: LoadedModel, world: World
) -> TrainingJob:
    """Return the training job. The model gets its adapters, or keeps its own parameters for training."""
    settings = request.training
    answers = _answers(request, method, target, world)
    plan = UnlearnPlan(
        n_forget=len(request.forget_items),
        n_retain=len(request.retain_items) if "retain" in method.needs.splits else 0,
        answers={split: len(lines[0]) for split, lines in answers.items()},
        batch_size=settings.batch_size,
        seed=request.seed,
    )
    rows = _rows(request, answers, target.prompter)
    layers: Layers | None = None
    if isinstance(method, ReadsLayer):
        every = blocks(target.model)
        layers = method.layers(len(every), output_projection(every[0]))
    layer = layers.read if layers else None
    reference_rows = references(target.model, method.needs, plan, rows, settings, layer)
    if layers is not None:
        train_only(target.model, layers, settings, request.seed)
    elif settings.lora_rank:
        add_lora(target.model, settings, request.seed)
    return TrainingJob(
        objective=method,
        rows=rows,
        plan=plan,
        settings=settings,
        seed=request.seed,
        references=reference_rows,
        checkpoints=Checkpoints(folder.checkpoints),
        log=folder.training_log,
        layer=layer,
        world=world,
    )


_Answers = dict[Split, tuple[TextTuple, ...]]
"""For each further split the answers of each forget question, of all as many."""


def _rows(request: UnlearnRequest, answers: _Answers, prompter: Prompter) -> RowSource:
    """Return rows by split and number, encoded on first use: most of the possible pairs are never drawn."""
    encoded: dict[tuple[Split, int], Row] = {}

    def row(split: Split, number: int) -> Row:
        if (split, number) not in encoded:
            if split in answers:
                # All lines of the first question come first, then those of the second.
                question, line = divmod(number, len(answers[split][0]))
                item, answer = request.forget_items[question], answers[split][question][line]
            else:
                item = (request.forget_items if split == "forget" else request.retain_items)[number]
                answer = item.answer
            topic = item.edge or item.group or ""
            encoded[split, number] = row_of(prompter.encode(item.question, answer), topic=topic)
        return encoded[split, number]

    return {split: partial(row, split) for split in SPLITS}


def _answers(request: UnlearnRequest, method: Method, target: LoadedModel, world: World) -> _Answers:
    """The answers of the further splits that the method reads."""
    splits = method.needs.splits
    if not request.forget_items:
        raise InputError(f"the forget set {request.forget!r} holds no items. Choose another")
    if "retain" in splits and not request.retain_items:
        raise InputError(
            f"method {request.method!r} needs a retain set, and the data contains only the forget set. Give more "
            "data, name what to keep by --retain, or take a method that reads the forget set alone, as npo does"
        )
    if "idk" in splits and not request.idk:
        raise InputError(f"method {request.method!r} needs refusals, and there are none. Give them with --idk")
    answers: _Answers = {}
    if "idk" in splits:
        answers["idk"] = (request.idk,) * len(request.forget_items)
    if "mismatch" in splits:
        answers["mismatch"] = mismatched(request.forget_items, request.retain_items)
    if isinstance(method, AsksTarget):
        asked = method.alternatives()
        answers["alternative"] = alternatives(target, request.forget_items, asked, seed=request.seed, world=world)
    return answers


@torch.no_grad()
def scale_update(trained: PreTrainedModel, start: PreTrainedModel, factor: float) -> None:
    """Put start + factor x (trained - start) into `trained`. Weights that were not trained keep every bit.

    Adapters have to be merged before. Computed in float32 at least, and rounded once to the weights' own format.
    """
    before = dict(start.named_parameters())
    for name, after in trained.named_parameters():
        wide = torch.promote_types(after.dtype, torch.float32)
        first, last = before[name].to(wide), after.to(wide)
        # At 0 and 1, the sum could miss a weight by rounding, or by the sign of a zero.
        ends = {0.0: first, 1.0: last}
        if factor in ends:
            scaled = ends[factor]
        else:
            scaled = first + factor * (last - first)
        after.copy_(torch.where(last == first, last, scaled))
