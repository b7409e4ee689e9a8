"""An audit of models behind addresses: the verdicts and scores of the same models in folders, and what is untested."""

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from served import serving
from typer.testing import CliRunner

import audited
from vestige.artifacts.audits import AuditOutcome
from vestige.artifacts.layout import EvalFolder, RunFolder
from vestige.artifacts.records import read_scores
from vestige.auditing import run as study
from vestige.auditing.request import AuditedModel, within_reach
from vestige.cli.app import app
from vestige.core.files import read_json
from vestige.evals.choices import ChoicesSettings
from vestige.metrics import intervals
from vestige.models.load import ModelSettings, load

pytestmark = pytest.mark.slow

SETTINGS = audited.QUICK.model_copy(
    update={
        "evals": ("qa", "choices", "freeform", "memory"),
        "forms": ("plain", "few_shot", "prefilled"),
        "in_context": (2,),
        "suppress": True,
    }
)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 400)
    monkeypatch.setattr(study, "run_tasks", audited.in_this_process)


def scores(run: RunFolder, outcome: AuditOutcome) -> dict[tuple[str, str, str], dict]:
    """By subject, evaluation and item, before any attack and after it."""
    found = {}
    for path in sorted(run.path.glob("audit/*/asked/*.json")):
        for place in read_json(path)["evaluations"]:
            for row in read_scores(EvalFolder(run.path / place["path"])):
                key = (place["subject"], f"{place['attack']} {place['eval']}", str(row["item"]))
                found[key] = {name: value for name, value in row.items() if name != "item"}
    return found


def test_the_verdicts_and_the_scores_are_those_of_the_same_models_in_folders(audit_models, tmp_path):
    request = audited.request(audit_models)
    away = replace(request, settings=SETTINGS.model_copy(update={"relearn": (), "quantize": (), "suppress": False}))
    # What a served model cannot be asked is left out of both.
    same = away.settings.model_copy(update={"evals": ("qa", "choices", "freeform")})
    here = study.run_audit(tmp_path / "here", replace(away, settings=same), workers=1)
    places = {m.role: m for m in request.models}
    target, unlearned = (
        load(ModelSettings(model=places[role].model, device="cpu")) for role in ("target", "unlearned")
    )
    with serving(target) as first, serving(unlearned) as second:
        urls = {"target": (first, target), "unlearned": (second, unlearned)}
        models = tuple(
            AuditedModel(m.name, m.role, f"{urls[m.role][0].url}?tokenizer={urls[m.role][1].name}#nano")
            if m.role in urls
            else m
            for m in request.models
        )
        through = study.run_audit(tmp_path / "there", replace(request, models=models, settings=SETTINGS), workers=1)
        asked = len(first.bodies)
        again = study.run_audit(tmp_path / "there", replace(request, models=models, settings=SETTINGS), workers=1)
        questions = [body for body in first.bodies[asked:] if body["max_tokens"] == SETTINGS.max_new_tokens]
        assert not questions, "what was answered is asked again"
    assert not through.failed
    assert not here.failed
    verdicts = [[(v.subject, v.claim, v.outcome) for v in found.outcome.verdicts] for found in (here, through, again)]
    assert verdicts[0] == verdicts[1] == verdicts[2]
    ours, theirs = (
        scores(RunFolder(tmp_path / name), found.outcome) for name, found in (("there", through), ("here", here))
    )
    assert ours.keys() == theirs.keys()
    for key, own in ours.items():
        assert own == pytest.approx(theirs[key], abs=1e-3), key
    untested = " ".join(through.outcome.untested)
    assert "since target, ga are behind an address" in untested
    for what in ("relearning", "rounded weights", "memory and membership", "positive control could be made"):
        assert what in untested
    assert untested.count("what is served may change") == 1
    assert "Not asked for: relearning on retain" not in untested
    said = {"card": "asked behind an address", "eee": "externally_managed", "hf": "asked behind an address"}
    for to, words in said.items():
        data = ["--dataset", "org/data"] if to == "hf" else []
        ended = CliRunner().invoke(app, ["export", str(tmp_path / "there"), "--to", to, "--json", *data])
        assert any(words in Path(path).read_text() for path in json.loads(ended.stdout))


def test_a_server_without_scores_is_judged_by_its_replies(audit_models, tmp_path):
    request = audited.request(audit_models)
    model = next(m for m in request.models if m.role == "unlearned")
    with serving(load(ModelSettings(model=model.model, device="cpu")), "replies") as log:
        models = tuple(replace(m, model=f"{log.url}#nano") if m is model else m for m in request.models)
        settings = SETTINGS.model_copy(update={"suppress": False, "in_context": ()})
        found = study.run_audit(tmp_path / "run", replace(request, models=models, settings=settings), workers=1)
    assert not found.failed
    untested = " ".join(found.outcome.untested)
    assert "whose server scores no answers: options (choices)" in untested
    assert "asked by chat messages alone: prefilled answers" in untested
    forms = {line.format for line in found.outcome.formats}
    assert {"generate", "generate_plain"} <= forms
    # What is read of the other models alone says nothing of this one.
    kept = [v for v in found.outcome.verdicts if v.outcome == "holds"]
    assert not any("forced" in v.reason for v in kept)


def test_an_audit_of_chats_alone_needs_no_choice_of_evaluations(audit_models, tmp_path):
    request = audited.request(audit_models)
    for name in ("forget", "retain"):
        rows = [{"question": i.question, "answer": i.answer} for i in request.splits.splits[name]]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = "".join((tmp_path / f"{name}.jsonl").read_text() for name in ("forget", "retain"))
    (tmp_path / "data.jsonl").write_text(data)
    with contextlib.ExitStack() as servers:
        words = ["audit", "--quick", "--output-dir", str(tmp_path / "run")]
        words += ["--data", str(tmp_path / "data.jsonl"), "--forget", str(tmp_path / "forget.jsonl")]
        for m in request.models:
            log = servers.enter_context(serving(load(ModelSettings(model=m.model, device="cpu")), "replies"))
            words += [f"--{m.role}", f"{log.url}#nano"]
        ended = CliRunner().invoke(app, words)
    assert ended.exit_code in (3, 4), ended.output
    (outcome,) = study.write_verdicts(RunFolder(tmp_path / "run"))
    assert {line.format for line in outcome.formats} == {"generate"}
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert all(i.question in page for i in request.splits.splits["forget"])


def test_what_a_served_model_lacks_is_named_and_one_that_reasons_is_asked_for_its_trace(audit_models, monkeypatch):
    monkeypatch.setattr(ChoicesSettings, "audit", replace(ChoicesSettings.audit, label=""))
    request = audited.request(audit_models, SETTINGS)
    target = load(ModelSettings(model=request.models[0].model, device="cpu"))
    for trace in ({}, {"reasoning": "Let me see."}):
        with serving(
            target, "replies", alter=lambda _, found, t=trace: found["choices"][0]["message"].update(t)
        ) as log:
            models = (replace(request.models[0], model=f"{log.url}#nano"), *request.models[1:])
            reached = within_reach(replace(request, models=models))
        assert any(said.endswith("whose server scores no answers: choices") for said in reached.untested)
        assert ("reasoning" in reached.settings.evals) == bool(trace)
