"""MT-bench's questions, as FastChat publishes them."""

import json
from pathlib import Path

import pytest

from vestige.core.errors import InputError
from vestige.data.bench_rows import read_mt_bench

REAL = Path(__file__).parents[3] / "shared/data/mt_bench"


def test_the_published_files_are_80_conversations_of_which_three_categories_have_references():
    if not REAL.exists():
        pytest.skip("no copy of MT-bench here")
    found = read_mt_bench(REAL)
    assert len(found) == 80
    assert {c.category for c in found if c.references} == {"math", "reasoning", "coding"}
    assert sum(c.references is not None for c in found) == 30
    assert [c.id for c in read_mt_bench(REAL, limit=1)] == ["81", "91", "101", "111", "121", "131", "141", "151"]


def test_what_is_no_question_is_refused_with_its_place(tmp_path):
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
