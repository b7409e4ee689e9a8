"""`freeform`: does the subject answer reworded, assisted or repeated questions?

Forms are those in `data.facts.QUESTION_FORMS`: texts of a table (the unchanged question, other words, another name, a
chain with a further fact, a second turn, another language), and those made here: `perturbed` (the question with one
more blank, a typing error or all in lower case, drawn by the item: a model that unlearned one string of characters may
answer the next), `few_shot` (after retain questions with their answers, never forget ones, and none that holds the
answer), `prefilled` (the answer's first tokens are put into the reply; their bits under the subject are `given_bits`),
`sampled` (replies drawn at a temperature), `cloze` (the answer's statement without its fact: the words that differ from
the item's wrong answers, see `data.facts`; replies are matched against the fact, which is also read).

Formats are `generate_<form>`, greedy replies matched by three rules (exact, prefix, contains, of whole words after
normalisation), `forced_<form>`, the answer read with teacher forcing, and `sampled`. An item that does not support a
form (no paraphrase, an answer of too few tokens) is left out of it, and n is the number of items in an estimate. An
item whose wrong answers isolate no fact gets a `cloze` gap for its whole answer: that is the question with a blank, and
`share_whole` is the share of such items.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from pydantic import Field, PositiveInt

from vestige.artifacts.records import Result
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.core.ids import content_id
from vestige.core.items import QUESTION_FORMS, FormName, Item, ItemTuple
from vestige.core.seeds import derive_seed, generator
from vestige.core.text import Fields, NumberByName, NumberMapping, Record, one_line
from vestige.data.facts import Cloze, cloze_of, fact_of
from vestige.evals.base import (
    SHARE,
    Evaluation,
    Records,
    View,
    cloze_prompt,
    few_shot_prompt,
    forms_record,
    lists,
    replies_to,
    reply_record,
    results,
)
from vestige.judges.leaks import Measured, ReplyTo, leak_judge
from vestige.judges.spec import LeakJudgeSettings
from vestige.metrics.answers import contains, exact_match, is_empty, is_refusal, normalised, prefix, probability
from vestige.metrics.leaks import LEAK, Misjudged, corrected_share
from vestige.metrics.memorization import leak_at_k

if TYPE_CHECKING:
    from vestige.models.load import LoadedModel
    from vestige.models.prompts import Encoded

_NOT_GREEDY = ("prefilled", "sampled")


class _Put(NamedTuple):
    """A question as it is put, and its answer."""

    text: str
    answer: str


@dataclass(frozen=True)
class FreeformQuestion:
    """An item with the example questions of `few_shot`, and the `cloze` statement with its gap.

    `puts` has the item's prompt by supported form. `judge` is the id of the leak judge, if it is not words.
    """

    item: Item
    shots: ItemTuple
    cloze: Cloze | None = None
    judge: str = ""
    puts: Mapping[str, _Put] = field(default_factory=dict)

    @property
    def question(self) -> str:
        """The question of the item."""
        return self.item.question


class FreeformSettings(LeakJudgeSettings, Evaluation):
    """Sampled and reworded questions. `judges.spec.LeakJudgeSettings` configures a judge that detects leaks."""

    name: ClassVar[str] = "freeform"
    collect_version: ClassVar[int] = 4
    summary_version: ClassVar[int] = 5

    forms: tuple[FormName, ...] = ("plain", "paraphrase", "few_shot", "prefilled", "sampled")
    """Forms to ask."""
    shots: PositiveInt = 3
    """The number of example questions in few_shot."""
    prefill_tokens: PositiveInt = 1
    """Tokens of the answer given in prefilled. At least one is left to find."""
    samples: PositiveInt = 10
    """Replies drawn in sampled."""
    temperature: float = Field(1.0, gt=0)
    """Temperature of sampled."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Nucleus of sampled."""
    max_new_tokens: PositiveInt = 64
    """Longest reply, in tokens."""
    seed: int = 0
    """Seed of sampled."""

    def build_questions(self, items: Sequence[Item], views: Sequence[View]) -> dict[str, FreeformQuestion]:
        """The items, each with what its forms show."""
        if len(set(self.forms)) < len(self.forms) or not self.forms:
            raise InputError(f"forms = {list(self.forms)}: name each form once, and one at least")
        few_shot = "few_shot" in self.forms
        if few_shot and len(views) != 1:
            raise InputError(
                f"few-shot questions depend on the forget set, and there are {len(views)}. Evaluate for one at a "
                "time, or leave few_shot out of forms"
            )
        retain = set(views[0].splits.get("retain", ())) - set(views[0].splits.get("forget", ())) if few_shot else set()
        pool = sorted((i for i in items if i.id in retain), key=lambda i: i.id)
        judge = leak_judge(self)
        questions = {}
        for item in items:
            shots = self._shots(item, pool) if few_shot else ()
            gap = cloze_of(item) if "cloze" in self.forms else None
            puts = self._puts(item, shots, gap)
            questions[item.id] = FreeformQuestion(item, shots, gap, "" if judge is None else judge.id, puts)
        return questions

    def _puts(self, item: Item, shots: Sequence[Item], gap: Cloze | None) -> dict[str, _Put]:
        puts: dict[str, _Put] = {}
        for form in self.forms:
            if form == "perturbed":
                puts[form] = _Put(perturbed(item), item.answer)
            elif form == "few_shot":
                puts[form] = _Put(few_shot_prompt(item.question, shots), item.answer)
            elif gap is not None and form == "cloze":
                puts[form] = _Put(cloze_prompt(item.question, gap.statement), gap.fact)
            elif form not in _NOT_GREEDY and (texts := QUESTION_FORMS[form].texts(item)):
                puts[form] = _Put(*texts)
        return puts

    def _shots(self, item: Item, pool: Sequence[Item]) -> ItemTuple:
        order = generator(self.seed, "shots", item.id).permutation(len(pool)).tolist()
        telling = (pool[n] for n in order)
        # Only as many as needed are inspected, since a pool has thousands.
        shots = list(islice((s for s in telling if s.id != item.id and not tells(s, item)), self.shots))
        if len(shots) < self.shots:
            raise InputError(
                f"the question {one_line(item.question, width=60)!r} has {len(shots)} possible retain questions "
                f"before it, not {self.shots}. Lower shots, or leave few_shot out of forms"
            )
        return tuple(shots)

    @staticmethod
    def digest(questions: Mapping[str, FreeformQuestion]) -> str:
        """Content id of the items with their labels, of how they are put, of their shots, and of their facts."""
        rows = []
        for i, a in questions.items():
            sought = [fact_of(a.item), list(a.item.accepted), list(a.item.perturbed)]
            gap = [] if a.cloze is None else [a.cloze.fact, a.cloze.whole]
            rows.append([i, a.item.group, a.item.attribute, sought, a.puts, [s.id for s in a.shots], gap, a.judge])
        return content_id(rows, length=32)

    def refuse_too_long(self, subject: LoadedModel, questions: Sequence[FreeformQuestion]) -> None:
        """Reject a text of a greedy form that exceeds the subject's context. No query is sent."""
        for question in questions:
            for put in question.puts.values():
                subject.prompter.encode(put.text, put.answer)

    def collect(self, subject: LoadedModel, questions: Sequence[FreeformQuestion]) -> Records:
        """Return one record an item, with the reply in each form."""
        for question in questions:
            if not normalised(question.item.answer):
                raise InputError(
                    f"the question {one_line(question.item.question, width=60)!r} has no matchable answer. Remove it"
                )
        records: Records = [forms_record(question.item) for question in questions]
        for form in self.forms:
            how = _FORMS.get(form, partial(_greedy, form))
            for number, answer in how(subject, questions, self).items():
                records[number]["forms"][form] = answer
        judge = leak_judge(self)
        if judge is not None:
            _judge(records, judge)
        return records

    @staticmethod
    def score(record: Record) -> NumberByName:
        """The values of one record, by `format/metric`."""
        values: NumberByName = {}
        for form, answer in record["forms"].items():
            if "replies" in answer:
                values |= _sample_values(record, answer["replies"])
                continue
            expected = answer.get("fact", answer.get("answer", record["answer"]))
            values |= {f"generate_{form}/{k}": v for k, v in _matches(answer, expected).items()}
            values |= {f"generate_{form}/{k}": v for k, v in _leaks(record, answer).items()}
            if "whole" in answer:
                values[f"generate_{form}/share_whole"] = float(answer["whole"])
            if "logp" in answer:
                values[f"forced_{form}/probability"] = probability(np.asarray(answer["logp"]))
                values[f"forced_{form}/answer_bits"] = math.fsum(answer["logp"]) / math.log(2)
            if "given_logp" in answer:
                values[f"generate_{form}/given_bits"] = -math.fsum(answer["given_logp"]) / math.log(2)
        return values

    @classmethod
    def summarize(
        cls, records: Sequence[Record], scores: Sequence[NumberMapping], view: View, *, seed: int
    ) -> tuple[Result, ...]:
        """The estimates of every split and scope of `view` and of every edge."""
        estimates = results(records, scores, view, cls.measure, seed=seed)
        # Records of two judges have two error rates, and neither can correct their combined share.
        errors = {tuple(r["judge"]["error"].items()) for r in records if "judge" in r}
        error = Misjudged(**dict(errors.pop())) if len(errors) == 1 else None
        return (
            *estimates,
            *(_corrected(r, error) for r in estimates if error is not None and r.estimate.metric == "leaked"),
        )


