"""Probe sampling: a small draft model reads all prompts, and the subject only those that the draft finds promising.

Y. Zhao et al., Accelerating greedy coordinate gradient and general prompt optimization via probe sampling, 2403.01251.
Both read a random probe set of W / share prompts. With rho the rank correlation (Spearman) of their losses on it,

    alpha = (1 + rho) / 2        filtered = the max(1, floor((1 - alpha) W / reduction)) prompts of least draft loss

and the best of both sets is taken, by the subject's losses. Without a correlation (fewer than two probes, or equal
losses) alpha is 0: the draft is trusted least.

Axes: W prompts, P probes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from scipy.stats import spearmanr

from vestige.core.ids import content_id
from vestige.core.seeds import generator
from vestige.models.variants import Ids, Scored


@runtime_checkable
class Reader(Protocol):
    """A model that reads prompts, charging what it reads."""

    def losses(self, prompts: Sequence[Ids]) -> Float[np.ndarray, " W"]:
        """The loss of each prompt."""
        ...

    def leaders(self, prompts: Sequence[Ids], n: int) -> list[Scored]:
        """The `n` prompts of least loss, least first."""
        ...

    def reached(self, prompt: Ids) -> bool:
        """Whether the prompt does all that is wanted."""
        ...


@dataclass(frozen=True)
class Probed:
    """What `subject` is searched for, most prompts being read by `draft` only. The probes follow from the prompts."""

    subject: Reader
    draft: Reader
    share: int
    reduction: int
    seed: int

    def leaders(self, prompts: Sequence[Ids], n: int) -> list[Scored]:
        """The prompts of least loss among those that the subject read."""
        if len(prompts) <= n:
            return self.subject.leaders(prompts, n)
        rng = generator(self.seed, "probe set", content_id([list(p) for p in prompts]))
        n_probes = max(1, len(prompts) // self.share)
        probes = np.sort(rng.choice(len(prompts), n_probes, replace=False))
        by_draft = self.draft.losses(prompts)
        read = self.subject.losses([prompts[i] for i in probes])
        size = filtered_size(agreement(read, by_draft[probes]), len(prompts), self.reduction)
        scored = [Scored(int(i), float(loss)) for i, loss in zip(probes, read, strict=True)]
        known = set(probes.tolist())
        rest = [int(i) for i in by_draft.argsort(kind="stable")[:size] if int(i) not in known]
        if rest:
            scored += [Scored(rest[i], loss) for i, loss in self.subject.leaders([prompts[i] for i in rest], n)]
        return sorted(scored, key=lambda s: (s.loss, s.index))[:n]

    def reached(self, prompt: Ids) -> bool:
        """Whether the prompt does all that is wanted, by the subject."""
        return self.subject.reached(prompt)


def agreement(one: Float[np.ndarray, " P"], other: Float[np.ndarray, " P"]) -> float:
    """Spearman's correlation moved from [-1, 1] to [0, 1]; 0 where there is none to compute."""
    if len(one) < 2 or (one == one[0]).all() or (other == other[0]).all():
        return 0.0
    return (1 + float(spearmanr(one, other).statistic)) / 2


def filtered_size(alpha: float, n_prompts: int, reduction: int) -> int:
    """How many of the draft's best the subject reads."""
    return max(1, math.floor((1 - alpha) * n_prompts / reduction))
