"""Templates from strangers: Jinja's sandbox, without what is random, and with an end to what one may take.

The sandbox keeps a template from the machine. The clock is for a loop within a loop, memory for a text that doubles at
each turn; both are looked at once a turn.
"""

import resource
import sys
import time
from typing import Any

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

SECONDS = 5.0
"""Templates of large models take milliseconds."""
_MOST_MEMORY = 2**30
_LONGEST, _GREATEST_POWER = 10_000_000, 1_000
_TOO_MUCH = "it does more work than a template needs, such as a loop within a loop or a text that doubles"


def peak_memory() -> int:
    """The most bytes that this process had in memory so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # In bytes on a Mac, in units of 1024 bytes on Linux.
    return peak if sys.platform == "darwin" else peak * 1024


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox without what is random; `turn` is for loops, `call_binop` for single steps."""

    intercepted_binops = frozenset(("*", "**"))
    # At 0 the first turn of a loop is refused: only `rendered_in_time` grants time and memory.
    ends_at = 0.0
    most_memory = 0

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # They would make another prompt of a question each time.
        del self.filters["random"], self.globals["lipsum"]

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        loops: list[Any] = [*tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock))]
        for loop in loops:
            turn = nodes.Call(nodes.EnvironmentAttribute("turn"), [], [], None, None)
            loop.body.insert(0, nodes.Output([turn], lineno=loop.lineno))
        return tree

    def turn(self) -> str:
        """Refuse one more turn of a loop, or run of a macro, when the time is over or the memory used up."""
        if time.monotonic() > self.ends_at or peak_memory() > self.most_memory:
            raise SecurityError(_TOO_MUCH)
        return ""

    def call_binop(self, context: Context, operator: str, first: Any, second: Any) -> Any:
        """A product or a power, which in one step can take for ever or make gigabytes."""
        texts = [value for value in (first, second) if isinstance(value, str | list | tuple)]
        too_long = texts and len(texts[0]) * abs(second if texts[0] is first else first) > _LONGEST
        if too_long or (operator == "**" and abs(second) > _GREATEST_POWER):
            raise SecurityError(_TOO_MUCH)
        return super().call_binop(context, operator, first, second)


def rendered_in_time(template: Template, **values: Any) -> str:
    """The text of a template of a `BoundedEnvironment`; SecurityError where its loops go on too long or fill memory."""
    environment: Any = template.environment
    environment.ends_at, environment.most_memory = time.monotonic() + SECONDS, peak_memory() + _MOST_MEMORY
    return template.render(values)
