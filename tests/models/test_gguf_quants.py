"""Each block type by hand, and against the loops of ggml-quants.c written out weight by weight."""

import struct
from collections.abc import Callable

import numpy as np
import pytest

from vestige.models.gguf_quants import QUANTS, dequantise

BY_NAME = {quant.name: quant for quant in QUANTS.values()}


def weights(name: str, *blocks: bytes) -> np.ndarray:
    return dequantise(np.frombuffer(b"".join(blocks), dtype=np.uint8), BY_NAME[name])


def half(x: float) -> bytes:
    return struct.pack("<e", x)


def test_plain_floats_are_read_as_they_are():
    assert weights("F32", struct.pack("<2f", 1.5, -0.25)).tolist() == [1.5, -0.25]
    assert weights("F16", half(1.5), half(-0.25)).tolist() == [1.5, -0.25]
    # bfloat16 is the upper half of a float32: 0x3FC0 = 1.5, 0xBE80 = -0.25.
    assert weights("BF16", struct.pack("<2H", 0x3FC0, 0xBE80)).tolist() == [1.5, -0.25]


def test_q4_0_by_hand():
    # Byte 0 is 0x2F: weight 0 is code 15, weight 16 code 2. d = 0.5: 0.5 (15 - 8) = 3.5, 0.5 (2 - 8) = -3.
    got = weights("Q4_0", half(0.5) + bytes([0x2F]) + bytes([0x88]) * 15)
    assert got.shape == (32,)
    assert (got[0], got[16]) == (3.5, -3.0)
    # All other codes are 8, and so 0.
    assert np.count_nonzero(got) == 2


def test_q4_1_by_hand():
    # d = 0.5, m = -1; byte 1 is 0x3A: weight 1 is code 10, weight 17 code 3: 0.5 10 - 1 = 4, 0.5 3 - 1 = 0.5.
    got = weights("Q4_1", half(0.5) + half(-1) + bytes([0, 0x3A]) + bytes(14))
    assert (got[1], got[17]) == (4.0, 0.5)
    # Code 0 is the minimum.
    assert (np.delete(got, [1, 17]) == -1).all()


def test_q5_0_by_hand():
    # Bits 0 and 17 of the high word are set; byte 0 is 0x10: weight 0 is 0 + 16 = 16, weight 16 is 1, weight
    # 17 is 16. d = 2: 2 (16 - 16) = 0, 2 (1 - 16) = -30, 2 (16 - 16) = 0, and any other 2 (0 - 16) = -32.
    got = weights("Q5_0", half(2) + struct.pack("<I", 1 | 1 << 17) + bytes([0x10]) + bytes(15))
    assert (got[0], got[16], got[17]) == (0.0, -30.0, 0.0)
    assert (np.delete(got, [0, 16, 17]) == -32).all()


def test_q5_1_by_hand():
    # As above with d = 2, m = 3: 2 x 16 + 3 = 35, 2 x 1 + 3 = 5, 35, and 3 elsewhere.
    got = weights("Q5_1", half(2) + half(3) + struct.pack("<I", 1 | 1 << 17) + bytes([0x10]) + bytes(15))
    assert (got[0], got[16], got[17]) == (35.0, 5.0, 35.0)
    assert (np.delete(got, [0, 16, 17]) == 3).all()


def test_q8_0_by_hand():
    got = weights("Q8_0", half(0.5) + struct.pack("<32b", -128, 127, *range(30)))
    assert got[:4].tolist() == [-64.0, 63.5, 0.0, 0.5]


def test_q4_k_by_hand():
    # Group 0: scale byte 0 is 3, minimum byte 4 is 5. Group 5 (j = 1 of the upper four): byte 9 is 0x42, so
    # the low four bits of its scale are 2 and of its minimum 4; the top bits of bytes 1 (0x80 -> 0x20) and 5
    # (0x40 -> 0x10) make scale 34 and minimum 20. d = 1, dmin = 0.5.
    scales = bytes([3, 0x80, 0, 0, 5, 0x40, 0, 0, 0, 0x42, 0, 0])
    # Group 0 is the low nibbles of bytes 0-31, group 5 the high nibbles of bytes 64-95.
    codes = bytearray(128)
    codes[1] = 0x07
    codes[64 + 2] = 0x90
    got = weights("Q4_K", half(1) + half(0.5) + scales + bytes(codes))
    assert got[1] == 3 * 7 - 0.5 * 5
    assert got[0] == -0.5 * 5
    assert got[5 * 32 + 2] == 34 * 9 - 0.5 * 20
    assert got[5 * 32] == -0.5 * 20


def test_q5_k_by_hand():
    # Group 3 (high nibbles of bytes 32-63): scale 2, minimum 1. Weight 4 has code 6 and its fifth bit, bit 3
    # of high[4]: 6 + 16 = 22. d = 1, dmin = 1: 2 x 22 - 1 = 43. Weight 5 has code 6 alone: 2 x 6 - 1 = 11.
    scales = bytes([0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0])
    high, codes = bytearray(32), bytearray(128)
    high[4] = 1 << 3
    codes[32 + 4] = codes[32 + 5] = 0x60
    got = weights("Q5_K", half(1) + half(1) + scales + bytes(high) + bytes(codes))
    assert (got[3 * 32 + 4], got[3 * 32 + 5]) == (43.0, 11.0)


