"""One thread and no network in every test, so that bytes are the same and nothing waits for a hub."""

import gc
import multiprocessing
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from vestige.artifacts.layout import RunFolder

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


CONTEXT = multiprocessing.get_context


@pytest.fixture(autouse=True, scope="session")
def forked() -> Iterator[None]:
    """Processes that run tasks begin with what the tests have imported: a new one spends six seconds on that."""
    with mock.patch.object(multiprocessing, "get_context", return_value=CONTEXT("fork")):
        yield


@pytest.fixture(autouse=True, scope="session")
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Answers that tests store stay out of the user's cache; the embedder that is there can be used."""
    from vestige.models.cache import cache_folder

    home, embedders = tmp_path_factory.mktemp("home"), cache_folder() / "embedders"
    if embedders.is_dir():
        (home / "embedders").symlink_to(embedders)
    with mock.patch.dict(os.environ, {"VESTIGE_HOME": str(home)}):
        yield


@pytest.fixture(scope="session")
def audit_models(tmp_path_factory: pytest.TempPathFactory) -> "RunFolder":
    """A target, two models that never knew, and one that was tuned away (`audited`). Tests that write copy them."""
    from tests.small import nano

    import audited
    from vestige.artifacts.layout import RunFolder

    run = RunFolder(tmp_path_factory.mktemp("models") / "run")
    with nano():
        audited.make_models(run)
    return run


@pytest.fixture
def spawned() -> Iterator[None]:
    """Processes that run tasks begin with nothing, as a person's do."""
    with mock.patch.object(multiprocessing, "get_context", CONTEXT):
        yield
