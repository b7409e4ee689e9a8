"""From a GGUF file to a Hugging Face folder that transformers loads without a network.

Weights are written as float32, though that takes four times the room of a Q8_0 file: float32 holds the
dequantised values exactly, and bfloat16 or float16 do not (a Q4_1 weight is scale x code + minimum, with a
float16 scale and minimum). So the folder computes what the file does, and training starts from full-precision
weights.

A folder is made whole or not at all, and is done when it holds identity.json: what it was made of, and by
which version of the conversion.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32
from safetensors import SafetensorError
from safetensors.numpy import save_file
from transformers import GenerationConfig, PreTrainedTokenizerFast

from vestige.core.errors import InputError, MachineError
from vestige.core.files import locked, new_folder, write_json, write_text
from vestige.core.ids import content_id, file_digest
from vestige.core.text import one_line
from vestige.models.cache import cache_folder, check_room
from vestige.models.gguf import GGUF, find, read_gguf, tensor_values
from vestige.models.gguf_architectures import Architecture, Placement, Shape, architecture_of, placements_of, shape_of
from vestige.models.gguf_tokenizer import build_tokenizer, special_ids

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
    shape: Shape
    placements: list[Placement]
    tokenizer: PreTrainedTokenizerFast


def planned_conversion(path: Path) -> Planned:
    """What would be converted; refused in a sentence if it cannot be. No weights are read."""
    file = read_gguf(path)
    architecture = architecture_of(file)
    shape = shape_of(file, architecture)
    placements = placements_of(file, architecture, shape)
    return Planned(file, architecture, shape, placements, build_tokenizer(file, context_tokens=shape.context_tokens))


def convert_gguf(path: Path, folder: Path, *, source: Mapping[str, Any]) -> None:
    """Fill `folder`, which exists, with the model in the file; `source` goes into its identity."""
    plan = planned_conversion(path)
    file, placements = plan.file, plan.placements
    special = special_ids(file, plan.shape.vocabulary)
    config = plan.architecture.config(plan.shape, special)

    parameters = sum(math.prod(p.shape) for p in placements)
    check_room(folder, 4 * parameters + _SPARE_BYTES)
    config.save_pretrained(folder)
    GenerationConfig(bos_token_id=special.bos, eos_token_id=special.eos, pad_token_id=special.pad).save_pretrained(
        folder
    )
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
