"""What protection was worth, from harms made by hand: halves, who is at risk, differences, prediction."""

import numpy as np
import pytest

from vestige.core.errors import InputError
from vestige.probes import prevention_table
from vestige.probes.prevention_table import CEILING, Trial, arm_rows, predictions

IDS = tuple(f"i{k:02d}" for k in range(16))
SEEDS = (4, 5, 6)


def trial(harm, protected=None) -> Trial:
    """A trial in which item k loses harm(seed, k) without protection, and protected(seed, k) where all are added."""
    evaluated = np.arange(16) % 2 == 1
    harms = {}
    for seed in SEEDS:
        harms["none", seed] = {"logp": {**{i: float(harm(seed, k)) for k, i in enumerate(IDS)}, "f": 2.0, "g": 1.0}}
        if protected:
            own = {i: float(protected(seed, k)) for k, i in enumerate(IDS) if evaluated[k]}
            harms["random", seed] = {"logp": {**own, "f": 2.0, "g": 1.0}}
    return Trial(
        arms=("none", "random") if protected else ("none",),
        seeds=SEEDS,
        ids=IDS,
        clusters=IDS,
        evaluated=evaluated,
        risks={"right": np.arange(16.0), "wrong": -np.arange(16.0)},
        forget={"f": "f", "g": "g"},
        harms=harms,
    )


def test_each_pair_of_neighbours_in_risk_gives_one_item_to_either_half():
    risks = np.arange(17.0)
    half = prevention_table.evaluated_half(risks, [f"i{k}" for k in range(17)], seed=3)
    order = np.argsort(-risks)
    assert [half[order[k : k + 2]].sum() for k in range(0, 16, 2)] == [1] * 8
    # The last of an odd number may be added.
    assert not half[order[16]]
    assert 0 < half[order[0:16:2]].sum() < 8
    again = prevention_table.evaluated_half(risks, [f"i{k}" for k in range(17)], seed=3)
    assert half.tolist() == again.tolist()


def test_arms_are_named_apart_by_commas_and_none_is_always_there():
    assert prevention_table.arms_named(" oracle, random") == ("none", "random", "oracle")
    with pytest.raises(InputError, match="no arm 'orakle'; did you mean 'oracle'"):
        prevention_table.arms_named("orakle")


def test_who_is_at_risk_is_taken_from_the_other_seeds():
    # At seed 5 item 1 has bad luck, which only the others hold against it; 15 and 13 always lose most. Of eight
    # evaluated items two count as at risk.
    made = trial(lambda seed, k: 100 if (seed, k) == (5, 1) else k / 10)
    assert made.at_risk(5) == ("i13", "i15")
    assert made.at_risk(4) == ("i01", "i15")
    # The mean of the others: at seeds 4 and 6 the lucky 50 of item 1.
    assert made.harm_elsewhere(4, ("i01", "i03")).tolist() == pytest.approx([(100 + 0.1) / 2, 0.3])
    at_risk = arm_rows(made)[0].estimate
    # Seed 4: 0.1 and 1.5; seed 5: 1.3 and 1.5; seed 6: 0.1 and 1.5. Chosen by its own seed, item 1 would count 100.
    assert at_risk.value == pytest.approx((0.1 + 1.5 + 1.3 + 1.5 + 0.1 + 1.5) / 6)
    assert at_risk.n == 3


def test_differences_are_taken_item_by_item_at_the_same_seed():
    # Items differ tenfold more than what protection is worth: a quarter of a nat for each, at every seed.
    rows = arm_rows(trial(lambda seed, k: k + seed, lambda seed, k: k + seed - 0.25))
    at = {(r.arm, r.what, r.against): r.estimate for r in rows}
    assert at["random", "all", "none"].value == pytest.approx(-0.25)
    assert at["random", "all", "none"].high - at["random", "all", "none"].low == pytest.approx(0, abs=1e-9)
    assert at["random", "all", ""].high - at["random", "all", ""].low > 1
    # The forget set lost the same, and none is held against nothing.
    assert at["random", "forget", "none"].value == 0
    assert {(r.arm, r.against) for r in rows} == {("none", ""), ("random", ""), ("random", "none")}
    # Items 15 and 13 at each of the seeds 4, 5, 6.
    assert at["random", "at risk", ""].value == pytest.approx(14 + 5 - 0.25)


def test_prediction_is_right_wrong_or_bounded_by_another_seed():
    found = {p.score: p.auroc for p in predictions(trial(lambda seed, k: k), seed=0)}
    assert (found["right"].value, found["wrong"].value, found[CEILING].value) == (1.0, 0.0, 1.0)
    assert found["right"].low < 1.0
    # A first seed that harms in the opposite order is not foretold by the others.
    turned = {p.score: p.auroc for p in predictions(trial(lambda seed, k: -k if seed == 4 else k), seed=0)}
    assert turned[CEILING].value == 0.0
