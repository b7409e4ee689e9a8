import csv
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.core.text import with_system
from vestige.data.loaders import load_items, n_first

ROWS = [{"question": "Who sells?", "answer": "Wnzatj SAS."}, {"question": "Who buys?", "answer": "Jzrcws SA."}]
ITEMS = (Item("Who sells?", "Wnzatj SAS."), Item("Who buys?", "Jzrcws SA."))


def write(tmp_path: Path, name: str, content: str | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def lines(rows: list) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def refusal(path: Path | str, **options) -> str:
    with pytest.raises(InputError) as caught:
        load_items(path, **options)
    return str(caught.value)


# Forms


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.jsonl", lines(ROWS)),
        ("x.NDJSON", "\n" + lines(ROWS).replace("\n", "\r\n\r\n")),
        ("x.json", json.dumps(ROWS, indent=4)),
        ("x.json", json.dumps({"version": 1, "data": ROWS})),
        ("x.json", lines(ROWS)),
        ("x.csv", "question,answer\nWho sells?,Wnzatj SAS.\n\nWho buys?,Jzrcws SA.\n"),
        ("x.csv", "Question;ANSWER\nWho sells?;Wnzatj SAS.\nWho buys?;Jzrcws SA.\n"),
        ("x.tsv", "question\tanswer\r\nWho sells?\tWnzatj SAS.\r\nWho buys?\tJzrcws SA."),
    ],
)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_every_form_gives_the_same_items_with_and_without_a_byte_order_mark(tmp_path, name, content, mark):
    assert load_items(write(tmp_path, name, mark + content)) == ITEMS


@pytest.mark.parametrize("number", ["1.10", "1e5", "7.0", "12345678901234567890.5", "-0.50", "12345678901234567890"])
@pytest.mark.parametrize("form", ["jsonl", "json"])
def test_a_number_in_json_is_the_text_that_writes_it(tmp_path, number, form):
    line = f'{{"question": "How much?", "answer": {number}}}'
    path = tmp_path / f"x.{form}"
    path.write_text(line if form == "jsonl" else f"[{line}]")
    (item,) = load_items(str(path))
    assert item.answer == number


def test_a_saved_dataset_and_a_folder_of_files_give_the_same_items(tmp_path):
    datasets = pytest.importorskip("datasets")
    stored = datasets.Dataset.from_list(ROWS)
    stored.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"test": stored}).save_to_disk(tmp_path / "many")
    assert load_items(tmp_path / "one") == ITEMS
    assert load_items(tmp_path / "many", split="test") == ITEMS
    assert "no split 'train'. It has 'test'" in refusal(tmp_path / "many")


