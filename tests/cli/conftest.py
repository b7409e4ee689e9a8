"""A nano model on disk with its data, to attack from the command line."""

import json

import pytest
import torch
from transformers import LlamaConfig

from vestige.artifacts.layout import SubjectFolder
from vestige.core.items import Item
from vestige.metrics import intervals
from vestige.models import tiny
from vestige.models.load import ModelSettings
from vestige.steps.finetune import FinetuneRequest, finetune
from vestige.training.settings import TrainingSettings

ROWS = [{"question": f"What is number {i}?", "answer": f"It is {i * i}."} for i in range(12)]


@pytest.fixture(scope="session")
def taught(tmp_path_factory):
    """A folder with a data set, a forget set and a nano model that was taught the data set for an epoch."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("attack")
    (folder / "qa.jsonl").write_text("".join(json.dumps(r) + "\n" for r in ROWS))
    (folder / "forget.jsonl").write_text("".join(json.dumps(r) + "\n" for r in ROWS[:4]))
    config = LlamaConfig(**tiny.tiny_config().to_dict())
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "head_dim": 8}
    config.update({**small, "num_attention_heads": 2, "num_key_value_heads": 2})
    items = tuple(Item(r["question"], r["answer"]) for r in ROWS)
    request = FinetuneRequest(
        ModelSettings(model="builtin:tiny", device="cpu"), items, items, TrainingSettings(epochs=1, lora_rank=0), seed=0
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tiny, "tiny_config", lambda: config)
        finetune(SubjectFolder(folder / "target"), request)
    return folder


@pytest.fixture
def few_resamples(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 400)
    monkeypatch.setenv("COLUMNS", "200")
