"""Many prompts that stand in the same texts, scored at once: what a search over prompt tokens asks of a model.

Losses are in nats: the mean over a target's tokens, then over texts. Numbers are float32.

Every prompt is read in a row of its own, and logits are computed where they predict the target.

Axes: W prompts, T tokens of a prompt, K tokens of a target, N prompts of a pass, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import log_softmax
from transformers import PreTrainedModel

from vestige.core.errors import InputError
from vestige.models.blocks import embedding_table
from vestige.models.forward import logits_at, within_memory
from vestige.models.load import context_tokens

TOKEN_BUDGET = 1024
# Logits that are turned into log-probabilities at once: 4 MiB in float32.
_CHUNK = 2**20

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Around:
    """What stands around a searched prompt in one text: `before` it, `after` it, and the `target` that is to follow.

    `spaced` says that a space stands between `before` and the prompt, which is in the prompt's first token.
    """

    before: Ids
    after: Ids
    target: Ids
    spaced: bool = False

    def read(self, prompt: Ids) -> Ids:
        """The text up to the token before its last: what must be read so that every target token is predicted."""
        return (*self.before, *prompt, *self.after, *self.target[:-1])

    def length(self, n_tokens: int) -> int:
        """How many tokens the text has with a prompt of `n_tokens`."""
        return len(self.before) + n_tokens + len(self.after) + len(self.target)


class Scored(NamedTuple):
    """A prompt's place in the list that was given, and its loss in nats."""

    # A tuple's own `index` is what nobody asks this one for.
    index: int  # type: ignore[assignment]
    loss: float


class Variants:
    """Scores many prompts that stand in the same texts. The prompts of one call have one length."""

    def __init__(self, model: PreTrainedModel, texts: Sequence[Around], *, token_budget: int = TOKEN_BUDGET) -> None:
        """`token_budget` bounds the tokens of a pass."""
        if not texts or not all(text.target for text in texts):
            raise InputError("a prompt is searched for texts that each have a target of at least one token; give them")
        self._model, self._texts, self._token_budget = model, tuple(texts), token_budget
        self._context = context_tokens(model)
        self._targets = [torch.tensor(text.target, device=model.device) for text in texts]

    def losses(self, prompts: Sequence[Ids]) -> Float[Tensor, " W"]:
        """The loss of each prompt: the mean over a target's tokens, then over texts."""
        return torch.stack([part.mean(-1) for part in self.target_logp(prompts)]).mean(0).neg()

    @torch.inference_mode()
    def target_logp(self, prompts: Sequence[Ids]) -> list[Float[Tensor, "W K"]]:
        """The log-probability of each target token after each prompt, for each text."""
        self._check(prompts)
        # A search proposes the same prompt more than once.
        distinct = {prompt: n for n, prompt in enumerate(dict.fromkeys(prompts))}
        scores = self._scores(list(distinct), token_budget=self._token_budget)
        rows = torch.tensor([distinct[prompt] for prompt in prompts], device=self._model.device)
        return [logp.index_select(0, rows) for logp in scores]

    def leaders(self, prompts: Sequence[Ids], n: int) -> list[Scored]:
        """The `n` least losses, least first, ties in the order given."""
        losses = self.losses(prompts).tolist()
        return [Scored(i, losses[i]) for i in sorted(range(len(losses)), key=lambda i: (losses[i], i))[:n]]

    def gradient(self, prompt: Ids) -> Float[Tensor, "T V"]:
        """The derivative of the loss by each one-hot token of the prompt."""
        self._check([prompt])
        table = embedding_table(self._model)
        total = torch.zeros(len(prompt), table.shape[1], device=table.device)
        # A text at a time: the graphs of all at once would take as many times the memory.
        for text, target in zip(self._texts, self._targets, strict=True):
            ids = torch.tensor(text.read(prompt), device=table.device)
            start, stop = len(text.before), len(text.before) + len(prompt)
            with torch.enable_grad():
                chosen = table[ids[start:stop]].requires_grad_()
                vectors = torch.cat([table[ids[:start]], chosen, table[ids[stop:]]])[None]
                logits = self._model(inputs_embeds=vectors, use_cache=False, logits_to_keep=len(target)).logits
                loss = -_target_scores(logits, target).mean()
            total += torch.autograd.grad(loss, chosen)[0].float() / len(self._texts)
        return total @ table.float().T

    @torch.inference_mode()
    def reached(self, prompt: Ids) -> tuple[bool, ...]:
        """For each text whether every token of its target is the model's first choice."""
        self._check([prompt])
        first = (self._logits(text, [prompt])[0].argmax(-1) for text in self._texts)
        return tuple(ids.tolist() == list(text.target) for ids, text in zip(first, self._texts, strict=True))

    def _check(self, prompts: Sequence[Ids]) -> None:
        lengths = {len(prompt) for prompt in prompts}
        if len(lengths) != 1 or 0 in lengths:
            raise ValueError(f"prompts of one call have one length, of at least one token, not {sorted(lengths)}")
        (length,) = lengths
        longest = max(text.length(length) for text in self._texts)
        if longest > self._context:
            raise InputError(
                f"a prompt of {length} tokens makes a text of {longest} tokens, where the model reads {self._context}; "
                "search for a shorter prompt"
            )

    def _logits(self, text: Around, prompts: Sequence[Ids]) -> Float[Tensor, "W K V"]:
        """Logits at the places that predict the target, each prompt in a row of its own."""
        ids = torch.tensor([text.read(prompt) for prompt in prompts], device=self._model.device)
        positions = torch.arange(ids.shape[1] - len(text.target), ids.shape[1], device=ids.device)
        return logits_at(self._model, ids, positions)

    @within_memory
    def _scores(self, prompts: Sequence[Ids], *, token_budget: int = TOKEN_BUDGET) -> list[Float[Tensor, "W K"]]:
        scores = []
        for text, target in zip(self._texts, self._targets, strict=True):
            step = max(1, token_budget // text.length(len(prompts[0])))
            parts = []
            for start in range(0, len(prompts), step):
                parts.append(_target_scores(self._logits(text, prompts[start : start + step]), target))
            scores.append(torch.cat(parts))
        return scores


def _target_scores(logits: Float[Tensor, "N K V"], targets: Int[Tensor, " K"]) -> Float[Tensor, "N K"]:
    """The log-probability of target k by the logits at place k of every row."""
    n, k, size = logits.shape
    rows, ids = logits.reshape(n * k, size), targets.repeat(n)[:, None]
    step = max(1, _CHUNK // size)
    parts = zip(rows.split(step), ids.split(step), strict=True)
    return torch.cat([log_softmax(part.float(), -1).gather(-1, index) for part, index in parts]).view(n, k)
