"""The results of a study: item scores pooled over training seeds, differences with tests, tables and exports.

Everything is computed from the scores of items that evaluations left, and no model is loaded.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float

from vestige.artifacts.layout import EvalFolder
from vestige.artifacts.records import read_scores
from vestige.artifacts.verdicts import WORDS
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.core.seeds import derive_seed
from vestige.core.text import one_line
from vestige.data.corpus import everything
from vestige.metrics.contrasts import holm
from vestige.metrics.intervals import Contrast, contrast_of_balance, contrast_over_seeds, interval_over_seeds
from vestige.steps.engine import Board
from vestige.studies.cells import CellPoint, Member, Study, label_of, rate_name, splits_of

RESAMPLES = 4_000
"""Of an interval; there are many."""
COMMON = 0.8
"""Items are compared one by one where both sides have at least this share of theirs in common."""

KNOWS = 0.05
"""A target whose mean score on the forget set is below this has nothing to forget."""

Matrix = Float[np.ndarray, "S N"]
Ends = tuple[float, float, float]
"""A value and the ends of its interval."""


class ResultGroup(NamedTuple):
    """What one row of a table is about; `rate` is empty and `method` the role where nothing was unlearned."""

    model: str
    data: str
    forget: str
    method: str
    rate: str
    attack: str = ""


AskedModel = Mapping[str, Mapping[str, str]]
"""What a cell told of one model: `evals`, the folder of each evaluation by name, and where it was attacked `asked`, by
the id of an asked item the one that it stands for."""


class ScoreRow(NamedTuple):
    """A pooled score: mean over items and seeds, its 95 % interval, and the SD of the seeds' means (None of one).

    `rate` is a learning rate or the goal that one was sought for, and `chosen` says which that is.
    """

    model: str
    data: str
    forget: str
    connectivity: float | None
    method: str
    rate: str
    attack: str
    split: str
    metric: str
    value: float
    low: float
    high: float
    sd: float | None
    items: int
    seeds: int
    sets: int
    interval: str
    chosen: str

    @property
    def group(self) -> ResultGroup:
        """What the row is about."""
        return ResultGroup(self.model, self.data, self.forget, self.method, self.rate, self.attack)


def scored(row: ScoreRow) -> str:
    """As in `0.42 ± 0.03 [0.30, 0.55]`; without ± where there was one seed."""
    spread = "" if row.sd is None else f" ± {row.sd:.3f}"
    return f"{row.value:.3f}{spread} [{row.low:.2f}, {row.high:.2f}]"


class TextTable(NamedTuple):
    """A table as text: its title, heads and rows, remarks below it, and above it what it says, in sentences."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    lead: str = ""


class ContrastRow(NamedTuple):
    """A difference, second less first, with its test; `p_holm` counts all tests of one split and metric."""

    model: str
    data: str
    method: str
    rates: str
    at: str
    split: str
    metric: str
    first: str
    second: str
    difference: float
    low: float
    high: float
    t: float | None
    df: float
    p: float | None
    p_holm: float | None
    method_of_test: str


class RankRow(NamedTuple):
    """A method at one rate among the others of one forget set, by its balance: the score kept less the score leaked.

    `rank` is its place, `rank_low` to `rank_high` the places that no test excludes at 5 % after Holm's correction for
    all pairs of the forget set. `p_against_first` is the p-value (Holm) of "it is as good as the first", and no
    probability of being best. One seed excludes nothing.
    """

    model: str
    data: str
    forget: str
    method: str
    rate: str
    metric: str
    leak: float
    utility: float
    balance: float
    rank: int
    rank_low: int
    rank_high: int
    p_against_first: float | None
    seeds: int
    chosen: str


Tested = TypeVar("Tested", bound=Any)
"""A row with `p` and `p_holm`."""


class Comparison(NamedTuple):
    """Two groups whose scores are compared, second less first; `split` is the second's where it is another."""

    group: ResultGroup
    partner: ResultGroup
    at: str
    first: str
    second: str
    split: str = ""
    common: float = COMMON


class VerdictRow(NamedTuple):
    """What an audit says of one claim about one training."""

    model: str
    data: str
    forget: str
    member: str
    seed: str
    method: str
    rate: str
    claim: str
    outcome: str
    reason: str


