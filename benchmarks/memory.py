"""What a training is said to need against what it takes: `vestige.steps.dry_run` beside the memory of a real run.

    python -m benchmarks.memory [--shapes tiny smol] [--objectives finetune npo_gd kl rmu] [--resident] [--json]
    python -m benchmarks.memory --foresee [1B 7B 70B]    models of these sizes on CUDA, not measured

Each case trains a model of random weights for one epoch of two batches. What it takes is what PyTorch's allocator
handed out at most: on a CPU by the profiler's record of each allocation, on CUDA by the allocator's own count. With
`--resident` the case runs once more in a process of its own, and the process's resident memory above what it held
before the model was made is told too: that has the allocator's slack and the libraries' own buffers in it. Megabytes
are of 10^6 bytes.
"""

import argparse
import gc
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from vestige.methods import find_method
from vestige.models.blocks import blocks, output_projection
from vestige.steps.dry_run import forecast, untrained_shape
from vestige.training.adapters import add_lora, train_only
from vestige.training.batching import FinetunePlan, Row, RowSource, UnlearnPlan
from vestige.training.checkpoints import Checkpoints, Finetune, TrainingJob
from vestige.training.loop import train
from vestige.training.parallel import ALONE, World
from vestige.training.reference import references
from vestige.training.settings import TrainingSettings
from vestige.training.step import ReadsLayer

