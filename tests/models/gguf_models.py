"""Tiny models with random weights, as GGUF files: what llama.cpp's converter would write of them."""

from pathlib import Path
from typing import Any

import torch
from gguf_writer import Stored, f32, interleaved, write_gguf
from tokenizers import pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

MERGES = ["Ċ Ċ", "Ġ Ġ", "a b", "1 2"]
TOKENS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    *sorted(pre_tokenizers.ByteLevel.alphabet()),
    *(merge.replace(" ", "") for merge in MERGES),
]
HEADS, KV_HEADS, LAYERS, HIDDEN, INTERMEDIATE = 4, 2, 2, 32, 64
PLACES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def tiny(architecture: str, *, tied: bool, seed: int = 0) -> PreTrainedModel:
    config, model = {
        "llama": (LlamaConfig, LlamaForCausalLM),
        "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    }[architecture]
    torch.manual_seed(seed)
    made = model(
        config(
            vocab_size=len(TOKENS),
            hidden_size=HIDDEN,
            intermediate_size=INTERMEDIATE,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=KV_HEADS,
            max_position_embeddings=128,
            rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
            tie_word_embeddings=tied,
        )
    )
    with torch.no_grad():
        # Norms start as ones and biases as zeros, which would hide one that went astray.
        for parameter in made.parameters():
            parameter.normal_(1.0 if parameter.ndim == 1 else 0.0, 0.3)
    return made.eval()


def entries(architecture: str, **changes: Any) -> dict[str, Any]:
    sizes = {
        "block_count": LAYERS,
        "context_length": 128,
        "embedding_length": HIDDEN,
        "feed_forward_length": INTERMEDIATE,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "rope.freq_base": 100_000.0,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    found = {f"{architecture}.{key}": content for key, content in sizes.items()}
    found |= {
        "general.architecture": architecture,
        "general.name": "Tiny",
        "general.license": "apache-2.0",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm" if architecture == "llama" else "qwen2",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": [3] * 3 + [1] * (len(TOKENS) - 3),
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.padding_token_id": 2,
    }
    return {key: content for key, content in (found | changes).items() if content is not None}


def stored(model: PreTrainedModel, architecture: str) -> dict[str, Stored]:
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    tensors = {
        "token_embd.weight": f32(weights["model.embed_tokens.weight"]),
        "output_norm.weight": f32(weights["model.norm.weight"]),
    }
    if not model.config.tie_word_embeddings:
        tensors["output.weight"] = f32(weights["lm_head.weight"])
    for layer in range(LAYERS):
        for ours, theirs in PLACES.items():
            for end in ("weight", "bias"):
                name = f"model.layers.{layer}.{theirs}.{end}"
                if name not in weights:
                    continue
                values = weights[name]
                if architecture == "llama" and ours in {"attn_q", "attn_k"}:
                    values = interleaved(values, HEADS if ours == "attn_q" else KV_HEADS)
                tensors[f"blk.{layer}.{ours}.{end}"] = f32(values)
    return tensors


def tiny_gguf(path: Path, architecture: str = "llama", *, tied: bool = True, **changes: Any) -> Path:
    """A tiny model's file; `changes` replaces metadata entries, or drops them where they are None."""
    tensors = stored(tiny(architecture, tied=tied), architecture)
    return write_gguf(path, entries(architecture, **changes), tensors)
