"""PISTOL's published form: read as it is, inferred as far as it goes, and written back the same."""

import json

import pytest

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.data.corpus import SourceSettings, named_splits, open_corpus, split, split_by
from vestige.data.dataset import compile_dataset, n_entailed_of_contracts
from vestige.data.pistol import UNKNOWN, read_pistol, write_pistol


@pytest.fixture(scope="module")
def rows(sample1):
    return [{"question": i.question, "answer": i.answer, "edge": i.edge} for i in sample1.items]


def written(tmp_path, value, name="sample_data_1.json"):
    path = tmp_path / name
    path.write_text(json.dumps(value, indent=4), encoding="utf-8")
    return path


@pytest.mark.parametrize(("name", "temporal"), [("sample1", False), ("sample2", False), ("sample1", True)])
def test_what_is_written_comes_back_with_types_parties_and_scopes(tmp_path, name, temporal):
    dataset = compile_dataset(name, seed=2, temporal=temporal)
    path = tmp_path / "pistol.json"
    write_pistol(path, dataset.items)
    again = read_pistol(path)
    assert again.unknown == ()
    assert list(again.graph.edges) == list(dataset.graph.edges)
    assert again.graph.connectivity == dataset.graph.connectivity
    assert again.graph.components == dataset.graph.components
    plain = [Item(i.question, i.answer, i.edge, i.group, i.attribute) for i in dataset.items]
    assert list(again.items) == plain
    for one, two in zip(again.contracts, dataset.contracts, strict=True):
        assert (one.edge, one.type, one.values, one.parties) == (two.edge, two.type, two.values, two.parties)
    assert n_entailed_of_contracts(again) == n_entailed_of_contracts(dataset)
    edge = next(iter(dataset.graph.edges))
    assert split(again, [edge]).scope_of == split(dataset, [edge]).scope_of
    write_pistol(tmp_path / "again.json", again.items)
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


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


def test_part_of_an_edges_questions_is_enough(tmp_path, rows):
    some = [
        r for r in rows if "address" in r["question"] or "effective" in r["question"] or "start date" in r["question"]
    ]
    dataset = read_pistol(written(tmp_path, some))
    assert dataset.unknown == ()
    whole = compile_dataset("sample1", seed=0)
    assert split(dataset, ["A_B"]).scope_of.items() <= split(whole, ["A_B"]).scope_of.items()
    assert sum(s == "entailed" for s in split(dataset, ["A_B"]).scope_of.values()) == 2


def test_seller_and_customer_are_told_apart_by_the_other_questions(tmp_path, rows):
    # Alone, both address questions read either way round: "the address of X in the contract with Y".
    only = [r for r in rows if r["edge"] == "A_B" and r["question"].startswith("What was the address of")][:2]
    dataset = read_pistol(written(tmp_path, only))
    assert len(dataset.unknown) == 1
    assert dataset.items[0].attribute is None


def test_an_edge_that_asks_otherwise_is_said_to_be_unknown_and_the_rest_still_works(tmp_path, rows):
    odd = [{"question": f"Oddly, what is {i} of A and B?", "answer": str(i), "edge": "A_Z"} for i in range(3)]
    dataset = read_pistol(written(tmp_path, [*rows, *odd]))
    assert len(dataset.unknown) == 1
    told = named_splits(open_corpus(SourceSettings(data=str(tmp_path / "sample_data_1.json"))), "edge:A_Z").told
    assert told[1] == f"warning: {dataset.unknown[0]}"
    assert "edge 'A_Z': its questions are not those of one known contract type" in dataset.unknown[0]
    assert list(dataset.graph.edges.values())[20].type == UNKNOWN
    assert list(dataset.graph.connectivity.values())[20] == 9  # A signs nine now, Z one
    splits = split(dataset, ["A_Z"])
    assert len(splits.forget) == 3
    assert splits.scope_of == {}
    assert "A_Z" not in n_entailed_of_contracts(dataset)
    assert len(split(dataset, ["A_B"]).scope_of) == 20


@pytest.mark.parametrize(
    ("change", "values"),
    [
        ("answer", "Somebody Else."),
        ("question", "What was the name of the seller in the contract with Nobody Inc as of 01-01-2000?"),
    ],
)
def test_an_edge_whose_questions_disagree_about_its_parties_is_unknown(tmp_path, rows, change, values):
    changed = [dict(r) for r in rows]
    changed[1][change] = values  # row 2 of A_B asks for the seller's name
    dataset = read_pistol(written(tmp_path, changed))
    assert [note[:11] for note in dataset.unknown] == ["edge 'A_B':"]


def test_ids_that_name_no_parties_use_their_names_as_nodes(tmp_path, rows):
    renamed = [{**r, "edge": r["edge"].replace("_", "")} for r in rows]
    dataset = read_pistol(written(tmp_path, renamed))
    whole = compile_dataset("sample1", seed=0)
    assert list(dataset.graph.edges) == [e.replace("_", "") for e in list(whole.graph.edges)]
    assert list(dataset.graph.connectivity.values()) == list(whole.graph.connectivity.values())
    assert list(dataset.graph.components.values()) == list(whole.graph.components.values())


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
