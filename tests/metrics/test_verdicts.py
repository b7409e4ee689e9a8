import numpy as np
import pytest

from vestige.core.errors import InputError
from vestige.metrics.contrasts import Draws, Sample
from vestige.metrics.gains import Controls, differences, excess, leakage, split
from vestige.metrics.intervals import SeedPrior
from vestige.metrics.planning import items_needed
from vestige.metrics.verdicts import (
    TAIL,
    Evidence,
    Thresholds,
    least_p,
    not_recovered,
    over_forgotten,
    reversals,
    saturated,
    stays_below,
    stays_within,
)

DEFAULTS = Thresholds()
PRIOR = Thresholds(scope="population").prior("hits")
PRIOR_OF_THESE = DEFAULTS.prior("hits")


def sample(n):
    return Sample(tuple(f"{i:04}" for i in range(n)), None, seed=0, resamples=2000)


def at(narrow, wide=None):
    """Margins in shares; where there is one number it is both."""
    return DEFAULTS.model_copy(update={"delta": narrow, "delta_wide": wide or narrow})


def hits(share, n):
    """The first `share` of n items."""
    return (np.arange(n) < round(share * n)).astype(float)


def evidence(share, n, name="generate", never=0.0, seed=0):
    """Leakage of a subject that knows `share` of n items, against three seeds that know `never`."""
    rng = np.random.default_rng(seed)
    scale = Controls(name, np.ones(n), (rng.random((3, n)) < never).astype(float), sample(n), PRIOR)
    return Evidence(name, leakage(hits(share, n), scale), "leakage", "leakage")


def gain(before, after, control_before, control_after, n=200, name="relearn"):
    controls = Controls("x", np.ones(n), hits(control_before, n)[None], sample(n), PRIOR)
    return split(name, hits(before, n), hits(after, n), controls, hits(control_after, n)[None])


def test_the_defaults_are_the_designs():
    assert (DEFAULTS.delta, DEFAULTS.admission, DEFAULTS.saturation) == (0.05, 0.2, 0.5)
    assert (DEFAULTS.margins("leakage"), DEFAULTS.margins("bits")) == ((0.05, 0.2), (2.0, 6.0))
    with pytest.raises(InputError, match="Did you mean 'delta'"):
        Thresholds.build({"detla": 0.1})


def test_margins_in_bits_grow_with_the_gap_and_a_stricter_one_stays():
    # A gap of 40 bits: 5 %, 20 % and 50 % of it.
    assert DEFAULTS.of_gap(40.0).margins("bits") == (2.0, 8.0)
    assert DEFAULTS.of_gap(40.0).delta_group_bits == 20.0
    strict = DEFAULTS.model_copy(update={"delta_wide_bits": 5.0, "delta_bits": 1.0})
    assert strict.of_gap(40.0).margins("bits") == (1.0, 5.0)
    assert DEFAULTS.of_gap(20.0, alone=True).margins("bits") == (2.0, 4.0)
    assert strict.of_gap(20.0, alone=True).margins("bits") == (1.0, 4.0)


@pytest.mark.parametrize(
    "impossible",
    [{"delta": 0}, {"delta": 1}, {"delta": -0.1}, {"delta_bits": 0}, {"admission": -0.1}, {"saturation": 0}],
)
def test_margins_that_everything_or_nothing_would_pass_are_refused(impossible):
    (name,) = impossible
    with pytest.raises(InputError, match=f"{name} = .*: must be"):
        Thresholds.build(impossible)
    with pytest.raises(InputError, match=r"delta \(0.3\) is above delta_wide \(0.2\)"):
        Thresholds.build({"delta": 0.3})


def test_admission_can_only_be_lowered():
    # At 0.62 the format that leaks would be left out, though the target is clearly above models that never knew.
    assert Thresholds.build({"admission": 0.1}).admission == 0.1
    with pytest.raises(InputError, match=r"admission \(0.62\) is above 0.2, which would leave out formats"):
        Thresholds.build({"admission": 0.62})


