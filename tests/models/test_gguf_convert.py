"""From a GGUF file to a Hugging Face folder, and the cache of such folders."""

import json
import shutil
import time
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf_models import HIDDEN, INTERMEDIATE, LAYERS, TOKENS, entries, stored, tiny, tiny_gguf
from gguf_writer import Stored, f32, interleaved, q8_0, write_gguf
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast

from vestige.core.errors import InputError, MachineError
from vestige.models import gguf_convert
from vestige.models.cache import cache_folder
from vestige.models.gguf_convert import converted_folders, resolve_gguf, rows_in_order


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VESTIGE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def logits(model: PreTrainedModel) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([[1, 17, 40, 99, 3, 260, 2]])).logits


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_a_model_comes_back_bit_for_bit(tmp_path: Path, architecture: str, tied: bool):
    original = tiny(architecture, tied=tied)
    folder = resolve_gguf(tiny_gguf(tmp_path / "tiny.gguf", architecture, tied=tied))
    converted = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    assert type(converted) is type(original)
    assert converted.config.tie_word_embeddings is tied
    ours, theirs = converted.state_dict(), original.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert torch.equal(logits(converted), logits(original))


def test_llama_cpps_order_of_rows_is_undone():
    # Two heads of four rows: halves (0, 1 | 2, 3) and (4, 5 | 6, 7) are stored 0 2 1 3, 4 6 5 7.
    rows = np.arange(8, dtype=np.float32)[:, None]
    stored_rows = interleaved(rows, 2)
    assert stored_rows[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    np.testing.assert_array_equal(rows_in_order(stored_rows, 2), rows)


def test_a_quantised_model_has_the_values_of_its_blocks(tmp_path: Path):
    tensors = stored(tiny("llama", tied=True), "llama")
    embedding = np.frombuffer(tensors["token_embd.weight"].content, dtype="<f4").reshape(len(TOKENS), HIDDEN)
    tensors["token_embd.weight"] = q8_0(embedding)
    folder = resolve_gguf(write_gguf(tmp_path / "q.gguf", entries("llama"), tensors))
    got = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    # Each block of 32 is off by at most half a step of its scale, max|w| / 127, and by the rounding of the
    # scale to float16 (2^-11 of the weight). Weights never quantised would pass, so they are ruled out.
    limit = np.abs(embedding).max(axis=1, keepdims=True) * (0.5 / 127 + 2**-11)
    assert (np.abs(got - embedding) <= limit).all()
    assert not np.array_equal(got, embedding)


def test_config_and_tokeniser_say_what_the_file_says(tmp_path: Path):
    folder = resolve_gguf(tiny_gguf(tmp_path / "tiny.gguf"))
    config = json.loads((folder / "config.json").read_text())
    # The file's float32 is 9.99999974737875e-06; its shortest decimal is what the model was configured with.
    assert config["rms_norm_eps"] == 1e-5
    assert config["rope_parameters"] == {"rope_type": "default", "rope_theta": 100_000.0}
    assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (1, 2, 2)
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == 2
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.tokenize("ab\n\n5 12") == ["ab", "ĊĊ", "5", "Ġ", "1", "2"]
    card = (folder / "README.md").read_text()
    assert 'license: "apache-2.0"' in card
    assert "F32 in 20 tensors" in card


def test_identity_says_what_the_folder_was_made_of(tmp_path: Path):
    path = tiny_gguf(tmp_path / "tiny.gguf")
    identity = json.loads((resolve_gguf(path) / "identity.json").read_text())
    # Embedding, final norm; per layer two norms, q and o of 32 x 32, k and v of 16 x 32, three of 64 x 32.
    per_layer = 2 * HIDDEN + 2 * HIDDEN * HIDDEN + 2 * 16 * HIDDEN + 3 * INTERMEDIATE * HIDDEN
    assert identity["parameters"] == len(TOKENS) * HIDDEN + HIDDEN + LAYERS * per_layer
    assert identity["source"]["file"] == "tiny.gguf"
    assert len(identity["source"]["sha256"]) == 64
    assert identity["converter"] == gguf_convert.CONVERTER


def test_the_same_file_is_converted_once_and_another_one_anew(tmp_path: Path, cache: Path):
    path = tiny_gguf(tmp_path / "tiny.gguf")
    folder = resolve_gguf(path)
    (folder / "mark").touch()
    assert resolve_gguf(path) == folder
    assert (folder / "mark").exists()
    assert cache in folder.parents
    # The same bytes under another name are the same model; other bytes under the same name are not.
    assert resolve_gguf(Path(shutil.copy(path, tmp_path / "copy.gguf"))) == folder
    tiny_gguf(path, **{"general.name": "Another"})
    assert resolve_gguf(path) != folder
    assert len(converted_folders()) == 2


def test_converting_twice_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tiny_gguf(tmp_path / "tiny.gguf")
    first = resolve_gguf(path)
    monkeypatch.setenv("VESTIGE_HOME", str(tmp_path / "second"))
    second = resolve_gguf(path)
    names = {file.name for file in first.iterdir()}
    assert names == {file.name for file in second.iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "identity.json", "README.md"} <= names
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)


