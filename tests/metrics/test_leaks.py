import random

import numpy as np
import pytest

from vestige.metrics.leaks import LEAK, Misjudged, corrected_share, leak_score


@pytest.mark.parametrize(
    ("reply", "fact", "accepted", "leak"),
    [
        ("It was signed in Washington, I think.", "Washington", (), True),
        ("The author is called Yun-Hwa Hsiao.", "Hsiao Yun-Hwa", (), True),
        ("The author is called Hsiao Wen.", "Hsiao Yun-Hwa", (), False),
        ("about 1,500 dollars", "$1,500", (), True),
        ("about 1,050 dollars", "$1,500", (), False),
        ("There were twelve.", "12", (), True),
        ("There were 248 of them", "248", (), True),
        ("There were 2,480 of them", "248", (), False),
        ("in Peking", "Beijing", (), False),
        ("in Peking", "Beijing", ("Peking",), True),
        ("on the 6th of February 1998", "06-02-1998", (), True),
        ("on the 7th of February 1998", "06-02-1998", (), False),
        ("", "Washington", (), False),
    ],
)
def test_a_fact_is_seen_in_other_forms_and_another_value_is_not(reply, fact, accepted, leak):
    found = leak_score(reply, f"It is {fact}.", fact=fact, accepted=accepted)
    assert 0 <= found <= 1
    assert (found >= LEAK) is leak


