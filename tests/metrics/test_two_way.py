"""The interval over items and seeds: by hand, its limits, and its coverage."""

import math

import numpy as np
import pytest
from scipy.special import stdtrit

from vestige.probes.prevention_table import two_way_interval


def interval(table: np.ndarray, clusters: list[str] | None = None):
    """Of a table of seeds x items."""
    s, n = table.shape
    items = [f"i{k}" for k in range(n)] * s
    seeds = [k for k in range(s) for _ in range(n)]
    return two_way_interval(table.reshape(-1), seeds=seeds, items=items, clusters=(clusters or items[:n]) * s)


def test_items_alone_differ_by_hand():
    # Six items, three seeds without any effect: V_S = 0, V_C = 6/5 x sum (3 r)^2 / 18^2 with r = -2.5 .. 2.5, whose
    # squares sum to 17.5, so V = 6/5 x 157.5 / 324 = 0.58333, which is the variance of a mean of six: 3.5 / 6.
    found = interval(np.tile(np.arange(6.0), (3, 1)))
    arm = stdtrit(5, 0.975) * math.sqrt(3.5 / 6)
    assert found[:2] == pytest.approx((2.5 - arm, 2.5 + arm))
    assert found.method == "two-way robust, 3 seeds x 6 clusters"


def test_seeds_alone_differ_by_hand():
    # Seeds at 0, 3, 6 and six equal items: V_C = 0, V_S is the variance of a mean of three, 9 / 3, with 2 degrees.
    found = interval(np.repeat([[0.0], [3.0], [6.0]], 6, axis=1))
    arm = stdtrit(2, 0.975) * math.sqrt(3)
    assert found[:2] == pytest.approx((3 - arm, 3 + arm))


def test_the_order_of_scores_changes_nothing_and_no_spread_is_said():
    rng = np.random.default_rng(0)
    values, seeds = rng.normal(size=60), [k % 3 for k in range(60)]
    items = [f"i{k // 3}" for k in range(60)]
    order = rng.permutation(60)
    whole = two_way_interval(values, seeds=seeds, items=items, clusters=items)
    own = [items[k] for k in order]
    turned = two_way_interval(values[order], seeds=[seeds[k] for k in order], items=own, clusters=own)
    assert whole == turned
    assert interval(np.ones((3, 8))) == (1.0, 1.0, "no spread: 3 seeds x 8 clusters, all alike")


def test_few_clusters_are_not_believed_and_few_seeds_refused():
    table = np.random.default_rng(1).normal(size=(3, 8))
    assert interval(table, ["a", "b"] * 4).method == "two-way robust, 3 seeds x 8 items"
    with pytest.raises(ValueError, match="2 seeds: an interval needs 2 and 3"):
        interval(table[:2])


def test_it_covers_where_items_edges_and_seeds_all_matter():
    rng, hits = np.random.default_rng(2), 0
    clusters = [f"e{k // 5}" for k in range(50)]
    for _ in range(300):
        edges = np.repeat(rng.normal(0, 0.4, 10), 5)
        table = rng.normal(0, 0.2, (3, 1)) + edges + rng.normal(0, 0.5, 50) + rng.normal(0, 0.5, (3, 50))
        found = interval(table, clusters)
        hits += found.low <= 0 <= found.high
    # 95 % give or take three standard errors of 300 draws is 91.2 to 98.8 %.
    assert 274 <= hits <= 296
