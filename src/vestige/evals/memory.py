"""`memory`: how much of a text is stored, and can its membership in the training data be detected?

One pass reads question and answer token by token. Continuations of one prompt read the paraphrased and the wrong
answers. Greedy replies follow the question and half of the answer.

Formats: `memory` (from the answer's tokens: TOFU's probability and truth ratio, extraction strength, exact
memorization, MUSE's knowledge and verbatim memorization), `membership` and `membership_text` (scores of the answer's
tokens, and of the question's with them; the higher, the likelier the text was trained on), and `membership_<score>`,
`membership_text_<score>` (AUC and true positive rates of forget against holdout items, where there are such).
Logarithms are natural (nats).

Membership uses the answer given its question, because a control has met the forget set's entities in other questions
and the holdout set's entities nowhere: over whole texts it separates the two as well as the target.

One pass gives for every token of a text its log-probability, its rank, and the spread of all tokens' there. Axes: B
rows, T positions, N positions of all rows end to end, V vocabulary. Log-probabilities are in nats, in float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float
from pydantic import Field, PositiveInt

from vestige.artifacts.records import Result
from vestige.core.estimates import Estimate
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.core.seeds import derive_seed
from vestige.core.text import Fields, NumberByName, NumberMapping, Record, TextTuple
from vestige.evals.base import (
    SHARE,
    Evaluation,
    InAudit,
    Measure,
    Records,
    View,
    labels,
    replies_to,
    reply_record,
    results,
)
from vestige.metrics import memorization
from vestige.metrics.answers import probability
from vestige.metrics.intervals import interval_of_mean
from vestige.metrics.memorization import (
    choice_probability,
    exact_memorization,
    extraction_strength,
    truth_ratio,
    truth_ratio_score,
)
from vestige.metrics.overlap import rouge, words

if TYPE_CHECKING:
    from vestige.models.load import LoadedModel
    from vestige.models.prompts import Encoded

FALSE_ALARMS = (0.01, 0.05)
"""The false positive rates on holdout items at which the true positive rate is measured."""


class MemorySettings(Evaluation):
    """The optional values in addition to the tokens' log-probabilities."""

    name: ClassVar[str] = "memory"
    summary_version: ClassVar[int] = 2
    audit: ClassVar[InAudit] = InAudit(
        items="some", needs="distributions", label="memory and membership", after="never"
    )

    min_k: float = Field(0.2, gt=0, le=1)
    """Share of tokens of Min-K% and Min-K%++."""
    truth_ratio: bool = True
    """Read paraphrased and wrong answers, if an item has them."""
    replies: bool = True
    """Collect two greedy replies an item."""
    gradient_norm: bool = False
    """Compute the gradient norm: one backward pass an item."""
    max_new_tokens: PositiveInt = 64
    """Longest reply, in tokens."""

    @staticmethod
    def digest(questions: Mapping[str, Item]) -> str:
        """Content id of the items, their labels, and their other answers."""
        rows = [[i.id, i.group, i.attribute, right_answer(i), wrong_answers(i)] for i in questions.values()]
        return content_id(rows, length=32)

    def collect(self, subject: LoadedModel, questions: Sequence[Item]) -> Records:
        """One record an item."""
        encoded = [subject.prompter.encode(i.question, i.answer) for i in questions]
        records = [
            {
                **labels(item),
                "min_k": self.min_k,
                "zlib_bytes": memorization.zlib_bytes(f"{item.question.strip()} {item.answer.strip()}"),
                "answer_zlib_bytes": memorization.zlib_bytes(item.answer.strip()),
                **read,
            }
            for item, read in zip(questions, _texts(subject, questions, encoded, self), strict=True)
        ]
        if self.truth_ratio:
            for record, compared in zip(records, _compared(subject, questions), strict=True):
                record |= compared
        if self.replies:
            for record, reply in zip(records, _replies(subject, encoded, self), strict=True):
                record |= reply
        return records

    @staticmethod
    def score(record: Record) -> NumberByName:
        """The values of one record, by `format/metric`, those that the item allows.

        `truth_ratio_score` applies to every set except the forget set, `truth_ratio_score_forget` to the forget set.
        """
        cut = record["n_question"]
        answer = np.asarray(record["logp"][cut:])
        first = np.asarray(record["ranks"][cut:]) == 1
        values = {
            "memory/probability": probability(answer),
            "memory/extraction_strength": extraction_strength(first),
            "memory/exact_memorization": exact_memorization(first),
            **_ratios(record),
            **_repeated(record),
            **_membership(record, "membership", cut, record["answer_zlib_bytes"]),
            **_membership(record, "membership_text", 0, record["zlib_bytes"]),
        }
        if "gradient_norm" in record:
            # Lower norms are likelier: training leaves little gradient, and scores rise with likelihood.
            values["membership/gradient_norm"] = -record["gradient_norm"]
        return values

    @staticmethod
    def measure(key: str) -> Measure:
        """Return the meaning of a score's key."""
        form, _, metric = key.partition("/")
        return Measure(form, metric, _UNITS.get(metric, SHARE))

    @classmethod
    def summarize(
        cls, records: Sequence[Record], scores: Sequence[NumberMapping], view: View, *, seed: int
    ) -> tuple[Result, ...]:
        """The estimates of every split and scope of `view` and of every edge, and of forget against holdout."""
        forget = set(view.splits.get("forget", ()))
        scores_in_view = [_seen(s, forget=r["item"] in forget) for r, s in zip(records, scores, strict=True)]
        return (
            *results(records, scores_in_view, view, cls.measure, seed=seed),
            *_told_apart(records, scores, view, seed=seed),
        )


