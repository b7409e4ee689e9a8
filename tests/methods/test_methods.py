"""Contract tests over the whole table of methods."""

import importlib
import inspect
import math
from pathlib import Path

import pytest
import torch
from fake_step import FakeStep, fake_step

import vestige.methods
from vestige.core.errors import InputError
from vestige.methods import METHODS, PRESETS, Preset, build_method, find_method
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
    shared = {"__init__", "base", "imitate", "listing", "steering"}
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


def test_a_preset_is_its_method_with_other_defaults_which_words_win_over(monkeypatch):
    gakl = find_method("gakl")
    assert issubclass(gakl, KL)
    assert (gakl.needs, gakl.version, gakl.paper) == (KL.needs, KL.version, KL.paper)
    assert {name: find_method(name)().identity() for name in PRESETS} == {"gakl": {"kl_weight": 1.0}}
    assert build_method("gakl", {"kl_weight": 2.0}).identity() == {"kl_weight": 2.0}
    step = fake_step()
    assert {k: v.item() for k, v in gakl().terms(step).items()} == {k: v.item() for k, v in KL().terms(step).items()}
    # Another default, and the method's own refusals: the preset above happens to have the method's default.
    monkeypatch.setitem(PRESETS, "npo_sharp", Preset("npo", {"beta": 2.0}, "for this test", "no paper"))
    assert find_method("npo_sharp")().identity() == {"beta": 2.0}
    assert find_method("npo")().identity() == {"beta": 0.1}
    with pytest.raises(InputError, match="greater than 0"):
        build_method("npo_sharp", {"beta": 0})


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
