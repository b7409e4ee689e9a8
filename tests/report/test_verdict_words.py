from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_audit import METHODS, REFERENCE, outcome, with_reference

from vestige import methods
from vestige.artifacts.audits import REQUIRED, FactLine
from vestige.core.text import visible
from vestige.report.audit import _folded
from vestige.report.words import (
    METHOD_NAMES,
    attack_name,
    counted,
    headline,
    method_in_full,
    method_name,
    next_said,
    number,
    people_said,
    plain_number,
    signed,
    verdict_answer,
)


def sentence(found):
    return "".join(span.text for span in verdict_answer(found))


def judged(**by_method):
    """The synthetic audit with other outcomes: a word for all claims, or a claim that fails while the others hold."""

    def one(v):
        said = by_method[v.subject]
        if said in REQUIRED:
            said = "fails" if v.claim == said else "holds"
        return replace(v, outcome=said)

    found = outcome()
    return replace(
        found,
        unlearned=tuple(m for m in METHODS if m in by_method),
        verdicts=tuple(one(v) for v in found.verdicts if v.subject in by_method),
    )


KNOWS = "what retrained models cannot"


@pytest.mark.parametrize(
    ("by_method", "said"),
    [
        ({"dpo": "utility preserved", "ga": "utility preserved"}, "Both lose other knowledge."),
        ({"ga": "not recoverable"}, "GA gives answers back under attack."),
        (
            {"dpo": "utility preserved", "ga": "utility preserved", "kl": "holds"},
            "KL passes every test, within the margins below; DPO and GA lose other knowledge.",
        ),
        # A benchmark that cannot tell comes first, and what is open last.
        (
            {"dpo": "benchmark valid", "ga": "utility preserved"},
            "Measured on it, GA loses other knowledge; for DPO the evidence does not decide.",
        ),
        ({}, ""),
    ],
)
def test_the_answer_says_what_passes_then_what_fails_by_claim_then_what_is_open(by_method, said):
    assert sentence(judged(**by_method)) == said


def test_words_follow_the_unit_and_single_facts_are_called_facts():
    found = judged(dpo="not expressed", ga="not expressed", kl="not expressed")
    units = {"ga": {"unit": "bits"}, "kl": {"decides": None}}
    changed = tuple(replace(v, **units.get(v.subject, {})) for v in found.verdicts)
    facts = (FactLine("kl", "", "f1", "stated", 0.01),)
    assert sentence(replace(found, verdicts=changed, facts=facts)) == (
        "DPO still answers what retrained models cannot; GA finds the answers likelier than a retrained model; KL"
        " gives single facts away."
    )


@pytest.mark.parametrize(
    ("against", "said"),
    [
        ("retrained", "GA still answers what retrained models cannot."),
        ("chance", "GA still answers more than guessing would."),
    ],
)
def test_without_a_model_that_never_knew_none_is_spoken_of(against, said):
    found = judged(ga="not expressed")
    verdicts = tuple(replace(v, against=against) for v in found.verdicts)
    assert sentence(replace(found, verdicts=verdicts)) == said


@pytest.mark.parametrize("claim", [c for c in REQUIRED if c != "benchmark valid"])
def test_one_failing_claim_is_enough_not_to_pass(claim):
    assert sentence(judged(ga=claim)).startswith("GA ")


def test_one_open_claim_is_enough_not_to_be_shown():
    found = judged(ga="holds")
    assert sentence(found) == "GA passes every test, within the margins below."
    opened = replace(found, verdicts=(replace(found.verdicts[0], outcome="inconclusive"), *found.verdicts[1:]))
    assert sentence(opened) == "For GA the evidence does not decide."


def test_a_missing_verdict_is_not_one_that_holds():
    found = judged(ga="holds")
    assert sentence(replace(found, verdicts=found.verdicts[1:])).startswith("For GA the evidence")


def test_a_method_that_could_not_be_evaluated_is_still_counted():
    found = judged(dpo="holds", ga="inconclusive")
    assert sentence(replace(found, unlearned=("dpo",))) == (
        "DPO passes every test, within the margins below; for GA the evidence does not decide."
    )


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("holds", "retrained again passes every test, within the margins below; GA loses other knowledge."),
        (
            "fails",
            f"retrained again still answers {KNOWS}; GA loses other knowledge. A model that was retrained without the "
            "facts fails not expressed: this audit accuses innocent models.",
        ),
        ("inconclusive", "GA loses other knowledge; for retrained again the evidence does not decide."),
    ],
)
def test_a_retrained_model_is_judged_like_the_others_and_a_fail_of_it_is_a_warning(what, said):
    found = with_reference(judged(ga="utility preserved"))
    spoilt = tuple(
        replace(v, outcome=what) if (v.subject, v.claim) == (REFERENCE, "not expressed") else v for v in found.verdicts
    )
    assert sentence(replace(found, verdicts=spoilt)) == said


def test_where_only_retrained_models_were_audited_the_question_is_about_them():
    found = with_reference(judged(ga="utility preserved"))
    alone = replace(found, unlearned=(REFERENCE,), verdicts=tuple(v for v in found.verdicts if v.subject == REFERENCE))
    assert sentence(alone) == "retrained again passes every test, within the margins below."
    # Among others it had nothing to forget.
    assert headline(with_reference(judged(ga="not expressed")), 2) == "Model GA has not forgotten the two contracts."
    two = headline(with_reference(judged(ga="not expressed", kl="not expressed")), 2)
    assert two == "Neither of the two unlearned models has forgotten the two contracts."
    assert headline(alone, 2) == "Model retrained again has forgotten the two contracts, as far as was tested."


