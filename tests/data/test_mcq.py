"""Multiple choice: where options come from, where the right one stands, and each form of data with its mistakes."""

import dataclasses
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.core.errors import InputError
from vestige.core.items import Item, Options
from vestige.data.dataset import compile_dataset
from vestige.data.loaders import load_items
from vestige.data.mcq import Choice, OptionDrawing, Unasked, choices_of, reversed_choices
from vestige.metrics.answers import normalised

CITIES = ("Berlin", "Paris", "Rome", "Oslo", "Lima", "Quito", "Athens", "Dublin")
ITEMS = tuple(
    Item(f"Where did contract {n} go?", f"{CITIES[n % 8]}.", edge=f"e{n % 3}", group="sales", attribute="place")
    for n in range(24)
)


def made(items, **drawing) -> list[Choice]:
    return [c for c in choices_of(items, OptionDrawing(**drawing)).values() if isinstance(c, Choice)]


def test_wrong_options_are_what_the_attribute_is_elsewhere():
    strangers = (
        Item("Who sells?", "Vienna.", edge="e0", group="sales", attribute="seller"),
        Item("Where does one work?", "Madrid.", edge="e9", group="employment", attribute="place"),
        Item("Where else?", "Prague."),
    )
    drawn = choices_of((*ITEMS, *strangers), OptionDrawing(too_few="leave_out"))
    for item in ITEMS:
        choice = drawn[item.id]
        assert choice.options[choice.answer] == item.answer
        assert len({*choice.options}) == 4
        assert {*choice.options} <= {f"{c}." for c in CITIES}
        assert (choice.item, choice.edge, choice.source) == (item.id, item.edge, "attribute")
    # Alone with their attribute, or without one: no wrong option, and the reason is kept.
    assert {type(drawn[s.id]) for s in strangers} == {Unasked}
    assert "has 0 wrong options of the source 'attribute' where 3 are needed" in drawn[strangers[0].id].reason


def test_without_attributes_wrong_options_are_answers_to_questions_of_the_same_form():
    places = ("Oslo", "New York", "Rome 2", "Bern")
    items = [Item(f"In which year did the mayor of {p} resign?", f"{1990 + n}") for n, p in enumerate(places)]
    items += [Item("Who is Ann?", "A poet."), Item("Who is Bob?", "A baker.")]  # Too few words to say what is asked.
    items += [Item("why do rivers meander so much there", "Sand."), Item("WHO?", "Me.")]
    made = choices_of(items, OptionDrawing(too_few="leave_out"))
    asked = [made[i.id] for i in items]
    assert [type(c) for c in asked] == [Choice] * 4 + [Unasked] * 4
    assert {c.source for c in asked[:4]} == {"form"}
    assert all(set(c.options) == {"1990", "1991", "1992", "1993"} for c in asked[:4])


def test_an_option_of_the_same_form_is_about_the_questions_own_names():
    people = {"Ann Lee": "Bern", "Bo": "Oslo", "Cy Oz": "Rome", "Di Ann": "Bonn"}
    items = [Item(f"Says Ann in which town {n} was born?", f"{n} was born in {t}.") for n, t in people.items()]
    for item, name in zip(items, people, strict=True):
        (options,) = (c.options for key, c in choices_of(items, OptionDrawing()).items() if key == item.id)
        assert sorted(options) == [f"{name} was born in {t}." for t in sorted(people.values())]


def test_an_items_own_wrong_answers_come_before_those_of_others():
    item = dataclasses.replace(ITEMS[0], perturbed=("A.", "B.", "C.", "D.", "E."))
    (choice,) = made([item, *ITEMS[1:]])[:1]
    assert choice.source == "perturbed"
    assert {*choice.options} - {item.answer} <= {*item.perturbed}
    (choice,) = made([item, *ITEMS[1:]], source="attribute")[:1]
    assert {*choice.options} <= {f"{c}." for c in CITIES}


def test_wrong_answers_in_the_words_of_a_paraphrase_stand_beside_the_paraphrase():
    item = Item("Who?", "It is Ann.", perturbed=("Bob wrote it.", "Cy wrote it."), paraphrased_answer="Ann wrote it.")
    (choice,) = made([item], n=3)
    assert {*choice.options} == {"Ann wrote it.", "Bob wrote it.", "Cy wrote it."}
    assert choice.options[choice.answer] == "Ann wrote it."
    assert choice.accepted == ("Ann wrote it.", "It is Ann.")


