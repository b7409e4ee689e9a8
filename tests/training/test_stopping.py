"""What a training tells, when it stops and which checkpoint is kept."""

import json

import pytest

from vestige.core.errors import InputError
from vestige.core.files import read_jsonl
from vestige.training.loop import MEASURED, TrainingLog, train
from vestige.training.stopping import (
    ChosenStep,
    Condition,
    Point,
    check_rules,
    choose,
    parse_choice,
    parse_condition,
    reason_to_stop,
)

CONTROLS = {"target": {"forget": 1.0, "retain": 0.8}, "retrained": {"forget": 0.25, "retain": 0.85}}


def curve(*scores):
    """Points at steps 10, 20, ... from (forget, retain) pairs."""
    return [Point(10 * n, n, {"forget": f, "retain": r}) for n, (f, r) in enumerate(scores, start=1)]


@pytest.mark.parametrize(
    ("text", "condition", "bound"),
    [
        ("forget<=0.3", Condition("forget", "<=", 0.3), 0.3),
        (" forget_nll >= 1e2", Condition("forget_nll", ">=", 100.0), 100.0),
        ("forget<=retrained", Condition("forget", "<=", 1.0, "retrained"), 0.25),
        # 0.9 of the target's 0.8.
        ("retain<0.9*target", Condition("retain", "<", 0.9, "target"), 0.72),
    ],
)
def test_a_condition_is_read_from_its_words_and_its_bound_from_the_controls(text, condition, bound):
    assert parse_condition(text) == condition
    assert parse_condition(str(condition)) == condition
    assert condition.bound(CONTROLS) == pytest.approx(bound)


@pytest.mark.parametrize(
    "text", ["forget", "forget<=", "forget=0.3", "forget<=base", "forget<=0.3*", "forget<=0.9target"]
)
def test_words_that_are_no_condition_are_refused_with_the_forms(text):
    with pytest.raises(InputError, match=r"does not have the form 'forget<=0.3', 'forget<=retrained'"):
        parse_condition(text)


def test_an_infinite_bound_is_refused():
    with pytest.raises(InputError, match=r"a number, target, retrained or a multiple of these\. Or say 'last'"):
        parse_choice("lst")
    with pytest.raises(InputError, match="has no finite bound"):
        parse_condition("forget<=1e999")


@pytest.mark.parametrize(
    ("sign", "met"),
    [
        ("<=", (True, True, False)),
        ("<", (True, False, False)),
        (">=", (False, True, True)),
        (">", (False, False, True)),
    ],
)
def test_each_sign_at_below_and_above_its_bound(sign, met):
    condition = parse_condition(f"forget{sign}0.5")
    assert tuple(condition.met({"forget": value}, {}) for value in (0.4, 0.5, 0.6)) == met


def test_the_first_condition_that_is_met_gives_the_reason():
    stop = [parse_condition("forget<=retrained"), parse_condition("retain<0.9*target"), parse_condition("forget<=0.5")]
    first, second, third = curve((0.6, 0.75), (0.4, 0.7), (0.2, 0.1))
    assert reason_to_stop(stop, first, CONTROLS) is None
    assert reason_to_stop(stop, second, CONTROLS) == "retain 0.7 is below 0.72 (retain<0.9*target)"
    assert reason_to_stop(stop, third, CONTROLS) == "forget 0.2 is at or below 0.25 (forget<=retrained)"


def test_last_keeps_the_last():
    assert choose(curve((0.9, 0.8), (0.1, 0.2)), None, {}) == ChosenStep(20, "last", True, "the last checkpoint")


def test_enough_forgotten_keeps_what_retains_most_and_of_equals_the_earliest():
    points = curve((0.5, 0.9), (0.3, 0.6), (0.2, 0.7), (0.1, 0.7), (0.0, 0.1))
    kept = choose(points, parse_choice("forget<=0.3"), {})
    assert (kept.step, kept.met) == (30, True)
    assert kept.why == "of the checkpoints that meet forget<=0.3 (4), the one that retains most (0.7)"


