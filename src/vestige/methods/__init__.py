"""Unlearning methods, one file each. The table below is all there is: to add one, write its file and its line.

docs/extend.md shows it, and how another package brings a method without a line here.
"""

import inspect
from typing import NamedTuple

from vestige.core.errors import InputError
from vestige.core.plugins import brought, installed
from vestige.core.text import Record, closest
from vestige.methods.base import Method, Needs

METHODS = {
    "ga": "vestige.methods.ga:GA",
    "gd": "vestige.methods.gd:GD",
    "kl": "vestige.methods.kl:KL",
    "idk_gd": "vestige.methods.idk_gd:IDKGD",
    "dpo": "vestige.methods.dpo:DPO",
    "npo": "vestige.methods.npo:NPO",
    "npo_gd": "vestige.methods.npo_gd:NPOGD",
    "npo_kl": "vestige.methods.npo_kl:NPOKL",
    "llmu": "vestige.methods.llmu:LLMU",
    "rmu": "vestige.methods.rmu:RMU",
    "rr": "vestige.methods.rr:RR",
    "simnpo": "vestige.methods.simnpo:SimNPO",
    "altpo": "vestige.methods.altpo:AltPO",
    "wga": "vestige.methods.wga:WGA",
    "satimp": "vestige.methods.satimp:SatImp",
    "undial": "vestige.methods.undial:UNDIAL",
    "ce_u": "vestige.methods.ce_u:CEU",
    "jensun": "vestige.methods.jensun:JensUn",
    "pdu": "vestige.methods.pdu:PDU",
    "task_arithmetic": "vestige.methods.task_arithmetic:TaskArithmetic",
    "retrain": "vestige.methods.retrain:Retrain",
    "none": "vestige.methods.none:NoUnlearning",
}


ALIASES = {"gakl": "kl"}
"""Names that papers give to methods: GA + KL is that of Knowledge Holes (2511.00030)."""


def find_method(name: str) -> type[Method]:
    """The method of that name, of another package, or `package.module:Class`. Loads no other file."""
    # Names of this package win: a package that is installed cannot put another objective under `npo`.
    homes = {**installed("methods"), **METHODS}
    name = ALIASES.get(name, name)
    module, _, attribute = homes.get(name, name).partition(":")
    # Only what Python could import is imported: a slip of the pen is answered with the nearest method.
    if not attribute or not all(part.isidentifier() for part in module.split(".")):
        raise InputError(f"unknown method {name!r}. {closest(name, [*homes, *ALIASES])}")
    method = brought("method", name, f"{module}:{attribute}")
    # The role is a matter of names, and the class has them all: no instance is made to find out.
    is_method = isinstance(method, type) and isinstance(method, Method)
    if not is_method:
        raise InputError(f"method {name!r}: {module} holds no class {attribute!r} that is a method. See docs/extend.md")
    kind: type[Method] = method
    return kind


def build_method(name: str, values: Record) -> Method:
    """The method of that name with its settings."""
    return find_method(name).build(dict(values), where=f"method {name}")


class Listed(NamedTuple):
    """A line about a method. `needs` names its inputs."""

    name: str
    about: str
    needs: str
    paper: str


def listed() -> list[Listed]:
    """Return all methods, including other packages' methods."""
    rows = []
    for name in {**METHODS, **installed("methods")}:
        kind = find_method(name)
        rows.append(Listed(name, about(kind), words(kind.needs), kind.paper))
    return rows


def about(method: type[Method]) -> str:
    """Return the loss: the first line of the class's docstring."""
    return (inspect.getdoc(method) or "").splitlines()[0]


def words(needs: Needs) -> str:
    """Return the inputs in words: the splits, activations, and the frozen reference."""
    read = [*needs.splits, *["activations"] * bool(needs.activations), *["reference"] * needs.uses_reference]
    return ", ".join(read) or "nothing"
