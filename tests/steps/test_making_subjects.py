"""Fine-tuning and unlearning as steps: made once, refused when something else is asked, resumed to the same bytes."""

import dataclasses
import json

import pytest
import torch
from tests.small import TINY, squares, unlearning

from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.records import read_spec, write_finished, write_spec
from vestige.core.errors import InputError
from vestige.core.files import locked, read_jsonl
from vestige.models.load import ModelSettings, load
from vestige.steps import making
from vestige.steps.finetune import FinetuneRequest, finetune, untrained
from vestige.steps.subjects import any_subject, origin_of
from vestige.steps.unlearn import UnlearnRequest, unlearn
from vestige.training.loop import reproducible
from vestige.training.settings import TrainingSettings

ITEMS = squares(8)
FULL = {"epochs": 2, "batch_size": 4, "lora_rank": 0}


def asked(**changes) -> FinetuneRequest:
    settings = TrainingSettings.build({**FULL, "learning_rate": 1e-3})
    return dataclasses.replace(FinetuneRequest(TINY, ITEMS, ITEMS, settings, seed=0), **changes)


@pytest.fixture
def target(tmp_path) -> SubjectFolder:
    folder = SubjectFolder(tmp_path / "target")
    finetune(folder, asked())
    return folder


def forgetting(target: SubjectFolder, **changes) -> UnlearnRequest:
    return unlearning(target, ITEMS[:2], ITEMS[2:], **{"training": {**FULL, "learning_rate": 1e-4}, **changes})


@pytest.mark.slow
def test_the_weights_do_not_depend_on_the_threads_that_the_shell_gives(tmp_path):
    """A spec says how many there are, and gradients, references and what is saved are computed with so many."""
    made, seen = [], set()
    for shell in (1, 2):
        torch.set_num_threads(shell)
        target = SubjectFolder(tmp_path / f"target-{shell}")
        finetune(target, asked(), lambda _: seen.add(torch.get_num_threads()))
        forgotten = unlearn(
            SubjectFolder(tmp_path / f"unlearned-{shell}"),
            forgetting(target),
            lambda _: seen.add(torch.get_num_threads()),
        )
        made.append(forgotten.digest.id)
        assert torch.get_num_threads() == shell
    assert made[0] == made[1]
    assert seen == {1}
    torch.set_num_threads(1)
    settings = TrainingSettings.build({**FULL, "threads": 2})
    finetune(SubjectFolder(tmp_path / "two"), asked(training=settings), lambda _: seen.add(torch.get_num_threads()))
    assert seen == {1, 2}
    assert torch.get_num_threads() == 1


def test_the_same_request_is_made_once(target, monkeypatch):
    def never(*_args):
        raise AssertionError("made again")

    monkeypatch.setattr(making, "save_model", never)
    assert finetune(target, asked()) == making.read_done(target)


def test_two_folders_of_one_request_hold_the_same_bytes(target, tmp_path):
    other = SubjectFolder(tmp_path / "other")
    assert finetune(other, asked()) == making.read_done(target)
    for name in ("model.safetensors", "tokenizer.json", "config.json", "README.md"):
        assert (other.model / name).read_bytes() == (target.model / name).read_bytes()
    logs = [[reproducible(line) for line in read_jsonl(f.training_log)] for f in (other, target)]
    assert logs[0] == logs[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, "differs in parent, seed"),
        ({"items": ITEMS[1:]}, "differs in data"),
        ({"training": TrainingSettings.build({**FULL, "learning_rate": 2e-3})}, "settings.learning_rate"),
    ],
)
def test_another_request_in_the_folder_is_refused_with_what_differs(target, changes, message):
    before = target.done.read_bytes()
    with pytest.raises(InputError, match=message):
        finetune(target, asked(**changes))
    assert target.done.read_bytes() == before


def test_a_folder_in_which_another_command_works_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setitem(locked.__wrapped__.__kwdefaults__, "patience_seconds", 0.0)
    folder = SubjectFolder(tmp_path / "busy")
    with locked(folder.lock, patience_seconds=0), pytest.raises(InputError, match="another command is running in"):
        finetune(folder, asked())


def test_the_model_can_be_used_by_anybody(target):
    loaded = load(ModelSettings(model=str(target.model), device="cpu"))
    assert loaded.digest().id == json.loads(target.done.read_text())["digest"]
    card = (target.model / "README.md").read_text()
    assert "library_name: transformers" in card
    assert read_spec(target.spec).data in card


def test_base_is_the_model_before_training(target, tmp_path):
    folder = SubjectFolder(tmp_path / "base")
    base = untrained(folder, TINY, ITEMS, 0)
    assert base.steps == 0
    assert base.digest.weights != making.read_done(target).digest.weights
    assert base.digest.reads == making.read_done(target).digest.reads


