"""The parts of policy gradient: by hand, and against their definitions in plain Python."""

import math
import random

import pytest
import torch

from vestige.training.policy import losses
from vestige.training.policy.rollouts import Rollouts
from vestige.training.policy.settings import PolicySettings
from vestige.training.policy.updates import aims

ROW = torch.tensor([[True, True, True]])


def test_the_estimate_is_the_kl_of_the_distributions_on_average():
    # policy (1/2, 1/2), reference (1/4, 3/4): KL = (ln 2 + ln 2/3) / 2 = ln(4/3) / 2 = .143841.
    policy, reference = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75]]).log()
    expected = torch.tensor(math.log(4 / 3) / 2)
    torch.testing.assert_close((0.5 * losses.k1(policy, reference)).sum(), expected)


def test_rewards_by_hand_with_the_score_on_the_last_token():
    # -0.1 (logp - reference) - 0.5 logp: token 1: -0.1 x 1 + 0.5 = .4; token 2: 0.1 x 1 + 1 = 1.1, and the score 3.
    mask = torch.tensor([[True, True, False]])
    logp, reference = torch.tensor([[-1.0, -2.0, 99.0]]), torch.tensor([[-2.0, -1.0, -99.0]])
    found = losses.token_rewards(torch.tensor([3.0]), logp, reference, mask, kl_coef=0.1, entropy_coef=0.5)
    torch.testing.assert_close(found, torch.tensor([[0.4, 4.1, 0.0]]))


def test_replies_of_one_score_have_one_advantage_whatever_their_length_and_the_scale_of_scores():
    # A value head that has learnt nothing says 0. Of 8 and 20 tokens; scored alike, and half of each length better.
    settings, lengths = PolicySettings(kl_coef=0, entropy_coef=0), (8, 20, 8, 20)
    mask = torch.arange(20)[None] < torch.tensor(lengths)[:, None]
    zeros, none = torch.zeros(4, 20), ((1,),) * 4
    blank = Rollouts(none, none, (True,) * 4, mask.long(), mask, -mask.float(), zeros, zeros, zeros, 1.0)
    assert not aims(blank, torch.full((4,), 5.0), settings).advantages.any()
    found = aims(blank, torch.tensor([9.0, 9.0, 1.0, 1.0]), settings)
    for rows in (slice(0, 2), slice(2, 4)):
        assert found.advantages[rows][mask[rows]].unique().numel() == 1
    # What values are to be does not depend on the scale, so that a clip of 0.2 lets them follow J from 0 to 10.
    scaled = aims(blank, torch.tensor([90.0, 90.0, 10.0, 10.0]), settings)
    torch.testing.assert_close(scaled.returns, found.returns, atol=1e-3, rtol=0)
    assert found.returns.abs().max() < 2


def test_entropy_by_hand():
    # (1/2, 1/4, 1/4): ln 2 / 2 + 2 ln 4 / 4 = 1.5 ln 2. Logits may be shifted.
    logits = torch.tensor([[0.5, 0.25, 0.25], [1.0, 1.0, 1.0]]).log() + 7
    torch.testing.assert_close(losses.entropy(logits), torch.tensor([1.5 * math.log(2), math.log(3)]))


class Drawn:
    """Ragged replies: lists for the definitions, padded tensors with nonsense behind each end for the code."""

    def __init__(self, seed: int, *, rows: int = 4) -> None:
        draw = random.Random(seed)
        self.lengths = [draw.randint(1, 6) for _ in range(rows)]
        names = ("logp", "old", "reference", "values", "old_values", "rewards", "advantages", "returns")
        self.lists = {name: [[draw.uniform(-2, 0) for _ in range(n)] for n in self.lengths] for name in names}
        width = max(self.lengths)
        self.mask = torch.arange(width)[None] < torch.tensor(self.lengths)[:, None]
        self.tensors = {
            name: torch.tensor([[*row, *[77.0] * (width - len(row))] for row in rows_], dtype=torch.float64)
            for name, rows_ in self.lists.items()
        }

    def tokens(self, *names: str) -> list[tuple[float, ...]]:
        return [
            values for row in zip(*(self.lists[n] for n in names), strict=True) for values in zip(*row, strict=True)
        ]


@pytest.mark.parametrize("seed", range(5))
def test_advantages_are_their_definition_as_a_sum(seed):
    drawn, gamma, lambda_ = Drawn(seed), 0.9, 0.8
    found = losses.gae(drawn.tensors["rewards"], drawn.tensors["values"], drawn.mask, gamma=gamma, lambda_=lambda_)
    for i, (rewards, values) in enumerate(zip(drawn.lists["rewards"], drawn.lists["values"], strict=True)):
        after = [*values[1:], 0.0]
        delta = [r + gamma * w - v for r, v, w in zip(rewards, values, after, strict=True)]
        for t in range(len(rewards)):
            expected = sum((gamma * lambda_) ** k * d for k, d in enumerate(delta[t:]))
            assert found.advantages[i, t].item() == pytest.approx(expected, rel=1e-12)
            assert found.returns[i, t].item() == pytest.approx(expected + values[t], rel=1e-12)
    assert (
        found.advantages[~drawn.mask].tolist()
        == found.returns[~drawn.mask].tolist()
        == [0.0] * int((~drawn.mask).sum())
    )


@pytest.mark.parametrize("seed", range(5))
def test_ppo_losses_are_their_definitions_and_parts_add_up(seed):
    drawn = Drawn(seed)
    n = sum(drawn.lengths)
    policy = [
        -min(math.exp(p - o) * a, min(max(math.exp(p - o), 0.8), 1.2) * a)
        for p, o, a in drawn.tokens("logp", "old", "advantages")
    ]
    value = [
        max((v - r) ** 2, (o + min(max(v - o, -0.2), 0.2) - r) ** 2)
        for v, o, r in drawn.tokens("values", "old_values", "returns")
    ]
    halves = [slice(0, 2), slice(2, 4)]
    t = drawn.tensors
    found = [
        losses.ppo_policy_loss(
            t["logp"][h], t["old"][h], t["advantages"][h], drawn.mask[h], clip=0.2, n_tokens=n
        ) for h in halves
    ]  # fmt: skip
    assert sum(found).item() == pytest.approx(sum(policy) / n, rel=1e-9)
    found = [
        losses.value_loss(t["values"][h], t["old_values"][h], t["returns"][h], drawn.mask[h], clip=0.2, n_tokens=n)
        for h in halves
    ]
    assert sum(found).item() == pytest.approx(0.5 * sum(value) / n, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_whitening_is_over_sampled_tokens_alone(seed):
    drawn = Drawn(seed)
    every = [a for (a,) in drawn.tokens("advantages")]
    mean = sum(every) / len(every)
    deviation = math.sqrt(sum((a - mean) ** 2 for a in every) / (len(every) - 1) + 1e-8)
    found = losses.whitened(drawn.tensors["advantages"], drawn.mask)
    assert found[drawn.mask].tolist() == pytest.approx([(a - mean) / deviation for a in every], rel=1e-9)
    assert not found[~drawn.mask].any()


def test_one_token_alone_is_whitened_to_nothing():
    assert losses.whitened(torch.tensor([[3.0]]), ROW[:, :1]).item() == 0.0
