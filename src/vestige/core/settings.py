"""Strict settings: frozen, every key known, a default at home in its field and in no other place."""

import json
import tomllib
import types
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, to_jsonable_python

from vestige.core.errors import InputError
from vestige.core.files import read_text, write_text
from vestige.core.ids import content_id
from vestige.core.text import Fields, Record, closest, half_character, one_line

SPELLED: ContextVar[Mapping[tuple[str, str], str]] = ContextVar("SPELLED", default=MappingProxyType({}))
"""How a person spelled a setting, such as `--learning-rate`, by `module:Class` and name. The command line fills this.
"""


D = TypeVar("D", bound="Settings")


class WrongSettings(InputError):
    """Values that are no settings of a class. `detail` is the message without the place."""

    def __init__(self, detail: str) -> None:
        super().__init__(f"settings: {detail}")
        self.detail = detail


class Settings(BaseModel):
    """Base of everything that a person can set. An unknown key, a wrong type or a NaN is refused.

    The text below a field is its description, which `--help` shows.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True, use_attribute_docstrings=True
    )

    # For a type checker, the arguments are the fields.
    if not TYPE_CHECKING:

        def __init__(self, **values):
            # Pydantic accepts it, but writing it to a file fails later.
            for name, value in values.items():
                if isinstance(value, str) and half_character(value):
                    raise WrongSettings(f"{name} holds half of a surrogate pair, which is no character; give UTF-8")
            try:
                super().__init__(**values)
            except ValidationError as error:
                for problem in error.errors():
                    cause = problem.get("ctx", {}).get("error")
                    # Nested settings do not know their place.
                    if isinstance(cause, WrongSettings):
                        place = ".".join(map(str, problem["loc"]))
                        raise WrongSettings(f"{place}.{cause.detail}" if place else cause.detail) from None
                    # The code that checked a value has already explained the error.
                    if isinstance(cause, InputError):
                        raise cause from None
                raise WrongSettings(_explain(type(self), error)) from error

    @classmethod
    def build(cls, values: Record, *, where: str = "settings") -> Self:
        """Settings from names and values.

        An InputError names the place and the key, explains the mistake and suggests a key.
        """
        try:
            return cls(**values)
        except WrongSettings as error:
            raise InputError(f"{where}: {error.detail}") from error

    def over(self, defaults: D) -> D:
        """Return `defaults` with the values that were set in these settings."""
        return type(defaults).build({**defaults.explicit(), **self.explicit()})

    def explicit(self) -> Fields:
        """Return the values that were set in these settings."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    def identity(self) -> Fields:
        """Return the settings as JSON values, for ids and records."""
        return self.model_dump(mode="json")


class Described(NamedTuple):
    """A setting for people: its type in words (`INTEGER`, `a|b`, `NUMBER,...` for a list), its default, its text."""

    type: str
    default: Any
    help: str


def described(kind: type[BaseModel]) -> dict[str, Described]:
    """Return the settings of a class by name, including inherited ones. The default of a required one is None."""
    return {
        name: Described(
            type_in_words(field.annotation),
            None if field.is_required() else to_jsonable_python(field.get_default(call_default_factory=True)),
            " ".join((field.description or "").split()),
        )
        for name, field in kind.model_fields.items()
    }


_TYPES = {int: "INTEGER", float: "NUMBER", bool: "true|false", str: "TEXT", Path: "PATH"}


