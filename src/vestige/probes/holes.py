"""The holes of a probe's folder: candidates, their test, the table, and the forecast of the cost.

A folder that holds the test with other models or another forget set is refused. A model's answer or a judge's paid
reply is on the disk before its use.

The table has quality before and after, shares of holes and of false holes, and diversity, by source. Scores are
quality, 1..10. Intervals follow `metrics.intervals`. Prompts made from one thing are one cluster. A source without a
prompt that was judged on both sides has no row.

Axes: N prompts, M adjacent prompts, D width of an embedding.

From candidates to holes: the filters with their reasons, and the repetition before a hole counts.

Scores are the judge's quality, 1..10, higher for a better answer. Axes: N prompts, D width of an embedding.

In this order a candidate is dropped that repeats a prompt of its source or an adjacent one, names forgotten entities,
is not valid, that the target does not answer well, that is a near-duplicate of an earlier one from its source or of an
adjacent one, that the forget set answers (one text that supports the target's answer is enough), or that exceeds the
number with the adjacent prompts' diversity. Searches are not compared with each other: each shows its own findings.
Remaining prompts are repeated: target and unlearned model answer again, at another seed, and both answers are judged.
Otherwise a prompt chosen for one bad answer regresses to the mean and counts as a hole. Target against itself at yet
another seed is the placebo: the share of such pairs that look like a hole is the rate of false holes.

Validity, overlap, near-duplicates and diversity: Knowledge Holes, 2511.00030, sections 3 and 4, appendix B. Our
additions: the repetition, placebos, the filters by names and by the target's answer, both thresholds, and that
near-duplicates are dropped before overlap, the most expensive filter.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
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
from vestige.core.seeds import derive_seed
from vestige.judges.base import Judge, Judgement, Request, refuse_limit
from vestige.judges.server import ServerReplies
from vestige.judges.tasks import LONGEST_TEXT, QUALITY_SCALE, TASKS
from vestige.metrics.diversity import Selection, as_diverse_as, distinct, vendi
from vestige.metrics.intervals import Bounds, interval_of_mean
from vestige.metrics.overlap import avg_self_bleu, tokens
from vestige.probes import VERSION
from vestige.probes.adjacent import read_adjacent
from vestige.probes.answering import Answerer, Participants, answerer
from vestige.probes.questions import FilterSettings, Source, forgotten_names, names_one, source_text
from vestige.steps.subjects import Asked

ADJACENT = "adjacent"
"""The source whose prompts the others are compared with in diversity."""
AT_ANOTHER_SEED = "target at another seed"
OWN_NAMES = ("target", "unlearned", AT_ANOTHER_SEED)
"""The names of models that always take part. A placebo with such a name would be confused with one."""

AT_ONCE = 256
"""Requests about overlap that are in memory at once: each holds a text of up to 32,000 characters."""

Embed = Callable[[Sequence[str]], Float[np.ndarray, "N D"]]


@dataclass(frozen=True)
class Actors:
    """The answering models, the judge and the embedder.

    Each of the `placebos` takes the unlearned model's place, next to the target. A placebo has the target's knowledge:
    the target tuned on retained data alone, for example. None may have a name in `OWN_NAMES`.
    """

    target: Answerer
    unlearned: Answerer
    judge: Judge
    embed: Embed
    placebos: Mapping[str, Answerer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reject a placebo with the name of another model, whose answers it would replace."""
        if taken := sorted(self.placebos.keys() & set(OWN_NAMES)):
            raise InputError(f"a placebo and a model of the pair have the name {taken[0]!r}. Rename the placebo")


@dataclass(frozen=True)
class Filtered:
    """Every candidate, in order, with its result. Failures of the judge by stage. Selections by source."""

    tested: tuple[Tested, ...]
    failures: Mapping[str, Mapping[str, int]]
    selections: Mapping[str, Selection]
    target_calls: int
    unlearned_calls: int


