"""An audit of models on disk: what is asked, resumed, judged again, and said when a part of it fails."""

import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.small import nano

import audited
from vestige.api import selection
from vestige.artifacts import audits
from vestige.artifacts.audits import REQUIRED, SealedPlan, read_outcome, read_plan, sealed_digest
from vestige.artifacts.layout import EvalFolder, RunFolder, SubjectFolder
from vestige.artifacts.provenance import read_provenance
from vestige.artifacts.records import read_records, read_spec, write_spec
from vestige.auditing import run as study
from vestige.auditing.forecast import forecast_audit, foresee_audit
from vestige.auditing.judge import judge as study_judge
from vestige.auditing.origins import Origins
from vestige.auditing.request import (
    AuditedModel,
    AuditRequest,
    check_request,
    limited,
    named_models,
    not_asked_for,
    numbered,
    questions_of,
)
from vestige.auditing.run import after_an_attack, plan_audit, rejudge, run_audit
from vestige.auditing.settings import AuditSettings
from vestige.core.errors import InputError, NotFinite, PartialFailure
from vestige.core.files import read_json, write_jsonl
from vestige.core.items import QUESTION_FORMS, Item
from vestige.core.settings import read_toml
from vestige.core.store import write_sealed
from vestige.data.corpus import NamedSplits
from vestige.data.loaders import Figure, Pack, PackSplit, Published
from vestige.metrics import intervals
from vestige.models import Reading
from vestige.models.load import ModelSettings, load
from vestige.report.audit import first_screen
from vestige.report.build import build_bundle, build_report
from vestige.report.evidence import read_evidence
from vestige.steps import attack as attacking
from vestige.steps import evaluate as evaluating

pytestmark = pytest.mark.slow

WHO = ("target", "retrained 0", "retrained 1", "ga")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """One process, one thread, few resamples."""
    torch.set_num_threads(1)
    monkeypatch.setattr(intervals, "RESAMPLES", 400)
    monkeypatch.setattr(study, "run_tasks", audited.in_this_process)


@pytest.fixture(scope="module")
def made(audit_models, tmp_path_factory) -> RunFolder:
    """The models, and a finished audit of them."""
    run = audited.copied(audit_models, tmp_path_factory.mktemp("made") / "run")
    with nano(), mock.patch.object(study, "run_tasks", audited.in_this_process):
        run_audit(run.path, audited.request(run))
    return run


@pytest.fixture
def run(made, tmp_path) -> RunFolder:
    return audited.copied(made, tmp_path / "run")


def again(run: RunFolder, **changes) -> study.Audited:
    return run_audit(run.path, replace(audited.request(run), **changes))


def test_every_model_is_asked_and_attacked_alike_and_every_claim_gets_a_verdict(made):
    plan, outcome = (read(made.audit("edge:p0_q0")) for read in (read_plan, read_outcome))
    assert (plan.target, plan.unlearned, plan.retrained) == ("target", ("ga",), ("retrained 0", "retrained 1"))
    attacks = ["relearn retain n=4", "quantize 8 bits"]
    assert [a.name for a in plan.attacks] == attacks
    asked = {(e.subject, e.attack, e.eval) for e in plan.evaluations}
    assert asked == {(who, attack, name) for who in WHO for attack in ("", *attacks) for name in ("qa", "choices")}
    assert {(a.subject, a.attack) for a in plan.attacked} == {(who, attack) for who in WHO for attack in attacks}
    assert all(EvalFolder(made.path / e.path).scores.exists() for e in plan.evaluations)
    assert [(v.subject, v.claim) for v in outcome.verdicts] == [("ga", claim) for claim in REQUIRED]
    rows = read_json(made.verdicts)
    assert [r["claim"] for r in rows] == list(REQUIRED)
    assert set(rows[0]) >= {"subject", "forget", "claim", "verdict", "reason", "numbers", "thresholds"}
    assert (plan.evidence_level, outcome.evidence_level) == ("verified", "verified")
    assert {r["evidence_level"] for r in rows} == {"controls trained here from these data (verified)"}
    assert read_toml(made.settings)["command"] == "audit"
    # Models that lie in the run keep their evidence in their own folders.
    assert plan.folders == {
        "target": "models/target",
        "retrained 0": "models/" + made.control("retrained 0").path.name,
        "retrained 1": "models/" + made.control("retrained 1").path.name,
        "ga": "cells/ga-0",
    }


def test_what_is_unchanged_is_not_judged_again_and_any_changed_byte_is(run, monkeypatch):
    first, judged = again(run).outcome, []
    monkeypatch.setattr(study, "judge", lambda case: judged.append(1) or study_judge(case))
    assert again(run).outcome == first
    assert judged == []
    (delta,) = rejudge(run.path, {"delta": 0.06})
    assert len(judged) == 1
    assert (delta.thresholds["delta"], again(run).outcome.thresholds["delta"]) == (0.06, 0.05)
    assert len(judged) == 2
    # An outcome that somebody wrote in is judged again from the table of scores.
    outcome = run.audit("edge:p0_q0").outcome
    outcome.write_text(outcome.read_text().replace("holds", "fails", 1))
    assert again(run).outcome == first
    assert len(judged) == 3


