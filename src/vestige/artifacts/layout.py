"""Where things lie in a run's folder. Every path that Vestige writes is built here.

::

    run.toml  provenance.json           what was asked, fully resolved; versions, hardware, times
    data/                               the compiled data set and its manifest
    models/<name>/  cells/<name>-<id>/  one folder a subject: controls in models/, unlearned ones in cells/
        spec.json                       the identity: everything that can change the model
        provenance.json  train/{metrics,trajectory}.jsonl  checkpoints/  model/
        done.json                       written last: its existence means that model/ is whole; its digests
        seen.json                       size, times and inode of the model's files as they were last seen here
        slices/shard-<s>-slice-<r>/     of a model trained in shards: a subject's folder for each slice;
        cost.json                       what of it was trained, and what it takes from the start
        evals/<eval>-<id>/              identity.json records.jsonl collected.json scores.jsonl
                                        summary-<forget>.json
        attacks/<attack>-<id>/          one attack on that subject: spec.json shown.jsonl train/ checkpoints/
                                        search.json prompt.json of a searched prompt;
                                        points/<point>/evals/ as above, done.json
    audit/<forget>/                     asked/<task>.json plan.json outcome.json
    soundness.json verdicts.json  tables/*.csv  figures/*.svg  report.html
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vestige.artifacts.probe_layout import MitigationFolder as MitigationFolder
from vestige.artifacts.probe_layout import ProbeFolder as ProbeFolder
from vestige.core.ids import slug


@dataclass(frozen=True)
class EvalFolder:
    """One evaluation of one subject: what was collected, and a summary for each forget set."""

    path: Path

    @property
    def identity(self) -> Path:
        """What was collected, on which weights, with which settings."""
        return self.path / "identity.json"

    @property
    def records(self) -> Path:
        """One line an item, in the plan's order."""
        return self.path / "records.jsonl"

    @property
    def unfinished(self) -> Path:
        """Records in the order they were collected; removed when all are there."""
        return self.path / "unfinished.jsonl"

    @property
    def scores(self) -> Path:
        """One line an item: its value under each metric; rebuilt from the records."""
        return self.path / "scores.jsonl"

    @property
    def provenance(self) -> Path:
        """Versions, hardware, command and times of the collecting."""
        return self.path / "provenance.json"

    @property
    def collected(self) -> Path:
        """Written last by collecting: how many records, and their digest."""
        return self.path / "collected.json"

    @property
    def lock(self) -> Path:
        """Held by the process that is collecting."""
        return self.path / ".lock"

    def summary(self, forget: str) -> Path:
        """The estimates for one forget set, named by its selector."""
        return self.path / f"summary-{slug(forget)}.json"

    def summaries(self) -> list[Path]:
        """All summaries, in the order of their names."""
        return sorted(self.path.glob("summary-*.json"))


@dataclass(frozen=True)
class SubjectFolder:
    """One model: how it was made, its weights, what was found out about it."""

    path: Path

    @property
    def spec(self) -> Path:
        """The subject's identity."""
        return self.path / "spec.json"

    @property
    def provenance(self) -> Path:
        """Versions, hardware, command and times of the making."""
        return self.path / "provenance.json"

    @property
    def model(self) -> Path:
        """A Hugging Face folder: safetensors, config, tokenizer, model card."""
        return self.path / "model"

    @property
    def training_log(self) -> Path:
        """One line a step: named loss terms, gradient norm, rate, time and memory."""
        return self.path / "train" / "metrics.jsonl"

    @property
    def trajectory(self) -> Path:
        """One line a scored point of the training, and one for each control: scores by name."""
        return self.path / "train" / "trajectory.jsonl"

    @property
    def checkpoints(self) -> Path:
        """What an interrupted training needs to go on; removed when it is done."""
        return self.path / "checkpoints"

    @property
    def done(self) -> Path:
        """Written last by the making: the digest of the model and why training stopped."""
        return self.path / "done.json"

    @property
    def seen(self) -> Path:
        """Size, times and inode of the model's files when this machine last knew them to be the model of `done`."""
        return self.path / "seen.json"

    @property
    def lock(self) -> Path:
        """Held by the process that is making the subject."""
        return self.path / ".lock"

    @property
    def cost(self) -> Path:
        """Of a model trained in shards: the steps that were taken, and those that it takes from the start."""
        return self.path / "cost.json"

    def slice(self, shard: int, number: int) -> "SubjectFolder":
        """A model trained in shards: one shard's constituent after slice `number` (from 0)."""
        return SubjectFolder(self.path / "slices" / f"shard-{shard}-slice-{number}")

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
    for folder in (SubjectFolder(path), SubjectFolder(path.parent)):
        if folder.spec.is_file() and path in (folder.path, folder.model):
            return folder
    return None


