"""Controls from public logs: models that never knew, trained and asked by others, for who cannot retrain one.

`bank.toml` says which: repository, commit, digest of each log, base model, recipe, and which forget sets it never saw.
The logs are not in the package; `bank:tofu/llama-3.2-3b/forget01:FOLDER` reads them from a clone of the repository,
and a file of another digest is refused. They fit a model of the same base and data only.
"""

import tomllib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from vestige.core.errors import InputError
from vestige.core.ids import file_digest
from vestige.core.text import closest, one_line
from vestige.logs.log import GivenLog


class Banked(NamedTuple):
    """One control: where its log lies in the repository, and which `forget` sets the model never saw."""

    base: str
    name: str
    laboratory: str
    repository: str
    commit: str
    licence: str
    recipe: str
    path: str
    digest: str
    forget: tuple[str, ...]


@cache
def bank() -> tuple[Banked, ...]:
    """All controls of the bank."""
    stored = tomllib.loads(resources.files("vestige.logs").joinpath("bank.toml").read_text(encoding="utf-8"))
    return tuple(
        Banked(
            **{key: source[key] for key in ("laboratory", "repository", "commit", "licence")},
            **{**log, "forget": tuple(log["forget"])},
        )
        for source in stored["source"]
        for log in source["logs"]
    )


def keys() -> dict[str, list[Banked]]:
    """The controls by base model and forget set, as in `tofu/llama-3.2-3b/forget01`."""
    by_key: dict[str, list[Banked]] = {}
    for control in bank():
        for forget in control.forget:
            by_key.setdefault(f"tofu/{control.base}/{forget}", []).append(control)
    return dict(sorted(by_key.items()))


def controls(address: str, group: str) -> tuple[GivenLog, ...]:
    """The controls of `bank:KEY:FOLDER` in the folder, for the forget set and base model of a group of logs."""
    kind, _, rest = address.partition(":")
    key, _, folder = rest.partition(":")
    if kind != "bank" or not folder:
        raise InputError(f"{one_line(address, width=200)!r} is no bank; write bank:tofu/llama-3.2-3b/forget01:FOLDER")
    if key not in keys():
        raise InputError(f"the bank has no controls {one_line(key, width=80)!r}; {closest(key, list(keys()))}")
    # Before the files are looked for: of another base they would be of no use.
    _refuse_another(key, group)
    present = [control for control in keys()[key] if (Path(folder) / control.path).is_file()]
    if not present:
        first = keys()[key][0]
        raise InputError(
            f"{one_line(folder, width=200)} has no log of {key}; clone https://github.com/{first.repository}, check "
            f"out {first.commit[:12]}, and give its folder"
        )
    for control in present:
        if file_digest(Path(folder) / control.path) != control.digest:
            raise InputError(
                f"{one_line(str(Path(folder) / control.path), width=300)} is not the log that the bank names; check "
                f"out {control.repository} at {control.commit[:12]}"
            )
    return tuple(
        GivenLog("retrained", f"bank {control.name}", Path(folder) / control.path, laboratory=control.laboratory)
        for control in present
    )


def _refuse_another(key: str, group: str) -> None:
    """A group that folders name says its base and forget set; another's controls are refused."""
    if not group.startswith("tofu "):
        return
    _, base, forget = key.split("/")
    words = group.lower().split()
    # Folders write Llama-3.2-3B-Instruct where the bank has llama-3.2-3b.
    if forget != words[-1] or not words[1].startswith(base):
        raise InputError(f"the controls {key} do not fit {one_line(group, width=80)}; give those of its base and data")
