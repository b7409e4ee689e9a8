"""Each loss against its paper's formula, written out again in plain Python: other code, no tensors.

Rows are ragged lists of numbers. Gradients are the formulas' derivatives by hand, not autograd's. In float64 the two
agree to nine digits; in float32, which training reads, to what its rounding leaves of them. Whole methods on a model,
with autograd's gradients, are in `methods/test_methods_on_a_model.py`.
"""

import math
import random

import pytest
import torch

from vestige import losses

pytestmark = pytest.mark.portable

SEEDS = range(5)
DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
TOLERANCE = {torch.float64: {"rtol": 1e-9, "atol": 1e-12}, torch.float32: {"rtol": 2e-4, "atol": 2e-6}}


def ragged(seed: int) -> tuple[list[list[float]], list[list[float]]]:
    """Log-probabilities of 1 to 9 tokens in 2 to 6 rows, under policy and reference."""
    draw = random.Random(seed)
    lengths = [draw.randint(1, 9) for _ in range(draw.randint(2, 6))]
    policy, reference = ([[math.log(draw.uniform(1e-4, 0.9999)) for _ in range(n)] for n in lengths] for _ in range(2))
    return policy, reference


def padded(values: list[list[float]], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    logp = stacked(values, -7.0, dtype).requires_grad_()
    return logp, stacked([[True] * len(v) for v in values], False, torch.bool)


def stacked(values: list, fill: object, dtype: torch.dtype) -> torch.Tensor:
    width = max(len(v) for v in values)
    return torch.tensor([[*v, *[fill] * (width - len(v))] for v in values], dtype=dtype)


def check(value: torch.Tensor, leaf: torch.Tensor, expected: float, gradient: list) -> None:
    """The value, and the gradient by rows; what stands behind a row's end gets none."""
    value.backward()
    within = TOLERANCE[leaf.dtype]
    assert value.dtype == leaf.dtype
    assert value.item() == pytest.approx(expected, rel=within["rtol"], abs=within["atol"])
    assert leaf.grad is not None
    none: object = 0.0 if leaf.dim() == 2 else [0.0] * leaf.shape[-1]
    torch.testing.assert_close(leaf.grad, stacked(gradient, none, leaf.dtype), **within)


@DTYPES
@pytest.mark.parametrize("seed", SEEDS)
def test_nll_is_the_mean_over_all_tokens(seed, dtype):
    policy, _ = ragged(seed)
    n = sum(len(row) for row in policy)
    logp, mask = padded(policy, dtype)
    value = losses.nll(logp, mask, n_tokens=n)
    check(value, logp, -sum(sum(row) for row in policy) / n, [[-1 / n] * len(row) for row in policy])


@DTYPES
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("beta", [0.05, 0.5])
def test_dpo_is_the_papers_equation_7_with_the_gradient_of_its_section_4(seed, beta, dtype):
    policy, reference = ragged(seed)
    n = len(policy)
    # The dispreferred answers: one token each, the same under both models but for a shift.
    other = [[math.log(0.2 + 0.1 * i)] for i in range(n)]
    gain = [sum(p) - sum(r) - (o[0] - math.log(0.5)) for p, r, o in zip(policy, reference, other, strict=True)]
    expected = sum(math.log(1 + math.exp(-beta * g)) for g in gain) / n
    pull = [-beta / (1 + math.exp(beta * g)) / n for g in gain]
    logp, mask = padded(policy, dtype)
    worse, counted = padded(other, dtype)
    frozen = losses.row_logp(*padded(reference, dtype)).detach() - math.log(0.5)
    margin = losses.row_logp(logp, mask) - losses.row_logp(worse, counted)
    check(
        losses.dpo(margin, frozen, beta=beta, n_rows=n),
        logp,
        expected,
        [[w] * len(p) for w, p in zip(pull, policy, strict=True)],
    )
    assert worse.grad is not None
    torch.testing.assert_close(worse.grad[:, 0], torch.tensor(pull, dtype=dtype).neg(), **TOLERANCE[dtype])


@DTYPES
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("beta", [0.01, 0.1, 1.0])
def test_npo_is_the_papers_equation_3_with_the_gradient_of_its_equation_5(seed, beta, dtype):
    policy, reference = ragged(seed)
    n = len(policy)
    ratio = [math.exp(sum(p) - sum(r)) for p, r in zip(policy, reference, strict=True)]
    expected = 2 / beta * sum(math.log(1 + q**beta) for q in ratio) / n
    # W = 2 pi^beta / (pi^beta + pi_ref^beta), on every token of the row.
    gradient = [[2 * q**beta / (q**beta + 1) / n] * len(p) for q, p in zip(ratio, policy, strict=True)]
    logp, mask = padded(policy, dtype)
    frozen = losses.row_logp(*padded(reference, dtype)).detach()
    check(losses.npo(losses.row_logp(logp, mask), frozen, beta=beta, n_rows=n), logp, expected, gradient)


@DTYPES
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("beta", "gamma"), [(2.5, 0.0), (4.5, 1.0), (0.5, -0.3)])
def test_simnpo_is_the_papers_equation_4(seed, beta, gamma, dtype):
    policy, _ = ragged(seed)
    n = len(policy)
    expected, gradient = 0.0, []
    for row in policy:
        odds = math.exp(sum(row)) ** (beta / len(row)) * math.exp(gamma)
        expected += 2 / beta * math.log(1 + odds) / n
        gradient.append([2 * odds / (1 + odds) / len(row) / n] * len(row))
    logp, mask = padded(policy, dtype)
    check(losses.simnpo(logp, mask, beta=beta, gamma=gamma, n_rows=n), logp, expected, gradient)


