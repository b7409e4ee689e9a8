"""The answers to forget against others that are preferred to them, as DPO and AltPO weigh them."""

from jaxtyping import Float
from torch import Tensor

from vestige import losses
from vestige.methods.base import Step
from vestige.training.batching import Split


def preference(step: Step, preferred: Split, *, beta: float) -> Float[Tensor, ""]:
    """DPO of the answers of `preferred` over those of the forget set, whose log-probabilities are sums over tokens."""
    rows = {s: step.policy(s) for s in (preferred, "forget")}
    frozen = {s: step.reference(s) for s in (preferred, "forget")}
    policy = {s: losses.row_logp(a.logp, a.mask) for s, a in rows.items()}
    reference = {s: losses.row_logp(a.logp, a.mask) for s, a in frozen.items()}
    margins = policy[preferred] - policy["forget"], reference[preferred] - reference["forget"]
    return losses.dpo(*margins, beta=beta, n_rows=rows["forget"].n_rows)
