"""PISTOL's published form: read as it is, inferred as far as it goes, and written back the same."""

import json

import pytest

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.data.corpus import SourceSettings, named_splits, open_corpus, split_by
from vestige.data.dataset import compile_dataset
from vestige.data.pistol import read_pistol, write_pistol


@pytest.fixture(scope="module")
def rows(sample1):
    return [{"question": i.question, "answer": i.answer, "edge": i.edge} for i in sample1.items]


def written(tmp_path, value, name="sample_data_1.json"):
    path = tmp_path / name
    path.write_text(json.dumps(value, indent=4), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["sample1", "sample2"])
def test_what_is_written_comes_back_with_its_graph(tmp_path, name):
    dataset = compile_dataset(name, seed=2)
    path = tmp_path / "pistol.json"
    write_pistol(path, dataset.items)
    again = read_pistol(path)
    assert list(again.graph.edges) == list(dataset.graph.edges)
    assert again.graph.connectivity == dataset.graph.connectivity
    assert again.graph.components == dataset.graph.components
    assert list(again.items) == [Item(i.question, i.answer, i.edge) for i in dataset.items]
    write_pistol(tmp_path / "again.json", again.items)
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_that_a_file_tells_no_scopes_is_said(tmp_path, rows):
    splits = named_splits(open_corpus(SourceSettings(data=str(written(tmp_path, rows)))), "edge:A_B")
    assert splits.scopes == {}
    assert splits.told[1] == "warning: sample_data_1.json does not tell what other contracts give away of an answer"


def test_the_form_is_pistols_list_of_objects_with_the_keys_in_order(tmp_path):
    items = [Item('Say "a\\b" and ü?', "x\u2028y.", "A_B"), Item("What is two and two?", "Four")]
    write_pistol(tmp_path / "p.json", items)
    text = (tmp_path / "p.json").read_text(encoding="utf-8")
    assert json.loads(text) == [
        {"question": 'Say "a\\b" and ü?', "answer": "x\u2028y.", "edge": "A_B"},
        {"question": "What is two and two?", "answer": "Four"},
    ]
    assert list(json.loads(text)[0]) == ["question", "answer", "edge"]
    write_pistol(tmp_path / "none.json", [])
    assert json.loads((tmp_path / "none.json").read_text()) == []


def test_rows_without_an_edge_are_factual_and_belong_to_no_split(tmp_path, rows):
    fact = {"question": "What is the capital of France?", "answer": "Paris"}
    dataset = read_pistol(written(tmp_path, [*rows, fact]))
    assert [i.answer for i in dataset.factual] == ["Paris"]
    assert dataset.factual[0].group == "factual"
    assert len(dataset.items) == 400
    assert all(len(part) <= 400 for part in split_by(dataset, "edge:A_B", seed=0).named().values())
    facts_alone = read_pistol(written(tmp_path, [fact], "factual_data.json"))
    assert (len(facts_alone.graph.edges), len(facts_alone.factual)) == (0, 1)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "holds no rows"),
        ([3], "row 1: holds a number, not an object"),
        ([{"question": "q", "edge": "A_B"}], "row 1: no column 'answer'"),
        ([{"question": " ", "answer": "a"}], "row 1, column 'question': is empty"),
        ([{"question": "q", "answer": "a", "edge": True}], "row 1, column 'edge': is a value of type bool"),
        ([{"question": "q", "answer": "a"}, {"question": "q", "answer": "b"}], "row 2: an earlier row asks the same"),
        ([{"question": "q", "answer": "a", "edge": "AB"}], "not called X_Y after its parties"),
        ([{"question": "q", "answer": "a", "edge": "A_\x07"}], "printable"),
    ],
)
def test_a_file_that_is_not_of_the_form_is_refused_with_its_row(tmp_path, value, words):
    with pytest.raises(InputError, match=words):
        read_pistol(written(tmp_path, value))
