"""The wording that texts share: ROUGE, BLEU and self-BLEU, and how new a text is next to others.

ROUGE-1 and ROUGE-L: how many words, or how long a subsequence of words, two texts have in common. Values from 0 to 1.
C.-Y. Lin, ROUGE: A Package for Automatic Evaluation of Summaries, ACL workshop 2004. The numbers equal the package
`rouge-score` 0.1.2 exactly.

A word is a run of a-z and 0-9 after lower-casing: an answer in another script has none and always scores 0, so
evaluations reject such a reference (see `words`). PISTOL and TOFU report recall with the stemmer on, MUSE F1 with it
off: never mix them.

BLEU-n with many references, and self-BLEU: how much of each text's wording is in other texts. 0 to 1. Axes: N texts, L
orders 1 to the longest asked for, M orders asked for.

BLEU-n = penalty x exp(1/n sum_{k=1..n} ln p_k), p_k the share of a text's k-grams that the references have, each
counted at most as often as one reference has it. Penalty = min(1, exp(1 - r/c)), c the text's length and r the nearest
length of a reference, the shorter of two (K. Papineni et al., BLEU: a Method for Automatic Evaluation of Machine
Translation, ACL 2002). Where p_k is 0 it is taken as 0.1 / (number of k-grams), and 0.1 where there are none (method 1
of B. Chen and C. Cherry, A Systematic Comparison of Smoothing Techniques for Sentence-Level BLEU, WMT 2014). No word in
common is 0. The numbers equal nltk 3.10.4 with `SmoothingFunction().method1` and the weights 1/n.

Self-BLEU is each text's BLEU with all others as references (Y. Zhu et al., Texygen, 1802.01886). What Knowledge Holes
(2511.00030) and Curiosity (2402.19464) report is the mean over texts and over n = 3, 4, 5. They split texts with nltk's
`word_tokenize`, we with `tokens`. Smoothing keeps unrelated texts above 0: read the numbers next to each other.

How like a new text is to all that were found before: in its n-grams (BLEU) and in its meaning (cosine). Axes: N new
texts, M orders, D width of an embedding. Likeness is 0 to 1 for BLEU and -1 to 1 for cosines. Novelty is one less
likeness. Both are what Z.-W. Hong et al., Curiosity-driven Red-teaming for Large Language Models, 2402.19464, reward
(`selfBLEU` with every earlier text as a reference, and the mean cosine, not the greatest). Score first, then add: the
texts of one batch are no references of each other. Before anything is added every likeness is 0.

The cost of a text does not grow with the number of texts found. The state is not saved: add the texts again, in any
order, to continue.

Porter's stemmer in the variant of NLTK 3.10.4, which `rouge-score` uses. The results are equal.

Source: M. F. Porter, An algorithm for suffix stripping, Program 14(3), 1980. NLTK adds irregular forms and the rules
marked below. The measure m of a stem counts how often a vowel is followed by a consonant: "tr" has 0, "ivy" 1.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vestige.metrics.diversity import unit_rows


def _table(text: str) -> dict[str, str]:
    """Parse entries of the form FROM:TO."""
    pairs = (pair.partition(":") for pair in text.split())
    return {ending: replacement for ending, _, replacement in pairs}


_IRREGULAR = _table(
    """
    sky:sky skies:sky dying:die lying:lie tying:tie news:news innings:inning inning:inning outings:outing
    outing:outing cannings:canning canning:canning howe:howe proceed:proceed exceed:exceed succeed:succeed
    """
)
# The first matching suffix decides, even if its condition fails. Longer suffixes come before those that they end in.
_STEP_1A = _table("sses:ss ies:i ss:ss s:")
_STEP_2 = _table(
    """
    ational:ate tional:tion enci:ence anci:ance izer:ize bli:ble alli:al entli:ent eli:e ousli:ous ization:ize
    ation:ate ator:ate alism:al iveness:ive fulness:ful ousness:ous aliti:al iviti:ive biliti:ble fulli:ful
    """
)
_STEP_3 = _table("icate:ic ative: alize:al iciti:ic ical:ic ful: ness:")
_STEP_4 = _table("al: ance: ence: er: ic: able: ible: ant: ement: ment: ent: ion: ou: ism: ate: iti: ous: ive: ize:")


def porter(word: str) -> str:
    """Return the stem of a word of lower-case letters and digits, in time linear in its length.

    Example:
        >>> porter("relational")
        'relat'
    """
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) <= 2:
        return word
    word = _plural(word)
    word = _past(word)
    # NLTK: only after a consonant, and not after a lone one.
    if word.endswith("y") and len(word) > 2 and _consonants(word[:-1])[-1]:
        word = word[:-1] + "i"
    word = _step_2(word)
    word = _replaced(word, _STEP_3)
    word = _step_4(word)
    return _step_5(word)


def _consonants(word: str) -> list[bool]:
    """Whether each letter is a consonant. A y is one at the start and after a vowel."""
    flags: list[bool] = []
    for letter in word:
        if letter == "y":
            flags.append(not flags or not flags[-1])
        else:
            flags.append(letter not in "aeiou")
    return flags


def _measure(stem: str) -> int:
    flags = _consonants(stem)
    return sum(after and not before for before, after in pairwise(flags))


def _ends_short(word: str) -> bool:
    """Whether it ends in consonant, vowel, consonant, the last no w, x or y. NLTK: or is a vowel and a consonant."""
    flags = _consonants(word)
    if len(word) == 2:
        return flags == [False, True]
    return flags[-3:] == [True, False, True] and word[-1] not in "wxy"


def _replaced(word: str, rules: Mapping[str, str]) -> str:
    """Replace the first suffix that fits, if the stem before it has a measure above 0."""
    for suffix, replacement in rules.items():
        if word.endswith(suffix):
            stem = word.removesuffix(suffix)
            if _measure(stem) > 0:
                return stem + replacement
            return word
    return word


def _plural(word: str) -> str:
    # NLTK: dies to die.
    if word.endswith("ies") and len(word) == 4:
        return word[:-1]
    for suffix, replacement in _STEP_1A.items():
        if word.endswith(suffix):
            return word.removesuffix(suffix) + replacement
    return word


def _past(word: str) -> str:
    # NLTK: died to die, spied to spi.
    if word.endswith("ied"):
        if len(word) == 4:
            return word[:-1]
        return word[:-2]
    if word.endswith("eed"):
        if _measure(word[:-3]) > 0:
            return word[:-1]
        return word
    for suffix in ("ed", "ing"):
        stem = word.removesuffix(suffix)
        if stem != word and not all(_consonants(stem)):
            return _repaired(stem)
    return word


def _repaired(stem: str) -> str:
    """Put back the e that "ed" or "ing" took, or take back the consonant that it doubled."""
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    flags = _consonants(stem)
    if len(stem) >= 2 and stem[-1] == stem[-2] and flags[-1]:
        if stem[-1] in "lsz":
            return stem
        return stem[:-1]
    if _measure(stem) == 1 and _ends_short(stem):
        return stem + "e"
    return stem


def _step_2(word: str) -> str:
    # NLTK: this rule comes first, and its result goes through the step again.
    while word.endswith("alli") and _measure(word[:-4]) > 0:
        word = word[:-2]
    # NLTK: the l of "logi" counts as part of the stem.
    fits = any(word.endswith(suffix) for suffix in _STEP_2)
    if not fits and word.endswith("logi"):
        if _measure(word[:-3]) > 0:
            return word[:-1]
        return word
    return _replaced(word, _STEP_2)


def _step_4(word: str) -> str:
    for suffix in _STEP_4:
        if word.endswith(suffix):
            stem = word.removesuffix(suffix)
            if _measure(stem) > 1 and (suffix != "ion" or stem[-1] in "st"):
                return stem
            return word
    return word


def _step_5(word: str) -> str:
    if word.endswith("e"):
        stem = word[:-1]
        measure = _measure(stem)
        if measure > 1 or (measure == 1 and not _ends_short(stem)):
            word = stem
    if word.endswith("ll") and _measure(word[:-1]) > 1:
        word = word[:-1]
    return word


_WORD = re.compile(r"[a-z0-9]+")
# Longer words are not cached, so that hostile text cannot fill the memory.
_LONGEST_CACHED_WORD = 64


class RougeScores(NamedTuple):
    """Recall is over the reference's words. F1 is the harmonic mean of recall and precision."""

    rouge1_recall: float
    rougeL_recall: float
    rougeL_f1: float


