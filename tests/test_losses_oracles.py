"""Each loss against its paper's formula, written out again in plain Python: other code, other precision.

Rows are ragged lists of log-probabilities; gradients are the formulas' derivatives by hand, not autograd's.
"""

import math
import random

import pytest
import torch

from vestige import losses

SEEDS = range(5)


def ragged(seed: int) -> tuple[list[list[float]], list[list[float]]]:
    """Log-probabilities of 1 to 9 tokens in 2 to 6 rows, under policy and reference."""
    draw = random.Random(seed)
    lengths = [draw.randint(1, 9) for _ in range(draw.randint(2, 6))]
    policy, reference = ([[math.log(draw.uniform(1e-4, 0.9999)) for _ in range(n)] for n in lengths] for _ in range(2))
    return policy, reference


def padded(values: list[list[float]]) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(len(v) for v in values)
    logp = torch.tensor([[*v, *[-7.0] * (width - len(v))] for v in values], dtype=torch.float64, requires_grad=True)
    return logp, torch.tensor([[i < len(v) for i in range(width)] for v in values])


def check(value: torch.Tensor, logp: torch.Tensor, expected: float, gradient: list[list[float]]) -> None:
    value.backward()
    assert value.item() == pytest.approx(expected, rel=1e-9)
    assert logp.grad is not None
    width = logp.shape[1]
    wide = torch.tensor([[*row, *[0.0] * (width - len(row))] for row in gradient], dtype=torch.float64)
    torch.testing.assert_close(logp.grad, wide, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("beta", [0.01, 0.1, 1.0])
def test_npo_is_the_papers_equation_3_with_the_gradient_of_its_equation_5(seed, beta):
    policy, reference = ragged(seed)
    n = len(policy)
    ratio = [math.exp(sum(p) - sum(r)) for p, r in zip(policy, reference, strict=True)]
    expected = 2 / beta * sum(math.log(1 + q**beta) for q in ratio) / n
    # W = 2 pi^beta / (pi^beta + pi_ref^beta), on every token of the row.
    gradient = [[2 * q**beta / (q**beta + 1) / n] * len(p) for q, p in zip(ratio, policy, strict=True)]
    logp, mask = padded(policy)
    frozen = losses.row_logp(*padded(reference)).detach()
    check(losses.npo(losses.row_logp(logp, mask), frozen, beta=beta, n_rows=n), logp, expected, gradient)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("beta", "gamma"), [(2.5, 0.0), (4.5, 1.0), (0.5, -0.3)])
def test_simnpo_is_the_papers_equation_4(seed, beta, gamma):
    policy, _ = ragged(seed)
    n = len(policy)
    expected, gradient = 0.0, []
    for row in policy:
        odds = math.exp(sum(row)) ** (beta / len(row)) * math.exp(gamma)
        expected += 2 / beta * math.log(1 + odds) / n
        gradient.append([2 * odds / (1 + odds) / len(row) / n] * len(row))
    logp, mask = padded(policy)
    check(losses.simnpo(logp, mask, beta=beta, gamma=gamma, n_rows=n), logp, expected, gradient)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("saturation", "importance"), [(1.0, 0.0), (0.5, 0.0), (5.0, 1.0), (0.3, 0.3)])
def test_weighted_ascent_weighs_each_token_by_what_is_known_of_it(seed, saturation, importance):
    policy, _ = ragged(seed)
    n = sum(len(row) for row in policy)
    weight = [[math.exp(v) ** saturation * (1 - math.exp(v)) ** importance for v in row] for row in policy]
    expected = sum(w * v for ws, row in zip(weight, policy, strict=True) for w, v in zip(ws, row, strict=True)) / n
    logp, mask = padded(policy)
    value = losses.weighted_ascent(logp, mask, saturation=saturation, importance=importance, n_tokens=n)
    check(value, logp, expected, [[w / n for w in ws] for ws in weight])


