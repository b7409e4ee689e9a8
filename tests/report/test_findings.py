import pytest
from synthetic_run import spec

from vestige.core.estimates import Estimate
from vestige.report.evidence import Cell, Evidence, Subject, greedy_rouge
from vestige.report.findings import Difference, Standing, compare, difference, find, level_of, pooled, rest_of
from vestige.report.sentences import answer

FORGET = "edge:A_B"


def estimate(value: float, low: float, high: float, n: int = 20) -> Estimate:
    return Estimate("rouge1_recall", "share", value, low, high, n, "by hand")


ASKED = frozenset(spec("retrained", FORGET).forgotten[0].items)


def subject(role: str, places: dict[Cell, Estimate], method: str = "") -> Subject:
    label = method or role
    return Subject(
        path=f"cells/{label}",
        label=label,
        spec=spec(role, FORGET if role != "target" else "", method),
        done={},
        provenance=None,
        answers=None,
        results={FORGET: places},
        views={},
        asked={FORGET: ASKED},
    )


def places(forget: Estimate, retain: Estimate | None = None, free: Estimate | None = None) -> dict[Cell, Estimate]:
    found = {greedy_rouge("forget"): forget}
    found |= {greedy_rouge("retain"): retain} if retain else {}
    return found | ({greedy_rouge("forget", "free"): free} if free else {})


def evidence(*subjects: Subject) -> Evidence:
    return Evidence("run", {}, {}, subjects, (FORGET,), (), {FORGET: ASKED})


def test_the_interval_of_a_difference_by_hand():
    # 0.5 [0.4, 0.7] - 0.2 [0.1, 0.5]: low = 0.3 - sqrt(0.1^2 + 0.3^2), high = 0.3 + sqrt(0.2^2 + 0.1^2)
    found = difference(estimate(0.5, 0.4, 0.7), estimate(0.2, 0.1, 0.5))
    assert found == pytest.approx((0.3, 0.3 - 0.1**0.5, 0.3 + 0.05**0.5))


def test_a_difference_turned_round_has_the_interval_turned_round():
    a, b = estimate(0.5, 0.4, 0.7), estimate(0.2, 0.1, 0.5)
    forth, back = difference(a, b), difference(b, a)
    assert (-back.value, -back.high, -back.low) == pytest.approx(forth)


def test_several_models_of_one_role_pool_to_their_mean_in_the_envelope_of_their_intervals():
    found = pooled([estimate(0.2, 0.1, 0.4, n=20), estimate(0.4, 0.2, 0.5, n=18)])
    assert found is not None
    assert (found.value, found.low, found.high, found.n) == (pytest.approx(0.3), 0.1, 0.5, 18)
    assert pooled([]) is None


@pytest.mark.parametrize(
    ("excess", "level"),
    [
        (Difference(0.3, 0.1, 0.5), "above"),
        (Difference(-0.2, -0.3, -0.1), "below"),
        (Difference(0.1, -0.1, 0.34), "level"),
        # The gap is 0.7: half of it, 0.35, is still possible here.
        (Difference(0.1, -0.1, 0.36), "unclear"),
    ],
)
def test_a_level_is_what_the_interval_of_the_excess_allows(excess, level):
    assert level_of(excess, gap=0.7) == level


@pytest.mark.parametrize(
    ("loss", "rest"),
    [
        (Difference(0.02, -0.01, 0.05), "kept"),
        (Difference(0.3, 0.2, 0.4), "lost"),
        (Difference(0.09, 0.05, 0.13), "unclear"),
    ],
)
def test_the_rest_is_what_the_interval_of_the_loss_allows(loss, rest):
    assert rest_of(loss) == rest


def test_leakage_is_zero_for_retrained_and_one_for_target():
    target = Standing(estimate(1.0, 0.9, 1.0), None, None)
    retrained = Standing(estimate(0.2, 0.1, 0.3), None, None)
    assert compare(retrained, target, retrained).leakage.value == pytest.approx(0.0)
    assert compare(target, target, retrained).leakage.value == pytest.approx(1.0)
    # 0.4 is 0.2 of the 0.8 between the anchors: a quarter.
    half = Standing(estimate(0.4, 0.35, 0.45), None, None)
    assert compare(half, target, retrained).leakage.value == pytest.approx(0.25)


def test_a_model_that_withholds_what_retain_gives_away_is_below_one_that_never_knew():
    # On the free answers it is level with retrained; on all, where retrained has 0.30 [0.22, 0.4], it has 0.
    target = Standing(estimate(1.0, 0.9, 1.0), estimate(1.0, 0.9, 1.0), None)
    retrained = Standing(estimate(0.1, 0.0, 0.25), estimate(0.3, 0.22, 0.4), None)
    refuses = Standing(estimate(0.0, 0.0, 0.1), estimate(0.0, 0.0, 0.1), None)
    assert level_of(difference(refuses.forget, retrained.forget), 0.9) == "level"
    assert compare(refuses, target, retrained).level == "below"


def test_methods_are_compared_on_free_answers_only_where_every_model_has_them():
    high, low = estimate(1.0, 0.9, 1.0), estimate(0.1, 0.0, 0.2)
    with_free = [subject("target", places(high, free=high)), subject("retrained", places(low, free=low))]
    method = subject("unlearned", places(low, free=low), "ga")
    without = subject("unlearned", places(low), "gd")
    assert find(evidence(*with_free, method), FORGET).scope == "free"
    assert find(evidence(*with_free, method, without), FORGET).scope == "all"


def test_nothing_is_compared_where_the_gap_between_the_anchors_may_be_too_small():
    # 1.0 [0.7, 1.0] - 0.6 [0.4, 0.8]: low = 0.4 - sqrt(0.3^2 + 0.2^2) = 0.039, not above 0.2.
    anchors = [
        subject("target", places(estimate(1.0, 0.7, 1.0))),
        subject("retrained", places(estimate(0.6, 0.4, 0.8))),
    ]
    finding = find(evidence(*anchors, subject("unlearned", places(estimate(0.6, 0.4, 0.8)), "ga")), FORGET)
    assert finding.gap is not None
    assert finding.gap.low == pytest.approx(0.0394449)
    assert not finding.admitted
    assert [m.comparison for m in finding.methods] == [None]


def test_without_a_retrained_model_nothing_is_compared():
    subjects = [
        subject("target", places(estimate(1, 1, 1))),
        subject("unlearned", places(estimate(0, 0, 0)), "ga"),
    ]
    finding = find(evidence(*subjects), FORGET)
    assert finding.retrained is None
    assert [m.comparison for m in finding.methods] == [None]


def test_what_an_audit_judged_is_not_compared_again_by_other_margins():
    high, low = estimate(1.0, 0.9, 1.0), estimate(0.1, 0.0, 0.2)
    subjects = [subject(r, places(f)) for r, f in (("target", high), ("retrained", low), ("unlearned", low))]
    alone, judged = find(evidence(*subjects), FORGET), find(evidence(*subjects), FORGET, judged=True)
    assert alone.admitted
    assert [m.comparison is None for m in alone.methods] == [False]
    assert not judged.admitted
    assert [m.comparison for m in judged.methods] == [None]
    assert "The verdicts above judge it" in answer(judged)[0].text