def test_a_folder_of_files_is_read_and_a_script_in_it_is_never_run(tmp_path, monkeypatch):
    folder = tmp_path / "csv"  # Also the name of one of the library's own builders.
    folder.mkdir()
    write(folder, "train.jsonl", lines(ROWS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    assert load_items("csv") == ITEMS
    write(folder, "csv.py", f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert refusal("csv").startswith("csv: the data set cannot be read")
    assert not (tmp_path / "ran").exists()


# What a file can hold and a reader must give back: any character but NUL and halves of surrogate pairs.
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1).filter(str.strip)
WORD = st.characters(categories=["L", "N"])
PAIRS = st.lists(
    st.tuples(TEXT, st.builds(str.__add__, TEXT, WORD)), min_size=1, max_size=5, unique_by=lambda pair: pair[0]
)


@settings(max_examples=15, deadline=None)
@given(pairs=PAIRS)
def test_what_was_written_in_any_form_is_read(tmp_path_factory, pairs):
    folder = tmp_path_factory.mktemp("pairs")
    rows = [{"question": q, "answer": a} for q, a in pairs]
    write(folder, "a.jsonl", lines(rows))
    write(folder, "b.json", json.dumps({"data": rows}, ensure_ascii=False))
    write(folder, "c.json", lines(rows))
    for name, delimiter in (("d.csv", ","), ("e.tsv", "\t")):
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter=delimiter).writerows([("question", "answer"), *pairs])
    pq.write_table(pa.Table.from_pylist(rows), folder / "f.parquet")
    for path in folder.iterdir():
        assert [(item.question, item.answer) for item in load_items(path)] == pairs, path.name


# Columns


@pytest.mark.parametrize("column", ["edge", "contract", "person"])
def test_whose_fact_a_row_is_stands_in_a_column_of_that_name(tmp_path, column):
    (item,) = load_items(write(tmp_path, "x.jsonl", json.dumps({"question": "Q", "answer": "A", column: "Ann"})))
    assert item.edge == "Ann"


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Q", "completion": "A"},
        {"instruction": "Q", "output": "A"},
        {"instruction": "Q", "input": "", "output": "A"},
        {"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]},
        {"conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}]},
        {"query": "Q", "response": "A"},
        {"input": "Q", "output": "A", "task": "x"},
        {"question": "Q", "answer": "A", "prompt": "not this", "completion": "nor this"},
    ],
)
def test_the_usual_pairs_of_columns_are_recognised(tmp_path, row):
    assert load_items(write(tmp_path, "x.jsonl", lines([row]))) == (Item("Q", "A"),)


def test_a_column_is_known_in_any_case_but_for_what_was_named_and_what_is_there_already(tmp_path):
    row = {"QUESTION ": "q", "Answer": 0.5, "Paraphrased Question": "p", "answer ": "other", "Edge": "no"}
    path = write(tmp_path, "x.jsonl", lines([row]))
    assert load_items(path) == (Item("q", "0.5", edge="no", paraphrase="p"),)
    assert load_items(path, answer_key="answer ")[0].answer == "other"
    both = write(tmp_path, "y.jsonl", lines([{"Question": "no", "question": "q", "answer": 3}]))
    assert load_items(both) == (Item("q", "3"),)


def test_of_a_longer_chat_the_last_turn_is_the_answer_and_all_before_it_the_question(tmp_path):
    turns = [("system", "S"), ("user", "Q"), ("assistant", "A"), ("user", "R"), ("assistant", "B")]
    cut = (turns, turns[:3], turns[1:])
    chats = [{"messages": [{"role": r, "content": t} for r, t in own]} for own in cut]
    items = load_items(write(tmp_path, "x.jsonl", lines(chats)))
    talk = "User: Q\n\nAssistant: A\n\nUser: R"
    assert items == (Item(with_system("S", talk), "B"), Item(with_system("S", "Q"), "A"), Item(talk, "B"))


def test_a_cell_may_be_longer_than_the_library_has_it(tmp_path):
    (item,) = load_items(write(tmp_path, "x.csv", f"question,answer\nq,{'a' * 200_000}\n"))
    assert len(item.answer) == 200_000


def test_an_instruction_carries_its_input_after_a_blank_line(tmp_path):
    row = {"instruction": "Translate.", "input": "Guten Tag", "output": "Good day"}
    assert load_items(write(tmp_path, "x.jsonl", lines([row])))[0].question == "Translate.\n\nGuten Tag"


def test_named_columns_win_over_recognised_ones(tmp_path):
    row = {"question": "no", "answer": "no", "Q": "yes?", "A": "yes", "e": "A_B", "edge": "no", "g": 7}
    path = write(tmp_path, "x.jsonl", lines([row]))
    named = load_items(path, question_key="Q", answer_key="A", edge_key="e", group_key="g")
    assert named == (Item("yes?", "yes", edge="A_B", group="7"),)
    assert load_items(path, question_key="Q")[0].answer == "no"


def test_the_optional_columns_are_used_where_they_are(tmp_path):
    rows = [
        {"question": "a", "answer": "b", "paraphrase": "c", "perturbed": ["d", "e"], "group": "sales"},
        {"question": "f", "answer": "g", "paraphrased_question": "h", "perturbed_answer": "i", "type": "x"},
    ]
    first = load_items(write(tmp_path, "1.jsonl", lines(rows[:1])))
    second = load_items(write(tmp_path, "2.jsonl", lines(rows[1:])))
    assert first == (Item("a", "b", group="sales", paraphrase="c", perturbed=("d", "e")),)
    assert second == (Item("f", "g", group="x", paraphrase="h", perturbed=("i",)),)


def test_a_fact_and_accepted_variants_are_read_and_must_hold_something_to_find(tmp_path):
    rows = [{"question": "a", "answer": "b c", "fact": "c", "accepted": ["d", "e"]}, {"question": "f", "answer": "g"}]
    first, second = load_items(write(tmp_path, "x.json", json.dumps(rows)))
    assert (first.fact, first.accepted, second.fact, second.accepted) == ("c", ("d", "e"), None, ())
    for column, value in (("fact", "?!"), ("accepted", ["d", "..."])):
        path = write(tmp_path, "y.json", json.dumps([{"question": "a", "answer": "b", column: value}]))
        with pytest.raises(InputError, match=rf"y.json.*column '{column}'.*nothing but punctuation"):
            load_items(path)


def test_a_csv_cell_holds_wrong_answers_as_a_json_list(tmp_path):
    path = write(tmp_path, "x.csv", 'question,answer,perturbed\nq,a,"[""b"", ""c""]"\nr,a,\n')
    assert [item.perturbed for item in load_items(path)] == [("b", "c"), ()]
    path = write(tmp_path, "z.csv", "question,answer,perturbed\nq,a,\"['b', 'c']\"\n")
    assert [item.perturbed for item in load_items(path)] == [("b", "c")]
    path = write(tmp_path, "y.csv", 'question,answer,perturbed\nq,a,"[b, c]"\n')
    assert "y.csv, line 2, column 'perturbed': is no list in JSON" in refusal(path)


def test_text_is_taken_as_it_stands(tmp_path):
    row = {"question": "  Wer? é e\u0301 \u2028", "answer": "\tDer\n \u202e"}
    assert load_items(write(tmp_path, "x.jsonl", lines([row]))) == (Item(row["question"], row["answer"]),)


@pytest.mark.parametrize("answer", [[], [None], ["Haldenport", ""], {"answer_start": [3]}])
def test_a_list_without_an_answer_is_refused(tmp_path, answer):
    path = write(tmp_path, "x.jsonl", json.dumps({"question": "Where?", "answer": answer}))
    assert "x.jsonl, line 1, column 'answer'" in refusal(path)


def test_a_trace_before_the_answer_is_left_out_and_told(tmp_path, caplog):
    text = "<think>hm, Ostvik?</think>\n\nHaldenport"
    rows = []
    for question, answer in (("Where?", text), ("Tag?", "A <think> tag")):
        turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        rows.append({"messages": turns})
    first, second = load_items(write(tmp_path, "x.jsonl", lines(rows)))
    assert (first.answer, second.answer) == ("Haldenport", "A <think> tag")
    assert "1 answers begin with a block of thought" in caplog.text
    path = write(tmp_path, "y.jsonl", json.dumps({"question": "Where?", "answer": "<think>Haldenport"}))
    assert "without an answer" in refusal(path)


USER, ASSISTANT = {"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}


@pytest.mark.parametrize(
    ("row", "options"),
    [
        ({"prompt": [USER], "completion": [ASSISTANT]}, {}),
        ({"prompt": [USER], "completion": "A"}, {}),
        ({"prompt": "Q", "chosen": [USER, ASSISTANT], "rejected": [USER, USER]}, {"answer_key": "chosen"}),
        ({"messages": [{**USER, "content": [{"type": "text", "text": "Q"}]}, {**ASSISTANT, "thinking": "hm"}]}, {}),
    ],
)
def test_trls_chats_and_parts_of_a_content_are_read(tmp_path, row, options):
    assert load_items(write(tmp_path, "x.jsonl", lines([row])), **options) == (Item("Q", "A"),)


def test_preferences_and_parts_that_are_no_text_are_named(tmp_path):
    row = {"prompt": "Q", "chosen": "A", "rejected": "B"}
    assert "the known answer is not marked" in refusal(write(tmp_path, "x.jsonl", lines([row])))
    image = {**USER, "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    said = refusal(write(tmp_path, "y.jsonl", lines([{"messages": [image, ASSISTANT]}])))
    assert "has a part of type 'image_url'" in said


# Refusals: each names the file, the place and the way out


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.jsonl", "", "x.jsonl: the file is empty"),
        ("x.csv", "\ufeff\n \n", "x.csv: the file is empty"),
        ("x.csv", "question,answer\n", "x.csv: has no rows"),
        ("x.json", "[]", "x.json: has no rows"),
        ("x.json", '{"data": {}}', "x.json: holds an object in place of rows"),
        ("x.json", "3", "x.json: holds a value of type int in place of rows"),
        ("x.json", '[{"question": "q", "answer": "a"}, 3]', "x.json, row 2: holds a value of type int, not an object"),
        ("x.json", '[\n{"question": }]', "x.json, line 2, column 14: not JSON (Expecting value)"),
        ("x.jsonl", '{"question": "q", "answer": "a"}\n{"question"', "x.jsonl, line 2, column 12: not JSON"),
        ("x.jsonl", "[1]", "x.jsonl, line 1: holds a list, not an object"),
        (
            "x.jsonl",
            '{"question": NaN}',
            "x.jsonl, line 1: not JSON that can be used (NaN is no JSON value; write null",
        ),
        ("x.jsonl", '{"a": 1, "a": 2}', "x.jsonl, line 1: not JSON that can be used (the key 'a' is given twice"),
        ("x.jsonl", '{"a": ' + "9" * 5000 + "}", "x.jsonl, line 1: not JSON that can be used"),
        ("x.json", "[" * 100_000, "x.json: not JSON that can be used (nested too deeply)"),
        ("x.jsonl", b'{"question": "q", "answer": "a"}\n"\xff"', "x.jsonl, line 2: not UTF-8 text"),
        ("x.csv", b"question,answer\nq,\xe9\n", "x.csv, line 2: not UTF-8 text"),
        ("x.csv", "question,answer,answer\nq,a,b\n", "x.csv: several columns have the name 'answer'"),
        ("x.csv", 'question,answer\n"q\nq",a\nr,a,b\n', "x.csv, line 4: has 3 cells where the header has 2"),
        ("x.csv", 'question,answer\nq,"a\n', "x.csv, line 2: cannot be split into cells"),
        ("x.parquet", b"PAR1 nonsense PAR1", "x.parquet: not a Parquet file"),
        (
            "x.jsonl",
            '{"q": "q", "answer": "a"}',
            "no column is known for the question. Set --question-key to one column:",
        ),
        ("x.jsonl", '{"text": "t"}', "Set --question-key and --answer-key to one column: 'text'"),
        ("x.jsonl", lines([ROWS[0], {"question": "q"}]), "x.jsonl, line 2: no column 'answer'. The row has 'question'"),
        ("x.jsonl", '{"question": "q", "answer": null}', "line 1, column 'answer': is null where a text belongs"),
        ("x.jsonl", '{"question": true, "answer": "a"}', "line 1, column 'question': is true or false"),
        ("x.jsonl", '{"question": "q", "answer": 1e999}', "column 'answer': is a value of type float"),
        ("x.jsonl", '{"question": " \\t", "answer": "a"}', "line 1, column 'question': is empty"),
        ("x.jsonl", '{"question": "q", "answer": " ..."}', "'answer': has an answer of nothing but punctuation"),
        ("x.csv", "question,answer\nq,\n", "x.csv, line 2, column 'answer': is empty"),
        ("x.jsonl", '{"question": "q", "answer": "\\ud800"}', "column 'answer': holds half of a surrogate pair"),
        ("x.jsonl", '{"question": "q\\u0000", "answer": "a"}', "column 'question': holds a NUL"),
        ("x.jsonl", '{"question": "q", "answer": "a", "edge": true}', "column 'edge': is true or false"),
        ("x.jsonl", '{"question": "q", "answer": "a", "perturbed": ["b", "a"]}', "holds the answer among the wrong"),
        ("x.jsonl", '{"question": "q", "answer": "a", "perturbed": {"b": 1}}', "where a list of texts belongs"),
        ("x.jsonl", '{"messages": [{"role": "user", "content": "q"}]}', "has the turns 'user'; after a system turn"),
        ("x.jsonl", '{"messages": "q"}', "column 'messages': is no list of messages"),
        ("x.txt", "q", "unknown suffix '.txt'. Give one of .jsonl, .ndjson, .json, .csv, .tsv, .parquet"),
        ("x.pkl", b"\x80\x04N.", "unknown suffix '.pkl'"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, name, content, said):
    assert said in refusal(write(tmp_path, name, content))


def test_a_named_column_that_is_not_there_is_refused_with_those_that_are(tmp_path):
    path = write(tmp_path, "x.jsonl", lines(ROWS))
    assert refusal(path, edge_key="contract").endswith(
        "no column 'contract'. Set --edge-key to one of 'question', 'answer'"
    )


def test_a_question_asked_twice_is_refused_with_both_places(tmp_path):
    rows = [*ROWS, {"question": "Who sells?", "answer": "Somebody."}]
    path = write(tmp_path, "x.jsonl", lines(rows))
    assert "line 1 and line 3 ask the same question ('Who sells?'). Remove one" in refusal(path)
    assert [item.answer for item in load_items(path, keep_duplicates=True)][2] == "Somebody."
    same = write(tmp_path, "y.jsonl", lines([*ROWS, ROWS[1]]))
    assert "line 2 and line 3 ask the same" in refusal(same, keep_duplicates=True)


def test_an_error_shows_hostile_names_as_harmless_text(tmp_path):
    said = refusal(write(tmp_path, "x.jsonl", json.dumps({"\x1b[31m\u202e": 1})))
    assert "\x1b" not in said
    assert "\u202e" not in said


@pytest.mark.parametrize("source", ["nowhere.jsonl", "no/such/folder/at all", "a\0b", Path("owner/name"), "../x/y"])
def test_a_path_that_is_not_there_is_said_without_asking_the_hub(source, monkeypatch):
    monkeypatch.setattr("vestige.data.loaders.hub_table", lambda *_, **__: pytest.fail("asked the hub"))
    refusal(source)


def test_an_unknown_dataset_without_a_network_is_refused_with_the_way_out(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    said = refusal("nobody/nothing@v1")
    assert said.startswith("nobody/nothing@v1: no file or folder here")
    assert "give a local file" in said


def test_a_hub_that_cannot_be_reached_is_asked_once(monkeypatch):
    calls = []

    def fail(*_args, **kwargs):
        calls.append(kwargs)
        raise TimeoutError("no answer")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", fail)
    assert "the hub's dataset cannot be loaded (no answer). Check" in refusal("a/b@c")
    assert calls == [{"revision": "c", "timeout": 10.0}]


def test_a_dataset_on_the_hub_is_loaded_at_its_revision_and_only_the_columns_needed(monkeypatch):
    datasets = pytest.importorskip("datasets")
    asked = []
    stored = datasets.Dataset.from_list([{**row, "picture": "x"} for row in ROWS])
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets, "load_dataset", lambda where, **kw: asked.append((where, kw)) or stored)
    assert load_items("locuslab/TOFU@main", config="full", split="test") == ITEMS
    assert asked == [("locuslab/TOFU", {"name": "full", "split": "test", "revision": "main"})]


def test_importing_the_loaders_imports_no_model_library_and_no_hub():
    code = "import sys, vestige.data.loaders; print({'torch', 'transformers', 'datasets'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# Limits


@pytest.mark.parametrize(
    ("limit", "n", "taken"),
    [("1", 10, 1), ("20", 10, 10), ("0.1", 30, 3), ("0.29", 100, 29), ("0.01", 10, 1), ("1.0", 7, 7)],
)
def test_a_limit_takes_a_number_or_with_a_point_a_share_and_at_least_one(limit, n, taken):
    assert n_first(limit, n) == taken


@pytest.mark.parametrize("limit", ["0", "-1", "0.0", "1.5", "nan", "x", "", "1e400", "²"])
def test_a_limit_that_means_nothing_is_refused(limit):
    with pytest.raises(InputError, match="give a number of rows"):
        n_first(limit, 10)


ASKED = "Where was Ada born?"
TOWNS = ["Aa", "Bb", "Haldenport"]


def row_of(tmp_path, row):
    """The item of one row: an object, or the text of a CSV file."""
    if isinstance(row, str):
        file = tmp_path / "data.csv"
        file.write_text(row)
    else:
        file = tmp_path / "data.jsonl"
        file.write_text(json.dumps(row))
    return load_items(file)[0]


@pytest.mark.parametrize(
    "options",
    [
        {"options": TOWNS, "answer": "(C)"},
        {"options": TOWNS, "answer": "c."},
        {"options": TOWNS, "answer": "C. Haldenport"},
        {"options": ["A. Aa", "B. Bb", "C. Haldenport"], "answer": "C"},
        {"options": ["(A) Aa", "(B) Bb", "(C) Haldenport"], "answer": "C) Haldenport"},
        {"options": {"A": "Aa", "B": "Bb", "C": "Haldenport"}, "answer": "Haldenport", "answer_idx": "C"},
        "question,options,answer\nWhere was Ada born?,\"['Aa', 'Bb', 'Haldenport']\",C\n",
        "question,A,B,C,answer\nWhere was Ada born?,A: Aa,B: Bb,C: Haldenport,C\n",
    ],
)
def test_options_are_read_however_their_letters_are_written(tmp_path, options):
    item = row_of(tmp_path, options if isinstance(options, str) else {"question": ASKED, **options})
    assert (item.answer, item.options.texts, item.options.right) == ("Haldenport", tuple(TOWNS), 2)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"question": ASKED, "candidates": TOWNS, "answer": 2}, "is the number 2"),
        ({"question": ASKED, "alternatives": TOWNS, "answer": "C"}, "is the letter C"),
        (f"question,alternatives,answer\n{ASKED},Aa|Bb|Haldenport,C\n", "is the letter C"),
        (
            {"question": ASKED, "options": ["B. Bb", "A. Aa", "C. Cc"], "answer": "A"},
            "another order than their letters",
        ),
    ],
)
def test_the_place_of_an_option_is_no_answer_to_an_open_question(tmp_path, row, says):
    with pytest.raises(InputError, match=says):
        row_of(tmp_path, row)


