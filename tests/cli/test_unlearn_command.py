"""`vestige unlearn` as a person runs it: along a trajectory, with an adapter to keep, and from the start."""

import json
import re

import pytest
import torch
from tests import audited
from tests.small import squares, vestige, written
from transformers import LlamaForCausalLM

from vestige.api import Model
from vestige.api.models import _rate_in_words
from vestige.artifacts.layout import SubjectFolder
from vestige.cli.training import _say_state
from vestige.core import progress
from vestige.core.errors import InputError, NotLearned
from vestige.core.files import read_jsonl, write_jsonl
from vestige.core.items import Item
from vestige.models import tiny
from vestige.models.load import ModelSettings
from vestige.steps.unlearn import UnlearnRequest
from vestige.training.settings import UnlearningSettings


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a data set, a forget set and a target that was taught the data set for an epoch."""
    folder = tmp_path_factory.mktemp("unlearn")
    data = written(folder / "qa.jsonl", squares(12))
    written(folder / "forget.jsonl", squares(4))
    vestige("finetune", "builtin:tiny", "--data", data, "--output-dir", folder / "target", "--set", "epochs=1")
    return folder


def curve(folder):
    return list(read_jsonl(folder / "train/trajectory.jsonl"))


@pytest.mark.slow
def test_a_trajectory_is_scored_a_checkpoint_kept_and_the_exit_code_says_whether_it_met_the_rule(made, tmp_path):
    data, forget, target = made / "qa.jsonl", made / "forget.jsonl", made / "target"
    words = ["--method", "gd", "--data", data, "--forget", forget, "--set", "epochs=2", "--set", "trajectory.items=2"]
    words += ["--set", "trajectory.max_new_tokens=4", "--every", "1", "--set", "lora_rank=2"]
    met = ["--choose", "forget_nll>=0", "--save", "adapter", "--output-dir", tmp_path / "kept", "--json"]
    chosen = json.loads(vestige("unlearn", target, *words, *met).stdout)["chosen"]
    assert (chosen["step"], chosen["rule"], chosen["met"]) == (2, "forget_nll>=0", True)
    points = curve(tmp_path / "kept")
    assert [(point["model"], point["step"]) for point in points] == [("target", 0), ("policy", 1), ("policy", 2)]
    assert set(points[0]["scores"]) == {"forget", "retain", "forget_nll", "retain_nll"}
    # The folder with the adapter is a model like any other.
    vestige("evaluate", tmp_path / "kept", "--data", data, "--forget", forget, "--max-new-tokens", "4")

    unmet = ["--stop-when", "forget<=target", "--choose", "forget<=-1*target"]
    with pytest.raises(InputError, match=re.escape("'forget<=-1*target' does not have the form")):
        vestige("unlearn", target, *words, *unmet, "--output-dir", tmp_path / "bad")
    unmet = ["--stop-when", "retain>=0", "--choose", "forget_nll<=0"]
    # It says so again when it finds the finished model, which is kept all the same.
    for _ in range(2):
        missed = vestige("unlearn", target, *words, *unmet, "--output-dir", tmp_path / "missed", code=None)
        assert ": 1 step, retain" in missed.stdout
        assert missed.exception.exit_code == 7
        assert "no checkpoint meets forget_nll<=0" in str(missed.exception)
    assert (tmp_path / "missed/model/model.safetensors").is_file()
    with pytest.raises(InputError, match="Name it with --retrained"):
        vestige("unlearn", target, *words, "--stop-when", "forget<=retrained", "--output-dir", tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("scores", "chosen", "said"),
    [
        ([0.9, 0.1], None, "retain score 0.100, the target's 0.900: ruined"),
        ([0.9, 0.8, 0.1], 1, "retain score 0.800, the target's 0.900: it kept the rest"),
        ([], None, "the next command shows"),
    ],
)
def test_the_end_says_whether_the_model_was_ruined_or_which_command_tells(
    tmp_path, capfd, monkeypatch, scores, chosen, said
):
    rows = [
        {"model": "policy" if n else "target", "step": n, "epoch": n, "scores": {"retain": s}}
        for n, s in enumerate(scores)
    ]
    if rows:
        write_jsonl(SubjectFolder(tmp_path).trajectory, rows)
    kept = None if chosen is None else {"step": chosen}
    monkeypatch.setattr(progress, "SPEAKING", True)
    _say_state(Model(tmp_path, len(scores) - 1, "done", chosen=kept))
    assert said in capfd.readouterr().err


@pytest.mark.parametrize("method", ["npo", "none"])
def test_a_setting_that_carries_another_methods_name_is_told_whose_it_is(method):
    words = ["--data", "d", "--forget", "f", "--output-dir", "o", "--set", "gd.retain_weight=2"]
    with pytest.raises(InputError, match=f"gd.retain_weight is a setting of gd, and the method is {method}"):
        vestige("unlearn", "m", "--method", method, *words)


@pytest.mark.parametrize(
    ("method", "rate", "words"),
    [
        ("npo", 3e-4, "unlearning by npo: learning rate 0.0003"),
        ("npo", 1e-5, "unlearning by npo: learning rate 1e-05, which is PISTOL's .*; `vestige find-rate` .*"),
        ("none", 1e-5, "unlearning by none: nothing is trained"),
    ],
)
def test_the_rate_is_said_and_where_it_is_nobodys_choice_how_to_find_one(method, rate, words):
    training = UnlearningSettings(learning_rate=rate)
    request = UnlearnRequest(ModelSettings(model="m"), "", "", method, {}, "f", (), (), (), training, 0)
    assert re.fullmatch(words, _rate_in_words(request))


SETTINGS = ["--set", "epochs=1", "--set", "stop_when_exact=false"]


@pytest.mark.slow
def test_settings_and_a_base_go_with_the_methods_that_have_use_for_them(tmp_path):
    data = written(tmp_path / "qa.jsonl", squares(8, edge=lambda i: f"b{i // 2}"))
    vestige("finetune", "builtin:tiny", "--data", data, *SETTINGS, "--output-dir", tmp_path / "target")
    words = ["unlearn", tmp_path / "target", "--data", data, "--forget", "edge:b1", "--output-dir", tmp_path / "none"]
    # A model from elsewhere does not say how it was made: the base is named, and settings are given as to finetune.
    vestige(
        "finetune", "builtin:tiny", "--data", data, "--forget", "edge:b1", *SETTINGS, "--output-dir", tmp_path / "own"
    )
    elsewhere = ["unlearn", tmp_path / "target/model", *words[2:-1], tmp_path / "named", "--method", "retrain"]
    vestige(*elsewhere, "--base", "builtin:tiny", *SETTINGS)
    digests = {json.loads((tmp_path / name / "done.json").read_text())["digest"] for name in ("own", "named")}
    assert len(digests) == 1
    with pytest.raises(InputError, match=r"its settings are the target's\. Leave epochs"):
        vestige(*words, "--method", "retrain", *SETTINGS)
    with pytest.raises(InputError, match=r"was trained on other items than these .* --factual"):
        vestige(*words, "--method", "retrain", "--factual", "builtin")
    with pytest.raises(InputError, match="--base is for methods that train from the start, and ga does not"):
        vestige(*words, "--method", "ga", "--base", "builtin:tiny")


def test_only_a_loss_of_answers_says_that_nothing_was_learned(tmp_path):
    rows = [Item(f"Who lives at number {n}?", f"Ada {n}.") for n in range(4)]
    own = tmp_path / "own"
    torch.manual_seed(0)
    LlamaForCausalLM(audited.nano_config()).save_pretrained(own)
    tiny.tiny_tokenizer(rows).save_pretrained(own)
    data = written(tmp_path / "data.jsonl", rows)
    for loss_on, error in (("answer", NotLearned), ("all", SystemExit)):
        words = ["--output-dir", tmp_path / loss_on, "--epochs", "1", "--set", f"loss_on={loss_on}"]
        ended = vestige("finetune", own, "--data", data, *words, code=None)
        assert isinstance(ended.exception or SystemExit(), error), ended.output
        assert (tmp_path / loss_on / "done.json").is_file()
