"""`vestige unlearn` by a method that trains from the start, what it is told and what not."""

import json

import pytest
import torch
from tests import audited
from tests.small import squares, vestige, written
from transformers import LlamaForCausalLM

from vestige.core.errors import InputError, NotLearned
from vestige.core.items import Item
from vestige.models import tiny

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
    with pytest.raises(InputError, match="--base goes with a method that trains from the start, and ga does not"):
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
