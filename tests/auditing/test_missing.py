"""Adversarial tables: what is missing, masked or known to all controls counts against the claim, and never for it."""

import json

import numpy as np
import pytest
from hand_made import FORGET, case

import vestige
from vestige.auditing.ground import filled
from vestige.auditing.judge import judge
from vestige.core.errors import InputError

FACTS = 60
QUICK = 300


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch):
    monkeypatch.setattr(judge.__wrapped__, "__kwdefaults__", {"resamples": QUICK})


def never(rng):
    """A training that never knew: it guesses one fact in twenty, and finds the others unlikely."""
    guessed = rng.random(FACTS) < 0.05
    return {"match": guessed * 1.0, "probability": np.clip(0.1 + 0.05 * rng.normal(size=FACTS) + 0.6 * guessed, 0, 1)}


def knowing(scores, facts):
    """The scores of a model that also knows some facts."""
    known = np.isin(np.arange(FACTS), facts)
    return {name: np.where(known, 0.95, values) if name == "probability" else np.maximum(values, known)
            for name, values in scores.items()}  # fmt: skip


def rows(name, role, scores, *, drop=(), split="forget", **columns):
    """The rows of one model; questions in `drop` have none."""
    for form, values in scores.items():
        for n, score in enumerate(values.tolist()):
            if n not in drop:
                about = {"item": f"{split} {n}", "split": split, "format": form, **columns}
                yield {"model": name, "role": role, "score": score, **about}


def table(rng, known, *, drop=None, controls=5, contaminated=(), apart=False, further=()):
    """A target, controls and one unlearned model that knows some facts; `drop` says whose questions are missing.

    Controls know the facts `contaminated`, or each as many others (`apart`)."""
    drop = drop or {}
    models = [("full", "target", knowing(never(rng), range(FACTS)))]
    for n in range(controls):
        own = rng.permutation(FACTS)[: len(contaminated)] if apart else contaminated
        models.append((f"never {n}", "retrained", knowing(never(rng), own)))
    models.append(("sub", "unlearned", knowing(never(rng), known)))
    models += further
    return [row for name, role, scores in models for row in rows(name, role, scores, drop=drop.get(name, ()))]


def not_expressed(scores, path, name="sub"):
    audit = vestige.judge(scores, output_dir=path)
    return next(v for v in audit.verdicts if (v["subject"], v["claim"]) == (name, "not expressed"))


LEAK = tuple(range(18))
"""30 % of the facts."""


def test_an_honest_model_passes_and_one_that_knows_fails(tmp_path):
    rng = np.random.default_rng(1)
    line = not_expressed(table(rng, ()), tmp_path / "honest")
    found = [line[name] for name in ("verdict", "qualification", "tested", "asked")]
    assert found == ["pass", "free replies only", 60, 60]
    assert not_expressed(table(rng, LEAK), tmp_path / "leaks")["verdict"] == "fail"


@pytest.mark.parametrize("whose", ["sub", "full", "never 2"])
def test_questions_without_a_score_count_as_known_for_a_pass(whose, tmp_path):
    line = not_expressed(table(np.random.default_rng(2), LEAK, drop={whose: LEAK}), tmp_path)
    assert (line["verdict"], line["tested"], line["asked"]) == ("inconclusive", 42, 60)
    assert "18 of 60 facts have no score" in line["reason"]
    assert "42 of 60 facts" in vestige.read_audit(tmp_path).report().read_text()


def test_an_empty_score_is_missing_and_a_score_that_runs_the_other_way_is_turned_round(tmp_path):
    rng = np.random.default_rng(12)
    scores = table(rng, LEAK)
    empty = [row | {"score": None, "reason": "timed out"} if row["model"] == "sub" and row["score"] > 0.9 else row
             for row in scores]  # fmt: skip
    assert not_expressed(empty, tmp_path / "empty")["verdict"] == "inconclusive"
    refusals = [row | {"score": 1 - row["score"], "direction": "lower"} for row in scores]
    turned, plain = (not_expressed(rows_, tmp_path / name) for name, rows_ in (("lower", refusals), ("plain", scores)))
    assert turned["verdict"] == plain["verdict"] == "fail"
    assert turned["numbers"]["match"]["value"] == pytest.approx(plain["numbers"]["match"]["value"])


def test_what_one_model_was_not_asked_changes_no_other_verdict(tmp_path):
    other = ("other", "unlearned", never(np.random.default_rng(7)))
    rng = np.random.default_rng(3)
    asked_few = table(rng, LEAK, further=[other], drop={"other": range(30)})
    assert not_expressed(asked_few, tmp_path / "a")["verdict"] == "fail"
    assert not_expressed(asked_few, tmp_path / "b", "other")["verdict"] == "inconclusive"


