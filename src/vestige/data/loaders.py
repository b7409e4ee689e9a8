"""Items from the user's data: a file, a folder, a data set on the hub, or a benchmark pack.

`columns` has the recognised columns. A Hugging Face data set is a local folder or an id on the hub, pinned as
`owner/name@revision`. `datasets` is imported only for a hub data set. It runs no code of a repository and reads no
pickle (release 4 and later).

A benchmark pack (`pack:tofu`, or `pack:tofu:FOLDER` with files of the same columns) is a recipe in `packs.toml`: the
place and columns of each split, and published figures of models before unlearning.

Texts and harmful answers in files and data sets: sources without questions, or with special columns.

The columns of a file decide its kind: a `text` without a question is a text in each row (the WMDP bio corpus), and an
answer with a safety label is harmful data (PKU-SafeRLHF). Of the hub's data sets only the paper's are known. The rest
is items, as everywhere.

Harmful answers are items of a prompt and an unsafe response. Two forms are read:

- `prompt`, `response_0`, `response_1`, `is_response_0_safe`, `is_response_1_safe`: PKU-SafeRLHF
- `prompt`, `response`, `is_safe`: BeaverTails, PKU-SafeRLHF-QA

(Ji et al., PKU-SafeRLHF, 2406.15513.) LLMU's code takes every unsafe response of a prompt (2310.10683). Here a prompt
is one sample, with the first unsafe response, so that 50 samples are 50 questions. An error never repeats a row's
content, only its position.

Texts without a question: papers of the WMDP bio corpus, anything with a column of text. Lengths
are in characters. Unusable rows are skipped: a public corpus of thousands of rows has some, and one row must not stop a
run. A sample is chosen by the digest of its content and the seed, so that the order of the rows and the rows with it
change nothing, and the first n are among the first n + 1.
"""

import heapq
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from pydantic import Field

from vestige.core.errors import InputError
from vestige.core.files import refuse_special
from vestige.core.ids import content_id, file_digest
from vestige.core.items import Item, ItemTuple
from vestige.core.seeds import derive_seed
from vestige.core.settings import Settings, packaged_toml
from vestige.core.text import Fields, Names, closest, half_character, one_line
from vestige.data.columns import RECOGNISED, Cells, items_in_table
from vestige.data.tables import FORMS, SourceTable, TableRow, column_names, read_table, shown, streamed

if TYPE_CHECKING:
    from datasets import Dataset

_HUB_ID = re.compile(r"(?P<id>[\w-][\w.-]*(?:/[\w-][\w.-]*)?)(?:@(?P<revision>[\w./-]+))?", re.ASCII)


def folder_table(path: Path, *, split: str, config: str | None) -> SourceTable:
    """The rows of a folder that `datasets` saved, or of data files."""
    import datasets

    # The path is absolute because `datasets` interprets bare names such as "csv" as builders.
    location = str(path.resolve())
    splits: Any = ()
    try:
        if (path / "state.json").is_file() or (path / "dataset_dict.json").is_file():
            stored = datasets.load_from_disk(location)
            if isinstance(stored, datasets.DatasetDict):
                splits = stored
                stored = stored.get(split)
        else:
            stored = datasets.load_dataset(location, name=config, split=split)
    # A damaged folder can fail in any of a dozen libraries, each with its own errors.
    except Exception as error:
        raise InputError(f"{path}: the data set cannot be read ({_reason(error)}). Check the folder") from error
    if stored is None:
        raise InputError(f"{path}: no split {split!r}. It has {shown(splits)}. Set --split")
    return _table(str(path), stored)


def hub_table(source: str, *, split: str, config: str | None) -> SourceTable:
    """The rows of a dataset on the hub. Without a connection to the hub, this fails within seconds."""
    match = _HUB_ID.fullmatch(source)
    assert match is not None, "asked of names that could be on the hub"
    import datasets
    from huggingface_hub import HfApi, constants

    try:
        if not constants.HF_HUB_OFFLINE:
            # A single request is made: `datasets` itself would retry for half a minute.
            HfApi().dataset_info(match["id"], revision=match["revision"], timeout=10.0)
        stored = datasets.load_dataset(match["id"], name=config, split=split, revision=match["revision"])
    # As above. Network errors change their names between releases.
    except Exception as error:
        offline = ""
        if constants.HF_HUB_OFFLINE:
            offline = "; HF_HUB_OFFLINE is set, so only the cache was looked at"
        fetch = f"`hf download {match['id']} --repo-type dataset --local-dir FOLDER`"
        raise InputError(
            f"{source}: no file or folder here, and the hub's dataset cannot be loaded ({_reason(error)}). "
            f"Check --split and --data-config, set HF_TOKEN where it is private or gated, or give a local file or what "
            f"{fetch} makes{offline}"
        ) from error
    return _table(source, stored)


