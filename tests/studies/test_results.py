"""The tables of a study against values worked out by hand; no model is asked."""

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from vestige.artifacts.layout import EvalFolder, StudyFolder
from vestige.artifacts.records import write_collected, write_scores
from vestige.core.errors import InputError
from vestige.core.files import write_jsonl
from vestige.core.items import Item
from vestige.data.folder import CompileSettings, compile_to_folder
from vestige.requests import TINY_FINETUNE
from vestige.steps.engine import Board, StudyCell
from vestige.studies import dose
from vestige.studies.cells import Study, corpus_of
from vestige.studies.results import PooledResults, ResultGroup, ScoreMatrix, _ranked
from vestige.studies.settings import StudySettings
from vestige.studies.tables import latex, markdown, tables_of, write_report

TEXT = """
name = "hand"
seeds = [0, 1, 2]
methods = ["ga"]
forget = ["edge:0_1", "edge:1_2", { name = "both", select = "each:4@1" }]
models = [{ name = "tiny", model = "builtin:tiny" }]
rates = [{ values = [1e-5, 1e-4] }]
data = [{ name = "chain", compile = "chain:4" }]
evaluate = { splits = ["retain"] }
[report]
metrics = ["qa.mrr"]
splits = ["forget", "retain"]
matched = 0.8
contrasts = [["edge:0_1", "edge:1_2"]]
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A finished study with made-up scores."""
    return answered(TEXT, tmp_path_factory.mktemp("study"))


def answered(text: str, folder: Path) -> Study:
    found = Study(StudySettings.build(tomllib.loads(text)), StudyFolder(folder))
    for cell in found.cells:
        if cell.kind == "data":
            compile_to_folder("chain:4", found.folder.dataset("chain"), CompileSettings())
            record(found, cell, {"path": "data/chain"})
    for cell in found.cells:
        if cell.kind == "evaluate":
            answer(found, cell)
    return found


def record(study: Study, cell: StudyCell, made: dict[str, object]) -> None:
    board = Board(study.folder.state)
    lease = board.take(cell.key, 0)
    assert lease is not None
    board.finish(lease, {"seconds": 1.0, "peak_mb": 1, "made": made})


def score(edge: str, at: int, forgotten: str, seed: int, rate: float) -> float:
    """Retained items 0.9 at the low rate and 0.7 at the high one; of forgotten ones those of 1_2 keep more."""
    if edge != forgotten:
        return 0.9 if rate < 5e-5 else 0.7
    own = 0.2 + 0.1 * seed + 0.02 * at / 20
    return own if edge != "1_2" else own + 0.1 + 0.1 * seed


def answer(study: Study, cell: StudyCell) -> None:
    corpus, point = corpus_of(study, "chain"), cell.point
    folder = EvalFolder(study.folder.path / "evals" / cell.key)
    forgotten = point.member.removeprefix("edge:")
    at = {i.id: n % 20 for n, i in enumerate(corpus.items)}
    rows = [
        {"item": i.id, "mrr": score(i.edge or "", at[i.id], forgotten, point.seed, point.rate)} for i in corpus.items
    ]
    write_jsonl(folder.records, rows)
    write_collected(folder, len(rows))
    write_scores(folder, rows)
    record(study, cell, {"evals": {"qa": f"evals/{cell.key}"}})


def test_means_and_spread_over_seeds_are_those_by_hand(study: Study) -> None:
    rows = {(r.forget, r.method, r.rate, r.split): r for r in PooledResults(study).rows}
    one = rows["edge:0_1", "ga", "1e-05", "forget"]
    # Means 0.2 + 0.1 seed, and 0.0095 from the items' places.
    assert (one.value, one.sd) == pytest.approx((0.3095, 0.1))
    assert (one.items, one.seeds, one.sets) == (20, 3, 1)
    assert one.low < 0.3095 - 0.2 < 0.3095 + 0.2 < one.high, "t of 2 degrees of freedom"
    every = rows["both", "ga", "1e-05", "forget"]
    assert (every.items, every.sets) == (80, 4)
    assert ("of 4 clusters" in every.interval, "clusters" in one.interval) == (True, False), "a contract is a cluster"
    # One contract of four keeps 0.1 + 0.1 seed more: 0.05 in the mean, and a spread of 0.125 a seed.
    assert (every.value, every.sd) == pytest.approx((0.3595, 0.125))
    kept = rows["both", "ga", "1e-05", "retain"]
    assert (kept.value, kept.items) == pytest.approx((0.9, 80)), "an item's score is its mean over the models"


