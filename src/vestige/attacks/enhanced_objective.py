"""Enhanced GCG's objective over prompts: what a subject and its target make of them, as one loss with its gradient.

Every prompt goes through the subject once, and the texts go on from there; the target goes no higher than the streams
that are compared. The terms are pure functions of what two models made of a prompt. J. Łucki et al., An adversarial
perspective on machine unlearning for AI safety, 2409.18025, as their code has it, built on FLRT (T. B. Thompson, M.
Sklar, 2407.17447). Where a term differs from the code, its docstring says so.

Axes: W prompts, T tokens of a prompt, K tokens that are forced, V vocabulary, P places behind the prompt, N places of
which the next token is told, L layers, D hidden width. Losses are in nats, one a prompt, but for the distance, which is
in the streams' own unit.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cosine_similarity

from vestige.attacks.enhanced import EnhancedSettings
from vestige.attacks.gcg import tokens_read
from vestige.models.forward import within_memory
from vestige.models.scoring import TOKEN_BUDGET, logits_budget
from vestige.models.streams import Prompts, Streams, one_hot_gradient, text_logp
from vestige.models.variants import Ids, Scored


def forcing(logp: Float[Tensor, "W K"], clamp: float) -> Float[Tensor, " W"]:
    """Mean over the tokens of max(-log p, -ln clamp): a token as likely as `clamp` is not pushed any further.

    A clamp of 1 bounds nothing. The code of 2409.18025 bounds the mean; FLRT's own loss, as here, each token.
    """
    return (-logp).clamp(min=-math.log(clamp)).mean(-1)


def distance(
    subject: Float[Tensor, "W L P D"], target: Float[Tensor, "W L P D"], *, scaled: bool
) -> Float[Tensor, " W"]:
    """Mean over layers and places of the Euclidean distance between two residual streams.

    With `scaled` it is times 100 and by the square of the target's mean norm in that layer. 0 where both are the same.
    """
    apart: Tensor = torch.linalg.vector_norm(subject - target, dim=-1)
    if scaled:
        norm = torch.linalg.vector_norm(target, dim=-1).mean(-1, keepdim=True)
        apart = 100 * apart / norm.square()
    return apart.mean((-2, -1))


def turned_away(subject: Float[Tensor, "W L P D"], without: Float[Tensor, "L P D"]) -> Float[Tensor, " W"]:
    """Mean of 1 - cos between a stream and what the target's is at the same tokens `without` any prompt: 0 to 2."""
    return (1 - cosine_similarity(subject, without.expand_as(subject), dim=-1)).mean((-2, -1))


def repetition(prompts: Sequence[Ids], power: float) -> Float[Tensor, " W"]:
    """Sum over the tokens used of (how often - 1) to the `power`, by the prompt's length. It has no gradient.

    FLRT counts over the chat template and the question as well, which the attack does not choose.
    """
    return torch.tensor([sum((n - 1) ** power for n in Counter(p).values()) / len(p) for p in prompts])


class Terms(NamedTuple):
    """The terms of prompts before they are weighed. `fluency` is the prompt's own nats a token under the subject."""

    forcing: Float[Tensor, " W"]
    distance: Float[Tensor, " W"]
    representation: Float[Tensor, " W"]
    fluency: Float[Tensor, " W"]
    repetition: Float[Tensor, " W"]

    def weighed(self, settings: EnhancedSettings) -> Float[Tensor, " W"]:
        """The loss of each prompt. A term of weight 0 is left out, whatever it is; the forcing loss counts once."""
        loss = self.forcing
        weights = (settings.distance, settings.representation, settings.fluency, settings.repetition)
        for weight, term in zip(weights, self[1:], strict=True):
            loss = loss + weight * term if weight else loss
        return loss


