"""`vestige attack` as a person runs it: what it prints, what it keeps, what it refuses."""

import json

import pytest
from tests.small import vestige

from vestige.cli.attack import NO_EVIDENCE
from vestige.core.errors import InputError

PROMPTS = ("in-context", "gcg", "prefix")
pytestmark = pytest.mark.usefixtures("few_resamples")


def attack(taught, kind, *words):
    shared = ["--data", taught / "qa.jsonl", "--forget", taught / "forget.jsonl", "--device", "cpu"]
    return vestige("attack", kind, taught / "target", *shared, "--max-new-tokens", 4, *words)


@pytest.mark.slow
def test_a_relearning_prints_its_last_epoch_or_with_a_curve_each_beside_before_and_that_it_is_no_evidence(taught):
    words = ("--items", 3, "--set", "rank=2", "--set", "epochs=2", "--preset", "phi-1.5")
    done = attack(taught, "relearn", *words)
    curve = attack(taught, "relearn", *words, "--set", "curve=true")
    for printed in (done.stdout, curve.stdout):
        assert "relearn retain n=3: 4 forget items" in printed
        for head in ("before", "epoch 2", "forced/answer_bits", "generate/rouge1_recall"):
            assert head in printed
        assert "epoch 3" not in printed
        assert "(prequential code length of what was shown)" in printed
        assert NO_EVIDENCE in printed
    assert "epoch 1" not in done.stdout
    assert "epoch 1" in curve.stdout
    # Each is evidence of its own, and asking between epochs changes no answer after the last.
    assert len(list((taught / "target/attacks").glob("relearn*/done.json"))) == 2
    last, each = (
        json.loads(attack(taught, "relearn", *words, *more, "--json").stdout)["levels"]
        for more in ((), ("--set", "curve=true"))
    )
    assert (list(last), list(each)) == (["before", "2"], ["before", "1", "2"])
    assert last["2"] == each["2"]


@pytest.mark.parametrize(
    ("kind", "words", "name"),
    [
        ("quantize", ["--bits", 8], "quantize 8 bits"),
        ("in-context", ["--items", 2], "in_context n=2"),
    ],
)
def test_one_json_document_has_levels_before_and_after(taught, kind, words, name):
    done = attack(taught, kind, *words, "--json")
    found = json.loads(done.stdout)
    assert found["attack"]["name"] == name
    assert list(found["levels"]) == ["before", "given"]
    assert list(found["levels"]["before"]) == list(found["levels"]["given"])
    assert {e["n"] for at in found["levels"].values() for e in at.values()} == {4}
    assert found.keys() == {"attack", "evidence", "bounds_bits", "spent", "notes", "levels"}


@pytest.mark.parametrize(
    ("kind", "words", "complaint"),
    [
        ("relearn", ["--material", "retained"], "--material = 'retained': must be 'retain', 'related'"),
        ("relearn", ["--preset", "zephyr"], "no preset 'zephyr'. Did you mean 'zephyr-7b'"),
        ("relearn", ["--set", "ranks=2"], "unknown key 'ranks'. Did you mean 'rank'"),
        ("quantize", ["--set", "quantize.bits=8"], "unknown key 'quantize.bits'"),
    ],
)
def test_what_cannot_be_tried_is_refused_in_a_sentence(taught, kind, words, complaint):
    with pytest.raises(InputError, match=complaint):
        attack(taught, kind, *words)


def test_attacks_are_listed_with_a_line_each():
    rows = json.loads(vestige("list", "attacks", "--json").stdout)
    assert [row["name"] for row in rows] == ["relearn", "quantize", "ablate", *PROMPTS]
    assert all(row["about"].endswith(".") for row in rows)
