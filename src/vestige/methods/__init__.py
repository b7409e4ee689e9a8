"""Unlearning methods, one file each. The table below is all there is: to add one, write its file and its line.

docs/extend.md shows it, and how another package brings a method without a line here.
"""

import inspect
from functools import cache
from typing import Annotated, Any, NamedTuple

from pydantic import Field, create_model

from vestige.core.errors import InputError
from vestige.core.plugins import brought, installed
from vestige.core.text import Fields, Record, closest
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


class Preset(NamedTuple):
    """A method under the name that `paper` gives it, with that paper's settings for defaults.

    `about` names the paper.
    """

    method: str
    settings: Record
    about: str
    paper: str


PRESETS = {
    "gakl": Preset(
        "kl",
        {"kl_weight": 1.0},
        "GA + KL as Knowledge Holes has it; there at a rate of 5e-5, 1000 steps of 2 rows.",
        "Knowledge Holes, 2511.00030, Appendix A",
    )
}


def find_method(name: str) -> type[Method]:
    """The method of that name, of a preset, of another package, or `package.module:Class`. Loads no other file."""
    if name in PRESETS:
        return _of_preset(name)
    # Names of this package win: a package that is installed cannot put another objective under `npo`.
    homes = {**installed("methods"), **METHODS}
    module, _, attribute = homes.get(name, name).partition(":")
    # Only what Python could import is imported: a slip of the pen is answered with the nearest method.
    if not attribute or not all(part.isidentifier() for part in module.split(".")):
        raise InputError(f"unknown method {name!r}. {closest(name, [*homes, *PRESETS])}")
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


@cache
def _of_preset(name: str) -> type[Method]:
    """The preset's method with other defaults. Everything more, its version and paper too, is the method's own."""
    method, settings, _, _ = PRESETS[name]
    base: Any = find_method(method)
    changed: Fields = {}
    for key, default in settings.items():
        # Not a copy of the method's field: pydantic 2.12.0 gives it the method's default again.
        field = base.model_fields[key]
        annotated = Annotated[(field.annotation, *field.metadata, Field(description=field.description))]
        changed[key] = (annotated, default)
    preset: type[Method] = create_model(name, __base__=base, **changed)
    return preset


class Listed(NamedTuple):
    """A line about a method. `needs` names its inputs."""

    name: str
    about: str
    needs: str
    paper: str


def listed() -> list[Listed]:
    """Return all methods, including other packages' methods, and presets."""
    names = {**METHODS, **installed("methods")}
    methods = [_line(name, about(find_method(name)), find_method(name).paper) for name in names]
    return [*methods, *[_line(name, preset.about, preset.paper) for name, preset in PRESETS.items()]]


def about(method: type[Method]) -> str:
    """Return the loss: the first line of the class's docstring."""
    return (inspect.getdoc(method) or "").splitlines()[0]


def words(needs: Needs) -> str:
    """Return the inputs in words: the splits, activations, and the frozen reference."""
    read = [*needs.splits, *["activations"] * bool(needs.activations), *["reference"] * needs.uses_reference]
    return ", ".join(read) or "nothing"


def _line(name: str, text: str, paper: str) -> Listed:
    return Listed(name, text, words(find_method(name).needs), paper)
