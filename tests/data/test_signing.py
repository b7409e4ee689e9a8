"""Roles and days of many contracts at once: what has to hold for all of them."""

import numpy as np
import pytest

from vestige.core.errors import InputError
from vestige.data.contract_type import built_in_types
from vestige.data.dataset import with_successors
from vestige.data.drawing import day_number, sign
from vestige.data.graph import Edge, build_graph, named_graph


def signing(graph, *, seed=0, temporal=False):
    return sign(graph, [built_in_types()[name] for name in graph.types], seed, temporal=temporal)


@pytest.mark.parametrize("name", ["star:9000", "scale-free:10000", "complete:4950"])
def test_no_entity_signs_twice_a_day_and_days_are_in_range(name):
    graph = named_graph(name, seed=0)
    days = signing(graph).days
    at_node = np.column_stack([graph.ends.T.reshape(-1), np.tile(days, 2)])
    assert len(np.unique(at_node, axis=0)) == 2 * graph.n_edges
    assert day_number(1980, 1, 1) <= days.min() < days.max() <= day_number(2019, 12, 31)


def test_days_are_spread_evenly_over_the_years():
    days = signing(named_graph("chain:10000", seed=0)).days
    counts = np.bincount((days - days.min()) * 20 // (np.ptp(days) + 1), minlength=20)
    # chi-squared with 19 degrees of freedom has its 99.9 % point at 43.8
    assert ((counts - 500) ** 2 / 500).sum() < 43.8


def test_a_contract_is_asked_about_after_it_began_and_before_the_next_began():
    rows = [Edge(f"a{i}", f"b{i}") for i in range(700)] * 4
    graph = build_graph("g", rows)
    signed = signing(graph, temporal=True)
    days, as_of = signed.days.reshape(4, 700), signed.as_of.reshape(4, 700)
    assert (days[1:] > as_of[:-1]).all()
    assert (as_of > days).all()
    # Nothing keeps the question off the first day but one and the last: both bounds occur.
    assert (as_of - days).min() == 1
    assert (days[1:] - as_of[:-1]).min() == 1
    assert (as_of[3] - days[3]).max() <= 365
    assert signed.supersedes.tolist() == [-1] * 700 + list(range(2100))
    assert (signed.parties.reshape(4, 700, 2) == signed.parties[:700]).all()


def test_successions_of_a_large_graph_keep_their_parties_either_way_round():
    graph = with_successors(named_graph("tree:500", seed=0))
    signed = signing(graph, temporal=True)
    assert (signed.parties[:500] == signed.parties[500:]).all()
    turned = build_graph("g", [Edge("A", "B"), Edge("B", "A")])
    parties = [tuple(signing(turned, seed=s, temporal=True).parties.reshape(-1).tolist()) for s in range(20)]
    assert set(parties) == {(0, 1, 0, 1), (1, 0, 1, 0)}


def test_a_coin_decides_roles_of_sales_and_the_order_those_of_employment():
    graph = named_graph("chain:2000", seed=0)
    seller_first = (signing(graph).parties == graph.ends).all(axis=1)
    assert 900 < seller_first.sum() < 1100  # binomial: 1000, sd 22
    work = build_graph("g", [Edge("A", f"p{i}", "employment") for i in range(50)])
    assert (signing(work).parties == work.ends).all()


def test_an_entity_with_almost_as_many_contracts_as_days_still_gets_them():
    star = build_graph("star", [Edge("0", str(n)) for n in range(1, 12501)])
    assert len(np.unique(signing(star).days)) == 12500


def test_more_contracts_than_days_are_refused_with_the_node():
    with pytest.raises(InputError, match="node '0' signs 14,611 contracts"):
        signing(build_graph("star", [Edge("0", str(n)) for n in range(1, 14612)]))