def type_in_words(annotation: Any) -> str:
    """Return `INTEGER`, `NUMBER`, `TEXT`, `PATH`, a choice such as `linear|cosine`, with `,...` for a list."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_in_words(arguments[0])
    if origin is Literal:
        return "|".join(str(word) for word in arguments if word != "")
    if origin in (Union, types.UnionType):
        # The first form is shown, without the list form.
        words = [type_in_words(argument) for argument in arguments if argument is not type(None)]
        return "|".join(sorted(dict.fromkeys(words), key=lambda word: word.endswith(",...")))
    if origin in (tuple, list):
        return f"{type_in_words(arguments[0])},..."
    return _TYPES.get(annotation, "VALUE")


def read_toml(path: Path) -> Fields:
    """The table in a TOML file. An InputError names the file and the place of a mistake."""
    try:
        return tomllib.loads(read_text(path, encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise InputError(f"there is no settings file {path}. Check the path") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not TOML ({error}). Correct the file") from error


def packaged_toml(package: str, *path: str) -> Fields:
    """The table in a TOML file that comes with a package."""
    return tomllib.loads(resources.files(package).joinpath(*path).read_text(encoding="utf-8"))


DEL, ESCAPED_DEL = "\x7f", "\\u007f"
"""The one character that JSON leaves as it is and TOML does not admit."""


def to_toml(values: Record) -> str:
    """A flat table as TOML. Absent values (None) are left out, since TOML has none.

    Strings, numbers, booleans and their lists have the same form in JSON and TOML.
    """
    return "".join(
        f"{key} = {json.dumps(value, ensure_ascii=False).replace(DEL, ESCAPED_DEL)}\n"
        for key, value in values.items()
        if value is not None
    )


def write_settings(path: Path, settings: Record) -> None:
    """Write a run's settings as TOML, with a checksum in the last line."""
    text = to_toml(settings)
    write_text(path, f"{text}# checksum {content_id(text, length=64)}\n")


def read_settings(path: Path) -> Fields:
    """Return a run's settings, none without a file. A file that was changed is refused, since pages show it."""
    if not path.exists():
        return {}
    text, _, checksum = read_text(path).rpartition("# checksum ")
    if content_id(text, length=64) != checksum.strip():
        raise InputError(
            f"{path} was changed, or an earlier version wrote it. Delete it and run the same command again"
        )
    return read_toml(path)


_MUST = {
    "greater_than": "must be greater than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "finite_number": "must be a finite number",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be text",
    "literal_error": "must be {expected}",
    "value_error": "{error}",
}
"""The requirement on a value, by pydantic's name for the mistake. Other mistakes keep pydantic's own words."""


def _explain(cls: type[Settings], error: ValidationError) -> str:
    """Return all mistakes in one sentence. If a value may have several forms, include each form's requirement."""
    problems: dict[str, list[str]] = {}
    spelled = SPELLED.get()
    for problem in error.errors():
        # One of several forms is in the place too, as in ("lora_targets", "Texts").
        key = ".".join(str(part) for part in problem["loc"] if "[" not in str(part))
        label = spelled.get((f"{cls.__module__}:{cls.__qualname__}", key), key)
        if not problem["loc"]:
            # A rule on several settings at once names them itself, and its input is all of them.
            problems[_wrong(key, problem)] = []
        elif problem["type"] == "extra_forbidden":
            near = closest(key.rpartition(".")[2], list(table_at(cls, problem["loc"]).model_fields))
            problems[f"unknown key {one_line(key)!r}. {near}"] = []
        elif problem["type"] == "missing":
            problems[f"{label} is missing"] = []
        else:
            problems.setdefault(f"{label} = {one_line(repr(problem['input']), width=60)}: ", []).append(
                _wrong(key, problem)
            )
    return "; ".join(heading + ", or ".join(dict.fromkeys(wrong)) for heading, wrong in problems.items())


def tables_in(annotation: Any) -> list[type[BaseModel]]:
    """The settings classes that a value of this type can hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [table for argument in get_args(annotation) for table in tables_in(argument)]


def table_at(cls: type[BaseModel], place: Sequence[str | int]) -> type[BaseModel]:
    """Return the class of the table that contains the last part of `place`, as in ("rates", 0, "valuez")."""
    for part in place[:-1]:
        field = cls.model_fields.get(str(part))
        cls = next(iter(tables_in(field.annotation)), cls) if field else cls
    return cls


def _wrong(key: str, problem: ErrorDetails) -> str:
    if problem["type"] in {"tuple_type", "list_type"}:
        value = problem["input"]
        meant = [part.strip() for part in value.split(",")] if isinstance(value, str) else [value]
        return f"must be a list, written as '{key}={one_line(json.dumps(meant, default=str), width=60)}'"
    words = _MUST.get(problem["type"])
    if words:
        return words.format(**problem.get("ctx", {}))
    return problem["msg"]
