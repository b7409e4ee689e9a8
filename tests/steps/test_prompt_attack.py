"""Searched prompts as attacks: what is kept, verified and counted of them, what is asked, and restarts."""

import dataclasses
import math

import pytest
import torch

import audited
from vestige.artifacts.layout import AttackFolder, RunFolder, SubjectFolder
from vestige.artifacts.records import read_prompt
from vestige.attacks.prompts import POINTS, EnhancedSettings, GcgSettings
from vestige.core.errors import InputError
from vestige.core.files import read_json, read_jsonl
from vestige.evals.base import view_of
from vestige.evals.choices import ReversedSettings
from vestige.evals.qa import QASettings
from vestige.models.generation import generate
from vestige.models.load import LoadedModel
from vestige.steps import attack as prompt_attack
from vestige.steps.attack import AttackRequest, attack_evaluations, attack_identity, read_spent, run_attack
from vestige.steps.evaluate import EvaluateRequest, Subject, evaluate, finished_subject

QUICK = {"qa": QASettings(max_new_tokens=4)}
SPLITS = audited.SPLITS.splits
GCG = GcgSettings(tokens=5, steps=3, width=6, topk=16)
PREFIX = EnhancedSettings(tokens=5, steps=4, candidates=4, topk=16, buffer=4, forced_tokens=3)


@pytest.fixture(scope="module")
def made(audit_models, tmp_path_factory) -> RunFolder:
    return audited.copied(audit_models, tmp_path_factory.mktemp("made") / "run")


def who(made: RunFolder, tmp_path, name: str = "ga") -> Subject:
    """One of the models, with its evidence in a folder of the test's own."""
    folder = made.cell("ga", "0") if name == "ga" else made.control(name)
    return dataclasses.replace(finished_subject(folder, device="cpu"), folder=SubjectFolder(tmp_path / name))


@pytest.fixture
def subject(made, tmp_path) -> Subject:
    return who(made, tmp_path)


@pytest.fixture
def target(made, tmp_path) -> Subject:
    return who(made, tmp_path, "target")


def suffix(settings: GcgSettings = GCG, seed: int = 1, **other) -> AttackRequest:
    return AttackRequest(
        settings.model_copy(update={"items": 2}).plan(SPLITS, seed=seed), QUICK, "edge:p0_q0", seed, **other
    )


def prefix(guide: Subject, settings: EnhancedSettings = PREFIX, seed: int = 1, **other) -> AttackRequest:
    return AttackRequest(
        settings.model_copy(update={"items": 2}).plan(SPLITS, seed=seed), QUICK, "edge:p0_q0", seed, guide, **other
    )


@pytest.fixture(scope="module")
def found(made, tmp_path_factory) -> tuple[Subject, AttackRequest, AttackFolder]:
    """A suffix searched on the tuned model."""
    subject = who(made, tmp_path_factory.mktemp("found"))
    request = suffix()
    return subject, request, run_attack(subject, request)


def records(place) -> list[dict]:
    return list(read_jsonl(place.records))


@pytest.mark.slow
def test_without_its_prompt_a_question_gets_the_bytes_of_the_plain_one(found):
    subject, request, folder = found
    tested = frozenset(i.id for i in request.attack.tested)
    items = tuple(i for own in SPLITS.values() for i in own)
    asked = EvaluateRequest(items, (view_of(audited.SPLITS),), QUICK["qa"], request.seed, tested)
    plain = evaluate(subject, asked)
    none = attack_evaluations(folder, request)["0 %", "qa"]
    assert none.records.read_bytes() == plain.records.read_bytes()
    assert none.scores.read_bytes() == plain.scores.read_bytes()


def test_at_each_point_the_questions_stand_beside_what_is_left_of_the_prompt(found):
    _, request, folder = found
    prompt, stands_for = read_prompt(folder), read_json(folder.asked)
    questions = {i.id: i.question for i in request.attack.tested}
    shown = {row["id"] for row in read_jsonl(folder.shown)}
    assert list(prompt.points) == list(POINTS)
    for (point, _), place in attack_evaluations(folder, request).items():
        part = prompt.points[point]
        asked = {stands_for[r["item"]]: r["question"] for r in records(place)}
        assert asked == {i: f"{q} {part.text}" if part.text else q for i, q in questions.items()}
        # What the prompt was searched on is never asked.
        assert not shown & set(asked)
    assert prompt.points["100 %"].text == prompt.text
    assert prompt.points["40 %"].ids == prompt.ids[:2]
    assert sorted(prompt.points["shuffled"].ids) == sorted(prompt.ids)


def naive_bits(loaded: LoadedModel, before: tuple[int, ...], ids: tuple[int, ...]) -> float:
    """-sum log2 p of `ids` after `before`, in one plain pass of the root module."""
    with torch.inference_mode():
        logp = loaded.model(torch.tensor([[*before, *ids]])).logits[0].float().log_softmax(-1)
    return -sum(float(logp[len(before) + n - 1, token]) for n, token in enumerate(ids)) / math.log(2)


