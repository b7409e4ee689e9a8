"""Mending an unlearned model with the prompts that a probe found: settings, which prompts are used, what is minimised.

D_AP are the adjacent prompts that passed the filters of the probe, D_LP those of its searches. Probing Knowledge Holes
in Unlearned LLMs, 2511.00030, section 4.3, appendices C.4 and C.5. Part of D_AP is held out here, which the paper does
not do: what a model answers of the prompts that it was tuned on says nothing of their like.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Literal, NamedTuple, TypeVar

from jaxtyping import Float
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from vestige import losses
from vestige.artifacts.holes import ADJACENT_HELD_OUT, ADJACENT_USED, LATENT_HELD_OUT, LATENT_USED, Sample, Tested
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.core.seeds import generator
from vestige.core.settings import Settings
from vestige.metrics.answers import normalised
from vestige.probes.filters import ADJACENT
from vestige.training.settings import TrainingSettings
from vestige.training.step import Needs, Step

T = TypeVar("T")

_STOPS = ".!?"


class MitigationSettings(Settings):
    """How much is used of what was found, and how often the model is looked at.

    `n_latent`, `n_adjacent`, `n_retain` and `rounds` are the paper's of its iterative mending (Table 4). All else is
    ours: `latent` takes of the searches the confirmed `holes`, or every prompt `tested` as the paper does; the share
    `held_out` of D_AP is never trained on; the target's own answers that are, are greedy, of at most `answer_tokens`;
    the one-shot mending is scored at the pace `every`, and `choose` says which checkpoint is kept.
    """

    n_adjacent: NonNegativeInt = 100
    n_latent: NonNegativeInt = 600
    n_retain: NonNegativeInt = 117
    rounds: PositiveInt = 3
    latent: Literal["holes", "tested"] = "holes"
    held_out: float = Field(default=0.25, ge=0, lt=1)
    answer_tokens: PositiveInt = 128
    every: str = "100 steps"
    choose: str = "last"


class MendingSettings(TrainingSettings):
    """The training of a one-shot mending: 800 steps are the paper's.

    The paper does not say at which rate; these are the values by which its LLMU model was unlearned. With `max_steps`
    the epochs are as many as that takes.
    """

    max_steps: PositiveInt | None = 800
    batch_size: PositiveInt = 2
    learning_rate: PositiveFloat = 5e-5
    warmup_steps: int | None = Field(default=0, ge=0)
    weight_decay: float = Field(default=0.01, ge=0)
    lora_rank: int = Field(default=32, ge=0)
    lora_alpha: PositiveInt = 16
    lora_dropout: float = Field(default=0.0, ge=0, lt=1)
    lora_targets: tuple[str, ...] | Literal["all"] = ("q_proj", "v_proj")

    def over(self, n_rows: int) -> "MendingSettings":
        """The same with as many epochs of `n_rows` rows as the steps take."""
        if self.max_steps is None:
            return self
        per_epoch = -(-n_rows // self.batch_size)
        return self.model_copy(update={"epochs": -(-self.max_steps // per_epoch)})


@dataclass(frozen=True)
class Imitate:
    """KL(target || policy) on the answers' positions of `train`, mean over the tokens of the effective batch."""

    needs: ClassVar[Needs] = Needs(distributions=frozenset({"train"}))

    def terms(self, step: Step) -> dict[str, Float[Tensor, ""]]:
        policy, target = step.policy_distributions("train"), step.reference_distributions("train")
        return {"train": losses.kl(policy.logp, target.logp, policy.mask, n_tokens=policy.n_tokens)}


class Picked(NamedTuple):
    """Prompts by set, and in sentences what was asked for and not had."""

    samples: tuple[Sample, ...]
    notes: tuple[str, ...]