def test_q6_k_by_hand():
    # Weight 128 + 32 + 20 = 180: second half, run 1, so the low nibble of low[64 + 32 + 20], bits 2-3 of
    # high[32 + 20], and scale 8 + 2 + 1 = 11 (its run's second sixteen). Code 5 + 2 x 16 = 37, scale -3,
    # d = 0.5: 0.5 x -3 x (37 - 32) = -7.5.
    low, high, scales = bytearray(128), bytearray(64), np.zeros(16, dtype=np.int8)
    low[64 + 32 + 20] = 0x05
    high[32 + 20] = 2 << 2
    scales[11] = -3
    got = weights("Q6_K", bytes(low) + bytes(high) + scales.tobytes() + half(0.5))
    assert got[180] == -7.5
    # A neighbour of code 0: 0.5 x -3 x (0 - 32) = 48.
    assert got[181] == 48.0


def scale_min(j: int, q: bytes) -> tuple[int, int]:
    """get_scale_min_k4 of ggml-quants.c."""
    if j < 4:
        return q[j] & 63, q[j + 4] & 63
    return (q[j + 4] & 0xF) | ((q[j - 4] >> 6) << 4), (q[j + 4] >> 4) | ((q[j] >> 6) << 4)


def loop_q4_k(b: bytes) -> list[float]:
    d, dmin, scales, q = *struct.unpack("<ee", b[:4]), b[4:16], b[16:]
    y, group = [], 0
    for start in range(0, 128, 32):
        for shift in (0, 4):
            s, m = scale_min(group, scales)
            y += [np.float32(d * s) * (q[start + i] >> shift & 0xF) - np.float32(dmin * m) for i in range(32)]
            group += 1
    return y


def loop_q5_k(b: bytes) -> list[float]:
    d, dmin, scales, qh, q = *struct.unpack("<ee", b[:4]), b[4:16], b[16:48], b[48:]
    y, group = [], 0
    for start in range(0, 128, 32):
        for shift in (0, 4):
            s, m = scale_min(group, scales)
            for i in range(32):
                code = (q[start + i] >> shift & 0xF) + (16 if qh[i] & 1 << group else 0)
                y.append(np.float32(d * s) * code - np.float32(dmin * m))
            group += 1
    return y


def loop_q6_k(b: bytes) -> list[float]:
    ql, qh, sc, d = b[:128], b[128:192], struct.unpack("<16b", b[192:208]), struct.unpack("<e", b[208:])[0]
    y = np.zeros(256, dtype=np.float32)
    for n in range(2):
        for i in range(32):
            low, high, s = ql[64 * n :], qh[32 * n :], sc[8 * n + i // 16 :]
            codes = (
                (low[i] & 0xF) | (high[i] >> 0 & 3) << 4,
                (low[i + 32] & 0xF) | (high[i] >> 2 & 3) << 4,
                (low[i] >> 4) | (high[i] >> 4 & 3) << 4,
                (low[i + 32] >> 4) | (high[i] >> 6 & 3) << 4,
            )
            for run, code in enumerate(codes):
                y[128 * n + 32 * run + i] = np.float32(d * s[2 * run]) * (code - 32)
    return y.tolist()


def loop_q5_1(b: bytes) -> list[float]:
    d, m, qh, q = *struct.unpack("<eeI", b[:8]), b[8:]
    low = [np.float32(d) * ((q[j] & 0xF) | (qh >> j & 1) << 4) + np.float32(m) for j in range(16)]
    high = [np.float32(d) * ((q[j] >> 4) | (qh >> (j + 16) & 1) << 4) + np.float32(m) for j in range(16)]
    return low + high


@pytest.mark.parametrize(
    ("name", "scales", "loop"),
    [
        ("Q4_K", (0, 2), loop_q4_k),
        ("Q5_K", (0, 2), loop_q5_k),
        ("Q6_K", (208,), loop_q6_k),
        ("Q5_1", (0, 2), loop_q5_1),
    ],
)
def test_random_blocks_equal_the_loops_of_ggml_bit_for_bit(
    name: str, scales: tuple[int, ...], loop: Callable[[bytes], list[float]]
):
    random = np.random.default_rng(7)
    quant = BY_NAME[name]
    blocks = random.integers(0, 256, size=(20, quant.layout.itemsize), dtype=np.uint8)
    for place in scales:
        blocks[:, place : place + 2] = random.normal(size=(20, 1)).astype("<f2").view(np.uint8)
    expected = np.array([loop(block.tobytes()) for block in blocks], dtype=np.float32)
    np.testing.assert_array_equal(dequantise(blocks.reshape(-1), quant), expected.reshape(-1))


def test_chunks_do_not_show():
    # 40,000 blocks are expanded in three chunks; each block's code is its index modulo 100.
    codes = np.arange(40_000) % 100
    raw = np.zeros((40_000, 34), dtype=np.uint8)
    raw[:, :2] = np.frombuffer(half(1), dtype=np.uint8)
    raw[:, 2:] = codes[:, None]
    got = dequantise(raw.reshape(-1), BY_NAME["Q8_0"]).reshape(40_000, 32)
    np.testing.assert_array_equal(got, np.repeat(codes[:, None], 32, axis=1))


def test_block_sizes_are_those_of_the_format():
    assert {q.name: (q.weights, q.layout.itemsize) for q in QUANTS.values()} == {
        "F32": (1, 4),
        "F16": (1, 2),
        "BF16": (1, 2),
        "Q4_0": (32, 18),
        "Q4_1": (32, 20),
        "Q5_0": (32, 22),
        "Q5_1": (32, 24),
        "Q8_0": (32, 34),
        "Q4_K": (256, 144),
        "Q5_K": (256, 176),
        "Q6_K": (256, 210),
    }