def test_the_difference_of_two_contracts_is_paired_by_attribute_and_seed(study: Study) -> None:
    found = [c for c in PooledResults(study).contrasts if c.split == "forget" and c.at.startswith("equal rates")]
    assert [c.rates for c in found] == ["1e-05", "0.0001"]
    # 0.1, 0.2, 0.3 by seed and the same of every item: t = 0.2 / sqrt(0.01 / 3), two degrees of freedom.
    assert (found[0].difference, found[0].t, found[0].df, found[0].p) == pytest.approx(
        (0.2, 3.4641, 2, 0.0742), abs=1e-4
    )
    assert found[0].p_holm == pytest.approx(2 * 0.0742, abs=3e-4), "two tests of one score"


def test_methods_are_compared_at_the_highest_rate_that_keeps_the_utility(study: Study) -> None:
    found = [c for c in PooledResults(study).contrasts if c.split == "forget" and "matched utility" in c.at]
    assert [c.rates for c in found] == ["1e-05"], "0.7 is below 0.8"


def test_two_methods_with_a_rate_each_are_compared_at_those(tmp_path: Path) -> None:
    rates = '[{ values = [1e-5] }, { values = [1e-4], methods = ["gd"] }]'
    text = TEXT.replace('["ga"]', '["ga", "gd"]').replace("[{ values = [1e-5, 1e-4] }]", rates)
    text = text.replace("matched = 0.8\n", "").replace('[["edge:0_1", "edge:1_2"]]', '[["ga", "gd"]]')
    found = [c for c in PooledResults(answered(text, tmp_path)).contrasts if c.split == "retain"]
    assert all(c.at.startswith("each at its rate, forget ") for c in found)
    assert len({c.at for c in found}) == 3, "a row for each forget set, which it names"
    assert {(c.rates, c.method) for c in found} == {("1e-05, 0.0001", "both")}
    assert [c.difference for c in found] == pytest.approx([-0.2] * 3)


def test_a_group_that_lacks_a_member_at_a_seed_is_pooled_over_the_others(study: Study) -> None:
    cell = next(c for c in study.cells if c.kind == "evaluate" and c.point.member == "edge:3_4" and c.point.seed == 2)
    mark = study.folder.state.done / cell.key
    kept = mark.rename(study.folder.path / "aside")
    rows = {(r.forget, r.rate, r.split): r for r in PooledResults(study).rows}
    kept.rename(mark)
    assert rows["both", "1e-05", "forget"].seeds == 2
    assert rows["edge:0_1", "1e-05", "forget"].seeds == 3


def test_tables_escape_what_acts_and_come_out_the_same(study: Study) -> None:
    paths = write_report(study)
    before = {p: p.read_bytes() for p in paths}
    assert {p: p.read_bytes() for p in write_report(study)} == before
    assert sum(p.suffix == ".svg" for p in paths) == 2
    table = tables_of(PooledResults(study))[0]._replace(rows=(("a|b<script>", "$x_1$ & \\", "", "", "", ""),))
    assert "a\\|b\\<script\\>" in markdown(table)
    assert r"\$x\_1\$ \& \textbackslash{}" in latex(table)
    rows = pq.read_table(next(p for p in paths if p.suffix == ".parquet")).to_pylist()
    assert len(rows) == 80 * 3 * 3 * (1 + 1 + 4), "items, seeds, target and two rates, members"
    mean = np.mean([r["qa.mrr"] for r in rows if r["splits"] == "forget" and r["rate"] == "1e-05"])
    assert mean == pytest.approx(0.3095 + 0.2 * 2 / 6), "two of six sets are the contract that keeps more"


