"""How far a probe's scores vary: over models, generations, prompts and judges, and whether a change is more than that.

Axes: S models, G generations, N prompts. A run is one generation of one model, and its score the mean over prompts.
The target is one model, so its runs are generations alone. Numbers of a judge are over the prompts of which it graded
every answer, before and after: a mean over other prompts would be another mean.

Design and the first two tests: Knowledge Holes, 2511.00030, appendix C.1 (3 seeds x 3 generations x 3 judges) and C.8
(five criteria). The tests over models and over prompts are ours: generations of one model are not independent.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from vestige.artifacts.holes import (
    ChangeTests,
    CriterionRow,
    GradedAnswer,
    JudgePair,
    JudgeParts,
    Outcome,
    Runs,
    VarianceParts,
    VarianceRow,
    VarianceTable,
    read_table,
    read_tested,
    read_variance,
    write_variance,
)
from vestige.artifacts.layout import ProbeFolder
from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.core.errors import InputError
from vestige.core.files import locked
from vestige.core.ids import content_id
from vestige.core.seeds import derive_seed
from vestige.judges.base import Judgement, Request, refuse_limit
from vestige.judges.tasks import CRITERIA, TASKS
from vestige.metrics.agreement import (
    TTest,
    agreement,
    paired_test,
    prompt_parts,
    student_test,
    variance_parts,
    welch_test,
)
from vestige.probes.answering import AnswerSettings, Grader, KeptJudge, Participants, answerer
from vestige.probes.hole_table import CHANGE, SCALE, by_source, mean_estimate
from vestige.probes.holes import candidates_in
from vestige.steps.subjects import Asked

VERSION = 2
"""Part of the identity; raised when the code would measure something else."""
NO_ANSWER = "no answer"


@dataclass(frozen=True)
class VarianceRequest:
    """Which unlearned models answer, by name, how often, and which judges grade, by name.

    Unlearned models are taken one after the other, so that one of them is in memory at a time, and judges when all have
    answered. `criteria` has the judges grade by the five criteria too.
    """

    who: Participants
    unlearned: Mapping[str, Callable[[], Asked]]
    judges: Mapping[str, Callable[[], Grader]]
    generations: int
    criteria: bool
    on_stage: Callable[[str], None] = field(default=lambda stage: None)


class _Prompt(NamedTuple):
    """A prompt that a probe tested: D_AP where its source is "adjacent", D_LP where it is a search."""

    id: str
    source: str
    origin: str
    text: str
    truth: str


@dataclass(frozen=True)
class _Said:
    """The answers of one model by generation and prompt's text, and what the model is known by."""

    id: str
    answers: Sequence[Mapping[str, str | None]]


class VarianceCount(NamedTuple):
    """What a measurement asks for at most, where nothing is kept: prompts to each kind of model, and judgements."""

    target_calls: int
    unlearned_calls: int
    judgements: int

    def __str__(self) -> str:
        """For people."""
        return (
            f"{self.target_calls:,} prompts to the target, {self.unlearned_calls:,} to unlearned models, "
            f"{self.judgements:,} judgements"
        )


class _Verdicts(NamedTuple):
    """What a judge made of each answer, in the answers' order; of the criteria only where they were asked for."""

    quality: Sequence[Judgement | None]
    criteria: Sequence[Judgement | None]


def probed_answers(folder: ProbeFolder) -> AnswerSettings:
    """How the finished probe in the folder had its models answer."""
    _, identity = _finished(folder)
    return AnswerSettings.build(identity["answers"], where=str(folder.summary))


def count_variance(folder: ProbeFolder, request: VarianceRequest) -> VarianceCount:
    """What `variance` asks for at most in the folder of a finished probe; nobody is loaded."""
    prompts, _ = _finished(folder)
    n, distinct = len(request.unlearned), request.generations * len({p.text for p in prompts})
    tasks = len(request.judges) * (2 if request.criteria else 1)
    return VarianceCount(distinct, n * distinct, request.generations * (1 + n) * len(prompts) * tasks)