def rouge(prediction: str, reference: str, *, stemmer: bool = True) -> RougeScores:
    """The scores of `prediction` against `reference`. All are 0 where either has no word."""
    predicted, true = words(prediction, stemmer=stemmer), words(reference, stemmer=stemmer)
    if not predicted or not true:
        return RougeScores(0.0, 0.0, 0.0)
    shared = (Counter(predicted) & Counter(true)).total()
    common = longest_common_subsequence(predicted, true)
    recall, precision = common / len(true), common / len(predicted)
    f1 = 0.0
    if common:
        f1 = 2 * precision * recall / (precision + recall)
    return RougeScores(shared / len(true), recall, f1)


Words = tuple[str, ...]


def words(text: str, *, stemmer: bool = True) -> Words:
    """The words that ROUGE compares. With `stemmer`, words of four letters and more become stems."""
    words_of_text = _WORD.findall(text.lower())
    if stemmer:
        return tuple(stem(word) if len(word) > 3 else word for word in words_of_text)
    return tuple(words_of_text)


def longest_common_subsequence(first: Words, second: Words) -> int:
    """Length of the longest subsequence of words that both have, not necessarily adjacent.

    Bit-parallel over the words of `second`: a bit is 0 where the row of the dynamic programme steps up (H.
    Hyyrö, Bit-parallel LCS-length computation revisited, AWOCA 2004).
    """
    # One bit for each position of a word in `second`.
    places: dict[str, int] = {}
    for i, word in enumerate(second):
        places[word] = places.get(word, 0) | 1 << i
    full = (1 << len(second)) - 1
    row = full
    for word in first:
        matched = row & places.get(word, 0)
        row = ((row + matched) | (row - matched)) & full
    return len(second) - row.bit_count()


