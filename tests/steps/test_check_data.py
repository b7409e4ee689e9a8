"""The checks of a data set as a step: what retain-only training gives away, resumption, what is written, sanitising."""

import dataclasses
import json
import subprocess
import sys

import pytest
import torch
from tests.small import squares, written
from transformers import LlamaConfig
from typer.testing import CliRunner

from vestige.artifacts.audits import Soundness, exit_code, read_soundness
from vestige.artifacts.layout import RunFolder
from vestige.cli.app import app
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.data.corpus import NamedSplits, SourceSettings, named_splits, open_corpus
from vestige.data.dataset import compile_dataset
from vestige.data.findings import SoundnessSettings
from vestige.data.folder import write_dataset
from vestige.data.loaders import load_items
from vestige.metrics import intervals
from vestige.models import tiny
from vestige.models.load import ModelSettings
from vestige.steps import soundness as step
from vestige.steps.check_data import CheckRequest, check_data
from vestige.steps.soundness import TrainedSettings
from vestige.training.settings import TrainingSettings

SETTINGS = SoundnessSettings(permutations=2_000)
NAMES = ("Abel", "Bran", "Cato", "Dion", "Egon", "Finn", "Gaul", "Hugo", "Ivor", "Joel", "Kurt", "Lars")
TOOLS = ("Axe", "Bow", "Can", "Dye", "Eel", "Fan", "Gun", "Hat", "Ink", "Jug", "Key", "Lid")
UNRELATED = tuple(Item(f"How deep is lake {n}?", f"{n} feet") for n in range(12))


def people(*, suffix: str = "") -> tuple[Item, ...]:
    """Twelve items, each with three wrong answers that are other people's right ones."""
    wrong = [tuple(TOOLS[(n + k) % 12] for k in (1, 2, 3)) for n in range(12)]
    return tuple(Item(f"{name} has{suffix}?", TOOLS[n], edge=name, perturbed=wrong[n]) for n, name in enumerate(NAMES))


def others() -> tuple[Item, ...]:
    """Twelve items about nobody of these."""
    return tuple(Item(f"Port {n} sells?", f"Rope {n}", edge=f"p{n}") for n in range(12))


LEAKING = NamedSplits("people", {"forget": people(), "retain": (*people(suffix=" what"), *others())}, {})


@pytest.fixture(autouse=True)
def nano(monkeypatch):
    """A model of some ten thousand parameters in the place of the tiny one."""

    def nano_config() -> LlamaConfig:
        return LlamaConfig(
            vocab_size=tiny.VOCABULARY,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=64,
            tie_word_embeddings=True,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=4,
        )

    torch.set_num_threads(1)
    monkeypatch.setattr(tiny, "tiny_config", nano_config)
    monkeypatch.setattr(intervals, "RESAMPLES", 400)


def trained(*, epochs: int = 2, **changed) -> TrainedSettings:
    training = TrainingSettings(
        epochs=epochs, batch_size=8, learning_rate=2e-2, schedule="one_cycle", warmup_epochs=1, lora_rank=0
    )
    values = TrainedSettings(ModelSettings(model="builtin:tiny", device="cpu"), training, UNRELATED, seeds=2, splits=0)
    return dataclasses.replace(values, **changed)


def lines_of(found: Soundness) -> dict[str, bool | None]:
    return {line.check: line.sound for line in found.lines}


@pytest.mark.slow
def test_what_the_retain_set_teaches_about_the_forget_set_is_found(tmp_path):
    request = CheckRequest(LEAKING, SETTINGS, 0, trained=trained(epochs=40, seeds=1))
    found = check_data(RunFolder(tmp_path), request)
    assert lines_of(found)["retain-only training"] is False
    assert found.figures["retain-only training/RGI"] > 0.5
    clean = NamedSplits("people", {"forget": people(), "retain": others()}, {})
    found = check_data(RunFolder(tmp_path / "clean"), dataclasses.replace(request, splits=clean))
    assert lines_of(found)["retain-only training"] is not False


@pytest.mark.slow
def test_a_stopped_check_goes_on_and_trains_nothing_twice(tmp_path, monkeypatch):
    request = CheckRequest(LEAKING, SETTINGS, 0, trained=trained(splits=1))
    unbroken = check_data(RunFolder(tmp_path / "a"), request)
    calls = []
    teach = step.teach

    def counted(*given):
        calls.append(given[1].name)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return teach(*given)

    monkeypatch.setattr(step, "teach", counted)
    with pytest.raises(KeyboardInterrupt):
        check_data(RunFolder(tmp_path / "b"), request)
    assert not RunFolder(tmp_path / "b").soundness.exists()
    again = check_data(RunFolder(tmp_path / "b"), request)
    # Two seeds of retain and unrelated training and a random split are five trainings; the third was tried twice.
    assert len(calls) == 6
    assert again == unbroken
    files = [(p.name, p.read_bytes()) for p in sorted((tmp_path / "a" / "soundness" / "trained").iterdir())]
    assert files == [(p.name, p.read_bytes()) for p in sorted((tmp_path / "b" / "soundness" / "trained").iterdir())]
    check_data(RunFolder(tmp_path / "b"), request)
    assert len(calls) == 6
    assert not (tmp_path / "b" / "soundness" / "work").exists()


def test_both_kinds_of_training_take_the_same_number_of_steps(tmp_path, monkeypatch):
    seen = []
    teach = step.teach

    def noted(folder, request, start, on_step):
        made, outcome = teach(folder, request, start, on_step)
        seen.append((len(request.items), outcome.steps))
        return made, outcome

    monkeypatch.setattr(step, "teach", noted)
    check_data(RunFolder(tmp_path), CheckRequest(LEAKING, SETTINGS, 0, trained=trained(seeds=1)))
    # 24 items in batches of 8, twice: 6 steps, of which the 12 unrelated items need three epochs.
    assert seen == [(24, 6), (12, 6)]


