"""The table of evaluations: what a class of it has to have, and that the room holds no others."""

import sys
from pathlib import Path

import pytest

import vestige.evals
from vestige.core.errors import InputError
from vestige.evals import EVALS, eval_home, find_eval


@pytest.mark.parametrize("name", EVALS)
def test_every_evaluation_can_be_built_without_settings_and_says_what_it_is(name):
    evaluation = find_eval(name)
    assert evaluation().name == name
    assert f"`{name}`: " in (sys.modules[evaluation.__module__].__doc__ or "")


def test_the_folder_and_the_table_agree():
    files = {p.stem for p in Path(vestige.evals.__file__).parent.glob("*.py")}
    homes = {eval_home(name).partition(":")[0].rpartition(".")[2] for name in EVALS}
    assert files == {"__init__", "base", *homes}


def test_an_unknown_evaluation_is_refused_with_a_hint():
    with pytest.raises(InputError, match=r"unknown evaluation 'choice'\. Did you mean 'choices'"):
        find_eval("choice")
