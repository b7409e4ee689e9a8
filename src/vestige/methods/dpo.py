"""DPO: prefer declining to know over the answer to forget."""

from typing import ClassVar

from pydantic import PositiveFloat

from vestige.methods.base import Needs, Settings, Step, Terms, preference


class DPO(Settings):
    """-mean log sigmoid(beta x the gain, over the reference, of logp(declining) - logp(answer)).

    What PISTOL's released code calls DPO: the paper's Eq. 7 with no retain term. What PISTOL's paper calls DPO in its
    Eq. 6 is our `idk_gd`. NPO's code and OpenUnlearning multiply by 2 / beta, which Eq. 7 has not.
    """

    paper: ClassVar[str] = "Rafailov et al., DPO, 2305.18290, Eq. 7, as in PISTOL's released code"
    needs: ClassVar[Needs] = Needs(policy=frozenset({"forget", "idk"}), reference=frozenset({"forget", "idk"}))
    version: ClassVar[int] = 1

    beta: PositiveFloat = 0.1
    """Inverse temperature. Smaller lets the policy move further from the reference."""

    def terms(self, step: Step) -> Terms:
        return {"dpo": preference(step, "idk", beta=self.beta)}