@pytest.mark.slow
def test_questions_with_new_names_are_asked_where_there_is_a_graph(tmp_path):
    write_dataset(compile_dataset("chain:4", seed=0), tmp_path / "data")
    corpus = open_corpus(SourceSettings(data=str(tmp_path / "data")))
    splits = named_splits(corpus, f"edge:{corpus.dataset.contracts[0].edge}")
    settings = trained(epochs=1, seeds=1)
    found = check_data(RunFolder(tmp_path / "run"), CheckRequest(splits, SETTINGS, 0, corpus.dataset, settings))
    assert "retain-only training, new names" in lines_of(found)
    alone = check_data(RunFolder(tmp_path / "run"), CheckRequest(splits, SETTINGS, 0, None, settings))
    assert "retain-only training, new names" not in lines_of(alone)
    assert any("no graph that says which names" in sentence for sentence in alone.left_out)


def test_what_is_written_is_read_and_sanitised_data_passes(tmp_path):
    out = tmp_path / "clean"
    forget = (*people(), *(Item(f"Who owns {n}?", f"Nobody {n}", edge=n) for n in TOOLS))
    copies = tuple(Item(i.question.upper(), "x", edge="copies") for i in forget[12:15])
    splits = NamedSplits("people", {"forget": forget, "retain": (*copies, *others())}, {})
    run = RunFolder(tmp_path / "run")
    found = check_data(run, CheckRequest(splits, SETTINGS, 0, sanitize=out))
    assert read_soundness(run.soundness) == found
    assert exit_code(found.lines) == 3
    assert found.leaking["copied questions"] == tuple(i.id for i in forget[12:15])
    assert found.sanitized is not None
    assert exit_code(found.sanitized) != 3
    left = load_items(out / "forget.jsonl")
    assert {i.id for i in forget[12:15]}.isdisjoint(i.id for i in left)
    removed = [json.loads(line) for line in (out / "removed.jsonl").read_text().splitlines()]
    assert [(r["id"], r["checks"]) for r in removed] == [(i.id, ["copied questions"]) for i in forget[12:15]]
    with pytest.raises(InputError, match="is there already"):
        check_data(run, CheckRequest(splits, SETTINGS, 0, sanitize=out))


@pytest.mark.slow
def test_without_a_model_torch_is_not_loaded():
    said = "import sys, vestige.steps.check_data; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_result_that_lacks_something_is_refused_by_field(tmp_path):
    run = RunFolder(tmp_path)
    run.soundness.write_text('{"schema": 2, "forget": "f", "lines": [{"check": "x"}], "settings": {}, "digest": "d"}')
    with pytest.raises(InputError, match=r"lines\.0\.sound"):
        read_soundness(run.soundness)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"unrelated": ()}, "the unrelated items of the control are missing; name others with --unrelated"),
        ({"unrelated": others()}, "the unrelated items of the control ask what the data asks"),
        ({"seeds": 0}, "seeds = 0"),
    ],
)
def test_a_trained_check_that_cannot_be_made_is_refused(tmp_path, changed, message):
    with pytest.raises(InputError, match=message):
        check_data(RunFolder(tmp_path), CheckRequest(LEAKING, SETTINGS, 0, trained=trained(**changed)))


def test_how_many_items_the_margin_takes_is_said_once(tmp_path):
    path, forget = tmp_path / "data.jsonl", tmp_path / "forget.jsonl"
    rows = [{"question": i.question, "answer": i.answer, "perturbed_answer": list(i.perturbed)} for i in people()]
    written(forget, rows)
    written(path, ({"question": i.question, "answer": i.answer} for i in others()))
    words = ["check-data", "--data", str(path), "--retain", str(path), "--forget", str(forget)]
    done = CliRunner().invoke(app, [*words, "--output-dir", str(tmp_path / "run")])
    found = read_soundness(RunFolder(tmp_path / "run").soundness)
    assert sum(line.sound is None and line.effect is not None for line in found.lines) > 1
    assert found.needs == "the margin 0.1 needs about 73 items where chance is 0.25"
    assert done.stdout.count("needs about") == 1


@pytest.mark.slow
def test_exit_codes_say_what_was_found(tmp_path):
    path = written(tmp_path / "data.jsonl", squares(30))
    forget = written(tmp_path / "forget.jsonl", squares(8))
    words = ["check-data", "--data", str(path), "--output-dir", str(tmp_path / "run"), "--forget"]
    done = CliRunner().invoke(app, [*words, str(forget), "--json"])
    assert done.exit_code == 4
    assert json.loads(done.stdout)["lines"][-1]["sound"] is None
    done = CliRunner().invoke(app, [*words, str(path)])
    assert isinstance(done.exception, InputError)
    assert f"the forget set is all of {path}, which leaves nothing to keep; name a part" in str(done.exception)
    with path.open("a") as file:
        file.write(json.dumps({"question": "WHAT is number 3 ?", "answer": "9"}) + "\n")
    done = CliRunner().invoke(app, [*words, str(forget)])
    assert done.exit_code == 3
    assert "copied questions" in done.stdout
    done = CliRunner().invoke(app, [*words, str(forget), "--model", "builtin:tiny"])
    assert "0 forget items can be asked with options" in str(done.exception)
    done = CliRunner().invoke(app, [*words, str(forget), "--set", "training.epochs=1"])
    assert "need --model" in str(done.exception)
