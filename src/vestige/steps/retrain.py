"""Training again without the forget set: the control of every comparison, and what exact unlearning comes down to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from vestige.artifacts.layout import SubjectFolder, own_folder
from vestige.artifacts.records import read_spec
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.data.corpus import Corpus, NamedSplits, left_out
from vestige.models.load import LoadedModel, ModelSettings
from vestige.steps.finetune import VERSION, FinetuneRequest, finetune_spec, starting_model, teach
from vestige.steps.making import same_model
from vestige.training.loop import Outcome, Progress
from vestige.training.parallel import ALONE, World
from vestige.training.settings import TrainingSettings
from vestige.training.tracking import Line


@dataclass(frozen=True)
class Recipe:
    """A fine-tuning, and the digest of the model that it begins with."""

    request: FinetuneRequest
    start_digest: str

    def of(self, kept: Sequence[Item]) -> "Recipe":
        """The same fine-tuning of those items that are kept; the tokeniser of a built-in model stays what it was."""
        ids = {i.id for i in kept}
        items = tuple(i for i in self.request.items if i.id in ids)
        return replace(self, request=replace(self.request, items=items))

    def start(self) -> LoadedModel:
        """The model that training begins with; refused if it is no longer what it was."""
        found = starting_model(self.request.model, self.request.vocabulary, self.request.seed)
        same_model(found, self.start_digest, "the model that the target was trained from")
        return found


@dataclass(frozen=True)
class Taught:
    """What a target was taught, in its order, and the text that a built-in model's tokeniser was trained on.

    `perhaps` are items that it may have been taught behind the others: the target's own spec says whether it was.
    """

    items: tuple[Item, ...]
    vocabulary: tuple[Item, ...]
    perhaps: tuple[Item, ...] = ()


START = "sisa_start"
"""The setting that a model trained in shards has besides: the digest of the model that all shards begin with."""


def recipe_of(
    target: SubjectFolder,
    taught: Taught,
    *,
    device: str = "auto",
    trust_remote_code: bool = False,
    in_shards: bool = False,
) -> Recipe:
    """How Vestige made the target in the folder, which is refused if it was not taught these items.

    What is left out of another data set may not be left out of this one. The seed is the target's own. A target
    trained in shards is refused, and with `in_shards` every other.
    """
    spec = read_spec(target.spec)
    settings = spec.settings
    if in_shards != (START in settings):
        how, way = ("as one", "vestige unlearn") if in_shards else ("in shards", "vestige sisa forget")
        raise InputError(f"{target.path} was trained {how}; make it forget with `{way}`")
    names = TrainingSettings().identity().keys()
    known = {"model", "dtype", *names} <= {*settings} and spec.version == VERSION
    if not known or (spec.subject != "target" and not in_shards):
        raise InputError(
            f"{target.path} does not say how this version can train it again (it is {spec.subject!r}, of version "
            f"{spec.version}); name the model to begin with, or make the target again"
        )
    request = FinetuneRequest(
        model=ModelSettings(
            model=settings["model"],
            dtype=settings["dtype"],
            device=device,
            trust_remote_code=trust_remote_code,
            chat_template=settings.get("chat_template", ""),
        ),
        items=taught.items,
        vocabulary=taught.vocabulary,
        training=TrainingSettings.build({name: settings[name] for name in names}, where=str(target.spec)),
        seed=spec.seed,
    )
    start = settings[START] if in_shards else spec.parent
    for items in ((*taught.items, *taught.perhaps), taught.items):
        found = replace(request, items=items)
        if finetune_spec(found, start).data == spec.data:
            return Recipe(found, start)
    raise InputError(
        f"{target.path} was taught other items than these {len(taught.items)}; give the data that it was made from, "
        "with the same --factual, less what it has forgotten since"
    )


def recipe_without(target: ModelSettings, corpus: Corpus, splits: NamedSplits) -> Recipe:
    """How the target was made, less the forget set; `corpus` is what it was taught."""
    folder = own_folder(target.model)
    if folder is None:
        raise InputError(
            f"{target.model} was not made by Vestige, so how it was trained is not known; name the model to begin with"
        )
    whole = (*corpus.items, *corpus.factual)
    taught = Taught(corpus.items, whole, corpus.factual)
    found = recipe_of(folder, taught, device=target.device, trust_remote_code=target.trust_remote_code)
    return found.of((*left_out(corpus, splits), *corpus.factual))


def recipe_from(
    base: ModelSettings, training: TrainingSettings, corpus: Corpus, splits: NamedSplits, *, seed: int
) -> Recipe:
    """A fine-tuning of `base` on all but the forget set, for a target of which only its beginning is known.

    Factual questions are not taught.
    """
    whole = (*corpus.items, *corpus.factual)
    request = FinetuneRequest(base, left_out(corpus, splits), whole, training, seed)
    return Recipe(request, starting_model(base, whole, seed).digest().id)


def retrain(
    folder: SubjectFolder,
    recipe: Recipe,
    on_step: Callable[[Progress], None],
    world: World = ALONE,
    on_line: Callable[[Line], None] = lambda _: None,
) -> tuple[LoadedModel, Outcome]:
    """The model that the recipe makes, byte for byte what `finetune` makes of it; resumes."""
    return teach(folder, recipe.request, recipe.start(), on_step, world, on_line)
