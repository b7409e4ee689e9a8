"""The contract types, sales and employment: a table of attributes and a text each.

A type is `<name>.toml` next to `<name>.txt` in `contract_types/`. It has two parties, a key date, and attributes in the
order of their questions. The text states every attribute. A question names both parties, or one party and the key date:
no entity signs two contracts on a day, and no two entities sign two contracts.
"""

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from vestige.core.errors import InputError
from vestige.core.settings import Settings, packaged_toml
from vestige.core.text import TextByName, TextTuple, closest

Kind = Literal["company", "person"]

EDGE = "edge"
"""The name of the edge among the texts that questions are filled with."""


class PartyName(Settings):
    """A party's name."""

    kind: Literal["party_name"]
    party: str


class PartyAddress(Settings):
    """A party's address: the same in every contract that it signs."""

    kind: Literal["party_address"]
    party: str


class Fresh(Settings):
    """An address that belongs to this contract alone."""

    kind: Literal["address"]


class Date(Settings):
    """The key date: a day, uniform over whole years, both included."""

    kind: Literal["date"]
    first_year: int
    last_year: int

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
    low: int
    high: int
    step: int = 1
    at_least: str | None = None

    def grid(self) -> range:
        """The values that can be drawn."""
        return range(self.low, self.high + 1, self.step)


class OneOf(Settings):
    """One of a list, uniform."""

    kind: Literal["choice"]
    values: TextTuple


class Product(Settings):
    """The product of two whole numbers of the same contract."""

    kind: Literal["product"]
    of: tuple[str, str]


class Role(Settings):
    """One of the two roles, with a capital, as in "Seller"."""

    kind: Literal["role"]


Generator = Annotated[
    PartyName | PartyAddress | Fresh | Date | Integer | OneOf | Product | Role, Field(discriminator="kind")
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
    decoys: TextTuple = ()


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


def candidate_values(spec: ContractSpec, attribute: Attribute) -> Iterator[str]:
    """Return the values that the table alone defines, in order, or None for names, addresses and dates."""
    match attribute.generator:
        case OneOf(values=values):
            yield from values
        case Role():
            yield from (role.capitalize() for role in spec.parties)
        case Integer() as rule:
            yield from map(str, rule.grid())
        case Product(of=factors):
            first, second = (spec.attributes[name].generator for name in factors)
            assert isinstance(first, Integer)
            assert isinstance(second, Integer)
            for x in first.grid():
                for y in second.grid():
                    yield str(x * y)


@dataclass(frozen=True)
class ContractType:
    """A contract type: its table and its text."""

    name: str
    spec: ContractSpec
    text: str

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
    def names(self) -> TextByName:
        """The role whose name each naming attribute states."""
        return self._parties_of(PartyName)

    @cached_property
    def addresses(self) -> TextByName:
        """The role whose address each attribute states, where one is an entity's own."""
        return self._parties_of(PartyAddress)

    def _parties_of(self, kind: type[PartyName | PartyAddress]) -> TextByName:
        rules = ((name, attribute.generator) for name, attribute in self.spec.attributes.items())
        return {name: rule.party for name, rule in rules if isinstance(rule, kind)}

    def kind_of_name(self, attribute: str) -> str | None:
        """Return whether an attribute names a company or a person or is an address. None for other attributes."""
        match self.spec.attributes[attribute].generator:
            case PartyName(party=role):
                return self.spec.parties[role]
            case PartyAddress() | Fresh():
                return "address"
        return None

    @cached_property
    def name_of(self) -> TextByName:
        """The attribute that names each role."""
        return {role: attribute for attribute, role in self.names.items()}

    @property
    def key_date(self) -> Date:
        """How the key date is drawn."""
        rule = self.spec.attributes[self.spec.date].generator
        assert isinstance(rule, Date)
        return rule

    def answer(self, attribute: str, value: str) -> str:
        """The answer that states a value, as in "5%."."""
        return self.spec.attributes[attribute].answer.format(value=value)


@lru_cache(maxsize=1)
def contract_types() -> Mapping[str, ContractType]:
    """Sales and employment, as PISTOL has them."""
    types = {}
    for name in ("employment", "sales"):
        spec = ContractSpec.build(packaged_toml("vestige.data", "contract_types", f"{name}.toml"), where=name)
        text = (Path(__file__).parent / "contract_types" / f"{name}.txt").read_text(encoding="utf-8")
        types[name] = ContractType(name, spec, text)
    return types


def known_type(name: str) -> ContractType:
    """The type of that name. An InputError lists the known types."""
    if name not in contract_types():
        raise InputError(f"no contract type {name!r}. {closest(name, list(contract_types()))}")
    return contract_types()[name]