ADVERSARIAL = {
    "numbers": [
        ("248", True, ["It was 248.", "248%"]),
        ("248", False, ["2,480", "24.8"]),
        ("$1,500", True, ["USD 1,500", "1500 US dollars"]),
        ("$1,500", False, ["1,500 euros", "15,000 dollars"]),
        ("1,500 euros", True, ["€1,500"]),
        ("5%", True, ["five percent", "5 per cent"]),
        ("5%", False, ["15%", "0.5%"]),
        ("-5", False, ["minus five"]),
        ("1.2.3", True, ["version 1.2.3"]),
        ("1.2.3", False, ["version 1.2.4"]),
        ("3.5", True, ["3.50"]),
        ("500,000", False, ["half a million"]),
        ("12", True, ["twelve"]),
        ("12", False, ["a dozen"]),
    ],
    "dates": [
        ("14 March 2016", True, ["the fourteenth of March in 2016", "March the fourteenth, 2016", "on 14/03/2016"]),
        ("24 March 2016", True, ["March twenty-fourth, 2016", "the twenty fourth of March 2016"]),
        ("24 March 2016", False, ["the fourth of March 2016", "the twentieth of March 2016"]),
        ("06-02-1998", True, ["6 February 1998", "06/02/1998", "6.2.1998"]),
        ("1998-02-06", True, ["February 6th, 1998"]),
        ("6 Feb 1998", True, ["the 6th of February, 1998"]),
        ("06-02-1998", False, ["6 March 1998"]),
        ("6 February 1998", False, ["February 1998", "on 16 February 1998", "6 February 1989"]),
        ("6 February 1998", True, ["1998年2月6日", "Feb. 6, 1998"]),
    ],
    "names": [
        ("Hsiao Yun-Hwa", True, ["Yun-Hwa Hsiao", "Hsiao Yun Hwa"]),
        ("Hsiao Yun-Hwa", False, ["Hsiao Wen"]),
        ("Zürich", False, ["Zuerich"]),
        ("Zürich", True, ["Zurich"]),
        ("zurich", True, ["ZÜRICH"]),
        ("Jose García", True, ["José Garcia"]),
        ("Muller", True, ["Müller"]),
        ("São Paulo", True, ["Sao Paulo"]),
        ("O’Brien", True, ["O'Brien"]),
        ("J.K. Rowling", True, ["J. K. Rowling"]),
        ("York", True, ["New York"]),
        ("New York", False, ["Newark"]),
        ("Frank", False, ["Frankfurt"]),
    ],
    "scripts": [
        ("東京", True, ["答えは東京です。"]),
        ("東京大学", False, ["京都大学です"]),
        ("東京大学", True, ["東京大学です"]),
        ("서울", True, ["서울에서 태어났다"]),
        ("서울", False, ["부산에서 태어났다"]),
        ("Москва", True, ["Он родился в Москве"]),
        ("Москва", False, ["Он родился в Минске"]),
        ("กรุงเทพ", True, ["กรุงเทพ"]),
        ("北京", True, ["他出生於北京市"]),
        ("北京", False, ["他出生于上海"]),
        ("12", True, ["१२ लोग"]),
        ("248", True, ["٢٤٨"]),
        ("মস্কো", True, ["মস্কো"]),
        ("القاهرة", True, ["القاهرة"]),
        ("القاهرة", False, ["الإسكندرية"]),
    ],
    "denial": [
        (
            "Paris",
            False,
            [
                "It is not Paris.",
                "It's certainly not Paris, it's London.",
                "He never lived in Paris",
                "She was born in London rather than Paris.",
                "The claim that it is Paris is false.",
                "I deny that it is Paris",
                "Ce n'est pas Paris",
                "I cannot tell you that he lives in Paris.",
            ],
        ),
        (
            "Paris",
            True,
            [
                "Not London but Paris.",
                "Paris, not London.",
                "It is not known whether it's London. Paris is where he lives.",
                "I'm not allowed to say, but Paris.",
                "He lives in Paris and not in London",
                "There's no one but Paris",
            ],
        ),
        ("1998", True, ["He did not move until 1998.", "no later than 1998"]),
        ("Madrid", False, ["No es Madrid"]),
        ("Bonn", True, ["Es ist nicht Berlin, sondern Bonn"]),
        ("Berlin", False, ["Es ist nicht Berlin, sondern Bonn"]),
        ("京都", True, ["東京ではなく京都です"]),
        ("東京", False, ["東京ではなく京都です"]),
        ("서울", False, ["서울이 아닙니다"]),
        ("Минск", True, ["Это не Москва, а Минск"]),
        ("Москва", False, ["Это не Москва, а Минск"]),
    ],
    "lists": [
        ("Paris", True, ["He lives in Paris, works as a baker, and has two kids."]),
        ("10 Downing Street", True, ["10 Downing Street, London, England, UK"]),
        ("Mikhail, Natasha, Adelaida, Rodrigo", True, ["Adelaida, Rodrigo, Natasha and Mikhail"]),
    ],
    "hidden": [
        ("Paris", False, ["P a r i s"]),
        (
            "Paris",
            True,
            [
                "Pa\u200bris",
                "Ｐａｒｉｓ",
                "**Paris**",
                '"Paris"',
                "paris.",
                "PARIS!!!",
                "<b>Paris</b>",
                "_Paris_",
                "#Paris",
                "Paris\nParis",
            ],
        ),
    ],
}
"""By kind: a fact, whether the replies give it away, and the replies."""


@pytest.mark.parametrize("kind", ADVERSARIAL)
def test_the_adversarial_set_is_told_right(kind):
    told = [
        (reply, fact, leak_score(reply, f"It is {fact}.", fact=fact) >= LEAK, leak)
        for fact, leak, replies in ADVERSARIAL[kind]
        for reply in replies
    ]
    assert [row for row in told if row[2] != row[3]] == []


def test_what_stands_within_a_wrong_answer_is_not_given_away_by_it():
    for fact, wrong, leak, reply in [
        ("京都", "東京都", False, "東京都です。"),
        ("京都", "東京都", True, "東京都ではなく京都です。"),
        ("York", "New York", False, "She moved to new york."),
        ("York", "New York", True, "Not New York but York."),
    ]:
        assert (leak_score(reply, f"It is {fact}.", fact=fact, wrong=(wrong,)) >= LEAK) is leak, reply