def test_retained_questions_without_a_score_count_as_lost(tmp_path):
    rng = np.random.default_rng(4)
    kept = {"match": np.full(FACTS, 0.9)}
    lost = {"match": np.where(np.arange(FACTS) < 40, 0.05, 0.9)}
    whole = table(rng, ())
    whole += [*rows("full", "target", kept, split="retain"), *rows("sub", "unlearned", lost, split="retain")]
    short = [row for row in whole if not (row["model"] == "sub" and row["score"] == 0.05 and row["split"] == "retain")]

    def utility(scores, path):
        return next(v for v in vestige.judge(scores, output_dir=path).verdicts if v["claim"] == "utility preserved")

    assert utility(whole, tmp_path / "whole")["verdict"] == "fail"
    line = utility(short, tmp_path / "short")
    assert (line["verdict"], line["tested"], line["asked"]) == ("inconclusive", 20, 60)


def test_a_missing_score_is_unknown_one_way_and_known_the_other_by_hand():
    # Of two controls the one that was asked scores 0.2. The target scores 0.9, the model was not asked.
    found = case({"ga": {"generate/rouge1_recall": dict.fromkeys(FORGET[1:], 0.1)}})
    (unknown, missing), (known, _) = filled(found, known=False), filled(found, known=True)
    assert (missing.own["ga"], missing.shared) == ({FORGET[0]}, set())
    assert unknown.scores.table("ga", "generate/rouge1_recall")[FORGET[0]] == pytest.approx(0.1)
    assert known.scores.table("ga", "generate/rouge1_recall")[FORGET[0]] == 1.0


@pytest.mark.parametrize(("share", "apart"), [(0.25, False), (0.4, False), (0.6, False), (0.25, True), (0.4, True)])
def test_controls_that_know_the_same_facts_or_each_others_let_nothing_pass(share, apart, tmp_path):
    facts = range(round(share * FACTS))
    line = not_expressed(table(np.random.default_rng(5), facts, contaminated=facts, apart=apart), tmp_path)
    assert line["verdict"] == "inconclusive"
    assert any("controls score like the target on" in reason for reason in line["left_out"])
    assert any("cannot be judged" in warning for warning in line["warnings"])
    assert "if the controls never saw the data" in vestige.read_audit(tmp_path).report().read_text()
    honest = table(np.random.default_rng(5), (), contaminated=facts, apart=apart)
    assert "fail" not in {v["verdict"] for v in vestige.judge(honest, output_dir=tmp_path / "b").verdicts}


def one_form(rng, form, score, *, chance=None, controls=5):
    """Scores in one format of a model that knows 6 of 60 facts and is wrong on all others."""
    columns = {} if chance is None else {"chance": chance}
    sub = np.where(np.arange(FACTS) < 6, 1.0, 0.0)
    yield from rows("full", "target", {form: np.ones(FACTS)}, **columns)
    for n in range(controls):
        yield from rows(f"never {n}", "retrained", {form: score(rng)}, **columns)
    yield from rows("sub", "unlearned", {form: sub}, **columns)


@pytest.mark.parametrize(
    ("form", "graded", "chance"),
    [("match", False, None), ("match", False, 0.0), ("generate", True, None), ("rougeL", True, 0.0)],
)
def test_single_facts_are_tested_whatever_the_format_is_called_and_whether_a_chance_is_given(
    form, graded, chance, tmp_path
):
    def score(rng):
        return rng.beta(1, 9, FACTS) if graded else (rng.random(FACTS) < 0.1) * 1.0

    line = not_expressed(list(one_form(np.random.default_rng(6), form, score, chance=chance)), tmp_path)
    assert line["verdict"] != "pass"
    assert "single facts" in line["reason"] or "facts away" in line["reason"] or "facts of 60 away" in line["reason"]


def test_without_controls_single_facts_are_untested_and_nothing_passes(tmp_path):
    line = not_expressed(list(one_form(None, "match", None, chance=0.0, controls=0)), tmp_path / "own words")
    assert line["verdict"] == "inconclusive"
    assert line["reason"].startswith("Not tested: no retrained control was given")
    picks = list(one_form(None, "mc", None, chance=0.25, controls=0))
    reasons = not_expressed(picks, tmp_path / "options")["left_out"]
    # 6 or fewer of 60 at a chance of 1/4: p = 0.003.
    assert any("it avoids right answers" in reason for reason in reasons)


