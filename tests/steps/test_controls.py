"""The controls as methods: training again without the forget set, no unlearning, and the arithmetic on an update."""

import copy
import dataclasses
import shutil

import pytest
import torch
from tests.small import TINY, model_bytes, squares, unlearning

from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.records import read_spec, write_spec
from vestige.core.errors import InputError
from vestige.data.corpus import Corpus, SourceSettings, named_splits
from vestige.models.folders import weights_digest
from vestige.models.load import ModelSettings, load
from vestige.models.tiny import tiny_model
from vestige.steps import unlearn as unlearn_step
from vestige.steps.controls import recipe_from, recipe_of, recipe_without
from vestige.steps.finetune import FinetuneRequest, finetune
from vestige.steps.making import read_done
from vestige.steps.unlearn import UnlearnRequest, scale_update, unlearn, unlearn_spec
from vestige.training.settings import TrainingSettings, UnlearningSettings

ITEMS = squares(12, edge=lambda i: f"b{i // 2}")
FORGET, KEPT = ITEMS[:4], ITEMS[4:]
FULL = {"epochs": 2, "batch_size": 4, "learning_rate": 1e-3, "lora_rank": 0}


def taught(**changes) -> FinetuneRequest:
    return dataclasses.replace(FinetuneRequest(TINY, ITEMS, ITEMS, TrainingSettings.build(FULL), seed=3), **changes)


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> SubjectFolder:
    folder = SubjectFolder(tmp_path_factory.mktemp("controls") / "target")
    finetune(folder, taught())
    return folder


def asked(target: SubjectFolder, method: str, **changes) -> UnlearnRequest:
    training = {"training": {**FULL, "learning_rate": 1e-4}}
    return unlearning(target, FORGET, KEPT, method=method, **{**training, **changes})


def recipe(target: SubjectFolder):
    return recipe_of(target, ITEMS, ITEMS, device="cpu").of(KEPT)


def test_retraining_is_fine_tuning_without_the_forget_set_to_the_last_byte(target, tmp_path):
    cell, control = SubjectFolder(tmp_path / "cell"), SubjectFolder(tmp_path / "control")
    made = unlearn(cell, asked(target, "retrain", recipe=recipe(target)))
    assert made == finetune(control, taught(items=KEPT, role="retrained", name="retrained file", forget="file"))
    assert model_bytes(cell) == model_bytes(control) != model_bytes(target)
    spec, plain = read_spec(cell.spec), read_spec(control.spec)
    assert (spec.subject, spec.method, spec.name, spec.forget) == ("unlearned", "retrain", "retrain file", "file")
    # The target's own recipe: its rate and seed, not those that were asked of an unlearning; its start, not the target.
    assert (spec.settings["learning_rate"], spec.seed) == (1e-3, 3)
    assert (spec.parent, spec.data) == (plain.parent, plain.data)
    assert spec.parent != made.digest.id != read_done(target).digest.id


@pytest.mark.slow
def test_a_target_from_elsewhere_is_trained_again_from_the_model_that_is_named(target, tmp_path):
    corpus = Corpus("here", SourceSettings(data="here"), ITEMS, (), None)
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(target.model, elsewhere)
    foreign = ModelSettings(model=str(elsewhere), device="cpu")
    with pytest.raises(InputError, match="cannot repeat the training"):
        recipe_without(foreign, corpus, named_splits(corpus, "edge:b0"))
    found = recipe_from(foreign, TrainingSettings.build(FULL), corpus, named_splits(corpus, "edge:b0"), seed=5)
    assert found.start().digest().id == found.start_digest == read_done(target).digest.id
    cell, control = SubjectFolder(tmp_path / "cell"), SubjectFolder(tmp_path / "control")
    unlearn(cell, asked(target, "retrain", recipe=found))
    finetune(control, taught(model=foreign, items=ITEMS[2:], seed=5))
    assert model_bytes(cell) == model_bytes(control)


def test_a_method_that_starts_anew_has_to_be_told_from_where(target, tmp_path):
    with pytest.raises(
        InputError, match="'retrain' trains from the start, and the target does not record its training"
    ):
        unlearn(SubjectFolder(tmp_path / "cell"), asked(target, "retrain"))


