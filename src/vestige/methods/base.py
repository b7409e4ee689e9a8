"""What an unlearning method is: an objective that is also its own settings.

A method is one frozen settings class with `needs`, `terms(step)`, a `version` that is raised when its numbers change,
and the `paper` its formula comes from. It says nothing of optimisers, devices, schedules or logging.
"""

from typing import Any, ClassVar, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from vestige.core.settings import Settings
from vestige.training.step import Needs, Step


@runtime_checkable
class Method(Protocol):
    """The role that every entry of the table fulfils."""

    needs: ClassVar[Needs]
    version: ClassVar[int]
    paper: ClassVar[str]

    @classmethod
    def build(cls, values: dict[str, Any], *, where: str = ...) -> "Method":
        """The method from settings by name."""
        ...

    def identity(self) -> dict[str, Any]:
        """The settings as JSON values."""
        ...

    def terms(self, step: Step) -> dict[str, Float[Tensor, ""]]:
        """The weighted terms of the loss by name; the loss is their sum."""
        ...


__all__ = ["Method", "Needs", "Settings", "Step"]
