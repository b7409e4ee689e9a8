import math
from dataclasses import replace

import pytest
from reading import table
from synthetic_run import ANSI, FORMULA, LONG, NUL, RETURNS, items, spec, write_run, write_subject

from vestige.artifacts.layout import RunFolder
from vestige.artifacts.own_files import is_own
from vestige.core.files import read_jsonl
from vestige.report import build_report
from vestige.report.tables import ITEM_COLUMNS, RESULT_COLUMNS

pytestmark = pytest.mark.slow


def test_the_columns_of_the_results_are_those_that_outside_tools_rely_on(run):
    header = (run / "tables" / "results.csv").read_text(encoding="utf-8").splitlines()[0]
    assert header == ",".join(RESULT_COLUMNS)
    assert header == (
        "model,subject,method,seed,settings_id,forget,split,scope,format,attack,metric,unit,value,low,high,n,"
        "evaluation,items"
    )


def test_the_results_hold_every_estimate_in_full(run):
    rows = table(run, "results.csv")
    # base and target are seen from two forget sets each, two retrained and eight unlearned from one.
    summaries = 2 * 2 + 2 + 8
    # 20 edges, forget x 4 (all and three scopes), retain, independent and its two types, factual; 7 metrics.
    assert len(rows) == summaries * (20 + 4 + 1 + 3 + 1) * 7
    own = [
        r
        for r in rows
        if (r["subject"], r["forget"], r["split"], r["scope"]) == ("retrained", "edge:A_B", "forget", "all")
    ]
    rouge = next(r for r in own if r["metric"] == "rouge1_recall")
    scored = [
        s["rouge1_recall"]
        for r, s in zip(
            read_jsonl(next(run.glob("models/retrained-edge=A_B/evals/*/records.jsonl"))),
            read_jsonl(next(run.glob("models/retrained-edge=A_B/evals/*/scores.jsonl"))),
            strict=True,
        )
        if r["edge"] == "A_B"
    ]
    assert float(rouge["value"]) == math.fsum(scored) / len(scored)
    assert int(rouge["n"]) == 20


def test_the_items_stand_side_by_side_for_each_forget_set(run):
    rows = table(run, "items.csv")
    assert len(rows) == 2 * len(items())
    assert list(rows[0])[: len(ITEM_COLUMNS)] == list(ITEM_COLUMNS)
    first = rows[0]
    assert (first["forget"], first["split"], first["target_reply"]) == ("edge:A_B", "forget", first["answer"])
    splits = {r["edge"] or "factual": r["split"] for r in rows if r["forget"] == "edge:A_B"}
    assert [splits[e] for e in ("A_B", "A_C", "E1_F1", "factual")] == [
        "forget",
        "retain",
        "independent",
        "factual",
    ]


def test_hostile_replies_are_whole_in_one_cell_and_can_neither_act_nor_be_a_formula(run):
    replies = [r["ga_reply"] for r in table(run, "items.csv") if r["edge"] == "A_C2"]
    assert f"'{FORMULA}" in replies
    assert LONG in replies
    assert ANSI.replace("\x1b", "‹U+001B›").replace("\x07", "‹U+0007›") in replies
    assert NUL.replace("\x00", "‹U+0000›") in replies
    assert RETURNS.replace("\r\n", "\n").replace("\r", "‹U+000D›") in replies
    content = (run / "tables" / "items.csv").read_bytes()
    assert not any(bytes([c]) in content for c in range(32) if c not in (9, 10))


def test_a_label_that_acts_does_not_act_as_the_name_of_a_column(tmp_path):
    run = RunFolder(write_run(tmp_path / "demo", hostile=False, forgets=("edge:A_B",)))
    own = replace(spec("unlearned", "edge:A_B", "ga"), method="=ga\r\x1b")
    write_subject(run.control("hostile"), own, items(), ["edge:A_B"])
    build_report(run.path)
    rows = table(run.path, "items.csv")
    assert rows[-1]["'=ga‹U+000D›‹U+001B›_reply"].startswith(("City", "Wrong"))


def test_files_of_others_in_the_reports_folders_stay_and_those_of_an_earlier_report_go(tmp_path):
    run = write_run(tmp_path / "demo", forgets=("edge:A_B",))
    of_others = [run / name for name in ("tables/notes.csv", "tables/drafts/mine.csv", "figures/mine.svg")]
    of_ours = [run / "tables/gains.csv"]
    for path in (*of_others, *of_ours):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("before")
    build_report(run)
    assert {path.read_text() for path in of_others} == {"before"}
    assert (run / "tables/results.csv").exists()
    assert not any(path.exists() for path in of_ours)


def test_what_a_report_writes_is_known_as_vestiges_own(run, audited):
    written = [p.relative_to(of) for of in (run, audited) for p in (of / "tables").glob("*")]
    assert len(written) >= 10
    assert [p for p in written if not is_own(p)] == []
