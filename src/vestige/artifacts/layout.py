"""Where things are in a run's folder. Every path that Vestige writes is built here.

::

    run.toml  provenance.json           what was asked, fully resolved; versions, hardware, times
    data/                               the compiled data set and its manifest
    models/<name>/  cells/<name>-<id>/  one folder a subject: controls in models/, unlearned ones in cells/
        spec.json                       the identity: everything that can change the model
        provenance.json  train/{metrics,trajectory}.jsonl  checkpoints/  model/
        done.json                       written last: its existence means that model/ is whole; its digests
        seen.json                       size, times and inode of the model's files as they were last seen here
        evals/<eval>-<id>/              identity.json records.jsonl collected.json scores.jsonl
                                        summary-<forget>.json
        attacks/<attack>-<id>/          one attack on that subject: spec.json shown.jsonl train/ checkpoints/
                                        search.json prompt.json of a searched prompt;
                                        points/<point>/evals/ as above, done.json
    audit/<forget>/                     asked/<task>.json plan.json outcome.json
    soundness.json verdicts.json  tables/*.csv  report.html

The folder of a search for knowledge holes::

    asked-<part>.json                   the identity of each part of the work
    adjacent.jsonl                      questions near the forget set, and the retain set's own
    searches/<source>/                  one search for prompts: attempts.jsonl iterations.jsonl policy/ answers/
    answers/  judge/                    what models answered, and what a judge on a server replied
    tested.jsonl holes.jsonl provenance.json summary.json
    report.html tables/                 rebuilt by `vestige report`
                                        rounds/<n>/ of an iterative one, each with subject/ and anew/; table.json
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vestige.core.errors import InputError
from vestige.core.ids import slug
from vestige.core.text import one_line


class Entry:
    """A file or folder of a fixed name within the folder that has it as an attribute."""

    def __init__(self, *parts: str) -> None:
        self._parts = parts

    def __get__(self, folder: Any, kind: type | None = None) -> Path:
        """The path, of a folder that has a `path`."""
        path: Path = folder.path.joinpath(*self._parts)
        return path


@dataclass(frozen=True)
class EvalFolder:
    """One evaluation of one subject: its records, and a summary for each forget set."""

    path: Path

    identity = Entry("identity.json")
    """Return the identity: questions, weights and settings."""
    records = Entry("records.jsonl")
    """One line an item, in the plan's order."""
    unfinished = Entry("unfinished.jsonl")
    """Records in the order they were collected. Removed when all are there."""
    scores = Entry("scores.jsonl")
    """One line an item: its value under each metric. Rebuilt from the records."""
    provenance = Entry("provenance.json")
    """Versions, hardware, command and times of the collecting."""
    collected = Entry("collected.json")
    """Written last by collecting: how many records, and their digest."""
    lock = Entry(".lock")
    """Held by the process that is collecting."""

    def summary(self, forget: str) -> Path:
        """The estimates for one forget set, named by its selector."""
        return self.path / f"summary-{slug(forget)}.json"

    def summaries(self) -> list[Path]:
        """All summaries, in the order of their names."""
        return sorted(self.path.glob("summary-*.json"))


@dataclass(frozen=True)
class SubjectFolder:
    """One model: its recipe, its weights and its evaluations."""

    path: Path

    spec = Entry("spec.json")
    """The subject's identity."""
    provenance = Entry("provenance.json")
    """Versions, hardware, command and times of the making."""
    model = Entry("model")
    """A Hugging Face folder: safetensors, config, tokenizer, model card."""
    training_log = Entry("train", "metrics.jsonl")
    """One line a step: named loss terms, gradient norm, rate, time and memory."""
    trajectory = Entry("train", "trajectory.jsonl")
    """One line a scored point of the training, and one for each control: scores by name."""
    checkpoints = Entry("checkpoints")
    """Checkpoints of an interrupted training. Removed when it is done."""
    done = Entry("done.json")
    """Written last by the making: the digest of the model and why training stopped."""
    seen = Entry("seen.json")
    """Size, times and inode of the model's files when this machine last knew them to be the model of `done`."""
    lock = Entry(".lock")
    """Held by the process that is making the subject."""

    def attack(self, name: str, id_: str) -> "AttackFolder":
        """The folder of one attack on this subject."""
        return AttackFolder(self.path / "attacks" / f"{slug(name)}-{id_}")

    def evaluation(self, name: str, id_: str) -> EvalFolder:
        """The folder of one evaluation."""
        return EvalFolder(self.path / "evals" / f"{name}-{id_}")

    def evaluations(self) -> list[EvalFolder]:
        """The evaluations that are there, in the order of their names."""
        return [EvalFolder(p.parent) for p in sorted(self.path.glob("evals/*/identity.json"))]