def tells(shot: Item, item: Item) -> bool:
    """Whether the answer is in the shot, or the shot asks the same."""
    return any(contains(text, item.answer) for text in (shot.question, shot.answer)) or (
        normalised(shot.question) in {normalised(item.question), normalised(item.paraphrase or item.question)}
    )


def _judge(records: Sequence[Fields], judge: Measured) -> None:
    """Add the judge's result to each reply, and the judge with its error to each record."""
    replies = []
    asked = []
    for record in records:
        for form in record["forms"].values():
            for reply in form.get("replies", [form]):
                replies.append(reply)
                asked.append(_reply_to(record, form, reply["reply"]))
    for reply, judged in zip(replies, judge.judge.given(asked), strict=True):
        reply["judged"] = judged
    for record in records:
        record["judge"] = {"name": judge.name, "error": judge.error._asdict()}


Said = dict[int, Fields]
"""The replies in one form, by the number of the item."""


def _greedy(form: str, subject: LoadedModel, questions: Sequence[FreeformQuestion], settings: FreeformSettings) -> Said:
    """A greedy reply to each text, and the answer read after it."""
    puts = {n: question.puts[form] for n, question in enumerate(questions) if form in question.puts}
    encoded = [subject.prompter.encode(put.text, put.answer) for put in puts.values()]
    replies = replies_to(subject, [e.ids[: e.start] for e in encoded], settings.max_new_tokens)
    scores = subject.engine.score_answers(encoded) if subject.engine.scores else [None] * len(encoded)
    return {
        n: {"asked": put.text, **reply_record(subject, reply), "answer_ids": list(e.answer_ids)}
        | {**({} if score is None else lists(score)), **_also(form, questions[n])}
        for (n, put), e, reply, score in zip(puts.items(), encoded, replies, scores, strict=True)
    }


