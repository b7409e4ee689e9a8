"""What a contract type's table may say: the strict form of `contract_types/<name>.toml`.

A type has two parties, a key date, and attributes in the order of their questions. How the parts must fit
together is checked in `contract_checks`.
"""

from typing import Annotated, Literal

from pydantic import Field

from vestige.core.settings import Settings

Kind = Literal["company", "person"]

VALUE, EDGE, AS_OF, SUPERSEDED = "value", "edge", "as_of", "superseded_date"
RESERVED = (VALUE, EDGE, AS_OF, SUPERSEDED)
"""Names that templates and columns use beside attributes and roles: the value in an answer's form, the edge,
the day as of which a question asks, the key date of the contract that this one supersedes (or empty).
"""


class PartyName(Settings):
    """The name of one of the parties."""

    kind: Literal["party_name"]
    party: str


class PartyAddress(Settings):
    """The address of one of the parties: the same in every contract that it signs."""

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


class Integer(Settings):
    """A whole number from {low, low + step, ..., high}, uniform.

    If `at_least` names another attribute: uniform over those of them that are no smaller than its value.
    """

    kind: Literal["integer"]
    low: int = Field(ge=-1_000_000, le=1_000_000)
    high: int = Field(ge=-1_000_000, le=1_000_000)
    step: int = Field(default=1, ge=1)
    at_least: str | None = None

    def grid(self) -> range:
        """The values that can be drawn."""
        return range(self.low, self.high + 1, self.step)


class Choice(Settings):
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
    PartyName | PartyAddress | Fresh | Date | Integer | Choice | Permutation | Product | Role,
    Field(discriminator="kind"),
]


class Attribute(Settings):
    """One fact of a contract: where it comes from, how it is asked for, and how it is answered.

    In `question` and `paraphrase` the roles and the key date stand in braces; `answer` has `{value}` once.
    `decoys` are further wrong answers, for attributes with fewer values than a set of wrong answers needs.
    """

    generator: Generator
    question: str
    paraphrase: str
    answer: str = "{value}."
    decoys: tuple[str, ...] = ()


class ContractSpec(Settings):
    """A contract type. `title` is what people call such a contract, as in "sales contract".

    `parties` are the two roles with the kind of entity that fills each. With `roles = "drawn"` a coin decides
    which end of an edge plays which role; with "ordered" the first end plays the first. `date` names the
    attribute that dates the contract.
    """

    title: str
    date: str
    roles: Literal["drawn", "ordered"] = "ordered"
    parties: dict[str, Kind]
    attributes: dict[str, Attribute]