def test_a_recipe_is_refused_where_it_would_not_be_the_targets(target, tmp_path):
    with pytest.raises(InputError, match="was trained on other items than these 11"):
        recipe_of(target, ITEMS[1:], ITEMS)
    # The tokeniser of the tiny model is trained on the vocabulary, whatever is taught.
    with pytest.raises(InputError, match="was trained on other items than these 12"):
        recipe_of(target, ITEMS, ITEMS[1:])
    old = SubjectFolder(tmp_path / "old")
    spec = read_spec(target.spec)
    for changed in (
        {"subject": "unlearned"},
        {"version": 0},
        {"settings": {k: v for k, v in spec.settings.items() if k != "bucket"}},
    ):
        write_spec(old.spec, dataclasses.replace(spec, **changed))
        with pytest.raises(InputError, match="does not say how this version can train it again"):
            recipe_of(old, ITEMS, ITEMS)


def test_a_start_that_is_no_longer_what_it_was_is_refused(target, tmp_path):
    base, child = SubjectFolder(tmp_path / "base"), SubjectFolder(tmp_path / "child")
    shutil.copytree(target.path, base.path)
    model = ModelSettings(model=str(base.model), device="cpu")
    finetune(child, taught(model=model))
    again = recipe(child)
    assert again.start().digest() == read_done(base).digest
    changed = load(model)
    with torch.no_grad():
        changed.model.model.norm.weight[0] += 1
    changed.model.save_pretrained(base.model)
    with pytest.raises(InputError, match=r"the model that the target was trained from, .* is not the model"):
        unlearn(SubjectFolder(tmp_path / "cell"), asked(child, "retrain", recipe=again))


def test_no_unlearning_is_the_target_under_another_name(target, tmp_path):
    cell = SubjectFolder(tmp_path / "cell")
    request = asked(target, "none")
    made = unlearn(cell, request)
    done = read_done(target)
    assert (made.digest, made.steps) == (done.digest, 0)
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert (cell.model / name).read_bytes() == (target.model / name).read_bytes()
    spec = read_spec(cell.spec)
    assert (spec.subject, spec.method, spec.parent) == ("unlearned", "none", done.digest.id)
    # What is not trained does not depend on how it would have been.
    faster = dataclasses.replace(request, training=UnlearningSettings.build({**FULL, "learning_rate": 1.0}))
    assert unlearn_spec(faster) == spec


@pytest.mark.slow
@pytest.mark.parametrize("training", [FULL, {**FULL, "lora_rank": 2}], ids=["full", "lora"])
def test_task_arithmetic_is_the_start_less_what_training_on_the_forget_set_changed(
    target, tmp_path, monkeypatch, training
):
    training = {**training, "learning_rate": 1e-3}
    request = asked(target, "task_arithmetic", method_settings={"scale": 1.5}, training=training)
    cell, plain = SubjectFolder(tmp_path / "cell"), SubjectFolder(tmp_path / "plain")
    unlearn(cell, request)
    monkeypatch.setattr(unlearn_step, "scale_update", lambda *_: None)
    unlearn(plain, request)
    start, trained, result = (
        dict(load(ModelSettings(model=str(f.model), device="cpu")).model.named_parameters())
        for f in (target, plain, cell)
    )
    moved = 0.0
    for name, first in start.items():
        change = trained[name].double() - first.double()
        torch.testing.assert_close(result[name].double(), first.double() - 1.5 * change, rtol=0, atol=1e-6)
        moved = max(moved, change.abs().max().item())
    # Much more than the tolerance, so that neither the start nor the trained model would pass.
    assert moved > 1e-4


def test_an_update_is_scaled_by_hand():
    # 2 -> 5: at -1 that is 2 - 3 = -1. At 0.5, 3.5; at 2, 8.
    start, trained = tiny_model(0), tiny_model(0)
    with torch.no_grad():
        start.model.norm.weight[0], trained.model.norm.weight[0] = 2.0, 5.0
    for factor, expected in ((-1.0, -1.0), (0.5, 3.5), (2.0, 8.0)):
        scaled = copy.deepcopy(trained)
        scale_update(scaled, start, factor)
        assert scaled.model.norm.weight[0].item() == expected
        # All else was not trained and keeps its bits.
        with torch.no_grad():
            scaled.model.norm.weight[0] = 2.0
        assert weights_digest(scaled) == weights_digest(start)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_factor_of_zero_is_the_start_and_of_one_the_trained_model_to_the_last_bit(dtype):
    start, trained = tiny_model(0).to(dtype), tiny_model(1).to(dtype)
    with torch.no_grad():
        start.model.norm.weight[0] = -0.0
    for factor, expected in ((0.0, start), (1.0, trained)):
        scaled = copy.deepcopy(trained)
        scale_update(scaled, start, factor)
        assert weights_digest(scaled) == weights_digest(expected)
