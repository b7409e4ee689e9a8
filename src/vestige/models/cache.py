"""Where fetched and converted models are kept."""

import os
import shutil
from pathlib import Path

from vestige.core.errors import MachineError


def cache_folder() -> Path:
    """`$VESTIGE_HOME`, else `$XDG_CACHE_HOME/vestige`, else `~/.cache/vestige`. It may not exist yet.

    A relative `XDG_CACHE_HOME` is ignored, as the XDG base directory specification demands.
    """
    home = os.environ.get("VESTIGE_HOME")
    if home:
        return Path(home).expanduser().absolute()
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "vestige"


def check_room(folder: Path, needed_bytes: int) -> None:
    """Refuse to begin what would fill the disk. `folder` exists."""
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise MachineError(
            f"the disk of {folder} has {free / 1e6:,.0f} MB left where {needed_bytes / 1e6:,.0f} MB are "
            "needed; free some space or set VESTIGE_HOME to a folder on a larger disk"
        )
