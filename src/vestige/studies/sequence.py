"""Requests that keep coming: each is unlearned from the model that the one before left, and all so far are audited.

After request k the model that forgot 1 to k in turn is audited for each of them, and beside it one that forgot all of
them at once. The controls were trained without all of them, so they serve every audit of that step. All work is that
of the steps and of `auditing.run`, which do nothing where their results are there: the same command resumes, and a
file that names further requests goes on from what is there.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field, PositiveInt

from vestige import requests
from vestige.artifacts.audits import AuditOutcome, RequestAudit, write_sequence
from vestige.artifacts.layout import RunFolder, SubjectFolder
from vestige.artifacts.verdicts import AT_ONCE, IN_TURN
from vestige.auditing.request import AuditedModel, AuditRequest
from vestige.auditing.run import plan_audit, run_audit
from vestige.core.errors import InputError, PartialFailure
from vestige.core.files import write_text
from vestige.core.ids import changed_keys
from vestige.core.settings import read_toml, to_toml
from vestige.core.text import one_line
from vestige.data.corpus import (
    BEFORE,
    Corpus,
    NamedSplits,
    SourceSettings,
    named_splits,
    open_corpus,
    refuse_not_found,
    refuse_nothing_kept,
    without,
)
from vestige.methods import build_method
from vestige.methods.base import FromStart
from vestige.steps.finetune import finetune
from vestige.steps.runner import Report, Task, run_tasks, workers_for
from vestige.steps.subjects import origin_of
from vestige.steps.unlearn import unlearn
from vestige.training.settings import UnlearningSettings


class SequenceSettings(SourceSettings):
    """The requests, how the model is made, and how each is forgotten and audited."""

    requests: tuple[str, ...]
    """What is forgotten, one after another: selectors or a file each."""
    method: str
    """How, by a name of `vestige list methods`."""
    model: str
    """The model that is taught the data; retrained controls begin with it too."""
    target: str = ""
    """A model that knows the data already; by default one is taught."""
    controls: PositiveInt = 5
    """How many models are retrained after each request, without all so far."""
    seed: int = 0
    """Seed of everything random; controls have the next ones."""
    method_settings: dict[str, Any] = Field(default_factory=dict)
    """The method's own settings."""
    finetune: dict[str, Any] = Field(default_factory=dict)
    """Settings of teaching and retraining."""
    unlearn: dict[str, Any] = Field(default_factory=dict)
    """Settings of unlearning, as `learning_rate`."""
    audit: dict[str, Any] = Field(default_factory=dict)
    """Settings of the audits."""
    read: dict[str, Any] = Field(default_factory=dict)
    """How models are read: `device`, `dtype`."""


@dataclass(frozen=True)
class SequenceEnd:
    """The audits in their order, and the failures of their tasks by name."""

    outcomes: tuple[AuditOutcome, ...]
    failed: Mapping[str, str]


