"""Contract tests over the whole table of methods, and their pages: generated as it stands, and code that runs."""

import importlib
import inspect
import math
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from fake_step import FakeStep, fake_step

import vestige.methods
from launched import launched
from vestige.core.errors import InputError
from vestige.core.settings import described
from vestige.methods import METHODS, build_method, find_method, listed
from vestige.methods.base import AsksTarget, FromStart, Method, ScalesUpdate
from vestige.methods.kl import KL
from vestige.training.step import KeepsState, Needs, ReadsLayer

TRAINED = sorted(set(METHODS) - {"none"})


@pytest.fixture(params=TRAINED)
def method(request):
    return find_method(request.param)()


def step_for(method, **how) -> FakeStep:
    return fake_step(**how, state=method.start() if isinstance(method, KeepsState) else None)


def test_defaults_suffice_and_terms_are_finite_with_a_gradient(method):
    step = step_for(method)
    loss = sum(method.terms(step).values())
    loss.backward()
    assert loss.shape == ()
    assert math.isfinite(loss.item())
    needs = method.needs
    read = [step.policy_logp[s] for s in needs.of_logits] + [step.hidden[s] for s in needs.activations]
    assert read
    for leaf in read:
        assert leaf.grad is not None
        assert torch.isfinite(leaf.grad).all()
        assert leaf.grad.abs().sum() > 0


def test_what_is_declared_is_what_is_used(method):
    step = step_for(method)
    method.terms(step)
    needs = method.needs
    declared = {
        "policy": needs.policy,
        "reference": needs.reference,
        "policy distributions": needs.distributions | needs.policy_distributions,
        "reference distributions": needs.distributions,
        "activations": needs.activations,
        "reference activations": needs.reference_activations,
        "answer ids": needs.answer_ids,
    }
    assert step.asked == {(what, split) for what, splits in declared.items() for split in splits}


def test_padding_changes_no_term(method):
    plain, padded = method.terms(step_for(method)), method.terms(step_for(method, padding=3))
    for name, value in plain.items():
        torch.testing.assert_close(padded[name], value)


def test_parts_of_a_batch_add_up_to_the_whole_in_terms_and_in_what_is_observed(method):
    steps = [step_for(method, rows=slice(i, i + 1)) for i in range(2)]
    parts, step = [method.terms(part) for part in steps], step_for(method)
    for name, value in method.terms(step).items():
        torch.testing.assert_close(parts[0][name] + parts[1][name], value)
    assert step.observed == {
        name: pytest.approx(sum(part.observed[name] for part in steps)) for name in steps[0].observed
    }


def test_settings_are_strict(method):
    with pytest.raises(InputError, match="unknown key 'betta'"):
        type(method).build({"betta": 1}, where="method")


def test_settings_survive_the_record_of_what_was_asked(method):
    assert type(method).build(method.identity(), where="method") == method


@pytest.mark.parametrize("name", METHODS)
def test_each_method_says_its_paper_and_version_and_fulfils_its_roles(name):
    method = find_method(name)()
    assert isinstance(method, Method)
    assert method.version >= 1
    assert len(method.paper) > 10
    assert isinstance(method.needs, Needs)
    assert inspect.getdoc(type(method))
    assert isinstance(method, ReadsLayer) == bool(method.needs.activations)
    assert isinstance(method, AsksTarget) == ("alternative" in method.needs.splits)
    assert isinstance(method, KeepsState) == (name in {"pdu", "rr"})
    assert isinstance(method, ScalesUpdate) == (name == "task_arithmetic")
    assert isinstance(method, FromStart) == (name == "retrain")


def test_none_reads_nothing_and_minimises_nothing():
    step = fake_step()
    assert find_method("none")().terms(step) == {}
    assert step.asked == set()
    assert find_method("none").needs == Needs()


def test_folder_and_table_agree_and_files_stay_short():
    folder = Path(vestige.methods.__file__).parent
    # imitate is an objective of finetuning and no method of unlearning.
    shared = {"__init__", "base", "imitate", "steering"}
    files = {p.stem: len(p.read_text().splitlines()) for p in folder.glob("*.py") if p.stem not in shared}
    assert set(files) == set(METHODS)
    assert {name: lines for name, lines in files.items() if lines > 40} == {}
    for name, target in METHODS.items():
        module, _, attribute = target.partition(":")
        assert module == f"vestige.methods.{name}"
        assert attribute in vars(importlib.import_module(module))


def test_an_unknown_method_is_named_with_the_nearest():
    with pytest.raises(InputError, match=r"unknown method 'gaa'\. Did you mean 'ga'"):
        find_method("gaa")


def test_gakl_is_kl_under_another_name():
    assert find_method("gakl") is KL
    assert build_method("gakl", {}).identity() == {"kl_weight": 1.0}


def test_settings_that_a_method_has_not_are_refused_with_its_name():
    with pytest.raises(InputError, match="method gakl: unknown key 'beta'"):
        build_method("gakl", {"beta": 1})


def test_a_method_of_another_package_is_found_by_module_and_class():
    assert find_method("vestige.methods.npo:NPO") is find_method("npo")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("vestige.methods.npo:NP0", "vestige.methods.npo holds no class 'NP0' that is a method"),
        ("vestige.methods.npo:losses", "holds no class 'losses' that is a method"),
        ("vestige.core.settings:Settings", "holds no class 'Settings' that is a method"),
        ("no.such.package:NPO", "No module named 'no'.*PYTHONPATH"),
        ("../npo:NPO", "unknown method '../npo:NPO'"),
        (":NPO", "unknown method ':NPO'"),
        ("npo:", "unknown method 'npo:'"),
    ],
)
def test_a_name_that_leads_to_no_method_is_refused_with_the_reason(name, words):
    with pytest.raises(InputError, match=words):
        find_method(name)


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


def test_every_method_is_listed_with_what_it_needs_and_its_paper():
    rows = {row.name: row for row in listed()}
    assert set(rows) == {*METHODS}
    assert all(row.about and row.needs and row.paper for row in rows.values())
    assert rows["rmu"].needs == "forget, retain, activations, reference"
    assert rows["kl"].needs == "forget, retain, reference"
    assert rows["none"].needs == "nothing"


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
