"""The digest of a model: the same for the same model wherever it lies, and another for every part that changes."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, Qwen2Config

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.models import prompts
from vestige.models.folders import ModelDigest, model_digest
from vestige.models.load import LoadedModel, ModelSettings, load
from vestige.models.tiny import tiny_tokenizer

TOKENIZER = tiny_tokenizer([Item("What is asked here?", "This.")])
SHAPES = {
    "gpt2": GPT2Config(vocab_size=2048, n_embd=16, n_layer=2, n_head=2, n_positions=64),
    "qwen2": Qwen2Config(
        **{"vocab_size": 2048, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2},
        **{"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64},
    ),
}


def made(shape):
    torch.manual_seed(0)
    return LoadedModel(AutoModelForCausalLM.from_config(SHAPES[shape]).eval(), TOKENIZER, "made here", "")


def saved(subject, folder):
    subject.model.save_pretrained(folder)
    subject.tokenizer.save_pretrained(folder)
    return load(ModelSettings(model=str(folder), device="cpu"))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_digest_is_the_same_after_every_save_and_in_every_folder(shape, tmp_path):
    first = made(shape)
    digest = first.digest()
    second = saved(first, tmp_path / "a")
    assert first.digest() == digest == second.digest()
    assert saved(second, tmp_path / "b").digest() == digest


def test_bookkeeping_is_no_part_of_the_digest_and_neither_is_what_was_asked_before(tmp_path):
    subject = saved(made("qwen2"), tmp_path / "a")
    digest = subject.digest()
    path = tmp_path / "a" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "transformers_version": "4.0", "_name_or_path": "x", "new_field": None}))
    again = load(ModelSettings(model=str(tmp_path / "a"), device="cpu"))
    again.tokenizer(["one", "two words"], padding=True, truncation=True, max_length=8)
    assert again.digest() == digest


def test_a_difference_is_named_by_its_part():
    digest = ModelDigest("w", "c", "g", "t", "f")
    digest.refuse_other(digest, "the target", "Restore it.")
    digest.refuse_other(digest.id, "the target", "Restore it.")
    other = ModelDigest("w", "c", "g", "u", "h")
    assert other.id != digest.id
    with pytest.raises(InputError, match=r"It differs in the tokeniser, the chat template\. Restore it"):
        other.refuse_other(digest, "the target", "Restore it.")
    with pytest.raises(InputError, match=r"is not the model that it was\. Restore it"):
        other.refuse_other(digest.id, "the target", "Restore it.")


@pytest.mark.parametrize("part", ["weights", "config", "generation", "tokenizer", "template"])
def test_each_part_changes_alone(part):
    subject = made("qwen2")
    before = subject.digest()
    tokenizer = tiny_tokenizer([Item("What is asked here?", "This.")])
    if part == "weights":
        with torch.no_grad():
            subject.model.model.layers[1].mlp.up_proj.weight[3, 5] += 1e-6
    elif part == "config":
        subject.model.config.rms_norm_eps = 1e-3
    elif part == "generation":
        subject.model.generation_config.repetition_penalty = 1.5
    elif part == "tokenizer":
        tokenizer.add_tokens(["newtoken"])
    else:
        tokenizer.chat_template = tokenizer.chat_template + "\n"
    template = prompts.Prompter(tokenizer, 64).template_digest
    after = model_digest(subject.model, tokenizer, template)
    assert [name for name in vars(before) if getattr(before, name) != getattr(after, name)] == [part]
    assert after.id != before.id
