"""Matching of questions between several logs.

A question is identified by the tool's own id if both logs have it and their texts do not contradict it. Otherwise it is
identified by its full prompt without the words of a template. A prompt that occurs several times in a log without
distinct ids is rejected: matching by position would pair different questions if orders differ.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vestige.artifacts.scores import Scores
from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.text import Items, NumberByName, TextByName, one_line
from vestige.logs.log import GivenLog, LogPart


class LogColumn(NamedTuple):
    """The scores of one model by one measurement on the questions of one split. `items` are their ids."""

    entry: GivenLog
    part: LogPart
    items: Items

    @property
    def key(self) -> tuple[str, str]:
        """The split and the name of the measurement."""
        return self.part.split, self.part.name

    @property
    def scores(self) -> NumberByName:
        """The scores that are not missing, by question."""
        return self.by_item(self.part.scores)

    def by_item(self, scores: Scores) -> NumberByName:
        """Other scores of these questions."""
        return {item: score for item, score in zip(self.items, scores.tolist(), strict=True) if not math.isnan(score)}


def by_position(items: Items) -> bool:
    """Whether questions are identified only by position, which has no meaning across logs of different lengths."""
    return bool(items) and re.fullmatch(r"\w+ \d+ of \d+", items[0]) is not None


def _places(part: LogPart) -> Sequence[int]:
    """The places of questions whose ids count the lines of a file, in whatever order. Empty where ids are names."""
    numbers = [int(name) for name in part.ids if name.isdecimal() and len(name) < 10]
    first = min(numbers, default=0)
    if {*numbers} != {*range(first, first + len(part.ids))}:
        return ()
    return [number - first for number in numbers]


class Questions:
    """The questions of one split over all logs. The first log with a question defines it."""

    def __init__(self, split: str) -> None:
        self.split = split
        self._texts: dict[str, tuple[str, str, str]] = {}
        self._by_id: TextByName = {}
        self._by_prompt: dict[str, list[str]] = {}
        self._orders: dict[int, dict[Items, None]] = {}
        self._known: dict[tuple[Items, Items, Items], Items] = {}

    def of_texts(self, part: LogPart) -> Items:
        """Return the questions of a part that has prompts.

        Raises:
            InputError: Neither ids nor prompts distinguish its questions.
        """
        key = part.ids, part.prompts, part.answers
        if key not in self._known:
            items = self._matched(part)
            repeated, times = Counter(items).most_common(1)[0]
            if times > 1:
                place = items.index(repeated)
                raise InputError(
                    f", {part.name}, has {times} scores on one question "
                    f"({one_line(part.questions[place], width=80)!r}). Keep one."
                )
            self._known[key] = items
            self._orders.setdefault(len(items), {})[items] = None
        return self._known[key]

    def of_position(self, part: LogPart, own: Mapping[Items, Items]) -> Items | None:
        """Return the questions of a part without prompts, from its own log or from logs of the same size.

        Args:
            part: The part.
            own: The questions of the same log's parts with prompts, by the parts' ids.

        Returns:
            The questions, or None where logs of this size differ in their order, or where others have prompts and none
            has so many.
        """
        if part.ids in own:
            return own[part.ids]
        n = len(part.scores)
        sizes = {items for items in own.values() if len(items) == n}
        if len(sizes) == 1:
            return sizes.pop()
        named = [self._by_id.get(name) for name in part.ids]
        places = _places(part)
        if not places and len({*named} - {None}) == n:
            return tuple(item for item in named if item is not None)
        orders = self._orders.get(n, {})
        if len(orders) == 1:
            order = next(iter(orders))
            return tuple(order[place] for place in places or range(n))
        if orders or self._texts:
            return None
        return self._new_positions(part, places)

    def has_orders(self, n: int) -> bool:
        """Whether logs contain this many questions, in any order."""
        return n in self._orders

    def _new_positions(self, part: LogPart, places: Sequence[int]) -> Items:
        n = len(part.scores)
        if len(set(part.ids)) == n and not places:
            items = tuple(content_id([self.split, name], length=12) for name in part.ids)
            self._by_id |= dict(zip(part.ids, items, strict=True))
            return items
        return tuple(f"{self.split} {place + 1} of {n}" for place in places or range(n))

    def _matched(self, part: LogPart) -> Items:
        known = [self._by_id.get(name) for name in part.ids]
        shared = [place for place, item in enumerate(known) if item is not None]
        repeated = len(set(part.ids)) < len(part.ids)
        if shared and not repeated:
            # Other words around a question do not change it, if the last question is unique in the log.
            apart = len(set(part.questions)) == len(part.questions)
            agreeing = sum(self._same(known[place] or "", part, place, apart=apart) for place in shared)
            if agreeing == len(shared):
                return self._by_ids(part, known)
        return self._by_texts(part, ids_differ=bool(shared))

    def _same(self, item: str, part: LogPart, place: int, *, apart: bool) -> bool:
        prompt, question, answer = self._texts.get(item, ("", "", ""))
        # The log that defined the question has no texts.
        if not prompt:
            return True
        if len(self._by_prompt[prompt]) > 1 and answer and part.answers and part.answers[place] != answer:
            return False
        return part.prompts[place] == prompt or (apart and part.questions[place] == question != "")

    def _by_ids(self, part: LogPart, known: Sequence[str | None]) -> Items:
        times = Counter(part.prompts)
        items = []
        for place, item in enumerate(known):
            prompt = part.prompts[place]
            same = self._by_prompt.get(prompt, [])
            if item is None and times[prompt] == 1 and len(same) == 1:
                item = same[0]
            items.append(item or self._new(part, place, unique=times[prompt] == 1))
        return tuple(items)

    def _by_texts(self, part: LogPart, *, ids_differ: bool) -> Items:
        times = Counter(part.prompts)
        unclear = next((p for p in part.prompts if times[p] > 1 or len(self._by_prompt.get(p, ())) > 1), "")
        if unclear:
            with_ids = len(set(part.ids)) == len(part.prompts)
            if with_ids and not ids_differ and not any(prompt in self._by_prompt for prompt in times):
                # This is the first log with these questions, and its ids are distinct.
                return tuple(self._new(part, n, unique=times[p] == 1) for n, p in enumerate(part.prompts))
            why = "its ids are those of other questions in another log" if ids_differ else "no id tells them apart"
            raise InputError(
                f", {part.name}, asks {max(times[unclear], len(self._by_prompt.get(unclear, ())))} questions in the "
                f"same words ({one_line(unclear, width=80)!r}), and {why}. Give every question an id of its own."
            )
        items = []
        for place, prompt in enumerate(part.prompts):
            same = self._by_prompt.get(prompt)
            items.append(same[0] if same else self._new(part, place, unique=True))
        return tuple(items)

    def _new(self, part: LogPart, place: int, *, unique: bool) -> str:
        prompt, name = part.prompts[place], part.ids[place] if part.ids else ""
        item = content_id([self.split, prompt] if unique else [self.split, prompt, name], length=12)
        self._texts[item] = prompt, part.questions[place], part.answers[place] if part.answers else ""
        self._by_prompt.setdefault(prompt, []).append(item)
        if name:
            self._by_id.setdefault(name, item)
        return item
