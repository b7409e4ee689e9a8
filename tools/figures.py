"""Copies figures from benchmarks/ into the pages, between `<!-- figures: NAME -->` and `<!-- /figures -->`.

`tools/figures.toml` names for each block its source, section, rows, columns, command, commit, date and processor, or
the module whose `pages` computes the table from stored scores.
`python tools/figures.py` writes the blocks; with `--check` it ends with 1 if a page has other figures than its source.
"""

import re
import sys
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(<!-- figures: ([\w-]+) -->\n)(.*?)(<!-- /figures -->)", flags=re.DOTALL)


def table_of(source: str, section: str) -> list[dict[str, str]]:
    """Return the rows of the first table in a section of a results page."""
    text = (ROOT / source).read_text(encoding="utf-8")
    _, found, rest = text.partition(f"# {section}\n")
    if not found:
        raise SystemExit(f"{source} has no section {section!r}")
    lines: list[list[str]] = []
    for line in rest.splitlines():
        if line.startswith("|"):
            lines.append([cell.strip().strip("*") for cell in line.strip("|").split("|")])
        elif lines or line.startswith("#"):
            break
    if len(lines) < 3:
        raise SystemExit(f"the section {section!r} of {source} has no table")
    return [dict(zip(lines[0], cells, strict=True)) for cells in lines[2:]]


def chosen(rows: list[dict[str, str]], figure: dict[str, Any]) -> list[dict[str, str]]:
    """Return the rows and columns of a block; a row or column that its source lacks ends the command."""
    first = next(iter(rows[0]))
    if "rows" in figure:
        by_name = {row[first]: row for row in rows}
        rows = [by_name[name] for name in figure["rows"]]
    columns = figure.get("columns", list(rows[0]))
    return [{name: row[name] for name in columns} for row in rows]


@cache
def computed(module: str) -> dict[str, str]:
    """Return the tables of a module in benchmarks/ by title."""
    sys.path.insert(0, str(ROOT))
    return dict(import_module(module).pages())


def block(figure: dict[str, Any]) -> str:
    """Return the text of a block: a table, or a sentence with values; then command, commit, date and processor."""
    if "module" in figure:
        return f"{computed(figure['module'])[figure['table']]}\n"
    rows = table_of(figure["source"], figure["section"])
    origin = f"Source: `{figure['source']}`, `{figure['command']}`, {figure['commit']}, {figure['processor']}."
    if "text" in figure:
        first = next(iter(rows[0]))
        largest = {name: max(float(row[name]) for row in rows) for name in figure.get("largest", [])}
        cells = {name: row for row in rows if (name := row[first]) in figure.get("rows", [])}
        return f"{figure['text'].format(largest=largest, cells=cells)}\n{origin}\n"
    rows = chosen(rows, figure)
    lines = ["| " + " | ".join(rows[0]) + " |", "| " + " | ".join("---" for _ in rows[0]) + " |"]
    lines += ["| " + " | ".join(row.values()) + " |" for row in rows]
    return "\n".join([*lines, "", origin, ""])


def main() -> int:
    """Write all blocks, or with `--check` compare them."""
    figures = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    used: set[str] = set()
    stale: list[str] = []
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        names = [name for _, name, _, _ in BLOCK.findall(text)]
        used.update(names)
        new = BLOCK.sub(lambda found: found[1] + block(figures[found[2]]) + found[4], text)
        if new == text:
            continue
        stale.append(page.relative_to(ROOT).as_posix())
        if "--check" not in sys.argv:
            page.write_text(new, encoding="utf-8")
    for name in sorted(set(figures) - used):
        print(f"no page has the figures {name!r}", file=sys.stderr)
    if "--check" in sys.argv and stale:
        print(f"other figures than their source: {', '.join(stale)}; run python tools/figures.py", file=sys.stderr)
        return 1
    return int(used != set(figures))


if __name__ == "__main__":
    sys.exit(main())
