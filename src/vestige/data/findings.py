"""Words of texts, and how the finding of a check of a data set becomes a verdict.

The null hypothesis of a guesser that never saw the forget set: the right option is any of an item's own, so that no
guess can know it. The guesses stay as they are and the right option is drawn anew among the item's own, `draws` times.
Items of one edge may err alike: from 5 edges on the drawn deviations are widened by sqrt(design effect) t(K - 1) / z,
as intervals are (`metrics.intervals`).

Axes: N questions, K options (at most), R draws. Values are shares of the pick, or gains in them.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from pydantic import Field, PositiveInt

from vestige.artifacts.audits import SoundnessLine
from vestige.core.estimates import Estimate
from vestige.core.seeds import generator
from vestige.core.settings import Settings
from vestige.data.mcq import MOST_OPTIONS, Choice, OptionDrawing
from vestige.metrics.answers import normalised
from vestige.metrics.distributions import t_quantile
from vestige.metrics.gains import need_rate_distortion
from vestige.metrics.intervals import LEAST_CLUSTERS, LEVEL, design_effect, interval_of_mean, wilson

_NAMED = re.compile(r"(?<=[^\s.?!:] )[A-Z]\S*|(?<!\S)\S*\d\S*")


def words(text: str) -> list[str]:
    """The words of a text as they are compared: folded, without punctuation."""
    return re.findall(r"\w+", normalised(text))


def plain(text: str) -> str:
    """The text as its words, apart by a space: what two copies of a text have in common."""
    return " ".join(words(text))


def word_shares(texts: Sequence[str]) -> dict[str, float]:
    """The share of the texts with each word."""
    counts = Counter[str]()
    for text in texts:
        counts.update(set(words(text)))
    return {word: n / len(texts) for word, n in counts.items()}


def named_words(text: str) -> frozenset[str]:
    """Return the words of names and numbers: capitals inside a sentence, and words with a digit."""
    return frozenset(words(" ".join(_NAMED.findall(text))))


def subject_words(question: str, shares_of: Mapping[str, float]) -> frozenset[str]:
    """Return the words of a question's subject: names, numbers, and words in no more than 5 % of the questions.

    A word in more than 60 % of the questions belongs to a template.
    """
    shares = {word: shares_of.get(word, 0.0) for word in words(question) if len(word) > 1}
    names = named_words(question)
    return frozenset(word for word, share in shares.items() if share <= 0.05 or (word in names and share <= 0.6))


_TAIL = (1 - LEVEL) / 2
Values = Float[np.ndarray, " K"]


class GuessOutcome(NamedTuple):
    """A guesser's result: its mean above chance, the p-value of the null, and its gain above chance by item.

    `bits` are those an answer that a guesser of this accuracy needs at least (rate-distortion), 0 at chance.
    """

    p: float
    effect: Estimate
    accuracy: float
    chance: float
    bits: float
    above: Float[np.ndarray, " N"]


def picks(scores: Values) -> Values:
    """Return each option's share of the pick: 1 for the highest score, split equally between ties."""
    # Sums in another order differ in their last bits.
    best = scores >= scores.max() - 1e-12
    shares: Values = best / best.sum()
    return shares


def above_own_options(
    values: Sequence[Values], right: Sequence[int], edges: Sequence[str] | None, *, seed: int, draws: int
) -> GuessOutcome:
    """The mean over items of the right option's value less the mean of all the item's options, against the null."""
    means = np.array([float(v.mean()) for v in values])
    above = np.array([float(v[r]) for v, r in zip(values, right, strict=True)]) - means
    low, high, interval = interval_of_mean(above, clusters=edges, bounds=(-1.0, 1.0), seed=seed)
    mean, chance = float(above.mean()), float(means.mean())
    null = _drawn_anew(values, means, seed=seed, draws=draws) * _wider(above, edges)
    # The data themselves count as one draw, so p is never 0.
    p = (1 + int(np.count_nonzero(null >= mean - 1e-12))) / (draws + 1)
    options = round(float(np.median([len(v) for v in values])))
    bits = 0.0
    if 0 < chance < 1:
        bits = need_rate_distortion(1, min(1.0, max(0.0, mean + chance)), options)
    effect = Estimate("accuracy above chance", "share", mean, min(low, mean), max(high, mean), len(values), interval)
    return GuessOutcome(p, effect, mean + chance, chance, bits, above)