def test_a_plan_that_was_sealed_is_held_against_the_audit_that_follows(run):
    shutil.rmtree(run.audit("edge:p0_q0").path)
    sealed = study.seal_plan(run.path, audited.request(run))
    assert len(sealed.digest) == 64
    # What was asked in an earlier audit of the run is no answer to a plan.
    assert again(run).outcome.sealed.endswith("evaluations are older than the seal.")
    for answers in [*run.path.rglob("evals")]:
        shutil.rmtree(answers)
    assert (sealed.settings["delta"], sealed.plan["models"]["unlearned"]) == (0.05, ["ga"])
    done = again(run).outcome
    lead = f"Plan and margins were sealed on {sealed.time}, before the models were asked (digest {sealed.digest}); "
    assert done.sealed == lead + "changed since: nothing."
    assert read_json(run.verdicts)[0]["sealed"] == done.sealed
    assert again(run, seed=1).outcome.sealed == lead + "changed since: seed."
    # Other margins are told too, and so is an audit without a seal.
    (judged,) = rejudge(run.path, {"delta": 0.1})
    assert judged.sealed == lead + "changed since: seed; delta 0.1 in place of 0.05."
    # So are newer rules, an attack that was sealed and is not made any more, and answers that were there before.
    with mock.patch("vestige.auditing.judge.VERSION", 99):
        assert "changed since: seed; rules of judging; delta 0.1" in rejudge(run.path)[0].sealed
    folder = run.audit("edge:p0_q0")
    before = asdict(sealed)
    more = {**before, "settings": {**before["settings"], "further": ["latent"]}, "time": "2100-01-01T00:00:00+00:00"}
    write_sealed(folder.sealed, asdict(SealedPlan(**more)))
    # Its digest may be in others' hands: a plan that it was not given of is none.
    with pytest.raises(InputError, match="was changed"):
        again(run)
    more["digest"] = sealed_digest(more["plan"], more["settings"])
    write_sealed(folder.sealed, asdict(SealedPlan(**more)))
    said = again(run).outcome.sealed
    assert "evaluations are older than the seal" in said
    assert said.endswith("further None in place of ['latent'].")
    write_sealed(folder.sealed, asdict(sealed))
    with pytest.raises(InputError, match="already has answers, and a plan must be sealed before"):
        study.seal_plan(run.path, audited.request(run))
    run.audit("edge:p0_q0").sealed.unlink()
    assert again(run).outcome.sealed == "Plan and margins were not sealed before the models were asked."


def test_a_target_that_is_not_as_published_is_asked_nothing_else(run, tmp_path):
    write_jsonl(tmp_path / "f.jsonl", ({"question": i.question, "answer": i.answer} for i in audited.FORGET))
    figure = Figure(split="f", eval="qa", settings={"max_new_tokens": 4}, metric="forced/probability", value=0.5)
    pack = Pack(about="", data=("f",), splits={"f": PackSplit(file="f")}, folder=str(tmp_path))
    shutil.rmtree(run.audit("edge:p0_q0").path)
    row = Published(model="m", source="a table", tolerance=0.5, figures=(figure,))
    strict = row.model_copy(update={"tolerance": 1e-9})
    plain = forecast_audit(audited.request(run))
    foretold = forecast_audit(replace(audited.request(run), published=(pack, row)))
    assert (foretold.published, foretold.n_questions) == (len(audited.FORGET), plain.n_questions + len(audited.FORGET))
    forgets = read_evidence(run).forgets
    with pytest.raises(InputError, match=r"probability of f is \S+ here and 0.5 there \(a table\. .* --published none"):
        again(run, published=(pack, strict))
    assert not run.audit("edge:p0_q0").path.exists()
    assert again(run, published=(pack, row)).outcome.verdicts
    assert read_evidence(run).forgets == forgets, "figures are no forget set of the report"


def test_formats_are_asked_of_the_forget_set_and_losses_of_everything(made):
    plan = read_plan(made.audit("edge:p0_q0"))
    n = {e.eval: read_json(EvalFolder(made.path / e.path).collected)["n"] for e in plan.evaluations if not e.attack}
    assert n == {"qa": 16, "choices": 4}


def test_a_model_that_was_retrained_is_known_among_the_unlearned_ones_by_its_folder(made):
    plan = read_plan(made.audit("edge:p0_q0"))
    assert plan.references == ()
    assert Origins.read(made, plan.folders, "target").retrained_among(("ga", "retrained 0")) == ("retrained 0",)


def test_a_finished_audit_asks_no_model_again_and_comes_out_the_same(run, monkeypatch):
    before = run.audit("edge:p0_q0").outcome.read_bytes()

    def never(*_):
        raise AssertionError("a model was asked")

    monkeypatch.setattr(evaluating, "_loaded", never, raising=False)
    monkeypatch.setattr(evaluating, "loaded_subject", never)
    monkeypatch.setattr(attacking, "loaded_subject", never)
    assert not again(run).failed
    assert run.audit("edge:p0_q0").outcome.read_bytes() == before


