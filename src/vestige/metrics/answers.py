"""Whether a reply gives the answer: exact, at the beginning, or anywhere; and how probable the answer was.

`exact_match` compares texts after `normalised`. `prefix` and `contains` compare tokens (`tokens`), whole ones and in
their order, so that "5" is found neither in "15" nor in "3.5", and "500" not in "1,500". Axes: T tokens.
"""

import unicodedata

import numpy as np
from jaxtyping import Float

from vestige.metrics.tokens import SEPARATOR, aligned, tokens


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
    said, wanted = _comparable(reply, answer)
    return said.startswith(wanted)


def contains(reply: str, answer: str) -> bool:
    """Whether the answer stands somewhere in the reply."""
    said, wanted = _comparable(reply, answer)
    return wanted in said


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


def _comparable(reply: str, answer: str) -> tuple[str, str]:
    """Both as rows of tokens, each between separators; an answer without any token is sought as it stands."""
    expected, said = _answer(answer), normalised(reply)
    wanted = tokens(expected)
    if not wanted:
        return said, expected
    return (
        "".join(f"{SEPARATOR}{t}" for t in aligned(tokens(said), wanted)) + SEPARATOR,
        "".join(f"{SEPARATOR}{t.text}" for t in wanted) + SEPARATOR,
    )