def variance(folder: ProbeFolder, request: VarianceRequest) -> VarianceTable:
    """The table of how scores vary, in the folder of a finished probe; made unless it is there.

    With other models, judges or generations it is made anew, from what is kept.
    """
    _refuse_too_little(request)
    prompts, probed = _finished(folder)
    if request.who.target.id != probed["target"]:
        raise InputError(
            f"the probe in {folder.path} was made with another target ({probed['target']}, not "
            f"{request.who.target.id}); give that one, since its answers chose the prompts"
        )
    place = folder.variance
    with locked(folder.lock):
        watch = Stopwatch()
        said = {name: one for name, one in _all_said(folder, request, prompts)}
        _refuse_twice(said)
        graders = {name: take() for name, take in request.judges.items()}
        identity = _identity(request, said, graders, prompts)
        if place.summary.exists():
            table, theirs = read_variance(place)
            if content_id(theirs) == content_id(identity):
                return table
        blank = _blank(prompts, said)
        verdicts = {}
        for name, grader in graders.items():
            request.on_stage(f"{len(blank):,} answers to {name}")
            judge = KeptJudge(grader.judge, place.judged, grader.identity)
            truths = {prompt.id: prompt.truth if grader.told else "" for prompt in prompts}
            verdicts[name] = _Verdicts(
                _judged(judge, blank, "quality", truths),
                _judged(judge, blank, "criteria", truths) if request.criteria else [],
            )
        scored = [_scored(answer, n, verdicts) for n, answer in enumerate(blank)]
        table = _table(request, said, scored, probed["unlearned"])
        write_provenance(place.provenance, watch, **request.who.target.loaded.provenance())
        write_variance(place, scored, table, identity)
    return table


def _refuse_too_little(request: VarianceRequest) -> None:
    if not request.unlearned:
        raise InputError("variance over models needs an unlearned model; give one or more")
    if TARGET in request.unlearned:
        raise InputError(f"an unlearned model is called {TARGET!r}, as the target is; give it another name")
    if not request.judges:
        raise InputError("answers are graded by a judge; name one or more")
    if request.generations < 1:
        raise InputError(f"generations = {request.generations}: every model answers at least once")


def _finished(folder: ProbeFolder) -> tuple[list[_Prompt], dict[str, Any]]:
    """The prompts that the probe tested, and the probe's identity."""
    if not folder.summary.exists():
        raise InputError(f"{folder.path} holds no finished probe; run `vestige probe` there first")
    _, identity = read_table(folder)
    tested = [t for t in read_tested(folder) if not t.dropped]
    if not tested:
        raise InputError(f"the probe in {folder.path} tested no prompt, so there is nothing that could vary")
    truths = {(c.source, c.prompt): c.truth for c in candidates_in(folder)}
    prompts = [_Prompt(t.id, t.source, t.origin, t.prompt, truths.get((t.source, t.prompt), "")) for t in tested]
    return prompts, identity


def _all_said(folder: ProbeFolder, request: VarianceRequest, prompts: Sequence[_Prompt]) -> Iterator[tuple[str, _Said]]:
    """The target's answers, then each unlearned model's, which is let go of when it has answered."""
    yield TARGET, _said(folder, request, TARGET, request.who.target, prompts)
    for name, take in request.unlearned.items():
        yield name, _said(folder, request, name, take(), prompts)


def _said(folder: ProbeFolder, request: VarianceRequest, name: str, model: Asked, prompts: Sequence[_Prompt]) -> _Said:
    request.on_stage(f"{request.generations} x {len(prompts):,} answers of {name}")
    who = answerer(model, request.who.answers, folder)
    texts = list(dict.fromkeys(prompt.text for prompt in prompts))
    # A seed of the model's own, so that two models differ by chance as much as two generations of one.
    seeds = [derive_seed(request.who.seed, "variance", model.id, n) for n in range(request.generations)]
    answers = [dict(zip(texts, who.answer(texts, seed=seed), strict=True)) for seed in seeds]
    return _Said(model.id, answers)


def _refuse_twice(said: Mapping[str, _Said]) -> None:
    """Refuse models with equal weights: they are one training, and the spread between them is none."""
    seen: dict[str, str] = {}
    for name, one in said.items():
        if one.id in seen:
            raise InputError(f"{name} is the same model as {seen[one.id]}; give models of different trainings")
        seen[one.id] = name


def _blank(prompts: Sequence[_Prompt], said: Mapping[str, _Said]) -> list[GradedAnswer]:
    """All answers without scores, those to one prompt together."""
    return [
        GradedAnswer(p.id, p.source, p.origin, p.text, name, generation, answers[p.text], {})
        for p in prompts
        for name, one in said.items()
        for generation, answers in enumerate(one.answers)
    ]


def _judged(
    judge: KeptJudge, answers: Sequence[GradedAnswer], task: str, truths: Mapping[str, str]
) -> list[Judgement | None]:
    """A judgement of each answer; None where no answer came."""
    asked = {
        n: Request(task, a.prompt, a.answer, truth=truths[a.id]) for n, a in enumerate(answers) if a.answer is not None
    }
    found = dict(zip(asked, judge.judge(list(asked.values())), strict=True))
    refuse_limit(f"the judge {judge.name}", found.values())
    return [found.get(n) for n in range(len(answers))]


