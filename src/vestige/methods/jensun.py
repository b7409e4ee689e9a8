"""JensUn: other tokens in the place of the answer to forget, and the reference on what to keep, both bounded."""

from typing import ClassVar

import torch
from pydantic import Field

from vestige import losses
from vestige.methods.base import Needs, Settings, Step, Terms


class JensUn(Settings):
    """forget_weight JS(forget, refusal) + retain_weight JS(policy, reference) on retain. JS is Jensen-Shannon's.

    At each position of the forget answer, after its true beginning, the policy is drawn to one token of a refusal,
    repeated to the answer's length. This follows the paper's abstract and the formulas in its code, whose refusal is "
    No idea" without the end of the turn. Here it is the `idk` answer with it. The code has 8e-6 for Llama-3.2-3B.
    """

    paper: ClassVar[str] = "Singh et al., Unlearning That Lasts, 2509.02820"
    needs: ClassVar[Needs] = Needs(
        policy_distributions=frozenset({"forget"}),
        distributions=frozenset({"retain"}),
        answer_ids=frozenset({"forget", "idk"}),
    )
    version: ClassVar[int] = 1

    forget_weight: float = Field(1.0, description="Weight of the divergence from the refusal on forget.")
    retain_weight: float = Field(1.0, description="Weight of the divergence from the reference on retain.")

    def terms(self, step: Step) -> Terms:
        forget = step.policy_distributions("forget")
        pairs = zip(step.answer_ids("forget"), step.answer_ids("idk"), strict=True)
        targets = torch.cat([idk.repeat(-(-len(answer) // len(idk)))[: len(answer)] for answer, idk in pairs])
        # Masked, the rows lie end to end, whichever way the step has them.
        logp = forget.logp[forget.mask].gather(-1, targets.unsqueeze(-1).to(forget.logp.device)).T
        policy, reference = step.policy_distributions("retain"), step.reference_distributions("retain")
        refusal = losses.js_to_certainty(logp, torch.ones_like(logp, dtype=torch.bool), n_tokens=forget.n_tokens)
        divergence = losses.js(policy.logp, reference.logp, policy.mask, n_tokens=policy.n_tokens)
        return {"forget": self.forget_weight * refusal, "retain": self.retain_weight * divergence}
