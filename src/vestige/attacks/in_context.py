"""The in-context attack: a few retain items precede the question, as facts. Nothing is trained.

No fact contains its question's answer, so each question has its own facts. Edge names and attributes decide whether
retain items are related to the forget set.

`close` finds forget items that follow from the shown items. In doubtful cases, an item is untested.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import accumulate, islice
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import PositiveInt

from vestige.attacks.planning import GIVEN, Attack, AttackSettings, Ended, Splits, Work
from vestige.core.errors import InputError
from vestige.core.items import Item, ItemTuple
from vestige.core.seeds import derive_seed
from vestige.core.text import one_line
from vestige.data.contracts import Product, contract_types
from vestige.metrics.answers import contains, normalised
from vestige.metrics.gains import code_length, text_capacity

if TYPE_CHECKING:
    from vestige.models.load import LoadedModel
    from vestige.models.prompts import Encoded

_WORD = r"[A-ZÀ-ÖØ-Þ][\w'&-]*"
# Consecutive words with a Latin capital, and numbers: the parts of names, dates and amounts.
_SPECIFIC = re.compile(rf"(?<!\w)(?:\d+(?:[.,:/-]\d+)*|{_WORD}(?:\s+{_WORD})*)")


def close(items: Iterable[Item], context: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """Return the testable items, and those whose answers the shown ones reveal (`Shown.gives_away`)."""
    stated = Shown(tuple(context))
    tested: list[Item] = []
    given_away: list[Item] = []
    for item in items:
        (given_away if stated.gives_away(item) else tested).append(item)
    return tested, given_away


@dataclass(frozen=True)
class Shown:
    """The questions and answers of shown items, of each edge and of all together. No other wording counts."""

    items: ItemTuple

    @cached_property
    def _everything(self) -> str:
        return _texts(self.items)

    @cached_property
    def _questions(self) -> frozenset[str]:
        return frozenset(_plain(i.question) for i in self.items)

    @cached_property
    def _of_edge(self) -> dict[str | None, list[Item]]:
        edges: dict[str | None, list[Item]] = {}
        for item in self.items:
            edges.setdefault(item.edge, []).append(item)
        return edges

    @cached_property
    def _text_of_edge(self) -> dict[str | None, str]:
        return {edge: _texts(items) for edge, items in self._of_edge.items()}

    def gives_away(self, item: Item) -> bool:
        """Return whether the shown items contain the item's question, its answer, or the inputs of its computation.

        An answer is shown if it occurs, as whole words, in a shown question or answer, or if every name, date and
        amount outside the item's own question occurs. From other edges only identifying texts count (two words, or four
        digits), since `5` and `Seller` answer many questions.
        """
        if not self._questions.isdisjoint(_wordings(item)) or self._states(item, item.answer):
            return True
        new = [s for s in specifics(item.answer) if not stands_in(item.question, s)]
        return bool(new and all(self._states(item, s) for s in new)) or self._computed(item)

    def _states(self, item: Item, text: str) -> bool:
        of_edge = self._text_of_edge.get(item.edge, "")
        return stands_in(of_edge, text) or (identifies(text) and stands_in(self._everything, text))

    def _computed(self, item: Item) -> bool:
        """Whether its contract type makes the answer a product, or a factor of one, of stated answers."""
        type_ = contract_types().get(item.group or "")
        if type_ is None or item.attribute is None:
            return False
        stated = {s.attribute for s in self._of_edge.get(item.edge, ()) if s.group == item.group}
        for name, attribute in type_.spec.attributes.items():
            if isinstance(attribute.generator, Product):
                parts = {name, *attribute.generator.of}
                if item.attribute in parts and stated.issuperset(parts - {item.attribute}):
                    return True
        return False


def specifics(answer: str) -> list[str]:
    """The names, dates and amounts in an answer: numbers, and runs of words with a capital.

    A single word that opens a sentence is none, unless it is the whole answer: its capital is the sentence's.
    """
    if len(answer.split()) == 1:
        return [m[0] for m in _SPECIFIC.finditer(answer)]
    names = [(answer[: m.start()], m[0].removesuffix("'s")) for m in _SPECIFIC.finditer(answer)]
    return [text for before, text in names if " " in text or text[0].isdigit() or not _opens_sentence(before)]


def _opens_sentence(before: str) -> bool:
    """Whether a sentence begins behind this text, opening quotes and brackets aside."""
    start = before.rstrip("'\"“‘(")
    ended = start.rstrip()
    return not ended or (ended != start and ended.rstrip("'\"”’)").endswith((".", "!", "?")))


def identifies(text: str) -> bool:
    """Return whether a text is so specific that it identifies its answer anywhere: two words, or four digits."""
    return len(text.split()) > 1 or sum(c.isdigit() for c in text) >= 4


def not_asked(items: Iterable[Item], tested: Iterable[Item]) -> list[Item]:
    """Return the items whose question does not appear among the tested ones, in any wording."""
    taken = set[str]().union(*map(_wordings, tested))
    return [i for i in items if _plain(i.question) not in taken]


def _wordings(item: Item) -> set[str]:
    """The questions that ask the same as the item, case and white space aside."""
    return {_plain(item.question), _plain(item.paraphrase or item.question)}


def holds_answer(context: Item, item: Item) -> bool:
    """Whether the item's answer is in a shown one, or the shown one asks the same."""
    if _plain(context.question) in _wordings(item):
        return True
    return stands_in(context.question, item.answer) or stands_in(context.answer, item.answer)