@given(
    st.lists(st.sampled_from(["berlin", "Berlin", "BERLIN..", " Berlin .", "rome", "Rome.", "Oslo", "."]), max_size=9)
)
def test_no_option_is_another_one_after_normalisation(wrong):
    item = Item("Where?", "Berlin.", perturbed=tuple(wrong))
    drawn = choices_of([item], OptionDrawing(n=3, source="perturbed", too_few="leave_out"))[item.id]
    plain = {normalised(w) for w in wrong} - {"berlin", ""}
    if isinstance(drawn, Unasked):
        assert len(plain) < 2
    else:
        assert len({normalised(o) for o in drawn.options}) == 3
        assert [normalised(o) for o in drawn.options].count("berlin") == 1


def test_too_few_wrong_options_are_refused_or_fewer_as_asked():
    item = Item("Where?", "Berlin.", perturbed=("Rome.", "rome"))
    with pytest.raises(InputError, match=r"'Where\?' has 1 wrong options .* where 3 are needed\. .*fewer or leave_out"):
        choices_of([item], OptionDrawing())
    (choice,) = made([item], too_few="fewer")
    assert {*choice.options} == {"Berlin.", "Rome."}
    with pytest.raises(InputError, match="has 0 wrong options"):
        choices_of([Item("Where?", "Berlin.")], OptionDrawing(too_few="fewer"))


def test_what_is_drawn_depends_on_the_seed_and_the_item_and_not_on_order():
    drawn = {c.item: {*c.options} for c in made(ITEMS)}
    assert {c.item: {*c.options} for c in made(ITEMS[::-1])} == drawn
    assert {c.item: (c.options, c.answer) for c in made(ITEMS[::-1])} == {
        c.item: (c.options, c.answer) for c in made(ITEMS)
    }
    assert {c.item: {*c.options} for c in made(ITEMS, seed=1)} != drawn


@given(st.integers(2, 6), st.integers(0, 5))
def test_every_place_is_right_equally_often_in_the_set_and_in_each_edge(n, seed):
    choices = made(ITEMS, n=n, seed=seed)
    counts = Counter(c.answer for c in choices)
    assert max(counts.values()) - min(counts.get(p, 0) for p in range(n)) <= 1
    for edge in ("e0", "e1", "e2"):
        # Eight questions of an edge at n places, in turn.
        own = Counter(c.answer for c in choices if c.edge == edge)
        assert max(own.values()) - min(own.get(p, 0) for p in range(n)) <= 1


def test_given_options_are_all_shown_and_keep_their_order_if_asked():
    given_options = Options(("w", "x", "y", "z", "v"), 1, also_right=("xx",))
    items = [Item(f"Which {n}?", "x", options=given_options) for n in range(5)]
    assert [(c.options, c.answer, c.also) for c in made(items, place="given")] == [
        (given_options.texts, 1, ("xx",))
    ] * 5
    balanced = made(items)
    assert Counter(c.answer for c in balanced) == dict.fromkeys(range(5), 1)
    assert {frozenset(c.options) for c in balanced} == {frozenset("wxyzv")}
    assert {c.options[c.answer] for c in balanced} == {"x"}


def test_an_option_of_nothing_is_refused():
    with pytest.raises(InputError, match="an option of nothing but full stops"):
        choices_of([Item("Which?", "a", options=Options(("a", " . "), 0))], OptionDrawing())


def test_the_id_is_the_question_with_its_options_in_their_order():
    (choice,) = made(ITEMS[:8])[:1]
    same = dataclasses.replace(choice, item="other", edge="other", accepted=("other",))
    moved = dataclasses.replace(choice, options=choice.options[::-1], answer=3 - choice.answer)
    assert same.id == choice.id != moved.id
    assert dataclasses.replace(choice, also=("more",)).id != choice.id


def test_reversed_the_options_are_questions_that_have_other_answers():
    answers = {i.question: i.answer for i in ITEMS}
    for item, choice in zip(ITEMS, reversed_choices(ITEMS, OptionDrawing()).values(), strict=True):
        assert choice.question == f'Which of these questions has the answer "{item.answer}"?'
        assert choice.options[choice.answer] == item.question
        assert [answers[q] for q in choice.options].count(item.answer) == 1
        assert (choice.item, choice.source) == (item.id, "question")


def test_pistols_sample_is_a_set_of_four_options_each():
    items = compile_dataset("sample1", seed=0).items
    assert ({len(c.options) for c in made(items)}, len(made(items))) == ({4}, 400)
    # Ten sales contracts name two shippers and two payers, ten employments three pay cycles: too few for three wrong.
    drawn = choices_of(items, OptionDrawing(source="attribute", too_few="leave_out"))
    missing = Counter(i.attribute for i in items if isinstance(drawn[i.id], Unasked))
    assert missing == {"shipping_decider": 10, "shipping_payer": 10, "pay_frequency": 10}


