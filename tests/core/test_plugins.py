"""What another installed package brings by its entry points, and what docs/extend.md shows of it."""

import json
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import audited
from vestige.artifacts.audits import read_plan
from vestige.attacks import ATTACKS
from vestige.attacks.planning import find_attack, plan_all
from vestige.auditing import run as auditing
from vestige.auditing.run import rejudge, run_audit
from vestige.auditing.settings import AuditSettings
from vestige.cli.app import app, attack_commands
from vestige.cli.command import group
from vestige.core.errors import InputError
from vestige.core.files import write_jsonl
from vestige.core.plugins import installed
from vestige.evals import find_eval
from vestige.judges import find_judge
from vestige.judges.base import Request
from vestige.judges.spec import judge_spec
from vestige.methods import build_method, find_method, listed
from vestige.methods.ga import GA
from vestige.metrics import intervals
from vestige.probes.answering import AnswerSettings, Participants
from vestige.report import build_report

PAGE = (Path(__file__).parents[2] / "docs" / "extend.md").read_text(encoding="utf-8")
PLUGIN = """
from vestige.attacks.quantize import QuantizeSettings
from vestige.evals.base import Evaluation
from vestige.evals.qa import QASettings
from vestige.methods.gd import GD

class Asked(QASettings):
    name = "other"

class Unscored(Evaluation):
    def collect(self, subject, questions):
        return []

class Rounding(QuantizeSettings):
    \"""Plans what another attack is called.\"""

class Other(GD):
    \"""Something else.\"""
"""
POINTS = """
[vestige.methods]
other = plugged_in:Other
ga = plugged_in:Other
gone = plugged_out:Other

[vestige.attacks]
short = plugged_in:Other
gcg = plugged_in:Other
rounding = plugged_in:Rounding
gone = plugged_out:Other

[vestige.judges]
short = plugged_in:Other
server = plugged_in:Other

[vestige.evals]
other = plugged_in:Asked
copied = plugged_in:Asked
unscored = plugged_in:Unscored
short = plugged_in
gone = plugged_out:Asked
"""


@pytest.fixture
def plug(tmp_path, monkeypatch):
    """Files and entry points as an installed package has them."""

    def made(points: str, **files: str) -> None:
        folder = tmp_path / "packages"
        info = folder / "plugged_in-1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged-in\nVersion: 1\n")
        (info / "entry_points.txt").write_text(points)
        for name, code in files.items():
            (folder / f"{name}.py").write_text(code)
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.syspath_prepend(str(folder))
        installed.cache_clear()

    yield made
    installed.cache_clear()


@pytest.fixture
def plugged(plug):
    plug(POINTS, plugged_in=PLUGIN)


