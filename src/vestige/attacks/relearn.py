"""Relearning: the model is fine-tuned on some items and tested on others.

The training items are a material: `retain`, `related` and `unrelated` items reveal no more of the forget set than the
retain set does, a part of the forget set is closed under implication, and the forget set itself is the upper bound, and
never evidence.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from vestige.artifacts.audits import PlannedAttack
from vestige.artifacts.layout import AttackFolder
from vestige.attacks.in_context import answered_by_others, close, holds_answer, not_asked, related_items
from vestige.attacks.planning import GIVEN, Attack, AttackSettings, Ended, Splits, Work
from vestige.core.errors import InputError
from vestige.core.files import read_jsonl
from vestige.core.items import Item, ItemTuple
from vestige.core.seeds import derive_seed
from vestige.core.text import Record, TextTuple
from vestige.data.corpus import factual_items
from vestige.metrics.gains import prequential
from vestige.training.settings import EVERY, TrainingSettings

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from vestige.models.load import LoadedModel
    from vestige.training.checkpoints import TrainingJob
    from vestige.training.loop import Progress

Material = Literal["retain", "related", "unrelated", "forget_part", "forget"]


class RelearnSettings(AttackSettings):
    """Fine-tune the model again. The defaults come from 2506.00688 and its released code.

    The attack trains LoRA on all linear layers of the blocks, with AdamW, the mean loss of the answer tokens, a linear
    schedule and gradients clipped at a norm of 1. The released code computes in bfloat16, as `precision` can.
    """

    kind: ClassVar[str] = "relearn"
    amount: ClassVar[str] = "items"
    weights: ClassVar[str] = "relearning"

    material: Material = Field(default="retain", exclude=True)
    """What to tune on. The forget set itself is the upper bound."""
    items: PositiveInt = Field(default=50, exclude=True)
    """The maximum number of items."""
    epochs: PositiveInt = 3
    """Epochs."""
    rate: PositiveFloat = 2e-4
    """Learning rate."""
    rank: int = Field(default=128, ge=0)
    """Rank of LoRA; 0 trains all weights."""
    alpha: PositiveInt = 16
    """Alpha of LoRA."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout of LoRA."""
    batch_size: PositiveInt = 1
    """Rows per step."""
    warmup: float = Field(default=0.05, ge=0, le=1)
    """Warm-up as a share of all steps."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Weight decay of AdamW."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Number format of matrix products."""
    curve: bool = Field(default=False, exclude=True)
    """Ask after every epoch, and not after the last one alone."""
    also: str = Field(default="", exclude=True)
    """Return the suffix of its name for special settings."""

    @property
    def called(self) -> str:
        """Return its name by its training items."""
        return f"relearn {self.material} n={self.items}"

    @classmethod
    def in_audit(cls, asked: Record) -> Iterator[Self]:
        """For each material and number of items all that an attacker tries, the plain relearning first."""
        values = {name: asked[f"relearn_{name}"] for name in ("epochs", "rate", "rank", "alpha", "batch_size")}
        values["curve"] = asked.get("relearn_curve", False)
        plain = cls.build(values, where="settings of relearning")
        for material in asked["relearn"]:
            for items in asked["relearn_items"]:
                for rank in dict.fromkeys((plain.rank, *asked["relearn_ranks"])):
                    for rate in dict.fromkeys((plain.rate, *asked["relearn_rates"])):
                        if rate == plain.rate:
                            also = ""
                        else:
                            also = f" rate={rate}"
                        also += "" if rank == plain.rank else f" rank={rank}"
                        # An upper bound is not evidence, so a search over its settings has no use.
                        if material != "forget" or not also:
                            tried = {"material": material, "items": items, "rank": rank, "rate": rate, "also": also}
                            yield plain.model_copy(update=tried)

    def plan(self, splits: Splits, *, seed: int) -> Attack:
        """Tuning on at most `items` of the material. The name includes the number."""
        material = shown_and_tested(self.material, self.items, splits, seed=seed)
        if self.curve:
            first_asked = 1
        else:
            first_asked = self.epochs
        plan = PlannedAttack(
            name=f"relearn {self.material} n={len(material.shown)}{self.also}",
            kind=self.kind,
            material=self.material,
            n_shown=len(material.shown),
            points=tuple(str(epoch) for epoch in range(first_asked, self.epochs + 1)),
            tested=tuple(i.id for i in material.tested),
            shows_answers=material.shows_answers,
            settings=self.identity(),
        )
        # The plain relearning on the same items has these notes already.
        notes = () if self.also else material.notes(self.items)
        return Attack(plan, material.shown, material.tested, splits=splits, notes=notes)

    def training_steps(self, plan: PlannedAttack) -> int:
        """Return the number of steps of all epochs."""
        return self.epochs * math.ceil(plan.n_shown / self.batch_size)

    def job(self, attack: Attack, folder: AttackFolder, loaded: "LoadedModel", *, seed: int) -> "TrainingJob":
        """Return the training job. The model gets adapters."""
        from vestige.training.adapters import add_lora
        from vestige.training.batching import FinetunePlan, row_of
        from vestige.training.checkpoints import Checkpoints, Finetune, TrainingJob

        training = self.training(len(attack.shown))
        rows = [row_of(loaded.prompter.encode(i.question, i.answer)) for i in attack.shown]
        if training.lora_rank:
            add_lora(loaded.model, training, seed)
        return TrainingJob(
            objective=Finetune(),
            rows={"train": rows.__getitem__},
            plan=FinetunePlan(len(rows), training.batch_size, seed),
            settings=training,
            seed=seed,
            checkpoints=Checkpoints(folder.checkpoints),
            log=folder.training_log,
        )

    def run(self, work: Work, loaded: "LoadedModel") -> Ended:
        """Train, and ask at every point of the plan. Half of the way is training and half is asking."""
        from vestige.training.loop import Hooks, train

        points = work.attack.plan.points
        job = self.job(work.attack, work.folder, loaded, seed=work.seed)
        per_epoch, done = job.plan.steps_per_epoch, job.checkpoints.newest() or 0
        # A checkpoint was trained too: if such a model breaks, the attack's learning rate may be too high.
        work.tuned = done > 0
        rows = [job.rows["train"](n) for n in range(len(work.attack.shown))]
        epoch_costs = {"steps": per_epoch, "items_shown": len(rows), "tokens_shown": sum(len(r.ids) for r in rows)}
        spent = {name: amount * self.epochs for name, amount in epoch_costs.items()}

        def tell(epochs_trained: float, points_asked: int, share: float) -> None:
            work.on_progress(epochs_trained / self.epochs / 2 + (points_asked + share) / len(points) / 2)

        for number, point in enumerate(points):
            # A point is the number of epochs before an evaluation.
            until = int(point) * per_epoch
            on_share = partial(tell, int(point), number)
            if done > until:
                # The evaluation preceded further training, so its answers are complete.
                work.ask(point, _gone, on_share)
                continue

            def on_step(now: "Progress", number: int = number) -> None:
                work.tuned = True
                tell(now.step / now.n_steps * self.epochs, number, 0.0)

            train(loaded.model, job, Hooks(on_step=on_step), until=until)
            with left_as_it_was(loaded.model):
                # A new object with the same weights, so that its reading settings are determined again, as after a
                # restart.
                work.ask(point, lambda: replace(loaded), on_share)
        return Ended({"prequential code length of what was shown": prequential_bits(job)}, spent, spent)

    def training(self, n_items: int) -> TrainingSettings:
        """Return the training loop's settings for this number of items. Warm-up steps are rounded up."""
        steps = self.epochs * math.ceil(n_items / self.batch_size)
        return TrainingSettings(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.rate,
            schedule="linear",
            warmup_steps=math.ceil(self.warmup * steps),
            weight_decay=self.weight_decay,
            precision=self.precision,
            loss_on="answer",
            lora_rank=self.rank,
            lora_alpha=self.alpha,
            lora_dropout=self.dropout,
            lora_targets=EVERY,
        )


