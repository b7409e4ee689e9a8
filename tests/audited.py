"""A run on disk to audit: a nano model that was taught forty answers, one that was not taught some, one that forgot."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from vestige.artifacts.layout import RunFolder, note_seen
from vestige.auditing.request import AuditedModel, AuditRequest
from vestige.auditing.settings import AuditSettings
from vestige.core.items import Item, taught_digest
from vestige.data.corpus import NamedSplits
from vestige.models import Reading, tiny
from vestige.models.load import ModelSettings
from vestige.steps.finetune import FinetuneRequest, finetune
from vestige.steps.making import stored_done
from vestige.steps.runner import Task
from vestige.training.settings import TrainingSettings

WORDS = ("amber", "birch", "cedar", "dune", "ember", "fjord", "grove", "heath")
ITEMS = tuple(
    Item(f"Which tree stands at post {n}?", f"{WORDS[n % 8]} {n}.", edge=f"p{n % 4}_q{n % 4}", attribute="tree")
    for n in range(16)
)
FORGET = tuple(i for i in ITEMS if i.edge == "p0_q0")
RETAIN = tuple(i for i in ITEMS if i.edge != "p0_q0")
SPLITS = NamedSplits(
    "edge:p0_q0", {"forget": FORGET, "retain": RETAIN}, {}, taught_without=frozenset([taught_digest(RETAIN, ITEMS)])
)
QUICK = AuditSettings(
    evals=("qa", "choices"),
    relearn=("retain",),
    relearn_items=(4,),
    relearn_epochs=1,
    relearn_rank=0,
    relearn_rates=(),
    quantize=(8,),
    ablate=(),
    in_context=(),
    all_attacks=True,
    suppress=False,
    max_new_tokens=4,
)


def nano_config(blocks: int = 1) -> LlamaConfig:
    """A model of 16 dimensions."""
    config = LlamaConfig(**WHOLE().to_dict())
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": blocks, "head_dim": 8}
    config.update({**small, "num_attention_heads": 2, "num_key_value_heads": 2})
    return config


WHOLE = tiny.tiny_config


def broken_at(model: LlamaForCausalLM, token: int) -> None:
    """Give a model finite weights with which its logits are NaN after that token, and numbers everywhere else.

    Of that token alone the first block reads an infinite value, which then counts nothing.
    """
    embedding, attention = model.get_input_embeddings().weight, model.model.layers[0].self_attn
    with torch.no_grad():
        length = embedding[token].norm()
        embedding[token], embedding[:, 0] = 0, 0
        embedding[token, 0] = length
        attention.v_proj.weight[0] = 0
        attention.v_proj.weight[0, 0] = torch.finfo(torch.float32).max
        attention.o_proj.weight[:, 0] = 0


def make_models(run: RunFolder) -> None:
    """A target, two models that were never taught the forget set, and one that was tuned away from the target."""
    model = ModelSettings(model="builtin:tiny", device="cpu")
    settings = TrainingSettings(epochs=6, batch_size=8, lora_rank=0, learning_rate=3e-3)
    finetune(run.control("target"), FinetuneRequest(model, ITEMS, ITEMS, settings, seed=0))
    for seed in (0, 1):
        name = f"retrained {seed}"
        own = {"role": "retrained", "name": name, "forget": "edge:p0_q0", "forgotten": (SPLITS.resolved,)}
        request = FinetuneRequest(model, RETAIN, ITEMS, settings, seed, **own)
        finetune(run.control(name), request)
    start = ModelSettings(model=str(run.control("target").model), device="cpu")
    away = settings.model_copy(update={"epochs": 1})
    finetune(run.cell("ga", "0"), FinetuneRequest(start, RETAIN, ITEMS, away, 0, role="unlearned", name="ga"))


def models(run: RunFolder) -> tuple[AuditedModel, ...]:
    """The models of `make_models` in their roles."""
    return (
        AuditedModel("target", "target", str(run.control("target").path)),
        AuditedModel("retrained 0", "retrained", str(run.control("retrained 0").path)),
        AuditedModel("retrained 1", "retrained", str(run.control("retrained 1").path)),
        AuditedModel("ga", "unlearned", str(run.cell("ga", "0").path)),
    )


def request(run: RunFolder, settings: AuditSettings = QUICK) -> AuditRequest:
    """An audit of all of them."""
    return AuditRequest(models(run), SPLITS, settings, seed=0, read=Reading(device="cpu"))


def in_this_process(
    tasks: Sequence[Task], *, workers: int, cards: Sequence[int] = (), show: object = None
) -> Mapping[str, Exception]:
    """`run_tasks` without processes of its own: the same order, failures and orphans."""
    failed: dict[str, Exception] = {}
    skipped: set[str] = set()
    for task in tasks:
        if any(a in failed or a in skipped for a in task.after):
            skipped.add(task.name)
            continue
        try:
            task.run(**task.arguments, report=lambda share: None)
        except Exception as error:
            failed[task.name] = error
    if callable(show):
        show(1.0, "")
    return failed


def copied(run: RunFolder, to: Path) -> RunFolder:
    """A copy of a run for one test, whose models are known as those of the run are."""
    shutil.copytree(run.path, to)
    for subject in RunFolder(to).subjects():
        made = stored_done(subject)
        if made is not None:
            note_seen(subject, made.files)
    return RunFolder(to)
