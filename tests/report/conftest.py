"""Two synthetic runs with their reports, one of them audited, and a browser: once for all tests of the report."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Page, chromium
from synthetic_audit import outcome, write_audit
from synthetic_run import write_run

from vestige.report import build_report


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_run(tmp_path_factory.mktemp("report") / "demo")
    build_report(path)
    return path


@pytest.fixture(scope="session")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one forget set with its audit, and their report."""
    path = write_run(tmp_path_factory.mktemp("audited") / "demo", forgets=("edge:A_B",))
    write_audit(path, outcome())
    build_report(path)
    return path


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("profile")) as page:
        yield page
