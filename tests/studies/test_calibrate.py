"""Calibration on a small model that knows twelve answers: its choice, its bytes, and what it refuses."""

import dataclasses
import os
from pathlib import Path

import pytest
from tests.small import TINY, contents, unlearning

from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.records import read_spec
from vestige.core.errors import InputError, NotFinite
from vestige.core.files import read_jsonl
from vestige.core.items import Item
from vestige.core.store import claim
from vestige.data.corpus import NamedSplits
from vestige.evals.qa import QASettings
from vestige.models.load import ModelSettings
from vestige.steps import unlearn as unlearn_step
from vestige.steps.evaluate import finished_subject
from vestige.steps.finetune import FinetuneRequest, finetune
from vestige.steps.unlearn import unlearn
from vestige.studies import calibrate as calibrate_study
from vestige.studies.calibrate import (
    CalibrateRequest,
    CalibrateSettings,
    CalibrationFolder,
    GridPoint,
    calibrate,
    calibration_tasks,
    read_calibration,
)
from vestige.training.settings import TrainingSettings

pytestmark = pytest.mark.slow

WORDS = ["red", "blue", "green", "black", "white", "brown", "pink", "grey", "gold", "tan", "teal", "lime"]
ITEMS = tuple(
    Item(f"What colour is house {n}?", f"{w}.", edge="AB"[n > 3], attribute=str(n % 4)) for n, w in enumerate(WORDS)
)
SPLITS = NamedSplits("edge:A", {"forget": ITEMS[:4], "retain": ITEMS[4:], "independent": ITEMS[8:]}, {})
RATES = (1e-6, 1e-5, 5e-5, 1e-3)
# What must not depend on when a run was killed; provenance holds times, and so does the log of a training.
COMPARED = ("calibration.json", "asked.json", "records.jsonl", "score.json", "done.json", "*.safetensors")


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> ModelSettings:
    folder = SubjectFolder(tmp_path_factory.mktemp("calibrate") / "target")
    settings = TrainingSettings.build(
        {"epochs": 40, "batch_size": 6, "lora_rank": 0, "learning_rate": 2e-3, "loss_on": "all", "warmup_epochs": 4.0}
    )
    finetune(folder, FinetuneRequest(TINY, ITEMS, ITEMS, settings, seed=0))
    return ModelSettings(model=str(folder.model), device="cpu")


def asked(target: ModelSettings, **settings) -> CalibrateRequest:
    request = unlearning(
        target,
        SPLITS.splits["forget"],
        SPLITS.splits["retain"],
        method="gd",
        forget="edge:A",
        training={"epochs": 6, "batch_size": 2, "lora_rank": 0},
    )
    wanted = {"goal": "forget<=0.5", "metric": "exact_match", "rates": RATES, **settings}
    return CalibrateRequest(request, SPLITS, QASettings(max_new_tokens=8), CalibrateSettings.build(wanted))


def put(folder: CalibrationFolder, request: CalibrateRequest) -> None:
    claim(folder.asked, calibrate_study.request_identity(request), "calibration")


def run(folder: Path, request: CalibrateRequest) -> None:
    """What `calibrate` does, in this process."""
    put(CalibrationFolder(folder), request)
    for task in calibration_tasks(CalibrationFolder(folder), request):
        task.run(**task.arguments, report=lambda share: None)


@pytest.fixture(scope="module")
def whole(target, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("calibrate") / "whole"
    run(folder, asked(target))
    return folder


def test_every_candidate_is_trained_to_its_end_and_kept_with_what_it_cost(whole):
    found, folder = read_calibration(CalibrationFolder(whole)), CalibrationFolder(whole)
    # Six epochs of two steps, for each of four rates.
    assert [(c.rate, c.score.steps) for c in found.candidates] == [(rate, 12) for rate in RATES]
    assert sorted(c.fate for c in found.candidates) == ["chosen", *["not chosen"] * 3]
    logs = [list(read_jsonl(folder.candidate(rate, None).training_log)) for rate in RATES]
    assert [c.score.n_tokens for c in found.candidates] == [sum(row["n_tokens"] for row in log) for log in logs]
    assert (found.n_steps, found.n_tokens) == (48, sum(c.score.n_tokens for c in found.candidates))
    assert folder.cpu_seconds() > 0


def test_what_is_chosen_is_the_best_within_the_bound_and_reported_on_other_items(whole, target):
    found, request = read_calibration(CalibrationFolder(whole)), asked(target)
    within = [c for c in found.candidates if c.score.forget <= 0.5]
    assert found.reached
    assert found.end.retain == max(c.score.retain for c in within)
    assert (found.start.forget, found.start.retain) == (1.0, 1.0)
    assert found.n_validation == {"forget": 2, "retain": 4}
    n = {row["split"]: row["n"] for row in found.test if row["metric"] == "exact_match"}
    assert (n["forget"], n["retain"]) == (2, 4)
    chosen_on = {i.id for items in request.apart.validation.splits.values() for i in items}
    reported = {r["item"] for p in whole.rglob("evals/*/records.jsonl") for r in read_jsonl(p)}
    assert len(chosen_on) == 6
    assert not chosen_on & reported
    assert chosen_on | reported == {i.id for i in ITEMS}


def test_a_score_is_the_mean_over_the_validation_items(whole, target):
    found, request = read_calibration(CalibrationFolder(whole)), asked(target)
    kept = request.apart.validation.splits["retain"]
    model = finished_subject(CalibrationFolder(whole).candidate(found.rate, None), device="cpu").load()
    records = request.questions.collect(model, kept)
    assert found.end.retain == sum(r["reply"].strip(". ") == r["answer"][:-1] for r in records) / 4


def test_a_candidate_is_what_unlearn_makes_at_its_rate(whole, target, tmp_path):
    point = GridPoint(read_calibration(CalibrationFolder(whole)).rate, None)
    alone = SubjectFolder(tmp_path / "alone")
    unlearn(alone, asked(target).of(point))
    calibrated = CalibrationFolder(whole).candidate(*point)
    assert (alone.model / "model.safetensors").read_bytes() == (calibrated.model / "model.safetensors").read_bytes()
    assert alone.spec.read_bytes() == calibrated.spec.read_bytes()


@pytest.mark.parametrize("written", [9, 24, 36])
def test_a_run_stopped_anywhere_ends_with_the_same_bytes(whole, target, tmp_path, monkeypatch, written):
    """Stopped at a rename; that each kind of file survives a kill at any of its writes is tested with the demo."""
    replaced = os.replace
    left = written

    def stopping(source, to):
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        replaced(source, to)

    monkeypatch.setattr(os, "replace", stopping)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, asked(target))
    monkeypatch.setattr(os, "replace", replaced)
    run(tmp_path, asked(target))
    assert contents(tmp_path, *COMPARED) == contents(whole, *COMPARED)


