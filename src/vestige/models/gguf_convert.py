"""From a GGUF file to a Hugging Face folder that transformers loads without a network.

Weights are written as float32, though that takes four times the room of a Q8_0 file: float32 holds the
dequantised values exactly, and bfloat16 or float16 do not (a Q4_1 weight is scale x code + minimum, with a
float16 scale and minimum). So the folder computes what the file does, and training starts from full-precision
weights.

A folder is made whole or not at all, and is done when it holds identity.json: what it was made of, and by
which version of the conversion.

An architecture says which tensors its files hold, and what they and its sizes are called in transformers. Whatever in a
file is not understood is refused: a metadata entry or a tensor that was passed over could
change what the model computes.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float32
from safetensors import SafetensorError
from safetensors.numpy import save_file
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
)

from vestige.core.errors import InputError, MachineError
from vestige.core.files import locked, new_folder, write_json, write_text
from vestige.core.ids import content_id, file_digest
from vestige.core.text import one_line
from vestige.models.cache import cache_folder, check_room
from vestige.models.folders import refusing
from vestige.models.gguf import GGUF, build_tokenizer, find, need, read_gguf, special_ids, tensor_values

_EMBEDDING, _HEAD = "token_embd.weight", "output.weight"
_KNOWN_KEYS = {
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "rope.dimension_count",
    "rope.freq_base",
    "vocab_size",
}
# llama.cpp's, where a file names none.
_DEFAULT_THETA = 10_000.0


@dataclass(frozen=True)
class Placement:
    """A tensor of the file with its name and shape in transformers.

    `interleaved_heads` is the number of heads within each of which llama.cpp has interleaved the two halves
    of the rows, and 0 where the rows stand as they are.
    """

    name: str
    target: str
    shape: tuple[int, ...]
    interleaved_heads: int = 0


@dataclass(frozen=True)
class Architecture:
    """What sets one apart: its config with what is fixed in it, and whether the rows of q and k are interleaved.

    `splits` are those that transformers' AutoTokenizer gives to every tokeniser of the architecture, whatever
    its tokenizer.json says; None where it goes by the file.
    """

    name: str
    config: Callable[..., PreTrainedConfig]
    fixed: Mapping[str, Any]
    interleaved: bool
    splits: str | None


_LLAMA = {"attention_bias": False, "mlp_bias": False, "architectures": ["LlamaForCausalLM"]}
_QWEN2 = {"use_sliding_window": False, "architectures": ["Qwen2ForCausalLM"]}
ARCHITECTURES = {
    "llama": Architecture("llama", LlamaConfig, _LLAMA, interleaved=True, splits=None),
    "qwen2": Architecture("qwen2", Qwen2Config, _QWEN2, interleaved=False, splits="qwen2"),
}
_PARTS = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
}
"""What the parts of a block are called in a file and in transformers."""


def architecture_of(file: GGUF) -> Architecture:
    """The file's architecture, refused where it is not one of the table."""
    name = need(file, "general.architecture", str)
    if name not in ARCHITECTURES:
        raise InputError(
            f"{file.path}: its architecture is {one_line(repr(name))}, and only {', '.join(ARCHITECTURES)} "
            "can be converted; take the model's Hugging Face folder"
        )
    architecture = ARCHITECTURES[name]
    splits = find(file, "tokenizer.ggml.pre", str)
    if architecture.splits not in {None, splits}:
        raise InputError(
            f"{file.path}: its tokeniser has the splits {one_line(repr(splits))}, and transformers would "
            f"load it with those of {name}; take the model's Hugging Face folder"
        )
    return architecture


