"""Checks of a model's folder before its weights are read: config, names and shapes of tensors.

A folder may come from a stranger. The config's tensors are compared with those in the safetensors files, by their
headers and by transformers' own loading rules. Nothing is left to be filled with random numbers.

The digest of a model: the key of every result that depends on it.
"""

import contextlib
import copy
import errno
import hashlib
import inspect
import json
import logging
import re
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES
from transformers.utils import logging as hf_logging

from vestige.core.errors import InputError, MachineError, VestigeError, out_of_memory
from vestige.core.files import open_input, read_json
from vestige.core.ids import content_id
from vestige.core.text import Fields, Record, first_of, one_line

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

    def refuse_other(self, expected: "ModelDigest | str", role: str, advice: str) -> None:
        """Raise InputError, naming the parts that differ, unless this is the digest that was `held` of `what`.

        A digest stored only as its `id` has unknown parts.
        """
        if self.id == (expected if isinstance(expected, str) else expected.id):
            return
        known = {} if isinstance(expected, str) else asdict(expected)
        parts = ", ".join(_NAMES[part] for part, value in known.items() if getattr(self, part) != value)
        where = f". It differs in {parts}" if parts else ""
        raise InputError(f"{role} is not the model that it was{where}. {advice}")


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
        # The memory is hashed directly: a copy would take as long as the digest.
        total.update(plain.view(torch.uint8).numpy() if plain.numel() else b"")
    return total.hexdigest()


