"""The reader of GGUF files: what it reads, and what it refuses."""

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from gguf_writer import F32, Q4_1, Stored, f32, gguf_bytes, string, value, write_gguf

from vestige.core.errors import InputError
from vestige.models.gguf import find, need, read_gguf, tensor_values

METADATA = {
    "general.architecture": "llama",
    "a.number": 7,
    "a.float": 0.5,
    "a.truth": True,
    "some.strings": ["a", "Ġb", ""],
    "some.numbers": [3, -1, 2],
    "a.long": struct.pack("<IQ", 10, 2**40),
}
TENSORS = {
    "matrix": f32(np.arange(12, dtype=np.float32).reshape(3, 4)),
    "vector": f32(np.array([1.5, -2.5], dtype=np.float32)),
}
VALID = gguf_bytes(METADATA, TENSORS)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "model.gguf", METADATA, TENSORS)


def test_metadata_comes_back_with_its_types(file: Path):
    got = read_gguf(file)
    assert need(got, "general.architecture", str) == "llama"
    assert need(got, "a.number", int) == 7
    assert need(got, "a.float", float) == 0.5
    assert need(got, "a.truth", bool) is True
    assert need(got, "a.long", int) == 2**40
    assert need(got, "some.strings", list) == ["a", "Ġb", ""]
    np.testing.assert_array_equal(got.metadata["some.numbers"], [3, -1, 2])
    assert find(got, "not.there", int) is None


def test_a_truth_value_is_no_number_and_a_number_no_truth_value(file: Path):
    got = read_gguf(file)
    with pytest.raises(InputError, match=r"'a.truth' is a bool, and must be a int"):
        need(got, "a.truth", int)
    with pytest.raises(InputError, match=r"'a.number' is a int, and must be a bool"):
        find(got, "a.number", bool)
    with pytest.raises(InputError, match=r"no metadata entry 'not.there'"):
        need(got, "not.there", int)


def test_tensors_come_back_in_numpys_order(file: Path):
    got = read_gguf(file)
    assert list(got.tensors) == ["matrix", "vector"]
    # Rows of four, as they were written: GGUF itself lists the shape as 4, 3.
    np.testing.assert_array_equal(tensor_values(got, "matrix"), [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]])
    assert tensor_values(got, "vector").dtype == np.float32


@pytest.mark.parametrize("alignment", [1, 8, 64])
def test_the_files_own_alignment_is_kept(tmp_path: Path, alignment: int):
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes(METADATA | {"general.alignment": alignment}, TENSORS, alignment=alignment))
    np.testing.assert_array_equal(tensor_values(read_gguf(path), "vector"), [1.5, -2.5])


def test_quantised_rows_are_read_by_the_formula_of_their_blocks(tmp_path: Path):
    # Q4_1: the weight is d q + m; weight 1 of a block is the low nibble of byte 1, weight 17 its high one.
    rows = [struct.pack("<ee", d, -1) + bytes([0, 0x3A]) + bytes(14) for d in (0.5, 2)]
    path = write_gguf(tmp_path / "model.gguf", {}, {"w": Stored([2, 32], Q4_1, b"".join(rows))})
    values = tensor_values(read_gguf(path), "w")
    assert values.dtype == np.float32
    assert values[:, [0, 1, 17]].tolist() == [[-1, 4, 0.5], [-1, 19, 5]]


def one_tensor(shape: list[int], kind: int, content: bytes, offset: int = 0) -> bytes:
    return gguf_bytes({}, {"w": Stored(shape, kind, content, offset=offset)})


def header(n_tensors: int, n_entries: int, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, n_tensors, n_entries) + rest


