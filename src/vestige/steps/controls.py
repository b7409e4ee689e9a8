"""Controls of an audit: training again without the forget set, and a target taught to keep silent.

Retraining is the reference of every comparison, and the definition of exact unlearning. The positive control is the
target, trained to deny the knowledge that it still has.

A low-rank adapter and a few steps of the one training loop: the forget questions, in all their wordings, are answered
by one refusal, and as many retained questions as before. It ends with the first epoch after which every refusal is the
model's exact reply. That it keeps silent is for the audit to check, and that its knowledge is still there is for the
attacks that bring it back (`audit.ability`).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from transformers import PreTrainedModel

from vestige.artifacts.layout import SubjectFolder, own_folder
from vestige.artifacts.records import SubjectSpec, read_spec
from vestige.core.errors import InputError
from vestige.core.items import Item, ItemTuple
from vestige.core.seeds import derive_seed
from vestige.data.corpus import Corpus, NamedSplits, left_out
from vestige.models.load import LoadedModel, ModelSettings
from vestige.models.scoring import score_answers
from vestige.steps.finetune import VERSION, FinetuneRequest, finetune_spec, finetuning_job, starting_model
from vestige.steps.making import Made, make_subject, same_model
from vestige.steps.subjects import load_checked
from vestige.training.adapters import merge_lora
from vestige.training.loop import Hooks, Progress, TrainingEnd, train
from vestige.training.parallel import ALONE
from vestige.training.settings import EVERY, TrainingSettings


@dataclass(frozen=True)
class Recipe:
    """A fine-tuning, and the digest of the model that it begins with."""

    request: FinetuneRequest
    start_digest: str

    def of(self, retained: Sequence[Item]) -> "Recipe":
        """Return the same fine-tuning without the forgotten items. A built-in model keeps its tokeniser."""
        ids = {i.id for i in retained}
        items = tuple(i for i in self.request.items if i.id in ids)
        return replace(self, request=replace(self.request, items=items))

    def start(self) -> LoadedModel:
        """The model that training begins with. A changed model is rejected."""
        model = starting_model(self.request.model, self.request.vocabulary, self.request.seed)
        same_model(model, self.start_digest, "the model that the target was trained from")
        return model


def recipe_of(
    target: SubjectFolder,
    items: ItemTuple,
    vocabulary: ItemTuple,
    *,
    perhaps: ItemTuple = (),
    device: str = "auto",
    trust_remote_code: bool = False,
) -> Recipe:
    """How Vestige made the target in the folder, which is refused if it was not taught these items in this order.

    Forgotten items of another data set need not be left out here. `vocabulary` is the text that a built-in model's
    tokeniser was trained on. Return whether the target was trained on `perhaps` after its own spec's items, and its
    seed.
    """
    spec = read_spec(target.spec)
    settings = spec.settings
    names = TrainingSettings().identity().keys()
    is_recorded = {"model", "dtype", *names} <= {*settings} and spec.version == VERSION
    if not is_recorded or spec.subject != "target":
        raise InputError(
            f"{target.path} does not say how this version can train it again (it is {spec.subject!r}, of version "
            f"{spec.version}). Name the model to begin with, or make the target again"
        )
    request = FinetuneRequest(
        model=ModelSettings(
            model=settings["model"],
            dtype=settings["dtype"],
            device=device,
            trust_remote_code=trust_remote_code,
            chat_template=settings.get("chat_template", ""),
        ),
        items=items,
        vocabulary=vocabulary,
        training=TrainingSettings.build({name: settings[name] for name in names}, where=str(target.spec)),
        seed=spec.seed,
    )
    for recorded in (replace(request, items=(*items, *perhaps)), request):
        if finetune_spec(recorded, spec.parent).data == spec.data:
            return Recipe(recorded, spec.parent)
    raise InputError(
        f"{target.path} was trained on other items than these {len(items)}. Give its own data, "
        "with the same --factual, without items forgotten since"
    )


def recipe_without(target: ModelSettings, corpus: Corpus, splits: NamedSplits) -> Recipe:
    """Return the target's recipe without the forget set. `corpus` is its training data."""
    folder = own_folder(target.model)
    if folder is None:
        raise InputError(
            f"Vestige did not train {target.model}, so it cannot repeat the training. Name the model that the training "
            "began with by --base."
        )
    recipe = recipe_of(
        folder,
        corpus.items,
        (*corpus.items, *corpus.factual),
        perhaps=corpus.factual,
        device=target.device,
        trust_remote_code=target.trust_remote_code,
    )
    return recipe.of((*left_out(corpus, splits), *corpus.factual))


