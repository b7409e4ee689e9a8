"""The layout of a run's folder, and the check which of its files are Vestige's own and unchanged.

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

Find Vestige's own files in an output folder, and check whether a model's files are unchanged.

No file but those that the layouts of this room name is ever deleted.

`done.json` holds the SHA-256 of each file: evidence. `seen.json` holds size, times and inode of each as they were when
this machine last knew the files to be the model of `done.json`'s digest: never evidence, and of no use elsewhere, since
a copied file has another inode and time of change. Files that are as they were seen need not be read again.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from vestige.core.errors import InputError
from vestige.core.files import open_input, read_json, write_json
from vestige.core.ids import file_digest, slug
from vestige.core.text import TextByName, TextMapping, one_line


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
    """One line per item, in the plan's order."""
    unfinished = Entry("unfinished.jsonl")
    """Records in the order they were collected. Removed when all are there."""
    scores = Entry("scores.jsonl")
    """One line per item: its value under each metric. Rebuilt from the records."""
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
    """One line per step: named loss terms, gradient norm, learning rate, time and memory."""
    trajectory = Entry("train", "trajectory.jsonl")
    """One line per scored point of the training, and one for each control: scores by name."""
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
    # Other tools get `model/`. The identity is next to it.
    for folder in (SubjectFolder(path), SubjectFolder(path.parent)):
        # Any other folder next to a spec, such as a checkpoint, is not that model.
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
    """One line per step, if the attack trains."""
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
    """A file for each finished task, with the location of its answers."""
    apart = Entry("apart.json")
    """Distances between the models' weights, by the digests of these weights."""
    scores = Entry("scores.jsonl.gz")
    """The score table of a run that judges a table."""
    judgements = Entry("judgements.json")
    """When these answers were judged, at which margins, and with which verdicts. The first stays."""
    outcome = Entry("outcome.json")
    """The outcome. Rebuilt from the scores without a model."""

    def places(self, task: str) -> Path:
        """Return the file with the location of one task's answers."""
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
    """One line for each prompt of a search, in order. It grows during the search."""
    iterations = Entry("iterations.jsonl")
    """One line for each iteration of a search: measurements of the policy, and whether it collapsed."""
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
        """Reject a folder with a report or verdicts that no run of Vestige wrote.

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
        # A run with one search has it in `holes` itself.
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


_TOP = """
    spec.json provenance.json done.json train checkpoints model evals attacks under-way run.toml data models cells audit
    soundness soundness.json sequence.json .soundness.lock verdicts.json tables report.html holes asked.json target
    candidates calibration.json probes study.json ablation mitigation general evidence tables.md
