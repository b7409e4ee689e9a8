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
    part: slice = field(default_factory=lambda: slice(None))
    asked: set[tuple[str, str]] = field(default_factory=set)

    def _answers(self, values, split):
        width = max(TOKENS[split])
        mask = torch.tensor([[i < n for i in range(width)] for n in TOKENS[split]])
        logp = torch.nn.functional.pad(values[split], (0, self.padding), value=math.nan)[self.part]
        return Answers(logp, torch.nn.functional.pad(mask, (0, self.padding))[self.part], 2, sum(TOKENS[split]))

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
        return Distributions(whole, answers.mask, answers.n_tokens, torch.zeros_like(answers.mask, dtype=torch.long))

    def policy_distributions(self, split):
        self.asked.add(("policy distributions", split))
        return self._distributions(self.policy_logp, split)

    def reference_distributions(self, split):
        self.asked.add(("reference distributions", split))
        return self._distributions(self.reference_logp, split)


def fake_step(padding: int = 0, *, rows: slice | None = None, at_reference: bool = False) -> FakeStep:
    generator = torch.Generator().manual_seed(0)

    def draw():
        return {
            s: (torch.rand(2, max(n), generator=generator) * 0.8 + 0.1).log().requires_grad_()
            for s, n in TOKENS.items()
        }

    policy = draw()
    return FakeStep(policy, policy if at_reference else draw(), padding, rows or slice(None))


@pytest.fixture(params=sorted(METHODS))
def method(request):
    return find_method(request.param)()


def test_defaults_suffice_and_terms_are_finite_with_a_gradient(method):
    step = fake_step()
    loss = sum(method.terms(step).values())
    loss.backward()
    assert loss.shape == ()
    assert math.isfinite(loss.item())
    for split in method.needs.of_logits:
        gradient = step.policy_logp[split].grad
        assert gradient is not None
        assert torch.isfinite(gradient).all()
        assert gradient.abs().sum() > 0


def test_what_is_declared_is_what_is_used(method):
    step = fake_step()
    method.terms(step)
    needs = method.needs
    declared = {
        "policy": needs.policy,
        "reference": needs.reference,
        "policy distributions": needs.distributions | needs.policy_distributions,
        "reference distributions": needs.distributions,
    }
    assert step.asked == {(what, split) for what, splits in declared.items() for split in splits}


def test_padding_changes_no_term(method):
    plain, padded = method.terms(fake_step()), method.terms(fake_step(padding=3))
    for name, value in plain.items():
        torch.testing.assert_close(padded[name], value)


def test_parts_of_a_batch_add_up_to_the_whole(method):
    parts = [method.terms(fake_step(rows=slice(i, i + 1))) for i in range(2)]
    for name, value in method.terms(fake_step()).items():
        torch.testing.assert_close(parts[0][name] + parts[1][name], value)


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
    assert {
        name: len(p.read_text().splitlines()) for name, p in files.items() if len(p.read_text().splitlines()) > 40
    } == {}
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


ANSWERS = {"policy_forget": [[-4.0, -4.0, -4.0], [-12.0]], "reference_forget": [[-4.0, -3.0, -3.0], [-10.0]]}
"""Sums -12 against -10 in both rows: NPO at beta .1 is 20 ln(1 + e^-.2) = 11.962777."""


def test_npo_by_hand():
    terms = find_method("npo")().terms(worked(**ANSWERS))
    assert {k: v.item() for k, v in terms.items()} == {"npo": pytest.approx(11.962777, abs=1e-5)}


def test_npo_gd_takes_the_token_mean_of_what_to_keep():
    # Retain tokens -1 -1 | -.5 * 4: 4 / 6 a token, times the weight 3.
    step = worked(**ANSWERS, policy_retain=[[-1.0, -1.0], [-0.5] * 4])
    terms = find_method("npo_gd").build({"retain_weight": 3.0}).terms(step)
    assert terms["npo"].item() == pytest.approx(11.962777, abs=1e-5)
    assert terms["retain"].item() == pytest.approx(2.0)


def test_npo_kl_takes_the_kl_of_the_reference_from_the_policy():
    # Policy .25, reference .5: .143841 as for `kl`; the other direction would be .25 ln .5 + .75 ln 1.5 = .130812.
    step = worked(
        **ANSWERS,
        policy_retain=[[math.log(0.25)] * 2, [math.log(0.25)] * 4],
        reference_retain=[[math.log(0.5)] * 2, [math.log(0.5)] * 4],
    )
    terms = find_method("npo_kl").build({"kl_weight": 2.0}).terms(step)
    assert terms["npo"].item() == pytest.approx(11.962777, abs=1e-5)
    assert terms["kl"].item() == pytest.approx(0.287682, abs=1e-6)


