"""From what was typed to settings: data sources, training settings."""

import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vestige.core.errors import InputError
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.core.settings import Settings

T = TypeVar("T", bound="Settings")


def settings_from(
    kind: type[T],
    config: Path | None,
    assignments: Sequence[str] | None,
    *,
    defaults: Mapping[str, Any] | None = None,
) -> T:
    """Settings from a TOML file and `key=value` words, the words winning; `defaults` replace the class's own."""
    from vestige.core.settings import read_toml

    values = {**(defaults or {}), **(read_toml(config) if config is not None else {}), **pairs(assignments)}
    return kind.build(
        values, where="settings" if config is None else f"{config} and --set" if assignments else str(config)
    )


def split_method_settings(method: str, assignments: Sequence[str] | None) -> tuple[dict[str, Any], list[str]]:
    """The settings that carry the method's name, without it, and the words that do not."""
    prefix = f"{method}."
    own = {k.removeprefix(prefix): v for k, v in pairs(assignments).items() if k.startswith(prefix)}
    return own, [w for w in assignments or () if not w.strip().startswith(prefix)]


def pairs(assignments: Sequence[str] | None) -> dict[str, Any]:
    """What `key=value` words set, each value as TOML has it."""
    pairs = {}
    for word in assignments or ():
        key, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"--set {one_line(word)!r}: expected KEY=VALUE, as in learning_rate=2e-5")
        pairs[key.strip()] = _toml_value(value.strip())
    return pairs


def _toml_value(text: str) -> Any:
    """A TOML value; anything that is none is a plain word."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def refuse_torchrun(command: str) -> None:
    """Refuse several processes that would each do the whole of what `command` does, in one folder."""
    n = os.environ.get("WORLD_SIZE", "1")
    if n != "1":
        raise InputError(
            f"torchrun started {n} processes, and `vestige {command}` does not share its work among them; start it "
            "without torchrun"
        )


def say(line: str) -> None:
    """A line for people, on stderr; of several processes the first one says it."""
    if os.environ.get("RANK", "0") == "0":
        print(line, file=sys.stderr, flush=True)
