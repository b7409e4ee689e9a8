"""Cloze: the statement that answers a question, with its fact left out.

The statement is the text that the item's wrong answers reword: `paraphrased_answer` where there is one, else `answer`.
Its fact is the words in which it differs from the wrong answers: what remains without the words that it begins with in
common with all of them, and those that it ends with. Words are parted by white space and compared after `normalised`,
without the marks that close a clause; such marks at the end of the fact stay in the statement. A wrong answer that is
the right one, or nothing, counts for nothing.

Where that sets no fact apart, the gap is the whole answer, and nothing of it is shown. So it is without wrong answers,
where they share no words with the statement or differ from it by words put in only, and where the rest of the statement
states the fact again or holds a gap of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vestige.core.items import Item
from vestige.metrics.answers import contains, normalised

BLANK = "____"
"""What stands where the fact was."""
FEW_WORDS = 5
_CLOSING = ".,;:!?…。，、；：！？"


@dataclass(frozen=True)
class Cloze:
    """`statement` has `BLANK` in the place of `fact`; with `whole`, it is nothing else and `fact` is the answer."""

    statement: str
    fact: str
    whole: bool


def cloze_of(item: Item) -> Cloze:
    """The item's statement without its fact, or a gap for the whole answer."""
    return _gapped(item) or Cloze(BLANK, item.answer, whole=True)


def fact_of(item: Item) -> str | None:
    """What a reply gives the answer away with: the item's `fact`, else a gap of a few words, else None.

    A longer gap is a clause in the words of the wrong answers, of which a wrong reply says much; the answer says more.
    """
    if item.fact is not None:
        return item.fact
    gap = _gapped(item)
    return gap.fact if gap is not None and len(gap.fact.split()) <= FEW_WORDS else None


def _gapped(item: Item) -> Cloze | None:
    """The statement that shows a part of the answer; None where the wrong answers set no fact apart."""
    words = (item.paraphrased_answer or item.answer).split()
    right = _compared(words)
    wrong = [w for w in (_compared(text.split()) for text in item.perturbed) if w and w != right]
    if not wrong:
        return None
    first, last = _shared([right, *wrong])
    gap = " ".join(words[first : len(words) - last])
    fact = gap.rstrip(_CLOSING + " ")
    if first + last == 0 or not normalised(fact):
        return None
    statement = " ".join([*words[:first], BLANK + gap[len(fact) :], *words[len(words) - last :]])
    if statement.count(BLANK) > 1 or contains(statement, fact):
        return None
    return Cloze(statement, fact, whole=False)


def _compared(words: Sequence[str]) -> list[str]:
    return [normalised(word).rstrip(_CLOSING) for word in words]


def _shared(texts: Sequence[Sequence[str]]) -> tuple[int, int]:
    """How many words all texts begin with in common, and of what is left in the shortest, how many they end with."""
    least = min(map(len, texts))
    first = next((n for n in range(least) if len({t[n] for t in texts}) > 1), least)
    last = next((n for n in range(least - first) if len({t[-1 - n] for t in texts}) > 1), least - first)
    return first, last