def test_verdicts_can_be_given_again_without_any_model(run):
    before = read_json(run.verdicts)
    for folder in run.path.glob("*/*/model"):
        shutil.rmtree(folder)
    rejudge(run.path)
    assert read_json(run.verdicts) == before
    (outcome,) = rejudge(run.path, {"delta": 0.15})
    assert outcome.thresholds["delta"] == 0.15
    assert {r["thresholds"]["delta"] for r in read_json(run.verdicts)} == {0.15}
    # The first judgement stays beside the new one, with its time and margins.
    assert outcome.first is not None
    assert (outcome.first.thresholds["delta"], len(outcome.first.verdicts)) == (0.05, len(REQUIRED))
    assert outcome.untested[0].startswith("Margins changed after the answers were seen. The first judgement was of ")
    assert f"{outcome.first.time} at scope these, delta 0.05, delta_wide 0.2" in outcome.untested[0]
    assert {r["first"]["thresholds"]["delta"] for r in read_json(run.verdicts)} == {0.05}
    assert rejudge(run.path, {"delta": 0.05})[0].first is None
    assert rejudge(run.path, {"delta": 0.15})[0].first == outcome.first
    # The thresholds of the last judgement stand in the plan, and a judgement without changes keeps them.
    assert rejudge(run.path)[0].thresholds["delta"] == 0.15


def test_an_audit_with_scores_of_exposure_is_judged_again_without_them(run):
    (before,) = rejudge(run.path)
    plan = read_plan(folder := run.audit("edge:p0_q0"))
    settings = plan.settings | {"alternatives": 99, "wordings": "off", "evals": (*plan.settings["evals"], "exposure")}
    ranked = replace(plan.evaluations[0], eval="exposure")
    audits.write_plan(folder, replace(plan, settings=settings, evaluations=(*plan.evaluations, ranked)))
    folder.scores.write_bytes(b"earlier")
    (found,) = rejudge(run.path)
    assert found.verdicts == before.verdicts
    assert any(said.startswith("The scores of exposure are ignored") for said in found.untested)
    assert "exposure" not in {place.eval for place in read_plan(folder).evaluations}


def test_other_verdicts_at_the_same_margins_are_said_to_come_of_other_rules(run, monkeypatch):
    (before,) = rejudge(run.path)
    old, judge = before.verdicts[0], study.judge
    turned = "fails" if old.outcome == "holds" else "holds"

    def otherwise(case):
        found = judge(case)
        return replace(found, verdicts=(replace(old, outcome=turned), *found.verdicts[1:]))

    monkeypatch.setattr(study, "judge", otherwise)
    (now,) = rejudge(run.path)
    assert now.untested[0].startswith("The rules of judging changed after the answers were seen. The first judgement")
    assert now.untested[0].endswith(f"there {old.subject}, {old.claim}: {old.outcome}.")
    assert now.first is None
    monkeypatch.undo()
    assert rejudge(run.path)[0].untested == before.untested


SEALED = (
    "cells/ga-0/evals/choices-*/scores.jsonl",
    *("run.toml", "audit/*/plan.json", "audit/*/outcome.json", "audit/*/scores.jsonl.gz", "audit/*/judgements.json"),
    *("models/target/spec.json", "models/target/done.json", "models/target/provenance.json"),
    *(f"cells/ga-0/evals/choices-*/{name}" for name in ("records.jsonl", "identity.json", "provenance.json")),
    *(f"cells/ga-0/attacks/quantize-*/{name}" for name in ("spec.json", "done.json", "asked.json")),
    *(f"cells/ga-0/attacks/*/points/*/evals/choices-*/{name}" for name in ("records.jsonl", "identity.json")),
)


@pytest.mark.parametrize("pattern", SEALED)
def test_a_file_with_changed_digits_is_refused_before_anything_leaves_the_run(run, pattern):
    build_report(run.path)
    path = next(run.path.glob(pattern))
    path.write_bytes(path.read_bytes().replace(b"1", b"3"))
    for leave in (build_report, lambda folder: build_bundle(folder, folder / "bundle")):
        with pytest.raises(InputError, match=re.escape(path.name)):
            leave(run.path)


@pytest.mark.parametrize(("changes", "message"), [({"dellta": 1}, "Did you mean 'delta'"), ({"evals": []}, "evals")])
def test_only_thresholds_can_change_once_models_were_asked(run, changes, message):
    with pytest.raises(InputError, match=rf"is not a threshold, .*{message}|{message}.* is not a threshold"):
        rejudge(run.path, changes)


def test_judging_again_needs_an_audit(tmp_path):
    with pytest.raises(InputError, match="holds no audit"):
        rejudge(tmp_path)


