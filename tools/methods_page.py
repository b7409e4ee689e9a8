"""Writes docs/methods.md from the methods themselves; `make check` fails when the page is not what this would write."""

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

from vestige import losses
from vestige.core.settings import described
from vestige.methods import METHODS, about, find_method, words
from vestige.methods.base import Method, preference
from vestige.methods.steering import distance

PAGE = Path(__file__).parents[1] / "docs" / "methods.md"
INTRODUCTION = """# Unlearning methods

`vestige list methods` names them; `methods/NAME.py` is a whole method with its settings. A method is an objective:
optimiser, rate, schedule and epochs are the run's business, and no method comes with a learning rate, since the rates
in the papers belong to the papers' models. `vestige find-rate` searches one for yours. [Adding a method](extend.md)
takes one file. This page is generated from the methods' own docstrings and settings (`make docs`).

## Conventions

- The *policy* is the model being trained, the *reference* the frozen target.
- `forget` and `retain` are the questions of the two sets with their answers; `idk` the forget questions answered by
  declining to know, `mismatch` by the answer to a retained question, `alternative` by another answer of the target's.
- logp(answer) is summed over the answer's tokens and the end of the turn, in nats; p is that of one token. Prompt and
  padding never count, except for activations, which are read at every token.
- NLL(split) is -logp per token, the mean over all tokens of the effective batch, so long answers weigh more. KL too
  is a mean over tokens. A mean over answers or rows is said to be one.
- Set a setting with the method's name: `--set npo.beta=0.2`. An unknown one is refused.
- Where public code differs from its paper, the default is the paper's, and the section says how to get the other.
"""
LOSSES = """Pure functions of `vestige.losses`, for methods of your own too ([adding a method](extend.md)).
"""
READ = """
## What the formulas were checked against

PISTOL and Knowledge Holes: the papers' full text. NPO, DPO, GA, GD, KL, IDK, RMU, LLMU: equations and the authors'
code. SimNPO: equations, code and model card. RR: copies of the authors' code. WGA, SatImp, UNDIAL, CE-U, PDU, AltPO,
JensUn: the abstract, the authors' code and OpenUnlearning's formulas; a default that only their full papers state may
differ. Every loss is tested on a number worked by hand, and with its gradient against a second implementation.
"""


def page() -> str:
    """The page as it should be."""
    rows = [_row(name) for name in METHODS]
    table = "| method | minimised | settings and defaults | reads |\n| --- | --- | --- | --- |\n" + "".join(rows)
    sections = "".join(_section(name) for name in METHODS)
    return (
        f"{INTRODUCTION}\n## The methods\n\n{table}\n"
        f"## Losses\n\n{LOSSES}\n{_losses()}\n## Sources and settings\n{sections}{READ}"
    )


def _row(name: str) -> str:
    method = find_method(name)
    settings = ", ".join(f"`{key}` {_value(value)}" for key, value in _defaults(method).items())
    minimised = about(method).rstrip(".").replace("|", "\\|")
    return f"| [`{name}`](#{name}) | {minimised} | {settings} | {words(method.needs)} |\n"


def _section(name: str) -> str:
    method = find_method(name)
    title = inspect.getdoc(inspect.getmodule(method))
    rest = (inspect.getdoc(method) or "").partition("\n\n")[2]
    settings = "".join(
        f"- `{key}` {_value(one.default)}: {one.help}\n" for key, one in described(method).items() if one.help
    )
    return f"\n### {name}\n\n{title}\n\n{method.paper}.\n" + "".join(
        f"\n{part}\n" for part in (rest, settings.strip()) if part
    )


def _losses() -> str:
    """A row for each public loss: its formula, and the methods whose files name it."""
    used = {name: inspect.getsource(inspect.getmodule(find_method(name)) or find_method(name)) for name in METHODS}
    for shared in (preference, distance):
        used = {m: t + inspect.getsource(shared) * (f"{shared.__name__}(" in t) for m, t in used.items()}
    rows = []
    for name, function in inspect.getmembers(losses, inspect.isfunction):
        if function.__module__ == losses.__name__ and not name.startswith("_"):
            by = ", ".join(f"`{m}`" for m, text in used.items() if re.search(rf"\blosses\.{name}\b", text))
            told = (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
            rows.append(f"| `{name}` | {told} | {by} |\n")
    return "| loss | value | methods |\n| --- | --- | --- |\n" + "".join(rows)


def _defaults(method: type[Method]) -> dict[str, Any]:
    return method.build({}).identity()


def _value(value: Any) -> str:
    if value is None:
        return "by the model"
    if isinstance(value, str):
        return f"`{json.dumps(value)}`"
    return f"{value:g}"


if __name__ == "__main__":
    if "--check" in sys.argv:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page():
            sys.exit("docs/methods.md is not what the methods say; run `make docs`")
    else:
        PAGE.write_text(page(), encoding="utf-8")
