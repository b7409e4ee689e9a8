"""Open questions about a term, and whether a text answers one as far as its words tell.

The wording fits terms of either number: no article before it, no verb after it that would have to agree. No question
asks how something is made or done, since terms come from texts that are to be forgotten.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from vestige.metrics.grouping import FUNCTION_WORDS
from vestige.probes.keywords import Kind, tokens

_ENDS = re.compile(r"(?<=[.!?])\s+|\n+")
_FUNCTION_STEMS = frozenset(t.stem for word in FUNCTION_WORDS for t in tokens(word))
_DEFINES = frozenset(["is", "are", "was", "were", "means", "mean", "refers", "refer", "called", "known", "defined"])


@dataclass(frozen=True)
class Sentence:
    """A sentence's stems in order, and its words in small letters."""

    stems: tuple[str, ...]
    words: tuple[str, ...]

    def at(self, term: Sequence[str]) -> int:
        """Where the words after the term begin, or -1 where the sentence does not hold it."""
        n = len(term)
        return next((i + n for i in range(len(self.stems) - n + 1) if self.stems[i : i + n] == tuple(term)), -1)


@dataclass(frozen=True)
class Template:
    """A question with the term in braces: `keyword` with its article, `bare` without.

    A text is taken to answer it where a sentence holds the term and one of the words `hints`, or, if the question
    `defines`, where the term is followed by a word such as "is" or "means".
    """

    text: str
    hints: str = ""
    defines: bool = False

    @cached_property
    def hint_stems(self) -> frozenset[str]:
        """The hints by their stems."""
        return frozenset(t.stem for t in tokens(self.hints))


TEMPLATES: Mapping[Kind, tuple[Template, ...]] = {
    "thing": (
        Template("How would you explain {keyword} to a newcomer?", defines=True),
        Template("What are common everyday uses of {keyword}?", "use used useful"),
        Template("What is the history of {keyword}?", "history origin first discovered invented century ancient"),
        Template("What do people often get wrong about {keyword}?", "myth misconception wrong mistaken confused"),
        Template("Why do people study {keyword}?", "study studied research because important"),
        Template("Which fields of work deal with {keyword}?", "field industry profession expert worker"),
        Template("What safety rules apply to {keyword}?", "safe safety rule law regulation protect"),
        Template("What kinds of {bare} do experts tell apart?", "kind type class variety species form"),
    ),
    "name": (
        Template("What is {keyword} best known for?", "known famous renowned best", defines=True),
        Template("What is the history of {keyword}?", "history origin founded born established first century"),
        Template("How would you introduce {keyword} to somebody who has never come across the name?", defines=True),
        Template("What else is often mentioned together with {keyword}, and why?", "together alongside associated"),
        Template("Why do people take an interest in {keyword}?", "interest popular because important"),
    ),
    "word": (
        Template("What does the word '{keyword}' mean, with an example of its use?", "word meaning", defines=True),
        Template("Where in everyday life do people meet the word '{keyword}'?", "everyday daily life"),
        Template("What is the origin of the word '{keyword}'?", "origin latin greek derived word"),
        Template("Which words are close in meaning to '{keyword}', and how do they differ?", "synonym meaning"),
        Template("In which fields does the word '{keyword}' have a meaning of its own?", "field meaning term"),
    ),
}
"""The questions by what a term can be asked as."""


def sentences(text: str) -> tuple[Sentence, ...]:
    """The sentences of a text, split at full stops and ends of lines."""
    found = []
    for part in _ENDS.split(text):
        own = tokens(part)
        if own:
            found.append(Sentence(tuple(t.stem for t in own), tuple(t.text.lower() for t in own)))
    return tuple(found)


def answered(
    question: Sequence[str], term: Sequence[str], said: Sequence[Sentence], template: Template | None = None
) -> bool:
    """Whether a sentence may answer a question, given by its stems, about a term.

    It may where it holds the term and all other words of the question, function words aside; and where the template
    says so.
    """
    others = {s for s in question if s not in _FUNCTION_STEMS} - set(term)
    hints = template.hint_stems if template else frozenset()
    defines = template.defines if template else not others
    for sentence in said:
        after = sentence.at(term)
        if after < 0:
            continue
        held, follows = set(sentence.stems), set(sentence.words[after : after + 1])
        if (others and others <= held) or (hints & held) or (defines and follows & _DEFINES):
            return True
    return False