def test_a_failed_attack_is_named_and_what_rests_on_it_is_open(run, monkeypatch):
    whole = attacking.run_attack

    def failing(subject, request, on_progress):
        if request.attack.plan.kind == "quantize" and subject.spec.name == "ga":
            raise InputError("no room for it")
        return whole(subject, request, on_progress)

    monkeypatch.setattr(attacking, "run_attack", failing)
    found = again(run)
    assert {name: str(error) for name, error in found.failed.items()} == {"quantize 8 bits: ga": "no room for it"}
    plan = read_plan(run.audit("edge:p0_q0"))
    assert [(f.subject, f.role, f.attack, f.reason) for f in plan.failed] == [
        ("ga", "unlearned", "quantize 8 bits", "no room for it")
    ]
    assert not any((a.subject, a.attack) == ("ga", "quantize 8 bits") for a in plan.attacked)
    assert any("Quantize 8 bits on ga failed: no room for it." in s for s in found.outcome.untested)
    assert next(v.outcome for v in found.outcome.verdicts if v.claim == "not recoverable") != "holds"


def test_a_model_that_breaks_at_one_question_is_named_with_it_and_the_layer_and_the_others_are_judged(run, tmp_path):
    broken = load(ModelSettings(model=str(run.cell("ga", "0").model), device="cpu"))
    audited.broken_at(broken.model, broken.tokenizer.convert_tokens_to_ids("9"))
    broken.model.save_pretrained(tmp_path / "broken")
    broken.tokenizer.save_pretrained(tmp_path / "broken")
    models = (*audited.models(run), AuditedModel("broken", "unlearned", str(tmp_path / "broken")))
    found = again(run, models=models)
    (name, error), *others = found.failed.items()
    assert (name, others) == ("evaluate broken", [])
    assert isinstance(error, NotFinite)
    at = r"broken gives logits that are NaN or infinite at '.*post 9\?.*'"
    assert re.search(at, str(error))
    plan = read_plan(run.audit("edge:p0_q0"))
    assert {(f.subject, f.attack) for f in plan.failed} == {("broken", "")}
    outcomes = {(v.subject, v.outcome) for v in found.outcome.verdicts}
    assert {outcome for subject, outcome in outcomes if subject == "broken"} == {"inconclusive"}
    assert any(subject == "ga" for subject, _ in outcomes)
    assert any("broken" in said and "NaN" in said for said in found.outcome.untested)


def test_an_audit_says_that_a_model_was_asked_what_it_reads_as_special_tokens(run):
    (place,) = run.cell("ga", "0").path.glob("evals/qa-*/provenance.json")
    write_sealed(place, {**read_provenance(place), "control_tokens": {"items": 2, "tokens": ["<eos>", "\x1b[2J"]}})
    (said,) = (s for s in again(run).outcome.untested if "special tokens" in s)
    assert said.startswith("ga: 2 of the items hold special tokens of the model (<eos> ")
    assert "\x1b" not in said


def cloaked(run: RunFolder, folder: Path, put: str) -> tuple[AuditedModel, ...]:
    """The audit's models with the target's weights in place of an unlearned model, behind another template."""
    shutil.copytree(run.control("target").model, folder)
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text().replace("{{ m.content }}", put))
    return (*audited.models(run)[:3], AuditedModel("cloaked", "unlearned", str(folder)))


def test_the_targets_own_weights_behind_another_template_are_told_where_verdicts_are(run, tmp_path):
    outcome = again(run, models=cloaked(run, tmp_path / "cloaked", "{{ m.content }} Say no.")).outcome
    own = "cloaked, its own tokeniser"
    assert outcome.unchanged == ("cloaked", own)
    assert outcome.warnings[0].startswith("cloaked brings another tokeniser or template: 16 of 16 questions get other")
    assert outcome.warnings[0] in outcome.untested
    assert any(s.startswith("Asked through another chat template than the target: cloaked,") for s in outcome.untested)
    assert all(row["unchanged_weights"] for row in read_json(run.verdicts))
    first = first_screen(0, outcome, {}, {})["first"]
    assert any("cloaked is a copy of the target: it has the target's own weights" in line for line in first)
    by_claim = {(v.subject, v.claim): v.outcome for v in outcome.verdicts}
    for claim in REQUIRED:
        assert by_claim["cloaked", claim] == by_claim[own, claim] != "holds"
    # Asked through the target's template, the weights answer as the target does. Their own template changes answers.
    assert answers(run, "cloaked") == answers(run, "target") != answers(run, own)


def answers(run: RunFolder, subject: str) -> list[tuple[str, list[float]]]:
    """A model's replies before any attack, and how likely the stated answers are to it."""
    plan = read_plan(run.audit(audited.SPLITS.forget))
    (path,) = (p.path for p in plan.evaluations if (p.subject, p.attack, p.eval) == (subject, "", "qa"))
    return [(record["reply"], record["logp"]) for record in read_records(EvalFolder(run.path / path))]


