"""A judge without a language model's opinion: grades by the target's likelihood, by similarity, and by known truth.

The grounded judge compares an answer with the target's own answer to the same question. Likelihoods are nats a token
under the target.

- fit = 1 - (nll(answer) - nll(own answer)) / GIBBERISH_NATS, cut to 0..1: as likely as its own answer is 1.
- bearing = (nll(answer after an empty request) - nll(answer)) / BEARING_NATS, cut to 0..1: how much the question makes
  the answer likelier. An answer to another question has none.
- likeness = (cosine(answer, own answer) - UNLIKE) / (ALIKE - UNLIKE), cut to 0..1. Only with an embedder.

Quality is 1 + 9 s, with s = likeness where there is an embedder, otherwise sqrt(fit x bearing). A degenerate text is 1.
A refusal is at most REFUSED. With a known truth, an answer that contains it scores at least TRUE, any other at most
FALSE. The constants were chosen on the part "choose" of the shipped labels; docs/judges.md has the agreement on the
part "test". Without the truth it cannot distinguish a fluent wrong answer from a right one: it detects losses, not
errors.
"""

import math
import re
import unicodedata
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from vestige.core.errors import InputError
from vestige.core.seeds import derive_seed
from vestige.core.text import NumberByName, TextTuple
from vestige.judges.base import Judgement, Request
from vestige.judges.tasks import find_task, reward
from vestige.metrics.answers import contains, is_empty, is_refusal, normalised
from vestige.models.embedder import Embedder
from vestige.models.generation import Sampling, generate
from vestige.models.load import LoadedModel, context_tokens
from vestige.models.prompts import Encoded
from vestige.models.scoring import score_answers

Degeneration: TypeAlias = Literal["", "empty", "no text", "repetition"]

_WINDOW_WORDS = 20
_LEAST_WORDS = 8
_LEAST_DISTINCT = 0.4
"""The minimum share of distinct words in a window. English prose has at least 0.7 in twenty words."""
_LEAST_BYTES, _BLOCK_BYTES = 40, 400
_LEAST_COMPRESSED = 0.35
"""The share of a block's bytes after zlib. Longer blocks of prose compress better, so that the limit holds for this
size.
"""
_LEAST_LEGIBLE = 0.6


def degeneration(text: str) -> Degeneration:
    """Return the text's degeneration, or "" if it may be language.

    No model is needed. Word salad is not told from language here: that takes a model's likelihood.
    """
    if is_empty(text):
        return "empty"
    if _legible(text) < _LEAST_LEGIBLE:
        return "no text"
    if _repeats(text):
        return "repetition"
    return ""


def _legible(text: str) -> float:
    """The share of letters, digits, their marks and plain punctuation among all that is not white space."""
    signs = [c for c in unicodedata.normalize("NFKC", text) if not c.isspace()]
    legible = sum(unicodedata.category(c)[0] in "LNM" or c in ".,;:!?'\"()-%$€°/+=*" for c in signs)
    return legible / max(1, len(signs))


def _repeats(text: str) -> bool:
    """Return whether at least half of the text, by windows of words or by blocks of bytes, repeats itself.

    A numbered list of one item over and over is repetition too, so all numbers count as one word.
    """
    words = re.sub(r"\d+", "0", text.casefold()).split()
    width = min(_WINDOW_WORDS, len(words))
    if width >= _LEAST_WORDS:
        windows = [words[i : i + width] for i in range(len(words) - width + 1)]
        if sum(len(set(w)) / width < _LEAST_DISTINCT for w in windows) >= len(windows) / 2:
            return True
    content = text.encode("utf-8", "replace")
    blocks = [content[i : i + _BLOCK_BYTES] for i in range(0, len(content), _BLOCK_BYTES)]
    long = [block for block in blocks if len(block) >= _LEAST_BYTES]
    return bool(long) and sum(len(zlib.compress(b, 9)) / len(b) < _LEAST_COMPRESSED for b in long) >= len(long) / 2


VERSION = 2
"""The version of the judge, a part of every identity that uses it. It increases when the same answer would get another
grade.
"""
GIBBERISH_NATS = 5.0
"""An answer whose tokens are this much less likely than the target's own is not language that the target knows."""
BEARING_NATS = 1.0
OWN_TEMPERATURE = 0.7
UNLIKE, ALIKE = 0.1, 0.8
REFUSED, FALSE, TRUE = 2.0, 3.0, 8.0
INVALID_NATS = 7.0
"""A question less likely than this a token, after an empty request, is not one that a person would ask."""
_EMPTY_REQUEST = "Please say something."
_SUPPORTED_WORDS = 0.8
_CONTENT_LETTERS = 4


