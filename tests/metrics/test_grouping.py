import numpy as np
import pytest

from vestige.metrics.grouping import Group, group, groups, silhouette, terms

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
    found = groups(texts, embeddings, n_terms=1)
    assert [(len(g.members), g.terms) for g in found] == [(4, ("tax",)), (3, ("virus",)), (2, ("planet",))]
    assert sorted(i for g in found for i in g.members) == list(range(9))
    assert all("tax" in texts[i] for i in found[0].members)


def test_the_groups_do_not_depend_on_the_order_of_the_texts():
    texts, embeddings = planted()
    expected = {frozenset(texts[i] for i in g.members): g.terms for g in groups(texts, embeddings)}
    turned = groups(texts[::-1], embeddings[::-1])
    assert {frozenset(texts[::-1][i] for i in g.members): g.terms for g in turned} == expected


def test_the_second_step_moves_a_text_to_the_group_whose_mean_is_nearest():
    # By angles. Average linkage joins 29 and 50, and then these with the four at 0 (mean 1 - cosine 0.2413) rather than
    # with 81 (0.2636). The six together point to 12.8, 37 from 50; 81 is 31 away.
    angles = np.radians([0, 0, 0, 0, 29, 50, 81])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert list(group(rows, n_groups=2)) == [0, 0, 0, 0, 0, 1, 1]


def test_a_number_of_groups_is_given_or_found():
    _, embeddings = planted()
    assert [group(embeddings, n_groups=n).max() + 1 for n in (1, 2, 3)] == [1, 2, 3]
    assert group(embeddings).max() + 1 == 3
    assert list(group(np.eye(2))) == [0, 0]
    assert list(group(np.eye(2), n_groups=2)) == [0, 1]
    assert list(group(np.ones((5, 2)))) == [0] * 5


def test_larger_groups_come_first_then_the_earlier():
    rows = np.eye(3)[[2, 1, 1, 0, 0, 0]]
    assert list(group(rows, n_groups=3)) == [2, 1, 1, 0, 0, 0]
    assert list(group(rows[[0, 0, 1, 1]], n_groups=2)) == [0, 0, 1, 1]


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


def test_a_rarer_term_leads_where_its_share_makes_up_for_it():
    # Eight terms and six, A = 7. All four "cell" and all three "gene" are in the first: 4 ln(1 + 7/4) = 4.05 against
    # 3 ln(1 + 7/3) = 3.61, though "gene" is the rarer.
    texts = ["cell gene", "gene cell", "cell cell gene dose", "dose dose", "dose dose moon", "moon"]
    named = terms(texts, np.array([0, 0, 0, 1, 1, 1]))
    assert named == [("cell", "gene"), ("dose", "moon")]


def test_function_words_and_numbers_name_nothing():
    assert terms(["What is the 7th of 42 moons?", "Which are they?"], np.array([0, 0])) == [("moons",)]
    assert terms(["Why?", "How?"], np.array([0, 1])) == [(), ()]


def test_a_term_of_one_text_names_a_group_only_where_none_is_shared():
    assert terms(["moon moon moon sun", "sun", "ash"], np.array([0, 0, 1])) == [("sun",), ("ash",)]


def test_what_makes_no_groups_is_refused_and_no_texts_have_none():
    with pytest.raises(ValueError, match="2 texts but 3"):
        groups(["a", "b"], np.eye(3))
    for n in (0, 4):
        with pytest.raises(ValueError, match=f"3 texts make 1 to 3 groups, not {n}"):
            group(np.eye(3), n_groups=n)
    assert groups([], np.empty((0, 3))) == []
    assert groups(["moon"], np.eye(1)) == [Group((0,), ("moon",))]
