"""Many prompts that stand in the same texts, scored at once: what a search over prompt tokens asks of a model.

Losses are in nats: the mean over a target's tokens, then over texts. Numbers are float32.

Where a rough loss is cheap and the exact one is expensive, the best candidates are screened (`best_of`). They are asked
for exactly in the order of their rough losses, a block at a time, until none of the others can be among the best: until
the least rough loss left lies above the n-th best exact one by more than MARGIN times the farthest that a rough loss
was seen from the exact one. docs/performance.md says how often that went wrong.

What prompts and texts have in common is read once (`sharing_scorer`). Every prompt is read from the first token in
which it differs from the most common one, on keys and values of one row; where texts begin alike, what a prompt leaves
behind serves all of them.

For models built as Llama is, the passes are written out (`LlamaPasses`): no work where nothing is read, few small
operations. Against the root module: the last block's queries, attention and MLP are computed at target places only,
attention is two products and a softmax, which is quicker for so few tokens, and in bfloat16 the norms' weights stand in
the products that follow them and the residual stream stays in float32. Whoever takes it compares it with the root
module.

Axes: W prompts, T tokens of a prompt, K tokens of a target, S texts, V vocabulary, D hidden width. In the passes: N
rows (or prompts of a chunk), T tokens read, K positions whose next token is scored, P positions before, L all
positions, H heads of keys, Q heads of queries, D width of a head, I inputs, O outputs, E hidden width.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import silu
from transformers import LlamaForCausalLM, MistralForCausalLM, PreTrainedModel, Qwen2ForCausalLM

from vestige.core.errors import InputError
from vestige.models.forward import within_memory
from vestige.models.keys_values import KeysValues
from vestige.models.load import context_tokens
from vestige.models.products import onednn_works
from vestige.models.variant_texts import Around as Around
from vestige.models.variant_texts import Ids as Ids
from vestige.models.variant_texts import (
    Passes,
    Past,
    RootPasses,
    Scorer,
    can_share,
    in_bfloat16,
    loss_gradient,
    plain_logits,
    plain_scorer,
    target_scores,
    up_to,
)

Screen = Literal["none", "bfloat16"]
Way = Literal["plain", "shared", "shared, written out"]
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
        screen: Screen = "none",
        token_budget: int = TOKEN_BUDGET,
    ) -> None:
        """`token_budget` bounds the tokens of a pass. A model that is not in float32 needs no screen and gets none."""
        if not texts or not all(text.target for text in texts):
            raise InputError("a prompt is searched for texts that each have a target of at least one token; give them")
        self._model = model
        self._texts = tuple(texts)
        self._context = context_tokens(model)
        self.way, self._exact = _exact_scorer(model, self._texts, self._context, token_budget)
        self._screen: Scorer | None = None
        if screen == "bfloat16" and self.way != "plain" and model.dtype == torch.float32:
            self._screen = _screening_scorer(model, self._exact, self._texts, token_budget)

    def losses(self, prompts: Sequence[Ids]) -> Float[Tensor, " W"]:
        """The loss of each prompt."""
        return _losses(self.target_logp(prompts))

    def target_logp(self, prompts: Sequence[Ids]) -> list[Float[Tensor, "W K"]]:
        """The log-probability of each target token after each prompt, for each text."""
        self._check(prompts)
        return self._scored(self._exact, prompts)

    def leaders(self, prompts: Sequence[Ids], n: int) -> list[Scored]:
        """The `n` least losses, least first, ties in the order given.

        A screen saves work. That none of them is missed is a rule and no proof (`best_of`).
        """
        self._check(prompts)
        if self._screen is None:
            loss_of = dict(enumerate(self.losses(prompts).tolist()))
        else:
            distinct = list(dict.fromkeys(prompts))
            rough = self.screened(distinct).tolist()
            best = best_of(rough, lambda numbers: self.losses([distinct[i] for i in numbers]).tolist(), n)
            of_prompt = {distinct[i]: loss for i, loss in best.items()}
            loss_of = {i: of_prompt[prompt] for i, prompt in enumerate(prompts) if prompt in of_prompt}
        return [Scored(i, loss_of[i]) for i in sorted(loss_of, key=lambda i: (loss_of[i], i))[:n]]

    def screened(self, prompts: Sequence[Ids]) -> Float[Tensor, " W"]:
        """The rough loss of each prompt that `leaders` goes by; the exact one where there is no screen."""
        self._check(prompts)
        return _losses(self._scored(self._screen or self._exact, prompts))

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

    @torch.inference_mode()
    def _scored(self, scorer: Scorer, prompts: Sequence[Ids]) -> list[Float[Tensor, "W K"]]:
        distinct = {prompt: n for n, prompt in enumerate(dict.fromkeys(prompts))}
        losses = scorer(torch.tensor(list(distinct), device=self._model.device))
        rows = torch.tensor([distinct[prompt] for prompt in prompts], device=self._model.device)
        return [logp.index_select(0, rows) for logp in losses]

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


def _losses(logp: Sequence[Float[Tensor, "W K"]]) -> Float[Tensor, " W"]:
    return torch.stack([part.mean(-1) for part in logp]).mean(0).neg()


@torch.inference_mode()
def _exact_scorer(
    model: PreTrainedModel, texts: Sequence[Around], context: int, token_budget: int
) -> tuple[Way, Scorer]:
    """How these texts are scored: by what prompts share, where a probe agrees with the plain way.

    It does within 1e-4 nats in float32, and 1/2 in narrower numbers.
    """
    plain = plain_scorer(model, texts, token_budget)
    if not can_share(model, context):
        return "plain", plain
    tolerance = 1e-4 if model.dtype == torch.float32 else 1 / 2
    ways: dict[Way, Callable[[], Passes]] = {"shared": lambda: RootPasses(model)}
    if is_llama_like(model):
        ways = {"shared, written out": lambda: LlamaPasses(model, torch.float32), **ways}
    for name, passes in ways.items():
        sharing = sharing_scorer(passes(), texts, token_budget, model.device)
        if _apart(sharing, plain, model) <= tolerance:
            return name, sharing
    return "plain", plain


@torch.inference_mode()
def _screening_scorer(
    model: PreTrainedModel, exact: Scorer, texts: Sequence[Around], token_budget: int
) -> Scorer | None:
    """The same in bfloat16, where a probe says that it is near enough to be of use."""
    try:
        passes = LlamaPasses(model, torch.bfloat16) if is_llama_like(model) else RootPasses(in_bfloat16(model))
        rough = sharing_scorer(passes, texts, token_budget, model.device)
        return rough if _apart(rough, exact, model) <= 1 / 2 else None
    except RuntimeError as error:
        # oneDNN refuses products of bfloat16 on processors that have none.
        if "primitive" not in str(error):
            raise
        return None


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


# Candidates that are asked for exactly at once.
BLOCK = 8
MARGIN = 2.0


def best_of(
    rough: Sequence[float],
    exact: Callable[[Sequence[int]], Sequence[float]],
    n: int,
    *,
    block: int = BLOCK,
    margin: float = MARGIN,
) -> dict[int, float]:
    """Exact losses of candidates, the `n` best among them, by number. A rough loss that is no number is asked first."""
    order = sorted(range(len(rough)), key=lambda i: (rough[i] == rough[i], rough[i], i))
    loss_of: dict[int, float] = {}
    farthest = 0.0
    while len(loss_of) < len(order):
        block_ids = order[len(loss_of) : len(loss_of) + max(block, n - len(loss_of))]
        loss_of |= dict(zip(block_ids, exact(block_ids), strict=True))
        errors = [abs(rough[i] - loss_of[i]) for i in block_ids]
        # `max` would pass over what is no number.
        farthest = max([farthest, *(math.inf if math.isnan(e) else e for e in errors)])
        rest = order[len(loss_of) :]
        nth = sorted(loss_of.values())[min(n, len(loss_of)) - 1]
        # Written so that a distance which is no number asks for everything.
        if rest and rough[rest[0]] - nth > margin * farthest:
            break
    return loss_of


def sharing_scorer(passes: Passes, texts: Sequence[Around], token_budget: int, device: torch.device) -> Scorer:
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
    passes: Passes,
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


# Rows whose logits are held at once: 25 MB of them in float32 at 49,152 tokens.
_HEAD_ROWS = 128


class _Weights(NamedTuple):
    """Of one product, or of one norm and the product after it."""

    weight: Float[Tensor, "O I"]
    bias: Float[Tensor, " O"] | None


@dataclass(frozen=True)
class _Block:
    first_norm: Tensor | None
    query: _Weights
    key: _Weights
    value: _Weights
    output: _Weights
    second_norm: Tensor | None
    gate: _Weights
    up: _Weights
    down: _Weights


def is_llama_like(model: PreTrainedModel) -> bool:
    """Whether this is a float32 model on a CPU whose class and parts are those that are written out here."""
    if type(model) not in (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM):
        return False
    # What is not plainly linear (an adapter's layer, say) does more than its weight says.
    plain = all(type(m) is nn.Linear for name, m in model.named_modules() if name.endswith(("_proj", "lm_head")))
    on_cpu = model.device.type == "cpu" and model.dtype == torch.float32
    return plain and on_cpu and model.config.hidden_act == "silu" and onednn_works()


class LlamaPasses:
    """Passes through the weights of a model in `dtype`; in float32 the weights are its own, and no copies."""

    def __init__(self, model: PreTrainedModel, dtype: torch.dtype) -> None:
        """`model` is one that `is_llama_like`."""
        config, inner = model.config, model.model
        self._dtype = dtype
        self._embedding, self._rotary, self._eps = inner.embed_tokens, inner.rotary_emb, config.rms_norm_eps
        self._n_kv = config.num_key_value_heads
        self._width = inner.layers[0].self_attn.head_dim
        self._blocks = [_block(layer, dtype) for layer in inner.layers]
        self._norm, self._head = _behind(inner.norm.weight, [model.lm_head], dtype)

    def read_on(self, past: Past, ids: Int[Tensor, "N T"]) -> list[KeysValues]:
        """The keys and values of the past and these tokens."""
        return self._read(past, ids, 0)[0]

    def scores(self, past: Past, ids: Int[Tensor, "N T"], targets: Int[Tensor, " K"]) -> Float[Tensor, "N K"]:
        """The log-probability of each target after each of the last K of these tokens."""
        hidden = self._normed(self._read(past, ids, len(targets))[1], self._norm)
        parts = hidden.split(max(1, _HEAD_ROWS // len(targets)))
        return torch.cat([target_scores(_product(rows, self._head[0]), targets) for rows in parts])

    def _read(
        self, past: Past, ids: Int[Tensor, "N T"], n_read: int
    ) -> tuple[list[KeysValues], Float[Tensor, "N K E"]]:
        n, t = ids.shape
        before = past[0][0].shape[2] if past else 0
        x: Tensor = self._embedding(ids)
        turn = self._rotary(x, torch.arange(before, before + t)[None])
        cos, sin = (part[0, :, None].to(self._dtype) for part in turn)
        behind = torch.full((t, _roomy(before + t)), -torch.inf, dtype=self._dtype).triu(before + 1)
        kept: list[KeysValues] = []
        for number, block in enumerate(self._blocks):
            last = number == len(self._blocks) - 1
            h = self._normed(x, block.first_norm)
            key, value = (_product(h, w).view(n, t, self._n_kv, self._width) for w in (block.key, block.value))
            keys, values = _turned(key, cos, sin).transpose(1, 2), value.transpose(1, 2)
            keys, values = (
                _after(past[number][side] if past else None, new) for side, new in enumerate((keys, values))
            )
            kept.append((keys[:, :, : before + t], values[:, :, : before + t]))
            if last and n_read == 0:
                break
            if last:
                x, h, cos, sin, behind = x[:, -n_read:], h[:, -n_read:], cos[-n_read:], sin[-n_read:], behind[-n_read:]
            query = _product(h, block.query).view(n, h.shape[1], -1, self._width)
            attended = self._attended(_turned(query, cos, sin), keys, values, behind)
            x.add_(_product(attended, block.output))
            h = self._normed(x, block.second_norm)
            x.add_(_product(silu(_product(h, block.gate), inplace=True).mul_(_product(h, block.up)), block.down))
        return kept, x

    def _normed(self, x: Float[Tensor, "N T E"], weight: Tensor | None) -> Float[Tensor, "N T E"]:
        size = x.shape[-1]
        scale = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(size).add_(self._eps).rsqrt_()
        # Without a rounded copy in between.
        normed = torch.mul(x, scale, out=torch.empty(x.shape, dtype=self._dtype))
        return normed if weight is None else normed.mul_(weight)

    def _attended(
        self,
        query: Float[Tensor, "N T Q D"],
        keys: Float[Tensor, "N H P D"],
        values: Float[Tensor, "N H P D"],
        behind: Float[Tensor, "T P"],
    ) -> Float[Tensor, "N T E"]:
        n, t, q, d = query.shape
        groups = q // self._n_kv
        rows = query.view(n, t, self._n_kv, groups, d).permute(0, 2, 3, 1, 4).reshape(n * self._n_kv, groups * t, d)
        keys, values = keys.reshape(n * self._n_kv, -1, d), values.reshape(n * self._n_kv, -1, d)
        masked = behind if groups == 1 else behind.repeat(groups, 1)
        scores = torch.baddbmm(masked, rows, keys.transpose(1, 2), alpha=d**-0.5)
        attended = torch.bmm(scores.softmax(-1), values).view(n, self._n_kv, groups, t, d)
        return attended.permute(0, 3, 1, 2, 4).reshape(n, t, q * d)


def _block(layer: Any, dtype: torch.dtype) -> _Block:
    attention, mlp = layer.self_attn, layer.mlp
    first, (query, key, value) = _behind(
        layer.input_layernorm.weight, [attention.q_proj, attention.k_proj, attention.v_proj], dtype
    )
    second, (gate, up) = _behind(layer.post_attention_layernorm.weight, [mlp.gate_proj, mlp.up_proj], dtype)
    _, (output, down) = _behind(None, [attention.o_proj, mlp.down_proj], dtype)
    return _Block(first, query, key, value, output, second, gate, up, down)


def _behind(
    norm: Tensor | None, layers: Sequence[nn.Linear], dtype: torch.dtype
) -> tuple[Tensor | None, list[_Weights]]:
    """A norm's weight and the products behind it; one in the other where they are copied anyway."""
    if dtype == torch.float32:
        return norm, [_Weights(layer.weight, layer.bias) for layer in layers]
    parts = []
    for layer in layers:
        weight = layer.weight if norm is None else layer.weight * norm
        parts.append(_Weights(weight.to(dtype), None if layer.bias is None else layer.bias.to(dtype)))
    return None, parts


