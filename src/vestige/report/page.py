"""The page: one HTML file that asks nothing of any network and runs nothing but its own script.

The content security policy admits one script and one style sheet, each by its SHA-256, and no string may
become markup (trusted types). Data lies in a block that is never run. The first screen is plain HTML,
readable without the script; names in it are escaped by the template, all else enters as text nodes.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from vestige.report.audit_grid import heat_rules
from vestige.report.contents import Contents
from vestige.report.holes import Probe
from vestige.report.holes_payload import holes_payload
from vestige.report.holes_sections import holes_block
from vestige.report.palette import custom_properties
from vestige.report.payload import payload
from vestige.report.sections import sections
from vestige.report.visible import visible
from vestige.report.words import interval, number

_PAGE = files("vestige.report") / "page"
_SCRIPTS = ("dom", "data", "tooltip", "tradeoff", "graph", "table", "paging", "items", "audit", "holes", "main")
_HOLE_SCRIPTS = ("dom", "tooltip", "paging", "holes", "holes_main")
_STYLES = ("report.css", "audit.css", "holes.css", "narrow.css")

# In a script element `<` could end it or open a comment; U+2028 and U+2029 end lines in older scripts.
_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def render(contents: Contents) -> str:
    """The whole page of a run as text."""
    return _whole("page.html.j2", _SCRIPTS, payload(contents), sections(contents))


def render_holes(probe: Probe) -> str:
    """The whole page of a search for holes as text."""
    block = holes_block(probe)
    variables = {"headline": block["headline"], "block": block}
    return _whole("holes_page.html.j2", _HOLE_SCRIPTS, {"probes": [holes_payload(probe)]}, variables)


def _whole(template: str, scripts: Sequence[str], data: Any, variables: Mapping[str, Any]) -> str:
    body = "\n".join(_read(f"{name}.js") for name in scripts)
    script = f'"use strict";\n(() => {{\n{body}}})();\n'
    style = custom_properties() + heat_rules() + "\n".join(_read(name) for name in _STYLES)
    environment = Environment(
        loader=FunctionLoader(_read),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"visible": visible, "number": number, "interval": interval}
    return environment.get_template(template).render(
        policy=_policy(script, style),
        # Markup: our own files, whose digests the policy names; and JSON with all markup characters escaped.
        script=Markup(script),
        style=Markup(style),
        data=Markup(embedded(data)),
        **variables,
    )


def embedded(value: Any) -> str:
    """`value` as JSON for a script element: all of it is ASCII, and no character in it is markup."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


def _policy(script: str, style: str) -> str:
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_source(script)}",
            f"style-src {_source(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _source(content: str) -> str:
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _read(name: str) -> str:
    return (_PAGE / name).read_text(encoding="utf-8")