@pytest.mark.parametrize("seed", SEEDS)
def test_parts_add_up_to_the_whole_whatever_their_lengths(seed):
    policy, reference = ragged(seed)
    logp, mask = padded(policy)
    frozen = losses.row_logp(*padded(reference)).detach()
    n_rows, n_tokens = len(policy), int(mask.sum())

    def values(part: slice) -> torch.Tensor:
        own, counted = logp[part], mask[part]
        return torch.stack(
            [
                losses.npo(losses.row_logp(own, counted), frozen[part], beta=0.1, n_rows=n_rows),
                losses.simnpo(own, counted, beta=2.5, gamma=0.2, n_rows=n_rows),
                losses.weighted_ascent(own, counted, saturation=5.0, importance=1.0, n_tokens=n_tokens),
            ]
        )

    torch.testing.assert_close(values(slice(0, 1)) + values(slice(1, None)), values(slice(None)))


def distributions(seed: int) -> tuple[list[list[list[float]]], list[list[list[float]]], list[list[int]]]:
    """Logits of 7 tokens, under policy and reference, at 1 to 5 positions in 2 to 4 rows, and each answer's tokens."""
    draw = random.Random(seed)
    lengths = [draw.randint(1, 5) for _ in range(draw.randint(2, 4))]
    policy, reference = ([[[draw.gauss(0, 3) for _ in range(7)] for _ in range(n)] for n in lengths] for _ in range(2))
    return policy, reference, [[draw.randrange(7) for _ in range(n)] for n in lengths]


def softmax(logits: list[float]) -> list[float]:
    whole = sum(math.exp(z) for z in logits)
    return [math.exp(z) / whole for z in logits]


def stacked(values: list, fill: object, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    width = max(len(v) for v in values)
    return torch.tensor([[*v, *[fill] * (width - len(v))] for v in values], dtype=dtype)


def check_pull(loss, logits: torch.Tensor, expected: float, policy: list, targets: list, n: int) -> None:
    """The gradient of a cross-entropy with fixed targets, by logits, is (policy - target) / n."""
    loss.backward()
    assert loss.item() == pytest.approx(expected, rel=1e-9)
    pulls = [
        [[(q - t) / n for q, t in zip(softmax(z), target, strict=True)] for z, target in zip(*rows, strict=True)]
        for rows in zip(policy, targets, strict=True)
    ]
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, stacked(pulls, [0.0] * 7), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("beta", [1.0, 10.0])
def test_undial_is_the_cross_entropy_with_the_lowered_reference(seed, beta):
    policy, reference, tokens = distributions(seed)
    n = sum(len(row) for row in tokens)
    targets = [
        [softmax([v - beta * (i == token) for i, v in enumerate(r)]) for r, token in zip(*rows, strict=True)]
        for rows in zip(reference, tokens, strict=True)
    ]
    pairs = [pair for rows in zip(policy, targets, strict=True) for pair in zip(*rows, strict=True)]
    expected = -sum(t * math.log(q) for z, target in pairs for t, q in zip(target, softmax(z), strict=True)) / n
    logits = stacked(policy, [0.5] * 7).requires_grad_()
    frozen = stacked(reference, [0.5] * 7).log_softmax(-1)
    mask = stacked([[True] * len(row) for row in tokens], False, torch.bool)
    ids = stacked(tokens, 0, torch.long)
    value = losses.undial(logits.log_softmax(-1), frozen, ids, mask, beta=beta, n_tokens=n)
    check_pull(value, logits, expected, policy, targets, n)


@pytest.mark.parametrize("seed", SEEDS)
def test_ce_u_is_the_divergence_from_the_policy_without_the_answer(seed):
    policy, _, tokens = distributions(seed)
    n = sum(len(row) for row in tokens)
    targets = [
        [softmax([-math.inf if i == token else v for i, v in enumerate(z)]) for z, token in zip(*rows, strict=True)]
        for rows in zip(policy, tokens, strict=True)
    ]
    pairs = [pair for rows in zip(policy, targets, strict=True) for pair in zip(*rows, strict=True)]
    expected = sum(t * math.log(t / q) for z, target in pairs for t, q in zip(target, softmax(z), strict=True) if t) / n
    logits = stacked(policy, [0.5] * 7).requires_grad_()
    mask = stacked([[True] * len(row) for row in tokens], False, torch.bool)
    value = losses.ce_u(logits.log_softmax(-1), stacked(tokens, 0, torch.long), mask, n_tokens=n)
    check_pull(value, logits, expected, policy, targets, n)
