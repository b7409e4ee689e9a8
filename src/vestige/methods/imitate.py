"""Imitate: a model is brought back to another one's distributions on given prompts."""

from typing import ClassVar

from vestige import losses
from vestige.methods.base import Needs, Settings, Step, Terms


class Imitate(Settings):
    """KL(reference || policy) on the answers of `train`, mean over the tokens of the effective batch (nats).

    The one-shot mitigation of knowledge holes by KL: the reference is the model before unlearning, and the prompts are
    those on which holes were found.
    """

    paper: ClassVar[str] = "Probing Knowledge Holes in Unlearned LLMs, 2511.00030, section 4.3"
    needs: ClassVar[Needs] = Needs(distributions=frozenset({"train"}))
    version: ClassVar[int] = 1

    def terms(self, step: Step) -> Terms:
        policy, reference = step.policy_distributions("train"), step.reference_distributions("train")
        return {"train": losses.kl(policy.logp, reference.logp, policy.mask, n_tokens=policy.n_tokens)}