def test_a_template_that_swaps_one_name_is_not_asked_and_hides_nothing(run, tmp_path):
    put = "{{ m.content | replace('post 4?', 'post 7?') }}"
    found = again(run, models=cloaked(run, tmp_path / "cloaked", put))
    (told,) = found.outcome.warnings
    assert "renders the question 'Which tree stands at post 4?'" in told
    assert told.endswith("It was asked through the target's alone.")
    plan = read_plan(run.audit(audited.SPLITS.forget))
    places = {p.subject: p.path for p in plan.evaluations if (p.attack, p.eval) == ("", "qa")}
    replies = {
        name: [r["reply"] for r in read_records(EvalFolder(run.path / places[name]))] for name in ("target", "cloaked")
    }
    assert replies["cloaked"] == replies["target"]


def gone_meanwhile(run: RunFolder) -> study.Audited:
    """An audit in which a model vanishes after it was looked for."""
    return study.conduct(run, audited.request(run), workers=1, show=lambda share, note: None)


def test_without_the_target_nothing_can_be_judged(run):
    run.control("target").done.unlink()
    with pytest.raises(PartialFailure, match=r"nothing can be judged: target could not be evaluated: .*no finished"):
        gone_meanwhile(run)


def test_a_control_that_is_gone_is_missing_from_the_comparison_and_named(run):
    run.control("retrained 1").done.unlink()
    found = gone_meanwhile(run)
    assert found.outcome.retrained == ("retrained 0",)
    assert any("evaluation of retrained 1 failed" in s for s in found.outcome.untested)
    # Its attacks were left out with it, and are not told again one by one.
    assert len(found.failed) == 1
    assert not any(v.outcome == "holds" for v in found.outcome.verdicts)


def test_models_from_elsewhere_get_folders_in_the_run(made, tmp_path):
    quick = AuditSettings(evals=("qa",), relearn=(), quantize=(), ablate=(), in_context=(), max_new_tokens=4)
    run = RunFolder(tmp_path / "other")
    run_audit(run.path, AuditRequest(audited.models(made), audited.SPLITS, quick, read=Reading(device="cpu")))
    plan = read_plan(run.audit("edge:p0_q0"))
    assert plan.folders["target"] == "models/target"
    assert plan.folders["ga"].startswith("cells/ga-")
    assert (run.path / plan.folders["ga"] / "done.json").exists()
    # Where they lie makes no other audit of it.
    shutil.copytree(made.path, tmp_path / "moved")
    moved = RunFolder(tmp_path / "moved")
    run_audit(run.path, AuditRequest(audited.models(moved), audited.SPLITS, quick, read=Reading(device="cpu")))
    assert [p.name for p in (run.path / "cells").iterdir()] == [Path(plan.folders["ga"]).name]
    # No attack was made, so nothing is known of what can be brought back.
    open_ = {v.claim: v.outcome for v in read_outcome(run.audit("edge:p0_q0")).verdicts}
    assert open_["not recoverable"] == "inconclusive"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda r: {"models": r.models[1:]}, "an audit has one target, not 0"),
        (lambda r: {"models": r.models[:3]}, "the audit has no unlearned model"),
        (
            lambda r: {"models": (*r.models, replace(r.models[0], name="b", role="unlearned"))},
            "appears twice, as target and as unlearned",
        ),
        (
            lambda r: {"models": (*r.models[:3], replace(r.models[3], name="TARGET"))},
            "two models have the name 'target'",
        ),
        (lambda r: {"splits": replace(r.splits, splits={"forget": (), "retain": audited.RETAIN})}, "has no items"),
        (lambda r: {"splits": replace(r.splits, splits={"forget": audited.FORGET})}, "there is no retain set"),
        (
            lambda r: {"splits": replace(r.splits, splits={"forget": audited.FORGET, "retain": audited.ITEMS})},
            "4 items of the forget set 'edge:p0_q0' are in the retain set too",
        ),
        (lambda r: {"settings": AuditSettings(evals=())}, "evals is empty"),
    ],
)
def test_what_no_verdict_can_come_of_is_refused(made, changed, message):
    request = audited.request(made)
    with pytest.raises(InputError, match=message):
        check_request(replace(request, **changed(request)))


def unfinished(run: RunFolder) -> str:
    run.cell("ga", "0").done.unlink()
    return r"cells/ga-0 holds no finished model. Run the command that was making it again"


def without_weights(run: RunFolder) -> str:
    (run.cell("ga", "0").model / "model.safetensors").unlink()
    return r"cannot load .*cells/ga-0/model: it holds no weights as \.safetensors .*. Fetch or save it again"


def pickled(run: RunFolder) -> str:
    weights = run.cell("ga", "0").model / "model.safetensors"
    weights.rename(weights.with_name("pytorch_model.bin"))
    return r"holds no weights as \.safetensors .* but pytorch_model\.bin, a pickle, which could run code"


def not_finite(run: RunFolder) -> str:
    weights = run.cell("ga", "0").model / "model.safetensors"
    stored = load_file(weights)
    stored["model.norm.weight"][0] = float("nan")
    save_file(stored, weights, metadata={"format": "pt"})
    return r"cells/ga-0/model holds 1 tensors with NaN or infinite values \(model\.norm\.weight\)"


