"""Tokenisers rebuilt from a GGUF file's metadata."""

import json
from pathlib import Path
from typing import Any

import pytest
from gguf_writer import write_gguf
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Tokenizer

from vestige.core.errors import InputError
from vestige.models.gguf import build_tokenizer, read_gguf

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# "Ċ" stands for the byte of a line break, "Ġ" for that of a space.
MERGES = ["Ċ Ċ", "Ġ Ġ", "1 2", "Ġ 1", "a b"]
CHAT = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def metadata(**changes: Any) -> dict[str, Any]:
    tokens = [*SPECIAL, *ALPHABET, *(merge.replace(" ", "") for merge in MERGES)]
    base = {
        "model": "gpt2",
        "pre": "smollm",
        "tokens": tokens,
        "token_type": [3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)),
        "merges": MERGES,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "padding_token_id": 2,
        "unknown_token_id": 0,
        "add_bos_token": False,
    }
    entries = {f"tokenizer.ggml.{key}": content for key, content in (base | changes).items() if content is not None}
    return entries | {"tokenizer.chat_template": CHAT}


def build(folder: Path, **changes: Any) -> PreTrainedTokenizerFast:
    return build_tokenizer(read_gguf(write_gguf(folder / "t.gguf", metadata(**changes), {})), context_tokens=64)


def test_smollm_cuts_digits_off_first_and_gpt2_does_not(tmp_path: Path):
    # With the digit cut off, "\n\n" stands alone and is one token. Without, GPT-2's `\s+(?!\S)` leaves the
    # second line break to a piece of its own.
    assert build(tmp_path).tokenize("\n\n5") == ["ĊĊ", "5"]
    assert build(tmp_path, pre="gpt-2").tokenize("\n\n5") == ["Ċ", "Ċ", "5"]
    # Digits stand alone, though "12" and " 1" are tokens; without the cut, "12" is merged before " 1".
    assert build(tmp_path).tokenize("ab 12") == ["ab", "Ġ", "1", "2"]
    assert build(tmp_path, pre="gpt-2").tokenize("ab 12") == ["ab", "Ġ", "12"]
    # Two spaces before a digit are one token; before a word, the second space belongs to the word.
    assert build(tmp_path).tokenize("a  1") == ["a", "ĠĠ", "1"]
    assert build(tmp_path).tokenize("a  b") == ["a", "Ġ", "Ġ", "b"]


def test_qwen2_cuts_single_digits_keeps_line_breaks_together_and_composes(tmp_path: Path):
    qwen2 = build(tmp_path, pre="qwen2")
    assert qwen2.tokenize("\n\n5") == ["ĊĊ", "5"]
    assert qwen2.tokenize("12") == ["1", "2"]
    # e and a combining acute become é, the bytes C3 A9.
    assert qwen2.tokenize("e\u0301") == qwen2.tokenize("é") == ["Ã", "©"]


def test_markup_is_one_token_and_ids_are_the_files(tmp_path: Path):
    tokenizer = build(tmp_path)
    assert tokenizer.encode("<|im_start|>ab<|im_end|>") == [
        1,
        len(SPECIAL) + len(ALPHABET) + MERGES.index("a b"),
        2,
    ]
    assert tokenizer.decode([1, 2, 0], skip_special_tokens=True) == ""
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 2)
    assert tokenizer.unk_token_id == 0
    assert len(tokenizer) == len(metadata()["tokenizer.ggml.tokens"])
    assert tokenizer.model_max_length == 64


def test_user_defined_tokens_are_found_whole_and_are_not_special(tmp_path: Path):
    tokens = [*metadata()["tokenizer.ggml.tokens"], "<tool>"]
    kinds = [*metadata()["tokenizer.ggml.token_type"], 4]
    tokenizer = build(tmp_path, tokens=tokens, token_type=kinds)
    assert tokenizer.encode("<tool>") == [len(tokens) - 1]
    assert tokenizer.decode([len(tokens) - 1], skip_special_tokens=True) == "<tool>"


