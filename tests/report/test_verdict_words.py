from dataclasses import replace

import pytest
from synthetic_audit import METHODS, outcome

from vestige.artifacts.audits import CLAIMS
from vestige.report.verdict_words import verdict_answer
from vestige.report.words import counted, plain_number


def sentence(found):
    return "".join(span.text for span in verdict_answer(found))


def judged(**by_method):
    """The synthetic audit with other outcomes: a word for all claims, or a claim that fails while the others hold."""

    def one(v):
        said = by_method[v.subject]
        if said in CLAIMS:
            said = "fails" if v.claim == said else "holds"
        return replace(v, outcome=said)

    found = outcome()
    return replace(
        found,
        unlearned=tuple(m for m in METHODS if m in by_method),
        verdicts=tuple(one(v) for v in found.verdicts if v.subject in by_method),
    )


def test_what_fails_is_said_of_each_method_and_what_is_open_last():
    assert sentence(outcome()) == (
        "None of four methods is shown to have forgotten it; ga still expresses it and damages what was to be kept;"
        " idk_gd still expresses it and can be told from a model that never knew; kl still expresses it, gives it back"
        " under attack and can be told from a model that never knew; for dpo the evidence does not decide."
    )


def test_methods_that_fail_alike_stand_together():
    found = judged(dpo="kept", ga="kept", kl="holds")
    assert sentence(found) == (
        "Of three methods, kl is shown to have forgotten it, within the margins below; dpo and ga damage what was to"
        " be kept."
    )


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_is_put_in_words_that_say_more_than_its_name(claim):
    assert claim not in CLAIMS[claim]


@pytest.mark.parametrize("claim", [c for c in CLAIMS if c != "benchmark can tell"])
def test_one_failing_claim_is_enough_not_to_be_shown(claim):
    said = sentence(judged(ga=claim))
    assert said.startswith("The one method here is not shown to have forgotten it; ga ")


def test_one_open_claim_is_enough_not_to_be_shown():
    found = judged(ga="holds")
    assert sentence(found) == "ga is shown to have forgotten it, within the margins below."
    opened = replace(found, verdicts=(replace(found.verdicts[0], outcome="inconclusive"), *found.verdicts[1:]))
    assert sentence(opened) == (
        "The one method here is not shown to have forgotten it; for ga the evidence does not decide."
    )


def test_a_missing_verdict_is_not_one_that_holds():
    found = judged(ga="holds")
    assert "not shown" in sentence(replace(found, verdicts=found.verdicts[1:]))


def test_a_benchmark_that_cannot_tell_comes_first():
    assert sentence(judged(dpo="benchmark can tell", ga="fails")) == (
        "The benchmark cannot tell, so no method is shown to have forgotten it. Measured on it, ga still expresses it,"
        " gives it back under attack, can be told from a model that never knew and damages what was to be kept; for"
        " dpo the evidence does not decide."
    )


def test_a_method_that_could_not_be_evaluated_is_still_counted():
    found = judged(dpo="holds", ga="inconclusive")
    assert sentence(replace(found, unlearned=("dpo",))) == (
        "Of two methods, dpo is shown to have forgotten it, within the margins below; for ga the evidence does not"
        " decide."
    )


def test_an_audit_of_nothing_says_so():
    assert sentence(judged()) == "No unlearned model was audited."


@pytest.mark.parametrize(
    ("x", "said"),
    [(0.0, "0"), (0.42, "0.42"), (-3.14, "−3.14"), (-12.34, "−12.3"), (6120.4, "6,120"), (0.003, "0.003")],
)
def test_numbers_of_any_size_are_said_shortly(x, said):
    assert plain_number(x) == said


def test_small_numbers_keep_their_size():
    assert plain_number(2.44e-12) == "2.4e−12"
    assert [counted(n) for n in (0, 4, 13)] == ["no", "four", "13"]
