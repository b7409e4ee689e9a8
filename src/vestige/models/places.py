"""The location of a model's files: a local folder, the hub, a built-in. Needs no torch, so a forecast can use it."""

import os
from pathlib import Path

from vestige.core.errors import InputError
from vestige.core.files import refuse_special
from vestige.core.text import closest, one_line
from vestige.models.address import is_address, shown_address
from vestige.models.smollm2 import smollm2_folder

BUILTIN = "builtin:"
BUILTIN_MODELS = {
    "builtin:tiny": "1.7 million parameters, Llama architecture, made on the spot from the data and the seed",
    "builtin:tiny-deep": "the same of 6 narrow layers, 1.5 million parameters: a second model to compare with",
    "builtin:smollm2": "SmolLM2-135M-Instruct; fetch it once with `vestige models get smollm2`",
}


def find(model: str, *, weights: bool = True) -> tuple[Path, str]:
    """The local folder of a model's files, fetched if it is a hub id, and the revision that was resolved.

    Without `weights` the hub's are not fetched.
    """
    if is_address(model):
        raise InputError(
            f"{one_line(shown_address(model))} is behind an address, and its files are needed. Name its folder"
        )
    if is_hub_id(model):
        return _from_hub(model, weights=weights)
    if model == "builtin:smollm2":
        return smollm2_folder(), ""
    if model.startswith(BUILTIN):
        hint = "it is made from data: use it with `vestige finetune` or `vestige demo`, then load what they saved"
        raise InputError(
            f"{model} cannot be loaded: {hint if model in BUILTIN_MODELS else closest(model, list(BUILTIN_MODELS))}"
        )
    path = Path(model).expanduser()
    if path.suffix == ".gguf":
        raise InputError(f"{model}: GGUF files are not read. Take the model's Hugging Face folder")
    refuse_special(path)
    if not path.is_dir():
        raise InputError(f"no model at {model!r}: neither a local folder nor a hub id (org/name). Check the name")
    # A subject's folder has its weights in model/.
    inner = path / "model"
    within = _holds_model(inner)
    if _holds_model(path):
        if within:
            raise InputError(f"{one_line(model)} is a model and holds another in model/. Name {inner}, or move it")
    elif not within:
        _refuse_run_folder(path)
    return (inner if within else path), ""


def _holds_model(folder: Path) -> bool:
    return (folder / "config.json").is_file() or is_adapter(folder)


def _refuse_run_folder(path: Path) -> None:
    """Name the checkpoints in a folder that is no model itself."""
    checkpoints = []
    for name in ("config.json", "adapter_config.json"):
        checkpoints += [file.parent.name for file in path.glob(f"*/{name}")]
    if checkpoints:
        names = ", ".join(one_line(name, width=60) for name in sorted(checkpoints, key=_by_number)[-8:])
        raise InputError(f"{path} has checkpoints and is no model itself. Name a checkpoint: {names}")


def _by_number(name: str) -> tuple[int, str]:
    """Sort checkpoint-60 before checkpoint-120."""
    digits = "".join(sign for sign in name if sign.isdecimal())
    return int(digits or 0), name


def look_there(model: str) -> None:
    """Reject a missing model. This reads no files of the model, which would load torch, and contacts no server."""
    if is_hub_id(model):
        ask_hub(model)
    elif not is_address(model):
        find(model)


def is_adapter(folder: Path) -> bool:
    """Whether the folder holds a LoRA adapter, in peft's form."""
    return (folder / "adapter_config.json").is_file()


def is_hub_id(model: str) -> bool:
    """Whether only the hub can have it: of the form org/name, and not here."""
    path = Path(model).expanduser()
    local = path.is_dir() or path.is_absolute() or path.suffix == ".gguf" or model.startswith((".", "~", BUILTIN))
    return not local and model.count("/") == 1


def ask_hub(model: str) -> str:
    """The revision that the hub has of a model. Offline, it is the revision of the cached copy."""
    from huggingface_hub import HfApi

    name, _, revision = model.partition("@")
    try:
        if not _offline():
            return HfApi().model_info(name, revision=revision or None, timeout=5).sha or revision
        copy = _snapshot(name, revision)
        return revision or copy.name
    # The HTTP library renames its errors between releases, and not all are an OSError.
    except Exception as error:
        raise _not_on_hub(name, error) from error


def _from_hub(model: str, *, weights: bool) -> tuple[Path, str]:
    # A short request comes first: without a network, the download takes most of a minute to fail.
    revision = ask_hub(model)
    name = model.partition("@")[0]
    try:
        folder = _snapshot(name, revision, weights=weights)
        return folder, revision or folder.name
    except Exception as error:  # As above.
        raise _not_on_hub(name, error) from error


def _snapshot(name: str, revision: str, *, weights: bool = True) -> Path:
    """The folder of the model's files, from the cache or, unless offline, from the hub."""
    from huggingface_hub import snapshot_download

    # Pickles are not downloaded, since they would be rejected.
    patterns = ["*.json", "*.model", "*.txt", "*.jinja", "*.py", *(["*.safetensors"] if weights else [])]
    return Path(
        snapshot_download(name, revision=revision or None, allow_patterns=patterns, local_files_only=_offline())
    )


def _offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").lower() in {"1", "true", "yes", "on"}


_HUB_ERRORS = {
    "LocalEntryNotFoundError": "it was not fetched before, and the hub is not asked or not reached",
    "RepositoryNotFoundError": "the hub has none of this name, or it is private",
    "HFValidationError": "no model of the hub can be called so",
}
"""The explanation by the name of huggingface_hub's error."""


def _not_on_hub(name: str, error: Exception) -> InputError:
    why = _HUB_ERRORS.get(type(error).__name__) or one_line(str(error), width=120) or type(error).__name__
    return InputError(
        f"model {name!r} is no local folder and cannot be fetched from the hub ({why}). Check the name and the "
        "network, or give a local folder"
    )
