"""The command line: one file a command. Torch is imported inside commands only, so that --help is instant."""

from vestige.cli.app import run

__all__ = ["run"]
