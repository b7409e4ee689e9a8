"""`vestige sisa` on small data, as the commands are typed."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from vestige.cli.app import app
from vestige.core.errors import InputError

TINY = ["--set", "epochs=3", "--set", "batch_size=8", "--set", "stop_when_exact=false"]


def vestige(*words: str | Path) -> str:
    done = CliRunner().invoke(app, [str(w) for w in words])
    if done.exception is not None:
        raise done.exception
    return done.stdout


def weights(folder: Path) -> str:
    return json.loads((folder / "done.json").read_text())["digest"]


@pytest.mark.slow
def test_forgetting_twice_is_training_without_either(tmp_path):
    torch.set_num_threads(1)
    data = tmp_path / "qa.jsonl"
    rows = [{"question": f"What is number {i}?", "answer": f"It is {i * i}.", "edge": f"b{i // 2}"} for i in range(16)]
    data.write_text("".join(json.dumps(r) + "\n" for r in rows))
    both = tmp_path / "both.jsonl"
    both.write_text("".join(json.dumps(r) + "\n" for r in rows if r["edge"] in ("b1", "b4")))
    target, once, twice, never = (tmp_path / name for name in ("target", "once", "twice", "never"))
    source = ["--data", data]
    trained = ["builtin:tiny", *source, "--shards", "2", "--slices", "2", *TINY]
    vestige("sisa", "train", *trained, "--output-dir", target)
    vestige("sisa", "forget", target, *source, "--forget", "edge:b1", "--output-dir", once)
    # What was forgotten before stays forgotten.
    words = ["sisa", "forget", once, *source, "--forget", "edge:b4", "--output-dir", twice]
    told = json.loads(vestige(*words, "--json"))
    vestige("sisa", "train", *trained, "--forget", both, "--output-dir", never)
    assert told["digest"] == weights(twice) == weights(never)
    assert len({weights(f) for f in (target, once, twice)}) == 3
    assert 0 < told["steps"] < told["steps_from_the_start"]
    assert 0 < told["slices"] < told["slices_in_all"] == 4
    shown = vestige("evaluate", twice, "--data", data, "--forget", "edge:b4", "--max-new-tokens", "4", "--json")
    assert {r["n"] for r in json.loads(shown)["results"]} == {2, 12}
    # A target in shards is not unlearned as if it were one model, and the other way round.
    as_one = ["unlearn", target, "--method", "ga", *source, "--forget", "edge:b1", "--output-dir", tmp_path / "x"]
    with pytest.raises(InputError, match="make it forget with `vestige sisa forget`"):
        vestige(*as_one)