def stands_in(text: str, answer: str) -> bool:
    """Whether the answer is in the text as whole words (`metrics.answers.contains`). One of no words does not."""
    # Most texts fail this quick check.
    return bool(phrase := _plain(answer)) and phrase in _plain(text) and contains(text, answer)


def answered_by_others(items: Iterable[Item]) -> set[str]:
    """Return the ids of the items whose answers occur in another item's question."""
    by_id = {i.id: i for i in items}
    questions = list(by_id.values())
    # Each answer is searched for once in all questions. Normalised text contains no line break.
    text = "".join(f"{_plain(i.question)}\n" for i in questions)
    ends = list(accumulate(len(_plain(i.question)) + 1 for i in questions))

    @cache
    def first_two(answer: str) -> set[str]:
        phrase, holders = _plain(answer), set[str]()
        if phrase:
            start = text.find(phrase)
        else:
            start = -1
        while start >= 0 and len(holders) < 2:
            number = bisect_right(ends, start)
            if contains(questions[number].question, answer):
                holders.add(questions[number].id)
            start = text.find(phrase, ends[number])
        return holders

    return {i.id for i in questions if first_two(i.answer) - {i.id}}


_plain = lru_cache(maxsize=65536)(normalised)


def _texts(items: Iterable[Item]) -> str:
    # The separator keeps an answer from spanning two texts: `stands_in` checks it first, and `contains` alone would
    # miss it.
    return " | ".join(f"{item.question} | {item.answer}" for item in items)


INTRODUCTION = "Here is some of what is known."


def in_seeded_order(retain: Sequence[Item], *, seed: int) -> ItemTuple:
    """The items in an order that depends on the seed and on each item alone."""
    return tuple(sorted(retain, key=lambda i: derive_seed(seed, "in context", i.id)))


def facts_before(item: Item, retain: Sequence[Item], n: int) -> ItemTuple:
    """Return the `n` retain items that precede the question, closest first. Refused where there are fewer.

    First come edges that share an entity with the item's own, then its group and attribute, then others. Among them in
    the order given. Those of n = 4 are the first of n = 8.
    """
    ends = ends_of(item.edge)

    def distance(fact: Item) -> int:
        if ends & ends_of(fact.edge):
            return 0
        if item.attribute is not None and (fact.group, fact.attribute) == (item.group, item.attribute):
            return 1
        return 2

    # If no edge is close, the first suitable items are used.
    nearest_first = retain
    if ends or item.attribute is not None:
        nearest_first = sorted(retain, key=distance)
    admissible = (f for f in nearest_first if not holds_answer(f, item))
    facts_of = tuple(islice(admissible, n))
    if len(facts_of) < n:
        raise InputError(
            f"{n} facts are needed before {one_line(item.question, width=60)!r}, and {len(facts_of)} retain items "
            "do not hold its answer. Lower the number of facts"
        )
    return facts_of


def with_facts(question: str, facts: Sequence[Item]) -> str:
    """The question after the facts, a line each."""
    lines = "".join(f"- {fact.question.strip()} {fact.answer.strip()}\n" for fact in facts)
    return f"{INTRODUCTION}\n{lines}\n{question}"