def right_answer(item: Item) -> str:
    """Return the reference of wrong answers: the paraphrased answer, or otherwise the answer."""
    return item.paraphrased_answer or item.answer


def wrong_answers(item: Item) -> TextTuple:
    """The item's perturbed answers, or otherwise its wrong options."""
    if item.perturbed or item.options is None:
        return item.perturbed
    return tuple(text for n, text in enumerate(item.options.texts) if n != item.options.right)


def _texts(
    subject: LoadedModel, items: Sequence[Item], encoded: Sequence[Encoded], settings: MemorySettings
) -> Records:
    """Read question and answer, and return values of their own tokens. The template's are read and not kept."""
    from vestige.models.scoring import gradient_norm, score_texts

    rows = []
    scores = score_texts(subject.model, [e.ids[: e.stop] for e in encoded])
    for item, code, score in zip(items, encoded, scores, strict=True):
        first, last = subject.prompter.question_span(item.question)
        # No prediction exists for the very first token.
        question = range(max(first, 1), last)
        places = [*question, *range(code.start, code.stop)]
        values: Fields = {}
        for name, row in vars(score).items():
            values[name] = [row[p - 1] for p in places]
        if settings.gradient_norm:
            values["gradient_norm"] = gradient_norm(subject.model, code.ids[: code.stop], range(code.start, code.stop))
        rows.append({"text_ids": [code.ids[p] for p in places], "n_question": len(question), **values})
    return rows


def _compared(subject: LoadedModel, items: Sequence[Item]) -> Records:
    """Return the right answer in the wording of the wrong ones, and the wrong ones, if the item has any."""
    from vestige.models.reading import score_options

    answers = {n: (right_answer(i), *wrong_answers(i)) for n, i in enumerate(items) if wrong_answers(i)}
    encoded = []
    for n, texts in answers.items():
        encoded.append([subject.prompter.encode(items[n].question, text) for text in texts])
    compared: Records = [{} for _ in items]
    read = score_options(subject.model, encoded, layout=subject.way)
    for (n, texts), scores in zip(answers.items(), read, strict=True):
        scored = [{"text": t, "logp": list(s.logp), "end_logp": s.end_logp} for t, s in zip(texts, scores, strict=True)]
        compared[n] = {"right": scored[0], "wrong": scored[1:]}
    return compared