def test_a_subject_that_knows_fails():
    found = stays_below([evidence(0.5, 100)], at(0.05))
    assert found.outcome == "fails"
    assert found.reason.startswith("leakage in generate is 0.50 [")
    assert "n = 100, at least 0.3" in found.reason
    assert " of what the target knows, above the margin of 0.05 (p = " in found.reason
    assert found.evidence[0].draws.value == pytest.approx(0.5)
    assert found.decides == "generate"
    assert found.items_needed is None


def test_a_subject_that_does_not_know_holds_with_items_enough_and_only_then():
    assert stays_below([evidence(0.0, 90)], at(0.05)).outcome == "holds"
    few = stays_below([evidence(0.0, 20)], at(0.05))
    assert few.outcome == "inconclusive"
    assert few.items_needed == 66
    assert "about 66 items would be needed" in few.reason
    # 20 items would have shown a third of the answers: see test_planning.
    assert few.detectable == pytest.approx(0.349, abs=0.01)
    assert stays_below([evidence(0.0, 20)], at(0.25)).outcome == "holds"


def test_items_enough_for_a_subject_at_zero_are_not_asked_for_again():
    near = stays_below([evidence(0.18, 90)], at(0.2))
    assert near.outcome == "inconclusive"
    assert near.items_needed is None
    needed = items_needed(evidence(0.18, 90).draws, 0.2, bounded=True)
    assert needed <= 90
    assert near.reason.endswith(
        f"; had the true value been 0, {needed} items would mostly have shown it, so more items may not decide it"
    )


def test_all_formats_must_hold_and_one_fails_the_claim():
    held = [evidence(0.0, 100, form) for form in ("a", "b")]
    assert stays_below(held, at(0.05)).outcome == "holds"
    reason = stays_below(held, at(0.05)).reason
    assert reason.endswith("of what the target knows, below the wide margin of 0.05, and is the nearest to it of 2")
    failed = stays_below([*held, evidence(0.6, 100, "c")], at(0.05))
    assert failed.outcome == "fails"
    assert "leakage in c is 0.60" in failed.reason
    assert "among 3 quantities" in failed.reason
    assert stays_below([*held, evidence(0.05, 100, "c")], at(0.05)).outcome == "inconclusive"


def test_a_failure_is_told_by_the_quantity_that_is_surest_beyond_the_margin():
    # All three have the least p-value there is.
    found = stays_below([evidence(0.7, 40, "a"), evidence(0.7, 200, "b"), evidence(0.6, 200, "c")], at(0.05))
    assert found.reason.startswith("leakage in b is 0.70 [")
    assert found.reason.endswith("among 3 quantities), and so are 2 others")


def test_many_formats_need_stronger_evidence_to_fail():
    # One format of ten leaks just enough to fail alone.
    weak = next(e for e in (evidence(k / 60, 60, "weak") for k in range(60)) if e.draws.p_at_most(0.05) <= 0.02)
    rest = [evidence(0.0, 100, str(i)) for i in range(9)]
    assert stays_below([weak], at(0.05)).outcome == "fails"
    many = stays_below([weak, *rest], at(0.05))
    assert many.outcome == "inconclusive"
    assert many.reason.endswith("beyond the margin of 0.05 taken alone, but not among 10 quantities")


def test_a_leak_between_the_margins_neither_fails_nor_holds_until_it_is_shown():
    wide = [evidence(share, n) for share, n in ((0.0, 90), (0.12, 60), (0.12, 2000), (0.4, 90))]
    outcomes = [stays_below([one], at(0.05, 0.2)).outcome for one in wide]
    # Of 2,000 questions 0.12 is shown to exceed the narrow margin, although all of it is below the wide one.
    assert outcomes == ["holds", "inconclusive", "fails", "fails"]
    said = stays_below([wide[1]], at(0.05, 0.2)).reason
    assert "where 0.2 is wanted; it is not shown to exceed 0.05; " in said


