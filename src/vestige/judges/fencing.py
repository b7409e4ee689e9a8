"""Text that is judged is hostile: it stands between two marks that it cannot know, and holds no control sign.

The marks bear a digest of all texts that are fenced. To forge one, a text would have to hold a digest of itself. The
same texts have the same marks, so that a request that is made again is the same request.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence

from vestige.core.ids import content_id

# C*: control characters, ANSI's escape, bidirectional and zero-width signs, lone surrogates, private use, unassigned.
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_KEPT = {"\n", "\t"}
_DOT = "·"
# Of other categories, and invisible too: fillers, joiners and selectors of variants, with which whole hidden texts are
# spelt. A selector by itself behind a symbol, as in most emoji, is left.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\U000e0100-\U000e01ef]"
    "|[\ufe00-\ufe0d]|(?<![\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff#*0-9])[\ufe0e\ufe0f]"
)
# What chat templates of the common families write themselves, and our own marks. A model's own list is longer:
# `Writer.reserved`. Words with an underscore (<tool_call>, <start_of_turn>) and in capitals ([TOOL_CALLS], [gMASK]) go
# together, since new ones come with every model.
_CONTROL = re.compile(
    r"<(?=[|｜])|(?<=[|｜])>"
    r"|<(?=/?(?:s|[bes]o[sp]|pad|unk|mask|cls|sep|think(?:ing)?|thought|reasoning|tools?|unused\d+|0x[0-9a-f]{2})>)"
    r"|<(?=/?[a-z0-9]+(?:[_:▁][a-z0-9]+)+>)|<(?=</?SYS>>)|\[(?=(?:begin|end)\s)"
    r"|\[(?=/?(?-i:[a-z]?[A-Z][A-Z0-9_]{2,})\])",
    re.IGNORECASE,
)
# The forms in which a verdict is given. A judge that quotes the text must not be read as if it had given one.
_VERDICT = re.compile(r"[\[［]+\s*(\d[\d.,/]*)\s*[\]］]+")
_JSON = re.compile(r"""\{(?=\s*")|\[(?=\s*["{])""")
_TRIES = 16


def harmless(text: str, reserved: Sequence[str] = ()) -> str:
    """`text` with hidden characters as '·', a '·' inside control signs and objects of JSON, and (7) for [[7]].

    All of it stays legible, so that the text is still judged for what it says.
    """
    # NFC first: a control sign could otherwise be spelt with combining characters that a tokeniser composes.
    shown = _INVISIBLE.sub(_DOT, unicodedata.normalize("NFC", text.replace("\r\n", "\n")))
    shown = "".join(_DOT if unicodedata.category(c) in _HIDDEN and c not in _KEPT else c for c in shown)
    for sign in sorted(reserved, key=len, reverse=True):
        if len(sign) > 1 and not sign.isspace():
            shown = shown.replace(sign, sign[0] + _DOT + sign[1:])
    shown = _CONTROL.sub(lambda found: found[0] + _DOT if found[0] in "<[" else _DOT + found[0], shown)
    return _JSON.sub(lambda found: found[0] + _DOT, _VERDICT.sub(r"(\1)", shown))


def fenced(texts: Mapping[str, str], reserved: Sequence[str] = ()) -> tuple[str, str]:
    """The texts by label, each between its marks, made harmless; and the nonce that the marks bear."""
    clean = {label: harmless(text, reserved) for label, text in texts.items()}
    nonce = _nonce(clean)
    blocks = [f"[begin {label} {nonce}]\n{text}\n[end {label} {nonce}]" for label, text in clean.items()]
    return "\n\n".join(blocks), nonce


def _nonce(texts: Mapping[str, str]) -> str:
    for salt in range(_TRIES):
        nonce = content_id([salt, *texts.items()])
        if not any(nonce in text for text in texts.values()):
            return nonce
    raise AssertionError(f"{_TRIES} digests of a text all stand in it")
