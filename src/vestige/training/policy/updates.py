"""A policy and how it learns from scores: PPO with a value head.

Axes: B replies, T their tokens, N tokens of all replies end to end, V vocabulary. Log-probabilities, KL and entropy are
in nats.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from transformers import PreTrainedModel

from vestige.core.errors import InputError, NotFinite
from vestige.core.files import read_json, write_json
from vestige.core.ids import changed_keys
from vestige.core.seeds import generator
from vestige.core.text import NumberByName
from vestige.models.forward import how_to_read
from vestige.training.adapters import add_lora
from vestige.training.checkpoints import Checkpoints
from vestige.training.loop import refuse_formats
from vestige.training.policy import losses
from vestige.training.policy.rollouts import Actor, Replied, Rollouts
from vestige.training.policy.settings import PolicySettings
from vestige.training.settings import TrainingSettings


def aims(rollouts: Rollouts, scores: Float[Tensor, " B"], settings: PolicySettings) -> losses.Advantages:
    """Advantages of standardised scores, whitened over all tokens, and the returns that values are to be."""
    rewards = losses.token_rewards(
        losses.standardised(scores).to(rollouts.logp),
        rollouts.logp,
        rollouts.reference_logp,
        rollouts.mask,
        kl_coef=settings.kl_coef,
        entropy_coef=settings.entropy_coef,
    )
    estimates = losses.gae(rewards, rollouts.values, rollouts.mask, gamma=settings.gamma, lambda_=settings.gae_lambda)
    return estimates._replace(advantages=losses.whitened(estimates.advantages, rollouts.mask))


def terms(
    replied: Replied,
    rollouts: Rollouts,
    aimed: losses.Advantages,
    rows: Sequence[int],
    n_tokens: int,
    settings: PolicySettings,
) -> dict[str, Float[Tensor, ""]]:
    """The parts of the loss that the replies `rows` have in it, and the share of clipped tokens; see `LOSS`.

    `n_tokens` is the total of the optimiser step, whose rows may be only a part.
    """
    picked = torch.tensor(list(rows), device=rollouts.mask.device)
    # The width is that of the longest of them.
    mask = rollouts.mask[picked]
    mask = mask[:, : int(mask.sum(1).max())]

    def of(x: Float[Tensor, "B T"]) -> Float[Tensor, "b t"]:
        return x[picked, : mask.shape[1]]

    old, advantages = of(rollouts.logp), of(aimed.advantages)
    logp = _placed(replied.logp, mask)
    outside = ((logp.detach() - old).exp() - 1).abs() > settings.clip
    values = {"clip_share": (outside & mask).sum() / n_tokens}
    values["policy_loss"] = losses.ppo_policy_loss(logp, old, advantages, mask, clip=settings.clip, n_tokens=n_tokens)
    values["value_loss"] = settings.value_coef * losses.value_loss(
        _placed(replied.values, mask), of(rollouts.values), of(aimed.returns), mask,
        clip=settings.value_clip, n_tokens=n_tokens,
    )  # fmt: skip
    return values


LOSS = ("policy_loss", "value_loss")
"""The terms that add up to the loss."""


def _placed(flat: Float[Tensor, " N"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Numbers of all tokens end to end, each in its reply's row."""
    return torch.zeros(mask.shape, device=flat.device, dtype=flat.dtype).masked_scatter(mask, flat)


_IDENTITY = "identity.json"


