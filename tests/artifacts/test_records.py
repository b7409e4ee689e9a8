"""What the files of a run hold: written and read back, refused where damaged, inert where hostile."""

import csv
from dataclasses import asdict, replace

import pytest

from vestige.artifacts.layout import EvalFolder, RunFolder
from vestige.artifacts.records import (
    COLUMNS,
    Result,
    SubjectSpec,
    Summary,
    read_records,
    read_scored_records,
    read_scores,
    read_spec,
    read_summaries,
    read_summary,
    read_training_log,
    read_trajectory,
    result_rows,
    write_collected,
    write_csv,
    write_scores,
    write_spec,
    write_summary,
)
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.core.files import read_json, write_json, write_jsonl
from vestige.core.items import ForgetSet
from vestige.core.store import SCHEMA, read_versioned, write_sealed

SPEC = SubjectSpec(
    subject="unlearned",
    name="ga A_B",
    model="builtin:tiny",
    method="ga",
    forget="edge:A_B",
    seed=3,
    settings_id="0123",
    settings={"rate": 1e-4, "layers": [1, 2], "note": "\u202e"},
    data="d" * 32,
    parent="p" * 64,
    version=2,
    forgotten=(),
)
RESULTS = (
    Result("forget", "free", "generate", "", Estimate("rouge1_recall", "share", 0.25, 0.1, 0.4, 8, "Wilson")),
    Result("edge:A_B", "all", "forced", "", Estimate("answer_bits", "bits", -3.5, -4.0, -3.0, 8, "t")),
)
SPLITS = {"forget": ("i1", "i2"), "retain": ("i3",), "independent_sales": ()}
SUMMARY = Summary("qa", 1, SPEC, "random:1@dense", SPLITS, RESULTS)


@pytest.fixture
def place(tmp_path):
    folder = EvalFolder(tmp_path)
    write_jsonl(folder.records, [])
    write_collected(folder, 0)
    write_summary(folder, SUMMARY)
    return folder


def damaged(place, value, *keys):
    """The path of the summary after `value` was put where the keys lead to; None takes it away."""
    path = place.summary(SUMMARY.forget)
    stored = inner = read_json(path)
    for key in keys[:-1]:
        inner = inner[key]
    if value is None:
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = value
    write_json(path, stored)
    return path


def test_a_summary_and_an_identity_read_back_as_they_were(place):
    assert read_summary(place.summary(SUMMARY.forget)) == SUMMARY
    write_spec(place.path / "spec.json", SPEC)
    assert read_spec(place.path / "spec.json") == SPEC


@pytest.mark.parametrize("name", list(asdict(SPEC)))
def test_the_id_of_a_subject_changes_with_each_of_its_fields(name):
    other = {int: 9, str: "other", dict: {"rate": 2e-4}, tuple: (ForgetSet("edge:A_B", ("1",), ("A_B",)),)}[
        type(asdict(SPEC)[name])
    ]
    assert replace(SPEC, **{name: other}).id != SPEC.id


@pytest.mark.parametrize("schema", [SCHEMA + 2, None, str(SCHEMA)])
def test_a_file_of_another_schema_is_refused(place, schema):
    path = damaged(place, schema, "schema")
    with pytest.raises(InputError, match=rf"{path}: made by another version .* not {SCHEMA}\). Delete it, or run"):
        read_summary(path)


