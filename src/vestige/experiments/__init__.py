"""The experiments of the papers, a file each. `vestige experiment NAME` runs one.

A file is a function of a lab (`lab.py`) that asks for steps, calls of the functions in `vestige`, and gives back what
its tables show.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from vestige.core.errors import InputError
from vestige.core.text import closest, one_line

if TYPE_CHECKING:
    from vestige.experiments.lab import Lab

EXPERIMENTS = {
    "pistol-q1": ("pistol:q1", "PISTOL, question 1: connectivity (Tables 1 and 2, Figures 5 a, b and 6)"),
    "pistol-q2": ("pistol:q2", "PISTOL, question 2: the size of the forget set (Table 3), and in turn"),
    "pistol-q3": ("pistol:q3", "PISTOL, question 3: the type of data (Table 4)"),
    "pistol-q4": ("pistol:q4", "PISTOL, question 4: any models side by side"),
    "pistol-entity": ("pistol:entity", "every contract of one entity"),
    "holes": ("holes:holes", "2511.00030: knowledge holes after LLMU, GA + KL and NPO-GD, and their mitigation"),
    "holes-rmu": ("holes:holes_rmu", "2511.00030: knowledge holes after RMU on texts"),
    "inconclusive": ("inconclusive:inconclusive", "2506.00688: formats, relearning, a searched prefix, bits, on TOFU"),
    "inconclusive-wmdp": ("inconclusive:wmdp", "2506.00688 on WMDP-Bio, which models know from pretraining"),
    "retain-only": ("inconclusive:retain_only", "2506.00688, section 4.1: what retained data teach of the rest"),
    "tofu": ("tofu:tofu", "TOFU: forget01, 05 and 10 as OpenUnlearning reports them"),
    "muse": ("muse:muse", "MUSE: texts repeated and known, larger requests, and one after another"),
    "rtt": ("rtt:rtt", "2410.08827: some of the forgotten facts are shown, and others are asked"),
}
"""The module of each experiment, and its subject."""


def find_experiment(name: str) -> "Callable[[Lab], Any]":
    """The function of the experiment of that name."""
    if name not in EXPERIMENTS:
        raise InputError(f"There is no experiment {one_line(name)!r}. {closest(name, list(EXPERIMENTS))}")
    module, _, function = EXPERIMENTS[name][0].partition(":")
    found: Callable[[Lab], Any] = getattr(import_module(f"vestige.experiments.{module}"), function)
    return found
