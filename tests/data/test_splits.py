"""Selectors, splits and what the retain set gives away; items to choose on. Oracles: PISTOL's sample data sets."""

from collections import Counter

import pytest

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.data.corpus import NamedSplits, balanced_draw, held_apart, split, split_by
from vestige.data.dataset import compile_dataset, n_entailed_of_contracts
from vestige.data.graph import named_graph, select_edges


@pytest.fixture(scope="module")
def graph():
    return named_graph("sample1", seed=0)


@pytest.mark.parametrize(
    ("selector", "edges"),
    [
        ("edge:A_B", "A_B"),
        ("edge:A_C,edge:A_B,edge:A_B", "A_B A_C"),
        ("node:E1", "E1_F1 E1_q1"),
        ("node:C", "A_C"),
        ("component:2", "E1_F1 E1_q1"),
        ("node:C, component:4", "A_C E3_F3 E3_q3"),
        ("type:employment,component:2", "E1_F1 A_m A_n A_n2 A_n3 B_p B_p2 B_p3 E1_q1 E2_q2 E3_q3"),
    ],
)
def test_selectors_select(graph, selector, edges):
    assert select_edges(graph, selector, seed=0) == tuple(edges.split())


def test_random_edges_stay_in_their_part_and_follow_the_seed():
    graph = named_graph("sample2", seed=0)
    dense = select_edges(graph, "random:3@dense", seed=0)
    assert len(set(dense)) == 3
    assert all(20 <= int(end) <= 29 for edge in dense for end in edge.split("_"))
    assert select_edges(graph, "random:3@dense", seed=0) == dense
    assert len({select_edges(graph, "random:3@dense", seed=s) for s in range(5)}) > 1
    assert select_edges(graph, "random:9@sparse", seed=0) == tuple(f"{i}_{i + 1}" for i in range(9))
    assert len(select_edges(graph, "random:5", seed=0)) == 5
    assert select_edges(graph, "component:semi-dense", seed=0) == select_edges(graph, "component:2", seed=0)
    chosen = Counter(e for s in range(300) for e in select_edges(graph, "random:3@sparse", seed=s))
    assert set(chosen) == {f"{i}_{i + 1}" for i in range(9)}
    assert all(60 < n < 140 for n in chosen.values())  # binomial(300, 1/3): 100, sd 8


def test_a_selector_may_name_its_own_seed():
    graph = named_graph("sample2", seed=0)
    asked = [select_edges(graph, f"random:3@dense#{s}", seed=0) for s in range(5)]
    assert asked == [select_edges(graph, "random:3@dense", seed=s) for s in range(5)]
    assert select_edges(graph, "random:3@dense#2", seed=4) == asked[2]


def test_edges_from_a_file(graph, tmp_path):
    (tmp_path / "forget.txt").write_text("A_C\n\n  A_B  \r\n")
    assert select_edges(graph, f"file:{tmp_path / 'forget.txt'}", seed=0) == ("A_B", "A_C")


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        ("edge:A_F", "no edge 'A_F' in sample1. Did you mean"),
        ("edge:zzz", "edges.csv"),
        ("node:E11", "no node 'E11' in sample1. Did you mean 'E1'"),
        ("component:5", "Components go from 1 to 4"),
        ("component:dense", "Components go from 1 to 4"),
        ("type:sale", "Did you mean 'sales'"),
        ("A_B", "Did you mean 'edge:A_B'"),
        ("egde:A_B", "Did you mean 'edge'"),
        ("edge:", "selector 'edge:'"),
        ("", "selector ''"),
        ("edge:A_B,", "selector ''"),
        ("random:0", "from 1 to 20"),
        ("random:21", "from 1 to 20"),
        ("random:x", "from 1 to 20"),
        ("random:3@2", "from 1 to 2"),
        ("random:3#x", "a whole number as its seed"),
        ("file:/no/such/file", "cannot be read"),
        ("edge:\x1b[31m", "no edge '·"),
    ],
)
def test_a_selector_that_means_nothing_is_refused_with_a_hint(graph, selector, words):
    with pytest.raises(InputError, match=words):
        select_edges(graph, selector, seed=0)