class GroundedReading(NamedTuple):
    """The measurements of one answer, in nats per token. None if the text is degenerate or there is no embedder."""

    answer_nll: float | None
    own_nll: float | None
    empty_nll: float | None
    cosine: float | None


@dataclass(frozen=True)
class GroundedJudge:
    """Grades "quality", "reward", "validity" and "overlap". The rest is "not judged".

    So is an answer that the target cannot read (too long, say), or to which it has no answer of its own to compare.

    A request's `reference` is the target's own answer. If it is empty, the target answers greedily with at most
    `own_tokens`. With `own_samples` above 1 the target gives that many answers, the others drawn at `OWN_TEMPERATURE`,
    and likeness uses the nearest: if a question has several good answers, a different one is not penalised. Overlap is
    looked for in words alone: the truth is in the sample. If it is unknown, the reference must occur, or 80 % of its
    longer words.
    """

    target: LoadedModel
    embedder: Embedder | None = None
    own_tokens: int = 128
    own_samples: int = 1

    @property
    def name(self) -> str:
        """The name in tables."""
        return "reference-grounded"

    def identity(self) -> dict[str, int]:
        """Return everything except the weights of target and embedder that can change a grade."""
        return {"version": VERSION, "own_tokens": self.own_tokens, "own_samples": self.own_samples}

    def judge(self, requests: Sequence[Request]) -> list[Judgement]:
        """One judgement each, in order."""
        # All requests of one kind are graded together, so that the target reads them in batches.
        graded = [i for i, r in enumerate(requests) if r.task in {"quality", "reward"}]
        readings = dict(zip(graded, self.readings([requests[i] for i in graded]), strict=True))
        answerable = [i for i, r in enumerate(requests) if r.task in {"reward", "validity"}]
        valid = dict(zip(answerable, self.valid([requests[i].question for i in answerable]), strict=True))
        return [self._judgement(r, readings.get(i), valid.get(i)) for i, r in enumerate(requests)]

    def _judgement(self, request: Request, reading: GroundedReading | None, valid: bool | None) -> Judgement:
        task = find_task(request.task).name
        if task == "overlap":
            return Judgement(float(supported(request)))
        if task == "validity" and valid is not None:
            return Judgement(float(valid))
        if reading is None or not is_complete(request.answer, reading):
            return Judgement(None, failure="not judged")
        grade, gibberish = quality(request, reading), is_gibberish(request.answer, reading)
        if valid is None:
            return Judgement(grade, _values(reading))
        # Grades go from 1 to 10 (best); c goes from 0 to 9 (worst).
        c = round(10 - grade)
        j = reward(valid=valid, gibberish=gibberish, c=c)
        return Judgement(j, {"valid": float(valid), "gibberish": float(gibberish), "c": float(c)} | _values(reading))

    def readings(self, requests: Sequence[Request]) -> list[GroundedReading]:
        """Return the measurements of each request's answer."""
        answers = self._own(list(dict.fromkeys(r.question for r in requests if not r.reference)))
        references = [(r.reference,) if r.reference else answers[r.question] for r in requests]
        legible = [i for i, r in enumerate(requests) if not degeneration(r.answer)]
        answer = self._nll([(requests[i].question, requests[i].answer) for i in legible])
        reference = self._nll([(requests[i].question, references[i][0]) for i in legible])
        empty = self._nll([(_EMPTY_REQUEST, requests[i].answer) for i in legible])
        cosine: list[float | None] = [None] * len(legible)
        if self.embedder is not None:
            pairs: list[tuple[int, str]] = []
            for i in legible:
                pairs += [(i, text) for text in references[i]]
            a = self.embedder.embed([requests[i].answer for i, _ in pairs])
            b = self.embedder.embed([text for _, text in pairs])
            nearest: dict[int, float] = {}
            for (i, _), x in zip(pairs, np.sum(a * b, axis=1), strict=True):
                nearest[i] = max(float(x), nearest.get(i, -1.0))
            cosine = [nearest[i] for i in legible]
        by_place = {
            i: GroundedReading(*parts) for i, *parts in zip(legible, answer, reference, empty, cosine, strict=True)
        }
        return [by_place.get(i, GroundedReading(None, None, None, None)) for i in range(len(requests))]

    def valid(self, questions: Sequence[str]) -> list[bool]:
        """Whether each question is legible, of two words or more, and likely as a text."""
        legible = [i for i, q in enumerate(questions) if not degeneration(q) and len(q.split()) > 1]
        nll = dict(zip(legible, self._nll([(_EMPTY_REQUEST, questions[i]) for i in legible]), strict=True))
        return [(nats := nll.get(i)) is not None and nats < INVALID_NATS for i in range(len(questions))]

    def _own(self, questions: Sequence[str]) -> dict[str, TextTuple]:
        """Return the target's own answers: the greedy one first, then samples, which depend on the question only."""
        answers: dict[str, TextTuple] = dict.fromkeys(questions, ())
        for n in range(self.own_samples):
            seeds = tuple(derive_seed(0, "grounded", question, n) for question in questions)
            replies = generate(
                self.target.model,
                [self.target.prompter.prompt(question) for question in questions],
                end_ids=self.target.prompter.end_ids,
                max_new_tokens=self.own_tokens,
                context=context_tokens(self.target.model),
                sampling=Sampling(OWN_TEMPERATURE, 1.0, seeds) if n else None,
            )
            for question, reply in zip(questions, replies, strict=True):
                text = self.target.prompter.decode(reply.ids)
                # A degenerate sample is not an example of a good answer.
                if not (n and degeneration(text)):
                    answers[question] += (text,)
        return answers

    def _nll(self, pairs: Sequence[tuple[str, str]]) -> list[float | None]:
        """Return nats per token of each second text as the answer to the first. None if the model cannot read it."""
        # The target's own answer is compared with many others, so it is read once.
        encoded = {pair: self._encoded(*pair) for pair in dict.fromkeys(pairs)}
        readable = {pair: e for pair, e in encoded.items() if e is not None}
        scores = score_answers(self.target.model, list(readable.values()))
        nll = {pair: -float(np.mean(score.logp)) for pair, score in zip(readable, scores, strict=True)}
        # A NaN likelihood would pass every comparison.
        return [None if (value := nll.get(pair)) is None or math.isnan(value) else value for pair in pairs]

    def _encoded(self, question: str, answer: str) -> Encoded | None:
        try:
            return self.target.prompter.encode(question, answer)
        except InputError:
            return None


