"""From tested candidates to holes with names, and to the table of them: means, shares and placebos with intervals.

Scores are quality, 1..10. Intervals are those of `metrics.intervals`, with prompts made from one thing as one cluster.
A source of which no prompt was judged on both sides has no row, since nothing has no mean.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from vestige.artifacts.holes import Diversity, Hole, HoleGroup, HoleRow, HoleTable, Placebo, Tested
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.judges.base import Writer
from vestige.judges.tasks import QUALITY_SCALE
from vestige.metrics.bleu import avg_self_bleu, tokens
from vestige.metrics.intervals import Bounds, interval_of_mean
from vestige.metrics.near_duplicates import distinct
from vestige.metrics.selection import Selection
from vestige.metrics.vendi import vendi
from vestige.probes.filters import Embed, Filtered, FilterSettings
from vestige.probes.naming import NO_WRITER, Naming, by_terms, by_writer

_SCALE: Bounds = (float(QUALITY_SCALE.low), float(QUALITY_SCALE.high))
_CHANGE: Bounds = (_SCALE[0] - _SCALE[1], _SCALE[1] - _SCALE[0])
_SHARE: Bounds = (0.0, 1.0)
_EXCESS: Bounds = (-1.0, 1.0)


def holes_and_table(
    filtered: Filtered, settings: FilterSettings, embed: Embed, *, seed: int, writer: Writer | None = None
) -> tuple[tuple[Hole, ...], HoleTable]:
    """The confirmed holes in the order of the candidates, each in its group, and the table of what was tested.

    `writer` names the groups where the settings say so.
    """
    confirmed = [t for t in filtered.tested if t.hole]
    prompts = [t.prompt for t in confirmed]
    embeddings = embed(prompts) if prompts else np.zeros((0, 1))
    naming = _naming(prompts, embeddings, settings, writer)
    group_of = {place: group.name for group in naming.groups for place in group.members}
    by_source = _by_source(t for t in filtered.tested if not t.dropped)
    all_by_source = _by_source(filtered.tested)
    table = HoleTable(
        rows=tuple(_row(source, own, settings, seed=seed) for source, own in by_source.items() if _judged(own)),
        dropped={source: dict(Counter(t.dropped for t in own if t.dropped)) for source, own in all_by_source.items()},
        failures=filtered.failures,
        diversity={source: _diversity([t.prompt for t in own], embed) for source, own in by_source.items()},
        groups=tuple(HoleGroup(group.name, len(group.members)) for group in naming.groups),
        selection={source: _in_words(chosen) for source, chosen in filtered.selections.items()},
        n_holes=len(confirmed),
        n_distinct_holes=len(distinct(embeddings, threshold=settings.alike)) if prompts else 0,
        target_calls=filtered.target_calls,
        unlearned_calls=filtered.unlearned_calls,
        naming=naming.how,
    )
    return tuple(_hole(t, group_of[n]) for n, t in enumerate(confirmed)), table


def check_naming(settings: FilterSettings, writer: Writer | None) -> None:
    """Refuse to have groups named by a language model where there is none."""
    if settings.name_groups == "writer" and writer is None:
        raise InputError(NO_WRITER)


def _naming(prompts: Sequence[str], embeddings: np.ndarray, settings: FilterSettings, writer: Writer | None) -> Naming:
    check_naming(settings, writer)
    if settings.name_groups == "terms" or writer is None:
        return by_terms(prompts, embeddings)
    return by_writer(prompts, embeddings, writer)


def _hole(tested: Tested, group: str) -> Hole:
    target, unlearned = tested.target_answer, tested.unlearned_answer
    assert target is not None, "a hole has an answer of the target"
    assert unlearned is not None, "a hole has an answer of the unlearned model"
    assert tested.target_score is not None, "a hole has a score of the target"
    assert tested.unlearned_score is not None, "a hole has a score of the unlearned model"
    scores = tested.target_score, tested.unlearned_score
    return Hole(tested.id, tested.prompt, tested.source, target, unlearned, *scores, group)


def _by_source(tested: Iterable[Tested]) -> dict[str, list[Tested]]:
    found: dict[str, list[Tested]] = {}
    for one in tested:
        found.setdefault(one.source, []).append(one)
    return found


def _judged(tested: Sequence[Tested]) -> list[Tested]:
    return [t for t in tested if t.target_score is not None and t.unlearned_score is not None]


def _row(source: str, tested: Sequence[Tested], settings: FilterSettings, *, seed: int) -> HoleRow:
    judged = _judged(tested)
    origins = _origins(judged)
    before = np.array([t.target_score for t in judged], dtype=float)
    after = np.array([t.unlearned_score for t in judged], dtype=float)

    def estimate(metric: str, values: Sequence[float] | np.ndarray, unit: str, bounds: Bounds) -> Estimate:
        return _estimate(metric, values, unit, bounds, origins, seed=seed)

    return HoleRow(
        source=source,
        n=len(tested),
        n_judged=len(judged),
        before=estimate("quality before", before, "score", _SCALE),
        after=estimate("quality after", after, "score", _SCALE),
        change=estimate("change of quality", after - before, "score", _CHANGE),
        lowest_before=estimate("lowest score before", before <= _SCALE[0], "share", _SHARE),
        lowest_after=estimate("lowest score after", after <= _SCALE[0], "share", _SHARE),
        holes=estimate("holes", [t.hole for t in judged], "share", _SHARE),
        placebos=tuple(
            placebo
            for name in tested[0].placebo_scores
            if (placebo := _placebo(name, tested, settings, seed=seed)) is not None
        ),
    )


def _placebo(name: str, tested: Sequence[Tested], settings: FilterSettings, *, seed: int) -> Placebo | None:
    """How often the placebo looks like a hole; None where no pair of it was judged."""
    pairs = [t for t in tested if t.target_score is not None and t.placebo_scores[name] is not None]
    if not pairs:
        return None
    false = [settings.is_hole(t.target_score, t.placebo_scores[name]) for t in pairs]
    rate = _estimate("false holes", false, "share", _SHARE, _origins(pairs), seed=seed)
    both = [(t, wrong) for t, wrong in zip(pairs, false, strict=True) if t.unlearned_score is not None]
    beyond, origins = [float(t.hole) - wrong for t, wrong in both], _origins([t for t, _ in both])
    excess = _estimate("holes beyond false ones", beyond, "share", _EXCESS, origins, seed=seed) if both else None
    return Placebo(name, rate, excess, sum(t.placebo_answers[name] == t.target_answer for t in pairs))


def _origins(tested: Sequence[Tested]) -> list[str] | None:
    """What each prompt was made from, as its cluster; None where that is known of none."""
    return [t.origin or t.id for t in tested] if any(t.origin for t in tested) else None


def _estimate(
    metric: str,
    values: Sequence[float] | np.ndarray,
    unit: str,
    bounds: Bounds,
    clusters: Sequence[str] | None,
    *,
    seed: int,
) -> Estimate:
    scores = np.asarray(values, dtype=float)
    low, high, method = interval_of_mean(scores, clusters=clusters, bounds=bounds, seed=seed)
    return Estimate(metric, unit, float(scores.mean()), low, high, len(scores), method)


def _diversity(prompts: Sequence[str], embed: Embed) -> Diversity:
    share = vendi(embed(prompts)).share
    if len(prompts) < 2:
        return Diversity(len(prompts), share, None)
    return Diversity(len(prompts), share, 1 - avg_self_bleu([tokens(p) for p in prompts]))


def _in_words(chosen: Selection) -> str:
    goal = f"{chosen.reference.share:.3f} of {chosen.reference.n} adjacent prompts"
    if not chosen.subsets:
        return f"nothing was left to compare with the Vendi / n of {goal}"
    tried = ", ".join(f"{subset.share:.3f} of {subset.n}" for subset in chosen.subsets)
    if not chosen.n:
        return f"none kept: Vendi / n is {tried}, always below {goal}; diverse=false keeps all"
    return f"the first {chosen.n} kept: Vendi / n is {tried}, beside {goal}"