@pytest.mark.parametrize(
    ("selector", "entailed", "guessable"),
    [
        ("edge:A_B", 2, 2),  # both sign other contracts
        ("edge:A_C", 1, 1),  # C signs nothing else; C2 and C3 are other entities
        ("edge:A_n", 1, 1),
        ("edge:E1_F1", 1, 1),  # E1's address stands in its employment contract
        ("component:2", 0, 0),
        ("node:A", 1, 1),  # of A's eight contracts only B is known from elsewhere, in A_B
        ("type:sales", 11, 11),  # A in four, B in four, E1 to E3 in one each: all known from employment contracts
    ],
)
def test_what_the_retain_set_gives_away_by_hand(sample1, selector, entailed, guessable):
    splits = split_by(sample1, selector, seed=0)
    count = Counter(splits.scope_of.values())
    assert (count["entailed"], count["guessable"]) == (entailed, guessable)
    assert set(splits.scope_of) == {i.id for i in splits.forget}
    scopes = {i.attribute: splits.scope_of[i.id] for i in splits.forget}
    assert all(a.endswith("_address") for a, s in scopes.items() if s == "entailed")
    assert all(a.endswith("_name") for a, s in scopes.items() if s == "guessable")


def test_a_fresh_address_of_a_contract_is_never_entailed(sample1):
    splits = split_by(sample1, "edge:A_B", seed=0)
    assert {splits.scope_of[i.id] for i in splits.forget if i.attribute == "delivery_address"} == {"free"}


def test_names_and_addresses_that_retained_edges_teach_match_the_paper_by_part():
    # Names and addresses together: 3.556 in the sparse part, 4 in the others.
    dataset = compile_dataset("sample2", seed=0)
    taught = {}
    for edge in dataset.graph.edges:
        scopes = split(dataset, [edge]).scope_of.values()
        part = dataset.graph.parts[int(dataset.graph.components[edge])]
        taught.setdefault(part, []).append(sum(s != "free" for s in scopes))
    assert {p: sum(n) / len(n) for p, n in taught.items()} == {
        "sparse": pytest.approx(32 / 9),
        "semi-dense": 4.0,
        "dense": 4.0,
    }


@pytest.mark.parametrize("name", ["sample1", "sample2", "scale-free:40", "star:5"])
def test_entailed_answers_are_counted_the_same_one_by_one_and_at_once(name):
    dataset = compile_dataset(name, seed=1)
    graph = dataset.graph
    ids = list(graph.edges)
    one_by_one = (
        {e: sum(s == "entailed" for s in split(dataset, [e]).scope_of.values()) for e in ids} if len(ids) > 1 else {}
    )
    from_contracts = n_entailed_of_contracts(dataset)
    assert from_contracts == {**dict.fromkeys(ids, 0), **one_by_one}


def test_splits_partition_the_items(sample1):
    splits = split_by(sample1, "edge:A_C,edge:A_C2", seed=0)
    assert (len(splits.forget), len(splits.retain)) == (40, 360)
    assert {i.edge for i in splits.independent} == {f"E{k}_{x}{k}" for k in (1, 2, 3) for x in "Fq"}
    assert {t: len(i) for t, i in splits.independent_by_type.items()} == {"sales": 60, "employment": 60}
    assert set(splits.named()) == {"forget", "retain", "independent", "independent_sales", "independent_employment"}


def test_independent_is_empty_where_every_component_is_touched(sample1):
    splits = split_by(sample1, "type:sales", seed=0)
    assert splits.independent == ()
    assert set(splits.named()) == {"forget", "retain"}


