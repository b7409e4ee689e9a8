"""How near two trainings lie to each other in public logs, and whether copies lie nearer (`metrics.trainings`).

`python -m benchmarks.one_training FOLDER` prints the tables of docs/findings/planted.md. FOLDER holds the repositories
of `public_logs.SOURCES` (without muse) and of `MORE`, each in a folder of its name. One processor needs three minutes.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import options
from benchmarks.error_rates import scale_of
from benchmarks.public_logs import Cell, Source, Training, cells, trainings
from vestige.core.ids import file_digest
from vestige.core.seeds import generator
from vestige.logs import read_log
from vestige.metrics.gains import admission
from vestige.metrics.intervals import ByItem
from vestige.metrics.trainings import LEAST_DISTANCES, distance, near, same_pattern
from vestige.metrics.verdicts import Thresholds, steady

MORE = {
    "sampease": Source("SamPease/retrainingUnlearning", "", "MIT", "retrained models of Llama 3.2 1B"),
    "harishm17": Source(
        "harishm17/llm-unlearning", "", "MIT", "OpenUnlearning's retain90 of Llama 3.1 8B, asked again"
    ),
    "danieltennant": Source("danieltennant/unlearning-compression", "", "", "OpenUnlearning's retain90, asked again"),
}
NOISES = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Noise of siblings, as a share of the median distance of two trainings."""
KINDS = ("two laboratories", "one laboratory", "only another weight decay", "one model asked twice")


class Pair(NamedTuple):
    """Two logs by one measurement. `is_merged` says whether they count as one training."""

    kind: str
    measurement: str
    split: str
    score_type: str
    first: Training
    second: Training
    distance: float
    is_merged: bool


def models(logs: Path) -> list[Training]:
    """The retrained models, without the logs that are copies of others' files."""
    known = [one for one in trainings(logs) if one.role == "retrained"]
    for path in sorted((logs / "sampease/tmp/modal_retainref").glob("retain*_eval.json")):
        retain = int(path.name[6:8])
        known.append(
            Training("Llama-3.2-1B", "sampease", "sampease", f"retain{retain}", "retrained", retain, True, path)
        )
    for name, base, laboratory, file in (
        ("harishm17", "Llama-3.1-8B", "open-unlearning", "saves/eval/oracle_retain90/TOFU_EVAL.json"),
        (
            "danieltennant",
            "Llama-3.2-1B",
            "open-unlearning",
            "results/retain_baseline/tofu_Llama-3.2-1B-Instruct_retain90__none_None/TOFU_EVAL.json",
        ),
    ):
        path = logs / name / file
        known.append(Training(base, laboratory, name, "retain90", "retrained", 90, True, path))
    by_digest: dict[str, Training] = {}
    for one in known:
        # Folders of these names hold the model before any training, or the target.
        if not one.base.endswith(("_pretrained", "_ft")):
            by_digest.setdefault(file_digest(one.path), one)
    return list(by_digest.values())


class Column(NamedTuple):
    """The scores of a log by one measurement on one split."""

    questions: tuple[str, ...]
    scores: ByItem
    score_type: str


@cache
def tables(path: Path) -> dict[tuple[str, str], Column]:
    """The columns of a log by split and measurement."""
    found: dict[tuple[str, str], Column] = {}
    for part in read_log(path).parts:
        if part.measurement.score_type != "order":
            column = Column(part.questions, part.scores, part.measurement.score_type)
            found.setdefault((part.split, part.name), column)
    return found


def aligned(first: Column, second: Column) -> tuple[ByItem, ByItem]:
    """The scores on the questions of both. Without texts, the shorter list is the end of the longer one."""
    questions, a, _ = first
    others, b, _ = second
    if questions and others:
        places = {question: place for place, question in enumerate(others)}
        shared = [(n, places[question]) for n, question in enumerate(questions) if question in places]
        return a[[n for n, _ in shared]], b[[m for _, m in shared]]
    n = min(len(a), len(b))
    return a[len(a) - n :], b[len(b) - n :]


def kind(first: Training, second: Training) -> str:
    """Why two logs of one base may be alike."""
    if first.laboratory != second.laboratory:
        return KINDS[0]
    if first.name == second.name:
        return KINDS[3]
    # TOFU's own models come in pairs that differ in the weight decay alone.
    alone = first.name.split("_wd")[0] == second.name.split("_wd")[0]
    if alone:
        return KINDS[2]
    return KINDS[1]


