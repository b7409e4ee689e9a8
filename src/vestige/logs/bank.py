"""Models from public logs: targets, and controls for users who cannot retrain a model.

`bank.toml` lists them: repository, commit, licence, digest of each log, base model, recipe, and forget sets. One table
for each base holds their scores by question, without texts: a question is known by a digest of its text.
`bank:tofu/llama-3.2-3b/forget01` reads the table. They fit a model of the same base and data only.
"""

import json
import lzma
import tomllib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vestige.artifacts.scores import Measurement
from vestige.core.errors import InputError
from vestige.core.files import MOST_READ, open_input
from vestige.core.ids import content_id
from vestige.core.text import Record, TextTuple, closest, one_line
from vestige.logs.log import Beginning, GivenLog, How, Log, LogPart


class Banked(NamedTuple):
    """One model: its log's path, and the `forget` sets that it never saw, or, for a target, answered."""

    base: str
    name: str
    laboratory: str
    repository: str
    commit: str
    licence: str
    copyright: str
    recipe: str
    path: str
    digest: str
    forget: TextTuple
    role: str = "retrained"


@cache
def bank() -> tuple[Banked, ...]:
    """Return all models of the bank."""
    stored = tomllib.loads(resources.files("vestige.logs").joinpath("bank.toml").read_text(encoding="utf-8"))
    return tuple(
        Banked(
            **{key: source[key] for key in ("laboratory", "repository", "commit", "licence", "copyright")},
            **{**log, "forget": tuple(log["forget"])},
        )
        for source in stored["source"]
        for log in source["logs"]
    )


def keys(role: str = "retrained") -> dict[str, list[Banked]]:
    """The models of a role by base model and forget set, as in `tofu/llama-3.2-3b/forget01`."""
    by_key: dict[str, list[Banked]] = {}
    for one in bank():
        if one.role == role:
            for forget in one.forget:
                by_key.setdefault(f"tofu/{one.base}/{forget}", []).append(one)
    return dict(sorted(by_key.items()))


def banked(address: str, group: str, role: str = "retrained") -> tuple[GivenLog, ...]:
    """The models of a role that an address names.

    Args:
        address: `bank:KEY`.
        group: The name of the logs that they are compared with.
        role: `retrained` or `target`.

    Returns:
        The logs.

    Raises:
        InputError: The address names nothing, or another base or forget set.
    """
    kind, _, key = address.partition(":")
    if kind != "bank" or not key:
        raise InputError(f"{one_line(address, width=200)!r} is not a bank. Write bank:tofu/llama-3.2-3b/forget01")
    known = keys(role)
    if key not in known:
        raise InputError(f"the bank has no {role} model {one_line(key, width=80)!r}. {closest(key, list(known))}")
    _refuse_another(key, group)
    models = known[key]
    table = _table(models[0].base)
    return tuple(GivenLog(role, f"bank {m.name}", table, laboratory=m.laboratory, key=m.name) for m in models)


def never_saw(group: str) -> tuple[GivenLog, ...]:
    """The models of all bases, from which the controls of a group of logs are predicted.

    The last word of its name is the forget set, which the models never saw. The targets have the role placebo.

    Raises:
        InputError: The bank has no such forget set.
    """
    # Folders name the base model before the forget set.
    forget = group.rpartition(" ")[2]
    models = [model for model in bank() if forget in model.forget]
    if not models:
        names = sorted({name for model in bank() for name in model.forget})
        raise InputError(
            f"predicted controls exist for TOFU's forget sets {', '.join(names)}, and not for "
            f"{one_line(group, width=80)!r}. Name such a set with --forget, or retrain a model."
        )
    logs = []
    for model in models:
        name = f"bank {model.base} {model.name}"
        role = "placebo" if model.role == "target" else model.role
        logs.append(GivenLog(role, name, _table(model.base), "", model.laboratory, model.name, model.base))
    return tuple(logs)


def _table(base: str) -> Path:
    return Path(str(resources.files("vestige.logs"))) / "bank" / f"tofu-{base}.json.xz"


def text_digest(prompt: str) -> str:
    """The name of a question in tables."""
    return content_id(prompt, length=16)


def holds(start: Beginning) -> bool:
    """Whether a file is a table of this package. No other compressed file is read."""
    return start.path.resolve().parent == _table("").resolve().parent and start.head.startswith(b"\xfd7zXZ")


def read(path: Path, how: How) -> Log:
    """The log of the model `how.key`. Its `prompts` are digests until the texts of other logs take their place."""
    stored = _stored(path)["logs"][how.key]
    columns = [tuple(column) for column in stored["columns"]]
    parts = []
    for row in stored["parts"]:
        texts = columns[row["texts"]]
        otherwise = row.get("otherwise")
        part = LogPart(
            row["split"],
            Measurement(**row["measurement"]),
            np.array(row["scores"], dtype=float),
            ids=columns[row["ids"]],
            prompts=texts,
            questions=("",) * len(texts),
            chance=row.get("chance"),
            otherwise=None if otherwise is None else np.array(otherwise, dtype=float),
        )
        parts.append(part)
    return Log(tuple(parts), stored["prompt"], stored["settings"])


@cache
def _stored(path: Path) -> Record:
    with open_input(path, most=MOST_READ) as file:
        stored: Record = json.loads(lzma.decompress(file.read()))
    return stored


def digest_of(path: Path, key: str) -> str:
    """Return the digest of the log behind a table's model, which identifies copies of the log."""
    return next(one.digest for one in bank() if _table(one.base) == path and one.name == key)


def _refuse_another(key: str, group: str) -> None:
    """Reject another group's controls if the folders' names fix base and forget set."""
    if not group.startswith("tofu "):
        return
    _, base, forget = key.split("/")
    words = group.lower().split()
    # Folders have the spelling Llama-3.2-3B-Instruct, and the bank has llama-3.2-3b.
    if forget != words[-1] or not words[1].startswith(base):
        raise InputError(
            f"the controls {key} do not fit {one_line(group, width=80)}. Give controls with its base and data"
        )
