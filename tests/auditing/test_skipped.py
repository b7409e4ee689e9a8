"""Attacks that could change no verdict are not made, and answers of target and controls are stored for later audits."""

import dataclasses
import os

import pytest
from hand_made import RETRAINED, attack, case, verdict

import audited
from vestige.artifacts.audits import read_plan
from vestige.artifacts.layout import RunFolder
from vestige.artifacts.scores import Source
from vestige.attacks.planning import plan_all
from vestige.auditing import forecast
from vestige.auditing import run as auditing
from vestige.auditing.judge import judge
from vestige.auditing.recovery import with_searches
from vestige.auditing.request import AuditedModel, AuditRequest, model_settings
from vestige.auditing.run import attacked_models, cheapest_first, run_audit
from vestige.auditing.settings import AuditSettings
from vestige.core.items import Item
from vestige.data.corpus import NamedSplits
from vestige.metrics import intervals
from vestige.models import Reading
from vestige.steps import attack as attacking
from vestige.steps import evaluate as evaluating
from vestige.steps.evaluate import keep, restore, trim

QUICK = 2000
EVERYONE = ("target", *RETRAINED, "ga", "suppressed")


def items(name: str, n: int) -> tuple[Item, ...]:
    return tuple(Item(f"Which {name} has number {k}?", f"{name} {k} of {k % 7}.") for k in range(n))


def levels(*names: str, ends: float = 0.0) -> dict:
    """Attacked scores of all models, of which ga ends at a level of its own and the positive control at 1."""
    plain = {"target": 1.0, "suppressed": 1.0, "ga": ends}
    return {(who, name): dict.fromkeys(("1", "2", "3"), plain.get(who, 0.0)) for name in names for who in EVERYONE}


def test_a_default_audit_of_400_facts_asks_at_most_115000_questions_and_30000_where_all_fail(monkeypatch):
    monkeypatch.setattr(forecast, "check_request", lambda request, whole: None)
    roles = ["target", *["retrained"] * 4, *["unlearned"] * 2, "suppressed"]
    models = tuple(AuditedModel(f"{role} {n}", role, f"/{n}") for n, role in enumerate(roles))
    splits = NamedSplits("forget10", {"forget": items("author", 400), "retain": items("book", 400)}, {})
    # As of TOFU, which has no answers of a kind whose blocks could be read.
    settings = AuditSettings(evals=("qa", "choices", "reversed", "freeform", "memory"))
    request = AuditRequest(models, splits, settings, read=Reading(device="cpu"))
    found = forecast.forecast_audit(request)
    whole = dataclasses.replace(request, settings=settings.model_copy(update={"all_attacks": True}))
    every = forecast.forecast_audit(whole)
    # Of TOFU's forget10 fewer facts are left beside a shown part, and it is 108,540.
    assert found.n_questions <= 115_000 < every.n_questions == every.least_questions
    assert found.least_questions <= 30_000
    assert f"{found.n_questions} questions" in found.said
    assert f"{found.least_questions} questions if every model fails by its answers alone" in found.said


def test_attacks_that_only_ask_come_before_training_and_ceilings_are_made_once():
    splits = {"forget": items("author", 40), "retain": items("book", 60)}
    planned = plan_all(AuditSettings(relearn_rates=()).model_dump(), splits, seed=0).attacks
    asking, training = cheapest_first(planned)
    assert {a.plan.kind for a in asking} == {"quantize", "ablate", "in_context"}
    assert {a.plan.kind for a in training} == {"relearn"}
    (ceiling,) = [a.plan for a in planned if a.plan.shows_answers]
    assert attacked_models(ceiling, "t", ["r"], ["a", "b"], ["s"]) == ("s",)
    assert attacked_models(ceiling, "t", ["r"], ["a", "b"], []) == ("a",)
    assert attacked_models(planned[0].plan, "t", ["r"], ["a", "b"], ["s"]) == ("r", "a", "b", "s")


