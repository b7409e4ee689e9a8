"""Enhanced GCG's moves and its search: which change a step makes, how long a prompt is, where tokens come from.

The rules are FLRT's (T. B. Thompson, M. Sklar, 2407.17447), with two differences. No prompt ever grows longer than is
granted, so that what it can carry is bounded; and a prompt that lacks several tokens gets up to four in one step, since
a short search would be all insertions else. Every draw comes from a generator.

Axes: T tokens of a prompt, V vocabulary, N places.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from vestige.attacks.enhanced import EnhancedSettings, GuideReply, Lengths, Move, layers_at_depth
from vestige.attacks.enhanced_objective import PrefixObjective
from vestige.attacks.gcg import (
    DRAWS,
    FoundPrompt,
    Keeper,
    SearchSettings,
    drawn_start,
    found_prompt,
    nothing_spent,
    search,
    tell_nobody,
)
from vestige.attacks.placement import (
    Place,
    Vocabulary,
    admissible,
    around,
    as_texts,
    best_tokens,
    check_topk,
    ids_in,
    kept_in,
    places_of,
    without_repeats,
)
from vestige.core.errors import InputError
from vestige.core.seeds import generator
from vestige.core.text import one_line
from vestige.models.blocks import embedding_table
from vestige.models.load import LoadedModel, context_tokens
from vestige.models.streams import Streams, streams_of
from vestige.models.variants import Around, Ids


def move_shares(shares: Mapping[Move, float], n_tokens: int, step: int, lengths: Lengths) -> dict[Move, float]:
    """How likely each move is, by what the prompt's length allows; they add up to 1.

    Shorter than the least: insert. As long as is granted: anything else; the place that a deletion leaves is filled
    by the insertion after it. One token is not deleted.
    """
    if n_tokens < lengths.least(step):
        return {"insert": 1.0}
    allowed = {
        move: share
        for move, share in shares.items()
        if share > 0
        and not (move == "insert" and n_tokens >= lengths.last)
        and not (move == "delete" and n_tokens == 1)
    }
    # Where only insertions were to be made and none fits any more, tokens are swapped.
    allowed = allowed or {"swap": 1.0}
    total = sum(allowed.values())
    return {move: share / total for move, share in allowed.items()}


def drawn_order(shares: Mapping[Move, float], rng: np.random.Generator) -> list[Move]:
    """All moves, drawn one after the other: the first is the step's, the next stand in where it yields nothing."""
    # Sorted, or what a seed draws would hang on the order in which the shares were written down.
    moves = sorted(shares)
    order = rng.choice(len(moves), size=len(moves), replace=False, p=[shares[move] for move in moves])
    return [moves[int(n)] for n in order]


def deleted(prompt: Ids, places: Sequence[int]) -> list[Ids]:
    """The prompt without the token at each of the places in turn."""
    return [prompt[:at] + prompt[at + 1 :] for at in places]


def inserted(prompt: Ids, additions: Iterable[Iterable[tuple[int, int]]]) -> list[Ids]:
    """The prompt once for each group of places and tokens, each token before its place; place T is behind the last."""
    prompts_longer = []
    for group in additions:
        longer = prompt
        # From the back, so that the places before it are still where they were.
        for at, token in sorted(group, reverse=True):
            longer = (*longer[:at], token, *longer[at:])
        prompts_longer.append(longer)
    return prompts_longer


def exchanged(prompt: Ids, places: Sequence[int], tokens: Sequence[int]) -> list[Ids]:
    """The prompt with another token at each of the places in turn."""
    return [(*prompt[:at], token, *prompt[at + 1 :]) for at, token in zip(places, tokens, strict=True)]


def sampled_tokens(
    logits: Float[np.ndarray, "T V"],
    ids: Int[np.ndarray, " V"],
    places: Int[np.ndarray, " N"],
    k: int,
    rng: np.random.Generator,
) -> list[int]:
    """A token for each place: one, uniformly, of `k` that the model's distribution there gives without replacement.

    The columns of `logits` stand for the tokens `ids`. Two draws at one place are from the same `k`.
    """
    sampled: dict[int, Int[np.ndarray, " K"]] = {}
    for at in np.unique(places).tolist():
        # The k largest of logits with Gumbel noise are k draws without replacement (Vieira, 2014).
        noisy = logits[at] + rng.gumbel(size=len(ids))
        best = np.argpartition(-noisy, k - 1)[:k]
        sampled[at] = ids[best[np.argsort(-noisy[best], kind="stable")]]
    ranks = rng.integers(0, k, len(places)).tolist()
    return [int(sampled[at][rank]) for at, rank in zip(places.tolist(), ranks, strict=True)]


