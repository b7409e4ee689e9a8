"""Where a searched prompt stands in the question as it is sent, as text and as tokens, and the points it is asked at.

A prompt stands before the question (`prefix`), behind it (`suffix`), or at the one marker `{prompt}` in it (`infix`),
a space away from the question's own words.

Questions are asked with the whole prompt, with a share of its tokens, or with them shuffled. A cut prompt is the first
of its tokens, so that its bits in any code from left to right are part of the whole's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from transformers import PreTrainedTokenizerBase

from vestige.artifacts.prompts import SHUFFLED
from vestige.attacks.vocabulary import as_ids, as_texts, inner_texts
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.core.seeds import generator
from vestige.core.text import one_line
from vestige.models.blocks import check_target
from vestige.models.prompts import Prompter
from vestige.models.variants import Around, Ids

Placement = Literal["prefix", "suffix", "infix"]
MARKER = "{prompt}"
# A sign that no question has, from the private use area, to find the prompt's place in the rendered chat.
_HERE = "\ue000"
# Something to stand at the prompt's place when the tokens around it are looked for.
_PROBES = ("x", "!", "the", "0")


def deployed(question: str, prompt: str, placement: Placement) -> str:
    """The question as it is sent. Without a prompt it is the question itself, the marker of an infix left out."""
    if placement == "infix":
        parts = question.split(MARKER)
        if len(parts) != 2:
            raise InputError(
                f"the question {one_line(question, width=60)!r} has the marker {MARKER} {len(parts) - 1} times; an "
                "infix stands at exactly one"
            )
        before, after = parts[0].rstrip(" "), parts[1].lstrip(" ")
    else:
        before, after = (question, "") if placement == "suffix" else ("", question)
    return " ".join(part for part in (before, prompt, after) if part)


def target_of(prompter: Prompter, question: str, answer: str, placement: Placement) -> Ids:
    """The tokens of an answer as the model gives it to the question; refused where they do not say its text."""
    text = answer.strip()
    ids = prompter.encode(deployed(question, "", placement), text).answer_ids if text else ()
    (said,) = as_texts(prompter.tokenizer, [ids])
    # Behind a template that ends without a space the first token has it.
    check_target(prompter.tokenizer, " " + text if text and said.startswith(" ") else text, ids)
    return ids


def around(prompter: Prompter, question: str, target: Ids, placement: Placement) -> Around:
    """The tokens before and behind the prompt in the rendered chat.

    Refused: an empty target, a question or a template that has no place of its own for the prompt.
    """
    where = f"the question {one_line(question, width=60)!r}"
    if not target:
        raise InputError(f"{where} has an empty target, so there is nothing to search for; give a text that has tokens")
    parts = prompter.rendered(deployed(question, _HERE, placement)).split(_HERE)
    if len(parts) != 2:
        raise InputError(f"{where}: the chat template shows the prompt {len(parts) - 1} times; it must show it once")
    before, after = parts
    tokenizer = prompter.tokenizer
    (left,) = as_ids(tokenizer, [before.removesuffix(" ")])
    for probe in _PROBES:
        right = _behind(tokenizer, left, before + probe, after)
        if right is not None:
            return Around(left, right, target, spaced=before.endswith(" "))
    raise InputError(f"{where}: the tokeniser joins the prompt with what stands beside it; choose another placement")


def _behind(tokenizer: PreTrainedTokenizerBase, left: Ids, before: str, after: str) -> Ids | None:
    """The tokens of `after` where it follows `before`; None where a token has part of both, or `left` is not kept."""
    whole = tokenizer.backend_tokenizer.encode(before + after, add_special_tokens=False)
    ids, offsets = tuple(whole.ids), whole.offsets
    first = next((i for i, (_, stop) in enumerate(offsets) if stop > len(before)), len(ids))
    if ids[: len(left)] != left or first <= len(left) or (first < len(ids) and offsets[first][0] < len(before)):
        return None
    return ids[first:]


@dataclass(frozen=True)
class Place:
    """The nearest of what stands around a prompt, as tokens and as text: enough to see what the tokeniser would join.

    `before` has the space that is the prompt's first token's own.
    """

    left: Ids
    right: Ids
    before: str
    after: str

    @property
    def spaced(self) -> bool:
        """Whether the prompt's first token has a space of its own that the prompt's text leaves to the question."""
        return self.before.endswith(" ")


def place_of(tokenizer: PreTrainedTokenizerBase, text: Around) -> Place:
    """The least of the text around the prompt that is the same tokens again once it is text.

    Refused where not even all of it is: such tokens come from no text.
    """
    for n in (2, 4, 8, 16, 32, max(len(text.before), len(text.after))):
        left, right = text.before[-n:], text.after[:n]
        for probe in _PROBES:
            place = _place(tokenizer, left, right, text.spaced, probe)
            if _between(tokenizer, place, probe):
                return place
    raise InputError(
        "the tokens around the searched prompt are not those of their own text, so a prompt found there could not be "
        "sent; take them from a text"
    )


def places_of(tokenizer: PreTrainedTokenizerBase, texts: Sequence[Around]) -> tuple[Place, ...]:
    """The places of one prompt in many texts, each once. Refused where it has a space before it in some only."""
    if len({text.spaced for text in texts}) != 1:
        raise InputError("a space stands before the searched prompt in some texts only; place it alike in all")
    return tuple(dict.fromkeys(place_of(tokenizer, text) for text in texts))


def _place(tokenizer: PreTrainedTokenizerBase, left: Ids, right: Ids, spaced: bool, probe: str) -> Place:
    """The place between these tokens. What stands behind is read behind a probe, so that it keeps its first space."""
    (alone,) = as_ids(tokenizer, [probe])
    before, first, both = as_texts(tokenizer, [left, alone, alone + right])
    return Place(left, right, before + " " if spaced else before, both[len(first) :])


def _between(tokenizer: PreTrainedTokenizerBase, place: Place, prompt: str) -> Ids:
    """The tokens of a prompt's text at its place; empty where what is around it does not stay as it is."""
    (whole,) = as_ids(tokenizer, [place.before + prompt + place.after])
    stop = len(whole) - len(place.right)
    kept = whole[: len(place.left)] == place.left and whole[stop:] == place.right
    return whole[len(place.left) : stop] if kept else ()


