"""The digest of a model: what every result that depends on it is keyed by."""

import hashlib
import inspect
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vestige.core.errors import InputError
from vestige.core.ids import content_id

_BOOKKEEPING = frozenset(
    (
        *("_name_or_path", "_commit_hash", "_from_model_config", "transformers_version", "architectures", "auto_map"),
        *("dtype", "torch_dtype", "use_cache", "return_dict", "output_attentions", "output_hidden_states"),
        *("id2label", "label2id", "problem_type"),
    )
)
"""Fields of a config that change no number: names, versions, paths, and the dtype, which the weights' digest has."""


@dataclass(frozen=True)
class ModelDigest:
    """The digests of all parts of a model that can change a number, kept apart so that a difference has a name.

    An adapter is merged into its base before the digest is taken, so both are in `weights`.
    """

    weights: str
    config: str
    generation: str
    tokenizer: str
    template: str

    @property
    def id(self) -> str:
        """The content id of all parts: one digest of the whole model, 64 hexadecimal digits."""
        return content_id(asdict(self), length=64)

    @property
    def reads(self) -> str:
        """The content id of what turns a question into tokens."""
        return content_id([self.tokenizer, self.template], length=32)

    def refuse_other(self, held: "ModelDigest | str", what: str, advice: str) -> None:
        """Raise InputError, naming the parts that differ, unless this is the digest that was `held` of `what`.

        Of a digest that is held as its `id` alone, the parts are not known.
        """
        if self.id == (held if isinstance(held, str) else held.id):
            return
        known = {} if isinstance(held, str) else asdict(held)
        parts = ", ".join(_NAMES[part] for part, value in known.items() if getattr(self, part) != value)
        where = f"; it differs in {parts}" if parts else ""
        raise InputError(f"{what} is not the model that it was{where}; {advice}")


_NAMES = {
    "weights": "the weights",
    "config": "config.json",
    "generation": "generation_config.json",
    "tokenizer": "the tokeniser",
    "template": "the chat template",
}


def weights_digest(model: nn.Module) -> str:
    """SHA-256 over the names, shapes, types and bytes of all parameters and buffers that are saved, by name."""
    total = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        plain = tensor.detach().cpu().contiguous().reshape(-1)
        total.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        total.update(plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b"")
    return total.hexdigest()


def model_digest(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, template: str) -> ModelDigest:
    """The digest of a model that is asked through the tokeniser and the template of the digest `template`."""
    generation = getattr(model, "generation_config", None)
    return ModelDigest(
        weights=weights_digest(model),
        config=content_id([_plain(model.config.to_dict()), _code_of(model)], length=32),
        generation=content_id(_plain(generation.to_dict() if generation is not None else {}), length=32),
        tokenizer=tokenizer_digest(tokenizer),
        template=template,
    )


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """Content id of what turns text into tokens and back: the tokeniser's file, special tokens, how it decodes."""
    stored = json.loads(tokenizer.backend_tokenizer.to_str())
    # Set by whoever called it last, and never relied on.
    stored.pop("truncation"), stored.pop("padding")
    special = {name: str(token) for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
    cleans = bool(getattr(tokenizer, "clean_up_tokenization_spaces", False))
    return content_id([stored, special, sorted(tokenizer.all_special_tokens), cleans], length=32)


def _plain(config: Mapping[str, Any]) -> Any:
    """A config without its bookkeeping and without fields that are null, which a later version may leave out or add."""
    kept = _kept(config)
    return json.loads(json.dumps(kept, default=str, sort_keys=True))


def _kept(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _kept(v) for k, v in value.items() if k not in _BOOKKEEPING and v is not None}
    return [_kept(v) for v in value] if isinstance(value, list | tuple) else value


def _code_of(model: PreTrainedModel) -> str:
    """The digest of the code that a model brings with it; empty where it is transformers' own or Vestige's."""
    if not type(model).__module__.startswith("transformers_modules"):
        return ""
    return hashlib.sha256(inspect.getsource(inspect.getmodule(type(model)) or type(model)).encode()).hexdigest()
