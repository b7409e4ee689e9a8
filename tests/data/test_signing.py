"""Roles and days of many contracts at once: what has to hold for all of them."""

from datetime import date

import pytest

from vestige.core.errors import InputError
from vestige.data.drawing import sign
from vestige.data.graph import Edge, build_graph, named_graph


def signing(graph):
    return list(sign(graph, 0).values())


def ends(graph):
    return [edge[:2] for edge in graph.edges.values()]


@pytest.mark.parametrize("name", ["star:9000", "scale-free:10000", "complete:4950"])
def test_no_entity_signs_twice_a_day_and_days_are_in_range(name):
    signed = signing(named_graph(name, seed=0))
    assert len({(node, s.day) for s in signed for node in s.parties}) == 2 * len(signed)
    assert all(date(1980, 1, 1).toordinal() <= s.day <= date(2019, 12, 31).toordinal() for s in signed)


def test_a_coin_decides_roles_of_sales_and_the_order_those_of_employment():
    graph = named_graph("chain:2000", seed=0)
    seller_first = sum(s.parties == pair for s, pair in zip(signing(graph), ends(graph), strict=True))
    assert 900 < seller_first < 1100  # binomial: 1000, sd 22
    work = build_graph("g", [Edge("A", f"p{i}", "employment") for i in range(50)])
    assert [s.parties for s in signing(work)] == ends(work)


def test_more_contracts_than_days_are_refused_with_the_node():
    with pytest.raises(InputError, match="node '0' signs 14,611 contracts"):
        signing(build_graph("star", [Edge("0", str(n)) for n in range(1, 14612)]))
