"""The table of holes: quality before and after, shares of holes and of false holes, and diversity, by source.

Scores are quality, 1..10. Intervals follow `metrics.intervals`. Prompts made from one thing are one cluster. A source
without a prompt that was judged on both sides has no row.

Axes: N prompts, M adjacent prompts, D width of an embedding.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float

from vestige.artifacts.holes import (
    Diversity,
    Hole,
    HoleRow,
    HoleTable,
    Placebo,
    Tested,
)
from vestige.core.estimates import Estimate
from vestige.judges.tasks import QUALITY_SCALE
from vestige.metrics.diversity import Selection, distinct, vendi
from vestige.metrics.intervals import Bounds, interval_of_mean
from vestige.metrics.overlap import avg_self_bleu, tokens
from vestige.probes.filters import ADJACENT, Embed, Filtered, FilterSettings

R = TypeVar("R", Tested, Tested)


SCALE: Bounds = (float(QUALITY_SCALE.low), float(QUALITY_SCALE.high))
CHANGE: Bounds = (SCALE[0] - SCALE[1], SCALE[1] - SCALE[0])
SHARE: Bounds = (0.0, 1.0)
EXCESS: Bounds = (-1.0, 1.0)
"""The ranges of scores, their changes, shares and differences of shares."""


def holes_and_table(
    filtered: Filtered, settings: FilterSettings, embed: Embed, *, seed: int
) -> tuple[tuple[Hole, ...], HoleTable]:
    """Return the confirmed holes in the order of the candidates, and the table of all prompts tested.

    Args:
        filtered: Every candidate, with its scores or the reason why it was dropped.
        settings: The thresholds of a hole, for placebos and near-duplicates.
        embed: Embeds prompts. The same function as in the filters.
        seed: Seed of the bootstrap.
    """
    holes = tuple(_hole(t) for t in filtered.tested if t.hole)
    of_source = by_source(t for t in filtered.tested if not t.dropped)
    all_of_source = by_source(filtered.tested)
    adjacent = [t.prompt for t in all_of_source.get(ADJACENT, ())]
    near = embed(adjacent) if adjacent else None
    rows = []
    diversity = {}
    for source, records in of_source.items():
        if _judged(records):
            rows.append(_row(source, records, settings, seed=seed))
        # Adjacent prompts are nearest to themselves: their cosine would always be 1.
        others = None if source == ADJACENT else near
        diversity[source] = diversity_of([t.prompt for t in records], embed, others)
    dropped = {}
    for source, records in all_of_source.items():
        dropped[source] = dict(Counter(t.dropped for t in records if t.dropped))
    n_distinct = 0
    if holes:
        # Searches are not held against each other before, so that two may have found one hole.
        n_distinct = len(distinct(embed([hole.prompt for hole in holes]), threshold=settings.alike))
    table = HoleTable(
        rows=tuple(rows),
        dropped=dropped,
        failures=filtered.failures,
        diversity=diversity,
        selection={source: _in_words(chosen) for source, chosen in filtered.selections.items()},
        n_holes=len(holes),
        n_distinct_holes=n_distinct,
        target_calls=filtered.target_calls,
        unlearned_calls=filtered.unlearned_calls,
    )
    return holes, table


def _hole(tested: Tested) -> Hole:
    assert tested.target_answer is not None, "a hole has an answer of the target"
    assert tested.unlearned_answer is not None, "a hole has an answer of the unlearned model"
    assert tested.target_score is not None, "a hole has a score of the target"
    assert tested.unlearned_score is not None, "a hole has a score of the unlearned model"
    return Hole(
        id=tested.id,
        prompt=tested.prompt,
        source=tested.source,
        target_answer=tested.target_answer,
        unlearned_answer=tested.unlearned_answer,
        target_score=tested.target_score,
        unlearned_score=tested.unlearned_score,
    )


def by_source(records: Iterable[R]) -> dict[str, list[R]]:
    """Records by the source of their prompt, in their order."""
    grouped: dict[str, list[R]] = {}
    for record in records:
        grouped.setdefault(record.source, []).append(record)
    return grouped


def _judged(tested: Sequence[Tested]) -> list[Tested]:
    return [t for t in tested if t.target_score is not None and t.unlearned_score is not None]


def _row(source: str, tested: Sequence[Tested], settings: FilterSettings, *, seed: int) -> HoleRow:
    judged = _judged(tested)
    origins = _origins(judged)
    before = np.array([t.target_score for t in judged], dtype=float)
    after = np.array([t.unlearned_score for t in judged], dtype=float)
    estimate = partial(mean_estimate, clusters=origins, seed=seed)
    return HoleRow(
        source=source,
        n=len(tested),
        n_judged=len(judged),
        before=estimate("quality before", before, "score", SCALE),
        after=estimate("quality after", after, "score", SCALE),
        change=estimate("change of quality", after - before, "score", CHANGE),
        lowest_before=estimate("lowest score before", before <= SCALE[0], "share", SHARE),
        lowest_after=estimate("lowest score after", after <= SCALE[0], "share", SHARE),
        holes=estimate("holes", [t.hole for t in judged], "share", SHARE),
        placebos=tuple(
            placebo
            # All were asked of the same placebos, so that the first prompt names them.
            for name in tested[0].placebo_scores
            if (placebo := _placebo(name, tested, settings, seed=seed)) is not None
        ),
    )


def _placebo(name: str, tested: Sequence[Tested], settings: FilterSettings, *, seed: int) -> Placebo | None:
    """How often the placebo looks like a hole. None if no pair was judged."""
    pairs = [t for t in tested if t.target_score is not None and t.placebo_scores[name] is not None]
    if not pairs:
        return None
    # By the same line as true holes, or the two rates could not be subtracted.
    false = [settings.is_hole(t.target_score, t.placebo_scores[name]) for t in pairs]
    rate = mean_estimate("false holes", false, "share", SHARE, _origins(pairs), seed=seed)
    both = [(t, wrong) for t, wrong in zip(pairs, false, strict=True) if t.unlearned_score is not None]
    beyond, origins = [float(t.hole) - wrong for t, wrong in both], _origins([t for t, _ in both])
    excess = mean_estimate("holes beyond false ones", beyond, "share", EXCESS, origins, seed=seed) if both else None
    return Placebo(name, rate, excess, sum(t.placebo_answers[name] == t.target_answer for t in pairs))


def _origins(tested: Sequence[Tested]) -> list[str] | None:
    """Return each prompt's source, as its cluster. None where that is known of none."""
    if any(t.origin for t in tested):
        return [t.origin or t.id for t in tested]
    return None


