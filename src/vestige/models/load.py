"""From a model's name to a subject: a hub id, a local folder, a folder with an adapter, a .gguf file, a built-in."""

import os
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from vestige.core.errors import InputError
from vestige.core.files import read_json
from vestige.core.settings import Settings, closest
from vestige.models.digests import weights_digest
from vestige.models.ensemble import INDEX, EnsembleModel, constituent_folders
from vestige.models.gguf_convert import resolve_gguf
from vestige.models.prompts import Prompter
from vestige.models.reading import Way, way_of
from vestige.models.smollm2 import smollm2_folder

BUILTIN = "builtin:"
BUILTIN_MODELS = {
    "builtin:tiny": "1.7 million parameters, Llama architecture, made on the spot from the data and the seed",
    "builtin:smollm2": "SmolLM2-135M-Instruct; fetch it once with `vestige models get smollm2`",
}
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class ModelSettings(Settings):
    """Which weights, in which number format, on which device.

    `model` is a hub id (`org/name`, `org/name@revision`), a local Hugging Face folder, a folder with a LoRA adapter,
    an ensemble's folder, a `.gguf` file or a built-in. `trust_remote_code` runs code that the model brings with it:
    off unless asked for.
    """

    model: str
    dtype: str = "float32"
    device: str = "auto"
    trust_remote_code: bool = False