TOLERANCE = 0.15
N_ROWS, BATCH = 8, 4
SHAPES = {
    "tiny": {"vocab_size": 4096, "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4}
    | {"num_attention_heads": 4, "num_key_value_heads": 4},
    "least": {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2}
    | {"num_attention_heads": 2, "num_key_value_heads": 2},
    # SmolLM2-135M's.
    "smol": {"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30}
    | {"num_attention_heads": 9, "num_key_value_heads": 3},
}


@dataclass(frozen=True)
class Case:
    """A shape, an objective (`finetune` or a method), a LoRA rank (0: all parameters), and how products are made."""

    shape: str
    objective: str
    lora_rank: int
    precision: Literal["float32", "bfloat16"]
    gradient_checkpointing: bool = False

    @property
    def name(self) -> str:
        """What the case is called in the output."""
        how = f"LoRA {self.lora_rank}" if self.lora_rank else "full"
        words = [self.shape, self.objective, how, self.precision]
        return ", ".join([*words, "checkpointing"] if self.gradient_checkpointing else words)


OBJECTIVES = ("finetune", "npo_gd", "kl", "rmu")


def cases(shapes: list[str], objectives: list[str]) -> Iterator[Case]:
    """Every objective that reads something else of the model, full and through adapters, in both formats."""
    formats: tuple[Literal["float32", "bfloat16"], ...] = ("float32", "bfloat16")
    for shape, objective, rank, precision in product(shapes, objectives, (0, 8), formats):
        yield Case(shape, objective, rank, precision)
    for shape, objective, rank in product(shapes, objectives, (0, 8)):
        yield Case(shape, objective, rank, "float32", gradient_checkpointing=True)


def model_of(case: Case, device: str) -> LlamaForCausalLM:
    """The model of a case, its weights random; on the meta device it has none."""
    config = LlamaConfig.from_dict({**SHAPES[case.shape], "max_position_embeddings": 512, "tie_word_embeddings": True})
    with torch.device(device):
        return LlamaForCausalLM(config)


def job_of(case: Case, model: LlamaForCausalLM, folder: Path) -> TrainingJob:
    """The training of a case, set up in the model; rows of 48 to 96 tokens with answers of 8 to 24."""
    rng = random.Random(0)
    lengths = [(rng.randrange(48, 97), rng.randrange(8, 25)) for _ in range(2 * N_ROWS)]
    ids = [tuple(rng.randrange(model.config.vocab_size) for _ in range(n)) for n, _ in lengths]
    rows = [Row(i, n - answer, n, topic="t") for i, (n, answer) in zip(ids, lengths, strict=True)]
    settings = TrainingSettings(
        epochs=1,
        batch_size=BATCH,
        lora_rank=case.lora_rank,
        precision=case.precision,
        gradient_checkpointing=case.gradient_checkpointing,
    )
    job = partial(TrainingJob, settings=settings, seed=0, checkpoints=Checkpoints(folder), log=folder / "metrics.jsonl")
    if case.objective == "finetune":
        if case.lora_rank:
            add_lora(model, settings, 0)
        return job(objective=Finetune(), rows={"train": lambda i: rows[i]}, plan=FinetunePlan(N_ROWS, BATCH, 0))
    method = find_method(case.objective).build({})
    plan = UnlearnPlan(N_ROWS, N_ROWS, {}, BATCH, 0)
    source: RowSource = {"forget": lambda i: rows[i], "retain": lambda i: rows[N_ROWS + i]}
    layer = None
    if isinstance(method, ReadsLayer):
        layers = method.layers(len(blocks(model)), output_projection(blocks(model)[0]))
        layer = layers.read
    found = {} if model.device.type == "meta" else references(model, method.needs, plan, source, settings, layer)
    if isinstance(method, ReadsLayer):
        train_only(model, layers, settings, 0)
    elif case.lora_rank:
        add_lora(model, settings, 0)
    return job(objective=method, rows=source, plan=plan, references=found, layer=layer)


def run(case: Case, device: str) -> None:
    """Make the model, compute its references and train it: all that is measured."""
    model = model_of(case, device)
    with tempfile.TemporaryDirectory() as folder:
        train(model, job_of(case, model, Path(folder)))


def allocated(case: Case, device: str) -> int:
    """The most that PyTorch's allocator handed out during a run (bytes)."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        run(case, device)
        return torch.cuda.max_memory_allocated()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run(case, device)
    now = most = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most


def resident(case: Case) -> int:
    """The most that the process held in memory during a run, above what it held before (bytes; Linux)."""
    # Libraries take buffers of their own at their first use.
    run(replace(case, shape="least"), "cpu")
    gc.collect()
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    run(case, "cpu")
    return _status("VmHWM") - before


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(key)).split()[1])


def compared(case: Case, device: str, *, with_resident: bool) -> dict[str, object]:
    """The estimate of a case beside what was measured of it."""
    shape = model_of(case, "meta")
    said = forecast(shape, job_of(case, shape, Path("unused")))
    took = allocated(case, device)
    told = {
        "bench": "memory",
        "case": case.name,
        "peer": f"PyTorch's allocator, {device}",
        "ratio": round(said.peak / took, 3),
        "equal": abs(said.peak / took - 1) <= TOLERANCE,
        "tolerance": TOLERANCE,
        "peak_mb": round(took / 1e6, 1),
        "estimate_mb": {k: round(v / 1e6, 1) for k, v in asdict(said).items()},
    }
    return told | ({"resident_mb": round(_resident_apart(case) / 1e6, 1)} if with_resident else {})


def _resident_apart(case: Case) -> int:
    words = [sys.executable, "-m", "benchmarks.memory", "--one", json.dumps(asdict(case))]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


LLAMAS = {
    # Llama-3.2-1B's, Llama-2-7B's and Llama-3-70B's.
    "1B": LlamaConfig(
        vocab_size=128256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        tie_word_embeddings=True,
    ),
    "7B": LlamaConfig(),
    "70B": LlamaConfig(
        vocab_size=128256,
        hidden_size=8192,
        intermediate_size=28672,
        num_hidden_layers=80,
        num_attention_heads=64,
        num_key_value_heads=8,
    ),
}
WAYS = ((1, 8, False), (1, 8, True), (1, 0, True), (4, 0, True), (8, 0, True))
"""Processes, LoRA rank (0: all parameters), and whether blocks are computed again on the way back."""


def foreseen(shapes: Sequence[str] = ("7B",)) -> Iterator[str]:
    """Lines of a table: NPO + GD on Llama's shapes, 16 + 16 rows of 256 tokens, 64 of them answer (GB)."""
    yield "| | parts | parameters | gradients | optimizer | activations | peak |"
    yield "|" + " --- |" * 7
    for shape, (size, rank, checkpointing) in product(shapes, WAYS):
        settings = TrainingSettings(
            epochs=1,
            batch_size=16,
            micro_batch_size=4,
            lora_rank=rank,
            precision="bfloat16",
            gradient_checkpointing=checkpointing,
        )
        takes = forecast(*_foreseen_job(shape, settings, size))
        said = {**asdict(takes), "peak": takes.peak}
        n = min(4, 16 // size)
        how = "LoRA, bfloat16 weights" if rank else f"{'`fsdp`, ' if size > 1 else ''}full, float32 weights"
        cells = [f"{said[key] / 1e9:.1f}" for key in ("parameters", "gradients", "optimizer", "activations", "peak")]
        name = f"{shape}, {size} process{'es' if size > 1 else ''}, {how}{', checkpointing' if checkpointing else ''}"
        yield f"| {name} | {n} + {n} rows | " + " | ".join(cells) + " |"


def _foreseen_job(shape: str, settings: TrainingSettings, size: int) -> tuple[PreTrainedModel, TrainingJob]:
    row = Row((1,) * 256, 192, 256)
    model = untrained_shape(LLAMAS[shape], torch.bfloat16 if settings.lora_rank else torch.float32)
    if settings.lora_rank:
        add_lora(model, settings, 0)
    job = TrainingJob(
        objective=find_method("npo_gd").build({}),
        rows={"forget": lambda _: row, "retain": lambda _: row},
        plan=UnlearnPlan(16, 16, {}, 16, 0),
        settings=settings,
        seed=0,
        checkpoints=Checkpoints(Path("unused")),
        log=Path("unused"),
        world=ALONE if size == 1 else World("fsdp", 0, size),
    )
    return model, job


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["tiny", "smol"], choices=sorted(SHAPES))
    parser.add_argument("--objectives", nargs="+", default=list(OBJECTIVES), choices=OBJECTIVES)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--resident", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--foresee", nargs="*", choices=sorted(LLAMAS))
    parser.add_argument("--one", metavar="CASE", help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.one:
        print(resident(Case(**json.loads(words.one))))
        return
    if words.foresee is not None:
        for line in foreseen(words.foresee or list(LLAMAS)):
            print(line, flush=True)
        return
    if not words.json:
        print("| case | estimate, MB | measured, MB | ratio |" + (" resident, MB |" if words.resident else ""))
        print("|" + " --- |" * (5 if words.resident else 4))
    for case in cases(words.shapes, words.objectives):
        row = compared(case, words.device, with_resident=words.resident)
        print(json.dumps(row) if words.json else _line(row), flush=True)


def _line(row: dict[str, Any]) -> str:
    cells = [row["case"], row["estimate_mb"]["peak"], row["peak_mb"], row["ratio"], row.get("resident_mb")]
    return "| " + " | ".join(str(c) for c in cells if c is not None) + " |"


if __name__ == "__main__":
    main()
