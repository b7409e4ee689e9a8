"""Data sets on disk: compiled folders are the same bytes twice, PISTOL's form is read and written back the same."""

import csv
import hashlib
import json

import networkx as nx
import pytest

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.data import folder as folders
from vestige.data.corpus import SourceSettings, named_splits, open_corpus, split_by
from vestige.data.dataset import compile_dataset
from vestige.data.folder import compile_to_folder, read_dataset, write_dataset
from vestige.data.graph import Edge, build_graph
from vestige.data.pistol import read_pistol, write_pistol


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compiled") / "sample1"
    manifest = compile_to_folder("sample1", folder)
    return folder, manifest


def test_a_folder_holds_what_the_manifest_says(compiled):
    folder, manifest = compiled
    found = contents(folder)
    assert set(found) - {"manifest.json"} == set(manifest["files"])
    assert {"pistol.json", "edges.csv", "items.jsonl", "contracts.jsonl", "holdout.jsonl", "graph.json"} < set(found)
    for name, facts in manifest["files"].items():
        assert facts == {"sha256": hashlib.sha256(found[name]).hexdigest(), "bytes": len(found[name])}
    assert json.loads(found["manifest.json"]) == manifest
    assert manifest["counts"]["items"] == 400
    assert manifest["connectivity"]["sales"] == {"contracts": 10, "mean": 6.5, "least": 2, "greatest": 14}
    # sales: 14 + 3 * 8 + 3 * 7 + 3 * 2 = 65 over 10


def test_the_same_settings_give_the_same_bytes(compiled, tmp_path):
    compile_to_folder("sample1", tmp_path / "again")
    assert contents(tmp_path / "again") == contents(compiled[0])
    compile_to_folder("sample1", tmp_path / "other", seed=1)
    assert contents(tmp_path / "other")["pistol.json"] != contents(compiled[0])["pistol.json"]


def test_pistol_json_has_pistols_rows_and_edges_csv_the_columns_that_others_rely_on(compiled):
    folder, _ = compiled
    rows = json.loads((folder / "pistol.json").read_text())
    assert len(rows) == 400
    assert all(list(row) == ["question", "answer", "edge"] for row in rows)
    with (folder / "edges.csv").open(newline="") as file:
        edges = list(csv.DictReader(file))
    assert list(edges[0])[:7] == ["edge", "type", "connectivity", "component", "n_entailed", "first", "second"]
    of = {e["edge"]: e for e in edges}
    assert [of[e]["connectivity"] for e in ("A_B", "A_C", "A_n", "B_D", "E1_F1")] == ["14", "8", "8", "7", "2"]
    assert [of[e]["n_entailed"] for e in ("A_B", "A_C", "A_n", "B_D", "E1_F1")] == ["2", "1", "1", "1", "1"]
    assert (of["E2_q2"]["component"], of["E2_q2"]["first"], of["E2_q2"]["second"]) == ("3", "E2", "q2")


def test_the_graph_file_is_networkxs(compiled):
    stored = json.loads((compiled[0] / "graph.json").read_text())
    graph = nx.node_link_graph(stored, edges="edges")
    assert (graph.number_of_nodes(), graph.number_of_edges()) == (24, 20)
    assert graph.nodes["A"]["degree"] == 8
    assert graph.nodes["m"]["kind"] == "person"


@pytest.mark.slow
@pytest.mark.parametrize("graph", ["sample1", "sample2"])
def test_a_data_set_comes_back_whole(tmp_path, graph):
    dataset = compile_dataset(graph, seed=4)
    write_dataset(dataset, tmp_path / "d")
    again = read_dataset(tmp_path / "d")
    assert again.digest == dataset.digest
    assert (again.items, again.holdout, again.contracts) == (dataset.items, dataset.holdout, dataset.contracts)
    assert (again.name, again.seed) == (dataset.name, 4)
    assert again.graph.parts == dataset.graph.parts


def test_ids_of_a_persons_own_come_back(tmp_path):
    dataset = compile_dataset(build_graph("g", [Edge("A", "B", id="deal"), Edge("A", "C")]), seed=0)
    write_dataset(dataset, tmp_path / "d")
    again = read_dataset(tmp_path / "d")
    assert list(again.graph.edges) == ["deal", "A_C"]
    assert again.digest == dataset.digest


def test_a_pistol_file_can_be_kept_as_a_folder(tmp_path):
    write_pistol(tmp_path / "p.json", compile_dataset("sample1", seed=0).items)
    dataset = read_pistol(tmp_path / "p.json")
    write_dataset(dataset, tmp_path / "d")
    again = read_dataset(tmp_path / "d")
    assert again.items == dataset.items
    assert again.digest == dataset.digest
    assert (tmp_path / "d" / "pistol.json").read_bytes() == (tmp_path / "p.json").read_bytes()


