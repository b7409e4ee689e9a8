"""What real trainings say of `metrics/priors.toml` and of `intervals.LABORATORY`: `python -m benchmarks.priors FOLDER`.

FOLDER is that of `benchmarks.rejudged`. For each score, over all cells (a base model, a forget set, an evaluation):

- tau^2 / sigma^2, its median and largest value: what a training does to all questions alike, by what it does to one.
- The share and weight that are likeliest together. Where tau^2 is drawn as `SeedPrior` holds, the variance of M
  means over sigma^2 (1 / N + share) is F with M - 1 and `weight` degrees of freedom. Behind it by how much the
  logarithm of the likelihood falls at the shipped prior: beyond 3.0 lies what does not fit at 95 %.
- The laboratories: each left out in turn, the root mean square of its trainings' mean less that of all others, in gaps
  between target and trainings; of those trained alike, and of all.

Then how often the verdict errs at another prior, `--share` and `--weight`, as in docs/findings/error_rates.md.

Cells are nested (one per cent of TOFU lies in five), and 40 trainings are few, so that these are guides.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.stats import f

from benchmarks import options, table
from benchmarks.error_rates import left_out, rates
from benchmarks.public_logs import Cell, cells
from vestige.metrics.intervals import LABORATORY, PRIOR_GRADED, SeedPrior, interaction

SCORES = ("probability", "rougeL", "truth")


def spread_of(cell: Cell) -> tuple[int, int, float, float]:
    """M, N, sigma^2 and the variance of the trainings' means."""
    m, n = cell.rows.shape
    noise = float((interaction(cell.rows) ** 2).sum()) / ((m - 1) * (n - 1))
    return m, n, noise, float(cell.rows.mean(axis=1).var(ddof=1))


def misfit(chosen: Sequence[Cell], share: float, weight: float) -> float:
    """Minus the logarithm of the likelihood of a prior."""
    total = 0.0
    for m, n, noise, seen in map(spread_of, chosen):
        scale = noise * (1 / n + share)
        total -= float(f.logpdf(seen / scale, m - 1, weight)) - np.log(scale)
    return total


def likeliest(chosen: Sequence[Cell]) -> tuple[float, float]:
    """The share and the weight under which what was seen is likeliest."""

    def at(logs: Float[np.ndarray, " 2"]) -> float:
        return misfit(chosen, float(np.exp(logs[0])), float(np.exp(logs[1])))

    fits = (minimize(at, np.log(np.array([share, 4.0])), method="Nelder-Mead") for share in (0.0005, 0.005, 0.05))
    share, weight = np.exp(min(fits, key=lambda fit: fit.fun).x)
    return float(share), float(weight)


def laboratories(chosen: Sequence[Cell], *, alike: bool) -> str:
    """By how much each laboratory's mean differs from that of all others, in gaps; of trainings `alike`, or of all."""
    apart = []
    for cell in chosen:
        means = cell.rows.mean(axis=1)
        counts = np.array([training.alike or not alike for training in cell.trainings])
        names = np.array([training.laboratory for training in cell.trainings])
        for name in dict.fromkeys(names):
            own, others = counts & (names == name), counts & (names != name)
            if own.any() and others.any():
                apart.append((means[own].mean() - means[others].mean()) / cell.gap)
    return f"{np.sqrt(np.mean(np.square(apart))):.3f} ({len(apart)})"


def errors(chosen: Sequence[Cell], prior: SeedPrior) -> str:
    """The error rates of one score at a prior, by the number of controls."""
    judged = [one for cell in chosen for one in left_out(cell, prior)]
    rows = [
        [rate.score, rate.controls, str(rate.judged), f"{rate.holds:.3f}", str(rate.fails), f"{rate.planted_holds:.3f}"]
        for rate in rates(judged)
    ]
    return table(["score", "controls", "judged", "holds", "wrong fails", "wrong holds at 0.2"], rows)


def main() -> None:
    """Print the table."""
    parser = options(__doc__)
    parser.add_argument("logs", type=Path, metavar="FOLDER", help="the folder with the logs")
    parser.add_argument("--share", type=float, default=PRIOR_GRADED.share)
    parser.add_argument("--weight", type=float, default=PRIOR_GRADED.weight)
    words = parser.parse_args()
    known, rows = cells(words.logs, SCORES), []
    for scores in (*((score,) for score in SCORES), SCORES):
        chosen = [cell for cell in known if cell.score in scores]
        shares = [(seen - noise / n) / noise for _, n, noise, seen in map(spread_of, chosen)]
        share, weight = likeliest(chosen)
        fall = misfit(chosen, PRIOR_GRADED.share, PRIOR_GRADED.weight) - misfit(chosen, share, weight)
        apart = [laboratories(chosen, alike=alike) for alike in (True, False)]
        sizes = [f"{np.median(shares):.4f}", f"{max(shares):.3f}", f"{share:.4f}", f"{weight:.1f}", f"{fall:.1f}"]
        rows.append([", ".join(scores), str(len(chosen)), *sizes, *apart])
    head = [
        "score",
        "cells",
        "tau^2 / sigma^2",
        "at most",
        "share",
        "weight",
        "shipped falls by",
        "laboratories alike",
        "all",
    ]
    print(f"{table(head, rows)}\n\nShipped: share {PRIOR_GRADED.share}, weight {PRIOR_GRADED.weight}, {LABORATORY=}.")
    prior = SeedPrior(words.share, words.weight)
    print(f"\nAt the share {prior.share} and the weight {prior.weight}:\n\n{errors(known, prior)}")


if __name__ == "__main__":
    main()
