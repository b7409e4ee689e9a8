"""Hostile text made fit to be looked at: what acts unseen is spelt out.

A control character, a bidirectional override, a zero-width sign, a lone surrogate or a private character is
shown by its number, as in `‹U+202E›`; line breaks and tabs stay as they are.
"""

import re
import unicodedata

_KEPT = {"\n", "\t"}
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_NOT_ASCII_PRINTABLE = re.compile(r"[^\n\t -~]")


def visible(text: str) -> str:
    """`text` with what acts unseen spelt out; CR LF counts as one line break."""
    return _NOT_ASCII_PRINTABLE.sub(_spelt, text.replace("\r\n", "\n"))


def _spelt(match: re.Match[str]) -> str:
    char = match[0]
    return f"‹U+{ord(char):04X}›" if unicodedata.category(char) in _UNSEEN and char not in _KEPT else char
