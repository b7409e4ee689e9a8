"""Contract types: a table of attributes and a text template each, built in or from a folder of one's own.

A type is `<name>.toml` next to `<name>.txt.j2`. It has two parties, a key date, and attributes in the order of their
questions. The template states every attribute. Templates are foreign code and run in a sandbox. Whether the parts of a
type fit together is checked when it is read, and every refusal names the file and the key.
"""

import datetime
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from string import Formatter
from typing import Annotated, Literal

from jinja2 import StrictUndefined, Template, TemplateError, meta
from pydantic import Field

from vestige.core.errors import InputError
from vestige.core.files import read_text
from vestige.core.ids import content_id
from vestige.core.sandbox import BoundedEnvironment, work_bounded
from vestige.core.settings import Settings, read_toml
from vestige.core.text import closest, one_line
from vestige.data.graph import IDENTIFIER

Kind = Literal["company", "person"]

VALUE, EDGE, AS_OF, SUPERSEDED = "value", "edge", "as_of", "superseded_date"
RESERVED = (VALUE, EDGE, AS_OF, SUPERSEDED)
"""Names that templates and columns use in addition to attributes and roles: the value in an answer's form, the edge,
the date of the question, the key date of the superseded contract (or empty).
"""


class PartyName(Settings):
    """A party's name."""

    kind: Literal["party_name"]
    party: str


class PartyAddress(Settings):
    """A party's address: the same in every contract that it signs."""

    kind: Literal["party_address"]
    party: str


class Fresh(Settings):
    """A company, person or address that belongs to this contract alone."""

    kind: Literal["company", "person", "address"]


