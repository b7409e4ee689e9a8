"""`vestige unlearn` by the methods that do not train the target: retrain and none."""

import json
from pathlib import Path

import pytest
from tests.small import squares, vestige, written

from vestige.core.errors import InputError

SETTINGS = ["--set", "epochs=1", "--set", "stop_when_exact=false"]


def weights(folder: Path) -> str:
    return json.loads((folder / "done.json").read_text())["digest"]


@pytest.mark.slow
def test_the_controls_are_methods_like_any_other(tmp_path):
    data = written(tmp_path / "qa.jsonl", squares(8, edge=lambda i: f"b{i // 2}"))
    target, control, again, named, same = (tmp_path / n for n in ("target", "control", "again", "named", "same"))
    trained = ["finetune", "builtin:tiny", "--data", data, "--seed", "4", *SETTINGS]
    vestige(*trained, "--output-dir", target)
    vestige(*trained, "--forget", "edge:b1", "--output-dir", control)
    words = ["unlearn", target, "--data", data, "--forget", "edge:b1"]
    # The target's folder says how it was made, its seed too.
    vestige(*words, "--method", "retrain", "--output-dir", again)
    assert weights(again) == weights(control) != weights(target)
    vestige(*words, "--method", "none", "--output-dir", same)
    assert weights(same) == weights(target)
    # Where it does not, the model to begin with is named, and the settings are given as to finetune.
    base = ["--method", "retrain", "--base", "builtin:tiny", "--seed", "4", *SETTINGS]
    vestige("unlearn", target / "model", *words[2:], *base, "--output-dir", named)
    assert weights(named) == weights(control)
    out = ["--output-dir", tmp_path / "none"]
    with pytest.raises(InputError, match="its settings are the target's; leave epochs"):
        vestige(*words, "--method", "retrain", *SETTINGS, *out)
    with pytest.raises(InputError, match=r"was taught other items than these .* --factual"):
        vestige(*words, "--method", "retrain", "--factual", "builtin", *out)
    with pytest.raises(InputError, match="--base goes with a method that trains from the start, and ga does not"):
        vestige(*words, "--method", "ga", "--base", "builtin:tiny", *out)
