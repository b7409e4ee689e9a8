"""The holes of a probe's folder: candidates, their test, the table, and the forecast of the cost.

A folder that holds the test with other models or another forget set is refused. A model's answer or a judge's paid
reply is on the disk before its use.

The table has quality before and after, shares of holes and of false holes, and diversity, by source. Scores are
quality, 1..10. Intervals follow `metrics.intervals`. Prompts made from one thing are one cluster. A source without a
prompt that was judged on both sides has no row.

Axes: N prompts, M adjacent prompts, D width of an embedding.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float

from vestige.artifacts.holes import (
    Diversity,
    HoleCandidate,
    HoleRow,
    HoleTable,
    Placebo,
    Tested,
    candidates_of,
    is_there,
    put_down,
    read_attempts,
    read_table,
    write_tested,
)
from vestige.artifacts.layout import ProbeFolder
from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.core.files import locked
from vestige.core.ids import content_id
from vestige.judges.server import ServerReplies
from vestige.judges.tasks import LONGEST_TEXT, QUALITY_SCALE, TASKS
from vestige.metrics.diversity import Selection, distinct, vendi
from vestige.metrics.intervals import Bounds, interval_of_mean
from vestige.metrics.overlap import avg_self_bleu, tokens
from vestige.probes import VERSION
from vestige.probes.adjacent import read_adjacent
from vestige.probes.answering import Participants, answerer
from vestige.probes.filters import ADJACENT, Actors, Embed, Filtered, FilterSettings, filter_candidates
from vestige.probes.questions import Source, source_text
from vestige.steps.subjects import Asked

R = TypeVar("R", Tested, Tested)


SCALE: Bounds = (float(QUALITY_SCALE.low), float(QUALITY_SCALE.high))
CHANGE: Bounds = (SCALE[0] - SCALE[1], SCALE[1] - SCALE[0])
SHARE: Bounds = (0.0, 1.0)
EXCESS: Bounds = (-1.0, 1.0)
"""The ranges of scores, their changes, shares and differences of shares."""


def holes_table(filtered: Filtered, settings: FilterSettings, embed: Embed, *, seed: int) -> HoleTable:
    """Return the table of all prompts tested.

    Args:
        filtered: Every candidate, with its scores or the reason why it was dropped.
        settings: The thresholds of a hole, for placebos and near-duplicates.
        embed: Embeds prompts. The same function as in the filters.
        seed: Seed of the bootstrap.
    """
    holes = [t.prompt for t in filtered.tested if t.hole]
    of_source = by_source(t for t in filtered.tested if not t.dropped)
    all_of_source = by_source(filtered.tested)
    adjacent = [t.prompt for t in all_of_source.get(ADJACENT, ())]
    near = None
    if adjacent:
        near = embed(adjacent)
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
        n_distinct = len(distinct(embed(holes), threshold=settings.alike))
    return HoleTable(
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
    """Return how often the placebo looks like a hole, or None if no pair was judged."""
    pairs = [t for t in tested if t.target_score is not None and t.placebo_scores[name] is not None]
    if not pairs:
        return None
    # By the same line as true holes, or the two rates could not be subtracted.
    false = [settings.is_hole(t.target_score, t.placebo_scores[name]) for t in pairs]
    rate = mean_estimate("false holes", false, "share", SHARE, _origins(pairs), seed=seed)
    both = [(t, wrong) for t, wrong in zip(pairs, false, strict=True) if t.unlearned_score is not None]
    excess = None
    if both:
        beyond, origins = [float(t.hole) - wrong for t, wrong in both], _origins([t for t, _ in both])
        excess = mean_estimate("holes beyond false ones", beyond, "share", EXCESS, origins, seed=seed)
    return Placebo(name, rate, excess, sum(t.placebo_answers[name] == t.target_answer for t in pairs))


def _origins(tested: Sequence[Tested]) -> list[str] | None:
    """Return each prompt's source as its cluster, or None if no source is known."""
    if any(t.origin for t in tested):
        return [t.origin or t.id for t in tested]
    return None


def mean_estimate(
    metric: str, values: Any, unit: str, bounds: Bounds, clusters: Sequence[str] | None, *, seed: int
) -> Estimate:
    """Return the mean over prompts. Prompts of one source are one cluster."""
    scores = np.asarray(values, dtype=float)
    low, high, method = interval_of_mean(scores, clusters=clusters, bounds=bounds, seed=seed)
    return Estimate(metric, unit, float(scores.mean()), low, high, len(scores), method)


def diversity_of(prompts: Sequence[str], embed: Embed, near: Float[np.ndarray, "M D"] | None = None) -> Diversity:
    """Return how different the prompts are, and how near to the prompts embedded as `near`."""
    places, distinct_ngrams, cosine = embed(prompts), None, None
    if len(prompts) > 1:
        distinct_ngrams = 1 - avg_self_bleu([tokens(p) for p in prompts])
    if near is not None:
        cosine = float((places @ near.T).max(axis=1).mean())
    return Diversity(len(prompts), vendi(places).share, distinct_ngrams, cosine)