class Date(Settings):
    """A day, uniform over whole years, both included."""

    kind: Literal["date"]
    first_year: int = Field(ge=1900, le=2100)
    last_year: int = Field(ge=1900, le=2100)

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last day, as ordinals."""
        first, last = datetime.date(self.first_year, 1, 1), datetime.date(self.last_year, 12, 31)
        return first.toordinal(), last.toordinal()


class Integer(Settings):
    """A whole number from {low, low + step, ..., high}, uniform.

    If `at_least` names another attribute: uniform over the values that are no smaller than that attribute's.
    """

    kind: Literal["integer"]
    low: int = Field(ge=-1_000_000, le=1_000_000)
    high: int = Field(ge=-1_000_000, le=1_000_000)
    step: int = Field(default=1, ge=1)
    at_least: str | None = None

    def grid(self) -> range:
        """The values that can be drawn."""
        return range(self.low, self.high + 1, self.step)


class OneOf(Settings):
    """One of a list, uniform."""

    kind: Literal["choice"]
    values: tuple[str, ...]


class Permutation(Settings):
    """One of a list, dealt: as many contracts in a row as the list has values get different ones."""

    kind: Literal["permutation"]
    values: tuple[str, ...]


class Product(Settings):
    """The product of two whole numbers of the same contract."""

    kind: Literal["product"]
    of: tuple[str, str]


class Role(Settings):
    """One of the two roles, with a capital, as in "Seller"."""

    kind: Literal["role"]


Generator = Annotated[
    PartyName | PartyAddress | Fresh | Date | Integer | OneOf | Permutation | Product | Role,
    Field(discriminator="kind"),
]


class Attribute(Settings):
    """One fact of a contract: its source, its question and its answer.

    In `question` and `paraphrase` the roles and the key date are in braces. `answer` has `{value}` once. `decoys` are
    further wrong answers, for attributes with fewer values than a set of wrong answers needs.
    """

    generator: Generator
    question: str
    paraphrase: str
    answer: str = "{value}."
    decoys: tuple[str, ...] = ()


class ContractSpec(Settings):
    """A contract type. `title` is what people call such a contract, as in "sales contract".

    `parties` are the two roles with the kind of entity that fills each. With `roles = "drawn"` a coin decides which end
    of an edge plays which role. With "ordered" the first end plays the first. `date` names the attribute that dates the
    contract.
    """

    title: str
    date: str
    roles: Literal["drawn", "ordered"] = "ordered"
    parties: dict[str, Kind]
    attributes: dict[str, Attribute]


N_WRONG = 5
"""Wrong answers that every item has."""


def check_spec(spec: ContractSpec, where: str) -> None:
    """Reject a type with contradictory tables or indistinguishable questions."""
    _check_names(spec, where)
    questions: set[str] = set()
    for name, attribute in spec.attributes.items():
        there = f"{where}: attributes.{name}"
        _check_generator(spec, attribute, there)
        if fields_of(attribute.answer) != [VALUE] or not attribute.answer.isprintable():
            raise InputError(f"{there}.answer = {attribute.answer!r}: needs {{value}} exactly once, as in '{{value}}.'")
        for key, text in (("question", attribute.question), ("paraphrase", attribute.paraphrase)):
            _check_question(spec, name, text, f"{there}.{key}")
            # Of two equal questions one would be the paraphrase of the other, and be trained on with it.
            if text in questions:
                raise InputError(f"{where}: {text!r} appears twice. Every question and paraphrase needs its own words")
            questions.add(text)
    rules = [attribute.generator for attribute in spec.attributes.values()]
    for role in spec.parties:
        # A question names the party by it; two would be two names for one entity.
        if sum(isinstance(rule, PartyName) and rule.party == role for rule in rules) != 1:
            raise InputError(f"{where}: parties.{role}: needs exactly one attribute of kind 'party_name'")
        if sum(isinstance(rule, PartyAddress) and rule.party == role for rule in rules) > 1:
            raise InputError(f"{where}: parties.{role}: has more than one attribute of kind 'party_address'")


def fields_of(template: str) -> list[str]:
    """The names in braces, in order. "?" replaces any other expression."""
    try:
        parts = [part for part in Formatter().parse(template) if part[1] is not None]
    except ValueError:
        return ["?"]
    return [str(n) if IDENTIFIER.fullmatch(str(n)) and not (spec or turned) else "?" for _, n, spec, turned in parts]


def _check_names(spec: ContractSpec, where: str) -> None:
    if len(spec.parties) != 2:
        raise InputError(f"{where}: parties: a contract has two parties, not {len(spec.parties)}")
    for name in [*spec.parties, *spec.attributes]:
        if not IDENTIFIER.fullmatch(name) or name in RESERVED:
            raise InputError(f"{where}: {name!r}: a name is lower-case letters, digits and '_', and none of {RESERVED}")
    if both := spec.parties.keys() & spec.attributes.keys():
        raise InputError(f"{where}: attributes.{min(both)}: a party has that name. Call the attribute otherwise")
    if spec.roles == "drawn" and len(set(spec.parties.values())) == 2:
        raise InputError(f"{where}: roles = 'drawn': the parties are of two kinds, so their roles are 'ordered'")
    dated = spec.attributes.get(spec.date)
    if dated is None or not isinstance(dated.generator, Date):
        raise InputError(f"{where}: date = {spec.date!r}: not an attribute with generator kind 'date'")
    _check_texts([spec.title], f"{where}: title")


def _check_generator(spec: ContractSpec, attribute: Attribute, there: str) -> None:
    where = f"{there}.generator"
    match attribute.generator:
        case PartyName(party=role) | PartyAddress(party=role) if role not in spec.parties:
            raise InputError(f"{where}.party = {role!r}: {closest(role, list(spec.parties))}")
        case Date(first_year=first, last_year=last) if first > last:
            raise InputError(f"{where}: first_year {first} is after last_year {last}")
        case OneOf(values=values) | Permutation(values=values):
            if len(set(values)) != len(values) or len(values) < 2:
                raise InputError(f"{where}.values: give at least two, all different")
            _check_texts(values, f"{where}.values")
        case Integer() as rule:
            _check_integer(spec, rule, where)
        case Product(of=factors):
            for factor in factors:
                _integer(spec, factor, f"{where}.of")
    _check_texts(attribute.decoys, f"{there}.decoys")
    # A product of two numbers can have a million values, and six are enough to know.
    listed = {*islice(candidate_values(spec, attribute), 100), *attribute.decoys}
    if not isinstance(attribute.generator, PartyName | PartyAddress | Fresh | Date) and len(listed) <= N_WRONG:
        raise InputError(
            f"{where}: only {len(listed)} values with the decoys, and {N_WRONG} wrong answers are needed. Add decoys"
        )


def _check_integer(spec: ContractSpec, rule: Integer, where: str) -> None:
    if rule.low > rule.high or (rule.high - rule.low) % rule.step:
        raise InputError(f"{where}: low {rule.low} to high {rule.high} is not a whole number of steps of {rule.step}")
    if rule.at_least is None:
        return
    where = f"{where}.at_least"
    bound = _integer(spec, rule.at_least, where)
    # Chains could go round in a circle.
    if bound.at_least is not None:
        raise InputError(f"{where} = {rule.at_least!r}: that attribute has an 'at_least' itself")
    # Else the value that bounds might be none that can be drawn.
    if bound.step != rule.step or bound.low not in rule.grid() or bound.high not in rule.grid():
        raise InputError(f"{where} = {rule.at_least!r}: its values are not all among this attribute's")


def _integer(spec: ContractSpec, name: str, where: str) -> Integer:
    if name not in spec.attributes:
        raise InputError(f"{where} = {name!r}: no such attribute. {closest(name, list(spec.attributes))}")
    rule = spec.attributes[name].generator
    if not isinstance(rule, Integer):
        raise InputError(f"{where} = {name!r}: that attribute is not of kind 'integer'")
    return rule


def candidate_values(spec: ContractSpec, attribute: Attribute) -> Iterator[str]:
    """The values that the table alone decides, in its order. None for names, addresses and dates."""
    match attribute.generator:
        case OneOf(values=values) | Permutation(values=values):
            yield from values
        case Role():
            yield from (role.capitalize() for role in spec.parties)
        case Integer() as rule:
            yield from map(str, rule.grid())
        case Product(of=(a, b)):
            for x in _integer(spec, a, a).grid():
                for y in _integer(spec, b, b).grid():
                    yield str(x * y)


def _check_texts(texts: Iterable[str], where: str) -> None:
    for text in texts:
        if not text.strip() or not text.isprintable():
            raise InputError(f"{where}: {text!r} is blank or holds characters that cannot be printed")


def _check_question(spec: ContractSpec, name: str, text: str, where: str) -> None:
    """Check that a question names both parties, or one party and the key date.

    For no entity signs two contracts on a day, and no two entities sign two contracts (or they are dated
    further).
    """
    if not text.isprintable() or not text.endswith("?") or text.count("?") != 1:
        raise InputError(f"{where} = {text!r}: a question is one line that ends with its only '?'")
    fields, allowed = fields_of(text), [*spec.parties, spec.date]
    for field in fields:
        if field not in allowed:
            raise InputError(
                f"{where}: {{{field}}}: only {', '.join(f'{{{k}}}' for k in allowed)} are allowed in braces"
            )
    # Two different ones of both parties and the key date always hold a party.
    if len(set(fields)) < 2:
        raise InputError(f"{where} = {text!r}: must name both parties, or one party and {{{spec.date}}}")
    rule = spec.attributes[name].generator
    answer_field = name
    if isinstance(rule, PartyName):
        answer_field = rule.party
    if answer_field in fields:
        raise InputError(f"{where} = {text!r}: {{{answer_field}}} is the answer")


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
        return self._parties_of(PartyName)

    @cached_property
    def addresses(self) -> dict[str, str]:
        """The role whose address each attribute states, where one is an entity's own."""
        return self._parties_of(PartyAddress)

    def _parties_of(self, kind: type[PartyName | PartyAddress]) -> dict[str, str]:
        rules = ((name, attribute.generator) for name, attribute in self.spec.attributes.items())
        return {name: rule.party for name, rule in rules if isinstance(rule, kind)}

    def kind_of_name(self, attribute: str) -> str | None:
        """Whether an attribute names a company or a person or is an address. None where it is something different."""
        match self.spec.attributes[attribute].generator:
            case PartyName(party=role):
                return self.spec.parties[role]
            case PartyAddress():
                return "address"
            case Fresh(kind=kind):
                return kind
        return None

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
    return read_types(Path(__file__).parent / "contract_types")