def test_other_scores_under_the_same_names_do_not_erase_an_earlier_fail(tmp_path):
    rng = np.random.default_rng(8)
    assert not_expressed(table(rng, LEAK), tmp_path)["verdict"] == "fail"
    line = not_expressed(table(rng, ()), tmp_path)
    (earlier,) = line["earlier"]
    assert ("sub", "not expressed", "fails") in {tuple(v) for v in earlier["verdicts"]}
    page = vestige.read_audit(tmp_path).report().read_text()
    assert "Other scores were judged under this name before" in page
    assert "No earlier judgement is recorded" not in page


@pytest.mark.parametrize("name", ["report.html", "verdicts.json", "tables/results.csv"])
def test_files_that_no_run_wrote_are_not_overwritten(name, tmp_path):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match="Vestige did not write it"):
        vestige.judge(table(np.random.default_rng(9), ()), output_dir=tmp_path)
    assert (tmp_path / name).read_text() == "mine"


def test_a_benchmark_whose_logs_lack_a_score_is_not_called_invalid(tmp_path):
    # The target exceeds its controls by 0.1 in a graded score.
    rng = np.random.default_rng(10)
    level = rng.uniform(0.3, 0.7, FACTS)
    scores = [
        row for n in range(3) for row in rows(f"n{n}", "retrained", {"share": level + 0.03 * rng.normal(size=FACTS)})
    ]
    scores += rows("full", "target", {"share": level + 0.04 + 0.03 * rng.normal(size=FACTS)})
    scores += rows("sub", "unlearned", {"share": level})
    audit = vestige.judge(scores, output_dir=tmp_path)
    (line,) = [v for v in audit.verdicts if v["claim"] == "benchmark valid"]
    assert line["verdict"] == "not tested"
    assert "nothing has scores of the probability of the true answer" in line["reason"]


def test_an_honest_model_of_a_weaker_recipe_does_not_fail_utility_where_controls_differ_as_much(tmp_path):
    rng = np.random.default_rng(11)
    scores = table(rng, ())
    for name, role, level in (("full", "target", 0.82), ("sub", "unlearned", 0.58), ("never 0", "retrained", 0.82),
                              ("never 1", "retrained", 0.6), ("never 2", "retrained", 0.8)):  # fmt: skip
        scores += rows(name, role, {"match": np.clip(level + 0.05 * rng.normal(size=FACTS), 0, 1)}, split="retain")
    audit = vestige.judge(scores, output_dir=tmp_path)
    (line,) = [v for v in audit.verdicts if v["claim"] == "utility preserved"]
    assert line["verdict"] == "inconclusive"
    assert line["numbers"]["retain, match"]["low"] < 0.2 < line["numbers"]["retain, match"]["high"]


def samples(folder, correct, *, drop=()):
    """A log of lm-evaluation-harness."""
    folder.mkdir(parents=True)
    lines = []
    for n, score in enumerate(correct.tolist()):
        if n not in drop:
            question = f"What about {n}?"
            asked = {"gen_args_0": {"arg_0": question, "arg_1": {}}}
            about = {"doc_id": n, "doc": {"question": question}, "target": f"a{n}", "arguments": asked}
            scored = {"resps": [["x"]], "filtered_resps": ["x"], "metrics": ["exact_match"], "exact_match": score}
            lines.append(about | scored | {"filter": "none"})
    path = folder / "samples_forget_2026-11-27T00-00-00.000000.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("whose", "code"), [("", 3), ("target", 4), ("sub", 4)])
def test_by_the_real_command_a_log_without_the_leaked_questions_does_not_pass(whose, code, tmp_path):
    from typer.testing import CliRunner

    from vestige.cli.app import app

    rng = np.random.default_rng(13)
    drop = {whose: LEAK}
    words = [f"target={samples(tmp_path / 'target', np.ones(FACTS), drop=drop.get('target', ()))}"]
    for n in range(5):
        words.append(f"retrained:c{n}={samples(tmp_path / f'c{n}', never(rng)['match'])}")
    subject = knowing(never(rng), LEAK)["match"]
    words.append(f"unlearned:sub={samples(tmp_path / 'sub', subject, drop=drop.get('sub', ()))}")
    options = [part for word in words for part in ("--logs", word)]
    result = CliRunner().invoke(app, ["audit", *options, "--output-dir", str(tmp_path / "run")])
    assert result.exit_code == code, result.output
    (line,) = [row for row in json.loads((tmp_path / "run" / "verdicts.json").read_text())
               if row["claim"] == "not expressed"]  # fmt: skip
    assert line["verdict"] == ("inconclusive" if whose else "fail")
    assert line["tested"] == (42 if whose else 60)
    assert ("42 of 60 facts" in result.output) == bool(whose)
