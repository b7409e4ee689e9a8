"""Small trainings that can be run in one process or in two, and what a pair of gloo processes runs of them."""

import json
import os
from functools import partial
from pathlib import Path

import torch
import torch.multiprocessing as mp
from safetensors.torch import save_file
from tests.frozen import frozen_reference
from transformers import LlamaForCausalLM

from vestige.core.items import Item
from vestige.methods import find_method
from vestige.models.blocks import blocks, output_projection
from vestige.models.folders import weights_digest
from vestige.models.load import LoadedModel
from vestige.models.tiny import tiny_config, tiny_tokenizer
from vestige.training.adapters import add_lora, train_only
from vestige.training.backward import Backward, reading_for
from vestige.training.batching import FinetunePlan, UnlearnPlan, row_of
from vestige.training.checkpoints import Checkpoints, Finetune, TrainingJob
from vestige.training.loop import train
from vestige.training.parallel import ALONE, World, joined, spread_over
from vestige.training.settings import TrainingSettings

# 25 rows in batches of 8: the last batch has one row, so one of two processes is dealt a part of weight 0.
ITEMS = tuple(Item(f"What is number {i}{' and so on' * (i % 3)}?", f"{i * i}{' or so' * (i % 2)}.") for i in range(25))
CASES = ("finetune", "finetune lora", "finetune dropout", "npo_gd", "rmu", "pdu")
BFLOAT16 = "finetune bfloat16 lora"
LORA = {"finetune lora": 0.0, "finetune dropout": 0.3, BFLOAT16: 0.0}
STEPS = 12
CUT = 5
SETTINGS = {"epochs": 3, "batch_size": 8, "learning_rate": 5e-4, "lora_rank": 0, "warmup_epochs": 0.0}


def small_model() -> torch.nn.Module:
    """Three blocks of 48 dimensions: what processes add up does not depend on how much it is."""
    config = tiny_config()
    small = {"hidden_size": 48, "intermediate_size": 96, "head_dim": 24}
    config.update({**small, "num_attention_heads": 2, "num_key_value_heads": 2})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(config).eval()


def made(
    case: str, folder: Path, world: World = ALONE, micro: int | None = None
) -> tuple[torch.nn.Module, TrainingJob]:
    """A fresh model and the training of it that `case` names, `STEPS` steps long."""
    model = small_model().to(torch.bfloat16 if case == BFLOAT16 else torch.float32)
    loaded = LoadedModel(model, tiny_tokenizer(ITEMS), "builtin:tiny", "")
    rows = [row_of(loaded.prompter.encode(i.question, i.answer), topic="a") for i in ITEMS]
    settings = TrainingSettings.build({**SETTINGS, "micro_batch_size": micro})
    base = partial(TrainingJob, settings=settings, seed=5, checkpoints=Checkpoints(folder / "checkpoints"))
    base = partial(base, log=folder / "metrics.jsonl", world=world)
    if case.startswith("finetune"):
        if case in LORA:
            settings = TrainingSettings.build({**settings.identity(), "lora_rank": 4, "lora_dropout": LORA[case]})
            add_lora(model, settings, 5)
        plan = FinetunePlan(len(rows), settings.batch_size, seed=5)
        return model, base(objective=Finetune(), rows={"train": rows.__getitem__}, plan=plan, settings=settings)
    method = find_method(case).build({})
    plan = UnlearnPlan(n_forget=25, n_retain=25, answers={}, batch_size=8, seed=5)
    source = {"forget": rows.__getitem__, "retain": rows.__getitem__}
    if case != "rmu":
        references = frozen_reference(model, rows, distributions=False) if method.needs.uses_reference else {}
        return model, base(objective=method, rows=source, plan=plan, references=references)
    layers = method.layers(len(blocks(model)), output_projection(blocks(model)[0]))
    references = frozen_reference(model, rows, layer=layers.read)
    train_only(model, layers, settings, 5)
    return model, base(objective=method, rows=source, plan=plan, references=references, layer=layers.read)


def first_gradients(model: torch.nn.Module, job: TrainingJob) -> dict[str, torch.Tensor]:
    """The gradients of the first effective batch, whole."""
    reading = reading_for(model, job)
    with spread_over(model, job.world) as spread:
        spread.model.train()
        Backward(spread, job, reading).add(job.plan.epoch(0)[0], 0, start_of(job))
        named = [(n, p) for n, p in spread.model.named_parameters() if p.requires_grad]
        return {n: p.grad.detach().clone() for n, p in named}


def start_of(job: TrainingJob) -> dict[str, float]:
    return job.objective.start() if hasattr(job.objective, "start") else {}


def run_case(case: str, folder: Path, world: World) -> None:
    gradients = first_gradients(*made(case, folder, world))
    model, job = made(case, folder / "whole", world)
    outcome = train(model, job)
    resumed, job = made(case, folder / "cut", world)
    train(resumed, job)
    if world.leads:
        save_file(gradients, folder / "gradients.safetensors")
        names = [n for n, _ in model.named_parameters()]
        told = {"steps": outcome.steps, "digest": weights_digest(model), "resumed": weights_digest(resumed)}
        (folder / "told.json").write_text(json.dumps({**told, "names": names}))


def gloo_threads() -> set[str]:
    """The threads that carry out what processes say to each other, where the system tells."""
    return {p.parent.name for p in Path("/proc/self/task").glob("*/comm") if p.read_text().startswith("pt_gloo")}


def _process(rank: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    os.environ.update({**place, "RANK": str(rank), "LOCAL_RANK": str(rank)})
    with joined() as world:
        world.wait()
        speaking = gloo_threads()
        for case in (*CASES, BFLOAT16):
            run_case(case, Path(folder, case), world)
        own = "of rank 0: ä" if rank == 0 else "of another"
        heard = {"said": world.said(own), **world.led({"rank": float(rank)})}
        world.wait()
    # A thread that lives on may hold the last tensor of a group when the interpreter ends, which aborts the process.
    heard["left speaking"] = len(speaking & gloo_threads()) if speaking else None
    Path(folder, f"heard-{rank}.json").write_text(json.dumps(heard))


def run_two_processes(folder: Path, port: int) -> None:
    """Run every case in two processes that begin on checkpoints of one process."""
    for case in (*CASES, BFLOAT16):
        model, job = made(case, folder / case / "cut")
        train(model, job, until=CUT)
    # Forked, since each new process would spend six seconds on imports.
    mp.start_processes(_process, (port, str(folder)), nprocs=2, start_method="fork")
