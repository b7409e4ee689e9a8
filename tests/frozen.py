"""What a frozen reference says of rows that no plan draws."""

from typing import NamedTuple

from vestige.training.reference import references
from vestige.training.settings import TrainingSettings
from vestige.training.step import Needs

SPLIT = frozenset({"retain"})


class EachOnce(NamedTuple):
    """A plan of one batch that holds every row."""

    n_rows: int
    steps_per_epoch: int = 1

    def epoch(self, number):
        return [{"retain": range(self.n_rows)}]


def frozen_reference(model, rows, *, distributions=False, layer=None):
    """By the row's key its log-probabilities, with `distributions` these too, or the output of block `layer` alone."""
    needs = Needs(reference=SPLIT, distributions=SPLIT if distributions else frozenset())
    needs = needs if layer is None else Needs(reference_activations=SPLIT)
    settings = TrainingSettings.build({"epochs": 1})
    return references(model, needs, EachOnce(len(rows)), {"retain": rows.__getitem__}, settings, layer)