def _replies(subject: LoadedModel, encoded: Sequence[Encoded], settings: MemorySettings) -> Records:
    """Return the reply to each question, and, if an answer has at least two tokens, the reply after its first half."""
    replies: Records = []
    for reply in replies_to(subject, [e.ids[: e.start] for e in encoded], settings.max_new_tokens):
        replies.append({"knowledge": reply_record(subject, reply)})
    # One token cannot be split into a given half and a rest.
    n_given = {n: len(e.answer_ids) // 2 for n, e in enumerate(encoded) if len(e.answer_ids) > 1}
    prompts = [encoded[n].ids[: encoded[n].start + k] for n, k in n_given.items()]
    for (n, k), reply in zip(n_given.items(), replies_to(subject, prompts, settings.max_new_tokens), strict=True):
        rest = encoded[n].answer_ids[k:]
        replies[n]["verbatim"] = {
            "n_given": k,
            "rest": subject.prompter.decode(rest),
            # Only as many tokens as the rest has: later ones are not part of the text.
            "continuation": subject.prompter.decode(reply.ids[: len(rest)]),
            "finish": reply.finish,
            "reply_ids": list(reply.ids),
            "margin": reply.margin,
        }
    return replies


def _ratios(record: Record) -> NumberByName:
    """TOFU's measures that hold the right answer against wrong ones."""
    if "wrong" not in record:
        return {}
    # Means over tokens, as in TOFU: otherwise the shorter of two answers would have an advantage.
    right, *wrong = (-float(np.mean(a["logp"])) for a in (record["right"], *record["wrong"]))
    geometric = truth_ratio(right, np.array(wrong), mean="geometric")
    return {
        "memory/choice_probability": choice_probability(right, np.array(wrong)),
        "memory/truth_ratio_geometric": geometric,
        "memory/truth_ratio_arithmetic": truth_ratio(right, np.array(wrong), mean="arithmetic"),
        "memory/truth_ratio_score": truth_ratio_score(geometric, forget=False),
        FORGET_SCORE: truth_ratio_score(geometric, forget=True),
    }


FORGET_SCORE = "memory/truth_ratio_score_forget"


def _repeated(record: Record) -> NumberByName:
    """MUSE's two measures. A text in which ROUGE sees no word has none."""
    pairs = {}
    if "knowledge" in record:
        pairs["memory/knowledge"] = record["knowledge"]["reply"], record["answer"]
    if "verbatim" in record:
        pairs["memory/verbatim"] = record["verbatim"]["continuation"], record["verbatim"]["rest"]
    return {
        key: rouge(reply, true, stemmer=False).rougeL_f1
        for key, (reply, true) in pairs.items()
        if words(true, stemmer=False)
    }


def _membership(record: Record, form: str, start: int, n_bytes: int) -> NumberByName:
    """The scores of the text from its token `start` on."""
    logp, mean, variance = (np.asarray(record[name][start:]) for name in ("logp", "mean", "variance"))
    k = record["min_k"]
    values = {
        "loss": memorization.loss(logp),
        "zlib": memorization.zlib_score(logp, n_bytes),
        "min_k": memorization.mink(logp, k=k),
        "min_k_plus": memorization.minkpp(logp, mean, variance, k=k),
        LOGP: float(logp.sum()),
    }
    return {f"{form}/{name}": value for name, value in values.items()}


LOGP = "logp_nats"
"""Not a score by itself, since long texts have lower values: the reference score is a difference of this value."""

_UNITS = {
    "loss": "nats",
    "zlib": "nats/byte",
    "min_k": "nats",
    "min_k_plus": "standard deviations",
    "gradient_norm": "nats per unit of weight",
    LOGP: "nats",
    "truth_ratio_geometric": "ratio",
    "truth_ratio_arithmetic": "ratio",
}
"""The units of values other than shares."""


def _seen(scores: NumberMapping, *, forget: bool) -> NumberByName:
    """Return the scores with one truth ratio's score, chosen by the item's set in the view."""
    values = dict(scores)
    forget_score = values.pop(FORGET_SCORE, None)
    if forget and forget_score is not None:
        return {**values, "memory/truth_ratio_score": forget_score}
    return values


FORGET_VS_HOLDOUT = "forget_vs_holdout"
"""The split for the comparison of the two sets."""


def _told_apart(
    records: Sequence[Record], scores: Sequence[NumberMapping], view: View, *, seed: int
) -> tuple[Result, ...]:
    """AUC and true positive rates of each membership score, forget items being positive. None without a holdout set."""
    if not view.splits.get("holdout"):
        return ()
    table = {r["item"]: (r["edge"], s) for r, s in zip(records, scores, strict=True)}
    forget = [table[i] for i in view.splits["forget"]]
    holdout = [table[i] for i in view.splits["holdout"]]
    keys: dict[str, None] = {}
    for _, values in forget:
        keys |= dict.fromkeys(values)
    estimates = []
    for key in keys:
        form, _, name = key.partition("/")
        # The likelihood of a whole text depends on its length, and would separate long texts from short ones.
        if form not in ("membership", "membership_text") or name == LOGP:
            continue
        positive = _Side.of([(edge, s[key]) for edge, s in forget if key in s])
        negative = _Side.of([(edge, s[key]) for edge, s in holdout if key in s])
        interval_seed = derive_seed(seed, "told apart", key, view.forget)
        for estimate in _estimates(positive, negative, seed=interval_seed):
            estimates.append(Result(FORGET_VS_HOLDOUT, "all", f"{form}_{name}", "", estimate))
    return tuple(estimates)


class _Side(NamedTuple):
    """Values of one set, and their edges if all have one."""

    values: Float[np.ndarray, " N"]
    edges: list[str] | None

    @classmethod
    def of(cls, rows: Sequence[tuple[str | None, float]]) -> _Side:
        edges = [edge for edge, _ in rows if edge is not None]
        return cls(np.array([value for _, value in rows]), edges if len(edges) == len(rows) else None)


def _estimates(forget: _Side, holdout: _Side, *, seed: int) -> list[Estimate]:
    n = len(forget.values) + len(holdout.values)
    area = memorization.auc(forget.values, holdout.values)
    interval = memorization.auc_interval(
        forget.values, holdout.values, member_clusters=forget.edges, other_clusters=holdout.edges, seed=seed
    )
    estimates = [Estimate("auc", SHARE, area, interval.low, interval.high, n, interval.method)]
    for rate in FALSE_ALARMS:
        hits = memorization.hits_at_fpr(forget.values, holdout.values, fpr=rate)
        # A single edge is a single cluster, which gives no interval.
        several = forget.edges is not None and len(set(forget.edges)) > 1
        interval = interval_of_mean(hits, clusters=forget.edges if several else None, seed=seed)
        method = f"{interval.method}, threshold as it is"
        metric, share = f"tpr_at_fpr_{rate:g}", float(hits.mean())
        estimates.append(Estimate(metric, SHARE, share, interval.low, interval.high, len(hits), method))
    return estimates
