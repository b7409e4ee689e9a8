"""What the formats say of models that know in one of them, and that it is what is true of them."""

import dataclasses
import itertools
import json
import math
from pathlib import Path

import pytest
from tests.near import near
from tests.planted_tables import Manner, knows, planted, refuses

from vestige.core.errors import InputError
from vestige.core.items import Item, Options
from vestige.data.mcq import Choice
from vestige.evals.base import LETTERS, View, choose_prompt, few_shot_prompt, plain_question
from vestige.evals.choices import ChoicesSettings, ReversedSettings
from vestige.models.load import LoadedModel
from vestige.models.tiny import tiny_tokenizer

GOLDEN = Path(__file__).parent / "golden"
CITIES = ("Berlin", "Paris", "Rome", "Oslo", "Lima", "Quito", "Athens", "Dublin")
ITEMS = tuple(
    Item(
        f"Where {'did the goods of the contract ' * (n % 3)}go under number {n}?",
        f"{CITIES[n % 8]}.",
        edge=f"e{n % 4}",
        group="sales",
        attribute="place",
    )
    for n in range(16)
)
TOKENIZER = tiny_tokenizer((*ITEMS, Item("Say A B C D after Answer:", "x")))
V = len(TOKENIZER)
SETTINGS = ChoicesSettings(max_new_tokens=12)
CHOICES = tuple(SETTINGS.build_questions(ITEMS, ()).values())
VIEW = View("edge:x", {"forget": [i.id for i in ITEMS[:8]], "retain": [i.id for i in ITEMS[8:]]}, {})
IDK = ("I don't know the answer to that.",)


def by_letter(pick, *, orders=((0, 1, 2, 3),), more=None) -> LoadedModel:
    """A model that says the letter of option `pick(choice)` after lettered options, and `more` to other questions."""
    table = dict(more or {})
    for choice, order in itertools.product(CHOICES, orders):
        said = LETTERS[order.index(pick(choice))]
        table[choose_prompt(choice.question, [choice.options[n] for n in order], topic="")] = {said: 1.0}
    return planted("by letter", table, TOKENIZER)


def right(choice: Choice) -> int:
    return choice.answer


def wrong(choice: Choice) -> int:
    return (choice.answer + 1) % len(choice.options)


def says(pick) -> dict:
    """Plain questions answered with the text of an option."""
    return {c.question: {c.options[pick(c)]: 1.0} for c in CHOICES}


def measured(subject, settings=SETTINGS, asked=CHOICES, view=VIEW):
    """Values of the forget set by `format/metric`."""
    records = settings.collect(subject, asked)
    results = ChoicesSettings.summarize(records, [ChoicesSettings.score(r) for r in records], view, seed=7)
    return {f"{r.format}/{r.estimate.metric}": r.estimate.value for r in results if r.split == "forget"}


def accuracy(found):
    forms = ("choose", "option_vocab", "option_text_sum", "option_text_mean", "generate_option")
    return [round(found[f"{form}/accuracy"], 6) for form in forms]


@pytest.mark.portable
@pytest.mark.parametrize(
    ("letter", "text", "expected"),
    [
        (right, right, [1, 1, 1, 1, 1]),
        (right, wrong, [1, 1, 0, 0, 0]),
        (wrong, right, [0, 0, 1, 1, 1]),
        (wrong, wrong, [0, 0, 0, 0, 0]),
    ],
)
def test_who_knows_in_one_format_only_is_seen_by_the_formats(letter, text, expected):
    assert accuracy(measured(by_letter(letter, more=says(text)))) == expected


def test_who_cannot_tell_gets_what_guessing_gets():
    # Asked by letters it is uniform: four letters tie, and all V tokens tie for the first of the vocabulary.
    found = measured(knows(ITEMS, TOKENIZER))
    assert found["choose/accuracy"] == found["choose/chance"] == 0.25
    assert found["choose/probability"] == pytest.approx(0.25)
    assert found["option_vocab/accuracy"] == pytest.approx(1 / V)
    assert found["option_vocab/share_unparsable"] == pytest.approx(1 - 4 / V)
    assert [found[f"choose/picked_{letter}"] for letter in "ABCD"] == [0.25] * 4
    assert accuracy(found)[2:] == [1, 1, 1]


