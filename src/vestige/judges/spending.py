"""The spending limits of judging, and the stored replies.

Replies are in one file for each request, named by its content and written whole. A file holds every reply to its
request, those without a verdict too, because they were paid for as well. No file holds a key. One more file counts all
replies: a line for each, with its tokens and the model that gave it.

A reply is counted before it is stored. So a kill never loses a count, and a reply that a kill lost counts.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vestige.core.errors import InputError
from vestige.core.files import append_lines, drop_torn_line, json_line, read_json, write_json
from vestige.core.ids import content_id
from vestige.core.text import one_line
from vestige.judges.base import Prompt
from vestige.models.address import Amount

# English text in the common tokenisers. An estimate; what is booked against a limit is the bound below.
BYTES_PER_TOKEN = 4
# What a chat template puts around two messages, generously.
_TEMPLATE_TOKENS = 64


def estimated_tokens(text: str) -> int:
    """Estimate the number of tokens in a text."""
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


def most_of(prompt: Prompt, reasoning_tokens: int) -> Amount:
    """The most that one call can take: no tokeniser of bytes makes more tokens than there are bytes."""
    sent = len(prompt.system.encode()) + len(prompt.user.encode()) + _TEMPLATE_TOKENS
    return Amount(1, sent, prompt.max_tokens + reasoning_tokens)


VERSION = 1
"""Part of each request's identity. Raised when an old reply must not represent a new one."""


class Kept(NamedTuple):
    """One reply with its tokens. `estimated` if the server did not say how many."""

    text: str
    finish: str
    prompt_tokens: int
    completion_tokens: int
    estimated: bool
    model: str


def request_name(url: str, body: Mapping[str, Any]) -> str:
    """A request's name: the digest of all that can change its reply."""
    return content_id({"version": VERSION, "url": url, "body": body}, length=32)


class ServerReplies:
    """The replies in a folder, and their count.

    `taken` is the sum of the counted replies, and `models` how many there are by (model asked for, model told).
    `update` reads the count on from where it ended. `told` has the printed notes, so that each is printed once.
    """

    def __init__(self, folder: Path) -> None:
        """Begin with nothing read."""
        self.folder = folder
        self.listed = folder / "replies.jsonl"
        self._n_read = 0
        self.taken = Amount(0, 0, 0)
        self.models: Counter[tuple[str, str]] = Counter()
        self.told: set[str] = set()

    def read(self, name: str) -> list[Kept]:
        """All replies to the request, oldest first."""
        path = self._path(name)
        if not path.exists():
            return []
        stored = read_json(path)
        try:
            return [Kept(**reply) for reply in stored["replies"]]
        except (TypeError, KeyError) as error:
            raise InputError(f"{path} is no file of kept replies. Remove it to have its request asked again") from error

    def write(self, name: str, url: str, body: Mapping[str, Any], replies: Sequence[Kept]) -> None:
        """Count the last reply to a request, and store all replies."""
        reply = replies[-1]
        row = {
            "request": name,
            "asked": body["model"],
            "answered": reply.model,
            "prompt_tokens": reply.prompt_tokens,
            "completion_tokens": reply.completion_tokens,
        }
        append_lines(self.listed, [json_line(row)])
        write_json(self._path(name), {"url": url, "request": body, "replies": [r._asdict() for r in replies]})

    def _path(self, name: str) -> Path:
        # Folders of two digits: some systems are slow with a hundred thousand files in one.
        return self.folder / name[:2] / f"{name}.json"

    def mend(self) -> None:
        """Drop a line that a kill left torn. Only who has the folder's lock may."""
        drop_torn_line(self.listed)

    def update(self) -> None:
        """Read new entries of the list."""
        if not self.listed.exists():
            if next(self.folder.glob("[0-9a-f][0-9a-f]/*.json"), None) is not None:
                raise InputError(
                    f"{self.folder} holds replies and no {self.listed.name}, which lists them. Take another "
                    "output folder, or remove this one to have everything asked again"
                )
            return
        with self.listed.open("rb") as file:
            file.seek(self._n_read)
            added = file.read()
        # A line that another process is writing just now is read the next time.
        added = added[: added.rfind(b"\n") + 1]
        self._n_read += len(added)
        try:
            for row in map(json.loads, added.splitlines()):
                self.taken = self.taken.plus(Amount(1, int(row["prompt_tokens"]), int(row["completion_tokens"])))
                self.models[str(row["asked"]), str(row["answered"])] += 1
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InputError(f"{self.listed} is no list of replies. Take another output folder") from error

    def other_models(self) -> list[str]:
        """Return a sentence for each model whose replies carry another or several names."""
        sentences = []
        for model in dict.fromkeys(model for model, _ in self.models):
            counts = {served: n for (name, served), n in self.models.items() if name == model and served}
            if counts.keys() <= {model}:
                continue
            names = ", ".join(f"{one_line(served)!r} ({n:,} replies)" for served, n in counts.items())
            mixed = ""
            if len(counts) > 1:
                mixed = "; the replies of several models stand side by side"
            sentences.append(f"the server was asked for the model {one_line(model)!r} and answered as {names}{mixed}")
        return sentences