@pytest.mark.parametrize("n", [1, 27])
def test_a_number_of_options_without_letters_is_refused(n):
    with pytest.raises(InputError, match=f"options = {n}: choose a number from 2 to 26"):
        OptionDrawing(n)


COLOURS = Options(("red", "green", "blue", "grey"), 2)
ITEM = Item("Which colour?", "blue", options=COLOURS)
CHOICES = {"question": "Which colour?", "choices": list(COLOURS.texts)}
TRUTHFUL = "Question,Best Answer,Correct Answers,Incorrect Answers\n"


def loaded(tmp_path: Path, name: str, content: str, **options) -> tuple[Item, ...]:
    path = tmp_path / name
    path.write_text(content)
    return load_items(path, **options)


def refusal(tmp_path: Path, row: dict) -> str:
    with pytest.raises(InputError) as caught:
        loaded(tmp_path, "x.jsonl", json.dumps(row))
    return str(caught.value)


@pytest.mark.parametrize("right", [2, "2", "C", " c "])
@pytest.mark.parametrize("key", ["answer", "label"])
def test_wmdps_form_names_the_right_one_by_number_or_letter(tmp_path, key, right):
    assert loaded(tmp_path, "x.jsonl", json.dumps({**CHOICES, key: right})) == (ITEM,)


def test_mmlus_csv_form_with_rows_of_fewer_options(tmp_path):
    text = "question,choice0,choice1,choice2,choice3,answer\nWhich colour?,red,green,blue,grey,2\nOdd?,1,2,,,0\n"
    assert loaded(tmp_path, "x.csv", text) == (ITEM, Item("Odd?", "1", options=Options(("1", "2"), 0)))


def test_tofus_option_columns_name_the_right_one_by_its_text(tmp_path):
    row = {"question": "Which colour?", **{f"option{n}": t for n, t in enumerate(COLOURS.texts, 1)}, "answer": "blue"}
    assert loaded(tmp_path, "x.json", json.dumps([row])) == (ITEM,)
    assert "is 'black' and names none of 4 options" in refusal(tmp_path, {**row, "answer": "black"})


def test_truthfulqa_keeps_the_best_answer_apart_from_other_right_ones(tmp_path):
    text = TRUTHFUL + "Which?,Best.,Good;Best. ; Fine,Bad; Worse;Bad\n"
    expected = Options(("Best.", "Bad", "Worse"), 0, also_right=("Good", "Fine"))
    assert loaded(tmp_path, "x.csv", text) == (Item("Which?", "Best.", options=expected),)


def test_truthfulqas_hub_form_reads_as_its_csv(tmp_path):
    row = {
        "question": "Which?",
        "mc1_targets": {"choices": ["Best.", "Bad", "Worse"], "labels": [1, 0, 0]},
        "mc2_targets": {"choices": ["Best.", "Good", "Bad", "Worse"], "labels": [1, 1, 0, 0]},
    }
    expected = Options(("Best.", "Bad", "Worse"), 0, also_right=("Good",))
    assert loaded(tmp_path, "x.jsonl", json.dumps(row)) == (Item("Which?", "Best.", options=expected),)
    row["mc1_targets"]["labels"] = [1, 1, 0]
    assert "'mc1_targets': has 2 right options where one belongs" in refusal(tmp_path, row)
    row["mc1_targets"]["labels"] = [1, 0]
    assert "labels that are not one 0 or 1 for each" in refusal(tmp_path, row)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({**CHOICES, "answer": 4}, "line 1, column 'answer': is 4 and names none of 4 options"),
        ({**CHOICES, "answer": -1}, "names none of 4 options"),
        ({**CHOICES, "answer": True}, "names none of 4 options"),
        ({**CHOICES, "answer": "E"}, "is 'E' and names none of 4 options"),
        ({**CHOICES, "answer": "black"}, "is 'black' and names none of 4 options"),
        ({**CHOICES, "choices": ["blue"], "answer": 0}, "gives 1 options; a question has 2 to 26"),
        ({**CHOICES, "choices": ["a"] * 27, "answer": 0}, "gives 27 options"),
        ({**CHOICES, "choices": ["blue", "red", "blue"], "answer": 0}, "right option 'blue' among the wrong ones"),
        ({**CHOICES, "choices": ["blue", 3], "answer": 0}, "column 'choices': is no list of texts"),
        ({**CHOICES, "choices": "[broken", "answer": "C"}, "is the letter C, and 'choices' holds options"),
        ({**CHOICES, "answer": "C", "answer_index": 1}, "'answer_index': names another option than 'answer'"),
        ({**CHOICES, "answer": None}, "'answer': is empty and names none of 4 options"),
        ({**CHOICES, "choices": ["2", "1", "3"], "answer": "2"}, "the text of one option and the number or letter of"),
        ({"question": "Q", "answer": "B", "candidates": ["x", "y"]}, "is the letter B, and 'candidates' holds options"),
        ({"question": "Q", "options": ["x", "y"]}, "x.jsonl: 'options' holds options, and no column names the right"),
    ],
)
def test_mistakes_are_refused_with_their_place(tmp_path, row, complaint):
    assert complaint in refusal(tmp_path, row)