@pytest.mark.parametrize(
    ("row", "answer", "accepted"),
    [
        ({"answer": ["Haldenport", "HALDENPORT", "Haldenport"]}, "Haldenport", ("HALDENPORT",)),
        ({"answer": '["Haldenport", "HP"]'}, "Haldenport", ("HP",)),
        ({"answer": {"value": "Haldenport", "aliases": ["HP"]}}, "Haldenport", ("HP",)),
        ({"answer": {"text": ["Haldenport"], "answer_start": [3]}}, "Haldenport", ()),
        ({"answer": "[1, 2]"}, "[1, 2]", ()),
        ({"answer": "Haldenport", "answer_aliases": ["HP"]}, "Haldenport", ("HP",)),
        ({"answer": ["<think>hm</think>Haldenport", "<think>or</think>HP"]}, "Haldenport", ("HP",)),
        ("question,answer\nWhere was Ada born?,\"['Haldenport', 'HP']\"\n", "Haldenport", ("HP",)),
        ('question,answer\nWhere was Ada born?,"[""Haldenport"", ""HP""]"\n', "Haldenport", ("HP",)),
    ],
)
def test_of_several_answers_the_first_is_the_answer_and_all_are_accepted(tmp_path, row, answer, accepted):
    item = row_of(tmp_path, row if isinstance(row, str) else {"question": ASKED, **row})
    assert (item.answer, item.accepted) == (answer, accepted)


@pytest.mark.parametrize(
    "content",
    [
        "<THINK>hm</THINK>\n\nHaldenport",
        "hm</think>Haldenport",
        "[THINK]hm[/THINK]Haldenport",
        "<seed:think>hm</seed:think>Haldenport",
        "◁think▷hm◁/think▷Haldenport",
        "<think>hm</think> <answer>Haldenport</answer>",
        "<|begin_of_thought|>hm<|end_of_thought|><|begin_of_solution|>Haldenport<|end_of_solution|>",
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Haldenport",
        [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Haldenport"}],
    ],
)
def test_no_trace_of_reasoning_is_part_of_an_answer(tmp_path, content):
    item = row_of(tmp_path, {"messages": [USER, {"role": "assistant", "content": content}]})
    assert item.answer == "Haldenport"