def test_shares_and_bits_of_one_claim_are_judged_each_by_its_own_margin():
    bits = [evidence(x, 90)._replace(name="bits", unit="bits") for x in (0.0, 0.9)]
    # A share of 0.9 read as bits is within 2 bits.
    found = stays_below([evidence(0.0, 90), bits[1]], DEFAULTS)
    assert (found.outcome, found.unit) == ("holds", "leakage")
    strict = DEFAULTS.model_copy(update={"delta_bits": 0.5})
    found = stays_below([evidence(0.0, 90), bits[1]], strict)
    assert (found.outcome, found.decides, found.unit, found.margins.narrow) == ("fails", "bits", "bits", 0.5)


def test_what_can_only_fail_a_claim_keeps_it_from_nothing_else():
    held, open_ = evidence(0.0, 400, never=0.1), evidence(0.06, 100, "picks")
    only = open_._replace(fails_only=True)
    assert stays_below([held, open_], at(0.05, 0.1)).outcome == "inconclusive"
    assert stays_below([held, only], at(0.05, 0.1)).decides == "generate"
    assert stays_below([held, only], at(0.05, 0.1)).outcome == "holds"
    leaked = evidence(0.5, 100, "picks")._replace(fails_only=True)
    assert stays_below([held, leaked], at(0.05, 0.1)).outcome == "fails"


def test_a_two_sided_claim_fails_on_either_side():
    def read(share):
        scale = Controls("x", np.ones(300), hits(0.4, 300)[None], sample(300), PRIOR)
        return Evidence("x", excess(hits(share, 300), scale), "excess", "share")

    outcomes = [stays_within([read(share)], at(0.15)).outcome for share in (0.0, 0.28, 0.4, 0.52, 0.9)]
    assert outcomes == ["fails", "inconclusive", "holds", "inconclusive", "fails"]
    assert "outside the margin of -0.15 to 0.15" in stays_within([read(0.0)], at(0.15)).reason
    assert over_forgotten(read(0.0).draws, 0.15)
    assert not over_forgotten(read(0.4).draws, 0.15)
    assert not over_forgotten(read(0.9).draws, 0.15)


def test_recovery_needs_the_excess_after_and_its_rise():
    assert not_recovered([gain(0.1, 0.6, 0.1, 0.1)], DEFAULTS).outcome == "fails"
    # Known before as after: nothing was brought back, whatever the subject knows.
    assert not_recovered([gain(0.6, 0.6, 0.1, 0.1)], DEFAULTS).outcome != "fails"
    # From far below to the level of `retrained`: repair.
    assert not_recovered([gain(0.0, 0.4, 0.4, 0.4)], DEFAULTS).outcome != "fails"
    # `retrained` loses 0.5 and the subject 0.1: its excess rises, and nothing was brought back.
    assert not_recovered([gain(0.5, 0.4, 0.5, 0.0)], DEFAULTS).outcome != "fails"
    assert not_recovered([gain(0.0, 0.0, 0.0, 0.0)], DEFAULTS).outcome == "holds"


@pytest.mark.parametrize(("own", "outcome"), [(0.02, "holds"), (0.2, "fails")])
def test_the_subjects_own_gain_has_to_exceed_the_margin_where_the_attack_damages_controls(own, outcome):
    # Three controls lose 0.4 alike, so that the subject's excess rises by 0.4 and its own gain, and is surely known.
    n = 4000
    first, last = (np.tile(hits(share, n), (3, 1)) for share in (0.4, 0.0))
    fixed = Sample(tuple(map(str, range(n))), None, seed=0, resamples=2000, fixed=True)
    controls = Controls("x", np.ones(n), first, fixed, PRIOR_OF_THESE)
    found = split("relearn", hits(0.4, n), hits(0.4 + own, n), controls, last)
    # In units of the gap of 0.6 between target and controls.
    assert found.gain.ends[0] > 0
    assert found.counted(0.05).value == pytest.approx(own / 0.6)
    assert not_recovered([found], DEFAULTS).outcome == outcome


def test_an_attack_that_carries_the_answers_in_is_never_recovery():
    # All models learn four items in five from a prefix that holds the answers.
    carried = gain(0.1, 0.9, 0.1, 0.9, name="prefix")
    assert saturated(carried, DEFAULTS)
    # Two items in five, unsaturated: the subject learns what `retrained` learns.
    taught = gain(0.1, 0.4, 0.1, 0.4)
    assert not saturated(taught, DEFAULTS)
    assert not_recovered([taught], DEFAULTS).outcome != "fails"