@pytest.mark.slow
def test_a_skipped_attack_lets_nothing_hold_and_a_clear_fail_stays_one():
    one, other = attack(), attack("quantize 8 bits", kind="quantize", material="nothing")
    skipped = {other.name: ("ga",)}
    whole = judge(case(None, levels(one.name, other.name), attacks=(one, other)), resamples=QUICK)
    assert verdict(whole, "not recoverable").outcome == "holds"
    absent = {key: of for key, of in levels(one.name, other.name).items() if key != ("ga", other.name)}
    left = judge(case(None, absent, attacks=(one, other), skipped=skipped), resamples=QUICK)
    line = verdict(left, "not recoverable")
    assert line.outcome == "inconclusive"
    assert f"{other.name}: not made" in line.left_out
    # The plan says it once, and not for each format.
    assert not any("not asked after the attack" in text for text in left.untested)
    found = {key: of for key, of in levels(one.name, other.name, ends=0.6).items() if key != ("ga", other.name)}
    failing = judge(case(None, found, attacks=(one, other), skipped=skipped), resamples=QUICK)
    assert verdict(failing, "not recoverable").outcome == "fails"


@pytest.mark.slow
def test_who_answers_without_an_attack_fails_with_all_attacks_skipped_and_the_benchmark_does_not_hold():
    from hand_made import subject

    one = attack()
    skipped = {one.name: ("ga", "suppressed", *RETRAINED)}
    knows = judge(case({"ga": subject(1.0)}, attacks=(one,), skipped=skipped), resamples=QUICK)
    assert verdict(knows, "not recoverable").outcome == "fails"
    assert verdict(knows, "not recoverable").reason.count("without any attack") >= 1
    assert verdict(knows, "benchmark valid").outcome == "inconclusive"
    assert f"{one.name} was not made on the controls" in verdict(knows, "benchmark valid").left_out


def test_a_search_of_rates_is_whole_for_those_it_was_made_on():
    runs = (attack(), attack("relearn retain n=50 rate=0.001"))
    scores = {key: of for key, of in levels(*(run.name for run in runs)).items() if key[0] not in ("ga", "target")}
    name = "relearn retain n=50, searched"
    skipped = {run.name: ("ga",) for run in runs}
    searched = with_searches(case(None, scores, attacks=runs, skipped=skipped))
    assert searched.searched == {name: tuple(run.name for run in runs)}
    assert Source("suppressed", name, "chosen") in searched.scores.values
    # One rate that controls were not tuned at is no part, and the other is judged by itself.
    only = {key: of for key, of in scores.items() if key[1] == runs[0].name}
    skipped = {runs[0].name: ("ga",), runs[1].name: ("ga", "suppressed", *RETRAINED)}
    assert with_searches(case(None, only, attacks=runs[:1], skipped=skipped)).search_of(runs[0].name) in ("", name)
    assert with_searches(case(None, only, attacks=(*runs,), skipped=skipped)).searched.get(name, ()) in (
        (),
        (runs[0].name,),
    )


@pytest.fixture
def run(audit_models, tmp_path, monkeypatch) -> RunFolder:
    monkeypatch.setattr(intervals, "RESAMPLES", 400)
    monkeypatch.setattr(auditing, "run_tasks", audited.in_this_process)
    monkeypatch.setenv("VESTIGE_HOME", str(tmp_path / "home"))
    return audited.copied(audit_models, tmp_path / "run")


SKIPPING = audited.QUICK.model_copy(update={"all_attacks": False})


@pytest.mark.slow
def test_an_audit_attacks_only_whom_it_must_and_says_who_was_left_out(run, monkeypatch):
    everything = run_audit(run.path, audited.request(run)).outcome
    undecided = run_audit(run.path, audited.request(run, SKIPPING)).outcome
    assert [v.outcome for v in undecided.verdicts] == [v.outcome for v in everything.verdicts]
    plan = read_plan(run.audit("edge:p0_q0"))
    # Nothing follows from an attack on the target.
    assert {a.subject for a in plan.attacked} == {"ga", "retrained 0", "retrained 1"}
    assert plan.skipped == {}
    monkeypatch.setattr(auditing, "_undecided", lambda plan, outcome: ())
    decided = run_audit(run.path, audited.request(run, SKIPPING)).outcome
    plan = read_plan(run.audit("edge:p0_q0"))
    assert {(a.subject, a.attack) for a in plan.attacked} == {
        ("retrained 0", "relearn retain n=4"),
        ("retrained 1", "relearn retain n=4"),
    }
    assert plan.skipped == {"relearn retain n=4": ("ga",), "quantize 8 bits": ("retrained 0", "retrained 1", "ga")}
    assert plan.failed == ()
    assert any("quantize 8 bits" in text and "--all-attacks" in text for text in decided.untested)
    (line,) = [v for v in decided.verdicts if v.claim == "not recoverable"]
    assert line.outcome != "holds"


