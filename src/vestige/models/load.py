"""Load a subject from a model's name: a hub id, a local folder, a folder with an adapter, a built-in.

An `Engine` has the queries to a model: replies, scores of texts, next tokens. It works in memory and behind an address.
Code that needs `LoadedModel.model` needs weights, and rejects a served model.
"""

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from vestige.core.errors import InputError, NotFinite
from vestige.core.settings import Settings
from vestige.core.text import Fields, TextByName, closest, one_line
from vestige.models import Reading
from vestige.models.address import ENGINES, is_address
from vestige.models.folders import (
    ModelDigest,
    Stored,
    base_name,
    check_adapter,
    check_finite,
    check_loaded,
    check_stored_finite,
    check_tensors,
    check_tokenizer,
    meta_model,
    model_digest,
    quietly,
    read_config,
    refuse_special_files,
    refusing,
    rows_of,
    stored_tensors,
)
from vestige.models.generation import Reply, Sampling, generate
from vestige.models.keys_values import STATES
from vestige.models.places import ask_hub, find, is_adapter, is_hub_id
from vestige.models.prompts import Encoded, Prompter, use_template
from vestige.models.reading import (
    Asking,
    LetterPrompt,
    LetterScore,
    Prompted,
    TextReading,
    Way,
    read,
    score_letters,
    way_of,
)
from vestige.models.scoring import TOKEN_BUDGET, AnswerScore, logits_budget, score_answers


class Engine(Protocol):
    """The interface that answers. Without `scores` it only replies: any use of log-probabilities raises an error."""

    @property
    def scores(self) -> bool:
        """Return whether given answers can be scored."""

    @property
    def prefills(self) -> bool:
        """Whether it can continue a given beginning of a reply."""

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        end_ids: Sequence[int],
        max_new_tokens: int,
        context: int | None = None,
        sampling: Sampling | None = None,
    ) -> list[Reply]:
        """Replies to `prompts`, in the order given. Greedy without `sampling`."""

    def score_answers(self, encoded: Sequence[Encoded], *, whole: bool = False) -> list[AnswerScore]:
        """Return the scores of the answers, in order. Set `whole` if an answer is most of its row."""

    def read(self, prompted: Sequence[Prompted], asking: Asking) -> list[TextReading]:
        """Return the requested values of each prompt, in order."""

    def score_letters(self, prompts: Sequence[LetterPrompt]) -> list[LetterScore]:
        """Return the next letters after each prompt, in order."""