def own_folder(model: str) -> SubjectFolder | None:
    """The subject's folder, if `model` is one that Vestige made, or the model/ in it."""
    path = Path(model).expanduser()
    # `model/` is what other tools are given; the identity lies beside it.
    for folder in (SubjectFolder(path), SubjectFolder(path.parent)):
        # Any other folder beside a spec, a checkpoint say, is not that model.
        if folder.spec.is_file() and path in (folder.path, folder.model):
            return folder
    return None


@dataclass(frozen=True)
class AttackFolder:
    """One attack on one subject: its data, its log, and the attacked model's answers at each stage."""

    path: Path

    spec = Entry("spec.json")
    """The attack's identity: the subject's weights, settings, seed, training data and questions."""
    shown = Entry("shown.jsonl")
    """One line for each item that the attack showed the model."""
    asked = Entry("asked.json")
    """Return the forget item's id by the id of each attacked question."""
    provenance = Entry("provenance.json")
    """Versions, hardware, command and times."""
    training_log = Entry("train", "metrics.jsonl")
    """One line a step, where the attack trains."""
    checkpoints = Entry("checkpoints")
    """Checkpoints of an interrupted attack. Removed when it is done."""
    search = Entry("search.json")
    """The state of an interrupted prompt search. Removed when the prompt is found."""
    prompt = Entry("prompt.json")
    """The prompt that a search found: text, tokens, the claimed and the observed replies, bits and costs."""
    done = Entry("done.json")
    """Written last: the resources spent, and the bits of the attack's data."""
    lock = Entry(".lock")
    """Held by the process that attacks."""

    def point(self, name: str) -> SubjectFolder:
        """Return the folder of the attacked model's evaluations at one stage, laid out like a subject's."""
        return SubjectFolder(self.path / "points" / slug(name))


@dataclass(frozen=True)
class AuditFolder:
    """The audit of one forget set."""

    path: Path

    plan = Entry("plan.json")
    """The models, questions and thresholds of the audit."""
    sealed = Entry("sealed.json")
    """Plan and margins before scoring, with their digest."""
    asked = Entry("asked")
    """A file for each task that is done, with where its answers lie."""
    apart = Entry("apart.json")
    """Distances between the models' weights, by the digests of these weights."""
    scores = Entry("scores.jsonl.gz")
    """The score table of a run that judges a table."""
    judgements = Entry("judgements.json")
    """When these answers were judged, at which margins, and with which verdicts. The first stays."""
    outcome = Entry("outcome.json")
    """The outcome. Rebuilt from the scores without a model."""
    judged = Entry("judged.json")
    """The digest of the answers, plan and code behind the outcome, so that unchanged audits are not judged again."""

    def places(self, task: str) -> Path:
        """Where the answers of one task lie."""
        return self.asked / f"{slug(task)}.json"

    def prompt_bits(self, attack: str) -> Path:
        """The code length, under the controls, of the prompts that an attack found, at each stage."""
        return self.asked / f"{slug(f'bits of {attack}')}.json"


