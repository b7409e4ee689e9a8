"""Rows from a Hugging Face dataset: a local folder, or an id on the hub, pinned as `owner/name@revision`.

`datasets` is imported only when one is asked for. From release 4 on it runs no code of a repository, and it
reads no pickle.
"""

import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.core.errors import InputError
from vestige.core.text import one_line
from vestige.data.tables import Row, Table, shown

if TYPE_CHECKING:
    from datasets import Dataset

_HUB_ID = re.compile(r"(?P<id>[\w-][\w.-]*(?:/[\w-][\w.-]*)?)(?:@(?P<revision>[\w./-]+))?", re.ASCII)
_TIMEOUT_SECONDS = 10.0


def is_hub_id(source: str) -> bool:
    """Whether `source` could name a dataset on the hub."""
    return _HUB_ID.fullmatch(source) is not None


def folder_table(path: Path, *, split: str, config: str | None, wanted: Collection[str]) -> Table:
    """The rows of a folder that `datasets` saved, or of data files. Only the columns `wanted` are decoded."""
    import datasets

    where = str(path)
    # Absolute, since `datasets` takes bare names such as "csv" for its own builders.
    location = str(path.resolve())
    try:
        if (path / "state.json").is_file() or (path / "dataset_dict.json").is_file():
            stored = datasets.load_from_disk(location)
            if isinstance(stored, datasets.DatasetDict):
                if split not in stored:
                    raise InputError(f"{where}: no split {split!r}; it has {shown(stored)}; set --split")
                stored = stored[split]
        else:
            stored = datasets.load_dataset(location, name=config, split=split)
    except InputError:
        raise
    # A damaged folder fails in any of a dozen libraries, each with errors of its own.
    except Exception as error:
        raise InputError(f"{where}: not a dataset that can be read ({_reason(error)})") from error
    return _table(where, stored, wanted)


def hub_table(source: str, *, split: str, config: str | None, wanted: Collection[str]) -> Table:
    """The rows of a dataset on the hub. Where the hub cannot be reached this says so within seconds."""
    match = _HUB_ID.fullmatch(source)
    if match is None:
        raise InputError(f"{one_line(repr(source))}: neither a file, a folder nor a dataset id like owner/name")
    _check_reachable(source, match["id"], match["revision"])
    import datasets

    try:
        stored = datasets.load_dataset(match["id"], name=config, split=split, revision=match["revision"])
    # As above, and the network's errors too.
    except Exception as error:
        raise InputError(
            f"{source}: no file or folder here, and the hub's dataset cannot be loaded ({_reason(error)}); "
            "check --split and --config, or give a local file"
        ) from error
    return _table(source, stored, wanted)


def _check_reachable(source: str, repo: str, revision: str | None) -> None:
    """Ask the hub once. `datasets` itself would try for half a minute before it gave up."""
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    if constants.HF_HUB_OFFLINE:
        return  # Then `datasets` looks in its cache at once, and fails at once.
    try:
        HfApi().dataset_info(repo, revision=revision, timeout=_TIMEOUT_SECONDS)
    except GatedRepoError as error:
        raise InputError(f"{source}: a gated dataset; accept its terms on the hub and set HF_TOKEN") from error
    except RevisionNotFoundError as error:
        raise InputError(f"{source}: no revision {revision!r}; pin one that the dataset has") from error
    except RepositoryNotFoundError as error:
        raise InputError(
            f"{source}: no file or folder here, and no such dataset on the hub (a private one needs HF_TOKEN)"
        ) from error
    # The HTTP library's errors change their names between its releases.
    except Exception as error:
        raise InputError(
            f"{source}: no file or folder here, and the hub cannot be reached ({_reason(error)}); "
            "give a local file, or set HF_HUB_OFFLINE=1 to use a copy in the cache"
        ) from error


def _table(source: str, stored: "Dataset", wanted: Collection[str]) -> Table:
    names = tuple(stored.column_names)
    if not len(stored):
        raise InputError(f"{source}: holds no rows")
    # Decoding a column of pictures or sound would need libraries that a question has no use for.
    used = stored.select_columns([name for name in names if name in wanted])
    rows = tuple(Row(f"row {i}", dict(row)) for i, row in enumerate(used, 1)) if used.column_names else ()
    return Table(source, names, rows)


def _reason(error: Exception) -> str:
    return one_line(str(error) or type(error).__name__, width=200)
