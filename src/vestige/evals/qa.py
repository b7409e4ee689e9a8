"""`qa`: does the subject still answer? A greedy reply, and the stated answer's tokens read with the teacher forcing.

Collecting runs the model: a reply and one scoring pass for each item. Scoring and summarising are pure. Logarithms
in records are natural (nats); `answer_bits` are bits, summed over the answer's tokens, its end left out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from pydantic import PositiveInt

from vestige.artifacts.records import Result
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.core.items import Item, Scope
from vestige.core.seeds import derive_seed
from vestige.core.settings import Settings
from vestige.core.text import one_line
from vestige.metrics.answers import exact_match, is_empty, normalised, probability
from vestige.metrics.intervals import interval_of_mean
from vestige.metrics.ranks import mrr, top_hit
from vestige.metrics.refusals import is_refusal
from vestige.metrics.rouge import rouge, words
from vestige.models.forward import padded_width
from vestige.models.generation import generate
from vestige.models.load import LoadedModel
from vestige.models.pistol_ranks import free_running_ranks
from vestige.models.scoring import score_answers

NAME = "qa"
COLLECT_VERSION = 1
"""Raised when the same model and item would give another record."""
SUMMARY_VERSION = 1
"""Raised when the same records would give other estimates."""

BITS = "answer_bits"
TOP_HIT_RANK = 100
"""m of PISTOL's top-hit ratio (2406.16810, Eq. 2)."""


class QASettings(Settings):
    """What the model is asked for.

    `max_new_tokens` bounds a reply; a reply that runs into it counts as truncated. `pistol` also reads ranks as
    PISTOL's released code does, for parity with its tables.
    """

    max_new_tokens: PositiveInt = 64
    pistol: bool = False


@dataclass(frozen=True)
class View:
    """How one forget set sees the items: their splits, and how far retained items tell a forget item's answer."""

    forget: str
    splits: Mapping[str, Sequence[str]]
    scopes: Mapping[str, Scope]


def collect(subject: LoadedModel, items: Sequence[Item], settings: QASettings) -> list[dict[str, Any]]:
    """One record an item, in the items' order. A record depends on the subject, the item and the settings alone."""
    _refuse_unmatchable(items)
    prompter = subject.prompter
    encoded = [prompter.encode(i.question, i.answer) for i in items]
    scores = score_answers(subject.model, encoded)
    prompts = [prompter.prompt(i.question) for i in items]
    replies = generate(
        subject.model,
        prompts,
        end_ids=prompter.end_ids,
        max_new_tokens=settings.max_new_tokens,
        context=prompter.max_tokens,
    )
    records = [
        {
            "item": item.id,
            "question": item.question,
            "answer": item.answer,
            "edge": item.edge,
            "group": item.group,
            "attribute": item.attribute,
            "reply": prompter.decode(reply.ids),
            "finish": reply.finish,
            "reply_ids": list(reply.ids),
            # A reply of no choice (the first token ended it) still has the margin of that choice.
            "margin": reply.margin,
            "answer_ids": list(code.answer_ids),
            **{k: list(v) if isinstance(v, tuple) else v for k, v in asdict(score).items()},
        }
        for item, code, score, reply in zip(items, encoded, scores, replies, strict=True)
    ]
    if settings.pistol:
        answers = [i.answer for i in items]
        ranks = free_running_ranks(subject, prompts, replies, answers)
        for record, values in zip(records, ranks, strict=True):
            record["pistol_ranks"] = values
    return records


def _refuse_unmatchable(items: Sequence[Item]) -> None:
    for item in items:
        if not normalised(item.answer):
            raise InputError(
                f"the question {one_line(item.question, width=60)!r}: no reply can match its answer "
                f"{one_line(item.answer, width=40)!r}, which is nothing but full stops and white space"
            )


def chunks(subject: LoadedModel, items: Sequence[Item], *, size: int) -> list[list[int]]:
    """The items' numbers in the portions that collecting works through, those of like length together.

    They are fixed by the plan, and not by what is left after an interruption.
    """
    widths = [padded_width(len(subject.prompter.prompt(i.question))) for i in items]
    order = sorted(range(len(items)), key=lambda i: (widths[i], i))
    return [order[i : i + size] for i in range(0, len(order), size)]


