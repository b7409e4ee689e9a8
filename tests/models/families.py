"""One very small model of each family, random but for its seed."""

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedModel

_SMALL = {
    "vocab_size": 67,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
# What each does to its logits beyond the head, and to its embeddings, differs: Gemma-2 caps, Granite and Cohere scale.
FAMILIES = {
    "llama": {},
    "mistral": {},
    "qwen2": {},
    "gemma2": {"head_dim": 8, "final_logit_softcapping": 0.05},
    "granite": {"logits_scaling": 7.0, "embedding_multiplier": 3.0},
    "cohere": {"logit_scale": 0.3},
    "phi": {},
    "phi3": {},
    "gpt2": {"n_positions": 64, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
}


def small_model(family: str, **settings: object) -> PreTrainedModel:
    config = CONFIG_MAPPING[family](**{**_SMALL, **FAMILIES[family], **settings})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
