"""Settings and provenance as lines for people: what a run, a model or a search was made with."""

import json
from collections.abc import Mapping
from typing import Any


def named_values(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings, a line each; what is no text as JSON."""
    return [(k, v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)) for k, v in values.items()]


def provenance_lines(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The run's provenance, a line a fact: nested tables as `name: value, name: value`."""
    return [
        (key, ", ".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value))
        for key, value in provenance.items()
    ]
