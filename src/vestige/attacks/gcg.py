"""The search loop over prompts, and greedy coordinate gradient (GCG).

The loop knows nothing of models: propose, score, take over, keep. A step proposes prompts from the current one, scores
all proposals and puts the one of least loss into the buffer. With a buffer of 0 the winner always replaces the current
prompt, even if it is worse, as in nanoGCG 0.3.0 and the reference code of ACR. A buffer of n stores the n best winners
and the start, and its best is the current prompt. The best prompt seen is kept in any case. A step depends on the state
before it, the seed, the start's number and the step's number only, so a search that was stopped goes on as if it never
was.

GCG searches for a prompt that makes a model produce a given target, in one text or in many. Source: A. Zou et al.,
Universal and transferable adversarial attacks on aligned language models, 2307.15043. A step takes the gradient of the
loss by the prompt's one-hot tokens, draws `width` prompts with `replaced` tokens swapped for one of the `topk` most
promising ones, drops prompts whose text has other tokens, and continues with the best. Differences to nanoGCG 0.3.0:
tokens are checked in their place and not alone, each prompt is scored once, the start is scored too, and without an
`initial` text the start is drawn at random from the tokens that a prompt may use.

Losses are in nats: the mean over a target's tokens, then over texts. Budgets count tokens as if nothing were shared.

Axes: T tokens of a prompt, V vocabulary, k best tokens of a place, W prompts proposed, R places replaced in each.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field, PositiveInt
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from vestige.attacks.prompts import GcgSettings, Placement, deployed
from vestige.core.errors import InputError
from vestige.core.seeds import generator
from vestige.core.settings import Settings
from vestige.core.text import one_line
from vestige.models.blocks import check_target, embedding_table
from vestige.models.load import LoadedModel
from vestige.models.prompts import Prompter
from vestige.models.variants import Around, Ids, Scored, Variants

_REPLACEMENT = "\ufffd"


@dataclass(frozen=True)
class Vocabulary:
    """Token ids that a searched prompt may use, ascending."""

    ids: Ids

    @property
    def bits(self) -> float:
        """Return the capacity of one token: log2 of the number of allowed tokens."""
        return math.log2(len(self.ids))

    def check(self, prompt: Ids) -> Ids:
        """The prompt itself. Rejects forbidden tokens, whose bits would not count."""
        unknown = sorted(set(prompt).difference(self.ids))
        if unknown:
            raise InputError(
                f"the initial text has {len(unknown)} tokens that are not allowed in a searched prompt, such as id "
                f"{unknown[0]}. Leave them out, or set ascii_only=false where they print but are not ASCII"
            )
        return prompt


def admissible(tokenizer: PreTrainedTokenizerBase, n_rows: int, *, ascii_only: bool = True) -> Vocabulary:
    """Return the tokens below `n_rows` (rows of the embedding) that decode to printable text.

    Out are special and added tokens (a person who types one deploys something different), parts of characters, line
    breaks and other signs that do not print, and with `ascii_only` all that is not ASCII.
    """
    out = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    ids = [i for i in range(min(len(tokenizer), n_rows)) if i not in out]
    texts = as_texts(tokenizer, [(i,) for i in ids])
    printable = tuple(
        i
        for i, text in zip(ids, texts, strict=True)
        if text and text.isprintable() and _REPLACEMENT not in text and (text.isascii() or not ascii_only)
    )
    if not printable:
        raise InputError("no token of the tokeniser is allowed in a searched prompt. Set ascii_only=false")
    return Vocabulary(printable)


def as_texts(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Ids]) -> list[str]:
    """The text of each prompt, to the letter: no special token left out and no space tidied."""
    texts: list[str] = tokenizer.backend_tokenizer.decode_batch([list(p) for p in prompts], skip_special_tokens=False)
    return texts


def as_ids(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[Ids]:
    """The tokens of each text, nothing put before or behind."""
    backend = tokenizer.backend_tokenizer
    # The last caller's settings persist in the tokeniser.
    backend.no_padding()
    backend.no_truncation()
    return [tuple(e.ids) for e in backend.encode_batch_fast(list(texts), add_special_tokens=False)]


def inner_texts(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Ids], *, spaced: bool) -> list[str]:
    """Return each prompt's text without the space that, with `spaced`, separates it from the text before."""
    texts = as_texts(tokenizer, prompts)
    if spaced:
        return [text.removeprefix(" ") for text in texts]
    return texts


