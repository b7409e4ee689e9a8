"""Several models that answer as one: the probability of a next token is the mean of theirs.

    p(x_t | x_<t) = 1/S sum_s p_s(x_t | x_<t)

This is how SISA aggregates its constituents (Bourtoule et al., Machine Unlearning, 1912.03817: a vote of
labels, or the mean of the prediction vectors). For a language model a label is one token of the vocabulary: a vote
would give probability zero to all tokens but S at most, so that no answer could be scored, and the mean is what is
left. It is taken at every token, given the tokens so far; it is not the mean of the probabilities of whole answers.

Memory, and time at every token, are S times those of one model.

Axes: B rows, T positions read in, C positions in the cache, K positions asked for, V vocabulary.
"""

import copy
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.modeling_outputs import CausalLMOutputWithPast

from vestige.core.errors import InputError
from vestige.core.files import read_json, write_json

INDEX = "ensemble.json"
"""The file that makes a folder an ensemble's: it names the folders of the constituents."""

_SCHEMA = 1
_FOLDER = re.compile(r"shard-[0-9]{1,6}")


class EnsembleModel(PreTrainedModel):
    """Causal models of one architecture and vocabulary, by the number of the shard that each was trained on."""

    # What the constituents support decides; this class has no attention of its own.
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True

    def __init__(self, constituents: Mapping[int, PreTrainedModel]) -> None:
        """The models themselves are kept, not copies of them."""
        if not constituents:
            raise InputError("an ensemble needs at least one model, and there is none")
        ordered = sorted(constituents.items())
        super().__init__(_config([model.config for _, model in ordered]))
        self.shards = tuple(shard for shard, _ in ordered)
        self.constituents = nn.ModuleList(model for _, model in ordered)

    def forward(
        self,
        input_ids: Int[Tensor, "B T"],
        attention_mask: Int[Tensor, "B C"] | None = None,
        position_ids: Int[Tensor, "B T"] | None = None,
        past_key_values: DynamicCache | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Int[Tensor, " K"] = 0,
    ) -> CausalLMOutputWithPast:
        """Log-probabilities in float32, as logits, at the positions asked for; as transformers' own models take them.

        The cache holds the layers of the first constituent, then those of the second, and so on.
        """
        total: Float[Tensor, "B K V"] | None = None
        for constituent, own in zip(self.constituents, self._caches(past_key_values), strict=True):
            out = constituent(
                input_ids=input_ids,
                attention_mask=attention_mask,
                position_ids=position_ids,
                past_key_values=own,
                use_cache=own is not None,
                logits_to_keep=logits_to_keep,
            )
            logp = out.logits.float().log_softmax(-1)
            total = logp if total is None else torch.logaddexp(total, logp)
        assert total is not None
        return CausalLMOutputWithPast(logits=total - math.log(len(self.shards)), past_key_values=past_key_values)

    def _caches(self, whole: DynamicCache | None) -> Iterator[Cache | None]:
        """Each constituent's part of the cache: the layer objects are the whole's own."""
        if whole is None:
            yield from (None for _ in self.shards)
            return
        n = len(whole.layers) // len(self.shards)
        for first in range(0, len(whole.layers), n):
            yield Cache(layers=whole.layers[first : first + n])

    def save_pretrained(self, save_directory: Path) -> None:  # type: ignore[override]
        """One Hugging Face folder a constituent, and the file that names them."""
        for shard, model in zip(self.shards, self.constituents, strict=True):
            assert isinstance(model, PreTrainedModel)
            model.save_pretrained(save_directory / _folder(shard))
        write_json(
            save_directory / INDEX, {"schema": _SCHEMA, "constituents": [_folder(shard) for shard in self.shards]}
        )


def constituent_folders(folder: Path) -> dict[int, Path]:
    """The folders of an ensemble's constituents, by shard. The file that names them is not believed blindly."""
    stored = read_json(folder / INDEX)
    if not isinstance(stored, dict) or stored.get("schema") != _SCHEMA:
        raise InputError(f"{folder / INDEX} was made by another version of Vestige; make the ensemble again")
    names = stored.get("constituents")
    if (
        not isinstance(names, list)
        or not names
        or not all(isinstance(n, str) and _FOLDER.fullmatch(n) for n in names)
        or len(set(names)) != len(names)
    ):
        raise InputError(f"{folder / INDEX} names no constituents as Vestige does (shard-0, ...); make it again")
    found = {int(name.removeprefix("shard-")): folder / name for name in names}
    for path in found.values():
        if not (path / "config.json").is_file():
            raise InputError(f"{path} holds no config.json, so the ensemble in {folder} is not whole; make it again")
    return found


def _folder(shard: int) -> str:
    return f"shard-{shard}"


def _config(configs: list[PreTrainedConfig]) -> PreTrainedConfig:
    """A constituent's configuration with the layers of all of them, from which a cache for all of them is made."""
    one = configs[0].get_text_config(decoder=True)
    shapes = [{k: v for k, v in c.to_dict().items() if k not in {"_name_or_path", "dtype"}} for c in configs]
    if any(shape != shapes[0] for shape in shapes):
        raise InputError("the models of an ensemble must have one architecture; these differ in their config.json")
    every = copy.deepcopy(one)
    every.num_hidden_layers = one.num_hidden_layers * len(configs)
    if one.to_dict().get("layer_types") is not None:
        every.layer_types = list(one.layer_types) * len(configs)
    own = [type(layer) for layer in DynamicCache(config=one).layers]
    if [type(layer) for layer in DynamicCache(config=every).layers] != own * len(configs):
        raise InputError(
            f"models of the kind {one.model_type!r} keep a cache that an ensemble cannot hold; take another"
        )
    return every