def model_digest(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, template: str, weights: str = ""
) -> ModelDigest:
    """Return the digest of a model with the tokeniser and the template of the digest `template`.

    `weights` is the known digest of its weights: computing it takes seconds for each 10^9 weights.
    """
    generation = getattr(model, "generation_config", None)
    return ModelDigest(
        weights=weights or weights_digest(model),
        config=content_id([_plain(model.config.to_dict()), _code_of(model)], length=32),
        generation=content_id(_plain(generation.to_dict() if generation is not None else {}), length=32),
        tokenizer=tokenizer_digest(tokenizer),
        template=template,
    )


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """Content id of what turns text into tokens and back: the tokeniser's file, special tokens, how it decodes."""
    stored = json.loads(tokenizer.backend_tokenizer.to_str())
    # The last caller set these, and nothing relies on them.
    stored.pop("truncation"), stored.pop("padding")
    special = {name: str(token) for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
    cleans = bool(getattr(tokenizer, "clean_up_tokenization_spaces", False))
    return content_id([stored, special, sorted(tokenizer.all_special_tokens), cleans], length=32)


def _plain(value: Any) -> Any:
    """A config without its bookkeeping and without fields that are null, which a later version may leave out or add."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items() if k not in _BOOKKEEPING and v is not None}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return json.loads(json.dumps(value, default=str))


def _code_of(model: PreTrainedModel) -> str:
    """Return the digest of the code that comes with a model. Empty if it is transformers' or Vestige's own."""
    if not type(model).__module__.startswith("transformers_modules"):
        return ""
    return hashlib.sha256(inspect.getsource(inspect.getmodule(type(model)) or type(model)).encode()).hexdigest()


_FLOATS = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
_OTHERS = {"BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "I32": torch.int32}
# The limit for numbers of layers, heads and experts. The largest models have some hundreds.
_MOST_COUNTED = 100_000
_COUNTS = re.compile(r"(layer|expert|head|block|group|stage)s?$")
# The number of modules that a config may have beyond the tensors in its files, and elements of its buffers.
_SPARE_MODULES = 20_000
_MOST_BUFFERED = 2**30
_MOST_BYTES = dict.fromkeys((".json", ".jinja", ".txt", ".model"), 2**27)
_MACHINE = {errno.ENOMEM, errno.ENOSPC, errno.EIO, errno.EMFILE, errno.ENFILE, errno.EDQUOT}


@dataclass(frozen=True)
class Stored:
    """A tensor as the header of its file has it."""

    file: Path
    shape: tuple[int, ...]
    dtype: str

    def empty(self) -> torch.Tensor:
        """A tensor of that shape and type that holds nothing."""
        # An unknown type gets no tensor: it is rejected by name before anything is read.
        return torch.empty(self.shape, dtype=(_FLOATS | _OTHERS).get(self.dtype, torch.int64), device="meta")


@contextlib.contextmanager
def refusing(role: str) -> Iterator[None]:
    """Turn whatever a library raises on a bad folder into an InputError that begins with `what`.

    Only calls of libraries belong inside. Raises MachineError where memory or the disk gave out.
    """
    try:
        yield
    except VestigeError:
        raise
    except Exception as error:
        text = one_line(" ".join(str(error).split()) or type(error).__name__, width=300)
        if out_of_memory(error) or (isinstance(error, OSError) and error.errno in _MACHINE):
            raise MachineError(f"{role}: {text}; free some and run the same command again") from error
        raise InputError(f"{role}: {text.rstrip('.')}. Fetch or save it again") from error


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Hide transformers' bars and its report on missing or unexpected tensors, which are rejected anyway."""
    loggers = [logging.getLogger(f"transformers.{name}") for name in ("modeling_utils", "utils.loading_report")]
    for logger in loggers:
        logger.addFilter(_no_report)
    bars = hf_logging.is_progress_bar_enabled()
    if bars:
        hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        if bars:
            with warnings.catch_warnings():
                # An environment variable may have disabled the hub's progress bars, and they stay disabled.
                warnings.simplefilter("ignore")
                hf_logging.enable_progress_bar()
        for logger in loggers:
            logger.removeFilter(_no_report)


def _no_report(record: logging.LogRecord) -> bool:
    return "LOAD REPORT" not in record.getMessage()


def refuse_special_files(folder: Path) -> None:
    """Reject a model folder that contains a device, a pipe, a broken link or a text of more than 128 MiB.

    transformers would hang on a pipe, read a device without end, and take a broken link for an absent file. A text
    takes twice its size in memory, and tokenisers of the hub have up to about 35 MB.
    """
    for path in sorted([*folder.iterdir(), *folder.glob("additional_chat_templates/*")]):
        if path.is_dir():
            continue
        try:
            open_input(path, most=_MOST_BYTES.get(path.suffix)).close()
        except OSError as error:
            raise InputError(
                f"{one_line(str(path), width=300)} cannot be read ({error.strerror}). Fetch the model again."
            ) from error


def stored_tensors(folder: Path, file: str = "model.safetensors") -> dict[str, Stored]:
    """The tensors of the files that a library reads from a folder, by name. A damaged or lacking file is refused."""
    whole, index = folder / file, folder / f"{file}.index.json"
    if whole.is_file():
        return _header(whole)
    if not index.is_file():
        pickled = next((path.name for path in sorted(folder.iterdir()) if path.suffix in (".bin", ".pt", ".pth")), None)
        if pickled is None:
            but = ""
        else:
            but = f" but {pickled}, a pickle, which could run code and is never read"
        raise InputError(
            f"cannot load {folder}: it holds no weights as .safetensors under the names that transformers reads{but}. "
            "Fetch or save it again as safetensors"
        )
    stored = read_json(index)
    places = stored.get("weight_map") if isinstance(stored, dict) else None
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise InputError(f"{index} names no file for each tensor (weight_map). Fetch the model again")
    tensors: dict[str, Stored] = {}
    for name in sorted(set(places.values())):
        if Path(name).name != name or not (folder / name).is_file():
            raise InputError(f"{index} names {one_line(name, width=80)!r}, which is not in the folder. Fetch it again")
        tensors |= _header(folder / name)
    if lost := sorted(places.keys() - tensors.keys()):
        raise InputError(f"{index} names tensors that its files do not hold: {first_of(lost)}. Fetch it again")
    return tensors


def _header(path: Path) -> dict[str, Stored]:
    try:
        with safe_open(path, "pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {n: Stored(path, tuple(s.get_shape()), s.get_dtype()) for n, s in slices.items()}
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"cannot load {path.parent}: {path.name} is damaged ({one_line(str(error), width=200)}). Fetch or make it "
            "again"
        ) from error


def read_config(folder: Path, *, trust_remote_code: bool) -> PreTrainedConfig:
    """Return the config of a causal language model. Any other value is rejected."""
    path = folder / "config.json"
    if not path.is_file():
        raise InputError(f"{folder} holds no config.json, so it is not a Hugging Face model folder. Give one")
    raw = read_json(path)
    if not isinstance(raw, dict):
        raise InputError(f"{path} is not a table of settings. Fetch the model again")
    _check_counts(raw, path)
    if quantised := raw.get("quantization_config"):
        method = ""
        if isinstance(quantised, dict):
            method = quantised.get("quant_method", "")
        raise InputError(
            f"{path}: the weights are quantised ({one_line(str(method), width=40) or 'quantization_config'}), and "
            "Vestige reads no such folder. Serve the model, for instance with vLLM, and name its address "
            "(http://host:8000/v1#name), or save it in float32, bfloat16 or float16"
        )
    with refusing(f"cannot read {path}"):
        config: PreTrainedConfig = AutoConfig.from_pretrained(
            folder, trust_remote_code=trust_remote_code, local_files_only=True
        )
        drop_choices(config)
        values = config.get_text_config(decoder=True).to_dict()
    if config.is_encoder_decoder or values.get("is_causal") is False or values.get("use_bidirectional_attention"):
        raise InputError(f"{path} describes no causal decoder ({config.model_type}). Give a causal language model")
    if config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not values.get("is_decoder", values.get("causal")):
        raise InputError(
            f"{path} describes an encoder ({config.model_type}, is_decoder false), which reads later tokens too. "
            "Choose a causal decoder"
        )
    return config


_CHOICES = re.compile(
    r"^_?(attn|experts|kernel|decoder_attn)_implementation(_internal)?$|^use_kernels$|^kernel_config$"
    r"|^(fusion|distributed)_config$|^transformers_weights$|^return_dict$|^_?output_(attentions|hidden_states)$"
)
"""Fields of a config that choose the code of the model, the file of its weights, or the form in which it answers.

The code may be a repository on the hub. The checks and the distances read the usual file.
"""


def drop_choices(config: PreTrainedConfig) -> None:
    """Remove from a config, and from nested ones, every choice that is for the user alone."""
    levels: list[Any] = [config]
    # Other values would be saved with the model, and change its digest.
    defaults = vars(PreTrainedConfig())
    for level in levels:
        if isinstance(level, dict):
            fields = level
        else:
            fields = vars(level)
        for name in [name for name in fields if _CHOICES.search(str(name))]:
            fields[name] = defaults.get(name)
        levels += [value for value in fields.values() if isinstance(value, dict | PreTrainedConfig)]


def _check_counts(values: Any, path: Path, *, depth: int = 0) -> None:
    """Reject impossible numbers of layers and similar parts before any code counts up to them."""
    if depth > 8:
        raise InputError(f"{path} holds tables within tables, more than 8 deep. Fetch the model again")
    for key, value in values.items():
        if isinstance(value, dict):
            _check_counts(value, path, depth=depth + 1)
        elif isinstance(value, int) and value > _MOST_COUNTED and _COUNTS.search(str(key)):
            raise InputError(f"{path}: {one_line(str(key))} = {value} is more than any model has. Correct it")


def meta_model(config: PreTrainedConfig, folder: Path, n_tensors: int, **options: Any) -> PreTrainedModel:
    """The model that a config describes, on the meta device. `n_tensors` that the files hold bound its size."""
    # Models that other threads build meanwhile do not count.
    thread, built, most = threading.get_ident(), 0, _SPARE_MODULES + 4 * n_tensors

    def count(*_: object) -> None:
        nonlocal built
        built += threading.get_ident() == thread
        if built > most:
            raise InputError(
                f"{folder / 'config.json'} asks for a model of more than {most} parts, and the files hold "
                f"{n_tensors} tensors. Fetch the model again"
            )

    hook = register_module_module_registration_hook(count)
    try:
        with refusing(f"cannot make the model of {folder / 'config.json'}"), torch.device("meta"):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(config, **options)
    finally:
        hook.remove()
    if (buffered := sum(b.numel() for b in model.buffers())) > _MOST_BUFFERED:
        raise InputError(
            f"{folder / 'config.json'} asks for tables of {buffered} numbers beside its weights. Fetch the model again"
        )
    return model


def check_tensors(folder: Path, model: PreTrainedModel, config: PreTrainedConfig, stored: Mapping[str, Stored]) -> None:
    """Reject a folder unless its tensors match the model's, by name and shape, in a floating-point format.

    The meta tensors go through transformers' own loader, so that its renames, ties and optional tensors count here too.
    """
    # A checkpoint's names may omit the prefix of the model's body.
    prefix, names = f"{model.base_model_prefix}.", [name for name, _ in model.named_parameters()]
    fits: set[str] = set()
    for name in names:
        fits |= {name, prefix + name, name.removeprefix(prefix)}
    odd = [n for n, s in stored.items() if s.dtype not in _FLOATS and (n in fits or ".experts." in n)]
    if odd:
        raise InputError(
            f"{stored[odd[0]].file} holds {len(odd)} weights as {stored[odd[0]].dtype}, which are quantised and cannot "
            f"be read without their scales ({first_of(odd)}). Serve the model and name its address "
            "(http://host:8000/v1#name), or save it in float32, bfloat16 or float16"
        )
    with quietly(), refusing(f"cannot load {folder}"):
        loaded: Any = type(model).from_pretrained(
            None,
            config=config,
            state_dict={name: tensor.empty() for name, tensor in stored.items()},
            device_map={"": "meta"},
            dtype=model.dtype,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    check_loaded(folder, loaded[1], stored)


def check_loaded(folder: Path, info: Record, stored: Mapping[str, Stored]) -> None:
    """Reject missing, unexpected or mismatched tensors in transformers' loading info."""
    if missing := info["missing_keys"]:
        raise InputError(
            f"{folder} lacks {len(missing)} of the tensors that its config.json asks for ({first_of(sorted(missing))}),"
            " and they would be filled with random numbers. Fetch or save the model again"
        )
    if shapes := {name: (tuple(there), tuple(expected)) for name, there, expected in info["mismatched_keys"]}:
        name = min(shapes)
        there, expected = shapes[name]
        raise InputError(
            f"{folder} holds {len(shapes)} tensors with shapes that contradict its config.json ({name}: {there} "
            f"instead of {expected}). Fetch or save the model again"
        )
    if unexpected := info["unexpected_keys"]:
        files = {stored[name].file.name for name in unexpected if name in stored}
        raise InputError(
            f"{folder} holds {len(unexpected)} tensors that its config.json has no place for "
            f"({first_of(sorted(unexpected))}{' in ' if files else ''}{first_of(sorted(files))}), and they would be "
            "left out. Fetch or save the model again"
        )


def adapter_config(adapter: Path) -> Fields:
    """The adapter's config. A config that names modules to import is rejected."""
    path = adapter / "adapter_config.json"
    config = read_json(path)
    if not isinstance(config, dict):
        raise InputError(f"{path} is not a table of settings. Fetch or make the adapter again")
    if config.get("megatron_config"):
        raise InputError(f"{path}: megatron_config names a module to import. Nothing that a model brings is run")
    _check_counts(config, path)
    return config


def base_name(adapter: Path) -> str:
    """The base model that an adapter names, with its revision if it is a hub id's."""
    config = adapter_config(adapter)
    base, revision = config.get("base_model_name_or_path"), config.get("revision")
    if not isinstance(base, str) or not base:
        raise InputError(f"{adapter / 'adapter_config.json'} names no base model. Name it with --base")
    # No hub name contains a null byte, and a path with one cannot be looked up.
    local = "\0" in base or Path(base).expanduser().exists()
    if revision and not local:
        return f"{base}@{revision}"
    return base


def check_adapter(adapter: Path, base: PreTrainedModel) -> None:
    """Reject an adapter whose tensors differ in name or shape from those that its config requires on this base."""
    from peft import PeftConfig, get_peft_model, get_peft_model_state_dict

    path = adapter / "adapter_model.safetensors"
    stored = stored_tensors(adapter, path.name)
    if odd := [name for name, tensor in stored.items() if tensor.dtype not in _FLOATS]:
        raise InputError(
            f"{path} holds {len(odd)} tensors as {stored[odd[0]].dtype} ({first_of(odd)}): a quantised adapter cannot "
            "be merged. Save it in float32, bfloat16 or float16"
        )
    of_base = {f"base_model.model.{name}": tuple(t.shape) for name, t in base.state_dict().items()}
    with refusing(f"cannot load the adapter {adapter}"), torch.device("meta"), warnings.catch_warnings():
        # peft reads an attribute that transformers has renamed.
        warnings.filterwarnings("ignore", message=r"`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        config = PeftConfig.from_pretrained(str(adapter))
        wrapped = get_peft_model(copy.deepcopy(base), config)
        state = get_peft_model_state_dict(wrapped, save_embedding_layers=False)
        of_adapter = {name: tuple(tensor.shape) for name, tensor in state.items()}
    missing, unexpected = of_adapter.keys() - stored.keys(), stored.keys() - of_adapter.keys() - of_base.keys()
    if missing or unexpected:
        lacks = f"lacks {len(missing)} of the {len(of_adapter)} tensors that it needs ({first_of(sorted(missing))})"
        has = f"holds {len(unexpected)} tensors for which the model has no place ({first_of(sorted(unexpected))})"
        raise InputError(
            f"{path} does not fit its base model: it {lacks if missing else has}. Give the model that the adapter was "
            "made for, or fetch the adapter again"
        )
    shapes = {**of_base, **of_adapter}
    if wrong := [name for name, tensor in stored.items() if tensor.shape != shapes[name]]:
        name = min(wrong)
        raise InputError(
            f"{path} does not fit its base model: {len(wrong)} tensors have other shapes ({one_line(name)}: "
            f"{stored[name].shape} instead of {shapes[name]}). Give the model that the adapter was made for"
        )


def rows_of(model: PreTrainedModel) -> int:
    """Return the number of tokens with an embedding."""
    rows = model.config.get_text_config().to_dict().get("vocab_size")
    if isinstance(rows, int):
        return rows
    return sys.maxsize


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel, folder: Path) -> None:
    """Reject a tokeniser with tokens that the model has no embedding for.

    Special tokens may lack one, such as an image token in a text-only model: the prompter rejects texts that contain
    it.
    """
    special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    rows = rows_of(model)
    beyond = {token: i for token, i in tokenizer.get_vocab().items() if i >= rows and i not in special}
    if beyond:
        raise InputError(
            f"the tokeniser of {folder} has {len(beyond)} tokens that the model has no embedding for "
            f"({first_of(sorted(map(repr, beyond)))}. The embedding has {rows} rows). Take the tokeniser that the "
            "model was trained with"
        )


def check_finite(model: nn.Module, folder: Path) -> None:
    """Reject weights with NaN or infinite values. `folder` is their source."""
    _refuse_not_finite([*model.named_parameters(), *model.named_buffers()], folder)


def check_stored_finite(stored: Mapping[str, Stored], folder: Path) -> None:
    """Reject such weights in files, which are read one at a time."""
    for path in sorted({tensor.file for tensor in stored.values()}):
        with refusing(f"cannot load {folder}"), safe_open(path, "pt") as file:
            _refuse_not_finite(((n, file.get_tensor(n)) for n in file.keys() if stored[n].dtype in _FLOATS), folder)  # noqa: SIM118


def _refuse_not_finite(tensors: Iterable[tuple[str, torch.Tensor]], folder: Path) -> None:
    bad = []
    for name, tensor in tensors:
        if tensor.is_floating_point() and tensor.numel():
            # If one value is NaN, both ends are NaN. The tensor is not copied.
            low, high = tensor.detach().aminmax()
            if not (low.isfinite() and high.isfinite()):
                bad.append(name)
    if bad:
        raise InputError(
            f"{folder} holds {len(bad)} tensors with NaN or infinite values ({first_of(bad)}). A training that "
            "diverged leaves such weights: make the model again with a lower learning rate"
        )
