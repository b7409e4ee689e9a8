"""How like a new text is to all that were found before: in its n-grams (BLEU) and in its meaning (cosine).

Axes: N new texts, M orders, D width of an embedding. Likeness is 0 to 1 for BLEU and -1 to 1 for cosines; novelty is
one less likeness. Both are what Z.-W. Hong et al., Curiosity-driven Red-teaming for Large Language Models, 2402.19464,
reward (`selfBLEU` with every earlier text as a reference, and the mean cosine, not the greatest). Score first, then
add: the texts of one batch are no references of each other. Before anything is added every likeness is 0.

What a text costs does not grow with the number of texts found. What is kept is no file: add the texts again, in any
order, to go on.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from vestige.metrics.bleu import ORDERS, bleu_of_matches, check_orders
from vestige.metrics.vendi import unit_rows

_TOKEN_BITS = 32


class SeenNgrams:
    """The n-grams of all texts so far, each with the greatest count in one text.

    Kept as a tree of tokens, so that a text's walk ends where its wording is new.
    """

    def __init__(self, orders: Sequence[int] = ORDERS) -> None:
        check_orders(orders)
        self._orders = tuple(orders)
        self._longest = max(orders)
        self._number: dict[str, int] = {}
        # By node and token in one integer, which takes less room than a pair.
        self._child: dict[int, int] = {}
        # By node; node 0 is the root, the n-gram without a token.
        self._most = [0]
        # Ascending.
        self._lengths: list[int] = []

    def bleu(self, texts: Sequence[Sequence[str]]) -> Float[np.ndarray, "N M"]:
        """BLEU-n of each of `texts` (their tokens) with all that were added as references, for each n asked for."""
        if not self._lengths:
            return np.zeros((len(texts), len(self._orders)))
        lengths = np.array([len(text) for text in texts], dtype=np.int64)
        nearest = np.array([self._nearest(len(text)) for text in texts], dtype=np.int64)
        matches = np.array([self._matched(text) for text in texts], dtype=np.int64)
        return bleu_of_matches(matches.reshape(len(texts), self._longest), lengths, nearest, self._orders)

    def likeness(self, texts: Sequence[Sequence[str]]) -> Float[np.ndarray, " N"]:
        """The mean of `bleu` over the orders."""
        means: Float[np.ndarray, " N"] = self.bleu(texts).mean(axis=1)
        return means

    def add(self, texts: Sequence[Sequence[str]]) -> None:
        """Make `texts` references of all that are scored from now on."""
        for text in texts:
            for node, times in Counter(self._grown(text)).items():
                self._most[node] = max(self._most[node], times)
        self._lengths = sorted({*self._lengths, *map(len, texts)})

    def _grown(self, text: Sequence[str]) -> list[int]:
        """The node of each n-gram of `text`, made where it is new."""
        number, child, most, nodes = self._number, self._child, self._most, list[int]()
        ids = [number.setdefault(token, len(number)) for token in text]
        for start in range(len(ids)):
            node = 0
            for token in ids[start : start + self._longest]:
                node = child.setdefault(node << _TOKEN_BITS | token, len(most))
                if node == len(most):
                    most.append(0)
                nodes.append(node)
        return nodes

    def _matched(self, text: Sequence[str]) -> list[int]:
        """How many n-grams of `text` were seen, for n from 1 up, each at most as often as in one text."""
        child, most = self._child, self._most
        ids = [self._number.get(token) for token in text]
        matched, used = [0] * self._longest, Counter[int]()
        for start in range(len(ids)):
            node = 0
            for n, token in enumerate(ids[start : start + self._longest]):
                found = None if token is None else child.get(node << _TOKEN_BITS | token)
                if found is None:
                    break
                node = found
                used[node] += 1
                if used[node] <= most[node]:
                    matched[n] += 1
        return matched

    def _nearest(self, length: int) -> int:
        """The known length that is nearest to `length`, the shorter of two."""
        place = bisect_left(self._lengths, length)
        around = self._lengths[max(place - 1, 0) : place + 1]
        return min(around, key=lambda known: (abs(known - length), known))


class SeenEmbeddings:
    """The sum of all embeddings so far, as unit vectors: the mean cosine to them needs no more."""

    def __init__(self, width: int) -> None:
        self._sum = np.zeros(width)
        self._n = 0

    def likeness(self, embeddings: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
        """The mean cosine of each of `embeddings` to all that were added."""
        return unit_rows(embeddings) @ self._sum / max(self._n, 1)

    def add(self, embeddings: Float[np.ndarray, "N D"]) -> None:
        """Count `embeddings` among those found."""
        self._sum += unit_rows(embeddings).sum(axis=0)
        self._n += len(embeddings)
