"""Which split an item is shown to be of, what estimates are read against, and edges in words."""

import pytest
from synthetic_run import SELECTOR, spec, write_run

from vestige.artifacts.layout import EvalFolder, RunFolder
from vestige.artifacts.records import note_bytes
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.core.files import read_json, write_json, write_text
from vestige.report.contents import NamedEdge, read_contents, read_edges
from vestige.report.evidence import AskedItem, RunAnswers, RunEvidence, RunModel, forget_set, greedy_rouge, split_of
from vestige.report.page import render

FORGET = SELECTOR
ITEMS = frozenset(spec("retrained", FORGET).forgotten[0].items)
ASKED = {
    id_: AskedItem(id_, "q", "a", edge, group, "")
    for id_, edge, group in [
        ("f", "A_B", "sales"),
        ("r", "A_C", "sales"),
        ("i", "E_F", "sales"),
        ("c", "", "factual"),
        ("n", "G_H", "sales"),
    ]
}
SPLITS = {"forget": ("f",), "retain": ("r", "i"), "independent": ("i",), "independent_sales": ("i",), "factual": ("c",)}


def subject(label, splits=None, role="target", places=None):
    views = {} if splits is None else {FORGET: splits}
    own = spec(role, "" if role == "target" else FORGET, "ga" if role == "unlearned" else "")
    results, asked = ({FORGET: places}, {FORGET: ITEMS}) if places else ({}, {})
    return RunModel(label, label, own, None, None, None, results, views, asked)


def forget_set_of(*splits, subjects=()):
    subjects = subjects or [subject(str(number), own) for number, own in enumerate(splits)]
    evidence = RunEvidence("run", {}, {}, tuple(subjects), (FORGET,), (), {FORGET: ITEMS})
    return forget_set(evidence, RunAnswers(tuple(ASKED.values()), {}), FORGET)


def estimate(value, low, high, n=20):
    return Estimate("rouge1_recall", "share", value, low, high, n, "by hand")


def places(forget, free=None):
    return {greedy_rouge("all"): forget} | ({greedy_rouge("free"): free} if free else {})


def test_free_answers_are_shown_only_where_every_model_has_them():
    high, low, free = estimate(1.0, 0.9, 1.0), estimate(0.3, 0.2, 0.4), estimate(0.1, 0.0, 0.2)
    target = subject("target", places=places(high, high))
    models = [target, subject("retrained", role="retrained", places=places(low, free))]
    method = subject("ga", role="unlearned", places=places(low, free))
    without = subject("gd", role="unlearned", places=places(low))
    found = forget_set_of(subjects=[*models, method])
    assert found.scope == "free"
    found = forget_set_of(subjects=[*models, method, without])
    assert found.scope == "all"


def test_an_independent_item_is_not_called_retain_and_one_of_no_split_is_unknown():
    found = forget_set_of(SPLITS)
    assert {id_: split_of(item, found) for id_, item in ASKED.items()} == {
        "f": "forget",
        "r": "retain",
        "i": "independent",
        "c": "factual",
        "n": "unknown",
    }
    assert found.edges == {"A_B"}
    assert found.dispute == ""


def test_a_subject_that_was_asked_less_changes_nothing_in_what_all_agree_on():
    assert forget_set_of({"forget": ("f",)}, SPLITS, None) == forget_set_of(SPLITS)


def test_an_item_in_different_splits_of_two_subjects_is_unknown_and_counted():
    # The second forgets r and keeps f, as another seed of the same selector would have it.
    found = forget_set_of(SPLITS, {**SPLITS, "forget": ("r",), "retain": ("f", "i")})
    assert [split_of(ASKED[i], found) for i in ("f", "r", "i")] == ["unknown", "unknown", "independent"]
    assert found.edges == frozenset()
    assert found.dispute.startswith("2 questions stand in one split for one model and in another for another")


def test_the_edges_of_a_forget_set_that_nobody_was_evaluated_on_are_not_known():
    assert forget_set_of(None).edges is None
    # Items without an edge can be forgotten as well: then no edge of the graph is.
    assert forget_set_of({"forget": ("c",)}).edges == frozenset()


@pytest.mark.slow
def test_a_dispute_between_evaluations_is_a_remark(tmp_path):
    run = RunFolder(write_run(tmp_path / "demo", forgets=("edge:A_B",)))
    assert "2 questions stand" not in render(read_contents(run))
    path = next(run.path.glob("cells/ga-*/evals/*/summary-*.json"))
    stored = read_json(path)
    stored["splits"]["forget"] += stored["splits"]["retain"][:2]
    write_json(path, stored)
    note_bytes(EvalFolder(path.parent), path)
    assert "<li>2 questions stand" in render(read_contents(run))


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
        ("contract\nA_B\n", r"edges.csv, line 2: not a row of the compiler's table \('first'\)"),
        (f"{HEAD},sales,,,A,B\n", "line 2: .*an edge without an id"),
        (f"{HEAD}A_B,sales,,,A,\n", "line 2: .*or a party"),
        (f"{HEAD}A_B\n", "line 2: .*or a party"),
    ],
)
def test_a_broken_table_of_edges_is_refused_by_line_and_column(tmp_path, text, named):
    with pytest.raises(InputError, match=named):
        read_edges(edges_file(tmp_path, text))
