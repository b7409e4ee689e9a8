"""The learning rate at which a method reaches a goal: one unlearning per rate, scored on questions kept for choosing.

Results at one shared rate say little (PISTOL, 2406.16810, section 6): a rate that one method hardly notices ruins
another. The rate is chosen on part of the questions and reported on the rest, so that the choice does not flatter it.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Unpack

import vestige
from vestige import api
from vestige.api.inputs import DataLike, HowRead, ModelLike, PathLikeStr, corpus_of, path_of, selector, verb
from vestige.api.models import Save
from vestige.core.errors import InputError, NotFinite
from vestige.core.files import locked, write_json
from vestige.core.text import Fields, NumberByName, Record, one_line
from vestige.models import Reading

RATES = (1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3)
"""The rates that are tried by default."""
_GOAL = re.compile(r"(forget<=|retain>=)(0(?:\.\d+)?|1(?:\.0+)?)")


@dataclass(frozen=True)
class Candidate:
    """One learning rate and its mean scores on the questions for choosing. NaN if training failed."""

    rate: float
    forget: float
    retain: float
    broke_down: str = ""


@dataclass(frozen=True)
class FoundRate(api.Rows):
    """The chosen rate, whether it reaches the goal, all candidates, and the scores on held-out questions.

    `rate` is None if every training diverged. `forget` and `retain` are means over questions that the choice did not
    use.
    """

    rate: float | None
    reached: bool
    goal: str
    metric: str
    forget: float | None
    retain: float | None
    candidates: tuple[Candidate, ...]

    @property
    def rows(self) -> list[Fields]:
        """A row per rate that was tried."""
        rows = [asdict(candidate) for candidate in self.candidates]
        for row in rows:
            if row["broke_down"]:
                row |= {"forget": None, "retain": None}
        return rows


@verb
def find_rate(
    model: ModelLike,
    *,
    method: str,
    goal: str,
    data: DataLike,
    forget: DataLike,
    output_dir: PathLikeStr = "runs/rate",
    rates: Sequence[float] = RATES,
    retain: DataLike | None = None,
    metric: str = "rouge1_recall",
    items: int = 64,
    max_new_tokens: int = 64,
    method_settings: Record | None = None,
    seed: int = 0,
    training: "vestige.Training | None" = None,
    save: Save = "merged",
    **read: Unpack[HowRead],
) -> FoundRate:
    """Unlearn at each rate and choose the one that reaches the goal best.

    Args:
        model: The model that knows the data.
        method: A name of `vestige list methods`, or package.module:Class.
        goal: `forget<=0.3`: the best retain score with a forget score of at most 0.3. `retain>=0.9`: the least forget
            score with a retain score of at least 0.9.
        data: The data set.
        forget: The forget set.
        output_dir: The folder of the candidates, each a model in `rate-R`, and of result.json.
        rates: The learning rates to try.
        retain: The retain set. By default all data but the forget set.
        metric: The metric of `qa` in the goal, a share from 0 to 1.
        items: At most this many questions, and at most half, of the forget and of the retain set choose the rate.
        max_new_tokens: Longest reply, in tokens.
        method_settings: The method's own settings.
        seed: The seed of training and of the draw of questions.
        training: The settings of the training, except the learning rate.
        save: merged: whole models; adapter: the LoRA adapters alone.
        **read: device, dtype, trust_remote_code, chat_template and tokenizer, as in `HowRead`.

    Returns:
        The rate, and the scores of every candidate.

    Raises:
        InputError: The goal does not have this form, there is no rate, or a set is too small to split.

    Example:
        >>> found = vestige.find_rate("target", method="gd", goal="retain>=0.9", rates=[1e-5, 1e-4], data="data.csv",
        ...                           forget="forget.csv", output_dir="runs/rate")
        >>> training = vestige.Training(learning_rate=found.rate)
    """
    from vestige.data.corpus import CHOSEN_ON
    from vestige.methods import find_method

    find_method(method)
    match = _GOAL.fullmatch(goal.replace(" ", ""))
    if match is None:
        shortened = one_line(goal, width=40)
        raise InputError(f"The goal {shortened!r} has another form. Write 'forget<=0.3' or 'retain>=0.9'.")
    if not rates or min(rates) <= 0 or len(set(rates)) < len(rates):
        raise InputError("The rates to try are missing, repeated or not above 0. Give each rate once.")
    bounded, bound = match[1][:6], float(match[2])
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    choosing = _questions(model, data, forget, retain, items, seed)
    candidates = []
    tested: dict[float, NumberByName] = {}
    # One command per folder, as everywhere.
    with locked(folder / ".lock"):
        for rate in sorted(rates):
            try:
                candidate = api.unlearn(
                    model,
                    method=method,
                    data=data,
                    forget=forget,
                    retain=retain,
                    method_settings=method_settings,
                    seed=seed,
                    training=_at_rate(training, rate),
                    output_dir=folder / f"rate-{rate:g}",
                    save=save,
                    **read,
                )
            except NotFinite as error:
                candidates.append(Candidate(rate, math.nan, math.nan, str(error)))
                continue
            evaluation = api.evaluate(
                candidate,
                data=data,
                forget=forget,
                retain=retain,
                evals={"qa": {"max_new_tokens": max_new_tokens}},
                splits=["retain"],
                most_items=2 * items,
                summarize=False,
                device=Reading(**read).device,
            )
            frame = evaluation.items()
            frame = frame[(frame["metric"] == f"qa.{metric}") & frame["split"].isin(CHOSEN_ON)]
            if set(frame["split"]) != set(CHOSEN_ON):
                raise InputError(f"The metric {one_line(metric)!r} scores no question of a set. Take another of qa.")
            chosen = frame["item"].isin(choosing)
            means = frame[chosen].groupby("split")["value"].mean()
            tested[rate] = {str(k): float(v) for k, v in frame[~chosen].groupby("split")["value"].mean().items()}
            candidates.append(Candidate(rate, float(means["forget"]), float(means["retain"])))
        nearest = _choose(candidates, bounded, bound)
        best: float | None = None
        reached = False
        if nearest is not None:
            best = nearest.rate
            reached = _shortfall(nearest, bounded, bound) == 0
        test = tested.get(best or 0.0, {})
        result = FoundRate(best, reached, goal, metric, test.get("forget"), test.get("retain"), tuple(candidates))
        write_json(folder / "result.json", {**asdict(result), "candidates": result.rows})
    return result


def _at_rate(training: "vestige.Training | None", rate: float) -> "vestige.Training":
    """The settings with this learning rate."""
    settings = {} if training is None else training.explicit()
    return vestige.Training.build({**settings, "learning_rate": rate})


def _questions(
    model: ModelLike, data: DataLike, forget: DataLike, retain: DataLike | None, most: int, seed: int
) -> set[str]:
    """The ids of the questions that choose."""
    from vestige.api import selection
    from vestige.data.corpus import CHOSEN_ON, held_apart

    corpus = corpus_of(data)
    splits = selection.questions(corpus, selector(forget), selector(retain), models=[path_of(model)])
    splits = selection.fewer(corpus, splits, ["retain"], 2 * most)
    chosen = held_apart(splits, most=most, seed=seed).validation.splits
    return {item.id for name in CHOSEN_ON for item in chosen[name]}


def _shortfall(candidate: Candidate, bounded: str, bound: float) -> float:
    """Return the distance of a candidate from the goal, or 0 if it reaches it."""
    if bounded == "forget":
        return max(0.0, candidate.forget - bound)
    return max(0.0, bound - candidate.retain)


def _choose(candidates: Sequence[Candidate], bounded: str, bound: float) -> Candidate | None:
    """The candidate nearest to the goal.

    Among candidates that reach the goal, choose the best other score, then the lowest rate.
    """
    trained = [candidate for candidate in candidates if not candidate.broke_down]
    if not trained:
        return None

    def rank(candidate: Candidate) -> tuple[float, float]:
        loss = candidate.forget
        if bounded == "forget":
            loss = -candidate.retain
        return _shortfall(candidate, bounded, bound), loss

    return min(trained, key=rank)
