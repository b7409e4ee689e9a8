"""What is typed of the data: which columns and rows are read, and what is kept."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vestige.cli.options import (
    AnswerKey,
    DataConfig,
    EdgeKey,
    Factual,
    KeepDuplicates,
    Limit,
    QuestionKey,
    Retain,
    Split,
)

if TYPE_CHECKING:
    from vestige.data.corpus import NamedSplits, SourceSettings


@dataclass(frozen=True)
class DataWords:
    """Which columns and rows of the data are read, and what is kept."""

    retain: Retain = None
    question_key: QuestionKey = None
    answer_key: AnswerKey = None
    edge_key: EdgeKey = None
    split: Split = "train"
    data_config: DataConfig = None
    limit: Limit = None
    keep_duplicates: KeepDuplicates = False
    factual: Factual = False

    def source(self, data: str) -> "SourceSettings":
        """Where the items of `data` come from, read as these words say."""
        from vestige.data.corpus import SourceSettings

        return SourceSettings(
            data=data,
            question_key=self.question_key,
            answer_key=self.answer_key,
            edge_key=self.edge_key,
            split=self.split,
            config=self.data_config,
            limit=self.limit,
            keep_duplicates=self.keep_duplicates,
            factual=self.factual,
        )

    def splits(self, data: str, forget: str, *, seed: int) -> "NamedSplits":
        """The splits of `data` when `forget` is forgotten."""
        from vestige.data.corpus import named_splits, open_corpus

        return named_splits(open_corpus(self.source(data)), forget, retain=self.retain, seed=seed)
