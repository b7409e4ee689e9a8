"""Cells are made once each, whatever is killed, and by whomever."""

import multiprocessing
import os
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from benchmarks import study_kills
from benchmarks.study_kills import cells, make, recorded

from vestige.artifacts.layout import StudyState
from vestige.steps.engine import LOST, Board, run_cells, work

N = 24


def board(place: Path, host: str = "here", patience: float = 60.0) -> Board:
    return Board(StudyState(place / "state"), host=host, patience=patience)


def test_all_cells_are_made_once_in_the_order_of_what_they_need(tmp_path: Path) -> None:
    work(board(tmp_path), cells(N), partial(make, place=str(tmp_path)), "run")
    assert Counter((tmp_path / "ended").read_text().split()) == {c.key: 1 for c in cells(N)}
    assert not list((tmp_path / "state" / "leases").iterdir())
    assert board(tmp_path).facts("m0000")["made"] == {"path": "m0000"}


def test_what_needs_a_failed_cell_is_left_and_another_run_tries_again(tmp_path: Path) -> None:
    (tmp_path / "refuse").touch()
    work(board(tmp_path), cells(N), partial(make, place=str(tmp_path)), "one")
    status = board(tmp_path).status()
    assert status.failed == {"m0003": ("InputError", "the third is refused")}
    assert {c.key for c in cells(N)} - status.done == {"m0003", "last"}
    work(board(tmp_path), cells(N), partial(make, place=str(tmp_path)), "one")
    assert (tmp_path / "begun").read_text().split().count("m0003") == 1, "one run tries once"
    (tmp_path / "refuse").unlink()
    work(board(tmp_path), cells(N), partial(make, place=str(tmp_path)), "two")
    assert board(tmp_path).status().failed == {}
    assert "last" in recorded(tmp_path)


def test_one_of_two_hosts_that_see_a_dead_lease_takes_it_over(tmp_path: Path) -> None:
    dead = board(tmp_path, "gone").take("a", 0)
    first, second = board(tmp_path, "one", patience=0.05), board(tmp_path, "two", patience=0.05)
    assert list(first.free(["a", "b"])) == [("b", 0)], "it may be alive"
    assert list(second.free(["a"])) == []
    time.sleep(0.1)
    assert list(first.free(["a"])) == list(second.free(["a"])) == [("a", 1)]
    lease = first.take("a", 1)
    assert lease is not None
    assert lease.held()
    assert second.take("a", 1) is None
    assert dead is not None
    assert not dead.held()
    first.finish(lease, {"made": {}})
    assert not dead.held()
    assert second.take("a", 0) is None, "it is done"


def test_a_renewed_lease_is_left_alone_and_clocks_do_not_count(tmp_path: Path) -> None:
    lease = board(tmp_path, "one").take("a", 0)
    assert lease is not None
    other = board(tmp_path, "two", patience=0.05)
    for clock in (1e9, 5.0, 2e9):  # the other machine's clock jumps; that it moves is what counts
        os.utime(lease.path, (clock, clock))
        assert list(other.free(["a"])) == []
        time.sleep(0.06)
    assert list(other.free(["a"])) == [("a", 1)]


def test_a_process_of_this_host_that_is_there_is_never_overtaken(tmp_path: Path) -> None:
    assert board(tmp_path).take("a", 0) is not None
    other = board(tmp_path, patience=0.0)
    for _ in range(2):
        assert list(other.free(["a"])) == []
        time.sleep(0.01)


def test_a_dead_process_of_this_host_is_followed_at_once(tmp_path: Path) -> None:
    child = multiprocessing.get_context("fork").Process(target=lambda: board(tmp_path).take("a", 0))
    child.start()
    child.join()
    assert list(board(tmp_path).free(["a"])) == [("a", 1)]
    assert list(board(tmp_path, "elsewhere").free(["a"])) == []


def overtaken(place: Path) -> None:
    """Take a cell, wait until another has taken it over, then record it all the same."""
    mine = board(place, "slow")
    lease = mine.take("a", 0)
    assert lease is not None
    other = board(place, "fast").take("a", 1)
    assert other is not None
    mine.finish(lease, {"made": "twice"})


def test_who_was_overtaken_records_nothing(tmp_path: Path) -> None:
    child = multiprocessing.get_context("fork").Process(target=overtaken, args=(tmp_path,))
    child.start()
    child.join()
    assert child.exitcode == LOST
    assert not recorded(tmp_path)


@pytest.mark.slow
def test_kills_lose_nothing_and_record_nothing_twice() -> None:
    found = study_kills.main(["--kills", "4", "--cells", "40", "--seconds", "0.1"])
    assert found["recorded in the end"] == found["cells"]
    assert found["same bytes as without kills"]
    assert found["leases left"] == 0


@pytest.mark.slow
def test_a_scheduler_starts_the_same_workers(tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    state = StudyState(tmp_path / "state")
    failed = run_cells(state, partial(cells, 6), partial(make, place=str(tmp_path)), jobs=2, executor="local")
    assert failed == {}
    assert set(recorded(tmp_path)) == {c.key for c in cells(6)}
    assert Counter((tmp_path / "ended").read_text().split()) == {c.key: 1 for c in cells(6)}


@pytest.mark.slow
def test_ray_starts_the_same_workers(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    state, options = StudyState(tmp_path / "state"), {"num_cpus": 0.1}
    plan, making = partial(cells, 6), partial(make, place=str(tmp_path))
    assert run_cells(state, plan, making, jobs=2, executor="ray", options=options) == {}
    assert Counter((tmp_path / "ended").read_text().split()) == {c.key: 1 for c in cells(6)}
