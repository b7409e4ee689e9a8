"""From `--evals` and `--set` to the settings of each evaluation."""

import subprocess
import sys

import pytest

from vestige.cli.command import Given, assigned
from vestige.cli.options import eval_names, evals_from
from vestige.core.errors import InputError
from vestige.core.text import value_in


def settings(evals, *assignments):
    given = Given({key: value_in(text) for key, text in assigned(assignments).items()})
    return evals_from(given, eval_names(evals), max_new_tokens=9, pistol=True)


def test_each_evaluation_gets_its_own_words_and_what_is_shared():
    found = settings("qa, choices,reversed", "choices.orders=cyclic", "reversed.options=3")
    assert list(found) == ["qa", "choices", "reversed"]
    assert (found["qa"].max_new_tokens, found["choices"].max_new_tokens, found["qa"].pistol) == (9, 9, True)
    assert (found["choices"].orders, found["choices"].options, found["reversed"].options) == ("cyclic", 4, 3)


@pytest.mark.parametrize(
    ("evals", "assignments", "complaint"),
    [
        ("choice", [], "unknown evaluation 'choice'; did you mean 'choices'"),
        (" , ", [], "--evals names no evaluation"),
        ("qa", ["choices.options=3"], r"choices.options is a setting of choices; add choices to --evals"),
        ("qa", ["chocies.options=3"], "unknown key 'chocies.options'"),
        ("choices", ["choices.option=3"], "settings of the evaluation choices: unknown key 'option'; did you mean"),
        ("choices", ["choices.options=1"], "options = 1"),
        ("freeform", ['freeform.forms=["rhyme"]'], "freeform"),
    ],
)
def test_what_names_nothing_is_refused(evals, assignments, complaint):
    with pytest.raises(InputError, match=complaint):
        settings(evals, *assignments)


def test_an_unknown_evaluation_is_refused_before_torch_is_imported():
    words = ["evaluate", "m", "--data", "none.jsonl", "--evals", "foo"]
    script = f"import sys; sys.argv[1:] = {words}; from vestige.cli.app import run; run()"
    code = f"""try:
    exec({script!r})
finally:
    print("torch" in sys.modules)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "False\n")
    assert "unknown evaluation 'foo'" in done.stderr
