"""From `--evals` and `--set` to the settings of each evaluation."""

import subprocess
import sys

import pytest
from tests.small import vestige

from vestige.api.selection import evaluations
from vestige.core.errors import InputError


def test_each_evaluation_gets_its_own_words_and_the_shared_ones():
    asked = {"qa": {}, "choices": {"orders": "cyclic"}, "reversed": {"options": 3}}
    found = evaluations(asked, max_new_tokens=9)
    assert list(found) == ["qa", "choices", "reversed"]
    assert (found["qa"].max_new_tokens, found["choices"].max_new_tokens) == (9, 9)
    assert (found["choices"].orders, found["choices"].options, found["reversed"].options) == ("cyclic", 4, 3)
    assert evaluations([found["choices"], "qa"])["choices"].orders == "cyclic"


@pytest.mark.parametrize(
    ("evals", "assignments", "complaint"),
    [
        ("choice", [], "unknown evaluation 'choice'. Did you mean 'choices'"),
        (" , ", [], "--evals names no evaluation"),
        ("qa", ["choices.options=3"], r"choices.options is a setting of choices. Add choices to --evals"),
        ("qa", ["chocies.options=3"], "unknown key 'chocies.options'"),
        ("choices", ["choices.option=3"], "unknown key 'choices.option'. Did you mean 'choices.options'"),
        ("choices", ["choices.options=1"], "options = 1"),
        ("freeform", ['freeform.forms=["rhyme"]'], "freeform"),
    ],
)
def test_names_and_settings_that_do_not_exist_are_refused(evals, assignments, complaint, tmp_path):
    data = tmp_path / "qa.jsonl"
    data.write_text('{"question": "Who?", "answer": "Nobody."}\n')
    words = [word for assignment in assignments for word in ("--set", assignment)]
    with pytest.raises(InputError, match=complaint):
        vestige("evaluate", "m", "--data", data, "--evals", evals, *words)


def test_an_unknown_evaluation_is_refused_before_torch_is_imported():
    words = ["evaluate", "m", "--data", "none.jsonl", "--evals", "foo"]
    script = f"import sys; sys.argv[1:] = {words}; from vestige.cli.app import run; run()"
    code = f"""try:
    exec({script!r})
finally:
    print("torch" in sys.modules)"""
    # The table of settings is in the cache by now, as for whoever has run a command before.
    vestige("evaluate", "--help")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "False\n")
    assert "unknown evaluation 'foo'" in done.stderr


def test_a_mistake_in_the_data_is_named_before_torch_is_imported():
    vestige("evaluate", "--help")
    code = "import sys\nfrom vestige.cli.app import run\ntry:\n    run()\nfinally:\n    print('torch' in sys.modules)"
    for words in (["evaluate", "m"], ["finetune", "m", "--output-dir", "out"]):
        command = [sys.executable, "-c", code, *words, "--data", "none.jsonl"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, "False\n")
        assert "none.jsonl" in done.stderr