def _drawn_anew(
    values: Sequence[Values], means: Float[np.ndarray, " N"], *, seed: int, draws: int
) -> Float[np.ndarray, " R"]:
    """Return means above chance with randomly redrawn right options."""
    sizes = np.array([len(v) for v in values])
    table = np.zeros((len(values), int(sizes.max())))
    for row, v, mean in zip(table, values, means, strict=True):
        row[: len(v)] = v - mean
    rng, parts = generator(seed, "right options drawn anew"), []
    # About 16 MB at a time.
    at_once = max(1, min(draws, 2_000_000 // len(values)))
    for start in range(0, draws, at_once):
        indices = (rng.random((min(at_once, draws - start), len(values))) * sizes).astype(np.int64)
        parts.append(table[np.arange(len(values)), indices].mean(axis=1))
    return np.concatenate(parts)


def _wider(above: Float[np.ndarray, " N"], edges: Sequence[str] | None) -> float:
    """How much wider chance is where the items of an edge err alike; 1 with few edges, which are then all there is."""
    if edges is None or (k := len(set(edges))) < LEAST_CLUSTERS:
        return 1.0
    effect = design_effect(above, np.asarray(edges, dtype=str))
    return math.sqrt(effect) * t_quantile(k - 1, 1 - _TAIL) / -t_quantile(math.inf, _TAIL)


class SoundnessSettings(Settings):
    """The settings of the data checks. Each can change the result, so the result records all of them.

    A check passes if the whole interval of its effect is below `margin`. Otherwise, it fails if its p-value is below
    `alpha`, and is inconclusive if it is not. An effect is a share of correct picks above chance.
    """

    alpha: float = Field(default=0.05, gt=0, lt=1)
    """Level of the tests."""
    margin: float = Field(default=0.1, gt=0, lt=1)
    """Largest effect that is tolerated, as a share above chance."""
    permutations: int = Field(default=4_000, ge=2_000)
    """Permutations of each test."""
    options: int = Field(default=4, ge=2, le=MOST_OPTIONS)
    """Options drawn where the data gives none."""
    most_taught: PositiveInt = 2_000
    """At most this many retain items teach the guessers."""

    def drawing(self, seed: int) -> OptionDrawing:
        """Return the settings for drawing options. Options in the data keep their places, which are checked too."""
        return OptionDrawing(self.options, too_few="leave_out", place="given", seed=seed)


class Check(NamedTuple):
    """The result of one check, and the ids of the forget items that leak.

    Those that a guesser solves most clearly come first. `needs` has the number of items that an open check requires.
    """

    line: SoundnessLine
    leaking: tuple[str, ...] = ()
    needs: str = ""


def undecided(name: str, why: str) -> Check:
    """A check that could not be made."""
    return Check(SoundnessLine(check=name, sound=None, effect=None, p=None, reason=why))


def counted(name: str, sentence: str, leaking: Sequence[str], n: int) -> Check:
    """A check whose finds, of `n` forget items, are leaks without further ado."""
    low, high, interval = wilson(len(leaking), n)
    share = Estimate("share of forget items", "share", len(leaking) / n, low, high, n, interval)
    line = SoundnessLine(check=name, sound=not leaking, effect=share, p=None, reason=sentence)
    return Check(line, tuple(leaking))


def by_guesser(
    name: str, sentence: str, choices: Sequence[Choice], outcome: GuessOutcome, settings: SoundnessSettings
) -> Check:
    """A check by a guesser: failed, passed, or cannot tell, with the reason."""
    effect = outcome.effect
    reason = (
        f"{sentence}: accuracy {outcome.accuracy:.2f} where chance is {outcome.chance:.2f} ({outcome.bits:.2f} bits an "
        f"answer); p = {outcome.p:.2g}"
    )
    sound = None
    needs = ""
    # A clearly small effect passes, even if it is significant.
    if effect.high < settings.margin:
        sound = True
        reason += f"; below the margin {settings.margin}"
    elif outcome.p < settings.alpha:
        sound = False
    else:
        reason += f"; it may be as much as {effect.high:.2f} above chance"
        items = items_needed(settings.margin, outcome.chance)
        if items > effect.n:
            needs = f"the margin {settings.margin:g} needs about {items} items where chance is {outcome.chance:.2f}"
    solved = sorted((-float(above), c.item) for c, above in zip(choices, outcome.above, strict=True) if above > 0)
    line = SoundnessLine(check=name, sound=sound, effect=effect, p=outcome.p, reason=reason)
    return Check(line, tuple(dict.fromkeys(item for _, item in solved)), needs)


def items_needed(margin: float, chance: float) -> int:
    """How many items an interval of arm `margin` needs at chance (normal approximation)."""
    return math.ceil(t_quantile(math.inf, _TAIL) ** 2 * chance * (1 - chance) / margin**2)
