"""`vestige evaluate`: asks a model."""

from typing import TYPE_CHECKING

import typer

from vestige import api
from vestige.cli.command import Call, command
from vestige.cli.options import EVALUATIONS, SOURCE
from vestige.report.text import print_json, print_results

if TYPE_CHECKING:
    from vestige.api import Results


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
