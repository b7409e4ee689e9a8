"""Settings of the checks of a data set, what one check found, and how several become verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import Field, PositiveInt

from vestige.artifacts.audits import SoundnessLine
from vestige.core.estimates import Estimate
from vestige.core.settings import Settings
from vestige.data.mcq import MOST_OPTIONS, Choice, Drawing
from vestige.data.soundness.nulls import Outcome, items_needed
from vestige.metrics.bands import holm
from vestige.metrics.intervals import wilson

LEAST_ITEMS = 5
"""With fewer forget items no number of options lets chance be told from a leak."""
LEAST_TAUGHT = 20
"""Retain items with options below which nothing is learned from them."""


class SoundnessSettings(Settings):
    """Thresholds of the checks; all of them stand in the result.

    A tested check fails where its p-value, after Holm's correction for all that were made, is below `alpha`, unless the
    whole interval of its effect is below `margin`; it passes where that is so; else it cannot tell. Effects are shares
    of the pick above chance.
    """

    alpha: float = Field(default=0.05, gt=0, lt=1)
    """Level of the tests."""
    margin: float = Field(default=0.1, gt=0, lt=1)
    """Largest effect that is tolerated, as a share above chance."""
    permutations: int = Field(default=4_000, ge=2_000)
    """Permutations of each test."""
    near: float = Field(default=0.8, gt=0, le=1)
    """Weighted Jaccard index from which two texts are near-duplicates."""
    held: float = Field(default=0.9, gt=0, le=1)
    """Share of a forget question's weight from which a retain question contains it."""
    options: int = Field(default=4, ge=2, le=MOST_OPTIONS)
    """Options drawn where the data gives none."""
    most_taught: PositiveInt = 2_000
    """At most this many retain items teach the guessers."""

    def drawing(self, seed: int) -> Drawing:
        """How options are drawn; those that the data gives keep their places, which are checked too."""
        return Drawing(self.options, too_few="leave_out", place="given", seed=seed)


@dataclass(frozen=True)
class Check:
    """What one check found.

    A counted check has the forget items that leak for certain, and is decided by whether there are any; a tested one
    has a p-value and an effect; `undecided` says why a check could not be made. `leaking` are ids of forget items with
    how clearly they leak (the greater, the clearer); of a tested check they are the items that the guesser solves, and
    `surplus` of them are more than chance explains.
    """

    name: str
    said: str
    leaking: Mapping[str, float] = field(default_factory=dict)
    effect: Estimate | None = None
    outcome: Outcome | None = None
    undecided: str = ""
    surplus: int = 0


def counted(name: str, said: str, leaking: Mapping[str, float], n: int) -> Check:
    """A check whose finds are leaks without further ado."""
    low, high, interval = wilson(len(leaking), n)
    effect = Estimate("share of forget items", "share", len(leaking) / n, low, high, n, interval)
    return Check(name, said, leaking, effect=effect, surplus=len(leaking))


def by_guesser(name: str, said: str, choices: Sequence[Choice], outcome: Outcome) -> Check:
    """A check by a guesser: the items it solves, by how much, and how many of them chance does not explain."""
    solved = {c.item: float(a) for c, a in zip(choices, outcome.above, strict=True) if a > 0}
    missing = 1 - outcome.chance
    surplus = (outcome.accuracy - outcome.chance) * len(choices) / missing if missing > 0 else 0.0
    return Check(
        name,
        said,
        dict(sorted(solved.items(), key=lambda pair: (-pair[1], pair[0]))),
        effect=outcome.effect,
        outcome=outcome,
        surplus=min(len(solved), max(0, -int(-surplus // 1))),
    )


def undecided(name: str, why: str) -> Check:
    """A check that could not be made with this data."""
    return Check(name, "", undecided=why)


def decide(checks: Sequence[Check], settings: SoundnessSettings) -> tuple[SoundnessLine, ...]:
    """A line a check: failed, passed, or cannot tell, with the reason; Holm's correction over all that were tested."""
    made = [c for c in checks if c.outcome is not None]
    corrected = dict(zip((c.name for c in made), holm([c.outcome.p for c in made if c.outcome]), strict=True))
    return tuple(_line(c, corrected.get(c.name), settings) for c in checks)


def _line(check: Check, p: float | None, settings: SoundnessSettings) -> SoundnessLine:
    if check.undecided:
        return SoundnessLine(check.name, None, None, None, check.undecided)
    if check.outcome is None or p is None or check.effect is None:
        return SoundnessLine(check.name, not check.leaking, check.effect, None, check.said)
    t, effect = check.outcome, check.effect
    sized = f"accuracy {t.accuracy:.2f} where chance is {t.chance:.2f} ({t.bits:.2f} bits an answer); p = {p:.2g}"
    if effect.high < settings.margin:
        return SoundnessLine(check.name, True, effect, p, f"{check.said}: {sized}; below the margin {settings.margin}")
    if p < settings.alpha:
        return SoundnessLine(check.name, False, effect, p, f"{check.said}: {sized}")
    why = f"it may be as much as {effect.high:.2f} above chance"
    return SoundnessLine(check.name, None, effect, p, f"{check.said}: {sized}; {why}")


def margin_needs(checks: Sequence[Check], lines: Sequence[SoundnessLine], settings: SoundnessSettings) -> str:
    """In a sentence how many items the margin takes, where a tested check is open for having fewer; else empty."""
    open_ = {line.check for line in lines if line.sound is None}
    needs = [
        (items_needed(settings.margin, c.outcome.chance), c.outcome.chance)
        for c in checks
        if c.name in open_ and c.outcome and items_needed(settings.margin, c.outcome.chance) > c.outcome.effect.n
    ]
    if not needs:
        return ""
    items, chance = max(needs)
    return f"the margin {settings.margin:g} needs about {items} items where chance is {chance:.2f}"
