"""Steps, their folders and what they stand for. The cost of an experiment; and how a rate is chosen."""

import json
import math
import re
import time

import pandas
import pytest
from tests.small import nano, squares, written

import vestige
from vestige.core import progress
from vestige.core.errors import InputError, NothingToTeach, PartialFailure
from vestige.core.progress import Pace, progress_bar
from vestige.experiments import EXPERIMENTS, find_experiment
from vestige.experiments.cost import costs, operations
from vestige.experiments.holes import probe_table
from vestige.experiments.lab import Lab, Question, with_objects
from vestige.experiments.mt_bench import mt_bench
from vestige.experiments.rates import Candidate, _choose
from vestige.experiments.tables import tables
from vestige.judges.base import Grader, Judgement
from vestige.steps.runner import run_tasks


def one(value, output_dir):
    output_dir.mkdir(parents=True, exist_ok=True)
    (output_dir / "result.json").write_text(json.dumps({"sum": value}))


def add(value, more, output_dir):
    one(value + more, output_dir)


def fail(output_dir):
    raise InputError("The step fails.")


def test_a_step_takes_what_another_wrote(tmp_path):
    lab = Lab(tmp_path)
    first = lab.step(f"{__name__}:one", name="one", value=2)
    second = lab.step(f"{__name__}:add", name="add", value=first.value("sum"), more=3)
    lab.run(run_tasks, workers=0)
    assert json.loads((second.folder / "result.json").read_text()) == {"sum": 5}
    assert [step.folder for step in second.after] == [first.folder]


def test_folders_follow_from_the_arguments_and_not_from_the_place(tmp_path):
    here, there = Lab(tmp_path / "a"), Lab(tmp_path / "b")
    names = []
    for lab in (here, there):
        step = lab.step("unlearn", name="ga", data=lab.folder / "data", seed=0)
        assert lab.step("unlearn", name="ga", data=lab.folder / "data", seed=0) is step
        assert lab.step("unlearn", name="ga", data=lab.folder / "data", seed=1) is not step
        names.append(step.folder.name)
    assert names[0] == names[1]


def test_raising_a_limit_of_spending_continues_in_the_same_folder(tmp_path):
    lab = Lab(tmp_path)
    steps = []
    for limit in ("?most_requests=5", "?most_requests=900", ""):
        steps.append(lab.step("probe", name="probe", judge=f"https://host/v1{limit}#name"))
    assert len({step.folder for step in steps}) == 1
    other = lab.step("probe", name="probe", judge="https://host/v1?most_requests=5#other")
    assert other.folder != steps[0].folder


def test_a_failed_step_leaves_no_tables(tmp_path):
    lab = Lab(tmp_path)
    step = lab.step(f"{__name__}:fail", name="fail")
    lab.step(f"{__name__}:one", name="one", value=2)
    with pytest.raises(PartialFailure, match="1 of 2 steps failed"):
        lab.run(lambda tasks: {step.name: InputError("The step fails.")})


def untaught(output_dir):
    raise NothingToTeach("The target answers none of the 0 prompts.")