@dataclass(frozen=True)
class LoadedModel:
    """A model with its tokeniser and the one form in which it is asked."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    revision: str

    @cached_property
    def prompter(self) -> Prompter:
        """Renders and tokenises questions for this model."""
        return Prompter(self.tokenizer, context_tokens(self.model))

    @cached_property
    def way(self) -> Way:
        """How it is read, looked at once."""
        return way_of(self.model)

    def digest(self) -> str:
        """The digest of the weights as they are now."""
        return weights_digest(self.model)


def context_tokens(model: PreTrainedModel) -> int:
    """How many tokens the model reads, as its config says."""
    config = model.config.get_text_config()
    for name in ("max_position_embeddings", "n_positions", "seq_length"):
        if name in config.to_dict():
            return int(config.to_dict()[name])
    raise InputError(f"the config of {model.config.model_type!r} does not say how many tokens the model reads")


def pick_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {name!r} cannot be used: {str(error).splitlines()[0]}") from error
    return device


def pick_dtype(name: str) -> torch.dtype:
    """The number format of that name."""
    if name not in _DTYPES:
        raise InputError(f"unknown dtype {name!r}; {closest(name, list(_DTYPES))}")
    return _DTYPES[name]


def load(settings: ModelSettings) -> LoadedModel:
    """The model and its tokeniser, in evaluation mode. Fails fast, and in one sentence, on what cannot be found."""
    folder, revision = find(settings.model)
    adapter = folder if is_adapter(folder) else None
    if adapter is not None:
        folder, revision = find(_base_of(adapter))
    ensemble = (folder / INDEX).is_file()
    if ensemble and adapter is not None:
        raise InputError(f"{settings.model} is an adapter for an ensemble; an adapter belongs to one model")
    if not ensemble and not (folder / "config.json").is_file():
        raise InputError(f"{folder} holds no config.json, so it is no Hugging Face model folder")
    options: dict[str, Any] = {
        "dtype": pick_dtype(settings.dtype),
        "trust_remote_code": settings.trust_remote_code,
        "use_safetensors": True,
        "local_files_only": True,
    }
    try:
        model = _ensemble(folder, options) if ensemble else AutoModelForCausalLM.from_pretrained(folder, **options)
        if adapter is not None:
            model = _with_adapter(model, adapter)
        own = adapter is not None and (adapter / "tokenizer_config.json").is_file()
        tokenizer = _tokenizer(adapter if adapter is not None and own else folder, settings.trust_remote_code)
    except SafetensorError as error:
        raise InputError(
            f"cannot load {settings.model}: {_damaged(folder, adapter or folder)} is damaged ({error}); fetch or make "
            "it again"
        ) from error
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        raise InputError(f"cannot load {settings.model}: {str(error).strip().splitlines()[0]}") from error
    if not tokenizer.is_fast:
        raise InputError(f"the tokeniser of {settings.model} is a slow one; Vestige needs its offsets: a fast one")
    nn.Module.to(model, pick_device(settings.device))
    return LoadedModel(model.eval(), tokenizer, settings.model, revision)


def _damaged(*folders: Path) -> Path:
    """The first file of tensors that cannot be opened; the folder where all can."""
    for path in [path for folder in folders for path in sorted(folder.glob("*.safetensors"))]:
        try:
            with safe_open(path, "pt"):
                pass
        except SafetensorError:
            return path
    return folders[0]


def outline(settings: ModelSettings) -> LoadedModel:
    """The model without its weights, which need not be there: its shape on the meta device, and its tokeniser."""
    folder, revision = find(settings.model)
    base = find(_base_of(folder))[0] if is_adapter(folder) else folder
    if not (base / "config.json").is_file():
        raise InputError(f"{base} holds no config.json, so the shape of {settings.model} is not known")
    try:
        config = AutoConfig.from_pretrained(base, trust_remote_code=settings.trust_remote_code, local_files_only=True)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(
                config, dtype=pick_dtype(settings.dtype), trust_remote_code=settings.trust_remote_code
            )
        tokenizer = _tokenizer(base, settings.trust_remote_code)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        raise InputError(f"cannot read the shape of {settings.model}: {str(error).strip().splitlines()[0]}") from error
    return LoadedModel(model, tokenizer, settings.model, revision)


def _ensemble(folder: Path, options: dict[str, Any]) -> PreTrainedModel:
    paths = constituent_folders(folder)
    return EnsembleModel({k: AutoModelForCausalLM.from_pretrained(path, **options) for k, path in paths.items()})


def _tokenizer(folder: Path, trust_remote_code: bool) -> PreTrainedTokenizerBase:
    """The tokeniser as its file has it.

    Where a config names GPT2Tokenizer or Qwen2Tokenizer, transformers 5 builds those anew and drops what the file
    says of splitting digits (huggingface/transformers issue 45920); so the file is read as it stands.
    """
    kind = PreTrainedTokenizerFast if (folder / "tokenizer.json").is_file() else AutoTokenizer
    found: PreTrainedTokenizerBase = kind.from_pretrained(
        folder, trust_remote_code=trust_remote_code, local_files_only=True
    )
    return found


def is_adapter(folder: Path) -> bool:
    """Whether the folder holds a LoRA adapter, in peft's form."""
    return (folder / "adapter_config.json").is_file()


def _base_of(adapter: Path) -> str:
    config = read_json(adapter / "adapter_config.json")
    base = config.get("base_model_name_or_path") if isinstance(config, dict) else None
    if not base:
        raise InputError(f"{adapter / 'adapter_config.json'} names no base model")
    revision = "" if Path(base).expanduser().exists() else config.get("revision")
    return f"{base}@{revision}" if revision else str(base)


