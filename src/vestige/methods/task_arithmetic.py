"""Task arithmetic: learn what to forget still better, then subtract what that changed."""

from typing import ClassVar

from pydantic import PositiveFloat

from vestige import losses
from vestige.methods.base import Needs, Settings, Step, Terms


class TaskArithmetic(Settings):
    """NLL(forget) is minimised. Then the weights are start - scale (trained - start), and nothing is kept.

    With LoRA it is the adapter that is subtracted. The paper fine-tunes the pretrained model on the unwanted data and
    chooses the scale on validation items. Here the target, which has learned it, is trained further.
    """

    paper: ClassVar[str] = "Ilharco et al., Editing Models with Task Arithmetic, 2212.04089, Section 3"
    needs: ClassVar[Needs] = Needs(policy=frozenset({"forget"}))
    version: ClassVar[int] = 1

    scale: PositiveFloat = 1.0
    """The multiple of the training's change that is subtracted."""

    @property
    def update_factor(self) -> float:
        """The factor of the weights' change in training."""
        return -self.scale

    def terms(self, step: Step) -> Terms:
        forget = step.policy("forget")
        return {"forget": losses.nll(forget.logp, forget.mask, n_tokens=forget.n_tokens)}
