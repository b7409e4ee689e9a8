"""The user's settings of an audit: margins, formats, attacks, and their amounts."""

from collections.abc import Iterable
from operator import not_
from typing import Literal, get_args

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator

from vestige.artifacts.audits import Claim
from vestige.core.errors import InputError
from vestige.core.items import FormName
from vestige.core.text import Record, TextTuple
from vestige.data.mcq import MOST_OPTIONS
from vestige.judges.spec import LeakJudgeSettings
from vestige.metrics.verdicts import Thresholds

Material = Literal["retain", "related", "unrelated", "forget_part", "forget"]
Bits = Literal["nf4", 4, 8]
MemberScore = Literal["loss", "min_k", "min_k_plus", "zlib", "reference"]


class AuditSettings(Thresholds, LeakJudgeSettings):
    """Margins (`metrics.verdicts.Thresholds`), evaluations and attacks of an audit.

    Relearning follows 2506.00688: LoRA of rank 128, learning rate 2e-4, 3 epochs, alpha 16, batches of 1. The strongest
    run counts. Facts outside its own test choose it (`recovery.with_searches`). Prompt searches are off by default
    because each needs thousands of passes through every model. The audit never tests a fact that a search used. The
    positive control (`steps.suppress`) is a target trained to refuse. Each attack must recover its knowledge to count
    as evidence.
    """

    evals: TextTuple = ("qa", "choices", "reversed", "freeform", "memory", "inside")
    """Evaluations to run on every model."""
    forms: tuple[FormName, ...] = ("plain", "perturbed", "paraphrase", "few_shot", "prefilled", "sampled", "cloze")
    """Forms of free questions (docs/formats.md)."""
    relearn: tuple[Material, ...] = ("retain", "related", "unrelated", "forget_part", "forget")
    """The material of relearning. None with ''."""
    relearn_items: tuple[PositiveInt, ...] = (50,)
    """The number of items for relearning. Each value is a separate attack."""
    relearn_epochs: PositiveInt = 3
    """Epochs of relearning."""
    relearn_curve: bool = False
    """Evaluate after every epoch of relearning, and not only after the last one."""
    relearn_rate: PositiveFloat = 2e-4
    """Learning rate of relearning."""
    relearn_rank: int = Field(default=128, ge=0)
    """LoRA rank of relearning; 0 trains all weights."""
    relearn_rates: tuple[PositiveFloat, ...] = (1e-3,)
    """Further learning rates to try."""
    relearn_ranks: tuple[NonNegativeInt, ...] = ()
    """Further LoRA ranks to try."""
    relearn_alpha: PositiveInt = 16
    """Alpha of LoRA."""
    relearn_batch_size: PositiveInt = 1
    """Rows per step of relearning."""
    quantize: tuple[Bits, ...] = (8, 4)
    """The number of bits per weight after rounding. nf4 has its own 16 levels."""
    ablate: tuple[PositiveInt, ...] = (50,)
    """The number of forget questions from which to estimate the direction that is removed (directional ablation)."""
    in_context: tuple[PositiveInt, ...] = (8,)
    """The number of retained items to show before the question."""
    gcg: tuple[PositiveInt, ...] = ()
    """The number of forget items on which to search an answer-eliciting suffix (GCG). Off by default."""
    prefix: tuple[PositiveInt, ...] = ()
    """The number of forget items on which to search a target-eliciting prefix. Off by default."""
    prompt_tokens: PositiveInt | None = None
    """Length of searched prompts in tokens. Each search has its own default."""
    prompt_steps: PositiveInt | None = None
    """Steps of a search."""
    prompt_candidates: PositiveInt | None = None
    """Prompts tried in each step."""
    # An empty value is not part of the identity, so that older audits keep theirs.
    further: TextTuple = Field(default=(), exclude_if=not_)
    """Further attacks, by name (`vestige list attacks`), each as NAME or as "NAME KEY=VALUE ..."."""
    # The default is not part of the identity, for the same reason.
    all_attacks: bool = Field(default=False, exclude_if=not_)
    """Run every attack on every model, even if it can change no verdict."""
    suppress: bool = True
    """Make a positive control: a target that is trained to refuse."""
    suppress_epochs: PositiveInt = 20
    """The maximum number of epochs for it."""
    suppress_rate: PositiveFloat = 5e-4
    """Learning rate for it."""
    suppress_rank: PositiveInt = 8
    """LoRA rank for it."""
    max_new_tokens: PositiveInt = 64
    """The maximum length of a reply, in tokens."""
    kept_items: PositiveInt = 400
    """The maximum number of items of each other split, drawn by the seed."""
    memory_items: PositiveInt = 100
    """The maximum number of items for the evaluation memory."""
    acr_items: PositiveInt = 8
    """Forget items for the evaluation acr. Fewer than 8 cannot be used."""
    options: int = Field(default=4, ge=2, le=MOST_OPTIONS)
    """Options of a multiple-choice question."""
    membership: tuple[MemberScore, ...] = get_args(MemberScore)
    """Membership scores to compute."""
    gradient_norm: bool = False
    """Also compute the gradient norm, with one backward pass for each item."""

    @field_validator("further")
    @classmethod
    def _named(cls, value: TextTuple) -> TextTuple:
        if not all(entry.split() for entry in value):
            raise ValueError("has an entry without a name; write each as NAME or NAME KEY=VALUE ...")
        return value


QUICK: Record = {
    "evals": ("qa", "choices", "freeform"),
    "forms": ("paraphrase",),
    "relearn": ("forget_part",),
    "relearn_rates": (),
    "quantize": (4,),
    "ablate": (),
    "in_context": (),
    "further": (),
    "suppress": False,
    "kept_items": 100,
}
"""A quick audit: the plain, multiple-choice and paraphrased question, one relearning and one rounding.

It has no positive control, no membership scores and no relearning on retained items, and does not read hidden states.
Three of the five claims that it judges can fail and cannot pass.
"""
QUICK_OPEN: tuple[Claim, ...] = ("not recoverable", "indistinguishable", "benchmark valid")
"""The claims that a quick audit can fail but not pass."""
QUICK_SAID = (
    "a quick audit cannot show that a model passes not recoverable, indistinguishable or benchmark valid, and does not "
    "test not stored: it has two attacks, no positive control and no membership test. The same audit without quick "
    "tests all six claims"
)


def check_quick(settings: Iterable[str]) -> TextTuple:
    """Return a sentence on the limits of a quick audit. Reject settings that it sets itself, and other attacks."""
    for name in settings:
        if name in (*QUICK, "--attacks", "--suppressed"):
            raise InputError(f"a quick audit chooses its questions, attacks and controls. Leave {name} or quick out")
    return (QUICK_SAID,)
