"""Text from models and data sets is hostile until shown otherwise. Here it is made fit for one terminal line."""

import difflib
import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

# Cc: control characters and ANSI's escape. Cf: bidirectional overrides, zero-width signs. Cs: lone surrogates.
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}

Names = tuple[str, ...]
"""Names of models, formats or attacks, in order."""
Items = tuple[str, ...]
"""Questions or facts by their ids, in their order."""
TextTuple = tuple[str, ...]
Sentences = tuple[str, ...]
"""To be read by a person."""
Fields = dict[str, Any]
"""Values of any type by name, such as a line of a JSON file."""
Record = Mapping[str, Any]
"""Fields that are only read."""
TextByName = dict[str, str]
NumberByName = dict[str, float]
TextMapping = Mapping[str, str]
NumberMapping = Mapping[str, float]
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_MOST_NAMED = 100
"""In longer lists, such as the tasks of lm-evaluation-harness, an error names only this many."""
_FIRST = 3
"""The number of names in a sentence that is not only about them."""


def one_line(text: str, *, width: int = 100) -> str:
    """`text` on one line of at most `width` characters. Control characters become '·'."""
    # Only the visible part is processed, since a text may have megabytes.
    visible = text[: width + 1]
    # Most names are printable ASCII, which has no hidden character.
    if not (visible.isascii() and visible.isprintable()):
        visible = "".join("·" if unicodedata.category(c) in _HIDDEN else c for c in visible)
    if len(text) <= width:
        return visible
    return visible[: width - 1] + "…"


_UNSEEN = {*_HIDDEN, "Cn"}
_NOT_ASCII_PRINTABLE = re.compile(r"[^\n\t -~]")


def visible(text: str) -> str:
    """`text` with what acts unseen spelt out. CR LF counts as one line break.

    A control character, a bidirectional override, a zero-width character, a lone surrogate or a private character is
    replaced by its number, as in `‹U+202E›`. Line breaks and tabs stay as they are.
    """
    return _NOT_ASCII_PRINTABLE.sub(_spelt, text.replace("\r\n", "\n"))


def _spelt(match: re.Match[str]) -> str:
    char = match[0]
    if unicodedata.category(char) in _UNSEEN:
        return f"‹U+{ord(char):04X}›"
    return char


def folded(name: str) -> str:
    """A name without case and forms of one character, which file systems and readers may not tell apart."""
    return unicodedata.normalize("NFKC", name).casefold()


def half_character(text: str) -> bool:
    """Return whether `text` contains a lone surrogate, which UTF-8 files and tokenisers cannot represent."""
    return any("\ud800" <= c <= "\udfff" for c in text)


_THOUGHT = re.compile(
    r"(?P<close></(?:seed:)?(?:think|thinking|thought|reasoning)>|\[/THINK\]|<\|end_of_thought\|>|◁/think▷"
    r"|<\|channel\|>final<\|message\|>)"
    r"|<(?:seed:)?(?:think|thinking|thought|reasoning)>|\[THINK\]|<\|begin_of_thought\|>|◁think▷"
    r"|<\|channel\|>(?:analysis|commentary)<\|message\|>",
    re.IGNORECASE,
)
"""The marks around a reasoning trace: of DeepSeek and Qwen, Mistral, Seed, OpenThinker, Kimi and gpt-oss."""


def without_thoughts(text: str) -> str:
    """Return `text` without the preceding thoughts of a reasoning model, or "" if the thoughts never end."""
    return split_thoughts(text)[1]


def split_thoughts(text: str) -> tuple[str, str]:
    """Return the reasoning trace of a reply ("" without one) and its answer ("" if the trace never ends).

    Example:
        >>> split_thoughts("<think>It was 1970.</think> I do not know.")
        ('It was 1970.', ' I do not know.')
    """
    marks = list(_THOUGHT.finditer(text))
    closed = 0
    for mark in marks:
        if mark["close"]:
            closed = mark.end()
    opened = len(text)
    for mark in marks:
        if mark.start() >= closed:
            opened = mark.start()
            break
    trace = _THOUGHT.sub(" ", f"{text[:closed]} {text[opened:]}")
    return trace.strip(), text[closed:opened]


