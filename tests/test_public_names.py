"""`import vestige`: each public name loads from the home that type checkers are told, and signatures are typed."""

import inspect
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import vestige

USER = """
import vestige

vestige.unlearn("m", method="ga", data="d", forget="f", output_dir="o", lr=1e-4)
vestige.Training(lr=1e-4)
vestige.audit(target="t", unlearned="u", data="d", forget="f", margins=vestige.Margins(delta="x"))
vestige.attack("m", vestige.Relearn(items="many"), data="d", forget="f")
found = vestige.audit(
    target="t", unlearned=["u"], data=[{"question": "q", "answer": "a"}], forget="f", attacks=[vestige.Quantize(bits=4)]
)
word: str = found["u"].not_expressed.verdict
number: int = found.passed + found["u"].not_expressed.verdict
"""


def test_every_public_name_loads_and_none_is_loaded_before_it_is_used() -> None:
    assert vestige.__version__[0].isdigit()
    names = vars(vestige).get("__all__") or vestige.__getattr__("__all__")
    assert {"audit", "unlearn", "Audit", "InputError", "Margins"} <= set(names) == set(dir(vestige))
    for name in names:
        assert getattr(vestige, name) is not None
    said = "import sys, vestige; print(sorted(m for m in sys.modules if m.startswith('vestige.')))"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_signatures_are_types_at_run_time() -> None:
    for name in ("audit", "attack", "unlearn", "finetune", "evaluate", "plan", "probe", "check_data", "find_rate"):
        hints = typing.get_type_hints(getattr(vestige, name))
        assert hints["return"] is not None, name
    assert typing.get_type_hints(vestige.audit)["margins"] == vestige.Margins | None


def test_every_public_function_documents_its_arguments_result_errors_and_an_example() -> None:
    functions = [getattr(vestige, name) for name in dir(vestige) if inspect.isfunction(getattr(vestige, name))]
    assert len(functions) > 15
    for function in functions:
        text = inspect.getdoc(function) or ""
        before, *sections = re.split(r"^(?:Args|Returns|Raises|Example):$", text, flags=re.MULTILINE)
        assert before, function.__name__
        assert len(sections) == 4, function.__name__
        documented = re.findall(r"^    \*{0,2}(\w+):", sections[0], flags=re.MULTILINE)
        assert documented == list(inspect.signature(function).parameters), function.__name__


def test_a_misspelt_argument_is_refused_with_a_hint_in_words_of_python() -> None:
    given = {"data": "d", "forget": "f", "output_dir": "o"}
    with pytest.raises(ValueError, match=r"unlearn has no argument 'methd'\. Did you mean 'method'"):
        vestige.unlearn("m", methd="ga", **given)
    with pytest.raises(vestige.InputError, match=r"unknown key 'lr'\. Did you mean 'learning_rate'"):
        vestige.Training(lr=1e-4)
    with pytest.raises(ValueError, match="relearn_epochs = 'two': must be a whole number"):
        vestige.AuditSettings(relearn_epochs="two")
    with pytest.raises(vestige.InputError, match=r"^retain needs a forget set\. Add forget"):
        vestige.evaluate("m", data=[{"question": "q", "answer": "a"}], retain="r")


@pytest.mark.slow
def test_mypy_reports_the_mistakes_of_a_users_file_outside_the_source_tree(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(USER)
    words = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--disable-error-code=name-defined", "user.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("user.py:") and " error:" in line]
    assert {int(line.split(":")[1]) for line in lines} == {4, 5, 6, 7, 12}, done.stdout
    assert "lr" in lines[0]
    assert '"str"; expected "float"' in lines[2]
