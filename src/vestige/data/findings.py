"""Checks of a data set: settings, verdicts, guessers, and forget items that the retain set has too.

Settings of the checks of a data set, what one check found, and how several become verdicts.

Whether a guesser that never saw the forget set picks its right options more often than chance has it.

The null hypothesis: the right option is any of an item's own, so that no guess can know it. The guesses stay as they
are and the right option is drawn anew among the item's own, `draws` times. Items of one edge may err alike: from 5
edges on the drawn deviations are widened by sqrt(design effect) t(K - 1) / z, as intervals are (`metrics.intervals`).

Axes: N questions, K options (at most), R draws. Values are shares of the pick, or gains in them.

Forget items that the retain set has too, or whose answers it gives away.

Two questions are compared by all their wordings (paraphrases too). Words count by how rare they are among all
questions, and near-duplicates name the same names and numbers: items of one template about two things are not alike.
A question that stands whole in a longer one is a near-duplicate of it, however rare the words around it.

Words of texts, how rare they are, and how alike two texts are.

Axes: F texts of the forget set, R texts of the retain set, W words of both.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from pydantic import Field, PositiveInt
from scipy.sparse import csr_array
from scipy.special import ndtri, stdtrit

from vestige.artifacts.audits import SoundnessLine
from vestige.core.estimates import Estimate
from vestige.core.items import Item, Scope
from vestige.core.seeds import generator
from vestige.core.settings import Settings
from vestige.data.mcq import MOST_OPTIONS, Choice, Drawing
from vestige.metrics.answers import normalised
from vestige.metrics.contrasts import holm
from vestige.metrics.information import need_rate_distortion
from vestige.metrics.intervals import LEAST_CLUSTERS, LEVEL, design_effect, interval_of_mean, wilson

_TAIL = (1 - LEVEL) / 2
_AT_ONCE = 2_000_000
ABOVE_CHANCE = "accuracy above chance"

Values = Float[np.ndarray, " K"]


class Outcome(NamedTuple):
    """What a guesser gets: its mean above chance, the p-value of the null, and both again item by item.

    `bits` are those an answer that a guesser of this accuracy needs at least (rate-distortion), 0 at chance.
    """

    p: float
    effect: Estimate
    accuracy: float
    chance: float
    bits: float
    above: Float[np.ndarray, " N"]


def picks(scores: Values) -> Values:
    """The share of the pick of each option: all of it to the greatest score, equal shares to those tied."""
    best = scores >= scores.max() - 1e-12
    shares: Values = best / best.sum()
    return shares


def above_own_options(
    values: Sequence[Values],
    right: Sequence[int],
    edges: Sequence[str] | None,
    *,
    seed: int,
    draws: int,
) -> Outcome:
    """The mean over items of the right option's value less the mean of all the item's options, against the null."""
    means = np.array([float(v.mean()) for v in values])
    above = np.array([float(v[r]) for v, r in zip(values, right, strict=True)]) - means
    low, high, interval_name = interval_of_mean(above, clusters=edges, bounds=(-1.0, 1.0), seed=seed)
    mean = float(above.mean())
    null = _drawn(values, means, seed=seed, draws=draws) * _wider(above, edges)
    p = (1 + int(np.count_nonzero(null >= mean - 1e-12))) / (draws + 1)
    accuracy, chance = mean + float(means.mean()), float(means.mean())
    options = round(float(np.median([len(v) for v in values])))
    bits = need_rate_distortion(1, min(1.0, max(0.0, accuracy)), options) if 0 < chance < 1 else 0.0
    effect = Estimate(ABOVE_CHANCE, "share", mean, min(low, mean), max(high, mean), len(values), interval_name)
    return Outcome(p, effect, accuracy, chance, bits, above)


def _drawn(values: Sequence[Values], means: Float[np.ndarray, " N"], *, seed: int, draws: int) -> Values:
    """Means above chance with the right options drawn anew."""
    sizes = np.array([len(v) for v in values])
    table = np.zeros((len(values), int(sizes.max())))
    for row, v, mean in zip(table, values, means, strict=True):
        row[: len(v)] = v - mean
    rng, parts = generator(seed, "right options drawn anew"), []
    at_once = max(1, min(draws, _AT_ONCE // len(values)))
    for start in range(0, draws, at_once):
        size = min(at_once, draws - start)
        indices = (rng.random((size, len(values))) * sizes).astype(np.int64)
        parts.append(table[np.arange(len(values)), indices].mean(axis=1))
    return np.concatenate(parts)


def _wider(above: Float[np.ndarray, " N"], edges: Sequence[str] | None) -> float:
    """How much wider chance is where the items of an edge err alike; 1 with few edges, which are then all there is."""
    k = 0 if edges is None else len(set(edges))
    if edges is None or k < LEAST_CLUSTERS:
        return 1.0
    effect = design_effect(above, np.asarray(edges, dtype=str))
    return math.sqrt(effect) * float(stdtrit(k - 1, 1 - _TAIL) / -ndtri(_TAIL))


class ConstantGuess(NamedTuple):
    """Of the best constant guess where all options are equally likely: the p-value of the counts, and its mean hits."""

    p: float
    hits_by_chance: float


def best_constant(groups: Sequence[Sequence[int]], *, seed: int, draws: int) -> ConstantGuess:
    """The null of "all are equally likely" for counts in one or more groups, by drawing multinomials.

    The statistic is the sum of the groups' chi-squares; exact up to the number of draws, however small the counts. The
    guess is the greatest count of each group, which is above n / k by chance alone: 1.9 of 5 questions with 6 options.
    """
    rng, statistic, null, best = generator(seed, "counts drawn anew"), 0.0, np.zeros(draws), 0.0
    for counts in groups:
        observed = np.asarray(counts, dtype=float)
        n, k = int(observed.sum()), len(observed)
        if n:
            expected = n / k
            statistic += float(((observed - expected) ** 2).sum() / expected)
            counts_drawn = rng.multinomial(n, np.full(k, 1 / k), size=draws)
            null += ((counts_drawn - expected) ** 2).sum(axis=1) / expected
            best += float(counts_drawn.max(axis=1).mean())
    return ConstantGuess((1 + int(np.count_nonzero(null >= statistic - 1e-9))) / (draws + 1), best)


def items_needed(margin: float, chance: float) -> int:
    """How many items an interval of arm `margin` needs at chance (normal approximation)."""
    return math.ceil(float(ndtri(_TAIL)) ** 2 * chance * (1 - chance) / margin**2)


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


def counted(name: str, sentence: str, leaking: Mapping[str, float], n: int) -> Check:
    """A check whose finds are leaks without further ado."""
    low, high, interval = wilson(len(leaking), n)
    effect = Estimate("share of forget items", "share", len(leaking) / n, low, high, n, interval)
    return Check(name, sentence, leaking, effect=effect, surplus=len(leaking))


def by_guesser(name: str, sentence: str, choices: Sequence[Choice], outcome: Outcome) -> Check:
    """A check by a guesser: the items it solves, by how much, and how many of them chance does not explain."""
    solved = {c.item: float(a) for c, a in zip(choices, outcome.above, strict=True) if a > 0}
    missing = 1 - outcome.chance
    surplus = (outcome.accuracy - outcome.chance) * len(choices) / missing if missing > 0 else 0.0
    return Check(
        name,
        sentence,
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
    tested = [c for c in checks if c.outcome is not None]
    corrected = dict(zip((c.name for c in tested), holm([c.outcome.p for c in tested if c.outcome]), strict=True))
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


_TEXTS_AT_ONCE = 256
_NAMED = re.compile(r"(?<=[^\s.?!:] )[A-Z]\S*|\S*\d\S*")


def words(text: str) -> list[str]:
    """The words of a text as they are compared: folded, without punctuation."""
    return re.findall(r"\w+", normalised(text))


def plain(text: str) -> str:
    """The text as its words, apart by a space: what two copies of a text have in common."""
    return " ".join(words(text))


@dataclass(frozen=True)
class Rarity:
    """In how many of `n` texts each word stands."""

    n: int
    counts: Mapping[str, int]

    def weight(self, word: str) -> float:
        """log((n + 1) / (count + 1/2)): near 0 for the words of a template, large for a name."""
        return math.log((self.n + 1) / (self.counts.get(word, 0) + 0.5))

    def share(self, word: str) -> float:
        """The share of texts that have the word."""
        return self.counts.get(word, 0) / self.n


def rarity(texts: Sequence[str]) -> Rarity:
    """How rare words are in these texts."""
    return Rarity(len(texts), Counter(w for t in texts for w in set(words(t))))


def named_words(text: str) -> frozenset[str]:
    """The words of names and numbers: capitals that begin no sentence, and what has a digit."""
    return frozenset(w for part in _NAMED.findall(text) for w in words(part))


def same_names(first: str, second: str) -> bool:
    """Whether neither text names anything that the other does not have."""
    return named_words(first) <= set(words(second)) and named_words(second) <= set(words(first))


def subject_words(question: str, rare: Rarity) -> frozenset[str]:
    """The words that say what a question is about: names, numbers, and words of no more than 5 % of the questions.

    What stands in more than 60 % of them is a template's, whatever its letters.
    """
    names = named_words(question)
    return frozenset(
        w for w in words(question) if rare.share(w) <= 0.6 and (w in names or rare.share(w) <= 0.05) and len(w) > 1
    )


class Overlap(NamedTuple):
    """What one text shares with each of the others: weights of the words in both, over those in either or its own."""

    jaccard: Float[np.ndarray, " R"]
    held: Float[np.ndarray, " R"]


class Alike:
    """How alike texts of two sets are, by the weights of their words."""

    def __init__(self, texts: Sequence[str], rare: Rarity) -> None:
        """Read the second set once."""
        self._rare = rare
        self._sets = [frozenset(words(t)) for t in texts]
        self._place = {w: n for n, w in enumerate(sorted({w for s in self._sets for w in s}))}
        self._weights = np.array([rare.weight(w) for w in self._place])
        self._matrix = self._binary(self._sets)
        self._totals = np.array([sum(rare.weight(w) for w in sorted(s)) for s in self._sets])

    def _binary(self, sets: Iterable[frozenset[str]]) -> csr_array:
        columns = [sorted(self._place[w] for w in s if w in self._place) for s in sets]
        ends = np.cumsum([0, *(len(c) for c in columns)])
        flat = np.array([n for c in columns for n in c], dtype=np.int64)
        return csr_array((np.ones(len(flat)), flat, ends), shape=(len(columns), max(1, len(self._place))))

    def rows(self, texts: Sequence[str]) -> Iterator[Float[np.ndarray, " R"]]:
        """For each text its weighted Jaccard index with each of the others."""
        return (overlap.jaccard for overlap in self.overlaps(texts))

    def overlaps(self, texts: Sequence[str]) -> Iterator[Overlap]:
        """For each text what it shares with each of the others; 0 where there is nothing to share."""
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            sets = [frozenset(words(t)) for t in texts[start : start + _TEXTS_AT_ONCE]]
            mine = self._binary(sets)
            weighted = mine.multiply(self._weights[None, :]).tocsr() if self._place else mine
            shared = (weighted @ self._matrix.T).toarray()
            for row, grams in zip(shared, sets, strict=True):
                total = sum(self._rare.weight(w) for w in sorted(grams))
                either = total + self._totals - row
                jaccard = np.divide(row, either, out=np.zeros_like(row), where=either > 0)
                yield Overlap(jaccard, row / total if total > 0 else np.zeros_like(row))


LONG = 5
"""Words from which on an answer that stands twice is no coincidence."""


def copied(forget: Sequence[Item], retain: Sequence[Item]) -> Check:
    """Forget items whose question, in any of its wordings, a retain item asks word by word."""
    retained_texts = {plain(t) for i in retain for t in wordings(i)}
    copies = {i.id: 1.0 for i in forget if any(plain(t) in retained_texts for t in wordings(i))}
    sentence = f"{len(copies)} of {len(forget)} forget questions stand in the retain set, punctuation and case aside"
    return counted("copied questions", sentence, copies, len(forget))


def near_duplicates(forget: Sequence[Item], retain: Sequence[Item], settings: SoundnessSettings) -> Check:
    """Forget items whose question is nearly that of a retain item, without being its copy."""
    gone = copied(forget, retain).leaking
    retained_texts = [t for i in retain for t in wordings(i)]
    mine = [(i.id, t) for i in forget if i.id not in gone for t in wordings(i)]
    rare = rarity([i.question for i in (*forget, *retain)])
    duplicates = _near(mine, retained_texts, rare, settings.near, holds=settings.held)
    sentence = (
        f"{len(duplicates)} of {len(forget)} forget questions have a weighted Jaccard index of {settings.near} or more "
        f"with a retain question, or {settings.held} of their own weight in it"
    )
    return counted("near-duplicate questions", sentence, duplicates, len(forget))


def copied_answers(forget: Sequence[Item], retain: Sequence[Item], settings: SoundnessSettings) -> Check:
    """Forget items whose answer, of five words or more, is that of a retain item or nearly so."""
    retained_answers = [i.answer for i in retain if len(words(i.answer)) >= LONG]
    mine = [(i.id, i.answer) for i in forget if len(words(i.answer)) >= LONG]
    copies = _near(mine, retained_answers, rarity([i.answer for i in (*forget, *retain)]), settings.near)
    sentence = (
        f"{len(copies)} of {len(mine)} forget answers of {LONG} words or more have a weighted Jaccard index of "
        f"{settings.near} or more with a retain answer"
    )
    return counted("copied answers", sentence, copies, len(forget))


def wordings(item: Item) -> tuple[str, ...]:
    """The question, and what asks the same."""
    return (item.question,) if item.paraphrase is None else (item.question, item.paraphrase)


def _near(
    mine: Sequence[tuple[str, str]],
    texts: Sequence[str],
    rare: Rarity,
    least: float,
    *,
    holds: float | None = None,
) -> dict[str, float]:
    """The items alike to another text, by how much; also those that another text holds, where `holds` says how far."""
    likeness: dict[str, float] = {}
    if not texts:
        return likeness
    for (id_, text), overlap in zip(mine, Alike(texts, rare).overlaps([t for _, t in mine]), strict=True):
        near = np.where(overlap.jaccard >= least, overlap.jaccard, 0.0)
        if holds is not None:
            near = np.maximum(near, np.where(overlap.held >= holds, overlap.held, 0.0))
        alike = [n for n in np.flatnonzero(near).tolist() if same_names(text, texts[n])]
        if alike:
            likeness[id_] = max(float(near[alike].max()), likeness.get(id_, 0.0))
    return likeness


def entailed(forget: Sequence[Item], scopes: Mapping[str, Scope]) -> Check:
    """Forget items whose answer a retained contract states; those that can be guessed are told beside."""
    entailed_items = {i.id: 1.0 for i in forget if scopes.get(i.id) == "entailed"}
    guessable = sum(scopes.get(i.id) == "guessable" for i in forget)
    sentence = (
        f"{len(entailed_items)} of {len(forget)} forget answers are stated by retained contracts, and {guessable} more "
        "are names that the retain set has"
    )
    return counted("entailed answers", sentence, entailed_items, len(forget))


def given_away(
    choices: Sequence[Choice], retain: Sequence[Item], rare: Rarity, settings: SoundnessSettings, seed: int
) -> Check:
    """Whether right options stand in retain items about the same subject more often than the wrong ones beside them."""
    name = "answers given away"
    if not choices:
        return undecided(name, "no options can be drawn, so what stands there by chance cannot be told")
    texts = [f" {plain(t)} " for t in (f"{i.question} {i.answer}" for i in retain)]
    about: dict[str, list[int]] = {}
    for number, text in enumerate(texts):
        for word in dict.fromkeys(text.split()):
            about.setdefault(word, []).append(number)
    values = []
    for choice in choices:
        near = {n for w in subject_words(choice.question, rare) for n in about.get(w, ())}
        stated = [any(f" {plain(o)} " in texts[n] for n in near) for o in choice.options]
        values.append(picks(np.array(stated, dtype=float)))
    outcome = above_own_options(
        values,
        [c.answer for c in choices],
        edges_of(choices),
        seed=seed,
        draws=settings.permutations,
    )
    return by_guesser(name, "picking what stands in retain items about the same subject", choices, outcome)


def edges_of(choices: Sequence[Choice]) -> list[str] | None:
    """The edges of the questions; None where one has none."""
    edges = [c.edge for c in choices if c.edge is not None]
    return edges if len(edges) == len(choices) else None
