"""How fast an epoch of unlearning is beside what people use today.

    python -m benchmarks.training --json [--rounds 5] [--only tiny/npo ...]

Both arms take the same model, rows, batches, order and optimiser, with one thread, in turn in one process; a first
round is dropped. Ratios are of processor seconds, peer over ours, medians over rounds with the least and the largest.
Ours is `vestige.training.loop.train` with the reference computed before it, as `vestige unlearn` calls them. The first
epoch holds the computing of the reference; later ones find it there. Losses of all steps are compared: at most
`tolerance` apart, relative to the largest.

The peer's bfloat16 is a further line: the bars are ours in bfloat16 against the peer in float32, as it comes.
"""

import copy
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import PreTrainedModel

from benchmarks import options
from benchmarks.peers import trainer
from benchmarks.workload import SHAPES, Workload, in_turn, model_of, ratios, workload
from vestige.core.text import Fields
from vestige.methods import find_method
from vestige.training.checkpoints import Checkpoints, TrainingJob
from vestige.training.loop import Hooks, train
from vestige.training.reference import references
from vestige.training.settings import UnlearningSettings

Precision = Literal["float32", "bfloat16"]
RATE = 1e-4
EPOCHS = 2
TOLERANCE = {"float32": 1e-5, "bfloat16": 1e-1}


@dataclass(frozen=True)
class Case:
    """A method on a shape: rows of each split, rows of the effective batch."""

    shape: str
    method: str
    n_rows: int
    batch_size: int

    @property
    def name(self) -> str:
        """Shape and method."""
        return f"{self.shape}/{self.method}"

    def work(self) -> Workload:
        """Its rows and their order."""
        size = SHAPES[self.shape]["vocab_size"]
        return workload(vocabulary=size, n_rows=self.n_rows, batch_size=self.batch_size, epochs=EPOCHS)


CASES = (
    Case("tiny", "npo", 64, 8),
    Case("tiny", "npo_gd", 64, 8),
    Case("tiny", "kl", 64, 8),
    Case("smol", "npo", 8, 4),
    Case("smol", "kl", 8, 4),
)


@dataclass(frozen=True)
class Trace:
    """One run: losses of its steps (nats), processor seconds of its first epoch and of a later one."""

    losses: tuple[float, ...]
    first: float
    later: float

    @classmethod
    def of(cls, losses: Sequence[float], start: float, marks: Sequence[float]) -> "Trace":
        """From the clock at the start and after each step."""
        per_epoch = len(losses) // EPOCHS
        return cls(tuple(losses), marks[per_epoch - 1] - start, (marks[-1] - marks[per_epoch - 1]) / (EPOCHS - 1))


def run_ours(case: Case, model: PreTrainedModel, precision: Precision) -> Trace:
    """The product's own path: reference quantities, then the training loop."""
    method = find_method(case.method).build({})
    work = case.work()
    settings = UnlearningSettings.build(
        {
            "epochs": EPOCHS,
            "batch_size": case.batch_size,
            "learning_rate": RATE,
            "schedule": "constant",
            "warmup_epochs": 0,
            "weight_decay": 0.0,
            "lora_rank": 0,
            "precision": precision,
        }
    )
    marks: list[float] = []
    losses: list[float] = []
    rows = {s: r.__getitem__ for s, r in work.rows.items()}
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        found = references(model, method.needs, work.plan, rows, settings)
        job = TrainingJob(
            objective=method,
            rows=rows,
            plan=work.plan,
            settings=settings,
            seed=0,
            checkpoints=Checkpoints(Path(folder, "checkpoints")),
            log=Path(folder, "metrics.jsonl"),
            references=found,
        )

        def on_step(progress: Any) -> None:
            losses.append(progress.loss)
            marks.append(time.process_time())

        train(model, job, Hooks(on_step))
    return Trace.of(losses, start, marks)


