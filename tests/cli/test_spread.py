"""Options that commands share as a dataclass: what typer sees of a command, and what the command is given."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from vestige.cli.spread import spread


@dataclass(frozen=True)
class Size:
    """Two options, one of which has to be given."""

    width: Annotated[int, typer.Option(help="How wide.")]
    depth: Annotated[int, typer.Option("--deep", help="How deep.")] = 3


def app_of(command) -> typer.Typer:
    app = typer.Typer(add_completion=False)
    app.command()(spread(command))
    return app


def test_a_command_gets_the_dataclass_and_typer_sees_its_options_where_it_stood():
    def command(name: Annotated[str, typer.Argument()], size: Size, loud: bool = False) -> None:
        """Says what it was given."""
        typer.echo(f"{name} {size} {loud}")

    app = app_of(command)
    assert CliRunner().invoke(app, ["box", "--width", "5", "--loud"]).stdout == "box Size(width=5, depth=3) True\n"
    assert (
        CliRunner().invoke(app, ["box", "--width", "5", "--deep", "1"]).stdout == "box Size(width=5, depth=1) False\n"
    )
    told = CliRunner().invoke(app, ["--help"]).stdout
    assert told.index("How wide.") < told.index("How deep.") < told.index("--loud")
    assert "Says what it was given." in told


def test_an_option_without_a_default_has_to_be_typed():
    def command(size: Size) -> None:
        """Does nothing."""

    refused = CliRunner().invoke(app_of(command), [])
    assert (refused.exit_code, "--width" in refused.output) == (2, True)


def test_two_options_of_one_name_are_refused_before_anything_is_typed():
    def command(width: int, size: Size) -> None:
        """Does nothing."""

    with pytest.raises(ValueError, match="duplicate parameter name: 'width'"):
        spread(command)
