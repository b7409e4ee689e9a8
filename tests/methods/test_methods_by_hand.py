"""A worked number for each method: the arithmetic is in the comments. Where RMU reads, trains and steers to."""

import math

import pytest
import torch
from fake_step import FakeStep, fake_step, worked

from vestige.core.errors import InputError
from vestige.methods import find_method
from vestige.methods.rmu import RMU
from vestige.methods.steering import direction, steered

QUARTER, HALF = math.log(0.25), math.log(0.5)
# NLL(forget) = 8/4 = 2 and NLL(retain) = (2 + 2) / 6 = .6667: long answers weigh more.
FORGET = {"policy_forget": [[-1.0, -1.0, -1.0], [-5.0]]}
RETAIN = {"policy_retain": [[-1.0, -1.0], [-0.5] * 4]}
# Policy .25 and reference .5 at each of six positions.
DRIFTED = {"policy_retain": [[QUARTER] * 2, [QUARTER] * 4], "reference_retain": [[HALF] * 2, [HALF] * 4]}
# Sums -12 against -10 in both rows.
FALLEN = {"policy_forget": [[-4.0, -4.0, -4.0], [-12.0]], "reference_forget": [[-4.0, -3.0, -3.0], [-10.0]]}
# Sums -12 against -9 in both rows.
LOST = {"policy_forget": [[-4.0, -4.0, -4.0], [-12.0]], "reference_forget": [[-3.0, -3.0, -3.0], [-9.0]]}
MIXED = {"policy_forget": [[HALF] * 3, [QUARTER]]}

