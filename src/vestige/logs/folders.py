"""Whose a log is, told by the names of the folders that OpenUnlearning and MUSE put it in.

OpenUnlearning: `eval/tofu_MODEL_full/evals_forget01`, `eval/tofu_MODEL_retain99`, `finetune/tofu_MODEL_retain99`,
`unlearn/tofu_MODEL_forget01_METHOD`, with or without checkpoints, and the same with `muse_MODEL_CORPUS_target`. A task
of another name says its model and forget set in `.hydra/config.yaml`. MUSE: `MEMORY/out/CORPUS/MODEL/...`. TOFU:
`ft_epoch5_lr1e-05_MODEL_full_wd0.01`, the same with `retain99`, `retain99_MODEL_wd0.01`, and below the folder of its
start `METHOD_1e-05_forget01_5`.

A model that was trained without 10 % of TOFU never saw the 1 % and 5 % either, so that it is a control of these too. Of
the checkpoints of one training the last is a control, since the others are no further trainings.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from os.path import commonpath
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from vestige.core.text import one_line
from vestige.logs import reader_of
from vestige.logs.log import GivenLog

_TASK = re.compile(
    r"(?P<kind>tofu|muse)_(?P<model>.+?)_"
    r"(?:(?P<full>full|ft_retain\d+)|retain(?P<retain>\d+)|(?P<forget>forget\d+)_(?P<method>.+)"
    r"|(?P<corpus>News|Books)_(?:(?P<role>target|retrain)|(?P<other>.+)))$"
)
_TUNED = re.compile(
    r"(?:ft_epoch\d+_lr[^_]+_(?P<model>[^_]+)_(?:full|retain(?P<retain>\d+))|retain(?P<only>\d+)_(?P<base>[^_]+))_wd[\d.]+$"
)
_FORGOT = re.compile(r"(?P<method>.+)_(?P<forget>forget\d+)_\d+$")
_EVALS = re.compile(r"evals_(forget\d+)$")
_CHECKPOINT = re.compile(r"checkpoint-(\d+)$")
CORPORA = {"bbc": "News", "hp": "Books"}


class LogGroup(NamedTuple):
    """The logs that are judged together: of one base model and one forget set, which `name` says."""

    name: str
    logs: tuple[GivenLog, ...]


class Recognised(NamedTuple):
    """What folders hold: the groups with a target and something to judge, and of the other logs why they are not in."""

    groups: tuple[LogGroup, ...]
    left_out: tuple[tuple[Path, str], ...]


class _PlacedLog(NamedTuple):
    """One log and what its place says: the base model or corpus, and what of it the model is.

    `retain` is the share in per cent that a control was trained on, `forget` what was asked or forgotten.
    """

    path: Path
    family: str
    role: str
    name: str
    forget: str = ""
    retain: int = 0
    checkpoint: int = -1


def recognise(folders: Sequence[Path]) -> Recognised:
    """The groups of logs in these folders, which may hold each other's controls."""
    placed: list[_PlacedLog] = []
    left_out: list[tuple[Path, str]] = []
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if not (path.is_file() and reader_of(path)):
                continue
            if log := _placed(path, folder):
                placed.append(log)
            else:
                left_out.append((path, "nothing in its place says whose it is"))
    placed = _one_each(placed, left_out)
    groups = tuple(_groups(placed, left_out))
    explained = {log.path for group in groups for log in group.logs} | {path for path, _ in left_out}
    reason = "no unlearned model here is of its base and data"
    return Recognised(groups, (*left_out, *((log.path, reason) for log in placed if log.path not in explained)))


def _placed(path: Path, root: Path) -> _PlacedLog | None:
    # With the folder that was given, whose own name may be the one that says it.
    folders = path.relative_to(root.parent if root.name else root).parts[:-1]
    if reader_of(path) == "muse":
        return _of_muse(path, folders)
    if reader_of(path) == "tofu":
        return _of_tofu(path, folders)
    # The innermost folder that says it: an outer one may be of another run.
    for depth in range(len(folders) - 1, -1, -1):
        matched = _TASK.match(folders[depth])
        if matched is not None:
            return _of_task(path, matched.groupdict(), folders[depth + 1 :])
    return _of_config(path)


def _of_task(path: Path, task: Mapping[str, str | None], below: Sequence[str]) -> _PlacedLog:
    step = next((int(m[1]) for part in below if (m := _CHECKPOINT.match(part))), -1)
    forget_asked = next((m[1] for part in below if (m := _EVALS.match(part))), "")
    at = f", checkpoint {step}" if step >= 0 else ""
    model = f"{task['kind']} {task['model']}"
    if task["corpus"]:
        role = {"target": "target", "retrain": "retrained"}.get(task["role"] or "", "unlearned")
        name = f"{task['role'] or task['other']}{at}"
        return _PlacedLog(path, f"{model} {task['corpus']}", role, name, "forget", checkpoint=step)
    if task["full"]:
        return _PlacedLog(path, model, "target", f"full{at}", forget_asked, checkpoint=step)
    if task["retain"]:
        training = " (fine-tuned here)" if "finetune" in path.parts else ""
        name = f"retain{task['retain']}{training}"
        return _PlacedLog(path, model, "retrained", name, forget_asked, int(task["retain"]), step)
    return _PlacedLog(path, model, "unlearned", f"{task['method']}{at}", str(task["forget"]), checkpoint=step)