def stem(word: str) -> str:
    """The stem of a word of lower-case letters and digits.

    M. F. Porter, An algorithm for suffix stripping, Program 14(3), 1980, in NLTK's variant, which `rouge-score` uses.
    """
    if len(word) <= _LONGEST_CACHED_WORD:
        return _stem_cached(word)
    return porter(word)


_stem_cached = lru_cache(maxsize=65536)(porter)


ORDERS = (3, 4, 5)
"""The n that the two papers average over."""

# The number of matches assumed if there are none.
_SMOOTHED = 0.1
_TOKEN = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


def tokens(text: str) -> Words:
    """Return words and single other signs, in their case. A script without spaces has one word per run of letters."""
    return tuple(_TOKEN.findall(text))


def self_bleu(texts: Sequence[Sequence[str]], orders: Sequence[int] = ORDERS) -> Float[np.ndarray, "N M"]:
    """BLEU-n of each of `texts` (their tokens) with all others as references, for each n of `orders`."""
    if len(texts) < 2:
        raise ValueError(f"self-BLEU compares texts with each other, and there is {len(texts)}")
    counts = [_ngrams(text, max(orders)) for text in texts]
    # Only the two largest counts of an n-gram are needed: the second one for the text with the largest.
    greatest: dict[Words, list[int]] = {}
    for gram, times in chain.from_iterable(map(Counter.items, counts)):
        greatest[gram] = sorted([*greatest.get(gram, [0, 0]), times])[-2:]
    lengths = Counter(map(len, texts))
    matches = []
    nearest = []
    for text, of_text in zip(texts, counts, strict=True):
        of_others = {}
        for gram, times in of_text.items():
            second, most = greatest[gram]
            of_others[gram] = most if times < most else second
        matches.append(_matched(of_text, of_others))
        nearest.append(_nearest(len(text), (lengths - Counter([len(text)])).keys()))
    return bleu_of_matches(matches, [*map(len, texts)], nearest, orders)


