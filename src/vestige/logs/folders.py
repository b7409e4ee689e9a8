"""The model of a log, from a roles file, the tool's stored settings, or the names of its folders.

A roles file comes first (`vestige.logs.folders`). Then the settings of OpenUnlearning, `.hydra/config.yaml`: in an
evaluation the path of the model is the model itself, in a training it is the start. Then names:

- OpenUnlearning: `eval/tofu_MODEL_full/evals_forget01`, `eval/tofu_MODEL_retain99`, `finetune/tofu_MODEL_retain99`,
  `unlearn/tofu_MODEL_forget01_METHOD`, with or without checkpoints, and the same with `muse_MODEL_CORPUS_target`. On
  the hub `unlearn_tofu_MODEL_forget10_METHOD`, with a change of the model behind `__`.
- MUSE: `MEMORY/out/CORPUS/MODEL/...`, in forks `MODEL/knowmem_f/log.json`.
- TOFU: `ft_epoch5_lr1e-05_MODEL_full_wd0.01`, the same with `retain99`, `retain99_MODEL_wd0.01`, and below the folder
  of its start `METHOD_1e-05_forget01_5`.
- Folders named `target` or `full`, and `retrain` or `retrained`, next to other folders.

`ft_retain90` means the full model in one repository and a control in others, so that a name of this kind decides
nothing. A model trained without 10 % of TOFU never saw the 1 % and 5 % either, so it is also a control for these sets.
Among the checkpoints of one training the last is a control, since the others are not separate trainings.

A roles file assigns logs to models: a CSV file with the columns pattern, role, name and forget set.

A pattern is a path below the folder, in which `*` represents anything. It takes a file, or all below a folder. The
first line that fits a file holds. `role` is target, retrained, unlearned, placebo, or skip. A file that holds several
models has a line for each, whose name is the model's in the file.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from os.path import commonpath
from pathlib import Path
from typing import Any, NamedTuple

from vestige.core.errors import InputError
from vestige.core.files import read_bytes
from vestige.core.text import Record, TextTuple, closest, grouped, one_line
from vestige.data.tables import DELIMITERS, separated
from vestige.logs import BESIDE, log_files, reader_of, why_unread
from vestige.logs.log import GivenLog
from vestige.logs.open_unlearning import settings_beside, settings_in, settings_within

ROLES_FILE = "roles.csv"
ROLES = ("target", "retrained", "unlearned", "placebo", "skip")


class RoleLine(NamedTuple):
    """One line of a roles file."""

    pattern: str
    role: str
    name: str = ""
    forget: str = ""
    base: str = ""


def read_roles(path: Path) -> tuple[RoleLine, ...]:
    """The lines of a roles file.

    Raises:
        InputError: The file lacks a column, or a line names no role.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "roles.csv"
        >>> _ = file.write_text("pattern,role,name\\neval/full*,target,full\\n")
        >>> read_roles(file)
        (RoleLine(pattern='eval/full*', role='target', name='full', forget='', base=''),)
    """
    try:
        rows = list(separated(str(path), read_bytes(path, most=2**24), DELIMITERS))
    except OSError as error:
        raise InputError(f"{path}: cannot be read. Give a CSV file in UTF-8.") from error
    lines = []
    names = rows[0][1] if rows else []
    # "forget set" is the column forget.
    columns = [name.strip().lower().replace("_", " ").removesuffix(" set") for name in names]
    for name, column in zip(names, columns, strict=True):
        if column not in RoleLine._fields:
            hint = closest(name, list(RoleLine._fields))
            raise InputError(f"{path}: a roles file has no column {one_line(name)!r}. {hint}")
    for number, cells in rows[1:]:
        if len(cells) > len(columns):
            raise InputError(f"{path}, line {number}: has more cells than the header. Quote a cell with a separator.")
        # A leading apostrophe keeps a cell from being a formula.
        values = {column: cell.strip().removeprefix("'") for column, cell in zip(columns, cells, strict=False)}
        if not values.get("pattern"):
            raise InputError(
                f"{path}, line {number}: has no pattern. Give a path below the folder, such as eval/full*."
            )
        role = values.get("role", "").lower()
        if role not in ROLES:
            raise InputError(f"{path}, line {number}: {one_line(role)!r} is not a role. {closest(role, list(ROLES))}")
        # Windows paths have backslashes.
        lines.append(RoleLine(**values | {"role": role, "pattern": values["pattern"].replace("\\", "/")}))
    if not lines:
        raise InputError(f"{path}: holds no lines. Write one for each model: pattern,role,name,forget set.")
    return tuple(lines)


def named_by(lines: Sequence[RoleLine], path: Path, root: Path) -> tuple[RoleLine, ...]:
    """Return the lines that match a file: the first match, and other lines with its pattern."""
    place = path.relative_to(root).as_posix()
    fitting = [line.pattern for line in lines if _fits(line.pattern, place)]
    return tuple(line for line in lines if line.pattern in fitting[:1])


def _fits(pattern: str, place: str) -> bool:
    pattern = pattern.removeprefix("./").rstrip("/")
    return fnmatchcase(place, pattern) or fnmatchcase(place, f"{pattern}/*")


_TASK = re.compile(
    r"(?:.*unlearn_)?(?P<kind>tofu|muse)_(?P<model>.+?)_"
    r"(?:(?P<full>full)|(?P<unclear>ft_retain\d+.*)|retain(?P<retain>\d+)|(?P<forget>forget\d+)_(?P<method>.+?)"
    r"|(?P<corpus>News|Books)_(?:(?P<role>target|retrain)|(?P<other>.+?)))(?:__(?P<change>.+))?$"
)
_TUNED = re.compile(
    r"(?:ft_epoch\d+_lr[^_]+_(?P<model>[^_]+)_(?:full|retain(?P<retain>\d+))|retain(?P<only>\d+)_(?P<base>[^_]+))_wd[\d.]+$"
)
_FORGOT = re.compile(r"(?P<method>.+)_(?P<forget>forget\d+)_\d+$")
_EVALS = re.compile(r"evals_(forget\d+)$")
_CHECKPOINT = re.compile(r"checkpoint-(\d+)$")
_MEMORY = re.compile(r"(?:knowmem|verbmem)_[fr]$")
_SEED = re.compile(r"[-_](?:s|seed)[-_]?\d+$")
CORPORA = {"bbc": "News", "hp": "Books"}
_PLAIN_ROLES = {
    **dict.fromkeys(("target", "full", "trained_full", "finetuned"), "target"),
    **dict.fromkeys(("retrain", "retrained", "exact_retrain", "never_knew"), "retrained"),
}
"""Names of folders that say the role of a model by themselves."""
_UNCLEAR = ("base", "original", "untouched", "pretrained", "sham", "reference", "retain", "teacher", "student")
"""Names with them that may be anything."""
_BELOW_MODEL = re.compile(r"evals?(?:_.*)?$|checkpoint-\d+$|knowmem_[fr]$|verbmem_[fr]$")
"""Subfolders of a model's folder."""


