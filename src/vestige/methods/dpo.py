"""DPO: prefer declining to know over the answer to forget."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from vestige import losses
from vestige.methods.base import Needs, Settings, Step


class DPO(Settings):
    """-mean log sigmoid(beta x the gain, over the reference, of logp(declining) - logp(answer)).

    What the released PISTOL code calls DPO: the preference form, with no retain term and no factor 2 / beta.
    """

    paper: ClassVar[str] = "Rafailov et al., DPO, 2305.18290, Eq. 7, as in PISTOL's released code"
    needs: ClassVar[Needs] = Needs(policy=frozenset({"forget", "idk"}), reference=frozenset({"forget", "idk"}))
    version: ClassVar[int] = 1

    beta: float = 0.1

    def terms(self, step: Step) -> dict[str, Float[Tensor, ""]]:
        rows = {s: step.policy(s) for s in ("idk", "forget")}
        frozen = {s: step.reference(s) for s in ("idk", "forget")}
        policy = {s: losses.row_logp(a.logp, a.mask) for s, a in rows.items()}
        reference = {s: losses.row_logp(a.logp, a.mask) for s, a in frozen.items()}
        margins = policy["idk"] - policy["forget"], reference["idk"] - reference["forget"]
        return {"dpo": losses.dpo(*margins, beta=self.beta, n_rows=rows["forget"].n_rows)}
