"""`choices`: does the subject pick the right option? By letter, by text, and in its own words.

Formats: `choose` (the likeliest letter among the letters), `option_vocab` (the right letter, if no other token is
likelier), `option_text_sum` and `option_text_mean` (the option whose text is likeliest after the question alone, over
all its tokens or per token), `generate_option` (a greedy reply to the question alone, matched against the options).

`accuracy` is a share of the pick, with equal shares to options tied. `probability` and `answer_bits` belong to the
right option among the options, `option_vocab` is its letter's probability in the whole vocabulary. `chance` is what
guessing gets. Logarithms in records are natural (nats).

`reversed`: given an answer, does the subject pick the question that it belongs to? The options are the item's question
and questions of the same attribute elsewhere with other answers. Formats are the `choices` formats by letter, with the
prefix `reversed_`. There is no reading of the options' texts: a model that was never taught a question finds it
unlikely, whatever it knows of the answer, so that one which never saw falls below chance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, PositiveInt

from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.core.text import Fields, NumberByName, Record
from vestige.data.mcq import (
    MOST_OPTIONS,
    Choice,
    OptionDrawing,
    Place,
    TooFew,
    Unasked,
    Wanted,
    choices_of,
    reversed_choices,
)
from vestige.evals.base import (
    LETTERS,
    Evaluation,
    InAudit,
    Reads,
    ToRead,
    View,
    choose_prompt,
    lists,
    plain_question,
    reply_record,
    with_unasked,
)
from vestige.metrics.answers import contains, exact_match, is_empty, is_refusal, prefix

if TYPE_CHECKING:
    from vestige.models.load import LoadedModel
    from vestige.models.prompts import Encoded
    from vestige.models.reading import TextReading

MOST_PERMUTED = 5
"""More options have too many orders to evaluate."""

Orders = Literal["one", "cyclic", "all"]


class ChoicesSettings(Reads):
    """Multiple choice: the options (`data.mcq.OptionDrawing`) and their prompts.

    Turn on at least one of `texts`, `letters` and `replies`. Some tokenisers lack single tokens for the letters.
    """

    name: ClassVar[str] = "choices"
    collect_version: ClassVar[int] = 3
    summary_version: ClassVar[int] = 3
    audit: ClassVar[InAudit] = InAudit(needs="scores", label="options (choices)")

    options: int = Field(4, ge=2, le=MOST_OPTIONS)
    """Options of a question."""
    distractors: Wanted = "auto"
    """The source of wrong options."""
    too_few: TooFew = "refuse"
    """What to do with an item that has too few wrong options."""
    place: Place = "balanced"
    """Return the index of the right option."""
    orders: Orders = "one"
    """Ask the question's own order, its k rotations, or all k! orders. Values are means over them."""
    rendering: Literal["chat", "plain"] = "chat"
    """Prompts in the chat template, or plain as in benchmarks."""
    topic: str = ""
    """Topic named above lettered options."""
    texts: bool = True
    """Score the options' texts."""
    letters: bool = True
    """Score the options' letters."""
    replies: bool = True
    """Let the model reply."""
    max_new_tokens: PositiveInt = 64
    """Longest reply, in tokens."""
    seed: int = 0
    """Seed of the drawing."""

    def drawing(self) -> OptionDrawing:
        """Return the settings for drawing options."""
        return OptionDrawing(self.options, self.distractors, self.too_few, self.place, self.seed)

    def build_questions(self, items: Sequence[Item], views: Sequence[View]) -> dict[str, Choice | Unasked]:
        """A question with options about each item, and for an item that has none why."""
        if not (self.texts or self.letters or self.replies):
            raise InputError("choices: texts, letters and replies are all off. Turn one on")
        return choices_of(items, self.drawing())

    @staticmethod
    def digest(questions: Mapping[str, Choice | Unasked]) -> str:
        """Content id of the questions, in their order, and of the labels that records carry."""
        return content_id(
            [
                [i, c.id, c.edge, *([c.group, c.attribute, c.source, c.accepted] if isinstance(c, Choice) else [])]
                for i, c in questions.items()
            ],
            length=32,
        )

    def to_read(self, subject: LoadedModel, questions: Sequence[Choice | Unasked]) -> ToRead:
        """Return each question's option texts and a greedy reply. Letters have separate prompts."""
        from vestige.models.reading import Prompted, following, one_prompt

        choices = [c for c in questions if isinstance(c, Choice)]
        most = self.max_new_tokens if self.replies else 0
        encoded: list[list[Encoded]] = []
        prompts: list[Prompted] = []
        if self.texts:
            # Every option and further right answers follow the question alone.
            for choice in choices:
                asked = self._asked_alone(choice)
                codes = [self._encode(subject, asked, text) for text in (*choice.options, *choice.also)]
                encoded.append(codes)
                prompts.append(Prompted(one_prompt(codes), tuple(map(following, codes)), most))
        elif self.replies:
            prompts = [Prompted(self._prompt(subject, self._asked_alone(c)), (), most) for c in choices]

        def records(readings: Sequence[TextReading]) -> list[Fields]:
            answered = [lists(c) for c in choices]
            # Without texts nothing is encoded, and the readings contain only replies.
            for record, codes, reading in zip(answered, encoded, readings, strict=False):
                record["texts"] = [
                    {"ids": list(e.answer_ids), **lists(text.answer(e))}
                    for e, text in zip(codes, reading.texts, strict=True)
                ]
            if self.letters:
                for record, letters in zip(answered, self._letters(subject, choices), strict=True):
                    record["letters"] = letters
            if self.replies:
                for record, reading in zip(answered, readings, strict=True):
                    record |= reply_record(subject, reading.replied)
            return with_unasked(questions, answered)

        return ToRead(prompts, records)

    def _asked_alone(self, choice: Choice) -> str:
        if self.rendering == "plain":
            return plain_question(choice.question)
        return choice.question

    def _encode(self, subject: LoadedModel, prompt: str, continuation: str) -> Encoded:
        if self.rendering == "plain":
            from vestige.models.reading import encode_plain

            return encode_plain(subject.prompter, prompt, continuation)
        return subject.prompter.encode(prompt, continuation)

    def _prompt(self, subject: LoadedModel, text: str) -> tuple[int, ...]:
        if self.rendering == "plain":
            return tuple(subject.prompter.tokenizer(text)["input_ids"])
        return subject.prompter.prompt(text)

    def _letters(self, subject: LoadedModel, choices: Sequence[Choice]) -> list[list[Fields]]:
        """Return the texts after the lettered options of each question, for each order of the options."""
        from vestige.models.reading import letter_prompt

        orders_shown: list[tuple[int, tuple[int, ...]]] = []
        for n, choice in enumerate(choices):
            orders_shown += [(n, order) for order in _orders(len(choice.options), self.orders)]
        prompts = []
        for n, order in orders_shown:
            text = choose_prompt(choices[n].question, [choices[n].options[k] for k in order], topic=self.topic)
            names = LETTERS[: len(order)]
            encoded = [self._encode(subject, text, letter) for letter in names]
            prompts.append(letter_prompt(subject.prompter, encoded, names))
        by_question: list[list[Fields]] = [[] for _ in choices]
        for (n, order), prompt, score in zip(orders_shown, prompts, subject.engine.score_letters(prompts), strict=True):
            by_question[n].append({"order": list(order), "ids": list(prompt.letters), **lists(score)})
        return by_question

    @staticmethod
    def score(record: Record) -> NumberByName:
        """The values of one record, by `format/metric`. An item that was not asked has none."""
        values: NumberByName = {}
        for part, read in (("texts", _text_values), ("letters", _letter_values), ("reply", _reply_values)):
            if part in record:
                values |= read(record)
        return values