@dataclass
class Policy:
    """A model that learns to reply, with its value head and its optimiser. `n_steps` iterations are done."""

    actor: Actor
    optimizer: torch.optim.Optimizer
    settings: PolicySettings
    seed: int
    n_steps: int = 0

    @classmethod
    def of(cls, model: PreTrainedModel, settings: PolicySettings, *, seed: int) -> "Policy":
        """Return a policy that begins as `model`. The policy adds adapters to this model and owns it.

        The value head begins at 0. The adapters' first weights and the order of replies follow from the seed.
        """
        if any(isinstance(module, BaseTunerLayer) for module in model.modules()):
            raise InputError("the policy's model has adapters already. Merge them into its weights first")
        lora = TrainingSettings(
            lora_rank=settings.lora_rank,
            lora_alpha=settings.lora_alpha,
            lora_dropout=0.0,
            lora_targets=settings.lora_targets,
            precision=settings.precision,
        )
        layout = how_to_read(model, list(range(min(8, model.config.get_text_config().vocab_size))))
        add_lora(model, lora, seed)
        refuse_formats(model)
        head = nn.utils.skip_init(nn.Linear, model.config.get_text_config().hidden_size, 1, device=model.device)
        # The first advantages are then the scores themselves.
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        # Never `train()`: with dropout the ratio of new to old would not begin at 1.
        model.eval()
        adapted = tuple(module for module in model.modules() if isinstance(module, BaseTunerLayer))
        actor = Actor(model, head, adapted, layout, settings.precision)
        optimizer = torch.optim.AdamW(
            [p for p in _modules(actor).parameters() if p.requires_grad],
            lr=settings.learning_rate,
            betas=(settings.beta1, settings.beta2),
            weight_decay=settings.weight_decay,
            fused=True,
        )
        return cls(actor, optimizer, settings, seed)

    def step(self, rollouts: Rollouts, scores: Sequence[float]) -> NumberByName:
        """Learn from the scores of replies sampled from this policy. Return the numbers of the step.

        `score`, `kl` (k1, nats a token) and `entropy` belong to the rollouts. The terms of the loss, `clip_share`
        (tokens whose ratio left the clip) and `gradient_norm` (the greater norm of adapters and head, before clipping)
        are means over the optimiser's steps. Raises NotFinite where a score, a loss or a gradient is no number.
        """
        if len(scores) != len(rollouts.replies):
            raise InputError(f"there are {len(scores)} scores for {len(rollouts.replies)} replies. Give one to each")
        if not all(map(math.isfinite, scores)):
            raise InputError("a reply's score is not a finite number. Leave the reply out, or give it a score")
        aimed = aims(rollouts, torch.tensor(list(scores), dtype=torch.float64), self.settings)
        updates = [self._update(rollouts, aimed, batch) for batch in self._batches(len(scores))]
        self.n_steps += 1
        kl = losses.k1(rollouts.logp, rollouts.reference_logp)
        numbers = {
            "score": sum(scores) / len(scores),
            "kl": losses.mean_over(kl, rollouts.mask).item(),
            "entropy": losses.mean_over(rollouts.entropy, rollouts.mask).item(),
        }
        for name in updates[0]:
            numbers[name] = sum(update[name] for update in updates) / len(updates)
        return numbers

    def save(self, path: Path) -> None:
        """Save adapters, value head, the optimiser's moments and the number of iterations, atomically.

        In addition to them lie the settings and the seed, without which its next step would be another one.
        """
        write_json(path / _IDENTITY, {"seed": self.seed, **self.settings.identity()})
        Checkpoints(path).save(self.n_steps, _modules(self.actor), self.optimizer, {})

    def restore(self, path: Path) -> bool:
        """Load the policy that was saved there. Its next step has the same bytes. False if there is none.

        A kill while the first was written leaves none. Raises InputError if the file is damaged, of another shape, or
        from a policy with other settings or another seed.
        """
        checkpoints = Checkpoints(path)
        n_steps = checkpoints.newest()
        if n_steps is None:
            return False
        stored = read_json(path / _IDENTITY) if (path / _IDENTITY).exists() else None
        if not isinstance(stored, dict):
            raise InputError(f"{path / _IDENTITY} does not say how the policy there was trained. Delete {path}")
        if differs := changed_keys({"seed": self.seed, **self.settings.identity()}, stored):
            raise InputError(
                f"the policy in {path} was trained otherwise (it differs in {', '.join(differs)}). Delete that folder, "
                "or use its settings and seed"
            )
        checkpoints.restore(n_steps, _modules(self.actor), self.optimizer)
        self.n_steps = n_steps
        return True

    def _batches(self, n: int) -> Iterator[list[int]]:
        """Replies of each step of the optimiser, in an order that follows from seed, iteration and epoch."""
        for epoch in range(self.settings.epochs):
            order = generator(self.seed, "policy", self.n_steps, epoch).permutation(n).tolist()
            yield from (order[at : at + self.settings.batch_size] for at in range(0, n, self.settings.batch_size))

    def _update(self, rollouts: Rollouts, aimed: losses.Advantages, batch: Sequence[int]) -> NumberByName:
        """Take one optimiser step over the replies of `batch`, grouped by length."""
        n_tokens = sum(len(rollouts.replies[i]) for i in batch)
        ordered = sorted(batch, key=lambda i: len(rollouts.prompts[i]) + len(rollouts.replies[i]))
        sums: NumberByName = {}
        for at in range(0, len(ordered), self.settings.minibatch_size):
            rows = ordered[at : at + self.settings.minibatch_size]
            prompts, replies = [rollouts.prompts[i] for i in rows], [rollouts.replies[i] for i in rows]
            replied = self.actor.replied(prompts, replies, rollouts.temperature)
            values = terms(replied, rollouts, aimed, rows, n_tokens, self.settings)
            torch.stack([values[name] for name in LOSS]).sum().backward()
            for name, value in values.items():
                sums[name] = sums.get(name, 0.0) + value.item()
        # Adapters and head are clipped separately: the head's gradient is a hundred times larger and would use up a
        # common bound.
        trained = (self.actor.model, self.actor.value_head)
        norms = [
            nn.utils.clip_grad_norm_(part.parameters(), self.settings.max_gradient_norm).item() for part in trained
        ]
        norm = max(norms, key=lambda norm: math.inf if math.isnan(norm) else norm)
        if not math.isfinite(norm) or not all(map(math.isfinite, sums.values())):
            self.optimizer.zero_grad()
            text = ", ".join(f"{name} {value:.4g}" for name, value in sums.items())
            raise NotFinite(
                f"the policy's training is no longer finite at iteration {self.n_steps + 1} ({text}, gradient norm "
                f"{norm:.4g}). Lower the learning rate, {self.settings.learning_rate:.3g}"
            )
        self.optimizer.step()
        self.optimizer.zero_grad()
        return {**sums, "gradient_norm": norm}


