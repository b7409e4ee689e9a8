import math

import numpy as np
import pytest

from vestige.metrics.diversity import Vendi, as_diverse_as, distinct, progressive_vendi, vendi


def by_definition(embeddings):
    """From the whole matrix of cosines, with a solver that does not know it is symmetric."""
    units = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    shares = np.linalg.eigvals(units @ units.T / len(units)).real
    shares = shares[shares > 1e-12]
    return math.exp(-(shares * np.log(shares)).sum())


@pytest.mark.parametrize(
    ("rows", "score"),
    [
        (np.eye(4), 4.0),
        (np.ones((4, 4)), 1.0),
        # Cosine 1/2: the eigenvalues are 3/4 and 1/4.
        (np.array([[1.0, 0.0], [0.5, math.sqrt(0.75)]]), 4 / 3**0.75),
        # Two the same, one at right angles: 2/3 and 1/3.
        (np.array([[2.0, 0.0], [3.0, 0.0], [0.0, 1.0]]), 3 / 2 ** (2 / 3)),
        (np.array([[0.0, -7.0]]), 1.0),
    ],
)
def test_scores_by_hand(rows, score):
    assert vendi(rows) == Vendi(len(rows), pytest.approx(score, abs=1e-12))
    assert vendi(rows).share == pytest.approx(score / len(rows))


def test_growing_sizes_equal_each_size_alone_on_both_sides_of_the_width():
    rows = np.random.default_rng(2).normal(size=(60, 16)).astype(np.float32)
    sizes = [1, 5, 15, 16, 17, 40, 60]
    scores = progressive_vendi(rows, sizes)
    assert [s.n for s in scores] == sizes
    alone = [by_definition(rows[:n].astype(float)) for n in sizes]
    assert [s.score for s in scores] == pytest.approx(alone, abs=1e-9)


def test_what_has_no_score_is_refused():
    for bad in (0.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="embedding 1 has the length"):
            vendi(np.array([[1.0, 0.0], [bad, 0.0]]))
    with pytest.raises(ValueError, match="no embeddings"):
        vendi(np.empty((0, 3)))


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
@pytest.mark.parametrize("threshold", [-0.1, 0.8])
def test_the_list_is_that_of_the_plain_loop(threshold):
    rng = np.random.default_rng(5)
    centres = rng.normal(size=(120, 20))
    rows = (centres[rng.integers(0, 120, 400)] + 0.4 * rng.normal(size=(400, 20))).astype(np.float32)
    kept = distinct(rows, threshold=threshold)
    assert list(kept) == by_loop(rows, threshold)
    assert 1 <= len(kept) < 400


def test_a_cosine_at_the_threshold_is_not_above_it_and_one_that_float32_cannot_tell_apart_is():
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


def test_an_embedding_without_a_length_is_refused():
    with pytest.raises(ValueError, match="embedding 0 has the length 0"):
        distinct(np.zeros((2, 2)))


EYE = np.eye(6)
# Share 2/3 and 1/3 of the spectrum: Vendi / n = 0.629961.
REFERENCE = EYE[[0, 0, 1]]


def test_the_greatest_size_that_is_as_diverse_is_chosen():
    # Four kinds, then copies of the first: Vendi / n is 1, 1, then with 3, 1, 1, 1 of six
    # exp(1/2 ln 2 + 3/6 ln 6) / 6 = 0.577350, below the reference's 0.629961.
    found = as_diverse_as(REFERENCE, EYE[[0, 1, 2, 3, 0, 0, 0]], step=2)
    assert [s.n for s in found.subsets] == [2, 4, 6, 7]
    assert [s.share for s in found.subsets[:3]] == pytest.approx([1, 1, 0.577350], abs=5e-7)
    assert found.reference.share == pytest.approx(0.629961, abs=5e-7)
    assert found.n == 4


def test_a_subset_that_is_less_diverse_does_not_stop_the_growth():
    # Two of a kind first (1/2), then four new kinds: of six, exp(1/3 ln 3 + 2/3 ln 6) / 6 = 0.793701.
    found = as_diverse_as(REFERENCE, EYE[[0, 0, 1, 2, 3, 4]], step=2)
    assert [s.share for s in found.subsets] == pytest.approx([0.5, 2**1.5 / 4, 0.793701], abs=5e-7)
    assert found.n == 6


def test_as_diverse_is_enough_and_none_is_chosen_where_no_subset_is():
    assert as_diverse_as(REFERENCE, REFERENCE * 7, step=3).n == 3
    assert as_diverse_as(EYE, EYE[[0, 0, 0, 0]], step=2).n == 0
    assert as_diverse_as(EYE, np.empty((0, 6))).n == 0
