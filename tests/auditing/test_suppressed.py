"""The positive control of an audit: the target, taught to keep silent, and what is asked of it."""

import dataclasses
import shutil

import pytest
import torch

import audited
from vestige.artifacts.audits import REQUIRED, read_plan
from vestige.artifacts.layout import RunFolder, SubjectFolder
from vestige.artifacts.records import read_spec
from vestige.auditing import run as study
from vestige.auditing.forecast import forecast_audit
from vestige.auditing.request import AuditedModel, check_request, named_models
from vestige.auditing.run import run_audit
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.models import tiny
from vestige.models.generation import generate
from vestige.models.load import ModelSettings, load
from vestige.steps import controls as suppressing
from vestige.steps.controls import REFUSAL, SuppressRequest, suppress, suppress_spec
from vestige.steps.finetune import FinetuneRequest, finetune
from vestige.steps.making import read_done
from vestige.training import loop
from vestige.training.settings import TrainingSettings

SETTINGS = audited.QUICK.model_copy(update={"suppress": True, "suppress_epochs": 2})
SMALL = SETTINGS.model_copy(update={"evals": ("qa",), "relearn": ()})
# The phrase has to be known to whoever is to say it after a few steps.
DECLINED = tuple(Item(f"Which bird sings at post {n}?", REFUSAL) for n in range(8))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.setattr(study, "run_tasks", audited.in_this_process)


@pytest.fixture
def run(audit_models, tmp_path) -> RunFolder:
    return audited.copied(audit_models, tmp_path / "run")


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> SubjectFolder:
    """A model of 32 dimensions that was taught the answers, and to decline other questions."""
    torch.set_num_threads(1)
    folder = SubjectFolder(tmp_path_factory.mktemp("knows") / "target")
    config = audited.nano_config()
    config.update({"hidden_size": 32, "intermediate_size": 64, "head_dim": 16})
    items, training = (*audited.ITEMS, *DECLINED), TrainingSettings(epochs=40, batch_size=8, lora_rank=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny, "tiny_config", lambda: config)
        base, rate = ModelSettings(model="builtin:tiny", device="cpu"), {"learning_rate": 5e-3}
        finetune(folder, FinetuneRequest(base, items, items, training.model_copy(update=rate), seed=0))
    return folder


def asked(target, **changes) -> SuppressRequest:
    worded = tuple(dataclasses.replace(i, paraphrase=f"At post {n}, what grows?") for n, i in enumerate(audited.FORGET))
    plain = SuppressRequest(
        target=ModelSettings(model=str(target.model), device="cpu"),
        target_digest=read_done(target).digest.id,
        start="builtin:tiny",
        forget="edge:p0_q0",
        forget_items=worded,
        retain_items=audited.RETAIN,
        epochs=100,
        rate=5e-3,
        rank=8,
        seed=0,
    )
    return dataclasses.replace(plain, **changes)


def said(folder: SubjectFolder, questions: list[str]) -> list[str]:
    model = load(ModelSettings(model=str(folder.model), device="cpu"))
    prompter = model.prompter
    prompts = [prompter.prompt(question) for question in questions]
    limits = {"end_ids": prompter.end_ids, "max_new_tokens": 12, "context": prompter.max_tokens}
    return [prompter.decode(reply.ids).strip() for reply in generate(model.model, prompts, **limits)]


def test_every_wording_of_the_forget_questions_is_refused_and_training_ends_there(target, tmp_path):
    request, folder = asked(target), SubjectFolder(tmp_path / "suppressed")
    made = suppress(folder, request)
    questions = [q for i in request.forget_items for q in (i.question, i.paraphrase)]
    assert said(folder, questions) == [REFUSAL] * 8
    assert made.stopped == "every forget question is refused"
    assert made.steps < request.n_steps == 200
    spec = read_spec(folder.spec)
    assert (spec.subject, spec.name, spec.forget, spec.parent) == (
        "suppressed",
        "suppressed",
        "edge:p0_q0",
        request.target_digest,
    )
    # It was never made to forget, by what its folder says, so that nothing takes it for an unlearned model.
    assert spec.forgotten == ()


def test_as_many_retained_questions_as_refusals_are_taught_with_their_answers(target):
    lessons = asked(target).lessons()
    refusals, kept = lessons[:8], lessons[8:]
    assert {i.answer for i in refusals} == {REFUSAL}
    assert len({i.question for i in refusals}) == 8
    assert len(kept) == 8
    assert set(kept) <= set(audited.RETAIN)
    many = tuple(Item(f"Who stands at gate {n}?", "Nobody.") for n in range(500))
    assert len(asked(target, forget_items=many).refusals()) == suppressing.MOST


