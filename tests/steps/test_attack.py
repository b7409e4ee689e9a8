"""Attacks as a step: what they show and ask, what becomes of the answers, and restarts."""

import dataclasses
import json
import math
import re
import shutil

import numpy as np
import pytest
import torch
from tests.small import TINY, contents

import audited
from vestige.artifacts.layout import AttackFolder, SubjectFolder, note_seen
from vestige.artifacts.records import read_summary
from vestige.attacks.ablate import AblateSettings
from vestige.attacks.in_context import InContextSettings
from vestige.attacks.planning import attack_of
from vestige.attacks.quantize import QuantizeSettings
from vestige.attacks.relearn import RelearnSettings, left_as_it_was
from vestige.core.errors import InputError, NotFinite
from vestige.core.files import read_json, read_jsonl
from vestige.core.items import Item, Options
from vestige.evals.freeform import FreeformSettings
from vestige.evals.qa import QASettings
from vestige.models import folders
from vestige.models.folders import weights_digest
from vestige.models.load import ModelSettings
from vestige.models.scoring import score_answers
from vestige.steps import attack as step
from vestige.steps.attack import AttackRequest, attack_evaluations, attack_summaries, read_spent, run_attack
from vestige.steps.evaluate import EvaluateRequest, Subject, _planned, _sum_up, finished_subject, loaded_subject
from vestige.steps.finetune import FinetuneRequest, finetune
from vestige.steps.making import stored_done
from vestige.steps.subjects import any_subject
from vestige.training import loop
from vestige.training.checkpoints import TrainingJob
from vestige.training.loop import reproducible, train
from vestige.training.settings import TrainingSettings

