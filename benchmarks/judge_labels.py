"""Answers with labels, written for Vestige and free to use (CC0): what a judge is measured by.

The labels are one author's, and plain cases on purpose: right, partly right, wrong, off the point, refused, cut short,
gibberish, an order to the judge, and questions that are none. Constants of the reference-grounded judge were chosen on
the part "choose"; "test" was written afterwards and used for nothing but measuring.

`python -m benchmarks.judge_labels JUDGE` prints how well a chat model agrees with the labels of "test".
"""

import json
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float
from scipy.stats import rankdata

from vestige.judges.base import Judge, Request
from vestige.judges.local import grader_of
from vestige.judges.spec import judge_spec
from vestige.judges.tasks import QUALITY_SCALE

Part: TypeAlias = Literal["choose", "test"]


@dataclass(frozen=True)
class Labelled:
    """One answer with its label. `quality` (1..10) and `gibberish` are None where the question is not valid.

    `reference` is a good answer, `truth` what a right answer must hold, where one phrase can say it.
    """

    part: Part
    kind: str
    question: str
    reference: str
    truth: str
    answer: str
    valid: bool
    quality: float | None
    gibberish: bool | None

    def __post_init__(self) -> None:
        """Labels of the quality are on its scale."""
        if self.quality is not None and not QUALITY_SCALE.holds(self.quality):
            raise ValueError(f"quality {self.quality} of {self.question!r} is off the scale")

    def request(self, task: str, *, with_truth: bool) -> Request:
        """The request to judge it."""
        return Request(task, self.question, self.answer, self.reference, self.truth if with_truth else "")


@lru_cache(maxsize=1)
def labelled() -> tuple[Labelled, ...]:
    """All labelled answers, in a fixed order."""
    text = Path(__file__).with_suffix(".jsonl").read_text(encoding="utf-8")
    return tuple(Labelled(**json.loads(line)) for line in text.splitlines())


class Agreement(NamedTuple):
    """Two judges on the `n` items that both judged. `difference` is the mean of second minus first.

    `spearman` and `kappa` are None where one judge gives all items one score, since then they are not defined.
    """

    n: int
    equal: float
    within_one: float
    difference: float
    spearman: float | None
    kappa: float | None


def agreement(first: Float[np.ndarray, " N"], second: Float[np.ndarray, " N"]) -> Agreement:
    """Agreement of two judges; NaN is "not judged", and an item counts only if both judged it.

    kappa is Cohen's with squared weights on the scores as they are: 1 - mean (a - b)^2 / mean over all pairs of items
    (a_i - b_j)^2 (J. Cohen, Weighted kappa, Psychological Bulletin 70, 1968).
    """
    both = ~(np.isnan(first) | np.isnan(second))
    a, b = first[both], second[both]
    if not len(a):
        raise ValueError("no item was judged by both, so there is no agreement")
    gap = b - a
    # The mean over all pairs, without making them: var(a) + var(b) + (mean a - mean b)^2.
    expected = a.var() + b.var() + (a.mean() - b.mean()) ** 2
    spread = a.min() < a.max() and b.min() < b.max()
    return Agreement(
        n=len(a),
        equal=float((gap == 0).mean()),
        within_one=float((np.abs(gap) <= 1).mean()),
        difference=float(gap.mean()),
        spearman=float(np.corrcoef(rankdata(a), rankdata(b))[0, 1]) if spread else None,
        kappa=float(1 - (gap**2).mean() / expected) if spread else None,
    )


class LabelAgreement(NamedTuple):
    """A judge against the labels: grades, rounded to whole ones, and Cohen's kappa of the two flags of the reward.

    `failures` of the `n` judgements did not come and are left out.
    """

    quality: Agreement
    gibberish: float | None
    valid: float | None
    n: int
    failures: int


def agreement_with_labels(judge: Judge, part: Part = "test", *, with_truth: bool = False) -> LabelAgreement:
    """What `judge` makes of one part of the labelled answers; `with_truth` hands it the known truths too."""
    rows = [row for row in labelled() if row.part == part]
    graded = [row for row in rows if row.quality is not None]
    grades = judge.judge([row.request("quality", with_truth=with_truth) for row in graded])
    rewards = judge.judge([row.request("reward", with_truth=with_truth) for row in rows])
    scores = [np.nan if j.score is None else round(j.score) for j in grades]
    flags = [(row, j.values) for row, j in zip(rows, rewards, strict=True) if j.score is not None]
    gibberish = [(bool(row.gibberish), values["gibberish"] == 1) for row, values in flags if row.valid]
    valid = [(row.valid, values["valid"] == 1) for row, values in flags]
    return LabelAgreement(
        agreement(np.array([row.quality for row in graded], dtype=float), np.array(scores, dtype=float)),
        _kappa(gibberish),
        _kappa(valid),
        n=len(grades) + len(rewards),
        failures=sum(j.score is None for j in (*grades, *rewards)),
    )


def _kappa(pairs: list[tuple[bool, bool]]) -> float | None:
    # With two grades the squared weights make no difference: it is the kappa of flags.
    first, second = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    return agreement(first, second).kappa


if __name__ == "__main__":
    print(agreement_with_labels(grader_of(judge_spec(sys.argv[1]), Path("judge")).judge))
