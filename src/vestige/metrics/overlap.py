"""The wording that texts share: ROUGE, BLEU and self-BLEU, and how new a text is beside others.

ROUGE-1 and ROUGE-L: how many words, or how long a subsequence of words, two texts have in common. Values from 0 to 1.
C.-Y. Lin, ROUGE: A Package for Automatic Evaluation of Summaries, ACL workshop 2004. The numbers equal those of the
package `rouge-score` 0.1.2 exactly.

A word is a run of a-z and 0-9 after lower-casing: an answer in another script has none and scores 0 whatever
is said, so evaluations refuse such a reference (see `words`). PISTOL and TOFU report recall with the stemmer
on, MUSE F1 with it off: never mix them.

BLEU-n with many references, and self-BLEU: how much of each text's wording stands in other texts. 0 to 1. Axes: N
texts, L orders 1 to the longest asked for, M orders asked for.

BLEU-n = penalty x exp(1/n sum_{k=1..n} ln p_k), p_k the share of a text's k-grams that the references have, each
counted at most as often as one reference has it; penalty = min(1, exp(1 - r/c)), c the text's length and r the nearest
length of a reference, the shorter of two (K. Papineni et al., BLEU: a Method for Automatic Evaluation of Machine
Translation, ACL 2002). Where p_k is 0 it is taken as 0.1 / (number of k-grams), and 0.1 where there are none (method 1
of B. Chen and C. Cherry, A Systematic Comparison of Smoothing Techniques for Sentence-Level BLEU, WMT 2014); no word in
common is 0. The numbers are those of nltk 3.10.4 with `SmoothingFunction().method1` and the weights 1/n.

Self-BLEU is each text's BLEU with all others as references (Y. Zhu et al., Texygen, 1802.01886). What Knowledge Holes
(2511.00030) and Curiosity (2402.19464) report is the mean over texts and over n = 3, 4, 5; they split texts with nltk's
`word_tokenize`, we with `tokens`. Smoothing keeps unrelated texts above 0: read the numbers beside each other.

How like a new text is to all that were found before: in its n-grams (BLEU) and in its meaning (cosine). Axes: N new
texts, M orders, D width of an embedding. Likeness is 0 to 1 for BLEU and -1 to 1 for cosines; novelty is one less
likeness. Both are what Z.-W. Hong et al., Curiosity-driven Red-teaming for Large Language Models, 2402.19464, reward
(`selfBLEU` with every earlier text as a reference, and the mean cosine, not the greatest). Score first, then add: the
texts of one batch are no references of each other. Before anything is added every likeness is 0.

What a text costs does not grow with the number of texts found. What is kept is no file: add the texts again, in any
order, to go on.
"""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, count
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vestige.metrics.diversity import unit_rows

_WORD = re.compile(r"[a-z0-9]+")
# Longer ones are not kept, so that hostile text cannot fill the memory through the caches.
_LONGEST_CACHED_WORD = 64
_LONGEST_CACHED_TEXT = 4096


class RougeScores(NamedTuple):
    """Recall is over the reference's words; F1 is the harmonic mean of recall and precision."""

    rouge1_recall: float
    rouge1_f1: float
    rougeL_recall: float
    rougeL_f1: float


def rouge(prediction: str, reference: str, *, stemmer: bool = True) -> RougeScores:
    """The scores of `prediction` against `reference`; all are 0 where either has no word."""
    predicted, true = words(prediction, stemmer=stemmer), words(reference, stemmer=stemmer)
    if not predicted or not true:
        return RougeScores(0.0, 0.0, 0.0, 0.0)
    shared = (Counter(predicted) & Counter(true)).total()
    common = longest_common_subsequence(predicted, true)
    return RougeScores(
        shared / len(true),
        _f1(shared / len(predicted), shared / len(true)),
        common / len(true),
        _f1(common / len(predicted), common / len(true)),
    )


