"""SISA: a model trained in shards, of which those that hold the forget set are trained again (exact unlearning).

Bourtoule et al., Machine Unlearning, 2021, 1912.03817. The items are dealt into S shards and each shard into R slices.
One constituent a shard is trained from the same start: on slice 1, then on slices 1 and 2, and so on, with its weights
kept after every slice. Together they answer by the mean of their probabilities (`models/ensemble.py`). To forget an
item, its shard's constituent goes back to what was kept before the item's slice and is trained on without it.

What comes out is, byte for byte, what training the ensemble without those items gives: a slice's weights are known by
the identity of all that made them, and only those whose identity stays the same are taken over.

Where this differs from the paper or its code:

- Where an item goes follows from its edge (or its id) and the seed alone. The paper deals out equal parts, so that
  an item's place depends on what else is there, and shards are not what they would be without the forgotten items.
- Every slice has an optimiser and a schedule of its own. The paper's code (cleverhans-lab/machine-unlearning) hands
  the optimiser on in memory and does not keep it, so that forgetting does not repeat the training.
- Epochs are whole numbers, dealt out over the slices as that code does it.

Memory, time to answer, and what is kept grow with S, the last also with R. What a shard teaches one constituent the
others do not know: a fact that is in the data once has one voice of S, so that few shards are better than many.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Literal

from pydantic import PositiveInt
from torch import nn

from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.records import SubjectSpec, read_spec
from vestige.core.errors import InputError
from vestige.core.files import new_folder
from vestige.core.items import ForgetSet, Item
from vestige.core.seeds import derive_seed
from vestige.core.settings import Settings
from vestige.core.store import load as load_record
from vestige.core.store import read_versioned, save
from vestige.core.text import one_line
from vestige.models.ensemble import EnsembleModel
from vestige.models.load import LoadedModel, ModelSettings, load
from vestige.steps.controls import START, Recipe, Taught, recipe_of
from vestige.steps.finetune import FinetuneRequest, finetune_spec, starting_model, teach
from vestige.steps.making import Made, Saving, make_subject, read_done, same_model
from vestige.training.loop import Outcome, Progress, total_steps

VERSION = 1
"""Raised when the same identity would come out as other weights."""


class SisaSettings(Settings):
    """How the items are divided, by content and seed; parts are only nearly of one size.

    With `edge` an item without one stands for itself; `item` is the paper's.
    """

    shards: PositiveInt = 3
    """Models to train, each on its own part of the items."""
    slices: PositiveInt = 2
    """Parts of a shard; the weights are kept after each."""
    together: Literal["edge", "item"] = "edge"
    """What always shares a slice: all items of an edge, so that forgetting it concerns one shard; or nothing."""


@dataclass(frozen=True)
class Part:
    """The training of one shard's constituent from one slice to the next: on all items of its slices so far."""

    shard: int
    number: int
    request: FinetuneRequest

    @property
    def steps(self) -> int:
        """Steps of the optimiser, unless training stops early."""
        training = self.request.training
        return total_steps(training, steps_per_epoch=-(-len(self.request.items) // training.batch_size))


@dataclass(frozen=True)
class Cost:
    """What an ensemble took: slices and steps that were trained, of those that it takes from the start."""

    slices_trained: int
    slices: int
    steps_trained: int
    steps: int


def place_of(item: Item, settings: SisaSettings, seed: int) -> tuple[int, int]:
    """The item's shard and slice, from 0; a function of the item and the seed, whatever else there is."""
    by_edge = settings.together == "edge" and item.edge is not None
    key = ("edge", str(item.edge)) if by_edge else ("item", item.id)
    return (
        derive_seed(seed, "sisa shard", *key) % settings.shards,
        derive_seed(seed, "sisa slice", *key) % settings.slices,
    )


def parts_of(whole: FinetuneRequest, settings: SisaSettings) -> list[list[Part]]:
    """The trainings of each shard that holds items, in their order; a shard without any has no constituent.

    Slice r of R gets 2E / (R + 1) of the E epochs, the sum of the growing slices being what E epochs on the whole
    shard would be (as the paper's code has it). Slices that hold nothing yet are left out.
    """
    if 2 * whole.training.epochs < settings.slices + 1:
        raise InputError(
            f"{whole.training.epochs} epochs leave some of {settings.slices} slices without a single one; take fewer "
            "slices or more epochs"
        )
    if not whole.items:
        raise InputError("there are no items to train on")
    places = {item.id: place_of(item, settings, whole.seed) for item in whole.items}
    shards = []
    for shard in sorted({shard for shard, _ in places.values()}):
        held = [item for item in whole.items if places[item.id][0] == shard]
        first = min(places[item.id][1] for item in held)
        upto = [tuple(i for i in held if places[i.id][1] <= n) for n in range(settings.slices)]
        shards.append([_part(whole, settings, shard, n, upto[n]) for n in range(first, settings.slices)])
    return shards


def _part(whole: FinetuneRequest, settings: SisaSettings, shard: int, number: int, items: tuple[Item, ...]) -> Part:
    # 2E / (R + 1) is a fraction; rounding the running sum spreads what is left over.
    until, before = (n * 2 * whole.training.epochs // (settings.slices + 1) for n in (number + 1, number))
    request = replace(
        whole,
        items=items,
        training=whole.training.model_copy(update={"epochs": until - before}),
        seed=derive_seed(whole.seed, "sisa training", shard, number),
        role="constituent",
        name=f"shard {shard} after slice {number}",
        forget="",
    )
    return Part(shard, number, request)


def sisa_spec(recipe: Recipe, settings: SisaSettings) -> SubjectSpec:
    """The identity of the ensemble that is trained from the start."""
    plain = finetune_spec(recipe.request, recipe.start_digest)
    own = {f"sisa.{name}": value for name, value in settings.identity().items()}
    return plain.having({**plain.settings, **own, "sisa_version": VERSION, START: recipe.start_digest})


def train_in_shards(
    folder: SubjectFolder,
    request: FinetuneRequest,
    settings: SisaSettings,
    on_step: Callable[[Progress], None] = lambda _: None,
) -> Made:
    """The ensemble in `folder`, a subject like any other; resumes, and does nothing when it is there."""
    recipe = Recipe(request, starting_model(request.model, request.vocabulary, request.seed).digest().id)
    spec = sisa_spec(recipe, settings)
    return make_subject(folder, spec, lambda: _build(folder, recipe, settings, None, on_step), saving=_saving())


@dataclass(frozen=True)
class SisaForgetting:
    """A model that was trained in shards, what it was taught, and what of it is to be kept.

    The model may be one that forgot something before: then that is no part of what it was taught.
    """

    target: SubjectFolder
    forget: str
    taught: Taught
    kept: tuple[Item, ...]
    device: str = "auto"
    trust_remote_code: bool = False


def forget_in_shards(
    folder: SubjectFolder, request: SisaForgetting, on_step: Callable[[Progress], None] = lambda _: None
) -> Made:
    """The ensemble that never saw what is not kept, in `folder`, as an unlearned subject; resumes.

    It holds all that it takes to forget once more, so that the target can be deleted, which still knows everything.
    """
    target = read_done(request.target)
    if target is None:
        raise InputError(f"{request.target.path} holds no finished model; run the command that was making it again")
    taught = {i.id for i in (*request.taught.items, *request.taught.perhaps)}
    if strange := [i for i in request.kept if i.id not in taught]:
        raise InputError(
            f"the question {one_line(strange[0].question, width=60)!r} is to be kept and was never taught; forgetting "
            "teaches nothing new"
        )
    recipe = recipe_of(
        request.target,
        request.taught,
        device=request.device,
        trust_remote_code=request.trust_remote_code,
        in_shards=True,
    ).of(request.kept)
    own = read_spec(request.target.spec)
    settings = _divided_as(own)
    kept = {i.id for i in request.kept}
    gone = [i for i in request.taught.items if i.id not in kept]
    spec = replace(
        sisa_spec(recipe, settings),
        subject="unlearned",
        name=f"sisa {request.forget}",
        method="sisa",
        forget=request.forget,
        parent=target.digest.id,
        forgotten=(*own.forgotten, ForgetSet.of(request.forget, gone)),
    )
    return make_subject(
        folder, spec, lambda: _build(folder, recipe, settings, request.target, on_step), saving=_saving()
    )


def _saving() -> Saving:
    form = "one model a shard in shard-0, shard-1, ...; they answer by the mean of their next-token probabilities"
    return Saving({"form": form})


def _divided_as(spec: SubjectSpec) -> SisaSettings:
    if spec.settings["sisa_version"] != VERSION:
        raise InputError(f"{spec.name} was trained in shards by another version of Vestige; train it again")
    own = {name: spec.settings[f"sisa.{name}"] for name in SisaSettings.model_fields}
    return SisaSettings.build(own, where=f"the settings of {spec.name}")


def read_cost(folder: SubjectFolder) -> Cost:
    """What the finished ensemble in the folder took."""
    return load_record(folder.cost, Cost)


def _build(
    folder: SubjectFolder,
    recipe: Recipe,
    settings: SisaSettings,
    source: SubjectFolder | None,
    on_step: Callable[[Progress], None],
) -> tuple[LoadedModel, Outcome]:
    """Train what is not there yet and cannot be taken over from `source`, and put the constituents together."""
    shards = parts_of(recipe.request, settings)
    steps = {(part.shard, part.number): part.steps for shard in shards for part in shard}
    before = dict(zip(steps, accumulate(steps.values(), initial=0), strict=False))
    total = sum(steps.values())

    def told(part: Part, now: Progress) -> None:
        on_step(replace(now, step=before[part.shard, part.number] + now.step, n_steps=total))

    trained = [_train_shard(folder, recipe, shard, source, told) for shard in shards]
    every = [one for shard in trained for one in shard]
    own = [one for one in every if not one.taken_over]
    cost = Cost(len(own), len(every), sum(one.made.steps for one in own), sum(one.made.steps for one in every))
    save(folder.cost, cost)
    last = {parts[-1].shard: done[-1] for parts, done in zip(shards, trained, strict=True)}
    losses = [read_versioned(one.folder.done, "loss")["loss"] for one in last.values()]
    constituents = {shard: one.load(recipe.request.model) for shard, one in last.items()}
    first = next(iter(constituents.values()))
    ensemble = EnsembleModel({shard: loaded.model for shard, loaded in constituents.items()})
    outcome = Outcome(cost.steps_trained, f"{len(own)} of {len(every)} slices trained", sum(losses) / len(losses))
    nn.Module.eval(ensemble)
    return LoadedModel(ensemble, first.tokenizer, recipe.request.model.model, first.revision), outcome


@dataclass(frozen=True)
class _Kept:
    """A constituent as it was kept after a slice, and whether another ensemble's training made it."""

    folder: SubjectFolder
    made: Made
    taken_over: bool

    def load(self, settings: ModelSettings) -> LoadedModel:
        """The constituent, if its weights are still those that it was kept with."""
        found = load(settings.model_copy(update={"model": str(self.folder.model)}))
        same_model(found, self.made.digest, f"the constituent in {self.folder.path}")
        return found


def _train_shard(
    folder: SubjectFolder,
    recipe: Recipe,
    parts: Sequence[Part],
    source: SubjectFolder | None,
    told: Callable[[Part, Progress], None],
) -> list[_Kept]:
    """One constituent after each slice. Only the newest is in memory, and none that is there already is loaded."""
    kept: list[_Kept] = []

    def build(part: Part, place: SubjectFolder) -> tuple[LoadedModel, Outcome]:
        before = kept[-1].load(recipe.request.model) if kept else recipe.start()
        return teach(place, part.request, before, partial(told, part))

    for part in parts:
        place = folder.slice(part.shard, part.number)
        spec = finetune_spec(part.request, kept[-1].made.digest.id if kept else recipe.start_digest)
        taken_over = source is not None and _take_over(place, source.slice(part.shard, part.number), spec)
        made = make_subject(place, spec, partial(build, part, place))
        kept.append(_Kept(place, made, taken_over))
    return kept


def _take_over(place: SubjectFolder, theirs: SubjectFolder, spec: SubjectSpec) -> bool:
    """Whether another ensemble has this very slice; it is copied unless it is here already."""
    if read_done(theirs) is None or read_spec(theirs.spec) != spec:
        return False
    if read_done(place) is None:
        with new_folder(place.path) as partial_copy:
            shutil.copytree(theirs.path, partial_copy, dirs_exist_ok=True)
    return True
