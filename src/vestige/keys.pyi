# ruff: noqa
# fmt: off
"""The settings that functions of `vestige` take by name; written by tools/cli_page.py."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

class ModelKeys(TypedDict, total=False):
    dtype: str
    device: str
    trust_remote_code: bool
    chat_template: str
    base: str
    tokenizer: str

class MarginKeys(TypedDict, total=False):
    scope: Literal['these', 'such']
    delta: float
    delta_wide: float
    delta_bits: float
    delta_wide_bits: float
    delta_group: float
    delta_group_bits: float
    admission: float
    saturation: float
    seed_share: float
    seed_share_graded: float
    seed_weight: float

class CompileKeys(TypedDict, total=False):
    seed: int
    temporal: bool
    contract_types: Any | None

class CheckKeys(TypedDict, total=False):
    alpha: float
    margin: float
    permutations: int
    near: float
    held: float
    options: int
    most_taught: int

class FinetuneKeys(ModelKeys, total=False):
    epochs: int
    max_steps: int | None
    batch_size: int
    micro_batch_size: int | None
    token_budget: int | None
    gradient_checkpointing: bool
    optimizer: Literal['adamw', 'adamw_8bit']
    learning_rate: float
    schedule: Literal['linear', 'constant', 'cosine', 'one_cycle']
    warmup_epochs: float
    warmup_steps: int | None
    weight_decay: float
    max_gradient_norm: float
    loss_on: Literal['answer', 'all']
    bucket: bool
    stop_when_exact: bool
    precision: Literal['float32', 'bfloat16']
    threads: int
    lora_rank: int
    lora_alpha: int
    lora_dropout: float
    lora_rslora: bool
    lora_dora: bool
    lora_targets: Sequence[str] | Literal['all']

class UnlearnKeys(ModelKeys, total=False):
    epochs: int
    max_steps: int | None
    batch_size: int
    micro_batch_size: int | None
    token_budget: int | None
    gradient_checkpointing: bool
    optimizer: Literal['adamw', 'adamw_8bit']
    learning_rate: float
    schedule: Literal['linear', 'constant', 'cosine', 'one_cycle']
    warmup_epochs: float
    warmup_steps: int | None
    weight_decay: float
    max_gradient_norm: float
    loss_on: Literal['answer', 'all']
    bucket: bool
    stop_when_exact: bool
    precision: Literal['float32', 'bfloat16']
    threads: int
    lora_rank: int
    lora_alpha: int
    lora_dropout: float
    lora_rslora: bool
    lora_dora: bool
    lora_targets: Sequence[str] | Literal['all']

class AuditKeys(ModelKeys, total=False):
    judge: str
    judge_examples: str
    scope: Literal['these', 'such']
    delta: float
    delta_wide: float
    delta_bits: float
    delta_wide_bits: float
    delta_group: float
    delta_group_bits: float
    admission: float
    saturation: float
    seed_share: float
    seed_share_graded: float
    seed_weight: float
    evals: Sequence[str]
    forms: Sequence[str]
    relearn: Sequence[Literal['retain', 'related', 'unrelated', 'forget_part', 'forget']]
    relearn_items: Sequence[int]
    relearn_epochs: int
    relearn_rate: float
    relearn_rank: int
    relearn_rates: Sequence[float]
    relearn_ranks: Sequence[int]
    relearn_alpha: int
    relearn_batch_size: int
    quantize: Sequence[Literal['nf4', 4, 8]]
    ablate: Sequence[int]
    in_context: Sequence[int]
    gcg: Sequence[int]
    prefix: Sequence[int]
    prompt_tokens: int | None
    prompt_steps: int | None
    prompt_candidates: int | None
    further: Sequence[str]
    suppress: bool
    suppress_epochs: int
    suppress_rate: float
    suppress_rank: int
    max_new_tokens: int
    kept_items: int
    memory_items: int
    patch: bool
    acr_items: int
    wordings: str
    options: int
    membership: Sequence[Literal['loss', 'min_k', 'min_k_plus', 'zlib', 'reference']]
    gradient_norm: bool

class AttackKeys(ModelKeys, total=False):
    material: Literal['retain', 'related', 'unrelated', 'forget_part', 'forget']
    items: int
    epochs: int
    rate: float
    rank: int
    alpha: int
    dropout: float
    batch_size: int
    warmup: float
    weight_decay: float
    precision: Literal['float32', 'bfloat16']
    also: str
    bits: Literal['nf4', 4, 8]
    bound: float
    steps: int
    facts: int
    placement: Literal['prefix', 'suffix']
    tokens: int
    width: int
    topk: int
    replaced: int
    buffer: int
    restarts: int
    ascii_only: bool
    stop_when_reached: bool
    initial: str
    candidates: int
    forced_tokens: int
    clamp: float
    layers: Sequence[int]
    distance: float
    fluency: float
    repetition: float
    repetition_power: float

class ProbeKeys(ModelKeys, total=False):
    asks: str
    asks_dtype: str
    judge: str
    truth: bool
    embedder: str | None
    k: int
    by: str
    answers: Mapping[str, Any]
    latent: Mapping[str, Any]
    policy: Mapping[str, Any]
    filter: Mapping[str, Any]
