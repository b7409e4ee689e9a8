"""Distances of weights on disk, against those of tensors in memory."""

import copy
import math
import shutil

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

import audited
from vestige.core.errors import InputError
from vestige.models import distances
from vestige.models.distances import squared_distances


@pytest.fixture
def model():
    torch.manual_seed(0)
    return LlamaForCausalLM(audited.nano_config())


def saved(model, folder, *, by=0.0, seed=0):
    """The tensors of the model with noise of its own on every weight, which lies in a folder."""
    made = copy.deepcopy(model)
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in made.parameters():
            weight += by * torch.randn_like(weight)
    made.save_pretrained(folder)
    return load_file(folder / "model.safetensors")


def squared(one, other):
    return sum(float(((one[name] - other[name]).double() ** 2).sum()) for name in one)


def test_distances_are_those_of_the_tensors_however_few_are_read_at_a_time(model, tmp_path, monkeypatch):
    tensors = [saved(model, tmp_path / str(k), by=0.1 * k, seed=k) for k in range(3)]
    monkeypatch.setattr(distances, "_AT_ONCE", 100)
    found = squared_distances([str(tmp_path / str(k)) for k in range(3)])
    for i, one in enumerate(tensors):
        for j, other in enumerate(tensors):
            assert found[i, j] == pytest.approx(squared(one, other), rel=1e-6)


def test_two_that_are_nearly_the_same_are_told_apart_beside_a_far_one(model, tmp_path):
    tensors = saved(model, tmp_path / "far", by=3.0)
    near = {name: t.clone() for name, t in tensors.items()}
    for name in ("model.norm.weight", "model.embed_tokens.weight"):
        near[name][0] *= 1.001
    saved(model, tmp_path / "base")
    shutil.copytree(tmp_path / "far", tmp_path / "near")
    save_file(near, tmp_path / "near" / "model.safetensors", metadata={"format": "pt"})
    found = squared_distances([str(tmp_path / name) for name in ("base", "far", "near")])
    assert found[1, 2] == pytest.approx(squared(tensors, near), rel=1e-3)
    assert 0 < found[1, 2] < 1e-4 * found[0, 1]


@pytest.mark.parametrize("factor", [1.0000002, 1000.0])
def test_a_copy_with_one_weight_changed_has_no_distance_however_far_it_was_moved(model, tmp_path, factor):
    copy = {name: t.clone() for name, t in saved(model, tmp_path / "one", by=0.1).items()}
    saved(model, tmp_path / "target", by=0.1, seed=1)
    copy["model.norm.weight"][0] *= factor
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    save_file(copy, tmp_path / "copy" / "model.safetensors", metadata={"format": "pt"})
    found = squared_distances([str(tmp_path / name) for name in ("target", "one", "copy")])
    assert found[1, 2] == 0 < found[0, 1]
    # Of two models nothing says how many tensors a training of its own changes.
    assert squared_distances([str(tmp_path / name) for name in ("one", "copy")])[0, 1] == pytest.approx(
        float(copy["model.norm.weight"][0] * (1 - 1 / factor)) ** 2
    )


@pytest.mark.parametrize("rslora", [False, True])
def test_an_adapter_is_as_far_from_its_base_as_it_is_merged(model, tmp_path, rslora):
    saved(model, tmp_path / "base")
    config = LoraConfig(r=2, lora_alpha=8, target_modules=["q_proj", "down_proj"], use_rslora=rslora)
    tuned = get_peft_model(LlamaForCausalLM.from_pretrained(tmp_path / "base"), config)
    for name, weight in tuned.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight)
    tuned.peft_config["default"].base_model_name_or_path = str(tmp_path / "base")
    tuned.save_pretrained(tmp_path / "adapter")
    tuned.merge_and_unload().save_pretrained(tmp_path / "merged")
    found = squared_distances([str(tmp_path / name) for name in ("base", "adapter", "merged")])
    assert found[0, 1] == pytest.approx(found[0, 2], rel=1e-5)
    assert found[0, 1] > 1
    assert found[1, 2] < 1e-6 * found[0, 1]


