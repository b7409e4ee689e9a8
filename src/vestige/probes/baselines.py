"""What latent probing is held against: the same policy without learning, and paraphrases of the seeds.

All three make the same number of attempts, and an attempt counts as a call of the model that is asked, also where its
prompt was empty or had been asked before.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from vestige.artifacts.holes import LATENT_J, Attempt
from vestige.artifacts.layout import ProbeFolder
from vestige.metrics.answers import normalised
from vestige.probes.latent import (
    Cast,
    LatentSettings,
    OnIteration,
    Opening,
    Search,
    listed,
    on_a_line,
    refuse_poor_seeds,
    run,
    unwatched,
)

RANDOM, PARAPHRASE = "random", "paraphrase"


def random_sampling(
    cast: Cast,
    seeds: Sequence[str],
    settings: LatentSettings,
    *,
    seed: int,
    folder: ProbeFolder,
    on_iteration: OnIteration = unwatched,
) -> list[Attempt]:
    """The policy as it is before it learns, from the openings that `latent.probe` has, each by itself."""
    refuse_poor_seeds(seeds, settings.n_examples)
    n = cast.policy.settings.n_rollouts

    def openings(iteration: int) -> list[Opening]:
        return [listed(seeds, settings.n_examples, seed, iteration, row) for row in range(n)]

    return run(Search(RANDOM, openings, learns=False), cast, settings, seed=seed, folder=folder, watch=on_iteration)


def paraphrase(
    cast: Cast,
    seeds: Sequence[str],
    settings: LatentSettings,
    *,
    seed: int,
    folder: ProbeFolder,
    on_iteration: OnIteration = unwatched,
) -> list[Attempt]:
    """Each seed in other words, written by the policy before it learns; the seeds in turn, until all calls are made.

    It is best-of-n with n = calls / seeds, where every attempt counts that finds something, and not only the best.
    """
    refuse_poor_seeds(seeds, 1)
    n = cast.policy.settings.n_rollouts

    def openings(iteration: int) -> list[Opening]:
        turns = range((iteration - 1) * n, iteration * n)
        return [reworded(seeds[turn % len(seeds)]) for turn in turns]

    return run(Search(PARAPHRASE, openings, learns=False), cast, settings, seed=seed, folder=folder, watch=on_iteration)


def reworded(seed: str) -> Opening:
    """A list of wordings of one question, of which the first is the seed."""
    return Opening(seed, f"The same question in other words:\n1. {on_a_line(seed)}\n2.")


class Yield(NamedTuple):
    """What a search brought: D_RL, the different holes in it, those for 1,000 calls, and the call that found one first.

    `first_call` counts from 1; None where nothing was found.
    """

    source: str
    n_calls: int
    n_latent: int
    n_distinct: int
    per_thousand: float
    first_call: int | None


def by_wording(attempt: Attempt) -> str | None:
    """Prompts that differ in more than case, white space and a full stop at the end are different holes."""
    return normalised(attempt.prompt)


def yield_of(attempts: Sequence[Attempt], *, hole: Callable[[Attempt], str | None] = by_wording) -> Yield:
    """Counted over `attempts` with J = 10; `hole` names the hole that an attempt hit, None if it is none."""
    if not attempts:
        raise ValueError("a search without attempts has no yield")
    hits = [(call, name) for call, a in enumerate(attempts, 1) if a.j == LATENT_J and (name := hole(a)) is not None]
    distinct, n = len({name for _, name in hits}), len(attempts)
    first = hits[0][0] if hits else None
    return Yield(attempts[0].source, n, len(hits), distinct, 1000 * distinct / n, first)
