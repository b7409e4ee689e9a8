import json
import os
import shutil
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch
from huggingface_hub import HfApi
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from tokenizers import pre_tokenizers
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedTokenizerFast

from vestige.api import requests
from vestige.core.errors import InputError
from vestige.models import Reading
from vestige.models.embedder import load_embedder
from vestige.models.folders import weights_digest
from vestige.models.generation import generate
from vestige.models.load import ModelSettings, context_tokens, load, look_for, outline, places_of, settings_of
from vestige.models.places import find
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
    # A model in a model could be either.
    shutil.copytree(subject / "model", subject, dirs_exist_ok=True)
    with pytest.raises(InputError, match=r"subject is a model and holds another in model/. Name .*subject/model"):
        find(str(subject))


def test_an_adapter_is_merged_into_the_base_it_names(tiny, folder, tmp_path):
    adapted = get_peft_model(tiny_model(0), LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    adapted.peft_config["default"].base_model_name_or_path = str(folder)
    adapted.save_pretrained(tmp_path / "adapter")
    merged = load(ModelSettings(model=str(tmp_path / "adapter"), device="cpu"))
    assert weights_digest(merged.model) != tiny.digest().weights
    ids = torch.arange(5, 15)[None]
    with torch.inference_mode():
        torch.testing.assert_close(merged.model(ids).logits, adapted.eval()(ids).logits, atol=1e-5, rtol=0)
    assert all(p.requires_grad for p in merged.model.parameters())


def test_an_adapter_whose_base_is_elsewhere_lies_on_the_base_that_is_named(folder, adapter, tmp_path):
    expected = load(ModelSettings(model=str(adapter), device="cpu")).digest()
    for name in ("/home/someone/models/gone", None):
        configured(adapter, "adapter_config.json", base_model_name_or_path=name)
        refused(adapter, r"is an adapter, and its base model is not here .*\. Name it with --base")
        with_base = ModelSettings(model=str(adapter), base=str(folder), device="cpu")
        assert load(with_base).digest() == expected
        look_for(with_base)
    assert places_of(str(adapter), base=str(folder)) == [adapter, folder]
    with pytest.raises(InputError, match="is an adapter itself"):
        load(with_base.model_copy(update={"base": str(adapter)}))


def test_a_model_without_a_tokeniser_takes_the_one_that_is_named(tiny, folder, tmp_path):
    tiny.tokenizer.save_pretrained(tmp_path / "words")
    for path in folder.glob("*token*"):
        path.unlink()
    refused(folder, "model has no tokeniser. Name a folder or hub id with --tokenizer")
    named = ModelSettings(model=str(folder), tokenizer=str(tmp_path / "words"), device="cpu")
    assert load(named).digest() == tiny.digest()


def test_a_runs_folder_names_its_checkpoints(folder, tmp_path):
    for name in ("checkpoint-60", "checkpoint-120"):
        shutil.copytree(folder, tmp_path / "run" / name)
    with pytest.raises(InputError, match=r"is no model itself\. Name a checkpoint: checkpoint-60, checkpoint-120"):
        find(str(tmp_path / "run"))


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "_fsdp_wrapped_module."])
def test_the_prefix_of_a_wrapped_models_tensors_is_named(folder, prefix):
    rewritten(folder / "model.safetensors", lambda tensors: {prefix + n: v for n, v in tensors.items()})
    refused(folder, f"every tensor begins with '{prefix}', because a wrapper of the model was saved")