def test_an_arm_without_prompts_to_teach_leaves_the_other_tables(tmp_path):
    lab = Lab(tmp_path)
    shots = lab.step(f"{__name__}:untaught", name="prompts")
    mended = lab.step(f"{__name__}:add", name="mended", value=shots.value("sum"), more=1)
    other = lab.step(f"{__name__}:one", name="one", value=2)
    lab.probes.append(Question(mended, {"method": "llmu", "arm": "one-shot gd"}))
    lab.run(run_tasks, workers=1)  # Across processes, where an error is known by its name.
    assert (mended.folder.exists(), other.folder.exists(), lab.left_out(other)) == (False, True, False)
    row = probe_table(lab).iloc[0]
    assert [row["arm"], row["metric"], str(row["value"])] == ["one-shot gd", "nothing to teach", "nan"]


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_experiment_is_planned_without_the_hub(tmp_path, name, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    lab = Lab(tmp_path)
    find_experiment(name)(lab)
    table = costs(lab).set_index("step")
    assert table.loc["all", "steps"] == len(lab.steps) > 0
    assert table.loc["all", "hours on an H100"] > 0


def test_the_judges_of_holes_are_counted_before_they_are_paid(tmp_path):
    lab = Lab(tmp_path)
    find_experiment("holes")(lab)
    # 33 probes search: 200 adjacent questions and 6,400 prompts, each judged valid, graded four times and held against
    # 50 texts, and the 6,400 rewarded, twice where the question is doubted. 9 probes of Table 6 ask the 200 alone.
    searched = 6600 + 2 * 6400 + 4 * 6600 + 6600 * 50
    adjacent = 200 + 4 * 200 + 200 * 50
    # MT-Bench: both turns of 80 questions, of the target and of 4 methods at 3 seeds.
    graded = 160 * (1 + 4 * 3)
    assert costs(lab).set_index("step").loc["all", "requests"] == 33 * searched + 9 * adjacent + graded


def test_the_number_of_unlearned_models_is_the_papers(tmp_path):
    lab = Lab(tmp_path)
    find_experiment("pistol-q1")(lab)
    kinds = [step.function.rpartition(":")[2] for step in lab.steps.values()]
    # 2 models, 3 seeds, 4 methods; AB and AC, and 5 edges of each of 3 parts.
    assert kinds.count("unlearn") == 2 * 3 * 4 * (2 + 15)
    assert kinds.count("finetune") == 2 * 3 * 2


@pytest.mark.parametrize(
    ("bounded", "bound", "rate"),
    [("forget", 0.3, 3e-5), ("forget", 0.05, 1e-4), ("retain", 0.9, 1e-5), ("retain", 0.99, 1e-5)],
)
def test_the_rate_that_reaches_the_goal_best(bounded, bound, rate):
    candidates = [
        Candidate(1e-5, 0.8, 0.95),
        Candidate(3e-5, 0.3, 0.8),
        Candidate(1e-4, 0.1, 0.5),
        Candidate(1e-3, math.nan, math.nan, "not finite"),
    ]
    assert _choose(candidates, bounded, bound).rate == rate


def test_where_every_training_breaks_down_no_rate_is_chosen():
    assert _choose([Candidate(1e-3, math.nan, math.nan, "not finite")], "forget", 0.3) is None


def test_question_1_compares_contracts_by_attribute_and_what_is_retained_by_question(tmp_path):
    report = find_experiment("pistol-q1")(Lab(tmp_path, cpu=True, sets=["none"]))
    rows = []
    for name, value in (("AC", 0.25), ("AB", 0.75)):
        for attribute in ("price", "date"):
            # Two retained contracts have each attribute.
            for split, edge in (("forget", name), ("retain", "EF"), ("retain", "Eq")):
                row = {"set": name, "split": split, "edge": edge, "attribute": attribute, "item": f"{edge} {attribute}"}
                rows.append({**row, "value": value if split == "forget" else 0.5})
    same = {"model": "m", "method": "ga", "rate": "1e-4", "attack": "", "metric": "qa.rouge1_recall", "seed": 0}
    scores = pandas.DataFrame(rows).assign(**same)
    table = tables(scores, report)["AB less AC"].set_index("split")
    assert dict(table["difference"]) == {"forget": 0.5, "retain": 0.0}
    assert dict(table["items"]) == {"forget": 2, "retain": 4}


def test_an_attack_keeps_its_target_beside_the_attacked_model():
    given = {"kind": "prefix", "n": 7, "subject": "runs/npo", "target": "runs/target"}
    arguments = with_objects("attack", given)
    assert (arguments["model"], arguments["target"], arguments["attack"].items) == ("runs/npo", "runs/target", 7)
    assert with_objects("unlearn", {"target": "runs/target"})["model"] == "runs/target"


class Halves:
    """Grades an answer by the number of texts that stand before it, leaves every second out, and is stopped after."""

    name = "halves"

    def __init__(self, most):
        self.most, self.n_asked = most, 0

    def judge(self, requests):
        judged = []
        for request in requests:
            if self.n_asked == self.most:
                raise KeyboardInterrupt
            judged.append(Judgement(None, failure="unreadable"))
            if self.n_asked % 2 == 0:
                judged[-1] = Judgement(2.0 + 3 * request.question.count("User: "))
            self.n_asked += 1
        return judged


class Silent:
    """Grades nothing."""

    name = "silent"

    def judge(self, requests):
        return [Judgement(None, failure="unreadable")] * len(requests)


def test_mt_bench_asks_the_second_turn_after_the_first(tmp_path, monkeypatch):
    rows = [{"turns": ["Name a colour.", "Name another."]}, {"turns": ["Count to two.", "Count on."]}]
    questions = written(tmp_path / "questions.jsonl", rows)
    with nano():
        model = vestige.finetune(
            "builtin:tiny",
            data=written(tmp_path / "data.jsonl", squares(4)),
            output_dir=tmp_path / "model",
            device="cpu",
        )
    how = (str(model.path), str(questions), "local:judge", tmp_path / "grades", 8, "cpu")
    monkeypatch.setattr("vestige.judges.local.grader_of", lambda *_: Grader(Silent(), {}))
    with pytest.raises(InputError, match="graded no answer of turn 1"):
        mt_bench(*how)
    # The answers were kept, so the model is not asked again.
    monkeypatch.setattr("vestige.steps.subjects.asked_model", None)
    monkeypatch.setattr("vestige.experiments.mt_bench.AT_ONCE", 1)
    judge = Halves(most=3)
    monkeypatch.setattr("vestige.judges.local.grader_of", lambda *_: Grader(judge, {}))
    with pytest.raises(KeyboardInterrupt):
        mt_bench(*how)
    judge.most = 4
    result = mt_bench(*how)
    assert judge.n_asked == 4, "no answer is graded twice"
    # A first turn is graded 2, a second one 2 + 2 * 3: the judge saw both of the user's turns.
    assert [(row["grade"], row["graded"], row["not graded"]) for row in result] == [(2.0, 1, 1), (8.0, 1, 1)]
    kept = [json.loads(line) for line in (tmp_path / "grades" / "grades.jsonl").read_text().splitlines()]
    first = kept[0]["answer"]
    assert kept[2]["question"] == f"User: Name a colour.\n\nAssistant: {first}\n\nUser: Name another."
    monkeypatch.setattr("vestige.judges.local.grader_of", None)
    assert mt_bench(*how) == result


def test_mt_bench_refuses_questions_of_one_turn(tmp_path):
    questions = written(tmp_path / "questions.jsonl", [{"turns": ["Name a colour."]}])
    with pytest.raises(InputError, match="no two texts"):
        mt_bench("model", str(questions), "local:judge", tmp_path / "grades")


def tell_half(output_dir):
    with progress_bar("half") as show:
        show(0.5, "")
        time.sleep(0.5)
    one(1, output_dir)


def test_progress_counts_a_step_by_its_operations_and_hears_the_bar_within_it(tmp_path):
    lab = Lab(tmp_path, weight=operations)
    lab.step(f"{__name__}:tell_half", name="half")
    lab.step(f"{__name__}:one", name="two", value=2)
    heard = []
    lab.run(run_tasks, workers=1, show=lambda share, _names: heard.append(share))
    # Neither step trains, so each has the same weight: half of the first is a quarter of all.
    assert 0.25 in heard


def test_the_time_left_follows_the_pace_of_now_and_not_the_work_of_an_earlier_run():
    pace = Pace()
    assert pace.left(0.7, 2) == "about 1 s left"
    assert pace.left(0.7, 10) == ""
    # 0.05 in the 30 seconds since half of the time: the other 0.25 take 150.
    assert pace.left(0.75, 40) == "about 2 min left"


@pytest.mark.parametrize(("speaking", "printed"), [(True, [0, 30, 60]), (False, [20, 50])])
def test_a_log_file_has_a_line_every_half_minute(capfd, monkeypatch, speaking, printed):
    monkeypatch.setattr(progress, "SPEAKING", speaking)
    monkeypatch.setattr(progress.time, "monotonic", map(float, range(0, 100, 10)).__next__)
    with progress_bar("finetune") as show:
        for tenth in range(8):
            show(tenth / 10, "")
    assert re.findall(r"finetune: (\d+) %", capfd.readouterr().err) == [str(share) for share in printed]
