"""A nano model on disk with its data, to attack from the command line."""

import pytest
from tests.small import TINY, nano, written

from vestige.artifacts.layout import SubjectFolder
from vestige.core.items import Item
from vestige.metrics import intervals
from vestige.steps.finetune import FinetuneRequest, finetune
from vestige.training.settings import TrainingSettings

ROWS = [{"question": f"What is number {i}?", "answer": f"It is {i * i}."} for i in range(12)]


@pytest.fixture(scope="session")
def taught(tmp_path_factory):
    """A folder with a data set, a forget set and a nano model that was taught the data set for an epoch."""
    folder = tmp_path_factory.mktemp("attack")
    items = tuple(Item(r["question"], r["answer"]) for r in ROWS)
    written(folder / "qa.jsonl", items)
    written(folder / "forget.jsonl", items[:4])
    with nano():
        finetune(
            SubjectFolder(folder / "target"),
            FinetuneRequest(TINY, items, items, TrainingSettings(epochs=1, lora_rank=0), seed=0),
        )
    return folder


@pytest.fixture
def few_resamples(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 400)
    monkeypatch.setenv("COLUMNS", "200")
