"""Training settings: everything that can change the resulting weights."""

from typing import Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt, field_validator

from vestige.core.settings import Settings

FLOAT16 = (
    "float16 ends at 65504 and loses gradients below 6e-8, and Vestige does not scale the loss around that; take "
    "bfloat16 or float32"
)
"""Why nothing is trained in float16."""


EVERY: Literal["all"] = "all"
"""The word for all of a model's LoRA targets, whose names differ between families."""


class TrainingSettings(Settings):
    """The settings of a training. The defaults are PISTOL's for fine-tuning (2406.16810, section 5.2).

    An epoch of unlearning is one pass over the forget set. Without dropout, `micro_batch_size` and `token_budget`
    change only memory use and rounding.
    """

    epochs: PositiveInt = 20
    """Passes over the data. For unlearning, over the forget set."""
    max_steps: PositiveInt | None = None
    """End the training, and the schedule with it, after this many steps."""
    batch_size: PositiveInt = 16
    """Rows per optimiser step."""
    micro_batch_size: PositiveInt | None = None
    """Rows computed at a time. Their gradients add up to the batch's. Saves memory."""
    token_budget: PositiveInt | None = None
    """Tokens (of all splits) computed at a time. Saves memory."""
    gradient_checkpointing: bool = False
    """Recompute each block's activations in the backward pass instead of storing them."""
    optimizer: Literal["adamw"] = "adamw"
    """The optimiser: fused AdamW."""
    learning_rate: PositiveFloat = 1e-4
    """Peak learning rate."""
    schedule: Literal["linear", "constant", "cosine", "one_cycle"] = "linear"
    """The course of the learning rate after the warm-up."""
    warmup_epochs: float = Field(default=1.0, ge=0)
    """Length of the warm-up in epochs."""
    warmup_steps: int | None = Field(default=None, ge=0)
    """Length of the warm-up in steps. Wins over warmup_epochs."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Weight decay of AdamW."""
    max_gradient_norm: PositiveFloat = 1.0
    """Gradients are clipped to this norm."""
    loss_on: Literal["answer", "all"] = "answer"
    """The tokens in the loss: the answer and the end of the turn, or all but the first."""
    bucket: bool = False
    """Put rows of similar length into one batch, drawn again each epoch."""
    stop_when_exact: bool = False
    """Stop once every answer is reproduced word for word."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Number format of matrix products (autocast). The weights keep the model's own."""
    threads: PositiveInt = 1
    """Threads of torch on a CPU. Their number decides the last digits, so no environment variable sets it."""
    lora_rank: int = Field(default=8, ge=0)
    """Rank of the LoRA adapter; 0 trains all weights."""
    lora_alpha: PositiveInt = 32
    """Alpha of LoRA."""
    lora_dropout: float = Field(default=0.05, ge=0, lt=1)
    """Dropout of LoRA."""
    lora_rslora: bool = False
    """Divide alpha by the root of the rank (rsLoRA, 2312.03732)."""
    lora_dora: bool = False
    """Train the weights' magnitudes separately (DoRA, 2402.09353)."""
    lora_targets: tuple[str, ...] | Literal["all"] = (
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    )
    """Modules to adapt, by the last part of their name, or all linear layers in the blocks."""

    @field_validator("precision", mode="before")
    @classmethod
    def _no_float16(cls, value: Any) -> Any:
        if value in {"float16", "fp16", "half"}:
            raise ValueError(FLOAT16)
        return value


class UnlearningSettings(TrainingSettings):
    """Training settings with PISTOL's defaults for unlearning (2406.16810, section 5.3 and its released configuration).

    PISTOL's rates, 1e-5 to 2e-5, belong to LoRA on 7B models. Other models need their own.
    """

    batch_size: PositiveInt = 4
    """Rows per optimiser step."""
    learning_rate: PositiveFloat = 1e-5
    """Peak learning rate. The default is PISTOL's for 7B models. `vestige find-rate` searches one for your model."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Weight decay of AdamW."""
