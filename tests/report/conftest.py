"""One synthetic run with its report, written once for all tests of the report."""

from pathlib import Path

import pytest
from synthetic_run import write_run

from vestige.report import build_report


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_run(tmp_path_factory.mktemp("report") / "demo")
    build_report(path)
    return path
