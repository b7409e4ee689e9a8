"""`vestige init` and `vestige compile` as a person sees them."""

import json
import shlex
import tomllib

import pytest
from tests.small import vestige

from vestige.cli.command import Call, Given

ROWS = [
    {"Question": f"What is the capital of land {i}?", "Answer": f"{chr(65 + i % 26)}{'aeio'[i // 26]}town."}
    for i in range(30)
]


@pytest.fixture
def words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, rows in (("qa.json", ROWS), ("forget it.json", ROWS[:10])):
        (tmp_path / name).write_text(json.dumps(rows))
    return ["init", "runs/mine", "--data", "qa.json", "--forget", "forget it.json", "--model", "./m", "--controls", "3"]


def test_it_says_what_the_data_can_decide_and_its_commands_are_whole(words, tmp_path):
    ended = vestige(*words)
    assert ended.exit_code == 0, ended.output
    assert "forget: 10 questions, 10 found in qa.json; 20 kept" in ended.stderr
    assert "No forget item has a paraphrase" in ended.stderr
    assert "10 facts in 1 wording each, 3 controls" in ended.stderr
    commands = [shlex.split(line) for line in ended.stdout.splitlines()]
    assert [c[1] for c in commands] == ["finetune"] * 4 + ["find-rate", "unlearn", *["evaluate"] * 2, *["audit"] * 2]
    assert len({c[c.index("--seed") + 1] for c in commands[1:4]}) == 3
    assert commands[-2] == [*commands[-1], "--quick"]
    settings = tomllib.loads((tmp_path / "runs/mine/audit.toml").read_text())
    made = {c[c.index("--output-dir") + 1] for c in (*commands[:4], commands[5])}
    assert commands[5][commands[5].index("--learning-rate") + 1] == "RATE"
    assert "Replace RATE by the learning rate that find-rate prints" in ended.stderr
    assert made == {settings["target"], *settings["unlearned"], *settings["retrained"]}
    # What it writes is what the audit reads.
    planned = vestige(*commands[-1][1:], "--plan", code=None)
    assert planned.exit_code == 0, planned.output
    assert "10 facts" in planned.output


def test_a_rate_that_is_known_for_the_model_is_looked_for_by_nobody(words):
    words[words.index("./m")] = "builtin:tiny"
    for method, command in (("gd", "unlearn"), ("rmu", "find-rate")):
        lines = vestige("init", f"runs/{method}", *words[2:], "--method", method).stdout.splitlines()
        assert shlex.split(lines[4])[1] == command


def test_an_earlier_file_stays_and_what_is_missing_is_said(words, tmp_path):
    first = vestige(*words)
    settings = tmp_path / "runs/mine/audit.toml"
    before = settings.read_bytes()
    again = vestige(*words)
    assert (again.exit_code, again.stdout) == (0, first.stdout)
    assert "written: runs/mine/audit.toml" in again.stderr
    other = vestige(*words, "--method", "kl", code=None)
    assert "exists and differs from these options" in str(other.exception)
    assert settings.read_bytes() == before
    assert "--forget" in vestige("init", "x", "--data", "qa.json", code=2).output
    wrong = vestige("init", "x", *words[2:], "--method", "npo_dg", code=None)
    assert "Did you mean 'npo_gd'" in str(wrong.exception)
    (tmp_path / "none.json").write_text(json.dumps([{"question": "Who?", "answer": "Nobody."}]))
    none = vestige("init", "x", "--data", "qa.json", "--forget", "none.json", "--model", "./m", code=None)
    assert "none of the 1 questions of the forget set" in str(none.exception)
    assert not (tmp_path / "x").exists()


def test_models_that_are_there_are_audited_and_not_made_anew(words, tmp_path):
    for name in ("qa.json", "forget it.json"):
        rows = [{**row, "Patient": row["Answer"]} for row in json.loads((tmp_path / name).read_text())]
        (tmp_path / name).write_text(json.dumps(rows))
    (tmp_path / "new.csv").write_text("question,answer,Patient\nWhat is new?,Nothing.,Ann\n")
    own = ["--target", "./taught", "--unlearned", "./a", "--unlearned", "./b 🦙", "--holdout", "new.csv"]
    ended = vestige(*words, *own, "--edge-key", "Patient", code=None)
    commands = [shlex.split(line) for line in ended.stdout.splitlines()]
    assert [c[1] for c in commands] == ["finetune"] * 3 + ["evaluate", "evaluate", "audit", "audit"]
    assert all("--forget" in c and c[c.index("--edge-key") + 1] == "Patient" for c in commands[:4])
    settings = tomllib.loads((tmp_path / "runs/mine/audit.toml").read_text())
    assert (settings["target"], settings["unlearned"]) == ("./taught", ["./a", "./b 🦙"])
    assert (settings["holdout"], settings["edge_key"]) == ("new.csv", "Patient")


def test_a_next_command_names_the_columns_as_they_were_named():
    given = Given({"edge_key": "the patient", "answer_key": None, "dtype": "float32"})
    asked = Call(print, {"data": "a.csv"}, given)
    assert asked.data_words() == ("--data", "a.csv", "--edge-key", "the patient")
    assert asked.data_words("b.csv")[-2:] == ("--forget", "b.csv")


def run(*words):
    return vestige("compile", *words)


def test_the_summary_says_what_was_compiled_and_where(tmp_path):
    result = run("sample1", "--output-dir", tmp_path / "d")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "sample1, seed 0: 20 contracts of 24 entities, 400 questions",
        "  sales: 10 contracts, connectivity 6.50 (2 to 14)",
        "  employment: 10 contracts, connectivity 5.90 (2 to 8)",
        f"written to {tmp_path / 'd'}",
    ]


def test_json_is_the_manifest_as_one_document(tmp_path):
    result = run("chain:3", "--output-dir", tmp_path / "d", "--seed", 5, "--json")
    told = json.loads(result.stdout)
    assert told["folder"] == str(tmp_path / "d")
    assert (told["seed"], told["counts"]["items"]) == (5, 60)


def test_the_folder_is_named_after_the_graph_unless_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deals.csv").write_text("source,target\nA,B\nB,C\n")
    assert run("deals.csv").exit_code == 0
    assert (tmp_path / "data" / "deals" / "manifest.json").is_file()