def test_hostile_labels_are_written_and_read_back(tmp_path):
    graph = build_graph("g", [Edge('q"uote', "back\\slash"), Edge("100%", "{x}"), Edge("né", "东")])
    compile_to_folder(graph, tmp_path / "d")
    edges = dict.fromkeys(row["edge"] for row in json.loads((tmp_path / "d" / "pistol.json").read_bytes()))
    assert list(edges) == ['q"uote_back\\slash', "100%_{x}", "né_东"]
    assert list(read_dataset(tmp_path / "d").items_of_edge) == list(edges)


def test_a_part_of_the_questions_is_read_and_more_contracts_than_fit_are_refused(tmp_path):
    compile_to_folder("sample1", tmp_path / "d")
    corpus = open_corpus(SourceSettings(data=str(tmp_path / "d"), limit="0.1"))
    assert {i.edge for i in corpus.items} == {"A_B", "A_C"}
    with pytest.raises(InputError, match=r"give the number of edges, 1 to 10,000"):
        compile_to_folder("star:10001", tmp_path / "e")
    rows = [Edge("hub", str(n)) for n in range(10_001)]
    with pytest.raises(InputError, match=r"10,001 contracts. At most 10,000 are compiled"):
        compile_to_folder(build_graph("g", rows), tmp_path / "e")


@pytest.mark.parametrize("name", ["items.jsonl", "edges.csv"])
def test_a_file_that_was_changed_or_is_missing_is_named(tmp_path, name):
    compile_to_folder("sample1", tmp_path / "d")
    path = tmp_path / "d" / name
    path.write_bytes(path.read_bytes()[:-1] + b" ")
    with pytest.raises(InputError, match=f"{name}: changed since it was compiled"):
        read_dataset(tmp_path / "d")
    path.unlink()
    with pytest.raises(InputError, match=f"{name}: missing"):
        read_dataset(tmp_path / "d")


def test_a_manifest_of_another_schema_or_that_points_elsewhere_is_refused(tmp_path):
    compile_to_folder("sample1", tmp_path / "d")
    path = tmp_path / "d" / "manifest.json"
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, "files": {"../x": {"sha256": ""}}}))
    with pytest.raises(InputError, match=r"'../x' is no file of this folder"):
        read_dataset(tmp_path / "d")
    path.write_text(json.dumps({**stored, "schema": 99}))
    with pytest.raises(InputError, match="another version"):
        read_dataset(tmp_path / "d")
    with pytest.raises(InputError, match=r"not a compiled data set \(no manifest.json\)"):
        read_dataset(tmp_path / "nowhere")


def test_compiling_again_leaves_a_whole_folder_alone(tmp_path):
    folder = tmp_path / "d"
    first = compile_to_folder("sample1", folder)
    before = (folder / "pistol.json").stat().st_ino
    assert compile_to_folder("sample1", folder) == first
    assert (folder / "pistol.json").stat().st_ino == before


def test_another_data_set_is_replaced_only_with_fresh(tmp_path):
    folder = tmp_path / "d"
    compile_to_folder("sample1", folder)
    with pytest.raises(InputError, match=r"differs in seed\).*--fresh"):
        compile_to_folder("sample1", folder, seed=1)
    with pytest.raises(InputError, match=r"differs in graph, name"):
        compile_to_folder("sample2", folder)
    assert compile_to_folder("sample1", folder, seed=1, fresh=True)["seed"] == 1
    assert read_dataset(folder).seed == 1


def test_a_folder_of_other_files_is_never_replaced(tmp_path):
    (tmp_path / "thesis.tex").write_text("ten years of work")
    with pytest.raises(InputError, match="holds other files"):
        compile_to_folder("sample1", tmp_path, fresh=True)
    with pytest.raises(InputError, match="a file of that name is in the way"):
        compile_to_folder("sample1", tmp_path / "thesis.tex", fresh=True)
    assert (tmp_path / "thesis.tex").read_text() == "ten years of work"


def test_a_failed_compilation_leaves_the_old_folder(tmp_path, monkeypatch):
    folder = tmp_path / "d"
    compile_to_folder("sample1", folder)
    before = contents(folder)

    def fail(*_):
        raise RuntimeError("pulled the plug")

    monkeypatch.setattr(folders, "edges_csv", fail)
    with pytest.raises(RuntimeError, match="pulled the plug"):
        compile_to_folder("sample1", folder, seed=1, fresh=True)
    assert contents(folder) == before


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