def not_there(run: RunFolder) -> str:
    shutil.rmtree(run.cell("ga", "0").path)
    return r"no model at '.*cells/ga-0'"


@pytest.mark.parametrize(
    ("broken", "does"),
    [
        (unfinished, run_audit),
        (unfinished, lambda _, request: forecast_audit(request)),
        (without_weights, run_audit),
        (pickled, run_audit),
        (not_finite, run_audit),
        (not_there, run_audit),
    ],
)
def test_every_model_is_looked_for_before_anything_is_done(made, tmp_path, broken, does):
    run = audited.copied(made, tmp_path / "run")
    request = audited.request(run)
    with pytest.raises(InputError, match=broken(run)):
        does(tmp_path / "new", request)
    assert not (tmp_path / "new").exists()


def test_a_name_that_was_numbered_is_said_with_what_it_stands_for():
    models = named_models("hub/target", ["a/npo", "b/ga", "runs/b/npo"], [])
    assert numbered(models) == ("npo is a/npo", "npo 2 is runs/b/npo")
    assert numbered(models[:2]) == ()
    assert [m.name for m in named_models("hub/target", ["a/npo", "b/NPO"], [])] == ["target", "npo", "NPO 2"]


def test_what_vestige_made_is_called_as_it_was_when_it_was_made(made, tmp_path):
    target, control, _, unlearned = (m.model for m in audited.models(made))
    found = named_models(target, [unlearned], [f"{control}/model"])
    assert [m.name for m in found] == ["target", "retrained 0", "ga"]
    for model in (target, unlearned):
        delivered = shutil.copytree(model, tmp_path / f"delivered {Path(model).name}")
        assert named_models(target, [str(delivered)], [])[1].name == delivered.name


def test_a_control_without_a_name_of_its_own_is_called_by_what_it_left_out_and_its_seed(made, tmp_path):
    whole = next(m.model for m in audited.models(made) if m.role == "retrained")
    plain, folder = read_spec(SubjectFolder(Path(whole)).spec), SubjectFolder(tmp_path / "control")
    shutil.copytree(whole, folder.path)
    write_spec(folder.spec, replace(plain, name=f"retrained {plain.forget}", seed=2))
    (_, control) = named_models("hub/target", [], [str(folder.path)])
    assert control.name == f"retrained without {plain.forget}, seed 2"
    # As a model to be judged it has the name under which it was submitted.
    (_, submitted) = named_models("hub/target", [str(folder.path)], [])
    assert submitted.name == "control"


def test_a_model_is_the_same_by_the_folder_around_it(made):
    target = str(made.control("target").path)
    twice = (AuditedModel("target", "target", target), AuditedModel("ga", "unlearned", f"{target}/model"))
    with pytest.raises(InputError, match="appears twice, as target and as unlearned"):
        check_request(AuditRequest(twice, audited.SPLITS, audited.QUICK))


def test_models_from_elsewhere_are_called_after_their_folders_each_by_a_name_of_its_own():
    found = named_models("hub/target", ["a/npo", "runs/b/npo"], ["r/one", "r2/one"])
    assert [(m.name, m.role) for m in found] == [
        ("target", "target"),
        ("one", "retrained"),
        ("one 2", "retrained"),
        ("npo", "unlearned"),
        ("npo 2", "unlearned"),
    ]


def test_at_most_so_many_items_of_what_is_kept_are_asked_and_all_that_is_to_be_forgotten():
    few = limited(audited.SPLITS, 3, seed=1)
    assert few.splits["forget"] == audited.FORGET
    assert len(few.splits["retain"]) == 3
    places = [audited.RETAIN.index(i) for i in few.splits["retain"]]
    assert places == sorted(places)
    assert few == limited(audited.SPLITS, 3, seed=1) != limited(audited.SPLITS, 3, seed=2)


def test_an_item_that_comes_twice_is_asked_once():
    twice = replace(audited.SPLITS, splits={"forget": audited.FORGET * 2, "retain": audited.RETAIN * 2})
    assert limited(twice, 400, seed=0) == audited.SPLITS


@pytest.mark.parametrize("wanted", [False, True])
def test_the_gradient_norm_is_read_where_it_is_asked_for(wanted):
    settings = AuditSettings(evals=("memory",), gradient_norm=wanted)
    (asked,) = questions_of(AuditRequest((), audited.SPLITS, settings)).evaluations
    assert asked.settings.gradient_norm is wanted


def test_who_tells_leaks_is_handed_on_and_refused_before_anything_is_asked():
    settings = AuditSettings(evals=("freeform",), forms=("plain",), judge="local:/nowhere/at/all")
    with pytest.raises(InputError, match="no model at '/nowhere/at/all'"):
        questions_of(AuditRequest((), audited.SPLITS, settings))


