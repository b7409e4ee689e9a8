"""How the report writes numbers and text: two decimals, a real minus sign, an interval in brackets.

Hostile text is made fit to be looked at (`visible`). A control character, a bidirectional override, a zero-width sign,
a lone surrogate or a private character is shown by its number, as in `‹U+202E›`; line breaks and tabs stay as they are.
"""

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Protocol

from vestige.core.estimates import NO_INTERVAL


class Ranged(Protocol):
    """A value with its interval."""

    @property
    def value(self) -> float:
        """The value itself."""

    @property
    def low(self) -> float:
        """The lower bound."""

    @property
    def high(self) -> float:
        """The upper bound."""


def number(x: float) -> str:
    """As in `0.42` or `−0.07`; what rounds to zero has no sign."""
    text = f"{x:.2f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def signed(x: float) -> str:
    """As in `+0.42`, `−0.07` or `0.00`."""
    return f"+{number(x)}" if float(f"{x:.2f}") > 0 else number(x)


def interval(e: Ranged) -> str:
    """As in `[0.36, 0.48]`; the space does not break."""
    if math.isinf(e.low) or math.isinf(e.high):
        return NO_INTERVAL
    return f"[{number(e.low)},\N{NO-BREAK SPACE}{number(e.high)}]"


def ranged(e: Ranged) -> str:
    """As in `0.42 [0.36, 0.48]`."""
    return f"{number(e.value)} {interval(e)}"


def listed(names: list[str]) -> str:
    """As in `a`, `a and b`, or `a, b and c`."""
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def counted(n: int) -> str:
    """A number up to twelve as a word, as in `four`."""
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    return words[n] if n < len(words) else f"{n:,}"


def plain_number(x: float) -> str:
    """Of any size, as in `0.42`, `−3.14`, `6,120`, `0.003`, `2.4e−12` or `0`."""
    if abs(x) < 0.01:
        return f"{x:.2g}".replace("-", "−")
    return (f"{x:,.0f}" if abs(x) >= 100 else f"{x:.1f}" if abs(x) >= 10 else number(x)).replace("-", "−")


_KEPT = {"\n", "\t"}
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_NOT_ASCII_PRINTABLE = re.compile(r"[^\n\t -~]")


def visible(text: str) -> str:
    """`text` with what acts unseen spelt out; CR LF counts as one line break."""
    return _NOT_ASCII_PRINTABLE.sub(_spelt, text.replace("\r\n", "\n"))


def _spelt(match: re.Match[str]) -> str:
    char = match[0]
    return f"‹U+{ord(char):04X}›" if unicodedata.category(char) in _UNSEEN and char not in _KEPT else char


def named_values(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings, a line each; what is no text as JSON."""
    return [(k, v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)) for k, v in values.items()]


def provenance_lines(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The run's provenance, a line a fact: nested tables as `name: value, name: value`."""
    return [
        (key, ", ".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value))
        for key, value in provenance.items()
    ]


METHOD_NAMES: Mapping[str, tuple[str, str]] = {
    "ga": ("GA", "gradient ascent"),
    "gd": ("GD", "gradient difference"),
    "kl": ("KL", "KL minimization"),
    "idk_gd": ("IDK + GD", "“I don't know” tuning, gradient descent"),
    "dpo": ("DPO", "direct preference optimization"),
    "npo": ("NPO", "negative preference optimization"),
    "npo_gd": ("NPO + GD", "negative preference optimization, gradient descent"),
    "npo_kl": ("NPO + KL", "negative preference optimization, KL term"),
    "llmu": ("LLMU", "large language model unlearning"),
    "rmu": ("RMU", "representation misdirection"),
    "simnpo": ("SimNPO", "simple negative preference optimization"),
    "altpo": ("AltPO", "alternate preference optimization"),
    "wga": ("WGA", "weighted gradient ascent"),
    "satimp": ("SatImp", "saturation and importance weighting"),
    "undial": ("UNDIAL", "self-distillation with adjusted logits"),
    "ce_u": ("CE-U", "cross-entropy unlearning"),
    "pdu": ("PDU", "primal-dual unlearning"),
    "task_arithmetic": ("Task arithmetic", "subtracted task vector"),
    "retrain": ("Retraining", "trained again without the facts"),
    "none": ("No unlearning", "the target as it is"),
    "gakl": ("GA + KL", "gradient ascent, KL term"),
    "sisa": ("SISA", "sharded training"),
}
"""The short and the full name of every method in `vestige.methods`, which the report may not import."""


def method_name(label: str) -> str:
    """The short name of the method that a model's label begins with, as in `GA` or `GA (seed 1)`; else the label."""
    method, space, rest = label.partition(" ")
    return METHOD_NAMES[method][0] + space + rest if method in METHOD_NAMES else label


def method_in_full(label: str) -> str:
    """The full name of that method, as in `gradient ascent`; "" where the label begins with none."""
    return METHOD_NAMES.get(label.partition(" ")[0], ("", ""))[1]


_ATTACKS = (
    (re.compile(r"[Rr]elearn (forget_part|forget|retain|related|unrelated) n=(\d+)"), r"relearning on \2 \1 items"),
    (re.compile(r"[Qq]uantize (\d+) bits"), r"\1-bit weights"),
    (re.compile(r"[Ii]n_context n=(\d+)"), r"\1 facts in the prompt"),
    (re.compile(r"[Gg]cg n=(\d+)"), r"searched suffix for \1 replies"),
    (re.compile(r"[Pp]refix n=(\d+)"), r"searched prefix for \1 replies"),
)
_ONE_WORD = {"prefill": "started answers", "sampling": "sampled answers"}
_FORMATS = {
    "generate": "written answer",
    "forced": "probability of the answer",
    "forced, bits": "probability of the answer, bits",
    "generate_plain": "answer given away",
    "generate_option": "option written out",
    "choose": "option by letter",
    "option_vocab": "option by letter, whole vocabulary",
    "option_text_mean": "likeliest option, per token",
    "option_text_sum": "likeliest option",
    "reversed_choose": "question for the answer",
    "reversed_option_vocab": "question for the answer, whole vocabulary",
    "paraphrase": "other words",
    "few_shot": "after examples",
    "cloze": "gap filled",
    "exposure": "rank among alternatives",
}


def attack_name(name: str) -> str:
    """An attack in words, as in `relearning on 30 retain items` or `4-bit weights`; another name as it is."""
    return _ONE_WORD.get(name) or attacks_in_words(name)


def attacks_in_words(text: str) -> str:
    """A sentence with the names of attacks in it put in words."""
    for pattern, words in _ATTACKS:
        text = pattern.sub(lambda found, words=words: _named_attack(found, words), text)  # type: ignore[misc]
    return text


def _named_attack(found: re.Match[str], words: str) -> str:
    name = found.expand(words).replace("forget_part", "other forget")
    return name[:1].upper() + name[1:] if found[0][:1].isupper() else name


def format_name(name: str) -> str:
    """A format of question in words, as in `written answer`; another name as it is."""
    return _FORMATS.get(name, name)


def per_cent(x: float) -> str:
    """A share as in `42 %` or `−7 %`; what rounds to zero has no sign."""
    whole = f"{100 * x:.0f}"
    return f"{'0' if whole == '-0' else whole.replace('-', '−')}\N{NARROW NO-BREAK SPACE}%"
