"""Logs in the forms that other tools write them, from a few scores each."""

import json

import pytest


@pytest.fixture
def write(tmp_path):
    """A function that puts a value at a path below the test's folder, as JSON or as its lines."""

    def put(path, value, *, lines=False):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{json.dumps(row)}\n" for row in value) if lines else json.dumps(value)
        file.write_text(text)
        return file

    return put
