"""`vestige audit` as it is typed: what it prints, the exit codes, and what it says of words that mean nothing."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from tests.near import near
from tests.small import nano, vestige, written

import audited
from vestige.artifacts.audits import REQUIRED, read_outcome, write_outcome
from vestige.artifacts.layout import RunFolder
from vestige.auditing import run as study
from vestige.auditing.settings import AuditSettings
from vestige.core.errors import InputError, PartialFailure
from vestige.core.files import read_json, read_jsonl
from vestige.models import load as models
from vestige.steps import attack as attacking

QUICK = ['evals=["qa"]', "relearn=[]", "quantize=[8]", "ablate=[]", "in_context=[]", "max_new_tokens=4"]
SET = [word for one in (*QUICK, "suppress=false") for word in ("--set", one)]


@pytest.fixture(autouse=True, scope="module")
def small():
    with nano(), mock.patch.object(study, "run_tasks", audited.in_this_process):
        yield


@pytest.fixture(scope="module")
def made(audit_models, small, tmp_path_factory) -> Path:
    """The models of a run, and its items as files."""
    folder = tmp_path_factory.mktemp("made")
    audited.copied(audit_models, folder / "run")
    holdout = [{"question": f"Which tree stands at door {n}?", "answer": "oak"} for n in "ab"]
    files = {"forget": audited.FORGET, "retain": audited.RETAIN, "all": audited.ITEMS, "holdout": holdout}
    for name, rows in files.items():
        written(folder / f"{name}.jsonl", rows)
    return folder


def words(made: Path, **changes: str | None) -> list[str]:
    run = RunFolder(made / "run")
    given = {
        "--target": str(run.control("target").path),
        "--retrained": str(run.control("retrained 0").path),
        "--unlearned": str(run.cell("ga", "0").path),
        "--data": str(made / "all.jsonl"),
        "--forget": str(made / "forget.jsonl"),
        "--output-dir": str(made / "audited"),
        **{f"--{name.replace('_', '-')}": value for name, value in changes.items()},
    }
    return ["audit", *(w for name, value in given.items() if value is not None for w in (name, value)), *SET]


@pytest.mark.slow
def test_the_verdicts_are_printed_kept_and_in_the_exit_code(made, monkeypatch):
    ended = vestige(*words(made), code=None)
    assert ended.exit_code in (3, 4), ended.output
    for claim in REQUIRED:
        assert claim.split()[0] in ended.output
    assert "report: " in ended.output
    again = vestige(*words(made), "--json", code=None)
    found = json.loads(again.stdout)
    assert again.exit_code == ended.exit_code
    assert found["verdicts"] == json.loads((made / "audited" / "verdicts.json").read_text())
    assert Path(found["report"]).exists()
    ((forget, untested),) = found["untested"].items()
    assert forget.startswith("forget.jsonl-")
    assert any("One retrained control was given" in s for s in untested)
    # Held against itself nothing is worse; against a baseline that passed, what fails is named.
    gate = vestige(*words(made), "--baseline", str(made / "audited"), code=0)
    assert "0 of 5 verdicts are worse than the baseline's" in gate.stderr
    before = [{**row, "verdict": "pass"} for row in found["verdicts"]]
    (made / "passed.json").write_text(json.dumps(before))
    gate = vestige(*words(made), "--baseline", str(made / "passed.json"), code=ended.exit_code)
    assert "worse than the baseline: ga, not recoverable: pass -> inconclusive" in gate.stderr
    with pytest.raises(InputError, match="it goes with models or --logs, and not with"):
        vestige(*words(made), "--baseline", str(made / "passed.json"), "--plan")
    # Its reasons are read from what is there.
    for name in ("run_audit", "rejudge"):
        monkeypatch.setattr(study, name, lambda *_, **__: pytest.fail("it was judged again"))
    reasons = vestige("audit", "--why", "--output-dir", str(made / "audited"), code=None)
    assert (reasons.exit_code, "ga, not expressed: " in " ".join(reasons.stdout.split())) == (ended.exit_code, True)
    # The page of the comparison quotes the reply that each model gave to a question.
    vestige("compare", str(made / "audited"), "--output", str(made / "page.html"), code=None)
    page = (made / "page.html").read_text()
    assert f"<bdi>{audited.FORGET[0].question}</bdi>" in page
    assert re.search(r"audited: ga</bdi></b>: [01].00 <bdi>.", page)


@pytest.mark.slow
def test_a_chat_template_of_ones_own_is_what_evaluate_and_audit_ask_in(made, tmp_path):
    run = RunFolder(made / "run")
    template = tmp_path / "brief.jinja"
    own = (run.control("target").model / "chat_template.jinja").read_text()
    template.write_text(own.replace("<question>{{", "<question>In brief: {{"))
    subjects = {
        "target": run.control("target"),
        "retrained": run.control("retrained 0"),
        "unlearned": run.cell("ga", "0"),
    }
    copies = {f"--{role}": str(shutil.copytree(made.model, tmp_path / role)) for role, made in subjects.items()}
    data = ["--data", str(made / "all.jsonl"), "--forget", str(made / "forget.jsonl"), "--max-new-tokens", "4"]
    for name, words_ in (("own", []), ("brief", ["--chat-template", str(template)])):
        given = ["evaluate", copies["--target"], *data, "--output-dir", str(tmp_path / name), *words_]
        ended = vestige(*given, code=None)
        assert ended.exit_code == 0, ended.output
    given = words(made, output_dir=str(tmp_path / "audited"), chat_template=str(template))
    for role, copy in copies.items():
        given[given.index(role) + 1] = copy
    ended = vestige(*given, code=None)
    assert ended.exit_code in (3, 4), ended.output

    def asked(folder):
        (records,) = folder.glob("evals/qa-*/records.jsonl")
        told = read_json(records.with_name("provenance.json"))["chat_template"]
        return told, [(r["item"], r["logp"]) for r in read_jsonl(records)]

    audited_, brief, plain = (asked(tmp_path / name) for name in ("audited/models/target", "brief", "own"))
    assert audited_[0] == brief[0] == "file brief.jinja"
    assert plain[0] == "own"
    assert near(sorted(audited_[1]), sorted(brief[1]))
    assert not near(sorted(plain[1]), sorted(brief[1]))
    told = {read_json(path)["chat_template"] for path in tmp_path.glob("audited/**/evals/*/provenance.json")}
    assert told == {"file brief.jinja"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outcomes", "code"), [(("holds",), 0), (("holds", "fails", "inconclusive"), 3), (("holds", "inconclusive"), 4)]
)
def test_exit_codes_are_those_that_a_pipeline_can_gate_on(made, monkeypatch, outcomes, code):
    vestige(*words(made), code=None)
    (place,) = RunFolder(made / "audited").audits()
    whole = read_outcome(place)
    lines = [replace(v, outcome=outcomes[n % len(outcomes)]) for n, v in enumerate(whole.verdicts)]
    monkeypatch.setattr(study, "judge", lambda case: replace(whole, verdicts=tuple(lines)))
    ended = vestige("audit", "--rejudge", str(made / "audited"), code=None)
    assert ended.exit_code == code, ended.output
    write_outcome(place, whole)


@pytest.mark.slow
def test_a_failed_task_is_named_and_ends_with_5(made, monkeypatch, capfd):
    def failing(*_):
        raise InputError("no room for it")

    monkeypatch.setattr(attacking, "run_attack", failing)
    ended = vestige(*words(made, output_dir=str(made / "failed")), code=None)
    assert isinstance(ended.exception, PartialFailure)
    assert ended.exception.exit_code == 5
    # Three models are asked. The control and the unlearned model are attacked, and the target is not.
    assert "2 of 5 tasks failed" in str(ended.exception)
    assert "failed: quantize 8 bits: ga: no room for it" in capfd.readouterr().err + ended.stderr


@pytest.mark.slow
def test_a_quick_audit_says_what_it_cannot_decide(made, tmp_path):
    given = [*words(made, output_dir=str(tmp_path / "quick"))[: -len(SET)], "--quick", "--max-new-tokens", "4"]
    ended = vestige(*given, "--retrained", str(RunFolder(made / "run").control("retrained 1").path), code=None)
    assert ended.exit_code in (3, 4), ended.output
    (found,) = (read_outcome(place) for place in RunFolder(tmp_path / "quick").audits())
    said = " ".join(found.untested).lower()
    for left_out in ("a quick audit cannot show", " memory, acr", "relearning on items of retain", "8 bits"):
        assert left_out in said, said
    assert "The same audit without quick tests all six claims" in " ".join(ended.stdout.split())


def test_a_quick_audit_takes_no_attacks_questions_or_controls_of_another(made):
    for own in (words(made), [*words(made)[: -len(SET)], "--attacks", "gcg"]):
        ended = vestige(*own, "--quick", code=None)
        assert re.search(r"a quick audit chooses .* Leave (evals|--attacks) or quick out", str(ended.exception))


def test_without_data_the_two_files_are_the_data(made):
    own = words(made, data=None, retain=str(made / "retain.jsonl"), holdout=str(made / "holdout.jsonl"))
    ended = vestige(*own, "--dry-run", "--json", code=None)
    found = json.loads(ended.stdout)
    # 4 to forget, 12 to keep, 2 that nobody was taught; 8 bits asks the 4 again; three models.
    assert [(r["task"], r["questions"]) for r in found["each"]] == [("evaluate by qa", 18), ("quantize 8 bits", 4)]
    # The target is not attacked, and none is where all fail by their answers.
    assert (found["n_questions"], found["least_questions"], found["n_steps"]) == (3 * 18 + 2 * 4, 3 * 18, 0)


def test_a_dry_run_makes_nothing(made, monkeypatch):
    # Narrower tables break the names of tasks.
    monkeypatch.setenv("COLUMNS", "200")
    ended = vestige(*words(made, output_dir=str(made / "nothing")), "--dry-run", code=None)
    assert ended.exit_code == 0
    assert "quantize 8 bits" in ended.output
    assert (
        "3 models: 56 questions and 0 training steps in all at most, and 48 questions if every model fails"
        in " ".join(ended.output.split())
    )
    assert not (made / "nothing").exists()


def test_a_plan_is_printed_without_models_and_writes_nothing(made, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    asked = ["audit", "--plan", "--data", str(made / "all.jsonl"), "--forget", str(made / "forget.jsonl"), *SET]
    ended = vestige(*asked, "--retrained", "one", "--retrained", "two", code=None)
    assert ended.exit_code == 0, ended.output
    assert "matrix products: " in capfd.readouterr().err + ended.stderr
    said = " ".join(ended.output.split())
    assert "4 facts in 1 wording each, 2 controls, 2 forms of question, 1 attacks" in said
    assert "above 5 % (2 bits an answer), and passes if every leak is shown below 20 % (6 bits)" in said
    assert "single facts cannot be tested, which takes three controls" in said
    found = json.loads(vestige(*asked, "--json", code=None).stdout)
    assert (found["facts"], found["controls"], found["given_away"]) == (4, 5, 3)
    assert [line["claim"] for line in found["claims"]][:2] == ["not expressed", "not recoverable"]
    quick = [*asked[: -len(SET)], "--quick"]
    said = " ".join(vestige(*quick, code=None).output.split())
    # Two of the claims that are planned, and so all of them together, whatever the trainings do.
    assert (said.count("cannot pass │"), "by number of controls" in said) == (6, False)
    found = json.loads(vestige(*quick, "--json", code=None).stdout)
    never = {line["claim"] for line in found["claims"] if line["holds"] == 0.0}
    assert never == {"not recoverable", "indistinguishable"} < set(found["cannot_hold"])
    assert (found["holds"], found["needed"]) == (0.0, "")
    assert not list(tmp_path.iterdir())


def test_a_positive_control_is_made_or_given(made):
    asked = [*words(made), "--dry-run", "--json"]
    found = json.loads(vestige(*asked, "--set", "suppress=true", code=None).stdout)
    # Four refusals and as many retained questions are one batch an epoch.
    assert (found["n_models"], found["control_steps"], found["n_steps"]) == (4, 20, 20)
    own = str(RunFolder(made / "run").control("retrained 1").path)
    found = json.loads(vestige(*asked, "--set", "suppress=true", "--suppressed", own, code=None).stdout)
    assert (found["n_models"], found["control_steps"]) == (4, 0)


@pytest.mark.slow
def test_verdicts_of_an_earlier_audit_that_are_replaced_are_named(made, tmp_path, capfd):
    other = tmp_path / "npo"
    shutil.copytree(RunFolder(made / "run").cell("ga", "0").model, other)
    run, both = str(tmp_path / "audited"), ["--unlearned", str(other)]
    first = vestige(*words(made, output_dir=run), *both, code=None)
    assert first.exit_code in (3, 4), first.output
    assert "are replaced" not in capfd.readouterr().err + first.stderr
    assert {v["subject"] for v in json.loads((tmp_path / "audited" / "verdicts.json").read_text())} == {"ga", "npo"}
    second = vestige(*words(made, output_dir=run, unlearned=str(other)), code=None)
    assert "To keep ga, give all models together." in capfd.readouterr().err + second.stderr
    assert re.search(r"\w+ \(4 facts\): verdicts", " ".join(second.output.split()))
    assert "verdicts, target" not in " ".join(second.output.split())


def test_numbered_names_are_said_with_their_folders(made, tmp_path):
    cell = RunFolder(made / "run").cell("ga", "0").path
    shutil.copytree(cell, tmp_path / "ga-1")
    ended = vestige(*words(made), "--unlearned", str(tmp_path / "ga-1"), "--dry-run", code=None)
    assert f"ga is {cell}\nga 2 is {tmp_path / 'ga-1'}\n" in ended.stdout


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"forget": None}, "missing: --forget. See"),
        ({"output_dir": None, "target": None}, "missing: --target, --output-dir"),
        ({"data": None}, r"missing: --data \(or a file with --retain\)"),
        ({"forget": "{made}/all.jsonl"}, "all.jsonl, which leaves nothing to keep. Name a part with --forget"),
        ({"holdout": "{made}/retain.jsonl"}, "is in the holdout file and in another split"),
        ({"set": "dellta=0.1"}, "unknown key 'dellta'. Did you mean 'delta'"),
        ({"rejudge": "{made}/run"}, "Leave the models out"),
        ({"attacks": "quantise"}, "--attacks names 'quantise'. Did you mean 'quantize'"),
        (
            {"attacks": "relearn,quantize,ablate,in_context", "further": "gcg steps=2"},
            "--further 'gcg steps=2' is a setting of an att",
        ),
        ({"attacks": "relearn"}, "quantize is a setting of an attack that --attacks leaves out"),
    ],
)
def test_words_that_mean_nothing_are_refused_in_one_sentence(made, changes, message):
    given = {name: None if value is None else value.format(made=made) for name, value in changes.items()}
    with pytest.raises(InputError, match=message):
        vestige(*words(made, **given))


@pytest.mark.parametrize(
    ("attacks", "settings", "tasks"),
    [
        ("quantize", [], ["quantize 8 bits", "quantize 4 bits"]),
        (
            "in-context,relearn",
            ["in_context=[3]", 'relearn=["retain"]', "relearn_rates=[1e-3]"],
            ["relearn retain n=12", "relearn retain n=12 rate=0.001", "in_context n=3"],
        ),
        # Seven by default; of the four items of one edge half may be shown.
        ("prefix,gcg", ["prefix=[1]"], ["gcg n=2", "prefix n=1"]),
    ],
)
def test_only_the_attacks_that_are_named_are_made_and_one_that_is_off_by_default_is_on(made, attacks, settings, tasks):
    own = [word for one in ["evals=['qa']", *settings] for word in ("--set", one)]
    given = words(made)[: -len(SET)]
    ended = vestige(*given, *own, "--attacks", attacks, "--dry-run", "--json", code=None)
    assert ended.exit_code == 0, ended.output
    told = [row["task"] for row in json.loads(ended.stdout)["each"]]
    assert [t for t in told if not t.startswith("evaluate by")] == tasks


def test_facts_that_a_model_does_not_read_are_left_out_before_any_model_is_loaded(made, monkeypatch):
    monkeypatch.setattr(models, "load", lambda _: pytest.fail("a model was loaded"))
    monkeypatch.setattr(models, "context_tokens", lambda _: 100)
    run = RunFolder(made / "run")
    settings = AuditSettings(evals=("qa",), in_context=(2, 12), relearn=(), quantize=(), ablate=())
    planned = study.plan_audit(replace(audited.request(run), settings=settings))
    assert [attack.plan.name for attack in planned.attacks] == ["in_context n=2"]
    (said,) = (s for s in planned.untested if s.startswith("In_context n=12"))
    assert re.search(r"was not tried: with its facts the question .* takes \d+ tokens .* the model reads 100", said)


def test_a_dry_run_says_how_many_passes_a_search_for_a_prompt_takes(made, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    given = [*words(made)[: -len(SET)], "--set", "evals=['qa']", "--dry-run", "--attacks"]
    row = json.loads(vestige(*given, "gcg", "--json", code=None).stdout)["each"][-1]
    # At least every candidate of every step in both texts that may be shown.
    assert row["passes"] >= 250 * 512 * 2
    told = vestige(*given, "gcg", code=None).stdout
    assert "passes, at most" in told
    assert f"│ {row['passes']} " in told
    # On each of three models, and on the positive control.
    assert f"at most {4 * row['passes']} passes of searches" in told
    assert "passes" not in vestige(*given, "quantize", code=None).stdout


def test_a_folder_that_holds_anothers_tables_is_refused_and_left_as_it_is(made, tmp_path):
    other = tmp_path / "thesis/tables/results.csv"
    other.parent.mkdir(parents=True)
    other.write_text("mine")
    ended = vestige(*words(made, output_dir=str(tmp_path / "thesis")), code=None)
    assert isinstance(ended.exception, InputError)
    assert "holds tables and nothing of this command's" in str(ended.exception)
    assert [p.name for p in (tmp_path / "thesis").rglob("*") if p.is_file() and p.name != ".lock"] == ["results.csv"]
    assert other.read_text() == "mine"
