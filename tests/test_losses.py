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


LOGP, MASK = rows([-1.0] * 2, [-3.0] * 8)
HALVES = rows([math.log(0.5)], [math.log(0.25)])
ONE = torch.tensor([[True]])
P = torch.tensor([[0.5, 0.25, 0.25], [0.9, 0.05, 0.05]]).log()
Q = torch.tensor([[0.25, 0.5, 0.25], [1 / 3, 1 / 3, 1 / 3]]).log()


def at(*values: float) -> torch.Tensor:
    return torch.tensor(values)


BY_HAND = {
    # Lengths 2 and 8 with NLL 1 and 3 a token: (2 * 1 + 8 * 3) / 10 = 2.6; the mean of sequence means would be 2.0.
    "nll": (lambda: losses.nll(LOGP, MASK, n_tokens=10), 2.6),
    "row_logp": (lambda: losses.row_logp(LOGP, MASK), [-2.0, -24.0]),
    # .5 ln 2 + .25 ln .5 + .25 ln 1 = .25 ln 2 = .173287.
    "kl": (lambda: losses.kl(Q[0][None, None], P[0][None, None], ONE, n_tokens=1), 0.173287),
    # .9 ln 2.7 + .1 ln .15 = .893927 - .189712 = .704215.
    "kl forward": (lambda: losses.kl(Q[1][None, None], P[1][None, None], ONE, n_tokens=1), 0.704215),
    # The other way round (1/3) ln(.370370 * 6.666667^2) = .933663: the direction matters.
    "kl reverse": (lambda: losses.kl(P[1][None, None], Q[1][None, None], ONE, n_tokens=1), 0.933663),
    # IDK -8 against -10 under the reference, answer -12 against -9: margins 4 and -1, so
    # -ln sigmoid(.1 * 5) = ln(1 + e^-.5) = .474077. The NPO code's form has a factor 2 / beta; ours has none.
    "dpo": (lambda: losses.dpo(at(4.0), at(-1.0), beta=0.1, n_rows=1), 0.474077),
    "dpo at the reference": (lambda: losses.dpo(at(3.0, -7.0), at(3.0, -7.0), beta=0.1, n_rows=2), math.log(2)),
    # 20 ln 2 = 13.862944 and 2 ln 2 = 1.386294.
    "npo at the reference": (lambda: losses.npo(at(-3.0, -70.0), at(-3.0, -70.0), beta=0.1, n_rows=2), 13.862944),
    "npo of beta 1": (lambda: losses.npo(at(-3.0, -70.0), at(-3.0, -70.0), beta=1.0, n_rows=2), 1.386294),
    # 20 ln(1 + e^-.2) = 20 * .598139 = 11.962777; 20 ln(1 + e^.2) = 20 * .798139 = 15.962777.
    "npo below": (lambda: losses.npo(at(-12.0), at(-10.0), beta=0.1, n_rows=1), 11.962777),
    "npo above": (lambda: losses.npo(at(-10.0), at(-12.0), beta=0.1, n_rows=1), 15.962777),
    # Four tokens of -3: 2.5 * 3 = 7.5, so .8 ln(1 + e^-7.5) = .8 * 5.52932e-4 = 4.42345e-4.
    "simnpo": (lambda: losses.simnpo(*rows([-3.0] * 4), beta=2.5, gamma=0.0, n_rows=1), 4.42345e-4),
    # 2.5 * .4 - .5 = .5: .8 ln(1 + e^-.5) = .8 * .474077 = .379262. The margin stands outside of beta:
    # the released code's 2.5 (.4 - .5) = -.25 would give .8 ln(1 + e^.25) = 0.660752.
    "simnpo's margin": (lambda: losses.simnpo(*rows([-0.4] * 3), beta=2.5, gamma=0.5, n_rows=1), 0.379262),
    # WGA at p = 1/2 and 1/4: (.5 ln .5 + .25 ln .25) / 2 = -(.346574 + .346574) / 2 = -.346574.
    "wga": (lambda: losses.weighted_ascent(*HALVES, saturation=1.0, importance=0.0, n_tokens=2), -0.346574),
    # SatImp: (.5^5 .5 ln .5 + .25^5 .75 ln .25) / 2 = -(.010830 + .001015) / 2 = -.005923.
    "satimp": (lambda: losses.weighted_ascent(*HALVES, saturation=5.0, importance=1.0, n_tokens=2), -0.005923),
    "ascent": (lambda: losses.weighted_ascent(LOGP, MASK, saturation=0.0, importance=0.0, n_tokens=10), -2.6),
    # (2, 1, 0) has max 2 and mean 1, (0, 0, 3) 3 and 1: (1 + 4) / 2 = 2.5.
    "logit_margin": (
        lambda: losses.logit_margin(
            torch.tensor([[[2.0, 1.0, 0.0], [0.0, 0.0, 3.0]]]), torch.tensor([[True, True]]), n_tokens=2
        ),
        2.5,
    ),
    # Rows of 1 and 2 tokens with squares 4 | 1, 9 in each of three entries: (4 + 5) / 2 = 4.5; over tokens 14 / 3.
    "activation_distance": (lambda: from_nothing([4.0], [1.0, 9.0], width=3), 4.5),
    # Rows of 1, 2 and 4 tokens whose squares add up to .5, .7064 and 10.5552: (.5 + .3532 + 2.6388) / 3 = 1.164. The
    # sums over all pairs of rows and lengths, as a (3,) over a (3, 1) gives them, average 11.7616 / 3 * 7 / 12 =
    # 2.28698, and so does the published implementation that divides that way.
    "of ragged rows": (lambda: from_nothing([0.5], [0.3, 0.4064], [2.5, 2.5, 2.5, 3.0552]), 1.164),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_values_by_hand(case):
    value, expected = BY_HAND[case]
    torch.testing.assert_close(value(), torch.tensor(expected), atol=1e-5 if case.startswith("npo") else 1e-6, rtol=0)


def from_nothing(*rows_of_squares: list[float], width: int = 1) -> torch.Tensor:
    """The distance from zero of activations whose tokens have these mean squares, padded with a large number."""
    longest = max(len(row) for row in rows_of_squares)
    values = [[*[math.sqrt(v) for v in row], *[50.0] * (longest - len(row))] for row in rows_of_squares]
    mask = torch.tensor([[i < len(row) for i in range(longest)] for row in rows_of_squares])
    hidden = torch.tensor(values).unsqueeze(-1).expand(-1, -1, width)
    return losses.activation_distance(hidden, torch.zeros_like(hidden), mask, n_rows=len(values))


def test_activation_distance_of_silence_from_a_steered_unit_vector():
    # Means over the width: 6.5^2 / 4 = 10.5625, 6.5^2 / 4096 = .010315, 20^2 / 4096 = .097656.
    for width, steering, expected in ((4, 6.5, 10.5625), (4096, 6.5, 0.010315), (4096, 20.0, 0.097656)):
        target = torch.full((1, 1, width), steering / math.sqrt(width))
        value = losses.activation_distance(torch.zeros(1, 1, width), target, ONE, n_rows=1)
        assert value.item() == pytest.approx(expected, abs=1e-6)


PULLS = {
    # d/dm of -ln sigmoid(beta m) at m = 0 is -beta / 2.
    "dpo": (at(0.0), lambda m: losses.dpo(m, torch.zeros(1), beta=0.1, n_rows=1), [-0.05]),
    # d/d(logp) = 2 sigmoid(beta (policy - reference)): 2 / (1 + e^.2) = .900332, and 2 / (1 + e^5) = .013386.
    "npo": (at(-12.0, -60.0), lambda p: losses.npo(p, at(-10.0, -10.0), beta=0.1, n_rows=1), [0.900332, 0.013386]),
    # 2 sigmoid(1e-5 d) is within 5e-6 d of 1, and ascent minimises the sum of logp: 1 a token, over 2 rows.
    "npo at small beta": (
        LOGP,
        lambda p: losses.npo(losses.row_logp(p, MASK), at(-1.5, -30.0), beta=1e-5, n_rows=2),
        MASK / 2,
    ),
    # Both rows have the mean -1; d/d(token) = 2 sigmoid(beta m) / (n_rows |y|): 2 / (1 + e^2.5) / 2 = .075858 a row.
    "simnpo": (
        rows([-1.0] * 2, [-1.0] * 8)[0],
        lambda p: losses.simnpo(p, MASK, beta=2.5, gamma=0.0, n_rows=2),
        MASK * 0.075858 / torch.tensor([[2], [8]]),
    ),
    # p ln p would have the gradient p (1 + ln p) = .153426 at p = 1/2. The weight alone is p = .5.
    "weighted_ascent": (
        HALVES[0][:1],
        lambda p: losses.weighted_ascent(p, ONE, saturation=1.0, importance=0.0, n_tokens=1),
        [[0.5]],
    ),
    # Reference (1/2, 1/4, 1/4), the first token lowered by ln 2: thirds, where the policy is; it pulls nowhere.
    "undial": (
        torch.zeros(1, 1, 3),
        lambda z: losses.undial(z.log_softmax(-1), P[:1][None], torch.tensor([[0]]), ONE, beta=math.log(2), n_tokens=1),
        [[[0.0] * 3]],
    ),
    "logit_margin": (
        torch.full((1, 1, 5), math.log(0.2)),
        lambda p: losses.logit_margin(p, ONE, n_tokens=1),
        [[[0.0] * 5]],
    ),
    "activation_distance": (
        torch.ones(1, 1, 4),
        lambda h: losses.activation_distance(h, torch.ones(1, 1, 4), ONE, n_rows=1),
        [[[0.0] * 4]],
    ),
}


@pytest.mark.parametrize("case", PULLS)
def test_gradients_by_hand(case):
    start, loss, expected = PULLS[case]
    leaf = start.clone().requires_grad_()
    loss(leaf).backward()
    torch.testing.assert_close(leaf.grad, torch.as_tensor(expected), atol=1e-4 if "small" in case else 1e-6, rtol=0)


def test_a_log_probability_that_rounding_lifted_above_0_is_certain():
    # p = 1 has the weight 1^5 * 0^.5 = 0; a negative 1 - p has no square root.
    logp = torch.tensor([[1e-6, 0.0]], requires_grad=True)
    value = losses.weighted_ascent(logp, torch.tensor([[True, True]]), saturation=5.0, importance=0.5, n_tokens=2)
    value.backward()
    assert value.item() == 0.0
    torch.testing.assert_close(logp.grad, torch.zeros(1, 2))


def test_undial_at_the_lowered_reference_is_its_entropy():
    tokens = torch.tensor([[0]])
    value = losses.undial(Q[1:][None], P[:1][None], tokens, ONE, beta=math.log(2), n_tokens=1)
    torch.testing.assert_close(value, torch.tensor(math.log(3)))


@pytest.mark.parametrize(
    ("logits", "value", "gradient"),
    [
        # p = (1/2, 1/4, 1/4), the second ruled out: target (2/3, 0, 1/3); KL = ln (4/3), gradient p - target.
        (P[0], math.log(4 / 3), [0.5 - 2 / 3, 0.25, 0.25 - 1 / 3]),
        # 1 - p = 2 e^-40 is lost in p, which rounds to 1; -log(1 - p) = 40 - ln 2 = 39.306853.
        (at(0.0, 40.0, 0.0), 39.306853, [-0.5, 1.0, -0.5]),
    ],
)
def test_ce_u_pulls_towards_the_distribution_without_the_answer_also_where_that_is_certain(logits, value, gradient):
    leaf = logits[None, None].clone().requires_grad_()
    found = losses.ce_u(leaf.log_softmax(-1), torch.tensor([[1]]), ONE, n_tokens=1)
    found.backward()
    assert found.item() == pytest.approx(value)
    torch.testing.assert_close(leaf.grad[0, 0], torch.tensor(gradient))


ON_TOKENS = {
    "nll": lambda logp, mask, n: losses.nll(logp, mask, n_tokens=n),
    "row_logp": lambda logp, mask, n: losses.row_logp(logp, mask).sum(),
    "simnpo": lambda logp, mask, n: losses.simnpo(logp, mask, beta=2.5, gamma=0.5, n_rows=n),
    "ascent": lambda logp, mask, n: losses.weighted_ascent(logp, mask, saturation=1.5, importance=0.5, n_tokens=n),
}
ON_VECTORS = {
    "kl": lambda v, mask, to, _: losses.kl(v.log_softmax(-1), to.log_softmax(-1), mask, n_tokens=3),
    "reverse kl": lambda v, mask, to, _: losses.kl(to.log_softmax(-1), v.log_softmax(-1), mask, n_tokens=3),
    "undial": lambda v, mask, to, tokens: losses.undial(
        v.log_softmax(-1), to.log_softmax(-1), tokens, mask, beta=2.0, n_tokens=3
    ),
    "ce_u": lambda v, mask, to, tokens: losses.ce_u(v.log_softmax(-1), tokens, mask, n_tokens=3),
    "logit_margin": lambda v, mask, to, _: losses.logit_margin(v, mask, n_tokens=3),
    "activation_distance": lambda v, mask, to, _: losses.activation_distance(v, to, mask, n_rows=2),
}


def pulled(loss, leaf, mask, *more) -> tuple[torch.Tensor, torch.Tensor]:
    """The value and the gradient where the mask is; elsewhere there is none."""
    leaf.requires_grad_()
    value = loss(leaf, mask, *more)
    value.backward()
    assert (leaf.grad[~mask] == 0).all()
    return value.detach(), leaf.grad[mask]


@pytest.mark.parametrize("loss", ON_TOKENS)
@given(
    values=st.lists(st.lists(st.floats(-20, 0), min_size=1, max_size=6), min_size=1, max_size=4), more=st.integers(0, 5)
)
def test_padding_changes_neither_value_nor_gradient(loss, values, more):
    logp, mask = rows(*values)
    wide = torch.nn.functional.pad(logp, (0, more), value=math.nan)
    wide_mask = torch.nn.functional.pad(mask, (0, more), value=False)
    found = pulled(ON_TOKENS[loss], wide, wide_mask, len(values))
    torch.testing.assert_close(found, pulled(ON_TOKENS[loss], logp, mask, len(values)))


@pytest.mark.slow
@pytest.mark.parametrize("loss", ON_VECTORS)
@given(seed=st.integers(0, 999), more=st.integers(1, 4))
def test_padding_changes_neither_value_nor_gradient_of_a_loss_on_vectors(loss, seed, more):
    # Rows of 2 and 1 positions and a width of 5; the padding holds other numbers and other tokens.
    generator = torch.Generator().manual_seed(seed)
    values, target, noise, other = (torch.randn(2, n, 5, generator=generator) for n in (2, 2, more, more))
    mask, tokens = torch.tensor([[True, True], [True, False]]), torch.tensor([[0, 4], [2, 1]])
    wide_mask = torch.nn.functional.pad(mask, (0, more), value=False)
    wide_tokens = torch.nn.functional.pad(tokens, (0, more), value=3)
    wide = torch.cat([values, 30 * noise], dim=1), wide_mask, torch.cat([target, other], dim=1), wide_tokens
    found = pulled(ON_VECTORS[loss], *wide)
    torch.testing.assert_close(found, pulled(ON_VECTORS[loss], values, mask, target, tokens))


def test_losses_on_vectors_do_not_care_whether_rows_stand_side_by_side_or_end_to_end():
    generator = torch.Generator().manual_seed(0)
    values, target = (torch.randn(2, 2, 5, generator=generator) for _ in range(2))
    mask, tokens = torch.tensor([[True, True], [True, False]]), torch.tensor([[0, 4], [2, 1]])
    for name, loss in ON_VECTORS.items():
        if name != "activation_distance":
            flat = [v[mask].unsqueeze(0) for v in (values, mask, target, tokens)]
            torch.testing.assert_close(loss(*flat), loss(values, mask, target, tokens))


def test_parts_add_up_to_the_whole_whatever_their_lengths():
    # Gradients are summed over parts of a batch, each divided by the whole batch's rows or tokens.
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([3, 9, 1, 4])
    mask = torch.arange(9) < lengths[:, None]
    logp, frozen = -torch.rand(4, 9, generator=generator), -9 * torch.rand(4, generator=generator)
    vectors, target = (torch.randn(4, 9, 5, generator=generator) for _ in range(2))
    tokens = torch.randint(0, 5, (4, 9), generator=generator)
    n_tokens = int(mask.sum())

    def values(part: slice) -> torch.Tensor:
        own, counted, wide, to = logp[part], mask[part], vectors[part], target[part]
        spread, reference = wide.log_softmax(-1), to.log_softmax(-1)
        sums = losses.row_logp(own, counted)
        return torch.stack(
            [
                losses.nll(own, counted, n_tokens=n_tokens),
                losses.dpo(sums, frozen[part], beta=0.1, n_rows=4),
                losses.npo(sums, frozen[part], beta=0.1, n_rows=4),
                losses.simnpo(own, counted, beta=2.5, gamma=0.2, n_rows=4),
                losses.weighted_ascent(own, counted, saturation=5.0, importance=1.0, n_tokens=n_tokens),
                losses.kl(spread, reference, counted, n_tokens=n_tokens),
                losses.undial(spread, reference, tokens[part], counted, beta=2.0, n_tokens=n_tokens),
                losses.ce_u(spread, tokens[part], counted, n_tokens=n_tokens),
                losses.logit_margin(wide, counted, n_tokens=n_tokens),
                losses.activation_distance(wide, to, counted, n_rows=4),
            ]
        )

    torch.testing.assert_close(values(slice(0, 1)) + values(slice(1, None)), values(slice(None)))