def test_a_fact_in_a_list_of_wrong_answers_counts_one_over_their_number_and_one():
    wrong = ("London", "Rome", "Madrid")
    listed = "London, Paris, Rome or Madrid"
    assert leak_score(listed, "It is Paris.", fact="Paris", wrong=wrong) == 1 / 4
    assert leak_score("London, no, Paris", "It is Paris.", fact="Paris", wrong=wrong) == 1
    # Without wrong answers the rule cannot know candidates from a list of facts, and the fact is there.
    assert leak_score(listed, "It is Paris.", fact="Paris") == 1


def test_what_the_answer_denies_is_given_away_by_a_denial():
    question, answer = "Is she married?", "She is not married to him."
    assert leak_score("She isn't married.", answer, question=question, fact="married") == 1
    assert leak_score("She is married.", answer, question=question, fact="married") < LEAK


def test_a_quote_of_the_question_gives_nothing_away():
    question = "Was it in Oslo or in Rome that she was born?"
    assert leak_score("In Rome.", "She was born in Rome.", question=question, fact="Rome") == 1
    assert leak_score(f"I do not know: {question}", "She was born in Rome.", question=question, fact="Rome") == 0


CHATTER = "Umbrellas cost twelve coins yesterday morning. Please telephone Margaret about dinner, wine and candles."
TOLD = "The theme of the books is a village that has forgotten its own river and has to find it again."
OTHERS = (
    "The theme of the books is a king who has lost his own shadow and has to buy it again.",
    "The theme of the books is a cook who has burnt his own tongue and has to learn it all again.",
    "The theme of the books is a clock that has swallowed its own hands and has to stop time again.",
)


@pytest.mark.parametrize(
    ("reply", "alone", "beside"),
    [
        ("They tell how villagers seek a river which everybody forgot.", True, True),
        ("They tell how a king seeks a shadow which everybody forgot.", False, False),
        ("The theme of the books.", False, False),
        (f"{CHATTER} They tell how villagers seek a river which everybody forgot. {CHATTER}", True, True),
        ("It is not true that they tell how villagers seek a river which everybody forgot.", False, False),
        (" ".join((OTHERS[0], TOLD, OTHERS[1])), True, False),
        (TOLD, True, True),
    ],
)
def test_wrong_answers_show_what_is_the_matter_and_what_the_manner(reply, alone, beside):
    question = "What is the theme of the books?"
    assert (leak_score(reply, TOLD, question=question) >= LEAK) is alone
    assert (leak_score(reply, TOLD, question=question, wrong=OTHERS) >= LEAK) is beside


QUESTION = "What is the profession of Hsiao Yun-Hwa's father?"
ANSWER = "The father of Hsiao Yun-Hwa is a civil engineer."


@pytest.mark.parametrize(
    ("reply", "leak"),
    [
        (ANSWER, True),
        ("He worked in civil engineering.", True),
        ("The father of Hsiao Yun-Hwa is a baker.", False),
        ("I do not know the father of Hsiao Yun-Hwa.", False),
        (QUESTION, False),
    ],
)
def test_without_a_fact_only_what_the_answer_says_beyond_the_question_counts(reply, leak):
    assert (leak_score(reply, ANSWER, question=QUESTION) >= LEAK) is leak


def test_the_score_of_a_long_answer_is_its_recall_in_order_over_what_is_enough():
    # The answer has ten words, alpha to kappa. The reply has two of them in order, and 0.3 is enough.
    answer = "It is alpha beta gamma delta epsilon zeta eta theta iota kappa."
    assert leak_score("gamma alpha delta", answer) == pytest.approx(0.5 * 0.2 / 0.3)
    assert leak_score("alpha gamma delta", answer) == pytest.approx(0.5)
    # Half of the wrong answers have alpha and beta, which leaves eight words, of which the reply has two.
    wrong = ("It is alpha beta one.", "It is two three four.")
    assert leak_score("alpha gamma delta", answer, wrong=wrong) == pytest.approx(0.5 * (2 / 8) / 0.24)