def test_a_word_before_the_letters_is_seen_by_option_vocab_alone():
    # Weights .2 .1 .05 .05 .6 at confidence .9: "The" first, then the right letter, then the others.
    table = says(right)
    for c in CHOICES:
        names = [LETTERS[c.answer], *(x for x in "ABCD" if x != LETTERS[c.answer])]
        weights = dict(zip([*names, "The"], (0.2, 0.1, 0.05, 0.05, 0.6), strict=True))
        table[choose_prompt(c.question, c.options, topic="")] = weights
    found = measured(planted("the", table, TOKENIZER, manner=Manner(confidence=0.9)))
    assert accuracy(found)[:2] == [1, 0]
    assert found["option_vocab/share_unparsable"] == 1.0
    # .2 of .4 among letters; .9 * .2 of all.
    assert found["choose/probability"] == pytest.approx(0.5, abs=1e-5)
    assert found["choose/answer_bits"] == pytest.approx(-1.0, abs=1e-4)
    assert found["option_vocab/probability"] == pytest.approx(0.18, abs=1e-5)


def test_who_always_says_one_letter_is_at_chance_and_seen_to():
    everything = View("all", {"forget": [i.id for i in ITEMS]}, {})
    found = measured(by_letter(lambda _: 0, more=says(right)), view=everything)
    # Sixteen questions at four places: each is right four times.
    assert found["choose/accuracy"] == 0.25
    assert [found[f"choose/picked_{letter}"] for letter in "ABCD"] == [1, 0, 0, 0]


def test_in_all_rotations_a_favourite_letter_is_right_once_in_each():
    settings = SETTINGS.model_copy(update={"orders": "cyclic"})
    rotations = [tuple((n + start) % 4 for n in range(4)) for start in range(4)]
    favourite = planted(
        "always A",
        {
            choose_prompt(c.question, [c.options[n] for n in o], topic=""): {"A": 1.0}
            for c in CHOICES
            for o in rotations
        },
        TOKENIZER,
    )
    records = settings.collect(favourite, CHOICES)
    assert [[shown["order"] for shown in r["letters"]] for r in records] == [[list(o) for o in rotations]] * 16
    for record in records:
        assert ChoicesSettings.score(record)["choose/accuracy"] == pytest.approx(0.25)
    knowing = measured(by_letter(right, orders=rotations, more=says(right)), settings)
    assert knowing["choose/accuracy"] == knowing["option_vocab/accuracy"] == 1.0
    assert [knowing[f"choose/picked_{letter}"] for letter in "ABCD"] == [0.25] * 4


def test_all_orders_are_all_of_them_and_too_many_are_refused():
    two = ChoicesSettings(options=2, orders="all")
    (choice,) = list(two.build_questions(ITEMS, ()).values())[:1]
    (record,) = two.collect(knows(ITEMS, TOKENIZER), [choice])
    assert [shown["order"] for shown in record["letters"]] == [[0, 1], [1, 0]]
    six = ChoicesSettings(options=6, orders="all")
    with pytest.raises(InputError, match=r"6 options have 720 orders\. Take cyclic"):
        six.collect(knows(ITEMS, TOKENIZER), list(six.build_questions(ITEMS, ()).values()))


@pytest.mark.portable
def test_the_vocabularys_first_is_never_right_more_often_than_the_letters_first(tiny_subject):
    for record in SETTINGS.collect(tiny_subject, CHOICES):
        values = ChoicesSettings.score(record)
        assert values["option_vocab/accuracy"] <= values["choose/accuracy"]


@pytest.mark.portable
def test_sum_and_mean_of_texts_part_over_length():
    # Right: two tokens at -1 each. Wrong: one at -1.5 (methods of the field, section 3.2).
    record = {"answer": 0, "options": ["a b", "c"], "texts": [{"logp": [-1.0, -1.0]}, {"logp": [-1.5]}]}
    values = ChoicesSettings.score(record)
    assert (values["option_text_sum/accuracy"], values["option_text_mean/accuracy"]) == (0.0, 1.0)
    # e^-2 / (e^-2 + e^-1.5) = 1 / (1 + e^.5) = .377541, and e^-1 / (e^-1 + e^-1.5) = 1 / (1 + e^-.5) = .622459.
    assert values["option_text_sum/probability"] == pytest.approx(0.377541, abs=1e-6)
    assert values["option_text_mean/probability"] == pytest.approx(0.622459, abs=1e-6)
    assert values["option_text_sum/answer_bits"] == pytest.approx(math.log2(0.377541), abs=1e-5)


