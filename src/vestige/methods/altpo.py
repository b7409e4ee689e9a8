"""AltPO: prefer another answer of the target's own making over the answer to forget, and keep the rest."""

from typing import ClassVar

from pydantic import Field, PositiveFloat, PositiveInt

from vestige import losses
from vestige.methods.base import Alternatives, Needs, Settings, Step, Terms, preference


class AltPO(Settings):
    """(2 / beta) DPO of the alternative over the forget answer + retain_weight NLL(retain).

    The target writes `n` alternatives a question for `prompt`. One is drawn anew each epoch, which is an unbiased
    estimate of the paper's mean over all alternatives. Its run sees every pair each epoch. Weights, n and sampling come
    from the authors' code. The wording of the prompt is ours.
    """

    paper: ClassVar[str] = "Mekala et al., Alternate Preference Optimization, 2409.13474"
    needs: ClassVar[Needs] = Needs(
        policy=frozenset({"alternative", "forget", "retain"}), reference=frozenset({"alternative", "forget"})
    )
    version: ClassVar[int] = 2

    beta: PositiveFloat = 0.1
    """Inverse temperature of DPO. Smaller lets the policy move further from the reference."""
    retain_weight: float = Field(1.0, description="Weight of NLL(retain).")
    n: PositiveInt = Field(5, description="Alternatives that the target is asked for, a question.")
    temperature: PositiveFloat = Field(1.0, description="Sampling temperature of the alternatives.")
    max_new_tokens: PositiveInt = Field(200, description="Longest alternative, in tokens.")
    prompt: str = "{question}\n{answer}\nAnswer again, as plausibly, with every fact of that answer changed."
    """The prompt for the target's alternatives. Holds {question} and may hold {answer}."""

    def alternatives(self) -> Alternatives:
        return Alternatives(self.prompt, self.n, self.temperature, self.max_new_tokens)

    def terms(self, step: Step) -> Terms:
        retain = step.policy("retain")
        retained = self.retain_weight * losses.nll(retain.logp, retain.mask, n_tokens=retain.n_tokens)
        return {"dpo": 2 / self.beta * preference(step, "alternative", beta=self.beta), "retain": retained}