@dataclass(frozen=True)
class ScoreMatrix:
    """The scores of one group on one split: an item a column, a seed a row."""

    values: Matrix
    seeds: tuple[str, ...]
    items: tuple[Item, ...]

    @property
    def ids(self) -> list[str]:
        """The items' ids."""
        return [i.id for i in self.items]

    @property
    def attributes(self) -> list[str]:
        """What each item asks of its contract, which is the same question for another contract."""
        return [f"{i.group}/{i.attribute}" for i in self.items]

    @property
    def labels(self) -> list[str] | None:
        """The items' edges, where all have one."""
        edges = [i.edge for i in self.items if i.edge is not None]
        return edges if len(edges) == len(self.items) else None

    @property
    def clusters(self) -> list[str] | None:
        """The items' edges, where all have one and there are several."""
        return labels if (labels := self.labels) and len(set(labels)) > 1 else None

    def at(self, seeds: Sequence[str], columns: Sequence[int] | None = None) -> "ScoreMatrix":
        """The scores of these seeds, and of these columns."""
        columns = range(len(self.items)) if columns is None else columns
        values = self.values[np.ix_([self.seeds.index(s) for s in seeds], columns)]
        return ScoreMatrix(values, tuple(seeds), tuple(self.items[n] for n in columns))


@dataclass(frozen=True, eq=False)
class PooledResults:
    """What a study has come to so far."""

    study: Study

    def _done(self, *kinds: str) -> Iterator[tuple[CellPoint, Mapping[str, Any]]]:
        """The points of the finished cells of these kinds, each with what was recorded of it."""
        board = Board(self.study.folder.state)
        done = board.status().done
        for cell in self.study.places:
            if cell.kind in kinds and cell.key in done:
                yield cell.point, board.facts(cell.key)["made"]

    @cached_property
    def asked(self) -> dict[ResultGroup, dict[str, dict[str, AskedModel]]]:
        """By group, then seed, then member, what was asked and is done."""
        by_group: dict[ResultGroup, dict[str, dict[str, AskedModel]]] = {}
        for point, record in self._done("evaluate", "attack"):
            for group, member in self._of(point):
                seed = str(point.seed) if point.role != "retrained" else f"{point.seed}/{point.step}"
                for attack, evaluations in record.get("attacks", {"": record}).items():
                    by_group.setdefault(group._replace(attack=attack), {}).setdefault(seed, {})[member] = evaluations
        return by_group

    def _of(self, point: CellPoint) -> Iterator[tuple[ResultGroup, str]]:
        """The groups and members that a cell's answers are for; those of a target are for every forget set."""
        for (data, forget), members in self.study.members.items():
            for member in members if data == point.data and point.forget in ("", forget) else ():
                if point.member in ("", member.name):
                    yield ResultGroup(point.model, data, forget, label_of(point), rate_name(point)), member.name

    @cached_property
    def groups(self) -> tuple[ResultGroup, ...]:
        """Those with every member of their forget set at one seed at least, as tables have them."""
        names = self.study.settings.names()
        methods = ["target", "retrained", *names["methods"]]

        def order(group: ResultGroup) -> tuple[Any, ...]:
            model, data, forget, method, rate, attack = group
            # In the order in which the file names them, which is what its author wants to read.
            axes = (names["models"].index(model), names["data"].index(data), names["forget"].index(forget))
            place = methods.index(method) if method in methods else len(methods)
            return (*axes, place, method, _number(rate), rate, attack)

        return tuple(sorted((g for g in self.asked if self._seeds(g)), key=order))

    def _seeds(self, group: ResultGroup) -> list[str]:
        """The seeds at which every member was asked."""
        by_seed: Mapping[str, Mapping[str, AskedModel]] = self.asked.get(group, {})
        # The mean over some members is about other facts than the mean over all.
        return [seed for seed in sorted(by_seed) if len(by_seed[seed]) == len(self._members(group))]

    def _members(self, group: ResultGroup) -> Sequence[Member]:
        return self.study.members.get((group.data, group.forget), ())

    def by_item(self, answered: AskedModel, evaluation: str) -> Mapping[str, Mapping[str, float]]:
        """The scores of one evaluation by item; none where an attacked model was not asked it."""
        path, stands_for = answered["evals"].get(evaluation), answered.get("asked", {})
        if path is None:
            return {}
        if path not in self._read:
            rows = read_scores(EvalFolder(self.study.folder.path / path))
            self._read[path] = {stands_for.get(i := row.pop("item"), i): row for row in rows}
        return self._read[path]

    @cached_property
    def _read(self) -> dict[str, dict[str, dict[str, float]]]:
        return {}

    def items(self, group: ResultGroup, member: str, split: str) -> tuple[Item, ...]:
        """The items of a split (`forget:free`: of one scope), as one forget set sees them."""
        name, _, scope = split.partition(":")
        splits = splits_of(self.study, group.data, group.forget, member)
        return tuple(i for i in splits.splits.get(name, ()) if not scope or splits.scopes.get(i.id) == scope)

    def scores(self, group: ResultGroup, split: str, metric: str) -> ScoreMatrix | None:
        """An item's score is its mean over the models of the group that were asked it; None where there are none."""
        evaluation, _, name = metric.partition(".")
        seeds, members = self._seeds(group), self._members(group)
        if not seeds:
            # Its data may not have been compiled yet.
            return None
        about = {m.name: self.items(group, m.name, split) for m in members}
        by_id: dict[str, list[list[float]]] = {}
        for row, seed in enumerate(seeds):
            for member in members:
                values = self.by_item(self.asked[group][seed][member.name], evaluation)
                for item in about[member.name]:
                    if name in values.get(item.id, {}):
                        by_id.setdefault(item.id, [[] for _ in seeds])[row].append(values[item.id][name])
        every = {i.id: i for items in about.values() for i in items}
        # What one seed lacks would make a difference between seeds one between items.
        ids = [i for i in every if i in by_id and all(by_id[i])]
        if not ids:
            return None
        matrix = np.array([[float(np.mean(by_id[i][row])) for i in ids] for row in range(len(seeds))])
        if matrix.min() < 0 or matrix.max() > 1:
            raise InputError(f"report.metrics: {one_line(metric)!r} is no share from 0 to 1, so it is not pooled")
        return ScoreMatrix(matrix, tuple(seeds), tuple(every[i] for i in ids))

    def row(self, group: ResultGroup, split: str, metric: str) -> ScoreRow | None:
        """A pooled score."""
        scores = self.scores(group, split, metric)
        if scores is None:
            return None
        values = scores.values
        # Of what the row is about, so that an interval does not move when a report asks for other rows besides.
        seed = derive_seed(0, "study", *map(str, group), split, metric)
        interval = interval_over_seeds(
            values, clusters=scores.clusters, bounds=(0.0, 1.0), seed=seed, resamples=RESAMPLES
        )
        # Of the seeds' means: how far another training would come out elsewhere.
        sd = float(values.mean(axis=1).std(ddof=1)) if len(values) > 1 else None
        members = self._members(group)
        degrees = [m.connectivity for m in members if m.connectivity is not None]
        return ScoreRow(
            *group[:3],
            sum(degrees) / len(degrees) if degrees else None,
            *group[3:],
            split,
            metric,
            float(values.mean()),
            interval.low,
            interval.high,
            sd,
            items=values.shape[1],
            seeds=values.shape[0],
            sets=len(members),
            interval=interval.method,
            chosen=self.rate_said(group),
        )

    @cached_property
    def rows(self) -> tuple[ScoreRow, ...]:
        """Every pooled score that the report asks for."""
        report = self.study.settings.report
        pooled = (self.row(g, split, m) for g in self.groups for split in report.splits for m in report.metrics)
        return tuple(r for r in pooled if r is not None)

    @cached_property
    def searches(self) -> dict[ResultGroup, set[tuple[float, bool]]]:
        """By group the rate that each search for its goal came to, one a member, and whether it reached the goal."""
        searches: dict[ResultGroup, set[tuple[float, bool]]] = {}
        for point, record in self._done("calibrate"):
            group = ResultGroup(point.model, point.data, point.forget, point.method, point.goal)
            searches.setdefault(group, set()).add((record["rate"], record["reached"]))
        return searches

    def rate_said(self, group: ResultGroup) -> str:
        """The group's learning rate; of a goal what was chosen for it, as in `0.0001 (for retain>=0.95)`."""
        searches = self.searches.get(group._replace(attack=""))
        if not searches:
            return group.rate
        rates = ", ".join(f"{rate:g}" for rate in sorted({rate for rate, _ in searches}))
        missed = "" if all(reached for _, reached in searches) else " not reached"
        return f"{rates} ({'' if missed else 'for '}{group.rate}{missed})"

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What makes rows of the tables mean something else than they seem to, in sentences."""
        metric = self.study.settings.report.metrics[0]
        ignorant = [
            f"the target {row.model} scores {row.value:.2f} in {metric} on what {row.forget} names in {row.data}: it "
            "knows next to nothing of it, so no method can be seen to forget it; teach it longer ([finetune] epochs, "
            "learning_rate)"
            for row in self.rows
            if row.method == "target" and row.metric == metric and row.split.startswith("forget") and not row.attack
            if row.value < KNOWS
        ]
        missed = [
            f"{method} did not reach the goal {goal} on {model}, {data}, {forget}: its rows show the nearest rate tried"
            for (model, data, forget, method, goal, _), searches in sorted(self.searches.items())
            if not all(reached for _, reached in searches)
        ]
        return (*dict.fromkeys(ignorant), *missed)

    @cached_property
    def matched(self) -> dict[ResultGroup, ResultGroup]:
        """By group without a rate, that with the highest rate that keeps the utility that is asked for."""
        report = self.study.settings.report
        best: dict[ResultGroup, ResultGroup] = {}
        for group in self.groups if report.matched is not None else ():
            utility = self.scores(group, report.utility, report.metrics[0])
            # What was there before the study has no rate, and what was sought for a goal is at no common one.
            if (
                _number(group.rate)
                and not group.attack
                and utility is not None
                and float(utility.values.mean()) >= (report.matched or 0.0)
            ):
                # In ascending order of rates.
                best[group._replace(rate="")] = group
        return best

    @cached_property
    def contrasts(self) -> tuple[ContrastRow, ...]:
        """The differences that the report asks for: at each rate, and at matched utility."""
        report = self.study.settings.report
        rows: list[ContrastRow] = []
        for split in report.splits:
            for metric in report.metrics:
                compared = (self._contrast(c, split, metric) for c in self._comparisons(split))
                rows += with_holm([row for row in compared if row is not None])
        return tuple(rows)

    @cached_property
    def ranks(self) -> tuple[RankRow, ...]:
        """The methods of each forget set in the order of their balance; none without `report.rank`."""
        report = self.study.settings.report
        ranked: dict[tuple[str, str, str], dict[ResultGroup, tuple[ScoreMatrix, ScoreMatrix]]] = {}
        for group in self.groups if report.rank else ():
            utility, leak = (self.scores(group, split, report.rank) for split in (report.utility, "forget"))
            if utility and leak and not group.attack and group.method not in ("target", "retrained"):
                ranked.setdefault(group[:3], {})[group] = (utility, leak)
        return tuple(
            row._replace(chosen=self.rate_said(ResultGroup(*row[:5])))
            for scores in ranked.values()
            for row in _ranked(scores, report.rank)
        )

    @cached_property
    def verdicts(self) -> tuple[VerdictRow, ...]:
        """Every verdict of the finished audits."""
        rows = (
            VerdictRow(
                *(p.model, p.data, p.forget, p.member, str(p.seed)),
                **{**verdict, "outcome": WORDS[verdict["outcome"]]},
            )
            for p, record in self._done("audit")
            for verdict in record["verdicts"]
        )
        return tuple(dict.fromkeys(rows))

    def _pairs(self) -> list[tuple[str, tuple[str, str]]]:
        """The pairs to compare, each with its axis."""
        names, contrasts = self.study.settings.names(), self.study.settings.report.contrasts
        if not contrasts:
            places = [[f for d, f in self.study.members if d == data] for data in names["data"]]
            return [("forget", pair) for sets in places for pair in combinations(sets, 2)]
        axes = {"forget": names["forget"], "method": names["methods"], "model": names["models"]}
        pairs = []
        for pair in contrasts:
            axis = next((a for a, names_of_axis in axes.items() if set(pair) <= set(names_of_axis)), None)
            if axis is not None:
                pairs.append((axis, pair))
            elif not set(pair) <= set(self.study.settings.report.splits):
                raise InputError(
                    f"report.contrasts: {pair[0]!r} and {pair[1]!r} are not two forget sets, methods, models or "
                    "splits of report.splits"
                )
        return pairs

    def _comparisons(self, split: str) -> Iterator[Comparison]:
        """What is compared on a split: groups, two splits of one model, and a model before and after an attack."""
        yield from self._pairs_of_groups
        report = self.study.settings.report
        for first, second in report.contrasts:
            if first == split and second in report.splits:
                for group in self.groups:
                    if not group.attack and group.method != "target":
                        yield Comparison(group, group, "equal rates", first, second, second)
        for group in self.groups:
            if group.attack and split.startswith("forget"):
                # Of the items that were asked both times, however few.
                plain = group._replace(attack="")
                yield Comparison(plain, group, "equal rates", "before", group.attack, common=0.0)

    @cached_property
    def _pairs_of_groups(self) -> tuple[Comparison, ...]:
        """The groups to compare, at equal rates and at the highest rates that keep the utility."""
        pairs: list[Comparison] = []
        for axis, (first, second) in self._pairs():
            matched = dict.fromkeys(
                (best, self.matched.get(_with(group, axis, second)))
                for group, best in self.matched.items()
                if getattr(group, axis) == first
            )
            for group in self.groups:
                if getattr(group, axis) == first and group.method != "target" and not group.attack:
                    partner, at = self._partner(group, axis, second)
                    # Where both keep enough at one rate, one row says both.
                    at = f"{at}, matched utility" if (group, partner) in matched else at
                    pairs.append(Comparison(group, partner, at, first, second))
            pairs += [
                Comparison(group, match, "matched utility", first, second)
                for group, match in matched
                if match is not None and match != self._partner(group, axis, second)[0]
            ]
        return tuple(pairs)

    def _partner(self, group: ResultGroup, axis: str, second: str) -> tuple[ResultGroup, str]:
        """What a group is held against: at its own rate, or, where two methods have one rate each, at the other's."""
        partner = _with(group, axis, second)
        if axis == "method" and partner not in self.asked:
            rates = [[g for g in self.groups if g._replace(rate=m.rate) == m] for m in (group, partner)]
            if [len(groups) for groups in rates] == [1, 1]:
                return rates[1][0], "each at its rate"
        return partner, "equal rates"

    def _contrast(self, compared: Comparison, split: str, metric: str) -> ContrastRow | None:
        group, partner = compared.group, compared.partner
        first = self.scores(group, split, metric)
        second = self.scores(partner, compared.split or split, metric)
        if first is None or second is None or not (c := contrast_of(first, second, common=compared.common)):
            return None
        shared = {name: getattr(group, name) for name in ("model", "data", "method")}
        shared |= {name: "both" for name, value in shared.items() if getattr(partner, name) != value}
        rates = group.rate if group.rate == partner.rate else f"{group.rate}, {partner.rate}"
        at = f"{compared.at}, forget {group.forget}" if group.forget == partner.forget else compared.at
        names = (compared.first, compared.second)
        numbers = (c.difference, c.low, c.high, c.t, c.df, c.p, None, c.method)
        return ContrastRow._make((*shared.values(), rates, at, split, metric, *names, *numbers))

    def item_rows(self) -> Iterator[dict[str, Any]]:
        """Every score of every item, with where it stands."""
        for group in self.groups:
            for seed in self._seeds(group):
                for member in self._members(group):
                    splits = splits_of(self.study, group.data, group.forget, member.name)
                    split_ids = {n: {i.id for i in items} for n, items in splits.splits.items()}
                    key = self.asked[group][seed][member.name]
                    read = {e: self.by_item(key, e) for e in self.study.settings.evaluate.evals}
                    for item in everything([splits]):
                        item_scores = {
                            f"{e}.{m}": v for e, rows in read.items() for m, v in rows.get(item.id, {}).items()
                        }
                        yield {
                            **group._asdict(),
                            "member": member.name,
                            "seed": seed,
                            "item": item.id,
                            "edge": item.edge,
                            "attribute": item.attribute,
                            "scope": splits.scopes.get(item.id),
                            "splits": ",".join(n for n, ids in split_ids.items() if item.id in ids),
                            **item_scores,
                        }


