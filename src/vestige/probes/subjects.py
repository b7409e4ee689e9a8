"""The names that the forget set is about, by which a prompt is known to ask for what was to be forgotten.

A question about a forgotten author is no benign knowledge, though no text of the forget set answers it. Ours: the
paper drops only what a text answers (Knowledge Holes, 2511.00030, section 3).
"""

import math
from collections import Counter
from collections.abc import Sequence

from vestige.probes.keywords import tokens

LEAST_TEXTS = 2
"""A name in one text alone may be anything that was mentioned."""


def forgotten_names(forgotten: Sequence[str], retained: Sequence[str], *, share: float) -> frozenset[str]:
    """Names, as stems, that at least `share` of the forgotten texts have, and no retained one.

    A name is a word that the forgotten texts write with a capital inside sentences, and never without. Where nothing is
    known to be retained no name is only the forget set's, and there is none.
    """
    if not retained:
        return frozenset()
    n_with: Counter[str] = Counter()
    inside: set[str] = set()
    small: set[str] = set()
    for text in forgotten:
        read = tokens(text)
        n_with.update({t.stem for t in read})
        inside |= {t.stem for t in read if t.text[0].isupper() and not t.begins}
        small |= {t.stem for t in read if not t.text[0].isupper()}
    least = max(LEAST_TEXTS, math.ceil(share * len(forgotten)))
    often = {word for word in inside - small if n_with[word] >= least}
    return frozenset(often - {t.stem for text in retained for t in tokens(text)})


def names_one(prompt: str, names: frozenset[str]) -> bool:
    """Whether the prompt has one of the names, written large or small."""
    return any(t.stem in names for t in tokens(prompt))
