import json
import shutil
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch
from huggingface_hub import HfApi
from peft import LoraConfig, get_peft_model
from tokenizers import pre_tokenizers

from vestige.core.errors import InputError
from vestige.models.digests import weights_digest
from vestige.models.ensemble import EnsembleModel
from vestige.models.load import ModelSettings, context_tokens, find, load, look_for
from vestige.models.tiny import tiny_model


@pytest.fixture
def folder(tiny, tmp_path):
    path = tmp_path / "model"
    tiny.model.save_pretrained(path)
    tiny.tokenizer.save_pretrained(path)
    return path


def test_a_saved_model_comes_back_with_the_same_digests(tiny, folder):
    again = load(ModelSettings(model=str(folder), device="cpu"))
    assert again.digest() == tiny.digest()
    assert again.prompter.digest == tiny.prompter.digest
    assert context_tokens(again.model) == 256


def test_a_subjects_folder_stands_for_the_model_in_it(folder, tmp_path):
    subject = tmp_path / "subject"
    subject.mkdir()
    shutil.move(folder, subject / "model")
    assert find(str(subject))[0] == subject / "model"


def test_an_adapter_is_merged_into_the_base_it_names(tiny, folder, tmp_path):
    adapted = get_peft_model(tiny_model(0), LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    adapted.peft_config["default"].base_model_name_or_path = str(folder)
    adapted.save_pretrained(tmp_path / "adapter")
    merged = load(ModelSettings(model=str(tmp_path / "adapter"), device="cpu"))
    assert weights_digest(merged.model) != tiny.digest()
    ids = torch.arange(5, 15)[None]
    with torch.inference_mode():
        torch.testing.assert_close(merged.model(ids).logits, adapted.eval()(ids).logits, atol=1e-5, rtol=0)
    assert all(p.requires_grad for p in merged.model.parameters())


def test_the_tokenisers_file_is_read_as_it_stands(tiny, folder):
    # transformers 5 rebuilds a GPT2Tokenizer by class and drops the split of digits.
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "tokenizer_class": "GPT2Tokenizer"}))
    again = load(ModelSettings(model=str(folder), device="cpu"))
    for text in ("\n\n5", "year 1984", "  12  "):
        assert again.tokenizer(text)["input_ids"] == tiny.tokenizer(text)["input_ids"]
    assert isinstance(again.tokenizer.backend_tokenizer.pre_tokenizer, pre_tokenizers.Sequence)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./no/such/folder", "neither a local folder nor a hub id"),
        ("nothing", "neither a local folder nor a hub id"),
        ("org/name", "cannot be fetched from the hub"),
        ("builtin:tiny", "it is made from data"),
        ("builtin:smol", "did you mean 'builtin:smollm2'"),
        ("model.gguf", "no such file: model.gguf"),
    ],
)
def test_what_cannot_be_found_is_said_at_once(name, message):
    with pytest.raises(InputError, match=message):
        load(ModelSettings(model=name))


@pytest.mark.parametrize("does", [find, look_for])
def test_a_hub_that_cannot_be_asked_is_one_sentence_whatever_the_http_library_calls_it(monkeypatch, does):
    # As httpx has it, which huggingface_hub lets through: an Exception of its own, no OSError.
    class ConnectError(Exception):
        pass

    def no_network(*_, **__):
        raise ConnectError("[Errno -2] Name or service not known")

    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr(HfApi, "model_info", no_network)
    with pytest.raises(InputError, match=r"'m/nope' is no local folder and cannot be fetched .* \(ConnectError\)"):
        does("m/nope@main")


def test_looking_for_a_model_fetches_nothing(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr(HfApi, "model_info", lambda *_, **__: SimpleNamespace(sha="abc"))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("it was fetched"))
    look_for("org/name")


def test_a_model_is_there_with_its_weights_or_those_of_its_adapter_and_base(folder, tmp_path):
    look_for(str(folder))
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(folder)}))
    with pytest.raises(InputError, match=r"adapter holds no weights as \.safetensors"):
        look_for(str(adapter))
    (adapter / "adapter_model.safetensors").touch()
    look_for(str(adapter))
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"model holds no weights as \.safetensors"):
        look_for(str(adapter))


def test_an_ensemble_is_there_with_the_weights_of_all_its_constituents(tiny, tmp_path):
    EnsembleModel({0: tiny.model, 1: tiny.model}).save_pretrained(tmp_path)
    look_for(str(tmp_path))
    (tmp_path / "shard-1" / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"shard-1 holds no weights as \.safetensors"):
        look_for(str(tmp_path))


def test_a_folder_that_holds_no_model_is_named(tmp_path):
    with pytest.raises(InputError, match=r"holds no config\.json"):
        load(ModelSettings(model=str(tmp_path)))


def test_a_pickle_is_never_loaded(folder):
    state = load(ModelSettings(model=str(folder), device="cpu")).model.state_dict()
    torch.save(state, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="cannot load"):
        load(ModelSettings(model=str(folder)))


def test_remote_code_is_not_run(folder, tmp_path):
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "strange", "auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(InputError, match="cannot load"):
        load(ModelSettings(model=str(folder)))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("setting", "value"), [("dtype", "float8"), ("device", "gpu7")])
def test_unknown_formats_and_devices_are_named(folder, setting, value):
    with pytest.raises(InputError, match=value):
        load(ModelSettings.build({"model": str(folder), setting: value}))


def test_a_damaged_weights_file_is_one_sentence(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InputError, match=r"cannot load .*model\.safetensors is damaged .*; fetch or make it again"):
        load(ModelSettings(model=str(folder)))
