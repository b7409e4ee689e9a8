"""Graphs from files: forms, orientation, order, and mistakes with their place."""

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
        ("g.csv", "\ufeffsource,target,type\nB,A,sales\nA,m,employment\nA,C,\n"),
        (
            "g.csv",
            "edge,type,connectivity,first,second\nB_A,sales,1,B,A\nA_m,employment,2,A,m\nA_C,sales,3,A,C\n",
        ),
        ("g.tsv", "from\tto\ttype\nB\tA\tsales\nA\tm\temployment\nA\tC\tsales\n"),
    ],
)
def test_every_form_keeps_order_ends_and_types(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    assert rows_of(read_graph(path)) == ROWS


@pytest.mark.parametrize("directed", [True, False])
def test_a_networkx_graph_keeps_pairs_and_types(directed):
    graph = networkx_graph(ROWS) if directed else networkx_graph(ROWS).to_undirected()
    expected = {(frozenset((a, b)), t) for a, b, t in ROWS}
    assert {(frozenset((a, b)), t) for a, b, t in rows_of(from_networkx(graph))} == expected


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("g.csv", b"", "the file is empty"),
        ("g.csv", b"source,target\n", "holds no rows"),
        ("g.csv", b"A,B\nB,C\n", "line 1: no columns source and target"),
        ("g.csv", b"source,target\nC,\n", "line 2: a contract needs two parties"),
        ("g.csv", b"source,target\nC\n", "line 2: has 1 cells where the header has 2"),
        ("g.csv", b'A,"B\n', "line 1: cannot be split into cells"),
        ("g.csv", b"A,\xff\n", "line 1: not UTF-8 text"),
        ("g.json", b'{"edges": []}', "a graph file ends in .csv or .tsv"),
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
@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_a_graph_comes_back_from_every_form(tmp_path, suffix, pairs):
    rows = [(f"n{a}", f"n{b}") for a, b in pairs]
    try:
        expected = build_graph("g", [Edge(a, b) for a, b in rows])
    except InputError:
        return  # two pairs whose ids are the same
    joined = "," if suffix == ".csv" else "\t"
    content = f"source{joined}target\n" + "".join(f"{a}{joined}{b}\n" for a, b in rows)
    path = tmp_path / f"g{suffix}"
    path.write_text(content, encoding="utf-8", newline="")
    assert rows_of(read_graph(path)) == rows_of(expected)
