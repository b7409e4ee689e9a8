"""Enhanced GCG's objective over prompts: what a subject and its target make of them, as one loss with its gradient.

Every prompt goes through the subject once, and the texts go on from there; the target goes no higher than the streams
that are compared. Terms and their sources: `enhanced_terms`.

Axes: W prompts, T tokens of a prompt, V vocabulary, P places, L layers, D hidden width. Losses are in nats, but for
the distance, which is in the streams' own unit.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.attacks.budget import Meter
from vestige.attacks.enhanced_terms import Terms, Weights, distance, forcing, repetition, turned_away
from vestige.attacks.gcg import tokens_read
from vestige.models.scoring import TOKEN_BUDGET, logits_budget
from vestige.models.shortage import within_memory
from vestige.models.streams import Prompts, Streams, one_hot_gradient, text_logp
from vestige.models.variants import Ids, Scored


@dataclass(frozen=True)
class Shape:
    """How the terms are formed: `clamp` is a probability, `scaled` divides the distance by the target's norm."""

    weights: Weights
    clamp: float
    scaled: bool
    repetition_power: float


@dataclass(frozen=True)
class Apart:
    """How far a prompt is from making `subject` say and think what the target does; charges what is read for it.

    `forced` is how many of each text's target tokens are forced. `guide` is the target, read in the same texts; None
    where nothing can lie between the two. `without` has the target's streams at each text's target tokens, and at the
    place before them, with no prompt there; empty where nothing is compared with them.
    """

    subject: Streams
    guide: Streams | None
    forced: tuple[int, ...]
    without: tuple[Float[Tensor, "L P D"], ...]
    shape: Shape
    meter: Meter

    def leaders(self, prompts: Sequence[Ids], n: int) -> list[Scored]:
        """The prompts of least loss; those of one call have one length."""
        self.meter.charge({"tokens_read": self.cost(prompts)})
        losses = self.losses(prompts)
        return [Scored(int(i), float(losses[i])) for i in losses.argsort(stable=True)[:n]]

    def reached(self, prompt: Ids) -> bool:
        """Whether every forced token is the likeliest one."""
        self.meter.charge({"tokens_read": tokens_read(self.subject.texts, [prompt])})
        return self.says(prompt)

    def cost(self, prompts: Sequence[Ids]) -> int:
        """Tokens that one look at the prompts reads, by subject and target, as if nothing were shared."""
        return tokens_read(self.subject.texts, prompts) * (1 if self.guide is None else 2)

    @torch.inference_mode()
    def says(self, prompt: Ids) -> bool:
        """The same as `reached`, uncharged."""
        with self.subject.products():
            _, stem = self.subject.read(self.subject.prompts([prompt]))
            return all(bool(f.first[0, : self.forced[f.text]].all()) for f in self.subject.follow(stem))

    def losses(self, prompts: Sequence[Ids]) -> Float[Tensor, " W"]:
        """The loss of each prompt."""
        return self._losses(prompts, token_budget=self.subject.token_budget)

    @within_memory
    @torch.inference_mode()
    def _losses(self, prompts: Sequence[Ids], *, token_budget: int = TOKEN_BUDGET) -> Float[Tensor, " W"]:
        n_tokens = len(self.subject.texts[0].before) + len(prompts[0]) + 1
        step = max(1, logits_budget(self.subject.model, token_budget) // n_tokens)
        found = []
        with ExitStack() as stack:
            for streams in self._readers():
                stack.enter_context(streams.products())
            for start in range(0, len(prompts), step):
                given = [streams.prompts(prompts[start : start + step]) for streams in self._readers()]
                found.append(self.terms(given).weighed(self.shape.weights))
        return torch.cat(found)

    def gradient(self, prompt: Ids) -> Float[Tensor, "T V"]:
        """The loss's gradient with respect to the prompt's one-hot tokens, through subject and target."""
        self.meter.charge({"gradients": 1, "tokens_read": self.cost([prompt])})
        weights = self.shape.weights
        models = [streams.model for streams in self._readers()]
        return one_hot_gradient(models, prompt, lambda given: self.terms(given).weighed(weights)[0])

    @torch.inference_mode()
    def next_logits(self, prompt: Ids) -> Float[Tensor, "N V"]:
        """The subject's logits of the token at each place of the prompt and behind it.

        Where nothing stands before the prompt, nothing says its first token, and N is T and not T + 1.
        """
        self.meter.charge({"tokens_read": len(self.subject.texts[0].before) + len(prompt)})
        with self.subject.products():
            return self.subject.read(self.subject.prompts([prompt]))[0][0]

    def terms(self, given: Sequence[Prompts]) -> Terms:
        """The terms of prompts, as the subject reads them and, where there is a guide, as that does."""
        logits, stem = self.subject.read(given[0])
        pairs = self.subject.follow(stem)
        forced, apart, away = [], [], []
        theirs = None if self.guide is None else self.guide.follow(self.guide.read(given[1])[1])
        for own in pairs:
            forced.append(forcing(own.target_logp[:, : self.forced[own.text]], self.shape.clamp))
            if theirs is not None:
                other = next(theirs)
                assert other.text == own.text, "both go through the texts by length"
                apart.append(distance(own.residual, other.residual.to(own.residual.device), scaled=self.shape.scaled))
            if self.without:
                without = self.without[own.text].to(own.residual.device)
                away.append(turned_away(own.residual[:, :, -without.shape[1] :], without))
        return Terms(
            forcing=torch.stack(forced).mean(0),
            distance=_mean(apart, forced[0]),
            representation=_mean(away, forced[0]),
            fluency=_fluency(logits, given[0]),
            repetition=repetition([tuple(row) for row in given[0].ids.tolist()], self.shape.repetition_power).to(
                logits.device
            ),
        )

    def _readers(self) -> list[Streams]:
        return [self.subject] if self.guide is None else [self.subject, self.guide]


def _mean(values: Sequence[Float[Tensor, " W"]], like: Float[Tensor, " W"]) -> Float[Tensor, " W"]:
    """Over texts; 0 where nothing was compared."""
    return torch.stack(list(values)).mean(0) if values else torch.zeros_like(like)


def _fluency(logits: Float[Tensor, "W N V"], prompts: Prompts) -> Float[Tensor, " W"]:
    """Nats a token of the prompt itself; of a lone first token that nothing stands before, 0."""
    said = prompts.ids[:, prompts.ids.shape[1] + 1 - logits.shape[1] :]
    if not said.shape[1]:
        return torch.zeros(len(said), device=logits.device)
    return -text_logp(logits[:, :-1], said).mean(-1)