def test_unlearning_starts_from_the_target_and_says_so(target, tmp_path):
    cell = SubjectFolder(tmp_path / "cell")
    made = unlearn(cell, forgetting(target))
    spec = read_spec(cell.spec)
    assert spec.parent == making.read_done(target).digest.id
    assert (spec.subject, spec.method, spec.settings["reference"]) == ("unlearned", "kl", "target")
    # Two epochs of one batch of four, which holds both forget items.
    assert made.steps == 2
    logged = [json.loads(line) for line in cell.training_log.read_text().splitlines()]
    # Before the first step the policy is the reference.
    assert logged[0]["terms"]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert logged[1]["terms"]["kl"] > 0


def test_a_target_whose_weights_changed_is_refused(target, tmp_path):
    with pytest.raises(InputError, match=r"the target, .*, is not the model that it was"):
        unlearn(SubjectFolder(tmp_path / "cell"), forgetting(target, target_digest="other"))


def test_a_models_card_is_text_whatever_the_names_say(target):
    spec = dataclasses.replace(
        read_spec(target.spec), name="x\n\n<img src=x>\n# Verdict: forgotten\n```\n", model="/home/me/secret/base"
    )
    card = making.model_card(spec, making.Saving())
    # Whatever the name says stands on one line of the JSON block, which is the only block.
    assert card.count("\n```") == 2
    assert [line for line in card.splitlines() if line.startswith("# ")] == ["# A model of a Vestige run"]
    assert "/home/me" not in card


def test_a_folder_cannot_give_its_own_code_leave_to_run(target):
    spec = read_spec(target.spec)
    write_spec(target.spec, dataclasses.replace(spec, settings={**spec.settings, "trust_remote_code": True}))
    config = json.loads((target.model / "config.json").read_text())
    config |= {"model_type": "strange", "auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}}
    (target.model / "config.json").write_text(json.dumps(config))
    (target.model / "evil.py").write_text(f"open({str(target.path / 'ran')!r}, 'w')\n")
    # Whoever hands over the folder says that no file matters.
    done = json.loads(target.done.read_text())
    write_finished(
        target.done, {key: done[key] for key in done if key not in ("schema", "seal", "files")} | {"files": {}}
    )
    with pytest.raises(InputError, match="contains custom code which must be executed"):
        any_subject(ModelSettings(model=str(target.path)), None).load()
    assert not (target.path / "ran").exists()


def test_lora_unlearning_saves_a_plain_model(target, tmp_path):
    cell = SubjectFolder(tmp_path / "cell")
    training = {"epochs": 1, "lora_rank": 2, "learning_rate": 1e-3}
    made = unlearn(cell, forgetting(target, method="dpo", training=training))
    loaded = load(ModelSettings(model=str(cell.model), device="cpu"))
    assert loaded.digest() == made.digest != making.read_done(target).digest
    assert not any("lora" in name for name, _ in loaded.model.named_parameters())


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        ("ga", {"forget_items": ()}, "holds no items"),
        ("gd", {"retain_items": ()}, "needs a retain set.* name what to keep by --retain"),
        ("dpo", {"idk": ()}, "needs refusals"),
    ],
)
def test_what_a_method_needs_must_be_there(target, tmp_path, method, changes, message):
    with pytest.raises(InputError, match=message):
        unlearn(SubjectFolder(tmp_path / "cell"), forgetting(target, method=method, **changes))


def test_a_model_from_elsewhere_is_known_by_its_weights(target, tmp_path):
    plain = ModelSettings(model=str(target.model), device="cpu")
    # Vestige's own folder speaks for itself, also by its model/.
    assert any_subject(plain, None).spec == read_spec(target.spec)
    with pytest.raises(InputError, match="was made in float32 and keeps it, so --dtype bfloat16 does not apply"):
        any_subject(plain, None, dtype="bfloat16")
    elsewhere = tmp_path / "elsewhere"
    load(plain).model.save_pretrained(elsewhere)
    load(plain).tokenizer.save_pretrained(elsewhere)
    foreign = ModelSettings(model=str(elsewhere), device="cpu")
    with pytest.raises(InputError, match="Name the folder of the evidence with --output-dir"):
        any_subject(foreign, None)
    subject = any_subject(foreign, str(tmp_path / "evidence"), role="target", name="mine")
    assert (subject.spec.subject, subject.spec.name) == ("target", "mine")
    assert subject.made.digest == making.read_done(target).digest
    with pytest.raises(InputError, match=r"no role 'tagret'\. Did you mean 'target'"):
        any_subject(foreign, str(tmp_path / "evidence"), role="tagret")


def test_an_unfinished_target_is_refused(tmp_path, target):
    target.done.unlink()
    with pytest.raises(InputError, match="holds no finished model"):
        origin_of(ModelSettings(model=str(target.path)))
