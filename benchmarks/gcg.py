"""How fast candidates of a prompt search are scored beside nanoGCG 0.3.0, which keeps to an older transformers.

    python3 -m venv PEER && PEER/bin/pip install nanogcg==0.3.0 transformers==4.47.1 torch==2.13.0+cpu numpy
    python -m benchmarks.gcg --peer-python PEER/bin/python --json [--rounds 5] [--only tiny/suffix smol/suffix]

The peer runs in a process of its own (`benchmarks/peers/nanogcg_process.py`), its loop as it is, and stops after every
step. Of each step we get the prompt that it began with and the candidates that it drew, compute the gradient, and look
for the best candidate, in float32. Weights, texts and candidates are the same; both take
one thread, in turn, and a first step is dropped. `same_winner` counts steps whose winner is the peer's.

20 tokens are searched for, in 24 tokens of context (suffix: 20 before and 4 after; prefix: all after) and 16 of target;
the model is random but for its seed. The peer's batch is 64, which is faster than its default on one thread; where
nothing stands before the prompt its cache of what does is off, with which it stops there. Ratios are of processor
seconds, peer over ours, medians of rounds with the least and the largest.
"""

import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from benchmarks import options
from benchmarks.workload import SHAPES, model_of
from vestige.core.seeds import generator
from vestige.core.text import Fields
from vestige.models.variants import Around, Ids, Variants

SEARCHED, CONTEXT, TARGET = 20, 24, 16
WIDTH = {"tiny": 512, "smol": 64}
CASES = ("tiny/suffix", "tiny/prefix", "smol/suffix")
PEER_BATCH = 64
_TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


@dataclass(frozen=True)
class Case:
    """A shape and where the prompt stands."""

    name: str
    before: Ids
    after: Ids
    target: Ids
    start: Ids

    @property
    def shape(self) -> str:
        """The name of the model's shape."""
        return self.name.split("/")[0]

    @property
    def text(self) -> Around:
        """What stands around the prompt."""
        return Around(self.before, self.after, self.target)

    def told(self, batch: int | None) -> Fields:
        """The case as the peer is told."""
        content = f"{_words(self.before)} {{optim_str}} {_words(self.after)}".strip()
        config = {
            "num_steps": 1000,
            "optim_str_init": _words(self.start),
            "search_width": WIDTH[self.shape],
            "batch_size": batch,
            "use_prefix_cache": bool(self.before),
            "filter_ids": False,
            "allow_non_ascii": True,
            "seed": 0,
            "verbosity": "ERROR",
        }
        messages = [{"role": "user", "content": content}]
        return {"messages": messages, "target": _words(self.target), "config": config, "chat_template": _TEMPLATE}


def _words(ids: Sequence[int]) -> str:
    return " ".join(f"w{i}" for i in ids)


def case_of(name: str) -> Case:
    """Random tokens."""
    shape, place = name.split("/")
    draw = generator(0, "gcg benchmark", name)

    def tokens(n: int) -> Ids:
        return tuple(int(t) for t in draw.integers(3, SHAPES[shape]["vocab_size"], n))

    n_before = 20 if place == "suffix" else 0
    return Case(name, tokens(n_before), tokens(CONTEXT - n_before), tokens(TARGET), tokens(SEARCHED))


def saved(case: Case, folder: Path) -> Path:
    """The model and a tokeniser of one token a word, where the peer finds them."""
    model_of(case.shape).save_pretrained(folder)
    words = Tokenizer(WordLevel({f"w{n}": n for n in range(SHAPES[case.shape]["vocab_size"])}, unk_token="w0"))
    words.pre_tokenizer = WhitespaceSplit()
    words.save(str(folder / "tokenizer.json"))
    return folder


@contextmanager
def peer_steps(python: str, case: Case, folder: Path, batch: int | None) -> Iterator[Callable[[], Fields]]:
    """A running peer; each call gives its next step."""
    told = folder / "case.json"
    told.write_text(json.dumps(case.told(batch)))
    script = Path(__file__).parent / "peers" / "nanogcg_process.py"
    command = [python, str(script), str(folder), str(told)]
    said = folder / "peer.log"
    with (
        said.open("w") as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        go, told_back = process.stdin, process.stdout
        assert go is not None
        assert told_back is not None
        begun = False

        def step() -> Fields:
            nonlocal begun
            if begun:
                go.write("\n")
                go.flush()
            begun = True
            line = told_back.readline()
            if not line:
                raise RuntimeError(f"the peer ended: {said.read_text()[-2000:]}")
            found: Fields = json.loads(line)
            return found

        try:
            yield step
        finally:
            process.kill()


def _seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    found = work()
    return time.process_time() - began, found


@dataclass(frozen=True)
class Round:
    """One step of both: processor seconds, and whether the winner is the same."""

    peer_losses: float
    peer_gradient: float
    ours_gradient: float
    ours: float
    same: bool


def one_round(case: Case, step: Fields, engine: Variants) -> Round:
    """Our part of a step of the peer's."""
    candidates = [tuple(one) for one in step["candidates"]]
    winner = candidates[min(range(len(candidates)), key=step["losses"].__getitem__)]
    gradient, _ = _seconds(lambda: engine.gradient(tuple(step["prompt"])))
    ours, (best,) = _seconds(partial(engine.leaders, candidates, 1))
    return Round(step["losses_s"], step["gradient_s"], gradient, ours, candidates[best.index] == winner)


def measured(case: Case, peer_python: str, folder: Path, rounds: int) -> Fields:
    """The table's line of a case."""
    model = model_of(case.shape).eval()
    engine = Variants(model, [case.text])
    with peer_steps(peer_python, case, folder, PEER_BATCH) as step:
        found = [one_round(case, step(), engine) for _ in range(rounds + 1)][1:]
    width = WIDTH[case.shape]
    return {
        "case": case.name,
        "rounds": rounds,
        "peer_candidates_per_s": round(width / statistics.median(r.peer_losses for r in found), 1),
        "gradient_ratio": spread([r.peer_gradient / r.ours_gradient for r in found]),
        "candidates_per_s": round(width / statistics.median(r.ours for r in found), 1),
        "ratio": spread([r.peer_losses / r.ours for r in found]),
        "ratio_with_gradient": spread([(r.peer_losses + r.peer_gradient) / (r.ours + r.ours_gradient) for r in found]),
        "same_winner": f"{sum(r.same for r in found)} of {rounds}",
    }


def spread(values: Sequence[float]) -> list[float]:
    """Median, least, largest."""
    return [round(v, 3) for v in (statistics.median(values), min(values), max(values))]


def main() -> None:
    """Print one line a case."""
    parser = options(__doc__, as_json=True)
    parser.add_argument("--peer-python", help="the Python that has nanogcg")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=CASES)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        for name in asked.only:
            case = case_of(name)
            folder = saved(case, Path(place) / case.shape)
            line = measured(case, asked.peer_python, folder, asked.rounds)
            print(json.dumps(line, indent=None if asked.json else 2), flush=True)


if __name__ == "__main__":
    main()
