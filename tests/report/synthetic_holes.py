"""A small search for holes written with the package's own writers: made-up prompts and scores, hostile answers."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from synthetic_run import HOSTILE

from vestige.artifacts import holes
from vestige.artifacts.layout import ProbeFolder
from vestige.core.files import write_json
from vestige.probes.holes import AT_ANOTHER_SEED, Filtered, FilterSettings, holes_table

TOPICS = ("harbour", "organ", "orchard")
PROVENANCE = {"command": "vestige probe t u", "models": {"target": "models/knows", "unlearned": "cells/npo"}}


def directions(texts: Sequence[str]) -> np.ndarray:
    """A text points to the topic that it names, and a little to a side of its own."""
    topic = np.array([[word in text for word in TOPICS] for text in texts], dtype=float).reshape(len(texts), 3)
    own = np.array([[len(text) % 7, len(text) % 5] for text in texts], dtype=float).reshape(len(texts), 2) / 40
    return np.concatenate([topic, own + 0.01], axis=1)


def asked(
    prompt: str, source: str, target: float | None, unlearned: float | None, *, placebo: float = 9.0, said: str = "no"
) -> holes.Tested:
    """A prompt with fresh scores; the placebo's answer differs from the target's."""
    scores = {AT_ANOTHER_SEED: placebo}
    hole = FilterSettings().is_hole(target, unlearned)
    answers = "It is so.", said
    return holes.Tested(
        prompt, prompt, source, "seed", "", *answers, target, unlearned, {AT_ANOTHER_SEED: "So it is."}, scores, hole
    )


def candidates() -> list[holes.Tested]:
    """Adjacent: 1 hole of 20, and 1 false one. Latent: 12 of 16, hostile ones among them, 1 not judged, 2 dropped."""
    adjacent = [asked(f"Where is harbour {n}?", "adjacent", 9.0, 2.0 if n == 0 else 8.0) for n in range(19)]
    adjacent.append(asked("Where is harbour 19?", "adjacent", 9.0, 8.0, placebo=1.0))
    latent = [
        asked(f"Which {TOPICS[n % 3]} {n}? {said}", "latent", 9.0, 1.0, said=said)
        for n, said in enumerate((*HOSTILE, *"abcdefghijkl")[:12])
    ]
    latent += [asked(f"Which organ of {n}?", "latent", 8.0, 8.0) for n in range(4)]
    latent.append(asked("Which orchard?", "latent", 8.0, None))
    dropped = [holes.Tested(f"d{n}", f"Drop {n}", "latent", "", "not valid") for n in range(2)]
    return [*adjacent, *latent, *dropped]


def write_probe(path: Path, found: Sequence[holes.Tested], *, unlearned: str = "b" * 64) -> Path:
    """A finished search in `path`."""
    folder = ProbeFolder(path)
    filtered = Filtered(tuple(found), {"fresh answers": {"timeout": 1}}, {}, 70, 36)
    table = holes_table(filtered, FilterSettings(), directions, seed=0)
    identity = {"target": "a" * 64, "unlearned": unlearned, "placebos": {}, "judge": {"judge": "grounded"}, "seed": 0}
    write_json(folder.provenance, PROVENANCE)
    holes.write_tested(folder, filtered.tested, table, identity)
    return path
