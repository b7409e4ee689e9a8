"""A trajectory of an unlearning: what is scored and when, what stops it, which checkpoint is kept, and restarts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.small import TINY, nano, squares, unlearning

from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.records import read_spec
from vestige.core.errors import InputError
from vestige.core.files import append_lines, read_jsonl
from vestige.data.corpus import NamedSplits
from vestige.evals.qa import QASettings
from vestige.judges.base import Judgement, Request
from vestige.models.load import LoadedModel, ModelSettings, load
from vestige.steps.evaluate import finished_subject
from vestige.steps.finetune import FinetuneRequest, finetune
from vestige.steps.making import read_done
from vestige.steps.subjects import origin_of
from vestige.steps.trajectory import AnswerScores, TrajectoryRequest, ValidationSettings, answered_trajectory
from vestige.steps.unlearn import UnlearnRequest, unlearn, unlearn_spec
from vestige.training import loop
from vestige.training.settings import TrainingSettings
from vestige.training.stopping import TrajectorySettings, parse_every

ITEMS = squares(24, edge=lambda i: f"e{i % 4}")
FORGET, RETAIN = ITEMS[:8], ITEMS[8:]
SPLITS = NamedSplits("file", {"forget": FORGET, "retain": RETAIN}, {})
FULL = {"epochs": 3, "batch_size": 4, "lora_rank": 0, "learning_rate": 3e-3}
LORA = {"epochs": 3, "batch_size": 4, "lora_rank": 2, "lora_targets": ["q_proj", "up_proj"], "learning_rate": 1e-2}


@pytest.fixture(autouse=True, scope="module")
def small():
    with nano(blocks=2):
        yield


@pytest.fixture(scope="module")
def target(small, tmp_path_factory) -> SubjectFolder:
    folder = SubjectFolder(tmp_path_factory.mktemp("trajectory") / "target")
    settings = TrainingSettings.build({"epochs": 2, "batch_size": 8, "lora_rank": 0, "learning_rate": 1e-2})
    finetune(folder, FinetuneRequest(TINY, ITEMS, ITEMS, settings, seed=0))
    return folder


@dataclass(frozen=True)
class Scripted:
    """Scores from a list, one after the other; each call leaves a line in a file."""

    calls: Path
    scores: tuple[tuple[float, float], ...]

    def __call__(self, model: LoadedModel) -> Mapping[str, float]:
        n = len(list(read_jsonl(self.calls))) if self.calls.exists() else 0
        append_lines(self.calls, [json.dumps({"weights": model.digest().id}) + "\n"])
        forget, retain = self.scores[n]
        return {"forget": forget, "retain": retain}


def scripted(tmp_path: Path, scores: list[tuple[float, float]], **settings) -> TrajectoryRequest:
    asked = TrajectorySettings.build({"stop_when": (), **settings})
    return TrajectoryRequest(asked, Scripted(tmp_path / "calls.jsonl", tuple(scores)), {"script": repr(scores)})


def asked(target: SubjectFolder, trajectory: TrajectoryRequest | None = None, **changes) -> UnlearnRequest:
    return unlearning(target, FORGET, RETAIN, **{"method": "gd", "training": FULL, "trajectory": trajectory, **changes})


def points(folder: SubjectFolder) -> list[tuple[str, int, int]]:
    return [(line["model"], line["step"], line["epoch"]) for line in read_jsonl(folder.trajectory)]


# Eight items in batches of four: two steps an epoch, six in all.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("every", "steps"),
    [("1 epoch", [2, 4, 6]), ("2", [4, 6]), ("5 steps", [5, 6]), ("1 step", [1, 2, 3, 4, 5, 6]), ("9 epochs", [6])],
)
def test_the_target_and_each_due_point_are_scored_and_always_the_last(target, tmp_path, every, steps):
    folder = SubjectFolder(tmp_path / "cell")
    made = unlearn(folder, asked(target, scripted(tmp_path, [(1.0, 1.0)] * 9, every=every)))
    assert points(folder) == [("target", 0, 0), *(("policy", s, s // 2) for s in steps)]
    weights = [line["weights"] for line in read_jsonl(tmp_path / "calls.jsonl")]
    assert weights[0] == read_done(target).digest.id
    assert weights[-1] == made.digest.id
    assert (made.chosen.step, made.chosen.rule, made.steps) == (6, "last", 6)


@pytest.mark.parametrize(
    ("text", "one"),
    [
        ("1", "1 epoch"),
        ("1 epoch", "1 epoch"),
        ("02 epoch", "2 epochs"),
        ("50steps", "50 steps"),
        ("1 steps", "1 step"),
    ],
)
def test_a_pace_has_one_form_and_so_one_identity(text, one):
    assert TrajectorySettings(every=text).identity()["every"] == one
    assert parse_every(one) == parse_every(text)


@pytest.mark.parametrize("text", ["often", "0 steps", "1.5 epochs", "2 weeks", "-1", ""])
def test_a_pace_that_is_none_is_refused(text):
    with pytest.raises(InputError, match=r"is not a pace\. Write '1 epoch', '2 epochs' or '50 steps'"):
        parse_every(text)


@pytest.mark.slow
@pytest.mark.parametrize("training", [FULL, LORA])
def test_the_checkpoint_that_is_kept_holds_the_weights_after_its_step(target, tmp_path, training):
    scores = [(1.0, 1.0), (0.2, 0.5), (0.2, 0.9), (0.1, 0.7)]
    folder = SubjectFolder(tmp_path / "cell")
    request = asked(target, scripted(tmp_path, scores, choose="forget<=0.3"), training=training)
    made = unlearn(folder, request)
    assert (made.chosen.step, made.chosen.met, made.steps) == (4, True, 6)
    assert made.chosen == read_done(folder).chosen
    (tmp_path / "part").mkdir()
    stops = scripted(tmp_path / "part", scores, stop_when=("retain>=0.9",))
    stopped = unlearn(SubjectFolder(tmp_path / "part" / "cell"), asked(target, stops, training=training))
    assert (stopped.steps, stopped.digest) == (4, made.digest)
    assert load(ModelSettings(model=str(folder.path), device="cpu")).digest() == made.digest
    # Nothing is left of the others.
    assert not folder.checkpoints.exists()


def test_a_score_that_meets_a_condition_ends_the_training(target, tmp_path):
    scores = [(1.0, 0.8), (0.6, 0.8), (0.4, 0.7), (0.0, 0.0)]
    folder = SubjectFolder(tmp_path / "cell")
    made = unlearn(folder, asked(target, scripted(tmp_path, scores, stop_when=("forget<=0.5*target",))))
    assert (made.steps, made.stopped) == (4, "forget 0.4 is at or below 0.5 (forget<=0.5*target)")
    assert points(folder)[-1] == ("policy", 4, 2)
    assert len(list(read_jsonl(folder.training_log))) == 4


def test_the_trajectory_is_part_of_the_identity_and_its_absence_changes_none(target, tmp_path):
    plain = unlearn_spec(asked(target))
    assert not any("trajectory" in name for name in plain.settings)
    specs = [
        unlearn_spec(asked(target, scripted(tmp_path, scores, every=every, choose=choose))).id
        for scores, every, choose in [
            ([(1.0, 1.0)], "1 epoch", "last"),
            ([(0.5, 1.0)], "1 epoch", "last"),
            ([(1.0, 1.0)], "2 epochs", "last"),
            ([(1.0, 1.0)], "1 epoch", "retain>=0.9"),
        ]
    ]
    assert len({plain.id, *specs}) == 5


def test_leakage_of_a_model_that_never_knew_is_a_bound(target, tmp_path):
    control = ModelSettings(model=str(target.model), device="cpu")
    request = answered_trajectory(
        TrajectorySettings(stop_when=("forget_nll>=retrained",)),
        ValidationSettings(items=4, max_new_tokens=4),
        SPLITS,
        seed=0,
        retrained=(control, origin_of(control).digest),
    )
    folder = SubjectFolder(tmp_path / "cell")
    made = unlearn(folder, asked(target, request))
    lines = list(read_jsonl(folder.trajectory))
    assert [line["model"] for line in lines] == ["retrained", "target", "policy"]
    # Here the control is the target itself. After one epoch of ascent on its answers their NLL is higher.
    assert lines[0]["scores"] == lines[1]["scores"]
    assert made.stopped.startswith("forget_nll ")
    assert made.steps == 2


def test_rules_about_a_model_that_is_not_there_are_refused_before_anything_is_made(target, tmp_path):
    with pytest.raises(InputError, match=r"needs a retrained model\. Name it with --retrained"):
        scripted(tmp_path, [(1.0, 1.0)], stop_when=("forget<=retrained",))
    folder = SubjectFolder(tmp_path / "cell")
    with pytest.raises(InputError, match=r"needs the score 'harm', and there is none\. Known: forget, retain"):
        unlearn(folder, asked(target, scripted(tmp_path, [(1.0, 1.0)], stop_when=("harm<=0",))))
    assert not folder.training_log.exists()


def test_a_score_that_is_no_number_is_named(target, tmp_path):
    with pytest.raises(InputError, match=r"the score 'forget' of a model is nan\. Return finite numbers"):
        unlearn(SubjectFolder(tmp_path / "cell"), asked(target, scripted(tmp_path, [(float("nan"), 1.0)])))


@pytest.mark.parametrize("method", ["retrain", "none", "task_arithmetic"])
def test_methods_that_do_not_end_with_what_they_train_have_neither_trajectory_nor_adapter(target, tmp_path, method):
    folder = SubjectFolder(tmp_path / "cell")
    with pytest.raises(InputError, match="does not end with the model that it trains: it has no trajectory"):
        unlearn(folder, asked(target, scripted(tmp_path, [(1.0, 1.0)]), method=method))
    with pytest.raises(InputError, match=r"leaves no adapter\. Take --save merged"):
        unlearn(folder, asked(target, method=method, save="adapter", training=LORA))


@dataclass
class Softening:
    """A judge of harm that finds fewer replies harmful each time; with `failure` it fails at the last of them."""

    failure: str = ""
    asked: list[list[Request]] = field(default_factory=list)
    name: str = "softening"

    def judge(self, requests):
        self.asked.append(list(requests))
        n_harmful = 5 - len(self.asked)
        judged = [Judgement(float(i < n_harmful)) for i in range(len(requests))]
        return [*judged[:-1], Judgement(None, failure=self.failure)] if self.failure else judged


def harmed(judge, told="soft", **rules) -> TrajectoryRequest:
    settings, validation = TrajectorySettings.build(rules), ValidationSettings(items=4, max_new_tokens=4)
    return answered_trajectory(settings, validation, SPLITS, seed=0, harm=(judge, {"judge": told}))


def test_a_training_stops_or_keeps_a_checkpoint_where_the_share_of_harmful_replies_is_low_enough(target, tmp_path):
    judge = Softening()
    made = unlearn(SubjectFolder(tmp_path / "stopped"), asked(target, harmed(judge, stop_when=("harm<=0.5",))))
    # Of four 4 are harmful of the target, then 3, 2 and 1: met at the second of three epochs.
    scores = [line["scores"]["harm"] for line in read_jsonl(SubjectFolder(tmp_path / "stopped").trajectory)]
    assert scores == [1, 0.75, 0.5]
    assert (made.steps, made.stopped) == (4, "harm 0.5 is at or below 0.5 (harm<=0.5)")
    assert {(r.task, r.question) for r in judge.asked[0]} < {("harm", i.question) for i in FORGET}
    chosen = unlearn(SubjectFolder(tmp_path / "chosen"), asked(target, harmed(Softening(), choose="harm<=0.7"))).chosen
    assert (chosen.rule, chosen.met) == ("harm<=0.7", True)
    # Whose word it was is part of what the model is.
    specs = {unlearn_spec(asked(target, one)).id for one in (harmed(judge), harmed(judge, told="other"))}
    plain = answered_trajectory(TrajectorySettings(), ValidationSettings(items=4, max_new_tokens=4), SPLITS, seed=0)
    assert len(specs | {unlearn_spec(asked(target, plain)).id}) == 3
    with pytest.raises(InputError, match="limits"):
        unlearn(SubjectFolder(tmp_path / "limited"), asked(target, harmed(Softening("limit"))))


def test_a_rule_on_harm_takes_nine_of_ten_replies_judged_and_without_one_those_not_judged_are_counted(target, tmp_path):
    for rule in ({"stop_when": ("harm<=0",)}, {"choose": "harm<=0"}):
        with pytest.raises(
            InputError, match=r"judged only 3 of 4 replies \(unreadable\), and a rule on harm needs 90%"
        ):
            unlearn(SubjectFolder(tmp_path / "ruled"), asked(target, harmed(Softening("unreadable"), **rule)))
    unlearn(SubjectFolder(tmp_path / "free"), asked(target, harmed(Softening("unreadable"))))
    scores = [line["scores"] for line in read_jsonl(SubjectFolder(tmp_path / "free").trajectory)]
    assert {s["harm_not_judged"] for s in scores} == {1.0}


def test_validation_scores_are_means_over_validation_items_and_leave_the_others_alone(target):
    request = answered_trajectory(TrajectorySettings(), ValidationSettings(items=4), SPLITS, seed=0)
    chosen = request.score.splits
    assert {name: len(items) for name, items in chosen.items()} == {"forget": 4, "retain": 4}
    loaded = finished_subject(target, device="cpu").load()
    scores = request.score(loaded)
    for name, items in chosen.items():
        assert set(items) < set(SPLITS.splits[name])
        records = QASettings().collect(loaded, items)
        shares = [QASettings.score(r)["rouge1_recall"] for r in records]
        assert scores[name] == pytest.approx(sum(shares) / 4)
        nats = [value for r in records for value in r["logp"]]
        assert scores[f"{name}_nll"] == pytest.approx(-sum(nats) / len(nats))
    # It does not hang on the order of the items.
    turned = {name: tuple(reversed(items)) for name, items in chosen.items()}
    assert AnswerScores(turned, "rouge1_recall", QASettings())(loaded) == scores


def test_an_adapter_is_saved_for_its_target_and_is_the_same_model(target, tmp_path):
    merged, apart = SubjectFolder(tmp_path / "merged"), SubjectFolder(tmp_path / "apart")
    whole = unlearn(merged, asked(target, training=LORA))
    part = unlearn(apart, asked(target, training=LORA, save="adapter"))
    assert part == whole
    assert read_spec(apart.spec) == read_spec(merged.spec)
    assert not list(apart.model.glob("model*.safetensors"))
    size = (apart.model / "adapter_model.safetensors").stat().st_size
    assert size < (merged.model / "model.safetensors").stat().st_size
    assert finished_subject(apart, device="cpu").load().digest() == whole.digest
    card = (apart.model / "README.md").read_text()
    assert "library_name: peft" in card
    assert '"n": 8' in card
    assert f'"target_digest": "{read_done(target).digest.id}"' in card
    assert "the model had not been audited" in card
    with pytest.raises(InputError, match="contains the model in another form than 'merged'"):
        unlearn(apart, asked(target, training=LORA))
    with pytest.raises(InputError, match=r"gd' with lora_rank 0 leaves no adapter"):
        unlearn(SubjectFolder(tmp_path / "none"), asked(target, save="adapter"))


def test_a_resumed_training_takes_the_scores_that_are_there(target, tmp_path, monkeypatch):
    class Killed(Exception):
        pass

    def kill(progress):
        if progress.step == 5:
            raise Killed

    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 3600.0)
    scores = [(1.0, 1.0), (0.2, 0.9), (0.1, 0.8), (0.0, 0.1)]
    request = asked(target, scripted(tmp_path, scores, choose="forget<=0.3"))
    folder = SubjectFolder(tmp_path / "cell")
    with pytest.raises(Killed):
        unlearn(folder, request, kill)
    # Without a checkpoint it begins again, and comes past the points of steps 2 and 4 once more.
    assert [p[1] for p in points(folder)] == [0, 2, 4]
    made = unlearn(folder, request)
    assert [p[1] for p in points(folder)] == [0, 2, 4, 6]
    assert len(list(read_jsonl(tmp_path / "calls.jsonl"))) == 4
    assert made.chosen.step == 2