@dataclass(frozen=True)
class RequestSequence:
    """The sequence in a run's folder. Steps and requests count from 1."""

    run: RunFolder
    settings: SequenceSettings

    @cached_property
    def corpus(self) -> Corpus:
        """The data."""
        source = self.settings.model_dump(include={*SourceSettings.model_fields})
        return open_corpus(SourceSettings.build(source))

    @cached_property
    def splits(self) -> tuple[NamedSplits, ...]:
        """Of each request the splits of one who has forgotten those before; two that share a question are refused."""
        resolved: list[NamedSplits] = []
        for name in self.settings.requests:
            splits = named_splits(self.corpus, name, before=[s.resolved for s in resolved])
            refuse_not_found(self.corpus, splits, None)
            for earlier in resolved:
                # What two requests share would be forgotten by the first, and its leak counted for both.
                shared = {*splits.splits["forget"]} - {*without(splits.splits["forget"], earlier.splits["forget"])}
                if shared:
                    question = one_line(min(item.question for item in shared), width=60)
                    raise InputError(
                        f"the requests {one_line(earlier.forget, width=60)} and {one_line(splits.forget, width=60)} "
                        f"both hold the question {question!r}; leave it in the first"
                    )
            resolved.append(splits)
        return tuple(resolved)

    def at_once(self, step: int) -> NamedSplits:
        """The splits when the first `step` requests are forgotten together."""
        last = self.splits[step - 1]
        forget = (*last.splits.get(BEFORE, ()), *last.splits["forget"])
        # They are forgotten now, and no longer before.
        rest = {name: items for name, items in last.splits.items() if name != BEFORE}
        name = ",".join(splits.forget for splits in self.splits[:step])
        return replace(last, forget=name, splits={**rest, "forget": forget}, scopes={})

    def retrained(self, step: int, number: int) -> SubjectFolder:
        """A model trained without the first `step` requests."""
        return self.run.control(f"retrained {number} after {step}")

    def unlearned(self, step: int, how: str) -> SubjectFolder:
        """The model that forgot the first `step` requests in turn or at once, which is the same for the first."""
        return self.run.cell(IN_TURN if step == 1 else how, f"{step}")

    @property
    def target(self) -> str:
        """The model that knows everything."""
        return self.settings.target or str(self.run.control("target").path)

    def trainings(self, step: int) -> Iterator[Task]:
        """What is made after a request, the target with the first one's."""
        controls = range(1, self.settings.controls + 1)
        teach = [] if step > 1 or self.settings.target else [(0, 0)]
        for of, number in (*teach, *((step, number) for number in controls)):
            name = f"retrained {number}" if of else "target"
            yield Task(name, self.teach, {"step": of, "number": number}, weight=5.0)
        for how in (IN_TURN, AT_ONCE)[: 1 if step == 1 else 2]:
            yield Task(how, self.unlearn, {"step": step, "how": how}, ("target",) if teach else ())

    def audit(self, step: int, number: int) -> AuditRequest:
        """The audit of request `number` after request `step`."""
        models = [AuditedModel("target", "target", self.target)]
        models += [
            AuditedModel(f"retrained {k}", "retrained", str(self.retrained(step, k).path))
            for k in range(1, self.settings.controls + 1)
        ]
        for how in (IN_TURN, AT_ONCE)[: 1 if step == 1 else 2]:
            models.append(AuditedModel(how, "unlearned", str(self.unlearned(step, how).path)))
        settings, untested = requests.audit_settings(self.settings.audit)
        name, seed = self.settings.requests[number - 1], self.settings.seed
        request = requests.audit(models, self.corpus, name, settings, self.settings.read, untested=untested, seed=seed)
        # One request is audited after every later one, and each audit has a folder of its own name.
        return replace(request, splits=replace(request.splits, forget=f"{request.splits.forget} after {step}"))

    def check(self) -> None:
        """Refuse what would fail only after something has been trained, and a folder of another sequence."""
        settings, steps = self.settings, len(self.settings.requests)
        if steps < 2:
            raise InputError("a sequence takes two requests or more; for one, run vestige unlearn and vestige audit")
        refuse_nothing_kept(self.corpus, self.splits[-1])
        if isinstance(build_method(settings.method, settings.method_settings), FromStart):
            raise InputError(f"{settings.method} trains from the start, as the controls of a sequence do; name another")
        if settings.target:
            origin_of(requests.model_settings(settings.target, settings.read, as_made=True))
        requests.training_settings(settings.model, settings.finetune)
        UnlearningSettings.build(settings.unlearn, where="unlearn")
        for number in range(1, steps + 1):
            # The last step has every model, so its audits are refused for whatever any of them would be.
            plan_audit(self.audit(steps, number))
        if not self.run.settings.exists():
            return
        now, stored = self.record(), read_toml(self.run.settings)
        changed = changed_keys(tomllib.loads(now), {**stored, "requests": list(settings.requests)})
        earlier = stored.get("requests", [])
        if changed or list(settings.requests[: len(earlier)]) != earlier:
            raise InputError(
                f"{self.run.path} holds another sequence (it differs in {', '.join(changed) or 'requests'}); choose "
                "another folder. Requests can only be added, behind those that are there"
            )

    def record(self) -> str:
        """The settings as the run's TOML."""
        values = {"command": "sequence", **self.settings.identity()}
        tables = {key: values.pop(key) for key in [*values] if isinstance(values[key], dict)}
        return to_toml(values | {f"{key}.{name}": v for key, table in tables.items() for name, v in table.items()})

    def teach(self, step: int, number: int, report: Report) -> None:
        """Teach the target (step 0), or a model that never sees the first `step` requests."""
        settings = self.settings
        request = requests.finetuning(
            requests.model_settings(settings.model, settings.read),
            self.corpus,
            self.at_once(step) if step else None,
            settings.finetune,
            seed=settings.seed + number,
        )
        folder = self.retrained(step, number) if step else SubjectFolder(Path(self.target))
        finetune(folder, request, lambda p: report(p.step / p.n_steps))

    def unlearn(self, step: int, how: str, report: Report) -> None:
        """Make a model forget: the one before this request's items, or the target all so far."""
        settings, in_turn = self.settings, how == IN_TURN and step > 1
        start = str(self.unlearned(step - 1, how).path) if in_turn else self.target
        request = requests.unlearning(
            requests.model_settings(start, settings.read, as_made=True),
            self.corpus,
            self.splits[step - 1] if in_turn else self.at_once(step),
            settings.method,
            settings.unlearn,
            method_settings=settings.method_settings,
            seed=settings.seed,
        )
        unlearn(self.unlearned(step, how), request, lambda p: report(p.step / p.n_steps))


def run_sequence(
    run: RunFolder,
    settings: SequenceSettings,
    *,
    workers: int | None = None,
    show: Callable[[float, str], None] = lambda _share, _note: None,
) -> SequenceEnd:
    """Make every model and every audit that is not there; `show` is told the share done and what runs. Resumes."""
    sequence, steps = RequestSequence(run, settings), len(settings.requests)
    sequence.check()
    write_text(run.settings, sequence.record())
    device = str(settings.read.get("device", "auto"))
    places: list[RequestAudit] = []
    outcomes: list[AuditOutcome] = []
    failed: dict[str, str] = {}

    def tell(share: float, note: str) -> None:
        show((len(outcomes) + share) / (steps * (steps + 1) // 2), note)

    for step in range(1, steps + 1):
        # Step by step, since each begins with a model of the step before.
        errors = run_tasks(list(sequence.trainings(step)), workers=workers_for(device, workers, on_cpu=2), show=tell)
        if errors:
            name, error = next(iter(errors.items()))
            if isinstance(error, InputError):
                raise error
            raise PartialFailure(f"request {step}: {name} could not be made, so nothing after it was: {error}")
        for number in range(1, step + 1):
            request = sequence.audit(step, number)
            audited = run_audit(run.path, request, workers=workers, show=tell)
            outcomes.append(audited.outcome)
            places.append(RequestAudit(request.splits.forget, sequence.splits[number - 1].forget, number, step))
            failed |= {f"{request.splits.forget}, {name}": str(error) for name, error in audited.failed.items()}
            # After each, so that a report of an unfinished sequence shows what there is.
            write_sequence(run, places)
    return SequenceEnd(tuple(outcomes), failed)
