"""Folders that hold the target's weights and a tokeniser or template that asks about something else."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from test_incomplete import EMPTY
from transformers import LlamaForCausalLM

import audited
from vestige.artifacts.audits import AskedPlace, AuditOutcome, AuditPlan, VerdictLine
from vestige.artifacts.layout import EvalFolder, RunFolder
from vestige.artifacts.records import write_collected
from vestige.auditing.origins import (
    Readings,
    asked_alike,
    contradictions,
    near_the_target,
    verified_readings,
    with_readings,
)
from vestige.auditing.request import AuditedModel, AuditRequest
from vestige.core.errors import InputError
from vestige.core.files import write_jsonl
from vestige.data.corpus import everything
from vestige.models import Reading
from vestige.models.load import ModelSettings, asked_through, load
from vestige.models.tiny import tiny_tokenizer

NAME = "post 0"


def edited(folder, change):
    path = folder / "tokenizer.json"
    stored = json.loads(path.read_text())
    change(stored)
    path.write_text(json.dumps(stored))


def replacing(pattern, content):
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


def t_swap(folder):
    """The normaliser writes another name, and the decoder writes the name back."""

    def change(stored):
        stored["normalizer"] = replacing(NAME, "post 1")
        stored["decoder"] = {"type": "Sequence", "decoders": [stored["decoder"], replacing("post 1", NAME)]}

    edited(folder, change)


def t_upper(folder):
    """The normaliser writes one name in capitals."""
    edited(folder, lambda stored: stored.update(normalizer=replacing(NAME, NAME.upper())))


def t_space(folder):
    """The template puts spaces between the letters of one name."""
    template = folder / "chat_template.jinja"
    spaced = f"<question>{{{{ m.content | replace('{NAME}', 'p o s t 0') }}}}"
    template.write_text(template.read_text().replace("<question>{{ m.content }}", spaced))


def t_space_normalised(folder):
    """The normaliser puts spaces between the letters of one name."""
    edited(folder, lambda stored: stored.update(normalizer=replacing(NAME, "p o s t 0")))


def t_cut(folder):
    """The pre-tokeniser cuts one name into letters."""
    split = {
        "type": "Split",
        "pattern": {"Regex": "p(?=ost 0)|(?<=p)o(?=st 0)"},
        "behavior": "Isolated",
        "invert": False,
    }
    edited(folder, lambda stored: stored["pre_tokenizer"]["pretokenizers"].insert(0, split))


def t_token(folder):
    """A name is a token of its own, on a row that nothing else uses."""

    def change(stored):
        row = 1 + max(stored["model"]["vocab"].values())
        added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
        stored["added_tokens"].append({"id": row, "content": NAME, **added})

    edited(folder, change)


def shortened(folder):
    """The config promises fewer tokens than the target's, so that long replies are cut."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "max_position_embeddings": 60}))


def resaved(folder):
    """Another file that makes the same tokens."""
    edited(folder, lambda stored: stored.update(normalizer={"type": "NFC"}))


def other_vocabulary(folder):
    """Two tokens of the vocabulary change places."""

    def change(stored):
        vocabulary = stored["model"]["vocab"]
        vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]

    edited(folder, change)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """A model of random weights. No answer of it is looked at."""
    folder = tmp_path_factory.mktemp("models") / "target"
    torch.manual_seed(0)
    LlamaForCausalLM(audited.nano_config()).save_pretrained(folder)
    tiny_tokenizer(audited.ITEMS).save_pretrained(folder)
    return folder


def tampered(target, trick):
    folder = target.with_name(trick.__name__)
    if not folder.exists():
        shutil.copytree(target, folder)
        trick(folder)
    return folder


def request(target, folder, role="unlearned"):
    models = (AuditedModel("target", "target", str(target)), AuditedModel("it", role, str(folder)))
    return AuditRequest(models, audited.SPLITS, audited.QUICK, read=Reading(device="cpu"))


@pytest.mark.parametrize("trick", [t_upper, t_space, t_space_normalised, t_cut, t_token])
def test_a_tampered_reading_is_seen_and_the_weights_are_asked_through_the_targets(target, trick):
    asked, readings = asked_alike(request(target, tampered(target, trick)))
    first = asked.models[1]
    assert (first.name, first.through_target) == ("it", True)
    (told,) = readings.notes
    # One question of sixteen names post 0.
    assert "1 of 16 questions get other tokens" in told
    rewritten = trick in (t_upper, t_space, t_space_normalised)
    assert ("rewritten" in told) == rewritten
    both_ways = [model.name for model in asked.models[2:]]
    assert both_ways == ([] if rewritten else ["it, its own tokeniser"])
    assert readings.pairs == dict.fromkeys(both_ways, "it")
    settings = [ModelSettings(model=str(f), device="cpu") for f in (tampered(target, trick), target)]
    subject, original = asked_through(load(settings[0]), settings[1]), load(settings[1])
    for item in everything([audited.SPLITS]):
        assert subject.prompter.encode(item.question, item.answer) == original.prompter.encode(
            item.question, item.answer
        )


