"""NPO: negative preference optimisation, ascent that fades as an answer falls below the reference."""

from typing import ClassVar

from pydantic import PositiveFloat

from vestige import losses
from vestige.methods.base import Needs, Settings, Step, Terms


class NPO(Settings):
    """-(2 / beta) mean log sigmoid(-beta x the gain of logp(answer) over the reference), and nothing to keep.

    Log-probabilities are summed over tokens. `beta` is an inverse temperature: towards 0 the gradient approaches that
    of ascent on the summed answers (Proposition 1). MUSE's code takes differences of raw logits over the whole
    vocabulary instead, and OpenUnlearning always adds NLL(retain), which makes its NPO our `npo_gd`.
    """

    paper: ClassVar[str] = "Zhang et al., Negative Preference Optimization, 2404.05868, Eq. 3"
    needs: ClassVar[Needs] = Needs(policy=frozenset({"forget"}), reference=frozenset({"forget"}))
    version: ClassVar[int] = 1

    beta: PositiveFloat = 0.1
    """Inverse temperature. Towards 0 the gradient approaches gradient ascent."""

    def terms(self, step: Step) -> Terms:
        forget, frozen = step.policy("forget"), step.reference("forget")
        logp = losses.row_logp(forget.logp, forget.mask), losses.row_logp(frozen.logp, frozen.mask)
        return {"npo": losses.npo(*logp, beta=self.beta, n_rows=forget.n_rows)}