WORKED = {
    "ga": ("ga", {}, FORGET, {"forget": -2.0}),
    "gd": ("gd", {"retain_weight": 3.0}, FORGET | RETAIN, {"forget": -2.0, "retain": 2.0}),
    # IDK (2 * 1 + 2 * 3) / 4 = 2; retain 4/6: TOFU's one mean over both would be 12/10.
    "idk_gd": ("idk_gd", {}, {"policy_idk": [[-1.0, -1.0], [-3.0, -3.0]]} | RETAIN, {"idk": 2.0, "retain": 4 / 6}),
    # .5 ln 2 + .5 ln(.5/.75) = .143841.
    "kl": ("kl", {}, FORGET | DRIFTED, {"forget": -2.0, "kl": 0.143841}),
    # IDK sums -8 against -10, answers -12 against -9 in both rows: ln(1 + e^-.5) = .474077.
    "dpo": (
        "dpo",
        {},
        {"policy_idk": [[-4.0, -4.0]] * 2, "reference_idk": [[-5.0, -5.0]] * 2} | LOST,
        {"dpo": 0.474077},
    ),
    # 20 ln(1 + e^-.2) = 11.962777.
    "npo": ("npo", {}, FALLEN, {"npo": 11.962777}),
    "npo_gd": ("npo_gd", {"retain_weight": 3.0}, FALLEN | RETAIN, {"npo": 11.962777, "retain": 2.0}),
    # Reverse, as in the paper: .25 ln .5 + .75 ln 1.5 = .130812; forward .143841.
    "npo_kl": ("npo_kl", {"kl_weight": 2.0}, FALLEN | DRIFTED, {"npo": 11.962777, "kl": 2 * 0.130812}),
    "npo_kl forward": (
        "npo_kl",
        {"kl_weight": 2.0, "direction": "forward"},
        FALLEN | DRIFTED,
        {"npo": 11.962777, "kl": 2 * 0.143841},
    ),
    # Means -3 and -3: 4.42345e-4 in both rows; retain 4 / 6 times the lambda .1375 of the paper.
    "simnpo": (
        "simnpo",
        {},
        {"policy_forget": [[-2.0, -3.0, -4.0], [-3.0]]} | RETAIN,
        {"simnpo": 4.42345e-4, "retain": 0.1375 * 4 / 6},
    ),
    "simnpo as its authors' command weighs it": (
        "simnpo",
        {"forget_weight": 0.1375, "retain_weight": 1.0},
        {"policy_forget": [[-2.0, -3.0, -4.0], [-3.0]]} | RETAIN,
        {"simnpo": 0.1375 * 4.42345e-4, "retain": 4 / 6},
    ),
    # p = .5 three times and .25: (3 * .5 ln .5 + .25 ln .25) / 4 = -(1.039721 + .346574) / 4 = -.346574.
    "wga": ("wga", {}, MIXED, {"forget": -0.346574}),
    # (3 * .5^6 ln .5 + .25^5 .75 ln .25) / 4 = -(.032491 + .001015) / 4 = -.008377. Retain .1 * 4 / 6.
    "satimp": ("satimp", {}, MIXED | RETAIN, {"forget": -0.008377, "retain": 0.4 / 6}),
    # Two tokens, the answer's and all else. Reference 1/2: lowered by ln 3 the answer has (1/2)/3 of (1/6 + 1/2) = 1/4.
    # Policy 1/4 at each token: entropy of (1/4, 3/4) = .25 ln 4 + .75 ln (4/3) = .346574 + .215762 = .562335.
    "undial": (
        "undial",
        {"beta": math.log(3)},
        {"policy_forget": [[QUARTER] * 3, [QUARTER]], "reference_forget": [[HALF] * 3, [HALF]]},
        {"undial": 0.562335},
    ),
    # p = 1/4 three times and 3/4: (3 ln (4/3) + ln 4) / 4 = (.863046 + 1.386294) / 4 = .562335.
    "ce_u": ("ce_u", {}, {"policy_forget": [[QUARTER] * 3, [math.log(0.75)]]}, {"ce_u": 0.562335}),
    # The refusal's token has p = 1/2 three times and 1/4. JS of (p, 1 - p) and (1, 0) is half of
    # ln(2 / (1 + p)) + p ln(2p / (1 + p)) + (1 - p) ln 2, for 1/2 .287682 - .202733 + .346574 = 2 x .215762, for 1/4
    # .470004 - .229073 + .519860 = 2 x .380396; (3 x .215762 + .380396) / 4 = .256920.
    # Retain: (1/4, 3/4) and (1/2, 1/2), middle (3/8, 5/8): half of .25 ln(2/3) + .75 ln 1.2 + .5 ln(4/3) + .5 ln .8 =
    # -.101366 + .136741 + .143841 - .111572 = 2 x .033822.
    "jensun": ("jensun", {"retain_weight": 2.0}, MIXED | DRIFTED, {"forget": 0.256920, "retain": 2 * 0.033822}),
    # Ascent .5 x 2. Mismatch (1 + 4 x 2) / 5 = 1.8; KL .143841 as for `kl`.
    "llmu": (
        "llmu",
        {},
        FORGET | DRIFTED | {"policy_mismatch": [[-1.0], [-2.0] * 4]},
        {"forget": -1.0, "mismatch": 1.8, "kl": 0.143841},
    ),
    # Alternatives sum to -8 against -10, answers to -12 against -9: 20 ln(1 + e^-.5) = 9.481540.
    "altpo": (
        "altpo",
        {},
        {
            "policy_alternative": [[-2.0, -2.0, -4.0], [-4.0, -4.0]],
            "reference_alternative": [[-5.0, -4.0, -1.0], [-5.0, -5.0]],
        }
        | LOST
        | RETAIN,
        {"dpo": 9.481540, "retain": 4 / 6},
    ),
    "task_arithmetic": ("task_arithmetic", {}, FORGET, {"forget": 2.0}),
    "retrain": ("retrain", {}, RETAIN, {"retain": 4 / 6}),
}


@pytest.mark.parametrize("case", WORKED)
def test_the_terms_by_hand(case):
    name, settings, rows, expected = WORKED[case]
    terms = find_method(name).build(settings).terms(worked(**rows))
    assert {k: v.item() for k, v in terms.items()} == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(("name", "ln_2s"), [("dpo", 1), ("npo", 20), ("npo_gd", 20), ("npo_kl", 20)])
def test_preferences_at_the_reference_are_multiples_of_ln_2(name, ln_2s):
    terms = find_method(name)().terms(fake_step(at_reference=True))
    assert terms[name.partition("_")[0]].item() == pytest.approx(ln_2s * math.log(2))


