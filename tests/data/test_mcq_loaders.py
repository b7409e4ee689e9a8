"""Multiple-choice data in each form, and each mistake in it named with its place."""

import json
from pathlib import Path

import pytest

from vestige.core.errors import InputError
from vestige.core.items import Item, Options
from vestige.data.loaders import load_items

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
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
    assert "is 'black', which is none of the options" in refusal(tmp_path, {**row, "answer": "black"})


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
        ({**CHOICES, "answer": "blue"}, "is 'blue' and names none"),
        ({**CHOICES, "choices": ["blue"], "answer": 0}, "gives 1 options; a question has 2 to 26"),
        ({**CHOICES, "choices": ["a"] * 27, "answer": 0}, "gives 27 options"),
        ({**CHOICES, "choices": ["blue", "red", "blue"], "answer": 0}, "right option 'blue' among the wrong ones"),
        ({**CHOICES, "choices": ["blue", 3], "answer": 0}, "column 'choices': is no list of texts"),
        ({**CHOICES, "choices": "[broken", "answer": 0}, "is no list of texts; write it as"),
    ],
)
def test_mistakes_are_refused_with_their_place(tmp_path, row, complaint):
    assert complaint in refusal(tmp_path, row)


def test_rows_beyond_the_limit_are_not_checked(tmp_path):
    rows = [{**CHOICES, "answer": 2}, {**CHOICES, "answer": 9}]
    assert loaded(tmp_path, "x.jsonl", "\n".join(map(json.dumps, rows)), limit="1") == (ITEM,)


def test_named_columns_win_over_the_form(tmp_path):
    (item,) = loaded(tmp_path, "x.jsonl", json.dumps({**CHOICES, "answer": "2"}), question_key="question")
    assert (item.answer, item.options) == ("2", None)


def test_a_column_called_options_is_no_form_of_ours(tmp_path):
    row = {"question": "Which?", "answer": "blue", "options": ["red", "blue"]}
    assert loaded(tmp_path, "x.jsonl", json.dumps(row)) == (Item("Which?", "blue"),)


def test_a_paraphrased_answer_is_kept(tmp_path):
    row = {"question": "Who?", "answer": "Ann.", "paraphrased_answer": "It is Ann.", "perturbed_answer": ["It is Bob."]}
    (item,) = loaded(tmp_path, "x.jsonl", json.dumps(row))
    assert (item.paraphrased_answer, item.perturbed) == ("It is Ann.", ("It is Bob.",))


@pytest.mark.parametrize(
    ("name", "n", "first"),
    [
        ("mmlu/test/anatomy_test.csv", 135, "paralysis of the facial muscles."),
        ("mmlu/test/global_facts_test.csv", 100, "40%"),
        ("mmlu/test/high_school_geography_test.csv", 198, "a well-connected transportation infrastructure."),
        ("truthfulqa/TruthfulQA_790.csv", 790, "The watermelon seeds pass through your digestive system"),
        ("truthfulqa/TruthfulQA_v1_817.csv", 817, "The watermelon seeds pass through your digestive system"),
        ("tofu/real_authors.json", 100, "William Shakespeare"),
    ],
)
def test_published_files_are_read_as_they_are(name, n, first):
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{path} is not here")
    items = load_items(path)
    assert (len(items), items[0].answer) == (n, first)
    assert all(i.options.texts[i.options.right] == i.answer for i in items)
