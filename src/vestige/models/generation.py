"""Batched decoding of replies: greedy or sampled, each row with its own end.

Axes: B rows, T positions, V vocabulary. Prompts that are decoded together are padded on the left to the longest.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from vestige.models.forward import batches_by_length, logits_at, right_padded, within_memory
from vestige.models.keys_values import cache_arguments, empty_cache, keeps_keys

TOKEN_BUDGET = 4096
STEP_TOKENS = 32
"""The cost of a step of decoding in addition to its rows, in tokens."""


@dataclass(frozen=True)
class Reply:
    """A model's reply.

    `ids` excludes the token that ended the reply. `finish` is "stop" if there was one and "length" otherwise. `margin`
    is the smallest difference (nats) between the logits of the first and the second token over the reply. A small one
    is a near-tie, which another device may decide differently. It is None if a server does not report it.
    """

    ids: tuple[int, ...]
    finish: Literal["stop", "length"]
    margin: float | None


@dataclass(frozen=True)
class Sampling:
    """Sampling at a temperature, restricted to the nucleus of probability `top_p`. Each row has its own seed."""

    temperature: float
    top_p: float
    seeds: tuple[int, ...]


@within_memory
@torch.inference_mode()
def generate(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    *,
    end_ids: Sequence[int],
    max_new_tokens: int,
    context: int | None = None,
    sampling: Sampling | None = None,
    token_budget: int = TOKEN_BUDGET,
) -> list[Reply]:
    """Replies to `prompts`, in the order given. Greedy without `sampling`.

    A reply is cut at `max_new_tokens`, and where prompt and reply together fill the `context`.
    """
    replies: dict[int, Reply] = {}
    ends = torch.tensor(sorted(end_ids), dtype=torch.long, device=model.device)
    lengths = [len(p) for p in prompts]
    # Each token is a separate pass over the rows.
    budget = STEP_TOKENS * max_new_tokens
    for width, rows in batches_by_length(lengths, model.device, token_budget=token_budget, pass_tokens=budget):
        # Samples of one prompt share its pass.
        distinct = list(dict.fromkeys(tuple(prompts[i]) for i in rows))
        decoding = Decoding.of(model, len(distinct), context) if keeps_keys(model) else _Rereading(model)
        first = decoding.prefill(distinct, width)
        if len(distinct) < len(rows):
            repeated = torch.tensor([distinct.index(tuple(prompts[i])) for i in rows], device=model.device)
            decoding.keep(repeated)
            first = first[repeated]
        room = [min(max_new_tokens, (context or sys.maxsize) - len(prompts[i])) for i in rows]
        replies |= dict(zip(rows, decode(decoding, first, ends, _chooser(sampling, rows), room), strict=True))
    return [replies[i] for i in range(len(prompts))]


Choose = Callable[[Float[Tensor, "B V"], list[int]], Int[Tensor, " B"]]
"""Chooses the next tokens of these rows."""


def _chooser(sampling: Sampling | None, rows: list[int]) -> Choose | None:
    """Return a function that samples the next token of each row with its own generator. None for greedy decoding."""
    if sampling is None:
        return None
    generators = [torch.Generator().manual_seed(sampling.seeds[i]) for i in rows]

    def choose(logits: Float[Tensor, "B V"], rows: list[int]) -> Int[Tensor, " B"]:
        uniform = [torch.rand((), dtype=torch.float64, generator=generators[row]) for row in rows]
        return draw(logits, torch.stack(uniform), temperature=sampling.temperature, top_p=sampling.top_p)

    return choose


_BLOCK = 256
"""Weights that are summed together: two short searches take the place of one over the vocabulary."""
_LEADERS = 2**10, 2**14
"""The number of tokens sorted for a nucleus. All are sorted if the nucleus is larger."""


def draw(
    logits: Float[Tensor, "B V"], uniform: Float[Tensor, " B"], *, temperature: float, top_p: float
) -> Int[Tensor, " B"]:
    """Return the token at each row's `uniform` share of its nucleus, with tokens in the vocabulary's order.

    The nucleus contains the token that crosses `top_p`, so it is never empty (Holtzman et al., 1904.09751). Among
    equally likely tokens there, the first counts. The computation stays on the device of the logits. Nothing is sorted
    if `top_p` is 1.
    """
    # Weights are not normalised: a share is a part of their sum. The largest weight is 1, so none overflows.
    weights = (logits - logits.amax(-1, keepdim=True)).div_(temperature).exp_()
    if top_p < 1:
        weights = weights.where(_nucleus(weights, top_p), 0.0)
    whole = weights.shape[-1] // _BLOCK * _BLOCK
    sums = weights[:, :whole].unflatten(-1, (-1, _BLOCK)).sum(-1)
    edges = torch.cat([sums, weights[:, whole:].sum(-1, keepdim=True)], -1).cumsum(-1, dtype=torch.float64)
    level = uniform.to(logits.device)[:, None] * edges[:, -1:]
    block = _first_beyond(edges, level)
    before = torch.where(block > 0, edges.gather(-1, (block - 1).clamp(min=0)), 0.0)
    places = block * _BLOCK + torch.arange(_BLOCK, device=logits.device)
    inside = weights.gather(-1, places.clamp(max=weights.shape[-1] - 1)).where(places < weights.shape[-1], 0.0)
    within = _first_beyond(inside.cumsum(-1, dtype=torch.float64), level - before)
    return (block * _BLOCK + within).squeeze(-1)


def _first_beyond(rising: Float[Tensor, "B N"], level: Float[Tensor, "B 1"]) -> Int[Tensor, "B 1"]:
    """Return the index at which a rising sum first exceeds the target.

    If rounding prevents that, the last index with an increase.
    """
    index = (rising <= level).sum(-1, keepdim=True)
    return torch.minimum(index, (rising < rising[:, -1:]).sum(-1, keepdim=True))


def _nucleus(weights: Float[Tensor, "B V"], top_p: float) -> Bool[Tensor, "B V"]:
    share = top_p * weights.sum(-1, keepdim=True, dtype=torch.float64)
    for k in (*_LEADERS, weights.shape[-1]):
        falling = weights.topk(min(k, weights.shape[-1]), -1).values
        n = (falling.cumsum(-1, dtype=torch.float64) - falling < share).sum(-1, keepdim=True)
        if bool((n < falling.shape[-1]).all()):
            break
    least = falling.gather(-1, n - 1)
    above, tied = weights > least, weights == least
    among = n - above.sum(-1, keepdim=True)
    return above | (tied & (tied.cumsum(-1) <= among))


@dataclass
class Decoding:
    """Rows in decoding: the cache, and its mask."""

    model: PreTrainedModel
    cache: DynamicCache
    mask: Bool[Tensor, "B T"]
    last_position: int

    @classmethod
    def of(cls, model: PreTrainedModel, n_rows: int, context: int | None) -> "Decoding":
        empty = torch.zeros(n_rows, 0, dtype=torch.bool, device=model.device)
        return cls(model, empty_cache(model), empty, (context or sys.maxsize) - 1)

    def prefill(self, prompts: Sequence[Sequence[int]], width: int) -> Float[Tensor, "B V"]:
        """Logits of each row's first new token."""
        ids = torch.zeros(len(prompts), width, dtype=torch.long)
        mask = torch.zeros(len(prompts), width, dtype=torch.bool)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = True
        self.mask = mask.to(self.model.device)
        # Padding has position 0, and the mask hides it.
        positions = (self.mask.cumsum(-1) - 1).clamp(min=0)
        return self._forward(ids.to(self.model.device), positions)

    def step(self, tokens: Int[Tensor, " B"]) -> Float[Tensor, "B V"]:
        """Logits of the token after `tokens`, which the rows take in."""
        # A finished row stays in the batch for a while. Its position must not exceed the context.
        positions = self.mask.sum(-1, keepdim=True).clamp(max=self.last_position)
        self.mask = torch.cat([self.mask, torch.ones_like(self.mask[:, :1])], dim=-1)
        return self._forward(tokens[:, None], positions)

    def keep(self, rows: Int[Tensor, " K"]) -> None:
        """Go on with these rows alone. A row may be there more than once."""
        self.cache.batch_select_indices(rows)
        self.mask = self.mask[rows]

    def _forward(self, ids: Int[Tensor, "B N"], positions: Int[Tensor, "B N"]) -> Float[Tensor, "B V"]:
        out = self.model(
            input_ids=ids,
            attention_mask=self.mask.long(),
            position_ids=positions,
            logits_to_keep=1,
            **cache_arguments(self.model, self.cache),
        )
        last: Tensor = out.logits[:, -1].float()
        return last


