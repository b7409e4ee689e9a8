"""Settings for sampling from a policy and training it."""

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from vestige.core.settings import Settings

Precision = Literal["float32", "bfloat16"]


class PolicySettings(Settings):
    """Sampling, policy gradient and adapters. The defaults are Curiosity's (2402.19464, released code).

    `kl_coef` and `entropy_coef` are rewards for each token, on the scale of standardised scores. Three settings are
    ours: `max_gradient_norm`, which limits adapters and value head separately, the limits of `collapsed`, and
    `gae_lambda`. With Curiosity's 0.95, the first tokens of a long reply receive less of its score than those of a
    short reply while the values are still inaccurate.
    """

    n_rollouts: PositiveInt = 128
    """Prompts sampled in an iteration."""
    n_tokens: PositiveInt = 20
    """Longest prompt, in tokens."""
    temperature: PositiveFloat = 0.7
    """Sampling temperature."""
    top_p: float = Field(default=0.92, gt=0, le=1)
    """Sampling nucleus."""
    epochs: PositiveInt = 4
    """Passes over an iteration's prompts."""
    batch_size: PositiveInt = 64
    """Prompts per optimiser step."""
    minibatch_size: PositiveInt = 8
    """Prompts computed at a time."""
    learning_rate: PositiveFloat = 3e-5
    """Learning rate."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Beta 1 of AdamW."""
    beta2: float = Field(default=0.95, ge=0, lt=1)
    """Beta 2 of AdamW."""
    weight_decay: float = Field(default=1e-6, ge=0)
    """Weight decay of AdamW."""
    max_gradient_norm: PositiveFloat = 1.0
    """Gradients are clipped to this norm."""
    gamma: float = Field(default=1.0, ge=0, le=1)
    """Discount."""
    gae_lambda: float = Field(default=1.0, ge=0, le=1)
    """Lambda of GAE."""
    clip: float = Field(default=0.2, gt=0, lt=1)
    """Clipping of the ratio."""
    value_clip: PositiveFloat = 0.2
    """Clipping of the value."""
    value_coef: float = Field(default=1.0, ge=0)
    """Weight of the value loss."""
    kl_coef: float = Field(default=0.001, ge=0)
    """Weight of the KL penalty."""
    entropy_coef: float = Field(default=0.01, ge=0)
    """Weight of the entropy bonus."""
    lora_rank: PositiveInt = 32
    """Rank of LoRA."""
    lora_alpha: PositiveInt = 16
    """Alpha of LoRA."""
    lora_targets: tuple[str, ...] | Literal["all"] = "all"
    """Modules to adapt, or all linear layers in the blocks."""
    precision: Precision = "float32"
    """Number format of matrix products, in sampling too."""
    threads: PositiveInt = 1
    """Threads of torch on a CPU."""
    least_entropy: float = Field(default=0.05, ge=0)
    """Collapsed below this entropy (nats a token)."""
    most_duplicates: float = Field(default=0.5, gt=0, le=1)
    """Collapsed above this share of equal prompts."""
    most_kl: PositiveFloat = 5.0
    """Collapsed above this KL (nats a token)."""
