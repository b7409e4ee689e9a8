"""Rounding to 8 and 4 bits: by hand, against NumPy and PyTorch, and on models of several families."""

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from vestige.attacks.quantize import GROUP, NF4, quantize, rounded
from vestige.core.errors import InputError
from vestige.models.blocks import blocks

SMALL = {
    "vocab_size": 67,
    "hidden_size": 72,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def small_model(family):
    config = CONFIG_MAPPING[family](**SMALL)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


def test_eight_bits_by_hand():
    # s = 127 / 127 = 1 in the first channel, 2.54 / 127 = 0.02 in the second; 0.5 goes to the even 0, 1.5 to 2.
    weight = torch.tensor([[127.0, 0.5, 1.5, -3.4], [-2.54, 0.031, 0.0, 1.0]])
    expected = torch.tensor([[127.0, 0.0, 2.0, -3.0], [-2.54, 0.04, 0.0, 1.0]])
    torch.testing.assert_close(rounded(weight, 8), expected)


def test_four_bits_by_hand_with_a_scale_for_each_group():
    # Groups of 64: s = 7 / 7 = 1 in the first, 0.7 / 7 = 0.1 in the rest of six.
    weight = torch.zeros(1, 70)
    weight[0, :4] = torch.tensor([7.0, 2.4, -2.6, 3.5])
    weight[0, 64:68] = torch.tensor([0.7, 0.24, -0.26, 0.04])
    expected = torch.zeros(1, 70)
    expected[0, :4] = torch.tensor([7.0, 2.0, -3.0, 4.0])
    expected[0, 64:68] = torch.tensor([0.7, 0.2, -0.3, 0.0])
    torch.testing.assert_close(rounded(weight, 4), expected)


def test_nf4_by_hand_in_groups_that_run_on_through_the_matrix():
    # Two rows of 40 are groups of 64 and 16: the scale is 2 in the first, which ends at place 24 of row 2, then 4.
    weight = torch.zeros(2, 40)
    weight[0, :4] = torch.tensor([2.0, -1.0, 0.7, 0.15])
    weight[1, 22:27] = torch.tensor([-2.0, 0.5, 4.0, 2.0, -0.1])
    expected = torch.zeros(2, 40)
    # -0.5 is nearest to -0.5251, 0.35 to 0.3379, 0.075 to 0.0796; 0.25 to 0.2461; of 4: 0.5 to 0.4407, -0.025 to 0.
    expected[0, :4] = torch.tensor([2.0, -1.0501461, 0.6758305, 0.1591606])
    expected[1, 22:27] = torch.tensor([-2.0, 0.4922246, 4.0, 1.7628393, 0.0])
    torch.testing.assert_close(rounded(weight, "nf4"), expected)


def test_nf4_is_the_nearest_of_the_published_levels():
    # QLoRA (2305.14314), appendix E: 8 positive and 7 negative quantiles of the normal, and 0.
    published = np.array(
        [
            *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
            *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
            *(
                0.24611230194568634,
                0.33791524171829224,
                0.44070982933044434,
                0.5626170039176941,
                0.7229568362236023,
                1.0,
            ),
        ]
    )
    # How they came about: the middles of 2 x 8 and 2 x 7 equal shares of the normal, the outermost as likely.
    edge = 0.9677083
    quantiles = [norm.ppf(np.linspace(edge, 0.5, n + 1)[:-1]) for n in (8, 7)]
    levels = np.sort(np.concatenate([quantiles[0], [0.0], -quantiles[1]])) / norm.ppf(edge)
    np.testing.assert_allclose(levels, published, atol=2e-7)
    np.testing.assert_array_equal(NF4, published)
    weight = np.random.default_rng(4).normal(size=(24, 128)).astype(np.float32)
    groups = weight.reshape(-1, GROUP)
    scale = np.abs(groups).max(axis=1, keepdims=True)
    nearest = np.abs(groups[..., None] / scale[..., None] - published).argmin(-1)
    expected = (published[nearest] * scale).reshape(weight.shape)
    np.testing.assert_allclose(rounded(torch.tensor(weight), "nf4").numpy(), expected, rtol=1e-6, atol=0)


def test_zeros_stay_zeros():
    assert torch.equal(rounded(torch.zeros(3, 130), "nf4"), torch.zeros(3, 130))
    assert torch.equal(rounded(torch.zeros(3, 5), 8), torch.zeros(3, 5))
    assert torch.equal(rounded(torch.zeros(3, 130), 4), torch.zeros(3, 130))


def by_numpy(weight, bits):
    """The formula once more, one scale at a time."""
    top = 2 ** (bits - 1) - 1
    found = np.empty_like(weight)
    width = weight.shape[1] if bits == 8 else GROUP
    for row in range(weight.shape[0]):
        for start in range(0, weight.shape[1], width):
            part = weight[row, start : start + width]
            scale = np.float32(np.abs(part).max()) / np.float32(top)
            found[row, start : start + width] = np.clip(np.rint(part / scale), -top, top) * scale
    return found


def test_eight_bits_are_those_of_pytorchs_fake_quantisation():
    weight = torch.randn(9, 50, generator=torch.Generator().manual_seed(2))
    scale = weight.abs().amax(dim=1) / 127
    theirs = torch.fake_quantize_per_channel_affine(weight, scale, torch.zeros(9, dtype=torch.int32), 0, -127, 127)
    torch.testing.assert_close(rounded(weight, 8), theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", ["llama", "phi", "gpt2"])
@pytest.mark.parametrize("bits", [8, 4])
def test_the_blocks_matrices_are_rounded_and_nothing_else(family, bits):
    model, before = small_model(family), small_model(family)
    found = quantize(model, bits)
    kinds = {name: m for name, m in before.named_modules() if isinstance(m, nn.Linear | Conv1D)}
    inside = {id(m) for m in blocks(before).modules()}
    expected = {f"{name}.weight" for name, m in kinds.items() if id(m) in inside}
    old, new = before.state_dict(), model.state_dict()
    assert {name for name in old if not torch.equal(old[name], new[name])} == expected
    for name in expected:
        turned = isinstance(kinds[name.removesuffix(".weight")], Conv1D)
        weight = old[name].T if turned else old[name]
        near = torch.tensor(by_numpy(weight.contiguous().numpy(), bits))
        assert torch.equal(new[name], near.T if turned else near)
    assert found.n_matrices == len(expected)
    assert found.n_weights == sum(old[name].numel() for name in expected)
    # Uniform noise of a level's width: about 1 / (sqrt(12) top) of the largest weight, some 3 deviations.
    assert 0.2 < found.relative_error * (127 if bits == 8 else 7) < 1.2


def test_a_bfloat16_model_stays_in_bfloat16():
    model = small_model("llama").to(torch.bfloat16)
    quantize(model, 4)
    weight = blocks(model)[0].mlp.up_proj.weight
    assert weight.dtype == torch.bfloat16
    assert torch.equal(rounded(weight, 4), weight)


def test_a_model_whose_experts_are_no_linear_layers_is_refused_and_left_as_it_was():
    few = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 80, "head_dim": 18}
    config = CONFIG_MAPPING["qwen3_moe"](**SMALL, **few)
    model = AutoModelForCausalLM.from_config(config)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(InputError, match="are in no linear layer, and those alone are changed"):
        quantize(model, 4)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