@DTYPES
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("saturation", "importance"), [(1.0, 0.0), (0.5, 0.0), (5.0, 1.0), (0.3, 0.3)])
def test_weighted_ascent_weighs_each_token_by_what_is_known_of_it(seed, saturation, importance, dtype):
    policy, _ = ragged(seed)
    n = sum(len(row) for row in policy)
    weight = [[math.exp(v) ** saturation * (1 - math.exp(v)) ** importance for v in row] for row in policy]
    expected = sum(w * v for ws, row in zip(weight, policy, strict=True) for w, v in zip(ws, row, strict=True)) / n
    logp, mask = padded(policy, dtype)
    value = losses.weighted_ascent(logp, mask, saturation=saturation, importance=importance, n_tokens=n)
    check(value, logp, expected, [[w / n for w in ws] for ws in weight])


def distributions(seed: int) -> tuple[list[list[list[float]]], list[list[list[float]]], list[list[int]]]:
    """Logits of 7 tokens, under policy and reference, at 1 to 5 positions in 2 to 4 rows, and each answer's tokens."""
    draw = random.Random(seed)
    lengths = [draw.randint(1, 5) for _ in range(draw.randint(2, 4))]
    policy, reference = ([[[draw.gauss(0, 3) for _ in range(7)] for _ in range(n)] for n in lengths] for _ in range(2))
    return policy, reference, [[draw.randrange(7) for _ in range(n)] for n in lengths]


def softmax(logits: list[float]) -> list[float]:
    whole = sum(math.exp(z) for z in logits)
    return [math.exp(z) / whole for z in logits]


def by_row(pairs: list, gradient) -> list:
    """What `gradient` says of each position of each row."""
    return [[gradient(*position) for position in zip(*rows, strict=True)] for rows in zip(*pairs, strict=True)]


def total(pairs: list, value) -> float:
    return sum(value(*position) for rows in zip(*pairs, strict=True) for position in zip(*rows, strict=True))


