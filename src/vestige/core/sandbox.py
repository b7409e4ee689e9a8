"""Templates from strangers, rendered with a bound on their work: a loop without end ends in a sentence.

Every turn of a loop, every call, filter and operation, and every character that these make counts as work. The count
is kept per rendering, so it needs no clock and no signal, and is the same on every machine and in every thread.
"""

import contextvars
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from vestige.core.text import Fields

MOST_WORK = 10_000_000
"""Characters that a rendering may make and look at. A turn of a loop counts as _TURN characters, an entry as _ENTRY."""

_TURN = 400
_ENTRY = 20
_MOST_NUMBER = 100_000
_MOST_BITS = 10_000
_WIDTHS = re.compile(r"\d{5}|\*")
# Arguments that Jinja passes to every call within a loop or a block.
_JINJAS = {"_loop_vars", "_block_vars"}
# Random text would give another prompt each time. lipsum is random too.
_RANDOM = {"filters": ("random",), "globals": ("lipsum",)}

_left: contextvars.ContextVar[list[int]] = contextvars.ContextVar("work left")


class TooMuchWork(SecurityError):
    """A template does more than any template of a chat or a text needs to."""

    def __init__(self) -> None:
        super().__init__(
            "it does more work than a template needs, such as a loop within a loop or a text that doubles again and "
            "again"
        )


@contextmanager
def work_bounded(most: int = MOST_WORK) -> Iterator[None]:
    """Within it renderings by BoundedEnvironment share `most` work, and raise TooMuchWork beyond it."""
    token = _left.set([most])
    try:
        yield
    finally:
        _left.reset(token)


def _spend(amount: int) -> None:
    budget = _left.get(None)
    if budget is None:
        return
    budget[0] -= amount
    if budget[0] < 0:
        raise TooMuchWork


def _weigh(value: Any) -> int:
    """Spend the characters and entries in `value`, as often as they would be written. How many it is long."""
    if isinstance(value, str | bytes):
        _spend(len(value) + 1)
        return len(value)
    if isinstance(value, Namespace):
        # Its text is that of its contents.
        return _weigh(dict(value._Namespace__attrs))
    if isinstance(value, dict):
        for key, element in value.items():
            _spend(_ENTRY)
            _weigh(key)
            _weigh(element)
        return len(value)
    if isinstance(value, list | tuple | set | frozenset):
        for element in value:
            _spend(_ENTRY)
            _weigh(element)
        return len(value)
    if isinstance(value, range):
        _spend(_ENTRY * len(value))
        return len(value)
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise TooMuchWork
    _spend(1)
    return 0


def _weigh_arguments(values: Sequence[Any]) -> None:
    """Reject calls that would make huge values from their arguments, before the call."""
    numbers = [abs(v) for v in values if isinstance(v, int)]
    sizes = sorted([_weigh(v) for v in values] + numbers)
    if max(numbers, default=0) > _MOST_NUMBER or (len(sizes) > 1 and sizes[-1] * sizes[-2] > MOST_WORK):
        raise TooMuchWork


def _check_widths(form: Any) -> None:
    """Reject a format string (`%5d`, `{:5}`) whose fields may be wider than any text."""
    if isinstance(form, str) and _WIDTHS.search(form):
        raise TooMuchWork


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def filtered(*args: Any, **kwargs: Any) -> Any:
        _spend(_TURN)
        if function.__name__ == "do_format":
            _check_widths(args[0])
        _weigh_arguments([*args, *kwargs.values()])
        result = function(*args, **kwargs)
        _weigh(result)
        return result

    return filtered


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with a bound on work, and without random functions."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self, **options: Any) -> None:
        super().__init__(finalize=self.written, **options)
        for name in _RANDOM["filters"]:
            self.filters.pop(name, None)
        for name in _RANDOM["globals"]:
            self.globals.pop(name, None)
        self.filters = {name: _bounded(function) for name, function in Fields(self.filters).items()}
        self.tests = {name: _bounded(function) for name, function in Fields(self.tests).items()}

    def add_filter(self, name: str, function: Callable[..., Any]) -> None:
        """Add a filter, under the same bound."""
        self.filters[name] = _bounded(function)

    def written(self, value: Any) -> Any:
        """Charge an expression's output each time it is written."""
        if not isinstance(value, Undefined):
            _weigh(value)
        return value

    def turn(self) -> str:
        """Count one turn of a loop, or one run of a macro."""
        _spend(_TURN)
        return ""

    def joined(self, *values: Any) -> str:
        """The values of `~`, as one text."""
        for value in values:
            _weigh(value)
        return "".join(map(str, values))

    def made(self, value: Any) -> Any:
        """A list, tuple or table that the template wrote down, a part of a text, or one side of a comparison."""
        _weigh(value)
        return value

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call like the sandbox, under the bound."""
        owner = getattr(getattr(function, "__wrapped__", function), "__self__", None)
        if owner is self:
            return function(*args)
        _spend(_TURN)
        if getattr(function, "__name__", "") in ("format", "format_map"):
            _check_widths(owner)
        keyword_values = [value for name, value in kwargs.items() if name not in _JINJAS]
        _weigh_arguments([*([owner] if isinstance(owner, str) else []), *args, *keyword_values])
        result = super().call(context, function, *args, **kwargs)
        _weigh(result)
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """An operation, refused before it makes something huge."""
        sizes = [_weigh(left), _weigh(right)]
        if operator == "*":
            times = [v for v in (left, right) if isinstance(v, int)]
            if max(sizes) and times and max(sizes) * max(times) > MOST_WORK:
                raise TooMuchWork
        if operator == "**" and not (isinstance(right, int | float) and abs(right) <= _MOST_BITS // 10):
            raise TooMuchWork
        if operator == "%":
            _check_widths(left)
        result = super().call_binop(context, operator, left, right)
        _weigh(result)
        return result

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return _counting(super()._parse(source, name, filename))


def _counting(tree: nodes.Template) -> nodes.Template:
    """The template with a count in every loop and macro, and around all that it puts together."""
    loops: list[Any] = [*tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock))]
    for loop in loops:
        loop.body.insert(0, nodes.Output([_own("turn", [])], lineno=loop.lineno))
    _wrap(tree)
    return tree


def _wrap(node: nodes.Node) -> None:
    for field, value in node.iter_fields():
        if isinstance(value, list):
            setattr(node, field, [_wrapped(child) if isinstance(child, nodes.Node) else child for child in value])
        elif isinstance(value, nodes.Node):
            setattr(node, field, _wrapped(value))


def _wrapped(node: nodes.Node) -> nodes.Node:
    _wrap(node)
    if isinstance(node, nodes.Concat):
        return _own("joined", list(node.nodes))
    if isinstance(node, nodes.Compare):
        node.expr = _own("made", [node.expr])
        for operand in node.ops:
            operand.expr = _own("made", [operand.expr])
    written = isinstance(node, nodes.List | nodes.Dict) or (isinstance(node, nodes.Tuple) and node.ctx == "load")
    cut = isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    if written or cut:
        return _own("made", [node])
    return node


def _own(name: str, args: list[Any]) -> nodes.Call:
    call = nodes.Call(nodes.EnvironmentAttribute(name), args, [], None, None)
    call.set_lineno(1)
    return call
