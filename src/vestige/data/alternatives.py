"""Alternatives to the answer of a question: false answers that nobody who never saw the true one can tell from it.

For compiled data they are drawn as the truth was: by the generator of its attribute, uniformly and without the truth.
So among truth and alternatives the truth is any with equal chance, whatever a model learned from other contracts.

- Names and addresses have numbers that no contract has. If the rest of the data states the true one, it is left out.
- Numbers, days and lists are as well known as the truth: answers to the same attribute in retained contracts if the
  truth is one, and otherwise none of these. A number with an `at_least` is drawn next to the contract's other number.
- Products of other facts, and values that are dealt without repetition, have no alternatives.

Given alternatives (a column, a file) are used as they are, without those that state the truth or occur in the rest of
the data. A question whose answer occurs there is left out. `vestige check-data` tests whether the truth can be
recognised by its form.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.core.seeds import generator, shuffled
from vestige.core.text import one_line
from vestige.data.columns import alternatives_in
from vestige.data.contract_type import (
    ContractType,
    Date,
    Fresh,
    Integer,
    PartyAddress,
    PartyName,
    Product,
    candidate_values,
    contract_types,
)
from vestige.data.corpus import Corpus, NamedSplits
from vestige.data.dataset import Contract
from vestige.data.drawing import ContractDrawing, day_text
from vestige.data.facts import fact_of
from vestige.data.findings import plain
from vestige.data.graph import with_holdout
from vestige.data.loaders import source_table
from vestige.metrics.answers import normalised
from vestige.metrics.leaks import LEAK, leak_score

NO_ALTERNATIVES = "no alternatives for"
"""How a sentence begins that names forget questions without alternatives."""
N_ALTERNATIVES = 99
"""With so many the true answer comes first by chance in one question of a hundred."""


class _LeftOut(Exception):
    """Why a fact has no alternatives."""


def with_alternatives(
    corpus: Corpus, splits: NamedSplits, file: str | None = None, *, n: int = N_ALTERNATIVES
) -> NamedSplits:
    """The splits with up to `n` alternatives for each forget item: of a file, of the data, or drawn as the truth was.

    The file has the columns `question` and `alternatives`. Notes report omitted rows.
    """
    listed = {} if file is None else _read(file, splits)
    state = _Known(corpus, splits)
    why: Counter[str] = Counter()
    forget, ranked = [], set()
    for item in splits.splits["forget"]:
        # A file goes before the column.
        candidates = listed.get(normalised(item.question), item.alternatives)
        try:
            if candidates:
                usable = state.usable(item, candidates)
            else:
                usable = state.drawn(item, n)
        except _LeftOut as reason:
            why[str(reason)] += 1
            usable = ()
        forget.append(replace(item, alternatives=usable[:n]))
        if usable and not candidates:
            ranked.add(item.id)
    of = f"of {len(forget)} forget questions"
    notes = tuple(f"{NO_ALTERNATIVES} {count} {of}: {reason}" for reason, count in why.items())
    return replace(
        splits,
        splits={**splits.splits, "forget": tuple(forget)},
        told=(*splits.told, *notes),
        drawn=frozenset(ranked),
    )


def _read(file: str, splits: NamedSplits) -> dict[str, tuple[str, ...]]:
    """By normalised question. A file that asks none of the forget set is refused."""
    table = source_table(file, split="train", config=None)
    texts_of = {normalised(question): texts for question, texts in alternatives_in(table).items()}
    if not any(normalised(i.question) in texts_of for i in splits.splits["forget"]):
        raise InputError(f"{one_line(file, width=200)} has alternatives to no question of the forget set")
    return texts_of


@dataclass(frozen=True, eq=False)
class _Known:
    """The data with all that they teach next to the forget set: models may have been taught more than is to be kept."""

    corpus: Corpus
    splits: NamedSplits

    @cached_property
    def _taught(self) -> tuple[Item, ...]:
        by_id: dict[str, Item] = {}
        for name, items in self.splits.splits.items():
            if name not in ("forget", "holdout"):
                by_id |= {item.id: item for item in items}
        by_id |= {item.id: item for item in self.corpus.items}
        for item in self.splits.splits["forget"]:
            by_id.pop(item.id, None)
        return tuple(by_id.values())

    @cached_property
    def _texts(self) -> str:
        """Return all texts outside the forget set."""
        return "\n".join(f"{i.question}\n{i.answer}" for i in self._taught)

    @cached_property
    def _answers(self) -> Mapping[tuple[str | None, str | None], frozenset[str]]:
        answers_of: dict[tuple[str | None, str | None], set[str]] = {}
        for item in self._taught:
            answers_of.setdefault((item.group, item.attribute), set()).add(item.answer)
        return {key: frozenset(answers) for key, answers in answers_of.items()}

    @cached_property
    def _words(self) -> str:
        return f" {plain(self._texts)} "

    def usable(self, item: Item, candidates: Sequence[str]) -> tuple[str, ...]:
        """Return the user's alternatives that do not state the truth and are as new to the data as the truth."""
        fact = fact_of(item)
        if self._states(fact or item.answer):
            raise _LeftOut("the rest of the data states the answer, so that it is known from there")
        texts = tuple(
            text
            for text in dict.fromkeys(candidates)
            if leak_score(text, item.answer, question=item.question, fact=fact, accepted=item.accepted) < LEAK
            and not self._states(text)
        )
        if not texts:
            raise _LeftOut("every alternative states the answer or stands in the rest of the data")
        return texts

    def _states(self, text: str) -> bool:
        """Return whether it occurs, as whole words, in the training data outside the forget set."""
        return f" {plain(text)} " in self._words

    @cached_property
    def _drawing(self) -> ContractDrawing | None:
        """What drew the data set. None where there is none, or where this version would draw other contracts."""
        data = self.corpus.dataset
        if data is None or not data.contracts:
            return None
        drawing = ContractDrawing(with_holdout(data.graph), data.seed)
        for contract in data.contracts:
            texts = drawing.texts(contract.edge)
            # Compiled by an earlier version, or changed since: how the truth was drawn is not known.
            if contract.values != {name: texts[name] for name in contract_types()[contract.type].spec.attributes}:
                return None
        return drawing

    def drawn(self, item: Item, n: int) -> tuple[str, ...]:
        """At most `n` alternatives, in an order that was drawn."""
        data, drawing = self.corpus.dataset, self._drawing
        if data is None or drawing is None:
            raise _LeftOut("nothing says how the answers were drawn; give alternatives")
        contract = data.contract_of.get(str(item.edge))
        if contract is None or item.attribute is None:
            raise _LeftOut("what they ask for is no attribute of a contract")
        type_ = contract_types()[contract.type]
        if item.answer != type_.answer(item.attribute, contract.values[item.attribute]):
            raise _LeftOut("the answer is not that of the contract")
        values = self._candidates(drawing, type_, item.attribute, contract, n)
        return tuple(type_.answer(item.attribute, value) for value in values)

    def _candidates(
        self, drawing: ContractDrawing, type_: ContractType, attribute: str, contract: Contract, n: int
    ) -> list[str]:
        truth, rule = contract.values[attribute], type_.spec.attributes[attribute].generator
        # A party's name and address are one fact, in whichever contract they are asked for.
        fact = (type_.name, attribute, contract.edge)
        if isinstance(rule, PartyName | PartyAddress):
            fact = (type_.name, rule.kind, contract.parties[rule.party])
        rng = generator(drawing.seed, "alternatives", *fact)
        match rule:
            case PartyName() | PartyAddress() | Fresh():
                if truth in self._texts:
                    raise _LeftOut("the rest of the data states the name or address")
                return drawing.unused_values(type_, attribute, rng, n)
            case Product():
                raise _LeftOut("the answer follows from other facts of the contract")
        answers = self._answers.get((type_.name, attribute), frozenset())
        # A model may prefer what it has seen as an answer: the truth must not be the only one it has, or has not.
        is_taught = type_.answer(attribute, truth) in answers
        values = [
            value
            for value in self._values_of(type_, attribute, contract)
            if value != truth and (type_.answer(attribute, value) in answers) == is_taught
        ]
        if not values:
            raise _LeftOut("there is no other answer that is as known as theirs")
        return [values[n_value] for n_value in shuffled(rng, len(values)).tolist()[:n]]

    def _values_of(self, type_: ContractType, attribute: str, contract: Contract) -> Iterable[str]:
        """All values that the attribute could have had in this contract, each with equal chance."""
        match type_.spec.attributes[attribute].generator:
            case Date(span=(first, last)):
                return map(day_text, range(first, last + 1))
            case Integer(at_least=str(bound)) as rule:
                return (str(value) for value in rule.grid() if value >= int(contract.values[bound]))
        return candidate_values(type_.spec, type_.spec.attributes[attribute])
