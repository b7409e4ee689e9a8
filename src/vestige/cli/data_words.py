"""What is typed of the data: which columns and rows are read, and what is kept."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from vestige.cli.asked import say
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
    SplitSeed,
    TrainFactual,
)
from vestige.core.errors import InputError
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.core.items import ForgetSet, Item
    from vestige.data.corpus import Corpus, NamedSplits, SourceSettings


@dataclass(frozen=True)
class RowWords:
    """Which columns and rows of the data are read."""

    question_key: QuestionKey = None
    answer_key: AnswerKey = None
    edge_key: EdgeKey = None
    split: Split = "train"
    data_config: DataConfig = None
    limit: Limit = None
    keep_duplicates: KeepDuplicates = False
    split_seed: SplitSeed = 0

    def source(self, data: str) -> "SourceSettings":
        """Where the items of `data` come from, read as these words say."""
        from vestige.data.corpus import SourceSettings

        typed = {{"data_config": "config"}.get(f.name, f.name): getattr(self, f.name) for f in fields(self)}
        return SourceSettings(data=data, **{k: v for k, v in typed.items() if k in SourceSettings.model_fields})


@dataclass(frozen=True)
class SourceWords(RowWords):
    """Which columns and rows of the data are read, and whether factual questions go with them."""

    factual: Factual = None


@dataclass(frozen=True)
class TaughtWords(SourceWords):
    """What of the data a model is taught."""

    train_factual: TrainFactual = False

    def taught(self, corpus: "Corpus", splits: "NamedSplits | None") -> "tuple[Item, ...]":
        """All items but those of the forget set, and the factual ones if they are asked for."""
        from vestige.data.corpus import left_out

        items = corpus.items if splits is None else left_out(corpus, splits)
        if self.train_factual and not corpus.factual:
            raise InputError("--train-factual, and there are no factual questions; name them with --factual")
        if corpus.factual:
            how = "taught too" if self.train_factual else "not taught (--train-factual teaches them)"
            say(f"factual: {len(corpus.factual)} questions, {how}")
        return (*items, *corpus.factual) if self.train_factual else items


@dataclass(frozen=True)
class DataWords(SourceWords):
    """Which columns and rows of the data are read, and what is kept."""

    retain: Retain = None

    def splits(
        self, data: str, forget: str | None, *models: str, exposure: bool = False, alternatives: str | None = None
    ) -> "NamedSplits":
        """The splits of `data` when `forget` is forgotten, without what any of the models forgot before; prints notes.

        Where nothing is forgotten there is one split. With `exposure` forget items have alternatives, of a file if one
        is named.
        """
        from vestige.data.alternatives import with_alternatives
        from vestige.data.corpus import named_splits, open_corpus, undivided

        if forget is None:
            if self.retain is not None:
                raise InputError("--retain goes with --forget; without it everything is one split")
            return undivided(open_corpus(self.source(data)))
        before = tuple(dict.fromkeys(one for model in models for one in forgotten_by(model)))
        corpus = open_corpus(self.source(data))
        found = named_splits(corpus, forget, retain=self.retain, before=before)
        return say_notes(with_alternatives(corpus, found, alternatives) if exposure else found)


def forgotten_by(model: str) -> "tuple[ForgetSet, ...]":
    """What the model and its ancestors left out or forgot, the oldest first; of one from elsewhere nothing is known."""
    from vestige.artifacts.layout import own_folder
    from vestige.artifacts.records import read_spec

    folder = own_folder(model)
    return () if folder is None else read_spec(folder.spec).forgotten


def say_notes(splits: "NamedSplits") -> "NamedSplits":
    """Print the notes on how the data was matched, and return the splits unchanged."""
    for sentence in splits.told:
        say(one_line(sentence, width=500))
    return splits