@dataclass
class _Rereading:
    """Rows that are recomputed for each token, for models without a cache of keys and values (Mamba).

    Such a state takes padding in, and goes on from it by other kernels than a whole pass.
    """

    model: PreTrainedModel
    rows: list[list[int]] = field(default_factory=list)

    def prefill(self, prompts: Sequence[Sequence[int]], width: int) -> Float[Tensor, "B V"]:
        """Logits of each row's first new token."""
        self.rows = [list(prompt) for prompt in prompts]
        return self._logits()

    def step(self, tokens: Int[Tensor, " B"]) -> Float[Tensor, "B V"]:
        """Logits of the token after `tokens`, which the rows take in."""
        for row, token in zip(self.rows, tokens.tolist(), strict=True):
            row.append(token)
        return self._logits()

    def keep(self, rows: Int[Tensor, " K"]) -> None:
        """Go on with these rows alone. A row may be there more than once."""
        self.rows = [list(self.rows[k]) for k in rows.tolist()]

    def _logits(self) -> Float[Tensor, "B V"]:
        lengths = [len(row) for row in self.rows]
        places = sorted(set(lengths))
        ids = right_padded(self.rows, places[-1], self.model.device)
        logits = logits_at(self.model, ids, torch.tensor(places, device=ids.device) - 1)
        return torch.stack([logits[k, places.index(length)] for k, length in enumerate(lengths)])