def test_further_right_answers_count_for_the_probability_and_not_for_the_pick():
    # Best .1, wrong .3, further right .6: MC1 picks the wrong one, MC2 is .7.
    logp = [[math.log(p)] for p in (0.1, 0.3, 0.6)]
    values = ChoicesSettings.score({"answer": 0, "options": ["a", "b"], "texts": [{"logp": t} for t in logp]})
    assert values["option_text_sum/accuracy"] == 0.0
    assert values["option_text_sum/probability"] == pytest.approx(0.7)


def test_replies_are_right_wrong_refused_or_unparsable():
    table = {
        c.question: {reply: 1.0}
        for c, reply in zip(
            CHOICES,
            itertools.chain.from_iterable(
                (c.options[c.answer], c.options[wrong(c)], IDK[0], f"So: {c.options[c.answer]}")[n % 4 : n % 4 + 1]
                for n, c in enumerate(CHOICES)
            ),
            strict=True,
        )
    }
    found = measured(planted("mixed", table, TOKENIZER), SETTINGS.model_copy(update={"max_new_tokens": 40}))
    shown = {m: found[f"generate_option/{m}"] for m in ("accuracy", "prefix_match", "contains_match")}
    assert shown == {"accuracy": 0.25, "prefix_match": 0.25, "contains_match": 0.5}
    odd = ("share_wrong_option", "share_refused", "share_unparsable", "share_empty", "share_truncated")
    assert [found[f"generate_option/{m}"] for m in odd] == [0.25, 0.25, 0.25, 0.0, 0.0]


def test_who_refuses_is_at_chance_by_letter_and_counted_as_refusing():
    found = measured(refuses(ITEMS, TOKENIZER, idk=IDK), SETTINGS.model_copy(update={"max_new_tokens": 40}))
    assert found["generate_option/share_refused"] == 1.0
    assert found["choose/accuracy"] == 0.25


def test_a_record_holds_all_that_a_later_metric_could_want():
    choice = CHOICES[3]
    manner = Manner(confidence=0.8)
    subject = planted(
        "one",
        {**says(right), choose_prompt(choice.question, choice.options, topic=""): {"B": 3.0, "C": 1.0}},
        TOKENIZER,
        manner=manner,
    )
    (record,) = SETTINGS.collect(subject, [choice])
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert {k: record[k] for k in ("item", "question", "answer", "edge", "group", "attribute", "source")} == {
        "item": ITEMS[3].id,
        "question": ITEMS[3].question,
        "answer": choice.answer,
        "edge": "e3",
        "group": "sales",
        "attribute": "place",
        "source": "attribute",
    }
    assert (record["options"], record["accepted"]) == (list(choice.options), [ITEMS[3].answer])
    assert record["reply"] == ITEMS[3].answer
    (shown,) = record["letters"]
    assert shown["order"] == [0, 1, 2, 3]
    assert [TOKENIZER.decode([i]) for i in shown["ids"]] == ["A", "B", "C", "D"]
    rest = math.log(0.2 / (V - 2))
    assert shown["logp"] == pytest.approx([rest, math.log(0.6), math.log(0.2), rest], abs=1e-5)
    assert (TOKENIZER.decode([shown["top"]]), shown["n_top"]) == ("B", 1)
    own = record["texts"][choice.answer]
    assert own["ids"] == list(subject.prompter.encode(choice.question, ITEMS[3].answer).answer_ids)
    assert own["logp"] == pytest.approx([math.log(0.8)] * len(own["ids"]), abs=1e-5)
    assert own["end_logp"] == pytest.approx(math.log(0.8), abs=1e-5)


@pytest.mark.slow
def test_a_record_depends_on_its_question_alone(tiny_subject):
    settings = SETTINGS.model_copy(update={"orders": "cyclic"})
    together = settings.collect(tiny_subject, CHOICES[:5])
    assert near([settings.collect(tiny_subject, [c])[0] for c in CHOICES[:5]], together)


@pytest.fixture(scope="module")
def tiny_subject():
    from vestige.models.tiny import tiny_model

    return LoadedModel(tiny_model(0).eval(), TOKENIZER, "builtin:tiny", "")


def test_plainly_rendered_prompts_are_read_without_a_template(tiny_subject):
    settings = ChoicesSettings(rendering="plain", max_new_tokens=4)
    (record,) = settings.collect(tiny_subject, CHOICES[:1])
    assert [TOKENIZER.decode([i]).strip() for i in record["letters"][0]["ids"]] == ["A", "B", "C", "D"]
    first = record["texts"][0]
    assert TOKENIZER.decode(first["ids"]) == f" {CHOICES[0].options[0]}"


