"""What protection was worth: a trial of prevention as records, its arms, and its table from harms item by item. Pure.

::

    asked.json                    the identity: everything that can change what is found
    risk.jsonl                    each benign item: its part, and its risk by every score, higher being more at risk
    target/                       the target's answers, where it is not asked in a folder of its own
    arms/<arm>-<seed>/            an unlearned subject, with its answers in evals/
        added.jsonl               the items that the arm added to the retain set
    probes/<arm>-<seed>/          fresh probes of that subject, where they were asked for: a folder of `vestige probe`
    harms.jsonl                   each item asked of each subject: what the target answered better, by measure
    prevention.csv                the table's rows
    provenance.json prevention.json   versions and times; written last: the table

Harm is the target's score less the unlearned model's, so that more is worse: `logp`, the mean log-probability of the
true answer's tokens (nats a token), and `rougeL`, the recall of the true answer by a greedy reply (a share). What
counts as at risk at one seed is taken from the other seeds: items chosen for a loss that was partly chance would lose
less the next time, whatever the arm, and the arm that they were chosen by most of all.

Intervals are two-way, since items and training seeds were both drawn: not every item needs every seed. With r the score
less the mean, C the clusters of items, S the seeds:

    V_C = K / (K - 1) sum over clusters (sum r)^2 / N^2,    V_S = S / (S - 1) sum over seeds (sum r)^2 / N^2.

The interval is the mean plus or minus t times the root of V = V_C + V_S. A. C. Cameron, J. B. Gelbach and D. L. Miller
(Robust inference with multiway clustering, J. Bus. Econ. Stat. 29, 2011) take off what both count, the clusters at one
seed, and have min(K, S) - 1 degrees of freedom. With three seeds that would be two degrees whatever the seeds do, so
ours are Satterthwaite's, V^2 / (V_C^2 / (K - 1) + V_S^2 / (S - 1)), and nothing is taken off, which makes up for what
so few seeds leave unknown. In simulations it covers 92 to 98 % with three seeds or more (docs/holes.md), and 89 %
with two, which are refused.


Axes: N benign items, none of them in the retain set, in the order of the data.

Of an interval N counts its scores, one for each item and seed that were looked at.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import stdtrit

from vestige.artifacts.layout import Entry, ProbeFolder, SubjectFolder
from vestige.artifacts.records import write_csv
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate, to_json
from vestige.core.seeds import generator, shuffled
from vestige.core.store import load, save
from vestige.core.text import closest
from vestige.metrics.intervals import LEAST_CLUSTERS, LEVEL, Interval
from vestige.metrics.membership import auc, auc_interval
from vestige.probes.risk import EMBEDDING, GRAPH, order_of

MEASURES = ("logp", "rougeL")
"""What harm is measured in."""


@dataclass(frozen=True)
class PreventionFolder:
    """One trial of prevention: one target, forget set and method."""

    path: Path

    asked = Entry("asked.json")
    """The identity."""
    risk = Entry("risk.jsonl")
    """One line for each benign item."""
    target = Entry("target")
    """Where the target's answers go."""
    harms = Entry("harms.jsonl")
    """One line for each item and subject."""
    rows = Entry("prevention.csv")
    """The table's rows as CSV."""
    table = Entry("prevention.json")
    """Written last."""
    provenance = Entry("provenance.json")
    """Versions, hardware, command and times."""
    lock = Entry(".lock")
    """Held by the command that works on the trial."""

    def arm(self, name: str, seed: int) -> SubjectFolder:
        """The model that one arm made at one seed."""
        return SubjectFolder(self.path / "arms" / f"{name}-{seed}")

    def added(self, name: str, seed: int) -> Path:
        """One line for each item that the arm added to the retain set."""
        return self.arm(name, seed).path / "added.jsonl"

    def probe(self, name: str, seed: int) -> ProbeFolder:
        """The fresh probes of the model of one arm and seed."""
        return ProbeFolder(self.path / "probes" / f"{name}-{seed}")


@dataclass(frozen=True)
class RiskRow:
    """One benign item: `part` is pool (arms may add it) or evaluated (none may); `scores` by name."""

    item: str
    question: str
    edge: str | None
    part: str
    scores: Mapping[str, float]


