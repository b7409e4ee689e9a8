"""The notebooks of the handbook, cell by cell, with a smaller model in the place of the built-in one."""

import ast
import json
from pathlib import Path

import pytest
from tests.small import nano

NOTEBOOKS = Path(__file__).parents[2] / "docs" / "notebooks"


def run(code, names):
    """What a notebook does with a cell: its last expression is shown."""
    *body, last = ast.parse(code).body
    if not isinstance(last, ast.Expr):
        body, last = [*body, last], None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        show = getattr(value, "_repr_html_", None)
        return show() if show else repr(value)
    return ""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shown"), [("first_audit", "not expressed"), ("compare_methods", "retain")])
def test_every_cell_runs_and_the_answer_is_shown(name, shown, tmp_path, monkeypatch, few_resamples):
    monkeypatch.chdir(tmp_path)
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    names = {}
    with nano():
        out = [run("".join(cell["source"]), names) for cell in cells if cell["cell_type"] == "code"]
    assert any(shown in text for text in out)
