"""What retain-only training gains on a forget set that was never seen: from options' log-probabilities to checks.

Axes: K options of a question. Answers are log-probabilities in nats, the mean over an option's tokens; bits are log2 of
the right option's probability among the options.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp
from scipy.stats import binom

from vestige.artifacts.audits import SoundnessLine
from vestige.core.estimates import Estimate
from vestige.data.mcq import Choice
from vestige.data.soundness.duplicates import edges_of
from vestige.data.soundness.findings import Check, by_guesser
from vestige.data.soundness.nulls import Outcome, Values, above_own_options, picks
from vestige.data.soundness.settings import SoundnessSettings
from vestige.metrics.information import need_rate_distortion, relearning_generalization_index
from vestige.metrics.intervals import interval_of_mean, wilson

TAUGHT = "retain-only training"
STRANGERS = "retain-only training, new names"
SPLITS = "random splits"

Answers = tuple[Values, ...]
"""Of each question the log-probabilities of its options."""


class Models(NamedTuple):
    """One seed's answers: of the base, of the base taught the retain items, and taught unrelated ones."""

    base: Answers
    taught: Answers
    other: Answers

    def cut(self, start: int, stop: int) -> "Models":
        """The answers to some of the questions."""
        return Models(self.base[start:stop], self.taught[start:stop], self.other[start:stop])


def taught_check(
    asked: Sequence[Choice], models: Sequence[Models], settings: SoundnessSettings, seed: int, *, name: str = TAUGHT
) -> tuple[Check, dict[str, float]]:
    """Whether teaching the retain set alone lifts the forget set, and the numbers behind it.

    The gain is the smaller of those over the base and over unrelated teaching, and its p-value the greater (an
    intersection-union test): a leak is what neither of them explains.
    """
    base, taught, other = ([m[kind] for m in models] for kind in range(3))
    over_base, over_other = (gain(taught, before, asked, settings, seed) for before in (base, other))
    least = min(over_base, over_other, key=lambda t: t.effect.value)
    before, after, control = (accuracy(asked, answers) for answers in (base, taught, other))
    bits = _bits(asked, base, taught, seed)
    figures = {
        "accuracy of the base": before,
        "accuracy after retain-only training": after,
        "accuracy after unrelated training": control,
        "p over the base": over_base.p,
        "p over unrelated training": over_other.p,
        "bits an answer over the base": bits.value,
    }
    ends = {"low": bits.low, "high": bits.high}
    figures |= {f"bits an answer over the base, {name}": x for name, x in ends.items() if math.isfinite(x)}
    for number, one in enumerate(models, 1):
        single = accuracy(asked, [one.taught]) - accuracy(asked, [one.base])
        figures[f"gain over the base, seed {number}"] = single
    index = ""
    if before < 1:
        figures["RGI"] = relearning_generalization_index(before, after)
        index = f", RGI {figures['RGI']:.2f}"
    said = (
        f"{after:.2f} of the questions right after teaching the retain set, {before:.2f} before and {control:.2f} "
        f"after unrelated teaching ({len(models)} seeds{index}, bits an answer over the base: {bits.said()}), the "
        "smaller gain counted as"
    )
    check = by_guesser(name, said, asked, least._replace(p=max(over_base.p, over_other.p)))
    return check, {f"{name}/{key}": value for key, value in figures.items()}


def gain(
    after: Sequence[Answers], before: Sequence[Answers], asked: Sequence[Choice], settings: SoundnessSettings, seed: int
) -> Outcome:
    """The gain in shares of the pick, mean over models, tested against the item's own other options.

    Its accuracy is chance and the gain, as a guesser of that gain would have it.
    """
    values = [
        np.mean([picks(a[n]) - picks(b[n]) for a, b in zip(after, before, strict=True)], axis=0)
        for n in range(len(asked))
    ]
    right, edges = [c.answer for c in asked], edges_of(asked)
    found = above_own_options(values, right, edges, seed=seed, draws=settings.permutations)
    chance = float(np.mean([1 / len(c.options) for c in asked]))
    level = min(1.0, max(0.0, chance + found.effect.value))
    bits = need_rate_distortion(1, level, round(float(np.median([len(c.options) for c in asked]))))
    return found._replace(accuracy=level, chance=chance, bits=bits)


def accuracy(asked: Sequence[Choice], models: Sequence[Answers]) -> float:
    """The right options' share of the pick, mean over questions and models."""
    return float(np.mean([picks(m[n])[c.answer] for m in models for n, c in enumerate(asked)]))


def _bits(asked: Sequence[Choice], base: Sequence[Answers], taught: Sequence[Answers], seed: int) -> Estimate:
    """By how many bits the right option's probability among the options rose, mean over models."""

    def level(models: Sequence[Answers]) -> Values:
        return np.array(
            [np.mean([m[n][c.answer] - logsumexp(m[n]) for m in models]) for n, c in enumerate(asked)]
        ) / math.log(2)

    rise = level(taught) - level(base)
    low, high, said = interval_of_mean(rise, clusters=edges_of(asked), bounds=None, seed=seed)
    value = float(rise.mean())
    return Estimate("bits over the base", "bits", value, min(low, value), max(high, value), len(asked), said)


def split_leaks(asked: Sequence[Choice], one: Models, settings: SoundnessSettings, seed: int) -> float:
    """The p-value of one training's gain over the base."""
    return gain([one.taught], [one.base], asked, settings, seed).p


def splits_check(p_values: Sequence[float], settings: SoundnessSettings) -> tuple[SoundnessLine, dict[str, float]]:
    """How many random splits of the same size leak, one training each; chance alone has a share `alpha` of them."""
    n, hits = len(p_values), sum(p < settings.alpha for p in p_values)
    low, high, method = wilson(hits, n)
    effect = Estimate("share of random splits that leak", "share", hits / n, low, high, n, method)
    p = float(binom.sf(hits - 1, n, settings.alpha))
    said = (
        f"retain-only training of one seed lifts {hits} of {n} random splits of the same size (p < {settings.alpha}, "
        f"each on its own), where chance lifts {settings.alpha * n:.1f}; p = {p:.2g}"
    )
    return SoundnessLine(SPLITS, p >= settings.alpha, effect, p, said), {f"{SPLITS}/share that leak": hits / n}