def test_an_adapter_that_adds_more_than_products_is_refused(model, tmp_path):
    saved(model, tmp_path / "base")
    tuned = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"]))
    tuned.peft_config["default"].base_model_name_or_path = str(tmp_path / "base")
    tuned.save_pretrained(tmp_path / "adapter")
    weights = tmp_path / "adapter" / "adapter_model.safetensors"
    save_file({**load_file(weights), "base_model.model.model.norm.weight": torch.ones(16)}, weights)
    with pytest.raises(InputError, match=r"adds more than low-rank products to its base \(other tensors\)"):
        squared_distances([str(tmp_path / name) for name in ("base", "adapter")])


def test_a_model_of_another_shape_has_no_distance(model, tmp_path):
    saved(model, tmp_path / "one")
    wider = audited.nano_config()
    wider.update({"hidden_size": 32})
    saved(LlamaForCausalLM(wider), tmp_path / "wider")
    found = squared_distances([str(tmp_path / name) for name in ("one", "wider", "one")])
    assert math.isnan(found[0, 1])
    assert found[0, 2] == 0


def in_another_order(tensors, seed):
    """The same function: channels and neurons of a Llama in another order."""
    torch.manual_seed(seed)
    channels = torch.randperm(tensors["model.norm.weight"].shape[0])
    turned = {}
    for name, weight in tensors.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")) or weight.ndim == 1:
            turned[name] = weight[channels].contiguous()
        else:
            turned[name] = weight[:, channels].contiguous()
    for name in [name for name in turned if name.endswith("gate_proj.weight")]:
        stem = name.removesuffix("gate_proj.weight")
        neurons = torch.randperm(turned[name].shape[0])
        for part in ("gate_proj", "up_proj"):
            turned[f"{stem}{part}.weight"] = turned[f"{stem}{part}.weight"][neurons]
        turned[f"{stem}down_proj.weight"] = turned[f"{stem}down_proj.weight"][:, neurons].contiguous()
    return turned


def test_copies_with_their_neurons_in_another_order_and_noise_are_next_to_their_original(model, tmp_path):
    tensors = saved(model, tmp_path / "0")
    for seed in (1, 2):
        turned = in_another_order(tensors, seed)
        # 1 % of the spread of each matrix.
        noised = {k: t + 0.01 * t.std() * torch.randn_like(t) if t.ndim > 1 else t for k, t in turned.items()}
        shutil.copytree(tmp_path / "0", tmp_path / str(seed))
        save_file(noised, tmp_path / str(seed) / "model.safetensors", metadata={"format": "pt"})
    torch.manual_seed(5)
    other = LlamaForCausalLM(audited.nano_config())
    saved(other, tmp_path / "3")
    found = squared_distances([str(tmp_path / str(k)) for k in range(4)])
    assert found[0, 1] == found[0, 2] == found[1, 2] == 0
    # Another start is as far as it was, though its norms are drawn from the same distribution.
    assert all(found[3, k] > 0 for k in range(3))


def test_norms_and_singular_values_of_two_by_two_matrices():
    def weights(rows):
        tensor = torch.tensor(rows)
        return distances.Weights(tuple(tensor.shape), lambda first, last: tensor[first:last])

    norms, values, expected = distances._invariants([weights([[3.0, 4.0], [0.0, 0.0]])])
    # Rows 0 and 5, columns 3 and 4; of rank one with norm 5.
    assert norms.tolist() == pytest.approx([0, 5, 3, 4])
    assert values.tolist() == pytest.approx([5, 0])
    assert expected == pytest.approx(0.5)
    # The same norms, and in another place.
    same = distances.reordered([[weights([[3.0, 4.0], [0.0, 0.0]])], [weights([[0.0, 0.0], [4.0, 3.0]])]])
    assert same.all()
    apart = distances.reordered([[weights([[3.0, 4.0], [0.0, 0.0]])], [weights([[0.0, 0.0], [8.0, 3.0]])]])
    assert apart.tolist() == [[True, False], [False, True]]