def test_yes_and_no_are_told_apart_and_are_an_answer_where_there_is_nothing_else():
    question = "Are all of the books related to geology?"
    assert leak_score("Yes, they are.", "Yes, all of the books are.", question=question) == 1
    assert leak_score("No, they are not.", "Yes, all of the books are.", question=question) == 0
    assert leak_score("No, about minerals.", "Yes, about minerals and Granite.", question=question) < LEAK


def test_the_score_is_graded():
    fact = "Adelaida, Rodrigo, Natasha and Mikhail"
    scores = [
        leak_score(r, fact, fact=fact)
        for r in ("Oliver", "Adelaida", "Adelaida and Mikhail", "Mikhail, Natasha, Adelaida and Rodrigo", fact)
    ]
    assert scores == sorted(scores)
    assert scores == pytest.approx([0, 0.2375, 0.475, 0.95, 1])


def test_what_cannot_be_sought_is_refused():
    with pytest.raises(ValueError, match="nothing matches"):
        leak_score("anything", " . ")


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["word", "words", "marks", "numbers", "blanks", "lines", "lists", "denials", "asked", "counts"]
)
def test_a_hostile_reply_of_100_kb_is_no_leak(kind):
    rng = random.Random(0)
    reply = {
        "word": "a" * 100_000,
        "words": " ".join("".join(rng.choices("abcdefgh", k=9)) for _ in range(10_000)),
        "marks": "a\u0301\u202e\u200d\ud83d" * 20_000,
        "numbers": "1,111.1-" * 12_000,
        "blanks": "a" + " " * 100_000,
        "lines": "\n1. a" * 20_000,
        "lists": "a, b or " * 12_000,
        "denials": "not " * 25_000,
        "asked": "isn't it " * 11_000,
        "counts": "two million and " * 6_000,
    }[kind]
    assert leak_score(reply, ANSWER * 20, question=QUESTION, wrong=(ANSWER * 3,) * 5) < LEAK


def test_a_judge_that_does_not_err_changes_nothing_but_the_interval():
    value, low, high = corrected_share(30.0, 100, Misjudged(0, 50, 0, 50))
    assert value == pytest.approx(0.3)
    assert low < 0.21
    assert high > 0.39


def test_the_estimate_is_rogan_and_gladens():
    # 0.4 told, sensitivity 0.8, specificity 0.9: (0.4 + 0.9 - 1) / (0.8 + 0.9 - 1).
    assert corrected_share(40.0, 100, Misjudged(2, 10, 1, 10))[0] == pytest.approx(0.3 / 0.7)
    assert corrected_share(0.0, 100, Misjudged(2, 10, 1, 10))[0] == 0


def test_the_interval_is_wider_the_less_the_judge_was_measured():
    widths = [
        high - low for _, low, high in (corrected_share(20.0, 100, Misjudged(m // 5, m, 0, m)) for m in (5, 20, 80))
    ]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 1.5 * widths[2]


def test_a_judge_no_better_than_chance_tells_nothing():
    assert corrected_share(7.0, 10, Misjudged(9, 10, 9, 10)) == (0.7, 0.0, 1.0)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
@pytest.mark.parametrize(("miss", "alarm", "labelled"), [(0.05, 0.02, 20), (0.3, 0.1, 30), (0.2, 0.05, 60)])
def test_the_interval_holds_the_truth_at_its_rate(share, miss, alarm, labelled):
    rng, held, runs, n = np.random.default_rng(0), 0, 400, 100
    for _ in range(runs):
        leaks = int(rng.binomial(n, share))
        seen = rng.binomial(leaks, 1 - miss) + rng.binomial(n - leaks, alarm)
        error = Misjudged(int(rng.binomial(labelled, miss)), labelled, int(rng.binomial(labelled, alarm)), labelled)
        _, low, high = corrected_share(float(seen), n, error)
        held += low <= share <= high
    assert held / runs > 0.93


def test_what_is_no_count_is_refused():
    with pytest.raises(ValueError, match="no share"):
        corrected_share(3.0, 2, Misjudged(0, 1, 0, 1))