def avg_self_bleu(texts: Sequence[Sequence[str]]) -> float:
    """The mean over texts and orders. The papers' diversity is one less this."""
    return float(self_bleu(texts).mean())


def bleu_of_matches(
    matches: Sequence[Mapping[int, int]], lengths: Sequence[int], nearest: Sequence[int], orders: Sequence[int]
) -> Float[np.ndarray, "N M"]:
    """BLEU from the number of matched n-grams by n, each text's length and the nearest length of a reference."""
    counted = np.zeros((len(matches), max(orders)), dtype=np.int64)
    for row, matched in zip(counted, matches, strict=True):
        for n, count in matched.items():
            row[n - 1] = count
    length = np.array(lengths, dtype=np.int64)
    possible = np.maximum(length[:, None] - np.arange(max(orders)), 1)
    summed = np.cumsum(np.log(np.where(counted > 0, counted, _SMOOTHED) / possible), axis=1)
    penalty = np.minimum(0.0, 1 - np.array(nearest, dtype=np.int64) / np.maximum(length, 1))
    order_array = np.asarray(orders)
    scores = np.exp(summed[:, order_array - 1] / order_array + penalty[:, None])
    return np.where(counted[:, :1] > 0, scores, 0.0)


def _ngrams(text: Sequence[str], longest: int) -> Counter[Words]:
    """Count each n-gram of the text, for n from 1 to `longest`."""
    counts: Counter[Words] = Counter()
    for n in range(1, longest + 1):
        counts.update(zip(*(text[start:] for start in range(n)), strict=False))
    return counts


def _matched(counts: Mapping[Words, int], most: Mapping[Words, int]) -> Counter[int]:
    """Return the number of matched n-grams, by n, each at most as often as in one reference (`most`)."""
    matched = Counter[int]()
    for gram, times in counts.items():
        matched[len(gram)] += min(times, most.get(gram, 0))
    return matched


def _nearest(length: int, lengths: Collection[int]) -> int:
    """Return the element of `lengths` nearest to `length`, the shorter in a tie."""
    return min(lengths, key=lambda reference_length: (abs(reference_length - length), reference_length))


class SeenNgrams:
    """The n-grams of all texts so far, each with the greatest count in one text."""

    def __init__(self, orders: Sequence[int] = ORDERS) -> None:
        self._orders = tuple(orders)
        self._most: dict[Words, int] = {}
        self._lengths: set[int] = set()

    def bleu(self, texts: Sequence[Sequence[str]]) -> Float[np.ndarray, "N M"]:
        """BLEU-n of each of `texts` (their tokens) with all that were added as references, for each n asked for."""
        if not self._lengths:
            return np.zeros((len(texts), len(self._orders)))
        matches = [_matched(_ngrams(text, max(self._orders)), self._most) for text in texts]
        nearest = [_nearest(len(text), self._lengths) for text in texts]
        return bleu_of_matches(matches, [*map(len, texts)], nearest, self._orders)

    def likeness(self, texts: Sequence[Sequence[str]]) -> Float[np.ndarray, " N"]:
        """The mean of `bleu` over the orders."""
        return np.asarray(self.bleu(texts).mean(axis=1))

    def add(self, texts: Sequence[Sequence[str]]) -> None:
        """Make `texts` references of all that are scored from now on."""
        for text in texts:
            for gram, times in _ngrams(text, max(self._orders)).items():
                self._most[gram] = max(self._most.get(gram, 0), times)
        self._lengths |= {*map(len, texts)}


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