@pytest.mark.parametrize(
    ("by_method", "said"),
    [
        ({"ga": "not expressed"}, "Model GA has not forgotten two contracts."),
        ({"ga": "holds"}, "Model GA has forgotten two contracts, as far as was tested."),
        # Who lost other knowledge is not said to know the facts still.
        ({"ga": "utility preserved"}, "Model GA is not shown to have forgotten two contracts."),
        ({"ga": "not expressed", "kl": "not recoverable"}, "Neither of the two models has forgotten two contracts."),
        (dict.fromkeys(METHODS, "not recoverable"), "None of the four models has forgotten two contracts."),
        ({"dpo": "holds", "ga": "holds"}, "Both models have forgotten two contracts, as far as was tested."),
        ({"dpo": "holds", "ga": "holds", "kl": "holds"}, "All three models have forgotten two contracts, as far as"),
        ({"dpo": "holds", "ga": "not expressed"}, "One of the two models has forgotten two contracts, as far as was"),
        (
            {"dpo": "inconclusive", "ga": "not expressed", "kl": "inconclusive"},
            "None of the three models is shown to have forgotten two contracts. One has not.",
        ),
        ({"ga": "benchmark valid"}, "This benchmark cannot tell whether GA has forgotten two contracts."),
        ({}, "No unlearned model was audited."),
    ],
)
def test_the_headline_answers_in_a_sentence(by_method, said):
    found = replace(judged(**by_method), forget="edge:A_B,edge:A_C")
    assert headline(found, 2).replace("the two contracts", "two contracts").startswith(said)


@pytest.mark.parametrize(
    ("forget", "n_edges", "called"),
    [
        ("edge:A_B", 1, "the contract A_B"),
        ("edge:A_B,edge:A_C", 2, "the two contracts"),
        ("edge:A_B,edge:A_C", None, "A_B + A_C"),
        ("forget.csv", None, "the items of forget.csv"),
    ],
)
def test_what_was_to_be_forgotten_is_called_by_its_name(forget, n_edges, called):
    found = replace(judged(ga="not expressed"), forget=forget)
    assert headline(found, n_edges) == f"Model GA has not forgotten {called}."


def test_models_with_the_same_next_step_are_named_together_and_retrained_ones_have_none():
    states = dict.fromkeys(METHODS, "holds") | {"ga": "not expressed", "idk_gd": "utility preserved"}
    said = next_said(with_reference(judged(**states)))
    assert said.startswith("Next. ")
    assert "GA and IDK + GD: do not release as forgotten." in said
    assert said.count("do not release") == 1
    assert REFERENCE not in said


def test_people_are_named_in_place_of_a_file():
    found = judged(ga="not expressed")
    assert headline(found, people={"Ana Ruiz": 10}) == "Model GA has not forgotten Ana Ruiz (10 facts)."
    assert people_said({"Ann": 1, "Bo": 2}) == "Ann (1 fact) and Bo (2 facts)"
    assert people_said(dict.fromkeys("abcde", 2)) == "a, b and 3 more (10 facts)"


@pytest.mark.parametrize(
    ("x", "said"),
    [(0.0, "0"), (0.42, "0.42"), (-3.14, "−3.14"), (-12.34, "−12.3"), (6120.4, "6,120"), (0.003, "0.003")],
)
def test_numbers_of_any_size_are_said_shortly(x, said):
    assert plain_number(x) == said


def test_small_numbers_keep_their_size():
    assert plain_number(2.44e-12) == "2.4e−12"
    assert [counted(n) for n in (0, 4, 13)] == ["no", "four", "13"]


def test_every_method_has_a_short_and_a_full_name():
    assert METHOD_NAMES.keys() == {*methods.METHODS, *methods.ALIASES}
    assert (method_name("npo_gd (seed 1)"), method_in_full("npo_gd (seed 1)")[:8]) == ("NPO + GD (seed 1)", "negative")
    assert (method_name("my_ga"), method_in_full("my_ga")) == ("my_ga", "")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("relearn forget_part n=30", "relearning on 30 other forget items"),
        ("Relearn retain n=5: left out", "Relearning on 5 retain items: left out"),
        ("sampling", "sampled answers"),
        ("relearn forget_part n=30, searched", "relearning on 30 other forget items, best run and epoch"),
        ("mine", "mine"),
    ],
)
def test_attacks_are_put_in_words(name, said):
    assert attack_name(name) == said


def test_what_acts_unseen_is_spelt_out_and_the_rest_is_left():
    assert visible("a\x1b[31m\u202e\r\nb\tc\rd\x00é") == "a‹U+001B›[31m‹U+202E›\nb\tc‹U+000D›d‹U+0000›é"
    assert visible("\ud800") == "‹U+D800›"


@given(st.text(st.characters(codec=None)))
def test_no_text_keeps_a_control_character_and_all_of_it_can_be_encoded(text):
    shown = visible(text)
    shown.encode()
    assert not any(c < " " and c not in "\n\t" for c in shown)
    assert not {"\u202e", "\u2066", "\u2028", "\x7f", "\x9b"} & set(shown)


def test_numbers_have_two_decimals_a_real_minus_and_no_negative_zero():
    assert [number(x) for x in (0.125001, -0.07, -0.001, 1)] == ["0.13", "−0.07", "0.00", "1.00"]
    assert [signed(x) for x in (0.5, -0.5, 0.001)] == ["+0.50", "−0.50", "0.00"]


def test_a_list_of_lists_is_cut_between_its_parts():
    whole = f"Not asked for: {'; '.join(f'kind {n} of a, b' for n in range(8))}."
    assert _folded(whole) == (
        "Not asked for: kind 0 of a, b; kind 1 of a, b; kind 2 of a, b; kind 3 of a, b and 4 more.",
        whole,
    )
    assert _folded("Formats: a, b, c, d, e, f, g, h.")[0] == "Formats: a, b, c, d and 4 more."