def best_tokens(gradient: Float[Tensor, "T V"], vocabulary: Vocabulary, k: int) -> Int[np.ndarray, "T k"]:
    """For each place the `k` admissible tokens whose gradient promises the least loss, the best first."""
    check_topk(k, vocabulary)
    ids = torch.tensor(vocabulary.ids, device=gradient.device)
    best = (-gradient.index_select(1, ids)).topk(k, dim=1).indices
    tokens: Int[np.ndarray, "T k"] = ids[best].cpu().numpy()
    return tokens


def check_topk(k: int, vocabulary: Vocabulary) -> None:
    """Reject more tokens for a place than are allowed there."""
    if k > len(vocabulary.ids):
        raise InputError(
            f"topk is {k}, and only {len(vocabulary.ids)} tokens of the vocabulary are allowed in the prompt. Lower "
            "topk or set ascii_only=false"
        )


def swapped(
    prompt: Ids, best: Int[np.ndarray, "T k"], places: Int[np.ndarray, "W R"], ranks: Int[np.ndarray, "W R"]
) -> list[Ids]:
    """Return the prompt W times, each with the tokens at its `places` replaced by the given `ranks` among the best."""
    rows = np.tile(np.array(prompt), (len(places), 1))
    np.put_along_axis(rows, places, best[places, ranks], axis=1)
    return [tuple(row) for row in rows.tolist()]


def swaps_by_gradient(
    prompt: Ids,
    gradient: Float[Tensor, "T V"],
    vocabulary: Vocabulary,
    *,
    width: int,
    topk: int,
    replaced: int,
    rng: np.random.Generator,
) -> list[Ids]:
    """Return `width` prompts, each with `replaced` tokens swapped uniformly for one of the `topk` best.

    The places within one prompt differ. Repeated prompts and the original prompt can occur.
    """
    if replaced > len(prompt):
        raise InputError(f"replaced is {replaced}, and the prompt has {len(prompt)} tokens. Lower it")
    best = best_tokens(gradient, vocabulary, topk)
    # Ranks of random numbers give distinct positions, as in nanoGCG, with which the tests compare this.
    places = rng.random((width, len(prompt))).argsort(axis=1, kind="stable")[:, :replaced]
    return swapped(prompt, best, places, rng.integers(0, topk, (width, replaced)))


def without_repeats(prompts: Iterable[Ids]) -> list[Ids]:
    """Return each prompt once, in order of appearance."""
    return list(dict.fromkeys(prompts))


# A private-use character that no question contains, to find the prompt's position in the rendered chat.
_HERE = "\ue000"
# Placeholders for the prompt while its neighbouring tokens are determined.
_PROBES = ("x", "!", "the", "0")


def target_of(prompter: Prompter, question: str, answer: str, placement: Placement) -> Ids:
    """Return the tokens of an answer in reply to the question. Raise InputError if they do not decode to the answer."""
    text = answer.strip()
    ids = prompter.encode(deployed(question, "", placement), text).answer_ids if text else ()
    (decoded,) = as_texts(prompter.tokenizer, [ids])
    # After a template without a final space, the first token includes the space.
    check_target(prompter.tokenizer, " " + text if text and decoded.startswith(" ") else text, ids)
    return ids


def around(prompter: Prompter, question: str, target: Ids, placement: Placement) -> Around:
    """The tokens before and behind the prompt in the rendered chat.

    Refused: an empty target, a question or a template that has no place of its own for the prompt.
    """
    where = f"the question {one_line(question, width=60)!r}"
    if not target:
        raise InputError(f"{where} has an empty target, so there is nothing to search for. Give a text that has tokens")
    parts = prompter.rendered(deployed(question, _HERE, placement)).split(_HERE)
    if len(parts) != 2:
        raise InputError(
            f"{where}: the chat template shows the prompt {len(parts) - 1} times. Set another --chat-template"
        )
    before, after = parts
    tokenizer = prompter.tokenizer
    (lead,) = as_ids(tokenizer, [before.removesuffix(" ")])
    # A placeholder that merges with its neighbours gives no position. Another may stay separate.
    for probe in _PROBES:
        right = _behind(tokenizer, lead, before + probe, after)
        if right is not None:
            return Around(lead, right, target, spaced=before.endswith(" "))
    raise InputError(f"{where}: the tokeniser joins the prompt with the text next to it. Choose another placement")


