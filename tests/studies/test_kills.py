"""A small run is killed wherever it writes, once each, and resumed: what comes out is the same bytes.

Each task is resumed by itself, as a worker would take it up, and not behind all that were done before it.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.small import contents, in_a_child

import audited
from vestige.artifacts.layout import RunFolder
from vestige.auditing import run as auditing_run
from vestige.auditing.request import AuditRequest
from vestige.data.corpus import SourceSettings, named_splits, open_corpus
from vestige.metrics import intervals
from vestige.models import tiny
from vestige.steps.runner import Task
from vestige.steps.trajectory import ValidationSettings, answered_trajectory
from vestige.steps.unlearn import unlearn
from vestige.studies.demo import Demo, DemoSettings
from vestige.training import loop
from vestige.training.trajectory import TrajectorySettings

SETTINGS = DemoSettings(
    graph="chain:2",
    forget=("edge:0_1",),
    methods=("kl", "dpo"),
    factual=False,
    epochs=1,
    controls=1,
    reference=False,
    unlearning_epochs=1,
    max_new_tokens=4,
    evals=("qa",),
    relearn=("retain",),
    relearn_items=(4,),
    relearn_epochs=1,
    quantize=(8,),
    in_context=(),
)
# Everything that is not about times and hardware.
COMPARED = (
    "*.jsonl",
    "*.safetensors",
    "summary-*.json",
    "done.json",
    "spec.json",
    "*.csv",
    "plan.json",
    "prompt.json",
    "outcome.json",
)


@pytest.fixture(scope="module", autouse=True)
def nano() -> Iterator[None]:
    """A nano model, a checkpoint after every step (as many places to die as there are), and no other processes."""
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny, "tiny_config", audited.nano_config)
        patch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)
        patch.setattr(intervals, "RESAMPLES", 20)
        patch.setattr(auditing_run, "run_tasks", audited.in_this_process)
        yield


def make_and_ask(run: RunFolder) -> None:
    """The demo's tasks, up to its report."""
    assert not auditing_run.run_tasks(Demo(run, SETTINGS).tasks(), workers=1)


def audit_one(run: RunFolder) -> None:
    """The demo's audit of one of its methods, with a search for a prompt and a positive control."""
    assert not auditing_run.conduct(run, audited_models(run), workers=1).failed


def audited_models(run: RunFolder) -> AuditRequest:
    whole = Demo(run, SETTINGS).audit(SETTINGS.forget[0])
    searched = {"gcg": (2,), "prompt_tokens": 3, "prompt_steps": 2, "prompt_candidates": 4, "suppress_epochs": 1}
    models = tuple(m for m in whole.models if m.name != "dpo")
    return replace(whole, models=models, settings=whole.settings.model_copy(update=searched))


def unlearn_along_a_trajectory(run: RunFolder) -> None:
    """An unlearning whose checkpoints are scored as it goes, so that its files are places to die at too."""
    asked = SETTINGS.model_copy(update={"unlearning_epochs": 2})
    corpus = open_corpus(SourceSettings(data=str(run.data), factual="builtin" if asked.factual else None))
    splits = named_splits(corpus, asked.forget[0])
    trajectory = answered_trajectory(
        TrajectorySettings(every="2 steps", choose="forget_nll>=0"),
        ValidationSettings(items=2, max_new_tokens=4),
        splits,
        seed=asked.seed,
    )
    request = replace(Demo(run, asked).unlearning("ga", asked.forget[0]), trajectory=trajectory)
    unlearn(run.cell("ga along a trajectory", "0"), request)


def role(path: str) -> str:
    """What a file is, whichever subject or evaluation it belongs to: all of them are written by the same code."""
    parts, name = Path(path).parts, re.sub(r"(point|step)-\d+", r"\1", Path(path).name)
    start = next((i for i, p in enumerate(parts) if p in {"models", "cells"}), None)
    if start is None:
        return "audit/asked" if "asked" in parts else name
    evaluation = ["evals"] if "evals" in parts else []
    if "attacks" in parts:
        return "/".join(["attack", *evaluation, name])
    # Every scored point of a trajectory is written by the same code too.
    return "/".join([parts[start], *evaluation, name])