class LogGroup(NamedTuple):
    """The logs that are judged together: of one base model and one forget set, which `name` gives."""

    name: str
    logs: tuple[GivenLog, ...]


Unused = tuple[Path, str]
"""A file that is left out, and the reason."""


class Recognised(NamedTuple):
    """The content of folders: the groups to judge, and the reasons that other files are left out."""

    groups: tuple[LogGroup, ...]
    left_out: tuple[Unused, ...]


class _PlacedLog(NamedTuple):
    """One log and its model: the base model or corpus, and the model's role.

    `retain` is the share in per cent of a control's training data, `forget` the evaluated or forgotten set.
    """

    path: Path
    family: str
    role: str
    name: str
    forget: str = ""
    retain: int = 0
    checkpoint: int = -1


class _Unplaced(NamedTuple):
    """Why it is not known whose a log is."""

    why: str


UNCLEAR = "its name may mean the full model or one fine-tuned on the retain set, so name its role (roles.csv)"
"""Why a log that may be a control's is not used."""

NO_TARGET = "no target asked"
"""The beginning of the reason why logs of unlearned models are left out."""

NO_UNLEARNED = "no unlearned model of its base and data is here"
"""The beginning of the reason why logs of targets and controls are left out."""

_NOTHING = _Unplaced("its path names no role, so name it (roles.csv)")