def words(text: str, *, stemmer: bool = True) -> tuple[str, ...]:
    """The words that ROUGE compares; with `stemmer`, those of four letters and more as their stems."""
    return _words_cached(text, stemmer) if len(text) <= _LONGEST_CACHED_TEXT else _words(text, stemmer)


def longest_common_subsequence(first: tuple[str, ...], second: tuple[str, ...]) -> int:
    """Length of the longest subsequence of words that both have, not necessarily adjacent.

    Bit-parallel over the words of `second`: a bit is 0 where the row of the dynamic programme steps up (H.
    Hyyrö, Bit-parallel LCS-length computation revisited, AWOCA 2004).
    """
    places: dict[str, int] = {}
    for i, word in enumerate(second):
        places[word] = places.get(word, 0) | 1 << i
    full = (1 << len(second)) - 1
    row = full
    for word in first:
        matched = row & places.get(word, 0)
        row = ((row + matched) | (row - matched)) & full
    return len(second) - row.bit_count()


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0


def _words(text: str, stemmer: bool) -> tuple[str, ...]:
    words_of_text = _WORD.findall(text.lower())
    return tuple(stem(word) if len(word) > 3 else word for word in words_of_text) if stemmer else tuple(words_of_text)


_words_cached = lru_cache(maxsize=4096)(_words)


def stem(word: str) -> str:
    """The stem of a word of lower-case letters and digits.

    M. F. Porter, An algorithm for suffix stripping, Program 14(3), 1980, in NLTK's variant, which `rouge-score` uses.
    """
    return _stem_cached(word) if len(word) <= _LONGEST_CACHED_WORD else str(_porter().stem(word))


@lru_cache(maxsize=65536)
def _stem_cached(word: str) -> str:
    return str(_porter().stem(word))


@lru_cache(maxsize=1)
def _porter() -> Any:
    # Importing NLTK takes a second, which only those pay who stem.
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer()


ORDERS = (3, 4, 5)
"""The n that the two papers average over."""

# What stands for no match at all, in matches.
_SMOOTHED = 0.1
_TOKEN = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


def tokens(text: str) -> tuple[str, ...]:
    """Words, and each other sign for itself; case counts. A script without spaces is one word a run of letters."""
    return tuple(_TOKEN.findall(text))


def self_bleu(texts: Sequence[Sequence[str]], orders: Sequence[int] = ORDERS) -> Float[np.ndarray, "N M"]:
    """BLEU-n of each of `texts` (their tokens) with all others as references, for each n of `orders`.

    The time grows as the number of tokens: an n-gram's greatest count in one text and the greatest in any other are
    all that is needed of the references.
    """
    check_orders(orders)
    if len(texts) < 2:
        raise ValueError(f"self-BLEU compares texts with each other, and there is {len(texts)}")
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    return bleu_of_matches(_matches(texts, lengths, max(orders)), lengths, _nearest_other(lengths), orders)


def avg_self_bleu(texts: Sequence[Sequence[str]], orders: Sequence[int] = ORDERS) -> float:
    """The mean over texts and orders; the papers' diversity is one less this."""
    return float(self_bleu(texts, orders).mean())


def bleu_of_matches(
    matches: Int[np.ndarray, "N L"],
    lengths: Int[np.ndarray, " N"],
    nearest: Int[np.ndarray, " N"],
    orders: Sequence[int],
) -> Float[np.ndarray, "N M"]:
    """BLEU from the number of matched n-grams, each text's length and the nearest length of a reference."""
    possible = np.maximum(lengths[:, None] - np.arange(matches.shape[1]), 1)
    summed = np.cumsum(np.log(np.where(matches > 0, matches, _SMOOTHED) / possible), axis=1)
    penalty = np.minimum(0.0, 1 - nearest / np.maximum(lengths, 1))
    order_array = np.asarray(orders)
    scores = np.exp(summed[:, order_array - 1] / order_array + penalty[:, None])
    return np.where(matches[:, :1] > 0, scores, 0.0)