@runtime_checkable
class PaidEngine(Protocol):
    """An engine with a price for each reply, so that each reply can be kept at once."""

    def generate_each(
        self,
        prompts: Sequence[Sequence[int]],
        take: Callable[[int, Reply | None], None],
        *,
        end_ids: Sequence[int],
        max_new_tokens: int,
        context: int | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        """Like `Engine.generate`. Each prompt's number and reply go to `take`, or None if it gets no reply."""


_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class ModelSettings(Settings):
    """The weights of a model, their number format and device.

    `model` is a hub id (`org/name`, `org/name@revision`), a local Hugging Face folder, a folder with a LoRA adapter, a
    built-in, or the address of a served model (`models.address`).
    """

    model: str
    """Hub id, local folder, folder with an adapter, built-in model, or http://host:port/v1#name."""
    dtype: str = "float32"
    """Number format of the weights: float32, bfloat16 or float16. Models made by Vestige keep their own."""
    device: str = "auto"
    """auto (CUDA if available), cpu, cuda, cuda:1, ..."""
    trust_remote_code: bool = False
    """Run code that comes with the model."""
    chat_template: str = ""
    """Chat template: a name of the model's own, `plain`, or a file. By default the model's own."""
    base: str = ""
    """Base model of an adapter: folder or hub id. By default the one that the adapter names."""
    tokenizer: str = ""
    """Folder or hub id of the tokeniser. By default the model's own."""


def settings_of(model: str, read: Reading) -> ModelSettings:
    """Return the settings for loading a model: in float32, unless `read` names another format."""
    return ModelSettings(model=model, **vars(replace(read, dtype=read.dtype or "float32")))


@dataclass(frozen=True)
class LoadedModel:
    """A model with its tokeniser and its prompt format. `weights` is None behind an address."""

    weights: PreTrainedModel | None
    tokenizer: PreTrainedTokenizerBase
    name: str
    revision: str
    template: str = "own"
    """The chat template: `own`, `own: NAME`, `plain` or `file NAME`."""

    @property
    def model(self) -> PreTrainedModel:
        """The model in memory. Whoever needs it of a model behind an address is refused in one sentence."""
        if self.weights is None:
            raise InputError(
                f"{one_line(self.name)} is behind an address, and this needs its weights or its whole next-token "
                "distribution. Name the model's folder"
            )
        return self.weights

    @property
    def here(self) -> bool:
        """Whether its weights are in memory."""
        return self.weights is not None

    @cached_property
    def prompter(self) -> Prompter:
        """Renders and tokenises questions for this model."""
        return Prompter(self.tokenizer, context_tokens(self.model), rows_of(self.model))

    @property
    def engine(self) -> Engine:
        """The interface that answers, in memory or behind an address."""
        return Local(self)

    @cached_property
    def replies(self) -> dict[tuple[tuple[int, ...], int], Reply]:
        """Greedy replies that are known, by prompt and most tokens, and not decoded again. A copy knows none."""
        return {}

    @cached_property
    def way(self) -> Way:
        """The way of reading the model, determined once."""
        return way_of(self.model)

    @property
    def advice(self) -> str:
        """The next step if the model has changed."""
        return "Restore its files, or make it again with --fresh."

    def provenance(self) -> TextByName:
        """Return its entry in provenance.json."""
        return {"device": str(self.model.device), "chat_template": self.template}

    def digest(self, weights: str = "") -> ModelDigest:
        """Return the digest of the current model: weights (unless theirs is known), config, tokeniser, template."""
        return model_digest(self.model, self.tokenizer, self.prompter.template_digest, weights)


@dataclass(frozen=True)
class Local:
    """The engine of a transformers model in memory, by calls of functions."""

    subject: LoadedModel
    scores: bool = True
    prefills: bool = True

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        end_ids: Sequence[int],
        max_new_tokens: int,
        context: int | None = None,
        sampling: Sampling | None = None,
    ) -> list[Reply]:
        """See `generation.generate`. A greedy reply that is known is not decoded again."""
        model, most = self.subject.model, max_new_tokens
        known = self.subject.replies if sampling is None else {}
        keys = [(tuple(prompt), most) for prompt in prompts]
        left = [prompt for prompt, key in zip(prompts, keys, strict=True) if key not in known]
        decoded = iter(generate(model, left, end_ids=end_ids, max_new_tokens=most, context=context, sampling=sampling))
        return [known[key] if key in known else next(decoded) for key in keys]

    def score_answers(self, encoded: Sequence[Encoded], *, whole: bool = False) -> list[AnswerScore]:
        """See `scoring.score_answers`."""
        budget = TOKEN_BUDGET
        if whole:
            budget = logits_budget(self.subject.model)
        return score_answers(self.subject.model, encoded, token_budget=budget)

    @property
    def read(self) -> Callable[..., list[TextReading]]:
        """See `reading.read`."""
        return partial(read, self.subject.model, layout=self.subject.way)

    @property
    def score_letters(self) -> Callable[..., list[LetterScore]]:
        """See `options.score_letters`."""
        return partial(score_letters, self.subject.model)


def context_tokens(model: PreTrainedModel) -> int:
    """Return the config's context length in tokens."""
    config = model.config.get_text_config()
    for name in ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len"):
        number = config.to_dict().get(name)
        if isinstance(number, int) and number > 0:
            return number
    if model.config.model_type in STATES:
        return sys.maxsize
    raise InputError(
        f"the config of {model.config.model_type!r} does not state the longest input. Add max_position_embeddings"
    )


def pick_device(name: str) -> torch.device:
    """Return the device. `auto` is CUDA if available, otherwise the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device).item()  # Tensors on `meta` have no values.
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(
            f"device {one_line(name)!r} cannot be used: {one_line(str(error).splitlines()[0], width=120)}"
        ) from error
    return device


def pick_dtype(name: str) -> torch.dtype:
    """The number format of that name."""
    if name not in _DTYPES:
        raise InputError(f"unknown dtype {name!r}. {closest(name, list(_DTYPES))}")
    return _DTYPES[name]


class ModelFolders(NamedTuple):
    """The folders of a model's weights and adapter, and the resolved revision of a hub model."""

    weights: Path
    adapter: Path | None
    revision: str


def folders_of(model: str, base: str = "") -> ModelFolders:
    """The folders of a model. An adapter is on `base`, or otherwise on the model that it names."""
    folder, revision = find(model)
    if not is_adapter(folder):
        return ModelFolders(folder, None, revision)
    base_folder, revision = _whole_base(folder, base)
    return ModelFolders(base_folder, folder, revision)


def _whole_base(adapter: Path, base: str) -> tuple[Path, str]:
    """Return the folder and the revision of an adapter's base. An adapter must not be its own base."""
    name = base or _named_base(adapter)
    try:
        folder, revision = find(name)
    except InputError as error:
        if base:
            raise
        raise _base_missing(adapter, error) from error
    if is_adapter(folder):
        raise InputError(
            f"{one_line(name)}, the base model of the adapter {adapter}, is an adapter itself. Merge the adapters, or "
            "name a whole model with --base"
        )
    return folder, revision


