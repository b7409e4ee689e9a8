"""Contract types: a table of attributes and a text template each, built in or from a folder of one's own.

A type is `<name>.toml` (see `contract_schema`) beside `<name>.txt.j2`, which states every attribute of the
table. Templates are foreign code and run in a sandbox.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType

from jinja2 import StrictUndefined, Template, TemplateError, meta

from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.sandbox import BoundedEnvironment, work_bounded
from vestige.core.settings import closest, read_toml
from vestige.core.text import one_line
from vestige.data.contract_schema import SUPERSEDED, ContractSpec, Kind, PartyAddress, PartyName, check_spec


@dataclass(frozen=True)
class ContractType:
    """A contract type that was checked, with the sources that it was read from."""

    name: str
    spec: ContractSpec
    table: str
    template: str

    @cached_property
    def roles(self) -> tuple[str, str]:
        """The two roles, in the order of the table."""
        first, second = self.spec.parties
        return first, second

    @cached_property
    def kinds(self) -> tuple[Kind, Kind]:
        """The kind of entity that plays each role."""
        first, second = self.spec.parties.values()
        return first, second

    @cached_property
    def names(self) -> dict[str, str]:
        """The role whose name each naming attribute states."""
        made = self.spec.attributes.items()
        return {name: a.generator.party for name, a in made if isinstance(a.generator, PartyName)}

    @cached_property
    def addresses(self) -> dict[str, str]:
        """The role whose address each attribute states, where one is an entity's own."""
        made = self.spec.attributes.items()
        return {name: a.generator.party for name, a in made if isinstance(a.generator, PartyAddress)}

    @cached_property
    def name_of(self) -> dict[str, str]:
        """The attribute that names each role."""
        return {role: attribute for attribute, role in self.names.items()}

    @cached_property
    def digest(self) -> str:
        """Content id of table and template."""
        return content_id([self.table, self.template])

    def answer(self, attribute: str, value: str) -> str:
        """The answer that states a value, as in "5%."."""
        return self.spec.attributes[attribute].answer.format(value=value)

    def render(self, values: Mapping[str, str], superseded_date: str = "") -> str:
        """The contract's full text with its attributes filled in."""
        try:
            with work_bounded():
                return _compiled(self.template).render({**values, SUPERSEDED: superseded_date})
        except Exception as error:  # A template is foreign code: it can raise anything.
            raise InputError(
                f"contract type {self.name}: its template fails: {one_line(f'{type(error).__name__}: {error}')}"
            ) from error


@lru_cache(maxsize=1)
def built_in_types() -> Mapping[str, ContractType]:
    """Sales and employment, as PISTOL has them."""
    return MappingProxyType(read_types(Path(__file__).parent / "contract_types"))


def contract_types(folder: Path | None = None) -> dict[str, ContractType]:
    """The built-in types and those in a folder of one's own, which may not take a built-in name."""
    types = dict(built_in_types())
    if folder is None:
        return types
    own = read_types(folder)
    if both := types.keys() & own.keys():
        raise InputError(f"{folder / min(both)}.toml: the type {min(both)!r} is built in; give yours another name")
    return types | own


def read_types(folder: Path) -> dict[str, ContractType]:
    """All types in a folder, by name."""
    if not folder.is_dir():
        raise InputError(f"no folder of contract types at {folder}")
    found = {path.stem: read_type(path) for path in sorted(folder.glob("*.toml"))}
    if not found:
        raise InputError(f"{folder}: no contract type; a type is NAME.toml beside NAME.txt.j2")
    return found


def read_type(path: Path) -> ContractType:
    """The type in a table and the template beside it."""
    values = read_toml(path)
    beside = path.with_name(f"{path.stem}.txt.j2")
    try:
        table, template = (p.read_text(encoding="utf-8") for p in (path, beside))
    except OSError as error:
        raise InputError(f"{path}: cannot read its template {beside.name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{beside}: not UTF-8 text (byte {error.start})") from error
    spec = ContractSpec.build(values, where=str(path))
    check_spec(spec, str(path))
    type_ = ContractType(path.stem, spec, table, template)
    _check_template(type_, str(beside))
    return type_


def known_type(types: Mapping[str, ContractType], name: str) -> ContractType:
    """The type of that name; an InputError says which there are."""
    if name not in types:
        raise InputError(f"no contract type {name!r}; {closest(name, list(types))}; or give --contract-types DIR")
    return types[name]


def _check_template(type_: ContractType, where: str) -> None:
    """The template uses the table's attributes and no others, and its text states every one of them."""
    try:
        used = meta.find_undeclared_variables(_environment().parse(type_.template))
        _compiled(type_.template)
    except (TemplateError, RecursionError) as error:
        raise InputError(f"{where}: not a template ({one_line(str(error))})") from error
    attributes = list(type_.spec.attributes)
    for name in sorted(used - {*attributes, SUPERSEDED}):
        raise InputError(f"{where}: {name!r} is no attribute of the table; {closest(name, attributes)}")
    # A mark for each attribute, so that a value that a condition or a filter swallows is seen to be missing.
    marks = {name: f"<{number:03d}>" for number, name in enumerate(attributes)}
    text = type_.render(marks)
    for name, mark in marks.items():
        if mark not in text:
            raise InputError(f"{where}: its text does not state {name!r}; a contract states all its attributes")


@lru_cache(maxsize=1)
def _environment() -> BoundedEnvironment:
    return BoundedEnvironment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )


@lru_cache(maxsize=64)
def _compiled(template: str) -> Template:
    return _environment().from_string(template)
