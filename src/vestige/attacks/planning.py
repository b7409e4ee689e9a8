"""From an audit's settings to its attacks: what each shows, and what it asks. No model is needed for that."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from vestige.artifacts.audits import Kind, PlannedAttack
from vestige.attacks.enhanced import EnhancedSettings
from vestige.attacks.gcg import GcgSettings
from vestige.attacks.in_context import facts_before, in_seeded_order, not_asked
from vestige.attacks.placement import POINTS
from vestige.attacks.relearn import Material, RelearnSettings, ShownAndTested, shown_and_tested
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.core.settings import Settings

GIVEN = "given"
"""The one point of an attack that does not train."""

Splits = Mapping[str, Sequence[Item]]


class AttackSettings(Settings):
    """Those of an audit's settings that its attacks follow from, under their names there, where they have defaults."""

    relearn: tuple[Material, ...]
    relearn_items: tuple[PositiveInt, ...]
    relearn_epochs: PositiveInt
    relearn_rate: PositiveFloat
    relearn_rank: int = Field(ge=0)
    relearn_rates: tuple[PositiveFloat, ...]
    relearn_ranks: tuple[NonNegativeInt, ...]
    relearn_alpha: PositiveInt
    relearn_batch_size: PositiveInt
    quantize: tuple[Literal[4, 8], ...]
    in_context: tuple[PositiveInt, ...]
    gcg: tuple[PositiveInt, ...]
    prefix: tuple[PositiveInt, ...]
    prompt_tokens: PositiveInt | None
    prompt_steps: PositiveInt | None
    prompt_candidates: PositiveInt | None

    @classmethod
    def among(cls, values: Mapping[str, Any]) -> "AttackSettings":
        """Taken out of all of an audit's settings."""
        return cls.build({name: values[name] for name in cls.model_fields}, where="settings of the attacks")

    def relearning(self) -> RelearnSettings:
        """How models are tuned again; what an audit does not set is as `RelearnSettings` has it."""
        return RelearnSettings(
            epochs=self.relearn_epochs,
            rate=self.relearn_rate,
            rank=self.relearn_rank,
            alpha=self.relearn_alpha,
            batch_size=self.relearn_batch_size,
        )

    def grid(self) -> dict[str, RelearnSettings]:
        """All that an attacker tries, by what differs from `relearning`, which comes first and is called ""."""
        plain = self.relearning()
        found = {}
        for rank in dict.fromkeys((plain.rank, *self.relearn_ranks)):
            for rate in dict.fromkeys((plain.rate, *self.relearn_rates)):
                name = "" if rate == plain.rate else f" rate={rate}"
                name += "" if rank == plain.rank else f" rank={rank}"
                found[name] = plain.model_copy(update={"rate": rate, "rank": rank})
        return found

    def suffix_search(self) -> GcgSettings:
        """How a suffix is searched; what an audit does not set is as `GcgSettings` has it."""
        own = {"tokens": self.prompt_tokens, "steps": self.prompt_steps, "width": self.prompt_candidates}
        return GcgSettings.build({k: v for k, v in own.items() if v is not None}, where="settings of gcg")

    def prefix_search(self) -> EnhancedSettings:
        """How a prefix is searched; what an audit does not set is as `EnhancedSettings` has it."""
        own = {"tokens": self.prompt_tokens, "steps": self.prompt_steps, "candidates": self.prompt_candidates}
        return EnhancedSettings.build({k: v for k, v in own.items() if v is not None}, where="settings of prefix")


@dataclass(frozen=True)
class Attack:
    """A planned attack with what it shows and asks.

    `tested` are forget items as they stand in the data. `facts` has, by the id of a tested item, what stands before its
    question. `splits` are all items, from which an evaluation draws wrong options and examples. `notes` say in
    sentences what was left untested.
    """

    plan: PlannedAttack
    shown: tuple[Item, ...]
    tested: tuple[Item, ...]
    facts: Mapping[str, tuple[Item, ...]] = field(default_factory=dict)
    splits: Splits = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Planned(NamedTuple):
    """The attacks, and in sentences what cannot be tried or asked with these data."""

    attacks: tuple[Attack, ...]
    untested: tuple[str, ...]


def plan_all(settings: AttackSettings, splits: Splits, *, seed: int) -> Planned:
    """The attacks in the order relearning, quantisation, facts, searched prompts; each name once."""
    if not splits.get("forget"):
        raise InputError("there are no forget items, so no attack has anything to ask")
    found: dict[str, Attack] = {}
    untested: list[str] = []
    for name, plan in _asked_for(settings, splits, seed):
        try:
            attack = plan()
        except InputError as error:
            untested.append(f"{name} was not tried: {error}")
            continue
        if attack.plan.name not in found:
            found[attack.plan.name] = attack
            untested += [f"{attack.plan.name}: {note}" for note in attack.notes]
    return Planned(tuple(found.values()), tuple(dict.fromkeys(untested)))