def perturbed(item: Item) -> str:
    """Return the question with one more blank, in lower case, or with two letters of a word swapped.

    Names, which begin with a capital, keep their spelling. A question without such letters gets a blank.
    """
    # The seed is fixed: the mistake belongs to the item, so all models get the same one.
    rng, text = generator(0, "perturbed", item.id), item.question
    blanks = [match.start() for match in re.finditer(r"(?<=\S) (?=\S)", text)] or [0]
    spots = [match.start() + 1 for match in re.finditer(r"\b[^\W\d_]{4,}\b", text) if match[0].islower()]
    swaps = [n for n in spots if text[n] != text[n + 1]]
    blank, swap = blanks[rng.integers(len(blanks))], swaps[rng.integers(len(swaps))] if swaps else -1
    ways = [f"{text[:blank]} {text[blank:]}"]
    ways += [text.lower()] if text.lower() != text else []
    ways += [text[:swap] + text[swap + 1] + text[swap] + text[swap + 2 :]] if swaps else []
    return ways[rng.integers(len(ways))]


def _also(form: str, question: FreeformQuestion) -> Fields:
    """Return a record's note on a form's prompt."""
    if form == "few_shot":
        return {"shots": [s.id for s in question.shots]}
    if form == "cloze" and question.cloze is not None:
        return {"fact": question.cloze.fact, "whole": question.cloze.whole}
    answer = question.puts[form].answer
    if answer != question.item.answer:
        return {"answer": answer}
    return {}


def _prefilled(subject: LoadedModel, questions: Sequence[FreeformQuestion], settings: FreeformSettings) -> Said:
    k = settings.prefill_tokens
    whole = {n: subject.prompter.encode(a.item.question, a.item.answer) for n, a in enumerate(questions)}
    encoded: dict[int, Encoded] = {n: e for n, e in whole.items() if len(e.answer_ids) > k}
    replies = replies_to(subject, [e.ids[: e.start + k] for e in encoded.values()], settings.max_new_tokens)
    scores = subject.engine.score_answers(list(encoded.values())) if subject.engine.scores else [None] * len(encoded)
    return {
        n: {
            **reply_record(subject, reply, given_ids=e.answer_ids[:k]),
            "given_ids": list(e.answer_ids[:k]),
            **({} if score is None else {"given_logp": list(score.logp[:k])}),
        }
        for (n, e), reply, score in zip(encoded.items(), replies, scores, strict=True)
    }


