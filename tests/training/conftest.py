"""A tiny model and rows to train it on, a few steps long."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from vestige.core.items import Item
from vestige.models.load import LoadedModel
from vestige.models.tiny import tiny_model, tiny_tokenizer
from vestige.training.batching import FinetunePlan, Row, row_of
from vestige.training.checkpoints import Checkpoints, Finetune, TrainingJob
from vestige.training.settings import TrainingSettings

ITEMS = tuple(Item(f"What is number {i}{' and so on' * (i % 3)}?", f"{i * i}{' or so' * (i % 2)}.") for i in range(24))


@pytest.fixture(scope="session")
def fresh() -> Callable[[], LoadedModel]:
    torch.set_num_threads(1)
    made = LoadedModel(tiny_model(0), tiny_tokenizer(ITEMS), "builtin:tiny", "")
    return lambda: LoadedModel(copy.deepcopy(made.model), made.tokenizer, made.name, made.revision)


@pytest.fixture(scope="session")
def rows(fresh) -> list[Row]:
    prompter = fresh().prompter
    return [row_of(prompter.encode(i.question, i.answer)) for i in ITEMS]


@pytest.fixture
def make_job(rows, tmp_path) -> Callable[..., TrainingJob]:
    def make(folder: str = "job", **settings: object) -> TrainingJob:
        asked = TrainingSettings.build(
            {"epochs": 3, "batch_size": 8, "learning_rate": 1e-3, "weight_decay": 0.01, **settings}
        )
        return TrainingJob(
            objective=Finetune(),
            rows={"train": rows.__getitem__},
            plan=FinetunePlan(len(rows), asked.batch_size, seed=5),
            settings=asked,
            seed=5,
            checkpoints=Checkpoints(Path(tmp_path, folder, "checkpoints")),
            log=Path(tmp_path, folder, "metrics.jsonl"),
        )

    return make