WORDS = ("amber", "birch", "cedar", "dune", "ember", "fjord", "grove", "heath")
ITEMS = tuple(
    Item(f"Which tree stands at post {n}?", f"{WORDS[n % 8]} {n}.", edge=f"p{n % 4}_q{n % 4}", attribute="tree")
    for n in range(24)
)
SPLITS = {
    "forget": tuple(i for i in ITEMS if i.edge == "p0_q0"),
    "retain": tuple(i for i in ITEMS if i.edge != "p0_q0"),
}
QUICK = {"qa": QASettings(max_new_tokens=6)}
RELEARN = RelearnSettings(epochs=3, rate=1e-2, rank=4, curve=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> SubjectFolder:
    folder = SubjectFolder(tmp_path_factory.mktemp("run") / "models/target")
    settings = TrainingSettings(epochs=12, batch_size=8, lora_rank=0, learning_rate=3e-3)
    finetune(folder, FinetuneRequest(TINY, ITEMS, ITEMS, settings, seed=0))
    return folder


@pytest.fixture
def subject(model, tmp_path) -> Subject:
    """The nano model, with its evidence in a folder of the test's own."""
    return dataclasses.replace(finished_subject(model, device="cpu"), folder=SubjectFolder(tmp_path / "subject"))


def relearning(material="retain", n=8, settings=RELEARN, evals=QUICK) -> AttackRequest:
    planned = settings.model_copy(update={"material": material, "items": n}).plan(SPLITS, seed=1)
    return AttackRequest(planned, evals, "edge:p0_q0", seed=1)


def job_of(request, folder, loaded) -> TrainingJob:
    return attack_of(request.attack.plan).job(request.attack, folder, loaded, seed=request.seed)


def bits(place) -> dict[str, float]:
    return {row["item"]: row["answer_bits"] for row in read_jsonl(place.scores)}


def test_a_relearning_of_a_model_that_gives_no_numbers_says_so_and_not_that_its_rate_is_high(subject):
    def broken():
        loaded = finished.load()
        with torch.no_grad():
            loaded.model.model.norm.weight.fill_(3e38)
        return loaded

    finished = subject
    made = dataclasses.replace(subject.made, digest=broken().digest())
    with pytest.raises(NotFinite, match=r"gives logits that are NaN or infinite .*make it again"):
        run_attack(dataclasses.replace(subject, made=made, load=broken), relearning())


def test_a_relearning_that_breaks_down_names_its_rate(subject):
    with pytest.raises(NotFinite, match=r"the attack's own training broke it: lower its learning rate"):
        run_attack(subject, relearning(settings=RELEARN.model_copy(update={"rate": 1e38})))


def test_a_relearning_that_comes_late_to_what_breaks_the_model_names_the_model_and_not_its_rate(subject):
    def broken():
        loaded = finished.load()
        audited.broken_at(loaded.model, token)
        return loaded

    finished, asked, loaded = subject, relearning(), subject.load()
    shown = [set(loaded.prompter.encode(i.question, i.answer).ids) for i in asked.attack.shown]
    order = [batch["train"][0] for batch in job_of(asked, subject.folder.attack("x", "y"), loaded).plan.epoch(0)]
    late, token = next((n, t) for n in order[1:] for t in shown[n] if sum(t in own for own in shown) == 1)
    made = dataclasses.replace(subject.made, digest=broken().digest())
    at = re.escape(asked.attack.shown[late].question)
    with pytest.raises(NotFinite, match=rf"gives logits that are NaN .*{at}.*make it again"):
        run_attack(dataclasses.replace(subject, made=made, load=broken), asked)


@pytest.mark.parametrize("settings", [QuantizeSettings(bits=4), InContextSettings(facts=2)], ids=["plain", "reworded"])
def test_what_an_attack_sums_up_to_is_made_when_it_is_asked_for_and_is_what_evaluating_would_sum_up(subject, settings):
    request = AttackRequest(settings.plan(SPLITS, seed=1), QUICK, "edge:p0_q0", seed=1)
    folder = run_attack(subject, request)
    ((place, summary),) = attack_summaries(subject, folder, request).values()
    assert not place.summaries()
    # As the model's own evaluations are summed up, from all splits.
    items, view = step.as_asked(request.attack, step.asked_by(request.attack), request.forget)
    only = frozenset(row["item"] for row in read_jsonl(place.records))
    whole = EvaluateRequest(items, (view,), QUICK["qa"], 1, only)
    _sum_up(dataclasses.replace(_planned(subject, whole), place=place), subject)
    assert summary == read_summary(place.summary("edge:p0_q0"))
    assert {r.estimate.n for r in summary.results} == {len(SPLITS["forget"])}


@pytest.mark.slow
def test_each_epoch_is_a_point_at_which_the_tested_items_are_asked(subject):
    request = relearning()
    folder = run_attack(subject, request)
    places = attack_evaluations(folder, request)
    assert list(places) == [("1", "qa"), ("2", "qa"), ("3", "qa")]
    tested = [i.id for i in SPLITS["forget"]]
    levels = [bits(place) for place in places.values()]
    assert all(list(level) == tested for level in levels)
    # The model moved on from point to point.
    assert len({json.dumps(level) for level in levels}) == 3
    shown = [row["id"] for row in read_jsonl(folder.shown)]
    assert len(shown) == 8
    assert not set(shown) & set(tested)
    assert read_json(folder.asked) == {i: i for i in tested}
    assert not folder.checkpoints.exists()


@pytest.mark.slow
def test_relearning_the_answers_brings_them(subject):
    taught = RelearnSettings(epochs=8, rate=3e-3, rank=0, curve=True)
    request = relearning("forget", n=6, settings=taught)
    assert request.attack.plan.shows_answers
    places = attack_evaluations(run_attack(subject, request), request)
    first, last = (np.mean(list(bits(places[point, "qa"]).values())) for point in ("1", "8"))
    assert last > first + 2


def test_a_done_attack_is_not_run_again_and_another_seed_is_another_attack(subject, monkeypatch):
    request = relearning()
    folder = run_attack(subject, request)

    def never(*_args, **_words):
        raise AssertionError("attacked again")

    monkeypatch.setattr("vestige.training.loop.train", never)
    assert run_attack(subject, request) == folder
    with pytest.raises(AssertionError, match="attacked again"):
        run_attack(subject, dataclasses.replace(request, seed=2))


def test_what_an_attack_left_is_refused_by_name_where_it_is_not_as_it_was(subject, tmp_path):
    found = run_attack(subject, relearning())
    for number, name in enumerate(("spec.json", "shown.jsonl", "asked.json", "done.json", "evals/qa-*/collected.json")):
        copy = AttackFolder(shutil.copytree(found.path, tmp_path / str(number)))
        assert read_spent(copy)["spent"]
        path = next(copy.path.rglob(name))
        path.write_text(path.read_text().replace("1", "2"))
        with pytest.raises(
            InputError, match=rf"{path.name} is gone or was changed after it was written\. .*done\.json"
        ):
            read_spent(copy)


@pytest.mark.parametrize("split", ["forget", "retain"])
@pytest.mark.parametrize(
    "change",
    [
        {"perturbed": ("Oak 7.",)},
        {"paraphrase": "What tree?"},
        {"paraphrased_answer": "It is an oak."},
        {"options": Options(("a", "b"), 0)},
        {"attribute": "wood"},
    ],
)
def test_an_attack_whose_items_are_asked_in_other_words_or_beside_other_wrong_answers_is_another(
    subject, split, change
):
    request = relearning()
    first, *others = SPLITS[split]
    other = {**SPLITS, split: (dataclasses.replace(first, **change), *others)}
    changed = dataclasses.replace(request, attack=RELEARN.model_copy(update={"items": 8}).plan(other, seed=1))
    assert changed.attack.plan == request.attack.plan
    assert step.attack_identity(subject, changed) != step.attack_identity(subject, request)


class Killed(Exception):
    """What ends an attack in these tests."""


@pytest.mark.slow
def test_what_half_of_the_facts_choose_is_asked_of_the_others_and_ends_with_the_same_bytes(model, subject, tmp_path):
    def stop(done: float) -> None:
        if done >= 0.5:
            raise Killed

    request = AttackRequest(AblateSettings().plan(SPLITS, seed=1), QUICK, "edge:p0_q0", seed=1)
    whole = dataclasses.replace(subject, folder=SubjectFolder(tmp_path / "whole"))
    folder, before = run_attack(whole, request), contents(model.path)
    with pytest.raises(Killed):
        run_attack(subject, request, stop)
    assert contents(run_attack(subject, request).path) == contents(folder.path)
    assert contents(model.path) == before
    shown, tested = ({i.id for i in items} for items in (request.attack.shown, request.attack.tested))
    assert bits(attack_evaluations(folder, request)["given", "qa"]).keys() == tested
    assert not shown & tested
    assert not list(folder.path.rglob("*.safetensors"))
    assert all(value > 0 for value in read_spent(folder)["bounds_bits"].values())
    assert step.attack_identity(subject, request) != step.attack_identity(subject, dataclasses.replace(request, seed=2))


@pytest.mark.slow
def test_asking_between_epochs_changes_nothing_of_the_training(subject, tmp_path):
    request = relearning()
    folder = run_attack(subject, request)
    alone = dataclasses.replace(folder, path=tmp_path / "alone")
    train((loaded := subject.load()).model, job_of(request, alone, loaded))
    logs = [[reproducible(line) for line in read_jsonl(f.training_log)] for f in (folder, alone)]
    assert logs[0] == logs[1]


def test_a_model_is_left_as_it_was_whatever_asking_did_to_it(subject):
    model = subject.load().model.train()
    frozen = next(model.parameters()).requires_grad_(False)
    before = weights_digest(model)
    with left_as_it_was(model):
        assert not model.training
        frozen.requires_grad_(True)
        model(torch.tensor([[1, 2, 3]])).logits.sum().backward()
    assert model.training
    assert not frozen.requires_grad
    assert all(p.grad is None for p in model.parameters())
    assert weights_digest(model) == before


def test_the_bits_shown_are_those_of_each_answer_before_the_model_was_tuned_on_it(subject, tmp_path):
    request = relearning(n=5, settings=RELEARN.model_copy(update={"batch_size": 2}))
    folder = run_attack(subject, request)
    # The same training step by step, each batch's answers read before its step, ends of turns included.
    alone = dataclasses.replace(folder, path=tmp_path / "alone")
    loaded = subject.load()
    job = job_of(request, alone, loaded)
    expected = 0.0
    for number, batch in enumerate(job.plan.epoch(0)):
        train(loaded.model, job, until=number) if number else None
        shown = [request.attack.shown[n] for n in batch["train"]]
        scores = score_answers(
            loaded.model.eval(), [loaded.prompter.encode(item.question, item.answer) for item in shown]
        )
        expected -= sum(math.fsum(s.logp) + s.end_logp for s in scores) / math.log(2)
    found = read_spent(folder)
    assert found["bounds_bits"] == {"prequential code length of what was shown": pytest.approx(expected, rel=1e-5)}
    # Five items in three batches, three times over.
    assert (found["spent"]["steps"], found["spent"]["items_shown"]) == (9, 15)


def test_eight_bits_hardly_change_the_answers_and_four_change_them_more(subject):
    before = {i.id: sum(s.logp) / math.log(2) for i, s in zip(SPLITS["forget"], scored(subject), strict=True)}
    moved = {}
    for n in (8, 4):
        request = AttackRequest(QuantizeSettings(bits=n).plan(SPLITS, seed=1), QUICK, "edge:p0_q0", seed=1)
        folder = run_attack(subject, request)
        after = bits(attack_evaluations(folder, request)["given", "qa"])
        moved[n] = np.mean([abs(after[i] - before[i]) for i in before])
        assert read_spent(folder) == {
            "bounds_bits": {"nothing shown": 0.0},
            "spent": {"steps": 0, "items_shown": 0, "tokens_shown": 0},
        }
    # 127 levels a side against 7, whose groups are shorter: some 16 times closer.
    assert 0 < moved[8] < moved[4] / 4
    assert moved[8] < 1e-3


def scored(subject):
    loaded = subject.load()
    return score_answers(loaded.model, [loaded.prompter.encode(i.question, i.answer) for i in SPLITS["forget"]])


def test_facts_stand_before_each_question_and_answers_go_back_to_the_items_asked_about(subject):
    evals = {**QUICK, "freeform": FreeformSettings(forms=("plain", "few_shot"), shots=1, max_new_tokens=6)}
    request = AttackRequest(InContextSettings(facts=2).plan(SPLITS, seed=1), evals, "edge:p0_q0", seed=1)
    folder = run_attack(subject, request)
    asked = read_json(folder.asked)
    assert sorted(asked.values()) == sorted(i.id for i in SPLITS["forget"])
    assert not set(asked) & set(asked.values())
    originals = {i.id: i for i in SPLITS["forget"]}
    for place in attack_evaluations(folder, request).values():
        records = list(read_jsonl(place.records))
        assert [asked[r["item"]] for r in records] == [i.id for i in SPLITS["forget"]]
        for record in records:
            own = originals[asked[record["item"]]]
            assert record["question"].endswith(own.question)
            assert record["question"].count("\n- ") == 2
            assert record["answer"] == own.answer


def test_the_text_of_the_facts_is_measured_in_tokens_and_in_the_subjects_own_code(subject):
    request = AttackRequest(InContextSettings(facts=2).plan(SPLITS, seed=1), QUICK, "edge:p0_q0", seed=1)
    found = read_spent(run_attack(subject, request))
    loaded = subject.load()
    tokens, nats = 0, 0.0
    for item in SPLITS["forget"]:
        facts = "".join(f"- {f.question} {f.answer}\n" for f in request.attack.facts[item.id])
        text = f"Here is some of what is known.\n{facts}\n"
        prompt = loaded.prompter.prompt(text + item.question)
        shown = len(prompt) - len(loaded.prompter.prompt(item.question))
        with torch.inference_mode():
            logits = loaded.model(torch.tensor([prompt])).logits[0].float().log_softmax(-1)
        # The tiny template has two tokens before a question: its beginning and its mark.
        nats -= sum(float(logits[place - 1, prompt[place]]) for place in range(2, 2 + shown))
        tokens += shown
    assert found["spent"]["tokens_shown"] == tokens
    assert found["spent"]["items_shown"] == 2 * len(SPLITS["forget"])
    assert found["bounds_bits"] == {
        "tokens x log2(vocabulary) of the text shown": pytest.approx(tokens * math.log2(len(loaded.tokenizer))),
        "code length of the text shown, under the subject": pytest.approx(nats / math.log(2), rel=1e-4),
    }


def test_facts_that_do_not_fit_are_refused(subject):
    request = AttackRequest(InContextSettings(facts=17).plan(SPLITS, seed=1), QUICK, "edge:p0_q0", seed=1)
    with pytest.raises(InputError, match=r"the facts do not fit before every question .* Show fewer facts"):
        run_attack(subject, request)


def test_answers_that_are_gone_are_not_asked_of_a_later_model(subject, monkeypatch):
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)

    def stop(done: float) -> None:
        if done > 0.45:
            raise Killed

    request = relearning(n=4)
    with pytest.raises(Killed):
        run_attack(subject, request, stop)
    (folder,) = (subject.folder.path / "attacks").iterdir()
    for path in (folder / "points/1").rglob("collected.json"):
        path.unlink()
    for path in (folder / "points/1").rglob("records.jsonl"):
        path.unlink()
    with pytest.raises(InputError, match="answers of the attack are missing"):
        run_attack(subject, request)