def score(record: Mapping[str, Any]) -> dict[str, float]:
    """The values of one record, by metric; each is one item's."""
    reply, answer = record["reply"], record["answer"]
    logp, ranks = np.asarray(record["logp"]), np.asarray(record["ranks"])
    values = {
        "exact_match": float(exact_match(reply, answer)),
        "share_empty": float(is_empty(reply)),
        "share_truncated": float(record["finish"] == "length"),
        "share_refused": float(is_refusal(reply)),
        "probability": probability(logp),
        BITS: float(logp.sum()) / math.log(2),
        "mrr": mrr(ranks),
        "top_hit": top_hit(ranks, m=TOP_HIT_RANK),
    }
    if words(answer):
        # ROUGE sees the letters a to z and digits alone; an answer in another script has no score, and not 0.
        overlap = rouge(reply, answer, stemmer=True)
        values |= {"rouge1_recall": overlap.rouge1_recall, "rougeL_recall": overlap.rougeL_recall}
    if "pistol_ranks" in record:
        free_running = np.asarray(record["pistol_ranks"])
        values["mrr_pistol"] = mrr(free_running)
        values["top_hit_pistol"] = top_hit(free_running, m=TOP_HIT_RANK)
    return values


_GENERATED = {
    "rouge1_recall",
    "rougeL_recall",
    "exact_match",
    "share_empty",
    "share_truncated",
    "share_refused",
    "mrr_pistol",
    "top_hit_pistol",
}


def summarize(
    records: Sequence[Mapping[str, Any]], scores: Sequence[Mapping[str, float]], view: View, *, seed: int
) -> tuple[Result, ...]:
    """The estimates of every split and scope of `view` and of every edge.

    A mean over items, with an interval; items of one edge share parties and template, so they are clustered by edge.
    """
    by_id = {r["item"]: (r["edge"], s) for r, s in zip(records, scores, strict=True)}
    _check(by_id, view)
    results = []
    for (split, scope), ids in _groups(records, view).items():
        for metric in dict.fromkeys(m for i in ids for m in by_id[i][1]):
            rows = [(edge, s[metric]) for edge, s in (by_id[i] for i in ids) if metric in s]
            # One unbounded value says nothing of its own spread, so it makes no estimate.
            if metric != BITS or len(rows) > 1:
                results.append(Result(split, scope, _format(metric), "", _estimate(metric, rows, view, seed)))
    return tuple(results)


def _check(by_id: Mapping[str, Any], view: View) -> None:
    """Refuse to sum up nothing, or to leave out what was not asked."""
    if not view.splits.get("forget"):
        raise InputError(f"the forget set {one_line(view.forget, width=60)!r} holds no items to sum up")
    missing = [i for ids in view.splits.values() for i in ids if i not in by_id]
    if missing:
        raise InputError(
            f"{len(missing)} items of the splits of forget set {one_line(view.forget, width=60)!r} have no record, "
            f"{missing[0]} among them; evaluate on the items of all splits"
        )


def _groups(records: Sequence[Mapping[str, Any]], view: View) -> dict[tuple[str, str], list[str]]:
    """Item ids by split and scope; those without items are left out."""
    groups = {(split, "all"): list(ids) for split, ids in view.splits.items()}
    for scope in ("entailed", "guessable", "free"):
        groups["forget", scope] = [i for i in view.splits["forget"] if view.scopes.get(i) == scope]
    for record in records:
        if record["edge"] is not None:
            groups.setdefault((f"edge:{record['edge']}", "all"), []).append(record["item"])
    return {place: ids for place, ids in groups.items() if ids}


def _format(metric: str) -> str:
    return "generate" if metric in _GENERATED else "forced"


def _estimate(metric: str, rows: Sequence[tuple[str | None, float]], view: View, seed: int) -> Estimate:
    values = [value for _, value in rows]
    edges = [edge for edge, _ in rows if edge is not None]
    bits = metric == BITS
    interval = interval_of_mean(
        np.array(values),
        clusters=edges if len(edges) == len(rows) and len(set(edges)) > 1 else None,
        bounds=None if bits else (0.0, 1.0),
        seed=derive_seed(seed, "interval", metric, view.forget),
    )
    return Estimate(
        metric=metric,
        unit="bits" if bits else "share",
        value=sum(values) / len(values),
        low=interval.low,
        high=interval.high,
        n=len(values),
        interval=interval.method,
    )