_NOT_DECODED = re.compile(r"(?:Image|Audio|Video|Pdf)\(")


def _table(source: str, stored: "Dataset") -> SourceTable:
    if not len(stored):
        raise InputError(f"{source}: has no rows. Give data with rows")
    # Decoding pictures or sound would need libraries that no question uses.
    used = [name for name, feature in stored.features.items() if not _NOT_DECODED.search(repr(feature))]
    rows = tuple(TableRow(f"row {i}", dict(row)) for i, row in enumerate(stored.select_columns(used), 1))
    return SourceTable(source, tuple(stored.column_names), rows)


def _reason(error: Exception) -> str:
    return one_line(str(error).removesuffix(" (OfflineModeIsEnabled)") or type(error).__name__, width=200)


_KEYS = {"question_key", "answer_key", "edge_key", "group_key"}
PACK = "pack:"
"""Begins the name of a benchmark pack."""


class PackSplit(Settings):
    """The place and the format of one split of a pack."""

    config: str | None = None
    """Its configuration on the hub."""
    split: str = "train"
    """Its split on the hub."""
    file: str
    """Its file in a folder, without the ending."""
    form: Literal["items", "text"] = "items"
    """Return "items" for questions, or "texts" for texts, whose prompt is their first half."""
    question_key: str | None = None
    """Column with the questions, if it is not recognised."""
    answer_key: str | None = None
    """Column with the answers, if it is not recognised."""
    edge_key: str | None = None
    """Column with the contract or person that an item is about."""
    group_key: str | None = None
    """Column with the kind or topic of an item."""
    sha256: str = ""
    """Digest of the published file, if nothing else pins it."""


class Figure(Settings):
    """One published figure: its split, evaluation and metric (`format/metric`)."""

    split: str
    eval: str
    settings: Fields = Field(default_factory=dict)
    metric: str
    value: float


class Published(Settings):
    """Published figures of a model before unlearning, their source, and the tolerance."""

    model: str
    source: str
    tolerance: float
    figures: tuple[Figure, ...]