def begins_with_thought(text: str) -> bool:
    """Whether a text begins with a reasoning trace, or closes one that the chat template opened."""
    marks = list(_THOUGHT.finditer(text))
    return bool(marks) and (not text[: marks[0].start()].strip() or any(mark["close"] for mark in marks))


def has_thought(text: str) -> bool:
    """Whether a text has a mark that opens or closes a reasoning trace."""
    return _THOUGHT.search(text) is not None


def open_thought(prompt: str) -> str:
    """The mark that opened a block of thought in which a rendered prompt ends. "" if the prompt ends outside."""
    marks = list(_THOUGHT.finditer(prompt))
    if not marks or marks[-1]["close"]:
        return ""
    return marks[-1][0]


_SYSTEM = re.compile(r"\[\[system\]\]\n(.*?)\n\[\[/system\]\]\n\n", re.DOTALL)


def with_system(system: str, question: str) -> str:
    """Return a question with its system turn, as one text."""
    return f"[[system]]\n{system}\n[[/system]]\n\n{question}"


def system_of(question: str) -> tuple[str, str]:
    """The system turn of a question, "" without one, and the question itself."""
    match = _SYSTEM.search(question)
    if match is None:
        return "", question
    return match[1], question[: match.start()] + question[match.end() :]


def sentence(text: str) -> str:
    """`text` with a capital at the beginning and one full stop at the end."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def grouped(values: Iterable[_Value], key: Callable[[_Value], _Key]) -> dict[_Key, list[_Value]]:
    """The values by their key, in the order of the first of each."""
    groups: dict[_Key, list[_Value]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups


def listed(names: Iterable[str]) -> str:
    """Names of whoever gave them, with commas in between, on one line."""
    return ", ".join(one_line(name, width=60) for name in names)


def first_of(names: Sequence[str]) -> str:
    """The first three names, and how many more there are, on one line."""
    n_further = len(names) - _FIRST
    shown = ", ".join(one_line(name, width=120) for name in names[:_FIRST])
    if n_further > 0:
        return f"{shown} and {n_further} more"
    return shown


SYNONYMS = {
    "lr": "learning_rate",
    "lora_r": "lora_rank",
    "rank": "lora_rank",
    "num_epochs": "epochs",
    "num_train_epochs": "epochs",
    "per_device_train_batch_size": "batch_size",
    "gradient_accumulation_steps": "micro_batch_size",
    "bf16": "precision",
    "torch_dtype": "dtype",
    "max_grad_norm": "max_gradient_norm",
    "lr_scheduler_type": "schedule",
    "subject": "model",
}
"""Names of other libraries, by which people ask for ours."""


def closest(name: str, names: list[str]) -> str:
    """Return a hint for an unknown name: the nearest name, otherwise all names, or their number in a long list."""
    if SYNONYMS.get(name) in names:
        return f"Did you mean {SYNONYMS[name]!r}?"
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    if len(names) > _MOST_NAMED:
        return f"None of the {len(names):,} known names is close to it"
    return f"Known: {', '.join(sorted(names))}"


def value_in(text: str, kind: str = "") -> Any:
    """The value that a text represents: as TOML has it, and of a type in words also plain text and lists by commas."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *words, last = kind.split("|")
    if not kind or isinstance(value, list) or (isinstance(value, str) and value != text):
        return value
    if last.endswith(",...") and text not in words:
        item_kind = "|".join((*words, last.removesuffix(",...")))
        return [value_in(part.strip(), item_kind) for part in text.split(",") if part.strip()]
    if last in ("INTEGER", "NUMBER", "VALUE", "false") or last.isdigit():
        return value
    return text
