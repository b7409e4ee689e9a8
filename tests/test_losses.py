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
    torch.testing.assert_close(
        losses.kl(policy, reference, mask, n_tokens=2), torch.tensor(0.438751), atol=1e-6, rtol=0
    )


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


def test_npo_at_the_reference_is_two_over_beta_ln_2():
    # 20 ln 2 = 13.862944 and 2 ln 2 = 1.386294.
    logp = torch.tensor([-3.0, -70.0])
    values = [losses.npo(logp, logp, beta=beta, n_rows=2).item() for beta in (0.1, 1.0)]
    assert values == pytest.approx([13.862944, 1.386294], abs=1e-6)


@pytest.mark.parametrize(("policy", "reference", "expected"), [(-12.0, -10.0, 11.962777), (-10.0, -12.0, 15.962777)])
def test_npo_by_hand(policy, reference, expected):
    # 20 ln(1 + e^-.2) = 20 * .598139 = 11.962777; 20 ln(1 + e^.2) = 20 * .798139 = 15.962777.
    value = losses.npo(torch.tensor([policy]), torch.tensor([reference]), beta=0.1, n_rows=1)
    torch.testing.assert_close(value, torch.tensor(expected), atol=1e-5, rtol=0)


def test_npo_fades_as_the_answer_falls_below_the_reference():
    # d/d(logp) = 2 sigmoid(beta (policy - reference)): 2 / (1 + e^.2) = .900332, and 2 / (1 + e^5) = .013386.
    policy = torch.tensor([-12.0, -60.0], requires_grad=True)
    losses.npo(policy, torch.tensor([-10.0, -10.0]), beta=0.1, n_rows=1).backward()
    assert policy.grad is not None
    torch.testing.assert_close(policy.grad, torch.tensor([0.900332, 0.013386]), atol=1e-6, rtol=0)


def test_npo_at_small_beta_has_the_gradient_of_ascent_on_summed_answers():
    # 2 sigmoid(1e-5 d) is within 5e-6 d of 1, and ascent minimises the sum of logp: 1 a token, over 2 rows.
    logp, mask = rows([-1.0] * 2, [-3.0] * 8)
    logp.requires_grad_()
    losses.npo(losses.row_logp(logp, mask), torch.tensor([-1.5, -30.0]), beta=1e-5, n_rows=2).backward()
    assert logp.grad is not None
    torch.testing.assert_close(logp.grad, mask / 2, atol=1e-4, rtol=0)


def test_simnpo_by_hand():
    # Four tokens of -3: 2.5 * 3 = 7.5, so .8 ln(1 + e^-7.5) = .8 * 5.52932e-4 = 4.42345e-4.
    logp, mask = rows([-3.0] * 4)
    value = losses.simnpo(logp, mask, beta=2.5, gamma=0.0, n_rows=1)
    torch.testing.assert_close(value, torch.tensor(4.42345e-4), atol=1e-9, rtol=0)


def test_simnpo_takes_its_margin_outside_of_beta():
    # 2.5 * .4 - .5 = .5: .8 ln(1 + e^-.5) = .8 * .474077 = .379262.
    # The released code's 2.5 (.4 - .5) = -.25 would give .8 ln(1 + e^.25) = 0.660752.
    logp, mask = rows([-0.4] * 3)
    value = losses.simnpo(logp, mask, beta=2.5, gamma=0.5, n_rows=1)
    torch.testing.assert_close(value, torch.tensor(0.379262), atol=1e-6, rtol=0)


def test_simnpo_gives_answers_of_any_length_the_same_weight():
    # Both rows have the mean -1; d/d(token) = 2 sigmoid(beta m) / (n_rows |y|): 2 / (1 + e^2.5) / 2 = .075858 a row.
    logp, mask = rows([-1.0] * 2, [-1.0] * 8)
    logp.requires_grad_()
    losses.simnpo(logp, mask, beta=2.5, gamma=0.0, n_rows=2).backward()
    assert logp.grad is not None
    torch.testing.assert_close(logp.grad.sum(dim=1), torch.full((2,), 0.075858), atol=1e-6, rtol=0)