def recognise(
    folders: Sequence[Path],
    roles: Path | None = None,
    forget: str = "",
    *,
    without_controls: bool = False,
    without_target: bool = False,
    score: str = "",
) -> Recognised:
    """The groups of logs in these folders, which may hold each other's controls.

    Args:
        folders: The folders. Links in them are followed.
        roles: A roles file for all folders. Otherwise, each folder's own roles.csv is read.
        forget: The forget set to judge. Empty selects all.
        without_controls: Leave the controls out of all groups.
        without_target: The target is from elsewhere, so groups without one are kept.
        score: The column of scores in files of rows, where the user names it.

    Returns:
        The groups, and every file that may be a log and is in none, with the reason.

    Raises:
        InputError: No group has the named forget set, or a line of the roles file names no file.
    """
    placed: list[_PlacedLog] = []
    left_out: list[Unused] = []
    common = read_roles(roles) if roles is not None else ()
    written = list(common)
    used: set[RoleLine] = set()
    for folder in folders:
        own = folder / ROLES_FILE
        lines = common
        if not common and own.is_file():
            lines = read_roles(own)
            written += lines
        seen: set[Path] = set()
        for path in log_files(folder):
            # Several links may lead to the same file.
            if path in (own, roles) or path.resolve() in seen:
                continue
            seen.add(path.resolve())
            if not reader_of(path, score):
                why = why_unread(path)
                if why != BESIDE:
                    left_out.append((path, why))
                continue
            matching = named_by(lines, path, folder)
            used |= set(matching)
            if matching:
                placed += _of_lines(path, folder, matching)
                continue
            log = _placed(path, folder)
            if isinstance(log, _Unplaced):
                left_out.append((path, log.why))
            else:
                placed.append(log)
        placed += _plainly_named(folder, left_out)
    unused = next((line for line in written if line not in used and line.role != "skip"), None)
    if unused is not None:
        fits = "no log"
        for path, why in left_out:
            root = next(folder for folder in folders if path.is_relative_to(folder))
            if named_by([unused], path, root):
                fits = f"no log that can be read ({one_line(path.name, width=60)}: {why})"
        raise InputError(
            f"{roles or ROLES_FILE}: the pattern {one_line(unused.pattern, width=80)!r} fits {fits}. Correct it, or "
            "take the line out."
        )
    placed = _without_early(placed, left_out)
    elsewhere = {
        "retrained": "controls are predicted" if without_controls else "",
        "target": "the target is from elsewhere" if without_target else "",
    }
    left_out += [(log.path, why) for log in placed if (why := elsewhere.get(log.role, ""))]
    placed = [log for log in placed if not elsewhere.get(log.role)]
    groups = tuple(_groups(placed, left_out, without_target=without_target))
    explained = {log.path for group in groups for log in group.logs} | {path for path, _ in left_out}
    further = [(log.path, _unused(log, placed)) for log in placed if log.path not in explained]
    if forget:
        groups = _selected(groups, forget)
    return Recognised(groups, (*left_out, *further))


def _unused(log: _PlacedLog, placed: Sequence[_PlacedLog]) -> str:
    if any(other.role == "unlearned" and other.family == log.family for other in placed):
        if log.role == "retrained":
            return "it saw a part of the forget set, so it is no control of the unlearned models here"
        return "another target is used, so give it another role (roles.csv)"
    return f"{NO_UNLEARNED} ({log.role})"


def _selected(groups: Sequence[LogGroup], forget: str) -> tuple[LogGroup, ...]:
    """Return the groups of one forget set, by its name or the group's."""
    found = tuple(group for group in groups if forget in (group.name, group.name.rpartition(" ")[2]))
    if groups and not found:
        names = list(dict.fromkeys(group.name.rpartition(" ")[2] for group in groups))
        raise InputError(f"no logs are of the forget set {one_line(forget, width=80)!r}. {closest(forget, names)}")
    return found


def _of_lines(path: Path, root: Path, lines: Sequence[RoleLine]) -> Iterator[_PlacedLog]:
    """The log as the lines of a roles file name it. A file with several models has a line for each."""
    for line in lines:
        if line.role == "skip":
            return
        # The innermost folder with a task, since an outer one may belong to another run.
        task = _innermost(_folders_of(path, root))[0]
        family = line.base or (f"{task['kind']} {task['model']}" if task else "")
        name = line.name or "/".join(_model_folders(path, root)) or path.stem
        retain = 0
        if line.role == "retrained" and task and task["retain"]:
            retain = int(task["retain"])
        yield _PlacedLog(path, family, line.role, name, line.forget, retain)


def _model_folders(path: Path, root: Path) -> list[str]:
    """Return the folders of a file up to its model's."""
    folders = list(path.relative_to(root).parts[:-1])
    while folders and re.fullmatch(r"evals?(?:_.*)?", folders[-1]):
        folders.pop()
    return folders


def _folders_of(path: Path, root: Path) -> TextTuple:
    # The given folder is included, whose own name may decide.
    return path.relative_to(root.parent if root.name else root).parts[:-1]


