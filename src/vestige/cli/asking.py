"""`vestige attack`, `vestige evaluate` and `vestige probe`: the commands that ask a model.

An attack asks the model before and after it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from vestige import api
from vestige.cli.command import Call, Part, command, settings_rows
from vestige.cli.data import SOURCE
from vestige.core.errors import InputError
from vestige.core.text import Fields
from vestige.evals import EVALS
from vestige.report.text import print_attack, print_holes, print_json, print_results

if TYPE_CHECKING:
    from vestige.api import Results

EVALUATIONS = tuple(Part(home, f"Evaluation {name}", name) for name, home in EVALS.items())
NO_EVIDENCE = (
    "A gain shows a recovery only in comparison with retrained models: `vestige audit` makes the same attack on them."
)
RENAMED = {"relearn": {"also": ""}, "in_context": {"facts": "items"}}
FIRST = {
    "relearn": ("material", "items", "rate", "epochs", "rank"),
    "gcg": ("items", "placement", "tokens", "steps", "width"),
    "prefix": ("items", "tokens", "steps", "candidates"),
}
"""The settings of an attack that --help shows first."""
COMMON = "data forget output_dir evals max_new_tokens retain role seed device json items material bits target"


def attack_command(kind: str) -> Callable[..., None]:
    """The command of one attack. Packages can add attacks.

    A plug-in's settings use `--set NAME.KEY=VALUE`, like a method's.
    """
    from vestige.attacks import known_attacks

    home, about = known_attacks()[kind].home, known_attacks()[kind].about
    part = Part(home, "Attack", renamed=RENAMED.get(kind, {}), first=FIRST.get(kind, ()))
    how: Fields = {
        "parts": {"attack": part, "data": SOURCE, "evals": EVALUATIONS},
        # Only a prefix search uses the target's words.
        "required" if kind == "prefix" else "without": ("target",),
        # The settings of another package's attack are in no table, and have a key after its name.
        "open_names": lambda typed, given: () if settings_rows(part.home) else (kind,),
        "common": COMMON,
    }

    def run(call: Call, as_json: bool = False) -> None:
        from vestige.attacks.planning import find_attack

        # The table, from which options are made, only knows the classes of this package.
        given = {**call.given.of(part), **call.given.named(kind)}
        attack = find_attack(kind).build(given, where=f"attack {kind}")
        print_attack(call.run(attack=attack), note=NO_EVIDENCE, as_json=as_json)

    # An f-string in the function would not be a docstring, and --help takes its text from there.
    run.__doc__ = f"{about}\n\nMODEL is asked about the forget items before and after, and stays as it is."
    return command(api.attack, **how)(run)


@command(
    api.evaluate,
    parts={"data": SOURCE, "evals": EVALUATIONS},
    without=("summarize",),
    common="data forget retain evals output_dir role name max_new_tokens seed device json config",
)
def evaluate_command(call: Call, as_json: bool = False) -> None:
    """Evaluate MODEL on the data set. Print estimates by split, with intervals and n.

    Keeps per-item records and the summary. The same command resumes a stopped run.
    """
    results = call.run()
    pairs = list(zip(results.summaries, results.evidence, strict=True))
    if as_json:
        places = {summary.eval: str(folder) for summary, folder in pairs}
        return print_json({"evidence": places, "results": list(results.rows)})
    for summary, folder in pairs:
        print_results(summary)
        for how in sorted({r.estimate.interval for r in summary.results if r.estimate.metric == "leaked_corrected"}):
            typer.echo(f"leaked_corrected: {how} (labelled replies)")
        typer.echo(f"evidence in {folder}")
    _say_next(results, call)


def _say_next(results: "Results", call: Call) -> None:
    """The command that follows from the role of the model. Capitals are for values that only the user knows."""
    from vestige.api.output import say_next

    name, words = call.arguments["model"], call.data_words(call.arguments.get("forget") or "FORGET")
    if results.role == "unlearned":
        models = ("--target", "TARGET", "--unlearned", name, "--retrained", "CONTROL")
        say_next("audit", "--quick", *models, *words, "--output-dir", "RUN")
    elif results.role == "target":
        say_next("unlearn", name, "--method", "npo_gd", *words, "--learning-rate", "RATE", "--output-dir", "UNLEARNED")


PARTS = {
    "adjacent": Part("vestige.probes.questions:AdjacentSettings", "Adjacent questions", "adjacent"),
    "latent": Part("vestige.probes.questions:LatentSettings", "Search", "latent", first=("n_iterations", "n_examples")),
    "policy": Part("vestige.training.policy.settings:PolicySettings", "Policy of the search", "policy"),
    "answers": Part("vestige.probes.questions:AnswerSettings", "Answers", "answers"),
    "filter": Part("vestige.probes.questions:FilterSettings", "Holes", "filter"),
}


@command(
    api.probe,
    positional=("target", "unlearned"),
    parts={**PARTS, "data": SOURCE},
    spelled={"asks": "policy", "placebos": "placebo"},
    repeated=("placebos",),
    without=("asks_dtype", "truth"),
)
def probe_command(call: Call, as_json: bool = False) -> None:
    """Look for knowledge holes: make adjacent questions, search from them, and test both with one judge.

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
