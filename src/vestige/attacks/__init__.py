"""Attacks: ways to get out of a model what it was made to forget. They search and never judge themselves.

What an attack may use and what it used are steps of training, items and tokens shown, charged before it acts.

The table has their names on the command line, with a line about each.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from vestige.core.errors import InputError

ATTACKS = {
    "relearn": "Tunes the model on some items again and asks others along the way.",
    "quantize": "Rounds the weights of the blocks to 8 or 4 bits.",
    "in-context": "Puts retain items before the question as facts.",
    "gcg": "Searches for a prompt after which the model says the answers of some items, and asks others with it.",
    "prefix": "Searches for a long prompt that moves the model towards the target, and asks other items with it.",
    "acr": "Searches for the shortest prompt after which the model says an item's text.",
}


class OverBudget(InputError):
    """What was asked for is more than is left. A search that meets it ends with what it has."""


@dataclass
class Meter:
    """The amounts granted, by name, and those spent so far."""

    granted: Mapping[str, int]
    spent: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with nothing spent."""
        self.spent = {name: 0 for name in self.granted} | self.spent

    def charge(self, amounts: Mapping[str, int]) -> None:
        """Book what is about to be used; refused, and nothing booked, where it is more than is left."""
        for name, amount in amounts.items():
            left = self.granted.get(name, 0) - self.spent.get(name, 0)
            if not 0 <= amount <= left:
                raise OverBudget(f"the attack's budget has {left} {name} left, and it asks for {amount}; grant more")
        for name, amount in amounts.items():
            self.spent[name] = self.spent.get(name, 0) + amount