def logits_and_mask(policy: list, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    mask = stacked([[True] * len(row) for row in policy], False, torch.bool)
    return stacked(policy, [0.5] * 7, dtype).requires_grad_(), mask


@DTYPES
@pytest.mark.parametrize("seed", SEEDS)
def test_kl_is_the_divergence_from_the_reference_by_default(seed, dtype):
    policy, reference, tokens = distributions(seed)
    n = sum(len(row) for row in tokens)
    logits, mask = logits_and_mask(policy, dtype)
    frozen = stacked(reference, [0.1] * 7, dtype).log_softmax(-1)

    def forward(z, r):
        return sum(t * math.log(t / q) for t, q in zip(softmax(r), softmax(z), strict=True)) / n

    def pull(z, r):
        return [(q - t) / n for t, q in zip(softmax(r), softmax(z), strict=True)]

    value = losses.kl(logits.log_softmax(-1), frozen, mask, n_tokens=n)
    check(value, logits, total([policy, reference], forward), by_row([policy, reference], pull))


@DTYPES
@pytest.mark.parametrize("seed", SEEDS)
def test_kl_with_its_arguments_exchanged_is_the_reverse_divergence_and_has_its_gradient(seed, dtype):
    policy, reference, tokens = distributions(seed)
    n = sum(len(row) for row in tokens)
    logits, mask = logits_and_mask(policy, dtype)
    frozen = stacked(reference, [0.1] * 7, dtype).log_softmax(-1)

    def reverse(z, r):
        return sum(q * math.log(q / t) for t, q in zip(softmax(r), softmax(z), strict=True)) / n

    def pull(z, r):
        # d/dz_i of sum q ln (q / t) is q_i (ln (q_i / t_i) - the divergence).
        return [q * (math.log(q / t) - n * reverse(z, r)) / n for t, q in zip(softmax(r), softmax(z), strict=True)]

    value = losses.kl(frozen, logits.log_softmax(-1), mask, n_tokens=n)
    check(value, logits, total([policy, reference], reverse), by_row([policy, reference], pull))


@DTYPES
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("beta", [1.0, 10.0])
def test_undial_is_the_cross_entropy_with_the_lowered_reference(seed, beta, dtype):
    policy, reference, tokens = distributions(seed)
    n = sum(len(row) for row in tokens)

    def target(r, token):
        return softmax([v - beta * (i == token) for i, v in enumerate(r)])

    def entropy(z, r, token):
        return -sum(t * math.log(q) for t, q in zip(target(r, token), softmax(z), strict=True)) / n

    def pull(z, r, token):
        return [(q - t) / n for t, q in zip(target(r, token), softmax(z), strict=True)]

    logits, mask = logits_and_mask(policy, dtype)
    frozen = stacked(reference, [0.5] * 7, dtype).log_softmax(-1)
    ids = stacked(tokens, 0, torch.long)
    value = losses.undial(logits.log_softmax(-1), frozen, ids, mask, beta=beta, n_tokens=n)
    pairs = [policy, reference, tokens]
    check(value, logits, total(pairs, entropy), by_row(pairs, pull))


@DTYPES
@pytest.mark.parametrize("seed", SEEDS)
def test_ce_u_is_the_divergence_from_the_policy_without_the_answer(seed, dtype):
    policy, _, tokens = distributions(seed)
    n = sum(len(row) for row in tokens)

    def target(z, token):
        return softmax([-math.inf if i == token else v for i, v in enumerate(z)])

    def divergence(z, token):
        return sum(t * math.log(t / q) for t, q in zip(target(z, token), softmax(z), strict=True) if t) / n

    def pull(z, token):
        return [(q - t) / n for t, q in zip(target(z, token), softmax(z), strict=True)]

    logits, mask = logits_and_mask(policy, dtype)
    value = losses.ce_u(logits.log_softmax(-1), stacked(tokens, 0, torch.long), mask, n_tokens=n)
    check(value, logits, total([policy, tokens], divergence), by_row([policy, tokens], pull))


@DTYPES
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shifted", [False, True])
def test_logit_margin_reads_logits_and_log_probabilities_alike(seed, shifted, dtype):
    policy, _, tokens = distributions(seed)
    n = sum(len(row) for row in tokens)

    def pull(z):
        margin, top = max(z) - sum(z) / 7, z.index(max(z))
        return [2 * margin * ((i == top) - 1 / 7) / n for i in range(7)]

    logits, mask = logits_and_mask(policy, dtype)
    value = losses.logit_margin(logits.log_softmax(-1) if shifted else logits, mask, n_tokens=n)
    check(value, logits, total([policy], lambda z: (max(z) - sum(z) / 7) ** 2 / n), by_row([policy], pull))


@DTYPES
@pytest.mark.parametrize("seed", SEEDS)
def test_activation_distance_is_a_mean_over_rows_of_means_over_their_own_tokens(seed, dtype):
    hidden, target, _ = distributions(seed)
    n = len(hidden)
    expected, gradient = 0.0, []
    for own, wanted in zip(hidden, target, strict=True):
        gaps = [[h - t for h, t in zip(*token, strict=True)] for token in zip(own, wanted, strict=True)]
        expected += sum(g * g for token in gaps for g in token) / 7 / len(own) / n
        gradient.append([[2 * g / 7 / len(own) / n for g in token] for token in gaps])
    read, mask = logits_and_mask(hidden, dtype)
    value = losses.activation_distance(read, stacked(target, [9.0] * 7, dtype), mask, n_rows=n)
    check(value, read, expected, gradient)
