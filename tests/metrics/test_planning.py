import math
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.planted_bounds import LEFT, LEFT_BITS, WORLDS, simulate

from vestige.metrics.contrasts import Draws
from vestige.metrics.intervals import PRIOR, PRIOR_BITS, Noise
from vestige.metrics.planning import (
    Design,
    Requirement,
    describe_needed,
    detectable,
    events,
    extreme,
    failed,
    held,
    items_needed,
    joint_hold_rate,
    least_given_away,
    least_shown,
    needed,
    standing,
    standings,
    stated,
)


def draws(item_error, seed_error, n=100):
    nothing = np.zeros(10)
    return Draws(0.0, nothing, nothing, n, "", item_error, seed_error)


def test_items_needed_by_hand():
    # z(96 %) + z(80 %) = 1.75069 + 0.84162 = 2.59231. An error of 0.04 at n = 100 is 0.4 / sqrt(n);
    # 2.59231 x 0.4 / sqrt(n) = 0.05 at n = 430.1.
    assert items_needed(draws(0.04, 0.0), 0.05, bounded=True) == 431
    # Seeds that take half of the variance leave half of it for the items.
    seeds = 0.05 / 2.59231 / math.sqrt(2)
    assert items_needed(draws(0.04, seeds), 0.05, bounded=True) == pytest.approx(861, abs=1)
    # Known with 6 degrees of freedom: t(96 %) = 2.10431, and 2.94593 x 0.4 / sqrt(n) = 0.05 at n = 555.4.
    assert items_needed(replace(draws(0.04, 0.0), df=6.0), 0.05, bounded=True) == 556
    # Where seeds alone are too wide no number of items suffices. Items without noise still need to be seen.
    assert items_needed(draws(0.04, 0.05 / 2.59), 0.05, bounded=True) is None
    # (1 - d)^n = 0.05 at d = 0.05 / 1.05: n = ln 0.04 / ln 0.952381 = 65.97.
    assert items_needed(draws(0.0, 0.0), 0.05, bounded=True) == 66


def test_the_detectable_effect_by_hand():
    # Without bounds: 2 + 2.80159 x sqrt(0.3^2 + 0.4^2) = 3.4008 bits.
    assert detectable(draws(0.3, 0.4), 2.0, bounded=False) == pytest.approx(3.4008, abs=1e-4)
    # With bounds the effect x has a spread of its own: x - 0.05 = 2.80159 sqrt(x (1 - x) / 20) at x = 0.3485.
    found = detectable(draws(0.0, 0.0, n=20), 0.05, bounded=True)
    assert found is not None
    assert found - 0.05 == pytest.approx(2.80159 * math.sqrt(found * (1 - found) / 20), abs=1e-5)
    assert found == pytest.approx(0.349, abs=0.005)
    # What no effect would show is None.
    assert detectable(draws(0.4, 0.0, n=3), 0.05, bounded=True) is None
    assert detectable(draws(math.inf, 0.0), 0.05, bounded=True) is None


def noise(fact=0.064, common=0.0001, ruler=0.85):
    """Of shares, as the tiny model's controls have it: seed x fact variance and tau^2."""
    return Noise(fact, common, ruler, 1.0, PRIOR)


BITS = Noise(27.0, 0.88**2, 1.0, None, PRIOR_BITS)


def test_a_plan_says_how_often_verdicts_come_out_as_drawn_audits_do():
    # 400 drawn audits of 40 facts: a share of 0.8 is known to within 0.04. Guesses on 30 % of facts with p from
    # beta(3, 3) have the variance 0.3 x (1/4 - 1/28) = 0.064. Those in bits have tails that the plan does not know.
    for world, controls, own, wide, narrow, left in (
        ("steady", 3, noise(), 0.2, 0.05, LEFT),
        ("steady", 5, noise(), 0.2, 0.05, LEFT),
        ("steady, 3 wordings", 5, noise(), 0.2, 0.05, LEFT),
        ("bits", 3, BITS, 6.0, 2.0, LEFT_BITS),
    ):
        drawn = next(w for w in WORLDS if w.name == world)
        row, design = simulate(drawn, 40, controls, 400), Design(40, controls, drawn.wordings)
        assert held(Requirement(own, wide), design) == pytest.approx(row.holds, abs=0.05), (world, controls)
        assert failed(Requirement(own, narrow), design, left) == pytest.approx(row.fails, abs=0.05), (world, controls)


