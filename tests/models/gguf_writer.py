"""Writes GGUF files for tests, straight from the format's definition and sharing no code with the reader."""

import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

F32, F16, BF16, Q4_1, Q8_0 = 0, 1, 30, 3, 8


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def value(content: Any) -> bytes:
    """A metadata value behind its type: bool 7, u32 4, f32 6, string 8, array 9 of strings or of i32 5."""
    match content:
        case bool():
            return struct.pack("<IB", 7, content)
        case int():
            return struct.pack("<II", 4, content)
        case float():
            return struct.pack("<If", 6, content)
        case str():
            return struct.pack("<I", 8) + string(content)
        case [str(), *_]:
            return struct.pack("<IIQ", 9, 8, len(content)) + b"".join(string(s) for s in content)
        case list():
            return struct.pack("<IIQ", 9, 5, len(content)) + struct.pack(f"<{len(content)}i", *content)
        case bytes():
            return content
    raise TypeError(content)


class Stored:
    """A tensor as it is stored: its shape in NumPy's order, the number of its type, its bytes."""

    def __init__(self, shape: Sequence[int], kind: int, content: bytes, *, offset: int | None = None) -> None:
        self.shape, self.kind, self.content, self.offset = tuple(shape), kind, content, offset


def f32(values: np.ndarray) -> Stored:
    return Stored(values.shape, F32, values.astype("<f4").tobytes())


def gguf_bytes(
    metadata: Mapping[str, Any], tensors: Mapping[str, Stored], *, version: int = 3, alignment: int = 32
) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    head += b"".join(string(key) + value(content) for key, content in metadata.items())
    body = b""
    for name, tensor in tensors.items():
        body += b"\0" * (-len(body) % alignment)
        offset = len(body) if tensor.offset is None else tensor.offset
        head += string(name) + struct.pack("<I", len(tensor.shape))
        head += struct.pack(f"<{len(tensor.shape)}Q", *reversed(tensor.shape))
        head += struct.pack("<IQ", tensor.kind, offset)
        body += tensor.content
    return head + b"\0" * (-len(head) % alignment) + body


def write_gguf(path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, Stored]) -> Path:
    path.write_bytes(gguf_bytes(metadata, tensors))
    return path


def interleaved(rows: np.ndarray, heads: int) -> np.ndarray:
    """What `permute` of llama.cpp's convert_hf_to_gguf.py does to q and k: a head's halves, in turn."""
    out = np.empty_like(rows)
    width = len(rows) // heads
    for head in range(heads):
        for i in range(width // 2):
            out[head * width + 2 * i] = rows[head * width + i]
            out[head * width + 2 * i + 1] = rows[head * width + width // 2 + i]
    return out


def q8_0(values: np.ndarray) -> Stored:
    """Quantised as ggml's reference does: blocks of 32, d = max|w| / 127, q = round(w / d)."""
    blocks = values.reshape(-1, 32).astype(np.float32)
    d = (np.abs(blocks).max(axis=1, keepdims=True) / 127).astype("<f2")
    safe = np.where(d == 0, 1, d.astype(np.float32))
    q = np.clip(np.round(blocks / safe), -127, 127).astype("i1")
    content = np.concatenate([d.view("u1"), q.view("u1")], axis=1).tobytes()
    assert len(content) == math.prod(values.shape) // 32 * 34
    return Stored(values.shape, Q8_0, content)
