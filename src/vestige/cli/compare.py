"""`vestige compare`: paired differences of models on the same questions."""

from collections.abc import Sequence
from pathlib import Path

import typer

from vestige.cli.command import itself
from vestige.core.errors import InputError
from vestige.report.text import print_json

WORSE = 3
"""The exit code if a model scores lower than the first."""
OPEN = 4
"""The exit code if missing questions leave a difference open."""


@itself(positional=("logs",), repeated=("logs",))
def compare_command(
    logs: Sequence[str],
    clusters: Path | None = None,
    difference: float | None = None,
    output: Path | None = None,
    seed: int = 0,
    as_json: bool = False,
) -> None:
    """Compare models on the same questions by their logs: difference, 95 % interval, p-value, questions needed.

    No control and no target are needed. Exit code 0: no model scores lower than the first. 3: one model scores lower.
    4: no significant decrease, but there are too few groups, or questions missing from a log could change a finding.

    Args:
        logs: Logs, folders of logs, tables of scores or folders of audits. The first is the one to compare with.
        clusters: A CSV file with the columns item (id or text of a question) and cluster.
        difference: Print the number of questions that this difference needs.
        output: Also write the comparison to this file: a page if its name ends in .html, otherwise a Markdown table.
        seed: Seed of the resamples.
    """
    from vestige.api import compare
    from vestige.core.files import write_text

    if difference is not None and difference < 0:
        raise InputError(f"--difference {difference:g} is below 0. Give the size of the difference.")
    compared = compare(*logs, clusters=_clusters(clusters), difference=difference, seed=seed)
    if output is not None:
        write_text(output, compared.page if output.suffix == ".html" else compared.markdown)
    if as_json:
        print_json({"rows": compared.rows, "verdicts": compared.verdicts})
    else:
        typer.echo(compared.markdown, nl=False)
    findings = {score.finding for score in compared.scores}
    if "lower" in findings:
        raise typer.Exit(WORSE)
    if "open" in findings:
        raise typer.Exit(OPEN)


def _clusters(path: Path | None) -> dict[str, str] | None:
    if path is None:
        return None
    from vestige.data.tables import read_table

    clusters = {}
    for row in read_table(path).rows:
        item, cluster = row.values.get("item"), row.values.get("cluster")
        if item is None or cluster is None:
            raise InputError(f"{path}: a row has no item or no cluster. Give both columns in every row.")
        clusters[str(item)] = str(cluster)
    return clusters