@pytest.mark.parametrize("family", ["mamba", "mamba2"])
def test_a_model_without_a_limit_of_its_context_scores_and_replies_as_by_whole_passes(tiny, items, tmp_path, family):
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "vocab_size": len(tiny.tokenizer)}
    heads = {"num_heads": 8, "head_dim": 8, "n_groups": 1} if family == "mamba2" else {}
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(CONFIG_MAPPING[family](**sizes, **heads)).save_pretrained(tmp_path / "model")
    tiny.tokenizer.save_pretrained(tmp_path / "model")
    loaded = load(ModelSettings(model=str(tmp_path / "model"), device="cpu"))
    prompter = loaded.prompter
    encoded = [prompter.encode(i.question, i.answer) for i in items[:3]]
    prompts = [prompter.prompt(i.question) for i in items[:3]]
    replies = loaded.engine.generate(prompts, end_ids=prompter.end_ids, max_new_tokens=4, context=prompter.max_tokens)
    for prompt, reply in zip(prompts, replies, strict=True):
        ids = list(prompt)
        for token in reply.ids:
            with torch.inference_mode():
                assert int(loaded.model(torch.tensor([ids])).logits[0, -1].argmax()) == token
            ids.append(token)
    for answer, score in zip(encoded, loaded.engine.score_answers(encoded), strict=True):
        with torch.inference_mode():
            logp = loaded.model(torch.tensor([answer.ids])).logits[0].log_softmax(-1)
        expected = [float(logp[t - 1, answer.ids[t]]) for t in range(answer.start, answer.stop)]
        assert score.logp == pytest.approx(expected, abs=1e-5)


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
        ("builtin:smol", "Did you mean 'builtin:smollm2'"),
        ("model.gguf", "model.gguf: GGUF files are not read. Take the model's Hugging Face folder"),
    ],
)
def test_what_cannot_be_found_is_said_at_once(name, message):
    with pytest.raises(InputError, match=message):
        load(ModelSettings(model=name))


@pytest.mark.parametrize("does", [load, look_for])
def test_a_hub_that_cannot_be_asked_is_one_sentence_whatever_the_http_library_calls_it(monkeypatch, does):
    # As httpx has it, which huggingface_hub lets through: an Exception of its own, no OSError.
    class ConnectError(Exception):
        pass

    def no_network(*_, **__):
        raise ConnectError("[Errno -2] Name or service not known")

    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr(HfApi, "model_info", no_network)
    with pytest.raises(InputError, match=r"'m/nope' is no local folder and cannot be fetched .* \(\[Errno -2\] Name"):
        does(ModelSettings(model="m/nope@main"))


def test_looking_for_a_model_fetches_nothing(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr(HfApi, "model_info", lambda *_, **__: SimpleNamespace(sha="abc"))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("it was fetched"))
    look_for(ModelSettings(model="org/name"))


@pytest.fixture
def adapter(folder, tmp_path):
    adapted = get_peft_model(tiny_model(0), LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    adapted.peft_config["default"].base_model_name_or_path = str(folder)
    adapted.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def refused(path, message):
    """Both what looks before any work and what loads refuse it, in one sentence."""
    for does in (look_for, load):
        with pytest.raises(InputError, match=message) as told:
            does(ModelSettings(model=str(path), device="cpu"))
        assert "\n" not in str(told.value)


def rewritten(path, change):
    tensors = load_file(path)
    save_file(change(tensors), path, metadata={"format": "pt"})


def configured(folder, name="config.json", **values):
    config = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(config | values))


def test_a_model_is_there_with_its_weights_or_those_of_its_adapter_and_base(folder, adapter):
    look_for(ModelSettings(model=str(folder)))
    look_for(ModelSettings(model=str(adapter)))
    held = (adapter / "adapter_model.safetensors").read_bytes()
    (adapter / "adapter_model.safetensors").unlink()
    refused(adapter, r"adapter: it holds no weights as \.safetensors")
    (adapter / "adapter_model.safetensors").write_bytes(held)
    (folder / "model.safetensors").unlink()
    refused(adapter, r"model: it holds no weights as \.safetensors")


def without(*names):
    return lambda tensors: {name: t for name, t in tensors.items() if name not in names}


UP = "model.layers.1.mlp.up_proj.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without(UP, "model.norm.weight"), r"lacks 2 of the tensors .*\(model\.layers\.1\.mlp\.up_proj\.weight, model"),
        (lambda t: t | {"model.extra.weight": torch.ones(2)}, r"holds 1 tensors .* no place for \(model\.extra"),
        (lambda t: t | {UP: t[UP][:3].clone()}, r"1 tensors with shapes .*up_proj\.weight: \(3, 192\)"),
        (lambda t: t | {UP: t[UP].to(torch.int8)}, r"holds 1 weights as I8, which are quantised .*up_proj"),
        (lambda t: t | {UP: t[UP].to(torch.float8_e4m3fn)}, r"holds 1 weights as F8_E4M3"),
    ],
)
def test_tensors_that_are_not_the_models_are_refused_by_name(folder, change, message):
    rewritten(folder / "model.safetensors", change)
    refused(folder, message)


