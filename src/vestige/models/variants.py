"""Scores many prompts in the same texts at once, for searches over prompt tokens.

Losses are in nats: the mean over a target's tokens, then over texts. Numbers are float32.

A processor with matrix instructions for bfloat16 multiplies in it several times as fast. There, a float32 model is
copied to bfloat16, and this screen chooses the prompts whose float32 losses are computed. It computes them in the order
of their screened losses until every other screened loss exceeds the worst leader by more than `MARGIN` times the
largest difference seen. The screen is never reported as a loss. It depends on the processor, so another machine can
miss a leader or find another one, as it can by rounding. Elsewhere every prompt is scored in float32.

What prompts and texts have in common is read once. Every prompt is read from the first token in which it differs from
the most common one, on keys and values of one row. If texts begin alike, one cached pass serves all texts. Passes go
through the root module, whatever its family. Whole passes, each prompt by itself, are the oracle.

Axes: W prompts, T tokens of a prompt, K tokens of a target, A tokens after a prompt and before the target's last, N
prompts of a chunk, V vocabulary.
"""

import copy
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import log_softmax
from transformers import DynamicCache, PreTrainedModel

from vestige.artifacts.provenance import happened
from vestige.core.errors import InputError
from vestige.models.blocks import embedding_table
from vestige.models.forward import logits_at, within_memory
from vestige.models.keys_values import KeysValues, cache_arguments, cache_of, can_go_on, empty_cache, kept_in
from vestige.models.load import context_tokens
from vestige.models.reading import Way

TOKEN_BUDGET = 1024
# The number of logits converted to log-probabilities at once: 4 MiB in float32.
_CHUNK = 2**20
# The number of prompts whose float32 loss is computed at once after a screen, and the factor for the screen's error.
BLOCK, MARGIN = 16, 2.0
# With fewer prompts, a screen takes more time than it saves.
SCREENED = 4 * BLOCK

Ids = tuple[int, ...]
Past = Sequence[KeysValues]
"""The keys and values of each layer, with one common row or one row each. Empty if nothing precedes."""


@dataclass(frozen=True)
class Around:
    """The context of a searched prompt in one text: the text `before` it, `after` it, and the `target` that follows.

    `spaced` means that a space separates `before` from the prompt and belongs to the prompt's first token.
    """

    before: Ids
    after: Ids
    target: Ids
    spaced: bool = False

    def read(self, prompt: Ids) -> Ids:
        """Return the text up to the token before its last: every target token is predicted from it."""
        return (*self.before, *prompt, *self.after, *self.target[:-1])

    def length(self, n_tokens: int) -> int:
        """Return the number of tokens of the text with a prompt of `n_tokens`."""
        return len(self.before) + n_tokens + len(self.after) + len(self.target)


class Scored(NamedTuple):
    """A prompt's index in the input, and its loss in nats."""

    # The field hides the tuple's own `index`, which is not used here.
    index: int  # type: ignore[assignment]
    loss: float


