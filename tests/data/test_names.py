"""Names by number: unique, in PISTOL's forms, the same for ever. Roles and days of many contracts at once."""

import re
from datetime import date

import numpy as np
import pytest

from vestige.core.errors import InputError
from vestige.core.seeds import scaled, uniform_integers
from vestige.data import contracts as drawing
from vestige.data.contracts import STREETS, SUFFIXES, day_text, drawn_name, sign
from vestige.data.graph import Edge, build_graph, named_graph

FORMS = {
    "company": rf"[A-Z][a-z]{{5}} ({'|'.join(SUFFIXES)})",
    "person": r"[A-Z][a-z]{3} [A-Z][a-z]{3}",
    "address": rf"\d{{3}} [A-Z][a-z]{{5}} ({'|'.join(STREETS)})",
}


@pytest.mark.parametrize("kind", FORMS)
def test_names_have_pistols_forms_and_no_two_share_what_is_unique(kind):
    assert len(SUFFIXES) == len(STREETS) == 15
    names = [drawn_name(3, kind, number) for number in range(20_000)]
    assert all(re.fullmatch(FORMS[kind], name) for name in names)
    unique = {"company": lambda n: n.split()[0], "person": str, "address": lambda n: n.split()[1]}[kind]
    assert len({unique(name) for name in names}) == 20_000
    assert drawn_name(4, kind, 7) != names[7]


def test_a_permutation_of_a_whole_small_space_misses_nothing(monkeypatch):
    monkeypatch.setitem(drawing._ROOTS, "small", 31)
    letters = {drawn_name(0, "small", number)[4:10] for number in range(31 * 31)}
    assert len(letters) == 961
    with pytest.raises(InputError, match="more than 961 names"):
        drawn_name(0, "small", 961)


def test_names_are_those_that_were_written_down_once():
    assert [drawn_name(0, kind, 5) for kind in FORMS] == ["Jjvfio BVBA", "Zqss Xmxc", "083 Tutkeq Way"]


def test_days_by_hand():
    days = [date(1970, 1, 1), date(1972, 2, 29), date(1969, 12, 31)]
    assert [day_text(day.toordinal()) for day in days] == ["01-01-1970", "29-02-1972", "31-12-1969"]


def test_uniform_integers_by_hand():
    # 2**31 is half of 2**32: of [5, 30] in steps of one, 5 + floor(26 / 2) = 18; the last gives the bound.
    words = np.array([0, 2**31, 2**32 - 1], dtype=np.uint64)
    assert scaled(words, 5, 30).tolist() == [5, 18, 30]
    assert scaled(words, 3, 3).tolist() == [3, 3, 3]
    assert scaled(words, np.array([0, 0, 1]), np.array([9, 9, 2])).tolist() == [0, 5, 2]


def test_draws_are_the_bits_that_numpy_promises():
    # PCG64's raw output is part of NumPy's compatibility promise; the values are written down for ever.
    drawn = uniform_integers(np.random.default_rng(0), 0, 99, 6)
    assert drawn.tolist() == [int(w >> 32) * 100 >> 32 for w in np.random.PCG64(0).random_raw(6).tolist()]
    assert drawn.tolist() == [63, 26, 4, 1, 81, 91]


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