@dataclass(frozen=True)
class ByMoves:
    """Proposes changes of one kind a step, of which those stay that are the same tokens again once they are text."""

    objective: PrefixObjective
    loaded: LoadedModel
    vocabulary: Vocabulary
    places: tuple[Place, ...]
    settings: EnhancedSettings

    def __call__(self, prompt: Ids, step: int, rng: np.random.Generator) -> list[Ids]:
        """At most `candidates` prompts. Where the step's move yields none, the next one that is drawn stands in."""
        shares = move_shares(self.settings.shares, len(prompt), step, self.settings.lengths)
        # By gradient and by swap even where their shares are 0: a step that changes nothing would end the search.
        for move in dict.fromkeys((*drawn_order(shares, rng), "gcg", "swap")):
            valid = self._kept(prompt, self._draws(move, prompt, step), rng)
            if valid:
                return valid
        (text,) = as_texts(self.loaded.tokenizer, [prompt])
        raise InputError(
            f"step {step + 1}: no change of the prefix {one_line(text, width=60)!r} "
            "that was drawn is the same tokens again once it is text; start from another `initial` text"
        )

    def _kept(
        self, prompt: Ids, draw: Callable[[np.random.Generator], list[Ids]], rng: np.random.Generator
    ) -> list[Ids]:
        valid: dict[Ids, None] = {}
        for _ in range(DRAWS):
            new = [p for p in without_repeats(draw(rng)) if p != prompt and p not in valid]
            valid.update(dict.fromkeys(kept_in(self.loaded.tokenizer, new, self.places)))
            if len(valid) >= self.settings.candidates:
                break
        return list(valid)[: self.settings.candidates]

    def _draws(self, move: Move, prompt: Ids, step: int) -> Callable[[np.random.Generator], list[Ids]]:
        """How prompts are drawn by this move; the pass that it needs is made here, once."""
        n, n_tokens, k = self.settings.candidates, len(prompt), self.settings.topk
        if move == "delete":
            return lambda rng: deleted(prompt, rng.permutation(n_tokens)[:n].tolist())
        if move == "gcg":
            best = best_tokens(self.objective.gradient(prompt), self.vocabulary, k)

            def by_gradient(rng: np.random.Generator) -> list[Ids]:
                places = rng.integers(0, n_tokens, n)
                return exchanged(prompt, places.tolist(), best[places, rng.integers(0, k, n)].tolist())

            return by_gradient
        logits = self.objective.next_logits(prompt)
        ids = np.array(self.vocabulary.ids)
        rows = logits[:, torch.tensor(self.vocabulary.ids, device=logits.device)].cpu().numpy()
        # 1 where nothing stands before the prompt: of its first token the model then says nothing.
        first = n_tokens + 1 - len(rows)
        if move == "insert":
            each = self.settings.lengths.to_insert(n_tokens, step)

            def longer(rng: np.random.Generator) -> list[Ids]:
                places = rng.integers(first, n_tokens + 1, n * each)
                added = list(zip(places.tolist(), sampled_tokens(rows, ids, places - first, k, rng), strict=True))
                return inserted(prompt, [added[i * each : (i + 1) * each] for i in range(n)])

            return longer

        def swapped(rng: np.random.Generator) -> list[Ids]:
            if first == n_tokens:
                # A lone token that nothing stands before: the model says nothing of its place.
                return []
            places = rng.integers(first, n_tokens, n)
            return exchanged(prompt, places.tolist(), sampled_tokens(rows, ids, places - first, k, rng))

        return swapped


