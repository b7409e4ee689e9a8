"""`python -m vestige`, and so `torchrun -m vestige`: the same as the `vestige` command."""

from vestige.cli import run

run()