def _scored(blank: GradedAnswer, n: int, verdicts: Mapping[str, _Verdicts]) -> GradedAnswer:
    """The answer in place `n` with what all judges made of it."""
    quality = {name: one.quality[n] for name, one in verdicts.items()}
    criteria = {name: one.criteria[n] for name, one in verdicts.items() if one.criteria}
    return replace(
        blank,
        scores={name: j.score for name, j in quality.items() if j is not None and j.score is not None},
        failures=_failures(quality),
        criteria={name: dict(j.values) for name, j in criteria.items() if j is not None and j.score is not None},
        criteria_failures=_failures(criteria),
    )


def _failures(found: Mapping[str, Judgement | None]) -> dict[str, str]:
    return {name: NO_ANSWER if j is None else j.failure for name, j in found.items() if j is None or j.failure}


def _table(
    request: VarianceRequest, said: Mapping[str, _Said], scored: Sequence[GradedAnswer], probed: str
) -> VarianceTable:
    judges = list(request.judges)
    rows, unjudged = rows_of(scored, judges, seed=request.who.seed)
    return VarianceTable(
        models=tuple(request.unlearned),
        probed=next((name for name, one in said.items() if one.id == probed), ""),
        generations=request.generations,
        judges=tuple(judges),
        rows=rows,
        pairs=pairs_of(scored, judges),
        judge_parts=judge_parts_of(scored, judges),
        unjudged=unjudged,
    )


def _identity(
    request: VarianceRequest, said: Mapping[str, _Said], graders: Mapping[str, Grader], prompts: Sequence[_Prompt]
) -> dict[str, Any]:
    return {
        "version": VERSION,
        "models": {name: one.id for name, one in said.items()},
        "judges": {name: {**grader.identity, "told": grader.told} for name, grader in graders.items()},
        "tasks": {name: TASKS[name].version for name in ("quality", *(("criteria",) if request.criteria else ()))},
        "answers": request.who.answers.identity(),
        "generations": request.generations,
        "prompts": content_id([list(p) for p in prompts], length=32),
        "seed": request.who.seed,
    }


TARGET = "target"
"""The name that the target has among the models of scored answers."""

Scores = Float[np.ndarray, "S G N"]


def rows_of(
    answers: Sequence[GradedAnswer], judges: Sequence[str], *, seed: int
) -> tuple[tuple[VarianceRow, ...], dict[str, dict[str, dict[str, int]]]]:
    """The rows, source by source and judge by judge; and by both the failures of those that have none."""
    rows, unjudged = [], dict[str, dict[str, dict[str, int]]]()
    for source, own in by_source(answers).items():
        for judge in judges:
            row = _row(source, judge, own, seed=seed)
            if row is None:
                unjudged.setdefault(source, {})[judge] = _count(a.failures[judge] for a in own if judge in a.failures)
            else:
                rows.append(row)
    return tuple(rows), unjudged


def pairs_of(answers: Sequence[GradedAnswer], judges: Sequence[str]) -> tuple[JudgePair, ...]:
    """How far every two judges agree; none where no answer was graded by both."""
    found = []
    for first, second in combinations(judges, 2):
        both = [(a.scores[first], a.scores[second]) for a in answers if {first, second} <= a.scores.keys()]
        if both:
            one, other = np.array(both, dtype=float).T
            found.append(JudgePair(first, second, **agreement(one, other)._asdict()))
    return tuple(found)


def judge_parts_of(answers: Sequence[GradedAnswer], judges: Sequence[str]) -> tuple[JudgeParts, ...]:
    """By source, the parts of variance of the unlearned models' run means, over the prompts that all judges graded."""
    return tuple(_judge_parts(source, own, judges) for source, own in by_source(answers).items())


def _row(source: str, judge: str, answers: Sequence[GradedAnswer], *, seed: int) -> VarianceRow | None:
    """One row; None where the judge graded no prompt in every run."""
    sides = _sides(answers)
    before, after = (_scores(side, judge) for side in sides)
    whole = ~(np.isnan(before).any((0, 1)) | np.isnan(after).any((0, 1)))
    if not whole.any():
        return None
    before, after = before[:, :, whole], after[:, :, whole]
    # What each prompt was made from; of a prompt of which nobody knows, itself.
    every = {a.id: a.origin or a.id for a in answers}.values()
    origins = [origin for origin, kept in zip(every, whole, strict=True) if kept]
    failures = [_count(a.failures[judge] for a in side if judge in a.failures) for side in sides]
    changes = after.mean((0, 1)) - before.mean((0, 1))
    return VarianceRow(
        source=source,
        judge=judge,
        n=len(whole),
        n_judged=int(whole.sum()),
        before=_runs(before),
        after=_runs(after),
        change=mean_estimate("change of quality", changes, "score", CHANGE, origins, seed=seed),
        tests=_tests(before, after, origins),
        parts=_parts(after),
        failures_before=failures[0],
        failures_after=failures[1],
        criteria=_criteria(judge, *sides),
        criteria_failures=_count(a.criteria_failures[judge] for a in answers if judge in a.criteria_failures),
    )


