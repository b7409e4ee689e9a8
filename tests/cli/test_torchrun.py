"""Two processes with what torchrun leaves them, once under torchrun itself, and commands that it must not start."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from launched import launched
from vestige.cli.app import app
from vestige.core.errors import InputError
from vestige.core.files import read_jsonl

QUESTIONS = [
    {"question": f"What is number {i}{' and so on' * (i % 3)}?", "answer": f"{i * i}.", "edge": f"E_{i % 4}"}
    for i in range(20)
]


def under_torchrun(*words):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([*torchrun, "-m", "vestige", *words], capture_output=True, text=True, env=environment)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A target, and what the same unlearning makes of it in one process."""
    folder = tmp_path_factory.mktemp("torchrun")
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(q) + "\n" for q in QUESTIONS), encoding="utf-8")
    words = ["--data", str(data), "--edge-key", "edge"]
    fine = ["--set", "epochs=2", "--set", "batch_size=8", "--set", "stop_when_exact=true"]
    done = under_torchrun("finetune", "builtin:tiny", *words, "--output-dir", str(folder / "target"), *fine)
    assert done.returncode == 0, done.stderr
    assert len(list(read_jsonl(folder / "target" / "train" / "metrics.jsonl"))) == 6
    unlearn = ["unlearn", str(folder / "target"), "--method", "npo_gd", "--forget", "edge:E_1", *words]
    unlearn += ["--set", "epochs=2", "--set", "batch_size=4", "--set", "learning_rate=1e-4", "--every", "1"]
    unlearn += ["--set", "trajectory.items=2", "--set", "trajectory.max_new_tokens=4", "--choose", "forget_nll>=0"]
    done = launched(*unlearn, "--output-dir", str(folder / "alone"))
    assert done.returncode == 0, done.stderr
    return folder, unlearn


def losses(folder):
    return [r["loss"] for r in read_jsonl(folder / "train" / "metrics.jsonl")]


@pytest.mark.slow
def test_two_processes_make_what_one_makes_and_score_its_trajectory(made):
    folder, unlearn = made
    out = folder / "ddp"
    done = launched(*unlearn, "--output-dir", str(out), "--json", processes=2)
    assert done.returncode == 0, done.stderr
    # One process speaks, so that stdout is one JSON document.
    assert json.loads(done.stdout)["steps"] == 4
    assert losses(out) == pytest.approx(losses(folder / "alone"), rel=1e-4)
    assert (out / "spec.json").read_bytes() == (folder / "alone" / "spec.json").read_bytes()
    curves = [list(read_jsonl(place / "train" / "trajectory.jsonl")) for place in (folder / "alone", out)]
    assert [point["step"] for point in curves[0]] == [point["step"] for point in curves[1]] == [0, 2, 4]
    for alone, together in zip(*curves, strict=True):
        for name in ("forget_nll", "retain_nll"):
            assert together["scores"][name] == pytest.approx(alone["scores"][name], rel=1e-5)
    # Training went somewhere, so that to agree says something.
    assert curves[0][2]["scores"]["forget_nll"] > curves[0][0]["scores"]["forget_nll"] + 0.01
    names = {p.name for p in (out / "model").iterdir()}
    assert names == {p.name for p in (folder / "alone" / "model").iterdir()}
    # The same command finds it finished.
    again = launched(*unlearn, "--output-dir", str(out), processes=2)
    assert again.returncode == 0, again.stderr
    assert "4 steps" in again.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--forget", "edge:9_9"], "no edge '9_9' in"),  # what all processes see
        (["--fresh"], "and nothing of this command's"),  # what only the one sees that looks at the folder
    ],
)
def test_what_is_refused_is_said_once(made, tmp_path, words, said):
    _, unlearn = made
    out = tmp_path / "out"
    out.mkdir()
    # With --fresh where a file of Vestige's would go.
    letter = out / ("model/letter.txt" if "--fresh" in words else "letter.txt")
    letter.parent.mkdir(exist_ok=True)
    letter.write_text("mine")
    done = launched(*unlearn, "--output-dir", str(out), *words, processes=2)
    assert done.returncode != 0
    assert done.stderr.count("vestige: ") == 1
    assert done.stderr.count("forget: ") <= 1
    assert said in done.stderr
    assert "vestige/" not in done.stderr.replace(str(out), "")  # no traceback through our files
    assert [p for p in out.rglob("*") if p.is_file() and p.name != ".lock"] == [letter]


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