def _behind(tokenizer: PreTrainedTokenizerBase, lead: Ids, before: str, after: str) -> Ids | None:
    """Return the tokens of `after` following `before`. None if a token spans both, or `left` changes."""
    whole = tokenizer.backend_tokenizer.encode(before + after, add_special_tokens=False)
    ids, offsets = tuple(whole.ids), whole.offsets
    first = next((i for i, (_, stop) in enumerate(offsets) if stop > len(before)), len(ids))
    if ids[: len(lead)] != lead or first <= len(lead) or (first < len(ids) and offsets[first][0] < len(before)):
        return None
    return ids[first:]


@dataclass(frozen=True)
class Place:
    """The nearest context of a prompt, as tokens and as text: enough to detect joins by the tokeniser.

    `before` has the space that is the prompt's first token's own.
    """

    left: Ids
    right: Ids
    before: str
    after: str

    @property
    def spaced(self) -> bool:
        """Whether the prompt's first token begins with a space that belongs to the question's text."""
        return self.before.endswith(" ")


def place_of(tokenizer: PreTrainedTokenizerBase, text: Around) -> Place:
    """Return the smallest context of the prompt that tokenises to the same tokens after decoding.

    Raise InputError for tokens that no text produces.
    """
    # A few tokens are nearly always enough, and they are tokenised again with every proposed prompt.
    for n in (2, 4, 8, 16, 32, max(len(text.before), len(text.after))):
        lead, tail = text.before[-n:], text.after[:n]
        for probe in _PROBES:
            slot = _place(tokenizer, lead, tail, text.spaced, probe)
            if _between(tokenizer, slot, probe):
                return slot
    raise InputError(
        "the tokens around the searched prompt do not match their own text, so a prompt found there could not be "
        "sent. Take them from a text"
    )


def places_of(tokenizer: PreTrainedTokenizerBase, texts: Sequence[Around]) -> tuple[Place, ...]:
    """Return the distinct places of one prompt in many texts. Reject a space before it in only some texts."""
    if len({text.spaced for text in texts}) != 1:
        raise InputError("only some texts have a space before the searched prompt. Use the same in all")
    return tuple(dict.fromkeys(place_of(tokenizer, text) for text in texts))


def _place(tokenizer: PreTrainedTokenizerBase, lead: Ids, tail: Ids, spaced: bool, probe: str) -> Place:
    """The place between these tokens. The text behind is encoded after a probe, so that it keeps its first space."""
    (alone,) = as_ids(tokenizer, [probe])
    before, first, both = as_texts(tokenizer, [lead, alone, alone + tail])
    return Place(lead, tail, before + " " if spaced else before, both[len(first) :])


def _between(tokenizer: PreTrainedTokenizerBase, slot: Place, prompt: str) -> Ids:
    """The tokens of a prompt's text at its place. Empty if its context changes."""
    (whole,) = as_ids(tokenizer, [slot.before + prompt + slot.after])
    stop = len(whole) - len(slot.right)
    fits = whole[: len(slot.left)] == slot.left and whole[stop:] == slot.right
    if fits:
        return whole[len(slot.left) : stop]
    return ()


def ids_in(tokenizer: PreTrainedTokenizerBase, text: str, places: Sequence[Place]) -> Ids:
    """The tokens of a prompt's text at its places. Rejects tokens that differ or join their context."""
    if text != text.strip():
        raise InputError(
            f"the initial text {one_line(text, width=60)!r} begins or ends with a space, which templates trim. Give it "
            "without"
        )
    readings = {_between(tokenizer, slot, text) for slot in places}
    if len(readings) != 1 or not all(readings):
        raise InputError(
            f"the tokeniser joins the prompt {one_line(text, width=60)!r} with the text next to it, or cuts it "
            "differently in different texts. Start from another one"
        )
    return readings.pop()


