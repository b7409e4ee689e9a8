"""A table of scores is judged as an audit's own answers are; what contradicts itself is refused in a sentence."""

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import vestige
from vestige.auditing.table import COLUMNS, read_scores
from vestige.cli.app import app
from vestige.core.errors import InputError
from vestige.core.settings import write_settings

N = 40
LEVEL = np.linspace(0.05, 0.25, N)


def model(name, role, share, *, seed=0, keeps=0.9, **columns):
    """Scores of a model that knows `share` of what the target knows, each a training's luck off its level."""
    luck = np.random.default_rng(seed).normal(0, 0.01, (2, N))
    knows, kept = LEVEL + share * 0.6 + luck[0], keeps + luck[1]
    about = {"model": name, "role": role, "format": "probability", **columns}
    return [
        *({**about, "item": f"q{i}", "score": float(np.clip(x, 0, 1))} for i, x in enumerate(knows)),
        *({**about, "item": f"r{i}", "split": "retain", "score": float(np.clip(x, 0, 1))} for i, x in enumerate(kept)),
    ]


def table(*subjects):
    controls = [row for seed in range(1, 6) for row in model(f"never {seed}", "retrained", 0.0, seed=seed)]
    return [*model("full", "target", 1.0, seed=9), *controls, *(row for one in subjects for row in one)]


def outcome_of(audit, subject, claim):
    return next(v for v in audit.verdicts if (v["subject"], v["claim"]) == (subject, claim))


def refused(rows, tmp_path, words):
    with pytest.raises(InputError, match=words):
        vestige.judge(rows, output_dir=tmp_path / "run")
    assert not (tmp_path / "run" / "verdicts.json").exists()


def test_a_model_that_never_knew_holds_and_one_that_knows_and_one_that_lost_the_rest_fail(tmp_path):
    subjects = (
        model("honest", "unlearned", 0.0, seed=11),
        model("leaky", "unlearned", 0.4, seed=12),
        model("broken", "unlearned", 0.0, seed=13, keeps=0.3),
    )
    audit = vestige.judge(table(*subjects), output_dir=tmp_path)
    claims = "not expressed", "utility preserved"
    outcomes = {s: [outcome_of(audit, s, c)["verdict"] for c in claims] for s in ("honest", "leaky", "broken")}
    assert outcomes == {"honest": ["pass"] * 2, "leaky": ["fail", "pass"], "broken": ["pass", "fail"]}
    leaks = outcome_of(audit, "leaky", "not expressed")["numbers"]["probability"]
    assert leaks["value"] == pytest.approx(0.4, abs=0.02)
    assert audit.untested[0].startswith("The weights of no model were seen")
    assert json.loads((tmp_path / "verdicts.json").read_text()) == json.loads(json.dumps(audit.verdicts))
    assert [v["verdict"] for v in vestige.read_audit(tmp_path).verdicts] == [v["verdict"] for v in audit.verdicts]


@pytest.mark.parametrize(("control", "weaker"), [(None, 0.7), (0.6, 0.55)])
def test_with_few_controls_a_weaker_recipe_lost_nothing_and_half_of_the_rest_is_a_loss(control, weaker, tmp_path):
    levels = {"pass": 0.9, "inconclusive": weaker, "fail": 0.4}
    rows = model("full", "target", 1.0, seed=9)
    rows += [] if control is None else model("never", "retrained", 0.0, seed=8, keeps=control)
    for seed, (name, kept) in enumerate(levels.items()):
        rows += model(name, "unlearned", 0.0, seed=seed, keeps=kept)
    (tmp_path / "scores.json").write_text(json.dumps(rows))
    words = map(str, ["audit", "--logs", tmp_path / "scores.json", "--output-dir", tmp_path / "run", "--json"])
    verdicts = json.loads(CliRunner().invoke(app, [*words]).stdout)["verdicts"]
    kept = [v for v in verdicts if v["claim"] == "utility preserved"]
    assert {v["subject"]: v["verdict"] for v in kept} == {name: name for name in levels}
    assert all(loss["high"] - loss["low"] > 0.2 for v in kept for loss in v["numbers"].values())


def test_a_judged_table_is_judged_again_at_other_margins_and_the_first_verdict_stays(tmp_path):
    audit = vestige.judge(table(model("leaky", "unlearned", 0.4, seed=12)), output_dir=tmp_path)
    assert outcome_of(audit, "leaky", "not expressed")["verdict"] == "fail"
    (again,) = vestige.rejudge(tmp_path, margins=vestige.Margins(delta=0.6, delta_wide=0.6)).outcomes
    assert next(v.outcome for v in again.verdicts if v.claim == "not expressed") == "holds"
    assert again.first is not None
    page = (vestige.read_audit(tmp_path).report()).read_text()
    assert "Margins changed after the answers were seen" in page


