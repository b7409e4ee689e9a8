"""Forget items that the retain set has too, or whose answers it gives away.

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
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array

from vestige.core.items import Item, Scope
from vestige.data.mcq import Choice
from vestige.data.soundness.findings import (
    Check,
    SoundnessSettings,
    above_own_options,
    by_guesser,
    counted,
    picks,
    undecided,
)
from vestige.metrics.answers import normalised

_AT_ONCE = 256
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
    named = named_words(question)
    return frozenset(
        w for w in words(question) if rare.share(w) <= 0.6 and (w in named or rare.share(w) <= 0.05) and len(w) > 1
    )


class Overlap(NamedTuple):
    """What one text shares with each of the others: weights of the words in both, over those in either or its own."""

    jaccard: Float[np.ndarray, " R"]
    held: Float[np.ndarray, " R"]


class Alike:
    """How alike texts of two sets are, by the weights of their words."""

    def __init__(self, others: Sequence[str], rare: Rarity) -> None:
        """Read the second set once."""
        self._rare = rare
        self._sets = [frozenset(words(t)) for t in others]
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
        return (found.jaccard for found in self.overlaps(texts))

    def overlaps(self, texts: Sequence[str]) -> Iterator[Overlap]:
        """For each text what it shares with each of the others; 0 where there is nothing to share."""
        for start in range(0, len(texts), _AT_ONCE):
            sets = [frozenset(words(t)) for t in texts[start : start + _AT_ONCE]]
            mine = self._binary(sets)
            weighted = mine.multiply(self._weights[None, :]).tocsr() if self._place else mine
            shared = (weighted @ self._matrix.T).toarray()
            for row, own in zip(shared, sets, strict=True):
                total = sum(self._rare.weight(w) for w in sorted(own))
                either = total + self._totals - row
                jaccard = np.divide(row, either, out=np.zeros_like(row), where=either > 0)
                yield Overlap(jaccard, row / total if total > 0 else np.zeros_like(row))


LONG = 5
"""Words from which on an answer that stands twice is no coincidence."""


def copied(forget: Sequence[Item], retain: Sequence[Item]) -> Check:
    """Forget items whose question, in any of its wordings, a retain item asks word by word."""
    known = {plain(t) for i in retain for t in wordings(i)}
    found = {i.id: 1.0 for i in forget if any(plain(t) in known for t in wordings(i))}
    said = f"{len(found)} of {len(forget)} forget questions stand in the retain set, punctuation and case aside"
    return counted("copied questions", said, found, len(forget))


def near_duplicates(forget: Sequence[Item], retain: Sequence[Item], settings: SoundnessSettings) -> Check:
    """Forget items whose question is nearly that of a retain item, without being its copy."""
    gone = copied(forget, retain).leaking
    others = [t for i in retain for t in wordings(i)]
    mine = [(i.id, t) for i in forget if i.id not in gone for t in wordings(i)]
    rare = rarity([i.question for i in (*forget, *retain)])
    found = _near(mine, others, rare, settings.near, held=settings.held)
    said = (
        f"{len(found)} of {len(forget)} forget questions have a weighted Jaccard index of {settings.near} or more with "
        f"a retain question, or {settings.held} of their own weight in it"
    )
    return counted("near-duplicate questions", said, found, len(forget))


def copied_answers(forget: Sequence[Item], retain: Sequence[Item], settings: SoundnessSettings) -> Check:
    """Forget items whose answer, of five words or more, is that of a retain item or nearly so."""
    others = [i.answer for i in retain if len(words(i.answer)) >= LONG]
    mine = [(i.id, i.answer) for i in forget if len(words(i.answer)) >= LONG]
    found = _near(mine, others, rarity([i.answer for i in (*forget, *retain)]), settings.near)
    said = (
        f"{len(found)} of {len(mine)} forget answers of {LONG} words or more have a weighted Jaccard index of "
        f"{settings.near} or more with a retain answer"
    )
    return counted("copied answers", said, found, len(forget))


def wordings(item: Item) -> tuple[str, ...]:
    """The question, and what asks the same."""
    return (item.question,) if item.paraphrase is None else (item.question, item.paraphrase)


def _near(
    mine: Sequence[tuple[str, str]], others: Sequence[str], rare: Rarity, least: float, *, held: float | None = None
) -> dict[str, float]:
    """The items alike to another text, by how much; also those that another text holds, where `held` says how far."""
    found: dict[str, float] = {}
    if not others:
        return found
    for (id_, text), overlap in zip(mine, Alike(others, rare).overlaps([t for _, t in mine]), strict=True):
        near = np.where(overlap.jaccard >= least, overlap.jaccard, 0.0)
        if held is not None:
            near = np.maximum(near, np.where(overlap.held >= held, overlap.held, 0.0))
        alike = [n for n in np.flatnonzero(near).tolist() if same_names(text, others[n])]
        if alike:
            found[id_] = max(float(near[alike].max()), found.get(id_, 0.0))
    return found


def entailed(forget: Sequence[Item], scopes: Mapping[str, Scope]) -> Check:
    """Forget items whose answer a retained contract states; those that can be guessed are told beside."""
    found = {i.id: 1.0 for i in forget if scopes.get(i.id) == "entailed"}
    guessable = sum(scopes.get(i.id) == "guessable" for i in forget)
    said = (
        f"{len(found)} of {len(forget)} forget answers are stated by retained contracts, and {guessable} more are "
        "names that the retain set has"
    )
    return counted("entailed answers", said, found, len(forget))


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
        given = [any(f" {plain(o)} " in texts[n] for n in near) for o in choice.options]
        values.append(picks(np.array(given, dtype=float)))
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
