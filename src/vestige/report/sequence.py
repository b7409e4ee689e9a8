"""The curves of requests that were forgotten one after another, as small pictures: steps across, shares up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vestige.artifacts.verdicts import IN_TURN, row_said, sequence_lines, telling_formats
from vestige.report.words import format_name, number

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 420, 210, 40, 10, 408, 180
_CLIPPED = (-0.5, 1.5)
"""What lies beyond is drawn at the edge; its number stands in the table."""
_TICKS = (-0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)


@dataclass(frozen=True)
class _Frame:
    """A picture's steps and the range of shares that it shows."""

    steps: Sequence[int]
    low: float
    high: float

    def across(self, step: int) -> float:
        return round(_LEFT + (self.steps.index(step) + 0.5) / len(self.steps) * (_RIGHT - _LEFT), 1)

    def up(self, value: float) -> float:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(_BOTTOM - share * (_BOTTOM - _TOP), 1)

    def mark(self, row: Mapping[str, Any]) -> dict[str, Any]:
        # An end that the items do not tell is null, and has no place in a picture.
        bottom, top = (self.up(row["value"] if row[end] is None else row[end]) for end in ("low", "high"))
        # Two models of one step beside one another.
        x = self.across(row["step"]) + (-4 if row["model"] == IN_TURN else 4)
        tooltip = f"{row['model']}: {row_said(row)}"
        return {"x": x, "y": self.up(row["value"]), "bottom": bottom, "top": top, "told": tooltip}


def sequence_block(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The pictures and the table of a sequence, for the template; None where nothing is left or lost to show."""
    lines, steps = sequence_lines(rows), sorted({row["step"] for row in rows})
    if not lines:
        return None
    table = [
        (*names, [row_said(by_step[step]) if step in by_step else "" for step in steps])
        for names, by_step in lines.items()
    ]
    pictures = [
        _picture(of, steps, {model: list(line.values()) for (name, model), line in lines.items() if name == of})
        for of in dict.fromkeys(of for of, _ in lines)
    ]
    formats = {what: format_name(form) if form else "no format" for what, form in telling_formats(rows).items()}
    return {**formats, "steps": steps, "pictures": pictures, "table": table}


def _picture(of: str, steps: Sequence[int], curves: Mapping[str, list[Mapping[str, Any]]]) -> dict[str, Any]:
    """One picture; its range holds 0, and 1 where it is of what is left."""
    rows = [row for curve in curves.values() for row in curve]
    values = [row[end] for row in rows for end in ("value", "low", "high") if row[end] is not None]
    whole = 1.0 if rows[0]["what"] == "left" else 0.2
    frame = _Frame(steps, max(_CLIPPED[0], min(0.0, *values)), min(_CLIPPED[1], max(whole, *values)))
    return {
        **{"of": of, "width": _WIDTH, "height": _HEIGHT, "left": _LEFT, "right": _RIGHT, "bottom": _BOTTOM},
        "up": [(frame.up(x), number(x)) for x in _TICKS if frame.low <= x <= frame.high],
        "across": [(frame.across(step), step) for step in steps],
        "curves": [
            {"css": "method-1" if model == IN_TURN else "method-0", "marks": [frame.mark(row) for row in curve]}
            for model, curve in curves.items()
        ],
    }