def test_forgetting_nothing_everything_or_the_unknown_is_refused(sample1):
    with pytest.raises(InputError, match="has no edges"):
        split(sample1, [])
    with pytest.raises(InputError, match="leaves nothing to retain"):
        split(sample1, list(sample1.graph.edges))
    with pytest.raises(InputError, match="no edge 'A_X'"):
        split(sample1, ["A_X"])


def forgetting(sample1, forget: str) -> NamedSplits:
    found = split_by(sample1, forget, seed=0)
    return NamedSplits(forget, found.named(), found.scope_of)


def test_validation_and_test_share_no_item_and_lose_none(sample1):
    splits = forgetting(sample1, "edge:A_B")
    apart = held_apart(splits, most=64, seed=0)
    assert {n: len(i) for n, i in apart.validation.splits.items()} == {"forget": 10, "retain": 64}
    used = {i.id for items in apart.validation.splits.values() for i in items}
    for name, items in splits.splits.items():
        kept = {i.id for i in apart.test.splits[name]}
        assert not kept & used
        assert kept | used >= {i.id for i in items}
    assert len(apart.test.splits["retain"]) == len(splits.splits["retain"]) - 64


def test_every_edge_and_attribute_gives_its_share(sample1):
    splits = forgetting(sample1, "edge:A_B")
    retain = splits.splits["retain"]
    drawn = held_apart(splits, most=len(retain), seed=3).validation.splits["retain"]
    # Half of 20 items an edge; half of the edges of a type that ask for an attribute, give or take one.
    assert set(Counter(i.edge for i in drawn).values()) == {10}
    whole = Counter((i.group, i.attribute) for i in retain)
    half = Counter((i.group, i.attribute) for i in drawn)
    assert all(abs(half[key] - n / 2) <= 1 for key, n in whole.items())


def test_what_the_retain_set_gives_away_is_shared_out_evenly(sample1):
    for seed in range(5):
        apart = held_apart(forgetting(sample1, "edge:A_B"), most=64, seed=seed)
        scopes = [Counter(s.scopes[i.id] for i in s.splits["forget"]) for s in apart]
        # Of A_B's 20 answers 2 are entailed, 2 guessable and 16 free: half of each to choose on, half to report on.
        assert scopes[0] == scopes[1] == {"entailed": 1, "guessable": 1, "free": 8}


def test_a_draw_depends_on_the_seed_and_on_nothing_else(sample1):
    items = sample1.items
    first = balanced_draw(items, 50, lambda i: "", seed=1)
    assert {i.id for i in balanced_draw(items[::-1], 50, lambda i: "", seed=1)} == {i.id for i in first}
    assert {i.id for i in balanced_draw(items, 50, lambda i: "", seed=2)} != {i.id for i in first}
    assert list(first) == [i for i in items if i in set(first)]


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1), (7, 2, 9, 1), (30,), (3, 3, 3)])
def test_ragged_edges_give_their_share_give_or_take_one(sizes):
    items = [Item(f"{e}.{k}?", "a", edge=str(e), attribute=str(k % 3)) for e, n in enumerate(sizes) for k in range(n)]
    for n in range(1, len(items)):
        drawn = balanced_draw(items, n, lambda i: "", seed=0)
        assert len(drawn) == n
        for e, size in enumerate(sizes):
            assert abs(sum(i.edge == str(e) for i in drawn) - n * size / len(items)) <= 1


def test_too_few_items_are_refused():
    one, two = (Item("1?", "a"),), (Item("2?", "b"), Item("3?", "c"))
    with pytest.raises(InputError, match="the forget set of 'file' has too few items to choose on"):
        held_apart(NamedSplits("file", {"forget": one, "retain": two}, {}), most=9, seed=0)
    with pytest.raises(InputError, match=r"the retain set of 'file' .* \(0\)"):
        held_apart(NamedSplits("file", {"forget": two}, {}), most=9, seed=0)
    apart = held_apart(NamedSplits("file", {"forget": two, "retain": (*one, Item("4?", "d"))}, {}), most=9, seed=0)
    assert [len(s.splits["forget"]) for s in apart] == [1, 1]
