"""Porter's stemmer in the variant of NLTK, which ROUGE's reference implementation uses.

M. F. Porter, An algorithm for suffix stripping, Program 14(3), 1980; with the changes that NLTK makes by
default ("NLTK_EXTENSIONS": a few irregular words, kinder -ies, -ied, -y, and -alli, -fulli, -logi). Written
anew because importing NLTK takes a second, and tested equal to it word by word. A word is lower-case letters
and digits.
"""

from collections.abc import Sequence
from itertools import pairwise

_IRREGULAR = {
    "sky": "sky",
    "skies": "sky",
    "dying": "die",
    "lying": "lie",
    "tying": "tie",
    "news": "news",
    "inning": "inning",
    "innings": "inning",
    "outing": "outing",
    "outings": "outing",
    "canning": "canning",
    "cannings": "canning",
    "howe": "howe",
    "proceed": "proceed",
    "exceed": "exceed",
    "succeed": "succeed",
}

# Suffix and replacement, in the order in which they are tried; only the first suffix that fits counts.
_STEP_2 = (
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
    ("fulli", "ful"),
    ("logi", "log"),
)
_STEP_3 = (
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
)
_STEP_4 = (
    "al",
    "ance",
    "ence",
    "er",
    "ic",
    "able",
    "ible",
    "ant",
    "ement",
    "ment",
    "ent",
    "ion",
    "ou",
    "ism",
    "ate",
    "iti",
    "ous",
    "ive",
    "ize",
)


def stem(word: str) -> str:
    """The stem of `word`. Words of one or two letters are their own."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) <= 2:
        return word
    word = _plural(word)
    word = _past(word)
    if len(word) > 2 and word[-1] == "y" and _consonants(word[:-1])[-1]:
        word = word[:-1] + "i"
    word = _derived(word)
    word = _replaced(word, _STEP_3)
    word = _residual(word)
    return _tidied(word)


def _consonants(word: str) -> list[bool]:
    """For each letter whether it is a consonant: no a, e, i, o, u, and no y after a consonant."""
    flags: list[bool] = []
    for letter in word:
        if letter == "y":
            flags.append(not flags or not flags[-1])
        else:
            flags.append(letter not in "aeiou")
    return flags


def _measure(word: str) -> int:
    """Porter's m: how many times a vowel is followed by a consonant."""
    flags = _consonants(word)
    return sum(after and not here for here, after in pairwise(flags))


def _ends_double(word: str) -> bool:
    """Porter's *d: ends with the same consonant twice."""
    return len(word) >= 2 and word[-1] == word[-2] and _consonants(word)[-1]


def _ends_short(word: str) -> bool:
    """Porter's *o: ends consonant, vowel, consonant but w, x, y; and NLTK's: is a vowel and a consonant."""
    flags = _consonants(word)
    if len(word) == 2:
        return flags == [False, True]
    return flags[-3:] == [True, False, True] and word[-1] not in "wxy"


def _plural(word: str) -> str:
    """Step 1a."""
    if word.endswith("ies"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("sses"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past(word: str) -> str:
    """Step 1b."""
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        left = word.removesuffix(suffix)
        if left != word and not all(_consonants(left)):
            break
    else:
        return word
    if left.endswith(("at", "bl", "iz")):
        return left + "e"
    if _ends_double(left):
        return left if left[-1] in "lsz" else left[:-1]
    return left + "e" if _measure(left) == 1 and _ends_short(left) else left


def _derived(word: str) -> str:
    """Step 2, with -alli taken first; "logi" counts its l to the stem, so that "geologi" loses its i."""
    if word.endswith("alli") and _measure(word[:-4]) > 0:
        word = word[:-2]
    for suffix, replacement in _STEP_2:
        if word.endswith(suffix):
            left = word[: -len(suffix)]
            measured = left + "l" if suffix == "logi" else left
            return left + replacement if _measure(measured) > 0 else word
    return word


def _replaced(word: str, rules: Sequence[tuple[str, str]]) -> str:
    """Step 3."""
    for suffix, replacement in rules:
        if word.endswith(suffix):
            left = word[: -len(suffix)]
            return left + replacement if _measure(left) > 0 else word
    return word


def _residual(word: str) -> str:
    """Step 4."""
    for suffix in _STEP_4:
        if word.endswith(suffix):
            left = word[: -len(suffix)]
            whole = _measure(left) <= 1 or (suffix == "ion" and left[-1] not in "st")
            return word if whole else left
    return word


def _tidied(word: str) -> str:
    """Steps 5a and 5b."""
    if word.endswith("e"):
        left = word[:-1]
        if _measure(left) > 1 or (_measure(left) == 1 and not _ends_short(left)):
            word = left
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word