def _ranked(scores: Mapping[ResultGroup, tuple[ScoreMatrix, ScoreMatrix]], metric: str) -> Iterator[RankRow]:
    """The groups of one forget set, best first; pairs are compared over the seeds and items that both have.

    A group that is shown to be worse than more others stands behind, whatever its mean over further seeds is.
    """
    # By tests first and by means after: a mean over more seeds than the other has is no fair one.
    means = {g: tuple(float(part.values.mean()) for part in parts) for g, parts in scores.items()}
    pairs = [(first, second, _balance_test(scores[first], scores[second])) for first, second in combinations(scores, 2)]
    # The difference is the second's balance less the first's.
    tests = [((a, b) if test.difference < 0 else (b, a), test.p) for a, b, test in pairs if test and test.p is not None]
    p_of = dict(zip((pair for pair, _ in tests), holm([p for _, p in tests if p is not None]), strict=True))
    shown = [pair for pair, p in p_of.items() if p < _RANKED]
    above = {group: sum(worse == group for _, worse in shown) for group in scores}
    below = {group: sum(better == group for better, _ in shown) for group in scores}
    order = sorted(scores, key=lambda g: (above[g], means[g][1] - means[g][0]))
    for n, group in enumerate(order, 1):
        utility, leak = means[group]
        yield RankRow(
            *group[:5], metric, leak, utility, utility - leak, n, 1 + above[group], len(order) - below[group],
            p_of.get((order[0], group), p_of.get((group, order[0]))), len(scores[group][0].seeds), group.rate,
        )  # fmt: skip