def test_files_lists_and_frames_are_the_same_scores(tmp_path):
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = table(model("leaky", "unlearned", 0.4, seed=12))
    pd.DataFrame(rows).to_csv(tmp_path / "scores.csv", index=False)
    (tmp_path / "scores.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    whole = pa.Table.from_pylist([{"split": "forget", **row} for row in rows])
    pq.write_table(whole, tmp_path / "scores.parquet")
    given = (rows, *(tmp_path / f"scores.{end}" for end in ("csv", "jsonl", "parquet")), whole)
    first, *others = map(read_scores, given)
    assert [row["score"] for row in first] == [row["score"] for row in rows]
    assert all(one == first for one in others)
    for empty in (pd.NA, pd.NaT, float("nan")):
        (row,) = read_scores(pd.DataFrame([{**rows[0], "score": empty, "group": empty}], dtype=object))
        assert (row["score"], row["group"]) == (None, "")


def test_wordings_of_one_fact_count_once_and_groups_have_verdicts(tmp_path):
    # Every fact in two wordings. The second half of them, one group, is still known.
    def asked(name, role, share, seed):
        rows = model(name, role, 0.0, seed=seed)[:N]
        return [
            {**row, "wording": wording, "group": "known" if i >= N // 2 else "gone",
             "score": min(1.0, row["score"] + 0.6 * (share if i < N // 2 else max(share, float(name == "half"))))}
            for i, row in enumerate(rows) for wording in ("a", "b")
        ]  # fmt: skip

    rows = [*asked("full", "target", 1.0, 9), *asked("half", "unlearned", 0.0, 12)]
    rows += [row for seed in range(1, 6) for row in asked(f"never {seed}", "retrained", 0.0, seed)]
    audit = vestige.judge(rows, output_dir=tmp_path)
    (outcome,) = audit.outcomes
    assert (outcome.n_judged, {g.group: g.exceeds for g in outcome.groups}) == (N, {"known": True, "gone": False})


def test_an_attack_is_set_beside_the_same_attack_on_controls(tmp_path):
    subjects = [
        *model("hides", "unlearned", 0.0, seed=11),
        *model("hides", "unlearned", 0.7, seed=12, attack="relearn"),
    ]
    after = [row for seed in range(1, 6)
             for row in model(f"never {seed}", "retrained", 0.1, seed=seed + 20, attack="relearn")]  # fmt: skip
    placebo = [*model("silent", "placebo", 0.0, seed=31), *model("silent", "placebo", 0.9, seed=32, attack="relearn")]
    audit = vestige.judge(table(subjects, after, placebo), output_dir=tmp_path)
    assert outcome_of(audit, "hides", "not expressed")["verdict"] == "pass"
    assert outcome_of(audit, "hides", "not recoverable")["verdict"] == "fail"
    (outcome,) = audit.outcomes
    assert [line.able for line in outcome.able] == [True]
    (gain,) = [line for line in outcome.gains if line.subject == "hides"]
    assert gain.recovery.value == pytest.approx(0.6, abs=0.05)


def test_membership_is_told_by_scores_whose_order_alone_counts(tmp_path):
    def member(name, role, shift, seed):
        rng = np.random.default_rng(seed)
        columns = {"model": name, "role": role, "format": "loss", "unit": "order"}
        return [
            {**columns, "item": f"{split}{i}", "split": split, "score": float(rng.normal(shift * (split == "forget")))}
            for split in ("forget", "holdout") for i in range(200)
        ]  # fmt: skip

    rows = [*member("full", "target", 2.0, 1), *member("told", "unlearned", 2.0, 2)]
    rows += [row for seed in range(3, 8) for row in member(f"never {seed}", "retrained", 0.0, seed)]
    audit = vestige.judge(rows, output_dir=tmp_path)
    assert outcome_of(audit, "told", "indistinguishable")["verdict"] == "fail"


def test_a_collapsed_subject_neither_holds_nor_fails_by_that_score(tmp_path):
    # Target 0.75, controls 0.15 on average, so the gap is 0.6; scaled to a third, 1.0 lies far beyond 0.25 + 0.2.
    def third(rows):
        return [{**row, "score": row["score"] / 3} if row["item"].startswith("q") else row for row in rows]

    broken = [{**row, "score": 1.0 - i / 1000} if row["item"].startswith("q") else row
              for i, row in enumerate(model("broken", "unlearned", 0.0, seed=11, keeps=0.2))]  # fmt: skip
    audit = vestige.judge(
        [*third(table(model("honest", "unlearned", 0.0, seed=12))), *broken],
        output_dir=tmp_path,
        margins=vestige.Margins(admission=0.1),
    )
    line = outcome_of(audit, "broken", "not expressed")
    assert line["verdict"] == "inconclusive"
    assert "collapsed" in line["reason"]
    assert outcome_of(audit, "broken", "indistinguishable")["verdict"] == "not tested"
    assert outcome_of(audit, "broken", "utility preserved")["verdict"] == "fail"
    assert outcome_of(audit, "honest", "not expressed")["verdict"] == "pass"
    assert any(said.startswith("broken, probability: collapsed") for said in audit.untested)


def own(column, value):
    """What the rows of the model that is judged state alone."""
    return lambda rows: [{**row, column: value} if row["model"] == "leaky" else row for row in rows]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: [{**rows[0], "scroe": 1}, *rows], "'scroe'. Did you mean 'score'"),
        (lambda rows: [{**rows[0], "score": float("inf")}, *rows[1:]], "row 1: the column score holds inf"),
        (lambda rows: [{**rows[0], "item": None}, *rows[1:]], "row 1: the column item is empty"),
        (lambda rows: [{**rows[0], "direction": "down"}, *rows[1:]], "direction 'down' is unknown"),
        (lambda rows: [{**rows[0], "score": 1.5}, *rows[1:]], r"1.5 is outside \[0, 1\]"),
        (lambda rows: [{**rows[0], "score": "much"}, *rows[1:]], "'much', which is not a number"),
        (lambda rows: [{**rows[0], "unit": "bits", "score": -3.0, "format": "forced"},
                       {**rows[1], "unit": "bits", "score": 3.0, "format": "forced"}], "3.0 is outside"),
        (lambda rows: [*rows, {**rows[0], "unit": "order", "item": "q0b"}], "unit is 'order' here and 'share'"),
        (lambda rows: [*rows, rows[0]], "full, probability, q0 has two scores"),
        (lambda rows: [*rows, {**rows[0], "role": "unlearned", "item": "new"}], "the role is 'unlearned' here"),
        (lambda rows: [*rows, {**rows[0], "model": "x", "role": "unlearned", "split": "retain"}], "one item is one"),
        (lambda rows: [{**row, "role": "teacher"} for row in rows], "'teacher' is unknown. Give one of target"),
        (lambda rows: [row for row in rows if row["role"] != "target"], "the table has none"),
        (lambda rows: [{**row, "role": "target"} for row in rows], "the table has 7"),
        (lambda rows: [row for row in rows if row["role"] != "unlearned"], "no model in the table has the role"),
        (lambda rows: [row for row in rows if row["role"] != "retrained" and not row.get("split")],
         "neither a retrained model nor the column"),
        (lambda rows: [row for row in rows if row.get("split")], "no item in the table is in the split forget"),
        (lambda rows: [*rows, *({**row, "model": "same again"} for row in rows if row["model"] == "never 1")],
         "same again and never 1 have the same scores"),
        (lambda rows: [*rows, *({**r, "model": "x", "role": "unlearned"} for r in rows if r["model"] == "never 1")],
         "x and never 1 have the same scores"),
        (lambda rows: [{**row, "question": row["model"]} for row in rows], "the question is"),
        (lambda rows: [{**row, "scope": "guessable"} if row["model"] == "leaky" and not row.get("split") else row
                       for row in rows], "leaky, q0: the scope is 'guessable' here"),
        (lambda rows: [{**row, "low": 0, "high": 10} if row["model"] == "leaky" and row["item"] in ("q3", "q4") else row
                       for row in rows], "row .*: the range of probability is another than in earlier rows"),
        (lambda rows: [{**row, "low": 0, "high": 10} for row in rows], "State the range that the scores use"),
        (lambda rows: [{**row, "format": "loss", "low": 0, "high": 45} for row in rows], "a loss has no range"),
        (own("ratio", "yes"), "leaky, probability, q0: the ratio is 'yes' here and 'no' in another row"),
        (own("question_type", "forced answer"), "leaky, probability: the question type is 'forced answer' here"),
        (own("fact", "q0"), "leaky, q0: the fact is 'q0' here, and the target's rows state none"),
        (own("group", "A"), "leaky, q0: the group is 'A' here, and the target's rows state none"),
        (own("chance", 0.5), "leaky, probability, q0: the chance is '0.5' here, and the target's rows state none"),
        (own("drawn_from", 900), "leaky, q0: the size is '900' here, and the target's"),
        (lambda rows: [*rows, {**rows[0], "model": "\uff26ull"}], "the model is .* here and 'full' in another row"),
        (lambda rows: [{**rows[0], "model": "f\ud800ll"}, *rows], "row 1: model has half a character"),
        (lambda rows: [], "has no rows"),
        (lambda rows: 7, "the table is a int"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused_by_name(change, words, tmp_path):
    refused(change(table(model("leaky", "unlearned", 0.4, seed=12))), tmp_path, words)


def test_scores_that_may_be_shares_in_a_wider_range_decide_nothing(tmp_path):
    rows = [{**row, "low": 0, "high": 100} for row in table(model("leaky", "unlearned", 0.4, seed=12))]
    for row in rows:
        row["score"] *= 1 if row["model"] == "leaky" else 100
    audit = vestige.judge(rows, output_dir=tmp_path)
    assert outcome_of(audit, "leaky", "not expressed")["verdict"] == "inconclusive"
    assert any("leaky has no score" in line and "as if they were shares" in line for line in audit.untested)


def test_two_subjects_with_the_same_scores_are_both_judged_and_it_is_said(tmp_path):
    # A blank answer of another tool's log matches no reply.
    rows = model("leaky", "unlearned", 0.0, seed=12)
    leaky = [*({**row, "score": 0.9, "answer": ".", "reply": "It lay."} for row in rows[:9]), *rows[9:]]
    audit = vestige.judge(table(leaky, [{**row, "model": "later"} for row in leaky]), output_dir=tmp_path)
    assert {outcome_of(audit, name, "not expressed")["verdict"] for name in ("leaky", "later")} == {"fail"}
    assert "later and leaky have the same scores on every question." in audit.untested


def test_a_folder_of_another_command_and_what_is_no_margin_are_refused(tmp_path):
    (tmp_path / "run").mkdir()
    write_settings(tmp_path / "run" / "run.toml", {"command": "audit"})
    rows = table(model("leaky", "unlearned", 0.4, seed=12))
    refused(rows, tmp_path, "holds a run of another command")
    with pytest.raises(InputError, match="relearn"):
        vestige.judge(rows, output_dir=tmp_path / "other", relearn=())


def test_the_page_names_every_column():
    page = (Path(__file__).parents[2] / "docs" / "logs.md").read_text()
    assert [name for name in COLUMNS if f"`{name}`" not in page] == []


def bits_alone(known, *, siblings=False):
    """The bits of 60 answers by model, with seven controls. `siblings` makes controls of the subject."""
    rng = np.random.default_rng(4)
    hard = -20 + 6 * rng.normal(size=60)

    def never():
        return np.minimum(hard + 4 * rng.normal(size=60), -0.5)

    subject = np.where(np.arange(60) < known, -0.5, never())
    models = {"target:full": -0.1 - rng.exponential(0.3, 60), "unlearned:sub": subject}
    for number in range(7):
        score = np.minimum(subject + 3 * rng.normal(size=60), -0.1) if siblings else never()
        models[f"retrained:r{number}"] = score
    return models


def command(tmp_path, *logs):
    ran = CliRunner().invoke(app, ["audit", *logs, "--output-dir", str(tmp_path / "run")])
    return ran.exit_code, outcome_of(vestige.read_audit(tmp_path / "run"), "sub", "not expressed")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("known", "siblings", "verdict", "wide"),
    [(0, False, "pass", 3.9), (15, False, "fail", 3.9), (18, True, "inconclusive", 2.9)],
)
def test_bits_alone_are_judged_by_their_own_gap(tmp_path, known, siblings, verdict, wide):
    rows = []
    for model_name, bits in bits_alone(known, siblings=siblings).items():
        role, name = model_name.split(":")
        about = {"model": name, "role": role, "format": "length", "unit": "bits"}
        rows += [{**about, "item": f"q{n}", "score": score} for n, score in enumerate(bits.tolist())]
    judged = vestige.judge(rows, output_dir=tmp_path / "judged")
    line = outcome_of(judged, "sub", "not expressed")
    assert line["verdict"] == verdict, line["reason"]
    valid = outcome_of(judged, "sub", "benchmark valid")
    assert "does the target clearly exceed" not in valid["reason"], valid["reason"]
    # A fifth of the gap is less than the margin of 6 bits beside other scores.
    assert line["margins_bits"] == pytest.approx([2.0, wide], abs=0.11)
    with (tmp_path / "t.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    code, same = command(tmp_path, "--logs", str(tmp_path / "t.csv"))
    assert (code, same["reason"]) == ({"pass": 0, "fail": 3, "inconclusive": 4}[verdict], line["reason"])


@pytest.mark.slow
@pytest.mark.parametrize(("known", "verdict"), [(0, "pass"), (15, "fail")])
def test_a_log_in_which_options_are_alike_is_judged_by_bits(tmp_path, known, verdict):
    logs = []
    for name, bits in bits_alone(known).items():
        samples = []
        for n, score in enumerate(bits.tolist()):
            nats = score * math.log(2)
            # The right option is the likeliest by a hair, on every model.
            values = [[[str(nats - 0.01 * (k != 1)), "False"]] for k in range(4)]
            calls = [[f"Question {n}?", f" {letter}"] for letter in "ABCD"]
            samples.append({"doc_id": n, "target": "1", "arguments": calls, "resps": values})
        file = tmp_path / f"{name.partition(':')[2]}.jsonl"
        file.write_text("".join(f"{json.dumps(sample)}\n" for sample in samples))
        logs += ["--logs", f"{name}={file}"]
    code, line = command(tmp_path, *logs)
    assert (line["verdict"], code) == (verdict, {"pass": 0, "fail": 3}[verdict]), line["reason"]
    assert line["decides"] == "forced, bits" or verdict == "fail"


@pytest.mark.parametrize(("ratio", "expected"), [("no", "fail"), ("yes", "inconclusive")])
def test_a_ratio_of_two_probabilities_fails_no_model_by_single_facts_nor_holds(tmp_path, ratio, expected):
    def scores(model_name, role, seed, known=0):
        rows = model(model_name, role, float(role == "target"), seed=seed, ratio=ratio)
        return [{**row, "score": 0.95} if row["item"] in [f"q{n}" for n in range(known)] else row for row in rows]

    controls = [row for seed in range(1, 50) for row in scores(f"never {seed}", "retrained", seed)]
    rows = [*scores("full", "target", 59), *controls, *scores("ga", "unlearned", 60, known=1)]
    line = outcome_of(vestige.judge(rows, output_dir=tmp_path), "ga", "not expressed")
    assert line["verdict"] == expected, line["reason"]
    assert ("by a ratio alone" in line["reason"]) == (ratio == "yes")


@pytest.mark.parametrize(
    ("forget", "holdout", "verdict"),
    [
        # The control's answers to kept questions are another model's: they are left out, and the others count.
        ([0.15, 0.11], ["full", "full"], "fail"),
        ([0.15, 0.11], ["subject", "subject"], "fail"),
        ([0.15, 0.11], ["own", "r0"], "fail"),
        # The subject under another name, with noise on the forget set, is no control.
        ([0.5, 0.5], ["subject", "subject"], "inconclusive"),
    ],
)
def test_scores_that_a_control_has_from_another_model_show_nothing(tmp_path, forget, holdout, verdict):
    luck = np.random.default_rng(3)
    ease = luck.normal(0, 0.05, N)

    def scores(level, noise=0.03):
        return np.clip(level + ease + luck.normal(0, noise, N), 0, 1)

    def rows(name, role, split, values):
        return [
            {"model": name, "role": role, "split": split, "item": f"{split} {n}", "score": float(value)}
            for n, value in enumerate(values)
        ]

    subject = scores(0.5)
    kept = {name: scores(0.85) for name in ("full", "subject", "own", "r0")}
    table = [
        *rows("full", "target", "forget", scores(0.87)),
        *rows("full", "target", "holdout", kept["full"]),
        *rows("subject", "unlearned", "forget", subject),
        *rows("subject", "unlearned", "holdout", kept["subject"]),
    ]
    for n, (level, source) in enumerate(zip(forget, holdout, strict=True)):
        own = np.clip(subject + luck.normal(0, 0.0005, N), 0, 1) if level == 0.5 else scores(level)
        table += rows(f"r{n}", "retrained", "forget", own)
        table += rows(f"r{n}", "retrained", "holdout", kept["r0" if source == "own" else source])
    audit = vestige.judge(table, output_dir=tmp_path)
    assert outcome_of(audit, "subject", "not expressed")["verdict"] == verdict
    said = [line for line in audit.outcomes[0].untested if "were copied" in line]
    assert len(said) == (1 if holdout[0] == "own" else 2)
