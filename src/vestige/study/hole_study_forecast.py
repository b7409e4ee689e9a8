"""What a study of holes would take at most, before anything is made."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vestige.artifacts.hole_study import HoleStudyFolder
from vestige.data.build import CompileSettings, compile_to_folder
from vestige.judges.spending import Limits
from vestige.probes.adjacent import AdjacentRequest, adjacent_of
from vestige.probes.holes import ProbeForecast, Size, forecast_probe, forget_texts
from vestige.probes.neighbours import NeighbourSettings
from vestige.probes.questions import AdjacentSettings
from vestige.study.hole_study import probe_jobs, study_tasks
from vestige.study.hole_study_cast import corpus_of, splits_of
from vestige.study.hole_study_request import HoleStudySettings


@dataclass(frozen=True)
class StudyForecast:
    """Bounds: tasks in all, probes among them, and what the probes ask; mendings and repetitions are not reckoned."""

    n_tasks: int
    n_probes: int
    prompts: Mapping[str, int]
    judgements: Mapping[str, int]
    judge_prompt_tokens: int


def forecast_study(folder: Path, settings: HoleStudySettings, tables: Sequence[int]) -> StudyForecast:
    """What everything takes; data that the study makes are compiled aside, and no model is loaded."""
    place = HoleStudyFolder(folder)
    jobs = probe_jobs(place, settings, tables)
    each = [_of_one(job.settings) for job in jobs]
    tasks = ("reward", "validity", "overlap", "quality")
    return StudyForecast(
        n_tasks=len(study_tasks(place, settings, tables)),
        n_probes=len(jobs),
        prompts={
            "target": sum(f.target_calls for f in each),
            "unlearned": sum(f.unlearned_calls for f in each),
        },
        judgements={task: sum(f.judge_requests[task] for f in each) for task in tasks},
        judge_prompt_tokens=sum(f.judge_prompt_tokens for f in each),
    )


def _of_one(settings: HoleStudySettings) -> ProbeForecast:
    with tempfile.TemporaryDirectory() as aside:
        place = HoleStudyFolder(Path(aside))
        if settings.making:
            compile_to_folder(settings.making.graph, place.data, CompileSettings(seed=settings.seed))
        corpus = corpus_of(place, settings)
    splits = splits_of(corpus, settings)
    near = AdjacentRequest(
        splits=splits,
        dataset=corpus.dataset,
        by="graph" if settings.by == "graph" else "offline",
        settings=AdjacentSettings(k=settings.k),
        neighbours=NeighbourSettings(k=settings.k),
        seed=settings.seed,
    )
    forget = splits.splits["forget"]
    return forecast_probe(
        Size(len(adjacent_of(near)["forget"].questions), settings.latent.n_iterations * settings.policy.n_rollouts, 0),
        forget[0].question,
        forget_texts(forget),
        settings.filter,
        answer_tokens=settings.answers.max_tokens,
        limits=Limits(),
    )
