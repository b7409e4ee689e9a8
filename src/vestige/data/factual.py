"""General knowledge, and ways to say that one has none: questions with short answers, and 100 refusals.

The facts are a split that no forget set touches (PISTOL's "factual" questions), in our own words. Numbers up
to twelve are in words, larger ones in digits; answers have no full stop at the end.
"""

import json
from functools import lru_cache
from importlib import resources
from pathlib import Path

from vestige.core.errors import InputError
from vestige.core.items import Item

GROUP = "factual"


@lru_cache(maxsize=1)
def factual_items() -> tuple[Item, ...]:
    """The factual questions, in a fixed order; `attribute` is the topic."""
    rows = [json.loads(line) for line in _lines("factual.jsonl")]
    return tuple(Item(r["question"], r["answer"], group=GROUP, attribute=r["topic"]) for r in rows)


@lru_cache(maxsize=1)
def idk_answers() -> tuple[str, ...]:
    """One hundred answers that decline to know, each different, in a fixed order."""
    return tuple(_lines("idk.txt"))


def read_idk(path: Path) -> tuple[str, ...]:
    """The lines of a plain text file of one's own, such as TOFU's idontknow.jsonl; blank ones are skipped."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); give a text file") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text; save the file as UTF-8") from error
    lines = tuple(line.strip() for line in text.split("\n") if line.strip())
    if not lines:
        raise InputError(f"{path}: holds no line; give one answer a line that declines to know")
    for number, line in enumerate(text.split("\n"), 1):
        if "\0" in line:
            raise InputError(f"{path}, line {number}: holds a NUL character; remove it")
    return lines


def _lines(name: str) -> list[str]:
    return (resources.files("vestige.data") / "resources" / name).read_text(encoding="utf-8").splitlines()