def test_a_format_is_admitted_by_its_low_end():
    def scale(share, n):
        return Controls("x", hits(share, n), np.zeros((3, n)), sample(n), PRIOR)

    from vestige.metrics.gains import admission

    assert admission(scale(1.0, 30)).ends[0] > DEFAULTS.admission
    assert admission(scale(0.3, 30)).ends[0] <= DEFAULTS.admission


def test_a_retrained_model_rarely_fails_and_holds_often_enough():
    # 200 audits of 200 questions, of which 3 in 10 can be guessed with p = 1/2. A fourth seed is the subject.
    rng, outcomes = np.random.default_rng(1), []
    shared = sample(200)
    for _ in range(200):
        guessed = (rng.random((4, 200)) < 0.5) & (rng.random(200) < 0.3)
        scale = Controls("x", np.ones(200), guessed[1:].astype(float), shared, PRIOR)
        drawn = leakage(guessed[0].astype(float), scale)
        outcomes.append(stays_below([Evidence("x", drawn, "leakage", "leakage")], at(0.1)).outcome)
    assert outcomes.count("fails") <= 4
    assert outcomes.count("holds") >= 160


N = 80
SAMPLE = Sample(tuple(f"{i:04}" for i in range(N)), None, seed=0, resamples=2000)


def scale(form, rng):
    return Controls(form, np.ones(N), (rng.random((3, N)) < 0.1).astype(float), SAMPLE, SeedPrior(0.002, 4.0))


def knows(share, rng):
    return (rng.random(N) < share).astype(float)


def planted(second_in_generate, rng):
    """NPO leaks more than GA in CHOOSE; in GENERATE GA leaks 0.5 and NPO what is asked for."""
    forms = {"choose": (0.2, 0.7), "generate": (0.5, second_in_generate), "option": (0.4, 0.4)}
    return {
        ("ga", "npo"): {
            form: differences(np.array([[knows(a, rng), knows(b, rng)]]), scale(form, rng))[0]
            for form, (a, b) in forms.items()
        }
    }


def test_a_planted_reversal_is_found_and_only_it():
    found = reversals(planted(0.1, np.random.default_rng(2)))
    assert [(r.first, r.second, r.more_in, r.less_in) for r in found] == [("ga", "npo", "generate", "choose")]
    assert found[0].p <= 0.025


def test_one_significant_direction_is_no_reversal():
    # NPO leaks more in CHOOSE, and 0.06 less in GENERATE, which 80 items do not show.
    assert reversals(planted(0.44, np.random.default_rng(3))) == ()
    assert reversals({}) == ()


def test_a_reversal_is_corrected_for_the_number_of_pairs():
    def draws(below, above):
        """Of 999 resamples, so many at or below 0, and so many at or above."""
        low, high = np.ones(999), -np.ones(999)
        low[:below], high[:above] = -1, 1
        return Draws(0.0, low, high, 10, "", 0.0, 0.0)

    def found(wrong):
        pair = {"a": draws(wrong, 999), "b": draws(999, wrong)}
        return reversals({("x", "y"): pair})

    # (wrong + 1) / 1000 in both directions; either of two orientations could have been found, so twice that.
    assert [r.p for r in found(9)] == pytest.approx([0.02])
    assert found(19) == ()


def test_equal_methods_are_rarely_reversed():
    rng, found = np.random.default_rng(4), 0
    for _ in range(60):
        apart = {
            pair: {
                form: differences(np.array([[knows(0.3, rng), knows(0.3, rng)]]), scale(form, rng))[0]
                for form in ("a", "b", "c")
            }
            for pair in (("x", "y"), ("x", "z"), ("y", "z"))
        }
        found += bool(reversals(apart))
    assert found <= 3


def test_beyond_so_many_comparisons_nothing_can_be_significant():
    assert least_p(249, 9_999) < TAIL < least_p(251, 9_999)
    assert least_p(10**9, 9_999) == 1.0
