"""The command line: one file a command. Torch is imported inside commands only, so that --help is instant."""

import os
import sys

# numpy's library reads this when it is loaded. Several threads add in a different order, which changes the last digits.
os.environ["OPENBLAS_NUM_THREADS"] = "1"


def run() -> None:
    """Run the command line. An interruption during imports ends with the same exit code as a later one."""
    try:
        from vestige.cli.app import run as started

        started()
    except KeyboardInterrupt:
        print("vestige: stopped. Run the same command to go on from here.", file=sys.stderr)
        sys.exit(130)


__all__ = ["run"]
