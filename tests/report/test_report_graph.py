import math

import pytest
from synthetic_run import write_run

from vestige.artifacts.layout import RunFolder
from vestige.core.errors import InputError
from vestige.core.files import write_text
from vestige.report import build_report
from vestige.report.graph import DRAWN_EDGES, DrawnEdge, draw, read_edges

SAMPLE = [("A_B", "A", "B"), ("A_C", "A", "C"), ("E_F", "E", "F"), ("E_q", "E", "q")]


def edge(id_: str, first: str, second: str, kind: str = "sales") -> DrawnEdge:
    return DrawnEdge(id_, kind, first, second, None, None)


EDGES = tuple(edge(*row) for row in SAMPLE)


def edges_file(path, text):
    run = RunFolder(path)
    write_text(run.data / "edges.csv", text)
    return run


HEAD = "edge,type,connectivity,n_entailed,first,second\n"


def test_an_edge_is_what_its_row_says_and_an_empty_cell_is_not_known(tmp_path):
    edges, why = read_edges(edges_file(tmp_path, f"{HEAD}A_B,sales,3,,Alpha,Beta\n"))
    assert edges == (DrawnEdge("A_B", "sales", "Alpha", "Beta", 3, None),)
    assert why == ""


@pytest.mark.parametrize(("text", "why"), [(f"{HEAD}x,,,,A,A\n", "joins a party with itself"), (HEAD, "has no edges")])
def test_a_graph_that_cannot_be_drawn_says_why(tmp_path, text, why):
    assert why in read_edges(edges_file(tmp_path, text))[1]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("contract\nA_B\n", r"edges.csv, line 2: no row of the compiler's table \('first'\)"),
        (f"{HEAD}A_B,,1,,A,B\nA_C,,many,,A,C\n", "line 3: .*'many'"),
        (f"{HEAD},sales,,,A,B\n", "line 2: .*an edge without an id"),
        (f"{HEAD}A_B,sales,,,A,\n", "line 2: .*or a party"),
        (f"{HEAD}A_B\n", "line 2: .*or a party"),
    ],
)
def test_a_broken_table_of_edges_is_refused_by_line_and_column(tmp_path, text, named):
    with pytest.raises(InputError, match=named):
        read_edges(edges_file(tmp_path, text))


@pytest.mark.slow
def test_a_run_on_data_without_a_graph_has_no_drawing_and_says_so(tmp_path):
    run = RunFolder(write_run(tmp_path / "demo", forgets=("edge:A_B",)))
    (run.data / "edges.csv").unlink()
    page = build_report(run.path).read_text(encoding="utf-8")
    # A part without content is left out, of the navigation too.
    assert 'id="graph"' not in page
    assert 'href="#graph"' not in page
    assert '"graph":null' in page


def test_every_party_has_a_place_of_its_own_inside_the_drawing():
    drawing = draw(EDGES, ["A_B"])
    points = list(drawing.positions.values())
    assert set(drawing.positions) == {"A", "B", "C", "E", "F", "q"}
    assert all(0 <= x <= drawing.width and 0 <= y <= drawing.height for x, y in points)
    assert min(math.dist(p, q) for i, p in enumerate(points) for q in points[:i]) > 0.4


def test_the_same_edges_are_drawn_the_same_whatever_their_order():
    assert draw(EDGES, []).positions == draw(EDGES[::-1], []).positions


def test_parallel_edges_are_bent_apart_even_when_given_the_other_way_round():
    three = (edge("1", "A", "B"), edge("2", "B", "A"), edge("3", "A", "B"))
    assert draw(three, []).bends == (-1.0, 0.0, 1.0)
    two = (edge("1", "A", "B"), edge("2", "B", "A"))
    # The second is bent by +1/2 as seen from A, which is -1/2 along its own direction.
    assert draw(two, []).bends == (-0.5, -0.5)


def test_of_a_large_graph_the_edges_nearest_to_the_forget_set_are_drawn():
    chain = tuple(edge(f"e{i}", f"n{i:04}", f"n{i + 1:04}") for i in range(3 * DRAWN_EDGES))
    drawing = draw(chain, [f"e{2 * DRAWN_EDGES}"])
    numbers = [int(e.id[1:]) for e in drawing.edges]
    assert len(numbers) == DRAWN_EDGES
    assert drawing.left_out == 2 * DRAWN_EDGES
    assert min(numbers) >= 2 * DRAWN_EDGES - DRAWN_EDGES // 2 - 1
    assert max(numbers) <= 2 * DRAWN_EDGES + DRAWN_EDGES // 2 + 1
