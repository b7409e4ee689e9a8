"""Methods and evaluations that another installed package brings by its entry points."""

import sys

import pytest

from vestige.core.errors import InputError
from vestige.core.plugins import installed
from vestige.evals import find_eval
from vestige.methods import build_method, find_method
from vestige.methods.ga import GA
from vestige.methods.listing import listed

PLUGIN = """
from vestige.evals.qa import *
from vestige.evals.qa import NAME, COLLECT_VERSION, SUMMARY_VERSION
from vestige.evals.qa import QASettings as SETTINGS
from vestige.methods.gd import GD

class Other(GD):
    \"""Something else.\"""
"""
POINTS = """
[vestige.methods]
other = plugged_in:Other
ga = plugged_in:Other
gone = plugged_out:Other

[vestige.evals]
other = plugged_in
short = json
gone = plugged_out
"""


@pytest.fixture
def plugged(tmp_path, monkeypatch):
    info = tmp_path / "plugged_in-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged-in\nVersion: 1\n")
    (info / "entry_points.txt").write_text(POINTS)
    (tmp_path / "plugged_in.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    installed.cache_clear()
    yield
    installed.cache_clear()
    sys.modules.pop("plugged_in", None)


def test_a_package_adds_a_method_and_an_evaluation_under_names_of_its_own(plugged):
    assert find_method("other").__name__ == "Other"
    assert build_method("other", {"retain_weight": 0.5}).identity()["retain_weight"] == 0.5
    assert find_eval("other").NAME == "qa"


def test_no_package_changes_what_a_name_of_vestige_means(plugged):
    assert find_method("ga") is GA


def test_what_a_package_lacks_is_one_sentence(plugged):
    for find, name, said in [
        (find_method, "gone", "plugged_out"),
        (find_eval, "gone", "plugged_out"),
        (find_eval, "short", "json has no NAME"),
        (find_eval, "othr", "did you mean 'other'"),
    ]:
        with pytest.raises(InputError, match=said):
            find(name)


def test_what_packages_add_is_listed(plugged, monkeypatch):
    monkeypatch.setattr("vestige.methods.listing.installed", lambda _: {"other": "plugged_in:Other"})
    assert "Something else." in {row.about for row in listed() if row.name == "other"}
