"""The score table, in memory and as one file."""

import gzip
import json
import math
from pathlib import Path

import pytest

from vestige.artifacts.scores import (
    SCHEMA,
    Measurement,
    Question,
    ScoreTable,
    Source,
    Texts,
    is_current,
    read_table,
    write_table,
)
from vestige.core.errors import InputError

MATCH = Measurement("match", "own words", "hit")
PICK = Measurement("pick", "letter options", "hit")


def table() -> ScoreTable:
    """Two models, of which one was cut short."""
    scores = ScoreTable()
    questions = {"q1": Question("forget", "f1", "Ann"), "k1": Question("retain")}
    scores.add("full", "target", MATCH, {"q1": 1.0, "k1": 1.0}, questions=questions)
    scores.add("full", "target", PICK, {"q1": 1.0}, questions=questions, chances={"q1": 0.25})
    late, texts = {"q1": "timed out"}, {"q1": Texts("Who?", "Ann", "")}
    scores.add("npo", "unlearned", MATCH, {"q1": None}, questions=questions, reasons=late, texts=texts)
    return scores


def test_a_missing_score_is_nan_and_keeps_its_reason():
    scores = table()
    assert scores.of("full", "match", ["k1", "q1"]).tolist() == [1.0, 1.0]
    assert math.isnan(scores.table("npo", "match")["q1"])
    assert scores.common(["full", "npo"], "match", ["q1", "k1"]) == ("q1",)
    assert scores.judged().common(["full", "npo"], "match", ["q1", "k1"]) == ()
    assert scores.items() == ("q1",)
    assert scores.items("retain") == ("k1",)
    assert scores.reasons == {(Source("npo"), "match"): {"q1": "timed out"}}
    assert scores.questions["q1"].group == "Ann"


def test_one_file_gives_the_same_table_and_the_same_bytes(tmp_path: Path):
    write_table(tmp_path / "a", table())
    read = read_table(tmp_path / "a")
    assert read.values.keys() == table().values.keys()
    assert read.table("full", "match") == table().table("full", "match")
    assert (read.texts, read.chances) == (table().texts, table().chances)
    write_table(tmp_path / "b", read)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("score", [1.5, -0.1, math.inf])
def test_a_score_outside_of_its_range_is_refused(score: float):
    with pytest.raises(InputError, match="is outside"):
        ScoreTable().add("full", "target", MATCH, {"q1": score})


def test_rows_that_contradict_each_other_are_refused():
    with pytest.raises(InputError, match="two scores"):
        table().add("full", "target", MATCH, {"q1": 1.0}, questions={"q1": Question("forget", "f1", "Ann")})
    with pytest.raises(InputError, match="the role"):
        table().add("full", "retrained", MATCH, {"q2": 1.0})
    with pytest.raises(InputError, match="the measurement"):
        table().add("npo", "unlearned", Measurement("match", "own words", "overlap"), {"q2": 1.0})


def test_a_file_of_something_else_is_refused(tmp_path: Path):
    (tmp_path / "a").write_text("model,score\n")
    with pytest.raises(InputError, match="not a score table"):
        read_table(tmp_path / "a")


def test_a_file_that_contradicts_itself_is_refused(tmp_path: Path):
    write_table(tmp_path / "a", table())
    lines = gzip.decompress((tmp_path / "a").read_bytes()).decode().splitlines()
    column = json.loads(lines[1])
    column["items"][0] = "another question"
    (tmp_path / "a").write_bytes(gzip.compress("\n".join([lines[0], json.dumps(column)]).encode()))
    with pytest.raises(InputError, match="contradicts itself"):
        read_table(tmp_path / "a")


def test_a_table_of_another_version_is_no_current_one(tmp_path):
    path = tmp_path / "scores.jsonl.gz"
    assert not is_current(path)
    write_table(path, ScoreTable())
    assert is_current(path)
    older = gzip.decompress(path.read_bytes()).replace(f'"schema": {SCHEMA}'.encode(), b'"schema": 2', 1)
    path.write_bytes(gzip.compress(older))
    assert not is_current(path)
    path.write_bytes(b"torn")
    assert not is_current(path)