def test_what_a_plan_holds_by_hand():
    # No noise but the one unlike pair: 20 facts and 2 controls, sigma^2 = 1/2 / 20, V = 1.5 x .025 x (1/20 + .05) / 2.5
    # = .0015, most of it sigma^2 / N, so that t has three times 2.5 degrees; the arm is t(96 %) sqrt(V x 1.5).
    still, arm = noise(0.0, 0.0, 1.0), 2.0235 * 0.0015**0.5 * 1.5**0.5
    assert [held(Requirement(still, arm + more), Design(20, 2)) for more in (-0.001, 0.001)] == [0.0, 1.0]
    # One control shows nothing of two trainings; what is to stay on both sides is held more rarely.
    assert held(Requirement(still, 0.9), Design(20, 1)) == 0.0
    assert held(Requirement(BITS, 6.0, both=True), Design(40, 3)) < held(Requirement(BITS, 6.0), Design(40, 3))
    # Two quantities that have nothing to do with one another, and two that are one.
    one = held(Requirement(BITS, 6.0), Design(40, 3))
    assert joint_hold_rate([Requirement(BITS, 6.0)] * 2, Design(40, 3), together=0.0) == pytest.approx(one**2, abs=1e-6)
    assert joint_hold_rate([Requirement(BITS, 6.0)] * 2, Design(40, 3), together=0.999) == pytest.approx(one, abs=0.02)


def test_a_plan_names_what_helps_and_nothing_that_does_not():
    few = Design(25, 3)
    found = needed([Requirement(noise(), 0.2)], few)
    assert set(found) == {"controls", "wordings", "facts"}
    for what, n in found.items():
        assert held(Requirement(noise(), 0.2), few._replace(**{what: n})) >= 0.8
        assert held(Requirement(noise(), 0.2), few._replace(**{what: n - 1})) < 0.8
    assert describe_needed({"controls": 4, "wordings": 2, "facts": 50}, few) == (
        "4 controls in place of 3, 2 wordings of each fact in place of 1, or 50 facts in place of 25"
    )
    # Where a seed moves all facts together, neither facts nor wordings help.
    together = Requirement(Noise(27.0, 3.0, 1.0, None, PRIOR_BITS), 6.0)
    assert set(needed([together], few)) == {"controls"}
    # One control decides nothing, whatever is asked of it.
    assert set(needed([Requirement(noise(), 0.2)], Design(100, 1))) == {"controls"}


def test_the_least_effect_that_a_plan_would_show():
    wanted, design = Requirement(noise(), 0.05), Design(40, 5)
    found = least_shown(wanted, design)
    assert failed(wanted, design, found) == pytest.approx(0.8, abs=1e-3)
    assert least_shown(wanted, design, tests=5) > found
    assert least_shown(wanted, Design(4, 2)) is None


def test_the_standing_of_a_fact_by_hand():
    # Two others at -1 and 1 on both facts: each has the variance 2, as has the moderated one; 4 / sqrt(2 x 1.5).
    others = np.array([[-1.0, -1.0], [1.0, 1.0]])
    assert standing(np.array([4.0, 0.0]), others) == pytest.approx([4 / np.sqrt(3), 0.0])


def one_format(subject, control, together=()):
    """The test of one format in bits, in which every fact reaches its level."""
    return extreme([standings(subject, control, np.ones(subject.shape[1], dtype=bool))], together)