def _asked_for(settings: AttackSettings, splits: Splits, seed: int) -> Iterator[tuple[str, Callable[[], Attack]]]:
    for material in settings.relearn:
        for n in settings.relearn_items:
            for also, how in settings.grid().items():
                # A ceiling is no evidence, so that nothing is won by searching for it.
                if material != "forget" or not also:
                    planned = partial(relearn_attack, material, n, how, splits, seed=seed, also=also)
                    yield f"relearn {material} n={n}", planned
    for bits in settings.quantize:
        yield f"quantize {bits} bits", partial(quantize_attack, bits, splits)
    for n in settings.in_context:
        yield f"in_context n={n}", partial(in_context_attack, n, splits, seed=seed)
    for n in settings.gcg:
        yield f"gcg n={n}", partial(gcg_attack, n, settings.suffix_search(), splits, seed=seed)
    for n in settings.prefix:
        yield f"prefix n={n}", partial(prefix_attack, n, settings.prefix_search(), splits, seed=seed)


def relearn_attack(
    material: Material, n: int, settings: RelearnSettings, splits: Splits, *, seed: int, also: str = ""
) -> Attack:
    """Tuning on at most `n` items of a material; the name says how many there were, and `also` what is special."""
    found = shown_and_tested(material, n, splits, seed=seed)
    plan = PlannedAttack(
        name=f"relearn {material} n={len(found.shown)}{also}",
        kind="relearn",
        material=material,
        n_shown=len(found.shown),
        points=tuple(str(epoch) for epoch in range(1, settings.epochs + 1)),
        tested=tuple(i.id for i in found.tested),
        shows_answers=found.shows_answers,
        settings=settings.identity(),
    )
    return Attack(plan, found.shown, found.tested, splits=splits, notes=() if also else _notes(found, n))


def quantize_attack(bits: Literal[4, 8], splits: Splits) -> Attack:
    """Rounding the weights: nothing is shown, and every forget item is asked."""
    tested = tuple(splits["forget"])
    plan = _plan_at_once(f"quantize {bits} bits", "quantize", "nothing", 0, tested, {"bits": bits})
    return Attack(plan, (), tested, splits=splits)


def in_context_attack(n: int, splits: Splits, *, seed: int) -> Attack:
    """`n` retain items before each question, which are others for each."""
    tested = tuple(splits["forget"])
    retain = in_seeded_order(not_asked(splits.get("retain", ()), tested), seed=seed)
    facts = {i.id: facts_before(i, retain, n) for i in tested}
    shown = tuple({f.id: f for own in facts.values() for f in own}.values())
    plan = _plan_at_once(f"in_context n={n}", "in_context", "retain", n, tested, {"facts": n})
    return Attack(plan, shown, tested, facts=facts, splits=splits)


def gcg_attack(n: int, settings: GcgSettings, splits: Splits, *, seed: int) -> Attack:
    """A prompt that brings the answers of `n` forget items, beside others whose answers do not follow from those."""
    if settings.placement == "infix":
        raise InputError("a prompt for questions of a data set stands before or after them; choose prefix or suffix")
    return _searched("gcg", n, settings.identity(), splits, seed)


def prefix_attack(n: int, settings: EnhancedSettings, splits: Splits, *, seed: int) -> Attack:
    """A prefix that brings what the target says of `n` forget items, before others that do not follow from those."""
    return _searched("prefix", n, settings.identity(), splits, seed)


def _searched(kind: Kind, n: int, settings: dict[str, Any], splits: Splits, seed: int) -> Attack:
    found = shown_and_tested("forget_part", n, splits, seed=seed)
    n_shown = len(found.shown)
    tested = tuple(i.id for i in found.tested)
    plan = PlannedAttack(f"{kind} n={n_shown}", kind, "forget_part", n_shown, POINTS, tested, False, settings)
    return Attack(plan, found.shown, found.tested, splits=splits, notes=_notes(found, n))


def _notes(found: ShownAndTested, n: int) -> tuple[str, ...]:
    fewer = (f"{len(found.shown)} items are shown where {n} were asked for",) if len(found.shown) < n else ()
    return (*fewer, *((found.note,) if found.note else ()))


def n_steps(attack: Attack) -> int:
    """How many steps a search for a prompt takes at most; 0 of an attack that searches for none."""
    settings = attack.plan.settings
    if attack.plan.kind == "gcg":
        return int(settings["restarts"] * settings["steps"])
    return int(settings["steps"]) if attack.plan.kind == "prefix" else 0


def n_passes(attack: Attack) -> int:
    """How many texts such a search reads at most, on one model, a prompt in two questions being two."""
    plan, steps = attack.plan, n_steps(attack)
    if plan.kind == "gcg":
        # At each step all candidates, a gradient and a look at the winner; at each start the start, twice.
        return int(steps * (plan.settings["width"] + 2) + 2 * plan.settings["restarts"]) * plan.n_shown
    if plan.kind == "prefix":
        # At each step all candidates and a pass for each of four moves, by the subject and by the target.
        return 2 * int(steps * (plan.settings["candidates"] + 4) + 1) * plan.n_shown
    return 0


def _plan_at_once(
    name: str, kind: Kind, material: str, n_shown: int, tested: Sequence[Item], settings: dict[str, Any]
) -> PlannedAttack:
    return PlannedAttack(name, kind, material, n_shown, (GIVEN,), tuple(i.id for i in tested), False, settings)
