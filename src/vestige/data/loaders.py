"""Items from data of people's own: a file, a folder, or a dataset on the hub.

Recognised columns, in any case, the first that fit: `question`/`answer`, `prompt`/`completion`, `instruction`/`output`
(with `input` after a blank line), `query`/`response`, `input`/`output`, and the chats `messages` and `conversations`,
whose last turn is the answer. Beside them, where there:
`edge`, `contract` or `person`, `group` or `type`, `paraphrase` or `paraphrased_question`, `paraphrased_answer`,
`perturbed_answer` or `perturbed`, `fact` (the part of the answer that gives it away), `accepted` (other ways to say
that) and `alternatives` (a list of answers that cannot be told from the true one). The files that PISTOL and TOFU
publish are read as they are, and so is multiple-choice data in the forms below, unless a column is named.

A Hugging Face dataset is a local folder or an id on the hub, pinned as `owner/name@revision`. `datasets` is imported
only when one is asked for. From release 4 on it runs no code of a repository, and it reads no pickle.

Multiple-choice data becomes items whose answer is the right option; the options are kept with it. The columns tell the
form, in files and in data sets on the hub:

- `question`, `choices` (a list), `answer` or `label` (a number from 0, or a letter): WMDP, MMLU on the hub
- `question`, `choice0`, `choice1`, ..., `answer` (likewise): MMLU as CSV
- `question`, `option1`, `option2`, ..., `answer` (the right text): TOFU's real authors and world facts
- `Question`, `Best Answer`, `Correct Answers`, `Incorrect Answers` (apart by semicolons): TruthfulQA as CSV
- `question`, `mc1_targets`, `mc2_targets`: TruthfulQA on the hub

A benchmark pack (`pack:tofu`, or `pack:tofu:FOLDER` with files of the same columns) is a recipe in `packs.toml`: where
each split lies, which columns it has, and what was published of models before they were unlearned.

TruthfulQA's best answer stands against the wrong ones (its MC1); its other right answers are kept beside it (MC2).
"""

import contextlib
import json
import re
import string
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from vestige.core.errors import InputError
from vestige.core.ids import file_digest
from vestige.core.items import Item, Options
from vestige.core.settings import Settings, packaged_toml
from vestige.core.text import closest, one_line
from vestige.data.columns import RECOGNISED, Cells, Keys, choose_columns, items_of, known_name, with_known_names
from vestige.data.mcq import MOST_OPTIONS
from vestige.data.tables import FORMS, SourceTable, TableRow, read_table, shown

if TYPE_CHECKING:
    from datasets import Dataset


_HUB_ID = re.compile(r"(?P<id>[\w-][\w.-]*(?:/[\w-][\w.-]*)?)(?:@(?P<revision>[\w./-]+))?", re.ASCII)


def folder_table(path: Path, *, split: str, config: str | None, columns: Collection[str]) -> SourceTable:
    """The rows of a folder that `datasets` saved, or of data files. Only the columns named are decoded."""
    import datasets

    # Absolute, since `datasets` takes bare names such as "csv" for its own builders.
    location, splits = str(path.resolve()), None
    try:
        if (path / "state.json").is_file() or (path / "dataset_dict.json").is_file():
            stored = datasets.load_from_disk(location)
            if isinstance(stored, datasets.DatasetDict):
                splits = stored
                stored = stored.get(split)
        else:
            stored = datasets.load_dataset(location, name=config, split=split)
    # A damaged folder fails in any of a dozen libraries, each with errors of its own.
    except Exception as error:
        raise InputError(f"{path}: not a dataset that can be read ({_reason(error)})") from error
    if stored is None:
        raise InputError(f"{path}: no split {split!r}; it has {shown(splits or ())}; set --split")
    return _table(str(path), stored, columns)