def test_npo_at_the_reference_is_20_ln_2():
    for name in ("npo", "npo_gd", "npo_kl"):
        assert find_method(name)().terms(fake_step(at_reference=True))["npo"].item() == pytest.approx(20 * math.log(2))


def test_simnpo_by_hand():
    # Means -3 and -3: 4.42345e-4 in both rows, times the weight .1375 of the released command.
    step = worked(policy_forget=[[-2.0, -3.0, -4.0], [-3.0]], policy_retain=[[-1.0, -1.0], [-0.5] * 4])
    terms = find_method("simnpo")().terms(step)
    assert terms["simnpo"].item() == pytest.approx(0.1375 * 4.42345e-4, rel=1e-5)
    assert terms["retain"].item() == pytest.approx(4 / 6)


def test_wga_by_hand():
    # p = .5 three times and .25: (3 * .5 ln .5 + .25 ln .25) / 4 = -(1.039721 + .346574) / 4 = -.346574.
    step = worked(policy_forget=[[math.log(0.5)] * 3, [math.log(0.25)]])
    assert find_method("wga")().terms(step)["forget"].item() == pytest.approx(-0.346574, abs=1e-6)


def test_satimp_by_hand():
    # (3 * .5^6 ln .5 + .25^5 .75 ln .25) / 4 = -(.032491 + .001015) / 4 = -.008377; retain .1 * 4 / 6.
    step = worked(policy_forget=[[math.log(0.5)] * 3, [math.log(0.25)]], policy_retain=[[-1.0, -1.0], [-0.5] * 4])
    terms = find_method("satimp")().terms(step)
    assert terms["forget"].item() == pytest.approx(-0.008377, abs=1e-6)
    assert terms["retain"].item() == pytest.approx(0.4 / 6)


def test_wga_and_satimp_without_weights_are_ga_and_gd():
    step = fake_step()
    wga = find_method("wga").build({"alpha": 0.0}).terms(step)
    satimp = find_method("satimp").build({"beta1": 0.0, "beta2": 0.0, "retain_weight": 1.0}).terms(step)
    for ours, plain in ((wga, find_method("ga")().terms(step)), (satimp, find_method("gd")().terms(step))):
        assert {k: v.item() for k, v in ours.items()} == pytest.approx({k: v.item() for k, v in plain.items()})


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("npo", {"beta": 0}, "beta = 0: Input should be greater than 0"),
        ("npo_gd", {"beta": -0.1}, "greater than 0"),
        ("npo_kl", {"beta": 0}, "greater than 0"),
        ("simnpo", {"beta": 0}, "greater than 0"),
        ("wga", {"alpha": -1}, "greater than or equal to 0"),
        ("satimp", {"beta2": -1}, "greater than or equal to 0"),
    ],
)
def test_exponents_and_temperatures_without_a_meaning_are_refused(name, settings, words):
    with pytest.raises(InputError, match=words):
        find_method(name).build(settings, where="method")


def test_undial_by_hand():
    # Two tokens, the answer's and all else. Reference 1/2: lowered by ln 3 the answer has (1/2)/3 of (1/6 + 1/2) = 1/4.
    # Policy 1/4 at each token: entropy of (1/4, 3/4) = .25 ln 4 + .75 ln (4/3) = .346574 + .215762 = .562335.
    quarter, half = math.log(0.25), math.log(0.5)
    step = worked(policy_forget=[[quarter] * 3, [quarter]], reference_forget=[[half] * 3, [half]])
    terms = find_method("undial").build({"beta": math.log(3)}).terms(step)
    assert terms["undial"].item() == pytest.approx(0.562335, abs=1e-6)


def test_ce_u_by_hand():
    # p = 1/4 three times and 3/4: (3 ln (4/3) + ln 4) / 4 = (.863046 + 1.386294) / 4 = .562335.
    step = worked(policy_forget=[[math.log(0.25)] * 3, [math.log(0.75)]])
    assert find_method("ce_u")().terms(step)["ce_u"].item() == pytest.approx(0.562335, abs=1e-6)


def test_only_undial_reads_the_reference_of_what_to_forget():
    assert find_method("undial").needs.uses_reference
    assert not find_method("ce_u").needs.uses_reference


def test_the_page_of_methods_has_a_row_for_each_with_its_settings_and_defaults(method):
    page = (Path(__file__).parents[2] / "docs" / "methods.md").read_text(encoding="utf-8")
    name = next(n for n in METHODS if isinstance(method, find_method(n)))
    (row,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
    for setting, value in method.identity().items():
        assert f"`{setting}`" in row
        assert f"{value:g}" in row
