"""Adapters: what they train, what merging gives, and what is saved of them."""

import json

import pytest
import torch
from peft import PeftModel

from vestige.core.errors import InputError
from vestige.models.digests import weights_digest
from vestige.models.load import ModelSettings, load
from vestige.training.adapters import adapter_of, add_lora, merge_lora, save_adapter
from vestige.training.loop import train

FORMS = [{}, {"lora_rslora": True}, {"lora_dora": True}]


def test_lora_trains_the_adapter_alone_and_merges_into_a_plain_model(fresh, make_job):
    job, model = make_job(lora_rank=4), fresh().model
    add_lora(model, job.settings, seed=5)
    trained = {n for n, p in model.named_parameters() if p.requires_grad}
    train(model, job)
    ids = torch.arange(5, 15)[None]
    with torch.inference_mode():
        with_adapter = model.eval()(ids).logits
        merge_lora(model)
        torch.testing.assert_close(model(ids).logits, with_adapter, atol=1e-5, rtol=0)
    start = fresh().model
    changed = {n for n, p in start.named_parameters() if not torch.equal(p, model.get_parameter(n))}
    assert all(".lora_A." in n or ".lora_B." in n for n in trained)
    assert changed == {n for n, _ in start.named_parameters() if n.endswith("_proj.weight")}
    assert [n for n, _ in model.named_parameters()] == [n for n, _ in start.named_parameters()]
    assert all(p.requires_grad for p in model.parameters())


def test_lora_targets_that_do_not_exist_are_named(fresh, make_job):
    job = make_job(lora_rank=4, lora_targets=("q_proj", "c_attn"))
    with pytest.raises(InputError, match=r"c_attn are no layers of this model; its linear layers: down_proj"):
        add_lora(fresh().model, job.settings, seed=5)


@pytest.mark.parametrize(("settings", "scale"), [({}, 32 / 4), ({"lora_rslora": True}, 32 / 2)])
def test_the_scale_is_alpha_over_the_rank_or_over_its_root(fresh, make_job, settings, scale):
    # alpha 32, rank 4: 8 as Hu et al. have it, 16 as rsLoRA has it.
    model, start = fresh().model, fresh().model
    add_lora(model, make_job(lora_rank=4, **settings).settings, seed=5)
    layer = model.model.layers[0].mlp.up_proj
    with torch.no_grad():
        layer.lora_B["default"].weight.fill_(0.01)
    update = scale * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    merge_lora(model)
    torch.testing.assert_close(
        model.model.layers[0].mlp.up_proj.weight, start.model.layers[0].mlp.up_proj.weight + update
    )


def test_dora_trains_magnitudes_besides(fresh, make_job):
    model = fresh().model
    add_lora(model, make_job(lora_rank=4, lora_dora=True).settings, seed=5)
    trained = {n for n, p in model.named_parameters() if p.requires_grad}
    assert any("lora_magnitude_vector" in n for n in trained)
    assert all("lora_" in n for n in trained)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("form", FORMS)
def test_an_adapter_is_saved_as_peft_and_vestige_load_it_to_the_merged_bytes(fresh, make_job, tmp_path, form, dtype):
    base = tmp_path / "base"
    loaded = fresh()
    loaded.model.to(dtype).save_pretrained(base)
    loaded.tokenizer.save_pretrained(base)
    job = make_job(lora_rank=4, epochs=1, **form)
    add_lora(loaded.model, job.settings, seed=5)
    train(loaded.model, job)
    folder = tmp_path / "adapter"
    folder.mkdir()
    save_adapter(folder, adapter_of(loaded.model, base=str(base)))
    merge_lora(loaded.model)

    plain = load(ModelSettings(model=str(base), dtype=str(dtype).removeprefix("torch."), device="cpu")).model
    assert weights_digest(plain) != weights_digest(loaded.model)
    merged = PeftModel.from_pretrained(plain, folder).merge_and_unload(safe_merge=True)
    assert weights_digest(merged) == weights_digest(loaded.model)
    ours = load(ModelSettings(model=str(folder), dtype=str(dtype).removeprefix("torch."), device="cpu"))
    assert ours.digest() == weights_digest(loaded.model)


def test_an_adapters_files_are_the_same_bytes_each_time_and_name_its_base(fresh, make_job, tmp_path):
    files = []
    for name in ("one", "two"):
        model = fresh().model
        add_lora(model, make_job(lora_rank=4).settings, seed=5)
        folder = tmp_path / name
        folder.mkdir()
        save_adapter(folder, adapter_of(model, base="org/model@v2"))
        files.append({p.name: p.read_bytes() for p in folder.iterdir()})
    assert files[0] == files[1]
    config = json.loads(files[0]["adapter_config.json"])
    assert (config["base_model_name_or_path"], config["revision"]) == ("org/model", "v2")
    assert config["target_modules"] == sorted(config["target_modules"])


def test_adapters_of_a_bfloat16_model_are_trained_in_float32(fresh, make_job):
    model, job = fresh().model.to(torch.bfloat16), make_job(lora_rank=4, epochs=1)
    add_lora(model, job.settings, seed=5)
    assert {p.dtype for p in model.parameters() if p.requires_grad} == {torch.float32}
    train(model, job)
    merge_lora(model)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