class Variants:
    """Scores many prompts that are in the same texts. The prompts of one call have one length.

    The text before a prompt is read once, the prompts' common part once a call, and equal prompts once, but each prompt
    by itself if `way` is "plain".
    """

    def __init__(self, model: PreTrainedModel, texts: Sequence[Around], *, token_budget: int = TOKEN_BUDGET) -> None:
        """`token_budget` bounds the tokens of a pass."""
        if not texts or not all(text.target for text in texts):
            raise InputError("each text of a search needs a target of at least one token. Give the targets")
        self._model, self._texts, self._token_budget = model, tuple(texts), token_budget
        self._context = context_tokens(model)
        self._targets = [torch.tensor(text.target, device=model.device) for text in texts]
        self.way = self._tried()

    def losses(self, prompts: Sequence[Ids]) -> Float[Tensor, " W"]:
        """The loss of each prompt: the mean over a target's tokens, then over texts."""
        return torch.stack([part.mean(-1) for part in self.target_logp(prompts)]).mean(0).neg()

    @torch.inference_mode()
    def target_logp(self, prompts: Sequence[Ids]) -> list[Float[Tensor, "W K"]]:
        """The log-probability of each target token after each prompt, for each text."""
        self._check(prompts)
        # A search proposes the same prompt more than once.
        distinct = {prompt: n for n, prompt in enumerate(dict.fromkeys(prompts))}
        if self.way == "shared":
            score = self._scores_shared
        else:
            score = self._scores_plain
        scores = score(torch.tensor(list(distinct), device=self._model.device), token_budget=self._token_budget)
        rows = torch.tensor([distinct[prompt] for prompt in prompts], device=self._model.device)
        return [logp.index_select(0, rows) for logp in scores]

    def leaders(self, prompts: Sequence[Ids], n: int) -> list[Scored]:
        """The `n` least losses, least first, ties in the order given."""
        self._check(prompts)
        distinct = list(dict.fromkeys(prompts))
        screen = None
        if len(distinct) >= SCREENED:
            screen = self._screen
        if screen is None:
            losses = dict(zip(distinct, self.losses(distinct).tolist(), strict=True))
        else:
            screened = screen.losses(distinct).tolist()

            def exact(numbers: Sequence[int]) -> list[float]:
                return self.losses([distinct[i] for i in numbers]).tolist()

            losses = {distinct[i]: loss for i, loss in best_of(screened, exact, n).items()}
        scored = [Scored(i, losses[prompt]) for i, prompt in enumerate(prompts) if prompt in losses]
        return sorted(scored, key=lambda one: (one.loss, one.index))[:n]

    def gradient(self, prompt: Ids) -> Float[Tensor, "T V"]:
        """The derivative of the loss by each one-hot token of the prompt."""
        self._check([prompt])
        table = embedding_table(self._model)
        total = torch.zeros(len(prompt), table.shape[1], device=table.device)
        # One text at a time: the graphs of all texts would multiply the memory.
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
        first = (self._plain_logits(text, [prompt])[0].argmax(-1) for text in self._texts)
        return tuple(ids.tolist() == list(text.target) for ids, text in zip(first, self._texts, strict=True))

    def _check(self, prompts: Sequence[Ids]) -> None:
        lengths = {len(prompt) for prompt in prompts}
        if len(lengths) != 1 or 0 in lengths:
            raise ValueError(f"prompts of one call have one length, of at least one token, not {sorted(lengths)}")
        (length,) = lengths
        longest = max(text.length(length) for text in self._texts)
        if longest > self._context:
            raise InputError(
                f"a prompt of {length} tokens makes a text of {longest} tokens, where the model reads {self._context}. "
                "Search for a shorter prompt"
            )

    @torch.inference_mode()
    def _tried(self) -> Way:
        """Return the way to score these texts: with shared beginnings if a probe agrees with the plain way.

        It does within 1e-4 nats in float32, and 1/2 in narrower numbers.
        """
        # A window is allowed only if it covers the whole context, since the probe is shorter than any.
        if not can_go_on(self._model, window=self._context):
            return "plain"
        size = self._model.config.get_text_config().vocab_size
        ids = [(7 * n + 3) % size for n in range(8)]
        # They differ in the last position, and in the one before.
        prompts = [ids[:4], [*ids[:3], ids[5]], [*ids[:2], ids[6], ids[3]]]
        probe = torch.tensor(prompts, device=self._model.device)
        shared, plain = (
            score(probe, token_budget=self._token_budget) for score in (self._scores_shared, self._scores_plain)
        )
        # A non-finite difference counts as infinite.
        apart = max(float((a - b).abs().max().nan_to_num(nan=torch.inf)) for a, b in zip(shared, plain, strict=True))
        if apart <= (1e-4 if self._model.dtype == torch.float32 else 1 / 2):
            return "shared"
        return "plain"

    @cached_property
    def _screen(self) -> "Variants | None":
        """Return the same texts with a bfloat16 copy of the model. None if that saves no time, or a probe disagrees."""
        model = self._model
        if self.way == "plain" or model.dtype != torch.float32 or model.device.type != "cpu" or not fast_bfloat16():
            return None
        narrow = Variants(_in_bfloat16(model), self._texts, token_budget=2 * self._token_budget)
        size = model.config.get_text_config().vocab_size
        probe = [tuple((7 * n + k) % size for n in range(4)) for k in range(4)]
        apart = float((narrow.losses(probe) - self.losses(probe)).abs().max().nan_to_num(nan=torch.inf))
        if apart > 1 / 2:
            return None
        happened["prompt_searches_screened_in_bfloat16"] += 1
        return narrow

    def _plain_logits(self, text: Around, prompts: Sequence[Ids]) -> Float[Tensor, "W K V"]:
        """Return the logits at the positions that predict the target, with a separate row for each prompt."""
        ids = torch.tensor([text.read(prompt) for prompt in prompts], device=self._model.device)
        positions = torch.arange(ids.shape[1] - len(text.target), ids.shape[1], device=ids.device)
        return logits_at(self._model, ids, positions)

    @within_memory
    def _scores_plain(
        self, prompts: Int[Tensor, "W T"], *, token_budget: int = TOKEN_BUDGET
    ) -> list[Float[Tensor, "W K"]]:
        rows = [tuple(row) for row in prompts.tolist()]
        scores = []
        for text, target in zip(self._texts, self._targets, strict=True):
            step = max(1, token_budget // text.length(len(rows[0])))
            chunks = (rows[start : start + step] for start in range(0, len(rows), step))
            scores.append(torch.cat([_target_scores(self._plain_logits(text, chunk), target) for chunk in chunks]))
        return scores

    @within_memory
    def _scores_shared(
        self, prompts: Int[Tensor, "W T"], *, token_budget: int = TOKEN_BUDGET
    ) -> list[Float[Tensor, "W K"]]:
        device = prompts.device
        tails = [torch.tensor((*t.after, *t.target[:-1]), dtype=torch.long, device=device) for t in self._texts]
        scores = [torch.empty(len(prompts), len(target), device=device) for target in self._targets]
        # The commonest token of each position, since proposals differ in few positions from their origin.
        base = prompts.mode(0).values
        differs = prompts != base
        # An identical prompt is read from its last token, whose logits may be needed.
        differs[:, -1] = True
        first = differs.int().argmax(1)
        for before, past in self._pasts.items():
            members = [n for n, text in enumerate(self._texts) if text.before == before]
            stem = past
            if len(base) > 1:
                stem = self._read_on(past, base[None, :-1])
            for rows, start in _chunks(first, len(base) + max(len(tails[n]) for n in members), token_budget):
                shared: Past = [(k[:, :, : len(before) + start], v[:, :, : len(before) + start]) for k, v in stem]
                ids = prompts[rows, start:]
                if len(members) > 1:
                    # The last token is read with each text, since its logits are needed if the text directly follows
                    # the prompt.
                    if ids.shape[1] > 1:
                        shared = self._read_on(shared, ids[:, :-1])
                    ids = ids[:, -1:]
                for n in members:
                    whole = torch.cat([ids, tails[n].expand(len(ids), -1)], dim=1)
                    logits = self._logits(self._cache(shared, len(ids)), whole, len(self._targets[n]))
                    scores[n][rows] = _target_scores(logits, self._targets[n])
        return scores

    @cached_property
    def _pasts(self) -> dict[Ids, Past]:
        """Return the caches of the texts before the prompts, each read once."""
        befores = dict.fromkeys(text.before for text in self._texts)
        device = self._model.device
        return {b: self._read_on([], torch.tensor([b], device=device)) if b else [] for b in befores}

    def _read_on(self, past: Past, ids: Int[Tensor, "N T"]) -> list[KeysValues]:
        """The keys and values of the past and these tokens."""
        cache = self._cache(past, len(ids))
        self._logits(cache, ids, 1)
        return kept_in(cache)

    def _cache(self, past: Past, n_rows: int) -> DynamicCache:
        if not past:
            return empty_cache(self._model)
        return cache_of((keys.expand(n_rows, -1, -1, -1), values.expand(n_rows, -1, -1, -1)) for keys, values in past)

    def _logits(self, cache: DynamicCache, ids: Int[Tensor, "N T"], n_read: int) -> Float[Tensor, "N K V"]:
        logits: Tensor = self._model(ids, **cache_arguments(self._model, cache), logits_to_keep=n_read).logits
        return logits


def fast_bfloat16() -> bool:
    """Whether the processor has matrix instructions for bfloat16 (AMX), and oneDNN may use them."""
    allowed = os.environ.get("ONEDNN_MAX_CPU_ISA", "ALL").upper() in ("ALL", "DEFAULT")
    # Older versions of PyTorch do not name the instructions.
    return allowed and bool(getattr(torch.cpu, "get_capabilities", dict[str, bool])().get("amx_bf16"))


def best_of(screened: Sequence[float], exact: Callable[[Sequence[int]], Sequence[float]], n: int) -> dict[int, float]:
    """Return the exact losses of the numbered prompts that can be among the `n` smallest. See the module's text."""
    order = sorted(range(len(screened)), key=lambda i: (not math.isnan(screened[i]), screened[i], i))
    losses: dict[int, float] = {}
    farthest = 0.0
    while len(losses) < len(order):
        block = order[len(losses) : len(losses) + max(BLOCK, n)]
        losses.update(zip(block, exact(block), strict=True))
        for i in block:
            difference = abs(screened[i] - losses[i])
            if math.isnan(difference):
                difference = math.inf
            farthest = max(farthest, difference)
        worst = sorted(losses.values())[min(n, len(losses)) - 1]
        following = order[len(losses) : len(losses) + 1]
        if following and screened[following[0]] - worst > MARGIN * farthest:
            break
    return losses


def _in_bfloat16(model: PreTrainedModel) -> PreTrainedModel:
    """A copy with weights in bfloat16. Buffers stay as they are: rotary frequencies must not be rounded."""
    weights = {}
    for weight in model.parameters():
        weights[id(weight)] = nn.Parameter(weight.detach().to(torch.bfloat16), requires_grad=False)
    narrow = copy.deepcopy(model, weights)
    # For non-contiguous positions, torch would copy the head for each row.
    narrow.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: (inputs[0].contiguous(), *inputs[1:]))
    return narrow


def _target_scores(logits: Float[Tensor, "N K V"], targets: Int[Tensor, " K"]) -> Float[Tensor, "N K"]:
    """The log-probability of target k by the logits at place k of every row."""
    n, k, size = logits.shape
    rows, ids = logits.reshape(n * k, size), targets.repeat(n)[:, None]
    step = max(1, _CHUNK // size)
    parts = zip(rows.split(step), ids.split(step), strict=True)
    return torch.cat([log_softmax(part.float(), -1).gather(-1, index) for part, index in parts]).view(n, k)


def _chunks(first: Int[Tensor, " W"], width: int, token_budget: int) -> Iterator[tuple[Int[Tensor, " N"], int]]:
    """Prompts that are read together, and the place that they are read from: the least of their `first`."""
    order = first.argsort(stable=True)
    done = 0
    while done < len(order):
        start = int(first[order[done]])
        rows = order[done : done + max(1, token_budget // (width - start))]
        done += len(rows)
        yield rows, start