def decode(
    decoding: Decoding | _Rereading,
    logits: Float[Tensor, "B V"],
    ends: Int[Tensor, " E"],
    choose: Choose | None,
    room: list[int],
    *,
    keeps_ends: bool = False,
) -> list[Reply]:
    """Replies of all rows, from the logits of their first tokens on. `room` is how many tokens each may have.

    Greedy where `choose` is None. With `keeps_ends` a reply has the token that ended it. The rows of `decoding` are
    used up.
    """
    n = len(logits)
    tokens: list[list[int]] = [[] for _ in range(n)]
    margins, stopped, ended = [float("inf")] * n, [False] * n, [False] * n
    rows = list(range(n))
    while True:
        best = logits.topk(2, dim=-1)
        if choose is None:
            chosen = best.indices[:, 0]
        else:
            chosen = choose(logits, rows)
        gaps = best.values[:, 0] - best.values[:, 1]
        # One transfer, since each one waits for the GPU. A double represents a token's id exactly.
        state = torch.stack([chosen.double(), gaps.double(), torch.isin(chosen, ends).double()]).tolist()
        for row, token, gap, end in zip(rows, *state, strict=True):
            if stopped[row]:
                continue
            margins[row] = min(margins[row], gap)
            ended[row] = bool(end)
            if not end or keeps_ends:
                tokens[row].append(int(token))
            stopped[row] = ended[row] or len(tokens[row]) == room[row]
        active = [k for k, row in enumerate(rows) if not stopped[row]]
        if not active:
            break
        # Dropping finished rows one by one would copy the cache each time. Halving the batch needs only a few copies.
        if len(active) <= len(rows) // 2:
            alive = torch.tensor(active, device=chosen.device)
            decoding.keep(alive)
            chosen, rows = chosen[alive], [rows[k] for k in active]
        logits = decoding.step(chosen)
    return [Reply(tuple(t), "stop" if s else "length", m) for t, s, m in zip(tokens, ended, margins, strict=True)]
