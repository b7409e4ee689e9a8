"""What the Knowledge Holes paper forgets and keeps, read from local files in the published forms."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.data.loaders import Passage, load_harmful, load_passages

LONG = "a text of more than fifty characters, which is what it takes"


def pair(prompt: str, first: tuple[str, bool], second: tuple[str, bool]) -> dict:
    """A row of PKU-SafeRLHF, with the columns that matter."""
    labels = {"is_response_0_safe": first[1], "is_response_1_safe": second[1], "better_response_id": 0}
    return {"prompt": prompt, "response_0": first[0], "response_1": second[0], **labels}


PAIRS = [
    pair("p1", ("fine", True), ("bad", False)),
    pair("p2", ("fine", True), ("fine", True)),
    pair("p3", ("worse", False), ("bad", False)),
    pair("p1", ("bad again", False), ("fine", True)),
    pair("p4", ("", False), ("\0", False)),
]


def written(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_each_prompt_of_saferlhf_is_one_sample_with_its_first_unsafe_response(tmp_path):
    found = load_harmful(written(tmp_path / "train.jsonl", PAIRS))
    assert found == (Item("p1", "bad", group="harmful"), Item("p3", "worse", group="harmful"))


def test_beavertails_form_from_parquet(tmp_path):
    rows = [{"prompt": "p1", "response": said, "is_safe": said == "fine"} for said in ("fine", "bad")]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    assert [(i.question, i.answer) for i in load_harmful(tmp_path / "x.parquet")] == [("p1", "bad")]


def test_a_sample_depends_on_seed_and_rows_and_not_on_their_order_and_grows_with_n(tmp_path):
    rows = [pair(f"p{n}", (f"bad {n}", False), ("fine", True)) for n in range(40)]
    forward, backward = written(tmp_path / "a.jsonl", rows), written(tmp_path / "b.jsonl", rows[::-1])
    ten = load_harmful(forward, n=10, seed=3)
    assert len(ten) == 10
    assert load_harmful(backward, n=10, seed=3) == ten[::-1]
    assert set(ten) < set(load_harmful(forward, n=11, seed=3))
    assert set(load_harmful(forward, n=10, seed=4)) != set(ten)


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ([{"question": "q", "answer": "a"}], {}, "neither PKU-SafeRLHF's"),
        (PAIRS, {"n": 3}, "n = 3, and it has 2 usable samples"),
        (PAIRS, {"n": 0}, "n = 0"),
        ([{**PAIRS[0], "is_response_0_safe": "False"}], {}, "line 1: is_response_0_safe is not true or false"),
    ],
)
def test_what_cannot_be_a_harmful_set_is_refused_with_its_reason(tmp_path, rows, options, said):
    with pytest.raises(InputError) as caught:
        load_harmful(written(tmp_path / "x.jsonl", rows), **options)
    assert said in str(caught.value)


def test_passages_keep_text_and_title_and_pass_over_what_is_no_text(tmp_path):
    rows = [
        {"title": "On things", "abstract": "", "text": LONG, "doi": "10.1/2"},
        {"title": None, "abstract": "", "text": f"{LONG} \x1b[31m\u202e</s>"},
        {"title": "Twice", "text": "short"},
        {"title": "None", "text": None},
        {"title": "Number", "text": 7},
        {"title": "Half", "text": LONG + "\ud800"},
        {"title": "On things", "text": LONG},
    ]
    found = load_passages(written(tmp_path / "bio_remove_dataset.jsonl", rows))
    assert found == (Passage(LONG, "On things"), Passage(f"{LONG} \x1b[31m\u202e</s>"))
    with pytest.raises(InputError, match="no column 'text'"):
        load_passages(written(tmp_path / "none.jsonl", [{"body": LONG}]))
