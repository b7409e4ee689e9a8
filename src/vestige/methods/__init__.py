"""Unlearning methods, one file each. The table below is all there is: to add one, write its file and its line."""

from importlib import import_module

from vestige.core.errors import InputError
from vestige.core.settings import closest
from vestige.methods.base import Method

METHODS = {
    "ga": "vestige.methods.ga:GA",
    "gd": "vestige.methods.gd:GD",
    "kl": "vestige.methods.kl:KL",
    "idk_gd": "vestige.methods.idk_gd:IDKGD",
    "dpo": "vestige.methods.dpo:DPO",
    "npo": "vestige.methods.npo:NPO",
    "npo_gd": "vestige.methods.npo_gd:NPOGD",
    "npo_kl": "vestige.methods.npo_kl:NPOKL",
    "simnpo": "vestige.methods.simnpo:SimNPO",
    "wga": "vestige.methods.wga:WGA",
    "satimp": "vestige.methods.satimp:SatImp",
    "undial": "vestige.methods.undial:UNDIAL",
    "ce_u": "vestige.methods.ce_u:CEU",
}


def find_method(name: str) -> type[Method]:
    """The method of that name; loads its file and no other."""
    if name not in METHODS:
        raise InputError(f"unknown method {name!r}; {closest(name, list(METHODS))}")
    module, _, attribute = METHODS[name].partition(":")
    found: type[Method] = getattr(import_module(module), attribute)
    return found