@pytest.mark.parametrize(
    ("name", "settings", "plain"),
    [
        ("wga", {"alpha": 0.0}, "ga"),
        ("satimp", {"beta1": 0.0, "beta2": 0.0, "retain_weight": 1.0}, "gd"),
        ("llmu", {"forget_weight": 1.0, "mismatch_weight": 0.0}, "kl"),
    ],
)
def test_without_its_own_weights_a_method_is_the_plain_one(name, settings, plain):
    step = fake_step()
    ours, theirs = find_method(name).build(settings).terms(step), find_method(plain)().terms(step)
    assert {k: ours[k].item() for k in theirs} == pytest.approx({k: v.item() for k, v in theirs.items()})
    assert all(value.item() == 0 for key, value in ours.items() if key not in theirs)


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


def test_altpo_asks_the_target_for_five_alternatives_a_question():
    asked = find_method("altpo")().alternatives()
    assert (asked.n, asked.temperature) == (5, 1.0)
    assert "{question}" in asked.prompt
    assert "{answer}" in asked.prompt


def test_pdu_weighs_what_to_keep_by_the_dual_of_the_step():
    # Two tokens at p = 1/4: max - mean = (ln 3) / 2 = .549306, squared .301737. Retain 4 / 6, times the dual.
    step = worked(policy_forget=[[QUARTER] * 3, [math.log(0.75)]], **RETAIN)
    pdu = find_method("pdu")()
    for state, dual in ((pdu.start(), 100), ({"dual": 7.0, "steps": 3.0}, 7)):
        step.state = state
        terms = {k: v.item() for k, v in pdu.terms(step).items()}
        assert terms == pytest.approx({"flatten": 0.301737, "retain": dual * 4 / 6}, rel=1e-5)
    assert step.observed["retain_nll"] == pytest.approx(2 * 4 / 6)


def test_the_dual_of_pdu_rises_above_the_bound_falls_below_it_and_never_under_0():
    # 100 + 5 (.7 - .3) = 102; 102 + 5 (.1 - .3) = 101; 0.5 + 5 (.1 - .3) = -.5, so 0.
    pdu = find_method("pdu")()
    state = pdu.advance(pdu.start(), {"retain_nll": 0.7})
    assert state["dual"] == pytest.approx(102.0)
    assert pdu.advance(state, {"retain_nll": 0.1})["dual"] == pytest.approx(101.0)
    assert pdu.advance({"dual": 0.5, "steps": 9.0}, {"retain_nll": 0.1})["dual"] == 0.0
    held, duals = find_method("pdu").build({"hold_steps": 2}), []
    state = held.start()
    for _ in range(3):
        state = held.advance(state, {"retain_nll": 1.3})
        duals.append(state["dual"])
    assert duals == pytest.approx([100.0, 100.0, 105.0])


def test_task_arithmetic_subtracts_what_it_learned():
    assert find_method("task_arithmetic").build({"scale": 0.5}).update_factor == -0.5


@pytest.mark.parametrize(
    ("kept", "retain"),
    [
        ((1.0, 2.0), 0.0),
        # Rows of 3 and 5 tokens, off by 1 and 2: (1 + 4) / 2 = 2.5, times 1200; the mean over tokens would be 23 / 8.
        ((2.0, 4.0), 3000.0),
    ],
)
def test_rmu_by_hand(kept, retain):
    # |c u|^2 / D = 6.5^2 / 3 = 14.083333, u a unit vector, at activations of zero.
    step = FakeStep(
        hidden={"forget": flat((0.0, 0.0), [4, 2]), "retain": flat((1.0, 2.0), [3, 5])},
        reference_hidden={"retain": flat(kept, [3, 5])},
    )
    terms = find_method("rmu")().terms(step)
    assert {k: v.item() for k, v in terms.items()} == pytest.approx({"forget": 14.083333, "retain": retain})


