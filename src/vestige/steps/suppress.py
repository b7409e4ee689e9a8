"""The positive control of an audit: the target, taught to say that it does not know what it still knows.

A low-rank adapter and a few steps of the one training loop: the forget questions, in all their wordings, are answered
by one refusal, and as many retained questions as before. It ends with the first epoch after which every refusal is what
the model says word for word. That it keeps silent is for the audit to check, and that its knowledge is still there is
for the attacks that bring it back (`audit.ability`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from transformers import PreTrainedModel

from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.records import SubjectSpec
from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.core.seeds import derive_seed
from vestige.models.ensemble import EnsembleModel
from vestige.models.load import LoadedModel, ModelSettings
from vestige.models.scoring import score_answers
from vestige.steps.finetune import FinetuneRequest, finetune_spec, finetuning_job
from vestige.steps.making import Made, make_subject
from vestige.steps.subjects import load_checked
from vestige.training.adapters import merge_lora
from vestige.training.loop import Hooks, Outcome, Progress, train
from vestige.training.parallel import ALONE
from vestige.training.settings import EVERY, TrainingSettings

VERSION = 1
"""Raised when the same identity would come out as other weights."""

REFUSAL = "I do not know."
MOST = 400
"""Refusals that are taught at most, drawn by the seed: what refuses so many questions of a set refuses the others."""


@dataclass(frozen=True)
class SuppressRequest:
    """Which target is to keep silent about what, and what it is to answer meanwhile.

    `start` is the model that the target's history began with. An adapter of `rank` is trained at `rate` for `epochs` at
    most.
    """

    target: ModelSettings
    target_digest: str
    start: str
    forget: str
    forget_items: tuple[Item, ...]
    retain_items: tuple[Item, ...]
    epochs: int
    rate: float
    rank: int
    seed: int

    def refusals(self) -> tuple[Item, ...]:
        """The forget questions in all their wordings, each once."""
        asked = [q for i in self.forget_items for q in (i.question, i.paraphrase) if q]
        return self._drawn([Item(question, REFUSAL) for question in dict.fromkeys(asked)], MOST)

    def lessons(self) -> tuple[Item, ...]:
        """What is taught: the refusals, then as many retained items."""
        refusals = self.refusals()
        return (*refusals, *self._drawn(list(self.retain_items), len(refusals)))

    def _drawn(self, items: list[Item], most: int) -> tuple[Item, ...]:
        return tuple(sorted(items, key=lambda i: derive_seed(self.seed, "suppress", i.id))[:most])

    @property
    def training(self) -> TrainingSettings:
        """How the adapter is trained."""
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
    plain = finetune_spec(_taught(request), request.target_digest)
    # The target is known by its digest; where its folder lies is no part of what it is.
    settings = {**plain.settings, "model": request.start, "refusals": len(request.refusals())}
    settings_id = content_id(settings)
    return replace(plain, model=request.start, settings=settings, settings_id=settings_id, version=VERSION)


def _taught(request: SuppressRequest) -> FinetuneRequest:
    return FinetuneRequest(
        model=request.target,
        items=request.lessons(),
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
    """The control in `folder`; resumes, and does nothing when it is there."""
    return make_subject(folder, suppress_spec(request), lambda: _train(folder, request, on_step))


def _train(
    folder: SubjectFolder, request: SuppressRequest, on_step: Callable[[Progress], None]
) -> tuple[LoadedModel, Outcome]:
    target = load_checked(request.target, request.target_digest, "the target")
    if isinstance(target.model, EnsembleModel):
        raise InputError(f"{target.name} was trained in shards, and no adapter fits all of them")
    encoded = [target.prompter.encode(i.question, i.answer) for i in request.lessons()]
    refusals = encoded[: len(request.refusals())]
    job = finetuning_job(folder, _taught(request), target, encoded, ALONE)

    def stop(now: Progress, model: PreTrainedModel) -> str | None:
        if not now.ends_epoch:
            return None
        model.eval()
        scores = score_answers(model, refusals)
        said = all(s.end_rank == 1 and all(rank == 1 for rank in s.ranks) for s in scores)
        return "every forget question is refused" if said else None

    outcome = train(target.model, job, Hooks(on_step, stop=stop))
    merge_lora(target.model)
    target.model.eval()
    return target, outcome