def run_peer(case: Case, model: PreTrainedModel, precision: Precision) -> Trace:
    """The peer's trainer."""
    splits = find_method(case.method).needs.splits
    batches = [{s: b[s] for s in splits} for b in case.work().batches()]
    loss = {"npo": trainer.npo, "npo_gd": trainer.npo_gd, "kl": trainer.kl}[case.method]
    losses, marks = trainer.train(model, batches, loss, rate=RATE, bf16=precision == "bfloat16")
    return Trace.of(losses, marks[0], marks[1:])


def compared(case: Case, rounds: int, *, with_peer_bfloat16: bool) -> list[Fields]:
    """The lines of one case: both precisions, first epoch and later ones."""
    arms: dict[str, Callable[[PreTrainedModel], Trace]] = {
        "ours float32": lambda m: run_ours(case, m, "float32"),
        "peer float32": lambda m: run_peer(case, m, "float32"),
        "ours bfloat16": lambda m: run_ours(case, m, "bfloat16"),
    }
    if with_peer_bfloat16:
        arms["peer bfloat16"] = lambda m: run_peer(case, m, "bfloat16")
    start = model_of(case.shape)
    traces: dict[str, list[Trace]] = {name: [] for name in arms}

    def on_a_copy(name: str) -> Trace:
        return arms[name](copy.deepcopy(start))

    for name, trace in in_turn({name: partial(on_a_copy, name) for name in arms}, rounds):
        traces[name].append(trace)
    pairs = [("float32", "ours float32", "peer float32"), ("bfloat16", "ours bfloat16", "peer float32")]
    pairs += [("bfloat16", "ours bfloat16", n) for n in arms if n == "peer bfloat16"]
    return [
        _line(case, precision, traces[ours], traces[peer], peer, epoch)
        for precision, ours, peer in pairs
        for epoch in ("first", "later")
    ]


def _line(
    case: Case,
    precision: str,
    ours: Sequence[Trace],
    peers: Sequence[Trace],
    name: str,
    epoch: str,
) -> Fields:
    seconds = [[t.first if epoch == "first" else t.later for t in arm] for arm in (ours, peers)]
    largest = max(abs(v) for t in peers for v in t.losses)
    apart = max(abs(a - b) for o, p in zip(ours, peers, strict=True) for a, b in zip(o.losses, p.losses, strict=True))
    work = case.work()
    splits = find_method(case.method).needs.splits
    batches = [[b[s] for s in splits] for b in work.batches()[: work.plan.steps_per_epoch]]
    n_tokens = sum(len(r.ids) for b in batches for part in b for r in part)
    padded = sum(max(len(r.ids) for r in part) * len(part) for b in batches for part in b)
    mine = statistics.median(seconds[0])
    return {
        "bench": "training",
        "case": f"{case.name} {precision}, {epoch} epoch",
        "peer": "Hugging Face Trainer" + name.removeprefix("peer"),
        **ratios(*seconds),
        "equal": apart / largest <= TOLERANCE[precision],
        "apart": float(f"{apart / largest:.2g}"),
        "tolerance": TOLERANCE[precision],
        "seconds": round(mine, 3),
        "tokens_per_second": round(n_tokens / mine),
        "tokens": n_tokens,
        "peer_padded_tokens": padded,
    }


def main() -> None:
    """Print the cases."""
    parser = options(__doc__, as_json=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", help="cases by name, such as tiny/npo", metavar="CASE")
    parser.add_argument("--peer-bfloat16", action="store_true", help="also the peer in bfloat16")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [c for c in CASES if not asked.only or c.name in asked.only]
    for case in chosen:
        for line in compared(case, asked.rounds, with_peer_bfloat16=asked.peer_bfloat16):
            if asked.json:
                print(json.dumps(line), flush=True)
            else:
                print(
                    f"{line['case']}: {line['ratio']} x {line['peer']} [{line['low']}, {line['high']}], losses "
                    f"{line['apart']} apart, {line['tokens_per_second']} tokens/s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
