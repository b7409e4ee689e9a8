"""Studies from one file: `status` says what there is to do and how far it is, `run` does it."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from vestige.artifacts.layout import StudyFolder
from vestige.core.errors import InputError, MachineError
from vestige.core.text import one_line
from vestige.steps.engine import Board, Status, run_cells
from vestige.studies.cells import Study
from vestige.studies.settings import read_study


@dataclass(frozen=True)
class KindLine:
    """Of one kind of cell: how many there are, are done, are being made and failed.

    `seconds` and `tokens` (of trainings) are means over finished cells and `peak_mb` their most; None before the first.
    """

    kind: str
    cells: int
    done: int
    at_work: int
    failed: int
    seconds: float | None
    tokens: float | None
    peak_mb: int | None


@dataclass(frozen=True)
class StudyProgress:
    """How far a study is; `failed` are the reasons by the cell's name, `left` seconds of work of one process."""

    kinds: tuple[KindLine, ...]
    failed: Mapping[str, str]
    left: float | None

    @property
    def done(self) -> int:
        """Cells that are whole."""
        return sum(k.done for k in self.kinds)

    @property
    def cells(self) -> int:
        """All cells."""
        return sum(k.cells for k in self.kinds)


def open_study_file(file: Path, output_dir: Path | None = None) -> Study:
    """The study in a TOML file; its folder is beside the file and has its name, unless another is given.

    An address is refused: who makes a cell is decided by creating a file exclusively and renewing it, which object
    stores offer under no common interface, so that a cell could be made and recorded twice.
    """
    if output_dir is not None and re.match(r"[\w+.-]{2,}:/", str(output_dir)):
        raise InputError(
            f"--output-dir {one_line(str(output_dir), width=80)}: cells lie in a folder, since a lease needs exclusive "
            "creation, which addresses do not promise; mount it, or copy finished cells (docs/study.md)"
        )
    return Study(read_study(file), StudyFolder(output_dir or file.with_suffix("")))


_MEASURED = 20
"""Of so many finished cells of a kind the times are read."""


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def status(study: Study) -> StudyProgress:
    """How far the study is, and what is left by what was measured; nothing is run, and nothing is written."""
    cells = study.cells
    board = Board(study.folder.state) if study.folder.state.path.is_dir() else None
    now = board.status() if board else Status(set(), set(), {})
    lines = []
    for kind in dict.fromkeys(cell.kind for cell in cells):
        keys = {cell.key: None for cell in cells if cell.kind == kind}.keys()
        done = [key for key in keys if key in now.done]
        # Spread over all of them: the first of a kind are those of the first data set and model.
        facts = [board.facts(key) for key in done[:: max(1, len(done) // _MEASURED)]] if board else []
        tokens = [f["made"]["tokens"] for f in facts if "tokens" in f["made"]]
        peak = max((f["peak_mb"] for f in facts), default=None)
        counts = (len(keys), len(done), len(keys & now.at_work), len(keys & now.failed.keys()))
        lines.append(KindLine(kind, *counts, _mean([f["seconds"] for f in facts]), _mean(tokens), peak))
    # Kinds that were never measured would be guessed at.
    measured = all(k.seconds is not None for k in lines if k.done < k.cells)
    seconds_left = sum((k.cells - k.done) * (k.seconds or 0.0) for k in lines) if measured else None
    names = {cell.key: cell.name for cell in cells}
    return StudyProgress(tuple(lines), {names[k]: f.reason for k, f in now.failed.items() if k in names}, seconds_left)


def run(
    study: Study,
    *,
    jobs: int | None = None,
    executor: str = "processes",
    options: Mapping[str, Any] | None = None,
    show: Callable[[Status, int], None] = lambda _status, _cells: None,
) -> dict[str, str]:
    """Make every cell that is not there; the reasons of what failed, by the cell's name. Resumes.

    Any number of these commands may work in one folder, on any number of machines that share it.
    """
    from vestige.steps.runner import PRELOADED
    from vestige.studies.making import check_study, make_cell, plan_cells

    check_study(study)
    cells = study.cells
    settings, folder = study.settings.model_dump_json(), str(study.folder.path.absolute())
    failed = run_cells(
        study.folder.state,
        partial(plan_cells, settings=settings, folder=folder),
        partial(make_cell, settings=settings, folder=folder),
        jobs=jobs_for(study, jobs) if executor == "processes" else jobs or 1,
        executor=executor,
        options=options,
        preload=PRELOADED,
        show=lambda now: show(now, len(cells)),
    )
    names = {cell.key: cell.name for cell in cells}
    return {names[key]: failure.reason for key, failure in failed.items()}


def jobs_for(study: Study, jobs: int | None) -> int:
    """How many processes work here: as many as were asked for, one a card or processor else, as far as memory goes.

    What one takes is the most that a finished cell of the study took, else what it says in the settings' place: a
    gigabyte.
    """
    from vestige.steps.runner import workers_for

    # Those that this process may use, where the system tells: a container has fewer than the machine.
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    most = workers_for(study.settings.device, jobs, on_cpu=processors)
    peak, free = max((line.peak_mb for line in status(study).kinds if line.peak_mb), default=1024), _free_mb()
    if free < peak:
        raise MachineError(f"one process takes {peak} MB, and {free} MB of memory are free")
    return int(max(1, min(most, free // peak)))


def _free_mb() -> int:
    """Memory that can be had without swapping."""
    try:
        # Free memory leaves out what the system only caches, so the available is what counts.
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) // 1024
    except OSError:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1 << 20)
