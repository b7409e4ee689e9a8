"""An estimate is a number with its uncertainty, its unit and the number of items behind it."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """`value` of `metric` in `unit` over `n` items, with a 95 % interval [`low`, `high`] found as `interval` says.

    The constructor refuses n = 0 and anything that is not finite: a number that cannot be computed is never
    written as null or 0.
    """

    metric: str
    unit: str
    value: float
    low: float
    high: float
    n: int
    interval: str

    def __post_init__(self) -> None:
        """Refuse what is no estimate."""
        if self.n < 1:
            raise ValueError(f"{self.metric}: no items, so no estimate")
        if not all(math.isfinite(x) for x in (self.value, self.low, self.high)):
            raise ValueError(f"{self.metric}: not finite: {self.value} [{self.low}, {self.high}]")

    def __str__(self) -> str:
        """The way a number is shown to people, as in `0.42 [0.36, 0.48], n = 240`."""
        value, low, high = (_two_digits(x) for x in (self.value, self.low, self.high))
        return f"{value} [{low}, {high}], n = {self.n}"


def _two_digits(number: float) -> str:
    # Adding 0 takes the sign from what rounds to 0.
    return f"{round(number, 2) + 0.0:.2f}"
