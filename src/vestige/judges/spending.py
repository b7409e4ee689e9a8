"""What judging may cost: tokens and money are booked before a call at their upper bound, and settled after it.

Prices are per million tokens, in any one currency. Nothing is priced by itself: prices change, and a wrong one is
worse than none.
"""

import threading
from collections.abc import Sequence
from typing import NamedTuple

from vestige.core.errors import InputError
from vestige.core.settings import Settings
from vestige.judges.base import Prompt

# English text in the common tokenisers. An estimate; what is booked against a limit is the bound below.
_BYTES_PER_TOKEN = 4
# What a chat template puts around two messages, generously.
_TEMPLATE_TOKENS = 64


class Limits(Settings):
    """The most that may be spent, and the prices. A limit that is None does not bind.

    What counts is all that lies in the folder of the replies: what earlier commands and interrupted ones have paid for
    too, and what was under way when one was killed, at its most.
    """

    most_calls: int | None = None
    most_tokens: int | None = None
    most_cost: float | None = None
    price_per_million_prompt_tokens: float | None = None
    price_per_million_completion_tokens: float | None = None

    @property
    def bind(self) -> bool:
        """Whether there is any limit."""
        return not (self.most_calls is None and self.most_tokens is None and self.most_cost is None)

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """What they cost; None where no prices are given."""
        per_prompt, per_completion = self.price_per_million_prompt_tokens, self.price_per_million_completion_tokens
        if per_prompt is None or per_completion is None:
            return None
        return (prompt_tokens * per_prompt + completion_tokens * per_completion) / 1e6

    def check(self) -> None:
        """Refuse a limit of cost without prices, and limits or prices below 0."""
        if self.most_cost is not None and self.cost(0, 0) is None:
            raise InputError(
                "most_cost is set and prices are not; set price_per_million_prompt_tokens and "
                "price_per_million_completion_tokens too"
            )
        for name, value in self.identity().items():
            if value is not None and value < 0:
                raise InputError(f"{name} = {value}: must be at least 0")


class Amount(NamedTuple):
    """Calls and their tokens."""

    calls: int
    prompt_tokens: int
    completion_tokens: int


class Forecast(NamedTuple):
    """What judging would take, before it is done: `most_*` are bounds for one reply to each request."""

    requests: int
    answered_before: int
    to_ask: int
    prompt_tokens: int
    most_completion_tokens: int
    most_cost: float | None


def estimated_tokens(text: str) -> int:
    """About how many tokens a text takes, where nobody says."""
    return -(-len(text.encode()) // _BYTES_PER_TOKEN)


def most_of(prompt: Prompt, reasoning_tokens: int) -> Amount:
    """The most that one call can take: no tokeniser of bytes makes more tokens than there are bytes."""
    sent = len(prompt.system.encode()) + len(prompt.user.encode()) + _TEMPLATE_TOKENS
    return Amount(1, sent, prompt.max_tokens + reasoning_tokens)


def forecast(prompts: Sequence[Prompt], reasoning_tokens: int, *, n_requests: int, limits: Limits) -> Forecast:
    """What `prompts`, those not answered before, would take, with as many tokens of thought for each."""
    tokens = sum(estimated_tokens(p.system + p.user) + _TEMPLATE_TOKENS // 4 for p in prompts)
    most = sum(p.max_tokens + reasoning_tokens for p in prompts)
    return Forecast(n_requests, n_requests - len(prompts), len(prompts), tokens, most, limits.cost(tokens, most))


class Ledger:
    """What was spent and what is booked, shared by threads."""

    def __init__(self, limits: Limits) -> None:
        """Begin with nothing spent."""
        limits.check()
        self._limits = limits
        self._spent = self._booked = Amount(0, 0, 0)
        self._changed = threading.Condition()

    @property
    def spent(self) -> Amount:
        """All that was settled."""
        return self._spent

    def add(self, amount: Amount) -> None:
        """Count what was paid for before."""
        with self._changed:
            self._spent = _sum(self._spent, amount)

    def book(self, most: Amount) -> bool:
        """Set `most` aside if it fits; waits for others' calls to be settled where it might fit then."""
        with self._changed:
            while not self._fits(_sum(_sum(self._spent, self._booked), most)):
                if self._booked == Amount(0, 0, 0):
                    return False
                self._changed.wait()
            self._booked = _sum(self._booked, most)
            return True

    def settle(self, most: Amount, taken: Amount) -> None:
        """Put back what was set aside, and count what the call took."""
        with self._changed:
            self._booked = Amount(*(b - m for b, m in zip(self._booked, most, strict=True)))
            self._spent = _sum(self._spent, taken)
            self._changed.notify_all()

    def _fits(self, amount: Amount) -> bool:
        limits, cost = self._limits, self._limits.cost(amount.prompt_tokens, amount.completion_tokens)
        return (
            (limits.most_calls is None or amount.calls <= limits.most_calls)
            and (limits.most_tokens is None or amount.prompt_tokens + amount.completion_tokens <= limits.most_tokens)
            and (limits.most_cost is None or cost is None or cost <= limits.most_cost)
        )


def _sum(a: Amount, b: Amount) -> Amount:
    return Amount(a.calls + b.calls, a.prompt_tokens + b.prompt_tokens, a.completion_tokens + b.completion_tokens)