@pytest.mark.slow
def test_a_second_audit_asks_target_and_controls_no_more_and_comes_out_the_same(run, tmp_path, monkeypatch):
    def asked(number: int, **changes) -> tuple[list[str], list]:
        names = []

        def loading(subject):
            names.append(subject.spec.name)
            return whole(subject)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(evaluating, "loaded_subject", loading)
            patch.setattr(attacking, "loaded_subject", loading)
            request = dataclasses.replace(audited.request(run), **{"store": True, **changes})
            outcome = run_audit(tmp_path / f"run {number}", request).outcome
        return names, [(v.subject, v.claim, v.outcome, v.evidence) for v in outcome.verdicts]

    whole = evaluating.loaded_subject
    first, verdicts = asked(1)
    assert {"target", "retrained 0", "retrained 1", "ga"} == set(first)
    second, again = asked(2)
    assert set(second) == {"ga"}
    assert again == verdicts
    assert set(asked(3, store=False)[0]) == set(first)
    # Another seed is another audit.
    assert "target" in asked(4, seed=1)[0]


def test_a_damaged_entry_is_refused_by_its_digest_and_made_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("VESTIGE_HOME", str(tmp_path / "home"))
    folder, key = tmp_path / "answers", "ab" * 32
    folder.mkdir()
    for name in ("records", "collected"):
        (folder / name).write_text(name)
    keep(folder, key, [folder / "records", folder / "collected"])
    copy = tmp_path / "copy"
    assert restore(copy, key)
    assert (copy / "records").read_text() == "records"
    (stored,) = (tmp_path / "home").rglob("files/records")
    stored.write_text("recordz")
    assert not restore(tmp_path / "second", key)
    assert not (tmp_path / "second").exists()
    keep(folder, key, [folder / "records", folder / "collected"])
    assert restore(tmp_path / "second", key)
    assert not restore(tmp_path / "third", "cd" * 32)


def test_the_store_loses_the_entries_that_were_not_used_for_the_longest_time(tmp_path, monkeypatch):
    monkeypatch.setenv("VESTIGE_HOME", str(tmp_path / "home"))
    record = tmp_path / "answers" / "records"
    record.parent.mkdir()
    record.write_text("a" * 3000)
    keys = ["ab" * 32, "cd" * 32, "ef" * 32]
    for age, key in enumerate(keys):
        keep(record.parent, key, [record])
        entry = tmp_path / "home" / "answers" / key[:2] / key
        os.utime(entry, (1000 - age, 1000 - age))
    trim(1_000_000)
    # The oldest is used now, and so stays.
    assert restore(tmp_path / "used", keys[2])
    trim(8_000)
    assert [restore(tmp_path / f"after {key}", key) for key in keys] == [True, False, True]
    monkeypatch.setattr(evaluating, "LIMIT", 20_000)
    keep(record.parent, "12" * 32, [record])
    assert not restore(tmp_path / "too large", "12" * 32)


def test_a_template_and_a_tokeniser_that_are_named_are_for_models_of_others(tmp_path):
    made = tmp_path / "made"
    made.mkdir()
    (made / "spec.json").write_text("{}")
    request = AuditRequest(
        (), NamedSplits("x", {}, {}), AuditSettings(), read=Reading("cpu", None, False, "t", "k", "b")
    )
    for folder, named in ((made, ("", "", "")), (tmp_path / "else", ("t", "k", "b"))):
        read = model_settings(request, AuditedModel("m", "unlearned", str(folder)))
        assert (read.device, read.chat_template, read.tokenizer, read.base) == ("cpu", *named)
