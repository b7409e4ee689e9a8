"""The objective of fine-tuning: the mean negative log-likelihood of the rows' tokens."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from vestige import losses
from vestige.training.step import Needs, Step


@dataclass(frozen=True)
class Finetune:
    """NLL(train), mean over the tokens of the effective batch."""

    needs: ClassVar[Needs] = Needs(policy=frozenset({"train"}))

    def terms(self, step: Step) -> dict[str, Float[Tensor, ""]]:
        train = step.policy("train")
        return {"train": losses.nll(train.logp, train.mask, n_tokens=train.n_tokens)}
