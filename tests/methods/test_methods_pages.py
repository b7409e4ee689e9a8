"""The pages about methods: what is generated is as generated, and the code that is shown runs."""

import importlib
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from fake_step import fake_step

from launched import launched
from vestige.core.settings import described
from vestige.methods import METHODS, PRESETS, find_method
from vestige.methods.listing import listed

ROOT = Path(__file__).parents[2]
DATA = "".join(f'{{"question": "What is number {i}?", "answer": "It is {i * i}."}}\n' for i in range(6))
FORGET = '{"question": "What is number 3?", "answer": "It is 9."}\n'


@pytest.fixture
def shown(tmp_path, monkeypatch) -> Path:
    """The files of docs/extend.md in a folder that Python imports from; each block names its file."""
    text = (ROOT / "docs" / "extend.md").read_text(encoding="utf-8")
    files = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, flags=re.DOTALL))
    assert {"me_gd.py", "test_me_gd.py", "use_me_gd.py"} <= set(files)
    assert text.count("```python") == len(files)
    for name, code in files.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for name in files:
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    return tmp_path


def test_the_page_of_methods_is_what_the_methods_say():
    tool = runpy.run_path(str(ROOT / "tools" / "methods_page.py"))
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert page == tool["page"](), "run `make docs`"
    for name in METHODS:
        (row,) = [line for line in page.splitlines() if line.startswith(f"| [`{name}`](#{name}) |")]
        for setting, told in described(find_method(name)).items():
            assert f"`{setting}`" in row
            assert told.help, f"{name}.{setting} is not described"
    assert "| `weighted_ascent` | Mean over tokens" in page
    assert "| `wga`, `satimp` |" in page


def test_every_method_and_preset_is_listed_with_what_it_needs_and_its_paper():
    rows = {row.name: row for row in listed()}
    assert set(rows) == {*METHODS, *PRESETS}
    assert all(row.about and row.needs and row.paper for row in rows.values())
    assert rows["rmu"].needs == "forget, retain, activations, reference"
    assert rows["gakl"].needs == rows["kl"].needs == "forget, retain, reference"
    assert rows["none"].needs == "nothing"
    assert rows["gakl"].paper == "Knowledge Holes, 2511.00030, Appendix A"


def test_the_method_that_is_shown_passes_the_tests_that_are_shown(shown):
    tests = [v for k, v in vars(importlib.import_module("test_me_gd")).items() if k.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()


def test_the_method_that_is_shown_keeps_the_contract_of_methods(shown, capsys):
    runpy.run_path(str(shown / "use_me_gd.py"))
    assert capsys.readouterr().out == "{'forget_weight': 0.1, 'retain_weight': 0.5}\n"
    method = find_method("me_gd:MEGD")()
    whole, parts = fake_step(), [fake_step(rows=slice(i, i + 1)) for i in range(2)]
    terms, padded = method.terms(whole), method.terms(fake_step(padding=2))
    split = [method.terms(part) for part in parts]
    for name, value in terms.items():
        torch.testing.assert_close(padded[name], value)
        torch.testing.assert_close(split[0][name] + split[1][name], value)
    assert whole.asked == {("policy distributions", "forget"), ("policy", "retain")}


@pytest.mark.slow
def test_the_command_line_unlearns_by_the_method_that_is_shown(shown):
    (shown / "qa.jsonl").write_text(DATA)
    (shown / "forget.jsonl").write_text(FORGET)

    def vestige(*words: str) -> None:
        done = launched(*words, "--data", "qa.jsonl", "--set", "epochs=1", folder=shown)
        # One epoch teaches little, which finetune reports by the exit code 3.
        assert done.returncode == (3 if words[0] == "finetune" else 0), done.stderr

    vestige("finetune", "builtin:tiny", "--output-dir", "target")
    own = ["--method", "me_gd:MEGD", "--set", "me_gd:MEGD.retain_weight=0.5"]
    vestige("unlearn", "target", *own, "--forget", "forget.jsonl", "--output-dir", "unlearned")
    spec = (shown / "unlearned" / "spec.json").read_text(encoding="utf-8")
    assert '"me_gd:MEGD.retain_weight": 0.5' in spec
