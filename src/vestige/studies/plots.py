"""Plots for print."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import matplotlib
from matplotlib.figure import Figure

from vestige.core.files import write_bytes
from vestige.report.audit_panels import LIGHT
from vestige.report.words import visible

_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "vestige",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 8.0,
    # A dollar sign in a name is a dollar sign.
    "text.parse_math": False,
    "axes.edgecolor": LIGHT["muted"],
    "axes.labelcolor": LIGHT["ink"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": LIGHT["ink"],
    "xtick.color": LIGHT["muted"],
    "ytick.color": LIGHT["muted"],
    "path.simplify": False,
}

_NAME_CHARACTERS = 40


@contextmanager
def saved(
    path: Path, inches: tuple[float, float], layout: Literal["constrained"] | None = "constrained"
) -> Iterator[Figure]:
    """A figure of this size to draw on, written to `path` afterwards."""
    with matplotlib.rc_context():
        # From matplotlib's own defaults, so that a reader's matplotlibrc does not change the bytes.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        figure = Figure(figsize=inches, layout=layout)
        yield figure
        content = io.BytesIO()
        figure.savefig(content, format="svg", metadata={"Date": None})
        write_bytes(path, content.getvalue())


def short_name(label: str) -> str:
    """A name fit to stand in a figure: nothing in it acts, and it is not too long."""
    text = visible(label)
    return text if len(text) <= _NAME_CHARACTERS else text[: _NAME_CHARACTERS - 1] + "…"
