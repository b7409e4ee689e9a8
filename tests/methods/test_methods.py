"""Contract tests over the whole table, and a worked number for each method."""

import importlib
import inspect
import math
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

import vestige.methods
from vestige.core.errors import InputError
from vestige.methods import METHODS, find_method
from vestige.training.step import Answers, Distributions, Needs

TOKENS = {"forget": [3, 1], "retain": [2, 4], "idk": [2, 2]}
"""Answer lengths by split, two rows each."""


@dataclass
class FakeStep:
    """Log-probabilities that the test chooses; keeps what was asked for."""

    policy_logp: dict[str, torch.Tensor]
    reference_logp: dict[str, torch.Tensor]
    padding: int = 0
    asked: set[tuple[str, str]] = field(default_factory=set)

    def _answers(self, values, split):
        width = max(TOKENS[split])
        mask = torch.tensor([[i < n for i in range(width)] for n in TOKENS[split]])
        logp = torch.nn.functional.pad(values[split], (0, self.padding), value=math.nan)
        return Answers(logp, torch.nn.functional.pad(mask, (0, self.padding)), 2, sum(TOKENS[split]))

    def policy(self, split):
        self.asked.add(("policy", split))
        return self._answers(self.policy_logp, split)

    def reference(self, split):
        self.asked.add(("reference", split))
        return self._answers(self.reference_logp, split)

    def _distributions(self, values, split):
        answers = self._answers(values, split)
        # Two tokens: the answer's, and everything else.
        p = answers.logp.exp()
        whole = torch.stack([p, 1 - p], dim=-1).log()
        return Distributions(whole, answers.mask, answers.n_tokens)

    def policy_distributions(self, split):
        self.asked.add(("distributions", split))
        return self._distributions(self.policy_logp, split)

    def reference_distributions(self, split):
        self.asked.add(("distributions", split))
        return self._distributions(self.reference_logp, split)


def fake_step(padding: int = 0, *, at_reference: bool = False) -> FakeStep:
    generator = torch.Generator().manual_seed(0)

    def draw():
        return {
            s: (torch.rand(2, max(n), generator=generator) * 0.8 + 0.1).log().requires_grad_()
            for s, n in TOKENS.items()
        }

    policy = draw()
    return FakeStep(policy, policy if at_reference else draw(), padding)


@pytest.fixture(params=sorted(METHODS))
def method(request):
    return find_method(request.param)()


def test_defaults_suffice_and_terms_are_finite_with_a_gradient(method):
    step = fake_step()
    loss = sum(method.terms(step).values())
    loss.backward()
    assert loss.shape == ()
    assert math.isfinite(loss.item())
    for split in method.needs.policy | method.needs.distributions:
        gradient = step.policy_logp[split].grad
        assert gradient is not None
        assert torch.isfinite(gradient).all()
        assert gradient.abs().sum() > 0


def test_what_is_declared_is_what_is_used(method):
    step = fake_step()
    method.terms(step)
    needs = method.needs
    declared = {("policy", s) for s in needs.policy} | {("reference", s) for s in needs.reference}
    assert step.asked == declared | {("distributions", s) for s in needs.distributions}


def test_padding_changes_no_term(method):
    plain, padded = method.terms(fake_step()), method.terms(fake_step(padding=3))
    for name, value in plain.items():
        torch.testing.assert_close(padded[name], value)


def test_settings_are_strict(method):
    with pytest.raises(InputError, match="unknown key 'betta'"):
        type(method).build({"betta": 1}, where="method")


def test_each_method_says_its_paper_and_version(method):
    assert method.version >= 1
    assert len(method.paper) > 10
    assert isinstance(method.needs, Needs)
    assert inspect.getdoc(type(method))


def test_folder_and_table_agree_and_files_stay_short():
    folder = Path(vestige.methods.__file__).parent
    files = {p.stem: p for p in folder.glob("*.py") if p.stem not in {"__init__", "base"}}
    assert set(files) == set(METHODS)
    assert {name: len(p.read_text().splitlines()) for name, p in files.items() if len(p.read_text().splitlines()) > 40} == {}
    for name, target in METHODS.items():
        module, _, attribute = target.partition(":")
        assert module == f"vestige.methods.{name}"
        assert attribute in vars(importlib.import_module(module))


def test_an_unknown_method_is_named_with_the_nearest():
    with pytest.raises(InputError, match="unknown method 'gaa'; did you mean 'ga'"):
        find_method("gaa")


def worked(**rows):
    """A step whose log-probabilities are given row by row."""
    def tensors(name):
        return {
            s: torch.nn.utils.rnn.pad_sequence([torch.tensor(r) for r in rows[f"{name}_{s}"]], batch_first=True)
            for s in TOKENS
            if f"{name}_{s}" in rows
        }

    return FakeStep(tensors("policy"), tensors("reference"))


def test_ga_by_hand():
    # Tokens -1 -1 -1 | -5: NLL 8/4 = 2, ascended.
    step = worked(policy_forget=[[-1.0, -1.0, -1.0], [-5.0]])
    assert find_method("ga")().terms(step)["forget"].item() == pytest.approx(-2.0)


def test_gd_by_hand():
    # Retain tokens -1 -1 | -.5 * 4: (2 + 2) / 6 = .6667, times the weight 3.
    step = worked(policy_forget=[[-1.0, -1.0, -1.0], [-5.0]], policy_retain=[[-1.0, -1.0], [-0.5] * 4])
    terms = find_method("gd").build({"retain_weight": 3.0}).terms(step)
    assert terms["forget"].item() == pytest.approx(-2.0)
    assert terms["retain"].item() == pytest.approx(2.0)


def test_idk_gd_takes_each_mean_over_its_own_tokens():
    # IDK (2 * 1 + 2 * 3) / 4 = 2; retain 4/6: TOFU's one mean over both would be 12/10.
    step = worked(policy_idk=[[-1.0, -1.0], [-3.0, -3.0]], policy_retain=[[-1.0, -1.0], [-0.5] * 4])
    terms = find_method("idk_gd")().terms(step)
    assert terms["idk"].item() == pytest.approx(2.0)
    assert terms["retain"].item() == pytest.approx(4 / 6)


def test_kl_by_hand():
    # Policy .25, reference .5 at each of six positions: .5 ln 2 + .5 ln(.5/.75) = .143841.
    quarter, half = math.log(0.25), math.log(0.5)
    step = worked(
        policy_forget=[[-1.0, -1.0, -1.0], [-5.0]],
        policy_retain=[[quarter] * 2, [quarter] * 4],
        reference_retain=[[half] * 2, [half] * 4],
    )
    terms = find_method("kl")().terms(step)
    assert terms["forget"].item() == pytest.approx(-2.0)
    assert terms["kl"].item() == pytest.approx(0.143841, abs=1e-6)


def test_dpo_by_hand():
    # IDK sums -8 against -10, answers -12 against -9 in both rows: ln(1 + e^-.5) = .474077.
    step = worked(
        policy_idk=[[-4.0, -4.0]] * 2,
        reference_idk=[[-5.0, -5.0]] * 2,
        policy_forget=[[-4.0, -4.0, -4.0], [-12.0]],
        reference_forget=[[-3.0, -3.0, -3.0], [-9.0]],
    )
    assert find_method("dpo")().terms(step)["dpo"].item() == pytest.approx(0.474077, abs=1e-6)


def test_dpo_at_the_reference_is_ln_2():
    terms = find_method("dpo")().terms(fake_step(at_reference=True))
    assert terms["dpo"].item() == pytest.approx(math.log(2))
