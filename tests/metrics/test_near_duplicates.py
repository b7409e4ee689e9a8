import math

import numpy as np
import pytest

from vestige.metrics import near_duplicates
from vestige.metrics.near_duplicates import distinct


def by_loop(embeddings, threshold):
    """The plain loop, in float64: kept unless like one kept before."""
    kept = []
    for i, row in enumerate(embeddings.astype(float)):
        cosines = [
            row @ embeddings[j].astype(float) / np.linalg.norm(row) / np.linalg.norm(embeddings[j].astype(float))
            for j in kept
        ]
        if all(cosine <= threshold for cosine in cosines):
            kept.append(i)
    return kept


def at(degrees):
    return [[math.cos(math.radians(d)), math.sin(math.radians(d))] for d in degrees]


def test_what_is_like_a_dropped_one_is_kept():
    # A cosine of 0.8 is 36.87 degrees: 30 is like 0 and falls, 60 is like 30 only, 61 is like 60.
    assert list(distinct(np.array(at([0, 30, 60, 61])))) == [0, 2]
    # From the other end other ones are the first.
    assert list(distinct(np.array(at([61, 60, 30, 0])))) == [0, 3]
    assert list(distinct(np.array(at([30, 0, 60, 61])))) == [0]


@pytest.mark.slow
@pytest.mark.parametrize("threshold", [-0.1, 0.3, 0.6, 0.8, 0.95])
def test_the_list_is_that_of_the_plain_loop(threshold):
    rng = np.random.default_rng(5)
    centres = rng.normal(size=(120, 20))
    rows = (centres[rng.integers(0, 120, 400)] + 0.4 * rng.normal(size=(400, 20))).astype(np.float32)
    kept = distinct(rows, threshold=threshold)
    assert list(kept) == by_loop(rows, threshold)
    assert 1 <= len(kept) < 400


def test_the_list_does_not_depend_on_the_blocks(monkeypatch):
    rows = np.random.default_rng(6).normal(size=(300, 6))
    lists = set()
    for size in (1, 7, 128, 1000):
        monkeypatch.setattr(near_duplicates, "_BLOCK", size)
        lists.add(tuple(distinct(rows)))
    assert len(lists) == 1


@pytest.mark.parametrize("block", [1, 100])
def test_a_cosine_at_the_threshold_is_not_above_it_and_one_that_float32_cannot_tell_apart_is(monkeypatch, block):
    # Within a block and across two.
    monkeypatch.setattr(near_duplicates, "_BLOCK", block)
    # In float32 all of these are 0.8.
    beside = [0.8 - 1e-9, 0.8, 0.8 + 1e-9]
    for cosine, kept in zip(beside, ([0, 1], [0, 1], [0]), strict=True):
        pair = np.array([[1.0, 0.0], [cosine, math.sqrt(1 - cosine * cosine)]])
        if cosine == 0.8:
            pair[1] = [0.8, 0.6]
        assert list(distinct(pair)) == kept


def test_copies_leave_the_first_and_nothing_leaves_nothing():
    assert list(distinct(np.ones((500, 3)))) == [0]
    assert list(distinct(np.empty((0, 3)))) == []


def test_a_threshold_that_is_no_cosine_and_an_embedding_without_a_length_are_refused():
    with pytest.raises(ValueError, match=r"never compared with 80"):
        distinct(np.eye(2), threshold=80.0)
    with pytest.raises(ValueError, match="embedding 0 has the length 0"):
        distinct(np.zeros((2, 2)))
