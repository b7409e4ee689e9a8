"""Items to choose on and items to report on. Balance is counted, on PISTOL's sample data set and on ragged data."""

from collections import Counter

import pytest

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.data.corpus import NamedSplits, balanced_draw, held_apart, split_by


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