@dataclass(frozen=True)
class ProbeFolder:
    """The search for knowledge holes: attempts, tested prompts and confirmed holes."""

    path: Path

    adjacent = Entry("adjacent.jsonl")
    """One line for each adjacent question."""
    attempts = Entry("attempts.jsonl")
    """One line for each prompt that a search tried, in its order. Grows as it goes."""
    iterations = Entry("iterations.jsonl")
    """One line for each iteration of a search: what became of the policy, in numbers, and whether it collapsed."""
    policy = Entry("policy")
    """The state of an interrupted search."""
    answers = Entry("answers")
    """The models' answers to candidates, one file for each model and draw."""
    judge = Entry("judge")
    """The replies of a judge on a server, which were paid for."""
    tested = Entry("tested.jsonl")
    """One line for each candidate: why it was dropped, or both answers with their scores."""
    holes = Entry("holes.jsonl")
    """One line for each confirmed hole."""
    report = Entry("report.html")
    """The report, one offline page."""
    tables = Entry("tables")
    """The report's tables as CSV."""
    summary = Entry("summary.json")
    """Written last: the table of holes, and the identity of its inputs."""
    provenance = Entry("provenance.json")
    """Versions, hardware, command and times."""
    lock = Entry(".lock")
    """Held by the process that probes."""

    def asked(self, part: str) -> Path:
        """Return the identity of one part of the work: everything that can change its result."""
        return self.path / f"asked-{slug(part)}.json"

    def search(self, source: str) -> "ProbeFolder":
        """The folder of one search: latent or random."""
        return ProbeFolder(self.path / "searches" / slug(source))

    def searches(self) -> "list[ProbeFolder]":
        """The searches that are there, in the order of their names."""
        return [ProbeFolder(p.parent) for p in sorted(self.path.glob("searches/*/attempts.jsonl"))]


@dataclass(frozen=True)
class RunFolder:
    """One run: its settings, data and subjects, and the outputs that can be rebuilt from their summaries."""

    path: Path

    settings = Entry("run.toml")
    """The settings, fully resolved."""
    provenance = Entry("provenance.json")
    """Versions, hardware, command and times of the run."""
    data = Entry("data")
    """The compiled data set."""
    edges = Entry("data", "edges.csv")
    """The data set's table of edges, if it has a graph."""
    graph = Entry("data", "graph.json")
    """The data set's graph with the names of the parties."""
    report = Entry("report.html")
    """The report, one offline page."""
    tables = Entry("tables")
    """The tables as CSV."""
    verdicts = Entry("verdicts.json")
    """All verdicts of the run: a list of subject, forget set, claim, verdict, reason, numbers, thresholds."""
    soundness = Entry("soundness.json")
    """The results of the data set's checks."""
    lock = Entry(".lock")
    """Held by the command that works on the run."""

    def refuse_others_files(self) -> None:
        """Refuse a folder in which a report or verdicts lie that no run of Vestige wrote.

        Raises:
            InputError: One of these files exists in a folder that is not a run.
        """
        if self.settings.exists() or any(self.subjects()) or any(self.path.glob("audit/*/plan.json")):
            return
        for file in (self.report, self.verdicts, self.tables):
            if file.exists():
                raise InputError(
                    f"{one_line(str(file), width=300)} exists, and Vestige did not write it. Choose "
                    "another folder, so that nothing is overwritten."
                )

    def audit(self, forget: str) -> AuditFolder:
        """The audit of one forget set."""
        return AuditFolder(self.path / "audit" / slug(forget))

    def audits(self) -> list[AuditFolder]:
        """The audits that are done, in the order of their names."""
        return [AuditFolder(p.parent) for p in sorted(self.path.glob("audit/*/outcome.json"))]

    def probes(self) -> list[ProbeFolder]:
        """Return the finished searches for holes: the folder `holes`, or the folders inside it, sorted by name."""
        # A run of one search has it in `holes` itself.
        whole = ProbeFolder(self.path / "holes")
        inside = [ProbeFolder(p.parent) for p in sorted(self.path.glob("holes/*/summary.json"))]
        if whole.summary.exists():
            return [whole]
        return [probe for probe in inside if probe.tested.exists()]

    def control(self, name: str) -> SubjectFolder:
        """A subject that no unlearning method made: base, target, retrained."""
        return SubjectFolder(self.path / "models" / slug(name))

    def cell(self, name: str, id_: str) -> SubjectFolder:
        """One point of the grid: an unlearned subject."""
        return SubjectFolder(self.path / "cells" / f"{slug(name)}-{id_}")

    def subjects(self) -> Iterator[SubjectFolder]:
        """The subjects that are there: controls first, then cells, each in the order of their names."""
        for spec in [*sorted(self.path.glob("models/*/spec.json")), *sorted(self.path.glob("cells/*/spec.json"))]:
            yield SubjectFolder(spec.parent)