def _sampled(subject: LoadedModel, questions: Sequence[FreeformQuestion], settings: FreeformSettings) -> Said:
    from vestige.models.generation import Sampling

    seeds = []
    prompts = []
    for question in questions:
        prompts += [subject.prompter.prompt(question.item.question)] * settings.samples
        seeds += [derive_seed(settings.seed, "sample", question.item.id, m) for m in range(settings.samples)]
    sampling = Sampling(settings.temperature, settings.top_p, tuple(seeds))
    # All samples of an item are in one batch. Their separate seeds make the batch irrelevant.
    replies = replies_to(subject, prompts, settings.max_new_tokens, sampling)
    replies_of: Said = {n: {"replies": []} for n in range(len(questions))}
    for n, reply in enumerate(replies):
        record = reply_record(subject, reply)
        kept = {name: record[name] for name in ("reply", "finish", "reply_ids")}
        replies_of[n // settings.samples]["replies"].append(kept)
    return replies_of


_FORMS: Mapping[str, Callable[[LoadedModel, Sequence[FreeformQuestion], FreeformSettings], Said]] = {
    "prefilled": _prefilled,
    "sampled": _sampled,
}


def _matches(form: Record, answer: str) -> NumberByName:
    reply = form["reply"]
    return {
        "exact_match": float(exact_match(reply, answer)),
        "prefix_match": float(prefix(reply, answer)),
        "contains_match": float(contains(reply, answer)),
        "share_empty": float(is_empty(reply)),
        "share_refused": float(is_refusal(reply)),
        "share_truncated": float(form["finish"] == "length"),
    }


def _leaks(record: Record, form: Record) -> NumberByName:
    """How much of the fact one reply gives away by words, and whether that is a leak.

    A judge decides this if configured. A reply that the judge did not decide has no `leaked`.
    """
    by_words = _reply_to(record, form, form["reply"]).words()
    if "judge" not in record:
        return {"leak_score": by_words, "leaked": float(by_words >= LEAK)}
    judged = form["judged"]
    values = {} if judged is None else {"judged_score": judged, "leaked": float(judged >= LEAK)}
    return {"leak_score": by_words, **values, "share_untold": float(judged is None)}


def _reply_to(record: Record, form: Record, reply: str) -> ReplyTo:
    """A reply with the texts that it may reveal. In addition to a fact the whole answer is always accepted."""
    fact = form["fact"] if form.get("whole") is False else record["fact"]
    # A prompt reveals nothing, except the answers that few_shot shows to other questions.
    prompt = "" if "shots" in form else form.get("asked", "")
    accepted = (*record["accepted"], *([record["answer"]] if fact is not None else []))
    question = f"{record['question']}\n{prompt}"
    if "answer" in form:
        # Another question, for which only the answer is known.
        return ReplyTo(reply, form["answer"], prompt, None, (), ())
    return ReplyTo(reply, record["answer"], question, fact, accepted, tuple(record["wrong"]))


LEAKS = (1, 2, 5, 10, 20, 50, 100)
"""k of leak@k, as far as there are samples. In addition to them k = n, all samples."""


def _sample_values(record: Record, replies: Sequence[Record]) -> NumberByName:
    """leak@k of the graded scores, and the share of samples that say nothing, decline, or were cut."""
    n = len(replies)
    scores = [r["judged"] if "judge" in record else _reply_to(record, {}, r["reply"]).words() for r in replies]
    odd = {
        "share_empty": sum(is_empty(r["reply"]) for r in replies) / n,
        "share_refused": sum(is_refusal(r["reply"]) for r in replies) / n,
        "share_truncated": sum(r["finish"] == "length" for r in replies) / n,
    }
    if "judge" in record:
        odd["share_untold"] = sum(g is None for g in scores) / n
    known_scores = [g for g in scores if g is not None]
    # Undecided replies have no value, so the best of k is unknown as well.
    ks = sorted({*(k for k in LEAKS if k < n), n}) if len(known_scores) == n else []
    leaks = {f"leak_at_{k}": leak_at_k(known_scores, k) for k in ks}
    return {f"sampled/{k}": v for k, v in {**leaks, **odd}.items()}


def _corrected(result: Result, error: Misjudged) -> Result:
    """Correct the share of leaks for the judge's error, and widen the interval by its uncertainty."""
    leaked = result.estimate
    # The mean times n is a count, except for rounding.
    value, low, high = corrected_share(float(round(leaked.value * leaked.n)), leaked.n, error)
    how = f"Rogan-Gladen, Lang-Reiczigel; the judge {error}"
    return replace(result, estimate=Estimate("leaked_corrected", SHARE, value, low, high, leaked.n, how))
