"""Passes of models that are built as Llama is, written out: no work where nothing is read, few small operations.

Against the root module: the last block's queries, attention and MLP are computed at target places only, attention is
two products and a softmax, which is quicker for so few tokens, and in bfloat16 the norms' weights stand in the
products that follow them and the residual stream stays in float32. Whoever takes it compares it with the root module.

Axes: N rows, T tokens read, K positions whose next token is scored, P positions before, L all positions,
H heads of keys, Q heads of queries, D width of a head, I inputs, O outputs, E hidden width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import silu
from transformers import LlamaForCausalLM, MistralForCausalLM, PreTrainedModel, Qwen2ForCausalLM

from vestige.models.keys_values import KeysValues
from vestige.models.products import onednn_works
from vestige.models.variant_passes import Past
from vestige.models.variant_texts import target_scores

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
        found = []
        for rows in hidden.split(max(1, _HEAD_ROWS // len(targets))):
            found.append(target_scores(_product(rows, self._head[0]), targets))
        return torch.cat(found)

    def _read(
        self, past: Past, ids: Int[Tensor, "N T"], n_read: int
    ) -> tuple[list[KeysValues], Float[Tensor, "N K E"]]:
        n, t = ids.shape
        before = past[0][0].shape[2] if past else 0
        x: Tensor = self._embedding(ids)
        turn = self._rotary(x, torch.arange(before, before + t)[None])
        cos, sin = (one[0, :, None].to(self._dtype) for one in turn)
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
        found = torch.mul(x, scale, out=torch.empty(x.shape, dtype=self._dtype))
        return found if weight is None else found.mul_(weight)

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
        found = torch.bmm(scores.softmax(-1), values).view(n, self._n_kv, groups, t, d)
        return found.permute(0, 3, 1, 2, 4).reshape(n, t, q * d)


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
    found = []
    for layer in layers:
        weight = layer.weight if norm is None else layer.weight * norm
        found.append(_Weights(weight.to(dtype), None if layer.bias is None else layer.bias.to(dtype)))
    return None, found


def _product(x: Float[Tensor, "N T I"], by: _Weights) -> Float[Tensor, "N T O"]:
    # See models/products.py: torch has no public name for it.
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x.contiguous(), by.weight, by.bias, "none", [], "")
    return found


def _turned(x: Float[Tensor, "N T H D"], cos: Float[Tensor, "T 1 D"], sin: Float[Tensor, "T 1 D"]) -> Tensor:
    """Rotary positions: each half of a head's width is turned by the other."""
    half = x.shape[-1] // 2
    found = x * cos
    found[..., :half].addcmul_(x[..., half:], sin[..., :half], value=-1)
    found[..., half:].addcmul_(x[..., :half], sin[..., half:])
    return found


def _roomy(length: int) -> int:
    """So many keys, with room behind them: a softmax in bfloat16 takes four times as long where it ends elsewhere."""
    return -(-length // 32) * 32


def _after(old: Float[Tensor, "B H P D"] | None, new: Float[Tensor, "N H T D"]) -> Float[Tensor, "N H L D"]:
    n, heads, _, width = new.shape
    parts = [new] if old is None else [old.expand(n, -1, -1, -1), new]
    length = sum(part.shape[2] for part in parts)
    return torch.cat([*parts, new.new_zeros(()).expand(n, heads, _roomy(length) - length, width)], dim=2)
