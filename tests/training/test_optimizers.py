"""Optimisers by name, and schedules: rates by hand, and state that a checkpoint can keep."""

import sys

import pytest
import torch
from torch import nn

from vestige.core.errors import InputError
from vestige.models.folders import weights_digest
from vestige.training import loop
from vestige.training.loop import Hooks, learning_rate, make_optimizer, total_steps, train
from vestige.training.settings import TrainingSettings


def rates(**settings) -> list[float]:
    """The rates of all steps as shares of the highest, at four steps an epoch."""
    asked = TrainingSettings.build({"learning_rate": 2.0, **settings})
    n = total_steps(asked, steps_per_epoch=4)
    return [learning_rate(asked, step, steps_per_epoch=4) / 2.0 for step in range(n)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # Up over two steps, then down to nothing past the eighth: 6/6, 5/6, ...
        ({"schedule": "linear", "warmup_epochs": 0.5}, [1 / 2, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]),
        ({"schedule": "constant", "warmup_steps": 3}, [1 / 3, 2 / 3, 1, 1, 1, 1, 1, 1]),
        # (1 - cos(pi left)) / 2 at left = 1, 3/4, 1/2, 1/4: 1, (2 + sqrt 2) / 4, 1/2, (2 - sqrt 2) / 4.
        ({"schedule": "cosine", "warmup_steps": 0, "epochs": 1}, [1, (2 + 2**0.5) / 4, 1 / 2, (2 - 2**0.5) / 4]),
        # Up over two steps: (1 - cos(pi/2)) / 2 = 1/2, then 1; down over two: 1, then 1/2.
        ({"schedule": "one_cycle", "warmup_steps": 2, "epochs": 1}, [1 / 2, 1, 1, 1 / 2]),
        # The schedule ends with the training, at max_steps.
        ({"schedule": "linear", "warmup_steps": 0, "max_steps": 2}, [1, 1 / 2]),
        # Steps win over epochs, and no warm-up is longer than the training.
        ({"schedule": "linear", "warmup_epochs": 9, "warmup_steps": 1, "max_steps": 3}, [1, 1, 1 / 2]),
        ({"schedule": "linear", "warmup_epochs": 9, "max_steps": 4}, [1 / 4, 2 / 4, 3 / 4, 1]),
    ],
)
def test_the_rates_of_each_schedule_by_hand(settings, expected):
    assert rates(**{"epochs": 2, **settings}) == pytest.approx(expected)


def test_adamw_takes_the_step_of_its_formula():
    # First step: m / sqrt(v) is the gradient's sign, so p = p - lr (wd p + sign g) = 1 - 0.1 (0.5 + 1) = 0.85.
    parameter = nn.Parameter(torch.tensor([1.0]))
    settings = TrainingSettings.build({"learning_rate": 0.1, "weight_decay": 0.5})
    optimizer = make_optimizer([parameter], settings)
    parameter.grad = torch.tensor([3.0])
    optimizer.step()
    assert parameter.item() == pytest.approx(0.85, abs=1e-6)


def test_without_bitsandbytes_the_way_out_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", None)
    settings = TrainingSettings.build({"optimizer": "adamw_8bit"})
    with pytest.raises(InputError, match=r"needs the package bitsandbytes, .*pip install 'vestige\[bitsandbytes\]'"):
        make_optimizer([nn.Parameter(torch.zeros(1))], settings)


def test_moments_of_8_bits_learn_and_resume_to_the_same_bytes(fresh, make_job, monkeypatch):
    pytest.importorskip("bitsandbytes")
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)
    settings = {"optimizer": "adamw_8bit", "epochs": 2}
    whole, job = fresh().model, make_job("whole", **settings)
    outcome = train(whole, job)

    class Killed(Exception):
        pass

    def kill(progress):
        if progress.step == 4:
            raise Killed

    job = make_job("cut", **settings)
    with pytest.raises(Killed):
        train(fresh().model, job, Hooks(on_step=kill))
    assert job.checkpoints.newest() == 3
    resumed = fresh().model
    train(resumed, job)
    assert weights_digest(resumed) == weights_digest(whole)
    exact = train(fresh().model, make_job("exact", epochs=2))
    assert outcome.loss == pytest.approx(exact.loss, rel=0.02)
    assert outcome.loss != exact.loss


@pytest.mark.parametrize("shared", [False, True])
def test_a_checkpoint_keeps_counts_and_tensors_that_parameters_share(tmp_path, shared):
    """What bitsandbytes keeps: a plain number of steps, and one table of codes for all parameters."""
    from vestige.training.checkpoints import Checkpoints

    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    codes = torch.arange(4.0)
    for parameter in model.parameters():
        optimizer.state[parameter] = {
            "step": 7,
            "state1": torch.ones_like(parameter),
            "qmap1": codes if shared else codes.clone(),
        }
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    checkpoints.save(7, model, optimizer, {"held": 0.5})
    other = nn.Linear(4, 4)
    again = torch.optim.SGD(other.parameters(), lr=0.1)
    assert checkpoints.restore(7, other, again) == {"held": 0.5}
    assert torch.equal(other.weight, model.weight)
    for before, after in zip(model.parameters(), other.parameters(), strict=True):
        kept = again.state[after]
        assert kept["step"] == 7
        assert isinstance(kept["step"], int)
        assert kept.keys() == optimizer.state[before].keys()
        assert torch.equal(kept["qmap1"], codes)
