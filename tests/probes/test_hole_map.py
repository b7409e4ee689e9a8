"""The hole map: a plane that can be worked out by hand, the same bytes each time, and no place for what was dropped."""

import numpy as np
from tests.probes.hand_made_holes import directions

from vestige.artifacts import holes
from vestige.artifacts.holes import Hole, HoleMap, MapPoint
from vestige.probes.hole_table import hole_map, plane


def test_the_plane_by_hand_its_share_and_its_signs():
    # Centred: (+-3, 0, 0), (0, +-2, 0), (0, 0, +-1). Squared lengths 18, 8 and 2, so the plane shows 26 of 28. The
    # greatest loading of each component is positive: the first text lies at +3 and not at -3.
    embeddings = np.array([[3, 0, 0], [-3, 0, 0], [0, 2, 0], [0, -2, 0], [0, 0, 1], [0, 0, -1]]) + 5.0
    places, share = plane(embeddings)
    assert places.tolist() == [[3, 0], [-3, 0], [0, 2], [0, -2], [0, 0], [0, 0]]
    assert share == round(26 / 28, 6)
    # A mirrored copy has its first text at -3: the sign follows the embeddings, not the solver.
    assert plane(-embeddings)[0].tolist() == [[-3, 0], [3, 0], [0, -2], [0, 2], [0, 0], [0, 0]]


def test_distances_in_the_plane_are_never_greater_than_the_true_ones():
    embeddings = np.random.default_rng(0).normal(size=(40, 12))
    places, share = plane(embeddings.astype(np.float32))
    true = np.linalg.norm(embeddings[:, None] - embeddings[None], axis=2)
    shown = np.linalg.norm(places[:, None] - places[None], axis=2)
    assert (shown <= true + 1e-5).all()
    assert 0 < share < 1


def test_few_or_equal_prompts_lie_in_the_middle_and_show_all_there_is():
    assert plane(np.ones((1, 3)))[0].tolist() == [[0, 0]]
    assert plane(np.ones((4, 3)))[1] == 1.0
    assert plane(np.array([[1.0], [3.0]]))[0].tolist() == [[-1, 0], [1, 0]]


def test_holes_have_their_group_and_what_was_dropped_has_no_place():
    tested = [
        holes.Tested("a", "0", "latent", "", "", "x", "y", 8.0, 1.0, hole=True),
        holes.Tested("b", "1", "latent", "", "not valid"),
        holes.Tested("c", "10", "adjacent", "", "", "x", "y", 8.0, 8.0),
    ]
    found = hole_map(tested, [Hole("a", "0", "latent", "x", "y", 8.0, 1.0, "harbours")], directions)
    # The two directions (1, 0) and (0, 1) lie at +-1/sqrt(2) = 0.707107 on the one line between them.
    assert found == HoleMap(
        (
            MapPoint("a", 0.707107, 0.0, "harbours", "latent", True),
            MapPoint("c", -0.707107, 0.0, "", "adjacent", False),
        ),
        1.0,
    )
    assert hole_map(tested[1:2], [], directions) == HoleMap((), 1.0)