@dataclass
class _Desk:
    """The candidates of a running filter. `dropped` gives reasons by index, `left` the remaining indices."""

    candidates: Sequence[HoleCandidate]
    actors: Actors
    settings: FilterSettings
    dropped: dict[int, str]
    failures: dict[str, Counter[str]]

    @property
    def left(self) -> list[int]:
        return [i for i in range(len(self.candidates)) if i not in self.dropped]

    def prompts(self, places: Sequence[int]) -> list[str]:
        return [self.candidates[i].prompt for i in places]

    def judged(self, stage: str, requests: Sequence[Request]) -> list[Judgement]:
        """Judge the requests of one stage, and count its failures by kind."""
        judgements = self.actors.judge.judge(requests) if requests else []
        refuse_limit(f"the judge {self.actors.judge.name}", judgements, at=f" at the stage {stage!r}")
        failures = Counter(str(j.failure) for j in judgements if j.failure)
        self.failures.setdefault(stage, Counter()).update(failures)
        return judgements

    def graded(self, stage: str, places: Sequence[int], answers: Sequence[str | None]) -> list[float | None]:
        """Return the quality of one answer to each prompt, or None without an answer or a judgement."""
        texts = {n: answer for n, answer in enumerate(answers) if answer is not None}
        if len(texts) < len(answers):
            self.failures.setdefault(stage, Counter())["no answer"] += len(answers) - len(texts)
        asked = [self.candidates[places[n]] for n in texts]
        requests = [
            Request("quality", candidate.prompt, answer, truth=candidate.truth)
            for candidate, answer in zip(asked, texts.values(), strict=True)
        ]
        scores = dict(zip(texts, [j.score for j in self.judged(stage, requests)], strict=True))
        return [scores.get(n) for n in range(len(answers))]

    def drop_below(self, places: Sequence[int], scores: Sequence[float | None], least: float, reason: str) -> None:
        """Drop candidates that score below `least` or have no score."""
        for i, score in zip(places, scores, strict=True):
            if score is None:
                self.dropped[i] = "not judged"
            elif score < least:
                self.dropped[i] = reason