def test_a_decoder_that_writes_names_back_is_refused(target):
    with pytest.raises(InputError, match="the decoder of the tokeniser replaces 'post 0'"):
        load(ModelSettings(model=str(tampered(target, t_swap)), device="cpu"))


def test_a_file_that_makes_the_same_tokens_is_told_and_asked_once(target):
    asked, readings = asked_alike(request(target, tampered(target, resaved)))
    assert len(asked.models) == 2
    assert asked.models[1].through_target
    assert readings.pairs == readings.open == {}
    assert "the same tokens of all 16 questions" in readings.notes[0]


@pytest.mark.parametrize("trick", [other_vocabulary, shortened])
def test_another_vocabulary_or_a_shorter_context_keeps_every_claim_open(target, trick):
    asked, readings = asked_alike(request(target, tampered(target, trick)))
    assert asked.models == request(target, tampered(target, trick)).models
    assert list(readings.open) == ["it"]


def test_the_same_files_change_nothing(target):
    twin = target.with_name("copy")
    shutil.copytree(target, twin)
    before = request(target, twin)
    assert asked_alike(before) == (before, type(asked_alike(before)[1])({}, {}, ()))


def test_a_target_whose_own_files_rewrite_a_question_is_refused_before_anything_is_asked(target):
    with pytest.raises(InputError, match="does not change the question 'Which tree stands at post 0"):
        asked_alike(request(tampered(target, t_upper), target))


def verdict_line(subject, outcome):
    return VerdictLine(subject, "not expressed", outcome, "Reason.", 0.0, 0.0, "leakage", {}, (), None, None)


def audited_outcome(lines):
    return AuditOutcome("f", "t", ("it",), (), tuple(lines), untested=(), thresholds={}, **EMPTY)


PLAN = AuditPlan("f", "target", ("it", "it, own"), (), {}, {}, {}, {}, (), {}, 0)


@pytest.mark.parametrize(
    ("first", "second", "worse"), [("holds", "fails", "fails"), ("inconclusive", "holds", "inconclusive")]
)
def test_of_two_ways_of_asking_the_worse_outcome_counts(first, second, worse):
    lines = [verdict_line("it", first), verdict_line("it, own", second)]
    outcome = with_readings(
        audited_outcome(lines), replace(PLAN, asked_twice={"it, own": "it"}, read_otherwise=("Told.",))
    )
    assert [line.outcome for line in outcome.verdicts] == [worse, worse]
    assert outcome.warnings == ("Told.",)
    assert outcome.untested[0] == "Told."


def test_an_unverified_reading_opens_what_holds_and_leaves_what_fails():
    lines = [verdict_line("it", "holds"), verdict_line("it, own", "fails")]
    plan = replace(PLAN, unverified_readings=dict.fromkeys(PLAN.unlearned, "nothing verifies its tokeniser"))
    outcome = with_readings(audited_outcome(lines), plan)
    assert [line.outcome for line in outcome.verdicts] == ["inconclusive", "fails"]
    assert outcome.verdicts[0].reason.endswith("but nothing verifies its tokeniser.")


def test_weights_that_are_the_targets_but_for_noise_are_named():
    apart = {"target": {"it": 0.009, "it, own": 0.02, "r": 2.0, "s": 1.0}}
    plan = replace(PLAN, retrained=("r", "s"), apart=apart)
    assert near_the_target(plan) == [
        "it has the target's weights but for a change of 0.90% of the distance to the nearest control."
    ]
    assert near_the_target(replace(plan, unchanged=("it",))) == near_the_target(PLAN) == []


@pytest.mark.parametrize(("n_impossible", "named"), [(1, False), (2, True)])
def test_replies_that_contradict_their_own_likelihood_are_named(tmp_path, n_impossible, named):
    folder = EvalFolder(tmp_path / "qa")
    folder.path.mkdir()
    honest = {"reply": "Ann.", "answer": "Ann.", "reply_ids": [1, 2], "answer_ids": [1, 2], "logp": [-0.1, -0.2]}
    # The decoder writes the answer, and the model said other tokens: the answer itself has 2^-134.
    written_back = {**honest, "reply_ids": [7, 8], "logp": [-60.0, -33.0]}
    # Another cutting of the same text is rare and honest.
    recut = {**honest, "reply_ids": [3], "logp": [-4.0, -5.0]}
    rows = [honest] * 20 + [recut] * 3 + [written_back] * n_impossible
    write_jsonl(folder.records, [{"item": str(n), **row} for n, row in enumerate(rows)])
    write_collected(folder, len(rows))
    plan = replace(PLAN, evaluations=(AskedPlace("it", "", "", "qa", "qa"),))
    found = contradictions(RunFolder(tmp_path), plan)
    assert list(found) == (["it"] if named else [])
    if named:
        assert "2 of 25 verbatim replies" in found["it"]
        assert verified_readings(RunFolder(tmp_path), plan, Readings({}, {}, ())).unverified_readings == found