def test_fields_that_a_reader_needs_are_asked_for_by_name(tmp_path):
    path = tmp_path / "done.json"
    write_json(path, [SCHEMA])
    with pytest.raises(InputError, match="made by another version"):
        read_versioned(path)
    write_json(path, {"schema": SCHEMA, "weights": "w"})
    assert read_versioned(path, "weights") == {"schema": SCHEMA, "weights": "w"}
    with pytest.raises(InputError, match=rf"{path}: no field 'steps', .*Delete it, or run again with --fresh"):
        read_versioned(path, "weights", "steps")


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        *(((name,), name) for name in ("eval", "version", "subject", "forget", "splits", "results")),
        *((("subject", name), f"subject.{name}") for name in asdict(SPEC)),
        *((("results", 1, name), f"results.1.{name}") for name in ("split", "scope", "format", "attack", "estimate")),
        *((("results", 0, "estimate", name), f"results.0.estimate.{name}") for name in ("value", "low", "n", "unit")),
    ],
)
def test_a_summary_without_one_of_its_fields_is_refused_by_name(place, keys, named):
    path = damaged(place, None, *keys)
    with pytest.raises(InputError) as refused:
        read_summary(path)
    assert str(refused.value) == (
        f"{path}: no field {named!r}, so another version of Vestige made it. Delete it, or run again with --fresh"
    )


@pytest.mark.parametrize(
    ("value", "keys", "named"),
    [
        ([], ("splits",), "splits: Input should be an object"),
        ({}, ("results",), "results: Input should be a valid array"),
        ("i1", ("splits", "forget"), "splits.forget: Input should be a valid"),
        ([1, 2], ("splits", "forget"), "splits.forget.0: Input should be a valid string"),
        (3, ("subject", "name"), "subject.name: Input should be a valid string"),
        ("x", ("version",), "version: Input should be a valid integer"),
        ("ga", ("subject",), "subject: Input should be an object"),
        ("x", ("results", 1), "results.1: Input should be an object"),
        ("0.5", ("results", 0, "estimate", "value"), "results.0.estimate.value: Input should be a valid number"),
        (
            0,
            ("results", 0, "estimate", "n"),
            "results.0.estimate: Value error, rouge1_recall: no items, so no estimate",
        ),
    ],
)
def test_a_summary_that_holds_something_else_is_refused_with_its_place(place, value, keys, named):
    path = damaged(place, value, *keys)
    with pytest.raises(InputError) as refused:
        read_summary(path)
    assert str(refused.value).startswith(f"{path}: {named}")
    assert str(refused.value).endswith("Delete it, or run again with --fresh")


def test_the_summaries_of_a_run_come_controls_first_and_give_a_row_an_estimate(tmp_path):
    run = RunFolder(tmp_path)
    for folder in (run.cell("a", "1"), run.control("z")):
        write_spec(folder.spec, SPEC)
        place = folder.evaluation("qa", "0")
        write_json(place.identity, {"schema": SCHEMA, "model": "m"})
        write_jsonl(place.records, [])
        write_sealed(place.provenance, {})
        write_collected(place, 0)
        write_summary(place, SUMMARY)
    found = read_summaries(run)
    assert [folder.path.relative_to(tmp_path).parts[:2] for folder, _ in found] == [("models", "z"), ("cells", "a-1")]
    rows = result_rows(summary for _, summary in found)
    # Two subjects of two estimates each.
    assert len(rows) == 4
    assert all(tuple(row) == COLUMNS for row in rows)
    told = [rows[1][c] for c in ("forget", "split", "metric", "value", "n")]
    assert told == ["random:1@dense", "edge:A_B", "answer_bits", -3.5, 8]


def test_records_are_read_with_their_scores_only_if_there_is_one_for_each(tmp_path):
    place = EvalFolder(tmp_path)
    write_jsonl(place.records, [{"item": "a", "reply": "x"}, {"item": "b", "reply": "y"}])
    write_collected(place, 2)
    write_scores(place, [{"item": "a", "exact": 1.0}, {"item": "b", "exact": 0.0}])
    assert read_scored_records(place)[1] == {"item": "b", "reply": "y", "exact": 0.0}
    write_scores(place, [{"item": "a", "exact": 1.0}])
    with pytest.raises(InputError, match="different lengths"):
        read_scored_records(place)