def _placed(path: Path, root: Path) -> _PlacedLog | _Unplaced:
    folders = _folders_of(path, root)
    reader = reader_of(path)
    if reader == "muse":
        return _of_muse(path, folders) or _NOTHING
    if reader == "tofu":
        return _of_tofu(path, folders) or _NOTHING
    by_settings = _of_settings(path, root)
    if by_settings is not None:
        return by_settings
    task, below = _innermost(folders)
    if task is None:
        return _NOTHING
    return _of_task(path, task, below)


_MUSE_ROLES = {"target": "target", "retrain": "retrained"}


def _step(parts: Sequence[str]) -> int:
    """The number of the checkpoint that a folder names, -1 without one."""
    return next((int(m[1]) for part in parts if (m := _CHECKPOINT.match(part))), -1)


def _of_task(
    path: Path, task: Mapping[str, str | None], below: Sequence[str], *, asked: str = ""
) -> _PlacedLog | _Unplaced:
    step = _step(below)
    forget_asked = next((m[1] for part in below if (m := _EVALS.match(part))), asked)
    at = f", checkpoint {step}" if step >= 0 else ""
    model = f"{task['kind']} {task['model']}"
    change = "" if task["change"] in (None, "none") else f" {task['change']}"
    if task["unclear"]:
        return _Unplaced(UNCLEAR)
    if task["corpus"]:
        role = _MUSE_ROLES.get(task["role"] or "", "unlearned")
        name = f"{task['role'] or task['other']}{change}{at}"
        return _PlacedLog(path, f"{model} {task['corpus']}", role, name, "forget", checkpoint=step)
    if task["method"]:
        name = f"{task['method']}{change}{at}"
        return _PlacedLog(path, model, "unlearned", name, str(task["forget"]), checkpoint=step)
    if change:
        return _Unplaced("a changed target or control; name it in a roles file (roles.csv) or with its role")
    if task["full"]:
        return _PlacedLog(path, model, "target", f"full{at}", forget_asked, checkpoint=step)
    training = " (fine-tuned here)" if "finetune" in path.parts else ""
    name = f"retain{task['retain']}{training}"
    return _PlacedLog(path, model, "retrained", name, forget_asked, int(task["retain"] or 0), step)


def _of_tofu(path: Path, folders: Sequence[str]) -> _PlacedLog | None:
    tuned = next((m for part in folders if (m := _TUNED.match(part))), None)
    if tuned is None:
        return None
    family, retain = f"tofu {tuned['model'] or tuned['base']}", tuned["retain"] or tuned["only"]
    step = _step(folders)
    forgot = next((m for part in folders if (m := _FORGOT.match(part))), None)
    if forgot is not None:
        return _PlacedLog(path, family, "unlearned", forgot["method"], forgot["forget"], checkpoint=step)
    role = "retrained" if retain else "target"
    return _PlacedLog(path, family, role, tuned[0], retain=int(retain or 0), checkpoint=step)


def _of_settings(path: Path, root: Path) -> _PlacedLog | _Unplaced | None:
    """Return the model by OpenUnlearning's configuration, as written by Hydra. None without a configuration."""
    file = settings_beside(path)
    if file is None or not file.is_relative_to(root):
        return None
    settings = settings_in(file)
    if not isinstance(settings, dict):
        return _Unplaced("its settings (.hydra/config.yaml) cannot be read; name it in a roles file (roles.csv)")
    return _as_set(path, file.parents[1], root, settings)


