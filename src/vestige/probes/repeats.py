"""The prompts that a probe tested, answered and graded again: by several trainings, several times, by several judges.

Knowledge Holes (2511.00030): Table 6 (appendix C.1) has three trainings, three generations and three judges, Table 15
(C.8) five criteria. A run is one generation of one model. The target is one model, so its runs are generations alone.

Axes: R runs, N prompts.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from vestige.artifacts.holes import RepeatedScore, Tested, read_tested
from vestige.artifacts.layout import ProbeFolder
from vestige.core.seeds import derive_seed
from vestige.judges.base import Grader, Judgement, Request, refuse_limit
from vestige.judges.tasks import CRITERIA, CRITERION_SCALE
from vestige.probes.answering import KeptJudge, Participants, answerer
from vestige.probes.hole_table import by_source, mean_estimate
from vestige.probes.holes import candidates_in
from vestige.steps.subjects import Asked

VERSION = 1
"""Of repeats and of criteria; raised when the code would measure something else."""
TARGET = "target"
"""What the target is called among the models."""


@dataclass(frozen=True)
class RepeatRequest:
    """Which unlearned models answer, by name, how often, and who grades, by name; one model is in memory at a time."""

    who: Participants
    unlearned: Mapping[str, Callable[[], Asked]]
    judges: Mapping[str, Callable[[], Grader]]
    generations: int


def repeated_scores(folder: ProbeFolder, request: RepeatRequest) -> Iterator[RepeatedScore]:
    """The scores of all answers, judge by judge; answers and verdicts are kept in the folder of the finished probe."""
    tested = _tested(folder)
    texts = list(dict.fromkeys(t.prompt for t in tested))
    answers: dict[tuple[str, int], dict[str, str | None]] = {}
    for name, take in {TARGET: lambda: request.who.target, **request.unlearned}.items():
        model = take()
        who = answerer(model, request.who.answers, folder)
        for generation in range(request.generations):
            # A seed of the model's own, so that two models differ by chance as much as two generations of one.
            seed = derive_seed(request.who.seed, "repeat", model.id, generation)
            answers[name, generation] = dict(zip(texts, who.answer(texts, seed=seed), strict=True))
    runs = [(*run, t, run_answers[t.prompt]) for run, run_answers in answers.items() for t in tested]
    for judge, grader in request.judges.items():
        verdicts = _graded(folder, grader(), "quality", [(t, answer) for *_, t, answer in runs])
        for (model_name, generation, t, _), verdict in zip(runs, verdicts, strict=True):
            score = verdict.score if verdict else None
            yield RepeatedScore(judge, model_name, generation, t.id, t.source, t.origin, score)


def criteria_of(folder: ProbeFolder, grader: Grader, *, seed: int) -> dict[str, list[dict[str, Any]]]:
    """Of each source, the mean of each criterion and of all five, before and after, as estimates in JSON values.

    The answers are those by which the finished probe told holes.
    """
    rows: dict[str, list[dict[str, Any]]] = {}
    for source, tested in by_source(_tested(folder)).items():
        sides = {"before": [t.target_answer for t in tested], "after": [t.unlearned_answer for t in tested]}
        verdicts = {
            when: _graded(folder, grader, "criteria", list(zip(tested, texts, strict=True)))
            for when, texts in sides.items()
        }
        for criterion, when in product((*CRITERIA, "all five"), sides):
            graded = [(t, v) for t, v in zip(tested, verdicts[when], strict=True) if v and v.score is not None]
            values = [v.values.get(criterion, v.score) for _, v in graded]
            if values:
                bounds = float(CRITERION_SCALE.low), float(CRITERION_SCALE.high)
                origins = [t.origin or t.id for t, _ in graded]
                estimate = mean_estimate(f"{criterion} {when}", values, "score", bounds, origins, seed=seed)
                rows.setdefault(source, []).append(asdict(estimate))
    return rows


class Runs(NamedTuple):
    """One judge's scores of one source's prompts, over those that it graded in every run; `n` are all prompts."""

    before: Float[np.ndarray, "R N"]
    after: Float[np.ndarray, "Q N"]
    origins: Sequence[str]
    n: int


def runs_of(scores: Sequence[RepeatedScore]) -> Runs:
    """The scores of one judge and source as runs: of the target, and of all unlearned models together."""
    prompts = {s.id: s.origin or s.id for s in scores}
    by_run: dict[tuple[str, int], dict[str, float]] = {}
    for s in scores:
        by_run.setdefault((s.model, s.generation), {})[s.id] = float("nan") if s.score is None else s.score
    both = [
        np.array([[run[i] for i in prompts] for (model, _), run in by_run.items() if (model == TARGET) is target])
        for target in (True, False)
    ]
    # A prompt that one run lacks would be in some means and not in others.
    whole = ~np.isnan(np.concatenate(both)).any(0)
    origins = [origin for origin, graded in zip(prompts.values(), whole, strict=True) if graded]
    return Runs(both[0][:, whole], both[1][:, whole], origins, len(prompts))


def _tested(folder: ProbeFolder) -> list[Tested]:
    return [t for t in read_tested(folder) if not t.dropped]


def _graded(
    folder: ProbeFolder, grader: Grader, task: str, answers: Sequence[tuple[Tested, str | None]]
) -> list[Judgement | None]:
    """A judgement of each answer; None where no answer came."""
    # By source as well: of an adjacent question the data have the answer, of a search's same prompt none is known.
    truths = {(c.source, c.prompt): c.truth for c in candidates_in(folder)}
    requests = {
        n: Request(task, t.prompt, answer, truth=truths.get((t.source, t.prompt), ""))
        for n, (t, answer) in enumerate(answers)
        if answer is not None
    }
    judge = KeptJudge(grader.judge, folder.judged, grader.identity)
    verdicts = dict(zip(requests, judge.judge(list(requests.values())), strict=True))
    refuse_limit(f"the judge {judge.name}", verdicts.values())
    return [verdicts.get(n) for n in range(len(answers))]
