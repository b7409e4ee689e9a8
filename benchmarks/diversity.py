"""How fast the diversity of many texts is measured, beside the packages that the papers used, with the same numbers.

    OMP_NUM_THREADS=1 python -m benchmarks.diversity --json [--rounds 5] [--only vendi] [--peers SITE_PACKAGES]
        [--embeddings FILE.npy]

Self-BLEU (n = 3, 4, 5) of 2,000 texts beside nltk (10 texts of them, times 200) and fast-bleu; the likeness of 32 new
texts to 500, 2,000 and 8,000 earlier ones, and their adding, beside a new fast-bleu table over all of them as Curiosity
makes it; the Vendi scores of ten growing sizes of 3,000 embeddings of width 384 beside both forms of `vendi-score`;
and near-duplicates at cosine 0.8 beside three loops over the matrix of cosines. Texts are drawn from 3,000 words by
Zipf's law, embeddings around 2,000 centres; `--embeddings` takes real ones. `--peers` is a folder where nltk,
fast-bleu, vendi-score and scikit-learn lie (`pip install --target SITE_PACKAGES nltk fast-bleu vendi-score`).

Arms take turns in one process; a first round is dropped. `ratio` is the peer's CPU seconds over ours, the median of the
rounds with the least and the greatest. `equal` says that the numbers are at most `tolerance` apart, and lists the same:
fast-bleu keeps its weights in float32, so it is held to less. `--texts FILE.csv ... --column question` says instead how
different the texts of a column are, as Table 2 of Knowledge Holes (2511.00030) does of benchmarks: Vendi / n and 1 -
avgSelfBLEU of at most `--most`, drawn by seed 0. Peaks are those that Python's allocators report, of a run
by itself; what C++ allocates is not seen, so that fast-bleu has none.
"""

import argparse
import csv
import gc
import json
import os
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from vestige.core.seeds import generator
from vestige.metrics.diversity import distinct, progressive_vendi
from vestige.metrics.overlap import ORDERS, SeenNgrams, self_bleu
from vestige.models.embedder import load_embedder
from vestige.probes.hole_table import diversity_of

N_TEXTS, N_NEW = 2000, 32
HISTORIES = (500, 2000, 8000)
NLTK_TEXTS = 10
N_EMBEDDINGS, WIDTH, N_SIZES = 3000, 384, 10
THRESHOLD = 0.8
WEIGHTS = {n: (1 / n,) * n for n in ORDERS}
NAMES = ("self_bleu", "novelty", "vendi", "near_duplicates")

Arm = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """Two ways to the same numbers. `times` is by how much the peer's seconds are to be multiplied."""

    bench: str
    case: str
    peer: str
    ours: Arm
    theirs: Arm
    tolerance: float
    traced: bool = True
    times: int = 1


def drawn_texts(n: int, seed: int) -> list[tuple[str, ...]]:
    """Texts of 6 to 19 words."""
    rng = generator(seed, "texts for diversity")
    share = 1 / np.arange(1, 3001)
    words = rng.choice(3000, size=(n, 19), p=share / share.sum())
    return [tuple(f"w{w}" for w in row[:length]) for row, length in zip(words, rng.integers(6, 20, n), strict=True)]


def drawn_embeddings(seed: int) -> np.ndarray:
    """Near copies of up to 2,000 centres: about half are like an earlier one."""
    rng = generator(seed, "embeddings for diversity")
    centres = rng.normal(size=(2000, WIDTH))
    noise = 0.45 * rng.normal(size=(N_EMBEDDINGS, WIDTH))
    return np.asarray(centres[rng.integers(0, len(centres), N_EMBEDDINGS)] + noise, dtype=np.float32)


