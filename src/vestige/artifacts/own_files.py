"""Find Vestige's own files in an output folder, and check whether a model's files are unchanged.

No file but those that the layouts of this room name is ever deleted.

`done.json` holds the SHA-256 of each file: evidence. `seen.json` holds size, times and inode of each as they were when
this machine last knew the files to be the model of `done.json`'s digest: never evidence, and of no use elsewhere, since
a copied file has another inode and time of change. Files that are as they were seen need not be read again.
"""

import contextlib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path

from vestige.artifacts.layout import SubjectFolder
from vestige.core.errors import InputError
from vestige.core.files import open_input, read_json, write_json
from vestige.core.ids import file_digest
from vestige.core.text import TextByName, TextMapping, one_line

_TOP = """
    spec.json provenance.json done.json train checkpoints model evals attacks under-way run.toml data models cells audit
    soundness soundness.json sequence.json .soundness.lock verdicts.json tables report.html holes asked.json target
    candidates calibration.json probes study.json ablation mitigation general evidence tables.md
"""
"""What Vestige puts at the top of a folder that takes --fresh."""

# In this order: of models, as transformers, tokenizers and peft write them; of evaluations, attacks, trainings, audits
# and judges; of probes and mitigation; of compiled data; of the report, which replaces its own; locks.
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
    # Whatever lies in what a kill left half made, since nobody else writes there.
    if any(map(_unfinished, path.parts)):
        return True
    return str(path) in _TOP.split() or any(map(path.match, _WITHIN.split()))


def refuse_strangers(folder: Path, entries: Iterable[Path]) -> None:
    """Refuse to delete entries of an output folder if Vestige did not write every file in them."""
    names = (p for entry in entries for p in (entry, *entry.rglob("*")) if not p.is_dir())
    # In order, so that the same file is named each time.
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


# Of SentencePiece: spiece.model, sentencepiece.bpe.model.
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
    """The files of a model are not those that its folder speaks of."""


def digests_of(subject: SubjectFolder, places: Iterable[Path]) -> dict[str, TextByName]:
    """The digests of the files that a model is read from, where `places` are its folders or files."""
    home, digests = subject.path.resolve(), {}
    for path in places:
        whole = path.resolve()
        name = whole.relative_to(home).as_posix() if whole.is_relative_to(home) else str(whole)
        digests[name] = {file: file_digest(whole / file) for file in _listed(whole)}
    return digests


def _listed(root: Path) -> list[str]:
    if not root.is_dir():
        # A file that is a model by itself is named by its place alone.
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
    """Whether every file is as it was last seen here. One with another digest, one gone and one added are refused.

    If a size, time or inode differs, all files are read. With `verify` all are read in any case.
    """
    stored = _digests(subject, files)
    listed = {(subject.path / name).resolve() / file for name in files for file in _listed(subject.path / name)}
    # `exists`, since a file that is a model by itself is listed whether it is there or not.
    for path in sorted({path for path in listed if path.exists()} ^ stored.keys()):
        how = "is gone" if path in stored else "was added"
        raise OtherModelError(f"{path} {how} since the model was recorded{_ADVICE}")
    state = read_json(subject.seen) if subject.seen.exists() else {}
    states = _states(subject, files)
    # A file of the same size, times and inode has the same bytes, and gigabytes of weights are not read again.
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
    # The time of the change of the file itself, since that of its content can be set by anybody.
    return {name: [at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_ino] for name, at in states.items()}
