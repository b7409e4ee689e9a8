"""`vestige sisa` on small data, as the commands are typed."""

import json
from pathlib import Path

import pytest
from tests.small import squares, vestige, written

from vestige.core.errors import InputError

TINY = ["--set", "epochs=3", "--set", "batch_size=8", "--set", "stop_when_exact=false"]


def weights(folder: Path) -> str:
    return json.loads((folder / "done.json").read_text())["digest"]


@pytest.mark.slow
def test_forgetting_twice_is_training_without_either(tmp_path):
    items = squares(16, edge=lambda i: f"b{i // 2}")
    data = written(tmp_path / "qa.jsonl", items)
    both = written(tmp_path / "both.jsonl", [i for i in items if i.edge in ("b1", "b4")])
    target, once, twice, never = (tmp_path / name for name in ("target", "once", "twice", "never"))
    source = ["--data", data]
    trained = ["builtin:tiny", *source, "--shards", "2", "--slices", "2", *TINY]
    vestige("sisa", "train", *trained, "--output-dir", target)
    vestige("sisa", "forget", target, *source, "--forget", "edge:b1", "--output-dir", once)
    # What was forgotten before stays forgotten.
    words = ["sisa", "forget", once, *source, "--forget", "edge:b4", "--output-dir", twice]
    told = json.loads(vestige(*words, "--json").stdout)
    vestige("sisa", "train", *trained, "--forget", both, "--output-dir", never)
    assert told["digest"] == weights(twice) == weights(never)
    assert len({weights(f) for f in (target, once, twice)}) == 3
    assert 0 < told["steps"] < told["steps_from_the_start"]
    assert 0 < told["slices"] < told["slices_in_all"] == 4
    shown = vestige("evaluate", twice, "--data", data, "--forget", "edge:b4", "--max-new-tokens", "4", "--json")
    assert {r["n"] for r in json.loads(shown.stdout)["results"]} == {2, 12}
    # A target in shards is not unlearned as if it were one model, and the other way round.
    as_one = ["unlearn", target, "--method", "ga", *source, "--forget", "edge:b1", "--output-dir", tmp_path / "x"]
    with pytest.raises(InputError, match="make it forget with `vestige sisa forget`"):
        vestige(*as_one)