def find_prefix(
    loaded: LoadedModel,
    guide: LoadedModel,
    samples: Sequence[GuideReply],
    settings: EnhancedSettings,
    *,
    seed: int,
    keeper: Keeper | None = None,
    on_step: Callable[[int, int], None] = tell_nobody,
) -> FoundPrompt:
    """The prefix under which `loaded` comes nearest to its target `guide`.

    The search goes on when all that is forced is said, since the other terms can still fall; at the end it is looked
    at once, uncounted. Where `guide` is `loaded` itself no distance lies between them and none is computed.
    """
    texts = _texts(loaded, guide, samples)
    # Both models read the prompt, and a tokeniser in common does not mean embeddings of the same number of rows.
    n_rows = min(len(embedding_table(model)) for model in (loaded.model, guide.model))
    vocabulary = admissible(loaded.tokenizer, n_rows, ascii_only=settings.ascii_only)
    places = places_of(loaded.tokenizer, texts)
    if settings.initial:
        start = vocabulary.check(ids_in(loaded.tokenizer, settings.initial, places))
    else:
        rng = generator(seed, "start of a prefix search")
        start = drawn_start(loaded, places, vocabulary, settings.lengths.first, rng)
    objective = _objective(loaded, guide, samples, texts, settings)
    _check(objective.subject, vocabulary, len(start), settings)
    state = search(
        start,
        objective,
        ByMoves(objective, loaded, vocabulary, places, settings),
        SearchSettings(steps=settings.steps, buffer=settings.buffer, stop_when_reached=False, reopens=False),
        seed=seed,
        keeper=keeper,
        spent=objective.spent,
        on_step=on_step,
    )
    return found_prompt(state, loaded, places, vocabulary, reached=objective.says(state.best[0]))


def _texts(loaded: LoadedModel, guide: LoadedModel, samples: Sequence[GuideReply]) -> tuple[Around, ...]:
    if not samples:
        raise InputError("a prefix is searched for questions, and none are given; give at least one")
    if loaded.prompter.digest != guide.prompter.digest:
        raise InputError(
            f"{guide.name} has another tokeniser or chat template than {loaded.name}, so their streams under one "
            "prefix cannot be compared; give the model that was unlearned as the target"
        )
    return tuple(around(loaded.prompter, s.question, s.said, "prefix") for s in samples)


def _objective(
    loaded: LoadedModel,
    guide: LoadedModel,
    samples: Sequence[GuideReply],
    texts: tuple[Around, ...],
    settings: EnhancedSettings,
) -> PrefixObjective:
    compared = settings.distance > 0 and guide.model is not loaded.model
    layers: tuple[int, ...] = ()
    if compared or settings.representation > 0:
        configs = [model.model.config.get_text_config() for model in (loaded, guide)]
        (depth, width), (guide_depth, guide_width) = ((c.num_hidden_layers, c.hidden_size) for c in configs)
        if (depth, width) != (guide_depth, guide_width):
            raise InputError(
                f"{loaded.name} has {depth} layers of width {width} and {guide.name} {guide_depth} of {guide_width}, "
                "so their streams cannot be compared; set distance=0 and representation=0"
            )
        layers = settings.layers or layers_at_depth(depth)
    without = [
        streams_of(guide.model, guide.prompter.prompt(s.question) + s.said, layers, last=len(s.said) + 1)
        for s in samples
        if settings.representation > 0
    ]
    return PrefixObjective(
        subject=Streams(loaded.model, loaded.way, texts, layers),
        guide=Streams(guide.model, guide.way, texts, layers, logits=False) if compared else None,
        forced=tuple(len(s.forced) for s in samples),
        without=tuple(without),
        settings=settings,
        spent=nothing_spent(),
    )


def _check(subject: Streams, vocabulary: Vocabulary, n_start: int, settings: EnhancedSettings) -> None:
    if n_start > settings.tokens:
        raise InputError(f"the initial text has {n_start} tokens and a prefix {settings.tokens} at most; raise tokens")
    longest, context = subject.longest(settings.tokens), context_tokens(subject.model)
    if longest > context:
        raise InputError(
            f"a prefix of {settings.tokens} tokens and its longest question take {longest} tokens and the model reads "
            f"{context}; lower tokens"
        )
    check_topk(settings.topk, vocabulary)
    if not any(settings.shares.values()):
        raise InputError("all four shares of moves are 0, so the prefix would never change; raise gcg_share")