def _in_words(chosen: Selection) -> str:
    goal = f"{chosen.reference.share:.3f} of {chosen.reference.n} adjacent prompts"
    if not chosen.subsets:
        return f"nothing was left to compare with the Vendi / n of {goal}"
    tried = ", ".join(f"{subset.share:.3f} of {subset.n}" for subset in chosen.subsets)
    if not chosen.n:
        return f"none kept: Vendi / n is {tried}, always below {goal}; diverse=false keeps all"
    return f"the first {chosen.n} kept: Vendi / n is {tried}, beside {goal}"


FIXED = ("target", "unlearned", "forget")
"""The settings that must stay the same in a folder if candidates are tested again."""


@dataclass(frozen=True)
class FilterRequest:
    """The models, the forget set and the settings of a filter.

    `retain` is the known retain set, which decides the names that occur only in the forget set.
    """

    who: Participants
    forget: tuple[Source, ...]
    settings: FilterSettings
    retain: tuple[Source, ...] = ()
    placebos: Mapping[str, Asked] = field(default_factory=dict)
    on_stage: Callable[[str], None] = field(default=lambda stage: None)


def server_notes(folder: ProbeFolder) -> list[str]:
    """Return notes on replies of other models from the judge's server."""
    replies = ServerReplies(folder.judge)
    replies.update()
    return replies.other_models()


def candidates_in(folder: ProbeFolder) -> list[HoleCandidate]:
    """Return the candidates: the adjacent questions of the forget set, then each search's findings (D_RL).

    A folder without any is refused.
    """
    candidates = []
    for entry in read_adjacent(folder):
        if entry.of == "forget":
            asked = entry.question
            candidates.append(HoleCandidate(asked.question, ADJACENT, asked.source_id, asked.answer))
    for search_folder in folder.searches():
        candidates += candidates_of(read_attempts(search_folder))
    if not candidates:
        raise InputError(f"{folder.path} holds no prompts that could be holes. Run `vestige probe` there first")
    return candidates


def forget_texts(items: Sequence[Source]) -> list[str]:
    """Return the texts of a set for the comparison with prompts."""
    return [source_text(item, LONGEST_TEXT) for item in items]


def filter_holes(folder: ProbeFolder, request: FilterRequest) -> HoleTable:
    """The table of holes among the candidates in the folder. Made unless it is there.

    With more candidates, other settings or another judge it is made anew, from answers that are there already.
    """
    candidates = candidates_in(folder)
    with locked(folder.lock):
        identity = _filter_identity(request, candidates)
        if folder.summary.exists():
            table, stored = read_table(folder)
            if content_id(stored) == content_id(identity):
                return table
        fixed = {key: identity[key] for key in FIXED}
        # For its refusal alone: that these are there already is no reason to stop.
        is_there(folder, "holes", fixed)
        put_down(folder, "holes", fixed, {})
        watch = Stopwatch()
        embed = request.who.embedder.embed
        actors = Actors(
            answerer(request.who.target, request.who.answers, folder),
            answerer(request.who.unlearned, request.who.answers, folder),
            request.who.grader.judge,
            embed,
            {name: answerer(model, request.who.answers, folder) for name, model in request.placebos.items()},
        )
        filtered = filter_candidates(
            candidates,
            forget_texts(request.forget),
            actors,
            request.settings,
            retained=forget_texts(request.retain),
            seed=request.who.seed,
            on_stage=request.on_stage,
        )
        table = holes_table(filtered, request.settings, embed, seed=request.who.seed)
        device = str(request.who.embedder.model.device)
        notes = server_notes(folder)
        # What the models were called; who they are, the identity says by their weights.
        asked = {"target": request.who.target, "unlearned": request.who.unlearned, **request.placebos}
        names = {role: model.name for role, model in asked.items()}
        write_provenance(folder.provenance, watch, device=device, models=names, servers=notes)
        write_tested(folder, filtered.tested, table, identity)
    return table


def _filter_identity(request: FilterRequest, candidates: Sequence[HoleCandidate]) -> dict[str, Any]:
    return {
        "version": VERSION,
        "target": request.who.target.id,
        "unlearned": request.who.unlearned.id,
        "placebos": {name: model.id for name, model in request.placebos.items()},
        "answers": request.who.answers.identity(),
        "judge": dict(request.who.grader.identity),
        "tasks": {name: TASKS[name].version for name in ("validity", "quality", "overlap")},
        "embedder": request.who.embedder.digest,
        "settings": request.settings.identity(),
        "forget": content_id(forget_texts(request.forget), length=32),
        "retain": content_id(forget_texts(request.retain), length=32),
        "candidates": content_id([asdict(c) for c in candidates], length=32),
        "seed": request.who.seed,
    }
