"""Writes docs/llms.txt, the list of pages for language models (llmstxt.org), from the navigation of mkdocs.yml."""

import re
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "llms.txt"
GENERATED = {"cli.md": "All commands and options.", "reference.md": "All public functions and classes."}


def first_sentence(page: str) -> str:
    """Return the first sentence of a page's first paragraph, without links."""
    if page in GENERATED:
        return GENERATED[page]
    for paragraph in (ROOT / "docs" / page).read_text(encoding="utf-8").split("\n\n"):
        if re.match(r"[A-Z`\[*]", paragraph) and not paragraph.startswith("**["):
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
            return re.split(r"(?<=[.!?:]) (?=[A-Z])", text)[0].rstrip(":")
    return ""


def lines_of(entries: list[Any], level: int) -> list[str]:
    """Return the lines of a part of the navigation."""
    lines: list[str] = []
    for entry in entries:
        ((title, target),) = entry.items()
        if isinstance(target, str):
            site = target.removesuffix(".md") + ".html"
            lines.append(f"- [{title}]({site}): {first_sentence(target)}".rstrip(": "))
        else:
            lines += ["", f"{'#' * level} {title}", "", *lines_of(target, level + 1)]
    return lines


def text() -> str:
    """Return the whole file."""
    settings = re.sub(r"!!\S+", "", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    config = yaml.safe_load(settings)
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}", "", *lines_of(config["nav"], 2)]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the file, or with `--check` compare it."""
    if "--check" not in sys.argv:
        PAGE.write_text(text(), encoding="utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text():
        return 0
    print("docs/llms.txt is not what the pages make; run python tools/llms.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