def _named_base(adapter: Path) -> str:
    try:
        return base_name(adapter)
    except InputError as error:
        raise _base_missing(adapter, error) from error


def _base_missing(adapter: Path, error: InputError) -> InputError:
    return InputError(f"{adapter} is an adapter, and its base model is not here ({error}). Name it with --base")


def load(settings: ModelSettings) -> LoadedModel:
    """The model and its tokeniser, in evaluation mode.

    Rejects a missing model, and a folder whose files do not match its config, before weights are read.
    """
    if is_address(settings.model):
        module, _, opens = ENGINES[settings.model.partition("://")[0]].partition(":")
        served: LoadedModel = getattr(import_module(module), opens)(settings)
        return served
    device = pick_device(settings.device)
    source = folders_of(settings.model, settings.base)
    checked = _checked(settings, source)
    with quietly(), refusing(f"cannot load {source.weights}"):
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source.weights,
            dtype=pick_dtype(settings.dtype),
            trust_remote_code=settings.trust_remote_code,
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            # Otherwise transformers reads the config again, with its choice of kernels and files.
            config=checked.model.config,
        )
    model: PreTrainedModel = loaded[0]
    check_loaded(source.weights, loaded[1], {})
    if source.adapter is not None:
        model = _with_adapter(model, source.adapter)
    # The check runs on the device, which may be a GPU.
    nn.Module.to(model, device)
    check_finite(model, source.adapter or source.weights)
    return replace(checked, weights=model.eval())


def outline(settings: ModelSettings, *, whole: bool = False, finite: bool = True) -> LoadedModel:
    """The model without its weights: its shape on the meta device, and its tokeniser.

    What `load` refuses is refused. The weights need not be there, unless with `whole`. Existing weights are read once
    to check that they are finite, unless `finite` is off.
    """
    pick_device(settings.device)
    source = folders_of(settings.model, settings.base)
    loaded = _checked(settings, source, whole=whole)
    adapter = [] if source.adapter is None else [(source.adapter, "adapter_model.safetensors")]
    for folder, file in ((source.weights, "model.safetensors"), *adapter):
        if finite and any(folder.glob("*.safetensors")):
            check_stored_finite(stored_tensors(folder, file), folder)
    return loaded


def _checked(settings: ModelSettings, source: ModelFolders, *, whole: bool = True) -> LoadedModel:
    """The model on the meta device with its tokeniser, after all checks of its folders."""
    trust, folder, adapter = settings.trust_remote_code, source.weights, source.adapter
    for place in filter(None, (folder, adapter)):
        refuse_special_files(place)
    config = read_config(folder, trust_remote_code=trust)
    there = whole or any(folder.glob("*.safetensors"))
    stored = stored_tensors(folder) if there else {}
    _refuse_wrapped(stored, folder)
    shape = meta_model(config, folder, len(stored), dtype=pick_dtype(settings.dtype), trust_remote_code=trust)
    if there:
        check_tensors(folder, shape, config, stored)
    if adapter is not None and (whole or any(adapter.glob("*.safetensors"))):
        check_adapter(adapter, shape)
    folder = _tokenizer_folder(source, settings)
    tokenizer, template = read_tokenizer(folder, settings)
    check_tokenizer(tokenizer, shape, folder)
    loaded = LoadedModel(shape, tokenizer, settings.model, source.revision, template)
    loaded.prompter.check()
    return loaded


def _tokenizer_folder(source: ModelFolders, settings: ModelSettings) -> Path:
    """Return the tokeniser's folder: the settings' one, otherwise the adapter's folder, otherwise the weights'."""
    if settings.tokenizer:
        return find(settings.tokenizer, weights=False)[0]
    # An adapter's folder may contain a tokeniser with tokens that it was trained on.
    if source.adapter is not None and (source.adapter / "tokenizer_config.json").is_file():
        return source.adapter
    return source.weights


_WRAPPED = ("_orig_mod.", "_fsdp_wrapped_module.", "module.")
"""Begins the names of a wrapped model's tensors: torch.compile, FSDP, DistributedDataParallel."""


def _refuse_wrapped(stored: Mapping[str, Stored], folder: Path) -> None:
    for prefix in _WRAPPED:
        if stored and all(name.startswith(prefix) for name in stored):
            raise InputError(
                f"{folder}: the name of every tensor begins with {prefix!r}, because a wrapper of the model was saved. "
                "Save the model inside it (model._orig_mod or model.module)"
            )


_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model", "tokenizer_config.json")