def _as_set(path: Path, folder: Path, root: Path, settings: Record) -> _PlacedLog | _Unplaced | None:
    mode = _text(settings, "mode")
    model_path = _text(settings, "model", "model_args", "pretrained_model_name_or_path")
    forget = _text(settings, "forget_split")
    below = path.relative_to(folder).parts[:-1]
    named = _TASK.match(folder.name)
    model, step = _innermost(Path(model_path).parts)
    adapter = _path_in(settings, _ADAPTER)
    if adapter:
        # The adapter determines the model, whatever its base.
        model, step = _innermost(Path(adapter).parts)
        model_path = f"{adapter} on {model_path}"
    if model is not None and _path_in(settings, _CHANGE):
        model = {**model, "change": "quantized"}
    if mode == "eval":
        if _path_in(settings, _SECOND):
            # A mixture of two models is neither of them.
            family = _family(model, settings)
            if family:
                return _PlacedLog(path, family, "unlearned", folder.name, forget or "forget")
            return None
        if model is not None:
            return _of_task(path, model, (*step, *below), asked=forget)
        return _Unplaced(
            f"its settings say that {one_line(model_path, width=60) or 'a model'} was evaluated, which does not say "
            "its role; name it in a roles file (roles.csv)"
        )
    if mode in ("train", "finetune"):
        trained_on = re.fullmatch(r"full|retain(\d+)", _trained_on(settings))
        family = _family(named.groupdict() if named else model, settings)
        if not (family and trained_on):
            return None
        role = "retrained" if trained_on[1] else "target"
        name = f"{trained_on[0]} (fine-tuned here)"
        return _PlacedLog(path, family, role, name, retain=int(trained_on[1] or 0), checkpoint=_step(below))
    # In unlearning, a task in the folder's name gives base, forget set and method.
    if named is not None or not re.fullmatch(r"forget\d+", forget):
        return None
    if mode == "unlearn" or (model is not None and model["full"]):
        family = _family(model, settings)
        if family:
            kind, _, base = family.partition(" ")
            task = dict.fromkeys(_TASK.groupindex) | {"kind": kind, "model": base, "forget": forget}
            return _of_task(path, task | {"method": folder.name}, below)
    return None


def _innermost(parts: Sequence[str]) -> tuple[dict[str, str | None] | None, Sequence[str]]:
    """The task that the innermost of these folders names, and the folders below it."""
    for depth in range(len(parts) - 1, -1, -1):
        matched = _TASK.match(parts[depth])
        if matched is not None:
            return matched.groupdict(), parts[depth + 1 :]
    return None, ()


_SECOND = re.compile(r"(?!pretrained).*model_name_or_path$")
_ADAPTER = re.compile(r".*(adapter|peft|lora).*(path|id|dir)$|(adapter|peft|lora)$")
_CHANGE = re.compile(r"load_in_[48]bit$|quant_method$|gguf_file$")
"""Keys of settings: of another model that took part in the replies, of an adapter, of a change of the weights."""


def _path_in(settings: Record, key: re.Pattern[str]) -> str:
    """Return the value of the first such key about the model, or ""."""
    of_model = {}
    for name, value in settings.items():
        if isinstance(value, str) or name in ("model", "generation", "generation_args"):
            of_model[name] = value
    for name, value in settings_within(of_model, skip="tokenizer_args"):
        if value and not isinstance(value, dict) and key.match(str(name)):
            return str(value)
    return ""


def _family(task: Mapping[str, str | None] | None, settings: Record) -> str:
    """The data and the base model, by the task or otherwise by the tokeniser."""
    if task is not None:
        return f"{task['kind']} {task['model']}"
    tokenizer = Path(_text(settings, "model", "tokenizer_args", "pretrained_model_name_or_path")).name
    if tokenizer and "tofu" in str(settings.get("eval", "tofu")):
        return f"tofu {tokenizer}"
    return ""


def _trained_on(settings: Record) -> str:
    """Return the part of TOFU in a training's data, "" if the settings lack it."""
    data = settings.get("data")
    train = data.get("train") if isinstance(data, dict) else None
    for one in train.values() if isinstance(train, dict) else ():
        name = _text(one, "args", "hf_args", "name")
        if name:
            return name
    return ""


def _text(config: Any, *keys: str) -> str:
    for key in keys:
        config = config.get(key) if isinstance(config, dict) else None
    if isinstance(config, str):
        return config
    return ""


def _of_muse(path: Path, folders: Sequence[str]) -> _PlacedLog | _Unplaced | None:
    if "out" in folders:
        corpus, *rest = folders[folders.index("out") + 1 :]
        if rest and (rest[-1] in ("forget", "retain") or _MEMORY.match(rest[-1])):
            rest = rest[:-1]
        # These are MUSE's scaling and sustainability forget sets, for which its one retrained model is not a control.
        if not rest or rest[0] in ("scal", "sust"):
            return None
        role = _MUSE_ROLES.get(rest[0], "unlearned")
        return _PlacedLog(path, f"muse {CORPORA.get(corpus, corpus)}", role, "/".join(rest), "forget")
    if len(folders) > 1 and _MEMORY.match(folders[-1]) and (role := _plain_role(folders[-2])):
        return _PlacedLog(path, "muse", role, folders[-2], "forget")
    task, below = _innermost(folders)
    if task is not None and task["corpus"]:
        return _of_task(path, task, below)
    return None