@pytest.fixture
def shown(plug):
    """The files and entry points of docs/extend.md."""
    files = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE, flags=re.DOTALL))
    assert PAGE.count("```python") == len(files)
    (points,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    points = re.sub(r'\[project\.entry-points\."(.*?)"\]', r"[\1]", points).replace('"', "")
    plug(points, **files)


def test_a_package_adds_a_method_and_an_evaluation_under_names_of_its_own(plugged):
    assert find_method("other").__name__ == "Other"
    assert build_method("other", {"retain_weight": 0.5}).identity()["retain_weight"] == 0.5
    assert find_eval("other").name == "other"


def test_no_package_changes_what_a_name_of_vestige_means(plugged):
    assert find_method("ga") is GA
    assert f"{find_attack('gcg').__module__}:{find_attack('gcg').__name__}" == ATTACKS["gcg"].home


def test_what_a_package_lacks_is_one_sentence(plugged):
    for find, name, said in [
        (find_method, "gone", "plugged_out"),
        (find_eval, "gone", "plugged_out"),
        # As an evaluation was before it was a class.
        (find_eval, "short", "plugged_in is not a subclass of vestige.evals.base.Evaluation"),
        (find_eval, "unscored", "plugged_in:Unscored has no score. See docs/extend.md"),
        (find_eval, "copied", "the name in plugged_in:Asked is 'other'"),
        (find_eval, "othr", "Did you mean 'other'"),
        (find_attack, "gone", "plugged_out"),
        (find_attack, "short", "plugged_in:Other is not an attack"),
        (find_attack, "shot", "Did you mean 'short'"),
        (find_judge, "short", "plugged_in:Other is not a judge"),
        (find_judge, "server", "no judge 'server'"),
    ]:
        with pytest.raises(InputError, match=said):
            find(name)


def test_an_attack_that_plans_what_another_would_do_is_refused(plugged):
    asked = AuditSettings(relearn=(), quantize=(), ablate=(), in_context=(), further=("rounding",)).model_dump()
    with pytest.raises(InputError, match="plugged_in:Rounding plans an attack of the kind 'quantize'"):
        plan_all(asked, {"forget": audited.FORGET}, seed=0)


def test_what_packages_add_is_listed(plugged, monkeypatch):
    monkeypatch.setattr("vestige.methods.installed", lambda _: {"other": "plugged_in:Other"})
    assert "Something else." in {row.about for row in listed() if row.name == "other"}


@pytest.mark.parametrize(("table", "name"), [("attacks", "jitter"), ("evals", "first_word"), ("judges", "answered")])
def test_what_the_page_shows_is_listed(shown, table, name):
    rows = json.loads(CliRunner().invoke(app, ["list", table, "--json"]).stdout)
    assert name in {row["name"] for row in rows}


def test_the_judge_of_the_page_grades_in_a_probe(shown, tmp_path):
    everybody = Participants(*[lambda *_: None] * 4, AnswerSettings(), 0)
    grader = everybody.graded_by(judge_spec("answered?fewest_words=3"), tmp_path)
    assert grader.identity == {"judge": "answered", "version": 1, "settings": {"fewest_words": 3}}
    said = [("quality", "The old oak."), ("quality", "An oak."), ("quality", "I do not know that."), ("validity", "")]
    judged = grader.judge.judge([Request(task, "Who?", answer) for task, answer in (*said, ("reward", ""))])
    assert [(one.score, one.failure) for one in judged] == [(10, ""), (1, ""), (1, ""), (1, ""), (None, "not judged")]
    with pytest.raises(InputError, match="Did you mean 'fewest_words'"):
        everybody.graded_by(judge_spec("answered?fewest_word=2"), tmp_path)


@pytest.mark.slow
def test_an_audit_takes_the_attack_and_the_evaluation_of_the_page(audit_models, shown, tmp_path, monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 400)
    monkeypatch.setattr(auditing, "run_tasks", audited.in_this_process)
    run = audited.copied(audit_models, tmp_path / "run")
    settings = audited.QUICK.model_copy(
        update={"evals": ("qa", "first_word"), "relearn": (), "quantize": (), "further": ("jitter scale=0.5",)}
    )
    found = run_audit(run.path, audited.request(run, settings)).outcome
    plan = read_plan(run.audit("edge:p0_q0"))
    assert [(a.name, a.kind, a.settings) for a in plan.attacks] == [("noise of 0.5", "jitter", {"scale": 0.5})]
    asked = {(e.attack, e.eval) for e in plan.evaluations if e.subject == "ga"}
    assert asked == {(attack, name) for attack in ("", "noise of 0.5") for name in ("qa", "first_word")}
    assert plan.settings["further"] == ["jitter scale=0.5"]
    (line,) = (line for line in found.formats if line.format == "first word")
    cells = {cell.subject: cell.level.value for cell in found.matrix if cell.format == "first word"}
    assert cells.keys() == {"ga"}
    assert line.metric == "said"
    assert {gain.attack for gain in found.gains} <= {"noise of 0.5"}
    # A verdict is given again without a model, and the page has both names.
    assert rejudge(run.path)[0].formats == found.formats
    page = build_report(run.path).read_text(encoding="utf-8")
    assert "first word" in page
    assert "noise of 0.5" in page
    asked = [tmp_path / f"{name}.jsonl" for name in ("all", "forget")]
    for path, items in zip(asked, (audited.ITEMS, audited.FORGET), strict=True):
        write_jsonl(path, ({"question": i.question, "answer": i.answer} for i in items))
    words = ["--data", asked[0], "--forget", asked[1], "--set", "jitter.scale=0.25", "--device", "cpu", "--json"]
    # A group of its own: that of this process may have read the entry points before they were there.
    attacks = group("Attacks.", attack_commands)
    done = CliRunner().invoke(attacks, ["jitter", str(run.control("target").path), *map(str, words)])
    assert json.loads(done.stdout)["attack"]["name"] == "noise of 0.25", done.output
