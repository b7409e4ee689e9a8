"""`vestige attack` as a person runs it: what it prints, what it keeps, what it refuses."""

import json

import pytest
import torch
from transformers import LlamaConfig
from typer.testing import CliRunner

from vestige.artifacts.layout import SubjectFolder
from vestige.cli.app import app
from vestige.cli.attack import NO_EVIDENCE
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.metrics import intervals
from vestige.models import tiny
from vestige.models.load import ModelSettings
from vestige.steps.finetune import FinetuneRequest, finetune
from vestige.training.settings import TrainingSettings

ROWS = [{"question": f"What is number {i}?", "answer": f"It is {i * i}."} for i in range(12)]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
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


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 400)
    monkeypatch.setenv("COLUMNS", "200")


def attack(made, kind, *words):
    shared = ["--data", made / "qa.jsonl", "--forget", made / "forget.jsonl", "--device", "cpu", "--max-new-tokens", 4]
    return CliRunner().invoke(app, ["attack", kind, str(made / "target"), *map(str, [*shared, *words])])


def test_a_relearning_prints_each_epoch_beside_what_was_before_and_that_it_is_no_evidence(made):
    done = attack(made, "relearn", "--items", 3, "--set", "rank=2", "--set", "epochs=2", "--preset", "phi-1.5")
    assert done.exit_code == 0, done.output
    assert "relearn retain n=3: 4 forget items" in done.stdout
    for head in ("before", "epoch 1", "epoch 2", "forced/answer_bits", "generate/rouge1_recall"):
        assert head in done.stdout
    assert "epoch 3" not in done.stdout
    assert "(prequential code length of what was shown)" in done.stdout
    assert NO_EVIDENCE in done.stdout
    assert len(list((made / "target/attacks").glob("relearn*/done.json"))) == 1


@pytest.mark.parametrize(
    ("kind", "words", "name"),
    [("quantize", ["--bits", 8], "quantize 8 bits"), ("in-context", ["--items", 2], "in_context n=2")],
)
def test_one_json_document_has_levels_before_and_after(made, kind, words, name):
    done = attack(made, kind, *words, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["attack"]["name"] == name
    assert list(found["levels"]) == ["before", "given"]
    assert list(found["levels"]["before"]) == list(found["levels"]["given"])
    assert {e["n"] for at in found["levels"].values() for e in at.values()} == {4}
    assert found.keys() == {"attack", "evidence", "bounds_bits", "spent", "notes", "levels"}


@pytest.mark.parametrize(
    ("kind", "words", "complaint"),
    [
        ("relearn", ["--material", "retained"], "no material 'retained'; did you mean 'retain'"),
        ("relearn", ["--preset", "zephyr"], "no preset 'zephyr'; did you mean 'zephyr-7b'"),
        ("relearn", ["--set", "ranks=2"], "unknown key 'ranks'; did you mean 'rank'"),
        ("relearn", ["--material", "related"], "no retain item is known to be related"),
        ("quantize", ["--bits", 2], "--bits 2: weights are rounded to 8 or to 4 bits"),
        ("quantize", ["--set", "rank=2"], "begin with one of qa."),
        ("in-context", ["--items", 9], "9 facts were to stand before"),
    ],
)
def test_what_cannot_be_tried_is_refused_in_a_sentence(made, kind, words, complaint):
    refused = attack(made, kind, *words)
    assert isinstance(refused.exception, InputError)
    assert complaint in str(refused.exception)


def test_attacks_are_listed_with_a_line_each():
    rows = json.loads(CliRunner().invoke(app, ["list", "attacks", "--json"]).stdout)
    assert [row["name"] for row in rows] == ["relearn", "quantize", "in-context"]
    assert all(row["about"].endswith(".") for row in rows)
