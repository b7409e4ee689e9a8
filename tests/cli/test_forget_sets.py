"""That a forget set is the same items in every command, whatever its name and whatever seed a training has."""

import json
from pathlib import Path

import pytest
from tests.small import nano, vestige, written

from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.records import SubjectSpec, read_spec
from vestige.core.errors import InputError

ROWS = [{"question": f"What is number {i}?", "answer": f"It is {i * i}.", "edge": f"b{i // 3}"} for i in range(12)]
TRAIN = ("--set", "epochs=1", "--set", "lora_rank=0", "--set", "batch_size=4")


@pytest.fixture(autouse=True, scope="module")
def small():
    with nano():
        yield


@pytest.fixture(scope="module")
def made(small, tmp_path_factory) -> Path:
    """A data set of four edges, and a nano model that saw all of it."""
    folder = tmp_path_factory.mktemp("sets")
    written(folder / "qa.jsonl", ROWS)
    facts = [{"question": f"Which planet is number {i}?", "answer": f"Planet {i}"} for i in range(2)]
    written(folder / "facts.jsonl", facts)
    run("finetune", "builtin:tiny", folder, "target")
    return folder


def run(command: str, model: str | Path, folder: Path, out: str, *words: str):
    train = TRAIN if command in ("finetune", "unlearn") else ("--max-new-tokens", "2", "--json")
    return vestige(command, model, "--data", folder / "qa.jsonl", "--output-dir", folder / out, *train, *words)


def spec(folder: Path, name: str) -> SubjectSpec:
    return read_spec(SubjectFolder(folder / name).spec)


def summary(folder: Path, name: str) -> dict:
    (path,) = (folder / name).glob("evals/*/summary-*.json")
    return json.loads(path.read_text())


@pytest.mark.slow
def test_a_model_that_forgot_with_one_seed_is_asked_about_the_same_items_with_another(made):
    forget = ("--forget", "random:1")
    run("unlearn", made / "target", made, "ga", "--method", "ga", *forget, "--seed", "3")
    run("evaluate", made / "ga", made, "asked", *forget, "--seed", "0")
    (gone,) = spec(made, "ga").forgotten
    assert set(gone.items) == set(summary(made, "asked")["splits"]["forget"])
    assert len(gone.items) == 3
    assert len(gone.edges) == 1
    # Another draw is another name; whoever asks a model about it that forgot something else is told.
    told = run("evaluate", made / "ga", made, "other", *forget, "--split-seed", "2")
    assert summary(made, "other")["forget"] == "random:1#2"
    assert set(summary(made, "other")["splits"]["forget"]).isdisjoint(gone.items)
    assert "3 of the 3 questions of the forget set random:1#2 are not among what it forgot" in told.stderr


def test_the_same_questions_from_another_folder_are_the_same_forget_set_in_every_name_on_disk(made):
    for name in ("here", "moved"):
        (made / name).mkdir()
        written(made / name / "forget.jsonl", ROWS[:3])
        run("evaluate", made / "target", made, "placed", "--forget", str(made / name / "forget.jsonl"))
    found = summary(made, "placed")
    assert found["forget"].startswith("forget.jsonl-")
    assert str(made) not in found["forget"]


def test_unlearning_what_the_data_does_not_ask_is_refused(made):
    written(made / "strange.jsonl", [{**r, "question": r["question"].rstrip("?")} for r in ROWS[:3]])
    with pytest.raises(InputError, match=r"none of the 3 questions of the forget set strange\.jsonl-"):
        run("unlearn", made / "target", made, "strange", "--method", "ga", "--forget", str(made / "strange.jsonl"))


