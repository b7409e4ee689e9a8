"""Numbers with their uncertainty."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from vestige.core.text import Fields

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

NO_INTERVAL = "[no interval]"
"""The text if the items are too few or too alike for an interval."""


@dataclass(frozen=True)
class Estimate:
    """`value` of `metric` in `unit` over `n` items, with a 95 % interval [`low`, `high`] by the method in `interval`.

    The constructor refuses n = 0, a value that is not finite and an end that is not a number: what cannot be computed
    is never written as 0. If the items do not determine an end, it is infinite: null in JSON and empty in CSV.
    """

    metric: str
    unit: str
    value: float
    low: float
    high: float
    n: int
    interval: str

    def __post_init__(self) -> None:
        """Reject invalid estimates."""
        if self.n < 1:
            raise ValueError(f"{self.metric}: no items, so no estimate")
        if not math.isfinite(self.value) or math.isnan(self.low) or math.isnan(self.high):
            raise ValueError(f"{self.metric}: not finite: {self.value} [{self.low}, {self.high}]")

    def __str__(self) -> str:
        """Return the number as displayed, as in `0.42 [0.36, 0.48], n = 240`."""
        return f"{self.said()}, n = {self.n}"

    def said(self, digits: int = 2) -> str:
        """As in `0.42 [0.36, 0.48]` or `0.42 [no interval]`."""
        # Adding 0 removes the sign of a zero.
        value, low, high = (f"{round(x, digits) + 0.0:.{digits}f}" for x in (self.value, self.low, self.high))
        return f"{value} {NO_INTERVAL if math.isinf(self.low) or math.isinf(self.high) else f'[{low}, {high}]'}"


def end(x: float) -> float | None:
    """Return an end of an interval for a file or a page, or None if it is infinite."""
    if math.isinf(x):
        return None
    return x


def to_json(value: "DataclassInstance") -> Fields:
    """`asdict` of what holds estimates, with null for their infinite ends."""
    return asdict(value, dict_factory=_finite_ends)


def from_json(stored: Any) -> Any:
    """Read the output of `to_json`, with the infinite ends restored."""
    if isinstance(stored, list):
        return [from_json(x) for x in stored]
    if not isinstance(stored, Mapping):
        return stored
    values = {name: from_json(x) for name, x in stored.items()}
    # Only for estimates: other records may have a `low` that is null.
    if "interval" in values:
        infinite = {"low": -math.inf, "high": math.inf}
        values |= {name: infinite[name] for name in infinite if name in values and values[name] is None}
    return values


def _finite_ends(pairs: list[tuple[str, Any]]) -> Fields:
    return {k: end(v) if k in ("low", "high") and isinstance(v, float) else v for k, v in pairs}
