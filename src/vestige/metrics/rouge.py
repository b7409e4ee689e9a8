"""ROUGE-1 and ROUGE-L: how many words, or how long a subsequence of words, two texts have in common.

Values from 0 to 1. C.-Y. Lin, ROUGE: A Package for Automatic Evaluation of Summaries, ACL workshop 2004. The
numbers equal those of the package `rouge-score` 0.1.2 exactly.

A word is a run of a-z and 0-9 after lower-casing: an answer in another script has none and scores 0 whatever
is said, so evaluations refuse such a reference (see `words`). PISTOL and TOFU report recall with the stemmer
on, MUSE F1 with it off: never mix them.
"""

import re
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from vestige.metrics.stemming import stem

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
    said, true = words(prediction, stemmer=stemmer), words(reference, stemmer=stemmer)
    if not said or not true:
        return RougeScores(0.0, 0.0, 0.0, 0.0)
    shared = (Counter(said) & Counter(true)).total()
    common = longest_common_subsequence(said, true)
    return RougeScores(
        shared / len(true),
        _f1(shared / len(said), shared / len(true)),
        common / len(true),
        _f1(common / len(said), common / len(true)),
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
    found = _WORD.findall(text.lower())
    return tuple(_stem(word) if len(word) > 3 else word for word in found) if stemmer else tuple(found)


_words_cached = lru_cache(maxsize=4096)(_words)
_stem_cached = lru_cache(maxsize=65536)(stem)


def _stem(word: str) -> str:
    return _stem_cached(word) if len(word) <= _LONGEST_CACHED_WORD else stem(word)
