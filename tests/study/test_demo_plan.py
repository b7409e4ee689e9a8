import pytest

from vestige.artifacts.layout import RunFolder
from vestige.core.errors import InputError
from vestige.study.demo import DemoSettings, demo_tasks, run_demo
from vestige.study.presets import TINY_AUDIT, TINY_RATES


def test_everything_waits_for_what_it_needs(tmp_path):
    tasks = {t.name: t for t in demo_tasks(RunFolder(tmp_path), DemoSettings())}
    # compile, base, target, 3 retrained, 4 unlearned, and an evaluation of each of the 9 subjects; the audit is planned
    # when they are there.
    assert len(tasks) == 1 + 1 + 1 + 3 + 4 + 9
    controls = ["retrained edge:A_B", "retrained edge:A_B seed 1", "retrained edge:A_B seed 2"]
    assert [tasks[name].arguments["seed"] for name in ("target", *controls)] == [0, 0, 1, 2]
    assert tasks["kl edge:A_B"].after == ("target",)
    assert tasks["evaluate kl edge:A_B"].after == ("kl edge:A_B",)
    assert all(a in tasks for t in tasks.values() for a in t.after)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"methods": ["gaa"]}, "no learning rate for the method 'gaa'; did you mean 'ga'"),
        ({"forget": ["edge:A_Z"]}, "no edge 'A_Z' in sample1"),
        ({"graph": "nosuch"}, "nosuch"),
    ],
)
def test_what_would_fail_late_is_refused_before_anything_is_made(tmp_path, settings, message):
    with pytest.raises(InputError, match=message):
        run_demo(RunFolder(tmp_path / "run"), DemoSettings.build(settings), workers=1)
    assert not (tmp_path / "run" / "data").exists()


def test_the_demos_audit_is_that_of_the_tiny_model_with_what_was_set():
    whole = DemoSettings().audit()
    assert whole == TINY_AUDIT
    assert (whole.relearn_rank, whole.relearn_rate) == (0, 5e-4)
    assert DemoSettings(quantize=(4,), max_new_tokens=8).audit() == TINY_AUDIT.model_copy(
        update={"quantize": (4,), "max_new_tokens": 8}
    )


def test_the_demo_compares_the_four_methods_of_the_paper():
    assert DemoSettings().methods == ("ga", "gd", "kl", "dpo")
    assert set(DemoSettings().methods) <= set(TINY_RATES)


@pytest.mark.parametrize("settings", [{"epochs": 0}, {"max_new_tokens": -1}, {"methods": []}, {"forget": []}])
def test_settings_that_mean_nothing_are_refused(settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        DemoSettings.build(settings)
