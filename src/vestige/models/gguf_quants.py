"""From GGUF's blocks of quantised weights to float32: each block type's layout and its formula.

A block holds 32 or 256 neighbouring weights of one row. Formulas and layouts are those of ggml-quants.c of
llama.cpp (https://github.com/ggml-org/llama.cpp); all arithmetic is float32, in its order, so the values are
bit for bit those of its reference. Axes: N blocks, W weights of a block.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Shaped, UInt8

_NIBBLES = np.array([[0], [4]], dtype=np.uint8)
# Blocks expanded at once: temporaries stay within a few megabytes, however large the tensor.
_CHUNK = 1 << 14

Blocks = Shaped[np.ndarray, " N"]
Values = Float32[np.ndarray, "N W"]


@dataclass(frozen=True)
class Quant:
    """One way of storing weights: `layout` names a block's fields, `expand` turns blocks into weights."""

    name: str
    weights: int
    layout: np.dtype[np.void]
    expand: Callable[[Blocks], Values]


def dequantise(raw: UInt8[np.ndarray, " B"], quant: Quant) -> Float32[np.ndarray, " M"]:
    """All weights in `raw`, which holds whole blocks. From a scale that is not finite come weights as bad."""
    blocks = raw.view(quant.layout)
    values = np.empty((len(blocks), quant.weights), dtype=np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, len(blocks), _CHUNK):
            values[start : start + _CHUNK] = quant.expand(blocks[start : start + _CHUNK])
    return values.reshape(-1)


def _scale(field: Shaped[np.ndarray, " N"]) -> Float32[np.ndarray, "N 1"]:
    return field.astype(np.float32)[:, None]


def _nibbles(packed: UInt8[np.ndarray, "... P"]) -> UInt8[np.ndarray, "... Q"]:
    """The low four bits of all P bytes, then the high four."""
    halves = packed[..., None, :] >> _NIBBLES & 0x0F
    return halves.reshape(*packed.shape[:-1], -1)


def _f32(blocks: Blocks) -> Values:
    values: Values = blocks["x"].astype(np.float32)[:, None]
    return values


def _bf16(blocks: Blocks) -> Values:
    """The upper half of a float32."""
    values: Values = (blocks["x"].astype(np.uint32) << 16).view(np.float32)[:, None]
    return values


def _q4_0(blocks: Blocks) -> Values:
    """The weight is d (q - 8), q in 0..15."""
    values: Values = _scale(blocks["d"]) * (_nibbles(blocks["q"]).astype(np.float32) - 8)
    return values


def _q4_1(blocks: Blocks) -> Values:
    """The weight is d q + m, q in 0..15."""
    values: Values = _scale(blocks["d"]) * _nibbles(blocks["q"]).astype(np.float32) + _scale(blocks["m"])
    return values


def _five_bits(blocks: Blocks) -> Float32[np.ndarray, "N 32"]:
    """Four low bits from `q`; weight i's fifth bit is bit i of `high`."""
    fifth = np.unpackbits(blocks["high"], axis=-1, bitorder="little")
    codes: Float32[np.ndarray, "N 32"] = (_nibbles(blocks["q"]) | fifth << 4).astype(np.float32)
    return codes


def _q5_0(blocks: Blocks) -> Values:
    """The weight is d (q - 16), q in 0..31."""
    values: Values = _scale(blocks["d"]) * (_five_bits(blocks) - 16)
    return values


def _q5_1(blocks: Blocks) -> Values:
    """The weight is d q + m, q in 0..31."""
    values: Values = _scale(blocks["d"]) * _five_bits(blocks) + _scale(blocks["m"])
    return values


def _q8_0(blocks: Blocks) -> Values:
    """The weight is d q, q in -128..127."""
    values: Values = _scale(blocks["d"]) * blocks["q"].astype(np.float32)
    return values


def _six_bit_scales(
    packed: UInt8[np.ndarray, "N 12"],
) -> tuple[UInt8[np.ndarray, "N 8"], UInt8[np.ndarray, "N 8"]]:
    """Eight scales and eight minima of six bits each.

    Bytes 0-3 and 4-7 hold scales 0-3 and minima 0-3 in their low six bits. Byte 8 + j holds the low four bits
    of scale 4 + j (low nibble) and minimum 4 + j (high nibble), whose upper two bits top bytes j and 4 + j.
    """
    first, second, rest = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 0x3F, rest & 0x0F | first >> 2 & 0x30], axis=-1)
    minima = np.concatenate([second & 0x3F, rest >> 4 | second >> 2 & 0x30], axis=-1)
    return scales, minima