def _product(x: Float[Tensor, "N T I"], by: _Weights) -> Float[Tensor, "N T O"]:
    # See models/products.py: torch has no public name for it.
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x.contiguous(), by.weight, by.bias, "none", [], "")
    return product


def _turned(x: Float[Tensor, "N T H D"], cos: Float[Tensor, "T 1 D"], sin: Float[Tensor, "T 1 D"]) -> Tensor:
    """Rotary positions: each half of a head's width is turned by the other."""
    half = x.shape[-1] // 2
    turned = x * cos
    turned[..., :half].addcmul_(x[..., half:], sin[..., :half], value=-1)
    turned[..., half:].addcmul_(x[..., :half], sin[..., half:])
    return turned


def _roomy(length: int) -> int:
    """So many keys, with room behind them: a softmax in bfloat16 takes four times as long where it ends elsewhere."""
    return -(-length // 32) * 32


def _after(old: Float[Tensor, "B H P D"] | None, new: Float[Tensor, "N H T D"]) -> Float[Tensor, "N H L D"]:
    n, heads, _, width = new.shape
    parts = [new] if old is None else [old.expand(n, -1, -1, -1), new]
    length = sum(part.shape[2] for part in parts)
    return torch.cat([*parts, new.new_zeros(()).expand(n, heads, _roomy(length) - length, width)], dim=2)
