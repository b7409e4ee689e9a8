"""What a test reads of a report: elements and text of a page, rows of a table."""

import csv
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

LOADING = {"img", "iframe", "object", "embed", "form", "base", "video", "audio"}


class Elements(HTMLParser):
    """Every element with its attributes, and the text that directly follows its start."""

    def __init__(self, page: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[list[str]] = []
        self.inside = False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self.texts.append([])
        self.inside = True

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.texts[-1].append(data)

    def contents(self, tag):
        return ["".join(t) for (name, _), t in zip(self.found, self.texts, strict=True) if name == tag]


def inert(page: str) -> Elements:
    """The elements of a page, none of which loads, links out or acts: the data and the script are all that is there."""
    elements = Elements(page)
    for tag, attributes in elements.found:
        assert tag not in LOADING
        assert not any(name.startswith("on") or name in ("style", "src", "srcset") for name in attributes), tag
        target = attributes.get("href") or ""
        assert target in ("", "data:,") or target.startswith("#"), target
    assert [tag for tag, _ in elements.found].count("script") == 2
    return elements


def words(page: str, between: str = "") -> str:
    """The text of a page as it is without its script."""
    text = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", between, text).replace("\N{NO-BREAK SPACE}", " ").split())


def table(run: Path, name: str) -> list[dict[str, str]]:
    """The rows of a table."""
    with (run / "tables" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def bytes_of(run: Path) -> dict[str, bytes]:
    """Every file that a report wrote."""
    made = [run / "report.html", *(run / "tables").iterdir()]
    return {str(p.relative_to(run)): p.read_bytes() for p in sorted(made)}


def colours_of(scheme):
    """The colours of the page by name, as its style sheet has them."""
    light, _, dark = (files("vestige.report") / "page" / "colours.css").read_text(encoding="utf-8").partition("@media")
    return dict(re.findall(r"--([\w-]+): (#\w+);", light if scheme == "light" else dark))
