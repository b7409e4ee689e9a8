"""Roles and days of many contracts at once: what has to hold for all of them."""

from datetime import date

import numpy as np
import pytest

from vestige.core.errors import InputError
from vestige.data.contract_type import built_in_types
from vestige.data.drawing import sign
from vestige.data.graph import Edge, build_graph, named_graph, with_successors


def signing(graph, *, seed=0, temporal=False):
    return list(sign(graph, built_in_types(), seed, temporal=temporal).values())


def ends(graph):
    return [edge[:2] for edge in graph.edges.values()]


@pytest.mark.parametrize("name", ["star:9000", "scale-free:10000", "complete:4950"])
def test_no_entity_signs_twice_a_day_and_days_are_in_range(name):
    signed = signing(named_graph(name, seed=0))
    assert len({(node, s.day) for s in signed for node in s.parties}) == 2 * len(signed)
    assert all(date(1980, 1, 1).toordinal() <= s.day <= date(2019, 12, 31).toordinal() for s in signed)


def test_a_contract_is_asked_about_after_it_began_and_before_the_next_began():
    graph = build_graph("g", [Edge(f"a{i}", f"b{i}") for i in range(700)] * 4)
    signed, ids = signing(graph, temporal=True), list(graph.edges)
    days, as_of = (np.array(values).reshape(4, 700) for values in zip(*((s.day, s.as_of) for s in signed), strict=True))
    assert (days[1:] > as_of[:-1]).all()
    assert (as_of > days).all()
    # Nothing keeps the question off the first day but one and the last: both bounds occur.
    assert (as_of - days).min() == 1
    assert (days[1:] - as_of[:-1]).min() == 1
    assert (as_of[3] - days[3]).max() <= 365
    assert [s.supersedes for s in signed] == [None] * 700 + ids[:2100]
    assert [s.parties for s in signed] == [s.parties for s in signed[:700]] * 4


def test_successions_of_a_large_graph_keep_their_parties_either_way_round():
    signed = signing(with_successors(named_graph("tree:500", seed=0)), temporal=True)
    assert [s.parties for s in signed[:500]] == [s.parties for s in signed[500:]]
    turned = build_graph("g", [Edge("A", "B"), Edge("B", "A")])
    parties = {tuple(s.parties for s in signing(turned, seed=seed, temporal=True)) for seed in range(20)}
    assert parties == {(("A", "B"), ("A", "B")), (("B", "A"), ("B", "A"))}


def test_a_coin_decides_roles_of_sales_and_the_order_those_of_employment():
    graph = named_graph("chain:2000", seed=0)
    seller_first = sum(s.parties == pair for s, pair in zip(signing(graph), ends(graph), strict=True))
    assert 900 < seller_first < 1100  # binomial: 1000, sd 22
    work = build_graph("g", [Edge("A", f"p{i}", "employment") for i in range(50)])
    assert [s.parties for s in signing(work)] == ends(work)


def test_more_contracts_than_days_are_refused_with_the_node():
    with pytest.raises(InputError, match="node '0' signs 14,611 contracts"):
        signing(build_graph("star", [Edge("0", str(n)) for n in range(1, 14612)]))