def test_the_chat_template_comes_along(tmp_path: Path):
    text = build(tmp_path).apply_chat_template([{"role": "user", "content": "12?"}], tokenize=False)
    assert text == "<|im_start|>user\n12?<|im_end|>\n"


def test_texts_are_wrapped_where_the_file_asks_for_it(tmp_path: Path):
    bare = build(tmp_path).encode("ab")
    assert build(tmp_path, add_bos_token=True).encode("ab") == [1, *bare]
    both = build(tmp_path, add_bos_token=True, add_eos_token=True)
    assert both.encode("ab") == [1, *bare, 2]
    assert both.encode("ab", "ab") == [1, *bare, 2, 1, *bare, 2]
    assert both.encode("ab", add_special_tokens=False) == bare
    both.save_pretrained(tmp_path / "saved")
    loaded = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert loaded.encode("ab\n\n5  12") == both.encode("ab\n\n5  12")
    assert (loaded.chat_template, loaded.pad_token_id) == (CHAT, 2)


@pytest.mark.parametrize("pre", ["smollm", "gpt-2", "qwen2"])
def test_a_trained_tokeniser_is_rebuilt_token_for_token(tmp_path: Path, pre: str):
    original = Tokenizer(models.BPE())
    cut = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pre == "smollm":
        cut = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), cut])
    if pre == "qwen2":
        cut = Qwen2Tokenizer().backend_tokenizer.pre_tokenizer
        original.normalizer = normalizers.NFC()
    original.pre_tokenizer = cut
    text = Path(__file__).read_text(encoding="utf-8")
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=SPECIAL, initial_alphabet=ALPHABET, show_progress=False
    )
    original.train_from_iterator([text], trainer)
    model = json.loads(original.to_str())["model"]
    tokens = sorted(original.get_vocab(), key=original.get_vocab().__getitem__)
    merges = [" ".join(pair) for pair in model["merges"]]
    assert len(merges) > 300
    rebuilt = build(tmp_path, pre=pre, tokens=tokens, token_type=[3] * 3 + [1] * (len(tokens) - 3), merges=merges)
    for line in [text, "\n\n5", "a  12 b\t\n 7", "x\r\n\r\n  y 3.14", "don't we'll ٣٤ Ⅷ ¾", " " * 9 + "1"]:
        assert rebuilt.encode(line) == original.encode(line).ids
        assert rebuilt.decode(rebuilt.encode(line)) == line


REFUSED = {
    "sentencepiece": ({"model": "llama"}, "its tokeniser is 'llama' with the splits 'smollm'"),
    "other splits": ({"pre": "llama-bpe"}, "'llama-bpe', and only 'gpt2' with 'gpt-2', 'qwen2', 'smollm'"),
    "no splits": ({"pre": None}, "with the splits None"),
    "no merges": ({"merges": None}, "no metadata entry 'tokenizer.ggml.merges'"),
    "merge of one": ({"merges": ["ab"]}, "merge 0 of its tokeniser, 'ab', is not made of two tokens"),
    "merge of none": ({"merges": ["x yz"]}, "merge 0 of its tokeniser, 'x yz'"),
    "merge to nothing": ({"merges": ["a c"]}, "that join to a third"),
    "no types": ({"token_type": None}, "not as many token types"),
    "few types": ({"token_type": [1, 1]}, "and not as many token types"),
    "bos": ({"bos_token_id": 9999}, "bos_token_id is 9999"),
    "bos unnamed": (
        {"bos_token_id": None, "add_bos_token": True},
        "asks for a bos token at each text and names none",
    ),
    "twice": (
        {"tokens": ["a", "a"], "token_type": [1, 1], "merges": ["a a"]},
        "an empty token or one that comes twice",
    ),
    "empty": (
        {"tokens": ["a", ""], "token_type": [1, 1], "merges": ["a a"]},
        "an empty token or one that comes twice",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_tokeniser_that_cannot_be_rebuilt_is_refused(tmp_path: Path, case: str):
    changes, message = REFUSED[case]
    with pytest.raises(InputError, match=message):
        build(tmp_path, **changes)
