"""What the commands that train one model share: its processes, its folder, what is shown meanwhile and said after."""

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import typer

from vestige.cli.asked import say
from vestige.cli.output import output_in
from vestige.cli.progress import progress_bar
from vestige.cli.trajectory import refuse_unmet, sentence, told

if TYPE_CHECKING:
    from vestige.artifacts.layout import SubjectFolder
    from vestige.steps.making import Made
    from vestige.training.loop import Progress
    from vestige.training.parallel import Kind, World
    from vestige.training.tracking import Line

    Make: TypeAlias = Callable[[SubjectFolder, Callable[[Progress], None], World, Callable[[Line], None]], Made]


@dataclass(frozen=True)
class Output:
    """The folder of what is made, whether to start over there, what may not lie in it, and the form of what is said."""

    folder: Path
    fresh: bool
    inputs: tuple[str | None, ...]
    as_json: bool


@dataclass(frozen=True)
class Tracked:
    """Where the log goes besides, if anywhere, and what the run is called there."""

    to: str | None
    name: str
    id: str
    config: Mapping[str, Any]


def make_in(output: Output, tracking: Tracked, kind: "Kind | None", what: str, make: "Make") -> None:
    """Make a subject in the folder and say what it is; of several processes one writes, shows and speaks.

    `what` says in words what is done, before it begins and beside the progress.
    """
    from vestige.artifacts.layout import SubjectFolder
    from vestige.training.parallel import joined
    from vestige.training.tracking import tracked

    with joined(kind) as world, contextlib.ExitStack() as held:
        if world.leads:
            place = output_in(output.folder, fresh=output.fresh, made_by=("spec.json",), inputs=output.inputs)
            held.enter_context(place)
            say(what)
        world.wait()
        to = tracking.to if world.leads else None
        with (
            progress_bar(what.partition(": ")[0], shown=world.leads) as show,
            tracked(to, name=tracking.name, id_=tracking.id, config=tracking.config) as send,
        ):
            made = make(
                SubjectFolder(output.folder),
                lambda p: show(p.step / p.n_steps, f"epoch {p.epoch}, loss {p.loss:.3f}"),
                world,
                send,
            )
    if world.leads:
        typer.echo(json.dumps(told(output.folder, made), indent=2) if output.as_json else sentence(output.folder, made))
    refuse_unmet(output.folder, made)
