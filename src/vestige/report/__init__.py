"""Evidence to tables and one offline HTML page; reads a run's files and never a model."""

from vestige.report.build import build_report

__all__ = ["build_report"]
