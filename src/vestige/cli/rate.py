"""`vestige find-rate`: the learning rate at which a method reaches a goal."""

from dataclasses import asdict
from typing import Any

import typer

from vestige.cli.command import Call, command
from vestige.cli.options import SOURCE, UNLEARNING
from vestige.cli.training import method_names
from vestige.core.errors import GoalNotReached, InputError
from vestige.core.text import one_line
from vestige.experiments.rates import find_rate
from vestige.report.text import print_json, print_table

# The rates that are tried replace the one of the training.
TRAINED = UNLEARNING._replace(renamed={"learning_rate": ""})


@command(
    find_rate,
    parts={"training": TRAINED, "data": SOURCE},
    repeated=("rates",),
    without=("method_settings",),
    open_names=method_names,
    common="method goal rates data forget output_dir retain metric items epochs seed config",
)
def find_rate_command(call: Call, as_json: bool = False) -> None:
    """Unlearn at each rate and choose the one that reaches the goal best: 'forget<=0.3' or 'retain>=0.9'.

    Exit code 7: no rate reaches the goal. The nearest is printed.
    """
    from vestige.api.output import say_next

    changes: dict[str, Any] = {"method_settings": call.given.named(call.arguments["method"])}
    if call.arguments.get("rates"):
        changes["rates"] = _numbers(call.arguments["rates"])
    found = call.run(**changes)
    if as_json:
        print_json({**asdict(found), "candidates": found.rows})
    else:
        _print(found)
    if not found.reached:
        raise GoalNotReached(f"no rate reaches {found.goal}. Try others with --rates, or train longer with --epochs")
    method = call.arguments["method"]
    rate = ("--learning-rate", f"{found.rate:g}")
    say_next("unlearn", call.arguments["model"], "--method", method, *call.data_words(), *rate)


def _numbers(words: list[str]) -> list[float]:
    """Return the rates of several options, each of which may be a list with commas."""
    numbers = []
    for word in ",".join(words).split(","):
        try:
            numbers.append(float(word))
        except ValueError as error:
            raise InputError(f"--rates {one_line(word)!r} is no number. Give rates such as 1e-5,3e-5") from error
    return numbers


def _print(found: Any) -> None:
    rows = []
    for candidate in found.candidates:
        scores = [candidate.broke_down, ""]
        if not candidate.broke_down:
            scores = [f"{candidate.forget:.3f}", f"{candidate.retain:.3f}"]
        chosen = "chosen" if candidate.rate == found.rate else ""
        rows.append([f"{candidate.rate:g}", *scores, chosen])
    print_table(f"{found.metric}, questions that choose", ["rate", "forget", "retain", ""], rows)
    if found.rate is not None:
        typer.echo(f"chosen: {found.rate:g}; on other questions forget {found.forget:.3f}, retain {found.retain:.3f}")
