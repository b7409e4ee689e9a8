"""`vestige view`: the reports of runs in a browser, while they go on."""

from pathlib import Path
from typing import Annotated

import typer


def view_command(
    runs: Annotated[Path, typer.Argument(help="The folder of a run, or a folder of runs.")],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 takes a free one.")] = 0,
) -> None:
    """Serve the reports of RUNS to this machine's browser, side by side and up to date, until stopped by Ctrl-C.

    Nothing is written, and no other machine is answered.
    """
    from vestige.report.view import serve

    with serve(runs, port) as server:
        typer.echo(f"view: http://127.0.0.1:{server.server_port}/")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("stopped")
