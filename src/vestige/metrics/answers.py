"""Whether a reply gives the answer: exact, at the beginning, or anywhere; and how probable the answer was.

Texts are compared after `normalised`. Matches are of whole words, so that "5" is not found in "15". Axes: T
tokens.
"""

import re
import unicodedata

import numpy as np
from jaxtyping import Float


def normalised(text: str) -> str:
    """`text` for comparing: NFKC, case folded, white space collapsed, full stops at the end removed."""
    # Case folding can undo the normal form, hence once more.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split()).rstrip(". ")


def exact_match(reply: str, answer: str) -> bool:
    """Whether the reply is the answer and nothing else."""
    return normalised(reply) == _answer(answer)


def prefix(reply: str, answer: str) -> bool:
    """Whether the reply begins with the answer."""
    return re.match(_whole(answer), normalised(reply)) is not None


def contains(reply: str, answer: str) -> bool:
    """Whether the answer stands somewhere in the reply."""
    return re.search(_whole(answer), normalised(reply)) is not None


def is_empty(reply: str) -> bool:
    """Whether the reply says nothing: only punctuation, white space and controls, or not even that."""
    return all(unicodedata.category(c)[0] in "CPZ" for c in reply)


def probability(logp: Float[np.ndarray, " T"]) -> float:
    """exp(mean log-probability of the tokens), in [0, 1]; `logp` is in nats.

    TOFU's length-normalised probability (Maini et al., 2401.06121, section 3.1).
    """
    logp = np.asarray(logp, dtype=float)
    if not len(logp):
        raise ValueError("an answer without tokens has no probability")
    if not (logp <= 0).all():
        raise ValueError(f"log-probabilities are at most 0, got {logp.max()}")
    return float(np.exp(logp.mean()))


def _answer(answer: str) -> str:
    expected = normalised(answer)
    if not expected:
        raise ValueError(f"the answer {answer!r} is nothing but white space and full stops, so nothing matches it")
    return expected


def _whole(answer: str) -> str:
    """A pattern for the answer with no word character beside one of its own at either end."""
    expected = _answer(answer)
    before = r"(?<!\w)" if re.match(r"\w", expected) else ""
    after = r"(?!\w)" if re.search(r"\w$", expected) else ""
    return f"{before}{re.escape(expected)}{after}"
