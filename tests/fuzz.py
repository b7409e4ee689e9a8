"""Seeded mutations of files, for tests that no damaged file ends in anything but a sentence."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ODD: tuple[Any, ...] = (None, True, -1, 0, 10**9, 1.5, "x", "", [], {}, [1], {"a": 1}, "../..", "\0", "\ud800")


def damaged_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    """The content cut short, with bytes changed, put in or left out, or of nothing at all."""
    kind = int(rng.integers(5))
    if kind == 0 or not content:
        return b""
    at = int(rng.integers(len(content)))
    some = rng.bytes(int(rng.integers(1, 9)))
    return (
        content[:at],
        content[:at] + some + content[at + len(some) :],
        content[:at] + some + content[at:],
        content[:at] + content[at + len(some) :],
    )[kind - 1]


def damaged_json(value: Any, rng: np.random.Generator) -> Any:
    """The value with one part of it, at any depth, left out or of another kind."""
    if isinstance(value, dict | list) and value and rng.random() < 0.9:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = keys[int(rng.integers(len(keys)))]
        changed = value.copy()
        if rng.random() < 0.25:
            del changed[key]
        else:
            changed[key] = damaged_json(value[key], rng)
        return changed
    return ODD[int(rng.integers(len(ODD)))]


def damage(folder: Path, rng: np.random.Generator) -> str:
    """Damage one file in a folder; what was done, to name in a failing test."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = files[int(rng.integers(len(files)))]
    if path.suffix == ".json" and rng.random() < 0.7:
        path.write_text(json.dumps(damaged_json(json.loads(path.read_text()), rng)))
        return f"{path.name}: another value"
    if rng.random() < 0.1:
        path.unlink()
        return f"{path.name}: gone"
    path.write_bytes(damaged_bytes(path.read_bytes(), rng))
    return f"{path.name}: other bytes"


def each_damaged(whole: Path, scratch: Path, n: int, seed: int, use: Callable[[Path, str], None]) -> None:
    """Hand `n` copies of a folder to `use`, each with a damage of its own, which is told."""
    for number in range(n):
        copy = scratch / "damaged"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(whole, copy)
        use(copy, f"seed {seed}, number {number}, {damage(copy, np.random.default_rng([seed, number]))}")
