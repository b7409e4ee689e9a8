"""Kills the driver and the workers of a light study at random moments, again and again, and checks what is left.

`python -m benchmarks.study_kills --kills 200` prints, as JSON: kills of the driver and of workers, finished cells lost,
cells recorded twice, cells that were made again because a kill came between their last write and their record, and
whether the results have the bytes of a run without kills. Ends with 1 unless nothing was lost or recorded twice.

`--cuts 20` stops instead one of two hosts again and again, for longer than a lease lasts: what a network file system
does to whoever waits for it when the link is cut. The hosts are namespaces of their own (`unshare`: processes,
network, name), so that neither sees whether the other's process is there. `--ray` starts two Ray nodes and kills one.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
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
from vestige.steps.engine import LOST, Board, StudyCell, run_cells, work

PATIENCE = 0.6
"""Seconds that a lease lasts where hosts are stopped."""


def cells(n: int) -> list[StudyCell]:
    """One first, many after it, and one after all of them."""
    middle = [StudyCell(f"m{i:04}", "middle", f"middle {i}", ("first",)) for i in range(n)]
    return [
        StudyCell("first", "first", "first"),
        *middle,
        StudyCell("last", "last", "last", tuple(c.key for c in middle)),
    ]


def make(cell: StudyCell, *, place: str, seconds: float = 0.0) -> dict[str, str]:
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


def host(place: str, n: int, seconds: float) -> None:
    """A worker whose leases last for `PATIENCE` seconds."""
    board = Board(StudyState(Path(place) / "state"), patience=PATIENCE)
    work(board, cells(n), partial(make, place=place, seconds=seconds), "run", beat=PATIENCE / 6)


def cut_off(place: Path, cuts: int, rng: random.Random, *, n: int, seconds: float) -> Counter[str]:
    """Two hosts, each of which is stopped and woken at random; says how often, and how often it had been overtaken."""
    apart = ["unshare", "--pid", "--fork", "--mount-proc", "--net", "--uts"]
    if subprocess.run([*apart, "true"], check=False, capture_output=True).returncode:
        raise InputError("unshare is not permitted here, so there are no two hosts")
    code = f"from benchmarks.study_kills import host; host({str(place)!r}, {n}, {seconds})"

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([*apart, sys.executable, "-c", code])

    found: Counter[str] = Counter()
    hosts = [start(), start()]
    while any(h.poll() is None for h in hosts):
        time.sleep(rng.uniform(0.2, 1.0))
        for number, one in enumerate(hosts):
            if one.poll() is not None and one.returncode:
                found["overtaken"] += one.returncode == LOST
                found["other ends"] += one.returncode != LOST
                hosts[number] = start()
        one = rng.choice(hosts)
        if found["cuts"] < cuts and one.poll() is None:
            inside = Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text().split()
            for signalled in (signal.SIGSTOP, signal.SIGCONT):
                for pid in map(int, inside):
                    os.kill(pid, signalled)
                time.sleep(2 * PATIENCE if signalled == signal.SIGSTOP else 0)
            found["cuts"] += bool(inside)
    return found


def lose_a_node(place: Path, n: int, seconds: float) -> dict[str, int]:
    """A study on two Ray nodes, of which one is killed with its worker."""
    import threading

    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    second = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    state, plan, making = (
        StudyState(place / "state"),
        partial(cells, n),
        partial(make, place=str(place), seconds=seconds),
    )
    threading.Timer(5.0, lambda: cluster.remove_node(second, allow_graceful=False)).start()
    failed = run_cells(state, plan, making, jobs=2, executor="ray", options={"num_cpus": 1})
    left = sum(node["Alive"] for node in ray.nodes())
    ray.shutdown()
    cluster.shutdown()
    return {"nodes": 2, "nodes left": left, "failed": len(failed)}


def outcome(place: Path, n: int) -> str:
    """The digest of all that the cells left."""
    return hashlib.sha256("".join((place / c.key).read_text() for c in cells(n)).encode()).hexdigest()


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Kill, finish, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--cuts", type=int, default=0, help="stop one of two hosts so often, instead of kills")
    parser.add_argument("--ray", action="store_true", help="kill one of two Ray nodes, instead of kills")
    parser.add_argument("--cells", type=int, default=1500)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each cell, while kills go on")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as aside:
        place, whole = Path(aside) / "killed", Path(aside) / "whole"
        place.mkdir()
        whole.mkdir()
        rng, size = random.Random(asked.seed), {"n": asked.cells, "seconds": asked.seconds}
        if asked.ray:
            kinds = lose_a_node(place, **size)
        elif asked.cuts:
            kinds = cut_off(place, asked.cuts, rng, **size)
        else:
            kinds = Counter(killed(place, asked.kills, rng, **size))
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