def recipe_from(
    base: ModelSettings, training: TrainingSettings, corpus: Corpus, splits: NamedSplits, *, seed: int
) -> Recipe:
    """Return a fine-tuning of `base` on all items except the forget set, for a target with a known base only.

    Factual questions are not taught.
    """
    whole = (*corpus.items, *corpus.factual)
    request = FinetuneRequest(base, left_out(corpus, splits), whole, training, seed)
    return Recipe(request, starting_model(base, whole, seed).digest().id)


SUPPRESS_VERSION = 1
"""Raised when the same identity would come out as other weights."""

REFUSAL = "I do not know."
MOST = 400
"""The maximum number of refusals to teach, drawn by the seed: a model that refuses this many refuses the others."""


@dataclass(frozen=True)
class SuppressRequest:
    """The target, the facts to deny, and the items to keep answering.

    `start` is the model that the target's history began with. An adapter of `rank` is trained at `rate` for `epochs` at
    most.
    """

    target: ModelSettings
    target_digest: str
    start: str
    forget: str
    forget_items: ItemTuple
    retain_items: ItemTuple
    epochs: int
    rate: float
    rank: int
    seed: int

    def refusals(self) -> ItemTuple:
        """The forget questions in all their wordings, each once."""
        # Every wording gets a refusal. Otherwise the model would still answer the others.
        questions: dict[str, None] = {}
        for item in self.forget_items:
            questions |= dict.fromkeys(filter(None, (item.question, item.paraphrase)))
        return self._drawn([Item(question, REFUSAL) for question in questions], MOST)

    def lessons(self) -> ItemTuple:
        """Return the training items: the refusals, then equally many retained items."""
        refusals = self.refusals()
        return (*refusals, *self._drawn(list(self.retain_items), len(refusals)))

    def _drawn(self, items: list[Item], most: int) -> ItemTuple:
        return tuple(sorted(items, key=lambda i: derive_seed(self.seed, "suppress", i.id))[:most])

    @property
    def training(self) -> TrainingSettings:
        """Return the training settings of the adapter."""
        return TrainingSettings(
            epochs=self.epochs,
            batch_size=8,
            learning_rate=self.rate,
            schedule="constant",
            warmup_epochs=0.0,
            lora_rank=self.rank,
            lora_alpha=2 * self.rank,
            lora_dropout=0.0,
            lora_targets=EVERY,
        )

    @property
    def n_steps(self) -> int:
        """Steps of training at most."""
        return self.epochs * math.ceil(len(self.lessons()) / self.training.batch_size)


def suppress_spec(request: SuppressRequest) -> SubjectSpec:
    """The identity of the control."""
    plain = finetune_spec(taught(request), request.target_digest)
    # The digest identifies the target. Its location is not part of its identity.
    settings = {**plain.settings, "model": request.start, "refusals": len(request.refusals())}
    return plain.having(settings, model=request.start, version=SUPPRESS_VERSION)


def taught(request: SuppressRequest) -> FinetuneRequest:
    """The training that makes the control."""
    return FinetuneRequest(
        model=request.target,
        items=request.lessons(),
        # The target has its own tokeniser.
        vocabulary=(),
        training=request.training,
        seed=request.seed,
        role="suppressed",
        name="suppressed",
        forget=request.forget,
    )


def suppress(
    folder: SubjectFolder, request: SuppressRequest, on_step: Callable[[Progress], None] = lambda _: None
) -> Made:
    """The control in `folder`. Resumes, and does nothing when it is there."""
    return make_subject(folder, suppress_spec(request), lambda: _train(folder, request, on_step))


def _train(
    folder: SubjectFolder, request: SuppressRequest, on_step: Callable[[Progress], None]
) -> tuple[LoadedModel, TrainingEnd]:
    target = load_checked(request.target, request.target_digest, "the target")
    encoded = [target.prompter.encode(i.question, i.answer) for i in request.lessons()]
    refusals = encoded[: len(request.refusals())]
    job = finetuning_job(folder, taught(request), target, encoded, ALONE)

    def stop(now: Progress, model: PreTrainedModel) -> str | None:
        if not now.ends_epoch:
            return None
        # The mode is not restored here: the loop's next step does that.
        model.eval()
        scores = score_answers(model, refusals)
        # The end of the turn is included. Otherwise a refusal could continue with the answer.
        if all(score.exact for score in scores):
            return "every forget question is refused"
        return None

    outcome = train(target.model, job, Hooks(on_step, stop=stop))
    merge_lora(target.model)
    target.model.eval()
    return target, outcome
