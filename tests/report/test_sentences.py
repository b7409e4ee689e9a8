import itertools

from test_findings import FORGET, estimate, evidence, places, subject

from vestige.report.findings import find
from vestige.report.sentences import answer, level_words, qualifiers, rest_words

TARGET = subject("target", places(estimate(1.0, 0.9, 1.0), estimate(1.0, 0.98, 1.0)))
RETRAINED = subject("retrained", places(estimate(0.2, 0.1, 0.3), estimate(1.0, 0.98, 1.0)))

FORGETS = {
    "above": estimate(0.6, 0.5, 0.7),
    "level": estimate(0.2, 0.1, 0.3),
    "below": estimate(0.0, 0.0, 0.05),
    # 0.35 [0.2, 0.75]: the excess is 0.15 [-0.03, 0.56], and half the gap is 0.4.
    "unclear": estimate(0.35, 0.2, 0.75),
}
RETAINS = {
    "kept": estimate(0.97, 0.96, 0.99),
    "lost": estimate(0.6, 0.55, 0.65),
    "unclear": estimate(0.9, 0.87, 0.93),
}


def said(*methods):
    finding = find(evidence(TARGET, RETRAINED, *methods), FORGET)
    return "".join(span.text for span in answer(finding))


def method(name, level, rest):
    return subject("unlearned", places(FORGETS[level], RETAINS[rest]), name)


def test_the_sentence_names_what_worked_first_and_then_what_failed_and_how():
    methods = [
        method("dpo", "level", "kept"),
        method("ga", "level", "lost"),
        method("idk_gd", "below", "kept"),
        method("kl", "above", "kept"),
    ]
    assert said(*methods) == (
        "Of 4 methods, dpo and idk_gd no longer measurably give it away and keep the rest; ga forgets it but"
        " loses other knowledge; kl still gives it away."
    )


def test_the_sentence_says_when_nothing_worked():
    assert said(method("ga", "above", "lost"), method("gd", "level", "unclear"), method("kl", "unclear", "kept")) == (
        "None of 3 methods both forgets it and keeps the rest; gd forgets it, but may have lost other"
        " knowledge; ga still gives it away, and loses other knowledge; kl cannot be told from either anchor."
    )


def test_one_method_is_spoken_of_in_the_singular():
    assert said(method("ga", "level", "kept")) == "ga no longer measurably gives it away and keeps the rest."
    assert said(method("ga", "above", "kept")) == (
        "The one method here does not both forget it and keep the rest; ga still gives it away."
    )


def test_every_method_is_spoken_of_exactly_once_whatever_its_level_and_rest():
    for level, rest in itertools.product(FORGETS, [*RETAINS, None]):
        own = subject("unlearned", places(FORGETS[level], RETAINS[rest] if rest else None), "the_method")
        finding = find(evidence(TARGET, RETRAINED, own), FORGET)
        assert finding.methods[0].comparison is not None
        assert (finding.methods[0].comparison.level, finding.methods[0].comparison.rest) == (level, rest)
        assert [span.text for span in answer(finding)].count("the_method") == 1, (level, rest)
        assert level_words(finding.methods[0]) != "not compared"
        assert bool(rest_words(finding.methods[0])) == (rest is not None)


def test_the_qualifiers_carry_intervals_and_n_and_what_would_go_unseen():
    finding = find(evidence(TARGET, RETRAINED, method("dpo", "level", "kept")), FORGET)
    anchors, numbers, unseen = (q.replace("\N{NO-BREAK SPACE}", " ") for q in qualifiers(finding))
    assert anchors == (
        "All answers, n = 20: never knew 0.20 [0.10, 0.30] (one retrained model), target 1.00 [0.90, 1.00]."
    )
    # The excess is 0 +- sqrt(0.1^2 + 0.1^2) = 0.1414; over the gap of 0.8 that is 0.1768.
    assert numbers == "dpo: 0.20 [0.10, 0.30], leakage 0.00 [−0.18, 0.18], retain 0.97 [0.96, 0.99]."
    assert unseen == "With 20 questions, up to 0.14 more than a model that never knew could go unseen."


def test_a_model_that_says_less_than_one_that_never_knew_is_called_out():
    finding = find(evidence(TARGET, RETRAINED, method("idk_gd", "below", "kept")), FORGET)
    assert any("less than a model that never knew" in q for q in qualifiers(finding))


def test_without_anchors_the_sentence_refuses_to_compare_and_says_why():
    alone = subject("unlearned", places(FORGETS["level"]), "ga")
    without_target = find(evidence(RETRAINED, alone), FORGET)
    assert "No target" in answer(without_target)[0].text
    without_control = find(evidence(TARGET, alone), FORGET)
    assert "No model here never knew it" in answer(without_control)[0].text
    near = subject("retrained", places(estimate(0.95, 0.8, 1.0)))
    assert answer(find(evidence(TARGET, near, alone), FORGET))[0].text.startswith("Not admitted: ")
    assert "No unlearned model" in answer(find(evidence(TARGET, RETRAINED), FORGET))[0].text