def pick_adjacent(
    tested: Sequence[Tested], truths: Mapping[str, str], settings: MitigationSettings, *, seed: int
) -> Picked:
    """D_AP in two parts: what is used, and what is held out.

    Prompts made from one forget item are not dealt to both parts: what would be is left out.
    """
    found = [t for t in tested if t.source == ADJACENT and not t.dropped]
    origins = _shuffled(sorted({_origin(t) for t in found}), seed, "mitigation adjacent")
    ordered = sorted(found, key=lambda t: origins.index(_origin(t)))
    # At least one, where any is wanted: a share of few prompts would round to none.
    most = max(1, math.floor((1 - settings.held_out) * len(ordered)))
    used = ordered[: min(settings.n_adjacent, most)]
    of_used = {_origin(t) for t in used}
    held_out = [t for t in ordered if _origin(t) not in of_used]
    notes = _fewer("adjacent prompts", settings.n_adjacent, len(used))
    if not held_out:
        notes = (*notes, "No adjacent prompt is held out.")
    samples = [_sample(ADJACENT_USED, t, truths) for t in used]
    return Picked((*samples, *(_sample(ADJACENT_HELD_OUT, t, truths) for t in held_out)), notes)


def pick_latent(tested: Sequence[Tested], settings: MitigationSettings, *, seed: int) -> Picked:
    """D_LP in two parts: what is used, drawn at random, and the rest, held out. A prompt counts once."""
    known = {t.prompt for t in tested if t.source == ADJACENT}
    found: dict[str, Tested] = {}
    for t in tested:
        if not t.dropped and t.prompt not in known and (t.hole or settings.latent == "tested"):
            found.setdefault(t.prompt, t)
    ordered = _shuffled(list(found.values()), seed, "mitigation latent")
    used, held_out = ordered[: settings.n_latent], ordered[settings.n_latent :]
    samples = [_sample(LATENT_USED, t, {}) for t in used]
    what = "holes of the searches" if settings.latent == "holes" else "prompts of the searches"
    notes = _fewer(what, settings.n_latent, len(used))
    return Picked((*samples, *(_sample(LATENT_HELD_OUT, t, {}) for t in held_out)), notes)


def refuse_nothing(tested: Sequence[Tested], samples: Sequence[Sample], where: str) -> None:
    """Refuse a probe without holes, and settings that use none of its prompts."""
    if not any(t.hole for t in tested):
        raise InputError(f"the probe in {where} confirmed no hole, so there is nothing to mend; search longer there")
    if not any(s.set in (ADJACENT_USED, LATENT_USED) for s in samples):
        raise InputError(
            f"of the prompts in {where} none is used; raise n_adjacent or n_latent, or take latent=tested for the "
            "prompts of the searches that are no holes"
        )


def whole_sentences(answer: str) -> str:
    """An answer that was broken off, as far as its last whole sentence, so that nothing is taught to break off.

    Where there is no whole sentence it is left as it is.
    """
    last = max(answer.rfind(mark + space) for mark in _STOPS for space in (" ", "\n"))
    return answer[: last + 1] if last > 0 else answer


def retained(items: Sequence[Item], samples: Sequence[Sample], n: int, seed: int) -> tuple[Item, ...]:
    """At most `n` items of the retain set, drawn at random, of which none asks what is held out.

    Where adjacent questions are the data's own, the retain set has them too.
    """
    held_out = {normalised(s.prompt) for s in samples if s.set in (ADJACENT_HELD_OUT, LATENT_HELD_OUT)}
    shuffled = _shuffled(items, seed, "mitigation retain")
    free = (i for i in shuffled if held_out.isdisjoint(map(normalised, (i.question, i.paraphrase or ""))))
    return tuple(islice(free, n))


def _shuffled(things: Sequence[T], seed: int, purpose: str) -> list[T]:
    return [things[int(i)] for i in generator(seed, purpose).permutation(len(things))]


def _origin(tested: Tested) -> str:
    return tested.origin or tested.id


def _sample(of: str, tested: Tested, truths: Mapping[str, str]) -> Sample:
    return Sample(of, tested.prompt, _origin(tested), truths.get(tested.prompt, ""))


def _fewer(what: str, asked: int, had: int) -> tuple[str, ...]:
    return (f"Of {asked} {what} that were asked for, {had} can be used.",) if had < asked else ()
