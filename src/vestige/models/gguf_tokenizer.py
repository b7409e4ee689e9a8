"""From a GGUF file's metadata to a Hugging Face tokeniser: byte-level BPE with the splits of its model.

GGUF does not carry the rules by which text is cut before BPE, only their name (`tokenizer.ggml.pre`); the
rules here are those of the models' own tokenizer.json. The digit split of `smollm` matters: without it
"\\n\\n5" becomes other tokens than those that the model was trained on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from vestige.core.errors import InputError
from vestige.core.text import one_line
from vestige.models.gguf import GGUF, find, need

_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# tokenizer.ggml.token_type (enum llama_token_type): control tokens never come out of text that is not markup.
_CONTROL, _USER_DEFINED = 3, 4


@dataclass(frozen=True)
class _Rules:
    """How text is normalised and cut before BPE; None leaves it as it is."""

    normalizer: Callable[[], normalizers.Normalizer] | None
    pre_tokenizer: Callable[[], pre_tokenizers.PreTokenizer]


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _qwen2() -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(_QWEN2), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


_RULES = {
    "gpt-2": _Rules(None, _gpt2),
    "qwen2": _Rules(normalizers.NFC, _qwen2),
    "smollm": _Rules(None, lambda: pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])),
}


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
    normalizer = _RULES[rules].normalizer
    if normalizer is not None:
        backend.normalizer = normalizer()
    backend.pre_tokenizer = _RULES[rules].pre_tokenizer()
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