def contract_types(folder: Path | None = None) -> dict[str, ContractType]:
    """The built-in types and those in a folder of one's own, which may not take a built-in name."""
    types = dict(built_in_types())
    if folder is None:
        return types
    users_types = read_types(folder)
    if both := types.keys() & users_types.keys():
        raise InputError(f"{folder / min(both)}.toml: the type {min(both)!r} is built in. Give yours another name")
    return types | users_types


def read_types(folder: Path) -> dict[str, ContractType]:
    """All types in a folder, by name."""
    if not folder.is_dir():
        raise InputError(f"no folder of contract types at {folder}")
    types = {path.stem: read_type(path) for path in sorted(folder.glob("*.toml"))}
    if not types:
        raise InputError(f"{folder}: no contract type. A type has the files NAME.toml and NAME.txt.j2")
    return types


def read_type(path: Path) -> ContractType:
    """The type in a table and the template with it."""
    values = read_toml(path)
    template_path = path.with_name(f"{path.stem}.txt.j2")
    try:
        table, template = (read_text(p) for p in (path, template_path))
    except OSError as error:
        raise InputError(f"{path}: cannot read its template {template_path.name}: {error.strerror}") from error
    spec = ContractSpec.build(values, where=str(path))
    check_spec(spec, str(path))
    type_ = ContractType(path.stem, spec, table, template)
    _check_template(type_, str(template_path))
    return type_


def known_type(types: Mapping[str, ContractType], name: str) -> ContractType:
    """The type of that name. An InputError lists the known types."""
    if name not in types:
        raise InputError(f"no contract type {name!r}. {closest(name, list(types))}. Or give --contract-types DIR")
    return types[name]


def _check_template(type_: ContractType, where: str) -> None:
    """Check that the template uses the table's attributes and no others, and states every attribute."""
    try:
        used = meta.find_undeclared_variables(_ENVIRONMENT.parse(type_.template))
        _compiled(type_.template)
    except (TemplateError, RecursionError) as error:
        raise InputError(f"{where}: not a template ({one_line(str(error))})") from error
    attributes = list(type_.spec.attributes)
    for name in sorted(used - {*attributes, SUPERSEDED}):
        raise InputError(f"{where}: {name!r} is no attribute of the table. {closest(name, attributes)}")
    # A mark for each attribute, so that a value that a condition or a filter swallows is seen to be missing.
    marks = {name: f"<{number:03d}>" for number, name in enumerate(attributes)}
    text = type_.render(marks)
    for name, mark in marks.items():
        if mark not in text:
            raise InputError(f"{where}: its text does not state {name!r}. A contract states all its attributes")


# An attribute without a value is an error, and no empty gap in a contract.
_ENVIRONMENT = BoundedEnvironment(
    undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
)


@lru_cache(maxsize=64)
def _compiled(template: str) -> Template:
    return _ENVIRONMENT.from_string(template)
