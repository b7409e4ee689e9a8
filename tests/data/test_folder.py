"""Data sets on disk: compiled folders are the same bytes twice, and come back whole."""

import csv
import hashlib
import json

import networkx as nx
import pytest

from vestige.core.errors import InputError
from vestige.data import dataset as folders
from vestige.data.corpus import SourceSettings, open_corpus
from vestige.data.dataset import compile_dataset, compile_to_folder, read_dataset, write_dataset
from vestige.data.graph import Edge, build_graph


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
    assert {"edges.csv", "items.jsonl", "contracts.jsonl", "holdout.jsonl", "graph.json"} < set(found)
    for name, facts in manifest["files"].items():
        assert facts == {"sha256": hashlib.sha256(found[name]).hexdigest(), "bytes": len(found[name])}
    assert (json.loads(found["manifest.json"]), manifest["counts"]["items"]) == (manifest, 400)
    assert manifest["connectivity"]["sales"] == {"contracts": 10, "mean": 6.5, "least": 2, "greatest": 14}
    # sales: 14 + 3 * 8 + 3 * 7 + 3 * 2 = 65 over 10


def test_the_same_settings_give_the_same_bytes(compiled, tmp_path):
    compile_to_folder("sample1", tmp_path / "again")
    assert contents(tmp_path / "again") == contents(compiled[0])
    compile_to_folder("sample1", tmp_path / "other", seed=1)
    assert contents(tmp_path / "other")["items.jsonl"] != contents(compiled[0])["items.jsonl"]


def test_edges_csv_has_the_columns_that_others_rely_on(compiled):
    folder, _ = compiled
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


def test_hostile_labels_are_written_and_read_back(tmp_path):
    graph = build_graph("g", [Edge('q"uote', "back\\slash"), Edge("100%", "{x}"), Edge("né", "东")])
    compile_to_folder(graph, tmp_path / "d")
    edges = dict.fromkeys(json.loads(line)["edge"] for line in (tmp_path / "d" / "items.jsonl").open())
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
    with pytest.raises(InputError, match=r"'../x' is not a file of this folder"):
        read_dataset(tmp_path / "d")
    path.write_text(json.dumps({**stored, "schema": 99}))
    with pytest.raises(InputError, match="another version"):
        read_dataset(tmp_path / "d")
    with pytest.raises(InputError, match=r"not a compiled data set \(no manifest.json\)"):
        read_dataset(tmp_path / "nowhere")


def test_compiling_again_leaves_a_whole_folder_alone(tmp_path):
    folder = tmp_path / "d"
    first = compile_to_folder("sample1", folder)
    before = (folder / "items.jsonl").stat().st_ino
    assert compile_to_folder("sample1", folder) == first
    assert (folder / "items.jsonl").stat().st_ino == before


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
    with pytest.raises(InputError, match="contains other files"):
        compile_to_folder("sample1", tmp_path, fresh=True)
    with pytest.raises(InputError, match="a file with this name exists"):
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
