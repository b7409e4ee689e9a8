"""Optimisers by name, and schedules: rates by hand, and state that a checkpoint can keep."""

import pytest
import torch
from torch import nn

from vestige.training.loop import learning_rate, make_optimizer, total_steps
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
