"""The learning rate at which a method reaches a goal: one unlearning per rate, scored on questions kept for choosing.

Results at one shared rate say little (PISTOL, 2406.16810, section 6): a rate that one method hardly notices ruins
another. The rate is chosen on part of the questions and reported on the rest, so that the choice does not flatter it.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vestige import api
from vestige.core.errors import InputError, NotFinite
from vestige.core.files import locked, write_json
from vestige.core.text import one_line
from vestige.data.corpus import CHOSEN_ON, held_apart

RATES = (1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3)
"""The rates that are tried by default."""
_GOAL = re.compile(r"(forget<=|retain>=)(0(?:\.\d+)?|1(?:\.0+)?)")


@dataclass(frozen=True)
class Candidate:
    """One rate and its mean scores on the questions kept for choosing; NaN where training broke down."""

    rate: float
    forget: float
    retain: float
    broke_down: str = ""


@dataclass(frozen=True)
class FoundRate(api.Rows):
    """The chosen rate, whether it reaches the goal, every candidate, and the scores on the other questions.

    `rate` is None where every training broke down. `forget` and `retain` are means over questions that did not choose.
    """

    rate: float | None
    reached: bool
    goal: str
    metric: str
    forget: float | None
    retain: float | None
    candidates: tuple[Candidate, ...]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row per rate that was tried."""
        rows = [asdict(candidate) for candidate in self.candidates]
        for row in rows:
            if row["broke_down"]:
                row |= {"forget": None, "retain": None}
        return rows


def find_rate(
    target: api.AnyModel,
    method: str,
    goal: str,
    rates: Sequence[float] = RATES,
    *,
    data: api.Data,
    forget: api.Data,
    output_dir: api.Named,
    retain: api.Data | None = None,
    metric: str = "rouge1_recall",
    items: int = 64,
    max_new_tokens: int = 64,
    method_settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    **settings: Any,
) -> FoundRate:
    """Unlearn at each rate and choose the one that reaches the goal best.

    Args:
        target: The model that knows the data.
        method: The unlearning method.
        goal: `forget<=0.3`: the best retain score with a forget score of at most 0.3. `retain>=0.9`: the least forget
            score with a retain score of at least 0.9.
        rates: The learning rates to try.
        data: The data set.
        forget: The forget set.
        output_dir: The folder of the candidates, each a model in `rate-R`, and of result.json.
        retain: The retain set; by default all data but the forget set.
        metric: The metric of `qa` that the goal is stated in, a share from 0 to 1.
        items: At most this many questions, and at most half, of the forget and of the retain set choose the rate.
        max_new_tokens: Longest reply, in tokens.
        method_settings: The method's own settings.
        seed: The seed of training and of the draw of questions.
        settings: Further settings of `unlearn`.

    Returns:
        The rate, and the scores of every candidate.

    Raises:
        InputError: The goal is not of this form, no rate is given, or a set is too small to be parted.

    Example:
        >>> found = vestige.find_rate("target", "gd", "retain>=0.9", [1e-5, 1e-4], data="data.csv",
        ...                           forget="forget.csv", output_dir="runs/rate")
        >>> vestige.unlearn("target", method="gd", learning_rate=found.rate, ...)
    """
    match = _GOAL.fullmatch(goal.replace(" ", ""))
    if match is None:
        said = one_line(goal, width=40)
        raise InputError(f"The goal {said!r} has another form. Write 'forget<=0.3' or 'retain>=0.9'.")
    if not rates or min(rates) <= 0 or len(set(rates)) < len(rates):
        raise InputError("The rates to try are missing, repeated or not above 0. Give each rate once.")
    bounded, bound = match[1][:6], float(match[2])
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    choosing = _questions(target, data, forget, retain, items, seed)
    candidates = []
    tested: dict[float, dict[str, float]] = {}
    # One command a folder, as everywhere.
    with locked(folder / ".lock"):
        for rate in sorted(rates):
            try:
                model = api.unlearn(
                    target,
                    method=method,
                    data=data,
                    forget=forget,
                    retain=retain,
                    method_settings=method_settings,
                    seed=seed,
                    learning_rate=rate,
                    output_dir=folder / f"rate-{rate:g}",
                    **settings,
                )
            except NotFinite as error:
                candidates.append(Candidate(rate, math.nan, math.nan, str(error)))
                continue
            asked = api.evaluate(
                model,
                data=data,
                forget=forget,
                retain=retain,
                evals={"qa": {"max_new_tokens": max_new_tokens}},
                splits=["retain"],
                most_items=2 * items,
                summarize=False,
            )
            frame = asked.items()
            frame = frame[(frame["metric"] == f"qa.{metric}") & frame["split"].isin(CHOSEN_ON)]
            if set(frame["split"]) != set(CHOSEN_ON):
                raise InputError(f"The metric {one_line(metric)!r} scores no question of a set. Take another of qa.")
            chosen = frame["item"].isin(choosing)
            means = frame[chosen].groupby("split")["value"].mean()
            tested[rate] = {str(k): float(v) for k, v in frame[~chosen].groupby("split")["value"].mean().items()}
            candidates.append(Candidate(rate, float(means["forget"]), float(means["retain"])))
        found = _choose(candidates, bounded, bound)
        best: float | None = None
        reached = False
        if found is not None:
            best = found.rate
            reached = _shortfall(found, bounded, bound) == 0
        test = tested.get(best or 0.0, {})
        result = FoundRate(best, reached, goal, metric, test.get("forget"), test.get("retain"), tuple(candidates))
        write_json(folder / "result.json", {**asdict(result), "candidates": result.rows})
    return result


def _questions(
    target: api.AnyModel, data: api.Data, forget: api.Data, retain: api.Data | None, most: int, seed: int
) -> set[str]:
    """The ids of the questions that choose."""
    from vestige import requests

    corpus = api._corpus(data)
    splits = requests.questions(corpus, api._selector(forget), api._selector(retain), models=[api._path(target)])
    splits = requests.fewer(corpus, splits, ["retain"], 2 * most)
    chosen = held_apart(splits, most=most, seed=seed).validation.splits
    return {item.id for name in CHOSEN_ON for item in chosen[name]}


def _shortfall(candidate: Candidate, bounded: str, bound: float) -> float:
    """How far a candidate is from the goal; 0 where it reaches it."""
    if bounded == "forget":
        return max(0.0, candidate.forget - bound)
    return max(0.0, bound - candidate.retain)


def _choose(candidates: Sequence[Candidate], bounded: str, bound: float) -> Candidate | None:
    """The candidate nearest to the goal; of those that reach it the best in the other score, then the lowest rate."""
    trained = [candidate for candidate in candidates if not candidate.broke_down]
    if not trained:
        return None

    def rank(candidate: Candidate) -> tuple[float, float]:
        other = candidate.forget
        if bounded == "forget":
            other = -candidate.retain
        return _shortfall(candidate, bounded, bound), other

    return min(trained, key=rank)