def _orders(n: int, orders: Orders) -> list[tuple[int, ...]]:
    """Orders of n options, each the numbers of the options from A on."""
    original = tuple(range(n))
    if orders == "one":
        return [original]
    if orders == "cyclic":
        return [original[start:] + original[:start] for start in original]
    if n > MOST_PERMUTED:
        raise InputError(f"orders = 'all': {n} options have {math.factorial(n):,} orders. Take cyclic")
    return list(itertools.permutations(original))


def _text_values(record: Record) -> NumberByName:
    """The best answer against the wrong ones (TruthfulQA's MC1). The right ones' share of all (its MC2)."""
    from vestige.models import reading as readings

    right, n = record["answer"], len(record["options"])
    tokens = [text["logp"] for text in record["texts"]]
    values: NumberByName = {}
    for form, pick, logp in (
        ("option_text_sum", readings.option_text_sum, [sum(t) for t in tokens]),
        ("option_text_mean", readings.option_text_mean, [sum(t) / len(t) for t in tokens]),
    ):
        values |= {
            f"{form}/accuracy": pick(tokens[:n])[right],
            f"{form}/chance": 1 / n,
            **_among(form, _log_sum([logp[right], *logp[n:]]) - _log_sum(logp)),
        }
    return values


def _letter_values(record: Record) -> NumberByName:
    """Return means over the orders."""
    from vestige.models import reading as readings

    right, n, orders = record["answer"], len(record["options"]), record["letters"]
    values = {"choose/chance": 1 / n} | {f"choose/picked_{letter}": 0.0 for letter in LETTERS[:n]}
    for letters_record in orders:
        letters = readings.LetterScore(
            tuple(letters_record["logp"]), letters_record["top"], letters_record["top_logp"], letters_record["n_top"]
        )
        # `order` contains the options' numbers from A on: the right one's position gives its letter.
        position = letters_record["order"].index(right)
        chosen, first = readings.choose(letters), readings.option_vocab(letters)
        values_of_order = {
            "choose/accuracy": chosen[position],
            **_among("choose", letters.logp[position] - _log_sum(letters.logp)),
            "option_vocab/accuracy": first[position],
            **_among("option_vocab", letters.logp[position]),
            "option_vocab/share_unparsable": max(0.0, 1 - sum(first)),
            **{f"choose/picked_{letter}": share for letter, share in zip(LETTERS, chosen, strict=False)},
        }
        for name, value in values_of_order.items():
            values[name] = values.get(name, 0.0) + value / len(orders)
    # Shares over several orders can add up to slightly more than 1.
    return {name: min(1.0, value) if not name.endswith(BITS_METRIC) else value for name, value in values.items()}


