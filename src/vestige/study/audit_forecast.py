"""What an audit would ask and train, before anything is done; and what that takes, where a run has measured it."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vestige.artifacts.layout import RunFolder
from vestige.artifacts.records import read_versioned
from vestige.core.files import read_json
from vestige.study.audit import plan_audit, with_control
from vestige.study.audit_request import AuditRequest, check_request
from vestige.study.audit_tasks import after_an_attack, suppression


@dataclass(frozen=True)
class Foretold:
    """One task, as it is done on every model: items shown, steps of training, questions asked over all points.

    `passes` are those of single texts that a search for a prompt makes at most.
    """

    task: str
    shown: int
    steps: int
    questions: int
    passes: int = 0


@dataclass(frozen=True)
class AuditForecast:
    """The tasks of each model, what is not tried and why, and the cost in a sentence.

    `cpu_seconds` is for the questions of all models, from the pace of earlier evaluations in the run; None where there
    are none. What the attacks' training and searches take is not in it. `control_steps` are those of making a positive
    control, at most.
    """

    n_models: int
    each: tuple[Foretold, ...]
    untested: tuple[str, ...]
    cpu_seconds: float | None
    control_steps: int = 0

    @property
    def n_questions(self) -> int:
        """All questions to all models."""
        return self.n_models * sum(row.questions for row in self.each)

    @property
    def n_steps(self) -> int:
        """All steps of training on all models, and those of the control."""
        return self.n_models * sum(row.steps for row in self.each) + self.control_steps

    @property
    def n_passes(self) -> int:
        """All passes of searches for prompts on all models, at most."""
        return self.n_models * sum(row.passes for row in self.each)

    @property
    def said(self) -> str:
        """The cost in a sentence."""
        all_of_it = f"{self.n_models} models: {self.n_questions} questions and {self.n_steps} training steps in all"
        if self.control_steps:
            all_of_it += f", at most {self.control_steps} of these to make a positive control"
        if self.n_passes:
            all_of_it += f", and at most {self.n_passes} passes of searches for prompts"
        if self.cpu_seconds is None:
            return f"{all_of_it}; how long a question takes is not known before one model of the run was evaluated"
        minutes = round(self.cpu_seconds / 60)
        time = (
            f"about {minutes} processor minute{'s' if minutes > 1 else ''}"
            if minutes
            else "less than a minute of processor time"
        )
        return f"{all_of_it}; the questions take {time} at the pace of the run so far"

    def as_json(self) -> dict[str, Any]:
        """All of it as JSON values."""
        sums = {"n_questions": self.n_questions, "n_steps": self.n_steps, "n_passes": self.n_passes}
        return {**asdict(self), **sums}


def forecast_audit(run: Path, request: AuditRequest) -> AuditForecast:
    """What `run_audit` would do; no model is loaded."""
    from vestige.attacks.planning import n_passes

    check_request(request)
    planned = plan_audit(request)
    request = with_control(request, planned)
    rows = [Foretold(f"evaluate by {q.eval}", 0, 0, q.n_items) for q in planned.questions]
    for attack in planned.attacks:
        plan = attack.plan
        trains = plan.kind == "relearn"
        steps = len(plan.points) * math.ceil(plan.n_shown / request.settings.relearn_batch_size) if trains else 0
        asked = after_an_attack(planned.questions, plan.kind, controls=bool(request.names("retrained")))
        questions = len(asked) * len(plan.points) * len(plan.tested)
        rows.append(Foretold(plan.name, plan.n_shown, steps, questions, n_passes(attack)))
    pace = _seconds_a_question(RunFolder(run))
    total = len(request.models) * sum(row.questions for row in rows)
    cost = None if pace is None else pace * total
    steps = 0 if all(m.model for m in request.models) else suppression(request, "", "").n_steps
    return AuditForecast(len(request.models), tuple(rows), planned.untested, cost, steps)


def _seconds_a_question(run: RunFolder) -> float | None:
    """Mean processor seconds an item of the run's finished evaluations."""
    found = list(_paces(run))
    return sum(s for s, _ in found) / sum(n for _, n in found) if found else None


def _paces(run: RunFolder) -> Iterator[tuple[float, int]]:
    for subject in run.subjects():
        for place in subject.evaluations():
            if place.collected.exists() and place.provenance.exists():
                yield read_json(place.provenance)["times"]["cpu_seconds"], read_versioned(place.collected, "n")["n"]
