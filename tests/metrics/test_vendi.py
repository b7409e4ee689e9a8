import math

import numpy as np
import pytest

from vestige.metrics.vendi import Vendi, progressive_vendi, vendi


def by_definition(embeddings, q=1.0):
    """From the whole matrix of cosines, with a solver that does not know it is symmetric."""
    units = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    shares = np.linalg.eigvals(units @ units.T / len(units)).real
    shares = shares[shares > 1e-12]
    if q == 1:
        return math.exp(-(shares * np.log(shares)).sum())
    return (shares**q).sum() ** (1 / (1 - q))


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
    assert vendi(rows).score == pytest.approx(score, abs=1e-12)


def test_the_share_is_the_score_over_the_number_of_things():
    assert vendi(np.array([[2.0, 0.0], [3.0, 0.0], [0.0, 1.0]])).share == pytest.approx(0.629961, abs=5e-7)


@pytest.mark.parametrize(
    ("q", "score"),
    # Eigenvalues 3/4 and 1/4: 1 / (9/16 + 1/16), (28/64)^(-1/2), (sqrt(3)/2 + 1/2)^2, 1 / (3/4).
    [(2.0, 1.6), (3.0, 8 / math.sqrt(28)), (0.5, (math.sqrt(3) / 2 + 0.5) ** 2), (math.inf, 4 / 3)],
)
def test_other_orders_by_hand(q, score):
    assert vendi(np.array([[1.0, 0.0], [0.5, math.sqrt(0.75)]]), q=q).score == pytest.approx(score, abs=1e-12)


def test_a_very_high_order_is_the_greatest_share_though_its_powers_are_0():
    # A fifth of 100 to the 1,000th power is 0 in floating point.
    assert vendi(np.eye(100), q=1000.0).score == pytest.approx(100, abs=1e-9)


@pytest.mark.parametrize("q", [0.5, 1.0, 2.5])
@pytest.mark.parametrize(("n", "width"), [(9, 40), (40, 9), (12, 12)])
def test_either_form_equals_the_definition(n, width, q):
    rows = np.random.default_rng(n).normal(size=(n, width)) + 0.5
    assert vendi(rows, q=q).score == pytest.approx(by_definition(rows, q), abs=1e-9)


def test_copies_leave_eigenvalues_of_0_that_an_order_below_1_does_not_count():
    # Twelve things, two kinds, equally often: 2 for every order. An eigenvalue of 1e-17 to the power 0.1 is 0.02.
    rows = np.random.default_rng(1).normal(size=(2, 30))[np.arange(12) % 2]
    rows[1::2] -= rows[0] * (rows[1] @ rows[0]) / (rows[0] @ rows[0])
    assert [vendi(rows, q=q).score for q in (0.1, 1.0, 4.0)] == pytest.approx([2, 2, 2], abs=1e-9)


def test_growing_sizes_equal_each_size_alone_on_both_sides_of_the_width():
    rows = np.random.default_rng(2).normal(size=(60, 16)).astype(np.float32)
    sizes = [1, 5, 15, 16, 17, 40, 60]
    scores = progressive_vendi(rows, sizes)
    assert [s.n for s in scores] == sizes
    alone = [by_definition(rows[:n].astype(float)) for n in sizes]
    assert [s.score for s in scores] == pytest.approx(alone, abs=1e-9)


def test_what_has_no_score_is_refused():
    rows = np.eye(3)
    for sizes in ([], [0], [2, 2], [4]):
        with pytest.raises(ValueError, match="rise within 1 to 3"):
            progressive_vendi(rows, sizes)
    for q in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="above 0"):
            vendi(rows, q=q)
    for bad in (0.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="embedding 1 has the length"):
            vendi(np.array([[1.0, 0.0], [bad, 0.0]]))
    with pytest.raises(ValueError, match="no embeddings"):
        vendi(np.empty((0, 3)))


def test_a_score_knows_its_number():
    assert vendi(np.eye(3)) == Vendi(3, pytest.approx(3))