def config_of(file: GGUF, architecture: Architecture) -> PreTrainedConfig:
    """The config of the sizes that the metadata states, each checked; whether the tensors agree is seen later."""
    prefix = f"{architecture.name}."
    unknown = [k for k in file.metadata if k.startswith(prefix) and k.removeprefix(prefix) not in _KNOWN_KEYS]
    if unknown:
        raise InputError(
            f"{file.path}: the metadata entry {one_line(repr(unknown[0]))} asks for something that the "
            "conversion does not know; take the model's Hugging Face folder"
        )
    heads = _size(file, f"{prefix}attention.head_count")
    hidden = _size(file, f"{prefix}embedding_length")
    kv_heads = _size(file, f"{prefix}attention.head_count_kv", heads)
    head_width = _size(file, f"{prefix}attention.key_length", hidden // heads)
    _agree(file, f"{prefix}attention.value_length", head_width)
    _agree(file, f"{prefix}rope.dimension_count", head_width)
    if hidden % heads or heads % kv_heads or head_width % 2:
        raise InputError(
            f"{file.path}: {heads} heads of width {head_width}, {kv_heads} of them for keys, over a width of "
            f"{hidden} make no model that transformers builds; take another file"
        )
    if architecture.name == "qwen2" and heads * head_width != hidden:
        raise InputError(f"{file.path}: {heads} heads of width {head_width} do not make {hidden}, as qwen2 must")
    vocabulary = len(need(file, "tokenizer.ggml.tokens", list))
    _agree(file, f"{prefix}vocab_size", vocabulary)
    layers = _size(file, f"{prefix}block_count")
    if layers > len(file.tensors):
        raise InputError(f"{file.path}: it says {layers} layers and has {len(file.tensors)} tensors in all")
    theta, special = _positive(file, f"{prefix}rope.freq_base", _DEFAULT_THETA), special_ids(file, vocabulary)
    # Qwen2 has no width of its own for a head.
    width: dict[str, Any] = {"head_dim": head_width} if architecture.name == "llama" else {}
    return architecture.config(
        **architecture.fixed,
        **width,
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=_size(file, f"{prefix}feed_forward_length"),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=_size(file, f"{prefix}context_length"),
        rms_norm_eps=_positive(file, f"{prefix}attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": theta},
        # Without a head of its own a model uses its embedding.
        tie_word_embeddings=_HEAD not in file.tensors,
        bos_token_id=special.bos,
        eos_token_id=special.eos,
        pad_token_id=special.pad,
        dtype="float32",
    )


def placements_of(file: GGUF, architecture: Architecture, config: PreTrainedConfig) -> list[Placement]:
    """Where each tensor of the model goes. One that is missing, left over or of another shape is refused."""
    with refusing(f"{file.path}: cannot make its model"), torch.device("meta"):
        shapes = {n: tuple(t.shape) for n, t in AutoModelForCausalLM.from_config(config).state_dict().items()}
    if config.tie_word_embeddings:
        shapes.pop("lm_head.weight")
    names = {
        _EMBEDDING: "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        _HEAD: "lm_head.weight",
    }
    heads: dict[str, int] = {}
    for layer in range(config.num_hidden_layers):
        here, there = f"blk.{layer}.", f"model.layers.{layer}."
        names |= {f"{here}{a}.{e}": f"{there}{b}.{e}" for a, b in _PARTS.items() for e in ("weight", "bias")}
        if architecture.interleaved:
            heads[f"{here}attn_q.weight"] = config.num_attention_heads
            heads[f"{here}attn_k.weight"] = config.num_key_value_heads
    placements = [Placement(a, b, shapes[b], heads.get(a, 0)) for a, b in names.items() if b in shapes]
    for p in placements:
        if p.name not in file.tensors:
            raise InputError(f"{file.path}: it has no tensor {p.name!r}, and the model needs one; fetch it again")
        if file.tensors[p.name].shape != p.shape:
            raise InputError(
                f"{file.path}: tensor {p.name!r} is {file.tensors[p.name].shape}, and must be {p.shape} "
                "as the metadata has it; fetch the file again"
            )
    extra = sorted(file.tensors.keys() - {p.name for p in placements})
    if extra:
        raise InputError(
            f"{file.path}: tensor {one_line(repr(extra[0]))} has no place in a {architecture.name} model as "
            "the conversion knows it; take the model's Hugging Face folder"
        )
    return placements


def _size(file: GGUF, key: str, default: int | None = None) -> int:
    value = need(file, key, int, default)
    if value < 1 and key in file.metadata:
        raise InputError(f"{file.path}: {key} is {value}, and must be 1 or more")
    return value


def _agree(file: GGUF, key: str, expected: int) -> None:
    value = find(file, key, int)
    if value is not None and value != expected:
        raise InputError(f"{file.path}: {key} is {value} where {expected} is expected; such a model is not known")


def _positive(file: GGUF, key: str, default: float | None = None) -> float:
    """A float32 of the file as its shortest decimal: 1e-05, not 9.999999747378752e-06. Both are the same."""
    value = need(file, key, float, default)
    shortest = float(str(np.float32(value)))
    if not 0 < shortest < float("inf"):
        raise InputError(f"{file.path}: {key} is {value}, and must be positive and finite")
    return shortest


# Raised when the same file would come out as another folder.
CONVERTER = 1
IDENTITY = "identity.json"
# Weights held in memory and written at once; a larger model comes out in several files.
_SHARD_BYTES = 1024**3
# Tokeniser, config and file system overhead, on top of the weights.
_SPARE_BYTES = 64 * 1024**2


def resolve_gguf(path: Path) -> Path:
    """The Hugging Face folder of a user's GGUF file, in the cache; converted now if it is not there yet.

    The folder is named by the file's digest, so another file under the same name is another model.
    """
    if not path.is_file():
        raise InputError(f"no GGUF file at {path}")
    before = path.stat()
    digest = file_digest(path)
    folder = _conversions() / content_id({"source_sha256": digest, "converter": CONVERTER})
    with locked(folder.with_name(f".{folder.name}.lock"), patience_seconds=None):
        if (folder / IDENTITY).is_file():
            return folder
        with new_folder(folder) as partial:
            convert_gguf(path, partial, source={"kind": "gguf", "file": one_line(path.name), "sha256": digest})
            after = path.stat()
            if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
                raise InputError(f"{path} changed while it was read; run the same command again when it is whole")
    return folder


def converted_folders() -> list[Path]:
    """The folders of all users' GGUF files that were converted."""
    return sorted(path.parent for path in _conversions().glob(f"*/{IDENTITY}"))


def _conversions() -> Path:
    return cache_folder() / "gguf"


class Planned(NamedTuple):
    """What a GGUF file's header says: where each tensor goes, and the tokeniser."""

    file: GGUF
    architecture: Architecture
    config: PreTrainedConfig
    placements: list[Placement]
    tokenizer: PreTrainedTokenizerFast


def planned_conversion(path: Path) -> Planned:
    """What would be converted; refused in a sentence if it cannot be. No weights are read."""
    file = read_gguf(path)
    architecture = architecture_of(file)
    config = config_of(file, architecture)
    placements = placements_of(file, architecture, config)
    tokenizer = build_tokenizer(file, context_tokens=config.max_position_embeddings)
    return Planned(file, architecture, config, placements, tokenizer)


def convert_gguf(path: Path, folder: Path, *, source: Mapping[str, Any]) -> None:
    """Fill `folder`, which exists, with the model in the file; `source` goes into its identity."""
    plan = planned_conversion(path)
    file, config, placements = plan.file, plan.config, plan.placements
    parameters = sum(math.prod(p.shape) for p in placements)
    check_room(folder, 4 * parameters + _SPARE_BYTES)
    config.save_pretrained(folder)
    ends = {name: getattr(config, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    GenerationConfig(**ends).save_pretrained(folder)
    plan.tokenizer.save_pretrained(folder)
    _write_weights(file, placements, folder)
    write_text(folder / "README.md", _model_card(file, parameters, source))
    identity = {
        "source": dict(source),
        "converter": CONVERTER,
        "architecture": plan.architecture.name,
        "parameters": parameters,
        "dtype": "float32",
    }
    write_json(folder / IDENTITY, identity)


def rows_in_order(values: Float32[np.ndarray, "R ..."], heads: int) -> Float32[np.ndarray, "R ..."]:
    """Undo llama.cpp's interleaving of a head's rows: its rows 0, 2, 4, ... come first, then 1, 3, 5, ....

    llama.cpp rotates neighbouring rows as pairs, transformers a row of the first half with one of the second.
    """
    return values.reshape(heads, -1, 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def _shards(placements: Sequence[Placement]) -> list[list[Placement]]:
    """The tensors in their order, cut into runs of at most _SHARD_BYTES (one tensor at the least)."""
    shards: list[list[Placement]] = [[]]
    room = _SHARD_BYTES
    for placement in placements:
        n_bytes = 4 * math.prod(placement.shape)
        if n_bytes > room and shards[-1]:
            shards.append([])
            room = _SHARD_BYTES
        shards[-1].append(placement)
        room -= n_bytes
    return shards


def _write_weights(file: GGUF, placements: Sequence[Placement], folder: Path) -> None:
    shards = _shards(placements)
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        suffix = "" if len(shards) == 1 else f"-{number:05}-of-{len(shards):05}"
        name = f"model{suffix}.safetensors"
        weights = {p.target: _weights(file, p) for p in shard}
        try:
            save_file(weights, folder / name, metadata={"format": "pt"})
        except SafetensorError as error:
            raise MachineError(f"cannot write {folder / name}: {error}; free some space and try again") from error
        weight_map |= dict.fromkeys(weights, name)
    if len(shards) > 1:
        total = sum(4 * math.prod(p.shape) for p in placements)
        write_json(
            folder / "model.safetensors.index.json",
            {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))},
        )


def _weights(file: GGUF, placement: Placement) -> Float32[np.ndarray, "..."]:
    values = tensor_values(file, placement.name)
    if placement.interleaved_heads:
        values = rows_in_order(values, placement.interleaved_heads)
    return np.ascontiguousarray(values)


def _model_card(file: GGUF, parameters: int, source: Mapping[str, Any]) -> str:
    licence = find(file, "general.license", str)
    name = one_line(find(file, "general.name", str) or file.path.stem)
    kinds = Counter(t.quant.name for t in file.tensors.values())
    stored = ", ".join(f"{kind} in {n} tensors" for kind, n in kinds.most_common())
    lines = [] if licence is None else ["---", f"license: {json.dumps(one_line(licence))}", "---", ""]
    lines += [
        f"# {name}",
        "",
        f"{parameters:,} parameters, converted by Vestige from a GGUF file. The weights are the values of "
        f"its blocks ({stored}), not those from which it was quantised.",
        "",
        "```json",
        json.dumps(dict(source), indent=2),
        "```",
    ]
    return "\n".join(lines) + "\n"
