"""How fast candidates are looked at that would be other tokens once they are text, and whether the same are kept.

    python -m benchmarks.retokenise --peer PYTHON --json [--tokenizer FOLDER] [--width 512] [--tokens 20] [--rounds 6]

PYTHON is that of an environment with nanoGCG and what it pins: `python -m venv ENV; ENV/bin/pip install
nanogcg==0.3.0`. Its `filter_ids` decodes all candidates in one call, and encodes and compares each by itself. Ours
decodes and encodes all at once, each candidate once; in place, with the text of a chat around each, it does more than
the peer, which looks at the prompt alone. Candidates are what a step of GCG draws, by a random gradient, from a prompt
that is kept: 8 such steps a round. CPU time of one thread; the two take turns, and the first round warms up.
Without `--tokenizer` a byte-level BPE tokeniser of 2,048 tokens is trained on the built-in questions.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from benchmarks.peers import nanogcg_filter
from vestige.attacks.placement import (
    admissible,
    around,
    as_ids,
    as_texts,
    kept_in,
    places_of,
    swaps_by_gradient,
    without_repeats,
)
from vestige.data.corpus import factual_items
from vestige.models.prompts import Prompter
from vestige.models.tiny import tiny_tokenizer
from vestige.models.variants import Ids

_QUESTION = "Who signed the contract of sale, and in which city did they sign it?"
_STEPS = 8


def kept_as_text(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Ids]) -> list[bool]:
    """For each prompt whether its text, standing alone, has its tokens."""
    return [ids == prompt for ids, prompt in zip(as_ids(tokenizer, as_texts(tokenizer, prompts)), prompts, strict=True)]


class Filtered(NamedTuple):
    """CPU milliseconds of each step's filter, and what it kept."""

    milliseconds: list[float]
    kept: list[list[Ids]]


def drawn(tokenizer: PreTrainedTokenizerBase, width: int, n_tokens: int, seed: int) -> list[Ids]:
    """What a step of GCG draws, by a random gradient, from a prompt that is the same tokens again as text."""
    rng = np.random.default_rng(seed)
    vocabulary = admissible(tokenizer, len(tokenizer))
    prompt: Ids = ()
    while len(prompt) < n_tokens:
        longer = [(*prompt, int(i)) for i in rng.choice(vocabulary.ids, 32)]
        held = kept_as_text(tokenizer, longer)
        prompt = next((p for p, kept in zip(longer, held, strict=True) if kept), prompt)
    gradient = torch.tensor(rng.standard_normal((n_tokens, len(tokenizer))))
    return swaps_by_gradient(prompt, gradient, vocabulary, width=width, topk=256, replaced=1, rng=rng)


def by_peer(python: Path, tokenizer: PreTrainedTokenizerBase, steps: Sequence[Sequence[Ids]]) -> Filtered:
    """What nanoGCG's filter keeps, and how long it takes, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.json"
        tokenizer.backend_tokenizer.save(str(file))
        done = subprocess.run(
            [python, nanogcg_filter.__file__],
            input=json.dumps({"tokenizer": str(file), "prompts": steps}),
            capture_output=True,
            text=True,
            check=True,
        )
    found = json.loads(done.stdout)
    return Filtered([f["milliseconds"] for f in found], [[tuple(ids) for ids in f["kept"]] for f in found])


def by_ours(keep: Callable[[Sequence[Ids]], list[Ids]], steps: Sequence[Sequence[Ids]]) -> Filtered:
    """What one of our filters keeps, each prompt once, and how long it takes."""
    milliseconds, kept = [], []
    for prompts in steps:
        begun = time.process_time()
        kept.append(keep(without_repeats(prompts)))
        milliseconds.append(1000 * (time.process_time() - begun))
    return Filtered(milliseconds, kept)


def compared(
    python: Path, tokenizer: PreTrainedTokenizerBase, width: int, n_tokens: int, rounds: int
) -> dict[str, object]:
    """Median milliseconds a step of each way, ratios to the peer's a round, and whether the same prompts were kept."""
    places = places_of(tokenizer, [around(Prompter(tokenizer, 4096), _QUESTION, (0,), "suffix")])
    steps = [drawn(tokenizer, width, n_tokens, seed) for seed in range(_STEPS)]

    def alone(prompts: Sequence[Ids]) -> list[Ids]:
        return [p for p, kept in zip(prompts, kept_as_text(tokenizer, prompts), strict=True) if kept]

    peers, ours, placed = [], [], []
    for _ in range(rounds + 1):
        peers.append(by_peer(python, tokenizer, steps))
        ours.append(by_ours(alone, steps))
        placed.append(by_ours(lambda prompts: kept_in(tokenizer, prompts, places), steps))
    same = all(
        own == without_repeats(theirs)
        for one, other in zip(ours, peers, strict=True)
        for own, theirs in zip(one.kept, other.kept, strict=True)
    )
    medians = {
        name: [statistics.median(one.milliseconds) for one in found[1:]]
        for name, found in (("peer", peers), ("ours", ours), ("ours, in place", placed))
    }
    ratios = {
        name: [p / o for p, o in zip(medians["peer"], medians[name], strict=True)]
        for name in ("ours", "ours, in place")
    }
    return {
        "tokens": len(tokenizer),
        "milliseconds": {name: round(statistics.median(own), 2) for name, own in medians.items()},
        "times_as_fast": {n: [round(f(r), 2) for f in (statistics.median, min, max)] for n, r in ratios.items()},
        "same_kept": same,
        "kept_share": round(sum(map(len, peers[0].kept)) / (width * _STEPS), 3),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)
    tokenizer = (
        AutoTokenizer.from_pretrained(asked.tokenizer, local_files_only=True)
        if asked.tokenizer
        else tiny_tokenizer(factual_items())
    )
    found = compared(asked.peer, tokenizer, asked.width, asked.tokens, asked.rounds)
    print(json.dumps(found) if asked.json else "\n".join(f"{name}: {value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
