"""The `vestige` command: its table of commands, `vestige report`, and how errors are printed."""

import errno
import json
import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from vestige.cli.attack import attack_app
from vestige.cli.audit import audit_command
from vestige.cli.bench import bench_command
from vestige.cli.calibrate import calibrate_command
from vestige.cli.data import alternatives_command, check_data_command, compile_command
from vestige.cli.demo import demo_command
from vestige.cli.doctor import doctor_command
from vestige.cli.evaluate import evaluate_command
from vestige.cli.list import list_command
from vestige.cli.models import models_app
from vestige.cli.options import AsJson
from vestige.cli.probe import probe_app
from vestige.cli.sisa import sisa_app
from vestige.cli.study import study_app
from vestige.cli.training import finetune_command, unlearn_command
from vestige.cli.view import view_command
from vestige.core.errors import InputError, Interrupted, VestigeError
from vestige.core.text import one_line


def report_command(
    run: Annotated[
        Path, typer.Argument(help="The folder of a run, finished or not, or of a finished search for holes.")
    ],
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every file of the run's models, also where none seems changed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write report.html, tables/ and figures/ of RUN, and say where they are. No model is loaded."""
    from vestige.artifacts.layout import RunFolder
    from vestige.report import build_report

    page = build_report(run, verify=verify)
    folder = RunFolder(run)
    tables = sorted(str(p) for p in folder.tables.glob("*.csv"))
    figures = sorted(str(p) for p in folder.figures.glob("*.svg"))
    if as_json:
        typer.echo(json.dumps({"report": str(page), "tables": tables, "figures": figures}, indent=2))
    else:
        typer.echo(f"report: {page}")
        typer.echo(f"{len(tables)} tables in {folder.tables}, {len(figures)} figures in {folder.figures}")


# What a person can mend by naming another path.
_PATH_ERRNOS = {errno.EACCES, errno.EPERM, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENOENT, errno.ENAMETOOLONG}

app = typer.Typer(
    name="vestige",
    help="Audit LLM unlearning: what remains, what else was lost, and whether the answer can be trusted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo_command)
app.command("compile")(compile_command)
app.command("finetune")(finetune_command)
app.command("unlearn")(unlearn_command)
app.command("calibrate")(calibrate_command)
app.command("evaluate")(evaluate_command)
app.command("audit")(audit_command)
app.command("bench")(bench_command)
app.command("check-data")(check_data_command)
app.command("alternatives")(alternatives_command)
app.command("report")(report_command)
app.command("view")(view_command)
app.command("list")(list_command)
app.command("doctor")(doctor_command)
app.add_typer(attack_app, name="attack")
app.add_typer(probe_app, name="probe")
app.add_typer(sisa_app, name="sisa")
app.add_typer(study_app, name="study")
app.add_typer(models_app, name="models")


def _but_of_masks(record: logging.LogRecord) -> bool:
    """Whether to show a log record: not the advice to pass a mask, since rows are padded behind what a model reads."""
    return not record.getMessage().startswith("We strongly recommend passing in an `attention_mask`")


def _another_says_it() -> bool:
    """Whether torchrun started a first process on this machine, which ends by what the command was refused for too."""
    return os.environ.get("LOCAL_RANK", "0") != "0"


def run() -> None:
    """Run the command line. What Vestige explains itself is one line on stderr and an exit code; see docs/cli.md."""
    # The process that a person starts is the only place where the surroundings are set.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    logging.getLogger("transformers.modeling_utils").addFilter(_but_of_masks)
    try:
        app()
    except VestigeError as error:
        if not (isinstance(error, InputError | Interrupted) and _another_says_it()):
            print(f"vestige: {one_line(str(error), width=2000)}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno not in _PATH_ERRNOS:
            raise
        print(
            f"vestige: {one_line(str(error.filename), width=500)}: {error.strerror}; name another path", file=sys.stderr
        )
        sys.exit(2)
    except Exception as error:
        # Torch's own class for a full device; naming it here would load torch for every --help.
        if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
            print(f"vestige: not enough memory ({one_line(str(error), width=200)})", file=sys.stderr)
            sys.exit(6)
        raise
    except SystemExit as ended:
        if ended.code == 130:  # typer's word for Ctrl-C
            print("vestige: stopped; run the same command to go on from here", file=sys.stderr)
        raise