def test_weighted_ascent_by_hand():
    # WGA at p = 1/2 and 1/4: (.5 ln .5 + .25 ln .25) / 2 = -(.346574 + .346574) / 2 = -.346574.
    logp, mask = rows([math.log(0.5)], [math.log(0.25)])
    wga = losses.weighted_ascent(logp, mask, saturation=1.0, importance=0.0, n_tokens=2)
    torch.testing.assert_close(wga, torch.tensor(-0.346574), atol=1e-6, rtol=0)
    # SatImp: (.5^5 .5 ln .5 + .25^5 .75 ln .25) / 2 = -(.010830 + .001015) / 2 = -.005923.
    satimp = losses.weighted_ascent(logp, mask, saturation=5.0, importance=1.0, n_tokens=2)
    torch.testing.assert_close(satimp, torch.tensor(-0.005923), atol=1e-6, rtol=0)


def test_ascent_without_weights_is_gradient_ascent():
    logp, mask = rows([-1.0] * 2, [-3.0] * 8)
    plain = losses.weighted_ascent(logp, mask, saturation=0.0, importance=0.0, n_tokens=10)
    torch.testing.assert_close(plain, torch.tensor(-2.6))


def test_no_gradient_goes_through_the_weight_of_ascent():
    # p ln p would have the gradient p (1 + ln p) = .153426 at p = 1/2; the weight alone is p = .5.
    logp = torch.tensor([[math.log(0.5)]], requires_grad=True)
    losses.weighted_ascent(logp, torch.tensor([[True]]), saturation=1.0, importance=0.0, n_tokens=1).backward()
    assert logp.grad is not None
    torch.testing.assert_close(logp.grad, torch.tensor([[0.5]]))


def test_a_log_probability_that_rounding_lifted_above_0_is_certain():
    # p = 1 has the weight 1^5 * 0^.5 = 0; a negative 1 - p has no square root.
    logp = torch.tensor([[1e-6, 0.0]], requires_grad=True)
    value = losses.weighted_ascent(logp, torch.tensor([[True, True]]), saturation=5.0, importance=0.5, n_tokens=2)
    value.backward()
    assert value.item() == 0.0
    assert logp.grad is not None
    torch.testing.assert_close(logp.grad, torch.zeros(1, 2))


def by_simnpo(logp, mask, n_rows, n_tokens):
    return losses.simnpo(logp, mask, beta=2.5, gamma=0.5, n_rows=n_rows)


def by_weighted_ascent(logp, mask, n_rows, n_tokens):
    return losses.weighted_ascent(logp, mask, saturation=1.5, importance=0.5, n_tokens=n_tokens)


@pytest.mark.parametrize("loss", [by_simnpo, by_weighted_ascent])
@given(
    values=st.lists(st.lists(st.floats(-20, 0), min_size=1, max_size=6), min_size=1, max_size=4), more=st.integers(0, 5)
)
def test_padding_changes_neither_value_nor_gradient(loss, values, more):
    logp, mask = rows(*values)
    wide = torch.nn.functional.pad(logp, (0, more), value=math.nan)
    wide_mask = torch.nn.functional.pad(mask, (0, more), value=False)
    sizes = {"n_rows": len(values), "n_tokens": int(mask.sum())}
    found = []
    for tokens, counted in ((logp, mask), (wide, wide_mask)):
        tokens.requires_grad_()
        value = loss(tokens, counted, **sizes)
        value.backward()
        assert (tokens.grad[~counted] == 0).all()
        found.append((value.detach(), tokens.grad[counted]))
    torch.testing.assert_close(found[1], found[0])


def test_undial_counts_neither_padding_nor_the_token_that_stands_there():
    # One real position, one of padding; vocabulary 103, so that an ignore sign of -100 would mean token 3.
    generator = torch.Generator().manual_seed(0)
    policy, reference = (torch.randn(1, 2, 103, generator=generator).log_softmax(-1) for _ in range(2))
    mask = torch.tensor([[True, False]])
    values = [
        losses.undial(policy, reference, torch.tensor([[5, at]]), mask, beta=10.0, n_tokens=1) for at in (0, 3, 102)
    ]
    alone = losses.undial(policy[:, :1], reference[:, :1], torch.tensor([[5]]), mask[:, :1], beta=10.0, n_tokens=1)
    torch.testing.assert_close(torch.stack(values), alone.expand(3))


