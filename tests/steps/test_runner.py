import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from vestige.core.errors import InputError, MachineError
from vestige.steps.runner import Task, run_tasks, workers_for


def write(path, text, report):
    """Note the time order by appending."""
    with Path(path).open("a") as file:
        file.write(text)


def fail(report):
    raise InputError("no such thing: 'x'. Choose another")


def be_killed(report):
    os.kill(os.getpid(), signal.SIGKILL)


def share(path, report):
    report(0.5)
    time.sleep(0.6)
    Path(path).write_text("done")


def test_tasks_run_after_what_they_need(tmp_path):
    log = str(tmp_path / "log")
    tasks = [
        Task("c", write, {"path": log, "text": "c"}, after=("a", "b")),
        Task("a", write, {"path": log, "text": "a"}),
        Task("b", write, {"path": log, "text": "b"}, after=("a",)),
    ]
    assert run_tasks(tasks, workers=2) == {}
    assert Path(log).read_text() == "abc"


def test_a_failure_is_named_and_leaves_the_others_standing(tmp_path):
    log = str(tmp_path / "log")
    tasks = [
        Task("bad", fail, {}),
        Task("needs bad", write, {"path": log, "text": "x"}, after=("bad",)),
        Task("needs that", write, {"path": log, "text": "y"}, after=("needs bad",)),
        Task("good", write, {"path": log, "text": "g"}),
    ]
    failed = run_tasks(tasks, workers=1)
    assert {name: str(e) for name, e in failed.items()} == {"bad": "no such thing: 'x'. Choose another"}
    assert Path(log).read_text() == "g"


def test_a_killed_process_is_the_machines_fault():
    with pytest.raises(MachineError, match="'victim' was killed"):
        run_tasks([Task("victim", be_killed, {})], workers=1)


class Picky(Exception):
    """An error that no pickle gives back."""

    def __init__(self, message, *, response):
        super().__init__(message)
        self.response = response


def fail_oddly(report):
    raise Picky("the hub said no", response=404)


def test_an_error_that_cannot_be_pickled_arrives_by_name(tmp_path):
    log = str(tmp_path / "log")
    tasks = [Task("odd", fail_oddly, {}), Task("good", write, {"path": log, "text": "g"})]
    failed = run_tasks(tasks, workers=1)
    assert {name: str(e) for name, e in failed.items()} == {"odd": "Picky: the hub said no"}
    assert Path(log).read_text() == "g"


@pytest.mark.parametrize(
    ("device", "asked", "cards", "expected"),
    [
        ("cpu", None, 4, 2),
        ("cpu", 8, 4, 8),
        ("auto", None, 0, 2),
        ("auto", 3, 0, 3),
        ("auto", None, 4, 4),
        ("cuda", None, 4, 4),
        ("cuda", 2, 4, 2),
        ("cuda:3", None, 4, 1),
        ("cuda", 5, 4, 5),
        ("cuda:3", 2, 4, 2),
    ],
)
def test_on_gpus_there_is_one_process_a_card_unless_more_are_asked_for(monkeypatch, device, asked, cards, expected):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cards)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cards > 0)
    assert workers_for(device, asked) == expected


def see_card(folder, name, other, report):
    (Path(folder) / name).write_text(os.environ["CUDA_VISIBLE_DEVICES"])
    until = time.monotonic() + 120
    while not (Path(folder) / other).exists():
        assert time.monotonic() < until
        time.sleep(0.05)


CARDS = [(None, 2, {"0", "1"}), (None, 1, {"0"}), ("4,7,9", 0, {"4", "7"})]


@pytest.mark.parametrize(("visible", "cards", "seen"), CARDS)
def test_each_process_sees_the_card_that_it_works_on(tmp_path, monkeypatch, visible, cards, seen):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cards)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    pair = (("a", "b"), ("b", "a"))
    tasks = [Task(n, see_card, {"folder": str(tmp_path), "name": n, "other": o}) for n, o in pair]
    assert run_tasks(tasks, workers=2) == {}
    assert {path.read_text() for path in tmp_path.iterdir()} == seen


@pytest.mark.slow
def test_a_temporary_folder_with_a_long_name_has_no_room_for_a_socket_and_needs_none(tmp_path):
    script, long = tmp_path / "script.py", tmp_path / ("long" * 20)
    long.mkdir()
    task = f"Task('a', write, {{'path': {str(tmp_path / 'log')!r}, 'text': 'a'}})"
    script.write_text(f"{SCRIPT}assert run_tasks([{task}], workers=1) == {{}}")
    subprocess.run([sys.executable, str(script)], check=True, env={**os.environ, "TMPDIR": str(long)})
    assert (tmp_path / "log").read_text() == "a"


@pytest.mark.slow
@pytest.mark.usefixtures("spawned")
def test_a_process_that_begins_with_nothing_sees_its_card_too(tmp_path, monkeypatch):
    test_each_process_sees_the_card_that_it_works_on(tmp_path, monkeypatch, *CARDS[1])


@pytest.mark.slow
def test_progress_reaches_the_parent(tmp_path):
    seen = []
    run_tasks([Task("t", share, {"path": str(tmp_path / "f")})], workers=1, show=lambda share, _: seen.append(share))
    assert 0.5 in seen
    assert seen[-1] == 1.0


SCRIPT = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_runner import Task, linger, run_tasks, write
"""


def linger(folder, report):
    Path(folder, "worker").write_text(str(os.getpid()))
    time.sleep(60)
    Path(folder, "late").write_text("late")


@pytest.mark.slow
def test_workers_die_with_a_killed_parent(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(f"{SCRIPT}run_tasks([Task('linger', linger, {{'folder': {str(tmp_path)!r}}})], workers=1)")
    parent = subprocess.Popen([sys.executable, str(script)])
    worker = tmp_path / "worker"
    # Two minutes: on a machine that does much else the imports alone take longer than half of one.
    for _ in range(1200):
        if worker.exists() and worker.read_text():
            break
        time.sleep(0.1)
    parent.kill()
    parent.wait()
    pid = int(worker.read_text())
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2]:
            break
        time.sleep(0.1)
    else:
        pytest.fail("the worker outlived its parent")
    assert not (tmp_path / "late").exists()


@pytest.mark.slow
def test_a_script_without_a_guard_runs_once(tmp_path):
    script, log = tmp_path / "script.py", tmp_path / "log"
    task = f"Task('a', write, {{'path': {str(log)!r}, 'text': 'a'}})"
    script.write_text(
        f"{SCRIPT}print('begun')\nassert run_tasks([{task}], workers=1) == {{}}\nprint(__file__, __spec__)"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert (done.stderr, done.stdout) == ("", f"begun\n{script} None\n")
    assert log.read_text() == "a"


def count_threads(path, report):
    import numpy as np
    import threadpoolctl

    x = np.random.default_rng(0).normal(size=(700, 700))
    solution = np.linalg.solve(x @ x.T + np.eye(700), x)
    pools = {pool["num_threads"] for pool in threadpoolctl.threadpool_info()}
    path.write_text(f"{sorted(pools)} {hashlib.sha256(solution.tobytes()).hexdigest()}")


def test_a_worker_has_one_thread_and_the_same_bytes_whatever_the_shell_allows(tmp_path, monkeypatch):
    found = set()
    for n_threads in ("1", "4"):
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", n_threads)
        monkeypatch.setenv("OMP_NUM_THREADS", n_threads)
        assert run_tasks([Task("count", count_threads, {"path": tmp_path / n_threads})], workers=1) == {}
        found.add((tmp_path / n_threads).read_text())
    assert len(found) == 1
    assert found.pop().startswith("[1] ")
