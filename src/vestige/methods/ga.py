"""GA: gradient ascent on the answers to forget."""

from typing import ClassVar

from vestige import losses
from vestige.methods.base import Needs, Settings, Step, Terms


class GA(Settings):
    """Raise the loss of the answers to forget, and nothing more: -NLL(forget)."""

    paper: ClassVar[str] = "Jang et al., Knowledge Unlearning, 2210.01504; PISTOL, 2406.16810, Eq. 3"
    needs: ClassVar[Needs] = Needs(policy=frozenset({"forget"}))
    version: ClassVar[int] = 1

    def terms(self, step: Step) -> Terms:
        forget = step.policy("forget")
        # It has no least value: the number of steps or a rule of the run ends the fall, never the loss itself.
        return {"forget": -losses.nll(forget.logp, forget.mask, n_tokens=forget.n_tokens)}