def test_undial_at_the_lowered_reference_is_its_entropy_and_pulls_nowhere():
    # Reference (1/2, 1/4, 1/4), the first token lowered by ln 2: (1/4, 1/4, 1/4) / (3/4) = thirds; entropy ln 3.
    reference = torch.tensor([[[0.5, 0.25, 0.25]]]).log()
    logits = torch.zeros(1, 1, 3, requires_grad=True)
    value = losses.undial(
        logits.log_softmax(-1), reference, torch.tensor([[0]]), torch.tensor([[True]]), beta=math.log(2), n_tokens=1
    )
    value.backward()
    torch.testing.assert_close(value.detach(), torch.tensor(math.log(3)))
    torch.testing.assert_close(logits.grad, torch.zeros(1, 1, 3))


def ce_u_of(logits):
    value = losses.ce_u(logits.log_softmax(-1), torch.tensor([[1]]), torch.tensor([[True]]), n_tokens=1)
    value.backward()
    return value.item(), logits.grad[0, 0]


def test_ce_u_pulls_towards_the_distribution_without_the_answer():
    # p = (1/2, 1/4, 1/4), the second ruled out: target (2/3, 0, 1/3); KL = ln (4/3), gradient p - target.
    value, gradient = ce_u_of(torch.tensor([[[0.5, 0.25, 0.25]]]).log().requires_grad_())
    assert value == pytest.approx(math.log(4 / 3))
    torch.testing.assert_close(gradient, torch.tensor([0.5 - 2 / 3, 0.25, 0.25 - 1 / 3]))


def test_ce_u_stays_right_where_the_answer_is_certain():
    # Logits (0, 40, 0): 1 - p = 2 e^-40 is lost in p, which rounds to 1; -log(1 - p) = 40 - ln 2 = 39.306853.
    value, gradient = ce_u_of(torch.tensor([[[0.0, 40.0, 0.0]]]).requires_grad_())
    assert value == pytest.approx(39.306853)
    torch.testing.assert_close(gradient, torch.tensor([-0.5, 1.0, -0.5]))


def test_logit_margin_by_hand():
    # (2, 1, 0) has max 2 and mean 1, (0, 0, 3) 3 and 1: (1 + 4) / 2 = 2.5.
    policy = torch.tensor([[[2.0, 1.0, 0.0], [0.0, 0.0, 3.0]]])
    value = losses.logit_margin(policy, torch.tensor([[True, True]]), n_tokens=2)
    torch.testing.assert_close(value, torch.tensor(2.5))


def test_logit_margin_is_0_and_pulls_nowhere_where_the_distribution_is_uniform():
    policy = torch.full((1, 1, 5), math.log(0.2), requires_grad=True)
    value = losses.logit_margin(policy, torch.tensor([[True]]), n_tokens=1)
    value.backward()
    assert value.item() == pytest.approx(0, abs=1e-12)
    torch.testing.assert_close(policy.grad, torch.zeros(1, 1, 5))