@dataclass(frozen=True)
class AttackFolder:
    """One attack on one subject: what it showed, how it went, and what the attacked model was asked at each point."""

    path: Path

    @property
    def spec(self) -> Path:
        """The attack's identity: the subject's weights, the settings, the seed, what is shown and asked."""
        return self.path / "spec.json"

    @property
    def shown(self) -> Path:
        """One line for each item that the attack showed the model."""
        return self.path / "shown.jsonl"

    @property
    def asked(self) -> Path:
        """By the id of each item as it was asked, the id of the forget item that it stands for."""
        return self.path / "asked.json"

    @property
    def provenance(self) -> Path:
        """Versions, hardware, command and times."""
        return self.path / "provenance.json"

    @property
    def training_log(self) -> Path:
        """One line a step, where the attack trains."""
        return self.path / "train" / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """What an interrupted attack needs to go on; removed when it is done."""
        return self.path / "checkpoints"

    @property
    def search(self) -> Path:
        """What an interrupted search for a prompt needs to go on; removed when the prompt is found."""
        return self.path / "search.json"

    @property
    def prompt(self) -> Path:
        """The prompt that a search found: text, tokens, what was claimed of it and what was seen, bits and costs."""
        return self.path / "prompt.json"

    @property
    def done(self) -> Path:
        """Written last: what was spent, and the bits that were shown."""
        return self.path / "done.json"

    @property
    def lock(self) -> Path:
        """Held by the process that attacks."""
        return self.path / ".lock"

    def point(self, name: str) -> SubjectFolder:
        """Where the evaluations of the attacked model at one point lie, as those of a subject do."""
        return SubjectFolder(self.path / "points" / slug(name))


@dataclass(frozen=True)
class AuditFolder:
    """The audit of one forget set."""

    path: Path

    @property
    def plan(self) -> Path:
        """Who was asked what, and with which thresholds."""
        return self.path / "plan.json"

    @property
    def asked(self) -> Path:
        """A file for each task that is done, with where its answers lie."""
        return self.path / "asked"

    def places(self, task: str) -> Path:
        """Where the answers of one task lie."""
        return self.asked / f"{slug(task)}.json"

    def prompt_bits(self, attack: str) -> Path:
        """How long the prompts that an attack found are, cut as they were asked, to the models that never knew."""
        return self.asked / f"{slug(f'bits of {attack}')}.json"

    @property
    def judgements(self) -> Path:
        """When these answers were judged, at which margins, and with which verdicts; the first stays."""
        return self.path / "judgements.json"

    @property
    def outcome(self) -> Path:
        """What came of it; rebuilt from the scores without a model."""
        return self.path / "outcome.json"


@dataclass(frozen=True)
class RunFolder:
    """One run: its settings, data, subjects and what is rebuilt from their summaries."""

    path: Path

    @property
    def settings(self) -> Path:
        """What was asked, fully resolved."""
        return self.path / "run.toml"

    @property
    def provenance(self) -> Path:
        """Versions, hardware, command and times of the run."""
        return self.path / "provenance.json"

    @property
    def data(self) -> Path:
        """The compiled data set."""
        return self.path / "data"

    @property
    def edges(self) -> Path:
        """The data set's table of edges, if it has a graph."""
        return self.data / "edges.csv"

    @property
    def report(self) -> Path:
        """The report, one offline page."""
        return self.path / "report.html"

    @property
    def tables(self) -> Path:
        """The tables as CSV."""
        return self.path / "tables"

    @property
    def figures(self) -> Path:
        """The figures as SVG."""
        return self.path / "figures"

    @property
    def verdicts(self) -> Path:
        """All verdicts of the run: a list of subject, forget set, claim, verdict, reason, numbers, thresholds."""
        return self.path / "verdicts.json"

    @property
    def soundness(self) -> Path:
        """What the checks of the data set found."""
        return self.path / "soundness.json"

    @property
    def trained_checks(self) -> Path:
        """What the models of the trained checks said, so that a stopped check goes on."""
        return self.path / "soundness"

    def audit(self, forget: str) -> AuditFolder:
        """The audit of one forget set."""
        return AuditFolder(self.path / "audit" / slug(forget))

    def audits(self) -> list[AuditFolder]:
        """The audits that are done, in the order of their names."""
        return [AuditFolder(p.parent) for p in sorted(self.path.glob("audit/*/outcome.json"))]

    def probes(self) -> list[ProbeFolder]:
        """The finished searches for holes: the folder `holes`, or else those in it, in the order of their names."""
        whole = ProbeFolder(self.path / "holes")
        inside = [ProbeFolder(p.parent) for p in sorted(self.path.glob("holes/*/summary.json"))]
        return [whole] if whole.summary.exists() else [probe for probe in inside if probe.tested.exists()]

    @property
    def lock(self) -> Path:
        """Held by the command that works on the run."""
        return self.path / ".lock"

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
