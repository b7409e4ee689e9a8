"""Unlearning on Hugging Face's `Trainer`, as the field's frameworks do it: the frozen model is asked at every step.

Batches are padded to their longest row; logits are computed at every position; the reference is a second model. What
those frameworks compute and throw away (a further pass over the retain batch, statistics) is left out.
"""

import copy
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid
from transformers import PreTrainedModel, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from vestige.training.batching import Row, Split

IGNORED = -100
Inputs = Mapping[Split, Mapping[str, Tensor]]
Loss = Callable[[PreTrainedModel, PreTrainedModel, Inputs], Tensor]


def arguments(folder: str, *, batch_size: int, rate: float, bf16: bool) -> dict[str, Any]:
    """Settings of a Trainer that does nothing but train: no logs, no checkpoints, no reports, batches in order."""
    return {
        "output_dir": folder,
        "per_device_train_batch_size": batch_size,
        "num_train_epochs": 1,
        "learning_rate": rate,
        "lr_scheduler_type": "constant",
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "optim": "adamw_torch_fused",
        "bf16": bf16,
        "use_cpu": True,
        "report_to": [],
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "train_sampling_strategy": "sequential",
    }


class Clock(TrainerCallback):
    """Processor seconds at the start of training and after each step."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def on_train_begin(self, *_: object, **__: object) -> None:
        self.marks.append(time.process_time())

    def on_step_end(self, *_: object, **__: object) -> None:
        self.marks.append(time.process_time())


class UnlearningTrainer(Trainer):
    """A Trainer with a loss on the policy, a frozen reference and the splits' batches."""

    def __init__(self, reference: PreTrainedModel, loss: Loss, **given: Any) -> None:
        super().__init__(**given)
        self.reference, self.unlearning_loss = reference, loss
        self.losses: list[float] = []

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The loss, kept for the comparison."""
        found = self.unlearning_loss(model, self.reference, inputs)
        self.losses.append(found.item())
        return found


def train(
    model: PreTrainedModel,
    batches: Sequence[Mapping[Split, Sequence[Row]]],
    loss: Loss,
    *,
    rate: float,
    bf16: bool,
) -> tuple[list[float], list[float]]:
    """One step a batch; losses, and processor seconds at the start and after each step."""
    splits = list(batches[0])
    examples = [{s: b[s][i] for s in splits} for b in batches for i in range(len(b[splits[0]]))]
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        options = arguments(folder, batch_size=len(batches[0][splits[0]]), rate=rate, bf16=bf16)
        trainer = UnlearningTrainer(
            copy.deepcopy(model).eval().requires_grad_(False),
            loss,
            model=model,
            args=TrainingArguments(**options, remove_unused_columns=False),
            train_dataset=examples,
            data_collator=lambda rows: {s: collated([r[s] for r in rows]) for s in splits},
            callbacks=[clock],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return trainer.losses, clock.marks


def collated(rows: Sequence[Row]) -> dict[str, Tensor]:
    """Rows padded to the longest, their attention mask, and labels on the answers."""
    width = max(len(r.ids) for r in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, IGNORED)
    for i, r in enumerate(rows):
        ids[i, : len(r.ids)] = torch.tensor(r.ids)
        mask[i, : len(r.ids)] = 1
        labels[i, r.start : r.stop] = ids[i, r.start : r.stop]
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def npo(model: PreTrainedModel, reference: PreTrainedModel, inputs: Inputs) -> Tensor:
    """NPO at beta 0.1, on answers' negative log-likelihoods summed over tokens."""
    forget = inputs["forget"]
    with torch.no_grad():
        frozen = _answer_nll(reference, forget)
    return -2 / 0.1 * logsigmoid(0.1 * (_answer_nll(model, forget) - frozen)).mean()


def npo_gd(model: PreTrainedModel, reference: PreTrainedModel, inputs: Inputs) -> Tensor:
    """NPO, and the mean negative log-likelihood of the retain tokens."""
    return npo(model, reference, inputs) + _token_nll(model, inputs["retain"])


def kl(model: PreTrainedModel, reference: PreTrainedModel, inputs: Inputs) -> Tensor:
    """Ascent on the forget tokens, and KL(reference || policy) on the retain tokens, means over tokens."""
    retain = inputs["retain"]
    ascent = -_token_nll(model, inputs["forget"])
    policy = _logits(model, retain).float().log_softmax(-1)
    with torch.no_grad():
        frozen = _logits(reference, retain).float().log_softmax(-1)
    per_token = (frozen.exp() * (frozen - policy)).sum(-1)[:, :-1]
    return ascent + per_token[retain["labels"][:, 1:] != IGNORED].mean()


def _logits(model: PreTrainedModel, batch: Mapping[str, Tensor]) -> Tensor:
    logits: Tensor = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False).logits
    return logits


def _answer_nll(model: PreTrainedModel, batch: Mapping[str, Tensor]) -> Tensor:
    logits, labels = _logits(model, batch)[:, :-1].float(), batch["labels"][:, 1:]
    return cross_entropy(logits.transpose(1, 2), labels, ignore_index=IGNORED, reduction="none").sum(1)


def _token_nll(model: PreTrainedModel, batch: Mapping[str, Tensor]) -> Tensor:
    # The model's own loss, as the frameworks take it: mean over the labelled tokens.
    loss: Tensor = model(
        input_ids=batch["input_ids"],
        attention_mask=batch["attention_mask"],
        labels=batch["labels"],
        use_cache=False,
    ).loss
    return loss
