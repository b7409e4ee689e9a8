"""A policy learns what it is scored for, with the gradient of its loss, and goes on from where it was saved."""

import dataclasses
import math

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from vestige.core.errors import InputError, NotFinite
from vestige.models.folders import weights_digest
from vestige.training.policy import losses
from vestige.training.policy.rollouts import Rollouts, sample
from vestige.training.policy.updates import Policy, PolicySettings, collapsed

STOP, WANTED = 0, 7
PROMPTS = [prompt for prompt in ((3, 4, 5), (6, 8), (3, 9, 10, 11, 12, 13, 14, 15, 1)) for _ in range(4)]
SMALL = {"lora_rank": 4, "learning_rate": 0.01, "batch_size": 12, "epochs": 2}


def nano(seed: int = 0, dtype: torch.dtype = torch.float32) -> LlamaForCausalLM:
    torch.set_num_threads(1)
    config = LlamaConfig(
        vocab_size=16, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=32, initializer_range=0.3, tie_word_embeddings=True,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval().to(dtype)


def fresh(seed: int = 0, **settings: object) -> Policy:
    return Policy.of(nano(seed), PolicySettings.build({**SMALL, **settings}), seed=seed)


def drawn(policy: Policy, prompts: list = PROMPTS, *, seed: int = 0) -> Rollouts:
    return sample(policy.actor, prompts, n_tokens=6, temperature=1.0, top_p=1.0, stop_ids=[STOP], seed=seed)


def wanted(rollouts: Rollouts) -> list[float]:
    """The share of a full reply that is the one token wanted."""
    return [reply.count(WANTED) / 6 for reply in rollouts.replies]


def trained(policy: Policy) -> dict[str, torch.Tensor]:
    parameters = [*policy.actor.model.named_parameters(), *policy.actor.value_head.named_parameters()]
    return {n: p.detach().clone() for n, p in parameters if p.requires_grad}


def gradients(policy: Policy) -> dict[str, torch.Tensor]:
    parameters = [*policy.actor.model.named_parameters(), *policy.actor.value_head.named_parameters()]
    return {n: p.grad.clone() for n, p in parameters if p.grad is not None}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_planted_reward_is_learnt_within_seven_iterations(seed):
    policy = fresh(seed, learning_rate=0.03, batch_size=24, minibatch_size=24, epochs=3)
    found = []
    for iteration in range(7):
        rollouts = drawn(policy, PROMPTS[:8] * 6, seed=iteration)
        found.append(policy.step(rollouts, wanted(rollouts))["score"])
    # One token of 16 in the beginning, give or take what the random weights prefer.
    assert found[0] < 0.2
    assert found[-1] > max(0.4, 3 * found[0])


@pytest.mark.portable
def test_the_gradient_is_that_of_the_loss_written_out_plainly():
    policy = fresh(epochs=1, max_gradient_norm=1e9, learning_rate=1e-30, entropy_coef=0.05)
    rollouts, kept = drawn(policy), {}
    # As if the policy had moved since it drew, so that ratios, clips and both KLs are no special case.
    shift = 0.4 * torch.randn(rollouts.mask.shape, generator=torch.Generator().manual_seed(3))
    moved = {
        n: torch.where(rollouts.mask, getattr(rollouts, n) + shift, 0.0) for n in ("logp", "reference_logp", "values")
    }
    rollouts = dataclasses.replace(rollouts, **moved)
    scores = wanted(rollouts)
    policy.optimizer.register_step_pre_hook(lambda *_: kept.update(gradients(policy)))
    said = policy.step(rollouts, scores)
    expected = plain_loss(policy, rollouts, torch.tensor(scores))
    policy.optimizer.zero_grad()
    expected.backward()
    loss = sum(said[name] for name in ("policy_loss", "value_loss"))
    assert loss == pytest.approx(expected.item(), abs=1e-5)
    plain = gradients(policy)
    assert plain.keys() == kept.keys()
    for name, gradient in plain.items():
        torch.testing.assert_close(kept[name], gradient, atol=2e-6, rtol=1e-3)


def plain_loss(policy: Policy, rollouts: Rollouts, scores: torch.Tensor) -> torch.Tensor:
    """One row after another through the plain model, logits everywhere, and the mean over all tokens or rows."""
    rows, n_tokens = [], int(rollouts.mask.sum())
    spread = (scores - scores.mean()) / (scores.std() + 1e-4)
    rewards = losses.token_rewards(
        spread, rollouts.logp, rollouts.reference_logp, rollouts.mask, kl_coef=0.001, entropy_coef=0.05
    )
    gae = losses.gae(rewards, rollouts.values, rollouts.mask, gamma=1.0, lambda_=1.0)
    whitened = losses.whitened(gae.advantages, rollouts.mask)
    for i, (prompt, reply) in enumerate(zip(rollouts.prompts, rollouts.replies, strict=True)):
        n = len(reply)
        out = policy.actor.model(torch.tensor([prompt + reply]), output_hidden_states=True)
        every = out.logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        logp = every[torch.arange(n), torch.tensor(reply)]
        values = policy.actor.value_head(out.hidden_states[-1][0, len(prompt) - 1 : -1]).squeeze(-1)
        old = rollouts.logp[i, :n]
        ratio = (logp - old).exp()
        advantage = whitened[i, :n]
        surrogate = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        before = rollouts.values[i, :n]
        held = before + (values - before).clamp(-0.2, 0.2)
        returns = gae.returns[i, :n]
        squares = torch.maximum((values - returns) ** 2, (held - returns) ** 2)
        rows.append((surrogate + 0.5 * squares).sum() / n_tokens)
    return torch.stack(rows).sum()


@pytest.mark.slow
@pytest.mark.portable
def test_how_many_are_computed_at_a_time_changes_rounding_alone():
    found = []
    for minibatch_size in (2, 12):
        policy = fresh(minibatch_size=minibatch_size, max_gradient_norm=1e9, learning_rate=1e-4)
        rollouts = drawn(policy)
        found.append(policy.step(rollouts, wanted(rollouts)))
    assert found[0] == pytest.approx(found[1], abs=1e-5)


@pytest.mark.portable
def test_the_first_pass_finds_the_policy_that_drew():
    policy = fresh(epochs=1)
    rollouts = drawn(policy)
    found = policy.step(rollouts, wanted(rollouts))
    # All ratios are 1, so the loss is minus the mean of whitened advantages, 0.
    assert found["clip_share"] == 0.0
    assert found["policy_loss"] == pytest.approx(0.0, abs=1e-5)


def test_what_is_told_is_counted_by_hand():
    policy = fresh(clip=0.2)
    rollouts = drawn(policy)
    # The first third of the replies from a policy that was half as sure: ratios of 2, outside of the clip.
    shifted = rollouts.logp.clone()
    shifted[:4] -= math.log(2)
    away = dataclasses.replace(rollouts, logp=torch.where(rollouts.mask, shifted, 0.0))
    found = dataclasses.replace(policy, settings=policy.settings.model_copy(update={"epochs": 1})).step(
        away, [0.5] * 12
    )
    assert found["score"] == 0.5
    assert found["clip_share"] == pytest.approx(rollouts.mask[:4].sum().item() / rollouts.mask.sum().item())
    # Adapters begin at nothing, so the KL is that of the shift alone.
    assert found["kl"] == pytest.approx(-math.log(2) * found["clip_share"], rel=1e-4)
    assert found["entropy"] == pytest.approx(rollouts.entropy[rollouts.mask].mean().item(), rel=1e-5)


@pytest.mark.slow
def test_a_restored_policy_takes_the_same_next_step_to_the_byte(tmp_path):
    policy = fresh()
    rollouts = drawn(policy)
    policy.step(rollouts, wanted(rollouts))
    policy.save(tmp_path / "policy")
    other = fresh()
    assert other.restore(tmp_path / "policy")
    found = []
    for one in (policy, other):
        rollouts = drawn(one, seed=1)
        found.append((rollouts.replies, one.step(rollouts, wanted(rollouts)), one.n_steps, trained(one)))
    assert found[0][:3] == found[1][:3]
    assert found[0][2] == 2
    assert all(torch.equal(value, found[1][3][name]) for name, value in found[0][3].items())


def test_only_tensors_and_json_are_kept_and_the_newest_alone(tmp_path):
    policy = fresh()
    for _ in range(2):
        rollouts = drawn(policy)
        policy.step(rollouts, wanted(rollouts))
        policy.save(tmp_path / "policy")
    files = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    kept = [f"policy/step-2/{name}" for name in ("model.safetensors", "optimizer.safetensors", "state.json")]
    assert files == ["policy/identity.json", *kept]


def test_a_policy_stays_as_it_is_where_none_was_saved_whole(tmp_path):
    policy = fresh()
    before = trained(policy)
    # What a kill leaves while the first is written.
    (tmp_path / "policy" / ".step-1.partial").mkdir(parents=True)
    assert not policy.restore(tmp_path / "policy")
    assert not policy.restore(tmp_path / "nothing")
    assert policy.n_steps == 0
    assert all(torch.equal(value, before[name]) for name, value in trained(policy).items())


def test_a_policy_of_other_settings_or_another_seed_is_not_taken_up(tmp_path):
    policy = fresh()
    policy.step(rollouts := drawn(policy), wanted(rollouts))
    policy.save(tmp_path / "policy")
    with pytest.raises(InputError, match=r"trained otherwise \(it differs in learning_rate\)"):
        fresh(learning_rate=0.5).restore(tmp_path / "policy")
    policy.seed += 1
    with pytest.raises(InputError, match="differs in seed"):
        policy.restore(tmp_path / "policy")
    (tmp_path / "policy" / "identity.json").unlink()
    with pytest.raises(InputError, match="does not say how the policy there was trained"):
        fresh().restore(tmp_path / "policy")


def test_the_reference_is_the_model_before_any_training():
    policy = fresh()
    before = weights_digest(nano())
    ids = torch.tensor([PROMPTS[0]])
    with torch.no_grad():
        untouched = nano()(ids).logits
        rollouts = drawn(policy)
        with torch.enable_grad():
            policy.step(rollouts, wanted(rollouts))
        with policy.actor.as_reference():
            assert torch.equal(policy.actor.model(ids).logits, untouched)
        assert not torch.equal(policy.actor.model(ids).logits, untouched)
    # Adapters are what is trained, then as before.
    assert {n.rpartition(".lora_")[2].partition(".")[0] for n in trained(policy) if "lora" in n} == {"A", "B"}
    base = {n.replace(".base_layer", ""): p for n, p in policy.actor.model.named_parameters() if ".lora_" not in n}
    again = nano()
    again.load_state_dict(base, strict=False)
    assert weights_digest(again) == before


@pytest.mark.slow
@pytest.mark.portable
def test_bfloat16_products_give_nearly_the_same_step():
    wide = fresh(epochs=1)
    rollouts = drawn(wide)
    narrow = Policy.of(nano(dtype=torch.bfloat16), wide.settings.model_copy(update={"precision": "bfloat16"}), seed=0)
    own = drawn(narrow)
    # The same uniform draws: most tokens are the same. What it says of the same replies is near.
    said = narrow.actor.judged(rollouts.prompts, rollouts.replies, 1.0)
    assert (said.logp - rollouts.logp).abs().max().item() < 0.3
    expected, found = wide.step(rollouts, wanted(rollouts)), narrow.step(rollouts, wanted(rollouts))
    assert found["policy_loss"] == pytest.approx(expected["policy_loss"], abs=0.05)
    assert found["gradient_norm"] == pytest.approx(expected["gradient_norm"], rel=0.2)
    assert all(p.dtype == torch.float32 for p in trained(narrow).values())
    assert own.logp.dtype == torch.float32


def test_scores_that_cannot_be_learnt_from_are_refused():
    policy = fresh()
    rollouts = drawn(policy)
    with pytest.raises(InputError, match="there are 3 scores for 12 replies"):
        policy.step(rollouts, [1.0] * 3)
    with pytest.raises(InputError, match="a reply's score is not a finite number"):
        policy.step(rollouts, [float("nan")] * 12)


def test_an_update_that_is_not_finite_is_told_and_not_made():
    policy = fresh()
    rollouts = drawn(policy)
    before = trained(policy)
    with pytest.raises(NotFinite, match=r"no longer finite at iteration 1 .* Lower the learning rate, 0\.01"):
        policy.step(dataclasses.replace(rollouts, reference_logp=-1e38 * rollouts.mask), wanted(rollouts))
    assert all(torch.equal(value, before[name]) for name, value in trained(policy).items())


def test_a_model_with_adapters_cannot_become_a_policy():
    with pytest.raises(InputError, match="has adapters already"):
        Policy.of(fresh().actor.model, PolicySettings(), seed=0)


def test_a_collapse_is_told_with_its_reasons():
    rollouts, settings = drawn(fresh()), PolicySettings()
    assert collapsed(rollouts, settings) == ""
    sure = dataclasses.replace(rollouts, entropy=torch.full_like(rollouts.entropy, 0.01))
    assert collapsed(sure, settings) == "the policy has collapsed: its entropy is 0.01 nats a token, below 0.05"
    # 7 copies of 12 are more than a half; 6 are not.
    replies = rollouts.replies[:5] + rollouts.replies[:1] * 7
    assert collapsed(dataclasses.replace(rollouts, replies=replies), settings) == (
        "the policy has collapsed: 7 of 12 replies repeat another, more than 50%"
    )
    assert (
        collapsed(dataclasses.replace(rollouts, replies=rollouts.replies[:6] + rollouts.replies[:1] * 6), settings)
        == ""
    )
    far = dataclasses.replace(sure, reference_logp=rollouts.logp - 6)
    assert collapsed(far, settings).endswith("below 0.05; it is 6 nats a token from its reference, above 5")