BITS_METRIC = "answer_bits"


def _among(form: str, logp: float) -> NumberByName:
    """Rounding can leave a probability a digit above 1."""
    logp = min(0.0, logp)
    return {f"{form}/probability": math.exp(logp), f"{form}/{BITS_METRIC}": logp / math.log(2)}


def _log_sum(values: Sequence[float]) -> float:
    top = max(values)
    # The maximum is subtracted: for long texts every single likelihood would round to 0.
    return top + math.log(math.fsum(math.exp(v - top) for v in values))


def _reply_values(record: Record) -> NumberByName:
    reply, accepted = record["reply"], record["accepted"]
    wrong = [o for n, o in enumerate(record["options"]) if n != record["answer"]]
    right = any(exact_match(reply, text) for text in accepted)
    picked_wrong = any(exact_match(reply, text) for text in wrong)
    empty, refused = is_empty(reply), is_refusal(reply)
    values = {
        "accuracy": right,
        "prefix_match": any(prefix(reply, text) for text in accepted),
        "contains_match": any(contains(reply, text) for text in accepted),
        "share_wrong_option": picked_wrong,
        "share_empty": empty,
        "share_refused": refused,
        "share_truncated": record["finish"] == "length",
        "share_unparsable": not (right or picked_wrong or empty or refused),
    }
    return {f"generate_option/{name}": float(value) for name, value in values.items()}


PREFIX = "reversed_"


class ReversedSettings(Evaluation):
    """As the settings of `choices`. Texts and replies are off."""

    name: ClassVar[str] = "reversed"
    collect_version: ClassVar[int] = ChoicesSettings.collect_version
    summary_version: ClassVar[int] = ChoicesSettings.summary_version
    audit: ClassVar[InAudit] = InAudit(needs="scores", label="reversed questions", with_texts=False)

    options: int = Field(4, ge=2, le=MOST_OPTIONS)
    """Options of a question."""
    too_few: TooFew = "refuse"
    """What to do with an item that has too few wrong options."""
    orders: Orders = "one"
    """Ask the question's own order, its k rotations, or all k! orders."""
    rendering: Literal["chat", "plain"] = "chat"
    """Prompts in the chat template, or plain."""
    topic: str = ""
    """Topic named above lettered options."""
    seed: int = 0
    """Seed of the drawing."""

    def _forward(self) -> ChoicesSettings:
        """The settings of `choices` that ask the same."""
        return ChoicesSettings(**self.model_dump(), texts=False, replies=False)

    def build_questions(self, items: Sequence[Item], views: Sequence[View]) -> dict[str, Choice | Unasked]:
        """A question with questions as options about each item."""
        return reversed_choices(items, self._forward().drawing())

    @staticmethod
    def digest(questions: Mapping[str, Choice | Unasked]) -> str:
        """That of the same questions in `choices`."""
        return ChoicesSettings.digest(questions)

    def collect(self, subject: LoadedModel, questions: Sequence[Choice | Unasked]) -> list[Fields]:
        """One record a question. Skipped items get a reason."""
        return self._forward().collect(subject, questions)

    @staticmethod
    def score(record: Record) -> NumberByName:
        """The values of one record, by `format/metric`."""
        return {f"{PREFIX}{key}": value for key, value in ChoicesSettings.score(record).items()}
