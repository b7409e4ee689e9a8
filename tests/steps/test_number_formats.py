"""A target is made to forget in the number format it was made in, or in another one that is asked for."""

import dataclasses

import pytest
import torch
from tests.small import TINY, squares, unlearning, vestige, written

from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.records import read_spec
from vestige.core.errors import InputError
from vestige.models.load import ModelSettings, load
from vestige.steps.evaluate import finished_subject
from vestige.steps.finetune import FinetuneRequest, finetune, untrained
from vestige.steps.making import read_done
from vestige.steps.subjects import load_checked, own_dtype
from vestige.steps.unlearn import unlearn
from vestige.training.settings import TrainingSettings

ITEMS = squares(8)
ONCE = {"epochs": 1, "batch_size": 8, "lora_rank": 2}


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    """A target in float32, and one that was taught in bfloat16."""
    folder = tmp_path_factory.mktemp("formats")
    base = SubjectFolder(folder / "base")
    untrained(base, TINY, ITEMS, 0)
    found = {}
    for dtype in ("float32", "bfloat16"):
        found[dtype] = SubjectFolder(folder / dtype)
        model = ModelSettings(model=str(base.path), device="cpu", dtype=dtype)
        finetune(found[dtype], FinetuneRequest(model, ITEMS, ITEMS, TrainingSettings.build(ONCE), seed=0))
    written(folder / "qa.jsonl", ITEMS)
    written(folder / "forget.jsonl", ITEMS[:2])
    return found


def test_a_float32_target_is_made_to_forget_in_bfloat16(targets, tmp_path):
    cell = SubjectFolder(tmp_path / "cell")
    model = ModelSettings(model=str(targets["float32"].path), device="cpu", dtype="bfloat16")
    asked = unlearning(model, ITEMS[:2], ITEMS[2:], training=ONCE)
    made = unlearn(cell, asked)
    spec = read_spec(cell.spec)
    assert spec.settings["dtype"] == "bfloat16"
    # The parent is the target as it was made.
    assert spec.parent == read_done(targets["float32"]).digest.id
    found = finished_subject(cell, device="cpu").load()
    assert {p.dtype for p in found.model.parameters()} == {torch.bfloat16}
    assert found.digest() == made.digest
    with pytest.raises(InputError, match=r"the target, .*, is not the model that it was"):
        unlearn(SubjectFolder(tmp_path / "other"), dataclasses.replace(asked, target_digest="0" * 64))


def test_the_cast_model_is_the_one_that_loading_in_that_format_gives(targets):
    folder = targets["float32"]
    settings = ModelSettings(model=str(folder.path), device="cpu", dtype="bfloat16")
    found = load_checked(settings, read_done(folder).digest, "the target")
    assert found.digest() == load(settings).digest() != read_done(folder).digest
    # What is not saved keeps its own format: casting a loaded model would round these.
    rotary = [b for n, b in found.model.named_buffers() if n.endswith("inv_freq")]
    assert rotary
    assert all(b.dtype == torch.float32 for b in rotary)


@pytest.mark.parametrize(("words", "dtype"), [([], "bfloat16"), (["--dtype", "float32"], "float32")])
def test_the_command_takes_the_targets_own_format_unless_another_is_asked_for(targets, tmp_path, words, dtype):
    target = targets["bfloat16"]
    data = target.path.parent
    assert own_dtype(str(target.path)) == own_dtype(str(target.model)) == "bfloat16"
    assert own_dtype(str(data)) is None
    asked = ["unlearn", target.path, "--method", "kl", "--data", data / "qa.jsonl", "--forget", data / "forget.jsonl"]
    asked += ["--output-dir", tmp_path / "cell", "--set", "epochs=1", "--set", "lora_rank=2", *words]
    vestige(*asked)
    assert read_spec(SubjectFolder(tmp_path / "cell").spec).settings["dtype"] == dtype
