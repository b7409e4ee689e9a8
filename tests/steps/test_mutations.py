"""What is made again when one thing changes: exactly what it can change, and nothing else.

The subject is a LoRA adapter on a nano model, so that every file a model can have is there. A model of Vestige's own
cannot change under its evidence: every command that would use either is refused by the file's name.
"""

import dataclasses
import json
import re
import shutil
from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from tests.small import nano, unlearning

from vestige.artifacts.layout import EvalFolder, SubjectFolder
from vestige.artifacts.records import SubjectSpec, write_collected, write_finished, write_spec
from vestige.attacks.quantize import QuantizeSettings
from vestige.core.errors import InputError
from vestige.core.files import read_jsonl, write_jsonl
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.evals.base import View
from vestige.evals.qa import QASettings
from vestige.judges.base import Grader
from vestige.models import tiny
from vestige.models.load import ModelSettings, load
from vestige.probes import holes as probe_step
from vestige.probes.answering import AnswerSettings, Participants
from vestige.probes.holes import FilterRequest, FilterSettings
from vestige.steps import attack as attack_step
from vestige.steps import finetune as finetune_step
from vestige.steps import unlearn as unlearn_step
from vestige.steps.attack import AttackRequest, run_attack
from vestige.steps.evaluate import EvaluateRequest, evaluate, finished_subject
from vestige.steps.finetune import FinetuneRequest, finetune_spec
from vestige.steps.making import Made, write_done
from vestige.steps.subjects import any_subject, asked_model, origin_of
from vestige.steps.unlearn import unlearn_spec
from vestige.training.settings import TrainingSettings

pytestmark = pytest.mark.slow

ITEMS = tuple(Item(f"Which tree stands at post {n}?", f"birch {n}.", edge=f"e{n % 2}") for n in range(6))
UNLEARNING = frozenset({"unlearn"})
TRAINING = frozenset({"finetune"})
EVERYTHING = frozenset({"evaluate", "attack", "probe"}) | UNLEARNING | TRAINING


@dataclasses.dataclass(frozen=True)
class Asked:
    """All that is asked of the commands, besides the files."""

    items: tuple[Item, ...] = ITEMS
    n_forget: int = 2
    seed: int = 1
    longest: int = 4
    epochs: int = 2
    alike: float = 1.0


@pytest.fixture(autouse=True, scope="module")
def quick():
    with nano(resamples=50):
        yield


