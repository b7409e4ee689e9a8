"""Porter's stemmer in the variant of NLTK 3.10.4, which `rouge-score` uses. The results are equal.

Source: M. F. Porter, An algorithm for suffix stripping, Program 14(3), 1980. NLTK adds irregular forms and the rules
marked below. The measure m of a stem counts how often a vowel is followed by a consonant: "tr" has 0, "ivy" 1.
"""

from collections.abc import Mapping
from itertools import pairwise


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
# The first suffix that fits decides, whether its condition holds or not: longer ones precede those that they end in.
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
