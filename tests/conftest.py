"""One thread and no network in every test, so that bytes are the same and nothing waits for a hub."""

import gc
import os
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
from hypothesis import settings

# Stands in for another processor.
pytest_plugins = ["tools.shaken"] if "SHAKEN_BY" in os.environ else []

# No test is timed: what a loaded machine does slowly is right all the same.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Import without garbage collection, and never search what was imported: a third of the time that importing takes.

    Modules, classes and tests stay until the end, so that searching them for garbage finds none.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