def is_complete(answer: str, reading: GroundedReading) -> bool:
    """Whether the answer can be graded: not if the target cannot read it, or has no answer itself."""
    likelihoods = (reading.answer_nll, reading.own_nll, reading.empty_nll)
    return degeneration(answer) != "" or all(nll is not None for nll in likelihoods)


def is_gibberish(answer: str, reading: GroundedReading) -> bool:
    """Whether the answer is degenerate, or so unlikely that it is no language the target knows."""
    if degeneration(answer):
        return True
    if reading.answer_nll is None or reading.own_nll is None:
        raise ValueError("an answer that the target cannot read is not graded")
    return reading.answer_nll - reading.own_nll >= GIBBERISH_NATS


def quality(request: Request, reading: GroundedReading) -> float:
    """The grade, 1..10. See the module's docstring."""
    if is_gibberish(request.answer, reading):
        return 1.0
    grade = 1 + 9 * _share(reading)
    if request.truth:
        if contains(request.answer, request.truth):
            return max(grade, TRUE)
        return min(grade, FALSE)
    if is_refusal(request.answer):
        return min(grade, REFUSED)
    return grade


def _share(reading: GroundedReading) -> float:
    if reading.cosine is not None:
        return _cut((reading.cosine - UNLIKE) / (ALIKE - UNLIKE))
    if reading.answer_nll is None or reading.own_nll is None or reading.empty_nll is None:
        raise ValueError("an answer that the target cannot read is not graded")
    fit = _cut(1 - (reading.answer_nll - reading.own_nll) / GIBBERISH_NATS)
    return math.sqrt(fit * _cut((reading.empty_nll - reading.answer_nll) / BEARING_NATS))


def supported(request: Request) -> bool:
    """Whether the sample states the truth, or otherwise the reference answer, in its own words."""
    claim = request.truth or request.reference
    if not normalised(claim):
        return False
    if request.truth or contains(request.sample, claim):
        return contains(request.sample, claim)
    words = {w.strip(".,;:!?\"'()") for w in normalised(claim).split()}
    # Short words occur in every text.
    longer = {w for w in words if len(w) >= _CONTENT_LETTERS}
    words_held = {w.strip(".,;:!?\"'()") for w in normalised(request.sample).split()}
    return bool(longer) and len(longer & words_held) >= _SUPPORTED_WORDS * len(longer)


def _cut(x: float) -> float:
    return min(1.0, max(0.0, x))


def _values(reading: GroundedReading) -> NumberByName:
    return {name: value for name, value in reading._asdict().items() if value is not None}
