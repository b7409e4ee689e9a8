"""Many prompts that stand in the same texts, scored at once: what a search over prompt tokens asks of a model.

Losses are in nats: the mean over a target's tokens, then over texts. Numbers are float32.

What prompts and texts have in common is read once (`sharing_scorer`). Every prompt is read from the first token in
which it differs from the most common one, on keys and values of one row; where texts begin alike, what a prompt leaves
behind serves all of them.

Axes: W prompts, T tokens of a prompt, K tokens of a target, A tokens after a prompt and before the target's last, N
prompts of a chunk, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from vestige.core.errors import InputError
from vestige.models.forward import within_memory
from vestige.models.load import context_tokens
from vestige.models.variant_texts import Around as Around
from vestige.models.variant_texts import Ids as Ids
from vestige.models.variant_texts import (
    Past,
    RootPasses,
    Scorer,
    can_share,
    loss_gradient,
    plain_logits,
    plain_scorer,
    up_to,
)

Way = Literal["plain", "shared"]
TOKEN_BUDGET = 1024


class Scored(NamedTuple):
    """A prompt's place in the list that was given, and its loss in nats."""

    # A tuple's own `index` is what nobody asks this one for.
    index: int  # type: ignore[assignment]
    loss: float


class Variants:
    """Scores many prompts that stand in the same texts. The prompts of one call have one length.

    What stands before a prompt is read once, what prompts have in common once a call, and the same prompt once; but
    each prompt by itself where `way` is "plain".
    """

    def __init__(
        self,
        model: PreTrainedModel,
        texts: Sequence[Around],
        *,
        token_budget: int = TOKEN_BUDGET,
    ) -> None:
        """`token_budget` bounds the tokens of a pass."""
        if not texts or not all(text.target for text in texts):
            raise InputError("a prompt is searched for texts that each have a target of at least one token; give them")
        self._model = model
        self._texts = tuple(texts)
        self._context = context_tokens(model)
        self.way, self._scorer = _scorer(model, self._texts, self._context, token_budget)

    def losses(self, prompts: Sequence[Ids]) -> Float[Tensor, " W"]:
        """The loss of each prompt: the mean over a target's tokens, then over texts."""
        return torch.stack([part.mean(-1) for part in self.target_logp(prompts)]).mean(0).neg()

    @torch.inference_mode()
    def target_logp(self, prompts: Sequence[Ids]) -> list[Float[Tensor, "W K"]]:
        """The log-probability of each target token after each prompt, for each text."""
        self._check(prompts)
        distinct = {prompt: n for n, prompt in enumerate(dict.fromkeys(prompts))}
        losses = self._scorer(torch.tensor(list(distinct), device=self._model.device))
        rows = torch.tensor([distinct[prompt] for prompt in prompts], device=self._model.device)
        return [logp.index_select(0, rows) for logp in losses]

    def leaders(self, prompts: Sequence[Ids], n: int) -> list[Scored]:
        """The `n` least losses, least first, ties in the order given."""
        losses = self.losses(prompts).tolist()
        return [Scored(i, losses[i]) for i in sorted(range(len(losses)), key=lambda i: (losses[i], i))[:n]]

    def gradient(self, prompt: Ids) -> Float[Tensor, "T V"]:
        """The derivative of the loss by each one-hot token of the prompt."""
        self._check([prompt])
        return loss_gradient(self._model, self._texts, prompt)

    @torch.inference_mode()
    def reached(self, prompt: Ids) -> tuple[bool, ...]:
        """For each text whether every token of its target is the model's first choice."""
        self._check([prompt])
        first = (plain_logits(self._model, text, [prompt])[0].argmax(-1) for text in self._texts)
        return tuple(ids.tolist() == list(text.target) for ids, text in zip(first, self._texts, strict=True))

    def _check(self, prompts: Sequence[Ids]) -> None:
        lengths = {len(prompt) for prompt in prompts}
        if len(lengths) != 1 or 0 in lengths:
            raise ValueError(f"prompts of one call have one length, of at least one token, not {sorted(lengths)}")
        (length,) = lengths
        longest = max(len(text.before) + length + len(text.after) + len(text.target) for text in self._texts)
        if longest > self._context:
            raise InputError(
                f"a prompt of {length} tokens makes a text of {longest} tokens, where the model reads {self._context}; "
                "search for a shorter prompt"
            )


