"""KL: ascent on the forget set, while the distributions on the retain set stay close to the reference's."""

from typing import ClassVar

from vestige import losses
from vestige.methods.base import Needs, Settings, Step, Terms


class KL(Settings):
    """-NLL(forget) + kl_weight KL(reference || policy) on the retain answers' positions.

    The papers average over each row's tokens first, the question's among them. Here the answers' tokens count, all
    alike. The released PISTOL code also counts padding, which dilutes the term some ninety times, and uses the
    pretrained model as the reference, which is the target here. Knowledge Holes (Appendix A) calls it GA +
    KL (`gakl`), and makes 1000 steps of 2 rows at a rate of 5e-5.
    """

    paper: ClassVar[str] = "Maini et al., TOFU, 2401.06121; PISTOL, 2406.16810, Eq. 5; Knowledge Holes, 2511.00030"
    needs: ClassVar[Needs] = Needs(policy=frozenset({"forget"}), distributions=frozenset({"retain"}))
    version: ClassVar[int] = 1

    kl_weight: float = 1.0
    """Weight of KL(reference || policy) on retain."""

    def terms(self, step: Step) -> Terms:
        forget = step.policy("forget")
        policy, reference = step.policy_distributions("retain"), step.reference_distributions("retain")
        return {
            "forget": -losses.nll(forget.logp, forget.mask, n_tokens=forget.n_tokens),
            "kl": self.kl_weight * losses.kl(policy.logp, reference.logp, policy.mask, n_tokens=policy.n_tokens),
        }
