"""LLMU: ascent on what to forget, answers of other questions in its place, and the reference on what to keep."""

from typing import ClassVar

from vestige import losses
from vestige.methods.base import Needs, Settings, Step, Terms


class LLMU(Settings):
    """-forget_weight NLL(forget) + mismatch_weight NLL(mismatch) + kl_weight KL(reference || policy) on retain.

    Mismatched answers belong to retained questions. One, drawn anew each epoch, estimates the paper's mean over several
    without bias. The weights are the released code's, whose masks are empty for most tokenizers or take in the
    question, and whose KL is a cross-entropy over every position. Here only answers count. Sums over tokens are means.
    Its stop at a loss of 100 looks at the negative loss and never acts. Ours is a rule of the run.
    """

    paper: ClassVar[str] = "Yao et al., Large Language Model Unlearning, 2310.10683"
    needs: ClassVar[Needs] = Needs(policy=frozenset({"forget", "mismatch"}), distributions=frozenset({"retain"}))
    version: ClassVar[int] = 1

    forget_weight: float = 0.5
    """Weight of the ascent on the answers to forget."""
    mismatch_weight: float = 1.0
    """Weight of NLL of the forget questions with answers of other questions."""
    kl_weight: float = 1.0
    """Weight of KL to the reference on retain."""

    def terms(self, step: Step) -> Terms:
        forget, mismatch = step.policy("forget"), step.policy("mismatch")
        policy, reference = step.policy_distributions("retain"), step.reference_distributions("retain")
        kl = losses.kl(policy.logp, reference.logp, policy.mask, n_tokens=policy.n_tokens)
        return {
            "forget": -self.forget_weight * losses.nll(forget.logp, forget.mask, n_tokens=forget.n_tokens),
            "mismatch": self.mismatch_weight * losses.nll(mismatch.logp, mismatch.mask, n_tokens=mismatch.n_tokens),
            "kl": self.kl_weight * kl,
        }
