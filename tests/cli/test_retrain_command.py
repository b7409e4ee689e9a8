"""`vestige unlearn` by a method that trains from the start, what it is told and what not."""

import json

import pytest
from tests.small import squares, vestige, written

from vestige.core.errors import InputError

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
    with pytest.raises(InputError, match="its settings are the target's; leave epochs"):
        vestige(*words, "--method", "retrain", *SETTINGS)
    with pytest.raises(InputError, match=r"was taught other items than these .* --factual"):
        vestige(*words, "--method", "retrain", "--factual", "builtin")
    with pytest.raises(InputError, match="--base goes with a method that trains from the start, and ga does not"):
        vestige(*words, "--method", "ga", "--base", "builtin:tiny")