@dataclass(frozen=True)
class PrefixObjective:
    """How far a prompt is from making `subject` say and think what the target does; charges what is read for it.

    `forced` is how many of each text's target tokens are forced. `guide` is the target, read in the same texts; None
    where nothing can lie between the two. `without` has the target's streams at each text's target tokens, and at the
    place before them, with no prompt there; empty where nothing is compared with them.
    """

    subject: Streams
    guide: Streams | None
    forced: tuple[int, ...]
    without: tuple[Float[Tensor, "L P D"], ...]
    settings: EnhancedSettings
    spent: Counter[str]

    def leaders(self, prompts: Sequence[Ids], n: int) -> list[Scored]:
        """The prompts of least loss; those of one call have one length."""
        self.spent.update({"tokens_read": self.cost(prompts)})
        losses = self.losses(prompts)
        return [Scored(int(i), float(losses[i])) for i in losses.argsort(stable=True)[:n]]

    def reached(self, prompt: Ids) -> bool:
        """Whether every forced token is the likeliest one."""
        self.spent.update({"tokens_read": tokens_read(self.subject.texts, [prompt])})
        return self.says(prompt)

    def cost(self, prompts: Sequence[Ids]) -> int:
        """Tokens that one look at the prompts reads, by subject and target, as if nothing were shared."""
        return tokens_read(self.subject.texts, prompts) * (1 if self.guide is None else 2)

    @torch.inference_mode()
    def says(self, prompt: Ids) -> bool:
        """The same as `reached`, uncharged."""
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
        terms = []
        for start in range(0, len(prompts), step):
            parts = [streams.prompts(prompts[start : start + step]) for streams in self._readers()]
            terms.append(self.terms(parts).weighed(self.settings))
        return torch.cat(terms)

    def gradient(self, prompt: Ids) -> Float[Tensor, "T V"]:
        """The loss's gradient with respect to the prompt's one-hot tokens, through subject and target."""
        self.spent.update({"gradients": 1, "tokens_read": self.cost([prompt])})
        models = [streams.model for streams in self._readers()]
        return one_hot_gradient(models, prompt, lambda inputs: self.terms(inputs).weighed(self.settings)[0])

    @torch.inference_mode()
    def next_logits(self, prompt: Ids) -> Float[Tensor, "N V"]:
        """The subject's logits of the token at each place of the prompt and behind it.

        Where nothing stands before the prompt, nothing says its first token, and N is T and not T + 1.
        """
        self.spent.update({"tokens_read": len(self.subject.texts[0].before) + len(prompt)})
        return self.subject.read(self.subject.prompts([prompt]))[0][0]

    def terms(self, inputs: Sequence[Prompts]) -> Terms:
        """The terms of prompts, as the subject reads them and, where there is a guide, as that does."""
        logits, stem = self.subject.read(inputs[0])
        guides = None if self.guide is None else self.guide.follow(self.guide.read(inputs[1])[1])
        forced, apart, away = [], [], []
        for pair in self.subject.follow(stem):
            forced.append(forcing(pair.target_logp[:, : self.forced[pair.text]], self.settings.clamp))
            if guides is not None:
                guide = next(guides)
                assert guide.text == pair.text, "both go through the texts by length"
                theirs = guide.residual.to(pair.residual.device)
                apart.append(distance(pair.residual, theirs, scaled=self.settings.scaled))
            if self.without:
                without = self.without[pair.text].to(pair.residual.device)
                away.append(turned_away(pair.residual[:, :, -without.shape[1] :], without))
        # Over texts; 0 where nothing was compared.
        forced_mean, distant, turned = (
            torch.stack(terms).mean(0) if terms else torch.zeros_like(forced[0]) for terms in (forced, apart, away)
        )
        repeated = repetition([tuple(row) for row in inputs[0].ids.tolist()], self.settings.repetition_power)
        return Terms(forced_mean, distant, turned, _fluency(logits, inputs[0]), repeated.to(logits.device))

    def _readers(self) -> list[Streams]:
        return [self.subject] if self.guide is None else [self.subject, self.guide]


def _fluency(logits: Float[Tensor, "W N V"], prompts: Prompts) -> Float[Tensor, " W"]:
    """Nats a token of the prompt itself; of a lone first token that nothing stands before, 0."""
    next_ids = prompts.ids[:, prompts.ids.shape[1] + 1 - logits.shape[1] :]
    if not next_ids.shape[1]:
        return torch.zeros(len(next_ids), device=logits.device)
    return -text_logp(logits[:, :-1], next_ids).mean(-1)
