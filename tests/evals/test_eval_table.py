"""The table of evaluations: its modules have the names that the protocol demands, and the room holds no others."""

import inspect
from pathlib import Path

import pytest

import vestige.evals
from vestige.core.errors import InputError
from vestige.core.settings import Settings
from vestige.evals import EVALS, eval_module, find_eval
from vestige.evals.base import Evaluation

SHARED_FILES = {"__init__", "base", "bench_table", "harness", "mt_bench", "readings", "summing", "wordings"}
FUNCTIONS = {name for name, value in vars(Evaluation).items() if inspect.isfunction(value) and not name.startswith("_")}


def test_the_protocol_has_the_functions_that_are_compared_here():
    assert {"asked", "digest", "chunks", "collect", "score", "summarize"} == FUNCTIONS


@pytest.mark.parametrize("name", EVALS)
def test_every_evaluation_fulfils_the_protocol(name):
    module = find_eval(name)
    assert name == module.NAME
    assert issubclass(module.SETTINGS, Settings)
    module.SETTINGS()
    assert {type(module.COLLECT_VERSION), type(module.SUMMARY_VERSION)} == {int}
    for function in FUNCTIONS:
        wanted = list(inspect.signature(getattr(Evaluation, function)).parameters.values())[1:]
        own = inspect.signature(getattr(module, function)).parameters.values()
        assert [p.kind for p in own] == [p.kind for p in wanted], function
    assert (module.__doc__ or "").startswith(f"`{name}`: ")


def test_the_folder_and_the_table_agree():
    files = {p.stem for p in Path(vestige.evals.__file__).parent.glob("*.py")}
    assert files - SHARED_FILES == {eval_module(name).rpartition(".")[2] for name in EVALS}


def test_an_unknown_evaluation_is_refused_with_a_hint():
    with pytest.raises(InputError, match="unknown evaluation 'choice'; did you mean 'choices'"):
        find_eval("choice")