@dataclass(frozen=True)
class HarmRow:
    """One item asked of one arm's model at one seed: target less unlearned, by measure."""

    arm: str
    seed: int
    item: str
    harm: Mapping[str, float]


@dataclass(frozen=True)
class ArmRow:
    """One number of one arm, over its seeds.

    `what` is `at risk` or `all` (mean harm of the evaluated items that lost most `logp` without protection at the
    other seeds; of all of them), `forget` (the same of the forget set: how much is forgotten), `holes` or `probes` (of
    fresh probes of the first seed's model: the share that are holes, the change in quality from 1 to 10). `against` is
    empty, or the arm whose number is taken off, item by item at the same seed.
    """

    arm: str
    what: str
    measure: str
    against: str
    estimate: Estimate


@dataclass(frozen=True)
class Prediction:
    """How well one risk score tells beforehand which items lose most `logp` without protection.

    `auroc` is the probability that an item of the most harmed quarter has a higher risk than one of the others.
    `score` is the name of a risk score, or `harm at other seeds`, which has seen what the unlearning does and says what
    can be hoped for.
    """

    score: str
    auroc: Estimate


@dataclass(frozen=True)
class PreventionTable:
    """All that came of a trial.

    Arms added `n_added` items to `n_retain`; `n_pool` could be added and `n_evaluated` could not. `rule` says where
    training stopped ("" for the end of all steps), `steps` after how many at each seed, and `reached` at how many of
    the seeds an arm met the rule. `risk_by` is the score that the arm `predicted` went by, and `n_at_risk` the number
    of evaluated items that count as at risk at each seed; `probe_k` the fresh probes of each forget item, or 0.
    """

    method: str
    forget: str
    seeds: tuple[int, ...]
    n_forget: int
    n_retain: int
    n_added: int
    n_pool: int
    n_evaluated: int
    n_at_risk: int
    rule: str
    risk_by: str
    probe_k: int
    steps: Mapping[str, tuple[int, ...]]
    reached: Mapping[str, int]
    arms: tuple[ArmRow, ...]
    predictions: tuple[Prediction, ...]

    def of(self, arm: str, what: str, measure: str, against: str = "") -> Estimate | None:
        """One number of one arm; None where it was not measured."""
        asked = (arm, what, measure, against)
        return next((r.estimate for r in self.arms if (r.arm, r.what, r.measure, r.against) == asked), None)


_COLUMNS = ("arm", "what", "measure", "against", "value", "low", "high", "n", "unit", "interval")


def write_table(folder: PreventionFolder, table: PreventionTable) -> None:
    """Write the table, as CSV and last as JSON; its existence means that the trial is done."""
    numbers = [(row.estimate, (row.arm, row.what, row.measure, row.against)) for row in table.arms]
    numbers += [(one.auroc, (one.score, "auroc", "logp", "")) for one in table.predictions]
    rows = ({**to_json(estimate), **dict(zip(_COLUMNS, place, strict=False))} for estimate, place in numbers)
    write_csv(folder.rows, _COLUMNS, ({c: row[c] for c in _COLUMNS} for row in rows))
    save(folder.table, table)


def read_table(folder: PreventionFolder) -> PreventionTable:
    """The table of a finished trial."""
    if not folder.table.exists():
        raise InputError(f"{folder.path} holds no finished trial of prevention; run `vestige probe prevent` again")
    return load(folder.table, PreventionTable)


NONE, RANDOM, ADJACENT, PREDICTED, ORACLE = "none", "random", "adjacent", "predicted", "oracle"
ARMS = (NONE, RANDOM, ADJACENT, PREDICTED, ORACLE)
"""Nothing is added; items drawn; the nearest ones; the riskiest ones; those that were in truth most harmed."""
SHARE_AT_RISK = 0.25
"""Of the evaluated items, those that count as at risk: the most harmed quarter."""


def arms_named(words: str) -> tuple[str, ...]:
    """The arms that are named, apart by commas, in the order of `ARMS`; `none` is always among them."""
    names = {word.strip() for word in words.split(",") if word.strip()}
    for name in sorted(names - set(ARMS)):
        raise InputError(f"no arm {name!r}; {closest(name, list(ARMS))}")
    return tuple(arm for arm in ARMS if arm in names | {NONE})