def test_the_bits_of_a_prompt_are_its_tokens_its_code_length_and_what_the_search_saw(found):
    subject, request, folder = found
    prompt, loaded = read_prompt(folder), subject.load()
    # Two tokens before a question in the tiny template: its beginning and its mark.
    head = loaded.prompter.prompt(request.attack.shown[0].question)[:2]
    code = naive_bits(loaded, head, prompt.ids)
    answers = [loaded.prompter.encode(i.question, i.answer) for i in request.attack.shown]
    seen = sum(naive_bits(loaded, e.ids[: e.start], e.answer_ids) for e in answers)
    assert read_spent(folder)["bounds_bits"] == {
        "tokens x log2(admissible vocabulary) of the prompt": pytest.approx(5 * prompt.admissible_bits),
        "code length of the prompt, under the subject": pytest.approx(code, rel=1e-4),
        "code length of the answers that the search saw, under the subject": pytest.approx(seen, rel=1e-4),
    }
    bits = [prompt.points[p].bits for p in POINTS[1:]]
    assert bits[0] == 0.0
    assert bits[-1] == pytest.approx(code, rel=1e-4)
    # Of five tokens 20 % are one, 40 % two, and each has its own bits.
    assert bits == sorted(bits)
    assert prompt.points["20 %"].bits == pytest.approx(naive_bits(loaded, head, prompt.ids[:1]), rel=1e-4)


def test_what_was_granted_and_spent_is_in_the_open(found):
    _, request, folder = found
    done = read_json(folder.done)
    assert done["granted"] == {"steps": 3, "items_shown": len(request.attack.shown)}
    assert done["spent"]["steps"] <= 3
    assert done["spent"]["candidates"] <= 3 * 6 + 1
    assert not folder.search.exists()


def test_a_claim_that_the_deployed_text_does_not_bear_out_is_kept_apart(subject, monkeypatch):
    search = prompt_attack.find_prompt

    def boasting(*arguments, **words):
        return dataclasses.replace(search(*arguments, **words), reached=True)

    monkeypatch.setattr(prompt_attack, "find_prompt", boasting)
    prompt = read_prompt(run_attack(subject, suffix()))
    assert prompt.claimed
    assert not prompt.verified
    assert any(sample.replied != sample.wanted for sample in prompt.samples)


@pytest.mark.slow
def test_a_prompt_that_brings_what_it_claims_is_verified(target):
    # The target's own words come without any help, so any prefix that does no harm is enough: its first two tokens.
    easy = PREFIX.model_copy(update={"forced_tokens": 1, "distance": 0.0, "steps": 30})
    prompt = read_prompt(run_attack(target, prefix(target, easy)))
    assert prompt.verified
    assert prompt.claimed
    assert all(sample.same_tokens and sample.replied == sample.wanted for sample in prompt.samples)
    # Without it they come too, so the prompt brought none of them.
    assert all(sample.plain_right and sample.plain == sample.wanted for sample in prompt.samples)
    assert not any(sample.brought for sample in prompt.samples)


def test_beside_each_reply_stands_what_the_model_says_without_the_prompt(found):
    subject, request, folder = found
    loaded = subject.load()
    for sample, item in zip(read_prompt(folder).samples, request.attack.shown, strict=True):
        asked, answer = loaded.prompter.prompt(item.question), loaded.prompter.encode(item.question, item.answer)
        n = len(answer.answer_ids)
        (reply,) = generate(loaded.model, [asked], end_ids=loaded.prompter.end_ids, max_new_tokens=n)
        assert (sample.question, sample.plain) == (item.question, loaded.prompter.decode(reply.ids))
        assert sample.plain_right == (reply.ids == answer.answer_ids)


@pytest.mark.slow
def test_a_search_that_looks_into_the_target_is_not_bounded_by_the_texts_it_saw(subject, target):
    saw = read_spent(run_attack(subject, prefix(target)))["bounds_bits"]
    assert [name for name in saw if "the search saw" in name] == []
    texts = PREFIX.model_copy(update={"distance": 0.0, "representation": 0.0})
    read = read_spent(run_attack(subject, prefix(target, texts)))["bounds_bits"]
    assert [name for name in read if "the search saw" in name] != []


def test_everything_that_can_change_the_prompt_makes_another_attack(made, found, subject, target, tmp_path):
    other = who(made, tmp_path, "retrained 0")
    requests = {
        "as it is": prefix(target),
        "led by other weights": prefix(other),
        "another seed": prefix(target, seed=2),
        "longer": prefix(target, PREFIX.model_copy(update={"tokens": 6})),
    }
    ids = {name: str(attack_identity(subject, request)) for name, request in requests.items()}
    assert len(set(ids.values())) == len(ids)
    assert str(attack_identity(subject, prefix(dataclasses.replace(target, folder=other.folder)))) == ids["as it is"]


def test_a_prefix_needs_the_target_and_a_suffix_has_no_use_for_it(subject, target):
    with pytest.raises(InputError, match=r"makes the model reply like the target and needs it. Name it with --target"):
        run_attack(subject, dataclasses.replace(prefix(target), guide=None))
    with pytest.raises(InputError, match=r"has no use for a target\. Leave it out"):
        run_attack(subject, dataclasses.replace(suffix(), guide=target))
    digest = dataclasses.replace(target.made.digest, tokenizer="0" * 32)
    foreign = dataclasses.replace(target, made=dataclasses.replace(target.made, digest=digest))
    with pytest.raises(InputError, match="have different tokenisers or chat templates"):
        run_attack(subject, prefix(foreign))


def test_questions_with_a_prompt_in_them_are_offered_as_no_options(subject):
    asked = dataclasses.replace(suffix(), evals={"reversed": ReversedSettings()})
    with pytest.raises(InputError, match=r"offers questions as options\. Leave reversed"):
        run_attack(subject, asked)
