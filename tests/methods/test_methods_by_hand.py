"""A worked number for each method: the arithmetic is in the comments."""

import math

import pytest
import torch
from fake_step import FakeStep, fake_step, worked

from vestige.core.errors import InputError
from vestige.methods import find_method


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


@pytest.mark.parametrize(("direction", "expected"), [("reverse", 0.130812), ("forward", 0.143841)])
def test_npo_kl_takes_the_papers_direction_unless_told_otherwise(direction, expected):
    # Policy .25, reference .5: reverse .25 ln .5 + .75 ln 1.5 = .130812; forward .5 ln 2 + .5 ln (2/3) = .143841.
    step = worked(
        **ANSWERS,
        policy_retain=[[math.log(0.25)] * 2, [math.log(0.25)] * 4],
        reference_retain=[[math.log(0.5)] * 2, [math.log(0.5)] * 4],
    )
    settings = {"kl_weight": 2.0} | ({"direction": direction} if direction == "forward" else {})
    terms = find_method("npo_kl").build(settings).terms(step)
    assert terms["npo"].item() == pytest.approx(11.962777, abs=1e-5)
    assert terms["kl"].item() == pytest.approx(2 * expected, abs=2e-6)


def test_npo_at_the_reference_is_20_ln_2():
    for name in ("npo", "npo_gd", "npo_kl"):
        assert find_method(name)().terms(fake_step(at_reference=True))["npo"].item() == pytest.approx(20 * math.log(2))


def test_simnpo_by_hand():
    # Means -3 and -3: 4.42345e-4 in both rows; retain 4 / 6 times the lambda .1375 of the paper.
    step = worked(policy_forget=[[-2.0, -3.0, -4.0], [-3.0]], policy_retain=[[-1.0, -1.0], [-0.5] * 4])
    terms = find_method("simnpo")().terms(step)
    assert terms["simnpo"].item() == pytest.approx(4.42345e-4, rel=1e-5)
    assert terms["retain"].item() == pytest.approx(0.1375 * 4 / 6)


def test_simnpo_as_its_authors_command_weighs_it():
    step = worked(policy_forget=[[-2.0, -3.0, -4.0], [-3.0]], policy_retain=[[-1.0, -1.0], [-0.5] * 4])
    terms = find_method("simnpo").build({"forget_weight": 0.1375, "retain_weight": 1.0}).terms(step)
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
        ("dpo", {"beta": 0}, "beta = 0: must be greater than 0"),
        ("altpo", {"n": 0}, "greater than 0"),
        ("npo", {"beta": 0}, "beta = 0: must be greater than 0"),
        ("npo_gd", {"beta": -0.1}, "greater than 0"),
        ("npo_kl", {"beta": 0}, "greater than 0"),
        ("npo_kl", {"direction": "both"}, "direction = 'both'"),
        ("pdu", {"dual": -1}, "must be at least 0"),
        ("task_arithmetic", {"scale": 0}, "greater than 0"),
        ("simnpo", {"beta": 0}, "greater than 0"),
        ("wga", {"alpha": -1}, "must be at least 0"),
        ("satimp", {"beta2": -1}, "must be at least 0"),
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


def test_llmu_by_hand():
    # Ascent .5 x 2; mismatch (1 + 4 x 2) / 5 = 1.8; KL .143841 as for `kl`.
    quarter, half = math.log(0.25), math.log(0.5)
    step = worked(
        policy_forget=[[-1.0, -1.0, -1.0], [-5.0]],
        policy_mismatch=[[-1.0], [-2.0] * 4],
        policy_retain=[[quarter] * 2, [quarter] * 4],
        reference_retain=[[half] * 2, [half] * 4],
    )
    terms = {k: v.item() for k, v in find_method("llmu")().terms(step).items()}
    assert terms == pytest.approx({"forget": -1.0, "mismatch": 1.8, "kl": 0.143841}, abs=1e-6)


def test_llmu_without_mismatch_and_with_weights_1_is_kl():
    step = fake_step()
    llmu = find_method("llmu").build({"forget_weight": 1.0, "mismatch_weight": 0.0}).terms(step)
    kl = find_method("kl")().terms(step)
    assert {k: llmu[k].item() for k in kl} == {k: v.item() for k, v in kl.items()}
    assert llmu["mismatch"].item() == 0


def test_altpo_is_dpo_of_the_alternative_times_2_over_beta():
    # Alternatives sum to -8 against -10, answers to -12 against -9: 20 ln(1 + e^-.5) = 9.481540; retain 4 / 6.
    step = worked(
        policy_alternative=[[-2.0, -2.0, -4.0], [-4.0, -4.0]],
        reference_alternative=[[-5.0, -4.0, -1.0], [-5.0, -5.0]],
        policy_forget=[[-4.0, -4.0, -4.0], [-12.0]],
        reference_forget=[[-3.0, -3.0, -3.0], [-9.0]],
        policy_retain=[[-1.0, -1.0], [-0.5] * 4],
    )
    terms = {k: v.item() for k, v in find_method("altpo")().terms(step).items()}
    assert terms == pytest.approx({"dpo": 9.481540, "retain": 4 / 6}, abs=1e-5)