def kept_in(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Ids], places: Sequence[Place]) -> list[Ids]:
    """The prompts that are the same tokens again, at every place, once they are text.

    Texts that begin or end with a space are excluded too: templates trim their input.
    """
    texts = inner_texts(tokenizer, prompts, spaced=places[0].spaced)
    rest = [(p, text) for p, text in zip(prompts, texts, strict=True) if text and text == text.strip()]
    for slot in places:
        read_back = as_ids(tokenizer, [slot.before + text + slot.after for _, text in rest])
        rest = [(p, text) for (p, text), ids in zip(rest, read_back, strict=True) if ids == slot.left + p + slot.right]
    return [p for p, _ in rest]


SearchEnd = Literal["", "reached", "steps"]


class SearchSettings(Settings):
    """The limits and the memory of a search. `steps` apply to one start. The module explains `buffer`."""

    steps: PositiveInt = 250
    buffer: int = Field(default=0, ge=0)
    stop_when_reached: bool = True


class PromptObjective(Protocol):
    """The goal of a search. It counts the tokens that it reads itself."""

    def leaders(self, prompts: Sequence[Ids], n: int) -> list[Scored]:
        """The `n` prompts of least loss, least first."""
        ...

    def reached(self, prompt: Ids) -> bool:
        """Whether the prompt does all that is wanted."""
        ...

    def gradient(self, prompt: Ids) -> Float[Tensor, "T V"]:
        """The derivative of the loss by the prompt's one-hot tokens."""
        ...


Propose = Callable[[Ids, int, np.random.Generator], Sequence[Ids]]
"""Prompts to score at a step of a start, from the current one: at least one, none twice."""


@dataclass(frozen=True)
class SearchState:
    """A search between two steps. `losses` has the winner's of each step. `ended` is empty while it is under way.

    `best` is the prompt of least loss, or the one that reached the goal. `step` counts over all starts.
    """

    step: int
    buffer: tuple[tuple[Ids, float], ...]
    best: tuple[Ids, float]
    ended: SearchEnd
    spent: Mapping[str, int]
    losses: tuple[float, ...]


class Keeper(Protocol):
    """The storage of a search between steps. Writes are atomic."""

    def load(self) -> SearchState | None:
        """Return the last state, or None if there is none."""
        ...

    def save(self, state: SearchState) -> None:
        """Keep this state in place of the last."""
        ...


def nothing_spent() -> Counter[str]:
    """Return the zero counts of a search."""
    return Counter(dict.fromkeys(("steps", "gradients", "candidates", "tokens_read"), 0))


def tell_nobody(done: int, of: int) -> None:
    """Report nothing."""


def search(
    start: Ids,
    objective: PromptObjective,
    propose: Propose,
    settings: SearchSettings,
    *,
    seed: int,
    spent: Counter[str],
    keeper: Keeper | None = None,
    on_step: Callable[[int, int], None] = tell_nobody,
) -> SearchState:
    """Search from `start`. The best prompt is the result.

    Counted in `spent` here: `steps`, and `candidates` for every prompt scored.
    """
    run = _Search(objective=objective, propose=propose, settings=settings, seed=seed, spent=spent)
    state = keeper.load() if keeper is not None else None
    if state is None:
        state = run.begun(start)
    else:
        # The counter is changed in place because the objective and the proposals share it.
        spent.clear()
        spent.update(state.spent)
    while True:
        if not state.ended and state.step == settings.steps:
            state = replace(state, ended="steps")
        # A finished search is stored too, so that a later run reuses its prompt.
        if keeper is not None:
            keeper.save(state)
        if state.ended:
            return state
        state = run.after(state)
        on_step(state.step, settings.steps)


