"""How a policy is sampled from and trained."""

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from vestige.core.settings import Settings

Precision = Literal["float32", "bfloat16"]


class PolicySettings(Settings):
    """Sampling, policy gradient and adapters; the defaults are Curiosity's (2402.19464, its released code).

    An iteration is `n_rollouts` replies of at most `n_tokens` tokens. They are gone through `epochs` times, with
    `batch_size` a step of the optimiser, of which `minibatch_size` are computed at a time and their gradients added up.
    `kl_coef` and `entropy_coef` are for one token: in PPO parts of the reward, in GRPO of the loss. `gamma`,
    `gae_lambda`, `value_clip` and `value_coef` are PPO's; `group_size` is GRPO's, with TRL's default. `precision` is
    that of the products, in sampling too; the weights keep the model's own number format. `threads` are torch's on a
    CPU.

    `max_gradient_norm` is ours, and so are the limits of `collapsed`: nats a token, a share of replies, nats a token.
    """

    estimator: Literal["ppo", "grpo"] = "ppo"
    n_rollouts: PositiveInt = 128
    n_tokens: PositiveInt = 20
    temperature: PositiveFloat = 0.7
    top_p: float = Field(default=0.92, gt=0, le=1)
    epochs: PositiveInt = 4
    batch_size: PositiveInt = 64
    minibatch_size: PositiveInt = 8
    learning_rate: PositiveFloat = 3e-5
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    weight_decay: float = Field(default=1e-6, ge=0)
    max_gradient_norm: PositiveFloat = 1.0
    gamma: float = Field(default=1.0, ge=0, le=1)
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    clip: float = Field(default=0.2, gt=0, lt=1)
    value_clip: PositiveFloat = 0.2
    value_coef: float = Field(default=1.0, ge=0)
    kl_coef: float = Field(default=0.001, ge=0)
    entropy_coef: float = Field(default=0.01, ge=0)
    group_size: int = Field(default=8, ge=2)
    lora_rank: PositiveInt = 32
    lora_alpha: PositiveInt = 16
    lora_targets: tuple[str, ...] | Literal["all"] = "all"
    precision: Precision = "float32"
    threads: PositiveInt = 1
    least_entropy: float = Field(default=0.05, ge=0)
    most_duplicates: float = Field(default=0.5, gt=0, le=1)
    most_kl: PositiveFloat = 5.0