def _sides(answers: Sequence[GradedAnswer]) -> tuple[list[GradedAnswer], list[GradedAnswer]]:
    return [a for a in answers if a.model == TARGET], [a for a in answers if a.model != TARGET]


def _scores(answers: Sequence[GradedAnswer], judge: str) -> Scores:
    """The grades, NaN where there is none. Every model has answered every prompt in every generation."""
    models, prompts = (list(dict.fromkeys(names)) for names in ((a.model for a in answers), (a.id for a in answers)))
    generations = 1 + max(a.generation for a in answers)
    scores = np.full((len(models), generations, len(prompts)), np.nan)
    places = {name: n for n, name in enumerate(models)}, {name: n for n, name in enumerate(prompts)}
    for a in answers:
        scores[places[0][a.model], a.generation, places[1][a.id]] = a.scores.get(judge, np.nan)
    return scores


def _runs(scores: Scores) -> Runs:
    means = scores.mean(2).ravel()
    sd = float(means.std(ddof=1)) if len(means) > 1 else None
    return Runs(len(means), float(means.mean()), sd, float((scores <= SCALE[0]).mean()))


def _tests(before: Scores, after: Scores, origins: Sequence[str]) -> ChangeTests:
    runs = before.mean(2).ravel(), after.mean(2).ravel()
    by_model = after.mean((1, 2))
    origin_means = by_origin(before.mean((0, 1)), origins), by_origin(after.mean((0, 1)), origins)
    return ChangeTests(
        student=outcome_of(lambda: student_test(*runs)),
        welch=outcome_of(lambda: welch_test(*runs)),
        over_models=outcome_of(lambda: paired_test(np.full(len(by_model), runs[0].mean()), by_model)),
        over_prompts=outcome_of(lambda: paired_test(*origin_means)),
    )


def by_origin(values: Float[np.ndarray, " N"], origins: Sequence[str]) -> Float[np.ndarray, " K"]:
    """The mean of each origin's prompts: what was made from one thing is one observation."""
    _, place = np.unique(np.asarray(origins, dtype=str), return_inverse=True)
    means: Float[np.ndarray, " K"] = np.bincount(place, values) / np.bincount(place)
    return means


def outcome_of(test: Callable[[], TTest]) -> Outcome:
    """What a test comes to, or why it could not be made."""
    try:
        return Outcome(**test()._asdict())
    except ValueError as error:
        return Outcome(why_not=str(error))


def change_tests(
    before: Float[np.ndarray, " N"], after: Float[np.ndarray, " N"], origins: Sequence[str]
) -> dict[str, Outcome]:
    """The t-tests of the same prompts' scores, after minus before.

    In the paired one what was made from one thing counts once; the other two take all prompts for independent.
    """
    return {
        "p, paired t": outcome_of(lambda: paired_test(by_origin(before, origins), by_origin(after, origins))),
        "p, Welch t": outcome_of(lambda: welch_test(before, after)),
        "p, Student t": outcome_of(lambda: student_test(before, after)),
    }


def _parts(after: Scores) -> VarianceParts:
    try:
        return VarianceParts(**prompt_parts(after)._asdict())
    except ValueError as error:
        return VarianceParts(why_not=str(error))


def _judge_parts(source: str, answers: Sequence[GradedAnswer], judges: Sequence[str]) -> JudgeParts:
    after = np.stack([_scores(_sides(answers)[1], judge) for judge in judges], axis=2)
    whole = ~np.isnan(after).any((0, 1, 2))
    if not whole.any():
        return JudgeParts(source, why_not="no prompt was graded by every judge in every run")
    try:
        parts = variance_parts(after[..., whole].mean(3))
    except ValueError as error:
        return JudgeParts(source, why_not=str(error))
    return JudgeParts(source, parts.seed, parts.generation, parts.judge, parts.seed_by_judge, parts.rest)


def _criteria(judge: str, before: Sequence[GradedAnswer], after: Sequence[GradedAnswer]) -> tuple[CriterionRow, ...]:
    """The mean of each criterion on both sides; nothing where one side was not graded by them."""
    graded = [[a.criteria[judge] for a in side if judge in a.criteria] for side in (before, after)]
    if not all(graded):
        return ()
    n = [len(side) for side in graded]
    means = {name: [float(np.mean([values[name] for values in side])) for side in graded] for name in CRITERIA}
    return tuple(CriterionRow(name, n[0], n[1], *means[name]) for name in CRITERIA)


def _count(reasons: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(reasons).items()))
