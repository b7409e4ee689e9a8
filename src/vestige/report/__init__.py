"""Turns evidence into tables and one offline HTML page. Reads a run's files and never a model."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vestige.report.build import build_report

__all__ = ["build_report"]


# The page is slow to import, and every --help needs the printed texts (`text`).
def __getattr__(name: str) -> Any:
    if name != "build_report":
        raise AttributeError(f"module 'vestige.report' has no attribute {name!r}")
    from vestige.report.build import build_report

    return build_report
