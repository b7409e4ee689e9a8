"""Prompts in the texts around them, scored and differentiated by passes through the root module.

`plain_scorer` makes whole passes and is the oracle; `RootPasses` share the keys and values of what stands before.

Axes: W prompts, T tokens of a prompt or of a row, K tokens of a target, S texts, N rows, P positions before, H heads,
V vocabulary, D hidden width. Log-probabilities are in nats, in float32.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import log_softmax
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from vestige.models.blocks import embedding_table
from vestige.models.forward import logits_at, within_memory
from vestige.models.keys_values import (
    KeysValues,
    RoomyLayer,
    cache_arguments,
    empty_cache,
    fills_cache,
    kept_in,
    turns_by_length,
)

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


Scorer = Callable[[Int[Tensor, "W T"]], list[Float[Tensor, "W K"]]]
"""From prompts to the log-probabilities of each text's target tokens."""


def target_scores(logits: Float[Tensor, "N K V"], targets: Int[Tensor, " K"]) -> Float[Tensor, "N K"]:
    """The log-probability of target k by the logits at place k of every row."""
    n, k, size = logits.shape
    rows, ids = logits.reshape(n * k, size), targets.repeat(n)[:, None]
    step = max(1, _CHUNK // size)
    parts = zip(rows.split(step), ids.split(step), strict=True)
    return torch.cat([log_softmax(part.float(), -1).gather(-1, index) for part, index in parts]).view(n, k)


# Logits that are turned into log-probabilities at once: 4 MiB in float32.
_CHUNK = 2**20


def plain_logits(model: PreTrainedModel, text: Around, prompts: Sequence[Ids]) -> Float[Tensor, "W K V"]:
    """Logits at the places that predict the target, each prompt in a row of its own."""
    ids = torch.tensor([text.read(prompt) for prompt in prompts], device=model.device)
    positions = torch.arange(ids.shape[1] - len(text.target), ids.shape[1], device=ids.device)
    return logits_at(model, ids, positions)


def plain_scorer(model: PreTrainedModel, texts: Sequence[Around], token_budget: int) -> Scorer:
    """Nothing is shared."""

    @within_memory
    def score(prompts: Int[Tensor, "W T"], *, token_budget: int = token_budget) -> list[Float[Tensor, "W K"]]:
        rows = [tuple(row) for row in prompts.tolist()]
        return [_plain(model, text, rows, max(1, token_budget // text.length(len(rows[0])))) for text in texts]

    return score


def _plain(model: PreTrainedModel, text: Around, rows: list[Ids], step: int) -> Float[Tensor, "W K"]:
    targets = torch.tensor(text.target, device=model.device)
    chunks = [rows[start : start + step] for start in range(0, len(rows), step)]
    return torch.cat([target_scores(plain_logits(model, text, chunk), targets) for chunk in chunks])


def loss_gradient(model: PreTrainedModel, texts: Sequence[Around], prompt: Ids) -> Float[Tensor, "T V"]:
    """The derivative of the mean loss by each one-hot token of the prompt."""
    table = embedding_table(model)
    total = torch.zeros(len(prompt), table.shape[1], device=table.device)
    with _frozen(model), torch.enable_grad():
        for text in texts:
            ids = torch.tensor(text.read(prompt), device=table.device)
            start, stop = len(text.before), len(text.before) + len(prompt)
            chosen = table[ids[start:stop]].requires_grad_()
            put_in = torch.cat([table[ids[:start]], chosen, table[ids[stop:]]])[None]
            logits = model(inputs_embeds=put_in, use_cache=False, logits_to_keep=len(text.target)).logits
            loss = -target_scores(logits, torch.tensor(text.target, device=table.device)).mean()
            total += torch.autograd.grad(loss, chosen)[0].float() / len(texts)
    return total @ table.float().T


@contextmanager
def _frozen(model: PreTrainedModel) -> Iterator[None]:
    """Within it no weight asks for a gradient, so that a pass keeps only what the prompt's own needs."""
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    try:
        for weight in trained:
            weight.requires_grad_(False)
        yield
    finally:
        for weight in trained:
            weight.requires_grad_(True)


Past = Sequence[KeysValues]
"""Keys and values of each layer, of one row for all or of one row for each; nothing before where there is no layer."""


def up_to(past: Past, length: int) -> list[KeysValues]:
    """The first positions of a past."""
    return [(keys[:, :, :length], values[:, :, :length]) for keys, values in past]


class RootPasses:
    """Passes through the root module, whatever its family."""

    def __init__(self, model: PreTrainedModel) -> None:
        """`model` is in evaluation mode."""
        self._model = model

    def read_on(self, past: Past, ids: Int[Tensor, "N T"]) -> list[KeysValues]:
        """The keys and values of the past and these tokens."""
        cache = self._cache(past, len(ids))
        self._logits(cache, ids, 1)
        return kept_in(cache)

    def scores(self, past: Past, ids: Int[Tensor, "N T"], targets: Int[Tensor, " K"]) -> Float[Tensor, "N K"]:
        """The log-probability of each target after each of the last K of these tokens."""
        return target_scores(self._logits(self._cache(past, len(ids)), ids, len(targets)), targets)

    def _cache(self, past: Past, n_rows: int) -> DynamicCache:
        cache = empty_cache(self._model)
        if past:
            wide = ([tensor.expand(n_rows, -1, -1, -1) for tensor in layer] for layer in past)
            cache.layers = [RoomyLayer((keys, values)) for keys, values in wide]
        return cache

    def _logits(self, cache: DynamicCache, ids: Int[Tensor, "N T"], n_read: int) -> Float[Tensor, "N K V"]:
        logits: Tensor = self._model(ids, **cache_arguments(self._model, cache), logits_to_keep=n_read).logits
        return logits


def can_share(model: PreTrainedModel, context: int) -> bool:
    """Whether rows can go on from one row's keys and values: every layer keeps all that it has seen.

    A layer that looks back a window is taken only where the window holds the whole `context`.
    """
    if turns_by_length(model):
        return False
    layers = DynamicCache(config=model.config).layers
    for layer in layers:
        if type(layer) is DynamicSlidingWindowLayer:
            if layer.sliding_window < context:
                return False
        elif type(layer) is not DynamicLayer:
            return False
    return fills_cache(model)