def mean_estimate(
    metric: str, values: Any, unit: str, bounds: Bounds, clusters: Sequence[str] | None, *, seed: int
) -> Estimate:
    """The mean of the values over prompts. Those made from one thing are one cluster."""
    scores = np.asarray(values, dtype=float)
    low, high, method = interval_of_mean(scores, clusters=clusters, bounds=bounds, seed=seed)
    return Estimate(metric, unit, float(scores.mean()), low, high, len(scores), method)


def diversity_of(prompts: Sequence[str], embed: Embed, near: Float[np.ndarray, "M D"] | None = None) -> Diversity:
    """How different prompts are, and how near to the prompts that were embedded as `near`."""
    places = embed(prompts)
    distinct_ngrams = 1 - avg_self_bleu([tokens(p) for p in prompts]) if len(prompts) > 1 else None
    cosine = None if near is None else float((places @ near.T).max(axis=1).mean())
    return Diversity(len(prompts), vendi(places).share, distinct_ngrams, cosine)


def _in_words(chosen: Selection) -> str:
    goal = f"{chosen.reference.share:.3f} of {chosen.reference.n} adjacent prompts"
    if not chosen.subsets:
        return f"nothing was left to compare with the Vendi / n of {goal}"
    tried = ", ".join(f"{subset.share:.3f} of {subset.n}" for subset in chosen.subsets)
    if not chosen.n:
        return f"none kept: Vendi / n is {tried}, always below {goal}; diverse=false keeps all"
    return f"the first {chosen.n} kept: Vendi / n is {tried}, beside {goal}"
