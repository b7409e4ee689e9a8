"""`exposure`: does the model prefer the true answer to alternatives that it can know as little (Carlini et al. 2019)?

The true answer and up to 99 alternatives to the same question (`Item.alternatives`) are read with teacher forcing.
Whoever never knew the truth finds it at any rank among them with equal chance, so that chance needs no second model.

Formats: `exposure`, with `score` (1 - log rank / log number of answers: 1 where the truth is the likeliest, 0 where it
is the last), `chance` (of `score`, known), `first` (the truth is likelier than all others) and `bits` (the logarithm of
the number of answers less that of the rank: what the model knows of it). Likelihood is that of the whole reply, the
token that ends it included: of replies drawn at temperature 1 so large a share would be this one. Logarithms of
likelihoods in records are natural (nats).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import PositiveInt

from vestige.artifacts.records import Result
from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.core.settings import Settings
from vestige.core.text import one_line
from vestige.data.mcq import Unasked
from vestige.evals.base import InAudit, Record, ToRead, View, collected, measure, portions, results
from vestige.metrics.membership import answer_scores
from vestige.models.load import LoadedModel
from vestige.models.options import one_prompt
from vestige.models.reading import Prompted, Reading, following

NAME = "exposure"
COLLECT_VERSION = 1
"""Raised when the same model and item would give another record."""
SUMMARY_VERSION = 1
"""Raised when the same records would give other estimates."""

NONE = "has no alternatives to its answer"


class ExposureSettings(Settings):
    """How many of an item's alternatives are read."""

    alternatives: PositiveInt = 99
    """How many of an item's alternatives to read."""


SETTINGS = ExposureSettings
AUDIT = InAudit(needs="scores", label="exposure", after="uncontrolled")


def asked(items: Sequence[Item], views: Sequence[View], settings: ExposureSettings) -> dict[str, Item | Unasked]:
    """The items themselves; of those without alternatives, that they have none."""
    return {i.id: i if i.alternatives else Unasked(i.id, NONE, i.edge) for i in items}


def digest(questions: Mapping[str, Item | Unasked]) -> str:
    """Content id of the items, their labels, and their alternatives."""
    rows = [[i, *([c.group, c.attribute, c.alternatives] if isinstance(c, Item) else [])] for i, c in questions.items()]
    return content_id(rows, length=32)


def chunks(subject: LoadedModel, questions: Sequence[Item | Unasked], *, size: int) -> list[list[int]]:
    """Numbers of the items in portions."""
    return portions(subject, [i.question if isinstance(i, Item) else "" for i in questions], size)


def collect(
    subject: LoadedModel, questions: Sequence[Item | Unasked], settings: ExposureSettings
) -> list[dict[str, Any]]:
    """One record an item; of one without alternatives, that it has none."""
    return collected(subject, [to_read(subject, questions, settings)])[0]


def to_read(subject: LoadedModel, questions: Sequence[Item | Unasked], settings: ExposureSettings) -> ToRead:
    """Of each question the answer and its alternatives, as texts that follow one prompt."""
    some = [i for i in questions if isinstance(i, Item)]
    encoded = [
        [subject.prompter.encode(i.question, text) for text in (i.answer, *i.alternatives[: settings.alternatives])]
        for i in some
    ]

    def records(readings: Sequence[Reading]) -> list[dict[str, Any]]:
        by_item: dict[str, dict[str, Any]] = {}
        for item, codes, reading in zip(some, encoded, readings, strict=True):
            scores = [text.answer(code) for text, code in zip(reading.texts, codes, strict=True)]
            by_item[item.id] = {
                "item": item.id,
                "question": item.question,
                "edge": item.edge,
                "group": item.group,
                "attribute": item.attribute,
                "texts": [item.answer, *item.alternatives[: settings.alternatives]],
                "logp": [sum(score.logp) for score in scores],
                "end_logp": [score.end_logp for score in scores],
                "n_tokens": [len(score.logp) for score in scores],
            }
        return [
            by_item[i.id] if isinstance(i, Item) else {"item": i.item, "edge": i.edge, "unasked": i.reason}
            for i in questions
        ]

    return ToRead([Prompted(one_prompt(codes), tuple(map(following, codes))) for codes in encoded], records)


def score(record: Record) -> dict[str, float]:
    """The values of one record, by `format/metric`; an item that was not asked, or is told by its length, has none."""
    rank_shares = None if "unasked" in record else answer_scores(record)
    if rank_shares is None:
        return {}
    return {
        "exposure/score": float(rank_shares[0]),
        "exposure/chance": float(rank_shares.mean()),
        "exposure/first": float(rank_shares[0] == 1.0),
        "exposure/bits": float(rank_shares[0]) * math.log2(len(rank_shares)),
    }


def summarize(
    records: Sequence[Record], scores: Sequence[Mapping[str, float]], view: View, *, seed: int
) -> tuple[Result, ...]:
    """The estimates of every split and scope of `view` and of every edge, over the items with alternatives."""
    by_id = dict(zip((r["item"] for r in records), scores, strict=True))
    if view.splits.get("forget") and not any(by_id.get(i) for i in view.splits["forget"]):
        raise InputError(
            f"no item of the forget set {one_line(view.forget, width=60)!r} {NONE.replace('has no', 'has')}"
        )
    return results(records, scores, view, measure, seed=seed)
