"""How a model is trained: everything that can change the weights that come out."""

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from vestige.core.settings import Settings


class TrainingSettings(Settings):
    """One training run; the defaults are PISTOL's for fine-tuning (2406.16810, section 5.2).

    Lengths are in epochs, sizes in rows of the effective batch.

    An epoch of unlearning is one pass over the forget set. `micro_batch_size` rows are computed at a time and their
    gradients added up to those of the whole batch, so that without dropout it changes memory and, beyond rounding,
    not the result. `loss_on` is `answer` (answer and end of turn) or `all` (every token but the first). `lora_rank` 0
    trains all parameters. `bucket` puts rows of like length into one batch, drawn anew each epoch.
    """

    epochs: PositiveInt = 20
    batch_size: PositiveInt = 16
    micro_batch_size: PositiveInt | None = None
    learning_rate: PositiveFloat = 1e-4
    schedule: Literal["linear", "constant", "one_cycle"] = "linear"
    warmup_epochs: float = Field(default=1.0, ge=0)
    weight_decay: float = Field(default=0.0, ge=0)
    max_gradient_norm: PositiveFloat = 1.0
    loss_on: Literal["answer", "all"] = "answer"
    bucket: bool = False
    stop_when_exact: bool = False
    precision: Literal["float32", "bfloat16"] = "float32"
    lora_rank: int = Field(default=8, ge=0)
    lora_alpha: PositiveInt = 32
    lora_dropout: float = Field(default=0.05, ge=0, lt=1)
    lora_targets: tuple[str, ...] = (
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    )


class UnlearningSettings(TrainingSettings):
    """The same with PISTOL's defaults for unlearning (2406.16810, section 5.3 and its released configuration).

    PISTOL's rates, 1e-5 to 2e-5, belong to LoRA on 7B models; other models need their own.
    """

    batch_size: PositiveInt = 4
    learning_rate: PositiveFloat = 1e-5
    weight_decay: float = Field(default=0.01, ge=0)
