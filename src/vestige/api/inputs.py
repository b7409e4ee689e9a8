"""Values that the public functions accept as a model and as data, and what becomes of a value in memory.

A model or rows in memory are written to the cache once, under the digest of their content, and are paths from then on.
"""

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import wraps
from inspect import Parameter
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeAlias, TypedDict, TypeVar, Union, get_args, overload

import vestige
from vestige.core.errors import InputError
from vestige.core.text import Record, closest, one_line
from vestige.models import Reading

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus, SourceSettings

P = ParamSpec("P")
R = TypeVar("R")

PathLikeStr: TypeAlias = str | PathLike[str]
"""A path or a name."""


class HoldsModel(Protocol):
    """A transformers pipeline, or a loaded model of Vestige: it has a model and its tokeniser."""

    @property
    def model(self) -> Any:
        """The model."""

    @property
    def tokenizer(self) -> Any:
        """The tokeniser."""


class FrameLike(Protocol):
    """A pandas DataFrame."""

    @property
    def columns(self) -> Any:
        """The names of the columns."""

    def to_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The rows."""


class ListLike(Protocol):
    """A `datasets.Dataset`."""

    def to_list(self) -> list[Any]:
        """The rows."""


ModelLike: TypeAlias = str | PathLike[str] | tuple[Any, Any] | HoldsModel
"""A folder, a hub id, an address, a result of these functions, or `(model, tokenizer)` of transformers in memory."""
DataLike: TypeAlias = Union[str, PathLike[str], Sequence[Record], FrameLike, ListLike, "vestige.SourceSettings"]
"""A path, a hub id, selectors, rows in memory, or `SourceSettings` where columns have to be named."""

FROM_COMMAND: ContextVar[bool] = ContextVar("FROM_COMMAND", default=False)
"""Whether the caller is the command line, whose users know options and not arguments."""
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]*)")


class HowRead(TypedDict, total=False):
    """The arguments by which functions read models.

    Args:
        device: auto (CUDA if available), cpu, cuda, cuda:1, ...
        dtype: Number format of the weights: float32, bfloat16 or float16. Models made by Vestige keep their own.
        trust_remote_code: Run code that comes with the model.
        chat_template: Chat template: a name of the model's own, `plain`, or a file. By default the model's own.
        tokenizer: Folder or hub id of the tokeniser. By default the model's own.
    """

    device: str
    dtype: str | None
    trust_remote_code: bool
    chat_template: str
    tokenizer: str


class HowReadOrAdapted(HowRead, total=False):
    """The same for a model that may be an adapter.

    Args:
        base: Base model of an adapter: folder or hub id. By default the one that the adapter names.
    """

    base: str


def reading(arguments: Record) -> Reading:
    """Return the settings for reading models from the arguments of a call."""
    return Reading(**{name: arguments[name] for name in vars(Reading()) if arguments.get(name) is not None})


def verb(function: Callable[P, R]) -> Callable[P, R]:
    """A public function: arguments that it does not have are refused with a hint, and errors name arguments.

    Its signature and docstring have each argument of `**read`.
    """
    signature = inspect.signature(function)
    *named, last = signature.parameters.values()
    text = function.__doc__ or ""
    if last.kind is Parameter.VAR_KEYWORD:
        (options,) = get_args(last.annotation)
        for name, kind in options.__annotations__.items():
            named.append(Parameter(name, Parameter.KEYWORD_ONLY, default=getattr(Reading, name), annotation=kind))
        signature = signature.replace(parameters=named)
        kinds = (HowRead, options) if options is not HowRead else (HowRead,)
        lines = "".join((kind.__doc__ or "").partition("Args:\n")[2].rstrip(" ") for kind in kinds)
        text = re.sub(r" *\*\*read: .*\n", lambda _: lines, text)

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in signature.parameters:
                hint = closest(name, list(signature.parameters))
                raise InputError(f"{function.__name__} has no argument {one_line(name)!r}. {hint}")
        try:
            return function(*args, **kwargs)
        except InputError as error:
            if not FROM_COMMAND.get():
                words = [in_python(part) if isinstance(part, str) else part for part in error.args]
                error.args = tuple(words)
            raise

    called.__doc__ = text
    called.__dict__["__signature__"] = signature
    return called


def in_python(text: str) -> str:
    """Replace options in a message by Python arguments: `--output-dir` becomes `output_dir`."""
    return _OPTION.sub(lambda option: option[1].replace("-", "_"), text)


@overload
def path_of(model: ModelLike) -> str: ...
@overload
def path_of(model: None) -> None: ...
def path_of(model: ModelLike | None) -> str | None:
    """The name of a model. One in memory is written to the cache once, under its digest."""
    if model is None or isinstance(model, str | PathLike):
        return text_of(model)
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from vestige.core.files import new_folder
    from vestige.models.cache import cache_folder
    from vestige.models.folders import quietly
    from vestige.models.load import LoadedModel

    pair: Any = model
    if not isinstance(model, tuple):
        # A pipeline and a loaded model contain both. A bare model does not define its tokeniser.
        pair = getattr(model, "model", None), getattr(model, "tokenizer", None)
    network, tokenizer = (*pair, None, None)[:2]
    if len(pair) != 2 or not isinstance(network, PreTrainedModel) or not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise InputError(
            f"a model is {type(model).__name__}. Give its folder, its id on the hub, or a transformers model in memory "
            "with its tokenizer: (model, tokenizer). For a PEFT model, give merge_and_unload()"
        )
    # The folder is named by digest: the same model is written once, and its stored results are found again.
    folder = cache_folder() / "in-memory" / LoadedModel(network, tokenizer, "", "").digest().id[:16]
    if not folder.exists():
        with quietly(), new_folder(folder) as written:
            network.save_pretrained(written)
            tokenizer.save_pretrained(written)
    return str(folder)


def paths_of(models: ModelLike | Sequence[ModelLike] | None) -> list[str]:
    """Return the paths of one model or a list. A text is one model, and a pair is a model with its tokeniser."""
    if models is None or models == ():
        return []
    if isinstance(models, list):
        return [path_of(model) for model in models]
    one: Any = models
    return [path_of(one)]


def text_of(path: PathLikeStr | None) -> str | None:
    """A path as text."""
    if path is None:
        return None
    return fspath(path)


@overload
def selector(items: None) -> None: ...
@overload
def selector(items: DataLike) -> str: ...
def selector(items: DataLike | None) -> str | None:
    """Return the selectors or the file that name items. Rows in memory are written to a file."""
    if items is None:
        return None
    return _file(items)


def source_of(data: DataLike) -> "SourceSettings":
    """The settings by which the data are read."""
    from vestige.data.corpus import SourceSettings

    if isinstance(data, SourceSettings):
        return data
    return SourceSettings(data=_file(data))


def corpus_of(data: DataLike) -> "Corpus":
    """The items of the data."""
    from vestige.data.corpus import open_corpus

    return open_corpus(source_of(data))


def _file(data: Any) -> str:
    """Return a path or name unchanged. Write rows in memory to a cached file named by their content."""
    if isinstance(data, str | PathLike):
        return fspath(data)
    from vestige.core.files import write_text
    from vestige.core.ids import content_id
    from vestige.models.cache import cache_folder

    rows = data
    if hasattr(rows, "to_dict") and hasattr(rows, "columns"):  # a DataFrame
        if len({*rows.columns}) < len(rows.columns):
            raise InputError(
                f"two columns have the same name: {one_line(', '.join(map(str, rows.columns)), width=200)}"
            )
        rows = rows.to_dict("records")
    if hasattr(rows, "to_list"):  # a datasets.Dataset
        rows = rows.to_list()
    if not (isinstance(rows, Sequence) and rows and all(isinstance(row, Mapping) for row in rows)):
        raise InputError(
            f"data is {type(rows).__name__}. Give a path, a dataset id of the hub, rows (a list of dicts, a DataFrame, "
            "a datasets.Dataset), or SourceSettings"
        )
    text = "".join(_row_line(row, number) for number, row in enumerate(rows, 1))
    path = cache_folder() / "in-memory" / f"rows-{content_id(text)}.jsonl"
    if not path.exists():
        write_text(path, text)
    return str(path)


def _row_line(row: Mapping[Any, Any], number: int) -> str:
    """Return a row as a line of JSON Lines. Missing values of pandas and NumPy become null."""
    from vestige.core.files import json_line

    cells = {}
    for name, value in row.items():
        # NumPy's scalars print as numbers but are not JSON values.
        plain = value
        if hasattr(value, "dtype") and getattr(value, "ndim", 0) == 0:
            plain = value.item()
        if type(plain).__name__ in ("NAType", "NaTType") or (isinstance(plain, float) and math.isnan(plain)):
            plain = None
        cells[str(name)] = plain
        try:
            # Each value is checked separately, so that the error names it. Encoding fails for half a surrogate.
            json_line(cells[str(name)]).encode()
        except (TypeError, ValueError) as error:
            where = f"row {number}, {one_line(repr(name), width=60)}"
            raise InputError(f"{where}: {type(plain).__name__} is not a JSON value. Give text or a number") from error
    return json_line(cells)