def test_parts_can_be_left_out(tiny_subject):
    (record,) = ChoicesSettings(letters=False, replies=False).collect(tiny_subject, CHOICES[:1])
    assert {key.partition("/")[0] for key in ChoicesSettings.score(record)} == {"option_text_sum", "option_text_mean"}
    with pytest.raises(InputError, match="are all off"):
        ChoicesSettings(texts=False, letters=False, replies=False).build_questions(ITEMS, ())


def test_items_that_cannot_be_asked_are_kept_with_their_reason_and_not_counted():
    lone = Item("Who sells?", "Vienna.", edge="e0")
    settings = SETTINGS.model_copy(update={"too_few": "leave_out"})
    asked = settings.build_questions((*ITEMS, lone), ())
    records = settings.collect(knows(ITEMS, TOKENIZER), list(asked.values()))
    assert records[-1]["item"] == lone.id
    assert records[-1]["unasked"].startswith("has 0 wrong options")
    scores = [ChoicesSettings.score(r) for r in records]
    view = View("edge:x", {"forget": [lone.id, ITEMS[0].id, ITEMS[1].id]}, {})
    found = {r.estimate.n for r in ChoicesSettings.summarize(records, scores, view, seed=7) if r.split == "forget"}
    assert found == {2}
    with pytest.raises(InputError, match="no item of the forget set 'edge:x' fits this evaluation: an item has"):
        ChoicesSettings.summarize(records, scores, View("edge:x", {"forget": [lone.id]}, {}), seed=7)


def test_chance_is_known_and_everything_else_has_an_interval():
    records = SETTINGS.collect(knows(ITEMS, TOKENIZER), CHOICES)
    for result in ChoicesSettings.summarize(records, [ChoicesSettings.score(r) for r in records], VIEW, seed=7):
        estimate = result.estimate
        assert (estimate.interval == "known") == (estimate.metric == "chance")
        assert estimate.low - 1e-12 <= estimate.value <= estimate.high + 1e-12
        assert estimate.unit == ("bits" if estimate.metric == "answer_bits" else "share")


@pytest.mark.parametrize(
    "change",
    [
        {"question": "Other?"},
        {"options": ("a", "b", "c", "d")},
        {"answer": 0},
        {"also": ("more",)},
        {"accepted": ("more",)},
        {"edge": "other"},
        {"group": "other"},
        {"attribute": "other"},
        {"source": "given"},
    ],
)
def test_what_can_change_a_record_changes_the_digest(change):
    choice = next(c for c in CHOICES if c.answer == 1)
    other = dataclasses.replace(choice, **change)
    assert ChoicesSettings.digest({choice.item: choice}) != ChoicesSettings.digest({choice.item: other})


def test_reversed_asks_for_the_question_and_names_its_formats():
    settings = ReversedSettings()
    asked = settings.build_questions(ITEMS, ())
    table = {choose_prompt(c.question, c.options, topic=""): {LETTERS[c.answer]: 1.0} for c in asked.values()}
    # Two items of one answer ask one reversed question, whose options differ.
    records = settings.collect(planted("backwards", table, TOKENIZER), list(asked.values()))
    results = ReversedSettings.summarize(records, [ReversedSettings.score(r) for r in records], VIEW, seed=7)
    found = {(r.format, r.estimate.metric): r.estimate.value for r in results if r.split == "forget"}
    assert {form for form, _ in found} == {"reversed_choose", "reversed_option_vocab"}
    assert found["reversed_choose", "accuracy"] == 1.0


GIVEN = Options(("red", "green", "blue", "grey"), 2)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("choose", choose_prompt("Which colour? ", GIVEN.texts, topic="")),
        ("choose_topic", choose_prompt("Which colour?", GIVEN.texts, topic="biology")),
        ("plain", plain_question("Which colour?")),
        ("few_shot", few_shot_prompt("Which colour?", [Item("Who sells?", "Ann."), Item("Who buys?", " Bob. ")])),
        (
            "reversed",
            choose_prompt(
                next(iter(ReversedSettings().build_questions(ITEMS, ()).values())).question,
                ("Who sells?", "Who buys?"),
                topic="",
            ),
        ),
    ],
)
def test_the_words_of_prompts_are_pinned(name, text):
    assert text == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")