def test_enough_kept_keeps_the_last_that_has_it():
    # Retained dips and comes back: the last above the floor counts, not the last before the first dip.
    points = curve((0.9, 0.8), (0.6, 0.5), (0.4, 0.75), (0.1, 0.2))
    kept = choose(points, parse_choice("retain>=0.9*target"), CONTROLS)
    assert (kept.step, kept.met, kept.why) == (30, True, "the last checkpoint that meets retain>=0.9*target (0.75)")


def test_where_none_meets_the_bound_the_nearest_is_kept_and_it_is_said():
    points = curve((0.9, 0.8), (0.5, 0.5), (0.5, 0.4), (0.6, 0.4))
    kept = choose(points, parse_choice("forget<=0.3"), {})
    assert (kept.step, kept.met) == (20, False)
    assert kept.why == "no checkpoint meets forget<=0.3; at 0.5 this is the nearest"


def test_a_later_point_never_brings_back_one_that_was_dropped():
    # Only the weights of the point that is chosen so far are kept, so a choice among more points may not return to
    # one that lost before.
    points = curve((0.9, 0.8), (0.35, 0.5), (0.3, 0.4), (0.2, 0.6), (0.4, 0.9), (0.25, 0.6), (0.1, 0.7))
    for rule in ("last", "forget<=0.3", "forget<0.05", "retain>=0.6", "retain>2"):
        chosen = [choose(points[: n + 1], parse_choice(rule), CONTROLS).step for n in range(len(points))]
        for before, now, newest in zip(chosen, chosen[1:], points[1:], strict=False):
            assert now in (before, newest.step)


def test_rules_about_what_is_not_there_fail_before_training():
    scores = {"forget": 1.0, "harm": 0.5}
    with pytest.raises(InputError, match=r"the rule retian<0.5 needs the score 'retian', .* Known: forget, harm"):
        check_rules([parse_condition("retian<0.5")], None, scores, {})
    with pytest.raises(InputError, match="names a model without scores: retrained"):
        check_rules([parse_condition("forget<=retrained")], None, scores, {"target": scores})
    with pytest.raises(InputError, match="the rule harm<=0 needs the score 'retain'"):
        check_rules([], parse_choice("harm<=0"), scores, {})
    check_rules([parse_condition("harm<=0")], None, scores, {})


def test_a_line_holds_the_step_its_terms_and_what_it_took(fresh, make_job):
    job = make_job(epochs=1)
    train(fresh().model, job)
    line = next(read_jsonl(job.log))
    assert list(line) == [
        *("step", "epoch", "loss", "gradient_norm", "rate", "terms", "observed", "n_tokens", "state"),
        *MEASURED,
    ]
    assert line["tokens_per_second"] == pytest.approx(line["n_tokens"] / line["seconds"])
    # A process that has loaded torch holds more than 100 MB and, here, less than 100 GB: the unit is right.
    assert 1e2 < line["peak_mb"] < 1e5


def test_reopening_drops_what_was_logged_after_the_checkpoint_and_the_torn_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    first, second = ({"step": n, "epoch": 0, "loss": loss, "n_tokens": 5} for n, loss in ((1, 3.0), (2, 2.0)))
    path.write_text(f'{json.dumps(first)}\n{json.dumps(second)}\n{{"step": 3, "lo')
    log = TrainingLog.opened(path, done=1, writes=True)
    assert log.loss == 3.0
    assert path.read_text() == json.dumps(first) + "\n"
    log.add({"step": 2, "loss": 2.5})
    assert path.read_text().count("\n") == 1
    log.write()
    assert path.read_text() == json.dumps(first) + '\n{"step": 2, "loss": 2.5}\n'


def test_a_process_that_does_not_lead_leaves_the_file_alone(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": 3.0}\n')
    log = TrainingLog.opened(path, done=0, writes=False)
    log.add({"step": 1, "loss": 9.0})
    log.write()
    assert path.read_text() == '{"step": 1, "loss": 3.0}\n'
    assert log.loss == 9.0
