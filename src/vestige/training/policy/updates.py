"""A policy and how it learns from scores: PPO with a value head, or GRPO with groups of replies to one prompt.

Axes: B replies, T their tokens, N tokens of all replies end to end. Log-probabilities, KL and entropy are in nats.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn
from transformers import PreTrainedModel

from vestige.core.errors import InputError, NotFinite
from vestige.core.files import read_json, write_json
from vestige.core.ids import changed_keys
from vestige.core.seeds import generator
from vestige.models.head import how_to_read
from vestige.training.adapters import add_lora
from vestige.training.checkpoints import Checkpoints
from vestige.training.optimizers import refuse_unsound
from vestige.training.policy import losses
from vestige.training.policy.actor import Actor
from vestige.training.policy.estimators import LOSS, Aims, Sizes, aims, terms
from vestige.training.policy.products import LeanProducts
from vestige.training.policy.rollouts import Rollouts
from vestige.training.policy.settings import PolicySettings as PolicySettings
from vestige.training.settings import TrainingSettings

_IDENTITY = "identity.json"


@dataclass
class Policy:
    """A model that learns to reply, with its value head and its optimiser; `n_steps` iterations are done."""

    actor: Actor
    optimizer: torch.optim.Optimizer
    settings: PolicySettings
    seed: int
    n_steps: int = 0

    @classmethod
    def of(cls, model: PreTrainedModel, settings: PolicySettings, *, seed: int) -> "Policy":
        """A policy that begins as `model`, which is the policy's own from now on: adapters are put into it.

        The value head begins at 0. The adapters' first weights and the order of replies follow from the seed.
        """
        if any(isinstance(module, BaseTunerLayer) for module in model.modules()):
            raise InputError("the policy's model has adapters already; merge them into its weights first")
        lora = TrainingSettings(
            lora_rank=settings.lora_rank,
            lora_alpha=settings.lora_alpha,
            lora_dropout=0.0,
            lora_targets=settings.lora_targets,
            precision=settings.precision,
        )
        refuse_unsound(model, lora, None)
        way = how_to_read(model, list(range(min(8, model.config.get_text_config().vocab_size))))
        add_lora(model, lora, seed)
        head = nn.utils.skip_init(nn.Linear, model.config.get_text_config().hidden_size, 1, device=model.device)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        # Never `train()`: with dropout the ratio of new to old would not begin at 1.
        model.eval()
        adapted = tuple(module for module in model.modules() if isinstance(module, BaseTunerLayer))
        actor = Actor(model, head, adapted, way, LeanProducts.of(model, settings.precision))
        optimizer = torch.optim.AdamW(
            [p for p in _modules(actor).parameters() if p.requires_grad],
            lr=settings.learning_rate,
            betas=(settings.beta1, settings.beta2),
            weight_decay=settings.weight_decay,
            fused=True,
        )
        return cls(actor, optimizer, settings, seed)

    def step(self, rollouts: Rollouts, scores: Sequence[float]) -> dict[str, float]:
        """Learn from the scores of what was drawn from this very policy; what happened, in numbers.

        `score`, `kl` (k1, nats a token) and `entropy` are those of the rollouts. The terms of the loss, `clip_share`
        (tokens whose ratio left the clip) and `gradient_norm` (before it is held) are means over the optimiser's steps.
        Raises NotFinite where a score, a loss or a gradient is no number.
        """
        if len(scores) != len(rollouts.replies):
            raise InputError(f"there are {len(scores)} scores for {len(rollouts.replies)} replies; give one to each")
        if not all(map(math.isfinite, scores)):
            raise InputError("a reply's score is no finite number; leave the reply out, or give it a score")
        aimed = aims(rollouts, torch.tensor(list(scores), device=rollouts.logp.device), self.settings)
        updates = [self._update(rollouts, aimed, batch) for batch in self._batches(len(scores))]
        self.n_steps += 1
        kl = losses.k1(rollouts.logp, rollouts.reference_logp)
        return {
            "score": sum(scores) / len(scores),
            "kl": losses.mean_over(kl, rollouts.mask).item(),
            "entropy": losses.mean_over(rollouts.entropy, rollouts.mask).item(),
            **{name: sum(update[name] for update in updates) / len(updates) for name in updates[0]},
        }

    def save(self, path: Path) -> None:
        """Keep adapters, value head, the optimiser's moments and the number of iterations: whole, or what was there.

        Beside them lie the settings and the seed, without which its next step would be another one.
        """
        write_json(path / _IDENTITY, self._identity())
        Checkpoints(path).save(self.n_steps, _modules(self.actor), self.optimizer, {})

    def restore(self, path: Path) -> bool:
        """Become the policy that was saved there, whose next step has the same bytes; False where there is none.

        A kill while the first was written leaves none. Raises InputError where what was saved is damaged, of another
        shape, or of a policy with other settings or another seed.
        """
        kept = Checkpoints(path)
        n_steps = kept.newest()
        if n_steps is None:
            return False
        theirs = read_json(path / _IDENTITY) if (path / _IDENTITY).exists() else None
        if not isinstance(theirs, dict):
            raise InputError(f"{path / _IDENTITY} does not say how the policy there was trained; delete {path}")
        if differs := changed_keys(self._identity(), theirs):
            raise InputError(
                f"the policy in {path} was trained otherwise (it differs in {', '.join(differs)}); delete that folder, "
                "or use its settings and seed"
            )
        kept.restore(n_steps, _modules(self.actor), self.optimizer)
        self.n_steps = n_steps
        return True

    def _identity(self) -> dict[str, Any]:
        """What decides its next step beside its weights."""
        return {"seed": self.seed, **self.settings.identity()}

    def _batches(self, n: int) -> Iterator[list[int]]:
        """Replies of each step of the optimiser, in an order that follows from seed, iteration and epoch."""
        for epoch in range(self.settings.epochs):
            order = generator(self.seed, "policy", self.n_steps, epoch).permutation(n).tolist()
            yield from (order[at : at + self.settings.batch_size] for at in range(0, n, self.settings.batch_size))

    def _update(self, rollouts: Rollouts, aimed: Aims, batch: Sequence[int]) -> dict[str, float]:
        """One step of the optimiser over the replies of `batch`, those of like length together."""
        sizes = Sizes(sum(len(rollouts.replies[i]) for i in batch), len(batch))
        ordered = sorted(batch, key=lambda i: len(rollouts.prompts[i]) + len(rollouts.replies[i]))
        sums: dict[str, float] = {}
        for at in range(0, len(ordered), self.settings.minibatch_size):
            rows = ordered[at : at + self.settings.minibatch_size]
            said = self.actor.replied(
                [rollouts.prompts[i] for i in rows], [rollouts.replies[i] for i in rows], rollouts.temperature
            )
            found = terms(said, rollouts, aimed, rows, sizes, self.settings)
            torch.stack([found[name] for name in LOSS if name in found]).sum().backward()
            for name, value in found.items():
                sums[name] = sums.get(name, 0.0) + value.item()
        norm = nn.utils.clip_grad_norm_(
            self.optimizer.param_groups[0]["params"], self.settings.max_gradient_norm
        ).item()
        if not math.isfinite(norm) or not all(map(math.isfinite, sums.values())):
            self.optimizer.zero_grad()
            shown = ", ".join(f"{name} {value:.4g}" for name, value in sums.items())
            raise NotFinite(
                f"the policy's training is no longer finite at iteration {self.n_steps + 1} ({shown}, gradient norm "
                f"{norm:.4g}); lower the learning rate, {self.settings.learning_rate:.3g}"
            )
        self.optimizer.step()
        self.optimizer.zero_grad()
        return {**sums, "gradient_norm": norm}


def collapsed(rollouts: Rollouts, settings: PolicySettings) -> str:
    """Why these rollouts are those of a policy that has collapsed, as a sentence; empty where they are not.

    It has where it hardly chooses any more, where replies are copies of earlier ones, or where it has left its
    reference far behind. The limits are the settings'.
    """
    entropy = losses.mean_over(rollouts.entropy, rollouts.mask).item()
    kl = losses.mean_over(losses.k1(rollouts.logp, rollouts.reference_logp), rollouts.mask).item()
    n = len(rollouts.replies)
    copies = n - len(set(rollouts.replies))
    found = []
    if entropy < settings.least_entropy:
        found.append(f"its entropy is {entropy:.3g} nats a token, below {settings.least_entropy:g}")
    if copies > settings.most_duplicates * n:
        found.append(f"{copies} of {n} replies repeat another, more than {settings.most_duplicates:.0%}")
    if kl > settings.most_kl:
        found.append(f"it is {kl:.3g} nats a token from its reference, above {settings.most_kl:g}")
    return f"the policy has collapsed: {'; '.join(found)}" if found else ""


def _modules(actor: Actor) -> nn.ModuleDict:
    """Everything that is trained, under names that do not change."""
    return nn.ModuleDict({"model": actor.model, "value_head": actor.value_head})