def hub_table(source: str, *, split: str, config: str | None, columns: Collection[str]) -> SourceTable:
    """The rows of a dataset on the hub. Where the hub cannot be reached this says so within seconds."""
    match = _HUB_ID.fullmatch(source)
    assert match is not None, "asked of names that could be on the hub"
    import datasets
    from huggingface_hub import HfApi, constants

    try:
        if not constants.HF_HUB_OFFLINE:
            # Asked once: `datasets` itself would try for half a minute before it gave up.
            HfApi().dataset_info(match["id"], revision=match["revision"], timeout=10.0)
        stored = datasets.load_dataset(match["id"], name=config, split=split, revision=match["revision"])
    # As above, and the network's errors too, which change their names between releases.
    except Exception as error:
        offline = "; HF_HUB_OFFLINE is set, so only the cache was looked at" if constants.HF_HUB_OFFLINE else ""
        fetch = f"`hf download {match['id']} --repo-type dataset --local-dir FOLDER`"
        raise InputError(
            f"{source}: no file or folder here, and the hub's dataset cannot be loaded ({_reason(error)}); "
            f"check --split and --data-config, set HF_TOKEN where it is private or gated, or give a local file or what "
            f"{fetch} makes{offline}"
        ) from error
    return _table(source, stored, columns)


def _table(source: str, stored: "Dataset", columns: Collection[str]) -> SourceTable:
    names = tuple(stored.column_names)
    if not len(stored):
        raise InputError(f"{source}: holds no rows")
    # Decoding a column of pictures or sound would need libraries that a question has no use for.
    used = stored.select_columns([name for name in names if name in columns or known_name(name) in columns])
    rows = tuple(TableRow(f"row {i}", dict(row)) for i, row in enumerate(used, 1)) if used.column_names else ()
    return SourceTable(source, names, rows)


def _reason(error: Exception) -> str:
    return one_line(str(error).removesuffix(" (OfflineModeIsEnabled)") or type(error).__name__, width=200)


QUESTION, ANSWER, OPTIONS = "question", "answer", "options"
_NUMBERED = tuple(f"choice{n}" for n in range(MOST_OPTIONS))
_TEXTUAL = tuple(f"option{n}" for n in range(1, MOST_OPTIONS + 1))
_TRUTHFUL = ("Question", "Best Answer", "Correct Answers", "Incorrect Answers")
_TARGETS = ("mc1_targets", "mc2_targets")

OPTION_COLUMNS = frozenset((QUESTION, ANSWER, "choices", "label", *_NUMBERED, *_TEXTUAL, *_TRUTHFUL, *_TARGETS))
"""Every column that a multiple-choice form has."""


def as_questions(table: SourceTable) -> SourceTable:
    """A table of a multiple-choice form with the columns `question`, `answer` and `options`; any other as it is."""
    read = next((reader for needed, reader in _FORMS if needed <= set(table.names)), None)
    if read is None:
        return table
    rows = tuple(TableRow(row.place, {**row.values, **read(_OptionCells(table.source, row))}) for row in table.rows)
    return SourceTable(table.source, tuple(dict.fromkeys((QUESTION, ANSWER, OPTIONS, *table.names))), rows)


class _OptionCells(Cells):
    """One row of a multiple-choice form."""

    def numbered(self, columns: Iterable[str]) -> list[str]:
        """The texts of numbered columns up to the first that is empty: CSV pads shorter rows, Parquet with nulls."""
        filled = takewhile(lambda column: self.row.values.get(column) not in (None, ""), columns)
        return [self.text(column) for column in filled]

    def listed(self, column: str, value: Any) -> list[str]:
        """A list of texts; also one written as JSON, since CSV has no lists."""
        if isinstance(value, str):
            with contextlib.suppress(ValueError, RecursionError):
                value = json.loads(value)
        if not isinstance(value, list) or not all(isinstance(v, str) and v.strip() for v in value):
            raise self.wrong(column, 'is no list of texts; write it as ["...", "..."]')
        return value

    def options(self, column: str, texts: list[str], right: int, also: Iterable[str] = ()) -> dict[str, Any]:
        """What the row says, checked: two options and more, each once, no wrong one among the right."""
        wrong = {text for n, text in enumerate(texts) if n != right}
        also = tuple(dict.fromkeys(t for t in also if t != texts[right]))
        if not 2 <= len(texts) <= MOST_OPTIONS:
            raise self.wrong(column, f"gives {len(texts)} options; a question has 2 to {MOST_OPTIONS}")
        if wrong & {texts[right], *also}:
            raise self.wrong(column, f"has the right option {one_line(texts[right], width=60)!r} among the wrong ones")
        return {ANSWER: texts[right], OPTIONS: Options(tuple(texts), right, also)}

    def right(self, column: str, texts: list[str]) -> int:
        """The right option's number: a number from 0, or a letter."""
        value = stated = self.row.values.get(column)
        if isinstance(value, str):
            plain = value.strip().upper()
            letter = string.ascii_uppercase.find(plain) if len(plain) == 1 else -1
            value = letter if letter >= 0 else int(plain) if plain.isdecimal() else None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < len(texts):
            raise self.wrong(
                column,
                f"is {one_line(repr(stated), width=40)} and names none of {len(texts)} options; "
                "give a number from 0 or a letter",
            )
        return value

    def labelled(self, column: str) -> tuple[list[str], list[str]]:
        """The right and the wrong choices of a column of targets."""
        value = self.row.values.get(column)
        if not isinstance(value, Mapping):
            raise self.wrong(column, 'is no object like {"choices": [...], "labels": [...]}')
        texts, labels = self.listed(column, value.get("choices")), value.get("labels")
        if not isinstance(labels, list) or len(labels) != len(texts) or not set(labels) <= {0, 1}:
            raise self.wrong(column, "has labels that are not one 0 or 1 for each of its choices")
        rows = list(zip(texts, labels, strict=True))
        return [text for text, label in rows if label], [text for text, label in rows if not label]


