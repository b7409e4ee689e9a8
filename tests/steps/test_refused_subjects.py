"""A folder belongs to a subject from its training on: what is refused before that leaves no trace."""

import pytest
from tests.small import TINY, squares, unlearning

from vestige.artifacts.layout import SubjectFolder
from vestige.core.errors import InputError, NotFinite
from vestige.steps.finetune import FinetuneRequest, finetune
from vestige.steps.unlearn import unlearn
from vestige.training.settings import TrainingSettings

ITEMS = squares(8)
NOWHERE = {"lora_targets": ("nosuch",), "lora_rank": 2}


def taught(**changes):
    settings = TrainingSettings.build({"epochs": 1, "batch_size": 8, "lora_rank": 0, **changes})
    return FinetuneRequest(TINY, ITEMS, ITEMS, settings, seed=0)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = SubjectFolder(tmp_path_factory.mktemp("refused") / "target")
    finetune(folder, taught())
    return folder


def forgetting(target, **changes):
    return unlearning(target, ITEMS[:2], ITEMS[2:], training={"epochs": 1, "batch_size": 4, "lora_rank": 0, **changes})


def test_refused_settings_do_not_keep_the_folder(target, tmp_path):
    # The references are computed, and lie in checkpoints/, before it is seen that there is nothing to train.
    with pytest.raises(InputError, match="nosuch"):
        unlearn(SubjectFolder(tmp_path), forgetting(target, **NOWHERE))
    assert not any(tmp_path.iterdir())
    with pytest.raises(InputError, match="nosuch"):
        finetune(SubjectFolder(tmp_path), taught(**NOWHERE))
    assert not any(tmp_path.iterdir())
    assert unlearn(SubjectFolder(tmp_path), forgetting(target)).steps == 1


def test_what_else_lies_in_the_folder_stays(target, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="nosuch"):
        unlearn(SubjectFolder(tmp_path), forgetting(target, **NOWHERE))
    assert {p.name for p in tmp_path.iterdir()} <= {"notes.txt", ".lock"}
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_what_was_trained_keeps_the_folder(target, tmp_path):
    with pytest.raises(NotFinite):
        unlearn(SubjectFolder(tmp_path), forgetting(target, learning_rate=1e30, epochs=4))
    assert SubjectFolder(tmp_path).spec.exists()

    class Killed(Exception):
        pass

    def kill(_progress):
        raise Killed

    killed = SubjectFolder(tmp_path / "killed")
    with pytest.raises(Killed):
        unlearn(killed, forgetting(target, epochs=2), kill)
    with pytest.raises(InputError, match=r"settings.epochs"):
        unlearn(killed, forgetting(target, epochs=3))
    assert unlearn(killed, forgetting(target, epochs=2)).steps == 2
