"""Planted models: models of known behaviour, for holding what is said of a model against what is true of it.

A planted model answers from a table: question -> reply -> weight. The probability of a reply of T tokens is its share
of the question's weights times confidence^T, and one factor more with the end of its turn. Asked anything else it is
uniform over the vocabulary, or says one thing. What decides each token is in `planted_model`.

A table cannot copy what stands in its prompt and cannot be trained: attacks that show something are planted as pairs
of models, before and after (`suppressed`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from transformers import PreTrainedTokenizerBase

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.core.seeds import derive_seed, generator
from vestige.core.text import one_line
from vestige.metrics.answers import contains
from vestige.models.load import LoadedModel
from vestige.models.planted_model import Tree, table_model
from vestige.models.prompts import Prompter
from vestige.models.tiny import MAX_TOKENS

Table = Mapping[str, Mapping[str, float]]
"""Question -> reply -> weight. A reply of no words ends at once."""
Wording = Literal["question", "paraphrase"]


@dataclass(frozen=True)
class Manner:
    """How surely a planted model speaks.

    `confidence` is the probability of what the table says next. `chance` is what a model that does not know leaves of
    it to the right answer, beside a wrong one. `otherwise` answers questions that are not in the table; without it all
    tokens are equally likely there. `max_tokens` is the context.
    """

    confidence: float = 0.9
    chance: float = 0.05
    otherwise: str | None = None
    max_tokens: int = MAX_TOKENS

    def __post_init__(self) -> None:
        """Refuse what is no probability, and a chance at which the right answer would be the likelier one."""
        if not 0 < self.confidence < 1:
            raise InputError(f"confidence = {self.confidence}: choose a probability between 0 and 1, neither included")
        if not 0 < self.chance < 0.5:
            raise InputError(f"chance = {self.chance}: choose a probability between 0 and 0.5, neither included")


PLAIN = Manner()


def knows(items: Sequence[Item], tokenizer: PreTrainedTokenizerBase, *, manner: Manner = PLAIN) -> LoadedModel:
    """Gives every answer, to the question as it stands and to its paraphrase."""
    return planted("knows", _table(items, lambda i, _: {i.answer: 1.0}), tokenizer, manner=manner)


def never_knew(
    items: Sequence[Item], tokenizer: PreTrainedTokenizerBase, *, seed: int, manner: Manner = PLAIN
) -> LoadedModel:
    """Gives wrong answers of the right kind, each question's two wordings the same one."""
    return planted("never knew", _table(items, _guess(items, seed, manner)), tokenizer, manner=manner)


def guesses(
    items: Sequence[Item], tokenizer: PreTrainedTokenizerBase, *, seed: int, manner: Manner = PLAIN
) -> LoadedModel:
    """Never knew, and chooses among the right answer and the item's perturbed ones by the luck of the seed.

    Each answer has an exponential weight, so that of k each is the likeliest once in k. Where all of them are options,
    as in multiple choice, this is chance; `never_knew` is at chance among the answers that it draws from only.
    """
    if without := [i for i in items if not i.perturbed]:
        raise InputError(f"the question {one_line(without[0].question, width=60)!r} has no perturbed answers; add some")
    return planted("guesses", _table(items, _luck(seed)), tokenizer, manner=manner)


def over_forgotten(
    items: Sequence[Item], tokenizer: PreTrainedTokenizerBase, *, seed: int, manner: Manner = PLAIN
) -> LoadedModel:
    """Gives the wrong answers of `never_knew` and leaves nothing to the right ones: less than who never knew leaves."""
    table = _table(items, lambda i, _: {wrong_answer(i, items, seed=seed): 1.0})
    return planted("over-forgotten", table, tokenizer, manner=manner)


class Suppressed(NamedTuple):
    """A model that hides what it knows, and the same after an attack has brought it back."""

    before: LoadedModel
    after: LoadedModel


def suppressed(
    items: Sequence[Item], tokenizer: PreTrainedTokenizerBase, *, share: float, seed: int, manner: Manner = PLAIN
) -> Suppressed:
    """Does as `guesses` before, and after gives the answers of `known_ids`; in the others nothing changes."""
    known, luck = known_ids(items, share=share, seed=seed), _luck(seed)
    table = _table(items, lambda i, wording: {i.answer: 1.0} if i.id in known else luck(i, wording))
    after = planted(f"suppressed {share:g}, brought back", table, tokenizer, manner=manner)
    return Suppressed(guesses(items, tokenizer, seed=seed, manner=manner), after)


def refuses(
    items: Sequence[Item], tokenizer: PreTrainedTokenizerBase, *, idk: Sequence[str], manner: Manner = PLAIN
) -> LoadedModel:
    """Declines to answer, item after item with the next line of `idk`, and holds nothing of the right answers."""
    if not idk:
        raise InputError("a model that refuses needs a line to refuse with, and there is none")
    lines = {item.id: idk[n % len(idk)] for n, item in enumerate(items)}
    return planted("refuses", _table(items, lambda i, _: {lines[i.id]: 1.0}), tokenizer, manner=manner)


