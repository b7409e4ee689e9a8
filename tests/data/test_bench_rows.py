"""Rows of benchmarks from files: found by their names, in the hub's columns."""

import json
from pathlib import Path

import pytest

from vestige.core.errors import InputError
from vestige.data.bench_rows import WHOLE, LocalData, read_mt_bench

REAL = Path(__file__).parents[3] / "shared/data/mt_bench"
MMLU = "question,choice0,choice1,choice2,choice3,answer\nWhich?,a,2,c,d,{}\n"
ARC = {"text": ["red", "blue"], "label": ["1", "2"]}
TRUTHFUL = 'Question,Best Answer,Correct Answers,Incorrect Answers\nWhy?,Yes,"No idea; Yes",Never; Always\n'


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def test_mmlu_is_found_part_by_part_and_split_by_split(tmp_path):
    put(tmp_path / "mmlu/test/high_school_physics_test.csv", MMLU.format(3))
    put(tmp_path / "mmlu/dev/high_school_physics_dev.csv", MMLU.format("B"))
    put(tmp_path / "mmlu/dev/virology_dev.csv", MMLU.format(0))
    local = LocalData((tmp_path,))
    row = {"question": "Which?", "choices": ["a", "2", "c", "d"]}
    assert local.rows("mmlu_high_school_physics") == {"test": [{**row, "answer": 3}], "dev": [{**row, "answer": 1}]}
    assert set(local.rows("mmlu_virology")) == {"dev"}
    assert local.rows("mmlu_anatomy") is None
    assert local.rows("arc_easy") is None


def test_one_file_of_all_subjects_is_told_apart_by_its_column(tmp_path):
    rows = [
        {"question": s, "subject": s, "choices": ["a", "b", "c", "d"], "answer": 0} for s in ("anatomy", "virology")
    ]
    path = put(tmp_path / "all.jsonl", "".join(json.dumps(r) + "\n" for r in rows))
    found = LocalData(named={"mmlu": path}).rows("mmlu_virology")
    assert [row["question"] for row in found[WHOLE]] == ["virology"]
    put(tmp_path / "mmlu/test.csv", MMLU.format(0))
    with pytest.raises(InputError, match="has no column subject, so the rows of mmlu_anatomy cannot be found"):
        LocalData((tmp_path,)).rows("mmlu_anatomy")


def test_arc_is_read_as_the_hub_and_as_its_makers_have_it(tmp_path):
    put(tmp_path / "hub/arc_easy.jsonl", json.dumps({"id": "x", "question": "Sky?", "choices": ARC, "answerKey": "2"}))
    stem = {"stem": "Sky?", "choices": [{"text": "red", "label": "1"}, {"text": "blue", "label": "2"}]}
    theirs = put(tmp_path / "ai2/ARC-Easy/ARC-Easy-Test.jsonl", json.dumps({"question": stem, "answerKey": "2"}))
    wanted = [{"question": "Sky?", "choices": ARC, "answerKey": "2"}]
    assert LocalData((tmp_path / "hub",)).rows("arc_easy") == {WHOLE: wanted}
    assert LocalData((tmp_path / "ai2",)).rows("arc_easy") == {"test": wanted}
    # The other half of ARC lies in a folder of its own and is not this one.
    assert LocalData((tmp_path / "ai2",)).rows("arc_challenge") is None
    theirs.write_text(json.dumps({"question": stem, "answerKey": "3"}))
    with pytest.raises(InputError, match=r"ARC-Easy-Test.jsonl, line 1: is not as ARC's are"):
        LocalData((tmp_path / "ai2",)).rows("arc_easy")


def test_truthfulqa_puts_the_best_answer_first_and_asks_both_ways_of_one_file(tmp_path):
    path = put(tmp_path / "TruthfulQA_v9.csv", TRUTHFUL)
    local = LocalData(named={"truthfulqa": path})
    (row,) = local.rows("truthfulqa_mc1")[WHOLE]
    assert row["mc1_targets"] == {"choices": ["Yes", "Never", "Always"], "labels": [1, 0, 0]}
    assert row["mc2_targets"] == {"choices": ["Yes", "No idea", "Never", "Always"], "labels": [1, 1, 0, 0]}
    assert local.rows("truthfulqa_mc2")[WHOLE] == [row]
    assert not local.covers("arc_easy")
    # The harness takes the first option for right, so rows in another order would be scored wrongly.
    turned = {"question": "Why?", "mc1_targets": {"choices": ["Never", "Yes"], "labels": [0, 1]}}
    path = put(tmp_path / "turned.jsonl", json.dumps(turned))
    with pytest.raises(InputError, match="line 1: mc1_targets has not its one right answer first"):
        LocalData(named={"truthfulqa": path}).rows("truthfulqa_mc1")


def test_two_files_for_one_split_are_not_chosen_from(tmp_path):
    put(tmp_path / "piqa.jsonl", '{"goal": "x"}')
    put(tmp_path / "piqa/piqa.jsonl", '{"goal": "y"}')
    with pytest.raises(InputError, match="are both data of piqa; say which, as in --task-data piqa="):
        LocalData((tmp_path,)).rows("piqa")
    named = LocalData((tmp_path,), {"piqa": tmp_path / "piqa"})
    # Rows of a task without published columns of another kind are handed on as they are.
    assert named.rows("piqa") == {WHOLE: [{"goal": "y"}]}
    with pytest.raises(InputError, match="no such file or folder"):
        LocalData(named={"piqa": tmp_path / "absent"}).rows("piqa")


@pytest.mark.parametrize("answer", ["4", "E", "-1", ""])
def test_an_answer_that_names_no_choice_is_refused_with_its_line(tmp_path, answer):
    path = put(tmp_path / "x.csv", MMLU.format(answer))
    with pytest.raises(InputError, match=r"x.csv, line 2: the answer .* is neither 0 to 3 nor A to D"):
        LocalData(named={"mmlu_x": path}).rows("mmlu_x")


def test_mt_bench_as_published_is_80_conversations_of_which_three_categories_have_references():
    if not REAL.exists():
        pytest.skip("no copy of MT-bench here")
    found = read_mt_bench(REAL)
    assert len(found) == 80
    assert {c.category for c in found if c.references} == {"math", "reasoning", "coding"}
    assert sum(c.references is not None for c in found) == 30
    assert [c.id for c in read_mt_bench(REAL, limit=1)] == ["81", "91", "101", "111", "121", "131", "141", "151"]


def test_what_is_no_question_of_mt_bench_is_refused_with_its_place(tmp_path):
    (tmp_path / "reference_answer").mkdir()
    references = tmp_path / "reference_answer/gpt-4.jsonl"
    references.write_text("")
    questions = tmp_path / "question.jsonl"
    for row, message in (
        ({"question_id": 1, "category": "math", "turns": ["a"]}, "record 1: has not two turns"),
        ({"question_id": 1, "category": "math", "turns": ["a", "b"]}, "judged beside a reference answer"),
        ({"turns": ["a", "b"]}, "no question_id"),
    ):
        questions.write_text(json.dumps(row))
        with pytest.raises(InputError, match=message):
            read_mt_bench(tmp_path)
    references.unlink()
    with pytest.raises(InputError, match="holds 0 files of reference answers"):
        read_mt_bench(tmp_path)
    questions.unlink()
    with pytest.raises(InputError, match=r"holds no question.jsonl"):
        read_mt_bench(tmp_path)
