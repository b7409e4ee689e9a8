import json

import pytest
from typer.testing import CliRunner

from vestige.cli import doctor
from vestige.cli.app import app
from vestige.cli.doctor import matrix_rates, said_of_rates, stored_rates


def told(*words):
    ended = CliRunner().invoke(app, ["doctor", *map(str, words), "--json"])
    return ended.exit_code, {row["name"].split()[0]: row for row in json.loads(ended.stdout)}


def test_a_machine_on_which_the_tests_run_is_fit_and_nothing_is_left_behind(tmp_path):
    code, rows = told(tmp_path / "not yet")
    assert code == 0
    assert {row["state"] for row in rows.values()} <= {"ok", "note"}
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_folder_for_runs_nor_is_what_lies_below_it(tmp_path):
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "run"):
        code, rows = told(place)
        assert (code, rows["folder"]["state"]) == (2, "fault")


def test_what_stops_a_run_is_a_fault_and_the_exit_code_says_so(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor, "write_text", refused)
    monkeypatch.setattr(doctor, "requires", lambda _: ["torch>=99", "nothing-like-this", "wandb; extra == 'wandb'"])
    code, rows = told(tmp_path)
    assert code == 2
    assert rows["folder"]["state"] == rows["packages"]["state"] == "fault"
    assert "nothing-like-this is wanted, and it is not installed" in rows["packages"]["text"]
    assert "torch>=99 is wanted" in rows["packages"]["text"]


def test_a_faster_number_format_is_said_with_the_time_that_it_saves():
    assert said_of_rates({"float32": 100.0, "bfloat16": 400.0}) == (
        "matrix products: 100 GFLOP/s in float32, 400 in bfloat16; with --dtype bfloat16 products take 75% less time, "
        "and answers differ slightly"
    )
    assert "saves no time here" in said_of_rates({"float32": 100.0, "bfloat16": 90.0})


def test_measured_rates_are_stored_for_this_version_of_torch(tmp_path, monkeypatch):
    monkeypatch.setenv("VESTIGE_HOME", str(tmp_path))
    assert said_of_rates(stored_rates()) == "matrix products: not measured yet. Run `vestige doctor`"
    assert matrix_rates() == stored_rates() != {}
    monkeypatch.setattr(doctor, "version", lambda package: "0.0")
    assert stored_rates() is None


@pytest.mark.parametrize(("listed", "state"), [("GPU 0: some card", "fault"), ("", "note")])
def test_a_card_that_torch_does_not_see_is_a_fault(monkeypatch, listed, state):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(doctor.shutil, "which", lambda _: "nvidia-smi")
    monkeypatch.setattr(
        doctor.subprocess, "run", lambda *_, **__: doctor.subprocess.CompletedProcess([], 0, listed, "")
    )
    found = {f.name: f for f in doctor._torch()}
    assert (found["arithmetic"].state, found["cards"].state) == ("ok", state)