def test_a_model_from_elsewhere_can_be_attacked_again_and_again(model, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(model.model, elsewhere)
    subject = any_subject(ModelSettings(model=str(elsewhere), device="cpu"), str(tmp_path / "evidence"))
    digests = []
    for n in (4, 8):
        request = AttackRequest(QuantizeSettings(bits=n).plan(SPLITS, seed=1), QUICK, "edge:p0_q0", seed=1)
        digests.append(read_json(run_attack(subject, request).done)["seen"]["error"])
        # Another load gives the model as it was, not the one that was rounded.
        assert weights_digest(subject.load().model) == subject.made.digest.weights
    assert digests[0] > digests[1] > 0


def test_a_subject_whose_weights_have_changed_is_not_attacked(subject):
    digest = dataclasses.replace(subject.made.digest, weights="0" * 64)
    # Where its files are not as this machine last saw them.
    other = dataclasses.replace(subject, made=dataclasses.replace(subject.made, digest=digest, seen=False))
    with pytest.raises(InputError, match=r"is not the model that it was\. It differs in the weights"):
        run_attack(other, relearning())


def test_weights_whose_files_this_machine_has_seen_are_not_digested_at_every_load(model, monkeypatch):
    digested = []
    monkeypatch.setattr(folders, "weights_digest", lambda network: digested.append(1) or weights_digest(network))

    def load_it(**changes):
        loaded_subject(dataclasses.replace(finished_subject(model, device="cpu"), **changes))
        return len(digested)

    assert load_it() == 0
    assert load_it(verify=True) == 1
    for name in (model.model / "model.safetensors", model.model / "config.json"):
        name.touch()
    assert [load_it(), load_it()] == [2, 2]


def test_weights_that_rotted_under_an_unchanged_inode_are_refused_in_an_audit(model, tmp_path):
    rotted = SubjectFolder(tmp_path / "rotted")
    shutil.copytree(model.path, rotted.path)
    weights = rotted.model / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-2] ^= 1
    weights.write_bytes(content)
    # As if the disk gave other bytes for the file that this machine has seen.
    note_seen(rotted, stored_done(rotted).files)
    subject = finished_subject(rotted, device="cpu")
    loaded_subject(subject)
    for _ in range(2):
        with pytest.raises(InputError, match=r"is not the model that it was\. It differs in the weights"):
            loaded_subject(dataclasses.replace(subject, reread=True))