def test_one_stated_fact_is_found_among_many_that_are_over_forgotten():
    rng = np.random.default_rng(0)
    control = -50 + 5 * rng.normal(size=(5, 1, 40))
    subject = np.full((1, 40), -70.0)
    assert one_format(subject, control).p > 0.5
    subject[0, 7] = 0.0
    found = one_format(subject, control)
    assert found.p < 0.005
    assert np.flatnonzero(found.facts).tolist() == [7]
    # What was so before an attack was not brought back by it: both scores have to be extreme.
    gained = np.concatenate([subject, np.zeros((1, 40))])
    both = np.concatenate([control, 5 * rng.normal(size=(5, 1, 40))], axis=1)
    assert one_format(gained, both).p > 0.5


def test_the_p_value_of_the_extreme_fact_by_its_formula():
    rng = np.random.default_rng(4)
    control, subject = 3 * rng.normal(size=(4, 1, 30)), np.zeros((1, 30))
    subject[0, 3] = 36
    found = one_format(subject, control)
    assert found.p == pytest.approx(1 / (1 + 4 * (found.size / found.null) ** 4))
    assert found.null > 2.4  # the greatest of 120 normal draws
    assert found.null == pytest.approx(
        max(standing(control[i, 0], np.delete(control[:, 0], i, axis=0)).max() for i in range(4))
    )
    # Five facts just beyond every control, which are of five events, or of two contracts.
    subject[0, 3:8] = control.max() + 12
    five, two = one_format(subject, control), one_format(subject, control, (np.arange(30) // 6,))
    assert (int(five.facts.sum()), five.p, five.events) == (5, pytest.approx(5.0**-5), 5)
    assert (two.events, two.p > five.p) == (2, True)


def test_facts_count_by_the_contracts_answers_or_attributes_that_they_come_of():
    facts = np.array([True, True, True, False])
    contract, answer = np.array([0, 0, 1, 2]), np.array([0, 1, 2, 2])
    assert [events(facts, ways) for ways in ((), (answer,), (contract,), (answer, contract))] == [3, 3, 2, 2]
    assert events(np.zeros(4, dtype=bool), (contract,)) == 0


def test_a_control_that_goes_further_than_all_others_in_many_facts_lets_the_subject_do_so():
    # One control of four has five facts beyond all others: the subject's five may be such luck too.
    rng = np.random.default_rng(4)
    control = rng.normal(size=(4, 1, 40))
    subject = np.zeros((1, 40))
    subject[0, :5] = 11
    alone = one_format(subject, control)
    control[0, 0, 20:25] = 10
    beside = one_format(subject, control)
    assert alone.p == pytest.approx(5.0**-5)
    assert beside.p > 0.1


def test_what_is_known_stands_out_in_all_formats_together():
    rng = np.random.default_rng(6)
    control, subject = rng.normal(size=(6, 5, 1, 60)), rng.normal(size=(6, 1, 60))
    subject[:, 0, 7] = 3.5
    every = np.ones(60, dtype=bool)
    formats = [standings(mine, theirs, every) for mine, theirs in zip(subject, control, strict=True)]
    assert extreme(formats, ()).p < 0.01 < min(extreme([one], ()).p for one in formats)
    assert np.flatnonzero(extreme(formats, ()).facts).tolist() == [7]


def test_what_does_not_reach_its_level_counts_nothing():
    # Six bits above controls that are sure of another answer, and still one in two thousand.
    control, subject = np.tile(np.linspace(-15, -14.4, 4)[:, None, None], (1, 1, 20)), np.full((1, 20), -15.0)
    subject[0, 3] = -8.0
    reached = np.zeros(20, dtype=bool)
    assert extreme([standings(subject, control, reached)], ()).p == 1.0
    reached[3] = True
    assert extreme([standings(subject, control, reached)], ()).p < 0.1


def test_controls_that_do_not_vary_do_not_blind():
    control, subject = np.full((5, 1, 100), -60.0), np.full((1, 100), -60.0)
    subject[0, 3] = -0.1
    found = one_format(subject, control)
    assert (found.p < 1e-3, np.flatnonzero(found.facts).tolist()) == (True, [3])
    # As in shares, where all controls score 0: one unlike pair more than was seen is counted.
    shares = np.zeros((1, 100))
    shares[0, 3] = 1.0
    assert extreme([standings(shares, np.zeros((5, 1, 100)), shares[0] > 0, 1.0)], ()).p < 0.1


def test_facts_that_the_subject_alone_states_are_counted_against_what_a_control_alone_does():
    control = np.zeros((3, 40), dtype=bool)
    control[0, [0, 12, 20]] = control[1, [0, 1, 30]] = True
    subject = np.zeros(40, dtype=bool)
    subject[[0, 5, 16, 27]] = True
    by_itself = np.arange(40)
    found = stated(subject, control, (by_itself,))
    # Fact 0 two controls state; 1, 12, 20 and 30 one alone; 5, 16 and 27 the subject alone: 3 or more of 7 at 1/4.
    assert found.p == pytest.approx(sum(math.comb(7, k) * 0.25**k * 0.75 ** (7 - k) for k in range(3, 8)))
    assert np.flatnonzero(found.facts).tolist() == [5, 16, 27]
    assert (found.size, found.null, found.events) == (3, 4 / 3, 3)
    assert stated(np.zeros(40, dtype=bool), control, (by_itself,)).p == 1.0


def test_more_controls_make_facts_that_are_guessed_together_no_surer():
    # Contracts of five facts, each guessed whole by one training in twenty. The subject guesses three of twenty.
    contract = np.arange(100) // 5
    rng = np.random.default_rng(7)
    for m in (3, 5, 10):
        luck = rng.random((200, m + 1, 20)) < 0.05
        states = np.repeat(luck, 5, axis=2)
        said = [stated(one[0], one[1:], (contract,)).p <= 0.025 / 3 for one in states]
        assert np.mean(said) <= 0.01


def test_two_controls_do_not_tell_what_a_training_alone_states():
    assert stated(np.ones(5, dtype=bool), np.zeros((2, 5), dtype=bool), ()) is None
    assert standings(np.ones((1, 5)), np.zeros((2, 1, 5)), np.ones(5, dtype=bool)) is None


def test_a_training_that_never_knew_is_rarely_accused_for_a_single_fact():
    rng = np.random.default_rng(2)
    bits = 2 * rng.standard_t(4, (300, 5, 1, 30)) * np.exp(rng.normal(0, 0.5, (300, 1, 1, 30)))
    assert sum(one_format(one[0], one[1:]).p <= 0.025 for one in bits) <= 0.05 * 300
    hits = rng.random((300, 5, 40)) < np.where(rng.random((300, 1, 40)) < 0.3, 0.5, 0.0)
    assert sum(stated(one[0], one[1:], (np.arange(40),)).p <= 0.025 for one in hits) <= 0.05 * 300


def test_a_seed_that_lifts_all_answers_gives_no_fact_away():
    rng = np.random.default_rng(3)
    control, subject = 2 * rng.normal(size=(5, 1, 40)), 2 * rng.normal(size=(1, 40))
    lifted = one_format(subject + 16, control)
    assert lifted.p > 0.1
    assert not lifted.facts.any()
    # One that is lower throughout hides nothing by it.
    lower = subject - 16
    lower[0, 4] = 60
    assert np.flatnonzero(one_format(lower, control).facts).tolist() == [4]
    # The lower median of two is the lesser; of one fact nothing is taken off.
    assert standing(np.array([4.0, 1.0]), np.array([[-1.0, -1.0], [1.0, 1.0]])) == pytest.approx([3 / np.sqrt(3), 0.0])
    assert standing(np.array([4.0]), np.array([[-1.0], [1.0]])) == pytest.approx([4 / np.sqrt(3)])


def test_how_few_facts_fail_a_claim():
    # Three tests share 2.5 %: (M + 1)^-J is at most a third of it.
    assert [least_given_away(m) for m in (2, 3, 5, 10)] == [None, 4, 3, 2]
    assert 4.0**-4 <= 0.025 / 3 < 4.0**-3
