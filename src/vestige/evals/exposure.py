"""`exposure`: does the model prefer the true answer to alternatives that it can know as little (Carlini et al. 2019)?

The true answer and up to 99 alternatives to the same question (`Item.alternatives`) are read with teacher forcing. For
a model without the truth, every rank is equally likely, so that chance needs no second model.

Formats: `exposure`, with `score` (1 - log rank / log number of answers: 1 if the truth is the likeliest, 0 if it is the
last), `chance` (of `score`, known), `first` (the truth is likelier than all others) and `bits` (the logarithm of the
number of answers minus the rank's: the model's knowledge of it). The likelihood covers the whole reply with its end
token: at temperature 1, this share of replies would be this one. Logarithms of likelihoods in records are natural
(nats).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import PositiveInt

from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.data.mcq import Unasked
from vestige.evals.base import InAudit, Reads, Record, ToRead, View, labels, with_unasked
from vestige.metrics.membership import answer_scores
from vestige.models.load import LoadedModel
from vestige.models.options import one_prompt
from vestige.models.reading import Prompted, Reading, following


class ExposureSettings(Reads):
    """How many of an item's alternatives are read."""

    name: ClassVar[str] = "exposure"
    audit: ClassVar[InAudit] = InAudit(needs="scores", label="exposure", after="uncontrolled")

    alternatives: PositiveInt = 99
    """How many of an item's alternatives to read."""

    def build_questions(self, items: Sequence[Item], views: Sequence[View]) -> dict[str, Item | Unasked]:
        """The items themselves. Items without alternatives get a reason."""
        return {
            i.id: i if i.alternatives else Unasked(i.id, "has no alternatives to its answer", i.edge) for i in items
        }

    @staticmethod
    def digest(questions: Mapping[str, Item | Unasked]) -> str:
        """Content id of the items, their labels, and their alternatives."""
        rows = [
            [i, *([c.group, c.attribute, c.alternatives] if isinstance(c, Item) else [])] for i, c in questions.items()
        ]
        return content_id(rows, length=32)

    def to_read(self, subject: LoadedModel, questions: Sequence[Item | Unasked]) -> ToRead:
        """Return each question's answer and alternatives as continuations of one prompt."""
        items = [i for i in questions if isinstance(i, Item)]
        texts = [(i.answer, *i.alternatives[: self.alternatives]) for i in items]
        encoded = []
        for item, of_item in zip(items, texts, strict=True):
            encoded.append([subject.prompter.encode(item.question, text) for text in of_item])

        def records(readings: Sequence[Reading]) -> list[dict[str, Any]]:
            answered = []
            for item, of_item, codes, reading in zip(items, texts, encoded, readings, strict=True):
                scores = [text.answer(code) for text, code in zip(reading.texts, codes, strict=True)]
                # The first of the texts is the answer.
                about = {name: value for name, value in labels(item).items() if name != "answer"}
                values = {
                    "texts": list(of_item),
                    "logp": [sum(score.logp) for score in scores],
                    "end_logp": [score.end_logp for score in scores],
                    "n_tokens": [len(score.logp) for score in scores],
                }
                answered.append(about | values)
            return with_unasked(questions, answered)

        return ToRead([Prompted(one_prompt(codes), tuple(map(following, codes))) for codes in encoded], records)

    @staticmethod
    def score(record: Record) -> dict[str, float]:
        """The values of one record. A skipped item, or one that its length reveals, has none."""
        rank_shares = None if "unasked" in record else answer_scores(record)
        if rank_shares is None:
            return {}
        return {
            "exposure/score": float(rank_shares[0]),
            "exposure/chance": float(rank_shares.mean()),
            "exposure/first": float(rank_shares[0] == 1.0),
            "exposure/bits": float(rank_shares[0]) * math.log2(len(rank_shares)),
        }
