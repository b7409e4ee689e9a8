"""Mending an unlearned model with the prompts that a probe found: what is asked for, and which are used.

D_AP are the adjacent prompts that passed the filters of the probe, D_LP those of its searches. Probing Knowledge Holes
in Unlearned LLMs, 2511.00030, section 4.3, appendices C.4 and C.5. Part of D_AP is held out here, which the paper does
not do: what a model answers of the prompts that it was tuned on says nothing of their like.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from vestige.artifacts.holes import (
    ADJACENT_HELD_OUT,
    ADJACENT_USED,
    FORGET,
    LATENT_HELD_OUT,
    LATENT_USED,
    PolicySample,
    Tested,
    Way,
    read_table,
    read_tested,
)
from vestige.artifacts.layout import MitigationFolder, ProbeFolder
from vestige.artifacts.records import SubjectSpec
from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.core.seeds import generator
from vestige.core.settings import Settings
from vestige.data.corpus import NamedSplits
from vestige.judges.base import Grader
from vestige.judges.tasks import TASKS
from vestige.metrics.answers import normalised
from vestige.probes.answering import Participants
from vestige.probes.filters import ADJACENT
from vestige.probes.holes import candidates_in
from vestige.probes.latent import SEARCH_VERSION, Searching
from vestige.steps.trajectory import TrajectoryRequest
from vestige.training.loop import Progress
from vestige.training.settings import TrainingSettings, UnlearningSettings
from vestige.training.trajectory import TrajectorySettings

T = TypeVar("T")


class MitigationSettings(Settings):
    """How much is used of what was found, and how often the model is looked at.

    `n_latent`, `n_adjacent`, `n_retain` and `rounds` are the paper's of its iterative mending (Table 4). All else is
    ours.
    """

    n_adjacent: NonNegativeInt = 100
    """Most adjacent questions to train on."""
    n_latent: NonNegativeInt = 600
    """Most searched prompts to train on."""
    n_retain: NonNegativeInt = 117
    """Most retained items to train on."""
    rounds: PositiveInt = 3
    """Rounds of the iterative repair."""
    latent: Literal["holes", "tested", "d_rl"] = "holes"
    """Searched prompts to use: confirmed holes, all that were tested, or all with J = 10 (the paper's D_RL)."""
    held_out: float = Field(default=0.25, ge=0, lt=1)
    """Share of the adjacent questions that is never trained on."""
    answer_tokens: PositiveInt = 128
    """Longest answer of the target to train on, in tokens."""
    every: str = "100 steps"
    """How often to score the model: '1 epoch' or '50 steps'."""
    choose: str = "last"
    """Checkpoint to keep: last; 'forget<=0.3'; 'retain>=0.9'."""


class MendingSettings(TrainingSettings):
    """The training of a one-shot mending: 800 steps are the paper's.

    The paper does not say at which rate; these are the values by which its LLMU model was unlearned. With `max_steps`
    the epochs are as many as that takes.
    """

    max_steps: PositiveInt | None = 800
    """Steps of the training."""
    batch_size: PositiveInt = 2
    """Rows per optimiser step."""
    learning_rate: PositiveFloat = 5e-5
    """Peak learning rate."""
    warmup_steps: int | None = Field(default=0, ge=0)
    """Length of the warm-up in steps."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Weight decay of AdamW."""
    lora_rank: int = Field(default=32, ge=0)
    """Rank of the LoRA adapter; 0 trains all weights."""
    lora_alpha: PositiveInt = 16
    """Alpha of LoRA."""
    lora_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout of LoRA."""
    lora_targets: tuple[str, ...] | Literal["all"] = ("q_proj", "v_proj")
    """Modules to adapt, by the last part of their name, or all linear layers in the blocks."""

    def over(self, n_rows: int) -> "MendingSettings":
        """The same with as many epochs of `n_rows` rows as the steps take."""
        if self.max_steps is None:
            return self
        per_epoch = -(-n_rows // self.batch_size)
        return self.model_copy(update={"epochs": -(-self.max_steps // per_epoch)})


class Picked(NamedTuple):
    """Prompts by set, and in sentences what was asked for and not had."""

    samples: tuple[PolicySample, ...]
    notes: tuple[str, ...]


def pick_adjacent(
    tested: Sequence[Tested], truths: Mapping[str, str], settings: MitigationSettings, *, seed: int
) -> Picked:
    """D_AP in two parts: what is used, and what is held out.

    Prompts made from one forget item are not dealt to both parts: what would be is left out.
    """
    candidates = [t for t in tested if t.source == ADJACENT and not t.dropped]
    # By what they were made from, since two prompts of one item tell each other's answer.
    origins = _shuffled(sorted({_origin(t) for t in candidates}), seed, "mitigation adjacent")
    ordered = sorted(candidates, key=lambda t: origins.index(_origin(t)))
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
    adjacent = {t.prompt for t in tested if t.source == ADJACENT}
    candidates: dict[str, Tested] = {}
    for t in tested:
        fits = settings.latent == "d_rl" or (not t.dropped and (t.hole or settings.latent == "tested"))
        # By prompt and not by source: with d_rl a search's copy of one that is held out would be trained on.
        if fits and t.prompt not in adjacent:
            candidates.setdefault(t.prompt, t)
    ordered = _shuffled(list(candidates.values()), seed, "mitigation latent")
    used, held_out = ordered[: settings.n_latent], ordered[settings.n_latent :]
    samples = [_sample(LATENT_USED, t, {}) for t in used]
    name = "holes of the searches" if settings.latent == "holes" else "prompts of the searches"
    notes = _fewer(name, settings.n_latent, len(used))
    return Picked((*samples, *(_sample(LATENT_HELD_OUT, t, {}) for t in held_out)), notes)


def refuse_nothing(tested: Sequence[Tested], samples: Sequence[PolicySample], where: str) -> None:
    """Refuse a probe without holes, and settings that use none of its prompts."""
    if not any(t.hole for t in tested):
        raise InputError(f"the probe in {where} confirmed no hole, so there is nothing to repair; search longer there")
    if not any(s.set in (ADJACENT_USED, LATENT_USED) for s in samples):
        raise InputError(
            f"of the prompts in {where} none is used; raise n_adjacent or n_latent, or take latent=tested for the "
            "prompts of the searches that are no holes"
        )


def retained(items: Sequence[Item], samples: Sequence[PolicySample], n: int, seed: int) -> tuple[Item, ...]:
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


def _sample(of: str, tested: Tested, truths: Mapping[str, str]) -> PolicySample:
    return PolicySample(of, tested.prompt, _origin(tested), truths.get(tested.prompt, ""))


def _fewer(name: str, wanted_n: int, had: int) -> tuple[str, ...]:
    return (f"Of {wanted_n} {name} that were asked for, {had} can be used.",) if had < wanted_n else ()


VERSION = 3
"""Part of every identity; raised when the same identity would come out as another table or other weights."""
USED = (ADJACENT_USED, LATENT_USED)
"""The sets that are trained on."""


@dataclass(frozen=True)
class Again:
    """How the target is unlearned anew in each round of an iterative mending, with what it should keep."""

    method: str
    method_settings: dict[str, Any]
    training: UnlearningSettings
    idk: tuple[str, ...]
    trajectory: TrajectoryRequest | None = None


def as_made(spec: SubjectSpec | None, method: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of method and training that the unlearned model was made with; none of another method's."""
    if spec is None or spec.method != method:
        return {}, {}
    prefix = f"{method}."
    method_settings = {k.removeprefix(prefix): v for k, v in spec.settings.items() if k.startswith(prefix)}
    return method_settings, {k: v for k, v in spec.settings.items() if k in UnlearningSettings.model_fields}


@dataclass(frozen=True)
class MitigationRequest:
    """What is mended, in which way, and who says whether it helped.

    `harm` says of answers to the forget set whether they are harmful, where that is asked. `searching` is None where
    the mended model is not searched anew, `again` is there in the iterative way alone, which does without `training`.
    """

    way: Way
    splits: NamedSplits
    who: Participants
    settings: MitigationSettings
    training: MendingSettings = field(default_factory=MendingSettings)
    searching: Searching | None = None
    again: Again | None = None
    harm: Grader | None = None
    on_stage: Callable[[str], None] = field(default=lambda stage: None)
    on_step: Callable[[Progress], None] = field(default=lambda progress: None)

    @property
    def forget_items(self) -> tuple[Item, ...]:
        """What was to be forgotten."""
        return self.splits.splits["forget"]

    def identity(self, tested: Sequence[Tested]) -> dict[str, Any]:
        """Everything that can change the table; `tested` is what the probe came to."""
        searching, recipe = self.searching, self.again
        return {
            "version": VERSION,
            "way": self.way,
            "target": self.who.target.id,
            "unlearned": self.who.unlearned.id,
            "forget": content_id([asdict(i) for i in self.forget_items], length=32),
            # Drawn from in rounds, and what tells the forget set's own names in a new probe.
            "retain": content_id([i.id for i in self.splits.splits.get("retain", ())], length=32),
            "tested": content_id([asdict(t) for t in tested], length=32),
            "settings": self.settings.identity(),
            "answers": self.who.answers.identity(),
            "judge": dict(self.who.grader.identity),
            "harm": dict(self.harm.identity) if self.harm else None,
            "tasks": {name: TASKS[name].version for name in ("quality", "harm")},
            "embedder": self.who.embedder.digest,
            "searching": searching
            and {
                "version": SEARCH_VERSION,
                "sources": list(searching.sources),
                "model": searching.policy_digest,
                "policy": searching.policy_settings.identity(),
                "latent": searching.settings.identity(),
                "filter": searching.filters.identity(),
            },
            "training": self.training.identity()
            if recipe is None
            else {
                "method": recipe.method,
                "method_settings": recipe.method_settings,
                "training": recipe.training.identity(),
                "idk": list(recipe.idk),
                "trajectory": recipe.trajectory.whole_identity() if recipe.trajectory else None,
            },
            "seed": self.who.seed,
        }


def measured_otherwise(probe: ProbeFolder, request: MitigationRequest) -> list[str]:
    """In what the probe's scores were made otherwise than the mending's, so that they are not to be compared."""
    assert request.searching is not None, "only who searches compares searches"
    _, probed = read_table(probe)
    # How groups were named moves no score.
    filters = request.searching.filters.identity() | {"name_groups": probed["settings"].get("name_groups")}
    pairs = {
        "judge": (probed["judge"], dict(request.who.grader.identity)),
        "way to answer": (probed["answers"], request.who.answers.identity()),
        "filter": (probed["settings"], filters),
    }
    return [words for words, (before, now) in pairs.items() if content_id(before) != content_id(now)]


def probed_settings(probe: ProbeFolder) -> tuple[dict[str, Any], dict[str, Any]]:
    """How the finished probe had its models answer, and where its filters drew the line.

    How its groups were named is left out: a mending names none.
    """
    _, probed = read_table(probe)
    # Scores of one judge under two ways of answering could not be compared.
    return probed["answers"], {name: value for name, value in probed["settings"].items() if name != "name_groups"}


def mitigation_folder(folder: ProbeFolder, request: MitigationRequest) -> MitigationFolder:
    """Where the mending lies, or will."""
    return folder.mitigation(f"{request.way}-{content_id(request.identity(tested_in(folder)))}")


def tested_in(folder: ProbeFolder) -> list[Tested]:
    """What the probe in the folder came to; refused unless it is finished."""
    if not folder.summary.exists():
        raise InputError(f"{folder.path} holds no finished probe; run `vestige probe TARGET UNLEARNED` there first")
    return read_tested(folder)


def picked_in(
    folder: ProbeFolder,
    forget: Sequence[Item],
    settings: MitigationSettings,
    tested: Sequence[Tested],
    *,
    seed: int,
) -> Picked:
    """Which prompts are used, held out and asked about; refused where there are none to use."""
    truths = {c.prompt: c.truth for c in candidates_in(folder)}
    adjacent, latent = pick_adjacent(tested, truths, settings, seed=seed), pick_latent(tested, settings, seed=seed)
    refuse_nothing(tested, [*adjacent.samples, *latent.samples], str(folder.path))
    samples = (*forget_samples(forget), *adjacent.samples, *latent.samples)
    return Picked(samples, (*adjacent.notes, *latent.notes))


def rules(settings: MitigationSettings) -> TrajectorySettings:
    """When the model is scored and which checkpoint is kept. Nothing stops early, as in the paper."""
    return TrajectorySettings.build(
        {"every": settings.every, "choose": settings.choose, "stop_when": ()}, where="settings of mitigation"
    )


def forget_samples(items: Sequence[Item]) -> tuple[PolicySample, ...]:
    """The questions of the forget set, each once; those of an edge are made from one thing."""
    samples: dict[str, PolicySample] = {}
    for item in items:
        if item.question.strip():
            samples.setdefault(item.question, PolicySample(FORGET, item.question, item.edge or item.id, item.answer))
    if not samples:
        raise InputError("the forget set has no questions, so what remains of it cannot be asked; give questions")
    return tuple(samples.values())
