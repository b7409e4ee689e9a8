"""Text from models and data sets is hostile until shown otherwise; here it is made fit for one terminal line."""

import unicodedata

# Cc: control characters and ANSI's escape. Cf: bidirectional overrides, zero-width signs. Cs: lone surrogates.
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


def one_line(text: str, *, width: int = 100) -> str:
    """`text` on one line of at most `width` characters; what a terminal could act upon becomes '·'."""
    shown = "".join("·" if unicodedata.category(c) in _HIDDEN else c for c in text[: width + 1])
    return shown if len(text) <= width else shown[: width - 1] + "…"


def half_character(text: str) -> bool:
    """Whether `text` holds a lone surrogate, which no file and no tokeniser takes (bytes that are no UTF-8)."""
    return any("\ud800" <= c <= "\udfff" for c in text)


def sentence(text: str) -> str:
    """`text` with a capital at the beginning and one full stop at the end."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