class Pack(Settings):
    """A benchmark: its splits, its item splits, and published figures."""

    about: str
    hub: str = ""
    """Id on the hub. Empty if the files are elsewhere (`files`)."""
    revision: str = ""
    files: str = ""
    data: Names
    factual: Names = ()
    splits: dict[str, PackSplit]
    published: tuple[Published, ...] = ()
    folder: str = ""
    """The local folder of its files. Empty for the hub."""

    def items(self, names: Iterable[str]) -> ItemTuple:
        """The items of the splits, each once, in their order."""
        items: dict[Item, None] = {}
        for name in names:
            items |= dict.fromkeys(self._read(self.splits[name]))
        return tuple(items)

    def _read(self, split: PackSplit) -> ItemTuple:
        source: str | Path = f"{self.hub}@{self.revision}" if not self.folder else self._file(split)
        columns_by_key = split.model_dump(include=_KEYS, exclude_none=True)
        keys = {name.removesuffix("_key"): key for name, key in columns_by_key.items()}
        table = source_table(source, split=split.split, config=split.config)
        if split.form == "text":
            texts = [Cells(table.source, row).text("text") for row in table.rows]
            return tuple(Item(text[: len(text) // 2], text[len(text) // 2 :]) for text in texts)
        # Published files repeat some rows.
        cells = [keys[part] for part in ("question", "answer") if part in keys] or table.names
        once: dict[str, TableRow] = {}
        for row in table.rows:
            once.setdefault(repr([row.values.get(cell) for cell in cells]), row)
        return items_in_table(replace(table, rows=tuple(once.values())), keys, keep_duplicates=True)

    def content(self) -> Fields:
        """Return everything that can change its items: the recipe, and by split the digests of a folder's files."""
        files = {}
        if self.folder:
            for name, split in self.splits.items():
                files[name] = list(map(file_digest, self._files(split)))
        return {"recipe": self.model_dump(mode="json", exclude={"about", "published", "folder"}), "files": files}

    def _files(self, split: PackSplit) -> list[Path]:
        """The files of the split's name that are there, with any ending."""
        folder = Path(self.folder).expanduser()
        # The hub uses the last name for a split in one Parquet file.
        candidates = [folder / f"{split.file}{ending}" for ending in (*FORMS, "-00000-of-00001.parquet")]
        return [path for path in candidates if path.is_file()]

    def _file(self, split: PackSplit) -> Path:
        files = self._files(split)
        if len(files) != 1:
            stem, endings = Path(self.folder).expanduser() / split.file, ", ".join(FORMS)
            raise InputError(f"{stem}: {len(files)} files have this name, with the suffixes {endings}. Keep one")
        if split.sha256 and file_digest(files[0]) != split.sha256:
            raise InputError(
                f"{files[0]} is not the published file ({self.files}), whose SHA-256 is {split.sha256}. For data of "
                "your own name the file itself"
            )
        return files[0]


@lru_cache(maxsize=1)
def packs() -> dict[str, Pack]:
    """The packs that come with Vestige, by name."""
    tables = packaged_toml("vestige.data", "resources", "packs.toml")
    return {name: Pack.build(values, where=f"the pack {name}") for name, values in tables.items()}


def pack_named(source: str) -> Pack | None:
    """Return the pack that `pack:NAME` or `pack:NAME:FOLDER` names, or None for another source."""
    if not source.startswith(PACK):
        return None
    name, _, folder = source.removeprefix(PACK).partition(":")
    if name not in packs():
        raise InputError(f"no pack {one_line(repr(name))}. {closest(name, list(packs()))}")
    pack = packs()[name].model_copy(update={"folder": folder})
    if not pack.hub and not folder:
        raise InputError(f"the pack {name} is not on the hub. Fetch {pack.files} and give its folder: {source}:FOLDER")
    return pack


def published_of(source: str, model: str, figures_of: str | None = None) -> tuple[Pack, Published] | None:
    """Return a pack's figures of the model, or of the one `named`. None if nothing is to be compared."""
    pack = pack_named(source)
    if figures_of not in (None, "none") and pack is None:
        raise InputError("--published goes with a pack. Name one, as in --data pack:tofu")
    if pack is None or figures_of == "none":
        return None
    by_model = {row.model: row for row in pack.published}
    if figures_of is not None and figures_of not in by_model:
        raise InputError(
            f"no figures of {one_line(repr(figures_of))} are in the pack. {closest(figures_of, [*by_model, 'none'])}"
        )
    row = by_model.get(figures_of or model)
    if row is None:
        return None
    return (pack, row)


def load_items(
    source: str | Path,
    *,
    question_key: str | None = None,
    answer_key: str | None = None,
    edge_key: str | None = None,
    group_key: str | None = None,
    split: str = "train",
    config: str | None = None,
    limit: str | None = None,
    keep_duplicates: bool = False,
) -> ItemTuple:
    """The items of `source`, in its order. InputError names the file, line and column of the mistake.

    A local path is looked for first. Its extension decides the form. `split` and `config` concern folders and the hub.
    `limit` takes the first rows. Those after them are parsed and not checked. `keep_duplicates` admits a question twice
    where the answers differ (TOFU's full set has one).
    """
    by_part = {"question": question_key, "answer": answer_key, "edge": edge_key, "group": group_key}
    keys = {part: key for part, key in by_part.items() if key is not None}
    table = source_table(source, split=split, config=config)
    if limit is not None:
        table = replace(table, rows=table.rows[: n_first(limit, len(table.rows))])
    return items_in_table(table, keys, keep_duplicates=keep_duplicates)


def n_first(limit: str, n: int) -> int:
    """Return how many of `n` rows a limit takes: `20` is twenty, `0.1` a tenth (at least one), `1.0` all."""
    # 1 is one row and 1.0 all of them.
    whole = limit.strip().isdecimal()
    try:
        value = float(limit)
    except ValueError as error:
        raise InputError(f"limit {one_line(repr(limit))}: give a number of rows (20) or a share (0.1)") from error
    # The condition is negated because every comparison with NaN is false.
    if not (value >= 1 if whole else 0 < value <= 1):
        raise InputError(f"limit {limit}: give a number of rows from 1 up, or a share above 0 up to 1.0")
    return min(n, int(limit) if whole else max(1, round(value * n)))


def refuse_blank(name: str | Path) -> None:
    """Reject an empty name, for example from an unset shell variable: as a path it is the current directory."""
    if not str(name).strip():
        raise InputError("the name of a data set or forget set is empty. Give a file, a folder, an id or a selector")


def source_table(source: str | Path, *, split: str, config: str | None) -> SourceTable:
    """The rows of a file, a folder or a data set on the hub."""
    refuse_blank(source)
    path = Path(source).expanduser()
    refuse_special(path)
    try:
        if path.is_dir():
            return folder_table(path, split=split, config=config)
        if path.is_file():
            return read_table(path)
    except InputError:
        raise
    except ValueError as error:  # A NUL in the name.
        raise InputError(f"{one_line(repr(str(source)))}: no file can have this name. Check it") from error
    # A missing path must not become a name that is sent to the hub.
    if isinstance(source, Path) or path.suffix.lower() in FORMS or not _HUB_ID.fullmatch(source):
        raise InputError(
            f"{one_line(str(source))}: no such file or folder. "
            f"Give a file ({', '.join(FORMS)}), a folder, or a dataset id like owner/name@revision"
        )
    return hub_table(source, split=split, config=config)


S = TypeVar("S", Item, "Passage")


def sampled(source: str, candidates: Iterable[S | None], *, n: int | None, seed: int) -> tuple[S, ...]:
    """`n` of the candidates, or all, in their order. None and what equals an earlier one is passed over.

    Fewer than `n` are refused: a smaller sample would be another experiment.
    """
    ids: set[str] = set()

    def usable() -> Iterator[tuple[int, str, int, S]]:
        for number, candidate in enumerate(candidates):
            if candidate is not None and candidate.id not in ids:
                ids.add(candidate.id)
                yield derive_seed(seed, "sample", candidate.id), candidate.id, number, candidate

    # Only the sample of a large corpus is in memory. Ids are unique, so samples are never compared.
    if n is None:
        entries = list(usable())
    else:
        entries = heapq.nsmallest(max(n, 1), usable())
    if n is not None and not 1 <= n <= len(ids):
        raise InputError(f"{source}: n = {n}, and it has {len(ids)} usable samples. Set n from 1 to {len(ids)}")
    return tuple(sample for *_, sample in sorted(entries, key=lambda entry: entry[2]))


BIO_CORPUS = "cais/wmdp-bio-forget-corpus"
"""Papers with the columns title, abstract and text. The hub gives them to those who accept its terms."""
LEAST = 50
"""A text of as many characters, or fewer, is passed over, as in RMU's code (2403.03218)."""
_TEXT = "text"


@dataclass(frozen=True)
class Passage:
    """One text, with the title of its paper or article if the data have one."""

    text: str
    title: str = ""

    @cached_property
    def id(self) -> str:
        """Content id of both."""
        return content_id({"text": self.text, "title": self.title})


def load_passages(source: str | Path, *, n: int | None = None, seed: int = 0) -> tuple[Passage, ...]:
    """`n` passages of a file, a folder or a data set on the hub: one a row, its `text` unchanged."""
    rows: Iterable[TableRow]
    if path := local_file(source):
        name, rows = str(path), streamed(path)
    else:
        table = source_table(source, split="train", config=None)
        name, rows = table.source, table.rows

    def candidates() -> Iterator[Passage | None]:
        names: dict[str, None] = {}
        for row in rows:
            names |= dict.fromkeys(row.values)
            title = row.values.get("title")
            yield _passage(row.values.get(_TEXT), str(title) if usable(title) else "")
        # The check comes after the last row because some rows may lack a column.
        if _TEXT not in names:
            has = "has no rows. Give a file with rows"
            if names:
                has = f"no column {shown([_TEXT])}; it has {shown(names)}"
            raise InputError(f"{name}: {has}")

    return sampled(name, candidates(), n=n, seed=seed)


def _passage(text: Any, title: str) -> Passage | None:
    if usable(text) and len(text.strip()) > LEAST:
        return Passage(text, title)
    return None


def local_file(source: str | Path) -> Path | None:
    """The file of that name here, if there is one."""
    try:
        path = Path(source).expanduser()
        if path.is_file():
            return path
        return None
    except ValueError:  # A NUL in the name.
        return None


def usable(value: Any) -> bool:
    """Whether a cell is a text with something in it that a file can hold."""
    return isinstance(value, str) and bool(value.strip()) and "\0" not in value and not half_character(value)


SAFE_RLHF = "PKU-Alignment/PKU-SafeRLHF"
HARMFUL_GROUP = "harmful"
_PROMPT = "prompt"
_RESPONSES = ((("response_0", "is_response_0_safe"), ("response_1", "is_response_1_safe")), (("response", "is_safe"),))
"""The columns of a response and of its label, in each of the two forms."""


def load_harmful(source: str | Path = SAFE_RLHF, *, n: int | None = None, seed: int = 0) -> ItemTuple:
    """`n` prompts with an unsafe response each."""
    table = source_table(source, split="train", config=None)
    responses = _responses(table.names)
    if not responses:
        raise InputError(
            f"{table.source}: the columns are neither PKU-SafeRLHF's (prompt, response_0, response_1, "
            f"is_response_0_safe, is_response_1_safe) nor BeaverTails' (prompt, response, is_safe). It has "
            f"{shown(table.names)}"
        )
    items: dict[str, Item] = {}
    for row in table.rows:
        if item := _unsafe(table.source, row, responses):
            items.setdefault(item.question, item)
    return sampled(table.source, items.values(), n=n, seed=seed)


def _responses(names: Collection[str]) -> tuple[tuple[str, str], ...]:
    """Return the columns of responses and labels if the names match harmful data, otherwise none."""
    return next((form for form in _RESPONSES if {_PROMPT, *chain(*form)} <= {*names}), ())


def _unsafe(source: str, row: TableRow, responses: tuple[tuple[str, str], ...]) -> Item | None:
    """The prompt with its first unsafe response that is a text, if it has one."""
    prompt = row.values.get(_PROMPT)
    for response, label in responses if usable(prompt) else ():
        safe, text = row.values.get(label), row.values.get(response)
        if not isinstance(safe, bool):
            raise InputError(f"{source}, {row.place}: {label} is not true or false. Give JSON Lines or Parquet")
        if not safe and usable(text):
            return Item(str(prompt), str(text), group=HARMFUL_GROUP)
    return None


Form: TypeAlias = Literal["items", "harmful", "texts"]
_HUB: dict[str, Form] = {BIO_CORPUS: "texts", SAFE_RLHF: "harmful"}


def form_of(name: str) -> Form:
    """Return the kind of data in a file or hub data set. Other names, such as selectors, are "items"."""
    path = local_file(name)
    if path is None:
        return _HUB.get(name.partition("@")[0], "items")
    if path.suffix.lower() in FORMS:
        names = column_names(path)
    else:
        names = frozenset()
    if _responses(names):
        return "harmful"
    if _TEXT in names and not names & RECOGNISED:
        return "texts"
    return "items"


_BEGINNING = 8
"""The number of words of a text in the prompt for the rest."""


def items_in(name: str) -> ItemTuple | None:
    """Return harmful answers or texts of a file as items, or None if it contains questions or is not a file.

    The prompt is a text's title and first words, and the answer is the rest.
    """
    if local_file(name) is None:
        return None
    try:
        form = form_of(name)
    except InputError:
        return None  # The loader of questions gives a better error.
    if form == "harmful":
        return load_harmful(name)
    if form == "items":
        return None
    return tuple(map(_continued, load_passages(name)))


def _continued(passage: Passage) -> Item:
    words = passage.text.split()
    n = min(_BEGINNING, len(words) // 2)
    if n:
        beginning = " ".join(words[:n])
        rest = passage.text.split(maxsplit=n)[-1]
    else:
        beginning = passage.text[:LEAST]
        rest = passage.text[LEAST:]
    return Item(f"{passage.title}: {beginning}" if passage.title else beginning, rest)


def texts_in(name: str, form: Form, *, n: int | None, seed: int) -> tuple[Passage, ...]:
    """Return `n` or all texts of a file or data set of that form. None of questions and harmful answers."""
    if form == "texts":
        return load_passages(name, n=n, seed=seed)
    return ()
