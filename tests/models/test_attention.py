"""Attention in float32 within a model computed in bfloat16."""

import torch
from torch.nn.functional import scaled_dot_product_attention

from vestige.models.forward import attention


def test_within_bfloat16_attention_is_float32s_and_so_are_its_gradients():
    drawn = torch.randn(3, 1, 2, 9, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    q, k, v = (x.clone().requires_grad_() for x in drawn)
    with torch.autocast("cpu", torch.bfloat16), attention("cpu", "bfloat16"):
        found = scaled_dot_product_attention(q, k, v, is_causal=True)
    assert found.dtype == torch.bfloat16
    wide = [x.detach().float().requires_grad_() for x in (q, k, v)]
    expected = scaled_dot_product_attention(*wide, is_causal=True)
    assert torch.equal(found, expected.bfloat16())
    found.float().sum().backward()
    expected.sum().backward()
    for narrow, full in zip((q, k, v), wide, strict=True):
        torch.testing.assert_close(narrow.grad.float(), full.grad, atol=2e-2, rtol=2e-2)


def test_float32_is_left_alone():
    q = torch.randn(1, 2, 9, 8, generator=torch.Generator().manual_seed(0))
    with attention("cpu", "float32"):
        assert scaled_dot_product_attention(q, q, q).dtype == torch.float32