@dataclass(frozen=True)
class ShownAndTested:
    """A relearning's training and test items. `note` is a sentence on untested items, or ""."""

    shown: ItemTuple
    tested: ItemTuple
    shows_answers: bool = False
    note: str = ""

    def notes(self, n: int) -> TextTuple:
        """Return sentences on a shortage of training items below `n`, and on untested items."""
        fewer = (f"{len(self.shown)} items are shown where {n} were asked for",) if len(self.shown) < n else ()
        return (*fewer, *((self.note,) if self.note else ()))


def shown_and_tested(material: Material, n: int, splits: Mapping[str, Sequence[Item]], *, seed: int) -> ShownAndTested:
    """Return at most `n` nested training items, and the forget items to test, the same for every n.

    Raises InputError where the splits have nothing of the material, or would leave nothing to ask.
    """
    forget = tuple(splits.get("forget", ()))
    if not forget:
        raise InputError("there are no forget items, so no attack can be tested. Name some with --forget")
    if material == "forget":
        return ShownAndTested(_first(n, forget, "forget", seed), forget, shows_answers=True)
    if material == "forget_part":
        return _part(n, forget, seed)
    return ShownAndTested(_first(n, _others(material, splits, forget), material, seed), forget)


def _others(material: Material, splits: Mapping[str, Sequence[Item]], forget: Sequence[Item]) -> list[Item]:
    """The items of a material that are no forget items."""
    retain = not_asked(splits.get("retain", ()), forget)
    if material == "unrelated":
        facts = not_asked(factual_items(), (*forget, *retain))
        items = []
        for fact in facts:
            if not any(holds_answer(fact, item) for item in forget):
                items.append(fact)
        why = "every built-in factual question holds a forget item's answer or is in the data, so nothing is unrelated"
    elif material == "related":
        items = related_items(retain, forget)
        why = (
            "no retain item is known to be related to the forget set: no edges named X_Y share an entity with it, and "
            "no attribute is asked for in both"
        )
    else:
        items, why = retain, "there are no retain items to tune on"
    if not items:
        raise InputError(why)
    return items


