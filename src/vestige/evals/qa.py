"""`qa`: does the subject still answer? A greedy reply, and the stated answer's tokens read with teacher forcing.

Collecting runs the model: each question is read once, and reply and answer go on from there. Scoring and summarising
are pure. Logarithms in records are natural (nats). `answer_bits` are bits, summed over the answer's tokens, its end
left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import PositiveInt

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.core.text import Fields, NumberByName, Record, one_line
from vestige.evals.base import BITS, SHARE, InAudit, Measure, Reads, ToRead, labels, lists, reply_record
from vestige.metrics.answers import exact_match, is_empty, is_refusal, normalised, probability
from vestige.metrics.memorization import mrr, top_hit
from vestige.metrics.overlap import rouge, words

if TYPE_CHECKING:
    from vestige.models.generation import Reply
    from vestige.models.load import LoadedModel
    from vestige.models.reading import TextReading

ANSWER_BITS = "answer_bits"
TOP_HIT_RANK = 100
"""m of PISTOL's top-hit ratio (2406.16810, Eq. 2)."""


_GENERATED = {
    "rouge1_recall",
    "rougeL_recall",
    "exact_match",
    "share_empty",
    "share_truncated",
    "share_refused",
}


class QASettings(Reads):
    """Question answering: the outputs to record for each question."""

    name: ClassVar[str] = "qa"
    collect_version: ClassVar[int] = 2
    summary_version: ClassVar[int] = 2
    # Retained knowledge is measured on all items.
    audit: ClassVar[InAudit] = InAudit(items="all")

    max_new_tokens: PositiveInt = 64
    """Longest reply, in tokens. A longer one counts as truncated."""

    def identity(self) -> Fields:
        """Return the settings as JSON values, with one that is gone: the answers of earlier versions stay known."""
        return {**super().identity(), "pistol": False}

    def to_read(self, subject: LoadedModel, questions: Sequence[Item]) -> ToRead:
        """Return each question's answer and a greedy reply."""
        from vestige.models.reading import Prompted, following

        for item in questions:
            if not normalised(item.answer):
                raise InputError(
                    f"the question {one_line(item.question, width=60)!r}: no reply can match its answer "
                    f"{one_line(item.answer, width=40)!r}, which is only full stops and white space. Correct it"
                )
        encoded = [subject.prompter.encode(i.question, i.answer) for i in questions]
        # A server without scores still replies.
        read = [(following(e),) if subject.engine.scores else () for e in encoded]
        prompts = [
            Prompted(e.ids[: e.start], texts, self.max_new_tokens) for e, texts in zip(encoded, read, strict=True)
        ]

        def records(readings: Sequence[TextReading]) -> list[Fields]:
            return [
                {
                    **labels(item),
                    **reply_record(subject, reading.replied),
                    "answer_ids": list(code.answer_ids),
                    **(lists(reading.texts[0].answer(code)) if reading.texts else {}),
                }
                for item, code, reading in zip(questions, encoded, readings, strict=True)
            ]

        return ToRead(prompts, records)

    def known_replies(
        self, subject: LoadedModel, records: Sequence[Record]
    ) -> dict[tuple[tuple[int, ...], int], Reply]:
        """The replies of the records, by prompt and most tokens."""
        from vestige.models.generation import Reply

        return {
            (tuple(subject.prompter.prompt(r["question"])), self.max_new_tokens): Reply(
                tuple(r["reply_ids"]), r["finish"], r["margin"]
            )
            for r in records
        }

    @staticmethod
    def score(record: Record) -> NumberByName:
        """The values of one record, by metric. Each is one item's."""
        reply, answer = record["reply"], record["answer"]
        values = {
            "exact_match": float(exact_match(reply, answer)),
            "share_empty": float(is_empty(reply)),
            "share_truncated": float(record["finish"] == "length"),
            "share_refused": float(is_refusal(reply)),
        }
        if "logp" in record:
            logp = np.asarray(record["logp"])
            values |= {"probability": probability(logp), ANSWER_BITS: float(logp.sum()) / math.log(2)}
        if record.get("ranks"):
            ranks = np.asarray(record["ranks"])
            values |= {"mrr": mrr(ranks), "top_hit": top_hit(ranks, m=TOP_HIT_RANK)}
        if words(answer):
            # ROUGE only reads the letters a to z and digits. An answer in another script has no score instead of 0.
            overlap = rouge(reply, answer, stemmer=True)
            values |= {"rouge1_recall": overlap.rouge1_recall, "rougeL_recall": overlap.rougeL_recall}
        return values

    @staticmethod
    def measure(key: str) -> Measure:
        """Return `generate` for values of the reply, and `forced` for values of the stated answer."""
        return Measure("generate" if key in _GENERATED else "forced", key, BITS if key == ANSWER_BITS else SHARE)