def filter_candidates(
    candidates: Sequence[HoleCandidate],
    texts: Sequence[str],
    actors: Actors,
    settings: FilterSettings,
    *,
    retained: Sequence[str] = (),
    seed: int,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> Filtered:
    """Return the result for each of `candidates`. `texts` are the forget set's, `retained` the known retain set's."""
    settings.check()
    if not texts:
        raise InputError("the forget set has no texts, so whether it answers a prompt cannot be judged")
    desk = _Desk(candidates, actors, settings, _repeats(candidates), {})
    if settings.subject_share > 0:
        names = forgotten_names(texts, retained, share=settings.subject_share)
        named = [i for i in desk.left if names_one(candidates[i].prompt, names)]
        desk.dropped |= dict.fromkeys(named, "names what was forgotten")
    remaining = desk.left
    on_stage(f"validity of {len(remaining)} prompts")
    judgements = desk.judged("validity", [Request("validity", prompt) for prompt in desk.prompts(remaining)])
    desk.drop_below(remaining, [j.score for j in judgements], 1.0, "not valid")
    on_stage(f"first answers of the target to {len(desk.left)} prompts")
    target_calls = len(desk.left)
    first = _drop_poorly_answered(desk, seed=seed)
    embeddings = _embeddings(desk)
    if not settings.paper_order:
        _drop_alike(desk, embeddings)
    n_texts = settings.n_held_against(len(desk.left), len(texts))
    on_stage(f"whether {n_texts} of {len(texts)} texts of the forget set answer {len(desk.left)} prompts")
    _drop_overlapping(desk, texts, first, embeddings)
    if settings.paper_order:
        # Appendix B.2: prompts that the forget set answers are removed before near-duplicates are searched for.
        _drop_alike(desk, embeddings)
    selections = _drop_beyond_diversity(desk, embeddings)
    remaining = desk.left
    on_stage(f"fresh answers to {len(remaining)} prompts")
    confirmed = _asked_anew(desk, seed=seed)
    tested = [confirmed.get(i) or _dropped(c, desk.dropped[i]) for i, c in enumerate(candidates)]
    failures = {stage: dict(sorted(counts.items())) for stage, counts in desk.failures.items() if counts}
    # The target answers the remaining prompts twice: a new answer, and one with another seed.
    return Filtered(tuple(tested), failures, selections, target_calls + 2 * len(remaining), len(remaining))


def _repeats(candidates: Sequence[HoleCandidate]) -> dict[int, str]:
    """Return the indices of prompts that repeat one of their own source or an adjacent prompt, with the reason."""
    previous: set[tuple[str, str]] = set()
    adjacent = {c.prompt for c in candidates if c.source == ADJACENT}
    repeats = {}
    for i, candidate in enumerate(candidates):
        key = candidate.source, candidate.prompt
        if key in previous:
            repeats[i] = "repeats a prompt"
        # It counts as an adjacent prompt, since a search should find something else.
        elif candidate.source != ADJACENT and candidate.prompt in adjacent:
            repeats[i] = "repeats an adjacent prompt"
        previous.add(key)
    return repeats


def _drop_poorly_answered(desk: _Desk, *, seed: int) -> dict[int, str]:
    """Drop prompts that the target does not answer well, and return its answers to the rest by index.

    Its answers, by place, to the rest.
    """
    remaining = desk.left
    if not remaining:
        return {}
    answers = desk.actors.target.answer(desk.prompts(remaining), seed=derive_seed(seed, "holes", "first"))
    if desk.settings.target_first:
        scores = desk.graded("first answers of the target", remaining, answers)
        desk.drop_below(remaining, scores, desk.settings.target_at_least, "target does not answer well")
    # These are not graded yet without `target_first`, and overlap needs an answer.
    desk.dropped |= {i: "not judged" for i, answer in zip(remaining, answers, strict=True) if answer is None}
    return {i: answer for i, answer in zip(remaining, answers, strict=True) if answer is not None}


def _drop_overlapping(
    desk: _Desk, texts: Sequence[str], first: Mapping[int, str], embeddings: Mapping[int, Float[np.ndarray, " D"]]
) -> None:
    """Drop prompts that a text of the forget set answers, a batch at a time."""
    remaining = desk.left
    most = desk.settings.n_held_against(len(remaining), len(texts))
    embedded = desk.actors.embed(texts) if remaining and most < len(texts) else None
    size = max(1, AT_ONCE // max(most, 1))
    for portion in (remaining[start : start + size] for start in range(0, len(remaining), size)):
        against: dict[int, Sequence[str]] = dict.fromkeys(portion, texts)
        if embedded is not None:
            # A stable sort keeps texts of equal similarity in order on every machine.
            for i in portion:
                nearest = np.argsort(-(embedded @ embeddings[i]), kind="stable")[:most]
                against[i] = [texts[j] for j in nearest]
        requests = []
        for i in portion:
            c = desk.candidates[i]
            for text in against[i]:
                requests.append(Request("overlap", c.prompt, reference=first[i], truth=c.truth, sample=text))
        judgements = iter(desk.judged("overlap with the forget set", requests))
        for i in portion:
            scores = [next(judgements).score for _ in against[i]]
            # One text that supports the answer is enough, even if other requests failed.
            if 1.0 in scores:
                desk.dropped[i] = "forget set answers it"
            elif None in scores:
                desk.dropped[i] = "not judged"


def _embeddings(desk: _Desk) -> dict[int, Float[np.ndarray, " D"]]:
    """Return the embeddings of the remaining prompts by index."""
    remaining = desk.left
    if not remaining:
        return {}
    return dict(zip(remaining, desk.actors.embed(desk.prompts(remaining)), strict=True))


def _drop_alike(desk: _Desk, embeddings: Mapping[int, Float[np.ndarray, " D"]]) -> None:
    """Drop near-duplicates within each source and of adjacent prompts.

    In the paper's order, only within each search: the adjacent prompts are not filtered.
    """
    by_source = _by_source(desk, desk.left)
    if desk.settings.paper_order:
        by_source.pop(ADJACENT, None)
    adjacent: list[int] = []
    # The adjacent prompts come first, since the others are compared with the remaining ones.
    for source, places in sorted(by_source.items(), key=lambda pair: pair[0] != ADJACENT):
        if adjacent:
            # Embeddings have length 1, so products are cosines.
            nearest = np.stack([embeddings[i] for i in places]) @ np.stack([embeddings[i] for i in adjacent]).T
            near = nearest.max(axis=1) > desk.settings.alike
            desk.dropped |= dict.fromkeys(np.array(places)[near].tolist(), "near-duplicate of an adjacent prompt")
            places = np.array(places)[~near].tolist()
        chosen = distinct(np.stack([embeddings[i] for i in places]), threshold=desk.settings.alike) if places else ()
        desk.dropped |= dict.fromkeys(set(places) - {places[k] for k in chosen}, "near-duplicate")
        if source == ADJACENT:
            adjacent = [places[k] for k in chosen]


def _drop_beyond_diversity(desk: _Desk, embeddings: Mapping[int, Float[np.ndarray, " D"]]) -> dict[str, Selection]:
    """Limit each search to its first prompts that together are as diverse as the adjacent prompts."""
    by_source = _by_source(desk, desk.left)
    adjacent = by_source.pop(ADJACENT, [])
    if not (adjacent and desk.settings.diverse):
        return {}
    reference = np.stack([embeddings[i] for i in adjacent])
    selections = {}
    for source, places in by_source.items():
        of_source = np.stack([embeddings[i] for i in places])
        selections[source] = as_diverse_as(reference, of_source, step=desk.settings.step)
        # The first prompts are kept, not the most different ones: a selection would be another search.
        for i in places[selections[source].n :]:
            desk.dropped[i] = "beyond the diversity of the adjacent prompts"
    return selections


def _by_source(desk: _Desk, places: Sequence[int]) -> dict[str, list[int]]:
    by_source: dict[str, list[int]] = {}
    for i in places:
        by_source.setdefault(desk.candidates[i].source, []).append(i)
    return by_source


def _asked_anew(desk: _Desk, *, seed: int) -> dict[int, Tested]:
    """Return new answers of all models to the remaining prompts, judged together, by index."""
    remaining, actors = desk.left, desk.actors
    if not remaining:
        return {}
    prompts = desk.prompts(remaining)
    answerers = {
        "target": actors.target,
        "unlearned": actors.unlearned,
        AT_ANOTHER_SEED: actors.target,
        **actors.placebos,
    }
    # Each has its own seed, so that a pair with a placebo varies by chance as much as one with the unlearned model.
    answers = {
        name: who.answer(prompts, seed=derive_seed(seed, "holes", "fresh", name)) for name, who in answerers.items()
    }
    # All answers are judged in one call, so that a grounded judge asks the target once.
    said = list(chain.from_iterable(answers.values()))
    together = desk.graded("fresh answers", remaining * len(answers), said)
    scores = {who: together[k * len(remaining) : (k + 1) * len(remaining)] for k, who in enumerate(answers)}
    tested = {}
    for n, i in enumerate(remaining):
        target, unlearned = scores["target"][n], scores["unlearned"][n]
        tested[i] = replace(
            _dropped(desk.candidates[i], ""),
            target_answer=answers["target"][n],
            unlearned_answer=answers["unlearned"][n],
            target_score=target,
            unlearned_score=unlearned,
            placebo_answers={who: answers[who][n] for who in answers if who not in ("target", "unlearned")},
            placebo_scores={who: scores[who][n] for who in scores if who not in ("target", "unlearned")},
            hole=desk.settings.is_hole(target, unlearned),
        )
    return tested


def _dropped(candidate: HoleCandidate, reason: str) -> Tested:
    # The name includes the source: two searches may find the same prompt, and each has a record of it.
    name = content_id({"source": candidate.source, "prompt": candidate.prompt})
    return Tested(name, candidate.prompt, candidate.source, candidate.origin, reason)


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
        # Adjacent prompts are closest to themselves: their cosine would always be 1.
        others = None if source == ADJACENT else near
        diversity[source] = diversity_of([t.prompt for t in records], embed, others)
    dropped = {}
    for source, records in all_of_source.items():
        dropped[source] = dict(Counter(t.dropped for t in records if t.dropped))
    n_distinct = 0
    if holes:
        # Searches are not compared earlier, so two of them may have found one hole.
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
            # All prompts have the same placebos, so the first prompt names them.
            for name in tested[0].placebo_scores
            if (placebo := _placebo(name, tested, settings, seed=seed)) is not None
        ),
    )


def _placebo(name: str, tested: Sequence[Tested], settings: FilterSettings, *, seed: int) -> Placebo | None:
    """Return how often the placebo looks like a hole, or None if no pair was judged."""
    pairs = [t for t in tested if t.target_score is not None and t.placebo_scores[name] is not None]
    if not pairs:
        return None
    # The threshold is that of true holes, so that the two rates can be subtracted.
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
        # The call only rejects foreign files: existing results are no reason to stop.
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
        # The models' names. Their weights are in the identity.
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