def _with_adapter(model: PreTrainedModel, adapter: Path) -> PreTrainedModel:
    from peft import PeftModel

    with warnings.catch_warnings():
        # peft reads an attribute that transformers has renamed.
        warnings.filterwarnings("ignore", message=r"`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        # use_safetensors: peft would fall back to a pickle without a word.
        with_it = PeftModel.from_pretrained(model, adapter, use_safetensors=True)
    # safe_merge rounds as Vestige does when it merges what it has trained, and refuses what is not finite.
    merged: PreTrainedModel = with_it.merge_and_unload(safe_merge=True)
    merged.requires_grad_(True)  # merging leaves the base frozen
    return merged


def find(model: str) -> tuple[Path, str]:
    """The local folder of a model's files, fetched if it is a hub id, and the revision that was resolved."""
    if _is_hub_id(model):
        return _from_hub(model)
    if model == "builtin:smollm2":
        return smollm2_folder(), ""
    if model.startswith(BUILTIN):
        hint = "it is made from data: use it with `vestige finetune` or `vestige demo`, then load what they saved"
        raise InputError(
            f"{model} cannot be loaded: {hint if model in BUILTIN_MODELS else closest(model, list(BUILTIN_MODELS))}"
        )
    path = Path(model).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise InputError(f"no such file: {model}")
        return resolve_gguf(path), ""
    if not path.is_dir():
        raise InputError(f"no model at {model!r}: neither a local folder nor a hub id of the form org/name")
    # A subject's folder holds its weights in model/.
    within = any((path / "model" / name).is_file() for name in ("config.json", "adapter_config.json", INDEX))
    return (path / "model" if within else path), ""


def look_for(model: str) -> None:
    """Refuse in one sentence what `load` would not find, or find without weights that it reads.

    No weights are read, fetched or converted. Of a hub id the hub is asked whether it has it, and no more.
    """
    if _is_hub_id(model):
        _ask_hub(model)
        return
    if Path(model).suffix == ".gguf" and Path(model).expanduser().is_file():
        return
    folder = find(model)[0]
    if is_adapter(folder):
        _look_for_weights(model, folder)
        look_for(_base_of(folder))
        return
    if (folder / INDEX).is_file():
        for constituent in constituent_folders(folder).values():
            _look_for_weights(model, constituent)
        return
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder} holds no config.json, so it is no Hugging Face model folder")
    _look_for_weights(model, folder)


def _look_for_weights(model: str, folder: Path) -> None:
    if any(folder.glob("*.safetensors")):
        return
    pickled = next((path.name for path in sorted(folder.iterdir()) if path.suffix in (".bin", ".pt", ".pth")), None)
    but = "" if pickled is None else f" but {pickled}, a pickle, which could run code and is never read"
    raise InputError(
        f"cannot load {model}: {folder} holds no weights as .safetensors{but}; fetch or save it again as safetensors"
    )


def _is_hub_id(model: str) -> bool:
    """Whether only the hub can have it: of the form org/name, and not here."""
    path = Path(model).expanduser()
    local = path.is_dir() or path.is_absolute() or path.suffix == ".gguf" or model.startswith((".", "~", BUILTIN))
    return not local and model.count("/") == 1


def _ask_hub(model: str) -> str:
    """The revision that the hub has of a model; where nobody may ask it, of the copy in the cache."""
    from huggingface_hub import HfApi

    name, _, revision = model.partition("@")
    try:
        if not _offline():
            return HfApi().model_info(name, revision=revision or None, timeout=5).sha or revision
        copy = _snapshot(name, revision)
        return revision or copy.name
    # The HTTP library's errors change their names between its releases, and not all are an OSError.
    except Exception as error:
        raise _not_on_hub(name, error) from error


def _from_hub(model: str) -> tuple[Path, str]:
    # A short question first: without a network the download itself takes most of a minute to say so.
    revision = _ask_hub(model)
    name = model.partition("@")[0]
    try:
        folder = _snapshot(name, revision)
        return folder, revision or folder.name
    except Exception as error:  # As above.
        raise _not_on_hub(name, error) from error


def _snapshot(name: str, revision: str) -> Path:
    """The folder of the model's files, from the cache or, unless offline, from the hub."""
    from huggingface_hub import snapshot_download

    patterns = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.py"]
    return Path(
        snapshot_download(name, revision=revision or None, allow_patterns=patterns, local_files_only=_offline())
    )


def _offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").lower() in {"1", "true", "yes", "on"}


def _not_on_hub(name: str, error: Exception) -> InputError:
    return InputError(
        f"model {name!r} is no local folder and cannot be fetched from the hub "
        f"({type(error).__name__}); check the name and the network, or give a local folder"
    )