def pairs(known: Sequence[Training]) -> Iterator[Pair]:
    """All pairs of one base, by every measurement that both have and that tells."""
    for first, second in combinations(known, 2):
        if first.base != second.base:
            continue
        theirs = tables(second.path)
        for (split, measurement), own in tables(first.path).items():
            if (split, measurement) not in theirs:
                continue
            a, b = aligned(own, theirs[split, measurement])
            apart = distance(a, b)
            if apart is not None:
                merged = bool(list(near({"a": a, "b": b}, own.score_type, "a")))
                yield Pair(kind(first, second), measurement, split, own.score_type, first, second, apart, merged)


def siblings(known: Sequence[Training], found: Sequence[Pair]) -> Iterator[tuple[float, int, int]]:
    """By noise: how many pairs of noised copies of one log count as one training, and of how many."""
    usual = {
        (p.split, p.measurement): float(
            np.median([q.distance for q in found if q.measurement == p.measurement and q.split == p.split])
        )
        for p in found
    }
    for noise in NOISES:
        told = 0
        for one in known:
            rng = generator(0, str(one.path), str(noise))
            is_told = False
            for (split, measurement), (_, scores, score_type) in tables(one.path).items():
                if (split, measurement) not in usual:
                    continue
                # Two siblings of one model lie as far apart as this share of the usual distance.
                spread = noise * usual[split, measurement] * np.nanstd(scores)
                rows = {name: scores + spread * rng.normal(size=len(scores)) for name in "ab"}
                is_told |= bool(list(near(rows, score_type, rows)))
            told += is_told
        yield noise, told, len(known)


def accused(found: Sequence[Cell]) -> tuple[int, int, int]:
    """Of all trainings, by score and forget set: how many the level accuses, and how many level and pattern do."""
    defaults = Thresholds()
    n = by_level = by_pattern = 0
    for cell in found:
        for place, row in enumerate(cell.rows):
            rest = np.delete(cell.rows, place, axis=0)
            scale = scale_of(cell.target, rest)
            if not (admission(scale).ends[0] > defaults.admission or steady(admission(scale, trained=True), defaults)):
                continue
            n += 1
            others = rest.mean(axis=0)
            if row.mean() - others.mean() > 0.5 * (cell.target.mean() - others.mean()):
                by_level += 1
                by_pattern += not same_pattern(row, others, cell.target)
    return n, by_level, by_pattern


def main() -> None:
    """Prints the tables."""
    parser = options(__doc__)
    parser.add_argument("logs", type=Path)
    logs = parser.parse_args().logs
    known = models(logs)
    found = list(pairs(known))
    print("| two logs of one base | pairs | comparisons | least distance | 1 % | median | counted as one training |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in KINDS:
        own = [p for p in found if p.kind == name]
        both = {(p.first, p.second) for p in own}
        merged = {(p.first, p.second) for p in own if p.is_merged}
        values = np.quantile([p.distance for p in own], [0, 0.01, 0.5])
        numbers = " | ".join(f"{value:.3f}" for value in values)
        print(f"| {name} | {len(both)} | {len(own)} | {numbers} | {len(merged)} of {len(both)} |")
    print("\n| measurement | split | type | comparisons | least distance of two trainings | limit |")
    print("| --- | --- | --- | --- | --- | --- |")
    honest = [p for p in found if p.kind in KINDS[:2]]
    for measurement, split in sorted({(p.measurement, p.split) for p in honest}):
        distances = [p.distance for p in honest if (p.measurement, p.split) == (measurement, split)]
        (score_type,) = {p.score_type for p in honest if (p.measurement, p.split) == (measurement, split)}
        limit = LEAST_DISTANCES.get(score_type, min(LEAST_DISTANCES.values()))
        print(f"| {measurement} | {split} | {score_type} | {len(distances)} | {min(distances):.3f} | {limit} |")
    print("\n| noise of two copies, of the usual distance | counted as one training |\n| --- | --- |")
    for noise, told, n in siblings(known, honest):
        print(f"| {noise} | {told} of {n} |")
    n, by_level, by_pattern = accused(cells(logs))
    print(f"\nAnswers like the target, of {n} admitted: {by_level} by level alone, {by_pattern} by level and pattern.")


if __name__ == "__main__":
    main()