def squares(*rows_of_squares: list[float], width: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Activations whose tokens have the given mean squares, padded with a large number, and their mask."""
    longest = max(len(row) for row in rows_of_squares)
    values = [[*[math.sqrt(v) for v in row], *[50.0] * (longest - len(row))] for row in rows_of_squares]
    mask = torch.tensor([[i < len(row) for i in range(longest)] for row in rows_of_squares])
    return torch.tensor(values).unsqueeze(-1).expand(-1, -1, width).clone(), mask


def test_activation_distance_by_hand():
    # Rows of 1 and 2 tokens with squares 4 | 1, 9 in each of three entries: (4 + 5) / 2 = 4.5; over tokens 14 / 3.
    hidden, mask = squares([4.0], [1.0, 9.0], width=3)
    value = losses.activation_distance(hidden, torch.zeros_like(hidden), mask, n_rows=2)
    torch.testing.assert_close(value, torch.tensor(4.5))


def test_activation_distance_of_silence_from_a_steered_unit_vector():
    # Means over the width: 6.5^2 / 4 = 10.5625, 6.5^2 / 4096 = .010315, 20^2 / 4096 = .097656.
    for width, steering, expected in ((4, 6.5, 10.5625), (4096, 6.5, 0.010315), (4096, 20.0, 0.097656)):
        target = torch.full((1, 1, width), steering / math.sqrt(width))
        value = losses.activation_distance(torch.zeros(1, 1, width), target, torch.tensor([[True]]), n_rows=1)
        assert value.item() == pytest.approx(expected, abs=1e-6)


def test_activation_distance_divides_each_row_by_its_own_length_on_three_ragged_rows():
    # Rows of 1, 2 and 4 tokens whose squares add up to .5, .7064 and 10.5552: (.5 + .3532 + 2.6388) / 3 = 1.164.
    # The sums over all pairs of rows and lengths, as a (3,) over a (3, 1) gives them, average 11.7616 / 3 * 7 / 12 =
    # 2.28698, and so does the published implementation that divides that way.
    hidden, mask = squares([0.5], [0.3, 0.4064], [2.5, 2.5, 2.5, 3.0552])
    value = losses.activation_distance(hidden, torch.zeros_like(hidden), mask, n_rows=3)
    assert value.item() == pytest.approx(1.164, abs=1e-5)
    sums, lengths = (hidden.square().squeeze(-1) * mask).sum(dim=1), mask.sum(dim=1)
    assert (sums / lengths.unsqueeze(1)).mean().item() == pytest.approx(2.287, abs=1e-4)


def test_activation_distance_is_0_and_pulls_nowhere_at_the_target():
    hidden = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    mask = torch.tensor([[True, True, False], [True, False, False]])
    value = losses.activation_distance(hidden, hidden.detach().clone(), mask, n_rows=2)
    value.backward()
    assert value.item() == 0
    torch.testing.assert_close(hidden.grad, torch.zeros(2, 3, 4))


def by_kl(values, mask, target, tokens):
    return losses.kl(values.log_softmax(-1), target.log_softmax(-1), mask, n_tokens=3)


def by_reverse_kl(values, mask, target, tokens):
    return losses.kl(target.log_softmax(-1), values.log_softmax(-1), mask, n_tokens=3)


def by_undial(values, mask, target, tokens):
    return losses.undial(values.log_softmax(-1), target.log_softmax(-1), tokens, mask, beta=2.0, n_tokens=3)


def by_ce_u(values, mask, target, tokens):
    return losses.ce_u(values.log_softmax(-1), tokens, mask, n_tokens=3)


def by_logit_margin(values, mask, target, tokens):
    return losses.logit_margin(values, mask, n_tokens=3)


def by_activation_distance(values, mask, target, tokens):
    return losses.activation_distance(values, target, mask, n_rows=2)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [by_kl, by_reverse_kl, by_undial, by_ce_u, by_logit_margin, by_activation_distance])
@given(seed=st.integers(0, 999), more=st.integers(1, 4))
def test_padding_changes_neither_value_nor_gradient_of_a_loss_on_vectors(loss, seed, more):
    # Rows of 2 and 1 positions and a width of 5; the padding holds other numbers and other tokens.
    generator = torch.Generator().manual_seed(seed)
    values, target, noise, other = (torch.randn(2, n, 5, generator=generator) for n in (2, 2, more, more))
    mask, tokens = torch.tensor([[True, True], [True, False]]), torch.tensor([[0, 4], [2, 1]])
    wide = torch.cat([values, 30 * noise], dim=1)
    wide_mask = torch.nn.functional.pad(mask, (0, more), value=False)
    wide_tokens = torch.nn.functional.pad(tokens, (0, more), value=3)
    found = []
    for leaf, counted, against, own in (
        (values, mask, target, tokens),
        (wide, wide_mask, torch.cat([target, other], dim=1), wide_tokens),
    ):
        leaf.requires_grad_()
        value = loss(leaf, counted, against, own)
        value.backward()
        assert (leaf.grad[~counted] == 0).all()
        found.append((value.detach(), leaf.grad[counted]))
    torch.testing.assert_close(found[1], found[0])


def test_losses_on_vectors_do_not_care_whether_rows_stand_side_by_side_or_end_to_end():
    generator = torch.Generator().manual_seed(0)
    values, target = (torch.randn(2, 2, 5, generator=generator) for _ in range(2))
    mask, tokens = torch.tensor([[True, True], [True, False]]), torch.tensor([[0, 4], [2, 1]])
    for loss in (by_kl, by_reverse_kl, by_undial, by_ce_u, by_logit_margin):
        flat = [v[mask].unsqueeze(0) for v in (values, mask, target, tokens)]
        torch.testing.assert_close(loss(*flat), loss(values, mask, target, tokens))
