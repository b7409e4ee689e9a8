"""Whether a text is language at all: empty, without letters or digits, or one thing over and over. No model needed.

Word salad is not told from language here: that takes a model's likelihood.
"""

import re
import unicodedata
import zlib
from typing import Literal, TypeAlias

from vestige.metrics.answers import is_empty

Degeneration: TypeAlias = Literal["", "empty", "no text", "repetition"]

_WINDOW_WORDS = 20
_LEAST_WORDS = 8
_LEAST_DISTINCT = 0.4
"""Of the words in a window; English prose has 0.7 and more in twenty words."""
_LEAST_BYTES, _BLOCK_BYTES = 40, 400
_LEAST_COMPRESSED = 0.35
"""Of a block's bytes, by zlib. Longer blocks of prose compress better, so that the limit holds for this size."""
_LEAST_LEGIBLE = 0.6


def degeneration(text: str) -> Degeneration:
    """What is wrong with the text as a text; "" where it may be language."""
    if is_empty(text):
        return "empty"
    if _legible(text) < _LEAST_LEGIBLE:
        return "no text"
    return "repetition" if _repeats(text) else ""


def _legible(text: str) -> float:
    """The share of letters, digits, their marks and plain punctuation among all that is not white space."""
    signs = [c for c in unicodedata.normalize("NFKC", text) if not c.isspace()]
    legible = sum(unicodedata.category(c)[0] in "LNM" or c in ".,;:!?'\"()-%$€°/+=*" for c in signs)
    return legible / len(signs) if signs else 0.0


def _repeats(text: str) -> bool:
    """Whether at least half of the text, by windows of words or by blocks of bytes, says one thing over and over.

    A numbered list of one item over and over is repetition too, so all numbers count as one word.
    """
    words = re.sub(r"\d+", "0", text.casefold()).split()
    width = min(_WINDOW_WORDS, len(words))
    if width >= _LEAST_WORDS:
        windows = [words[i : i + width] for i in range(len(words) - width + 1)]
        if sum(len(set(w)) / width < _LEAST_DISTINCT for w in windows) >= len(windows) / 2:
            return True
    content = text.encode("utf-8", "replace")
    blocks = [content[i : i + _BLOCK_BYTES] for i in range(0, len(content), _BLOCK_BYTES)]
    long = [block for block in blocks if len(block) >= _LEAST_BYTES]
    return bool(long) and sum(len(zlib.compress(b, 9)) / len(b) < _LEAST_COMPRESSED for b in long) >= len(long) / 2
