"""Logs of other tools are judged by one command. What cannot be compared is refused, or left out and named."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from vestige.artifacts.layout import RunFolder
from vestige.artifacts.scores import Source
from vestige.auditing.logs import judge_logs, model_scores, read_logs
from vestige.auditing.questions import Questions
from vestige.auditing.table import Unfit, score_table
from vestige.cli.app import app
from vestige.core.errors import InputError
from vestige.logs.folders import recognise
from vestige.logs.log import GivenLog, LogPart, _begun
from vestige.logs.open_unlearning import PROBABILITY

N = 40
QUESTIONS = tuple(f"Who is number {n}?" for n in range(N))
LEVEL = np.linspace(0.05, 0.25, N)
M = "tofu_Small-1B"


def tofu_eval(share, seed, *, questions=QUESTIONS, texts=True, prompt="", keeps=0.95, metric="forget_Q_A_Prob"):
    """A log of a model that knows a share of what the target knows of the questions."""
    luck = np.random.default_rng(seed).normal(0, 0.01, (2, N))
    known = {q: float(np.clip(LEVEL[n] + share * 0.7 + luck[0, n], 0, 1)) for n, q in enumerate(QUESTIONS)}
    # Questions of a larger set, which the target was not asked.
    scores = [known.get(q, 0.1 + 0.001 * n) for n, q in enumerate(questions)]
    rows = [{"prob": score, "rougeL_recall": score, "ground_truth": "t", "generation": "r"} for score in scores]
    if texts:
        rows = [{**row, "input": f"{prompt}user\n\n{q}assistant\n\n"} for row, q in zip(rows, questions, strict=True)]
    stored = {metric: {"value_by_index": {str(n): row for n, row in enumerate(rows)}}}
    if texts and metric == "forget_Q_A_Prob":
        stored["forget_Q_A_ROUGE"] = stored[metric]
    kept = [float(np.clip(keeps + x, 0, 1)) for x in luck[1]]
    return stored | {"retain_Q_A_Prob": {"value_by_index": {str(n): {"prob": x} for n, x in enumerate(kept)}}}


@pytest.fixture
def put(tmp_path):
    def write(place, stored):
        file = tmp_path / "saves" / place / "TOFU_EVAL.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(stored))
        return file

    return write


@pytest.fixture
def logs(put):
    """A target, three controls and a subject that knows two fifths, each under its role."""
    given = [GivenLog("target", "full", put("t", tofu_eval(1.0, 0)))]
    given += [GivenLog("retrained", f"never {k}", put(f"c{k}", tofu_eval(0.0, k))) for k in (1, 2, 3)]
    return [*given, GivenLog("unlearned", "hides", put("s", tofu_eval(0.4, 9)))]


def judged(tmp_path, logs, **how):
    return judge_logs(RunFolder(tmp_path / "run"), logs, forget="these", **how)


def outcomes(outcome, claim="not expressed"):
    return {v.subject: v.outcome for v in outcome.verdicts if v.claim == claim}


def cli(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_logs_are_judged_and_their_digests_and_level_stand_in_the_run(tmp_path, logs):
    outcome = judged(tmp_path, logs)
    assert outcomes(outcome) == {"hides": "fails"}
    assert (outcomes(outcome, "utility preserved"), outcome.evidence_level) == ({"hides": "holds"}, "logs")
    leak = {cell.format: cell.leakage.value for cell in outcome.matrix}
    assert leak["probability"] == pytest.approx(0.4, abs=0.02)
    (record,) = (tmp_path / "run").glob("audit/*/logs.json")
    assert len({log["sha256"] for log in json.loads(record.read_text())["logs"]}) == 5
    # The scores lie in one file, and no model is written for them.
    assert not (tmp_path / "run" / "models").exists()
    assert next((tmp_path / "run").glob("audit/*/scores.jsonl.gz")).is_file()


def test_a_log_without_texts_is_matched_by_position_with_one_of_as_many_questions_that_has_them(tmp_path, logs, put):
    # The control was asked 80 questions in another order, so that position alone would be wrong.
    more = (*(f"Other {n}?" for n in range(N)), *reversed(QUESTIONS))
    logs[1] = GivenLog("retrained", "never 1", put("c1", tofu_eval(0.0, 1, questions=more)))
    logs[4] = GivenLog("unlearned", "hides", put("s", tofu_eval(0.4, 9, texts=False)))
    outcome = judged(tmp_path, logs)
    assert outcome.n_judged == N
    assert {cell.format: cell.leakage.value for cell in outcome.matrix}["probability"] == pytest.approx(0.4, abs=0.02)
    known = ((1.0, 0), (0.0, 1), (0.0, 2), (0.0, 3), (0.4, 9))
    files = [put(f"p{n}", tofu_eval(*one, texts=False)) for n, one in enumerate(known)]
    without = [log._replace(path=file) for log, file in zip(logs, files, strict=True)]
    assert outcomes(judged(tmp_path, without)) == {"hides": "fails"}


def test_questions_without_texts_are_matched_by_their_numbers_in_whatever_order():
    part, questions = LogPart("forget", PROBABILITY, np.ones(3), ids=("4", "5", "6")), Questions("forget")
    first = questions.of_position(part, {})
    assert questions.of_position(part._replace(ids=("6", "4", "5")), {}) == (first[2], first[0], first[1])
    assert not {*first} & {*questions.of_position(part._replace(ids=("6", "4", "50")), {})}


def reordered(stored, order):
    """A log whose probabilities have no text and its ROUGE has, with its questions in this order in every metric."""
    values = {metric: list(table["value_by_index"].values()) for metric, table in stored.items()}
    values["forget_Q_A_Prob"] = [{"prob": row["prob"]} for row in values["forget_Q_A_Prob"]]
    return {
        metric: {"value_by_index": {str(n): rows[k] for n, k in enumerate(order)}} for metric, rows in values.items()
    }


def test_scores_without_text_are_matched_by_the_texts_of_their_own_log_in_whatever_order(tmp_path, logs, put):
    known = ((1.0, 0), (0.0, 1), (0.0, 2), (0.0, 3), (0.4, 9))
    other = np.random.default_rng(0).permutation(N)
    *rest, mine = (
        log._replace(path=put(f"p {log.name}", reordered(tofu_eval(*one), range(N))))
        for log, one in zip(logs, known, strict=True)
    )
    mixed = mine._replace(path=put("mixed", reordered(tofu_eval(*known[-1]), other)))

    def leak(*logs):
        outcome = judged(tmp_path, logs)
        return outcome.n_judged, {cell.format: cell.leakage for cell in outcome.matrix}

    assert leak(*rest, mixed) == leak(*rest, mine) != leak(*rest[:-1], mine)
    # One that has no text at all may be in either order.
    bare = put("bare", {"forget_Q_A_Prob": tofu_eval(0.0, 3, texts=False)["forget_Q_A_Prob"]})
    assert leak(*rest[:-1], rest[-1]._replace(path=bare), mixed) == leak(*rest[:-1], mixed)
    untested = " ".join(judged(tmp_path, [*rest[:-1], rest[-1]._replace(path=bare), mixed]).untested)
    assert "1 of 5 logs: probability: its 40 questions in the split forget have no text to be matched by" in untested
    assert "and the logs that have texts differ in their order" in untested


def test_the_questions_of_one_model_may_lie_in_several_logs(tmp_path, logs, put):
    whole = {metric: table for metric, table in tofu_eval(1.0, 0).items() if metric.startswith("forget")}
    first, second = ({m: {"value_by_index": dict(list(t["value_by_index"].items())[half])} for m, t in whole.items()}
                     for half in (slice(N // 2), slice(N // 2, N)))  # fmt: skip
    halves = [GivenLog("target", "full", put(name, stored)) for name, stored in (("t", first), ("t2", second))]
    outcome = judged(tmp_path, [*halves, *logs[1:]])
    assert (outcome.n_judged, outcomes(outcome)) == (N, {"hides": "fails"})


def test_a_log_goes_to_the_table_in_columns(tmp_path, logs, monkeypatch):
    """A thousand logs are half a million rows, for which an object each would fill the memory."""
    monkeypatch.delattr("vestige.auditing.table.columns_of")
    columns = read_logs(logs, forget="these").columns
    scores = model_scores(columns)
    assert all(one.scores is column.part.scores for one, column in zip(scores, columns, strict=True))
    table = score_table(scores)
    alike = {id(table.values[Source(log.name)]["probability"].questions) for log in logs}
    assert len(alike) == 1, "every model has the ids of its questions anew"
    assert _begun.cache_info().currsize <= 2, "the beginnings of all logs are kept as parsed JSON"
    assert outcomes(judged(tmp_path, logs)) == {"hides": "fails"}


def test_one_log_under_two_names_is_refused(tmp_path, logs, put):
    copy = put("again", json.loads(logs[4].path.read_text()))
    with pytest.raises(Unfit, match=r"again.*is byte for byte the log of hides"):
        judged(tmp_path, [*logs, GivenLog("unlearned", "again", copy)])
    forgiven = judged(tmp_path, [*logs, GivenLog("unlearned", "again", copy)], forgiving=True)
    assert outcomes(forgiven) == {"hides": "fails"}
    assert any("again" in said and "left out" in said for said in forgiven.untested)


ELSE = [f"Else {n}?" for n in range(90)]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"questions": QUESTIONS[:10]}, "holds 10 forget questions and lacks 30 of the target's 40: it is cut short"),
        ({"questions": ELSE[:N]}, "none of the target's 40 is among them"),
        ({"questions": ELSE, "texts": False}, "90 forget questions without their text"),
        ({"prompt": "Answer like a pirate. "}, "words around the question=Answer like a pirate.*, and the target with"),
    ],
)
def test_a_log_that_cannot_be_compared_is_refused_and_in_a_folder_left_out(tmp_path, logs, put, how, words):
    logs[2] = GivenLog("retrained", "odd", put("odd", tofu_eval(0.0, 2, **how)))
    with pytest.raises(Unfit, match=words):
        judged(tmp_path, logs)
    assert not (tmp_path / "run" / "verdicts.json").exists()
    outcome = judged(tmp_path, logs, forgiving=True)
    assert outcome.retrained == ("never 1", "never 3")
    assert any(re.search(words, said) for said in outcome.untested)
    logs[0] = logs[0]._replace(path=put("t2", {"retain_Q_A_Prob": tofu_eval(1.0, 0)["retain_Q_A_Prob"]}))
    with pytest.raises(InputError, match="holds no questions of the forget set"):
        judged(tmp_path, logs, forgiving=True)


@pytest.fixture
def samples(tmp_path):
    def write(name, share, seed, questions):
        scores = np.random.default_rng(seed).random(len(questions)) < 0.05 + 0.9 * share
        rows = [{"doc_id": n, "arguments": {"a": {"p": questions[n]}}, "acc": x, "target": "t", "metrics": ["acc"]}
                for n, x in enumerate(scores.astype(float).tolist())]  # fmt: skip
        file = tmp_path / f"samples_{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return file

    return write


def test_of_several_tasks_each_is_judged_in_the_split_that_is_named(tmp_path, samples):
    models = {"target": (1.0, 0.6), "retrained:a": (0.0, 0.6), "retrained:b": (0.0, 0.6), "unlearned:m": (0.0, 0.1)}
    words = []
    for seed, (model, levels) in enumerate(models.items()):
        for task, level in zip(("tofu", "mmlu"), levels, strict=True):
            folder = model.replace(":", "_")
            questions = QUESTIONS if task == "tofu" else [f"Else {n}?" for n in range(200)]
            file = samples(f"{folder}_{task}", level, seed, questions)
            (tmp_path / folder).mkdir(exist_ok=True)
            file.rename(tmp_path / folder / f"samples_{task}_2026-01-02T03-04-05.678901.jsonl")
        words += ["--logs", f"{model}={tmp_path / folder}"]

    def refusal(*more):
        return str(cli("audit", *words, *more, "--output-dir", tmp_path / "run").exception)

    assert "the role of mmlu, tofu is unknown. Give --logs task:mmlu=forget, or =retain" in refusal()
    assert "no log is of a task 'wmdp'" in refusal("--logs", "task:wmdp=forget")
    assert "is of no split 'kept'" in refusal("--logs", "task:mmlu=kept")
    tasks = ("--logs", "task:mmlu=retain", "--logs", "task:tofu=forget")
    done = cli("audit", *words, *tasks, "--output-dir", tmp_path / "run", "--json")
    verdicts = {v["claim"]: v for v in json.loads(done.stdout)["verdicts"]}
    assert re.search(r"leakage in tofu, acc is .* n = 40,", verdicts["not expressed"]["reason"])
    assert verdicts["utility preserved"]["verdict"] == "fail"
    (stored,) = (tmp_path / "run" / "audit").glob("*/logs.json")
    assert json.loads(stored.read_text())["tasks"] == {"mmlu": "retain", "tofu": "forget"}


@pytest.mark.parametrize("lacking", ["", "honest: of it", "full: of the target and a", "never: the target and a"])
def test_a_score_that_the_model_the_target_or_all_controls_lack_keeps_the_claim_open(tmp_path, logs, put, lacking):
    other_facts = tofu_eval(0.0, 9, questions=[*QUESTIONS, "Else?"], metric="forget_Q_A_PARA_Prob")
    logs[4] = GivenLog("unlearned", "honest", put("s", tofu_eval(0.0, 9) | other_facts))
    for n, log in enumerate(logs):
        scores = np.random.default_rng(n + 70).normal(0.9 if n == 0 else 0.1, 0.02, N).tolist()
        more = {"extraction_strength": {"value_by_index": {str(k): {"score": x} for k, x in enumerate(scores)}}}
        if not lacking.startswith(log.name.split()[0]):
            put(log.path.parent.name, json.loads(log.path.read_text()) | more)
    outcome = judged(tmp_path, logs)
    assert (outcome.n_judged, outcomes(outcome)) == (N, {"honest": "inconclusive" if lacking else "holds"})
    assert lacking.partition(": ")[2] in outcome.verdicts[0].reason


def test_logs_after_an_attack_stand_beside_those_of_controls_after_it(tmp_path, logs, put):
    logs[4] = GivenLog("unlearned", "hides", put("s", tofu_eval(0.0, 9)))
    logs += [GivenLog("unlearned", "hides", put("sa", tofu_eval(0.6, 19)), "relearn")]
    logs += [GivenLog("retrained", f"never {k}", put(f"ca{k}", tofu_eval(0.1, k + 20)), "relearn") for k in (1, 2, 3)]
    outcome = judged(tmp_path, logs)
    assert (outcomes(outcome), outcomes(outcome, "not recoverable")) == ({"hides": "holds"}, {"hides": "fails"})


def saves(put):
    """A folder as OpenUnlearning leaves it: two forget sets of one model, and what belongs to none."""
    more = (*(f"Other {n}?" for n in range(60)), *QUESTIONS)
    put(f"eval/{M}_full/evals_forget01", tofu_eval(1.0, 0))
    put(f"eval/{M}_retain99", tofu_eval(0.0, 1))
    put(f"eval/{M}_retain90", tofu_eval(0.0, 2, questions=more))
    put(f"finetune/{M}_retain99/checkpoint-50/evals", tofu_eval(0.0, 31))
    put(f"finetune/{M}_retain99/checkpoint-100/evals", tofu_eval(0.0, 3))
    put(f"unlearn/{M}_forget01_NPO/checkpoint-4/evals", tofu_eval(0.9, 4))
    put(f"unlearn/{M}_forget01_NPO/checkpoint-12/evals", tofu_eval(0.4, 5))
    put(f"unlearn/{M}_forget01_RMU/evals", tofu_eval(0.0, 6))
    put(f"unlearn/{M}_forget05_RMU/evals", tofu_eval(0.0, 7))
    return put("unlearn/whatever/evals", tofu_eval(0.0, 8)).parents[3]


def test_a_saves_folder_is_recognised_by_its_names(put):
    folder = saves(put)
    config = folder / "unlearn/whatever/.hydra/config.yaml"
    config.parent.mkdir()
    start = f"open-unlearning/{M}_full"
    config.write_text(f"forget_split: forget01\nmodel:\n  model_args:\n    pretrained_model_name_or_path: {start}\n")
    (group,) = recognise([folder]).groups
    assert group.name == "tofu Small-1B forget01"
    names = {
        role: [log.name for log in group.logs if log.role == role] for role in ("target", "retrained", "unlearned")
    }
    assert names == {
        "target": ["full"],
        # retain90 lacks the 10 % of which the 1 % is a part; of one training the last checkpoint.
        "retrained": ["retain90", "retain99", "retain99 (fine-tuned here)"],
        "unlearned": ["NPO, checkpoint 4", "NPO, checkpoint 12", "RMU", "whatever"],
    }
    reasons = {path.parent.parent.name: why for path, why in recognise([folder]).left_out}
    assert reasons["checkpoint-50"].startswith("an earlier checkpoint")
    assert reasons[f"{M}_forget05_RMU"] == "no target asked forget05 is here"


@pytest.mark.parametrize(
    ("place", "name", "unknown"),
    [("{0}/out/bbc/{1}/forget/history.json", "muse News", "sust/ga/2"), ("{1}/{0}_f/log.json", "muse", "teacher")],
)
def test_muse_folders_are_recognised_by_corpus_and_model(tmp_path, place, name, unknown):
    rows = [{"prompt": "Question: A?\nAnswer:", "gt": "d", "response": "e", "rougeL": 0.5}]
    for model in ("target", "retrain", "ga", unknown):
        for memory in ("knowmem", "verbmem"):
            file = tmp_path / place.format(memory, model)
            file.parent.mkdir(parents=True)
            file.write_text(json.dumps(rows))
    (group,) = recognise([tmp_path]).groups
    assert (group.name, [(log.role, log.name) for log in group.logs]) == (name, [
        ("target", "target"), ("target", "target"), ("retrained", "retrain"), ("retrained", "retrain"),
        ("unlearned", "ga"), ("unlearned", "ga")])  # fmt: skip


def test_one_command_judges_a_saves_folder(tmp_path, put):
    folder = saves(put)
    shown = cli("audit", "--logs", folder, "--dry-run")
    assert (shown.exit_code, "NPO, checkpoints 4, 12; RMU" in " ".join(shown.output.split())) == (0, True)
    done = cli("audit", "--logs", folder, "--output-dir", tmp_path / "run")
    assert done.exit_code == 3, done.output
    verdicts = json.loads((tmp_path / "run" / "verdicts.json").read_text())
    first = {v["subject"]: v["verdict"] for v in verdicts if v["claim"] == "not expressed"}
    assert first == {"NPO, checkpoint 4": "fail", "NPO, checkpoint 12": "fail", "RMU": "pass"}
    assert ((tmp_path / "run" / "report.html").is_file(), "its path names no role" in done.output) == (True, True)
    again = cli("audit", "--why", "--output-dir", tmp_path / "run")
    assert (again.exit_code, "weights of no model were seen" in again.output) == (3, True)


def test_logs_by_role_a_list_and_a_table_give_the_same_verdict(tmp_path, logs):
    words = [word for log in logs for word in ("--logs", f"{log.role}:{log.name}={log.path}")]
    (tmp_path / "logs.toml").write_text(f"logs = {json.dumps(words[1::2])}\n")
    found = {}
    for name, given in {"roles": words, "list": ["--config", tmp_path / "logs.toml"]}.items():
        done = cli("audit", *given, "--forget", "these", "--output-dir", tmp_path / name)
        assert done.exit_code == 3, done.output
        assert ". Next: " in done.output.strip().splitlines()[-1]
        found[name] = json.loads((tmp_path / name / "verdicts.json").read_text())
    assert found["roles"] == found["list"]
    models = (("a", "target", 0.9), ("b", "retrained", 0.1), ("c", "unlearned", 0.6))
    lines = [f"{name},{role},{n},{score}\n" for name, role, score in models for n in range(20)]
    (tmp_path / "scores.csv").write_text("".join(["model,role,item,score\n", *lines]))
    done = cli("audit", "--logs", tmp_path / "scores.csv", "--output-dir", tmp_path / "table", "--json")
    assert json.loads(done.stdout)["verdicts"][0]["verdict"] == "fail"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--logs", "nowhere"], "there is no such file or folder"),
        (["--logs", "trained=x.json"], "is no role. Did you mean 'retrained'? The roles are target, retrained"),
        (["--logs", "example", "--logs", "target=x.json"], "Give one kind at a time"),
        (["--logs", "example", "--target", "m"], "needs no model"),
        (["--logs", "example", "--delta", "7"], "delta = 7"),
        (["--logs", "example", "--relearn", '["retain"]'], "relearn is not a margin"),
        (["--logs", "{empty}"], "it has no file that may be a log"),
        (["--logs", "{log}"], "this log needs a role"),
        (["--logs", "{unlearned}"], "no target of theirs"),
    ],
)
def test_what_logs_cannot_be_is_refused(tmp_path, words, said):
    (tmp_path / "empty").mkdir()
    here = Path(str(resources.files("vestige.logs") / "example"))
    log, unlearned = here / "eval/tofu_Example-1B_retain99/TOFU_EVAL.json", here / "unlearn"
    words = [word.format(empty=tmp_path / "empty", log=log, unlearned=unlearned) for word in words]
    done = cli("audit", *words, "--output-dir", tmp_path / "run")
    assert isinstance(done.exception, InputError), done.output
    assert said in str(done.exception)


def test_a_model_that_is_left_out_keeps_the_exit_code_from_0(tmp_path):
    shutil.copytree(str(resources.files("vestige.logs") / "example"), tmp_path / "saves")
    breaks, _, hides = sorted(tmp_path.glob("saves/unlearn/*"))
    shutil.rmtree(breaks)
    (log,) = hides.rglob("TOFU_EVAL.json")
    log.write_text(log.read_text()[:-100])
    done = cli("audit", "--logs", tmp_path / "saves", "--output-dir", tmp_path / "run")
    assert "Forgets passes the 2 of 6 claims" in done.output
    assert "not judged, so the exit code is 4: Hides" in done.output
    assert done.exit_code == 4


def test_the_example_says_what_was_planted_and_loads_no_torch(tmp_path):
    code = (
        "import sys; from vestige.cli.app import app\n"
        "try: app(['audit', '--logs', 'example', '--output-dir', sys.argv[1]])\n"
        "except SystemExit as end: code = end.code\n"
        "print(code, sorted({'torch', 'transformers', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "run"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "3 []"
    verdicts = json.loads((tmp_path / "run" / "verdicts.json").read_text())
    found = {c: {v["subject"]: v["verdict"] for v in verdicts if v["claim"] == c}
             for c in ("not expressed", "utility preserved")}  # fmt: skip
    assert found == {
        "not expressed": {"Breaks": "pass", "Forgets": "pass", "Hides": "fail"},
        "utility preserved": {"Breaks": "fail", "Forgets": "pass", "Hides": "pass"},
    }
    (listed,) = (tmp_path / "run" / "audit").glob("*/logs.json")
    logs = json.loads(listed.read_text())["logs"]
    assert sorted(log["role"] for log in logs) == ["retrained"] * 5 + ["target"] + ["unlearned"] * 3
    assert all(log["sha256"] == hashlib.sha256(Path(log["path"]).read_bytes()).hexdigest() for log in logs)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "9 logs in example" in page
    assert logs[0]["path"] not in page


def test_of_a_larger_forget_set_of_tofu_the_last_questions_are_those_of_a_smaller_one(tmp_path, put):
    more = (*(f"Other {n}?" for n in range(360)), *QUESTIONS)
    put(f"eval/{M}_full", tofu_eval(1.0, 0, questions=more, texts=False))
    put(f"eval/{M}_retain99", tofu_eval(0.0, 1, questions=more, texts=False))
    put(f"eval/{M}_retain90", tofu_eval(0.0, 2, questions=more, texts=False))
    put(f"unlearn/{M}_forget01_NPO", tofu_eval(0.9, 4, texts=False))
    (group,) = recognise([tmp_path / "saves"]).groups
    outcome = judge_logs(RunFolder(tmp_path / "run"), group.logs, forget=group.name)
    assert (outcome.n_judged, outcomes(outcome)) == (N, {"NPO": "fails"})


@pytest.mark.parametrize("damage", [b"\x00\xff", b"", b"[" * 100_000, b"9" * 5_000, b'"prob": -5.0', b'"prob": 1e999'])
def test_one_damaged_log_of_a_folder_takes_no_other_model_with_it(tmp_path, put, damage):
    put(f"eval/{M}_full", tofu_eval(1.0, 0))
    put(f"eval/{M}_retain99", tofu_eval(0.0, 1))
    put(f"unlearn/{M}_forget01_NPO", tofu_eval(0.9, 4))
    broken = put(f"unlearn/{M}_forget01_RMU", tofu_eval(0.9, 5, metric="forget_Q_A_Prob"))
    whole = broken.read_bytes()
    broken.write_bytes(re.sub(rb'"prob": [0-9.]+', damage, whole) if damage.startswith(b'"prob"') else damage)
    done = cli("audit", "--logs", tmp_path / "saves", "--output-dir", tmp_path / "run", "--json")
    shown = json.loads(done.stdout)
    assert {(row["subject"], row["verdict"]) for row in shown["verdicts"] if row["claim"] == "not expressed"} == {
        ("NPO", "fail"), *([("RMU", "fail")] if damage.startswith(b'"prob"') else [])}  # fmt: skip
    named = " ".join(said for all_said in shown["untested"].values() for said in all_said)
    assert any(words in named for words in ("RMU", "no share in [0, 1]", "missing on all 40"))


def test_folders_of_tofus_own_code_are_recognised(tmp_path):
    def tofu(folder, level, n=40):
        numbers = {str(k): level + k / 1000 for k in range(n)}
        stored = {"avg_gt_loss": numbers, "rougeL_recall": numbers,
                  "generated_text": {k: [f"Question: Q{k}?", "r", "t"] for k in numbers}}  # fmt: skip
        file = tmp_path / folder / "eval_results/ds_size300/eval_log_aggregated.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"eval_log_forget.json": stored}))

    full = "ft_epoch5_lr1e-05_phi_full_wd0.01"
    tofu(full, 0.1)
    tofu("ft_epoch5_lr1e-05_phi_full_wd0", 0.1)
    tofu("ft_epoch5_lr1e-05_phi_retain99_wd0.01", 0.3)
    tofu("retain90_phi_wd0.01", 0.3)
    tofu("retain90_llama_wd0.01", 0.3)
    tofu(f"{full}/grad_ascent_1e-05_forget01_5/checkpoint-4", 0.2)
    (group,) = recognise([tmp_path]).groups
    assert group.name == "tofu phi forget01"
    assert [(log.role, log.name) for log in group.logs] == [
        ("target", full), ("retrained", "ft_epoch5_lr1e-05_phi_retain99_wd0.01"), ("retrained", "retain90_phi_wd0.01"),
        ("unlearned", "grad_ascent_1e-05")]  # fmt: skip


def test_a_model_that_passes_all_that_logs_can_show_ends_with_0_and_a_claim_can_be_required(tmp_path, logs, put):
    logs[4] = GivenLog("unlearned", "honest", put("s", tofu_eval(0.0, 9)))
    words = [word for log in logs for word in ("--logs", f"{log.role}:{log.name}={log.path}")]
    done = cli("audit", *words, "--output-dir", tmp_path / "run")
    assert done.exit_code == 0, done.output
    last = done.output.strip().splitlines()[-1]
    assert last.startswith("honest passes the 2 of 6 claims that these logs test. Next: ")
    assert len(last) < 200
    rows = json.loads((tmp_path / "run" / "verdicts.json").read_text())
    assert {row["claim"] for row in rows if row["verdict"] == "not tested"} == {
        "not recoverable", "indistinguishable", "benchmark valid"}  # fmt: skip
    # The page says what the terminal says, and has nothing on what was not tested but the word and the reason.
    page = (tmp_path / "run" / "report.html").read_text().split('<script type="application/json"')[0]
    assert "<h1>the forget set: honest passes the 2 of 6 claims that these logs test.</h1>" in page
    assert "inconclusive</a>" not in page
    assert "inconclusive</span>" not in page
    assert "is shown to have" not in page
    assert "Next: attack its weights" in page
    assert all(f'id="{part}"' not in page for part in ("items", "graph", "tradeoff"))
    assert "Could the tests have found anything?" not in page
    assert "<h3>Models</h3>" not in page
    assert cli("audit", *words, "--output-dir", tmp_path / "run", "--require", "not_expressed").exit_code == 0
    assert cli("audit", *words, "--output-dir", tmp_path / "run", "--require", "not_recoverable").exit_code == 4
    wrong = cli("audit", *words, "--output-dir", tmp_path / "run", "--require", "forgotten")
    assert "is not a claim" in str(wrong.exception)
