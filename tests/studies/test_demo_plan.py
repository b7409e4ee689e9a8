import pytest

from vestige.artifacts.layout import RunFolder
from vestige.auditing.request import questions_of
from vestige.core.errors import InputError
from vestige.studies.demo import Demo, DemoSettings, run_demo
from vestige.studies.presets import TINY_AUDIT


def test_seeds_go_on_from_the_demos_own(tmp_path):
    asked = DemoSettings(seed=7, controls=2, forget=("edge:A_B", "edge:A_C"))
    tasks = {t.name: t for t in Demo(RunFolder(tmp_path), asked).tasks()}
    for forget in asked.forget:
        names = [f"retrained {forget}", f"retrained {forget} seed 8", f"retrained {forget} seed 9"]
        assert [tasks[name].arguments["seed"] for name in names] == [7, 8, 9]
    without = Demo(RunFolder(tmp_path), asked.model_copy(update={"reference": False})).tasks()
    assert not any(t.name.endswith("seed 9") for t in without)


def test_one_more_retrained_model_stands_among_the_unlearned_ones(tmp_path, monkeypatch):
    settings = DemoSettings(graph="chain:4", forget=("edge:0_1,edge:1_2",), methods=("ga",), controls=2)
    run = RunFolder(tmp_path)
    demo = Demo(run, settings)
    demo.compile(lambda _: None)
    monkeypatch.setattr(Demo, "unlearning", lambda *_: None)
    monkeypatch.setattr(Demo, "cell", lambda self, _: self.run.cell("ga", "0"))
    request = demo.audit(settings.forget[0])
    roles = {role: request.names(role) for role in ("target", "retrained", "unlearned")}
    assert roles == {
        "target": ("target",),
        "retrained": ("retrained edge:0_1,edge:1_2", "retrained edge:0_1,edge:1_2 seed 1"),
        "unlearned": ("retrained", "ga"),
    }
    # No format goes for want of options: compiled items have five wrong answers.
    questions = questions_of(request)
    choices = next(q for q in questions.evaluations if q.eval == "choices")
    assert choices.settings.options == TINY_AUDIT.options
    assert not any("choices" in why.lower() for why in questions.left_out)
    judged = next(m.model for m in request.models if m.name == "retrained")
    assert judged == str(run.control("retrained edge:0_1,edge:1_2 seed 2").path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"methods": ["gaa"]}, "no learning rate for the method 'gaa'; did you mean 'ga'"),
        ({"forget": ["edge:A_Z"]}, "no edge 'A_Z' in sample1"),
        ({"graph": "nosuch"}, "nosuch"),
        ({"epochs": 0}, "epochs = 0"),
        ({"max_new_tokens": -1}, "max_new_tokens = -1"),
        ({"methods": []}, "methods = "),
        ({"forget": []}, "forget = "),
    ],
)
def test_what_would_fail_late_is_refused_before_anything_is_made(tmp_path, settings, message):
    with pytest.raises(InputError, match=message):
        run_demo(RunFolder(tmp_path / "run"), DemoSettings.build(settings), workers=1)
    assert not (tmp_path / "run" / "data").exists()


def test_the_demos_audit_is_that_of_the_tiny_model_with_what_was_set():
    whole = DemoSettings().audit()
    assert whole == TINY_AUDIT
    assert (whole.relearn_rank, whole.relearn_rate) == (0, 2e-4)
    assert DemoSettings(quantize=(4,), max_new_tokens=8).audit() == TINY_AUDIT.model_copy(
        update={"quantize": (4,), "max_new_tokens": 8}
    )
