"""Commands that torchrun must not start several times over."""

import pytest
from typer.testing import CliRunner

from vestige.cli.app import app
from vestige.core.errors import InputError

OUT = ["--data", "none.jsonl", "--forget", "f.jsonl", "--output-dir", "out"]


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "target", *OUT],
        ["demo", "--output-dir", "out"],
        ["audit", "--target", "a", "--unlearned", "b", *OUT],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_what_several_processes_would_each_do_whole_is_refused(words, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "2")
    ended = CliRunner().invoke(app, words)
    assert isinstance(ended.exception, InputError)
    assert f"torchrun started 2 processes, and `vestige {words[0]}` does not share" in str(ended.exception)
    assert not any(tmp_path.iterdir())