def read_tokenizer(folder: Path, settings: ModelSettings) -> tuple[PreTrainedTokenizerBase, str]:
    """The tokeniser as its file has it, with the chat template that is to be used, and that template's name.

    If a config names GPT2Tokenizer or Qwen2Tokenizer, transformers 5 builds those anew and drops the file's rule on
    splitting digits (huggingface/transformers issue 45920), so the file is read unchanged.
    """
    refuse_special_files(folder)
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise InputError(f"{folder} has no tokeniser. Name a folder or hub id with --tokenizer")
    kind = PreTrainedTokenizerFast if (folder / "tokenizer.json").is_file() else AutoTokenizer
    with refusing(f"cannot load the tokeniser of {folder}"):
        tokenizer: PreTrainedTokenizerBase = kind.from_pretrained(
            folder, trust_remote_code=settings.trust_remote_code, local_files_only=True
        )
    if not tokenizer.is_fast:
        raise InputError(f"the tokeniser of {folder} is a slow one without offsets. Vestige needs a fast one")
    return tokenizer, use_template(tokenizer, settings.chat_template)


def asked_through(loaded: LoadedModel, other: ModelSettings) -> LoadedModel:
    """Return the model with the tokeniser and chat template of another model, whose vocabulary it has.

    Its prompts then do not depend on its own files.
    """
    folder = _tokenizer_folder(folders_of(other.model, other.base), other)
    tokenizer, template = read_tokenizer(folder, other)
    return LoadedModel(loaded.weights, tokenizer, loaded.name, loaded.revision, template)


def _with_adapter(model: PreTrainedModel, adapter: Path) -> PreTrainedModel:
    from peft import PeftModel

    with warnings.catch_warnings(), refusing(f"cannot load the adapter {adapter}"):
        # peft reads an attribute that transformers has renamed, and warns about a moved base.
        warnings.filterwarnings("ignore", message="The PEFT config's `base_model_name_or_path`")
        warnings.filterwarnings("ignore", message=r"`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        # use_safetensors: peft would silently fall back to a pickle.
        with_it = PeftModel.from_pretrained(model, adapter, use_safetensors=True)
        # safe_merge rounds like Vestige's own merge and rejects non-finite values.
        merged: PreTrainedModel = with_it.merge_and_unload(safe_merge=True)
    merged.requires_grad_(True)  # merging leaves the base frozen
    return merged


def places_of(model: str, base: str = "", tokenizer: str = "") -> list[Path]:
    """Return the folders of a model: its own, its adapter's base, another tokeniser's."""
    if is_address(model):
        return []
    source = folders_of(model, base)
    places = [source.weights]
    if source.adapter is not None:
        places = [source.adapter, source.weights]
    if tokenizer:
        places.append(find(tokenizer, weights=False)[0])
    return places


def look_for(settings: ModelSettings) -> None:
    """Raise an error if `load` would not find the model or would reject it.

    Weights are read once to see that they are finite, and none are fetched or converted. For a hub id, only its
    existence on the hub is checked. A server reports its abilities.
    """
    if is_address(settings.model):
        load(settings)
        return
    if is_hub_id(settings.model):
        ask_hub(settings.model)
        return
    folder = find(settings.model)[0]
    if is_adapter(folder):
        base = settings.base or _named_base(folder)
        if is_hub_id(base):
            stored_tensors(folder, "adapter_model.safetensors")
            ask_hub(base)
            return
    outline(settings, whole=True)


@contextmanager
def finite_logits(subject: LoadedModel, way_out: Callable[[], str] = lambda: "") -> Iterator[None]:
    """A context in which the model's first pass with NaN or infinite logits raises NotFinite.

    Minus infinity marks an impossible token and is allowed. `way_out` returns the advice, if it is not to train the
    model again. The numbers of servers are checked when they are read.
    """
    if not subject.here:
        yield
        return

    def check(model: nn.Module, inputs: tuple[Any, ...], options: Fields, out: Any) -> None:
        logits = getattr(out, "logits", None)
        if logits is None or not logits.numel() or logits.detach().amax().isfinite():
            return
        ids = options.get("input_ids", inputs[0] if inputs else None)
        bad = ~logits.detach().flatten(1).amax(-1).isfinite()
        handle.remove()
        raise _refusal(subject, None if ids is None else ids[int(bad.nonzero()[0])], way_out())

    handle = subject.model.register_forward_hook(check, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _refusal(subject: LoadedModel, ids: Int[Tensor, " T"] | None, way_out: str) -> NotFinite:
    decode = partial(subject.tokenizer.decode, [] if ids is None else ids.tolist())
    # A search reads the text before every question alone, which may be only special tokens.
    text = decode(skip_special_tokens=True) or decode()
    at = ""
    if text:
        at = f" at {one_line(' '.join(str(text).split()), width=100)!r}"
    narrow = subject.model.dtype != torch.float32
    way_out = way_out or (
        "Load it in float32 (--dtype)" if narrow else "A training that diverged leaves such a model: make it again"
    )
    return NotFinite(
        f"the model {one_line(subject.name, width=120)} gives logits that are NaN or infinite{at}. {way_out}"
    )
