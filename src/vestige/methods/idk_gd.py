"""IDK + GD: answer the questions to forget by declining to know, and keep the rest."""

from typing import ClassVar

from vestige import losses
from vestige.methods.base import Needs, Settings, Step, Terms


class IDKGD(Settings):
    """NLL(retain) + NLL(declining answers to the forget questions): what PISTOL's paper calls DPO in its Eq. 6.

    Each term is the mean over its own tokens, as the paper writes it. TOFU's `idk` takes one mean over both, in which
    long retain answers dominate.
    """

    paper: ClassVar[str] = "PISTOL, 2406.16810, Eq. 6; Maini et al., TOFU, 2401.06121"
    needs: ClassVar[Needs] = Needs(policy=frozenset({"idk", "retain"}))
    version: ClassVar[int] = 1

    retain_weight: float = 1.0
    """Weight of NLL(retain)."""

    def terms(self, step: Step) -> Terms:
        idk, retain = step.policy("idk"), step.policy("retain")
        return {
            "idk": losses.nll(idk.logp, idk.mask, n_tokens=idk.n_tokens),
            "retain": self.retain_weight * losses.nll(retain.logp, retain.mask, n_tokens=retain.n_tokens),
        }