def _plainly_named(root: Path, left_out: list[Unused]) -> list[_PlacedLog]:
    """Return the logs in adjacent folders if one is named as the target, and one as retrained."""
    by_parent: dict[Path, dict[str, list[Path]]] = {}
    for path in (path for path, why in left_out if why == _NOTHING.why):
        folder = path.parent
        while folder != root and root in folder.parents and _BELOW_MODEL.match(folder.name):
            folder = folder.parent
        by_parent.setdefault(folder.parent, {}).setdefault(folder.name, []).append(path)
    found: list[_PlacedLog] = []
    for parent, models in by_parent.items():
        roles = {name: _plain_role(name) for name in models}
        if not {"target", "retrained", "unlearned"} <= set(roles.values()):
            continue
        for name, paths in models.items():
            if roles[name]:
                found += [_PlacedLog(path, parent.name, roles[name], name, "forget") for path in paths]
    taken = {log.path for log in found}
    left_out[:] = [(path, why) for path, why in left_out if path not in taken]
    return found


def _plain_role(name: str) -> str:
    """Return the role in a folder's name, "" if it is ambiguous."""
    word = _SEED.sub("", name.lower())
    if word in _PLAIN_ROLES:
        return _PLAIN_ROLES[word]
    if any(unclear in word for unclear in _UNCLEAR):
        return ""
    return "unlearned"


def _without_early(placed: Sequence[_PlacedLog], left_out: list[Unused]) -> list[_PlacedLog]:
    """The logs without earlier checkpoints of a control. Several logs of one model all stay."""
    last: dict[tuple[str, str], int] = {}
    for log in placed:
        if log.role == "retrained":
            key = log.family, log.name
            last[key] = max(last.get(key, -1), log.checkpoint)
    kept = []
    for log in placed:
        if log.role == "retrained" and log.checkpoint < last[log.family, log.name]:
            left_out.append((log.path, "an earlier checkpoint of a control, which is no further training"))
        else:
            kept.append(log)
    return kept


def _groups(placed: Sequence[_PlacedLog], left_out: list[Unused], *, without_target: bool) -> Iterator[LogGroup]:
    subjects = [log for log in placed if log.role == "unlearned"]
    for (family, forget), unlearned in grouped(subjects, lambda log: (log.family, log.forget)).items():
        same = [log for log in placed if log.family in (family, "") or not family]
        targets = [log for log in same if log.role == "target"]
        # A target with scores of another forget set does not apply here.
        targets = [t for t in targets if t.forget == forget] + [t for t in targets if not t.forget]
        controls = [log for log in same if log.role == "retrained" and _never_saw(log, forget)]
        placebos = [log for log in same if log.role == "placebo"]
        if targets or without_target:
            if targets:
                # Among several targets, the one that the unlearned models started from: they are below it.
                start = max(targets, key=lambda log: len(commonpath([log.path, unlearned[0].path])))
                start_name = start.name.partition("@")[0]
                targets = [log for log in targets if log.name.partition("@")[0] == start_name]
                targets = _without_second_look(targets, left_out)
            members = (*targets, *controls, *placebos, *sorted(unlearned, key=_order))
            logs = []
            for log in members:
                model, _, attack = log.name.partition("@")
                logs.append(GivenLog(log.role, model, log.path, attack, key=log.name))
            name = f"{family} {forget}".removesuffix(" forget").strip()
            yield LogGroup(name or "the forget set", tuple(logs))
            continue
        left_out += [(log.path, f"{NO_TARGET} {one_line(forget)} is here") for log in unlearned]


def _without_second_look(targets: Sequence[_PlacedLog], left_out: list[Unused]) -> list[_PlacedLog]:
    """Return the target's logs without copies of its evaluations under another folder's name."""
    own = {log.path.name for log in targets if _innermost(log.path.parts)[0]}
    kept = []
    for log in targets:
        if log.path.name in own and not _innermost(log.path.parts)[0]:
            left_out.append((log.path, "the target was evaluated again; the log in its own folder is used"))
        else:
            kept.append(log)
    return kept


def _never_saw(control: _PlacedLog, forget: str) -> bool:
    share = re.fullmatch(r"forget(\d+)", forget)
    # retain90 was trained without 10 %, which contain the 1 % and 5 % of forget01 and forget05. A role from the user
    # takes priority.
    return share is None or not control.retain or 100 - control.retain >= int(share[1])


def _order(log: _PlacedLog) -> tuple[str, int]:
    """Return the sort key: name, then checkpoint as a number: 90 before 100."""
    return re.sub(r", checkpoint \d+$", "", log.name), log.checkpoint
