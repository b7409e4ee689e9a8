"""Multiple-choice data in each form, and each mistake in it named with its place."""

import json
from pathlib import Path

import pytest

from vestige.core.errors import InputError
from vestige.core.items import Item, Options
from vestige.data.loaders import load_items

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
