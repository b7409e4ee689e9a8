"""`python -m vestige.cli`: the same as the `vestige` command."""

from vestige.cli import run

run()