@torch.inference_mode()
def _scorer(model: PreTrainedModel, texts: Sequence[Around], context: int, token_budget: int) -> tuple[Way, Scorer]:
    """How these texts are scored: by what prompts share, where a probe agrees with the plain way.

    It does within 1e-4 nats in float32, and 1/2 in narrower numbers.
    """
    plain = plain_scorer(model, texts, token_budget)
    if not can_share(model, context):
        return "plain", plain
    tolerance = 1e-4 if model.dtype == torch.float32 else 1 / 2
    sharing = sharing_scorer(RootPasses(model), texts, token_budget, model.device)
    return ("shared", sharing) if _apart(sharing, plain, model) <= tolerance else ("plain", plain)


def _apart(actual: Scorer, expected: Scorer, model: PreTrainedModel) -> float:
    """The largest distance of two log-probabilities on a probe; infinite where one is no number."""
    probe = _probe(model)
    pairs = zip(actual(probe), expected(probe), strict=True)
    return max(float((a - b).abs().max().nan_to_num(nan=torch.inf)) for a, b in pairs)


def _probe(model: PreTrainedModel) -> Int[Tensor, "W T"]:
    """Prompts that differ in their last place, and in the one before."""
    size = model.config.get_text_config().vocab_size
    ids = [(7 * n + 3) % size for n in range(8)]
    return torch.tensor([ids[:4], [*ids[:3], ids[5]], [*ids[:2], ids[6], ids[3]]], device=model.device)


def sharing_scorer(passes: RootPasses, texts: Sequence[Around], token_budget: int, device: torch.device) -> Scorer:
    """What stands before the prompts is read here, once."""
    pasts: dict[tuple[int, ...], Past] = {}
    for before in dict.fromkeys(text.before for text in texts):
        pasts[before] = passes.read_on([], torch.tensor([before], device=device)) if before else []
    tails = [torch.tensor((*text.after, *text.target[:-1]), dtype=torch.long, device=device) for text in texts]
    targets = [torch.tensor(text.target, device=device) for text in texts]

    @within_memory
    def score(prompts: Int[Tensor, "W T"], *, token_budget: int = token_budget) -> list[Float[Tensor, "W K"]]:
        scores = [torch.empty(len(prompts), len(target), device=device) for target in targets]
        base, first = _in_common(prompts)
        for before, past in pasts.items():
            members = [n for n, text in enumerate(texts) if text.before == before]
            stem = passes.read_on(past, base[None, :-1]) if len(base) > 1 else past
            for rows, start in _chunks(first, prompts.shape[1] + max(len(tails[n]) for n in members), token_budget):
                chunk = _chunk_scores(
                    passes,
                    up_to(stem, len(before) + start),
                    prompts[rows, start:],
                    [tails[n] for n in members],
                    [targets[n] for n in members],
                )
                for n, logp in zip(members, chunk, strict=True):
                    scores[n][rows] = logp
        return scores

    return score


def _in_common(prompts: Int[Tensor, "W T"]) -> tuple[Int[Tensor, " T"], Int[Tensor, " W"]]:
    """The most common token of each place, and for each prompt the place that it is read from.

    That is where it first differs; a prompt that differs nowhere is read from its last token, whose logits may be
    wanted.
    """
    base = prompts.mode(0).values
    differs = prompts != base
    differs[:, -1] = True
    return base, differs.int().argmax(1)


def _chunks(first: Int[Tensor, " W"], width: int, token_budget: int) -> Iterator[tuple[Int[Tensor, " N"], int]]:
    """Prompts that are read together, and the place that they are read from: the least of theirs."""
    order = first.argsort(stable=True)
    done = 0
    while done < len(order):
        start = int(first[order[done]])
        rows = order[done : done + max(1, token_budget // (width - start))]
        done += len(rows)
        yield rows, start


def _chunk_scores(
    passes: RootPasses,
    shared: Past,
    own: Int[Tensor, "N T"],
    tails: Sequence[Int[Tensor, " A"]],
    targets: Sequence[Int[Tensor, " K"]],
) -> list[Float[Tensor, "N K"]]:
    if len(tails) == 1:
        return [passes.scores(shared, _followed(own, tails[0]), targets[0])]
    # The last token goes with each text, since its logits are wanted where nothing stands after the prompt.
    after = passes.read_on(shared, own[:, :-1]) if own.shape[1] > 1 else shared
    return [
        passes.scores(after, _followed(own[:, -1:], tail), target) for tail, target in zip(tails, targets, strict=True)
    ]


def _followed(tails: Int[Tensor, "N T"], tail: Int[Tensor, " A"]) -> Int[Tensor, "N L"]:
    return torch.cat([tails, tail.expand(len(tails), -1)], dim=1)
