"""Cells are made once each, whatever is killed, and by whomever."""

import json
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from vestige.artifacts.layout import StudyState
from vestige.core.errors import InputError
from vestige.core.files import append_lines, write_text
from vestige.study.engine import LOST, Board, Cell, run_cells, work

N = 24


def cells(n: int = N) -> list[Cell]:
    """One first, many after it, and one after all of them."""
    middle = [Cell(f"m{i:02}", "middle", f"middle {i}", ("first",)) for i in range(n)]
    return [Cell("first", "first", "first"), *middle, Cell("last", "last", "last", tuple(c.key for c in middle))]


def make(cell: Cell, *, place: str, seconds: float = 0.0) -> dict[str, str]:
    """Begin, take a while, and leave a file whose bytes follow from the cell."""
    append_lines(Path(place) / "begun", [f"{cell.key}\n"])
    time.sleep(seconds)
    for needed in cell.after:
        assert (Path(place) / needed).read_text() == needed * 3
    if cell.key == "m03" and (Path(place) / "refuse").exists():
        raise InputError("the third is refused")
    write_text(Path(place) / cell.key, cell.key * 3)
    append_lines(Path(place) / "ended", [f"{cell.key}\n"])
    return {"path": cell.key}


def board(place: Path, host: str = "here", patience: float = 60.0) -> Board:
    return Board(StudyState(place / "state"), host=host, patience=patience)


def recorded(place: Path) -> list[str]:
    return sorted(p.name for p in (place / "state" / "done").iterdir())


def test_all_cells_are_made_once_in_the_order_of_what_they_need(tmp_path: Path) -> None:
    work(board(tmp_path), cells(), partial(make, place=str(tmp_path)), "run")
    assert Counter((tmp_path / "ended").read_text().split()) == {c.key: 1 for c in cells()}
    assert not list((tmp_path / "state" / "leases").iterdir())
    assert board(tmp_path).facts("m00")["made"] == {"path": "m00"}


def test_what_needs_a_failed_cell_is_left_and_another_run_tries_again(tmp_path: Path) -> None:
    (tmp_path / "refuse").touch()
    work(board(tmp_path), cells(), partial(make, place=str(tmp_path)), "one")
    status = board(tmp_path).status()
    assert status.failed == {"m03": "the third is refused"}
    assert {c.key for c in cells()} - status.done == {"m03", "last"}
    work(board(tmp_path), cells(), partial(make, place=str(tmp_path)), "one")
    assert (tmp_path / "begun").read_text().split().count("m03") == 1, "one run tries once"
    (tmp_path / "refuse").unlink()
    work(board(tmp_path), cells(), partial(make, place=str(tmp_path)), "two")
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
    assert recorded(tmp_path) == []


def drive(place: str, seconds: float, jobs: int) -> None:
    run_cells(StudyState(Path(place) / "state"), cells, partial(make, place=place, seconds=seconds), jobs=jobs)


def killed(place: Path, kills: int, rng: random.Random, seconds: float = 0.02) -> Iterator[str]:
    """Start the driver again and again, and kill it or one of its workers at a random moment."""
    context = multiprocessing.get_context("spawn")
    before: list[str] = []
    for _ in range(kills):
        driver = context.Process(target=drive, args=(str(place), seconds, 2))
        driver.start()
        time.sleep(rng.uniform(0.2, 3.0))
        children = Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split()
        victim = rng.choice([driver.pid, *map(int, children)])
        os.kill(victim, signal.SIGKILL)
        yield "driver" if victim == driver.pid else "worker"
        time.sleep(rng.uniform(0.0, 0.5))
        driver.kill()
        driver.join()
        now = recorded(place) if (place / "state" / "done").exists() else []
        assert set(before) <= set(now), "no finished cell is lost"
        before = now


@pytest.mark.slow
def test_kills_lose_nothing_and_make_nothing_twice(tmp_path: Path) -> None:
    list(killed(tmp_path, 4, random.Random(0)))
    drive(str(tmp_path), 0.0, 2)
    done = {key: json.loads((tmp_path / "state" / "done" / key).read_text()) for key in recorded(tmp_path)}
    assert set(done) == {c.key for c in cells()}
    ended = Counter((tmp_path / "ended").read_text().split())
    # Between a cell's last write and its record a kill makes it again; what is recorded is never made again.
    assert max(ended.values()) <= 2
    assert all((tmp_path / c.key).read_text() == c.key * 3 for c in cells())
