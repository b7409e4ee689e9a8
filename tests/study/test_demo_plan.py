import pytest

from vestige.artifacts.layout import RunFolder
from vestige.core.errors import InputError
from vestige.study.demo import DemoSettings, demo_tasks, run_demo


def test_everything_waits_for_what_it_needs(tmp_path):
    tasks = {t.name: t for t in demo_tasks(RunFolder(tmp_path), DemoSettings())}
    # compile, base, target, 2 retrained, 10 unlearned, and an evaluation of each of the 14 subjects.
    assert len(tasks) == 1 + 1 + 1 + 2 + 10 + 14
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


@pytest.mark.parametrize("settings", [{"epochs": 0}, {"max_new_tokens": -1}, {"methods": []}, {"forget": []}])
def test_settings_that_mean_nothing_are_refused(settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        DemoSettings.build(settings)