def check_orders(orders: Sequence[int]) -> None:
    """Refuse what are no lengths of n-grams."""
    if not orders or min(orders) < 1:
        raise ValueError(f"BLEU needs lengths of n-grams from 1 up, got {tuple(orders)}")


def _matches(texts: Sequence[Sequence[str]], lengths: Int[np.ndarray, " N"], longest: int) -> Int[np.ndarray, "N L"]:
    """How many of each text's n-grams the others have, for n from 1 to `longest`."""
    number: defaultdict[str, int] = defaultdict(count().__next__)
    ids = np.fromiter(map(number.__getitem__, chain.from_iterable(texts)), dtype=np.int64, count=int(lengths.sum()))
    text_of = np.repeat(np.arange(len(texts)), lengths)
    # How many tokens its text has from a place on.
    remaining = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(ids))
    starts, codes = np.arange(len(ids)), ids
    matches = np.zeros((len(texts), longest), dtype=np.int64)
    for n in range(1, longest + 1):
        if n > 1:
            long_enough = remaining[starts] >= n
            starts = starts[long_enough]
            codes = codes[long_enough] * len(number) + ids[starts + n - 1]
        if not len(starts):
            break
        codes, matched = _numbered_and_matched(codes, text_of[starts])
        matches[:, n - 1] = np.bincount(text_of[starts], weights=matched, minlength=len(texts))
    return matches


def _numbered_and_matched(
    codes: Int[np.ndarray, " P"], text_of: Int[np.ndarray, " P"]
) -> tuple[Int[np.ndarray, " P"], Int[np.ndarray, " P"]]:
    """The n-grams at P places, numbered from 0; and at each n-gram's first place in a text, how often it is matched.

    `text_of` rises, so that a stable sort by n-gram leaves the places of one text together.
    """
    order = np.argsort(codes, kind="stable")
    by_gram, by_text = codes[order], text_of[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = by_gram[1:] != by_gram[:-1]
    pair = first.copy()
    pair[1:] |= by_text[1:] != by_text[:-1]
    pairs = np.flatnonzero(pair)
    counts = np.diff(pairs, append=len(order))
    grams = np.flatnonzero(first[pairs])
    gram_of = np.cumsum(first[pairs]) - 1
    greatest = np.maximum.reduceat(counts, grams)
    leads = counts == greatest[gram_of]
    second = np.where(
        np.add.reduceat(leads, grams, dtype=np.int64) > 1, greatest, np.maximum.reduceat(counts * ~leads, grams)
    )
    numbered, matched = np.empty_like(codes), np.zeros_like(codes)
    numbered[order] = np.cumsum(first) - 1
    matched[order[pairs]] = np.where(leads, second[gram_of], counts)
    return numbered, matched


def _nearest_other(lengths: Int[np.ndarray, " N"]) -> Int[np.ndarray, " N"]:
    """For each text the length of another that is nearest to its own, the shorter of two."""
    distinct, index, times = np.unique(lengths, return_inverse=True, return_counts=True)
    if len(distinct) == 1:
        return lengths
    below = np.concatenate([distinct[1:2], distinct[:-1]])
    above = np.concatenate([distinct[1:], distinct[-2:-1]])
    nearest = np.where(np.abs(distinct - below) <= np.abs(above - distinct), below, above)
    return np.where(times > 1, distinct, nearest)[index]


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
                child_node = None if token is None else child.get(node << _TOKEN_BITS | token)
                if child_node is None:
                    break
                node = child_node
                used[node] += 1
                if used[node] <= most[node]:
                    matched[n] += 1
        return matched

    def _nearest(self, length: int) -> int:
        """The known length that is nearest to `length`, the shorter of two."""
        position = bisect_left(self._lengths, length)
        around = self._lengths[max(position - 1, 0) : position + 1]
        return min(around, key=lambda reference_length: (abs(reference_length - length), reference_length))


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
