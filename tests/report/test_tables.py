"""The tables of a run and of its audits."""

import math
from dataclasses import replace

import pytest
from reading import table
from synthetic_audit import ATTACKS, FACTS, FORMATS, METHODS, hostile, outcome, write_audit
from synthetic_run import ANSI, FORMULA, LONG, NUL, RETURNS, items, spec, write_run, write_subject

from vestige.artifacts.audits import CLAIMS, REQUIRED
from vestige.artifacts.layout import RunFolder, is_own
from vestige.core.files import read_jsonl
from vestige.report import build_report
from vestige.report.tables import (
    BUDGET_COLUMNS,
    CURVE_COLUMNS,
    GAIN_COLUMNS,
    ITEM_COLUMNS,
    LEAKAGE_COLUMNS,
    RESULT_COLUMNS,
    VERDICT_COLUMNS,
    audit_tables,
)

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
    assert [splits[e] for e in ("A_B", "A_C", "E1_F1", "factual")] == ["forget", "retain", "independent", "factual"]


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


def test_the_verdicts_have_a_row_a_method_and_claim(audited):
    rows = table(audited, "verdicts.csv")
    assert list(rows[0]) == list(VERDICT_COLUMNS)
    assert len(rows) == len(METHODS) * len(REQUIRED)
    own = {r["claim"]: r for r in rows if r["subject"] == "ga"}
    assert {claim: r["verdict"] for claim, r in own.items()} == {
        "not expressed": "fail",
        "not recoverable": "inconclusive",
        "indistinguishable": "inconclusive",
        "utility preserved": "fail",
        "benchmark valid": "pass",
    }
    kept = own["utility preserved"]
    assert kept["statement"] == CLAIMS["utility preserved"]
    assert (kept["margin"], kept["items_needed"], kept["detectable"]) == ("0.05", "", "")
    assert own["not recoverable"]["items_needed"] == "260"
    assert own["not expressed"]["left_out"].startswith("option_vocab: not admitted")


def test_leakage_stands_beside_its_controls_and_the_worst_case_last(audited):
    rows = table(audited, "leakage.csv")
    assert list(rows[0]) == list(LEAKAGE_COLUMNS)
    assert len(rows) == len(METHODS) * (len(FORMATS) + 1)
    by_place = {(r["subject"], r["format"]): r for r in rows}
    few = by_place["ga", "few_shot"]
    expected = next(c for c in outcome().matrix if (c.subject, c.format) == ("ga", "few_shot"))
    assert float(few["leakage"]) == expected.leakage.value
    assert float(few["band_high"]) == expected.band.high
    assert (few["admitted"], few["metric"], float(few["target"])) == ("True", "leaked", 0.94)
    assert (by_place["ga", "option_vocab"]["leakage"], by_place["ga", "option_vocab"]["admitted"]) == ("", "False")
    assert by_place["idk_gd", "generate"]["over_forgotten"] == "True"
    assert float(by_place["kl", "worst"]["leakage"]) == outcome().worst[3].leakage.value


def test_the_parts_of_a_gain_add_up_in_every_row(audited):
    rows = table(audited, "gains.csv")
    assert list(rows[0]) == list(GAIN_COLUMNS)
    assert len(rows) == len(outcome().gains)
    for r in rows:
        parts = sum(float(r[part]) for part in ("injection", "repair", "recovery"))
        assert float(r["gain"]) == pytest.approx(parts)
        assert (r["evidence"] == "False") == (r["attack"] == "relearn forget n=20")
        assert bool(r["why_not"]) == (r["evidence"] == "False")


def test_every_point_of_every_curve_is_a_row(audited):
    rows = table(audited, "curves.csv")
    assert list(rows[0]) == list(CURVE_COLUMNS)
    points = [(c, p) for c in outcome().curves for p in c.points]
    assert [(r["subject"], r["attack"], r["point"]) for r in rows] == [
        (c.subject, c.attack, p.point) for c, p in points
    ]
    assert [float(r["level_low"]) for r in rows] == [p.level.low for _, p in points]
    # No attack of this run searched for a prompt.
    assert {r["prompt_bits"] for r in rows} == {""}


def test_the_budget_names_every_bound_need_and_input(audited):
    rows = table(audited, "budget.csv")
    assert tuple(rows[0])[: len(BUDGET_COLUMNS)] == BUDGET_COLUMNS
    assert len(rows) == len(METHODS) * len(ATTACKS)
    first = rows[0]
    assert float(first["capacity_bits"]) == float(first["bound_code length under retrained_bits"])
    assert float(first["ratio"]) == pytest.approx(float(first["capacity_bits"]) / float(first["need_gain_bits"]))
    assert {"need_code_length_bits", "need_rate_distortion_bits", "input_accuracy"} <= set(first)
    assert rows[-5]["bound_nothing shown_bits"] == "0.0"


def test_what_was_not_gained_has_no_ratio():
    found = outcome()
    found = replace(found, budget=(replace(found.budget[0], ratio=None),))
    assert audit_tables([found])["budget"][1][0]["ratio"] == ""


def test_hostile_names_are_text_in_every_table(tmp_path):
    run = write_run(tmp_path / "demo", hostile=False, forgets=("edge:A_B",))
    write_audit(run, hostile())
    build_report(run)
    for name in ("verdicts", "leakage", "gains", "budget"):
        content = (run / "tables" / f"{name}.csv").read_bytes()
        assert not any(bytes([c]) in content for c in range(32) if c != 10), name
        assert "‹U+202E›".encode() in content
        assert "\u202e".encode() not in content
        subjects = {r["subject"] for r in table(run, f"{name}.csv")}
        assert any(s.startswith("'=HYPERLINK") for s in subjects)


def test_a_run_without_an_audit_has_no_such_table(run):
    assert sorted(p.name for p in (run / "tables").iterdir()) == ["items.csv", "results.csv"]


def test_each_further_part_of_an_audit_has_a_table_with_the_values_of_its_lines():
    found = replace(outcome(), facts=FACTS)
    tables = audit_tables([found])
    columns, rows = tables["facts"]
    assert columns[:4] == ("forget", "subject", "attack", "item")
    first = FACTS[0]
    assert (rows[0]["bits"], rows[0]["never_low"], rows[0]["never_high"]) == (first.bits, *first.never)
    auc = found.membership[0].auc
    assert (tables["membership"][1][0]["auc"], tables["membership"][1][0]["auc_low"]) == (auc.value, auc.low)
    assert len(tables["kept"][1]) == len(found.kept)
    assert "groups" not in tables
