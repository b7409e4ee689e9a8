"""`vestige probe`: find the benign knowledge that went with the forget set."""

import typer

from vestige import api
from vestige.cli.command import Call, Part, command
from vestige.cli.options import SOURCE
from vestige.core.errors import InputError
from vestige.report.text import print_holes, print_json

PARTS = {
    "adjacent": Part("vestige.probes.questions:AdjacentSettings", "Adjacent questions", "adjacent"),
    "neighbours": Part("vestige.probes.adjacent:NeighbourSettings", "Adjacent questions", "neighbours"),
    "latent": Part("vestige.probes.latent:LatentSettings", "Search", "latent", first=("n_iterations", "n_examples")),
    "policy": Part("vestige.training.policy.settings:PolicySettings", "Policy of the search", "policy"),
    "answers": Part("vestige.probes.answering:AnswerSettings", "Answers", "answers"),
    "filter": Part("vestige.probes.filters:FilterSettings", "Holes", "filter"),
}


@command(
    api.probe,
    positional=("target", "unlearned"),
    parts={**PARTS, "data": SOURCE},
    spelled={"asks": "policy", "placebos": "placebo"},
    repeated=("placebos",),
    without=("asks_dtype", "truth"),
)
def all_command(call: Call, as_json: bool = False) -> None:
    """Adjacent questions, searches, and which of both are holes: everything, in one folder, with one judge.

    Each part is kept. The same command resumes a stopped run, and repeats only requests that were under way.
    """
    if not call.arguments["searches"]:
        raise InputError("--searches names none. Give latent, random or none")
    found = call.run()
    if as_json:
        return print_json(found.table)
    from vestige.artifacts.layout import ProbeFolder
    from vestige.probes.holes import server_notes

    folder = ProbeFolder(found.path)
    print_holes(found.table)
    for note in server_notes(folder):
        typer.echo(note)
    typer.echo(f"holes in {folder.holes}")
