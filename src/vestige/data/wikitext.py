"""Wikitext (Merity et al., Pointer Sentinel Mixture Models, 1609.07843): paragraphs with the title of their article.

Read are its text files (`wiki.test.raw`, `test.txt`) and its form on the hub, a line of the file in each row. A
heading stands alone on its line between equals signs, one on either side for an article. The marks of its tokeniser
are undone: ` @-@ ` is `-`, and signs are joined to the words that they belong to. `<unk>`, which the raw files do not
have, is left as it is.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from vestige.core.errors import InputError
from vestige.data.loaders import source_table
from vestige.data.passages import NO_TEXT, Passage, passage, usable
from vestige.data.sampling import Sampled, sampled

HUB, CONFIG, SPLIT = "Salesforce/wikitext", "wikitext-2-raw-v1", "test"
"""Where RMU's code takes it from."""
HEADING = "a heading or an empty line"

FILES = (".txt", ".raw", ".tokens")
_MARKS = re.compile(r" @([-,.])@ ")
_BEFORE = re.compile(r" +(?=[,.;:!?%)\]]|'(?:s|t|re|ve|ll|d|m)\b)")
_AFTER = re.compile(r"(?<=[(\[$£]) +")


def load_wikitext(
    source: str | Path = HUB, *, n: int | None = None, seed: int = 0, split: str = SPLIT, config: str | None = CONFIG
) -> Sampled[Passage]:
    """`n` paragraphs; `split` and `config` are for the hub."""
    path = Path(source).expanduser()
    if path.is_file() and path.suffix in FILES:
        lines: Iterable[object] = _lines(path)
    else:
        table = source_table(source, split=split, config=config, wanted=frozenset({"text"}))
        if "text" not in table.names:
            raise InputError(f"{table.source}: no column 'text'; give Wikitext's lines in a column of that name")
        lines = (row.values.get("text") for row in table.rows)
    return sampled(str(source), _paragraphs(lines), n=n, seed=seed)


def joined(text: str) -> str:
    """A line without the marks of the tokeniser, each sign beside its word."""
    return _AFTER.sub("", _BEFORE.sub("", _MARKS.sub(r"\1", text))).strip()


def _paragraphs(lines: Iterable[object]) -> Iterator[Passage | str]:
    title = ""
    for line in lines:
        plain = line.strip() if isinstance(line, str) else ""
        if isinstance(line, str) and plain and not usable(line):
            yield NO_TEXT
        elif not plain or (plain.startswith("= ") and plain.endswith(" =")):
            if plain and not plain.startswith("= = "):
                title = joined(plain.strip("= "))
            yield HEADING
        else:
            yield passage(joined(plain), title)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_bytes().decode("utf-8-sig").split("\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); give a text file") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}); save the file as UTF-8") from error
