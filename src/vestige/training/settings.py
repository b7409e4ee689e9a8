"""How a model is trained: everything that can change the weights that come out."""

from typing import Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt, field_validator

from vestige.core.settings import Settings

FLOAT16 = (
    "float16 ends at 65504 and loses gradients below 6e-8, and Vestige does not scale the loss around that; take "
    "bfloat16 or float32"
)
"""Why nothing is trained in float16."""


EVERY: Literal["all"] = "all"
"""The word for all of a model's LoRA targets, where names would be those of one family."""


class TrainingSettings(Settings):
    """One training run; the defaults are PISTOL's for fine-tuning (2406.16810, section 5.2).

    Lengths are in epochs, sizes in rows of the effective batch. An epoch of unlearning is one pass over the forget
    set. `max_steps` ends the training, and the schedule with it, before the last epoch; `warmup_steps` wins over
    `warmup_epochs`.

    `micro_batch_size` rows are computed at a time and their gradients added up to those of the whole batch, so that
    without dropout it changes memory and, beyond rounding, not the result; so with `token_budget`, the tokens (of all
    splits) that are computed at a time. With `gradient_checkpointing` a block's activations are computed again when
    its gradient is, instead of being kept. `precision` is that of the products: bfloat16 under autocast; the weights
    keep the model's own number format.

    `threads` are torch's on a CPU: how many there are decides the last digits, so the shell has no say in it.

    `loss_on` is `answer` (answer and end of turn) or `all` (every token but the first). `bucket` puts rows of like
    length into one batch, drawn anew each epoch. `lora_rank` 0 trains all parameters. `lora_rslora` divides alpha by
    the root of the rank (Kalajdzievski, 2312.03732), `lora_dora` trains the weights' magnitudes apart (Liu et al.,
    2402.09353). `lora_targets` are modules by the last part of their name, or `all` products inside the blocks.
    """

    epochs: PositiveInt = 20
    max_steps: PositiveInt | None = None
    batch_size: PositiveInt = 16
    micro_batch_size: PositiveInt | None = None
    token_budget: PositiveInt | None = None
    gradient_checkpointing: bool = False
    optimizer: Literal["adamw", "adamw_8bit"] = "adamw"
    learning_rate: PositiveFloat = 1e-4
    schedule: Literal["linear", "constant", "cosine", "one_cycle"] = "linear"
    warmup_epochs: float = Field(default=1.0, ge=0)
    warmup_steps: int | None = Field(default=None, ge=0)
    weight_decay: float = Field(default=0.0, ge=0)
    max_gradient_norm: PositiveFloat = 1.0
    loss_on: Literal["answer", "all"] = "answer"
    bucket: bool = False
    stop_when_exact: bool = False
    precision: Literal["float32", "bfloat16"] = "float32"
    threads: PositiveInt = 1
    lora_rank: int = Field(default=8, ge=0)
    lora_alpha: PositiveInt = 32
    lora_dropout: float = Field(default=0.05, ge=0, lt=1)
    lora_rslora: bool = False
    lora_dora: bool = False
    lora_targets: tuple[str, ...] | Literal["all"] = (
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    )

    @field_validator("precision", mode="before")
    @classmethod
    def _no_float16(cls, value: Any) -> Any:
        if value in {"float16", "fp16", "half"}:
            raise ValueError(FLOAT16)
        return value


class UnlearningSettings(TrainingSettings):
    """The same with PISTOL's defaults for unlearning (2406.16810, section 5.3 and its released configuration).

    PISTOL's rates, 1e-5 to 2e-5, belong to LoRA on 7B models; other models need their own.
    """

    batch_size: PositiveInt = 4
    learning_rate: PositiveFloat = 1e-5
    weight_decay: float = Field(default=0.01, ge=0)
