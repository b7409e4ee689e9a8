"""An unlearning method: an objective that is also its own settings.

A method is one frozen settings class with `needs`, `terms(step)`, a `version` that is raised when its numbers change,
and the `paper` its formula comes from. It contains no optimisers, devices, schedules or logging.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from vestige import losses
from vestige.core.settings import Settings
from vestige.core.text import Fields
from vestige.training.batching import Split
from vestige.training.step import Layers, Needs, Step

Terms: TypeAlias = dict[str, Float[Tensor, ""]]
"""The weighted terms of the loss by name. The loss is their sum."""


@runtime_checkable
class Method(Protocol):
    """The role that every entry of the table fulfils."""

    needs: ClassVar[Needs]
    version: ClassVar[int]
    paper: ClassVar[str]

    @classmethod
    def build(cls, values: Fields, *, where: str = ...) -> "Method":
        """The method from settings by name."""
        ...

    def identity(self) -> Fields:
        """The settings as JSON values."""
        ...

    def terms(self, step: Step) -> Terms:
        """The terms at one step."""
        ...


@runtime_checkable
class ScalesUpdate(Protocol):
    """A method whose model is not the trained one, but start + update_factor x (trained - start)."""

    @property
    def update_factor(self) -> float:
        """The factor of what training changed. Negative to subtract it."""
        ...


@runtime_checkable
class FromStart(Protocol):
    """The additional interface of a method that trains from the target's initial model."""

    from_start: ClassVar[bool]


@dataclass(frozen=True)
class Alternatives:
    """The target's own alternative answers: how many per question, and the prompt that asks for them.

    `prompt` contains {question} and may contain {answer}.
    """

    prompt: str
    n: int
    temperature: float
    max_new_tokens: int


@runtime_checkable
class AsksTarget(Protocol):
    """The additional interface of a method that reads the split `alternative`."""

    def alternatives(self) -> Alternatives:
        """The target's prompts before training."""
        ...


# Passed on from where they live, so that a method's file needs this module and `losses` alone.
__all__ = [
    "Alternatives",
    "AsksTarget",
    "FromStart",
    "Layers",
    "Method",
    "Needs",
    "ScalesUpdate",
    "Settings",
    "Step",
    "Terms",
]


def preference(step: Step, preferred: Split, *, beta: float) -> Float[Tensor, ""]:
    """DPO of the answers in `preferred` over the forget set's, whose log-probabilities are sums over tokens."""
    # Asked for once: each asking computes log-probabilities over the whole vocabulary again.
    rows = {s: step.policy(s) for s in (preferred, "forget")}
    frozen = {s: step.reference(s) for s in (preferred, "forget")}
    policy = {s: losses.row_logp(a.logp, a.mask) for s, a in rows.items()}
    reference = {s: losses.row_logp(a.logp, a.mask) for s, a in frozen.items()}
    margins = policy[preferred] - policy["forget"], reference[preferred] - reference["forget"]
    return losses.dpo(*margins, beta=beta, n_rows=rows["forget"].n_rows)
