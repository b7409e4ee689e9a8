"""Graphs from files: forms, orientation, order, and mistakes with their place."""

import json

import networkx as nx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vestige.core.errors import InputError
from vestige.data.graph import Edge, build_graph, from_networkx, read_graph

ROWS = [("B", "A", "sales"), ("A", "m", "employment"), ("A", "C", "sales")]


def rows_of(graph):
    return [edge[:3] for edge in graph.edges.values()]


def networkx_graph(rows):
    graph = nx.MultiDiGraph()
    for first, second, type_ in rows:
        graph.add_edge(first, second, type=type_)
    return graph


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("g.csv", "B,A,sales\nA,m,employment\nA,C\n"),
        ("g.csv", "\ufeffsource,target,type\nB,A,sales\nA,m,employment\nA,C,\n"),
        (
            "g.csv",
            "edge,type,connectivity,first,second\nB_A,sales,1,B,A\nA_m,employment,2,A,m\nA_C,sales,3,A,C\n",
        ),
        ("g.tsv", "from\tto\ttype\nB\tA\tsales\nA\tm\temployment\nA\tC\tsales\n"),
        (
            "g.json",
            json.dumps(
                {
                    "nodes": [{"id": "A"}, {"id": "B"}],
                    "links": [{"source": a, "target": b, "type": t} for a, b, t in ROWS],
                }
            ),
        ),
    ],
)
def test_every_form_keeps_order_ends_and_types(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    assert rows_of(read_graph(path)) == ROWS


@pytest.mark.parametrize("directed", [True, False])
def test_what_networkx_writes_is_read_as_networkx_reads_it(tmp_path, directed):
    graph = networkx_graph(ROWS) if directed else networkx_graph(ROWS).to_undirected()
    (tmp_path / "g.json").write_text(json.dumps(nx.node_link_data(graph, edges="edges")))
    expected = {(frozenset((a, b)), t) for a, b, t in ROWS}
    assert {(frozenset((a, b)), t) for a, b, t in rows_of(read_graph(tmp_path / "g.json"))} == expected
    assert {(frozenset((a, b)), t) for a, b, t in rows_of(from_networkx(graph))} == expected


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("g.csv", b"", "no edges"),
        ("g.csv", b"A,B\nC\n", "line 2: a contract needs two parties"),
        ("g.csv", b'A,"B\n', "line 1: cannot be split into cells"),
        ("g.csv", b"A,\xff\n", "line 1: not UTF-8 text"),
        ("g.json", b'{"edges": [{"source": "A"}]}', "edge 1: a contract needs two parties"),
        ("g.json", b'[{"question": "?"}]', "a list 'edges'"),
        ("g.json", b'{"edges": [}', "line 1, column 12: not JSON"),
        ("g.json", b'{"edges": [{"source": "A", "target": "B", "type": []}]}', "its type is"),
    ],
)
def test_a_mistake_in_a_file_is_said_with_its_place(tmp_path, name, content, words):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        read_graph(path)
    assert name in str(caught.value)


LABELS = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=8).filter(
    lambda t: not set(t) & set(',"#{') and t[0] not in "=+-@" and t.isprintable() and t == t.strip()
)


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pairs=st.lists(st.tuples(LABELS, LABELS).filter(lambda p: p[0] != p[1]), min_size=1, max_size=6))
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".json"])
def test_a_graph_comes_back_from_every_form(tmp_path, suffix, pairs):
    rows = [(f"n{a}", f"n{b}") for a, b in pairs]
    try:
        expected = build_graph("g", [Edge(a, b) for a, b in rows])
    except InputError:
        return  # two pairs whose ids are the same
    joined = {".csv": ",", ".tsv": "\t"}.get(suffix)
    if joined is None:
        content = json.dumps({"edges": [{"source": a, "target": b} for a, b in rows]})
    else:
        content = "".join(f"{a}{joined}{b}\n" for a, b in rows)
    path = tmp_path / f"g{suffix}"
    path.write_text(content, encoding="utf-8", newline="")
    assert rows_of(read_graph(path)) == rows_of(expected)
