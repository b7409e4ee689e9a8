"""Requests that are on their way, on the disk: so that what a kill cost is known, though its replies are not.

A note is written before a request is sent and taken away when its reply is kept, or when none came. A note that is
there when nobody works in the folder is of a request whose reply nobody has seen: the server may have been paid for it,
and it is sent again. No note brings a reply back. It is counted, at the most that it can have taken.
"""

from pathlib import Path
from typing import NamedTuple

from vestige.core.files import append_lines, drop_torn_line, json_line, machine_errors, read_jsonl
from vestige.judges.kept import Shelf
from vestige.judges.spending import Amount


class UnderWay(NamedTuple):
    """The notes in the folder of the replies, and the list of what was lost."""

    folder: Path

    def begin(self, name: str, n_kept: int, most: Amount) -> None:
        """Note that the request `name`, to which `n_kept` replies lie on the disk, is about to be sent."""
        note = {"request": name, "n_kept": n_kept, **most._asdict()}
        with machine_errors(self._notes):
            self._notes.mkdir(parents=True, exist_ok=True)
            # Not flushed: what the system was given outlives the process, and only the loss of power takes it.
            (self._notes / name).write_text(json_line(note))

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
            shelf = Shelf(self.folder)
            for note in notes:
                if len(shelf.read(note["request"])) <= note["n_kept"]:
                    append_lines(self._lost, [json_line(note)])
                else:
                    shelf.list_unlisted(note["request"])
            path.unlink()

    def lost(self) -> Amount:
        """The requests that were under way when a run was killed, once for each time, and the most they can have taken.

        A kill between counting one and taking its note away counts it twice.
        """
        rows = list(read_jsonl(self._lost)) if self._lost.exists() else []
        prompt, completion = (sum(row[name] for row in rows) for name in ("prompt_tokens", "completion_tokens"))
        return Amount(len(rows), prompt, completion)

    @property
    def _notes(self) -> Path:
        return self.folder / "under-way"

    @property
    def _lost(self) -> Path:
        return self.folder / "lost.jsonl"
