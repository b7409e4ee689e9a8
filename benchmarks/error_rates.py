"""How often verdicts err on real models: each training that never knew judged by the others, and planted leaks in it.

Figures of the page docs/findings/error_rates.md, which `python -m benchmarks.rejudged FOLDER` writes.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from benchmarks.public_logs import FEWEST, Cell, Training, trainings
from vestige.artifacts.audits import Outcome
from vestige.core.seeds import generator
from vestige.logs import read_log
from vestige.metrics.contrasts import Draws, Sample
from vestige.metrics.gains import Controls, admission, leakage
from vestige.metrics.intervals import SeedPrior
from vestige.metrics.trainings import kept_error
from vestige.metrics.verdicts import Evidence, Thresholds, stays_below, steady

DEFAULTS = Thresholds()
LEFT = 0.2
"""The share of what the target knows that is planted in a training which never knew: the wide margin."""
SETS = 12
"""So many sets of controls of one size are tried for each subject, drawn at random where there are more."""


class Judged(NamedTuple):
    """One training judged by others: `outcome` as it is, `planted` with a fifth of what the target knows.

    `alike` is whether all of them were trained alike, `fits` whether the score would be admitted with these controls.
    """

    score: str
    controls: int
    subject: Training
    alike: bool
    fits: bool
    value: float
    outcome: Outcome
    planted: Outcome


GRADED = DEFAULTS.prior("graded")


def scale_of(target: Float[np.ndarray, " N"], rows: Float[np.ndarray, "M N"], prior: SeedPrior = GRADED) -> Controls:
    """The scale of a graded score between controls and target, of these questions."""
    sample = Sample(tuple(f"{place:03}" for place in range(len(target))), None, 0, fixed=True)
    return Controls("score", target, rows, sample, prior.scaled(target, rows))


def verdict(subject: Float[np.ndarray, " N"], scale: Controls) -> tuple[float, Outcome]:
    """The leakage of a subject, and whether the claim that it stays below the margins holds."""
    drawn = leakage(subject, scale)
    return drawn.value, stays_below([Evidence("score", drawn, "leakage", "leakage")], DEFAULTS).outcome


def left_out(cell: Cell, prior: SeedPrior = GRADED) -> Iterator[Judged]:
    """Every training of a cell as the subject, by sets of one, of two and of all the others."""
    for subject, row in enumerate(cell.rows):
        others = [place for place in range(len(cell.rows)) if place != subject]
        rng = generator(0, cell.base, cell.forget, cell.score, str(subject))
        for size in sorted({1, 2, len(others)}):
            if size > len(others):
                continue
            sets = list(combinations(others, size))
            if len(sets) > SETS:
                sets = [sets[place] for place in sorted(rng.choice(len(sets), SETS, replace=False))]
            for controls in sets:
                scale = scale_of(cell.target, cell.rows[list(controls)], prior)
                fits = admission(scale).ends[0] > DEFAULTS.admission or steady(admission(scale, trained=True), DEFAULTS)
                value, outcome = verdict(row, scale)
                planted = verdict(row + LEFT * (cell.target - row), scale)[1]
                taking_part = [cell.trainings[place] for place in (subject, *controls)]
                alike = all(one.alike for one in taking_part)
                yield Judged(cell.score, size, cell.trainings[subject], alike, fits, value, outcome, planted)


class Rate(NamedTuple):
    """What became of all judgements by one score and one number of controls; shares are of `judged`."""

    score: str
    controls: str
    judged: int
    subjects: int
    fits: float
    holds: float
    fails: int
    farthest: float
    planted_holds: float
    planted_fails: float


def rates(judged: Sequence[Judged]) -> list[Rate]:
    """By score and number of controls. Each training of each forget set weighs the same."""
    found = []
    for score in dict.fromkeys(one.score for one in judged):
        for controls, sizes in (("1", {1}), ("2", {2}), ("3 or more", set(range(3, 100)))):
            rows = [one for one in judged if one.score == score and one.controls in sizes]
            if rows:
                found.append(_rate(score, controls, rows))
    return found


def _rate(score: str, controls: str, rows: Sequence[Judged]) -> Rate:
    def share(of: Sequence[bool]) -> float:
        return float(np.mean(of))

    return Rate(
        score,
        controls,
        len(rows),
        len({(one.subject.base, one.subject.laboratory, one.subject.name) for one in rows}),
        share([one.fits for one in rows]),
        share([one.outcome == "holds" for one in rows]),
        sum(one.outcome == "fails" for one in rows),
        max(abs(one.value) for one in rows),
        share([one.planted == "holds" for one in rows]),
        share([one.planted == "fails" for one in rows]),
    )


Kept = dict[tuple[str, str, str, int], dict[Training, Float[np.ndarray, " N"]]]
"""By base model, split, score and number of questions, what each training scored."""


def kept_scores(logs: Path) -> Kept:
    """The scores of all trainings on what they were to keep, where they know a fifth of it."""
    cells: Kept = {}
    for training in trainings(logs):
        # Trainings on less of the data never saw most of the retained questions.
        if training.retain < FEWEST:
            continue
        for part in read_log(training.path).parts:
            is_graded = part.measurement.score_type in ("probability", "overlap")
            if part.split in ("retain", "independent", "factual") and is_graded:
                cell = cells.setdefault((training.base, part.split, part.name, len(part.scores)), {})
                cell[training] = part.scores
    return {key: cell for key, cell in cells.items() if len(cell) > 1 and np.mean(list(cell.values())) > LEFT}


def utility(known: Float[np.ndarray, "M N"], subject: Float[np.ndarray, " N"], sample: Sample) -> Outcome:
    """Whether a model kept what the target, the first row, scores. The other rows are controls."""
    differences = known[0] - subject
    loss = float(differences.mean())
    errors = kept_error(known, differences)
    low, high = (loss + error * sample.noise("another training", df) for error, df in errors)
    draws = Draws(loss, low, high, len(subject), "", 0.0, 0.0)
    return stays_below([Evidence("kept", draws, "harm", "share")], DEFAULTS).outcome


def utilities(logs: Path) -> list[list[str]]:
    """How "utility preserved" is decided, each training judged by each other: rows of a table.

    The controls are the next trainings of the cell after the subject, in turn.
    """
    outcomes: dict[tuple[int, str], Counter[Outcome]] = {}
    sample = Sample(("one",), None, 0, resamples=1_000)
    for cell in kept_scores(logs).values():
        names = list(cell)
        for target, name in permutations(names, 2):
            place = names.index(name)
            others = [other for other in names[place:] + names[:place] if other not in (target, name)]
            for size in (0, 1, 2, 3, 5):
                if size > len(others):
                    break
                rows = np.array([cell[training] for training in (target, *others[:size])])
                for share in (0.0, 0.3):
                    found = outcomes.setdefault((size, f"{share:.0%}"), Counter())
                    found[utility(rows, (1 - share) * cell[name], sample)] += 1
    table: list[list[str]] = []
    for (controls, lost), found in sorted(outcomes.items()):
        counts = [str(found[outcome]) for outcome in ("holds", "inconclusive", "fails")]
        table.append([str(controls), lost, str(found.total()), *counts])
    return table
