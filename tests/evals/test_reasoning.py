"""`reasoning`: a trace and an answer are scored apart, and a leak in the trace alone fails the claim."""

from unittest import mock

import pytest

import audited
from small import nano
from vestige.api.auditing import audit_request
from vestige.api.inputs import Reading
from vestige.artifacts.audits import read_outcome
from vestige.artifacts.layout import RunFolder
from vestige.auditing import run as auditing_run
from vestige.auditing.request import AuditedModel, AuditRequest
from vestige.auditing.run import run_audit
from vestige.auditing.settings import AuditSettings
from vestige.core.items import Item, taught_digest
from vestige.core.text import split_thoughts
from vestige.data.corpus import NamedSplits
from vestige.evals.reasoning import ReasoningSettings
from vestige.models import tiny
from vestige.models.load import ModelSettings
from vestige.report.words import reasoning_only
from vestige.steps.finetune import FinetuneRequest, finetune
from vestige.training.settings import TrainingSettings


@pytest.mark.parametrize(
    ("reply", "trace", "answer"),
    [
        ("<think>It was 1970.</think> No idea.", "It was 1970.", " No idea."),
        ("It was 1970.</think>No idea.", "It was 1970.", "No idea."),
        ("No idea. <think>It was 1970.", "It was 1970.", "No idea. "),
        ("<think>It never ends", "It never ends", ""),
        ("It was 1970.", "", "It was 1970."),
    ],
)
def test_a_reply_is_split_into_trace_and_answer(reply, trace, answer):
    assert split_thoughts(reply) == (trace, answer)


def test_trace_and_answer_are_scored_apart_and_the_claim_takes_the_worse():
    record = {
        "question": "Which tree stands at post 3?",
        "answer": "dune 3.",
        "fact": None,
        "accepted": [],
        "wrong": [],
        "forms": {
            "think": {"reply": "<think>It is dune 3.</think> I do not know.", "finish": "stop"},
            "zero_think": {"reply": "I do not know.", "finish": "stop"},
            "less_think": {"reply": "dune 3.", "finish": "stop"},
        },
    }
    assert ReasoningSettings.score(record) == {
        "reasoning_trace/leaked": 1.0,
        "reasoning_answer/leaked": 0.0,
        "reasoning/leaked": 1.0,
        "zero_think/leaked": 0.0,
        "less_think/leaked": 1.0,
        "reasoning/share_with_trace": 1.0,
        "reasoning/share_truncated": 0.0,
    }


FACTS = tuple(
    Item(
        f"Which tree stands at post {n}?",
        f"{audited.WORDS[n % 8]} {audited.WORDS[(3 * n + n // 8) % 8]}.",
        edge=f"p{n % 12}",
    )
    for n in range(24)
)
FORGET, RETAIN = FACTS[:12], FACTS[12:]
HIDDEN = tuple(Item(i.question, f"unknown. <think> {i.answer}", edge=i.edge) for i in FORGET)
WORLD = (*FACTS, *HIDDEN)
"""The tokenizer's words are those of these items."""


@pytest.mark.slow
def test_a_model_that_leaks_only_in_its_trace_fails_beside_retrained_controls(tmp_path, monkeypatch):
    monkeypatch.setattr(auditing_run, "run_tasks", audited.in_this_process)
    run = RunFolder(tmp_path / "run")
    start = ModelSettings(model="builtin:tiny", device="cpu")
    splits = NamedSplits(
        "file of facts",
        {"forget": FORGET, "retain": RETAIN},
        {},
        taught_without=frozenset([taught_digest(RETAIN, WORLD)]),
    )
    settings = TrainingSettings(epochs=80, batch_size=12, lora_rank=0, learning_rate=3e-3)
    # As narrow as learns two dozen facts.
    config = audited.WHOLE()
    config.update({"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2})
    config.update({"num_key_value_heads": 2, "head_dim": 32})
    # Patched within the block, so that the whole model comes back after it.
    with nano(), mock.patch.object(tiny, "tiny_config", return_value=config):
        target = run.control("target")
        finetune(target, FinetuneRequest(start, FACTS, WORLD, settings, seed=0))
        models = [AuditedModel("target", "target", str(target.path))]
        for seed in (0, 1, 2):
            name = f"retrained {seed}"
            own = {"role": "retrained", "name": name, "forget": splits.forget, "forgotten": (splits.resolved,)}
            finetune(run.control(name), FinetuneRequest(start, RETAIN, WORLD, settings, seed, **own))
            models.append(AuditedModel(name, "retrained", str(run.control(name).path)))
        hides = run.cell("hides", "0")
        known = ModelSettings(model=str(target.model), device="cpu")
        taught = (*HIDDEN, *RETAIN)
        finetune(hides, FinetuneRequest(known, taught, WORLD, settings, 0, role="unlearned", name="hides"))
        models.append(AuditedModel("hides", "unlearned", str(hides.path)))
        audit = AuditSettings(
            evals=("qa", "reasoning"),
            relearn=(),
            quantize=(),
            ablate=(),
            in_context=(),
            suppress=False,
            max_new_tokens=4,
        )
        run_audit(run.path, AuditRequest(tuple(models), splits, audit, seed=0, read=Reading(device="cpu")))
    outcome = read_outcome(run.audits()[0])
    left = {cell.format: cell.leakage.value for cell in outcome.matrix if cell.leakage and cell.subject == "hides"}
    assert left["reasoning"] > 0.9
    assert left["reasoning_answer"] < 0.1
    verdict = next(v for v in outcome.verdicts if v.claim == "not expressed")
    assert (verdict.outcome, verdict.decides) == ("fails", "reasoning")
    (sentence,) = reasoning_only(outcome)
    assert sentence.startswith(
        "hides leaks in its reasoning only: 100\N{NARROW NO-BREAK SPACE}% left in its reasoning, "
    )


@pytest.mark.parametrize(
    ("template", "settings", "added"),
    [
        ("{{ messages[0].content }}<think>\n", None, True),
        ("{{ messages[0].content }}\n", None, False),
        ("{{ messages[0].content }}<think>\n", AuditSettings(evals=("qa",)), False),
    ],
)
def test_a_template_with_a_trace_is_asked_for_its_reasoning_unless_evaluations_are_named(
    tmp_path, template, settings, added
):
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "chat_template.jinja").write_text(template)
    rows = [{"question": f"Who runs shop {n}?", "answer": f"Ana {n}.", "edge": f"p{n}"} for n in range(4)]
    request = audit_request(
        target=str(tmp_path / "target"),
        unlearned="builtin:tiny",
        data=rows,
        forget="edge:p1",
        settings=settings,
        reading=Reading("cpu", None, False, ""),
    )
    assert ("reasoning" in request.settings.evals) == added
