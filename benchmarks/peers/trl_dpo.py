"""DPO by TRL's `DPOTrainer`, its reference asked at every step unless it is told to ask once before training."""

import copy
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast, PrinterCallback
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer

from benchmarks.peers.trainer import Clock, arguments
from benchmarks.workload import EOS
from vestige.training.batching import Row, Split


class RecordingDPOTrainer(DPOTrainer):
    """TRL's trainer; it keeps the losses, which it would round in its log."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.losses: list[float] = []

    def compute_loss(self, model: nn.Module, inputs: Mapping[str, Tensor], *given: Any, **named: Any) -> Any:
        """The loss, kept for the comparison."""
        found = super().compute_loss(model, inputs, *given, **named)  # type: ignore[no-untyped-call]
        self.losses.append(found.item())
        return found


def train(
    model: PreTrainedModel,
    batches: Sequence[Mapping[Split, Sequence[Row]]],
    *,
    rate: float,
    bf16: bool,
    precomputed: bool = False,
) -> tuple[list[float], list[float]]:
    """One step a batch, refusals preferred to the forget answers; losses, and processor seconds."""
    pairs = [pair for b in batches for pair in zip(b["idk"], b["forget"], strict=True)]
    data = Dataset.from_list(
        [{"prompt": _text(f.ids[: f.start]), "chosen": _answer(idk), "rejected": _answer(f)} for idk, f in pairs]
    )
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        config = DPOConfig(
            **arguments(folder, batch_size=len(batches[0]["forget"]), rate=rate, bf16=bf16),
            # Its default, on, saves memory for time that a peer should not lose.
            gradient_checkpointing=False,
            beta=0.1,
            max_length=None,
            precompute_ref_log_probs=precomputed,
        )
        trainer = RecordingDPOTrainer(
            model=model,
            ref_model=None if precomputed else copy.deepcopy(model).eval().requires_grad_(False),
            args=config,
            train_dataset=data,
            processing_class=_tokenizer(model.config.vocab_size),
            callbacks=[clock],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return trainer.losses, clock.marks


def _word(token: int) -> str:
    # Of one length, since a special token is found within longer words too.
    return f"w{token:06d}"


def _text(ids: Sequence[int]) -> str:
    return " ".join(_word(i) for i in ids)


def _answer(row: Row) -> str:
    return f" {_text(row.ids[row.start :])}"


def _tokenizer(size: int) -> PreTrainedTokenizerFast:
    """One word a token, so that text gives the rows' own ids."""
    words = Tokenizer(models.WordLevel({_word(i): i for i in range(size)}, unk_token=_word(2)))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token=_word(EOS), pad_token=_word(0), unk_token=_word(2))
