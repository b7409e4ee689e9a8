import json

import pytest
from typer.testing import CliRunner

from vestige.cli.app import app
from vestige.core.errors import InputError
from vestige.core.files import replacing


@pytest.mark.slow
def test_the_command_says_where_everything_is(run):
    done = CliRunner().invoke(app, ["report", str(run)])
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        f"report: {run / 'report.html'}",
        f"2 tables in {run / 'tables'}",
    ]


@pytest.mark.slow
def test_as_json_it_is_one_document_with_every_file(run):
    done = CliRunner().invoke(app, ["report", str(run), "--json"])
    told = json.loads(done.stdout)
    assert told["report"] == str(run / "report.html")
    assert sorted(told["tables"]) == sorted(str(p) for p in (run / "tables").iterdir())


@pytest.mark.slow
def test_one_report_is_written_at_a_time(run, monkeypatch):
    monkeypatch.setitem(replacing.__wrapped__.__kwdefaults__, "patience_seconds", 0.0)
    with replacing(run / "report.html", patience_seconds=0):
        done = CliRunner().invoke(app, ["report", str(run)])
    assert isinstance(done.exception, InputError)
    assert "another command is at work" in str(done.exception)