def collapsed(rollouts: Rollouts, settings: PolicySettings) -> str:
    """Return the reason that these rollouts show a collapsed policy, as a sentence. Empty if they do not.

    A policy has collapsed if its entropy is near 0, if its replies copy earlier ones, or if it is far from its
    reference. The settings contain the limits.
    """
    entropy = losses.mean_over(rollouts.entropy, rollouts.mask).item()
    kl = losses.mean_over(losses.k1(rollouts.logp, rollouts.reference_logp), rollouts.mask).item()
    n = len(rollouts.replies)
    copies = n - len(set(rollouts.replies))
    reasons = []
    if entropy < settings.least_entropy:
        reasons.append(f"its entropy is {entropy:.3g} nats a token, below {settings.least_entropy:g}")
    if copies > settings.most_duplicates * n:
        reasons.append(f"{copies} of {n} replies repeat another, more than {settings.most_duplicates:.0%}")
    if kl > settings.most_kl:
        reasons.append(f"it is {kl:.3g} nats a token from its reference, above {settings.most_kl:g}")
    if reasons:
        return f"the policy has collapsed: {'; '.join(reasons)}"
    return ""


def _modules(actor: Actor) -> nn.ModuleDict:
    """All trained parameters, under names that do not change."""
    return nn.ModuleDict({"model": actor.model, "value_head": actor.value_head})
