"""Words of texts, how rare they are, and how alike two texts are.

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