def test_a_tied_head_need_not_be_stored_and_any_other_must(folder):
    tied = load(ModelSettings(model=str(folder), device="cpu")).model
    assert tied.get_output_embeddings().weight is tied.get_input_embeddings().weight
    configured(folder, tie_word_embeddings=False)
    refused(folder, r"lacks 1 of the tensors .*\(lm_head\.weight\)")


@pytest.mark.parametrize("does", [load, look_for, outline])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused_by_name(folder, value, does):
    rewritten(folder / "model.safetensors", lambda tensors: tensors | {UP: torch.full_like(tensors[UP], value)})
    with pytest.raises(InputError, match=r"1 tensors with NaN or infinite values \(model\.layers\.1\.mlp\.up_proj"):
        does(ModelSettings(model=str(folder), device="cpu"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_hidden_layers": 4}, r"lacks 9 of the tensors .*model\.layers\.3"),
        ({"num_hidden_layers": 10**7}, r"num_hidden_layers = 10000000 is more than any model has"),
        pytest.param({"num_hidden_layers": 90_000}, r"more than \d+ parts, and the files", marks=pytest.mark.slow),
        ({"num_hidden_layers": "two"}, r"cannot read .*config\.json"),
        ({"a": json.loads('{"a":' * 8 + "{}" + "}" * 8)}, "tables within tables, more than 8 deep"),
        ({"hidden_size": 0}, r"29 tensors with shapes"),
        ({"vocab_size": 4}, r"1 tensors with shapes"),
        ({"model_type": "bert"}, r"describes an encoder \(bert"),
        ({"model_type": "t5"}, r"describes no causal decoder \(t5\)"),
        ({"is_causal": False}, r"describes no causal decoder \(llama\)"),
        ({"quantization_config": {"quant_method": "gptq"}}, r"quantised \(gptq\).* Serve .*name its address"),
    ],
)
def test_a_config_that_is_not_the_weights_is_refused(folder, values, message):
    configured(folder, **values)
    refused(folder, message)


def test_a_tokeniser_larger_than_the_embedding_is_refused(tiny, folder):
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.add_tokens([f"beyond{n}" for n in range(tiny.model.config.vocab_size - len(tokenizer) + 2)])
    tokenizer.save_pretrained(folder)
    refused(folder, r"has 2 tokens that the model has no embedding for \('beyond\d+'")


def test_a_special_token_without_an_embedding_is_refused_where_a_text_holds_it(tiny, folder):
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.add_tokens([f"beyond{n}" for n in range(tiny.model.config.vocab_size - len(tokenizer))])
    tokenizer.add_tokens(["<image>"], special_tokens=True)
    tokenizer.save_pretrained(folder)
    prompter = load(ModelSettings(model=str(folder), device="cpu")).prompter
    with pytest.raises(InputError, match="no embedding for the token '<image>'"):
        prompter.prompt("What is <image>?")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: dict(list(t.items())[:2]), r"lacks 4 of the 6 tensors that it needs"),
        (lambda t: {n.replace("q_proj", "query"): v for n, v in t.items()}, r"lacks 6 of the 6"),
        (lambda t: t | {"base_model.model.x.lora_A.weight": torch.ones(2, 2)}, r"holds 1 tensors for which"),
        (lambda t: {n: v[:1].clone() for n, v in t.items()}, r"6 tensors have other shapes"),
        (lambda t: {n: v.to(torch.int8) for n, v in t.items()}, r"6 tensors as I8 .*quantised adapter"),
    ],
)
def test_an_adapter_that_does_not_fit_its_base_is_refused(adapter, change, message):
    rewritten(adapter / "adapter_model.safetensors", change)
    refused(adapter, message)


def test_adapters_that_name_adapters_as_their_base_or_a_module_to_import_are_refused(adapter, tmp_path):
    shutil.copytree(adapter, tmp_path / "other")
    for base in (adapter, tmp_path / "other"):
        configured(adapter, "adapter_config.json", base_model_name_or_path=str(base))
        configured(tmp_path / "other", "adapter_config.json", base_model_name_or_path=str(adapter))
        refused(adapter, "the base model of the adapter .*, is an adapter itself")
        with pytest.raises(InputError, match=r"the base model of the adapter .*, is an adapter itself"):
            places_of(str(adapter))
    configured(adapter, "adapter_config.json", megatron_config={"a": 1}, megatron_core="evil")
    refused(adapter, "megatron_config names a module to import")