def evaluated_half(risks: Float[np.ndarray, " N"], ids: Sequence[str], *, seed: int) -> Bool[np.ndarray, " N"]:
    """Which items are evaluated and may never be added; the others are the pool.

    Of each two neighbours in the order of their risk one is drawn, so that both halves hold as much risk.
    """
    order = order_of(risks, ids)
    found = np.zeros(len(order), dtype=bool)
    first = generator(seed, "prevention halves").integers(0, 2, -(-len(order) // 2))
    for pair, place in enumerate(range(0, len(order) - 1, 2)):
        found[order[place + first[pair]]] = True
    return found


def most_harmed(harm: Float[np.ndarray, " N"], ids: Sequence[str], n: int) -> Int[np.ndarray, " n"]:
    """The places of the `n` items that lost most."""
    return order_of(harm, ids)[:n]


def n_at_risk(n_evaluated: int) -> int:
    """How many of the evaluated items count as at risk."""
    return max(1, round(SHARE_AT_RISK * n_evaluated))


def nearest_first(risks: Mapping[str, Float[np.ndarray, " N"]], ids: Sequence[str]) -> Int[np.ndarray, " N"]:
    """The items' places by distance in the graph, where there is one, and at one distance by embedding."""
    near = risks[EMBEDDING]
    return np.lexsort((np.asarray(ids, dtype=str), -near, -risks.get(GRAPH, np.zeros(len(near)))))


def drawn(n_items: int, n: int, *, seed: int) -> Int[np.ndarray, " n"]:
    """The places of `n` items, drawn."""
    return np.sort(shuffled(generator(seed, "prevention random arm"), n_items)[:n])


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
                for against in ("", *(a for a in (NONE, RANDOM) if a in trial.arms and a != arm != NONE)):
                    found.append(ArmRow(arm, what, measure, against, _mean_harm(trial, arm, what, measure, against)))
    return tuple(found)


def _mean_harm(trial: Trial, arm: str, what: str, measure: str, against: str) -> Estimate:
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


LEAST_SEEDS = 3
"""With fewer, the spread between seeds is not estimated."""


def two_way_interval(
    values: Float[np.ndarray, " N"], *, seeds: Sequence[int], items: Sequence[str], clusters: Sequence[str]
) -> Interval:
    """The interval of the mean of `values`; `clusters` names what items hang together by, such as their edge.

    With less than 5 clusters the items stand for themselves, and `method` says so.
    """
    scores = np.asarray(values, dtype=float)
    if not len(scores) or not np.isfinite(scores).all():
        raise ValueError("an interval needs finite scores")
    if not len(scores) == len(seeds) == len(items) == len(clusters):
        raise ValueError(f"{len(scores)} scores, but {len(seeds)} seeds, {len(items)} items, {len(clusters)} clusters")
    names, said = (clusters, "clusters") if len(set(clusters)) >= LEAST_CLUSTERS else (items, "items")
    _, group = np.unique(np.asarray(names, dtype=str), return_inverse=True)
    _, seed = np.unique(np.asarray(seeds), return_inverse=True)
    k, s = int(group.max()) + 1, int(seed.max()) + 1
    if k < 2 or s < LEAST_SEEDS:
        raise ValueError(f"{k} {said} and {s} seeds: an interval needs 2 and {LEAST_SEEDS}")
    # Sorted, so that the order of the scores does not reach the last digit.
    order = np.lexsort((scores, seed, group))
    mean = float(scores[order].mean())
    rest, group, seed = scores[order] - mean, group[order], seed[order]
    by_group, by_seed = _variance(rest, group), _variance(rest, seed)
    total = by_group + by_seed
    method = f"{s} seeds x {k} {said}"
    if total == 0:
        return Interval(mean, mean, f"no spread: {method}, all alike")
    df = total**2 / (by_group**2 / (k - 1) + by_seed**2 / (s - 1))
    arm = float(stdtrit(df, (1 + LEVEL) / 2)) * math.sqrt(total)
    return Interval(mean - arm, mean + arm, f"two-way robust, {method}")


def _variance(rest: Float[np.ndarray, " N"], labels: Int[np.ndarray, " N"]) -> float:
    """What the groups of one kind add to the variance of the mean."""
    _, group = np.unique(labels, return_inverse=True)
    sums = np.bincount(group, weights=rest)
    k = len(sums)
    return k / (k - 1) * float((sums**2).sum()) / len(rest) ** 2
