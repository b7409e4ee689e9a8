"""What protection was worth: the table of a trial of prevention, from harms item by item. Pure.

Harm is the target's score less the unlearned model's, so that more is worse. What counts as at risk at one seed is
taken from the other seeds: items chosen for a loss that was partly chance would lose less the next time, whatever the
arm, and the arm that they were chosen by most of all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float

from vestige.artifacts.prevention import MEASURES, ArmRow, Prediction
from vestige.core.estimates import Estimate
from vestige.metrics.membership import auc, auc_interval
from vestige.metrics.two_way import two_way_interval
from vestige.probes.arms import NONE, RANDOM, most_harmed, n_at_risk

CEILING = "harm at other seeds"
UNITS = {"logp": "nats", "rougeL": "share"}


@dataclass(frozen=True)
class Trial:
    """What was measured.

    `clusters` names, for each benign item of `ids`, what it hangs together with; `forget` is the same for forget items.
    `harms` holds, by arm, seed, measure and item, what was lost: of benign items under `none`, and of the evaluated
    and the forget items under every arm.
    """

    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    ids: tuple[str, ...]
    clusters: tuple[str, ...]
    evaluated: Bool[np.ndarray, " N"]
    risks: Mapping[str, Float[np.ndarray, " N"]]
    forget: Mapping[str, str]
    harms: Mapping[tuple[str, int], Mapping[str, Mapping[str, float]]]

    @cached_property
    def cluster_of(self) -> Mapping[str, str]:
        """What each item, benign or to forget, hangs together with."""
        return {**dict(zip(self.ids, self.clusters, strict=True)), **self.forget}

    @cached_property
    def measures(self) -> tuple[str, ...]:
        """What harm was measured in."""
        return tuple(m for m in MEASURES if all(m in found for found in self.harms.values()))

    @cached_property
    def evaluated_ids(self) -> tuple[str, ...]:
        """The items that no arm may add."""
        return tuple(i for i, kept in zip(self.ids, self.evaluated, strict=True) if kept)

    @cached_property
    def pool_ids(self) -> tuple[str, ...]:
        """The items that arms may add."""
        return tuple(i for i, kept in zip(self.ids, self.evaluated, strict=True) if not kept)

    def harm_elsewhere(self, seed: int, ids: Sequence[str]) -> Float[np.ndarray, " N"]:
        """What the items lost in nats a token without protection, in the mean over the other seeds."""
        return self.harm_without([s for s in self.seeds if s != seed], ids)

    def harm_without(self, seeds: Sequence[int], ids: Sequence[str]) -> Float[np.ndarray, " N"]:
        """What the items lost in nats a token without protection, in the mean over these seeds."""
        lost = [[self.harms[NONE, s]["logp"][i] for i in ids] for s in seeds]
        mean: Float[np.ndarray, " N"] = np.mean(lost, axis=0)
        return mean

    def at_risk(self, seed: int) -> tuple[str, ...]:
        """The evaluated items that count as at risk at one seed."""
        ids = self.evaluated_ids
        places = most_harmed(self.harm_elsewhere(seed, ids), ids, n_at_risk(len(ids)))
        return tuple(ids[place] for place in sorted(places.tolist()))


def arm_rows(trial: Trial) -> tuple[ArmRow, ...]:
    """Each arm's harm at risk, over all evaluated items and of the forget set, and what it is less than others'."""
    found = []
    for measure in trial.measures:
        for what in ("at risk", "all", "forget"):
            for arm in trial.arms:
                for against in ("", *(a for a in (NONE, RANDOM) if a in trial.arms and _follows(arm, a))):
                    found.append(ArmRow(arm, what, measure, against, _estimate(trial, arm, what, measure, against)))
    return tuple(found)


def _follows(arm: str, other: str) -> bool:
    """Whether an arm is held against another: each against `none`, and what chooses against `random`."""
    return arm != other and (other == NONE or arm != NONE)


def _estimate(trial: Trial, arm: str, what: str, measure: str, against: str) -> Estimate:
    values, seeds, items = [], [], []
    for seed in trial.seeds:
        for item in _asked(trial, what, seed):
            value = trial.harms[arm, seed][measure][item]
            values.append(value - (trial.harms[against, seed][measure][item] if against else 0.0))
            seeds.append(seed)
            items.append(item)
    clusters = [trial.cluster_of[i] for i in items]
    interval = two_way_interval(np.array(values), seeds=seeds, items=items, clusters=clusters)
    name = f"harm_{measure}" + (f"_less_{against}" if against else "")
    mean = float(np.mean(values))
    return Estimate(name, UNITS[measure], mean, interval.low, interval.high, len(set(items)), interval.method)


def _asked(trial: Trial, what: str, seed: int) -> Sequence[str]:
    if what == "forget":
        return tuple(trial.forget)
    return trial.at_risk(seed) if what == "at risk" else trial.evaluated_ids


def predictions(trial: Trial, *, seed: int) -> tuple[Prediction, ...]:
    """The AUROC of every risk score against the most harmed quarter of all benign items, and that of the ceiling.

    Harm is the mean over all seeds under `none`. For the ceiling it is that of the first seed, and what predicts it
    the mean of the others.
    """
    first, *others = trial.seeds
    harm = trial.harm_without(trial.seeds, trial.ids)
    found = [_prediction(trial, name, values, harm, seed=seed) for name, values in trial.risks.items()]
    seen, then = trial.harm_without(others, trial.ids), trial.harm_without([first], trial.ids)
    return (*found, _prediction(trial, CEILING, seen, then, seed=seed))


def _prediction(
    trial: Trial, name: str, risk: Float[np.ndarray, " N"], harm: Float[np.ndarray, " N"], *, seed: int
) -> Prediction:
    harmed = np.zeros(len(harm), dtype=bool)
    harmed[most_harmed(harm, trial.ids, n_at_risk(len(harm)))] = True
    clusters = np.asarray(trial.clusters, dtype=str)
    area = auc(risk[harmed], risk[~harmed])
    low, high, method = auc_interval(
        risk[harmed],
        risk[~harmed],
        member_clusters=clusters[harmed].tolist(),
        other_clusters=clusters[~harmed].tolist(),
        seed=seed,
    )
    return Prediction(name, Estimate("auroc", "share", area, low, high, len(harm), method))
