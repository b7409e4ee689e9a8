"""The commands as a person runs them on small data: in a new process where that shows more than one in this one."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.small import nano, squares, written

from launched import launched
from vestige.cli.app import _but_of_masks, run


class Said(NamedTuple):
    """What a command printed."""

    stdout: str
    stderr: str


@pytest.fixture(autouse=True)
def nano_models() -> Iterator[None]:
    """Smaller models in the place of the built-in one, also in processes that are forked."""
    with nano():
        yield


TINY = ["--set", "epochs=2", "--set", "batch_size=8", "--set", "stop_when_exact=false"]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """The command line in the tests' own process, which has loaded torch already."""

    # What the command sets of the process that it is alone in is taken back.
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")

    def run_here(*words: object, code: int = 0) -> Said:
        monkeypatch.setattr(sys, "argv", ["vestige", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            run()
        logging.getLogger("transformers.modeling_utils").removeFilter(_but_of_masks)
        said = Said(*capsys.readouterr())
        # Tests train a step or two, of which no model learns.
        untrained = code == 0 and ended.value.code == 3 and "has not learned the answers" in said.stderr
        assert untrained or ended.value.code == code, said.stderr
        return said

    return run_here


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return written(tmp_path / "qa.jsonl", squares(12))


@pytest.fixture
def forget(tmp_path: Path) -> Path:
    return written(tmp_path / "forget.jsonl", squares(4)[3:])


@pytest.mark.parametrize(
    ("words", "shown", "unloaded"),
    [
        ("--help", "audit compile demo evaluate report list", {"torch", "transformers", "numpy", "pydantic"}),
        *((f"{c} --help", "--", {"torch", "transformers"}) for c in ("attack gcg", "demo", "init", "probe all")),
        ("list methods", "npo_gd", {"transformers"}),
    ],
)
def test_help_loads_no_torch_and_a_list_no_transformers(words, shown, unloaded):
    command = [sys.executable, "-X", "importtime", "-m", "vestige", *words.split()]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, [word for word in shown.split() if word not in done.stdout]) == (0, [])
    assert unloaded.isdisjoint(line.rpartition("|")[2].strip() for line in done.stderr.splitlines())


@pytest.mark.slow
def test_from_data_to_report_on_ones_own_data(here, tmp_path, data, forget):
    run = tmp_path / "run"
    target, retrained, cell = run / "models/target", run / "models/retrained", run / "cells/kl"
    here("finetune", "builtin:tiny", "--data", data, "--output-dir", target, *TINY)
    here("finetune", "builtin:tiny", "--data", data, "--forget", forget, "--output-dir", retrained, *TINY)
    words = ["--method", "kl", "--data", data, "--forget", forget, "--output-dir", cell, "--set", "epochs=1"]
    here("unlearn", target, *words, "--set", "kl.kl_weight=2")
    for subject in (target, retrained, cell):
        shown = here("evaluate", subject, "--data", data, "--forget", forget, "--max-new-tokens", "8", "--json")
        rows = json.loads(shown.stdout)["results"]
        assert {r["split"] for r in rows} == {"forget", "retain"}
        assert {r["n"] for r in rows} == {1, 11}
    spec = json.loads((cell / "spec.json").read_text())
    assert (spec["method"], spec["settings"]["kl.kl_weight"], spec["model"]) == ("kl", 2.0, "builtin:tiny")
    assert spec["parent"] == json.loads((target / "done.json").read_text())["digest"]
    here("report", run)
    assert (run / "report.html").stat().st_size > 10_000
    # The same command again does nothing, and what it made is still the same.
    before = (cell / "model/model.safetensors").stat().st_mtime_ns
    here("unlearn", target, *words, "--set", "kl.kl_weight=2")
    assert (cell / "model/model.safetensors").stat().st_mtime_ns == before
    # Other settings in the same folder are refused with what differs; --fresh starts over.
    refused = here("unlearn", target, *words, code=2)
    assert "settings.kl.kl_weight" in refused.stderr
    here("unlearn", target, *words, "--fresh")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        # A model, data, a setting and a method that are not there, a training that breaks down, and no run.
        ("finetune ./nowhere {made}", "no model at './nowhere'"),
        ("finetune builtin:tiny --data none.jsonl --output-dir {out}", "none.jsonl"),
        ("finetune builtin:tiny {made} --set epoch=1", "Did you mean 'epochs'"),
        (
            "finetune builtin:tiny {made} --set learning_rate=1e9 --set max_gradient_norm=1e9 --set epochs=30",
            "Lower the learning rate",
        ),
        ("unlearn {out} --method gaa --forget {data} {made}", "Did you mean 'ga'"),
        ("report {data}", "qa.jsonl"),
    ],
)
def test_bad_input_is_one_clear_sentence(here, tmp_path, data, words, message):
    out = tmp_path / "out"
    filled = words.format(data=data, out=out, made=f"--data {data} --output-dir {out}")
    done = here(*filled.split(), code=2)
    lines = done.stderr.strip().splitlines()
    assert message in lines[-1]
    assert [line for line in lines if not line.startswith("fine-tuning: ")] == lines[-1:]
    assert lines[-1].startswith("vestige: ")
    assert not (tmp_path / "out" / "done.json").exists()