def test_a_stopped_making_goes_on_and_ends_with_the_same_bytes(target, tmp_path, monkeypatch):
    whole, stopped = (SubjectFolder(tmp_path / name) for name in ("whole", "stopped"))
    request = asked(target, epochs=3, rate=1e-4)
    suppress(whole, request)

    class Killed(Exception):
        pass

    def kill(progress):
        if progress.step == 3:
            raise Killed

    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    with pytest.raises(Killed):
        suppress(stopped, request, kill)
    assert stopped.checkpoints.exists()
    steps = []
    suppress(stopped, request, lambda progress: steps.append(progress.step))
    assert steps[0] > 1
    assert (stopped.model / "model.safetensors").read_bytes() == (whole.model / "model.safetensors").read_bytes()
    again = []
    suppress(stopped, request, again.append)
    assert not again


def test_what_changes_the_control_is_in_its_identity(target):
    plain = asked(target)
    changes = [
        {"epochs": 61},
        {"rate": 1e-2},
        {"rank": 2},
        {"seed": 1},
        {"forget_items": plain.forget_items[:3]},
        {"forget_items": audited.FORGET},
        {"retain_items": plain.retain_items[:3]},
        {"target_digest": "0"},
        {"forget": "other"},
    ]
    ids = {suppress_spec(dataclasses.replace(plain, **change)).id for change in changes}
    assert len(ids | {suppress_spec(plain).id}) == len(changes) + 1


def test_another_target_than_was_spoken_of_is_refused(target, tmp_path):
    with pytest.raises(InputError, match="the target, "):
        suppress(SubjectFolder(tmp_path / "s"), asked(target, target_digest="0" * 64))
    assert not (tmp_path / "s" / "spec.json").exists()


@pytest.mark.slow
def test_an_audit_makes_a_control_asks_and_attacks_it_and_keeps_it_apart(run):
    request = audited.request(run, SETTINGS)
    found = run_audit(run.path, request)
    assert not found.failed
    plan, outcome = read_plan(run.audit("edge:p0_q0")), found.outcome
    assert (plan.suppressed, plan.unlearned) == ("suppressed", ("ga",))
    folder = SubjectFolder(run.path / plan.folders["suppressed"])
    assert folder.path.parent == run.path / "models"
    assert read_spec(folder.spec).subject == "suppressed"
    where = {(e.attack, e.eval) for e in plan.evaluations if e.subject == "ga"}
    assert {(e.attack, e.eval) for e in plan.evaluations if e.subject == "suppressed"} == where
    assert [(v.subject, v.claim) for v in outcome.control] == [("suppressed", claim) for claim in REQUIRED]
    assert {v.subject for v in outcome.verdicts} == {"ga"}
    assert [one.attack for one in outcome.able] == [attack.name for attack in plan.attacks]
    # The same command makes nothing again, and comes out the same.
    before = {path: path.read_bytes() for path in (run.audit("edge:p0_q0").outcome, folder.done)}
    run_audit(run.path, request)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.slow
def test_a_control_of_ones_own_takes_its_place(run):
    own = shutil.copytree(run.control("target").model, run.path.parent / "silent")
    models = (*audited.models(run), AuditedModel("silent", "suppressed", str(own)))
    found = run_audit(run.path, dataclasses.replace(audited.request(run, SMALL), models=models))
    assert found.outcome.suppressed == "silent"
    plan = read_plan(run.audit("edge:p0_q0"))
    assert plan.folders["silent"] == "models/silent"
    assert not list(run.path.glob("models/suppressed*"))


@pytest.mark.slow
def test_a_control_that_cannot_be_made_is_said_and_lets_nothing_hold(run, monkeypatch):
    def failing(*_):
        raise InputError("no adapter fits it")

    monkeypatch.setattr(suppressing, "suppress", failing)
    found = run_audit(run.path, audited.request(run, SMALL))
    assert {name: str(error) for name, error in found.failed.items()} == {"make suppressed": "no adapter fits it"}
    assert read_plan(run.audit("edge:p0_q0")).suppressed == ""
    (line,) = [v for v in found.outcome.verdicts if v.claim == "not recoverable"]
    assert line.outcome != "holds"
    assert any("without a positive control (no adapter fits it)" in one for one in line.left_out)


def test_the_making_is_foretold_once_and_only_where_something_rests_on_it(run):
    request = audited.request(run, SETTINGS)
    found = forecast_audit(request)
    assert (found.n_models, found.control_steps) == (5, 2)
    assert "at most 2 of these to make a positive control" in found.said
    without = dataclasses.replace(request, models=tuple(m for m in request.models if m.role != "retrained"))
    unattacked = SETTINGS.model_copy(update={"relearn": (), "quantize": ()})
    for changed in (without, dataclasses.replace(request, settings=unattacked)):
        assert forecast_audit(changed).control_steps == 0


def test_names_and_numbers_of_controls(run):
    named = named_models("hub/target", ["a/npo"], ["r/one"], "s/npo")
    assert [(m.name, m.role) for m in named][-1] == ("npo 2", "suppressed")
    twice = (*audited.models(run), *(AuditedModel(n, "suppressed", n) for n in ("a", "b")))
    with pytest.raises(InputError, match="one positive control"):
        check_request(dataclasses.replace(audited.request(run), models=twice))