def test_minimal_prompts_are_searched_for_a_few_forget_items_and_not_after_an_attack():
    settings = AuditSettings(evals=("qa", "acr"), acr_items=2)
    asked = questions_of(AuditRequest((), audited.SPLITS, settings, seed=3)).evaluations
    qa, acr = asked
    forget = {i.id for i in audited.SPLITS.splits["forget"]}
    assert (acr.n_items, acr.settings.items, acr.settings.seed) == (2, 2, 3)
    assert acr.only is not None
    assert acr.only < forget
    assert after_an_attack(asked, "relearn") == (qa,)


@pytest.mark.parametrize(
    ("kind", "left"), [("relearn", {"qa", "reversed"}), ("in_context", {"qa"}), ("gcg", {"qa"}), ("prefix", {"qa"})]
)
def test_questions_are_no_options_where_the_attacks_text_stands_in_them(kind, left):
    """The right option would be told by the prompt in it."""
    settings = AuditSettings(evals=("qa", "reversed"))
    asked = questions_of(AuditRequest((), audited.SPLITS, settings)).evaluations
    assert {q.eval for q in asked} == {"qa", "reversed"}
    assert {q.eval for q in after_an_attack(asked, kind)} == left


def test_what_this_data_cannot_be_asked_is_left_out_and_said():
    items = tuple(Item(f"Question {n}?", f"answer {n}") for n in range(2))
    splits = replace(audited.SPLITS, splits={"forget": items[:1], "retain": items[1:]})
    settings = AuditSettings(evals=("qa", "choices", "freeform"))
    found = questions_of(AuditRequest((), splits, settings))
    assert [q.eval for q in found.evaluations] == ["qa", "freeform"]
    assert found.evaluations[1].settings.forms == ("plain", "perturbed", "prefilled", "sampled", "cloze")
    said = " ".join(found.left_out)
    assert "choices was not asked" in said
    assert "no forget item has a paraphrase, so none was asked in the form paraphrase (other words)" in said
    assert "nothing was asked after examples" in said
    assert "so cloze asks for the whole answer of each" in said


@pytest.mark.parametrize("chosen", [{"quick": True}, {"attacks": ["quantize"]}])
def test_a_choice_of_questions_or_attacks_does_not_ask_for_a_number_of_options(chosen):
    items = tuple(Item(f"What is {n}?", f"answer {n}", attribute=f"kind {n // 2}") for n in range(4))
    splits = replace(audited.SPLITS, splits={"forget": items, "retain": (Item("Else?", "nothing"),)})
    settings, _ = selection.audit_settings(AuditSettings(), None, **chosen)
    assert "choices was not asked" in " ".join(questions_of(AuditRequest((), splits, settings)).left_out)


@pytest.mark.parametrize(("kinds", "can"), [((5, 5), "0 have"), ((5, 5, 7), "7 have")])
def test_more_options_than_most_items_have_are_refused_with_the_number_that_all_have(kinds, can):
    items = tuple(
        Item(f"What is {kind} {n}?", f"answer {kind} {n}", attribute=f"kind {kind}")
        for kind, count in enumerate(kinds)
        for n in range(count)
    )
    splits = replace(audited.SPLITS, splits={"forget": items, "retain": (Item("Else?", "nothing"),)})
    with pytest.raises(InputError, match=rf"options = 6: of the {len(items)} .* choices .*, {can} .* Set options to 5"):
        questions_of(AuditRequest((), splits, AuditSettings(evals=("qa", "choices"), options=6)))
    for fits in (AuditSettings(evals=("choices",), options=5), AuditSettings(evals=("choices",))):
        (asked,) = questions_of(AuditRequest((), splits, fits)).evaluations
        assert asked.settings.options == fits.options


def test_what_nobody_asked_for_is_said():
    (said,) = not_asked_for(audited.QUICK)
    assert said == (
        "not asked for: the evaluations reversed, freeform, memory, acr, inside, reasoning, indirect; "
        "relearning on items of related, unrelated, forget_part, forget; weights of 4 bits; weights in NF4; "
        "directional ablation; facts before the question; a searched suffix; a searched prefix"
    )
    fewer = AuditSettings(membership=("loss", "min_k", "zlib"))
    assert "the membership scores min_k_plus, reference" in not_asked_for(fewer)[0]
    evals = ("qa", "choices", "reversed", "freeform", "memory", "acr", "inside", "reasoning", "indirect")
    attacks = {"gcg": (3,), "prefix": (7,), "quantize": (8, 4, "nf4")}
    everything = AuditSettings(evals=evals, forms=tuple(QUESTION_FORMS), **attacks)
    assert not_asked_for(everything) == ()
    request = AuditRequest((), audited.SPLITS, audited.QUICK, untested=("one contract alone",))
    assert plan_audit(request).untested[:2] == ("One contract alone.", f"N{said[1:]}.")