def test_a_finished_calibration_is_left_as_it_is(whole, target, monkeypatch):
    before = contents(whole, *COMPARED)
    monkeypatch.setattr(QASettings, "collect", None)
    monkeypatch.setattr(unlearn_step, "train", None)
    run(whole, asked(target))
    assert contents(whole, *COMPARED) == before


def breaks_down(monkeypatch, at):
    """Training that is no longer finite at these rates."""
    train = calibrate_study.unlearn

    def breaking(folder, request, on_step):
        if request.training.learning_rate in at:
            raise NotFinite("training is no longer finite at step 2")
        return train(folder, request, on_step)

    monkeypatch.setattr(calibrate_study, "unlearn", breaking)


def test_a_candidate_that_breaks_down_is_named_and_the_others_go_on(whole, target, tmp_path, monkeypatch):
    best = read_calibration(CalibrationFolder(whole)).rate
    breaks_down(monkeypatch, [best])
    run(tmp_path, asked(target))
    found = read_calibration(CalibrationFolder(tmp_path))
    (broken,) = (c for c in found.candidates if c.fate == "broke down")
    assert (broken.rate, broken.score.broke_down) == (best, "training is no longer finite at step 2")
    assert found.rate not in (None, best)


def test_where_everything_breaks_down_nothing_is_chosen(target, tmp_path, monkeypatch):
    breaks_down(monkeypatch, RATES)
    run(tmp_path, asked(target))
    found = read_calibration(CalibrationFolder(tmp_path))
    assert (found.rate, found.end, found.reached, found.test) == (None, None, False, ())


def test_a_goal_out_of_reach_is_said_and_the_nearest_is_chosen(target, tmp_path):
    # Such rates change no answer, so the lowest rate is as near as any. A study calls a file by its name alone.
    request = asked(target, rates=(1e-7, 2e-7), goal="forget<=0.1")
    run(tmp_path, dataclasses.replace(request, unlearning=dataclasses.replace(request.unlearning, forget="f.csv")))
    found = read_calibration(CalibrationFolder(tmp_path))
    assert (found.rate, found.reached) == (1e-7, False)
    assert found.test


def test_a_strength_is_searched_with_the_rate(target, tmp_path):
    request = asked(target, rates=(1e-6, 1e-3), strength="retain_weight", strengths=(0.0, 1.0))
    assert [tuple(c) for c in request.candidates] == [(1e-6, 0.0), (1e-6, 1.0), (1e-3, 0.0), (1e-3, 1.0)]
    run(tmp_path, request)
    assert read_calibration(CalibrationFolder(tmp_path)).strength in (0.0, 1.0)
    for candidate in request.candidates:
        made = read_spec(CalibrationFolder(tmp_path).candidate(*candidate).spec).settings
        assert (made["learning_rate"], made["gd.retain_weight"]) == candidate


def test_another_request_in_the_folder_is_refused_with_what_differs(target, tmp_path):
    folder = CalibrationFolder(tmp_path)
    put(folder, asked(target))
    for changes, named in (({"goal": "forget<=0.6"}, "goal"), ({"rates": (1e-5,)}, "rates, settings")):
        with pytest.raises(InputError, match=f"holds another calibration .it differs in {named.split(',')[0]}"):
            put(folder, asked(target, **changes))
    put(folder, asked(target))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"goal": "forget<0.3"}, "is not of the form"),
        ({"metric": "share_refused"}, "no goal can be stated in the metric 'share_refused'"),
        ({"strength": "retain_weight"}, "strength and strengths go together"),
        ({"strength": "weight", "strengths": (1.0,)}, "method gd: unknown key 'weight'"),
        ({"rates": (1e-5, 1e-5)}, "the candidate 1e-05 is in the grid more than once"),
    ],
)
def test_what_would_fail_late_is_refused_before_anything_is_made(target, tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        calibrate(tmp_path / "out", asked(target, **changes))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("method", ["none", "retrain"])
def test_a_control_has_no_rate(target, tmp_path, method):
    request = asked(target)
    control = dataclasses.replace(request, unlearning=dataclasses.replace(request.unlearning, method=method))
    with pytest.raises(InputError, match=f"method '{method}' does not train the target"):
        calibrate(tmp_path / "out", control)


def test_processes_make_the_same_bytes(whole, target, tmp_path):
    found = calibrate(tmp_path, asked(target), workers=2)
    assert found == read_calibration(CalibrationFolder(whole))
    assert contents(tmp_path, *COMPARED) == contents(whole, *COMPARED)
