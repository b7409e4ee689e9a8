"""`TrainerCallback`: forget and retain questions at the end of each epoch of another trainer, as a score table.

For `transformers.Trainer` and the trainers of TRL. The score is the probability of the answer by the geometric mean
over its tokens, in the chat template of the tokenizer, or as "Question: ... Answer: ..." where it has none.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback as _Callback

from vestige.artifacts.scores import Measurement, Question, ScoreTable, Split, Texts, write_table
from vestige.core.errors import InputError
from vestige.core.items import Item, ItemTuple
from vestige.models.load import context_tokens
from vestige.models.prompts import Prompter
from vestige.models.scoring import score_answers

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerControl, TrainerState, TrainingArguments

PROBABILITY = Measurement(
    "probability", "forced answer", "probability", metric="geometric mean over tokens", version="2"
)


class TrainerCallback(_Callback):
    """Ask forget and retain questions before training and after each epoch, and write the scores.

    The table is scores.jsonl.gz in `output_dir`, with one stage for each epoch. Each epoch rewrites the whole file, so
    an interrupted training keeps the finished epochs. Only the first process writes.

    Args:
        forget: The questions to forget: a file, a hub id, or rows in memory with question and answer.
        retain: The questions to keep, in the same forms.
        output_dir: The folder of the table.
        name: The name of the model in the table.
        tokenizer: The tokeniser, if the trainer has none.
        batch_size: Questions in one batch.

    Example:
        >>> callback = vestige.TrainerCallback("forget.jsonl", "retain.jsonl", "runs/npo")  # doctest: +SKIP
        >>> trainer = Trainer(model, args, train_dataset=data, callbacks=[callback])  # doctest: +SKIP
    """

    def __init__(
        self,
        forget: Any,
        retain: Any = (),
        output_dir: Any = "runs/trained",
        *,
        name: str = "unlearned",
        tokenizer: "PreTrainedTokenizerBase | None" = None,
        batch_size: int = 16,
    ) -> None:
        """Read the questions."""
        from vestige.data.corpus import SourceSettings, open_corpus

        self.splits: dict[Split, ItemTuple] = {}
        given: tuple[tuple[Split, Any], ...] = (("forget", forget), ("retain", retain))
        for split, source in given:
            if isinstance(source, Sequence) and not isinstance(source, str):
                self.splits[split] = tuple(Item(row["question"], row["answer"]) for row in source)
            else:
                self.splits[split] = open_corpus(SourceSettings(data=str(source))).items
        if not self.splits["forget"]:
            raise InputError("the callback has no forget questions. Give a file or rows with question and answer.")
        if {item.id for item in self.splits["forget"]} & {item.id for item in self.splits["retain"]}:
            raise InputError("a question is to be forgotten and to be kept. Leave it in one list.")
        self.path = Path(output_dir) / "scores.jsonl.gz"
        self.name = name
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.table = ScoreTable()

    def on_train_begin(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **given: Any
    ) -> None:
        """Evaluate the model before the first step."""
        self._ask("before" if not state.epoch else f"epoch {state.epoch:g}", state, given)

    def on_epoch_end(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **given: Any
    ) -> None:
        """Ask the model after an epoch."""
        self._ask(f"epoch {state.epoch or 0:g}", state, given)

    def _ask(self, stage: str, state: "TrainerState", given: dict[str, Any]) -> None:
        if not state.is_world_process_zero:
            return
        tokenizer = self.tokenizer or given.get("processing_class") or given.get("tokenizer")
        if tokenizer is None:
            raise InputError("the trainer has no tokenizer. Give it to the callback: tokenizer=...")
        model = given["model"]
        was_training = model.training
        model.eval()
        try:
            for split, items in self.splits.items():
                scores = answer_probabilities(model, tokenizer, items, self.batch_size)
                ids = [item.id for item in items]
                self.table.add(
                    self.name,
                    "unlearned",
                    PROBABILITY,
                    dict(zip(ids, scores, strict=True)),
                    attack="training",
                    stage=stage,
                    questions={item.id: Question(split) for item in items},
                    texts={item.id: Texts(item.question, item.answer) for item in items},
                )
        finally:
            model.train(was_training)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_table(self.path, self.table)


def answer_probabilities(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", items: Sequence[Item], batch_size: int
) -> list[float]:
    """The probability of each answer after its question, by the geometric mean over the answer's tokens.

    exp(mean_t log p(a_t | question, a_<t)), in [0, 1].
    """
    prompter = Prompter(tokenizer, context_tokens(model))
    encoded = [prompter.encode(item.question, item.answer) for item in items]
    probabilities = []
    for start in range(0, len(encoded), batch_size):
        for score in score_answers(model, encoded[start : start + batch_size]):
            probabilities.append(math.exp(min(0.0, sum(score.logp) / len(score.logp))))
    return probabilities
