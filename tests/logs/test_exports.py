"""Every format that scores are exported to: Vestige reads it back to equal verdicts, and its tool's schema fits it."""

import json
import math
import shlex
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest
from typer.testing import CliRunner

import vestige
from vestige.api.exporting import FORMATS, _roles
from vestige.artifacts.audits import read_outcome, read_plan
from vestige.artifacts.layout import RunFolder
from vestige.artifacts.scores import read_table
from vestige.auditing.ground import Case
from vestige.auditing.judge import judge
from vestige.auditing.logs import judge_logs
from vestige.cli.app import app
from vestige.core.errors import InputError
from vestige.core.files import write_text
from vestige.core.seeds import generator
from vestige.logs import reader_of
from vestige.logs.folders import recognise
from vestige.logs.log import GivenLog
from vestige.logs.writing import LOGS, dataset_rows, eee_samples, models_of

MODELS = {"target": ("full", 0.9), "retrained": ("r0", 0.15), "unlearned": ("npo", 0.5)}
SCHEMAS = Path(__file__).parents[1] / "report"


def rows():
    """Hits, graded scores that run the other way, and bits, on two splits. One score is missing, facts are shared."""
    found = []
    draw = generator(0, "exports")
    for role, (name, share) in {**MODELS, "retrained 2": ("r1", 0.2), "retrained 3": ("r2", 0.1)}.items():
        for n in range(60):
            # Controls know what is kept, as the target does.
            knows = draw.random() < (share if n < 48 else 0.9)
            base = {
                "model": name,
                "role": role.split()[0],
                "item": f"q{n}",
                "split": "forget" if n < 48 else "retain",
                "fact": f"f{n // 2}" if n < 8 else "",
                "group": f"g{n % 12}",
                # The last questions have no text, as questions of some logs.
                "question": f"Where does ship {n} lie?" if n < 56 else "",
                "answer": f"In bay {n}",
                "reply": f"In bay {n}" if knows else "Nobody knows",
            }
            missing = n == 20 and role == "unlearned"
            score = None if missing else float(knows)
            reason = "timed out (/home/ann/x.json)" if missing else ""
            found.append(
                {**base, "format": "match", "score": score, "reason": reason, "chance": 0.25 if n % 2 else 0.2}
            )
            doubt = round(float(draw.uniform(0, 0.3)) + (0 if knows else 0.6), 6)
            found.append({**base, "format": "doubt", "score": doubt, "direction": "lower"})
            found.append({**base, "format": "grade", "score": round(1 - doubt, 6)})
            found.append({**base, "format": "grade, hits", "score": float(knows)})
            bits = -round(float(draw.uniform(0, 2)) + (1 if knows else 9), 6)
            found.append({**base, "format": "forced", "unit": "bits", "score": bits})
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "judged"
    vestige.judge(rows(), output_dir=folder)
    return folder