def ids_in(tokenizer: PreTrainedTokenizerBase, text: str, places: Sequence[Place]) -> Ids:
    """The tokens of a prompt's text at its places; refused where these differ or join it with what is around it."""
    if text != text.strip():
        raise InputError(
            f"the initial text {one_line(text, width=60)!r} begins or ends with a space, which templates trim; give it "
            "without"
        )
    found = {_between(tokenizer, place, text) for place in places}
    if len(found) != 1 or not all(found):
        raise InputError(
            f"the tokeniser joins the prompt {one_line(text, width=60)!r} with what stands beside it, or cuts it "
            "differently in different texts; start from another one"
        )
    return found.pop()


def kept_in(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Ids], places: Sequence[Place]) -> list[Ids]:
    """The prompts that are the same tokens again, at every place, once they are text.

    Out are also those whose text begins or ends with a space: templates trim what they are given.
    """
    texts = inner_texts(tokenizer, prompts, spaced=places[0].spaced)
    left = [(p, text) for p, text in zip(prompts, texts, strict=True) if text and text == text.strip()]
    for place in places:
        again = as_ids(tokenizer, [place.before + text + place.after for _, text in left])
        left = [(p, text) for (p, text), ids in zip(left, again, strict=True) if ids == place.left + p + place.right]
    return [p for p, _ in left]


_SHARES: Mapping[str, int] = {f"{percent} %": percent for percent in range(0, 101, 10)}
POINTS = (SHUFFLED, *_SHARES)
"""The points of an attack by a searched prompt, in order; the last, the whole prompt, is judged."""


def tokens_at(ids: Sequence[int], point: str, *, seed: int) -> tuple[int, ...]:
    """What stands of a prompt's tokens at a point: a share of them, rounded down, or all of them shuffled."""
    if point == SHUFFLED:
        order = generator(seed, "shuffled prompt").permutation(len(ids))
        return tuple(ids[place] for place in order.tolist())
    return tuple(ids[: len(ids) * _SHARES[point] // 100])


def asked_with_prompt(items: Sequence[Item], text: str, placement: Placement) -> dict[str, Item]:
    """By the id of each item, the item that asks the same with the prompt beside it, in all its wordings.

    An empty prompt leaves each item as it is.
    """
    return {
        item.id: replace(
            item,
            question=deployed(item.question, text, placement),
            paraphrase=None if item.paraphrase is None else deployed(item.paraphrase, text, placement),
        )
        for item in items
    }