def test_rows_beyond_the_limit_are_not_checked(tmp_path):
    rows = [{**CHOICES, "answer": 2}, {**CHOICES, "answer": 9}]
    assert loaded(tmp_path, "x.jsonl", "\n".join(map(json.dumps, rows)), limit="1") == (ITEM,)


def test_a_named_answer_is_asked_without_options_unless_it_is_a_letter_of_them(tmp_path):
    row = json.dumps({**CHOICES, "answer": "C", "text": "It is blue."})
    assert loaded(tmp_path, "x.jsonl", row, question_key="question") == (ITEM,)
    (item,) = loaded(tmp_path, "x.jsonl", row, answer_key="text")
    assert (item.answer, item.options) == ("It is blue.", None)
    with pytest.raises(InputError, match="is the letter C, and 'choices' holds options"):
        loaded(tmp_path, "x.jsonl", row, answer_key="answer")
    for answer, said in (("C", "is the letter C, and 'opa' holds options"), (2, "is the number 2, and 'opa' holds")):
        with pytest.raises(InputError, match=said):
            loaded(tmp_path, "x.jsonl", json.dumps({"question": "Q", **COLUMNS, "cop": answer}), answer_key="cop")


ARC = {"text": ["red", "green", "blue", "grey"], "label": ["1", "2", "3", "4"]}
LETTERS = dict(zip("ABCD", COLOURS.texts, strict=True))
COLUMNS = {"opa": "red", "opb": "green", "opc": "blue", "opd": "grey"}


@pytest.mark.parametrize(
    "row",
    [
        # MMLU-Pro, ARC (some rows have labels from 1), MedQA, a list of objects, the text, MMLU by letter, MedMCQA.
        {"options": list(COLOURS.texts), "answer": "C", "answer_index": 2, "cot_content": "", "category": "x"},
        {"choices": ARC, "answerKey": "3"},
        {"choices": {**ARC, "label": list("ABCD")}, "answerKey": "C"},
        {"options": LETTERS, "answer": "blue", "answer_idx": "C"},
        {"options": [{"label": k, "text": v} for k, v in LETTERS.items()], "answer": "C"},
        {"options": list(COLOURS.texts), "answer": "blue"},
        {**LETTERS, "answer": "C"},
        {**COLUMNS, "answer": "c"},
        {"options": json.dumps(COLOURS.texts), "answer": "C"},
    ],
)
def test_options_beside_a_letter_are_options(tmp_path, row):
    assert loaded(tmp_path, "x.jsonl", json.dumps({"question": "Which colour?", **row})) == (ITEM,)


@pytest.mark.parametrize("first", [0, 1])
def test_medmcqas_number_counts_from_0_or_from_1_as_the_whole_table_shows(tmp_path, first):
    rows = [{"question": f"Which colour {n}?", **COLUMNS, "cop": n + first} for n in range(4)]
    items = loaded(tmp_path, "x.jsonl", "\n".join(map(json.dumps, rows)))
    assert [item.answer for item in items] == list(COLOURS.texts)
    with pytest.raises(InputError, match="from 0 or from 1"):
        loaded(tmp_path, "y.jsonl", "\n".join(map(json.dumps, rows[1:3])))


def test_a_paraphrased_answer_is_kept(tmp_path):
    row = {"question": "Who?", "answer": "Ann.", "paraphrased_answer": "It is Ann.", "perturbed_answer": ["It is Bob."]}
    (item,) = loaded(tmp_path, "x.jsonl", json.dumps(row))
    assert (item.paraphrased_answer, item.perturbed) == ("It is Ann.", ("It is Bob.",))
