"""The parts of a probe's work on disk: each with an identity, and refused where another lies in its place."""

from collections.abc import Mapping
from typing import Any

from vestige.artifacts.layout import ProbeFolder
from vestige.artifacts.records import SCHEMA, read_versioned
from vestige.core.errors import InputError
from vestige.core.files import write_json
from vestige.core.ids import changed_keys, content_id

VERSION = 1
"""Part of every identity; raised when the code would find something else."""


def is_there(folder: ProbeFolder, part: str, identity: Mapping[str, Any]) -> bool:
    """Whether the part is done; another one in its place is refused."""
    refuse_another(folder, part, identity)
    return folder.asked(part).exists()


def refuse_another(folder: ProbeFolder, part: str, identity: Mapping[str, Any]) -> None:
    """Refuse a folder that holds the part with another identity; the error names what differs."""
    if not folder.asked(part).exists():
        return
    theirs = read_versioned(folder.asked(part), "identity")["identity"]
    # Both as they come from the disk, where a tuple is a list.
    if content_id(theirs) != content_id(dict(identity)):
        changed = ", ".join(changed_keys(dict(identity), theirs)) or "the form of its values"
        raise InputError(
            f"{folder.path} holds the part {part!r} made otherwise (it differs in {changed}); choose another "
            "--output-dir or delete this one"
        )


def put_down(folder: ProbeFolder, part: str, identity: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Write the identity of a part, and what is told of its making."""
    write_json(folder.asked(part), {"schema": SCHEMA, "identity": dict(identity), "found": dict(found)})