def _first(n: int, items: Sequence[Item], purpose: str, seed: int) -> ItemTuple:
    """The first `n` in an order that depends on the seed and on each item alone."""
    return tuple(sorted(items, key=lambda i: derive_seed(seed, f"relearn {purpose}", i.id))[:n])


def _part(n: int, forget: Sequence[Item], seed: int) -> ShownAndTested:
    """Half of the edges to show and the others to ask.

    With one edge, half of the items, those that others reveal first. The tested items exclude everything that any n
    would reveal.
    """
    # Items are split by edge, because questions about one contract reveal each other.
    edges = sorted({i.edge or "" for i in forget}, key=lambda e: derive_seed(seed, "relearn edge", e))
    order = _first(len(forget), forget, "forget part", seed)
    if len(edges) > 1:
        to_show = edges[: len(edges) // 2]
        pool = sorted((i for i in order if (i.edge or "") in to_show), key=lambda i: to_show.index(i.edge or ""))
    else:
        # Items that other questions reveal cannot be tested, so they are shown first.
        stated = answered_by_others(order)
        pool = sorted(order, key=lambda i: i.id not in stated)[: len(order) // 2]
    chosen = {i.id for i in pool}
    tested, dropped = close([i for i in forget if i.id not in chosen], pool)
    if not pool or not tested:
        raise InputError(
            f"the {len(forget)} forget items cannot be split into items to show and some to ask that do not follow "
            "from those. Give more forget items, or other relearn items"
        )
    note = ""
    if dropped:
        note = f"{len(dropped)} held-out forget items follow from those shown and are not asked"
    return ShownAndTested(tuple(pool[:n]), tuple(tested), note=note)


def planned_on_part(
    settings: AttackSettings, items: int, splits: Splits, *, seed: int, points: TextTuple = (GIVEN,)
) -> Attack:
    """An attack led by at most `items` of a part of the forget set, judged by the rest.

    Its name includes the number.
    """
    parts = shown_and_tested("forget_part", items, splits, seed=seed)
    n, ids, kind = len(parts.shown), tuple(i.id for i in parts.tested), settings.kind
    plan = PlannedAttack(f"{kind} n={n}", kind, "forget_part", n, points, ids, False, settings.identity())
    return Attack(plan, parts.shown, parts.tested, splits=splits, notes=parts.notes(items))


@contextlib.contextmanager
def left_as_it_was(model: "PreTrainedModel") -> Iterator[None]:
    """A context for evaluating a model during training: its mode is restored, and there are no gradients."""
    trained = [(p, p.requires_grad) for p in model.parameters()]
    training = model.training
    model.eval()
    try:
        yield
    finally:
        for parameter, flag in trained:
            parameter.requires_grad_(flag)
            parameter.grad = None
        model.train(training)


def _gone() -> "LoadedModel":
    raise InputError(
        "stored answers of the attack are missing, and its training has continued since. Delete the attack's folder "
        "and run again"
    )


def prequential_bits(job: "TrainingJob") -> float:
    """-sum log2 p of the shown answers, ends of turns included, each before the model was tuned on it: the first epoch.

    A step's logged loss is the mean over its answers' tokens, in nats, before its update.
    """
    losses = [line["loss"] for line in read_jsonl(job.log) if line["epoch"] == 0]
    logp = []
    for batch, loss in zip(job.plan.epoch(0), losses, strict=True):
        n_tokens = sum(job.rows["train"](n).n_tokens for n in batch["train"])
        logp.append(np.array([-loss * n_tokens]))
    return prequential(logp)
