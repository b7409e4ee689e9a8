"""Items from data of people's own: a file, a folder, or a dataset on the hub.

Recognised columns, the first that fit: `question`/`answer`, `prompt`/`completion`, `instruction`/`output`
(with `input` after a blank line), `messages` (one user turn, one assistant turn). Beside them, where there:
`edge`, `contract` or `person`, `group` or `type`, `paraphrase` or `paraphrased_question`, `paraphrased_answer`,
`perturbed_answer` or `perturbed`, `fact` (the part of the answer that gives it away), `accepted` (other ways to say
that) and `alternatives` (a list of answers that cannot be told from the true one). The files that PISTOL and TOFU
publish are read as they are, and so is multiple-choice data in the forms of `mcq_loaders`, unless a column is named.
"""

from pathlib import Path

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.core.text import one_line
from vestige.data import hub
from vestige.data.columns import RECOGNISED, Keys, choose_columns, items_of
from vestige.data.mcq_loaders import COLUMNS as OPTION_COLUMNS
from vestige.data.mcq_loaders import as_questions
from vestige.data.tables import FORMS, Table, read_table

Limit = int | float
"""A whole number of rows, or a share of them as a float in (0, 1]."""


def load_items(
    source: str | Path,
    *,
    question_key: str | None = None,
    answer_key: str | None = None,
    edge_key: str | None = None,
    group_key: str | None = None,
    split: str = "train",
    config: str | None = None,
    limit: Limit | None = None,
    keep_duplicates: bool = False,
) -> tuple[Item, ...]:
    """The items of `source`, in its order; InputError names file, line and column of what is wrong.

    A local path is looked for first; its extension decides the form. `split` and `config` concern folders
    and the hub. `limit` takes the first rows; those after them are parsed and not checked. `keep_duplicates`
    admits a question twice where the answers differ (TOFU's full set has one).
    """
    keys = Keys(question_key, answer_key, edge_key, group_key)
    found = source_table(source, split=split, config=config, wanted=RECOGNISED | OPTION_COLUMNS | keys.named)
    kept = found.rows if limit is None else found.rows[: n_first(limit, len(found.rows))]
    found = Table(found.source, found.names, kept)
    if keys.question is None and keys.answer is None:
        found = as_questions(found)
    columns = choose_columns(found.source, found.names, keys)
    return items_of(found, columns, keep_duplicates=keep_duplicates)


def parse_limit(text: str) -> Limit:
    """The limit that `text` means: `20` is twenty rows, `0.1` a tenth of them, `1.0` all."""
    try:
        limit: Limit = int(text) if text.strip().isdecimal() else float(text)
    except ValueError as error:
        raise InputError(f"limit {one_line(repr(text))}: give a number of rows (20) or a share (0.1)") from error
    n_first(limit, 1)
    return limit


def n_first(limit: Limit, n: int) -> int:
    """How many of `n` rows `limit` takes: a share is rounded to whole rows, and takes at least one."""
    whole = isinstance(limit, int) and not isinstance(limit, bool)
    if not (limit >= 1 if whole else isinstance(limit, float) and 0 < limit <= 1):
        raise InputError(f"limit {limit!r}: give a number of rows from 1 up, or a share above 0 up to 1.0")
    return min(n, int(limit) if whole else max(1, round(limit * n)))


def source_table(source: str | Path, *, split: str, config: str | None, wanted: frozenset[str]) -> Table:
    """The rows of a file, a folder or a data set on the hub; of the latter two only the columns `wanted`."""
    path = Path(source).expanduser()
    try:
        if path.is_dir():
            return hub.folder_table(path, split=split, config=config, wanted=wanted)
        if path.is_file():
            return read_table(path)
    except ValueError as error:  # A NUL in the name.
        raise InputError(f"{one_line(repr(str(source)))}: no file can have this name") from error
    if isinstance(source, Path) or path.suffix.lower() in FORMS or not hub.is_hub_id(source):
        raise InputError(
            f"{one_line(str(source))}: no such file or folder; "
            f"give a file ({', '.join(FORMS)}), a folder, or a dataset id like owner/name@revision"
        )
    return hub.hub_table(source, split=split, config=config, wanted=wanted)
