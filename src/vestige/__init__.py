"""Vestige audits LLM unlearning: remaining knowledge, lost abilities, and the reliability of the result.

`__init__.pyi` lists the public names with their homes. Each is loaded when it is first used, so that `import vestige`
is instant.
"""

import ast
from functools import cache
from importlib import import_module
from pathlib import Path

__version__ = "0.1.0"


@cache
def homes() -> dict[str, tuple[str, str]]:
    """The module, and the name there, of each public name."""
    found = {}
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = (f"vestige.{node.module}", alias.name)
    return found


def __getattr__(name: str) -> object:
    if name == "__all__":
        return sorted(homes())
    if name not in homes():
        raise AttributeError(f"module 'vestige' has no attribute {name!r}")
    module, attribute = homes()[name]
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(homes())