REPLACE = os.replace


def die_at_new_places(died: Path) -> None:
    """Let this process die the first time that it comes to a place where none died before."""

    def place(kind: str, path: str) -> None:
        seen, key = set(json.loads(died.read_text())), f"{kind} {role(path)}"
        if key not in seen:
            died.write_text(json.dumps(sorted(seen | {key})))
            os._exit(137)

    # No power is cut here, so nothing waits for the disk.
    def dying_fsync(handle: int) -> None:
        path = str(Path(f"/proc/self/fd/{handle}").readlink())
        if Path(path).is_dir() or path.endswith(".partial"):
            # The same files lie there after, or before, the rename.
            return
        if path.endswith(("metrics.jsonl", "unfinished.jsonl", "trajectory.jsonl")):
            # A log that grows is torn in the middle of its last line.
            size = os.fstat(handle).st_size
            if f"torn {role(path)}" not in json.loads(died.read_text()):
                os.truncate(path, max(0, size - 3))
            place("torn", path)
        place("before fsync", path)

    def dying_replace(source: object, target: object) -> None:
        place("before rename", str(target))
        REPLACE(source, target)
        place("after rename", str(target))

    os.fsync, os.replace = dying_fsync, dying_replace


def killed_and_resumed(work: Callable[[], object], died: Path) -> None:
    """The work by processes that are killed, each at a place where none was before, until one comes through."""

    def attempt() -> None:
        die_at_new_places(died)
        work()

    kills = 0
    while (code := in_a_child(attempt)) == 137:
        kills += 1
        assert kills < 2000
    assert code == 0


def killed_tasks(died: Path, through: Path) -> Callable[..., Mapping[str, Exception]]:
    """`run_tasks` whose workers are killed until a task came through; then it runs again as a resumed command's does.

    The folder `through` names those that did.
    """

    def run_tasks(tasks: Sequence[Task], **_: object) -> Mapping[str, Exception]:
        for task in tasks:
            done = through / task.name.replace("/", " ")
            if done.exists():
                task.run(**task.arguments, report=lambda _: None)
            else:
                killed_and_resumed(lambda task=task: task.run(**task.arguments, report=lambda _: None), died)
                done.mkdir(parents=True)
        return {}

    return run_tasks


@pytest.fixture(scope="module")
def asked(tmp_path_factory) -> Path:
    """What the demo's tasks leave, and no audit. Made in this process: a child imports again what this one has not."""
    folder = tmp_path_factory.mktemp("asked") / "run"
    make_and_ask(RunFolder(folder))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "expected"),
    [
        pytest.param(make_and_ask, {"after rename models/done.json", "torn models/metrics.jsonl"}, id="demo"),
        pytest.param(
            audit_one,
            {
                "before rename attack/search.json",
                "before rename attack/prompt.json",
                "before rename outcome.json",
                # The positive control is made here, all other models before.
                "torn models/metrics.jsonl",
                "after rename models/done.json",
            },
            id="audit",
        ),
        pytest.param(unlearn_along_a_trajectory, {"torn cells/trajectory.jsonl"}, id="trajectory"),
    ],
)
def test_what_is_killed_at_every_write_ends_like_what_was_not(tmp_path, monkeypatch, asked, work, expected):
    whole, broken, died = tmp_path / "whole", tmp_path / "broken", tmp_path / "died.json"
    if work is make_and_ask:
        whole = asked
    else:
        for folder in (whole, broken):
            audited.copied(RunFolder(asked), folder)
        work(RunFolder(whole))
    died.write_text("[]")
    monkeypatch.setattr(auditing_run, "run_tasks", killed_tasks(died, tmp_path / "through"))
    killed_and_resumed(lambda: work(RunFolder(broken)), died)
    places = json.loads(died.read_text())
    for kind in ("torn", "before fsync", "before rename", "after rename"):
        assert any(p.startswith(kind) for p in places)
    assert expected <= set(places)
    assert contents(broken, *COMPARED) == contents(whole, *COMPARED)
    # Nothing half-written is left behind.
    assert not list(broken.rglob("*.partial"))
    assert not list(broken.rglob("*.replaced"))
