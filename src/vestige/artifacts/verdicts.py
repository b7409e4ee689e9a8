"""verdicts.json: every verdict of every audit of a run in the rows that outside tools rely on."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from vestige.artifacts.audits import CLAIMS, AuditOutcome, GroupLine
from vestige.core.estimates import to_json


def verdict_rows(outcomes: Sequence[AuditOutcome]) -> list[dict[str, Any]]:
    """The rows of verdicts.json, which outside tools rely on."""
    first = {
        (o.forget, subject, claim): {"time": o.first.time, "verdict": said, "thresholds": o.first.thresholds}
        for o in outcomes
        if o.first is not None
        for subject, claim, said in o.first.verdicts
    }
    return [
        {
            "subject": v.subject,
            "forget": outcome.forget,
            "claim": v.claim,
            "statement": CLAIMS[v.claim],
            "verdict": v.outcome,
            "reason": v.reason,
            "first": first.get((outcome.forget, v.subject, v.claim)),
            "numbers": {name: asdict(estimate) for name, estimate in v.evidence.items()},
            "facts": [asdict(f) for f in outcome.facts if (f.subject, f.claim) == (v.subject, v.claim)],
            "groups": [to_json(g) for g in outcome.groups if g.subject == v.subject and v.claim == GroupLine.claim],
            "left_out": list(v.left_out),
            "items_needed": v.items_needed,
            "detectable": v.detectable,
            "decides": v.decides,
            "thresholds": {"margin": v.margin, "wide": v.wide, "unit": v.unit, **outcome.thresholds},
        }
        for outcome in outcomes
        for v in outcome.verdicts
    ]
