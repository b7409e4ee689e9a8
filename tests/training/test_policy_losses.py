"""The parts of policy gradient: by hand, against their definitions in plain Python, and GRPO's against TRL's."""

import math
import random
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch

from vestige.training.policy import losses
from vestige.training.policy.rollouts import Rollouts
from vestige.training.policy.settings import PolicySettings
from vestige.training.policy.updates import aims

ROW = torch.tensor([[True, True, True]])


def test_both_estimates_are_the_kl_of_the_distributions_on_average():
    # policy (1/2, 1/2), reference (1/4, 3/4): KL = (ln 2 + ln 2/3) / 2 = ln(4/3) / 2 = .143841.
    policy, reference = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75]]).log()
    for estimate in (losses.k1, losses.k3):
        expected = torch.tensor(math.log(4 / 3) / 2)
        torch.testing.assert_close((0.5 * estimate(policy, reference)).sum(), expected)


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


def test_group_advantages_by_hand():
    # (1, 3): mean 2, deviation sqrt 2. (5, 5): nothing to tell apart.
    found = losses.grpo_advantages(torch.tensor([1.0, 3.0, 5.0, 5.0]), group_size=2)
    part = 1 / (math.sqrt(2) + 1e-4)
    torch.testing.assert_close(found, torch.tensor([-part, part, 0.0, 0.0]))


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


GROUPED = torch.tensor([0.3, -1.2, 0.4, 0.9], dtype=torch.float64)


@pytest.mark.parametrize("seed", range(3))
def test_group_loss_is_its_definition(seed):
    drawn = Drawn(seed)
    rows = []
    for i, a in enumerate(GROUPED.tolist()):
        tokens = []
        for p, o, r in zip(*(drawn.lists[n][i] for n in ("logp", "old", "reference")), strict=True):
            ratio = math.exp(p - o)
            kl = math.exp(r - p) - (r - p) - 1
            tokens.append(-min(ratio * a, min(max(ratio, 0.8), 1.2) * a) + 0.1 * kl)
        rows.append(sum(tokens) / len(tokens))
    assert by_ours(drawn).item() == pytest.approx(sum(rows) / len(rows), rel=1e-9)


def by_ours(drawn: Drawn) -> torch.Tensor:
    t = drawn.tensors
    penalty = 0.1 * losses.k3(t["logp"], t["reference"])
    return losses.grpo_loss(t["logp"], t["old"], penalty, GROUPED, drawn.mask, clip=0.2, n_rows=len(GROUPED))


class Metrics(dict):
    def __missing__(self, name: str) -> list:
        return self.setdefault(name, [])


def by_trl(drawn: Drawn) -> torch.Tensor:
    """TRL's own loss, with the log-probabilities handed in that its model would give."""
    from trl import GRPOTrainer

    t = drawn.tensors
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (t["logp"], torch.zeros_like(t["logp"]), None),
        aux_loss_enabled=False, top_entropy_quantile=1.0, off_policy_mask_threshold=None,
        importance_sampling_level="token", beta=0.1, loss_type="grpo", epsilon_low=0.2, epsilon_high=0.2,
        use_vllm=False,
        args=SimpleNamespace(use_bias_correction_kl=False, delta=None), model=SimpleNamespace(training=False),
        _entropy_bonus_enabled=False, _metrics={"eval": Metrics(), "train": Metrics()},
        accelerator=SimpleNamespace(gather=lambda x: x, reduce=lambda x, reduction: x),
        current_gradient_accumulation_steps=1,
    )  # fmt: skip
    ids = torch.zeros(drawn.mask.shape, dtype=torch.long)
    inputs = {
        "prompt_ids": ids, "prompt_mask": torch.ones_like(ids), "completion_ids": ids,
        "completion_mask": drawn.mask.long(), "advantages": GROUPED, "old_per_token_logps": t["old"],
        "ref_per_token_logps": t["reference"],
    }  # fmt: skip
    return GRPOTrainer._compute_loss(trainer, None, inputs)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("trl") is None, reason="TRL is an optional peer")
def test_group_loss_and_its_gradient_are_trls():
    drawn = Drawn(0)
    leaf = drawn.tensors["logp"].requires_grad_()
    found, expected = by_ours(drawn), by_trl(drawn)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    (ours,), (trls,) = torch.autograd.grad(found, leaf), torch.autograd.grad(expected, leaf)
    torch.testing.assert_close(ours, trls, rtol=1e-12, atol=1e-15)