def self_bleu_cases() -> Iterator[Case]:
    """Each text beside all others."""
    texts = drawn_texts(N_TEXTS, 0)
    if there("nltk"):
        scorer: Any = import_module("nltk.translate.bleu_score")
        weights, smoothing = list(WEIGHTS.values()), scorer.SmoothingFunction().method1

        def by_nltk() -> np.ndarray:
            asked = range(NLTK_TEXTS)
            return np.array(
                [scorer.sentence_bleu(texts[:i] + texts[i + 1 :], texts[i], weights, smoothing) for i in asked]
            )

        def ours() -> np.ndarray:
            return self_bleu(texts)[:NLTK_TEXTS]

        scale = N_TEXTS // NLTK_TEXTS
        yield Case("self_bleu", f"{N_TEXTS} texts", "nltk, scaled", ours, by_nltk, 1e-9, times=scale)
    if there("fast_bleu"):
        table: Any = import_module("fast_bleu").SelfBLEU
        lists = [list(text) for text in texts]

        def by_fast_bleu() -> np.ndarray:
            found = table(lists, WEIGHTS).get_score()
            return np.array([found[n] for n in ORDERS]).T

        yield Case(
            "self_bleu", f"{N_TEXTS} texts", "fast-bleu", lambda: self_bleu(texts), by_fast_bleu, 1e-7, traced=False
        )


def novelty_cases() -> Iterator[Case]:
    """New texts beside all earlier ones; then they are earlier ones too."""
    if not there("fast_bleu"):
        return
    table: Any = import_module("fast_bleu").BLEU
    for n in HISTORIES:
        # Each arm has a history of its own, and takes the next texts in each round.
        texts = drawn_texts(n + 100 * N_NEW, 1)
        seen, found, places = SeenNgrams(), [list(text) for text in texts[:n]], {"ours": n, "theirs": n}
        seen.add(texts[:n])

        def ours(texts: Sequence[tuple[str, ...]] = texts, seen: SeenNgrams = seen, at: dict[str, int] = places) -> Any:
            new = texts[at["ours"] : at["ours"] + N_NEW]
            at["ours"] += N_NEW
            scores = seen.bleu(new)
            seen.add(new)
            return scores

        def theirs(
            texts: Sequence[tuple[str, ...]] = texts, found: list[list[str]] = found, at: dict[str, int] = places
        ) -> Any:
            new = [list(text) for text in texts[at["theirs"] : at["theirs"] + N_NEW]]
            at["theirs"] += N_NEW
            scores = table(found, WEIGHTS).get_score(new)
            found.extend(new)
            return np.array([scores[order] for order in ORDERS]).T

        yield Case("novelty", f"{N_NEW} to {n} earlier", "fast-bleu", ours, theirs, 1e-7, traced=False)


