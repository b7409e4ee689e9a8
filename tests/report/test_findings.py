import pytest
from synthetic_run import spec

from vestige.core.estimates import Estimate
from vestige.report.contents import find, pooled
from vestige.report.evidence import Cell, Evidence, Subject, greedy_rouge

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


def test_several_models_of_one_role_pool_to_their_mean_in_the_envelope_of_their_intervals():
    found = pooled([estimate(0.2, 0.1, 0.4, n=20), estimate(0.4, 0.2, 0.5, n=18)])
    assert found is not None
    assert (found.value, found.low, found.high, found.n) == (pytest.approx(0.3), 0.1, 0.5, 18)
    assert pooled([]) is None


def test_free_answers_are_shown_only_where_every_model_has_them():
    high, low = estimate(1.0, 0.9, 1.0), estimate(0.1, 0.0, 0.2)
    with_free = [subject("target", places(high, free=high)), subject("retrained", places(low, free=low))]
    method = subject("unlearned", places(low, free=low), "ga")
    without = subject("unlearned", places(low), "gd")
    assert find(evidence(*with_free, method), FORGET).scope == "free"
    assert find(evidence(*with_free, method, without), FORGET).scope == "all"


def test_the_band_of_models_that_never_knew_is_that_of_the_answers_shown():
    high, low, free = estimate(1.0, 0.9, 1.0), estimate(0.3, 0.2, 0.4), estimate(0.1, 0.0, 0.2)
    subjects = [subject("target", places(high, free=high)), subject("retrained", places(low, free=free))]
    assert find(evidence(*subjects), FORGET).never == free
    assert find(evidence(subjects[0]), FORGET).never is None