_RANKED = 0.05


def _balance_test(first: tuple[ScoreMatrix, ScoreMatrix], second: tuple[ScoreMatrix, ScoreMatrix]) -> Contrast | None:
    """Whether their balances are equal; None of one seed or of no item that both have."""
    seeds = [s for s in first[0].seeds if s in second[0].seeds]
    if len(seeds) < 2:
        return None
    pairs = []
    for scores, matched in zip(first, second, strict=True):
        matched_ids = set(matched.ids)
        shared = [i for i in scores.ids if i in matched_ids]
        if not shared:
            return None
        pairs.append(tuple(part.at(seeds, [*map(part.ids.index, shared)]) for part in (scores, matched)))
    (first_utility, second_utility), (first_leak, second_leak) = pairs
    return contrast_of_balance(
        (first_utility.values, first_leak.values),
        (second_utility.values, second_leak.values),
        (first_utility.labels, first_leak.labels),
    )


def contrast_of(first: ScoreMatrix, second: ScoreMatrix, *, common: float = COMMON) -> Contrast | None:
    """Second less first over the seeds that both have.

    Compared one by one are items that both have, and else questions about one attribute, where each side asks one
    contract about it; what is left are two samples.
    """
    seeds = [s for s in first.seeds if s in second.seeds]
    if not seeds:
        return None
    most = max(len(first.items), len(second.items))
    second_names = set(second.ids)
    both = [i for i in first.ids if i in second_names]
    if both and len(both) >= common * most:
        first, second = (s.at(seeds, [*map(s.ids.index, both)]) for s in (first, second))
        return contrast_over_seeds(first.values, second.values, paired=True, clusters=(first.labels, None))
    second_names = set(second.attributes)
    shared = [a for a in first.attributes if a in second_names]
    single = all(len(set(s.attributes)) == len(s.items) for s in (first, second))
    if single and shared and len(shared) >= COMMON * most:
        first, second = (s.at(seeds, [*map(s.attributes.index, shared)]) for s in (first, second))
        return contrast_over_seeds(first.values, second.values, paired=True)
    first, second = first.at(seeds), second.at(seeds)
    return contrast_over_seeds(first.values, second.values, paired=False, clusters=(first.clusters, second.clusters))


def with_holm(family: Sequence[Tested]) -> list[Tested]:
    """The rows with p-values corrected for all tests among them; what could not be tested is no test."""
    adjusted = iter(holm([row.p for row in family if row.p is not None]))
    return [row if row.p is None else row._replace(p_holm=next(adjusted)) for row in family]


def _number(rate: str) -> float:
    """A rate, to sort by; of a goal 0."""
    try:
        return float(rate)
    except ValueError:
        return 0.0


def _with(group: ResultGroup, axis: str, name: str) -> ResultGroup:
    return ResultGroup(**{**group._asdict(), axis: name})