@pytest.mark.slow
def test_what_was_forgotten_before_is_not_taught_again_though_the_parents_folder_is_gone(made):
    first = run("unlearn", made / "target", made, "first", "--method", "ga", "--forget", "edge:b0")
    assert "forgotten before" not in first.stderr
    run("unlearn", made / "first", made, "second", "--method", "gd", "--forget", "edge:b1")
    (made / "first").rename(made / "moved away")
    third = run("unlearn", made / "second", made, "third", "--method", "gd", "--forget", "edge:b2")
    assert "not kept: 6 questions that were forgotten before (edge:b0 and edge:b1)" in third.stderr
    assert [one.edges for one in spec(made, "third").forgotten] == [("b0",), ("b1",), ("b2",)]
    card = json.loads((made / "third/model/README.md").read_text().split("```json")[1].split("```")[0])
    assert (card["forget_items"]["n"], card["retain_items"]["n"]) == (3, 3)
    assert [one["n"] for one in card["forgotten"]] == [3, 3, 3]
    run("evaluate", made / "third", made, "third asked", "--forget", "edge:b2")
    sizes = {name: len(ids) for name, ids in summary(made, "third asked")["splits"].items()}
    assert sizes == {"forget": 3, "retain": 3, "forgotten_before": 6}
    named = ("--retain", "edge:b0,edge:b3")
    told = run("unlearn", made / "second", made, "named", "--method", "gd", "--forget", "edge:b2", *named)
    assert "--retain names 3 questions that were forgotten before" in told.stderr
    # Who is taught them again has not forgotten them.
    run("finetune", made / "second", made, "taught again", "--forget", "edge:b0")
    assert [one.edges for one in spec(made, "taught again").forgotten] == [("b0",)]


def test_without_a_forget_set_everything_is_one_split_and_the_report_shows_it(made):
    told = run("evaluate", made / "target", made, "run/models/target", "--factual", str(made / "facts.jsonl"))
    rows = json.loads(told.stdout)["results"]
    assert {(r["split"], r["n"]) for r in rows if not r["split"].startswith("edge:")} == {("all", 12), ("factual", 2)}
    assert {r["forget"] for r in rows} == {"all"}
    vestige("report", made / "run")
    assert '"all"' in (made / "run/report.html").read_text()
    with pytest.raises(InputError, match="--retain needs a forget set"):
        run("evaluate", made / "target", made, "other run", "--retain", "edge:b0")


def test_questions_that_hold_special_tokens_are_told_where_they_are_asked_and_in_the_report(made):
    folder = made / "strange"
    folder.mkdir()
    rows = [{**ROWS[0], "question": "What is number 0? <eos><answer>It is 0."}, *ROWS[1:]]
    written(folder / "qa.jsonl", rows)
    told = run("evaluate", made / "target", folder, "run/models/target")
    said = "1 of the items hold special tokens of the model (<answer> <eos>), which it reads as signs and not as text"
    assert said in told.stderr
    vestige("report", folder / "run")
    assert (
        "1 of the items hold special tokens of the model (&lt;answer&gt; &lt;eos&gt;)"
        in (folder / "run/report.html").read_text()
    )
    assert "special tokens" not in run("evaluate", made / "target", made, "unmarked").stderr


@pytest.mark.slow
def test_factual_questions_are_taught_only_when_asked_for_and_retraining_follows_the_target(made):
    factual = ("--factual", str(made / "facts.jsonl"))
    plain = run("finetune", "builtin:tiny", made, "plain", *factual)
    assert "factual: 2 questions, not taught (--train-factual teaches them)" in plain.stderr
    run("finetune", "builtin:tiny", made, "both", *factual, "--train-factual")
    steps = {name: json.loads((made / name / "done.json").read_text())["steps"] for name in ("plain", "both")}
    assert steps == {"plain": 3, "both": 4}
    retrain = ("--method", "retrain", "--forget", "edge:b1", *factual)
    for name, left in {"plain": 9, "both": 11}.items():
        given = ["unlearn", made / name, "--data", made / "qa.jsonl", *retrain]
        vestige(*given, "--output-dir", made / f"{name} again")
        assert json.loads((made / f"{name} again/done.json").read_text())["steps"] == -(-left // 4)
    with pytest.raises(InputError, match=r"there are no factual questions to train on\. Name them with --factual"):
        run("finetune", "builtin:tiny", made, "none", "--train-factual")


def test_an_audit_refuses_a_model_that_forgot_something_else(made):
    run("unlearn", made / "target", made, "b3", "--method", "ga", "--forget", "edge:b3")
    words = ["audit", "--data", made / "qa.jsonl", "--forget", "edge:b1", "--output-dir", made / "audit", "--dry-run"]
    other = "b3 was made without edge:b3, but not without 3 of the 3 questions of the forget set 'edge:b1'"
    with pytest.raises(InputError, match=other):
        vestige(*words, "--target", made / "target", "--unlearned", made / "b3")
    swapped = ["--target", made / "b3", "--unlearned", made / "target", "--forget", "edge:b3"]
    with pytest.raises(InputError, match="is the target and was made without edge:b3"):
        vestige(*words, *swapped)
