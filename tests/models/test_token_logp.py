"""The log-probability of one token a position, by hand and against autograd's own way."""

import math

import pytest
import torch

from vestige.models import scoring as module
from vestige.models.scoring import token_logp

pytestmark = pytest.mark.portable


def test_by_hand():
    # Logits 0 and ln 3 are probabilities 1/4 and 3/4; d log p(1) / d logits = (-p(0), 1 - p(1)) = (-1/4, 1/4).
    logits = torch.tensor([[0.0, math.log(3.0)]], requires_grad=True)
    found = token_logp(logits, torch.tensor([1]))
    torch.testing.assert_close(found, torch.tensor([math.log(3 / 4)]))
    found.sum().backward()
    torch.testing.assert_close(logits.grad, torch.tensor([[-0.25, 0.25]]))


def test_the_gradient_is_that_of_finite_differences_across_chunks(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 2)
    logits = torch.randn(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: token_logp(x, torch.tensor([0, 6, 3, 3, 1])), (logits,))


def test_bfloat16_logits_give_float32_values_to_their_own_precision():
    logits = torch.randn(40, 50, generator=torch.Generator().manual_seed(0)).bfloat16().requires_grad_()
    tokens = torch.arange(40)
    found = token_logp(logits, tokens)
    assert found.dtype == torch.float32
    wide = logits.detach().float().requires_grad_()
    expected = wide.log_softmax(-1).gather(-1, tokens[:, None]).squeeze(-1)
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(logits.grad.float(), wide.grad, atol=4e-3, rtol=1e-2)


def test_the_logits_are_left_as_they_were():
    logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    before = logits.detach().clone()
    token_logp(logits, torch.tensor([0, 1, 2])).sum().backward()
    assert torch.equal(logits, before)
