"""`vestige calibrate` as a person runs it; what it refuses before anything is loaded."""

import json
from types import SimpleNamespace

import pytest
from tests.small import nano, squares, vestige, written

from vestige.cli.training import _print_calibration
from vestige.core.errors import GoalNotReached, InputError
from vestige.studies import calibrate
from vestige.studies.goals import parse_goal

ASKED = ["calibrate", "nowhere", "--method", "ga", "--data", "none.jsonl", "--forget", "f.jsonl", "--output-dir", "out"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give one goal"),
        (["--reach", "forget<=0.3", "--keep", "retain>=0.9"], "give one goal"),
        (["--reach", "retain>=0.9"], "--reach bounds the forget score"),
        (["--reach", "forget<=0.3", "--rates", "1e-3:1e-6:8"], "no grid of 8 values"),
        (["--reach", "forget<=0.3", "--rates", "often"], "is neither LOW:HIGH:N nor a list"),
        (["--reach", "forget<=0.3", "--rates=-1e-5"], "rates.0 = -1e-05: must be greater than 0"),
        (["--reach", "forget<=0.3", "--strength", "retain_weight"], "expected NAME=LOW:HIGH:N"),
    ],
)
def test_words_that_mean_nothing_are_refused(words, message):
    with pytest.raises(InputError, match=message):
        vestige(*ASKED, *words)


def test_a_goal_below_what_a_model_that_never_knew_scores_is_refused_and_its_score_offered():
    for goal in ("forget<=0.382", "retain>=0.9", "forget<=0.3"):
        asked = SimpleNamespace(
            goal=parse_goal(goal),
            settings=SimpleNamespace(metric="rouge1_recall"),
            scores=lambda _: {"forget": 0.3812, "retain": 1.0},
        )
        if goal != "forget<=0.3":
            calibrate.check_reach(asked, None)
            continue
        with pytest.raises(InputError, match=r"it scores 0\.381 in rouge1_recall; set --reach 'forget<=0\.382'"):
            calibrate.check_reach(asked, None)


@pytest.mark.parametrize(("kept", "said"), [(0.4, True), (0.6, False)])
def test_a_rate_that_ruins_what_was_to_be_kept_is_told(capsys, kept, said):
    start, end = (calibrate.Score(9, 9, score, retain, "") for score, retain in ((1.0, 1.0), (0.1, kept)))
    candidates = (calibrate.CandidateResult(1e-4, None, end, "chosen"),)
    about = ("ga", "f", "forget<=0.3", "rouge1_recall", "", True, 1e-4, None)
    found = calibrate.Calibration(*about, start, candidates, 9, 9, {"forget": 1}, ())
    _print_calibration(found, 1.0, as_json=False)
    assert (f"retain score {kept:.3f}, the target's 1.000: ruined" in capsys.readouterr().out) == said


@pytest.fixture
def nano_models():
    with nano():
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("nano_models")
def test_a_rate_is_found_and_one_that_is_out_of_reach_is_said(tmp_path):
    data = written(tmp_path / "qa.jsonl", squares(12, edge=lambda i: "AB"[i > 3]))
    asked = ["--data", data, "--edge-key", "edge"]
    once = ["--set", "epochs=1", "--set", "batch_size=8", "--set", "stop_when_exact=false"]
    vestige("finetune", "builtin:tiny", *asked, "--output-dir", tmp_path / "target", *once)
    words = ["calibrate", tmp_path / "target", "--method", "kl", *asked, "--forget", "edge:A", "--set", "epochs=2"]
    words += ["--rates", "1e-6,1e-5", "--max-new-tokens", "4", "--output-dir"]
    # A model that was taught for one epoch answers nothing, so any rate is low enough.
    found = json.loads(vestige(*words, tmp_path / "out", "--reach", "forget<=0.9", "--json").stdout)
    assert (found["reached"], found["rate"], found["goal"]) == (True, 1e-6, "forget<=0.9")
    assert found["cpu_seconds"] > 0
    # And none brings the retain score to 1.
    words += [tmp_path / "other", "--keep", "retain>=0.99", "--strength", "kl.kl_weight=0.5,2"]
    ended = vestige(*words, code=None)
    assert isinstance(ended.exception, GoalNotReached)
    said = "retain>=0.99 cannot be reached with these rates: the nearest, learning rate 1e-06, kl_weight 0.5"
    assert said in str(ended.exception)
    assert "nearest: learning rate 1e-06, kl_weight 0.5; on the items not chosen on:" in ended.stdout
