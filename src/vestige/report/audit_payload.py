"""What the page's script draws of an audit: the levels along each attack, and the parts of each gain.

Numbers are rounded to six significant digits; tables/gains.csv has them in full.
"""

import math
from collections.abc import Mapping
from typing import Any

from vestige.artifacts.audits import AuditOutcome, CurveLine, GainLine
from vestige.core.estimates import Estimate
from vestige.report.audit_grid import Colours
from vestige.report.audit_panels import along, drawn, shuffled, why_no_evidence
from vestige.report.evidence import forget_label


def audit_payload(outcome: AuditOutcome, known: Mapping[str, int]) -> dict[str, Any]:
    """One audit; subjects, attacks and formats are named by their places in the lists."""
    colours = Colours(outcome, known)
    lines: list[CurveLine | GainLine] = [*outcome.curves, *outcome.gains]
    subjects = list(dict.fromkeys(line.subject for line in lines))
    attacks = list(dict.fromkeys(line.attack for line in lines))
    formats = list(dict.fromkeys((line.format, line.unit == "bits") for line in lines))
    points = {
        a: list(dict.fromkeys(p.point for c in outcome.curves if c.attack == a for p in drawn(c))) for a in attacks
    }

    def places(line: CurveLine | GainLine) -> list[int]:
        form = formats.index((line.format, line.unit == "bits"))
        return [subjects.index(line.subject), attacks.index(line.attack), form]

    return {
        "label": forget_label(outcome.forget),
        "subjects": [{"name": s, "role": _role(outcome, s), "css": colours.css(s)} for s in subjects],
        "attacks": [
            {"name": a, "mark": why_no_evidence(outcome, a), "along": along(outcome, a), "points": points[a]}
            for a in attacks
        ],
        "formats": [{"name": name, "bits": bits} for name, bits in formats],
        "curves": [
            [
                *places(c),
                [[points[c.attack].index(p.point), *_short(p.level), _digits(p.bits)] for p in drawn(c)],
                None if (mixed := shuffled(c)) is None else [*_short(mixed.level), _digits(mixed.bits)],
                c.no_gain,
            ]
            for c in outcome.curves
        ],
        "gains": [
            [
                *places(g),
                *map(_short, (g.gain, g.injection, g.repair, g.recovery, g.saturation)),
                g.saturated,
                g.why_not,
            ]
            for g in outcome.gains
        ],
    }


def _role(outcome: AuditOutcome, subject: str) -> str:
    if subject == outcome.target:
        return "target"
    return "retrained" if subject in outcome.retrained else "unlearned"


def _short(e: Estimate) -> list[float | None]:
    return [*map(_digits, (e.value, e.low, e.high)), e.n]


def _digits(x: float | None) -> float | None:
    return None if x is None or math.isinf(x) else float(f"{x:.6g}")