def _eight_groups(blocks: Blocks, q: UInt8[np.ndarray, "N 8 32"]) -> Values:
    """The weight is (d s_g) q - (dmin m_g) in group g of 32."""
    scales, minima = _six_bit_scales(blocks["scales"])
    step = (_scale(blocks["d"]) * scales.astype(np.float32))[:, :, None]
    low = (_scale(blocks["dmin"]) * minima.astype(np.float32))[:, :, None]
    values: Values = (step * q.astype(np.float32) - low).reshape(-1, 256)
    return values


def _q4_k(blocks: Blocks) -> Values:
    """Groups 2c and 2c + 1 are the low and high nibbles of the c-th 32 bytes."""
    return _eight_groups(blocks, _nibbles(blocks["q"].reshape(-1, 4, 32)).reshape(-1, 8, 32))


def _q5_k(blocks: Blocks) -> Values:
    """As Q4_K; bit g of `high[i]` is the fifth bit of weight i of group g."""
    four = _nibbles(blocks["q"].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    fifth = blocks["high"][:, None, :] >> np.arange(8, dtype=np.uint8)[:, None] & 1
    return _eight_groups(blocks, four | fifth << 4)


def _q6_k(blocks: Blocks) -> Values:
    """The weight is (d s_k) (q - 32) in group k of 16 weights; scales are signed bytes.

    Each half of 128 weights is four runs of 32: runs 0 and 1 are the low nibbles of its 64 bytes of `low`,
    runs 2 and 3 the high ones; bits 2r and 2r + 1 of its 32 bytes of `high` are the upper two bits of run r.
    """
    four = _nibbles(blocks["low"].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]
    two = blocks["high"].reshape(-1, 2, 1, 32) >> shifts & 3
    q = (four | two << 4).astype(np.float32).reshape(-1, 16, 16) - 32
    step = _scale(blocks["d"]) * blocks["scales"].astype(np.float32)
    values: Values = (step[:, :, None] * q).reshape(-1, 256)
    return values


def _quant(name: str, weights: int, expand: Callable[[Blocks], Values], *fields: tuple[str, str, int]) -> Quant:
    layout = np.dtype([(field, kind) if n == 1 else (field, kind, (n,)) for field, kind, n in fields])
    return Quant(name, weights, layout, expand)


# By the number that stands for the type in a file (enum ggml_type).
QUANTS = {
    0: _quant("F32", 1, _f32, ("x", "<f4", 1)),
    1: _quant("F16", 1, _f32, ("x", "<f2", 1)),
    2: _quant("Q4_0", 32, _q4_0, ("d", "<f2", 1), ("q", "u1", 16)),
    3: _quant("Q4_1", 32, _q4_1, ("d", "<f2", 1), ("m", "<f2", 1), ("q", "u1", 16)),
    6: _quant("Q5_0", 32, _q5_0, ("d", "<f2", 1), ("high", "u1", 4), ("q", "u1", 16)),
    7: _quant("Q5_1", 32, _q5_1, ("d", "<f2", 1), ("m", "<f2", 1), ("high", "u1", 4), ("q", "u1", 16)),
    8: _quant("Q8_0", 32, _q8_0, ("d", "<f2", 1), ("q", "i1", 32)),
    12: _quant("Q4_K", 256, _q4_k, ("d", "<f2", 1), ("dmin", "<f2", 1), ("scales", "u1", 12), ("q", "u1", 128)),
    13: _quant(
        "Q5_K",
        256,
        _q5_k,
        ("d", "<f2", 1),
        ("dmin", "<f2", 1),
        ("scales", "u1", 12),
        ("high", "u1", 32),
        ("q", "u1", 128),
    ),
    14: _quant("Q6_K", 256, _q6_k, ("low", "u1", 128), ("high", "u1", 64), ("scales", "i1", 16), ("d", "<f2", 1)),
    30: _quant("BF16", 1, _bf16, ("x", "<u2", 1)),
}

# Types that are refused, so that the refusal can say which it met.
OTHER_TYPES = {
    9: "Q8_1",
    10: "Q2_K",
    11: "Q3_K",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
    40: "NVFP4",
}
