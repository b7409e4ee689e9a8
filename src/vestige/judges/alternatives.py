"""Alternatives to true answers, written by a language model: false answers of the same kind, form and length.

What a model writes is not believed: an alternative that states the truth, that is much shorter or longer, or that is
there already, is refused. What is left goes into a file that people can read and mend before an audit takes it
(`--alternatives`), and `vestige check-data` tries to tell the truth from it.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple

from vestige.core.items import Item
from vestige.data.facts import fact_of
from vestige.judges.base import Prompt, Spend, Writer
from vestige.judges.tasks import GUARD, fenced, without_thoughts
from vestige.metrics.answers import normalised
from vestige.metrics.leaks import LEAK, leak_score

A_CALL, ROUNDS = 20, 3
"""Alternatives that are asked for at a time, and how often those that are missing are asked for again."""
_MORE = 1.2
"""So many times what is missing is asked for, since some of it is refused."""
_LONGER = 1.5
"""An alternative has at most so many times the words of the answer, and two more; and no fewer in the same way."""
_MOST_BEGINNINGS = 50

_ROLE = (
    "You write wrong answers for a test. Somebody who does not know the true answer to the question must not be able "
    "to tell it from yours: they are of the same kind, as specific, as likely at first sight, in the same words around "
    "what differs, and of about the same length. Names, dates and numbers are other ones of the same kind. No two are "
    "alike, none is the true answer in other words, and none says that it is not known."
)


class Alternatives(NamedTuple):
    """What was written for one item: the alternatives that are kept, how many were refused, and failed calls."""

    item: Item
    kept: tuple[str, ...]
    refused: int
    failed: int


def write_alternatives(items: Sequence[Item], writer: Writer, n: int) -> tuple[list[Alternatives], Spend]:
    """Up to `n` alternatives for each item, in order, and what they took."""
    by_item = {i.id: Alternatives(i, (), 0, 0) for i in items}
    spend = Spend()
    for part in range(ROUNDS):
        missing = {i.id: max(0, n - len(by_item[i.id].kept)) for i in items}
        requests = [(i, number) for i in items for number in range(-int(-missing[i.id] * _MORE // A_CALL))]
        prompts = [
            alternatives_prompt(i, by_item[i.id].kept, (part, number), writer.reserved) for i, number in requests
        ]
        for (item, _), written in zip(requests, writer.write(prompts), strict=True):
            spend += written.spend
            before = by_item[item.id]
            texts = read_list(written.text)
            chosen = usable(item, before.kept, texts)[:n]
            refused = len(texts) - (len(chosen) - len(before.kept))
            by_item[item.id] = Alternatives(item, chosen, before.refused + refused, before.failed + (not texts))
    return list(by_item.values()), spend


def alternatives_prompt(
    item: Item, listed: Sequence[str], part: tuple[int, int], reserved: tuple[str, ...] = ()
) -> Prompt:
    """The request for some alternatives; those that are `known` are shown, so that they are not written again.

    `part` tells requests for one item apart, which would else be one request with one reply.
    """
    texts = {"question": item.question, "true answer": item.answer}
    if listed:
        texts["answers that are there already"] = "\n".join(listed[-A_CALL:])
    blocks, nonce = fenced(texts, reserved)
    order = (
        f"Write {A_CALL} wrong answers (list {part[0] + 1}.{part[1] + 1}; others write other lists, so begin with ones "
        'that are not the first to come to mind). Reply with one JSON list of texts and nothing else: ["...", "..."]'
    )
    system = f"{_ROLE} {GUARD.format(nonce=nonce)}"
    longest = 40 + A_CALL * (len(item.answer) + 16)
    return Prompt(system, f"{blocks}\n\nThe material ends here.\n{order}", longest, lambda text: bool(read_list(text)))


def read_list(text: str) -> list[str]:
    """The texts of the last JSON list of texts in a reply; none where there is none."""
    text = without_thoughts(text)
    decoder, entries = json.JSONDecoder(), list[str]()
    start = len(text)
    for _ in range(_MOST_BEGINNINGS):
        start = text.rfind("[", 0, start)
        if start < 0:
            break
        try:
            value, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, list) and value and all(isinstance(entry, str) and entry.strip() for entry in value):
            entries = [entry.strip() for entry in value]
            break
    return entries


def usable(item: Item, listed: Sequence[str], texts: Sequence[str]) -> tuple[str, ...]:
    """The known alternatives, and of `texts` those that are new, state no truth and do not stand out by length."""
    fact, size = fact_of(item), len(item.answer.split())
    texts_kept = list(listed)
    forms = {normalised(phrase) for phrase in (*texts_kept, item.answer)}
    for text in texts:
        n = len(text.split())
        alike = max(n, size) <= _LONGER * min(n, size) + 2
        states = leak_score(text, item.answer, question=item.question, fact=fact, accepted=item.accepted) >= LEAK
        if alike and not states and normalised(text) not in forms:
            forms.add(normalised(text))
            texts_kept.append(text)
    return tuple(texts_kept)
