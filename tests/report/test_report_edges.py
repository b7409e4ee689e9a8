import pytest

from vestige.artifacts.layout import RunFolder
from vestige.core.errors import InputError
from vestige.core.files import write_text
from vestige.report.edges import NamedEdge, read_edges


def edges_file(path, text):
    run = RunFolder(path)
    write_text(run.data / "edges.csv", text)
    return run


HEAD = "edge,type,connectivity,n_entailed,first,second\n"


def test_an_edge_is_what_its_row_says_and_a_name_needs_both_parties(tmp_path):
    run = edges_file(tmp_path, f"{HEAD}A_B,sales,3,,A,B\nA_C,sales,3,,A,C\n")
    write_text(run.graph, '{"nodes": [{"id": "A", "name": "Alpha"}, {"id": "B", "name": "Beta"}, {"id": "C"}]}')
    assert read_edges(run) == (
        NamedEdge("A_B", "Alpha and Beta", ("Alpha", "Beta")),
        NamedEdge("A_C", "", ("Alpha", "")),
    )


def test_data_without_a_table_of_edges_has_none(tmp_path):
    assert read_edges(RunFolder(tmp_path)) == ()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("contract\nA_B\n", r"edges.csv, line 2: no row of the compiler's table \('first'\)"),
        (f"{HEAD},sales,,,A,B\n", "line 2: .*an edge without an id"),
        (f"{HEAD}A_B,sales,,,A,\n", "line 2: .*or a party"),
        (f"{HEAD}A_B\n", "line 2: .*or a party"),
    ],
)
def test_a_broken_table_of_edges_is_refused_by_line_and_column(tmp_path, text, named):
    with pytest.raises(InputError, match=named):
        read_edges(edges_file(tmp_path, text))