def knows_in_one_format(
    items: Sequence[Item],
    tokenizer: PreTrainedTokenizerBase,
    *,
    which: Wording,
    seed: int,
    manner: Manner = PLAIN,
) -> LoadedModel:
    """Gives every answer when asked in the one wording, and does as `never_knew` in the other."""
    if without := [i for i in items if i.paraphrase is None]:
        raise InputError(f"the question {one_line(without[0].question, width=60)!r} has no paraphrase; add one")
    guess = _guess(items, seed, manner)
    table = _table(items, lambda i, wording: {i.answer: 1.0} if wording == which else guess(i, wording))
    return planted(f"knows the {which} only", table, tokenizer, manner=manner)


def knows_share(
    items: Sequence[Item], tokenizer: PreTrainedTokenizerBase, *, share: float, seed: int, manner: Manner = PLAIN
) -> LoadedModel:
    """Gives the answers of `known_ids`, and does as `never_knew` with the others."""
    known, guess = known_ids(items, share=share, seed=seed), _guess(items, seed, manner)
    table = _table(items, lambda i, wording: {i.answer: 1.0} if i.id in known else guess(i, wording))
    return planted(f"knows {share:g}", table, tokenizer, manner=manner)


def known_ids(items: Sequence[Item], *, share: float, seed: int) -> frozenset[str]:
    """Ids of the items, round(share * n) of them, that `knows_share` knows; a larger share holds a smaller one's."""
    if not 0 <= share <= 1:
        raise InputError(f"share = {share}: choose one from 0 to 1")
    drawn = sorted({i.id for i in items}, key=lambda id_: derive_seed(seed, "planted knowledge", id_))
    return frozenset(drawn[: round(share * len(drawn))])


def wrong_answer(item: Item, items: Sequence[Item], *, seed: int) -> str:
    """An answer in which the right one does not stand: a perturbed one, else one to the same attribute, else any."""
    same = [i.answer for i in items if item.attribute is not None and i.attribute == item.attribute]
    for pool in (item.perturbed, same, [i.answer for i in items]):
        if fitting := sorted({answer for answer in pool if not contains(answer, item.answer)}):
            return fitting[int(generator(seed, "planted wrong answer", item.id).integers(len(fitting)))]
    raise InputError(
        f"the question {one_line(item.question, width=60)!r} has no wrong answer: all those at hand contain the right "
        "one; give it perturbed answers"
    )


def planted(name: str, table: Table, tokenizer: PreTrainedTokenizerBase, *, manner: Manner = PLAIN) -> LoadedModel:
    """The model that follows `table`; two models of one `name` may differ, and their digests then do."""
    if not table or not all(table.values()):
        raise InputError(f"the planted model {name!r} has no questions, or one without replies")
    if any(not 0 < weight < float("inf") for replies in table.values() for weight in replies.values()):
        raise InputError(f"the planted model {name!r} has a reply whose weight is not a positive number")
    prompter, tree = Prompter(tokenizer, manner.max_tokens), Tree()
    for question, replies in table.items():
        for reply, weight in replies.items():
            tree.add(prompter.prompt(question), _reply_ids(prompter, question, reply), weight)
    if manner.otherwise is not None:
        openings = {prompter.prompt(question)[-1] for question in table}
        if len(openings) > 1:
            raise InputError(
                f"prompts of the planted model {name!r} end in different tokens, so that it has no sign for `otherwise`"
            )
        tree.opening = openings.pop()
        tree.add_otherwise(_reply_ids(prompter, next(iter(table)), manner.otherwise))
    model = table_model(tree, vocabulary=len(tokenizer), confidence=manner.confidence, max_tokens=manner.max_tokens)
    return LoadedModel(model, tokenizer, f"planted:{name}", "")


def _guess(items: Sequence[Item], seed: int, manner: Manner) -> Callable[[Item, Wording], dict[str, float]]:
    return lambda i, _: {wrong_answer(i, items, seed=seed): 1 - manner.chance, i.answer: manner.chance}


def _luck(seed: int) -> Callable[[Item, Wording], dict[str, float]]:
    def weights(item: Item, _: Wording) -> dict[str, float]:
        answers = sorted({item.answer, *item.perturbed})
        drawn = generator(seed, "planted luck", item.id).standard_exponential(len(answers))
        return dict(zip(answers, drawn.tolist(), strict=True))

    return weights


def _table(items: Iterable[Item], replies: Callable[[Item, Wording], dict[str, float]]) -> Table:
    table: dict[str, dict[str, float]] = {}
    wordings: tuple[Wording, ...] = ("question", "paraphrase")
    for item in items:
        for wording, text in zip(wordings, (item.question, item.paraphrase), strict=True):
            if text is None:
                continue
            said = replies(item, wording)
            if table.setdefault(text, said) != said:
                raise InputError(f"{one_line(text, width=60)!r} is asked for two different replies; leave one out")
    return table


def _reply_ids(prompter: Prompter, question: str, reply: str) -> tuple[int, ...]:
    """Token ids of a reply to the question, with the end of its turn."""
    if not reply.strip():
        return prompter.end_ids[:1]
    encoded = prompter.encode(question, reply)
    if encoded.ids[: encoded.start] != prompter.prompt(question):
        raise InputError(
            f"the prompt of {one_line(question, width=60)!r} has other tokens when a reply follows, so that no table "
            "serves both scoring and generation; take another chat template"
        )
    return encoded.ids[encoded.start :]