def test_a_folder_that_holds_no_model_is_named(tmp_path):
    refused(tmp_path, r"holds no config\.json")


def test_remote_code_is_not_run(folder, tmp_path):
    configured(folder, model_type="strange", auto_map={"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"})
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(InputError, match=r"cannot read .*custom code"):
        load(ModelSettings(model=str(folder)))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("value", ["float8", "gpu7", "banana", "meta"])
def test_unknown_formats_and_devices_are_named(folder, value):
    with pytest.raises(InputError, match=value):
        load(ModelSettings.build({"model": str(folder), "dtype" if value == "float8" else "device": value}))


def test_a_damaged_weights_file_is_one_sentence_and_a_pickle_is_never_loaded(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    refused(folder, r"cannot load .*model\.safetensors is damaged .*. Fetch or make it again")
    path.rename(folder / "pytorch_model.bin")
    refused(folder, "cannot load .* but pytorch_model.bin, a pickle, which could run code and is never read")


def test_the_second_tiny_model_has_the_shape_that_its_name_promises():
    deep = tiny_model(0, "builtin:tiny-deep")
    # Embeddings 2,048 x 128, used twice; 6 blocks of 4 x 128 x 128 + 3 x 128 x 352 + 2 x 128; the last norm.
    assert deep.num_parameters() == 262_144 + 6 * 200_960 + 128
    assert len(deep.model.layers) == 6


def test_a_config_does_not_choose_the_code_the_weights_or_the_outputs_of_the_model(tiny, folder):
    settings = ModelSettings(model=str(folder), device="cpu")
    expected = load(settings)
    save_file({n: torch.zeros_like(t) for n, t in tiny.model.state_dict().items()}, folder / "other.safetensors")
    choices = {"attn_implementation": "someone/kernel", "_attn_implementation": "someone/kernel", "use_kernels": True}
    choices |= {"transformers_weights": "other.safetensors", "return_dict": False, "output_hidden_states": True}
    configured(folder, **choices)
    loaded = load(settings)
    assert loaded.model.config._attn_implementation == expected.model.config._attn_implementation
    assert loaded.digest() == expected.digest()
    asked = {"end_ids": [0], "max_new_tokens": 3}
    assert generate(loaded.model, [[5, 6]], **asked) == generate(expected.model, [[5, 6]], **asked)


HOSTILE_FILES = {
    "is a pipe": os.mkfifo,
    "is a device": lambda path: path.symlink_to("/dev/zero"),
    "cannot be read": lambda path: path.symlink_to("nowhere"),
    "reads at most 134217728": lambda path: (path.touch(), os.truncate(path, 2**27 + 1)),
}


READERS = [
    lambda folder, sound: load(ModelSettings(model=folder, device="cpu")),
    lambda folder, sound: load(ModelSettings(model=sound, tokenizer=folder, device="cpu")),
    lambda folder, sound: load_embedder(folder, device="cpu"),
]


@pytest.mark.parametrize("name", ["generation_config.json", "chat_template.jinja", "extra.json"])
@pytest.mark.parametrize("said", HOSTILE_FILES)
@pytest.mark.parametrize("reads", READERS)
def test_a_model_folder_with_a_file_that_is_none_is_refused(folder, name, said, reads):
    sound = str(shutil.copytree(folder, folder.with_name("sound")))
    (folder / name).unlink(missing_ok=True)
    HOSTILE_FILES[said](folder / name)
    with pytest.raises(InputError, match=said):
        reads(str(folder), sound)


def test_a_format_that_is_named_wins_over_that_of_the_making_and_that_over_float32(monkeypatch):
    assert settings_of("m", Reading(device="cpu", base="b")) == ModelSettings(model="m", device="cpu", base="b")
    monkeypatch.setattr(requests, "own_dtype", lambda model: "bfloat16")
    assert requests.model_settings("m", Reading(), as_made=True).dtype == "bfloat16"
    assert requests.model_settings("m", Reading(dtype="float16"), as_made=True).dtype == "float16"