@pytest.fixture(scope="module")
def place(quick, tmp_path_factory):
    """Base, adapter and judge in folders, and what every command makes of them as they are."""
    place = tmp_path_factory.mktemp("models")
    tokenizer = tiny.tiny_tokenizer(ITEMS)
    for name, seed in (("base", 0), ("judge", 1), ("policy", 2)):
        tiny.tiny_model(seed).save_pretrained(place / name)
        tokenizer.save_pretrained(place / name)
    torch.manual_seed(0)
    adapted = get_peft_model(tiny.tiny_model(0), LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    adapted.peft_config["default"].base_model_name_or_path = str(place / "base")
    adapted.save_pretrained(place / "adapter")
    return place


@pytest.fixture(scope="module")
def before(place):
    return made_in(place, Asked())


def made_in(place, asked):
    """By command the name of what it makes, as it files it."""
    settings = ModelSettings(model=str(place / "adapter"), device="cpu")
    subject = any_subject(settings, str(place / "evidence"))
    forget, retain = asked.items[: asked.n_forget], asked.items[asked.n_forget :]
    view = View("forget", {"forget": tuple(i.id for i in forget), "retain": tuple(i.id for i in retain)}, {})
    request = EvaluateRequest(asked.items, (view,), QASettings(max_new_tokens=asked.longest), asked.seed)
    splits = {"forget": forget, "retain": retain}
    evals = {"qa": QASettings(max_new_tokens=asked.longest)}
    attacked = AttackRequest(QuantizeSettings().plan(splits, seed=asked.seed), evals, "forget", asked.seed)
    who, origin = asked_model(settings), origin_of(settings)
    own = {"method": "npo", "forget": "forget", "idk": (), "seed": asked.seed, "training": {"epochs": asked.epochs}}
    forgetting = unlearning(settings, forget, retain, **own)
    training = FinetuneRequest(settings, asked.items, asked.items, TrainingSettings(epochs=asked.epochs), asked.seed)
    return {
        "evaluate": evaluate(subject, request).path.name,
        "attack": run_attack(subject, attacked).path.name,
        "probe": content_id(probe_step._filter_identity(probing(place, asked, who, forget, retain), [])),
        "unlearn": unlearn_spec(forgetting).id,
        "finetune": finetune_spec(training, origin.digest).id,
    }


def probing(place, asked, who, forget, retain):
    judge = asked_model(ModelSettings(model=str(place / "judge"), device="cpu"))
    grader, embedder = (
        Grader(SimpleNamespace(), {"judge": "local", "model": judge.id}),
        SimpleNamespace(digest="letters"),
    )
    taking_part = Participants(
        lambda: who, lambda: who, lambda _: grader, lambda: embedder, AnswerSettings(), asked.seed
    )
    return FilterRequest(taking_part, forget, FilterSettings(alike=asked.alike), retain)


@contextmanager
def edited(path, change):
    """The file with other content meanwhile; a `change` of bytes to bytes."""
    kept = path.read_bytes()
    path.write_bytes(change(kept))
    try:
        yield
    finally:
        path.write_bytes(kept)


def fields(**values):
    """An edit of a JSON file: values at the top, or in an object there."""

    def change(content):
        stored = json.loads(content)
        for key, value in values.items():
            stored[key] = {**stored[key], **value} if isinstance(value, dict) else value
        return json.dumps(stored).encode()

    return change


def tensors(number, every):
    """An edit of a file of tensors: one value, or `every` value, of the tensor with that number."""

    def change(content):
        from safetensors.torch import load, save

        stored = load(content)
        name = sorted(stored)[number]
        if every:
            stored[name] = torch.zeros_like(stored[name])
        else:
            stored[name].view(-1)[3] += 0.01
        return save(stored, {"format": "pt"})

    return change


def without_the_last_merge(content):
    stored = json.loads(content)
    stored["model"]["merges"].pop()
    return json.dumps(stored).encode()


FILES = {
    "one weight of the base": ("base/model.safetensors", tensors(2, every=False)),
    "one tensor of the base": ("base/model.safetensors", tensors(2, every=True)),
    "the adapter": ("adapter/adapter_model.safetensors", tensors(0, every=False)),
    "config: rope_theta": ("base/config.json", fields(rope_parameters={"rope_theta": 3.0})),
    "config: rms_norm_eps": ("base/config.json", fields(rms_norm_eps=0.5)),
    "the generation config": ("base/generation_config.json", fields(repetition_penalty=1.5)),
    "the tokeniser": ("base/tokenizer.json", without_the_last_merge),
    "the template": ("base/chat_template.jinja", lambda content: content + b" "),
}


@pytest.mark.parametrize("name", FILES)
def test_another_file_of_the_model_is_another_model_to_every_command(place, before, name):
    file, change = FILES[name]
    with edited(place / file, change):
        after = made_in(place, Asked())
    assert {command for command in before if before[command] != after[command]} == EVERYTHING


OTHER = (Item("Which tree stands at post 9?", "cedar 9.", edge="e9"), *ITEMS[1:])
REQUESTS = {
    "an item": ({"items": OTHER}, EVERYTHING),
    "the split": ({"n_forget": 3}, {"attack", "probe"} | UNLEARNING),
    "the seed": ({"seed": 2}, {"attack", "probe"} | UNLEARNING | TRAINING),
    "a setting of how it is asked": ({"longest": 5}, {"evaluate", "attack"}),
    "a setting of training": ({"epochs": 3}, UNLEARNING | TRAINING),
    "a setting of probing": ({"alike": 0.5}, {"probe"}),
    "nothing": ({}, set()),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_another_request_is_made_again_where_it_counts(place, before, name):
    change, expected = REQUESTS[name]
    after = made_in(place, dataclasses.replace(Asked(), **change))
    assert {command for command in before if before[command] != after[command]} == expected


@pytest.mark.parametrize(("name", "expected"), [("judge", {"probe"})])
def test_another_judge_or_policy_is_another_probe_or_mending_alone(place, before, name, expected):
    with edited(place / name / "model.safetensors", tensors(2, every=False)):
        after = made_in(place, Asked())
    assert {command for command in before if before[command] != after[command]} == expected


VERSIONS = {
    "evaluate": (QASettings, "collect_version", {"evaluate", "attack"}),
    "attack": (attack_step, "VERSION", {"attack"}),
    "probe": (probe_step, "VERSION", {"probe"}),
    "unlearn": (unlearn_step, "VERSION", UNLEARNING),
    "finetune": (finetune_step, "VERSION", TRAINING),
}


@pytest.mark.parametrize("command", VERSIONS)
def test_another_version_of_the_code_is_made_again(place, before, command):
    module, name, expected = VERSIONS[command]
    with mock.patch.object(module, name, 99):
        after = made_in(place, Asked())
    assert {command for command in before if before[command] != after[command]} == expected


@pytest.fixture(scope="module")
def own(place, tmp_path_factory):
    """The adapter as a finished folder of Vestige's own, with an evaluation and an attack."""
    folder = SubjectFolder(tmp_path_factory.mktemp("own") / "target")
    shutil.copytree(place / "adapter", folder.model)
    loaded = load(ModelSettings(model=str(folder.model), device="cpu"))
    settings = {"dtype": "float32"}
    spec = SubjectSpec("target", "target", "base", "", "", 0, content_id(settings), settings, "", "", 1, ())
    write_spec(folder.spec, spec)
    from vestige.artifacts.layout import digests_of
    from vestige.models.load import places_of

    write_done(folder, Made(loaded.digest(), 0, "made", files=digests_of(folder, places_of(str(folder.model)))))
    use(folder)
    return folder


def use(folder, **verify):
    """Use the stored answers of the folder, and make them where they are not there."""
    subject = finished_subject(folder, device="cpu", **verify)
    view = View("forget", {"forget": tuple(i.id for i in ITEMS)}, {})
    evaluate(subject, EvaluateRequest(ITEMS, (view,), QASettings(max_new_tokens=4), 1))
    evals = {"qa": QASettings(max_new_tokens=4)}
    run_attack(subject, AttackRequest(QuantizeSettings().plan({"forget": ITEMS}, seed=1), evals, "forget", 1))


@pytest.mark.parametrize("name", FILES)
def test_stored_answers_are_refused_where_a_file_of_the_model_changed(place, own, name):
    file, change = FILES[name]
    path = own.model / file.removeprefix("adapter/") if file.startswith("adapter/") else place / file
    refused = rf"{path.name} was changed since the model was recorded"
    with edited(path, change):
        for command in (
            lambda: use(own),
            lambda: origin_of(ModelSettings(model=str(own.path), device="cpu")),
            lambda: asked_model(ModelSettings(model=str(own.path), device="cpu")),
        ):
            with pytest.raises(InputError, match=refused):
                command()
    use(own)


def test_a_file_that_is_added_or_gone_is_named(own):
    for name in ("chat_template.jinja", "sentencepiece.bpe.model", "spiece.model"):
        (own.model / name).write_text("x")
        with pytest.raises(InputError, match=f"{re.escape(name)} was added since"):
            use(own)
        (own.model / name).unlink()
    kept = own.model / "adapter_config.json"
    kept.rename(own.path / "aside")
    with pytest.raises(InputError, match=r"adapter_config\.json is gone"):
        use(own)
    (own.path / "aside").rename(kept)


def test_files_that_are_as_they_were_seen_are_not_read_again_unless_to_verify(own, monkeypatch):
    use(own)
    read = []
    monkeypatch.setattr("vestige.artifacts.layout.file_digest", lambda path: read.append(path.name) or "other")
    use(own)
    assert not read
    with pytest.raises(InputError, match="was changed since the model was recorded"):
        use(own, verify=True)
    assert read


def test_a_copied_folder_is_loaded_once_to_see_that_the_evidence_is_of_its_model(place, own, tmp_path):
    copy = SubjectFolder(tmp_path / "copy")
    shutil.copytree(own.path, copy.path)
    loads = []
    with mock.patch("vestige.steps.evaluate.load", lambda settings: loads.append(1) or load(settings)):
        use(copy)
        use(copy)
    assert len(loads) == 1


def test_evidence_of_another_model_is_not_believed_for_its_checksums(place, own, tmp_path):
    """Whoever hands over the folder has put in other weights, and their digest into done.json."""
    copy = SubjectFolder(tmp_path / "copy")
    shutil.copytree(own.path, copy.path)
    path = copy.model / "adapter_model.safetensors"
    stored = load_file(path)
    save_file({name: tensor * 1.5 for name, tensor in stored.items()}, path, {"format": "pt"})
    from vestige.core.ids import file_digest

    done = json.loads(copy.done.read_text())
    done["files"]["model"]["adapter_model.safetensors"] = file_digest(path)
    for key in ("schema", "seal"):
        del done[key]
    # The seal is theirs too.
    write_finished(copy.done, done)
    with pytest.raises(InputError, match=r"is not the model that it was\. It differs in the weights"):
        use(copy)


def test_forged_records_with_the_right_checksums_are_found_by_asking_again(own, tmp_path):
    copy = SubjectFolder(tmp_path / "copy")
    shutil.copytree(own.path, copy.path)
    use(copy, verify=True)
    records = next(copy.path.glob("evals/qa-*/records.jsonl"))
    forged = [{**r, "logp": [x / 2 for x in r["logp"]]} for r in read_jsonl(records)]
    place = EvalFolder(records.parent)
    write_jsonl(place.records, forged)
    write_collected(place, len(forged))
    use(copy)
    with pytest.raises(InputError, match="does not reproduce the stored record of item"):
        use(copy, verify=True)