def _listed_choices(row: _OptionCells) -> dict[str, Any]:
    texts = row.listed("choices", row.row.values.get("choices"))
    # MMLU on the hub has `answer`, other copies of it `label`.
    key = "answer" if row.row.values.get("answer") is not None else "label"
    return row.options("choices", texts, row.right(key, texts))


def _numbered(row: _OptionCells) -> dict[str, Any]:
    texts = row.numbered(_NUMBERED)
    return row.options("choice0", texts, row.right("answer", texts))


def _textual(row: _OptionCells) -> dict[str, Any]:
    texts, answer = row.numbered(_TEXTUAL), row.text("answer")
    if answer not in texts:
        raise row.wrong("answer", f"is {one_line(answer, width=60)!r}, which is none of the options")
    return row.options("option1", texts, texts.index(answer))


def _truthful(row: _OptionCells) -> dict[str, Any]:
    best = row.text("Best Answer").strip()
    columns = (row.text(column).split(";") for column in ("Correct Answers", "Incorrect Answers"))
    right, wrong = (list(dict.fromkeys(part.strip() for part in parts if part.strip())) for parts in columns)
    texts, also = [best, *(t for t in wrong if t != best)], (t for t in right if t not in wrong)
    return {QUESTION: row.text("Question"), **row.options("Incorrect Answers", texts, 0, also)}


def _targets(row: _OptionCells) -> dict[str, Any]:
    right, wrong = row.labelled("mc1_targets")
    if len(right) != 1:
        raise row.wrong("mc1_targets", f"has {len(right)} right options where one belongs")
    also = row.labelled("mc2_targets")[0] if row.row.values.get("mc2_targets") is not None else []
    return row.options("mc1_targets", [*right, *wrong], 0, (t for t in also if t not in wrong))


_FORMS = (
    ({QUESTION, "mc1_targets"}, _targets),
    (set(_TRUTHFUL), _truthful),
    ({QUESTION, "choices", "answer"}, _listed_choices),
    ({QUESTION, "choices", "label"}, _listed_choices),
    ({QUESTION, "choice0", "choice1", ANSWER}, _numbered),
    ({QUESTION, "option1", "option2", ANSWER}, _textual),
)

_KEYS = {"question_key", "answer_key", "edge_key", "group_key"}
PACK = "pack:"
"""Begins the name of a benchmark pack."""


class PackSplit(Settings):
    """Where one split of a pack lies, and how it is read."""

    config: str | None = None
    """Its configuration on the hub."""
    split: str = "train"
    """Its split on the hub."""
    file: str
    """Its file in a folder, without the ending."""
    form: Literal["items", "text"] = "items"
    """Questions, or texts, which are asked for by their first half."""
    question_key: str | None = None
    """Column with the questions, if it is not recognised."""
    answer_key: str | None = None
    """Column with the answers, if it is not recognised."""
    edge_key: str | None = None
    """Column with the contract or person that an item is about."""
    group_key: str | None = None
    """Column with the kind or topic of an item."""
    sha256: str = ""
    """Digest of the published file, where nothing else pins it."""


