"""What the page's script draws of a search for holes: the map, and every candidate with its answers.

Scores are rounded to four significant digits; tables/holes.csv and tested.jsonl have them in full.
"""

from typing import Any

from vestige.artifacts.holes import Tested
from vestige.report.holes import Probe
from vestige.report.holes_sections import COLOURS
from vestige.report.holes_words import source_name

ADJACENT = "adjacent"


def holes_payload(probe: Probe) -> dict[str, Any]:
    """One search; sources and groups are named by their places in the lists."""
    sources = list(dict.fromkeys(t.source for t in probe.tested))
    groups = [group.name for group in probe.table.groups]
    group_of = {hole.id: groups.index(hole.group) for hole in probe.holes if hole.group in groups}
    places = {} if probe.map is None else {p.id: (p.x, p.y) for p in probe.map.points}
    return {
        "sources": [source_name(s) for s in sources],
        "groups": [{"name": name, "colour": i % COLOURS, "sign": i // COLOURS} for i, name in enumerate(groups)],
        "mapped": probe.map is not None,
        "rows": [_row(t, sources.index(t.source), group_of.get(t.id, -1), places) for t in probe.tested],
    }


def _row(tested: Tested, source: int, group: int, places: dict[str, tuple[float, float]]) -> dict[str, Any]:
    row: dict[str, Any] = {"prompt": tested.prompt, "source": source}
    if tested.source != ADJACENT and tested.origin:
        row["origin"] = tested.origin
    if tested.dropped:
        return row | {"dropped": tested.dropped}
    return row | {
        "hole": tested.hole,
        "group": group,
        "at": places.get(tested.id),
        "target": [tested.target_answer, _digits(tested.target_score)],
        "unlearned": [tested.unlearned_answer, _digits(tested.unlearned_score)],
        "placebos": [
            [name, answer, _digits(tested.placebo_scores.get(name))] for name, answer in tested.placebo_answers.items()
        ],
    }


def _digits(x: float | None) -> float | None:
    return None if x is None else float(f"{x:.4g}")
