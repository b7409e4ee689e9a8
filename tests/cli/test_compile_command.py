"""`vestige compile` as a person sees it."""

import json

from tests.small import vestige


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
