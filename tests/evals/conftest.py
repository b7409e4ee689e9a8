"""Few resamples for every test here: intervals are looked at, and nobody trusts one."""

import pytest

from vestige.metrics import intervals


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """For speed."""
    monkeypatch.setattr(intervals, "RESAMPLES", 400)
