"""Adapters: what they train, what merging gives, and what is saved of them."""

import json
import warnings

import pytest
import torch
from peft import AutoPeftModelForCausalLM, PeftModel
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from vestige.core.errors import InputError
from vestige.models.folders import weights_digest
from vestige.models.load import ModelSettings, load
from vestige.training.adapters import adapter_of, add_lora, merge_lora, save_adapter
from vestige.training.loop import train

FORMS = [{}, {"lora_rslora": True}, {"lora_dora": True}]


@pytest.mark.slow
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
    with pytest.raises(InputError, match=r"lora_targets c_attn is no layer of this model, whose blocks .* down_proj,"):
        add_lora(fresh().model, job.settings, seed=5)


def small_gpt2() -> PreTrainedModel:
    # The embedding and the head are 8 wide, the blocks' products Conv1D, which keeps its weights transposed.
    config = AutoConfig.for_model("gpt2", vocab_size=20, n_positions=16, n_embd=8, n_layer=2, n_head=2)
    return AutoModelForCausalLM.from_config(config)


def adapted(model: PreTrainedModel) -> set[str]:
    return {n.partition(".lora_")[0] for n, p in model.named_parameters() if p.requires_grad}


def test_the_default_targets_are_all_products_of_a_llamas_blocks(fresh, make_job):
    named, every = fresh().model, fresh().model
    add_lora(named, make_job(lora_rank=4).settings, seed=5)
    add_lora(every, make_job(lora_rank=4, lora_targets="all").settings, seed=5)
    # 7 products in each block, and no head.
    assert len(adapted(every)) == 7 * len(every.model.layers)
    assert adapted(every) == adapted(named)
    assert weights_digest(every) == weights_digest(named)


def test_a_model_without_the_default_targets_lists_its_own_and_how_they_are_named(make_job):
    with pytest.raises(InputError, match=r"multiply in c_attn, c_fc, c_proj. Name some, --set 'lora_targets=\[\"c_att"):
        add_lora(small_gpt2(), make_job(lora_rank=2).settings, seed=5)


def test_all_products_of_another_familys_blocks_are_trained_without_a_warning(make_job, tmp_path):
    model = small_gpt2()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        add_lora(model, make_job(lora_rank=2, lora_targets="all").settings, seed=5)
    assert len(adapted(model)) == 2 * 4
    assert "transformer.h.1.attn.c_attn" in adapted(model)
    assert adapter_of(model, base="org/model").config["fan_in_fan_out"] is True


def test_the_base_of_an_adapter_is_the_folder_that_transformers_loads(fresh, make_job, tmp_path):
    loaded = fresh()
    loaded.model.save_pretrained(tmp_path / "target" / "model")
    loaded.tokenizer.save_pretrained(tmp_path / "target" / "model")
    add_lora(loaded.model, make_job(lora_rank=4).settings, seed=5)
    with torch.no_grad():
        loaded.model.model.layers[0].mlp.up_proj.lora_B["default"].weight.fill_(0.01)
    folder = tmp_path / "adapter"
    folder.mkdir()
    # What a person names is the subject's folder, above the model's.
    save_adapter(folder, adapter_of(loaded.model, base=str(tmp_path / "target")))
    ids = torch.arange(5, 15)[None]
    with torch.inference_mode():
        found = AutoPeftModelForCausalLM.from_pretrained(folder).eval()(ids).logits
        torch.testing.assert_close(found, loaded.model.eval()(ids).logits)


def test_loading_an_adapter_warns_of_nothing(fresh, make_job, tmp_path):
    loaded = fresh()
    loaded.model.save_pretrained(tmp_path / "base")
    loaded.tokenizer.save_pretrained(tmp_path / "base")
    add_lora(loaded.model, make_job(lora_rank=4).settings, seed=5)
    (tmp_path / "adapter").mkdir()
    save_adapter(tmp_path / "adapter", adapter_of(loaded.model, base=str(tmp_path / "base")))
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        load(ModelSettings(model=str(tmp_path / "adapter"), device="cpu"))


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


@pytest.mark.slow
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
    assert ours.digest().weights == weights_digest(loaded.model)


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