def test_altpo_asks_the_target_for_five_alternatives_a_question():
    asked = find_method("altpo")().alternatives()
    assert (asked.n, asked.temperature) == (5, 1.0)
    assert "{question}" in asked.prompt
    assert "{answer}" in asked.prompt


def test_pdu_by_hand():
    # Two tokens at p = 1/4: max - mean = (ln 3) / 2 = .549306, squared .301737. Retain 4 / 6, times the dual 100.
    step = worked(policy_forget=[[math.log(0.25)] * 3, [math.log(0.75)]], policy_retain=[[-1.0, -1.0], [-0.5] * 4])
    pdu = find_method("pdu")()
    step.state = pdu.start()
    terms = {k: v.item() for k, v in pdu.terms(step).items()}
    assert terms == pytest.approx({"flatten": 0.301737, "retain": 400 / 6}, rel=1e-5)
    assert step.observed == pytest.approx({"retain_nll": 4 / 6})


def test_pdu_weighs_what_to_keep_by_the_dual_of_the_step_and_not_of_the_start():
    step = worked(policy_forget=[[-1.0] * 3, [-1.0]], policy_retain=[[-1.0, -1.0], [-0.5] * 4])
    step.state = {"dual": 7.0, "steps": 3.0}
    assert find_method("pdu")().terms(step)["retain"].item() == pytest.approx(7 * 4 / 6)


def test_the_dual_of_pdu_rises_above_the_bound_falls_below_it_and_never_under_0():
    # 100 + 5 (.7 - .3) = 102; 102 + 5 (.1 - .3) = 101; 0.5 + 5 (.1 - .3) = -.5, so 0.
    pdu = find_method("pdu")()
    state = pdu.advance(pdu.start(), {"retain_nll": 0.7})
    assert state["dual"] == pytest.approx(102.0)
    assert pdu.advance(state, {"retain_nll": 0.1})["dual"] == pytest.approx(101.0)
    assert pdu.advance({"dual": 0.5, "steps": 9.0}, {"retain_nll": 0.1})["dual"] == 0.0


def test_the_dual_of_pdu_is_held_for_as_many_steps_as_asked():
    pdu, duals = find_method("pdu").build({"hold_steps": 2}), []
    state = pdu.start()
    for _ in range(3):
        state = pdu.advance(state, {"retain_nll": 1.3})
        duals.append(state["dual"])
    assert duals == pytest.approx([100.0, 100.0, 105.0])


def test_task_arithmetic_learns_what_to_forget_and_subtracts_it():
    step = worked(policy_forget=[[-1.0, -1.0, -1.0], [-5.0]])
    method = find_method("task_arithmetic").build({"scale": 0.5})
    assert method.terms(step)["forget"].item() == pytest.approx(2.0)
    assert method.update_factor == -0.5


def test_retrain_is_the_loss_of_what_to_keep():
    step = worked(policy_retain=[[-1.0, -1.0], [-0.5] * 4])
    assert {k: v.item() for k, v in find_method("retrain")().terms(step).items()} == {"retain": pytest.approx(4 / 6)}


def activated(forget, retain, kept) -> FakeStep:
    """Rows of 4 and 2 tokens to forget, of 3 and 5 to keep, each entry of a row's activations the same number."""
    return FakeStep(
        hidden={"forget": flat(forget, [4, 2]), "retain": flat(retain, [3, 5])},
        reference_hidden={"retain": flat(kept, [3, 5])},
    )


def flat(values, lengths):
    rows = [torch.full((n, 3), v) for v, n in zip(values, lengths, strict=True)]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=77.0)


def test_rmu_at_zero_activations_is_c_squared_over_the_width():
    # |c u|^2 / D = 6.5^2 / 3 = 14.083333, u a unit vector; nothing has moved on what to keep.
    terms = find_method("rmu")().terms(activated((0.0, 0.0), (1.0, 2.0), (1.0, 2.0)))
    assert {k: v.item() for k, v in terms.items()} == pytest.approx({"forget": 14.083333, "retain": 0.0})


def test_rmu_holds_each_row_alike_whatever_its_length():
    # Rows of 3 and 5 tokens, off by 1 and 2: (1 + 4) / 2 = 2.5, times 1200; the mean over tokens would be 23 / 8.
    terms = find_method("rmu")().terms(activated((0.0, 0.0), (1.0, 2.0), (2.0, 4.0)))
    assert terms["retain"].item() == pytest.approx(3000.0)