def asked_with_facts(items: Sequence[Item], facts: Mapping[str, Sequence[Item]]) -> dict[str, Item]:
    """Return, by item id, the item with facts before its question, in all wordings.

    Its question is another, and so is its id.
    """
    return {
        item.id: replace(
            item,
            question=with_facts(item.question, facts[item.id]),
            paraphrase=None if item.paraphrase is None else with_facts(item.paraphrase, facts[item.id]),
        )
        for item in items
    }


AGAIN = "~"
"""Before the number of a further contract between the same two entities, as in `A_B~2`."""


@lru_cache(maxsize=65536)
def ends_of(edge: str | None) -> frozenset[str]:
    """Return the two entities of an edge named `X_Y`, or None for another form of name."""
    ends = (edge or "").partition(AGAIN)[0].split("_")
    if len(ends) == 2 and all(ends):
        return frozenset(ends)
    return frozenset()


def related_items(retain: Sequence[Item], forget: Sequence[Item]) -> list[Item]:
    """The retain items of edges that share an entity with a forgotten one.

    If no edge does, items with the same attribute of the same group.
    """
    entities = frozenset().union(*(ends_of(i.edge) for i in forget))
    if touching := [i for i in retain if entities & ends_of(i.edge)]:
        return touching
    kinds = {(i.group, i.attribute) for i in forget if i.attribute is not None}
    return [i for i in retain if (i.group, i.attribute) in kinds]


class InContextSettings(AttackSettings):
    """Put other retain items before each question."""

    kind: ClassVar[str] = "in_context"
    amount: ClassVar[str] = "facts"
    beside: ClassVar[bool] = True

    facts: PositiveInt = 8
    """Retained items before each question. No fact answers it."""

    def plan(self, splits: Splits, *, seed: int) -> Attack:
        """Plan the facts before each question, and ask all forget items."""
        plain = self.at_once(self.kind, splits, material="retain", n_shown=self.facts)
        retain = in_seeded_order(not_asked(splits.get("retain", ()), plain.tested), seed=seed)
        facts = {i.id: facts_before(i, retain, self.facts) for i in plain.tested}
        shown: dict[str, Item] = {}
        for items in facts.values():
            shown |= {fact.id: fact for fact in items}
        return replace(plain, shown=tuple(shown.values()), facts=facts)

    def run(self, work: Work, loaded: "LoadedModel") -> Ended:
        """Measure the shown texts, and evaluate."""
        n_facts = sum(len(facts) for facts in work.attack.facts.values())
        texts = _texts_of_facts(work, loaded)
        granted = {"steps": 0, "items_shown": n_facts, "tokens_shown": sum(t.stop - t.start for t in texts)}
        bounds = {
            "tokens x log2(vocabulary) of the text shown": text_capacity(granted["tokens_shown"], len(loaded.tokenizer))
        }
        # An endpoint may give no log-probabilities. Then only the bound by length exists.
        if loaded.engine.scores:
            lengths = [code_length(np.array(s.logp)) for s in loaded.engine.score_answers(texts, whole=True)]
            bounds["code length of the text shown, under the subject"] = sum(lengths)
        work.ask(GIVEN, lambda: loaded, work.on_progress)
        return Ended(bounds, granted, granted)


def _texts_of_facts(work: Work, loaded: "LoadedModel") -> "list[Encoded]":
    """Return each question's prompt with the place of the attack's text: the difference from the plain prompt."""
    from vestige.models.prompts import Encoded

    prompter, items, texts = loaded.prompter, work.asked, []
    for item in work.attack.tested:
        try:
            prompt = prompter.prompt(items[item.id].question)
        except InputError as error:
            raise InputError(f"the facts do not fit before every question ({error}). Show fewer facts") from error
        plain = prompter.prompt(item.question)
        # The texts are compared because a template may put the question anywhere, and a tokeniser may merge it with the
        # text before.
        start = _n_alike(prompt, plain)
        # The comparison begins at `start`. Otherwise tokens common to both ends would count twice.
        behind = _n_alike(prompt[start:][::-1], plain[start:][::-1])
        if start == 0:
            raise InputError(
                "the prompts of this model have no first token of their own, so facts cannot be measured. Leave this "
                "attack out"
            )
        texts.append(Encoded(prompt, start, len(prompt) - behind, len(prompt) - behind))
    return texts


def _n_alike(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """Return the length of the common beginning of two sequences."""
    n = 0
    while n < min(len(first), len(second)) and first[n] == second[n]:
        n += 1
    return n