@pytest.mark.parametrize("name", ["records.jsonl", "scores.jsonl", "collected.json", "summary"])
def test_a_file_of_an_evaluation_that_was_changed_is_refused_by_name(tmp_path, name):
    place = EvalFolder(tmp_path)
    write_jsonl(place.records, [{"item": "a", "reply": "x"}])
    write_collected(place, 1)
    write_scores(place, [{"item": "a", "exact": 0.0}])
    write_summary(place, SUMMARY)
    summary = place.summary(SUMMARY.forget)
    path = summary if name == "summary" else tmp_path / name
    read = {place.records: read_records, place.scores: read_scores}.get(path, lambda _: read_summary(summary))
    read(place)
    without_seal = path.read_text().replace('"seal"', '"other"')
    path.write_text(without_seal.replace("0.0", "1.0").replace('"x"', '"y"').replace("3.5", "2.5"))
    with pytest.raises(InputError, match=f"{path.name} is gone or was changed after it was written. Delete"):
        read(place)


def cells(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        *((text, f"'{text}") for text in ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\n=1", "\uff1d1+1")),
        # A bare carriage return would end the row for a reader that takes it for a line's end.
        *(("\r=1", "‹U+000D›=1"), ("a\r\nb", "a\nb"), ("\0=1", "‹U+0000›=1"), ("\x1b", "‹U+001B›")),
        *((text, text) for text in ('a,b;"c"', '"=1', "a=1", "", "עברית")),
    ],
)
def test_hostile_text_stays_in_its_cell_and_is_no_formula(tmp_path, text, read):
    path = tmp_path / "t.csv"
    write_csv(path, ("left", "text", "right"), [{"left": "l", "text": text, "right": "r"}])
    assert cells(path) == [["left", "text", "right"], ["l", read, "r"]]
    assert b"\r" not in path.read_bytes()


def test_numbers_are_written_in_full_and_negative_ones_stay_numbers(tmp_path):
    path = tmp_path / "t.csv"
    write_csv(path, ("x", "n"), [{"x": -0.1 - 0.2, "n": 3}, {"x": 1e-17}])
    assert path.read_text(encoding="utf-8") == "x,n\n-0.30000000000000004,3\n1e-17,\n"


def test_names_of_columns_are_as_inert_as_values(tmp_path):
    path = tmp_path / "t.csv"
    write_csv(path, ("=cmd\r_reply", "b"), [{"=cmd\r_reply": "x", "b": "y"}])
    assert cells(path) == [["'=cmd‹U+000D›_reply", "b"], ["x", "y"]]


def test_a_row_with_a_column_that_the_header_lacks_is_an_error_and_writes_nothing(tmp_path):
    with pytest.raises(ValueError, match="not in fieldnames"):
        write_csv(tmp_path / "t.csv", ("a",), [{"a": 1, "b": 2}])
    assert not (tmp_path / "t.csv").exists()


@pytest.mark.parametrize("change", [{"epoch": None}, {"loss": "low"}, {"n_tokens": [1]}, {"step": True}])
def test_a_line_of_a_training_log_without_what_every_step_has_is_refused_by_its_number(tmp_path, change):
    path = tmp_path / "metrics.jsonl"
    line = {"step": 1, "epoch": 0, "loss": 0.5, "n_tokens": 3, "rate": 1e-3}
    assert read_training_log(path) == []
    write_jsonl(path, [line])
    assert read_training_log(path) == [line]
    write_jsonl(path, [line, {k: v for k, v in {**line, **change}.items() if v is not None}])
    with pytest.raises(InputError, match=rf"metrics.jsonl, line 2: no number '{next(iter(change))}'"):
        read_training_log(path)


def test_a_point_of_a_trajectory_without_scores_is_refused_by_its_number(tmp_path):
    write_jsonl(
        tmp_path / "t.jsonl", [{"model": "policy", "step": 1, "epoch": 0, "scores": {"retain": 1}}, {"step": 2}]
    )
    with pytest.raises(InputError, match=r"t.jsonl, record 2: no field 'model'"):
        read_trajectory(tmp_path / "t.jsonl")
