"""A tiny Llama with random weights as a GGUF file, with the metadata of SmolLM2's."""

from pathlib import Path

import gguf
import torch
from tokenizers import pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

MERGES = ["Ċ Ċ", "Ġ Ġ", "a b", "1 2"]
TOKENS = [
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *sorted(pre_tokenizers.ByteLevel.alphabet()),
    *(merge.replace(" ", "") for merge in MERGES),
]
HEADS = {"attn_q": 4, "attn_k": 2}
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


def tiny_llama() -> PreTrainedModel:
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(TOKENS),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=HEADS["attn_q"],
            num_key_value_heads=HEADS["attn_k"],
            max_position_embeddings=128,
            rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
            tie_word_embeddings=True,
        )
    )
    with torch.no_grad():
        # Norms start as ones, which would hide one that went astray.
        for parameter in model.parameters():
            parameter.normal_(1.0 if parameter.ndim == 1 else 0.0, 0.3)
    return model.eval()


def tiny_gguf(path: Path) -> Path:
    model = tiny_llama()
    config, weights = model.config, {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    file = gguf.GGUFWriter(path, "llama")
    file.add_name("Tiny")
    file.add_block_count(config.num_hidden_layers)
    file.add_context_length(config.max_position_embeddings)
    file.add_embedding_length(config.hidden_size)
    file.add_feed_forward_length(config.intermediate_size)
    file.add_head_count(config.num_attention_heads)
    file.add_head_count_kv(config.num_key_value_heads)
    file.add_rope_freq_base(100_000.0)
    file.add_layer_norm_rms_eps(config.rms_norm_eps)
    file.add_vocab_size(len(TOKENS))
    file.add_tokenizer_model("gpt2")
    file.add_tokenizer_pre("smollm")
    file.add_token_list(TOKENS)
    file.add_token_types([3] * 3 + [1] * (len(TOKENS) - 3))
    file.add_token_merges(MERGES)
    file.add_bos_token_id(1)
    file.add_eos_token_id(2)
    file.add_pad_token_id(2)
    file.add_tensor("token_embd.weight", weights["model.embed_tokens.weight"])
    file.add_tensor("output_norm.weight", weights["model.norm.weight"])
    for layer in range(config.num_hidden_layers):
        for name, place in PLACES.items():
            rows = weights[f"model.layers.{layer}.{place}.weight"]
            if name in HEADS:
                # llama.cpp has the two halves of a head's rows in turn.
                rows = rows.reshape(HEADS[name], 2, -1, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)
            file.add_tensor(f"blk.{layer}.{name}.weight", rows)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path
