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


def outputs(name):
    """The text outputs of a notebook's code cells as they are stored."""
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    shown = [output for cell in cells if cell["cell_type"] == "code" for output in cell["outputs"]]
    assert all(output["output_type"] != "error" for output in shown)
    return ["".join(output.get("text") or output["data"]["text/plain"]) for output in shown]


def test_the_compared_methods_differ_in_the_stored_outputs():
    (table,) = [text for text in outputs("compare_methods") if text.startswith("split")]
    rows = {words[0]: tuple(map(float, words[1:])) for words in map(str.split, table.splitlines()[2:])}
    methods = {name: scores for name, scores in rows.items() if name not in {"target", "retrained"}}
    assert len(methods) == 3
    assert len(set(methods.values())) == 3
    forget, retain = zip(*methods.values(), strict=True)
    assert max(forget) - min(forget) > 0.2
    assert max(retain) - min(retain) > 0.2
    assert min(rows["target"]) > max(forget)