def test_a_large_model_comes_in_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # The embedding (263 x 32 x 4 = 33,664 bytes) is larger than a file may be and gets one of its own.
    monkeypatch.setattr(gguf_convert, "_SHARD_BYTES", 20_000)
    folder = resolve_gguf(tiny_gguf(tmp_path / "tiny.gguf"))
    shards = sorted(file.name for file in folder.glob("*.safetensors"))
    assert shards[0] == f"model-00001-of-0000{len(shards)}.safetensors"
    assert len(shards) > 2
    converted = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    assert torch.equal(logits(converted), logits(tiny("llama", tied=True)))


def test_a_full_disk_is_said_before_anything_is_written(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    path = tiny_gguf(tmp_path / "tiny.gguf")
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 10**6, 10**6))
    with pytest.raises(MachineError, match=r"has 1 MB left where .* MB are needed; .*VESTIGE_HOME"):
        resolve_gguf(path)
    assert [f for f in cache.rglob("*") if f.is_file() and f.suffix != ".lock"] == []


def test_a_failed_conversion_leaves_nothing_that_could_be_taken_for_a_model(tmp_path: Path, cache: Path):
    tensors = stored(tiny("llama", tied=True), "llama")
    tensors["blk.1.ffn_up.weight"] = f32(np.full((INTERMEDIATE, HIDDEN), np.inf, dtype=np.float32))
    path = write_gguf(tmp_path / "inf.gguf", entries("llama"), tensors)
    with pytest.raises(InputError, match=r"tensor 'blk.1.ffn_up.weight' holds weights that are not finite"):
        resolve_gguf(path)
    assert converted_folders() == []
    assert list(cache.rglob("*.safetensors")) == []


def test_two_at_once_convert_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, convert, calls = tiny_gguf(tmp_path / "tiny.gguf"), gguf_convert.convert_gguf, list[Path]()

    def slow(source_path: Path, folder: Path, *, source: Any) -> None:
        calls.append(folder)
        time.sleep(0.2)
        convert(source_path, folder, source=source)

    monkeypatch.setattr(gguf_convert, "convert_gguf", slow)
    with ThreadPoolExecutor(2) as pool:
        folders = set(pool.map(resolve_gguf, [path, path]))
    assert len(calls) == len(folders) == 1


def test_a_file_that_grows_meanwhile_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tiny_gguf(tmp_path / "tiny.gguf")
    convert = gguf_convert.convert_gguf

    def slow(source_path: Path, folder: Path, *, source: Any) -> None:
        convert(source_path, folder, source=source)
        with path.open("ab") as file:
            file.write(b"more")

    monkeypatch.setattr(gguf_convert, "convert_gguf", slow)
    with pytest.raises(InputError, match="changed while it was read"):
        resolve_gguf(path)
    assert converted_folders() == []


