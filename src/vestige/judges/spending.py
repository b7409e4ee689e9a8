"""What judging may cost, and the replies that were paid for, on the disk.

Replies lie in one file a request, named by its content, written whole. A file holds every reply to its request, those
too in which no verdict could be read: they were paid for as well. What failed before a reply came is not kept, and is
asked again. No file holds a key. One more file lists all replies with the tokens that they took and the model that gave
them, so that nobody has to open each of them again.

Requests under way are noted before they are sent, so that what a kill cost is known, though its replies are not.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vestige.core.errors import InputError
from vestige.core.files import (
    append_lines,
    drop_torn_line,
    json_line,
    machine_errors,
    read_json,
    read_jsonl,
    write_json,
)
from vestige.core.ids import content_id
from vestige.core.text import one_line
from vestige.judges.base import Prompt
from vestige.models.address import Amount

# English text in the common tokenisers. An estimate; what is booked against a limit is the bound below.
BYTES_PER_TOKEN = 4
# What a chat template puts around two messages, generously.
_TEMPLATE_TOKENS = 64


def estimated_tokens(text: str) -> int:
    """About how many tokens a text takes, where nobody says."""
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


def most_of(prompt: Prompt, reasoning_tokens: int) -> Amount:
    """The most that one call can take: no tokeniser of bytes makes more tokens than there are bytes."""
    sent = len(prompt.system.encode()) + len(prompt.user.encode()) + _TEMPLATE_TOKENS
    return Amount(1, sent, prompt.max_tokens + reasoning_tokens)


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


def request_name(url: str, body: Mapping[str, Any]) -> str:
    """A request's name: the digest of all that can change its reply."""
    return content_id({"version": VERSION, "url": url, "body": body}, length=32)


class ServerReplies:
    """The replies in a folder, the list of them, and notes of the requests that are on their way.

    `taken` is what the listed ones took, and `models` how many there are by (model asked for, model told); `update`
    reads the list on from where it ended the last time. `told` is what has been said of them, so that it is said once.

    A note is written before a request is sent and taken away when its reply is kept, or when none came. A note that is
    there when nobody works in the folder is of a request whose reply nobody has seen: the server may have been paid for
    it, and it is sent again. No note brings a reply back. It is counted, at the most that it can have taken.
    """

    def __init__(self, folder: Path) -> None:
        """Begin with nothing read."""
        self.folder, self.listed = folder, folder / "replies.jsonl"
        self._notes, self._lost = folder / "under-way", folder / "lost.jsonl"
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
            raise InputError(f"{path} is no file of kept replies; remove it to have its request asked again") from error

    def write(self, name: str, url: str, body: Mapping[str, Any], replies: Sequence[Kept]) -> None:
        """Keep all replies to the request so far, of which the last is new, list that one, and take the note away."""
        write_json(self._path(name), {"url": url, "request": body, "replies": [r._asdict() for r in replies]})
        self._list(name, body, replies[-1:])
        self.end(name)

    def _list(self, name: str, body: Mapping[str, Any], replies: Sequence[Kept]) -> None:
        rows = [
            {
                "request": name,
                "asked": body["model"],
                "answered": reply.model,
                "prompt_tokens": reply.prompt_tokens,
                "completion_tokens": reply.completion_tokens,
            }
            for reply in replies
        ]
        append_lines(self.listed, map(json_line, rows))

    def _path(self, name: str) -> Path:
        # Folders of two digits: some systems are slow with a hundred thousand files in one.
        return self.folder / name[:2] / f"{name}.json"

    def begin(self, name: str, n_kept: int, most: Amount) -> None:
        """Note that the request `name`, to which `n_kept` replies lie on the disk, is about to be sent."""
        note = {"request": name, "n_kept": n_kept, **most._asdict()}
        with machine_errors(self._notes):
            self._notes.mkdir(parents=True, exist_ok=True)
            # Not flushed: what the system was given outlives the process, and only the loss of power takes it.
            (self._notes / name).unlink(missing_ok=True)
            with (self._notes / name).open("x") as file:
                file.write(json_line(note))

    def end(self, name: str) -> None:
        """Take the note away."""
        with machine_errors(self._notes):
            (self._notes / name).unlink(missing_ok=True)

    def settle(self) -> None:
        """Turn the notes that a kill left into losses, but for those whose reply was kept after all."""
        drop_torn_line(self._lost)
        for path in sorted(self._notes.iterdir()) if self._notes.is_dir() else ():
            text = path.read_text()
            # One that is not whole was being written, so that its request was not sent yet.
            notes = list(read_jsonl(path)) if text.endswith("\n") else []
            for note in notes:
                name, replies = note["request"], self.read(note["request"])
                if len(replies) <= note["n_kept"]:
                    append_lines(self._lost, [json_line(note)])
                    continue
                # The kill came between keeping the reply and listing it.
                drop_torn_line(self.listed)
                rows = read_jsonl(self.listed) if self.listed.exists() else []
                n_listed = sum(row["request"] == name for row in rows)
                self._list(name, read_json(self._path(name))["request"], replies[n_listed:])
            path.unlink()

    def lost(self) -> Amount:
        """The requests that were under way when a run was killed, once for each time, and the most they can have taken.

        A kill between counting one and taking its note away counts it twice.
        """
        rows = list(read_jsonl(self._lost)) if self._lost.exists() else []
        prompt, completion = (sum(row[name] for row in rows) for name in ("prompt_tokens", "completion_tokens"))
        # Whether the server had begun to answer nobody knows: the most that it can have taken counts.
        return Amount(len(rows), prompt, completion)

    def update(self) -> None:
        """Read what was added to the list."""
        if not self.listed.exists():
            if next(self.folder.glob("[0-9a-f][0-9a-f]/*.json"), None) is not None:
                raise InputError(
                    f"{self.folder} holds replies and no {self.listed.name}, which lists them; take another "
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
            raise InputError(f"{self.listed} is no list of replies; take another output folder") from error

    def other_models(self) -> list[str]:
        """A sentence for each model that was asked for where another's name stands on the replies, or several do."""
        sentences = []
        for model in dict.fromkeys(model for model, _ in self.models):
            counts = {served: n for (name, served), n in self.models.items() if name == model and served}
            if counts.keys() <= {model}:
                continue
            names = ", ".join(f"{one_line(served)!r} ({n:,} replies)" for served, n in counts.items())
            mixed = "; the replies of several models stand side by side" if len(counts) > 1 else ""
            sentences.append(f"the server was asked for the model {one_line(model)!r} and answered as {names}{mixed}")
        return sentences