@dataclass(frozen=True)
class _Search:
    objective: PromptObjective
    propose: Propose
    settings: SearchSettings
    seed: int
    spent: Counter[str]

    def after(self, state: SearchState) -> SearchState:
        """The state one step on."""
        settings = self.settings
        # The 0 is the number of the start. Earlier versions had several.
        drawing = generator(self.seed, "prompt search", 0, state.step)
        prompts = self.propose(state.buffer[0][0], state.step, drawing)
        self.spent.update({"steps": 1})
        winner = self._least(prompts)
        reached = settings.stop_when_reached and self.objective.reached(winner[0])
        buffer = [winner]
        if settings.buffer:
            buffer = list(state.buffer)
            # A duplicate in the buffer would displace another prompt.
            if winner[0] not in dict(buffer):
                buffer.append(winner)
            # The lowest loss comes first. Among equal ones the earlier comes first.
            buffer = sorted(buffer, key=lambda entry: entry[1])[: settings.buffer]
        return SearchState(
            step=state.step + 1,
            buffer=tuple(buffer),
            best=winner if reached or winner[1] < state.best[1] else state.best,
            ended="reached" if reached else "",
            spent=dict(self.spent),
            losses=(*state.losses, winner[1]),
        )

    def begun(self, start: Ids) -> SearchState:
        """The state before the first step."""
        scored = self._least([start])
        reached = self.settings.stop_when_reached and self.objective.reached(start)
        return SearchState(0, (scored,), scored, "reached" if reached else "", dict(self.spent), ())

    def _least(self, prompts: Sequence[Ids]) -> tuple[Ids, float]:
        """The prompt of least loss."""
        self.spent.update({"candidates": len(prompts)})
        (leader,) = self.objective.leaders(prompts, 1)
        if not math.isfinite(leader.loss):
            raise InputError(
                f"the loss of a searched prompt is {leader.loss}, so prompts cannot be compared. Load the "
                "model in float32 and check its weights"
            )
        return prompts[leader.index], leader.loss


DRAWS = 8
"""The number of redraws in a step if no prompt keeps its tokens as text."""
# The number of tokens drawn for a position of the start, decoded in one call of the tokeniser.
_TRIED = 32


@dataclass(frozen=True)
class FoundPrompt:
    """The best prompt of a search. `reached` is the search's claim: every target token is the first choice.

    `ended` is `reached` or `steps`. `admissible_bits` is the capacity of one token.
    """

    ids: Ids
    text: str
    loss: float
    reached: bool
    ended: str
    steps: int
    spent: Mapping[str, int]
    admissible_bits: float


@dataclass(frozen=True)
class Targets:
    """The objective of a search on all texts' targets, by one model. It counts what that reads."""

    variants: Variants
    texts: tuple[Around, ...]
    spent: Counter[str]

    def leaders(self, prompts: Sequence[Ids], n: int) -> list[Scored]:
        """The prompts of least loss."""
        self.charge(prompts)
        return self.variants.leaders(prompts, n)

    def reached(self, prompt: Ids) -> bool:
        """Whether every token of every target is the model's first choice."""
        self.charge([prompt])
        return all(self.variants.reached(prompt))

    def gradient(self, prompt: Ids) -> Float[Tensor, "T V"]:
        """The derivative of the loss by the prompt's one-hot tokens."""
        self.spent.update({"gradients": 1})
        self.charge([prompt])
        return self.variants.gradient(prompt)

    def charge(self, prompts: Sequence[Ids]) -> None:
        """Book the tokens of the prompts in their texts."""
        self.spent.update({"tokens_read": tokens_read(self.texts, prompts)})


@dataclass(frozen=True)
class ByGradient:
    """Proposes swaps of tokens that the gradient promises most of and that stay the same tokens as text."""

    objective: PromptObjective
    where: "PromptSearch"
    width: int
    replaced: int = 1

    def __call__(self, prompt: Ids, step: int, rng: np.random.Generator) -> list[Ids]:
        """Return at most `width` prompts. Draw again, at most `DRAWS` times, if none keeps its tokens."""
        gradient = self.objective.gradient(prompt)
        for _ in range(DRAWS):
            swaps = swaps_by_gradient(
                prompt,
                gradient,
                self.where.vocabulary,
                width=self.width,
                topk=self.where.topk,
                replaced=self.replaced,
                rng=rng,
            )
            valid = self.where.kept(without_repeats(swaps))
            if valid:
                return valid
        raise InputError(
            f"step {step + 1}: of {DRAWS} times {self.width} drawn prompts none is the same tokens again once it "
            "is text. Start from another `initial` text, or raise topk"
        )


