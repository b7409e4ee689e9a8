"""Every number here is worked by hand in its comment."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vestige import losses


def rows(*values: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities padded on the right, with their mask."""
    width = max(len(v) for v in values)
    logp = torch.tensor([[*v, *[-99.0] * (width - len(v))] for v in values])
    mask = torch.tensor([[i < len(v) for i in range(width)] for v in values])
    return logp, mask


def test_nll_is_the_mean_over_tokens_and_not_over_sequences():
    # Lengths 2 and 8 with NLL 1 and 3 a token: (2 * 1 + 8 * 3) / 10 = 2.6; the mean of sequence means would be 2.0.
    logp, mask = rows([-1.0] * 2, [-3.0] * 8)
    torch.testing.assert_close(losses.nll(logp, mask, n_tokens=10), torch.tensor(2.6))


def test_row_logp_sums_over_the_answer():
    # Sums 2 * -1 = -2 and 8 * -3 = -24.
    logp, mask = rows([-1.0] * 2, [-3.0] * 8)
    torch.testing.assert_close(losses.row_logp(logp, mask), torch.tensor([-2.0, -24.0]))


def test_parts_of_a_batch_add_up_to_the_whole():
    logp, mask = rows([-1.0] * 2, [-3.0] * 8)
    parts = sum(losses.nll(logp[i : i + 1], mask[i : i + 1], n_tokens=10) for i in range(2))
    torch.testing.assert_close(parts, losses.nll(logp, mask, n_tokens=10))


P = torch.tensor([[0.5, 0.25, 0.25], [0.9, 0.05, 0.05]]).log()
Q = torch.tensor([[0.25, 0.5, 0.25], [1 / 3, 1 / 3, 1 / 3]]).log()


def test_kl_by_hand_and_its_direction():
    # Row 1: .5 ln 2 + .25 ln .5 + .25 ln 1 = .25 ln 2 = .173287.
    # Row 2: .9 ln 2.7 + .1 ln .15 = .893927 - .189712 = .704215.
    forward = [losses.kl(Q[i][None, None], P[i][None, None], torch.tensor([[True]]), n_tokens=1) for i in range(2)]
    torch.testing.assert_close(torch.stack(forward), torch.tensor([0.173287, 0.704215]), atol=1e-6, rtol=0)
    # The other way round row 2 is (1/3) ln(.370370 * 6.666667^2) = .933663: the direction matters.
    reverse = losses.kl(P[1][None, None], Q[1][None, None], torch.tensor([[True]]), n_tokens=1)
    torch.testing.assert_close(reverse, torch.tensor(0.933663), atol=1e-6, rtol=0)


def test_kl_over_a_batch_counts_masked_positions_alone():
    # Two rows of one real position and one of padding: (.173287 + .704215) / 2 = .438751.
    noise = torch.full((2, 1, 3), 1 / 3).log()
    policy = torch.cat([Q[:, None], torch.tensor([[[0.9, 0.05, 0.05]]] * 2).log()], dim=1)
    reference = torch.cat([P[:, None], noise], dim=1)
    mask = torch.tensor([[True, False], [True, False]])
    torch.testing.assert_close(losses.kl(policy, reference, mask, n_tokens=2), torch.tensor(0.438751), atol=1e-6, rtol=0)


def test_dpo_by_hand():
    # IDK -8 against -10 under the reference, answer -12 against -9: margins 4 and -1, so
    # -ln sigmoid(.1 * 5) = ln(1 + e^-.5) = .474077.
    value = losses.dpo(torch.tensor([4.0]), torch.tensor([-1.0]), beta=0.1, n_rows=1)
    torch.testing.assert_close(value, torch.tensor(0.474077), atol=1e-6, rtol=0)
    # 2 / beta times that is 9.481540, the form of the NPO code; ours has no such factor.
    torch.testing.assert_close(20 * value, torch.tensor(9.481540), atol=1e-5, rtol=0)


def test_dpo_at_the_reference_is_ln_2():
    margin = torch.tensor([3.0, -7.0])
    torch.testing.assert_close(losses.dpo(margin, margin, beta=0.1, n_rows=2), torch.tensor(math.log(2)))


@given(st.lists(st.lists(st.floats(-20, 0), min_size=1, max_size=6), min_size=1, max_size=4), st.integers(0, 5))
def test_padding_changes_nothing(values, more):
    logp, mask = rows(*values)
    wide = torch.nn.functional.pad(logp, (0, more), value=math.nan)
    wide_mask = torch.nn.functional.pad(mask, (0, more), value=False)
    n = int(mask.sum())
    torch.testing.assert_close(losses.nll(wide, wide_mask, n_tokens=n), losses.nll(logp, mask, n_tokens=n))
    torch.testing.assert_close(losses.row_logp(wide, wide_mask), losses.row_logp(logp, mask))


def test_padding_leaves_the_gradient_alone():
    logp = torch.tensor([[-1.0, math.nan]], requires_grad=True)
    losses.nll(logp, torch.tensor([[True, False]]), n_tokens=1).backward()
    assert logp.grad is not None
    torch.testing.assert_close(logp.grad, torch.tensor([[-1.0, 0.0]]))


@pytest.mark.parametrize("beta", [0.1, 1.0])
def test_dpo_pulls_a_small_margin_with_half_of_beta(beta):
    # d/dm of -ln sigmoid(beta m) at m = 0 is -beta / 2.
    margin = torch.zeros(1, requires_grad=True)
    losses.dpo(margin, torch.zeros(1), beta=beta, n_rows=1).backward()
    assert margin.grad is not None
    torch.testing.assert_close(margin.grad, torch.tensor([-beta / 2]))