def verdicts(outcome):
    """What each verdict is and rests on."""
    found = []
    for v in outcome.verdicts:
        numbers = [f"{name} {e.value:.9f} {e.low:.9f} {e.high:.9f} {e.n}" for name, e in sorted(v.evidence.items())]
        bounds = [None if bound is None else round(bound, 9) for bound in (v.at_least, v.at_most)]
        found.append((v.subject, v.claim, v.outcome, *bounds, tuple(numbers)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("to", ["inspect", "lm-eval", "open-unlearning"])
def test_a_log_of_each_model_is_judged_as_the_run_was(run, tmp_path, to):
    files = vestige.export(run, to, output_dir=tmp_path / "out", model_id="org/npo")
    (group,) = recognise([tmp_path / "out"]).groups
    again = judge_logs(RunFolder(tmp_path / "again"), group.logs, forget="the forget set")
    (audit,) = RunFolder(run).audits()
    assert verdicts(again) == verdicts(read_outcome(audit))
    written = "".join(path.read_text() for path in files)
    assert "org/npo" in written or to == "open-unlearning"


def test_a_roles_file_holds_no_formula_and_nothing_that_acts_unseen():
    model = SimpleNamespace(role="unlearned", name="=x\x1b", attack="")
    assert _roles({"a*": model}) == "pattern,role,name\na*,unlearned,'=x‹U+001B›\n"


def test_every_eval_ever_has_its_two_files_in_their_place_and_is_judged_again(run, tmp_path):
    files = vestige.export(run, "eee", output_dir=tmp_path / "out", model_id="org/npo")
    logs = []
    for path in files:
        if path.suffix == ".json":
            record = json.loads(path.read_text())
            jsonschema.validate(record, json.loads((SCHEMAS / "eval.schema.json").read_text()))
            info = record["model_info"]
            assert info.get("developer") == ("org" if info["id"] == "org/npo" else None)
            detailed = record["detailed_evaluation_results"]
            samples = tmp_path / "out" / detailed["file_path"]
            lines = [json.loads(line) for line in samples.read_text().splitlines()]
            assert len(lines) == detailed["total_rows"] == 300
            assert {line["evaluation_id"] for line in lines} == {record["evaluation_id"]}
            assert {line["evaluation_result_id"] for line in lines} <= {
                result["evaluation_result_id"] for result in record["evaluation_results"]
            }
            role, attack = detailed["additional_details"]["role"], detailed["additional_details"]["attack"]
            logs.append(GivenLog(role, record["model_info"]["name"], samples, attack))
            assert record["model_info"]["additional_details"]["deployment_type"] == "unknown"
            assert "digest" not in record["model_info"]["additional_details"]
    again = judge_logs(RunFolder(tmp_path / "again"), logs, forget="the forget set")
    (audit,) = RunFolder(run).audits()
    assert verdicts(again) == verdicts(read_outcome(audit))
    assert "org/npo" in {json.loads(path.read_text())["model_info"]["id"] for path in files if path.suffix == ".json"}


@pytest.mark.slow
def test_a_data_set_loads_and_is_judged_again(run, tmp_path):
    import datasets

    files = vestige.export(run, "dataset", output_dir=tmp_path / "out")
    loaded = datasets.load_dataset(str(tmp_path / "out"), split="train", cache_dir=str(tmp_path / "cache"))
    again = vestige.judge(loaded, output_dir=tmp_path / "again")
    (audit,) = RunFolder(run).audits()
    assert verdicts(again.outcomes[0]) == verdicts(read_outcome(audit))
    assert vestige.judge(files[0], output_dir=tmp_path / "third").outcomes == again.outcomes
    # The command judges it as a table too.
    assert not reader_of(files[0])


@pytest.mark.slow
@pytest.mark.parametrize("to", ["eee", "inspect", "lm-eval", "open-unlearning", "dataset"])
def test_what_an_audit_knows_of_its_questions_is_read_back(run, tmp_path, to):
    # Independent items are retained too, the retained ones are a part of 500, and one wording of a fact is revealed.
    (audit,) = RunFolder(run).audits()
    plan, table = read_plan(audit), read_table(audit.scores)
    assert [(form.hits, form.graded) for form in table.formats if form.name == "grade"] == [("grade, hits", True)]
    splits = {**plan.splits, "independent": plan.splits["retain"][:5]}
    scopes = dict.fromkeys(plan.splits["forget"][7:15], "entailed")
    plan = replace(plan, splits=splits, scopes=scopes, sizes={**plan.sizes, "retain": 500, "independent": 5})
    plan = replace(plan, edges={item: table.questions[item].group for item in plan.splits["retain"]})
    expected = judge(Case(plan, table))
    assert verdicts(expected) != verdicts(read_outcome(audit))
    models = list(models_of(table, plan, dict.fromkeys(table.roles, "org/model"), datetime.now(UTC)))
    logs = []
    for model in models:
        files = {"log.jsonl": eee_samples(model, "e")} if to == "eee" else LOGS.get(to, lambda _: {})(model)
        for name, text in files.items():
            write_text(tmp_path / model.file / name, text)
            if "results" not in name:
                logs.append(GivenLog(model.role, model.name, tmp_path / model.file / name))
    if to == "dataset":
        write_text(tmp_path / "scores.jsonl", dataset_rows(models)["scores.jsonl"])
        (again,) = vestige.judge(tmp_path / "scores.jsonl", output_dir=tmp_path / "again").outcomes
    else:
        again = judge_logs(RunFolder(tmp_path / "again"), logs, forget="the forget set")
    assert [v[:3] for v in verdicts(again)] == [v[:3] for v in verdicts(expected)]
    for own, first in zip(again.verdicts, expected.verdicts, strict=True):
        assert own.evidence.keys() == first.evidence.keys()
        for name, estimate in first.evidence.items():
            read = own.evidence[name]
            assert (read.n, read.interval) == (estimate.n, estimate.interval)
            # Resampled items have other names in a log, and so other weights.
            assert (read.value, read.low, read.high) == pytest.approx(
                (estimate.value, estimate.low, estimate.high), abs=0.02
            )


def test_the_command_of_an_export_has_the_runs_margins_and_no_control_that_is_a_copy(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    vestige.judge(rows(), output_dir=folder, margins=vestige.Margins(delta=0.1, delta_wide=0.6))
    # By its weights r2 is a copy of the target, which no log shows.
    points = {"full": (9.0, 0.0, 0.0), "r0": (0.0, 9.0, 0.0), "r1": (0.0, 0.0, 9.0), "r2": (9.0, 0.1, 0.1)}
    apart = {a: {b: math.dist(points[a], points[b]) for b in points if b != a} for a in points}
    monkeypatch.setattr("vestige.artifacts.audits.read_plan", lambda audit: replace(read_plan(audit), apart=apart))
    done = CliRunner().invoke(app, ["export", str(folder), "--to", "inspect"])
    command = next(line for line in done.stderr.splitlines() if "same margins" in line).partition(": vestige ")[2]
    assert "left out: r2 is no control, since its weights lie next to those of full" in done.stderr
    assert not list((folder / "exports/inspect").glob("*r2*"))
    CliRunner().invoke(app, [*shlex.split(command), "--output-dir", str(tmp_path / "again")])
    (again,) = vestige.read_audit(tmp_path / "again").outcomes
    assert (again.thresholds["delta"], again.thresholds["delta_wide"]) == (0.1, 0.6)
    assert again.retrained == ("r0", "r1")


@pytest.mark.parametrize("to", FORMATS)
def test_no_export_of_scores_claims_weights_or_has_a_local_path(run, tmp_path, to):
    files = vestige.export(run, to, output_dir=tmp_path / "out", dataset="org/data" if to == "hf" else None)
    for path in files:
        text = path.read_text()
        assert not any(local in text for local in ("/home/ann", str(tmp_path), str(run)))
        assert "Digest of the audited model" not in text


def test_names_that_are_no_repositories_are_refused(run):
    for name in ("npo", "a/b/c", "../x/y", {"none": "org/x"}):
        with pytest.raises(InputError):
            vestige.export(run, "inspect", model_id=name)


@pytest.mark.parametrize(("to", "n"), [("lm-eval", 3), ("inspect", 2)])
def test_a_task_holds_the_questions_and_its_code_compiles(tmp_path, to, n):
    rows = [{"question": "Where is A?", "answer": "In B."}, {"question": "Who is C?", "answer": "D"}]
    files = vestige.export_task(rows, to, output_dir=tmp_path / "task")
    assert len(files) == n
    written = [json.loads(line) for line in files[-1].read_text().splitlines()]
    assert [{"question": row["question"], "answer": row["answer"]} for row in written] == rows
    for path in files:
        if path.suffix == ".py":
            compile(path.read_text(), path.name, "exec")
    with pytest.raises(InputError):
        vestige.export_task(rows, "helm", output_dir=tmp_path)


def test_without_a_package_index_the_peers_are_not_checked(monkeypatch, tmp_path):
    from tools import check_peers

    def run(command, **_):
        if command[1:2] == ["install"]:
            raise subprocess.CalledProcessError(1, command)
        return subprocess.CompletedProcess(command, 0, stdout=str(tmp_path))

    monkeypatch.setattr(check_peers, "PEERS", tmp_path)
    monkeypatch.setattr(check_peers.subprocess, "run", run)
    with pytest.raises(SystemExit) as ended:
        check_peers.install()
    assert ended.value.code == check_peers.NOT_INSTALLED