def tokens_read(texts: Sequence[Around], prompts: Sequence[Ids]) -> int:
    """Return the number of tokens read to score each prompt in each text, without sharing."""
    n_read = 0
    for text in texts:
        n_read += sum(text.length(len(prompt)) for prompt in prompts)
    return n_read


def find_prompt(
    loaded: LoadedModel,
    texts: Sequence[Around],
    settings: GcgSettings,
    *,
    seed: int,
    keeper: Keeper | None = None,
    on_step: Callable[[int, int], None] = tell_nobody,
) -> FoundPrompt:
    """The prompt that makes `loaded` say the target of every text, or comes nearest.

    If the search did not check its goal, the best prompt is checked once, uncounted.
    """
    variants = Variants(loaded.model, texts)
    targets = Targets(variants, tuple(texts), nothing_spent())
    searching = PromptSearch(
        loaded=loaded,
        texts=tuple(texts),
        n_rows=len(embedding_table(loaded.model)),
        ascii_only=settings.ascii_only,
        topk=settings.topk,
    )
    state = search(
        searching.start(settings.tokens, settings.initial, seed=seed),
        targets,
        ByGradient(objective=targets, where=searching, width=settings.width, replaced=settings.replaced),
        SearchSettings(steps=settings.steps, buffer=settings.buffer, stop_when_reached=settings.stop_when_reached),
        seed=seed,
        keeper=keeper,
        spent=targets.spent,
        on_step=on_step,
    )
    # Without this stop, the search did not check it.
    if settings.stop_when_reached:
        reached = state.ended == "reached"
    else:
        reached = all(variants.reached(state.best[0]))
    return searching.found(state, reached=reached)


@dataclass(frozen=True)
class PromptSearch:
    """The domain of a prompt search: a model's texts, and the allowed tokens.

    `n_rows` is the number of tokens that have an embedding. `topk` is how many tokens proposals choose from.
    """

    loaded: LoadedModel
    texts: tuple[Around, ...]
    n_rows: int
    ascii_only: bool
    topk: int

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The tokens that the prompt may use. Fewer than `topk` are rejected."""
        vocabulary = admissible(self.loaded.tokenizer, self.n_rows, ascii_only=self.ascii_only)
        check_topk(self.topk, vocabulary)
        return vocabulary

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """The prompt's places."""
        return places_of(self.loaded.tokenizer, self.texts)

    def kept(self, prompts: Sequence[Ids]) -> list[Ids]:
        """Return the prompts whose tokens survive conversion to text."""
        return kept_in(self.loaded.tokenizer, prompts, self.places)

    def start(self, n_tokens: int, initial: str, *, seed: int) -> Ids:
        """The prompt that a search begins with: the `initial` text if there is one, otherwise drawn by the seed."""
        if initial:
            return self.vocabulary.check(ids_in(self.loaded.tokenizer, initial, self.places))
        return self._drawn(n_tokens, generator(seed, "start of a prompt search", 0))

    def _drawn(self, n_tokens: int, rng: np.random.Generator) -> Ids:
        """Draw a prompt of this length, one token after the other, such that its tokens survive conversion to text."""
        ids = self.vocabulary.ids
        prompt: Ids = ()
        while len(prompt) < n_tokens:
            for _ in range(DRAWS):
                valid = self.kept([(*prompt, ids[i]) for i in rng.integers(0, len(ids), _TRIED)])
                if valid:
                    prompt = valid[0]
                    break
            else:
                raise InputError(
                    f"no token drawn for place {len(prompt) + 1} of the first prompt is the same tokens again once it "
                    "is text. Give an `initial` text"
                )
        return prompt

    def found(self, state: SearchState, *, reached: bool) -> FoundPrompt:
        """The best prompt of a search that has ended."""
        ids, loss = state.best
        return FoundPrompt(
            ids=ids,
            text=inner_texts(self.loaded.tokenizer, [ids], spaced=self.places[0].spaced)[0],
            loss=loss,
            reached=reached,
            ended=state.ended,
            steps=state.step,
            spent=state.spent,
            admissible_bits=self.vocabulary.bits,
        )