class Figure(Settings):
    """One published figure: of which split, by which evaluation and metric (`format/metric`)."""

    split: str
    eval: str
    settings: dict[str, Any] = Field(default_factory=dict)
    metric: str
    value: float


class Published(Settings):
    """Figures of a model that was not unlearned, where they stand, and how far ours may be from them."""

    model: str
    source: str
    tolerance: float
    figures: tuple[Figure, ...]


class Pack(Settings):
    """A benchmark: its splits, those of them that are its items, and what was published."""

    about: str
    hub: str = ""
    """Id on the hub; none where the files lie elsewhere (`files`)."""
    revision: str = ""
    files: str = ""
    data: tuple[str, ...]
    factual: tuple[str, ...] = ()
    splits: dict[str, PackSplit]
    published: tuple[Published, ...] = ()
    folder: str = ""
    """Where its files lie here; empty for the hub."""

    def items(self, names: Iterable[str]) -> tuple[Item, ...]:
        """The items of the splits, each once, in their order."""
        return tuple(dict.fromkeys(item for name in names for item in self._read(self.splits[name])))

    def _read(self, split: PackSplit) -> tuple[Item, ...]:
        source: str | Path = f"{self.hub}@{self.revision}" if not self.folder else self._file(split)
        columns_by_key = split.model_dump(include=_KEYS, exclude_none=True)
        keys = {name.removesuffix("_key"): key for name, key in columns_by_key.items()}
        columns = RECOGNISED | OPTION_COLUMNS | {*keys.values(), "text"}
        table = source_table(source, split=split.split, config=split.config, columns=columns)
        if split.form == "text":
            texts = [Cells(table.source, row).text("text") for row in table.rows]
            return tuple(Item(text[: len(text) // 2], text[len(text) // 2 :]) for text in texts)
        # Published files repeat some rows.
        cells = [keys[part] for part in ("question", "answer") if part in keys] or table.names
        once: dict[str, TableRow] = {}
        for row in table.rows:
            once.setdefault(repr([row.values.get(cell) for cell in cells]), row)
        return items_in_table(replace(table, rows=tuple(once.values())), keys, keep_duplicates=True)

    def content(self) -> dict[str, Any]:
        """What can change its items: the recipe, and by split the digests of the files that a folder has."""
        splits = self.splits.items() if self.folder else ()
        return {
            "recipe": self.model_dump(mode="json", exclude={"about", "published", "folder"}),
            "files": {name: [file_digest(path) for path in self._files(split)] for name, split in splits},
        }

    def _files(self, split: PackSplit) -> list[Path]:
        """The files of the split's name that are there, with any ending."""
        folder = Path(self.folder).expanduser()
        # The last is how the hub calls a split that is one Parquet file.
        candidates = [folder / f"{split.file}{ending}" for ending in (*FORMS, "-00000-of-00001.parquet")]
        return [path for path in candidates if path.is_file()]

    def _file(self, split: PackSplit) -> Path:
        files = self._files(split)
        if len(files) != 1:
            stem, endings = Path(self.folder).expanduser() / split.file, ", ".join(FORMS)
            raise InputError(f"{stem}: {len(files)} files of this name, with endings {endings}; give one")
        if split.sha256 and file_digest(files[0]) != split.sha256:
            raise InputError(
                f"{files[0]} is not the published file ({self.files}), whose SHA-256 is {split.sha256}; for data of "
                "your own name the file itself"
            )
        return files[0]


@lru_cache(maxsize=1)
def packs() -> dict[str, Pack]:
    """The packs that come with Vestige, by name."""
    tables = packaged_toml("vestige.data", "resources", "packs.toml")
    return {name: Pack.build(values, where=f"the pack {name}") for name, values in tables.items()}


def pack_named(source: str) -> Pack | None:
    """The pack that `pack:NAME` or `pack:NAME:FOLDER` names; None where the source is none."""
    if not source.startswith(PACK):
        return None
    name, _, folder = source.removeprefix(PACK).partition(":")
    if name not in packs():
        raise InputError(f"no pack {one_line(repr(name))}; {closest(name, list(packs()))}")
    pack = packs()[name].model_copy(update={"folder": folder})
    if not pack.hub and not folder:
        raise InputError(f"the pack {name} is not on the hub; fetch {pack.files} and give its folder: {source}:FOLDER")
    return pack


def published_of(source: str, model: str, figures_of: str | None = None) -> tuple[Pack, Published] | None:
    """A pack's figures of the model, or of the one `named` (`none`: of none); None where nothing is to be compared."""
    pack = pack_named(source)
    if figures_of not in (None, "none") and pack is None:
        raise InputError("--published goes with a pack, as in --data pack:tofu")
    if pack is None or figures_of == "none":
        return None
    by_model = {row.model: row for row in pack.published}
    if figures_of is not None and figures_of not in by_model:
        raise InputError(
            f"no figures of {one_line(repr(figures_of))} are in the pack; {closest(figures_of, [*by_model, 'none'])}"
        )
    row = by_model.get(figures_of or model)
    return None if row is None else (pack, row)


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
) -> tuple[Item, ...]:
    """The items of `source`, in its order; InputError names file, line and column of what is wrong.

    A local path is looked for first; its extension decides the form. `split` and `config` concern folders
    and the hub. `limit` takes the first rows; those after them are parsed and not checked. `keep_duplicates`
    admits a question twice where the answers differ (TOFU's full set has one).
    """
    by_part = {"question": question_key, "answer": answer_key, "edge": edge_key, "group": group_key}
    keys = {part: key for part, key in by_part.items() if key is not None}
    columns = RECOGNISED | OPTION_COLUMNS | {*keys.values()}
    table = source_table(source, split=split, config=config, columns=columns)
    if limit is not None:
        table = replace(table, rows=table.rows[: n_first(limit, len(table.rows))])
    return items_in_table(table, keys, keep_duplicates=keep_duplicates)


def items_in_table(table: SourceTable, keys: Keys, *, keep_duplicates: bool) -> tuple[Item, ...]:
    """The items of a table whose columns are named or recognised."""
    # A column that a person named wins over a form that is recognised.
    questions = table if keys.keys() & {"question", "answer"} else as_questions(table)
    table = with_known_names(table, keys.values()) if questions is table else questions
    return items_of(table, choose_columns(table.source, table.names, keys), keep_duplicates=keep_duplicates)


def n_first(limit: str, n: int) -> int:
    """How many of `n` rows a limit takes: `20` is twenty, `0.1` a tenth (one at least), `1.0` all."""
    # 1 is one row and 1.0 all of them.
    whole = limit.strip().isdecimal()
    try:
        value = float(limit)
    except ValueError as error:
        raise InputError(f"limit {one_line(repr(limit))}: give a number of rows (20) or a share (0.1)") from error
    # By `not`: NaN compares with nothing, and would pass if it were asked the other way round.
    if not (value >= 1 if whole else 0 < value <= 1):
        raise InputError(f"limit {limit}: give a number of rows from 1 up, or a share above 0 up to 1.0")
    return min(n, int(limit) if whole else max(1, round(value * n)))


def refuse_blank(name: str | Path) -> None:
    """Refuse an empty name, as of a shell's variable that is not set: as a path it is the folder that one is in."""
    if not str(name).strip():
        raise InputError("an empty name is no data set and no forget set; give a file, a folder, an id or a selector")


def source_table(source: str | Path, *, split: str, config: str | None, columns: frozenset[str]) -> SourceTable:
    """The rows of a file, a folder or a data set on the hub; of the latter two only the columns named."""
    refuse_blank(source)
    path = Path(source).expanduser()
    try:
        if path.is_dir():
            return folder_table(path, split=split, config=config, columns=columns)
        if path.is_file():
            return read_table(path)
    except ValueError as error:  # A NUL in the name.
        raise InputError(f"{one_line(repr(str(source)))}: no file can have this name") from error
    # A path that is not there must not become a name that is sent to the hub.
    if isinstance(source, Path) or path.suffix.lower() in FORMS or not _HUB_ID.fullmatch(source):
        raise InputError(
            f"{one_line(str(source))}: no such file or folder; "
            f"give a file ({', '.join(FORMS)}), a folder, or a dataset id like owner/name@revision"
        )
    return hub_table(source, split=split, config=config, columns=columns)