def test_one_table_has_all_scores_and_a_table_of_differences_says_what_it_shows(study: Study) -> None:
    scores, *differences = tables_of(PooledResults(study))
    metrics = study.settings.report.metrics
    shown = [name for name in scores.head if ": " in name]
    assert len(shown) == len(metrics) * len({name.partition(":")[0] for name in shown})
    assert all(len(row) == len(scores.head) for row in scores.rows)
    # Two differences of the forget set, 0.2 each at p = 0.0742.
    lead = next(t.lead for t in differences if "forget;" in t.title)
    assert lead.startswith("edge:1_2 less edge:0_1: above 0 in 2 of 2 comparisons and below in 0; p < 0.05 in 0, after")
    assert lead.translate(str.maketrans({"<": "\\<", "_": "\\_"})) in markdown(differences[0])


def test_an_ignorant_target_and_a_goal_out_of_reach_are_told_beside_the_numbers(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PooledResults(study).warnings == ()
    goal = '[{ values = [1e-5, 1e-4], goal = "retain>=0.95" }]'
    monkeypatch.setattr(sys.modules[__name__], "score", lambda *_: 0.01)
    text = TEXT.replace("[{ values = [1e-5, 1e-4] }]", goal)
    other = Study(StudySettings.build(tomllib.loads(text)), StudyFolder(tmp_path))
    for cell in other.cells:
        if cell.kind == "calibrate":
            record(other, cell, {"rate": 1e-4, "reached": False})
    results = PooledResults(answered(text, tmp_path))
    ignorant, *missed = results.warnings[:1], *results.warnings[-3:]
    assert "scores 0.01 in qa.mrr on what edge:0_1 names in chain" in ignorant[0]
    assert all("ga did not reach the goal retain>=0.95" in sentence for sentence in missed)
    table = tables_of(results)[0]
    assert table.notes == results.warnings
    assert {row[2] for row in table.rows if row[1] == "ga"} == {"0.0001 (retain>=0.95 not reached)"}
    assert {(row.rate, row.chosen) for row in results.rows if row.method == "ga"} == {
        ("retain>=0.95", "0.0001 (retain>=0.95 not reached)")
    }


def test_the_tiny_model_is_taught_in_a_study_as_by_finetune(study: Study) -> None:
    model, data = study.settings.models[0], study.settings.data[0]
    assert study.settings.teaching(model, data) == TINY_FINETUNE


RANKED = TEXT.replace('["ga"]', '["ga", "gd", "npo"]').replace("[{ values = [1e-5, 1e-4] }]", "[{ values = [1e-5] }]")
RANKED = RANKED.replace("matched = 0.8", 'rank = "qa.mrr"').replace('contrasts = [["edge:0_1", "edge:1_2"]]', "")


def rank_score(method: str, forgotten: bool, seed: int, at: int) -> float:
    """gd is clearly best; ga and npo keep and leave the same but for what a seed does."""
    level = {"gd": 0.1, "ga": 0.4 + 0.02 * seed, "npo": 0.45 - 0.02 * seed}[method] if forgotten else 0.9
    return level + 0.01 * (at % 3)


def test_methods_are_ranked_by_what_they_keep_less_what_they_leave_and_ties_are_said(tmp_path, monkeypatch) -> None:
    def row_score(edge: str, at: int, forgotten: str, seed: int, rate: float) -> float:
        return rank_score(current[0], edge == forgotten, seed, at)

    current: list[str] = []
    whole = answer

    def of_method(study: Study, cell: StudyCell) -> None:
        current[:] = [cell.point.method]
        whole(study, cell)

    monkeypatch.setitem(globals(), "score", row_score)
    monkeypatch.setitem(globals(), "answer", of_method)
    study = answered(RANKED, tmp_path)
    ranks = [r for r in PooledResults(study).ranks if r.forget == "edge:0_1"]
    assert [(r.method, r.rank, r.rank_low, r.rank_high) for r in ranks] == [
        ("gd", 1, 1, 1),
        ("ga", 2, 2, 3),
        ("npo", 3, 2, 3),
    ]
    first = ranks[0]
    # Places 0 to 19 add 0.01 x (0, 1, 2, ...): 0.0095 in the mean, to what is kept and to what is left.
    assert (first.leak, first.balance, first.seeds) == (pytest.approx(0.1095), pytest.approx(0.8), 3)
    assert first.p_against_first is None
    assert ranks[1].p_against_first < 0.05
    text = "\n".join(map(markdown, tables_of(PooledResults(study))))
    assert "edge:0\\_1: gd 1e-05 comes first, told apart from all others." in text
    assert "| 2 (2 to 3) |" in text
    names = [path.name for path in write_report(study)]
    assert "ranks.csv" in names
    assert any(name.startswith("tradeoff-tiny") for name in names)


def test_a_method_that_is_worse_on_every_shared_seed_is_not_first_by_seeds_that_the_other_lacks() -> None:
    rng = np.random.default_rng(0)

    def matrix(levels: Sequence[float], kind: str) -> ScoreMatrix:
        values = np.array(levels)[:, None] + 0.02 * rng.standard_normal((len(levels), 40))
        return ScoreMatrix(values, tuple("01234"[: len(levels)]), tuple(Item(f"{kind}{n}?", "x") for n in range(40)))

    long, short = (ResultGroup("m", "d", "f", name, "1e-5") for name in ("long", "short"))
    scores = {
        long: (matrix([0.50, 0.51, 0.49, 0.95, 0.95], "r"), matrix([0.1] * 5, "f")),
        short: (matrix([0.62, 0.63, 0.61], "r"), matrix([0.1] * 3, "f")),
    }
    places = [(row.method, row.rank_low, row.rank_high) for row in _ranked(scores, "qa.mrr")]
    assert places == [("short", 1, 1), ("long", 2, 2)]


def test_one_seed_ranks_nothing_and_a_rank_by_what_nobody_asked_is_refused(tmp_path: Path) -> None:
    text = RANKED.replace("seeds = [0, 1, 2]", "seeds = [0]").replace('"ga", "gd", "npo"', '"ga", "gd"')
    found = PooledResults(answered(text, tmp_path / "one"))
    assert {(r.rank_low, r.rank_high, r.p_against_first) for r in found.ranks} == {(1, 2, None)}
    assert "one seed" in "\n".join(map(markdown, tables_of(found)))
    with pytest.raises(InputError, match=r"the report names 'choices.accuracy', and evaluate.evals has no 'choices'"):
        StudySettings.build(tomllib.loads(text.replace('rank = "qa.mrr"', 'rank = "choices.accuracy"'))).check()


def test_what_is_left_by_connectivity_is_a_slope_over_contracts(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dose.doses(PooledResults(study)) == (), "four contracts are too few"
    monkeypatch.setattr(dose, "LEAST_CONTRACTS", 4)
    rows = {(r.rate, r.split): r for r in dose.doses(PooledResults(study))}
    # Means over seeds 0.3095, 0.5095, 0.3095, 0.3095 at 2, 3, 3, 2 neighbours: slope 0.1, residuals 0, 0.1, -0.1, 0, so
    # the error is sqrt(0.02 / 2 / 1). A contract that is in two forget sets counts once.
    found = rows["1e-05", "forget"]
    assert (found.slope, found.t, found.df) == pytest.approx((0.1, 1.0, 2))
    assert (found.contracts, found.trainings, found.least, found.most) == (4, 3, 2, 3)
    assert rows["1e-05", "retain"].p is None, "0.9 of every contract"
    (table,) = (t for t in tables_of(PooledResults(study)) if t.title.startswith("Connectivity as a dose"))
    assert table.rows[0][4:6] == ("+0.1000 [-0.3303, 0.5303]", "1.00 (2)"), "t of two degrees is 4.3027"
