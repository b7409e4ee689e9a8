"""No unlearning: the target as it is, the control that a method has to differ from."""

from typing import ClassVar

from vestige.methods.base import Needs, Settings, Step, Terms


class NoUnlearning(Settings):
    """Nothing is minimised: nothing is read and nothing trained."""

    paper: ClassVar[str] = "no paper: a control"
    needs: ClassVar[Needs] = Needs()
    version: ClassVar[int] = 1

    def terms(self, step: Step) -> Terms:
        # Never asked for in a run: a method that reads no split leaves the target as it is, without a training.
        return {}