"""
"""The entries that Vestige writes at the top of a folder with --fresh."""

# In this order: files of models, as transformers, tokenizers and peft write them; of evaluations, attacks, trainings,
# audits and judges; of probes and mitigation; of compiled data; of the report; locks.
_WITHIN = """
    config.json generation_config.json *.safetensors *.safetensors.index.json chat_template.jinja
    additional_chat_templates/*.jinja tokenizer*.json tokenizer.model special_tokens_map.json added_tokens.json
    vocab.json vocab.txt merges.txt spiece.model sentencepiece.bpe.model adapter_config.json model/*.py README.md
    */state.json

    spec.json provenance.json done.json identity.json collected.json asked.json asked-*.json records.jsonl
    unfinished.jsonl scores.jsonl summary-*.json summary.json shown.jsonl search.json prompt.json train/metrics.jsonl
    train/trajectory.jsonl score.json asked/*.json plan.json outcome.json trained/*.json judge/??/*.json
    judge/replies.jsonl

    adjacent.jsonl attempts.jsonl iterations.jsonl answers/*.jsonl judged/*.jsonl scored/*.jsonl tested.jsonl
    holes.jsonl repeats.jsonl map.json used.jsonl table.json answers.jsonl mitigation/*.json general/*.json

    manifest.json pistol.json edges.csv items.jsonl holdout.jsonl factual.jsonl contracts.jsonl khop.jsonl nodes.json
    graph.json

    report.html tables/table-*.csv tables/results.csv tables/subjects.csv tables/items.csv tables/holes.csv
    tables/hole_sources.csv tables/mitigation.csv tables/verdicts.csv tables/leakage.csv tables/gains.csv
    tables/curves.csv tables/budget.csv tables/sequence.csv tables/facts.csv tables/groups.csv tables/membership.csv
    tables/kept.csv tables/measures.csv tables/able.csv tables/soundness.csv tables/stored.csv

    .lock .*.lock work/*.lock
"""
"""Files that Vestige writes into these folders, as the end of a path."""


def own_entries(folder: Path) -> list[Path]:
    """Return the entries of a folder with a name that Vestige writes, sorted by name."""
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if {p.name, _unfinished(p.name)} & {*_TOP.split()})


def _unfinished(name: str) -> str:
    """Return the final name of a hidden file or folder that a killed process left unfinished. Nothing for any other."""
    end = next((end for end in (".partial", ".replaced") if name.endswith(end)), None)
    if end and name.startswith("."):
        return name[1:].removesuffix(end)
    return ""


def is_own(path: Path) -> bool:
    """Whether Vestige writes a file of this path, relative to the output folder."""
    # Every file in an unfinished folder counts as Vestige's, since nobody else writes there.
    if any(map(_unfinished, path.parts)):
        return True
    return str(path) in _TOP.split() or any(map(path.match, _WITHIN.split()))


def refuse_strangers(folder: Path, entries: Iterable[Path]) -> None:
    """Raise an error instead of deleting entries if Vestige did not write every file in them."""
    names = (p for entry in entries for p in (entry, *entry.rglob("*")) if not p.is_dir())
    # Sorted, so that the same file is named each time.
    foreign = next((p for p in sorted(names) if not is_own(p.relative_to(folder))), None)
    if foreign is not None:
        raise InputError(
            f"{one_line(str(foreign), width=300)} is not a file that Vestige wrote, and --fresh would delete it. "
            "Move it, or choose another --output-dir"
        )


def is_report(page: Path) -> bool:
    """Return whether a page is a Vestige report, by the mark in its head."""
    if not page.exists():
        return False
    with open_input(page) as file:
        return b'<meta name="generator" content="Vestige' in file.read(4096)


# For SentencePiece: spiece.model, sentencepiece.bpe.model.
_READ = """
    *.safetensors *.safetensors.index.json config.json generation_config.json adapter_config.json tokenizer*
    special_tokens_map.json added_tokens.json vocab.* merges.txt *.jinja *.py *.model chat_template.json
"""

Files = Mapping[str, TextMapping]
"""SHA-256 by file and place: a folder, with the files' paths in it, or a file that is a model by itself, under ''.

A file in the subject's folder is recorded by its path there, any other file by its absolute path.
"""

_ADVICE = ", so what is kept about the model is not about these files; restore them, or start over with --fresh"


class OtherModelError(InputError):
    """The files of a model differ from those that its folder records."""


def digests_of(subject: SubjectFolder, places: Iterable[Path]) -> dict[str, TextByName]:
    """Return the digests of a model's files. `places` are its folders or files."""
    home, digests = subject.path.resolve(), {}
    for path in places:
        whole = path.resolve()
        name = whole.relative_to(home).as_posix() if whole.is_relative_to(home) else str(whole)
        digests[name] = {file: file_digest(whole / file) for file in _listed(whole)}
    return digests


def _listed(root: Path) -> list[str]:
    if not root.is_dir():
        # A model that is a single file is named by its place.
        return [""]
    templates = root / "additional_chat_templates"
    folders = [root, templates] if templates.is_dir() else [root]
    files = [p for folder in folders for p in folder.iterdir() if p.is_file()]
    return sorted(str(p.relative_to(root)) for p in files if any(fnmatch(p.name, kind) for kind in _READ.split()))


def note_seen(subject: SubjectFolder, files: Files) -> None:
    """Put down that the files, as they are now, are the model that the folder speaks of.

    In a read-only folder they are read again each time.
    """
    with contextlib.suppress(PermissionError):
        write_json(subject.seen, _states(subject, files))


def check_files(subject: SubjectFolder, files: Files, *, verify: bool = False) -> bool:
    """Return whether every file is unchanged since it was last seen. Reject changed, missing and added files.

    If a size, time or inode differs, all files are read. With `verify` all are read in any case.
    """
    stored = _digests(subject, files)
    listed = {(subject.path / name).resolve() / file for name in files for file in _listed(subject.path / name)}
    # `exists` is needed because a single model file is listed even if it is missing.
    for path in sorted({path for path in listed if path.exists()} ^ stored.keys()):
        how = "is gone" if path in stored else "was added"
        raise OtherModelError(f"{path} {how} since the model was recorded{_ADVICE}")
    state = read_json(subject.seen) if subject.seen.exists() else {}
    states = _states(subject, files)
    # A file with the same size, times and inode has the same bytes, so gigabytes of weights are not read again.
    unchanged = state == states and not verify
    for path, digest in () if unchanged else stored.items():
        if file_digest(path) != digest:
            raise OtherModelError(f"{path} was changed since the model was recorded{_ADVICE}")
    return bool(files) and bool(state == states)


def check_there(subject: SubjectFolder, files: Files, *, verify: bool) -> bool:
    """Whether the model is there at all. Return False without weights, otherwise the result of `check_files`."""
    if files and not any(path.exists() for path in _digests(subject, files)):
        return False
    check_files(subject, files, verify=verify)
    return True


def _digests(subject: SubjectFolder, files: Files) -> dict[Path, str]:
    """The digest of each file by its path."""
    return {
        (subject.path / name).resolve() / file: digest
        for name, digests in files.items()
        for file, digest in digests.items()
    }


def _states(subject: SubjectFolder, files: Files) -> dict[str, list[int]]:
    """Return each file's size, modification time, change time and inode."""
    states = {
        f"{name}/{file}": (subject.path / name / file).stat() for name, digests in files.items() for file in digests
    }
    # The change time of the inode is included, since anybody can set the modification time.
    return {name: [at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_ino] for name, at in states.items()}