def vendi_cases(embeddings: np.ndarray) -> Iterator[Case]:
    """Ten growing sizes."""
    if not there("vendi_score"):
        return
    peer: Any = import_module("vendi_score.vendi")
    rows = embeddings.astype(np.float64)
    sizes = [len(rows) * k // N_SIZES for k in range(1, N_SIZES + 1)]

    def ours() -> list[float]:
        return [scored.score for scored in progressive_vendi(rows, sizes)]

    for name, form in (("vendi-score, default", peer.score_X), ("vendi-score, dual", peer.score_dual)):

        def theirs(form: Any = form) -> list[float]:
            return [float(form(rows[:n])) for n in sizes]

        yield Case("vendi", f"{N_SIZES} sizes to {len(rows)}, width {rows.shape[1]}", name, ours, theirs, 1e-9)


def near_duplicate_cases(embeddings: np.ndarray) -> Iterator[Case]:
    """The list of those kept."""

    def cosines() -> np.ndarray:
        units = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
        return np.asarray(units @ units.T)

    def plain() -> list[int]:
        alike, kept = cosines(), list[int]()
        for i in range(len(alike)):
            if all(alike[i, j] <= THRESHOLD for j in kept):
                kept.append(i)
        return kept

    def row_by_row() -> list[int]:
        alike, kept = cosines(), list[int]()
        for i in range(len(alike)):
            if not (alike[i, kept] > THRESHOLD).any():
                kept.append(i)
        return kept

    def striking_out() -> list[int]:
        alike, kept = cosines(), list[int]()
        gone = np.zeros(len(alike), dtype=bool)
        for i in range(len(alike)):
            if not gone[i]:
                kept.append(i)
                gone |= alike[i] > THRESHOLD
        return kept

    loops: dict[str, Arm] = {"plain loop": plain, "row by row": row_by_row, "striking out": striking_out}
    for name, loop in loops.items():
        yield Case(
            "near_duplicates", f"{len(embeddings)} at {THRESHOLD}", name, lambda: list(distinct(embeddings)), loop, 0
        )


def there(module: str) -> bool:
    """Whether a peer is installed; where not, that is said."""
    found = find_spec(module) is not None
    if not found:
        print(f"{module} is not installed, so it is not compared with", file=sys.stderr)
    return found


def seconds(arm: Arm) -> tuple[float, Any]:
    """CPU seconds, and what came out."""
    # What the other arm freed is put in order at the next allocations: 4 to 6 ms after fast-bleu, which are its own.
    gc.collect()
    [str(number) for number in range(10_000)]
    np.unique(np.arange(10_000))
    start = time.process_time()
    value = arm()
    return time.process_time() - start, value


def peak_mb(arm: Arm) -> float:
    """The most that was allocated at once."""
    tracemalloc.start()
    arm()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return round(peak / 1e6, 1)


def same(ours: Any, theirs: Any, tolerance: float) -> bool:
    """Whether the shapes agree, and the values to `tolerance`."""
    first, second = np.asarray(ours), np.asarray(theirs)
    return first.shape == second.shape and bool((np.abs(first - second) <= tolerance).all())


def measured(case: Case, rounds: int) -> dict[str, Any]:
    """A line of the table."""
    own, other, equal = [], [], True
    for number in range(rounds + 1):
        taken, value = seconds(case.ours)
        theirs, peer_value = seconds(case.theirs)
        equal = equal and same(value, peer_value, case.tolerance)
        if number:
            own.append(taken)
            other.append(theirs * case.times)
    ratios = [theirs / taken for theirs, taken in zip(other, own, strict=True)]
    return {
        "bench": case.bench,
        "case": case.case,
        "peer": case.peer,
        "ratio": float(f"{statistics.median(ratios):.3g}"),
        "low": float(f"{min(ratios):.3g}"),
        "high": float(f"{max(ratios):.3g}"),
        "equal": equal,
        "tolerance": case.tolerance,
        "ms": float(f"{statistics.median(own) * 1e3:.3g}"),
        "peer_ms": float(f"{statistics.median(other) * 1e3:.3g}"),
        "peak_mb": peak_mb(case.ours) if case.traced else None,
        "peer_peak_mb": peak_mb(case.theirs) if case.traced else None,
    }


def cases(only: Sequence[str], embeddings: np.ndarray) -> Iterator[Case]:
    """The cases asked for."""
    if "self_bleu" in only:
        yield from self_bleu_cases()
    if "novelty" in only:
        yield from novelty_cases()
    if "vendi" in only:
        yield from vendi_cases(embeddings)
    if "near_duplicates" in only:
        yield from near_duplicate_cases(embeddings)


def texts_of(files: Sequence[Path], column: str, most: int) -> list[str]:
    """At most so many texts of a column of all files together, drawn by seed 0."""
    texts = []
    for path in files:
        with path.open(encoding="utf-8", newline="") as file:
            texts += [row[column] for row in csv.DictReader(file)]
    return [texts[n] for n in generator(0, "texts").permutation(len(texts))[:most]]


def main() -> None:
    """Print a line for each case; the status is 1 where numbers do not agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--peers", type=Path, help="a folder of packages to compare with")
    parser.add_argument("--embeddings", type=Path, help="real embeddings, one a row")
    parser.add_argument("--texts", nargs="+", type=Path, help="CSV files: how different are the texts of --column?")
    parser.add_argument("--column", default="question")
    parser.add_argument("--most", type=int, default=350)
    given = parser.parse_args()
    if given.texts:
        print(diversity_of(texts_of(given.texts, given.column, given.most), load_embedder().embed))
        return
    if os.environ.get("OMP_NUM_THREADS") != "1":
        parser.error("a CPU second is comparable on one thread only: set OMP_NUM_THREADS=1")
    if given.peers is not None:
        # At the end: what is installed here is not to be replaced by what the peers brought along.
        sys.path.append(str(given.peers))
    rows = np.load(given.embeddings, allow_pickle=False) if given.embeddings else drawn_embeddings(0)
    equal = True
    for case in cases(given.only, rows):
        line = measured(case, given.rounds)
        equal = equal and line["equal"]
        print(json.dumps(line) if given.json else line, flush=True)
    sys.exit(not equal)


if __name__ == "__main__":
    main()
