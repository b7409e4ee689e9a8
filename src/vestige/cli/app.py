"""The `vestige` command: its table of commands, `vestige report`, and how errors are printed."""

import errno
import logging
import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from vestige.cli.command import group, itself
from vestige.core import progress
from vestige.core.errors import InputError, Interrupted, VestigeError, missing_extra, out_of_memory
from vestige.core.text import TextByName, one_line
from vestige.report.text import print_json


@itself(positional=("run",))
def report_command(run: Path, verify: bool = False, output_dir: Path | None = None, as_json: bool = False) -> None:
    """Write report.html, tables/ and verdicts.json of RUN, and print their paths. No model is loaded.

    Args:
        run: The folder of a run, finished or not, or of a finished search for holes.
        verify: Read every file of the run's models, even if it seems unchanged.
        output_dir: Where report.html, tables/ and verdicts.json go. RUN by default.
    """
    from vestige.artifacts.layout import RunFolder
    from vestige.report import build_report

    page = build_report(run, output_dir=output_dir, verify=verify, tell=partial(typer.echo, err=True))
    folder = RunFolder(output_dir or run)
    tables = sorted(str(p) for p in folder.tables.glob("*.csv"))
    if as_json:
        print_json({"report": str(page), "tables": tables})
    else:
        typer.echo(f"report: {page}")
        typer.echo(f"{len(tables)} tables in {folder.tables}")


# Errors that the user can fix by naming another path.
_PATH_ERRNOS = {errno.EACCES, errno.EPERM, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENOENT, errno.ENAMETOOLONG}


def attack_commands() -> TextByName:
    """The commands of `vestige attack`. Other packages' attacks have one too."""
    from vestige.attacks import known_attacks

    return {name.replace("_", "-"): f"asking:attack_command/{name}" for name in known_attacks()}


attack_app = group(
    "Try to extract what a model was made to forget. The result is no evidence without a control.", attack_commands
)
probe_app = group(
    "Find knowledge holes: what an unlearned model no longer answers, though it should have kept it. Without a "
    "command: `vestige probe TARGET UNLEARNED`, all parts one after the other.",
    {"all": "asking:probe_command"},
    default="all",
)
app = group(
    "Audit LLM unlearning: what remains, what else was lost, and whether the answer can be trusted.",
    {
        "demo": "audit:demo_command",
        "init": "setup:init_command",
        "compile": "data:compile_command",
        "check-data": "data:check_data_command",
        "finetune": "training:finetune_command",
        "unlearn": "training:unlearn_command",
        "find-rate": "training:find_rate_command",
        "evaluate": "asking:evaluate_command",
        "audit": "audit:audit_command",
        "compare": "compare:compare_command",
        "report": "app:report_command",
        "export": "export:export_command",
        "export-task": "export:export_task_command",
        "attack": attack_app,
        "probe": probe_app,
        "experiment": "experiment:experiment_command",
        "list": "setup:list_command",
        "models": group("Fetch the built-in models and the sentence embedder.", {"get": "doctor:get_command"}),
        "doctor": "doctor:doctor_command",
        "evidence": "export:evidence_command",
    },
    panels={
        "Start": ("demo", "init", "list", "models", "doctor"),
        "Data": ("compile", "check-data"),
        "Models": ("finetune", "unlearn", "find-rate"),
        "Audit": ("evaluate", "audit", "compare", "attack", "probe", "experiment"),
        "Results": ("report", "export", "export-task", "evidence"),
    },
    name="vestige",
    add_completion=True,
    pretty_exceptions_enable=False,
)


def _version(value: bool) -> None:
    if value:
        # Imported here, since it takes long to load and `--help` does not need it.
        from importlib.metadata import version

        typer.echo(f"vestige {version('vestige')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print results and errors only: no notes, no progress.")
    ] = False,
) -> None:
    """Audit LLM unlearning: remaining knowledge, lost abilities, and the reliability of the result."""
    progress.SPEAKING, progress.QUIET = not quiet, quiet


def _but_of_masks(record: logging.LogRecord) -> bool:
    """Filter out the warning about a missing mask, since rows are padded after their last token."""
    return not record.getMessage().startswith("We strongly recommend passing in an `attention_mask`")


def run() -> None:
    """Run the command line. Vestige's own errors are one line on stderr and an exit code; see docs/cli.md."""
    # Environment variables are set only in the process that the user starts.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    logging.getLogger("transformers.modeling_utils").addFilter(_but_of_masks)
    try:
        app()
    except VestigeError as error:
        # If torchrun started several processes, the first one on a machine prints the common error.
        if not isinstance(error, InputError | Interrupted) or os.environ.get("LOCAL_RANK", "0") == "0":
            print(f"vestige: {one_line(str(error), width=2000)}", file=sys.stderr)
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        print(f"vestige: {missing}", file=sys.stderr)
        sys.exit(missing.exit_code)
    except OSError as error:
        if error.errno not in _PATH_ERRNOS:
            raise
        print(
            f"vestige: {one_line(str(error.filename), width=500)}: {error.strerror}. Name another path", file=sys.stderr
        )
        sys.exit(2)
    except Exception as error:
        if out_of_memory(error):
            print(f"vestige: not enough memory ({one_line(str(error), width=200)})", file=sys.stderr)
            sys.exit(6)
        raise
    except SystemExit as ended:
        if ended.code == 130:  # typer's word for Ctrl-C
            print("vestige: stopped. Run the same command to go on from here.", file=sys.stderr)
        raise
