"""Reads GGUF, the one-file model format of llama.cpp: metadata, a list of tensors, and the tensors' bytes.

Layout (little-endian; https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): "GGUF", u32 version, u64
number of tensors, u64 number of metadata entries, the entries, the tensors' names, shapes, types and offsets,
then, from the next multiple of `general.alignment` on, their blocks. Strings are a u64 length and UTF-8.

A file is hostile until read: every length is held against the bytes that are left before anything is
allocated, and whatever is wrong is an InputError with the file and the byte. The package `gguf` has the formulas of the
quantised blocks; its reader trusts the file, so it is not used.

From a GGUF file's metadata to a Hugging Face tokeniser: byte-level BPE with the splits of its model.

GGUF does not carry the rules by which text is cut before BPE, only their name (`tokenizer.ggml.pre`); the
rules here are those of the models' own tokenizer.json. The digit split of `smollm` matters: without it
"\n\n5" becomes other tokens than those that the model was trained on.
"""

import math
import mmap
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from jaxtyping import Float32
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from vestige.core.errors import InputError
from vestige.core.text import one_line

# Version 2 differs from 3 only in that big-endian files were not yet foreseen. Version 1 had other widths.
_VERSIONS = (2, 3)
_SCALARS: dict[int, np.dtype[Any]] = {
    0: np.dtype("u1"),
    1: np.dtype("i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("u1"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
_BOOL, _STRING, _ARRAY = 7, 8, 9
_MAX_DIMENSIONS = 4
_READABLE = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
"""The number formats in which weights are read; their formulas are bit for bit those of ggml-quants.c."""
# The least that an entry or a tensor's description can take: lengths, type, and no name at all.
_LEAST_ENTRY, _LEAST_TENSOR = 13, 32

Value = bool | int | float | str | list[str] | np.ndarray[Any, np.dtype[Any]]
T = TypeVar("T", bool, int, float, str, list[str])


@dataclass(frozen=True)
class Tensor:
    """Where a tensor lies: `shape` as NumPy orders it (rows first; GGUF writes it the other way round)."""

    name: str
    shape: tuple[int, ...]
    quant: GGMLQuantizationType
    start: int
    n_bytes: int


@dataclass(frozen=True)
class GGUF:
    """An open file: its metadata, and its tensors in the order in which it lists them."""

    path: Path
    metadata: Mapping[str, Value]
    tensors: Mapping[str, Tensor]
    data: mmap.mmap = field(repr=False)


def read_gguf(path: Path) -> GGUF:
    """Metadata and list of tensors of a GGUF file; the tensors' bytes stay on disk until asked for."""
    cursor = _Cursor(path, _map(path))
    magic = cursor.take(4, "the magic number")
    if magic != b"GGUF":
        raise InputError(f"{path}, byte 0: not a GGUF file: it starts with {magic!r} and not with b'GGUF'")
    version = cursor.number("<I", "the version")
    if version not in _VERSIONS:
        big_endian = int.from_bytes(version.to_bytes(4, "big"), "little") in _VERSIONS
        found = "big-endian" if big_endian else f"of version {version}"
        raise InputError(f"{path}, byte 4: the file is {found}; only little-endian GGUF 2 and 3 can be read")
    n_tensors = cursor.count(_LEAST_TENSOR, "tensors")
    n_entries = cursor.count(_LEAST_ENTRY, "metadata entries")
    metadata = _read_metadata(cursor, n_entries)
    tensors = _read_tensors(cursor, n_tensors, _alignment(path, metadata))
    return GGUF(path, metadata, tensors, cursor.data)


def tensor_values(file: GGUF, name: str) -> Float32[np.ndarray, "..."]:
    """A tensor's weights as float32, dequantised. NaN and infinities are refused: no model has any."""
    tensor = file.tensors[name]
    raw = np.frombuffer(file.data, dtype=np.uint8, count=tensor.n_bytes, offset=tensor.start)
    # By rows, of which the package expands a few at a time. From a scale that is not finite come weights as bad.
    with np.errstate(invalid="ignore", over="ignore"):
        values = dequantize(raw.reshape(*tensor.shape[:-1], -1), tensor.quant)
    if not np.isfinite(values).all():
        raise InputError(
            f"{file.path}, byte {tensor.start}: tensor {_shown(name)} holds weights that are not finite; "
            "the file is damaged, fetch it again"
        )
    return values


def need(file: GGUF, key: str, kind: type[T], default: T | None = None) -> T:
    """The metadata value at `key`, which must be a `kind`, and be there unless there is a default."""
    value = find(file, key, kind)
    value = default if value is None else value
    if value is None:
        raise InputError(f"{file.path}: no metadata entry {key!r}, and models need one; take a complete file")
    return value


def find(file: GGUF, key: str, kind: type[T]) -> T | None:
    """The metadata value at `key`, or None where there is none. Another type than `kind` is refused."""
    value = file.metadata.get(key)
    if value is None or type(value) is kind:
        return value
    raise InputError(f"{file.path}: metadata entry {key!r} is a {type(value).__name__}, and must be a {kind.__name__}")


def _map(path: Path) -> mmap.mmap:
    if not path.is_file():
        raise InputError(f"no GGUF file at {path}")
    try:
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise InputError(f"{path}, byte 0: not a GGUF file: it is empty")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


@dataclass
class _Cursor:
    """A place in the file that moves forward and never leaves it."""

    path: Path
    data: mmap.mmap
    at: int = 0

    def refuse(self, problem: str) -> NoReturn:
        raise InputError(f"{self.path}, byte {self.at}: {problem}; the file is damaged, fetch it again")

    def check(self, n_bytes: int, what: str) -> None:
        left = max(len(self.data) - self.at, 0)
        if n_bytes > left:
            self.refuse(f"{what} would take {n_bytes} bytes, and {left} are left")

    def take(self, n_bytes: int, what: str) -> bytes:
        self.check(n_bytes, what)
        self.at += n_bytes
        return self.data[self.at - n_bytes : self.at]

    def number(self, form: str, what: str) -> int:
        return int(struct.unpack(form, self.take(struct.calcsize(form), what))[0])

    def count(self, least: int, what: str) -> int:
        """A u64 count of things of at least `least` bytes each, refused where they cannot all be here."""
        n = self.number("<Q", f"the number of {what}")
        self.check(n * least, f"{n} {what}")
        return n

    def string(self, what: str) -> str:
        start = self.at
        content = self.take(self.number("<Q", f"the length of {what}"), what)
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            self.at = start + 8 + error.start
            self.refuse(f"{what} is not UTF-8")


def _read_metadata(cursor: _Cursor, n_entries: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for _ in range(n_entries):
        key = cursor.string("a metadata key")
        if key in metadata:
            cursor.refuse(f"metadata entry {_shown(key)} comes twice")
        metadata[key] = _read_value(cursor, cursor.number("<I", f"the type of {_shown(key)}"), _shown(key))
    return metadata


def _read_value(cursor: _Cursor, kind: int, key: str) -> Value:
    if kind == _STRING:
        return cursor.string(f"the value of {key}")
    if kind != _ARRAY:
        return _read_numbers(cursor, kind, 1, key)[0].item()  # type: ignore[no-any-return]
    kind = cursor.number("<I", f"the type of the array {key}")
    if kind == _STRING:
        n_strings = cursor.count(8, f"strings of {key}")
        return [cursor.string(f"a string of {key}") for _ in range(n_strings)]
    return _read_numbers(cursor, kind, cursor.count(1, f"values of {key}"), key)


def _read_numbers(cursor: _Cursor, kind: int, n: int, key: str) -> np.ndarray[Any, np.dtype[Any]]:
    """`n` numbers of one type, left where they lie. Arrays of arrays exist on paper only, and are refused."""
    if kind not in _SCALARS:
        cursor.refuse(f"the values of {key} are of type {kind}, which GGUF does not have or nobody writes")
    dtype = _SCALARS[kind]
    cursor.check(n * dtype.itemsize, f"{n} values of {key}")
    values = np.frombuffer(cursor.data, dtype=dtype, count=n, offset=cursor.at)
    if kind == _BOOL:
        if (values > 1).any():
            cursor.refuse(f"{key} is a truth value that is neither 0 nor 1")
        values = values.view(np.bool_)
    cursor.at += n * dtype.itemsize
    return values


def _alignment(path: Path, metadata: Mapping[str, Value]) -> int:
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise InputError(f"{path}: general.alignment is {_shown(alignment)}, and must be a power of two")
    return alignment


def _read_tensors(cursor: _Cursor, n_tensors: int, alignment: int) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for _ in range(n_tensors):
        tensor = _read_tensor(cursor, alignment)
        if tensor.name in tensors:
            cursor.refuse(f"tensor {_shown(tensor.name)} comes twice")
        tensors[tensor.name] = tensor
    start = -(-cursor.at // alignment) * alignment
    placed = {t.name: Tensor(t.name, t.shape, t.quant, start + t.start, t.n_bytes) for t in tensors.values()}
    end = start
    for tensor in sorted(placed.values(), key=lambda t: t.start):
        # Tensors that share bytes would let a small file fill a large disk.
        cursor.at = tensor.start
        if tensor.start < end:
            cursor.refuse(f"tensor {_shown(tensor.name)} starts inside another one")
        cursor.check(tensor.n_bytes, f"tensor {_shown(tensor.name)}")
        end = tensor.start + tensor.n_bytes
    return placed


def _read_tensor(cursor: _Cursor, alignment: int) -> Tensor:
    """One tensor's description; `start` is still counted from the beginning of the tensors' bytes."""
    name = cursor.string("a tensor's name")
    shown = f"tensor {_shown(name)}"
    n_dimensions = cursor.number("<I", f"the number of dimensions of {shown}")
    if not 1 <= n_dimensions <= _MAX_DIMENSIONS:
        cursor.refuse(f"{shown} has {n_dimensions} dimensions, and 1 to {_MAX_DIMENSIONS} are possible")
    sizes = [cursor.number("<Q", f"the shape of {shown}") for _ in range(n_dimensions)]
    kind = cursor.number("<I", f"the type of {shown}")
    offset = cursor.number("<Q", f"the offset of {shown}")
    name_of = {quant.value: quant.name for quant in GGMLQuantizationType}
    if name_of.get(kind) not in _READABLE:
        raise InputError(
            f"{cursor.path}: {shown} is stored as {name_of.get(kind, f'type {kind}')}, and only "
            f"{', '.join(_READABLE)} can be read; take the model as Q8_0 or its folder"
        )
    quant = GGMLQuantizationType(kind)
    block_weights, block_bytes = GGML_QUANT_SIZES[quant]
    if min(sizes) < 1 or sizes[0] % block_weights:
        cursor.refuse(f"{shown} of {quant.name} has the shape {sizes}, in which no whole blocks fit")
    if offset % alignment:
        cursor.refuse(f"{shown} lies at offset {offset}, which is no multiple of {alignment}")
    n_bytes = math.prod(sizes) // block_weights * block_bytes
    return Tensor(name, tuple(reversed(sizes)), quant, offset, n_bytes)


def _shown(value: object) -> str:
    """A name out of the file, fit for a message."""
    return one_line(repr(value))


_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# tokenizer.ggml.token_type (enum llama_token_type): control tokens never come out of text that is not markup.
_CONTROL, _USER_DEFINED = 3, 4


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _qwen2() -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(_QWEN2), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _smollm() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


_RULES = {"gpt-2": _gpt2, "qwen2": _qwen2, "smollm": _smollm}
"""How text is cut before BPE."""


@dataclass(frozen=True)
class SpecialIds:
    """Ids of the special tokens that the file names; None where it names none."""

    bos: int | None
    eos: int | None
    pad: int | None
    unknown: int | None


def special_ids(file: GGUF, n_tokens: int) -> SpecialIds:
    """The special tokens' ids, each within the vocabulary."""
    keys = ("bos_token_id", "eos_token_id", "padding_token_id", "unknown_token_id")
    ids = [find(file, f"tokenizer.ggml.{key}", int) for key in keys]
    for key, token in zip(keys, ids, strict=True):
        if token is not None and not 0 <= token < n_tokens:
            raise InputError(f"{file.path}: {key} is {token}, and the vocabulary has {n_tokens} tokens")
    return SpecialIds(*ids)


def build_tokenizer(file: GGUF, *, context_tokens: int) -> PreTrainedTokenizerFast:
    """The file's tokeniser, with its special tokens and its chat template, as Hugging Face loads it."""
    tokens = need(file, "tokenizer.ggml.tokens", list)
    backend = _byte_pairs(file, tokens)
    _add_tokens(file, backend, tokens)
    special = special_ids(file, len(tokens))
    _wrap_sequences(file, backend, special, tokens)
    names = {"bos_token": special.bos, "eos_token": special.eos, "pad_token": special.pad}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        **{name: tokens[token] for name, token in names.items() if token is not None},
        unk_token=None if special.unknown is None else tokens[special.unknown],
        chat_template=find(file, "tokenizer.chat_template", str),
        model_max_length=context_tokens,
        clean_up_tokenization_spaces=False,
    )


def _byte_pairs(file: GGUF, tokens: Sequence[str]) -> Tokenizer:
    kind = need(file, "tokenizer.ggml.model", str)
    rules = find(file, "tokenizer.ggml.pre", str)
    if kind != "gpt2" or rules not in _RULES:
        raise InputError(
            f"{file.path}: its tokeniser is {one_line(repr(kind))} with the splits {one_line(repr(rules))}, "
            f"and only 'gpt2' with {', '.join(map(repr, _RULES))} can be rebuilt; take the model's Hugging "
            "Face folder"
        )
    vocabulary = {token: i for i, token in enumerate(tokens)}
    if len(vocabulary) < len(tokens) or "" in vocabulary:
        raise InputError(f"{file.path}: its vocabulary has an empty token or one that comes twice; fetch it again")
    backend = Tokenizer(BPE(vocabulary, _merges(file, vocabulary)))
    if rules == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = _RULES[rules]()
    backend.decoder = decoders.ByteLevel()
    return backend


def _merges(file: GGUF, vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    """The pairs that BPE joins, in order of rank. Byte-level tokens hold no space, so a space parts them."""
    merges = []
    for rank, merge in enumerate(need(file, "tokenizer.ggml.merges", list)):
        left, _, right = merge.partition(" ")
        if not {left, right, left + right} <= vocabulary.keys():
            raise InputError(
                f"{file.path}: merge {rank} of its tokeniser, {one_line(repr(merge))}, is not made of two "
                "tokens that join to a third; fetch it again"
            )
        merges.append((left, right))
    return merges


def _add_tokens(file: GGUF, backend: Tokenizer, tokens: Sequence[str]) -> None:
    """Mark the tokens that are found in the text as they stand, before anything is cut."""
    kinds = file.metadata.get("tokenizer.ggml.token_type")
    if not isinstance(kinds, np.ndarray) or kinds.shape != (len(tokens),):
        raise InputError(f"{file.path}: its tokeniser has {len(tokens)} tokens and not as many token types")
    for kind, special in ((_CONTROL, True), (_USER_DEFINED, False)):
        marked = [tokens[int(i)] for i in np.flatnonzero(kinds == kind)]
        backend.add_tokens([AddedToken(t, normalized=False, special=special) for t in marked])


def _wrap_sequences(file: GGUF, backend: Tokenizer, special: SpecialIds, tokens: Sequence[str]) -> None:
    """Put BOS before and EOS behind each text where the file asks for it. Chat templates bring their own."""
    ends = {}
    for name, token in (("bos", special.bos), ("eos", special.eos)):
        if find(file, f"tokenizer.ggml.add_{name}_token", bool):
            if token is None:
                raise InputError(f"{file.path}: it asks for a {name} token at each text and names none")
            ends[name] = (tokens[token], token)
    if not ends:
        return
    first = [ends["bos"][0]] if "bos" in ends else []
    last = [ends["eos"][0]] if "eos" in ends else []
    backend.post_processor = processors.TemplateProcessing(
        single=[*first, "$A", *last],
        pair=[*first, "$A", *last, *(f"{t}:1" for t in first), "$B:1", *(f"{t}:1" for t in last)],
        special_tokens=list(ends.values()),
    )