@pytest.mark.slow
def test_a_file_where_the_output_folder_should_be_is_one_clear_sentence(here, tmp_path, data, forget):
    (tmp_path / "taken").write_text("mine")
    done = here("check-data", "--data", data, "--forget", forget, "--output-dir", tmp_path / "taken", code=2)
    assert done.stderr.splitlines()[-1] == f"vestige: {tmp_path / 'taken'}: File exists. Name another path"
    assert (tmp_path / "taken").read_text() == "mine"


@pytest.mark.slow
def test_lists_are_one_json_document(here):
    rows = json.loads(here("list", "methods", "--json").stdout)
    assert {"ga", "gd", "kl", "idk_gd", "dpo"} <= {r["name"] for r in rows}
    assert all(r["paper"] and r["about"] and r["needs"] for r in rows)
    for kind in ("evals", "models", "graphs"):
        assert json.loads(here("list", kind, "--json").stdout)


def test_stopped_while_it_is_imported_it_ends_as_one_that_is_stopped_later():
    code = """
import sys

class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == "vestige.cli.data":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Stop())
from vestige.cli import run
run()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 130
    assert done.stderr == "vestige: stopped. Run the same command to go on from here.\n"


@pytest.mark.slow
def test_an_interrupted_demo_resumes_with_the_same_command(tmp_path):
    run = tmp_path / "demo"
    words = ["demo", "--output-dir", str(run), "--set", "graph=chain:2"]
    words += ["--set", 'forget=["edge:0_1"]', "--set", 'methods=["ga"]', "--set", "factual=false", "--set", "epochs=2"]
    words += ["--set", "unlearning_epochs=1", "--set", "max_new_tokens=4", "--workers", "1"]
    words += ["--set", "controls=1", "--set", 'evals=["qa"]', "--set", "relearn=[]", "--set", "in_context=[]"]
    first = launched(*words, stop_when=(run / "data").exists)
    assert first.returncode == 130, first.stderr
    assert "Run the same command to go on" in first.stderr
    assert not (run / "report.html").exists()
    second = launched(*words)
    assert second.returncode == 0, second.stderr
    assert (run / "report.html").exists()
    # It ends with 0 whatever the verdicts, and they are there.
    claims = {row["claim"]: row["verdict"] for row in json.loads((run / "verdicts.json").read_text())}
    assert len(claims) == 5
    changed = launched(*words, "--set", "epochs=3")
    assert changed.returncode == 2
    assert "other settings (epochs)" in changed.stderr


@pytest.mark.slow
def test_logs_plans_and_data_errors_do_without_the_packages_of_models(tmp_path):
    """Every package of the extra `models` is hidden, as in `pip install vestige` alone."""
    script = """
import sys
from vestige.core.errors import MODELS_EXTRA
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MODELS_EXTRA:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
from vestige.cli import run
run()
"""
    (tmp_path / "hidden.py").write_text(script)

    def hidden(*words):
        command = [sys.executable, str(tmp_path / "hidden.py"), *words]
        home = {**os.environ, "VESTIGE_HOME": str(tmp_path / "home")}
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, env=home)

    assert hidden("audit", "--logs", "example", "--output-dir", "o").returncode == 3
    assert hidden("export", "o", "--to", "junit").returncode == 0
    assert hidden("evidence", "o", "bundle").returncode == 0
    (tmp_path / "d.csv").write_text("question,answer\nWho?,Me.\n")
    (tmp_path / "r.csv").write_text("question,answer\nWhere?,There.\n")
    (tmp_path / "m").mkdir()
    words = ("audit", "--data", "d.csv", "--forget", "d.csv", "--retain", "r.csv")
    plan = hidden(*words, "--plan")
    assert "not measured yet. Run `vestige doctor`" in plan.stderr
    assert "a perfect" in plan.stdout
    words = (*words, "--target", "m", "--unlearned", "m2", "--output-dir", "p", "--dry-run")
    assert "no model at 'm2'" in hidden(*words).stderr
    (tmp_path / "m2").mkdir()
    assert "2 models" in hidden(*words).stdout
    assert "none.csv: no such file" in hidden("finetune", "m", "--data", "none.csv", "--output-dir", "t").stderr
    refused = hidden("finetune", "m", "--data", "d.csv", "--output-dir", "t")
    assert refused.returncode == 2
    assert "pip install '.[models]'" in refused.stderr
