"""What tests of steps, studies and commands share: a nano model, items, an unlearning, commands run in this process."""

import contextlib
import dataclasses
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from click.testing import Result
from typer.testing import CliRunner

import audited
from vestige.artifacts.layout import EvalFolder, SubjectFolder
from vestige.artifacts.records import SubjectSpec
from vestige.cli.app import app
from vestige.core.errors import NotLearned
from vestige.core.files import read_jsonl
from vestige.core.items import Item
from vestige.metrics import intervals
from vestige.models import tiny
from vestige.models.load import LoadedModel, ModelSettings
from vestige.steps import evaluate as evaluating
from vestige.steps.evaluate import Subject
from vestige.steps.making import Made
from vestige.steps.subjects import origin_of
from vestige.steps.unlearn import UnlearnRequest
from vestige.training.loop import reproducible
from vestige.training.settings import UnlearningSettings

TINY = ModelSettings(model="builtin:tiny", device="cpu")


@contextlib.contextmanager
def nano(*, blocks: int = 1, resamples: int = 400) -> Iterator[None]:
    """Within it the built-in model has 16 dimensions and one block, on one thread, and intervals few resamples."""
    torch.set_num_threads(1)
    config = partial(audited.nano_config, blocks)
    with mock.patch.object(tiny, "tiny_config", config), mock.patch.object(intervals, "RESAMPLES", resamples):
        yield


def squares(n: int, *, edge: Callable[[int], str] | None = None) -> tuple[Item, ...]:
    """`n` questions after squares, each under its edge."""
    return tuple(Item(f"What is number {i}?", f"{i * i}.", edge=edge(i) if edge else None) for i in range(n))


def written(path: Path, rows: Iterable[Item | Mapping[str, Any]]) -> Path:
    """The rows as JSON Lines; of an item question, answer and edge."""
    plain = (
        {"question": r.question, "answer": r.answer, "edge": r.edge} if isinstance(r, Item) else dict(r) for r in rows
    )
    path.write_text("".join(json.dumps({k: v for k, v in r.items() if v is not None}) + "\n" for r in plain))
    return path


def unlearning(
    target: SubjectFolder | ModelSettings, forget: Sequence[Item], retain: Sequence[Item], /, **changes: Any
) -> UnlearnRequest:
    """An unlearning of these items by `kl`; `training` is given as values."""
    model = target if isinstance(target, ModelSettings) else ModelSettings(model=str(target.path), device="cpu")
    request = UnlearnRequest(
        target=model,
        target_digest=changes.pop("target_digest", None) or origin_of(model).digest,
        start="builtin:tiny",
        method="kl",
        method_settings={},
        forget="file",
        forget_items=tuple(forget),
        retain_items=tuple(retain),
        idk=("No idea.", "I cannot say."),
        training=UnlearningSettings.build(changes.pop("training", {})),
        seed=0,
    )
    return dataclasses.replace(request, **changes)


def vestige(*words: object, code: int | None = 0) -> Result:
    """The command line in this process, which has loaded torch already; its error is raised unless `code` is None."""
    ended = CliRunner().invoke(app, [*map(str, words)])
    # Tests train a step or two, of which no model learns.
    if code == 0 and isinstance(ended.exception, NotLearned):
        return ended
    if code is not None and ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    assert code is None or ended.exit_code == code, ended.output
    return ended


SPEC = SubjectSpec("unlearned", "planted", "builtin:tiny", "npo", "edge:e0", 0, "s", {}, "d", "p", 1, ())
WRITTEN = ("identity.json", "records.jsonl", "collected.json", "scores.jsonl", "summary-edge=e0.json")


class Stopped(Exception):
    """What stops an evaluation or an attack in these tests."""


def subject_of(model: LoadedModel, folder: Path) -> Subject:
    """A model in memory as a subject whose evidence goes to the folder."""
    return Subject(SubjectFolder(folder), SPEC, Made(model.digest(), 0, "planted"), lambda: model)


def evidence(place: EvalFolder) -> dict[str, bytes]:
    """Everything that an evaluation leaves but for times."""
    return {name: (place.path / name).read_bytes() for name in WRITTEN}


def contents(folder: Path, *patterns: str) -> dict[str, object]:
    """The files in a folder that are not about times and hardware, by their paths; all, or those of some patterns.

    Of the log of a training the lines without what they took.
    """
    names = {p for pattern in patterns or ("*",) for p in folder.rglob(pattern) if p.is_file()}
    kept = sorted(p for p in names if p.name not in ("provenance.json", "seen.json", ".lock"))
    return {
        str(p.relative_to(folder)): list(map(reproducible, read_jsonl(p)))
        if p.name == "metrics.jsonl"
        else p.read_bytes()
        for p in kept
    }


def model_bytes(folder: SubjectFolder) -> dict[str, object]:
    """Every file of the model but its card, which says how it was made."""
    return {name: content for name, content in contents(folder.model).items() if not name.endswith("README.md")}


@contextlib.contextmanager
def portions_of_four() -> Iterator[None]:
    """Within it evaluations ask four items at a time, and intervals have few resamples."""
    with mock.patch.object(evaluating, "CHUNK", 4), mock.patch.object(intervals, "RESAMPLES", 400):
        yield


def in_a_child(work: Callable[[], object]) -> int:
    """The exit code of a process that does the work: 0 if it came to its end, -9 if it was killed."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