@pytest.mark.parametrize(
    ("number", "forget", "retain"),
    [
        # Cosines 1, 0 and .6 in a row of three tokens, mean 1.6 / 3; -1 counts as 0 in the other: 1.6 / 6 = .266667.
        # Retain: norms of the differences 5 and 0, mean 2.5, and 2: 2.25. At the first step 9 / 10 and 1 / 10 of 10.
        (1.0, 9 * 0.266667, 2.25),
        (5.0, 5 * 0.266667, 5 * 2.25),
        (30.0, 0.0, 10 * 2.25),
    ],
)
def test_rr_by_hand(number, forget, retain):
    step = FakeStep(
        hidden={"forget": rows_of([[2, 0], [1, 0], [3, 4]], [[1, 1]]), "retain": rows_of([[3, 4], [1, 1]], [[0, 2]])},
        reference_hidden={
            "forget": rows_of([[1, 0], [0, 1], [1, 0]], [[-2, -2]]),
            "retain": rows_of([[0, 0], [1, 1]], [[0, 0]]),
        },
        state={"step": number},
        rows={"forget": [3, 1], "retain": [2, 1]},
    )
    rr = find_method("rr").build({"schedule": 10})
    assert {k: v.item() for k, v in rr.terms(step).items()} == pytest.approx({"forget": forget, "retain": retain}, 1e-5)
    assert rr.advance(rr.start(), {}) == {"step": 2.0}


def rows_of(*rows):
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row).float() for row in rows], batch_first=True)


def flat(values, lengths):
    """Rows of these lengths, each entry of a row's activations the same number."""
    rows = [torch.full((n, 3), v) for v, n in zip(values, lengths, strict=True)]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=77.0)


@pytest.mark.parametrize(
    ("n_blocks", "read", "update"),
    [(32, 7, (5, 6, 7)), (14, 7, (5, 6, 7)), (8, 4, (2, 3, 4)), (4, 2, (0, 1, 2)), (3, 1, (0, 1)), (1, 0, (0,))],
)
def test_the_papers_block_is_read_where_the_model_is_deep_enough_and_the_middle_one_else(n_blocks, read, update):
    layers = RMU().layers(n_blocks, "mlp.down_proj")
    assert (layers.read, layers.update, layers.parameters) == (read, update, ("mlp.down_proj",))


def test_layers_and_modules_that_are_named_win():
    rmu = RMU.build({"layer": 2, "update_layers": [1, 0, 1], "parameters": ["mlp.up_proj", "mlp.down_proj"]})
    layers = rmu.layers(3, "mlp.c_proj")
    assert (layers.read, layers.update, layers.parameters) == (2, (0, 1), ("mlp.up_proj", "mlp.down_proj"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"layer": 3}, "layer = 3: the model has blocks 0 to 2"),
        ({"layer": -1}, "layer = -1"),
        ({"layer": 1, "update_layers": [1, 2]}, r"update_layers = \[1, 2\]: only blocks 0 to 1"),
        ({"update_layers": []}, r"update_layers = \[\]"),
        ({"update_layers": [-1, 0]}, r"update_layers = \[-1, 0\]"),
    ],
)
def test_layers_that_cannot_be_read_or_trained_are_refused(settings, words):
    with pytest.raises(InputError, match=words):
        RMU.build(settings).layers(3, "mlp.down_proj")


def test_a_direction_is_a_unit_vector_of_positive_entries_one_for_each_topic_and_seed():
    found = [direction("A_B", width=64, seed=0), direction("A_C", width=64, seed=0), direction("A_B", width=64, seed=1)]
    for unit in found:
        assert unit.norm().item() == pytest.approx(1)
        assert (unit >= 0).all()
    torch.testing.assert_close(found[0], direction("A_B", width=64, seed=0), rtol=0, atol=0)
    assert not torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_rows_are_steered_to_the_direction_of_their_own_topic():
    step = fake_step()
    step.topics = ("A_C", "A_C")
    together = steered(step.activations("forget"), 6.5, 0)
    step.topics = ("A_B", "A_C")
    apart = steered(step.activations("forget"), 6.5, 0)
    assert together.shape == (2, 4, 3)
    torch.testing.assert_close(together[0], together[1])
    torch.testing.assert_close(apart[1], together[1])
    torch.testing.assert_close(apart[0], 6.5 * direction("A_B", width=3, seed=0).float().expand(4, 3))
    assert not torch.equal(apart[0], apart[1])
