"""Strict settings: frozen, every key known, a default at home in its field and nowhere else."""

import difflib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from vestige.core.errors import InputError


class Settings(BaseModel):
    """Base of everything that a person can set. An unknown key, a wrong type or a NaN is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    @classmethod
    def build(cls, values: Mapping[str, Any], *, where: str = "settings") -> Self:
        """Settings from names and values; an InputError says where, which key, what is wrong and what was meant."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise InputError(f"{where}: {_explain(cls, error)}") from error

    @classmethod
    def from_toml(cls, path: Path, overrides: Mapping[str, Any] | None = None) -> Self:
        """Settings from a flat TOML file, with `overrides` winning over it."""
        return cls.build({**read_toml(path), **(overrides or {})}, where=str(path))

    def identity(self) -> dict[str, Any]:
        """The settings as JSON values, for ids and for the record of what was asked."""
        return self.model_dump(mode="json")


def read_toml(path: Path) -> dict[str, Any]:
    """The table in a TOML file; an InputError names the file and the place of a mistake."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"no settings file at {path}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not TOML ({error})") from error


DEL, ESCAPED_DEL = "\x7f", "\\u007f"
"""The one character that JSON leaves as it is and TOML does not admit."""


def to_toml(values: Mapping[str, Any]) -> str:
    """A flat table as TOML; absent values (None) are left out, since TOML has none.

    JSON writes strings, numbers, booleans and lists of them in a form that is TOML as well.
    """
    return "".join(
        f"{key} = {json.dumps(value, ensure_ascii=False).replace(DEL, ESCAPED_DEL)}\n"
        for key, value in values.items()
        if value is not None
    )


def closest(name: str, known: list[str]) -> str:
    """A hint for a name that is not known: the nearest one, or all of them."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"


def _explain(cls: type[Settings], error: ValidationError) -> str:
    problems = []
    for problem in error.errors():
        key = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            problems.append(f"unknown key {key!r}; {closest(key, list(cls.model_fields))}")
        else:
            problems.append(f"{key} = {problem.get('input')!r}: {problem['msg']}")
    return "; ".join(problems)
