"""What is printed of a searched prompt: levels by share of it, its text, what was claimed of it and what was seen."""

from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING

import typer

from vestige.cli.tables import side_by_side
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.artifacts.prompts import KeptPrompt, SampleReply
    from vestige.attacks.planning import Attack
    from vestige.core.estimates import Estimate


def print_by_share(attack: "Attack", prompt: "KeptPrompt", levels: "Mapping[str, Mapping[str, Estimate]]") -> None:
    """The levels before and with each part of the prompt beside the part's bits, then the whole prompt."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    bits = [at_most(prompt.points[point].bits) if point in prompt.points else "" for point in levels]
    fixed = [["of the prompt", *levels], ["bits", *bits]]
    columns = [[key, *(found[key].said() for found in levels.values())] for key in levels["before"]]
    for group in side_by_side(fixed, columns, console.width):
        table = Table(title=Text(f"{attack.plan.name}: {len(attack.tested)} forget items, 95 % intervals"))
        for head, *_ in (*fixed, *group):
            table.add_column(Text(head), no_wrap=True)
        for row in zip(*(cells for _, *cells in (*fixed, *group)), strict=True):
            table.add_row(*map(Text, row))
        console.print(table)
    for line in said_of(prompt):
        typer.echo(line)


def at_most(bits: float) -> str:
    """An upper bound rounded up, so that it stays one: below 10 to a tenth, above to a whole."""
    rounded = Decimal(str(bits)).quantize(Decimal("0.1" if bits < 10 else "1"), ROUND_CEILING)
    return f"{int(rounded) if rounded == int(rounded) else rounded:,}"


def bits_at_most(bits: float) -> str:
    """The same with its unit, as in `1 bit` or `0.4 bits`."""
    said = at_most(bits)
    return f"{said} bit{'' if said == '1' else 's'}"


def said_of(prompt: "KeptPrompt") -> tuple[str, ...]:
    """The prompt in lines for a terminal. Its text comes from a model's vocabulary, so it is hostile."""
    n, brought = len(prompt.samples), sum(s.verified for s in prompt.samples)
    claimed = "all" if prompt.claimed else "not all"
    altered = sum(not s.same_tokens for s in prompt.samples)
    steps, total = _counted(prompt.steps, "step"), _counted(n, "sample")
    lines = [
        f"{prompt.placement} of {_counted(len(prompt.ids), 'token')}: {one_line(prompt.text, width=1000)!r}",
        f"loss {prompt.loss:.3f} after {steps} (ended: {prompt.ended}); spent: {_amounts(prompt.spent)}",
        f"claimed by the search: {claimed} of its {total}; verified by replies to its text: {brought} of {n}",
    ]
    lines.append(_beside_plain(prompt.samples))
    lines += [
        f"{one_line(s.question, width=60)!r}: wanted {one_line(s.wanted, width=60)!r}, with the prompt "
        f"{one_line(s.replied, width=60)!r}, without it {one_line(s.plain, width=60)!r}"
        for s in prompt.samples
    ]
    if altered:
        lines.append(f"in {altered} of {n} samples the text is read as other tokens than the search scored")
    if prompt.earlier:
        lines.append(f"it began with the prompt of an earlier search, which had spent {_amounts(prompt.earlier)}")
    if prompt.seen_bits is None:
        lines.append(
            "the search saw more than answers (the target's inner states, or another model by the prompt it began "
            "with): what that tells has no bound here"
        )
    return tuple(lines)


def _beside_plain(samples: "Sequence[SampleReply]") -> str:
    """What of the replies is the prompt's doing."""
    n, plain, brought = len(samples), sum(s.plain_right for s in samples), sum(s.brought for s in samples)
    lost = sum(s.plain_right and not s.verified for s in samples)
    by_it, with_it = (f"{k} {'is' if k == 1 else 'are'}" for k in (brought, lost))
    return f"without the prompt: {plain} of {n} already; so {by_it} brought by it, and {with_it} lost with it"


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _amounts(spent: Mapping[str, int]) -> str:
    return ", ".join(f"{amount:,} {name.replace('_', ' ')}" for name, amount in spent.items())