def _of_tofu(path: Path, folders: Sequence[str]) -> _PlacedLog | None:
    tuned = next((m for part in folders if (m := _TUNED.match(part))), None)
    if tuned is None:
        return None
    family, retain = f"tofu {tuned['model'] or tuned['base']}", tuned["retain"] or tuned["only"]
    step = next((int(m[1]) for part in folders if (m := _CHECKPOINT.match(part))), -1)
    forgot = next((m for part in folders if (m := _FORGOT.match(part))), None)
    if forgot is not None:
        return _PlacedLog(path, family, "unlearned", forgot["method"], forgot["forget"], checkpoint=step)
    return _PlacedLog(
        path, family, "retrained" if retain else "target", tuned[0], retain=int(retain or 0), checkpoint=step
    )


def _of_config(path: Path) -> _PlacedLog | None:
    """An unlearned model of any name, by what OpenUnlearning was asked for, as Hydra put it down."""
    for folder in list(path.parents)[:4]:
        file = folder / ".hydra" / "config.yaml"
        if not file.is_file():
            continue
        try:
            config = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
            return None
        start = Path(_text(config, "model", "model_args", "pretrained_model_name_or_path")).name
        forget, began = _text(config, "forget_split"), _TASK.match(start)
        if began is None or began["full"] is None or not re.fullmatch(r"forget\d+", forget):
            return None
        below = path.relative_to(folder).parts[:-1]
        task = {**began.groupdict(), "full": None, "forget": forget, "method": folder.name}
        return _of_task(path, task, below)
    return None


def _text(config: Any, *keys: str) -> str:
    for key in keys:
        config = config.get(key) if isinstance(config, dict) else None
    return config if isinstance(config, str) else ""


def _of_muse(path: Path, folders: Sequence[str]) -> _PlacedLog | None:
    if "out" not in folders:
        return None
    corpus, *rest = folders[folders.index("out") + 1 :]
    rest = rest[:-1] if path.name == "history.json" else rest
    # MUSE's growing and its successive forget sets, of which its one retrained model is no control.
    if not rest or rest[0] in ("scal", "sust"):
        return None
    role = {"target": "target", "retrain": "retrained"}.get(rest[0], "unlearned")
    return _PlacedLog(path, f"muse {CORPORA.get(corpus, corpus)}", role, "/".join(rest), "forget")


def _one_each(placed: Sequence[_PlacedLog], left_out: list[tuple[Path, str]]) -> list[_PlacedLog]:
    """Of the checkpoints of one control the last, and of two logs of one name the first."""
    last: dict[tuple[str, str], int] = {}
    for log in placed:
        if log.role == "retrained":
            key = log.family, log.name
            last[key] = max(last.get(key, -1), log.checkpoint)
    single: dict[tuple[object, ...], _PlacedLog] = {}
    for log in placed:
        # The memories of one model of MUSE lie in several files.
        of_muse = log.family.startswith("muse ") and log.path.name != "MUSE_EVAL.json"
        same = (log.family, log.role, log.name, log.forget, log.path if of_muse else log.path.name)
        if log.role == "retrained" and log.checkpoint < last[log.family, log.name]:
            left_out.append((log.path, "an earlier checkpoint of a control, which is no further training"))
        elif single.setdefault(same, log) is not log:
            left_out.append((log.path, "another log of a model of this name"))
    return list(single.values())


def _groups(placed: Sequence[_PlacedLog], left_out: list[tuple[Path, str]]) -> Iterator[LogGroup]:
    subjects: dict[tuple[str, str], list[_PlacedLog]] = {}
    for log in placed:
        if log.role == "unlearned":
            subjects.setdefault((log.family, log.forget), []).append(log)
    for (family, forget), unlearned in subjects.items():
        same = [log for log in placed if log.family == family]
        targets = [log for log in same if log.role == "target"]
        # A target that was asked about another forget set says nothing of this one.
        targets = [t for t in targets if t.forget == forget] or [t for t in targets if not t.forget]
        controls = [log for log in same if log.role == "retrained" and _never_saw(log, forget)]
        if targets and controls:
            # Of several targets that from which the unlearned models started: they lie below it.
            start = max(targets, key=lambda log: len(commonpath([log.path, unlearned[0].path]))).name
            members = (*(log for log in targets if log.name == start), *controls, *sorted(unlearned, key=_order))
            logs = tuple(GivenLog(log.role, log.name, log.path) for log in members)
            yield LogGroup(family if forget == "forget" else f"{family} {forget}", logs)
            continue
        missing = "no model that never saw its forget set" if targets else f"no target asked {one_line(forget)}"
        left_out += [(log.path, f"{missing} is here") for log in unlearned]


def _never_saw(control: _PlacedLog, forget: str) -> bool:
    share = re.fullmatch(r"forget(\d+)", forget)
    # retain90 never saw 10 %, which hold the 1 % and 5 % of forget01 and forget05.
    return share is None or 100 - control.retain >= int(share[1])


def _order(log: _PlacedLog) -> tuple[str, int]:
    """By name and, of one model, by checkpoint as a number: 90 before 100."""
    return re.sub(r", checkpoint \d+$", "", log.name), log.checkpoint