# Byte 24 is the first after magic, version and the two counts.
REFUSED = {
    "empty": (b"", "byte 0: not a GGUF file: it is empty"),
    "magic": (b"GGML" + bytes(40), "byte 0: not a GGUF file: it starts with b'GGML'"),
    "short": (b"GG", "byte 0: the magic number would take 4 bytes, and 2 are left"),
    "version": (gguf_bytes({}, {}, version=1), "byte 4: the file is of version 1"),
    "big-endian": (b"GGUF" + struct.pack(">I", 3) + bytes(16), "byte 4: the file is big-endian"),
    "entries": (
        header(0, 2**60),
        f"byte 24: {2**60} metadata entries would take {13 * 2**60} bytes, and 0 are left",
    ),
    "tensors": (header(2**60, 0), "byte 16: .* tensors would take"),
    "key": (header(0, 1, struct.pack("<Q", 2**63) + bytes(16)), "byte 32: a metadata key would take"),
    # A key "k", then a string of 2**40 bytes: 24 + 9 + 4 + 8 = 45.
    "string": (
        header(0, 1, string("k") + struct.pack("<IQ", 8, 2**40)),
        "byte 45: the value of 'k' would take",
    ),
    "array": (
        header(0, 1, string("k") + struct.pack("<IIQ", 9, 4, 2**61)),
        "byte 49: .* values of 'k' would take",
    ),
    "strings": (
        header(0, 1, string("k") + struct.pack("<IIQ", 9, 8, 2**50)),
        "byte 49: .* strings of 'k' would",
    ),
    "nested": (
        header(0, 1, string("k") + struct.pack("<IIQ", 9, 9, 0)),
        "byte 49: the values of 'k' are of type 9",
    ),
    "type": (header(0, 1, string("k") + struct.pack("<I", 13)), "byte 37: the values of 'k' are of type 13"),
    "truth": (
        header(0, 1, string("k") + struct.pack("<IB", 7, 2)),
        "'k' is a truth value that is neither 0 nor 1",
    ),
    # The key's first byte is at 32.
    "utf-8": (
        header(0, 1, struct.pack("<Q", 1) + b"\xff" + bytes(16)),
        "byte 32: a metadata key is not UTF-8",
    ),
    "twice": (header(0, 2, 2 * (string("k") + value(1))), "byte 50: metadata entry 'k' comes twice"),
    "alignment": (
        gguf_bytes({"general.alignment": 3}, {}),
        "general.alignment is 3, and must be a power of two",
    ),
    "aligned": (gguf_bytes({"general.alignment": "8"}, {}), "general.alignment is '8'"),
    "dimensions": (one_tensor([1] * 5, F32, bytes(4)), "tensor 'w' has 5 dimensions"),
    "no dimension": (one_tensor([], F32, bytes(64)), "tensor 'w' has 0 dimensions"),
    "no rows": (one_tensor([0, 4], F32, b""), r"tensor 'w' of F32 has the shape \[4, 0\]"),
    "half a block": (one_tensor([1, 48], Q4_1, bytes(30)), r"tensor 'w' of Q4_1 has the shape \[48, 1\]"),
    "overflow": (one_tensor([2**62, 2**62], F32, bytes(64)), "tensor 'w' would take"),
    "past the end": (
        one_tensor([4], F32, bytes(16), offset=32),
        "byte 96: tensor 'w' would take 16 bytes, and 0 are",
    ),
    "cut short": (VALID[:-1], "tensor 'vector' would take 8 bytes, and 7 are left"),
    "unaligned": (one_tensor([4], F32, bytes(64), offset=4), "lies at offset 4, which is no multiple of 32"),
    "overlap": (
        gguf_bytes({}, {"a": Stored([16], F32, bytes(64)), "b": Stored([8], F32, b"", offset=32)}),
        "tensor 'b' starts inside another one",
    ),
    "known type": (
        one_tensor([256], 16, bytes(66)),
        "tensor 'w' is stored as IQ2_XXS, and only F32, F16, .*Q8_0",
    ),
    "unknown type": (one_tensor([256], 4, bytes(66)), "tensor 'w' is stored as type 4"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_damaged_file_is_refused_with_its_name_and_the_place(tmp_path: Path, case: str):
    content, message = REFUSED[case]
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as refusal:
        read_gguf(path)
    assert str(path) in str(refusal.value)


def test_tensors_of_one_name_are_refused(tmp_path: Path):
    path = tmp_path / "bad.gguf"
    path.write_bytes(gguf_bytes({}, {"a": Stored([8], F32, bytes(32)), "b": Stored([8], F32, bytes(32))}))
    path.write_bytes(path.read_bytes().replace(string("b"), string("a")))
    with pytest.raises(InputError, match="tensor 'a' comes twice"):
        read_gguf(path)


def test_a_lying_header_costs_no_memory(tmp_path: Path):
    lies = [REFUSED[case][0] for case in ("entries", "tensors", "string", "array", "strings", "overflow")]
    path = tmp_path / "bad.gguf"
    tracemalloc.start()
    try:
        for lie in lies:
            path.write_bytes(lie)
            with pytest.raises(InputError):
                read_gguf(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_weights_that_are_not_finite_are_refused(tmp_path: Path):
    path = write_gguf(tmp_path / "nan.gguf", {}, {"w": f32(np.array([1, np.nan], dtype=np.float32))})
    with pytest.raises(InputError, match="tensor 'w' holds weights that are not finite"):
        tensor_values(read_gguf(path), "w")
    # A block whose scale is infinite: infinity times code 0 is not a number, and no warning is let out.
    block = struct.pack("<ee", np.inf, 0) + bytes(16)
    path = write_gguf(tmp_path / "inf.gguf", {}, {"w": Stored([32], Q4_1, block)})
    with pytest.raises(InputError, match="not finite"):
        tensor_values(read_gguf(path), "w")


def test_what_is_no_file_is_refused(tmp_path: Path):
    for path in (tmp_path, tmp_path / "absent.gguf"):
        with pytest.raises(InputError, match="no GGUF file at"):
            read_gguf(path)


def test_a_message_shows_no_control_characters_out_of_the_file(tmp_path: Path):
    path = write_gguf(tmp_path / "bad.gguf", {}, {"\x1b[31m\u202ered": Stored([1] * 5, F32, bytes(4))})
    with pytest.raises(InputError) as refusal:
        read_gguf(path)
    assert "\x1b" not in str(refusal.value)
    assert "\u202e" not in str(refusal.value)


@pytest.mark.parametrize("length", range(0, len(VALID), 7))
def test_every_cut_is_refused(tmp_path: Path, length: int):
    path = tmp_path / "cut.gguf"
    path.write_bytes(VALID[:length])
    with pytest.raises(InputError):
        read_gguf(path)
