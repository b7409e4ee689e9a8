import math

import numpy as np
import pytest

from vestige.metrics import diversity
from vestige.metrics.diversity import (
    TextGroup,
    Vendi,
    as_diverse_as,
    distinct,
    group,
    groups,
    progressive_vendi,
    silhouette,
    terms,
    vendi,
)


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


TOPICS = {
    "virus": ["How does a virus spread?", "Can a virus infect plants?", "Is every virus harmful to cells?"],
    "planet": ["Which planet is largest?", "Which planet has rings?"],
    "tax": ["Who pays income tax?", "When was income tax invented?", "Is income tax fair?", "Do firms pay tax?"],
}


def planted(spread=0.05):
    """Texts of three topics, mixed, with embeddings near three directions."""
    rng = np.random.default_rng(0)
    pairs = [(text, i) for i, own in enumerate(TOPICS.values()) for text in own]
    order = rng.permutation(len(pairs))
    texts, topics = zip(*(pairs[i] for i in order), strict=True)
    return list(texts), np.eye(8)[list(topics)] + spread * rng.normal(size=(len(pairs), 8))


def test_planted_topics_are_found_counted_and_named():
    texts, embeddings = planted()
    found = groups(texts, embeddings)
    assert [(len(g.members), g.terms[0]) for g in found] == [(4, "tax"), (3, "virus"), (2, "planet")]
    assert sorted(i for g in found for i in g.members) == list(range(9))
    assert all("tax" in texts[i] for i in found[0].members)


def test_the_groups_do_not_depend_on_the_order_of_the_texts():
    texts, embeddings = planted()
    expected = {frozenset(texts[i] for i in g.members): g.terms for g in groups(texts, embeddings)}
    turned = groups(texts[::-1], embeddings[::-1])
    assert {frozenset(texts[::-1][i] for i in g.members): g.terms for g in turned} == expected


def test_the_second_step_moves_a_text_to_the_group_whose_mean_is_nearest(monkeypatch):
    # By angles. Average linkage joins 29 and 50, and then these with the four at 0 (mean 1 - cosine 0.2413) rather than
    # with 81 (0.2636). The six together point to 12.8, 37 from 50; 81 is 31 away.
    angles = np.radians([0, 0, 0, 0, 29, 50, 81])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    monkeypatch.setattr(diversity, "MOST_GROUPS", 2)
    assert list(group(rows)) == [0, 0, 0, 0, 0, 1, 1]


def test_two_texts_and_copies_are_one_group():
    assert list(group(np.eye(2))) == [0, 0]
    assert list(group(np.ones((5, 2)))) == [0] * 5


def test_larger_groups_come_first_then_the_earlier():
    rows = np.eye(3)[[2, 1, 1, 0, 0, 0]]
    assert list(group(rows)) == [2, 1, 1, 0, 0, 0]
    assert list(group(rows[[0, 0, 1, 1]])) == [0, 0, 1, 1]


def test_the_silhouette_by_hand():
    # At 0, 1, 10, 11 in pairs: 1 - 1/10.5 for the outer two, 1 - 1/9.5 for the inner two.
    places = np.array([0.0, 1.0, 10.0, 11.0])
    apart = np.abs(places[:, None] - places)
    assert silhouette(apart, np.array([0, 0, 1, 1])) == pytest.approx(1 - (1 / 10.5 + 1 / 9.5) / 2, abs=1e-15)
    # Alone is 0; the pair at 0 and 1: (10 - 1)/10 with b = 10 and (9 - 1)/9 with b = 9.
    expected = (0.9 + 8 / 9 + 0) / 3
    assert silhouette(apart[:3, :3], np.array([0, 0, 1])) == pytest.approx(expected, abs=1e-15)
    assert silhouette(apart, np.zeros(4, dtype=np.int64)) == 0


def test_a_term_that_other_groups_have_too_comes_after_one_that_they_have_not():
    # Both stand twice in the first group; "alpha" once in the second as well: 2 ln(1 + 4/3) against 2 ln(1 + 4/2).
    texts = ["alpha zeta", "zeta alpha", "omega alpha", "omega sigma"]
    assert terms(texts, np.array([0, 0, 1, 1])) == [("zeta", "alpha"), ("omega",)]


def test_function_words_and_numbers_name_nothing():
    assert terms(["What is the 7th of 42 moons?", "Which are they?"], np.array([0, 0])) == [("moons",)]
    assert terms(["Why?", "How?"], np.array([0, 1])) == [(), ()]


def test_a_term_of_one_text_names_a_group_only_where_none_is_shared():
    assert terms(["moon moon moon sun", "sun", "ash"], np.array([0, 0, 1])) == [("sun",), ("ash",)]


def test_what_makes_no_groups_is_refused_and_no_texts_have_none():
    with pytest.raises(ValueError, match="2 texts but 3"):
        groups(["a", "b"], np.eye(3))
    assert groups([], np.empty((0, 3))) == []
    assert groups(["moon"], np.eye(1)) == [TextGroup((0,), ("moon",))]
