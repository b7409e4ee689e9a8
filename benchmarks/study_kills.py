"""Kills the driver and the workers of a light study at random moments, again and again, and checks what is left.

`python -m benchmarks.study_kills --kills 200` prints, as JSON: kills of the driver and of workers, finished cells lost,
cells recorded twice, cells that were made again because a kill came between their last write and their record, and
whether the results have the bytes of a run without kills. Ends with 1 unless nothing was lost or recorded twice.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from vestige.artifacts.layout import StudyState
from vestige.core.errors import InputError
from vestige.core.files import append_lines, write_text
from vestige.studies.engine import Cell, run_cells


def cells(n: int) -> list[Cell]:
    """One first, many after it, and one after all of them."""
    middle = [Cell(f"m{i:04}", "middle", f"middle {i}", ("first",)) for i in range(n)]
    return [Cell("first", "first", "first"), *middle, Cell("last", "last", "last", tuple(c.key for c in middle))]


def make(cell: Cell, *, place: str, seconds: float = 0.0) -> dict[str, str]:
    """Take a while, and leave a file whose bytes follow from the cell."""
    folder = Path(place)
    append_lines(folder / "begun", [f"{cell.key}\n"])
    time.sleep(seconds)
    text = "".join((folder / needed).read_text() for needed in cell.after)
    if cell.key == "m0003" and (folder / "refuse").exists():
        raise InputError("the third is refused")
    write_text(folder / cell.key, hashlib.sha256(f"{cell.key} {text}".encode()).hexdigest())
    append_lines(folder / "ended", [f"{cell.key}\n"])
    return {"path": cell.key}


def drive(place: str, n: int, seconds: float, jobs: int) -> None:
    """What `vestige study run` does, with cells that only wait."""
    state = StudyState(Path(place) / "state")
    run_cells(state, partial(cells, n), partial(make, place=place, seconds=seconds), jobs=jobs)


def recorded(place: Path) -> dict[str, tuple[int, bytes]]:
    """The record of each finished cell: its inode and its bytes."""
    found = {}
    for path in (place / "state" / "done").glob("[!.]*"):
        found[path.name] = (path.stat().st_ino, path.read_bytes())
    return found


def killed(place: Path, kills: int, rng: random.Random, *, n: int, seconds: float) -> Iterator[str]:
    """Start the driver again and again, and kill it or one of its workers at a random moment; says which."""
    context = multiprocessing.get_context("spawn")
    before: dict[str, tuple[int, bytes]] = {}
    for _ in range(kills):
        driver = context.Process(target=drive, args=(str(place), n, seconds, 2))
        driver.start()
        time.sleep(rng.uniform(0.2, 2.5))
        try:
            children = Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split()
        except FileNotFoundError:
            children = []
        victim = rng.choice([driver.pid or 0, *map(int, children)])
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            continue
        time.sleep(rng.uniform(0.0, 0.4))
        driver.kill()
        driver.join()
        now = recorded(place)
        lost = [key for key, was in before.items() if now.get(key) != was]
        if lost:
            raise AssertionError(f"finished cells were lost or recorded anew: {lost}")
        before = now
        yield "driver" if victim == driver.pid else "worker"


def outcome(place: Path, n: int) -> str:
    """The digest of all that the cells left."""
    return hashlib.sha256("".join((place / c.key).read_text() for c in cells(n)).encode()).hexdigest()


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Kill, finish, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--cells", type=int, default=1500)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each cell, while kills go on")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as aside:
        place, whole = Path(aside) / "killed", Path(aside) / "whole"
        place.mkdir()
        whole.mkdir()
        kinds = Counter(killed(place, asked.kills, random.Random(asked.seed), n=asked.cells, seconds=asked.seconds))
        done_by_then = len(recorded(place))
        drive(str(place), asked.cells, 0.0, 2)
        drive(str(whole), asked.cells, 0.0, 2)
        ended = Counter((place / "ended").read_text().split())
        found = {
            "kills": dict(kinds),
            "cells": len(cells(asked.cells)),
            "done while kills went on": done_by_then,
            "recorded in the end": len(recorded(place)),
            "finished cells lost or recorded twice": 0,
            "made again before they were recorded": sum(times - 1 for times in ended.values()),
            "leases left": len(list((place / "state" / "leases").iterdir())),
            "same bytes as without kills": outcome(place, asked.cells) == outcome(whole, asked.cells),
        }
    print(json.dumps(found, indent=2))
    return found


if __name__ == "__main__":
    end = main()
    sys.exit(end["recorded in the end"] != end["cells"] or not end["same bytes as without kills"])
