"""Graphs, by name and from files: degrees, connectivity, components, ids, refusals. Oracles: PISTOL's samples."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vestige.core.errors import InputError
from vestige.data.graph import FAMILIES, Edge, build_graph, load_graph, named_graph, read_graph


def test_sample1_has_pistols_edges_in_pistols_order():
    graph = named_graph("sample1", seed=0)
    assert (len(graph.nodes), len(graph.edges)) == (24, 20)
    sales = ["A_B", "A_C", "A_C2", "A_C3", "B_D", "B_D2", "B_D3", "E1_F1", "E2_F2", "E3_F3"]
    employment = ["A_m", "A_n", "A_n2", "A_n3", "B_p", "B_p2", "B_p3", "E1_q1", "E2_q2", "E3_q3"]
    assert list(graph.edges) == sales + employment
    assert [edge.type for edge in graph.edges.values()] == ["sales"] * 10 + ["employment"] * 10


@pytest.mark.parametrize(
    ("name", "edge", "expected"),
    [
        ("sample1", "A_B", 14),  # A signs 8 contracts and B 7: 8 + 7 - 1
        ("sample1", "A_C", 8),
        ("sample1", "A_n", 8),
        ("sample1", "B_D", 7),
        ("sample1", "E1_F1", 2),  # E1 signs two, F1 one
        ("sample2", "0_1", 2),
        ("sample2", "1_2", 3),
        ("sample2", "10_11", 7),
        ("sample2", "11_12", 9),
        ("sample2", "10_19", 5),
        ("sample2", "14_15", 5),
        ("sample2", "20_21", 17),
        ("sample2", "28_29", 17),
    ],
)
def test_connectivity_is_the_end_degrees_less_one(name, edge, expected):
    assert named_graph(name, seed=0).connectivity[edge] == expected


def test_mean_connectivity_of_sample2s_parts():
    graph = named_graph("sample2", seed=0)
    assert (len(graph.nodes), len(graph.edges)) == (30, 75)
    parts = {c: [graph.connectivity[e] for e, part in graph.components.items() if part == c] for c in (1, 2, 3)}
    # sparse: 2 end edges of 1 + 2 - 1 and 7 inner ones of 2 + 2 - 1: (4 + 21) / 9 = 2.778
    # semi-dense: sum of deg^2 over nodes is 4 * 9 + 6 * 25 = 186, less 21, over 21 = 7.857
    assert [sum(p) / len(p) for p in parts.values()] == pytest.approx([25 / 9, 165 / 21, 17.0])
    assert [len(p) for p in parts.values()] == [9, 21, 45]
    assert graph.parts == {1: "sparse", 2: "semi-dense", 3: "dense"}
    assert len({edge.pair for edge in graph.edges.values()}) == 75


def test_components_are_numbered_by_first_appearance():
    graph = build_graph("g", [Edge("x", "y"), Edge("p", "q"), Edge("y", "z"), Edge("s", "t"), Edge("q", "r")])
    assert list(graph.components.values()) == [1, 2, 1, 3, 2]
    assert list(named_graph("sample1", seed=0).components.values()) == [1] * 7 + [2, 3, 4] + [1] * 7 + [2, 3, 4]


def test_parallel_edges_count_for_the_degree_and_get_ids_of_their_own():
    graph = build_graph("g", [Edge("A", "B"), Edge("B", "A"), Edge("A", "B"), Edge("B", "C")])
    assert list(graph.edges) == ["A_B", "B_A~2", "A_B~3", "B_C"]
    assert graph.degrees == {"A": 3, "B": 4, "C": 1}
    assert list(graph.connectivity.values()) == [6, 6, 6, 4]


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        ([Edge("A", "A")], "with itself"),
        ([], "no edges"),
        ([Edge("A", "B", id="x"), Edge("A", "C", id="x")], "two edges have the id"),
        ([Edge("a_b", "c"), Edge("a", "b_c")], "two edges have the id"),
        ([Edge("A", "B", type="Sales")], "lower-case"),
        ([Edge("A", "B,C")], "no comma"),
        ([Edge("=1+1", "B")], "does not begin"),
        ([Edge("A", "B\x1b[31m")], "printable"),
        ([Edge("A", "B", id="holdout-sales_1")], "must not begin with"),
        ([Edge("holdout-a", "B")], "must not begin with"),
        ([Edge("A", "x" * 101)], "100"),
    ],
)
def test_a_graph_that_cannot_be_used_is_refused(edges, words):
    with pytest.raises(InputError, match=words):
        build_graph("g", edges)


def test_an_error_shows_hostile_labels_without_acting_on_them():
    with pytest.raises(InputError) as caught:
        build_graph("g", [Edge("A", "\x1b[2J\u202eB")])
    assert "\x1b" not in str(caught.value)
    assert "\u202e" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "nodes", "degrees"),
    [
        ("star:4", 5, [4, 1, 1, 1, 1]),
        ("chain:3", 4, [1, 2, 2, 1]),
        ("tree:6", 7, [2, 3, 3, 1, 1, 1, 1]),
        ("complete:6", 4, [3, 3, 3, 3]),
    ],
)
def test_families_by_hand(name, nodes, degrees):
    graph = named_graph(name, seed=0)
    assert graph.nodes == tuple(map(str, range(nodes)))
    assert [graph.degrees[node] for node in graph.nodes] == degrees


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_family_has_just_the_edges_asked_for_and_hangs_together(family):
    for size in (10, 66, 120):  # triangular, so that every family has them
        graph = named_graph(f"{family}:{size}", seed=1)
        assert len(graph.edges) == size
        assert len({edge.pair for edge in graph.edges.values()}) == size, "no parallel edges"
        assert {*graph.degrees} == {*graph.nodes}, "no node without a contract"
        assert {*graph.components.values()} == {1}


def test_scale_free_graphs_have_hubs_and_follow_the_seed():
    graph = named_graph("scale-free:2000", seed=0)
    # 1001 nodes of mean degree 4; the largest grows with the square root of their number.
    assert max(graph.degrees.values()) > 30
    assert named_graph("scale-free:2000", seed=0).digest == graph.digest
    assert named_graph("scale-free:2000", seed=1).digest != graph.digest


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sample3", "Did you mean 'sample"),
        ("star", "number of edges"),
        ("star:0", "number of edges"),
        ("star:1e3", "number of edges"),
        ("star:٣", "number of edges"),
        ("complete:50", "45 and 55"),
        ("no/such.csv", "cannot be read"),
        ("graph.parquet", r"Or give a file \(.csv"),
    ],
)
def test_a_graph_that_is_not_known_is_refused_with_a_hint(name, words):
    with pytest.raises(InputError, match=words):
        load_graph(name, seed=0)


ROWS = [("B", "A", "sales"), ("A", "m", "employment"), ("A", "C", "sales")]


def rows_of(graph):
    return [edge[:3] for edge in graph.edges.values()]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("g.csv", "\ufeffsource,target,type\nB,A,sales\nA,m,employment\nA,C,\n"),
        ("g.csv", "edge,type,connectivity,first,second\nB_A,sales,1,B,A\nA_m,employment,2,A,m\nA_C,sales,3,A,C\n"),
        ("g.tsv", "from\tto\ttype\nB\tA\tsales\nA\tm\temployment\nA\tC\tsales\n"),
    ],
)
def test_every_form_keeps_order_ends_and_types(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    assert rows_of(read_graph(path)) == ROWS


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("g.csv", b"", "the file is empty"),
        ("g.csv", b"source,target\n", "has no rows"),
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
