"""Retraining: the model without the forget set, the control of every comparison."""

from typing import ClassVar

from vestige import losses
from vestige.methods.base import Needs, Settings, Step, Terms


class Retrain(Settings):
    """NLL(retain), from the model that the target was made from: exact. Costs as much as training the target.

    It is trained as the target was, so --set and --config are refused. With --base, for a target from elsewhere, not.
    """

    paper: ClassVar[str] = "Cao & Yang, Towards Making Systems Forget with Machine Unlearning, 2015: the definition"
    needs: ClassVar[Needs] = Needs(policy=frozenset({"retain"}))
    version: ClassVar[int] = 1
    from_start: ClassVar[bool] = True

    def terms(self, step: Step) -> Terms:
        retain = step.policy("retain")
        return {"retain": losses.nll(retain.logp, retain.mask, n_tokens=retain.n_tokens)}
