"""Replies that were paid for, on the disk: one file a request, named by its content, written whole.

A file holds every reply to its request, those too in which no verdict could be read: they were paid for as well. What
failed before a reply came is not kept, and is asked again. No file holds a key.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from vestige.core.errors import InputError
from vestige.core.files import read_json, write_json
from vestige.core.ids import content_id

VERSION = 1
"""Part of each request's identity; raised when an old reply must not stand for a new one."""


class Kept(NamedTuple):
    """One reply with its tokens; `estimated` if the server did not say how many."""

    text: str
    finish: str
    prompt_tokens: int
    completion_tokens: int
    estimated: bool
    model: str


class Shelf(NamedTuple):
    """The folder of replies."""

    folder: Path

    def name(self, url: str, body: Mapping[str, Any]) -> str:
        """A request's name: the digest of all that can change its reply."""
        return content_id({"version": VERSION, "url": url, "body": body}, length=32)

    def read(self, name: str) -> list[Kept]:
        """All replies to the request, oldest first."""
        path = self._path(name)
        if not path.exists():
            return []
        kept = read_json(path)
        try:
            return [Kept(**reply) for reply in kept["replies"]]
        except (TypeError, KeyError) as error:
            raise InputError(f"{path} is no file of kept replies; remove it to have its request asked again") from error

    def everything(self) -> Iterator[list[Kept]]:
        """The replies to every request in the folder."""
        for path in sorted(self.folder.glob("[0-9a-f][0-9a-f]/*.json")):
            yield self.read(path.stem)

    def write(self, name: str, url: str, body: Mapping[str, Any], replies: list[Kept]) -> None:
        """Keep all replies to the request so far."""
        write_json(self._path(name), {"url": url, "request": body, "replies": [r._asdict() for r in replies]})

    def _path(self, name: str) -> Path:
        # Folders of two digits: some systems are slow with a hundred thousand files in one.
        return self.folder / name[:2] / f"{name}.json"