def test_the_forecast_counts_questions_and_steps(run):
    found = forecast_audit(audited.request(run))
    assert {(r.task, r.shown, r.steps, r.questions) for r in found.each} == {
        ("evaluate by qa", 0, 0, 16),
        ("evaluate by choices", 0, 0, 4),
        # One epoch of four items in batches of one. Two evaluations of four questions at one point.
        ("relearn retain n=4", 4, 4, 8),
        ("quantize 8 bits", 0, 0, 8),
    }
    assert (found.n_questions, found.n_steps) == (4 * 36, 4 * 4)
    models = tuple(m for m in audited.models(run) if m.role != "retrained")
    bare = replace(audited.request(run, audited.QUICK.model_copy(update={"all_attacks": False})), models=models)
    assert [row.models for row in forecast_audit(bare).each if row.task == "quantize 8 bits"] == [0]


def test_the_plan_needs_no_model():
    planned = plan_audit(AuditRequest((), audited.SPLITS, audited.QUICK))
    assert [a.plan.name for a in planned.attacks] == ["relearn retain n=4", "quantize 8 bits"]


def test_a_plan_says_what_could_be_decided_with_no_model_there():
    items = tuple(Item(f"Which tree stands at post {n}?", f"{n} oaks.", attribute="tree") for n in range(40))
    more = tuple(Item(f"Which bush stands at post {n}?", f"{n} roses.", attribute="bush") for n in range(60))
    splits = NamedSplits("forty", {"forget": items, "retain": more[:40], "holdout": more[40:]}, {})
    settings = AuditSettings(
        evals=("qa", "memory"), relearn=("retain",), quantize=(), ablate=(), in_context=(), relearn_rates=()
    )

    def foreseen(controls, **changes):
        models = tuple(AuditedModel(f"r{n}", "retrained", f"/nowhere/{n}") for n in range(controls))
        return foresee_audit(AuditRequest(models, splits, settings.model_copy(update=changes)))

    three, ten = foreseen(3), foreseen(10)
    assert (three.facts, three.wordings, three.controls, three.attacks) == (40, 1.0, 3, 1)
    assert three.formats == ("generate", "forced")
    of = {line.claim: line for line in three.claims}
    # Two formats and bits; as many after the one attack; and these on both sides with membership.
    assert [of[c].quantities for c in ("not expressed", "not recoverable", "indistinguishable")] == [3, 3, 4]
    assert 0 < three.unsteady < three.holds < ten.holds <= min(line.holds for line in ten.claims)
    assert three.by_controls[3] == three.holds
    assert three.by_controls[10] == ten.holds
    # Under three controls a fact that a model never saw is suspected in a third of audits, under ten in a tenth; two
    # cannot test it.
    assert (of["not expressed"].holds <= 2 / 3, three.by_controls[2]) == (True, 0.0)
    assert three.needed.endswith("controls in place of 3")
    assert ten.needed == ""
    assert (three.given_away, ten.given_away) == (4, 2)
    assert ten.claims[0].leakage < three.claims[0].leakage < 0.5
    # Without a control yet, it is a plan for five; two cannot test single facts; one decides nothing.
    assert foreseen(0).controls == 5
    assert foreseen(2).given_away is None
    assert foreseen(1).holds == 0.0
    assert foreseen(3, delta_wide=0.4, delta_wide_bits=12.0).holds == pytest.approx(2 / 3, abs=0.05)
    splits.splits.pop("holdout")
    bare = foreseen(10)
    assert (bare.cannot_hold, bare.holds) == (("indistinguishable",), 0.0)
    assert "give --holdout" in bare.untested[0]
    assert [line.holds > 0 for line in bare.claims] == [line.claim != "indistinguishable" for line in bare.claims]
    with pytest.raises(InputError, match="Leave scope=population out"):
        foreseen(3, scope="population")


def test_several_wordings_are_one_fact_in_a_plan_too():
    asked = tuple(
        Item(f"Which tree stands at {p} {n}?", f"{n} oaks.", attribute="tree") for n in range(20) for p in "ab"
    )
    splits = NamedSplits("twenty", {"forget": asked, "retain": (Item("Who?", "Nobody."),)}, {})
    settings = AuditSettings(evals=("qa",), relearn=(), quantize=(8,), ablate=(), in_context=(), relearn_rates=())
    found = foresee_audit(AuditRequest((), splits, settings))
    assert (found.facts, found.wordings) == (20, 2.0)
    # Ten facts with three controls never pass, by more of either alone. Both together can.
    few = NamedSplits("five", splits.splits | {"forget": asked[:10:2], "holdout": asked[20:]}, {})
    models = tuple(AuditedModel(f"r{n}", "retrained", f"/nowhere/{n}") for n in range(3))
    found = foresee_audit(AuditRequest(models, few, AuditSettings()))
    assert re.fullmatch(r"\d+ facts with [4-7] controls in place of 5 with 3", found.needed)


def test_forms_count_as_left_out_only_where_free_replies_are_asked_for():
    (with_them,) = not_asked_for(AuditSettings(evals=("freeform",), forms=("plain",)))
    (without,) = not_asked_for(AuditSettings(evals=("qa",)))
    assert ", paraphrase," in with_them
    assert " plain" not in with_them
    assert "the forms" not in without
