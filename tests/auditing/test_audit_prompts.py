"""An audit with searched prompts: every model is searched on its own, the gain is split, the curve is over shares."""

from unittest import mock

import pytest
from tests.small import nano

import audited
from vestige.artifacts.audits import read_outcome, read_plan
from vestige.artifacts.layout import AttackFolder, RunFolder
from vestige.artifacts.records import TOKENS_BOUND, read_prompt
from vestige.attacks.prompts import POINTS
from vestige.auditing import run as study
from vestige.auditing.forecast import forecast_audit
from vestige.auditing.gather import read_answers
from vestige.auditing.run import attack_tasks, plan_audit, prompt_bits_task, run_audit
from vestige.core.errors import InputError, NotFinite
from vestige.core.files import read_json, write_json
from vestige.report import build_report
from vestige.steps import evaluate as evaluating
from vestige.steps.attack import prompt_bits
from vestige.steps.evaluate import finished_subject

pytestmark = pytest.mark.slow

WHO = ("target", "retrained 0", "retrained 1", "ga")
SETTINGS = audited.QUICK.model_copy(
    update={
        "evals": ("qa",),
        "relearn": (),
        "quantize": (),
        "prefix": (2,),
        "prompt_tokens": 4,
        "prompt_steps": 2,
        "prompt_candidates": 3,
    }
)


@pytest.fixture(scope="module")
def made(audit_models, tmp_path_factory) -> RunFolder:
    """The models, and a finished audit of them."""
    run = audited.copied(audit_models, tmp_path_factory.mktemp("made") / "run")
    with nano(), mock.patch.object(study, "run_tasks", audited.in_this_process):
        assert not run_audit(run.path, audited.request(run, SETTINGS)).failed
    return run


def test_every_model_is_searched_on_its_own_and_asked_at_every_share(made):
    plan = read_plan(made.audit("edge:p0_q0"))
    assert [(a.name, a.kind, a.points) for a in plan.attacks] == [("prefix n=2", "prefix", POINTS)]
    asked = {(e.subject, e.point) for e in plan.evaluations if e.attack}
    assert asked == {(who, point) for who in WHO for point in POINTS}
    prompts = {a.subject: read_prompt(AttackFolder(made.path / a.path)) for a in plan.attacked}
    assert set(prompts) == set(WHO)
    # The target's own words are what is wanted of every model.
    assert len({tuple((s.question, s.wanted) for s in p.samples) for p in prompts.values()}) == 1


def test_a_searched_prompt_is_judged_as_any_attack_with_its_injection_and_its_bits(made):
    outcome = read_outcome(made.audit("edge:p0_q0"))
    assert any(v.claim == "not recoverable" for v in outcome.verdicts)
    plan = read_plan(made.audit("edge:p0_q0"))
    carried = {a.subject: read_json(made.path / a.path / "done.json") for a in plan.attacked}
    (line,) = outcome.budget
    assert (line.subject, line.attack) == ("ga", "prefix n=2")
    # The subject's own prompt, by the code of the models that never knew.
    plan, _ = read_answers(made, plan)
    at = plan.carried["prefix n=2"]["ga"].points_bits
    assert line.bounds_bits == {
        TOKENS_BOUND: carried["ga"]["bounds_bits"][TOKENS_BOUND],
        "code length of the prompt, under retrained": at["100 %"],
    }
    assert line.capacity_bits == min(line.bounds_bits.values())
    prompt = read_prompt(AttackFolder(made.path / next(a.path for a in plan.attacked if a.subject == "ga")))
    (told,) = (p for p in plan.prompts if (p.attack, p.subject) == ("prefix n=2", "ga"))
    counts = sum(s.verified for s in prompt.samples), 2, sum(s.plain_right for s in prompt.samples)
    assert (told.verified, told.wanted, told.anyway) == counts


def test_every_prompt_is_read_by_the_models_that_never_knew_share_by_share(made):
    plan = read_plan(made.audit("edge:p0_q0"))
    carried = read_answers(made, plan)[0].carried
    readers = [finished_subject(made.control(name), device="cpu").load() for name in plan.retrained]
    for place in plan.attacked:
        prompt = read_prompt(AttackFolder(made.path / place.path))
        read = [prompt_bits(loaded, prompt) for loaded in readers]
        mean = {point: pytest.approx((read[0][point] + read[1][point]) / 2) for point in POINTS}
        assert carried[place.attack][place.subject].points_bits == mean
        # The subject's own code is another, unless it is one of them.
        own = {point: part.bits for point, part in prompt.points.items()}
        assert (read[0] == own) == (place.subject == "retrained 0")
    assert build_report(made.path).exists()


def test_a_prompt_is_measured_only_by_models_that_read_text_alike(made, tmp_path):
    run = audited.copied(made, tmp_path / "run")
    (place,) = [a for a in read_plan(run.audit("edge:p0_q0")).attacked if a.subject == "ga"]
    spec = AttackFolder(run.path / place.path).spec
    write_json(spec, {**read_json(spec), "reads": "0" * 32})
    with pytest.raises(InputError, match="retrained 0 and ga have different tokenisers or chat templates"):
        prompt_bits_task(str(run.path), audited.request(run, SETTINGS), "prefix n=2", lambda share: None)


def test_a_reader_that_a_prompt_breaks_is_named(made, monkeypatch):
    whole, place = evaluating.loaded_subject, read_plan(made.audit("edge:p0_q0")).attacked[0]
    token = read_prompt(AttackFolder(made.path / place.path)).points["100 %"].ids[0]

    def broken(subject):
        audited.broken_at((loaded := whole(subject)).model, token)
        return loaded

    monkeypatch.setattr(evaluating, "loaded_subject", broken)
    with pytest.raises(NotFinite, match=r"retrained-0.* gives logits that are NaN .*make it again"):
        prompt_bits_task(str(made.path), audited.request(made, SETTINGS), "prefix n=2", lambda share: None)


def test_a_model_is_attacked_after_the_target_that_leads_the_search_was_asked(made):
    request = audited.request(made, SETTINGS)
    planned = plan_audit(request)
    on_all = [(attack, [m.name for m in request.models]) for attack in planned.attacks]
    tasks = {t.name: t for t in attack_tasks(made, request, on_all)}
    assert tasks["bits of prefix n=2"].after == tuple(f"prefix n=2: {who}" for who in WHO)
    assert tasks["prefix n=2: ga"].after == ("evaluate ga", "evaluate target")
    assert tasks["prefix n=2: target"].after == ("evaluate target",)


def test_the_forecast_counts_what_the_searches_read(made):
    found = forecast_audit(audited.request(made, SETTINGS))
    row = found.each[-1]
    plan = read_plan(made.audit("edge:p0_q0"))
    # The start, and two steps of three candidates and a gradient, in two texts, by the model and the target.
    assert (row.task, row.shown, row.steps, row.passes) == ("prefix n=2", 2, 0, (1 + 2 * (3 + 1)) * 2 * 2)
    # One evaluation of the tested items at twelve points.
    assert row.questions == 12 * len(plan.attacks[0].tested)
    assert found.n_passes == 4 * row.passes
    assert f"and at most {4 * row.passes} passes of searches for prompts" in found.said
    assert found.as_json()["n_passes"] == found.n_passes