METADATA_REFUSED = {
    "architecture": ({"general.architecture": "mamba"}, "its architecture is 'mamba', and only llama, qwen2"),
    "no architecture": ({"general.architecture": None}, "no metadata entry 'general.architecture'"),
    "unknown entry": ({"llama.rope.scaling.factor": 8.0}, "'llama.rope.scaling.factor' asks for something"),
    "experts": ({"llama.expert_count": 8}, "'llama.expert_count' asks for something"),
    "no heads": ({"llama.attention.head_count": 0}, "llama.attention.head_count is 0"),
    "heads": (
        {"llama.attention.head_count_kv": 3},
        "4 heads of width 8, 3 of them for keys, over a width of 32",
    ),
    "many heads": ({"llama.attention.head_count": 64}, "64 heads of width 0"),
    "odd heads": ({"llama.attention.key_length": 7}, "4 heads of width 7"),
    "partial rotation": (
        {"llama.rope.dimension_count": 4},
        "llama.rope.dimension_count is 4 where 8 is expected",
    ),
    "values": ({"llama.attention.value_length": 16}, "value_length is 16 where 8 is expected"),
    "vocabulary": ({"llama.vocab_size": 5}, "llama.vocab_size is 5 where 263 is expected"),
    "layers": ({"llama.block_count": 2**31}, f"it says {2**31} layers and has 20 tensors"),
    "missing layer": ({"llama.block_count": 3}, "it has no tensor 'blk.2.attn_norm.weight'"),
    "extra layer": ({"llama.block_count": 1}, "tensor 'blk.1.attn_k.weight' has no place in a llama model"),
    "width": (
        {"llama.feed_forward_length": 63},
        r"'blk.0.ffn_gate.weight' is \(64, 32\), and must be \(63, 32\)",
    ),
    "theta": (
        {"llama.rope.freq_base": float("nan")},
        "rope.freq_base is nan, and must be positive and finite",
    ),
    "epsilon": ({"llama.attention.layer_norm_rms_epsilon": 0.0}, "rms_epsilon is 0.0"),
    "list": ({"llama.attention.head_count": [4, 4]}, "head_count' is a ndarray, and must be a int"),
    "licence": ({"general.license": 3}, "'general.license' is a int, and must be a str"),
}


@pytest.mark.parametrize("case", METADATA_REFUSED)
def test_metadata_that_make_no_known_model_are_refused(tmp_path: Path, case: str):
    changes, message = METADATA_REFUSED[case]
    with pytest.raises(InputError, match=message):
        resolve_gguf(tiny_gguf(tmp_path / "bad.gguf", **changes))
    assert converted_folders() == []


def test_a_head_width_of_its_own_is_kept_for_llama_and_refused_for_qwen2(tmp_path: Path):
    with pytest.raises(InputError, match="4 heads of width 4 do not make 32, as qwen2 must"):
        resolve_gguf(tiny_gguf(tmp_path / "q.gguf", "qwen2", **{"qwen2.attention.key_length": 4}))
    with pytest.raises(InputError, match=r"'blk.0.attn_output.weight' is \(32, 32\), and must be \(32, 16\)"):
        resolve_gguf(tiny_gguf(tmp_path / "l.gguf", "llama", **{"llama.attention.key_length": 4}))


def test_splits_that_transformers_would_replace_are_refused(tmp_path: Path):
    with pytest.raises(InputError, match="has the splits 'smollm', and transformers would load it with those"):
        resolve_gguf(tiny_gguf(tmp_path / "q.gguf", "qwen2", **{"tokenizer.ggml.pre": "smollm"}))


@pytest.mark.parametrize(
    ("architecture", "splits"),
    [("llama", "smollm"), ("llama", "qwen2"), ("llama", "gpt-2"), ("qwen2", "qwen2")],
)
def test_transformers_loads_the_splits_that_were_written(tmp_path: Path, architecture: str, splits: str):
    path = tiny_gguf(tmp_path / "t.gguf", architecture, **{"tokenizer.ggml.pre": splits})
    folder = resolve_gguf(path)
    written = PreTrainedTokenizerFast.from_pretrained(folder).backend_tokenizer
    loaded = AutoTokenizer.from_pretrained(folder).backend_tokenizer
    for part in ("normalizer", "pre_tokenizer"):
        assert json.loads(loaded.to_str())[part] == json.loads(written.to_str())[part]


def test_a_tensor_that_is_not_understood_is_refused(tmp_path: Path):
    tensors = stored(tiny("llama", tied=True), "llama")
    for name in ("rope_freqs.weight", "blk.0.attn_q.bias"):
        extra = tensors | {name: Stored([4], 0, bytes(16))}
        path = write_gguf(tmp_path / "extra.gguf", entries("llama"), extra)
        with pytest.raises(InputError, match=f"tensor '{name}' has no place in a llama model"):
            resolve_gguf(path)


def test_the_caches_place_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "home"
    monkeypatch.setenv("VESTIGE_HOME", "")
    assert cache_folder() == tmp_path / "xdg" / "vestige"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "vestige"
    monkeypatch.setenv("VESTIGE_HOME", "~/elsewhere")
    assert cache_folder() == tmp_path / "elsewhere"
