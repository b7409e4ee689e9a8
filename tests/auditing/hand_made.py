"""Cases whose truth is known: levels are placed on items by hand, and nothing is drawn from a model."""

from dataclasses import replace

import numpy as np

from vestige.artifacts.audits import AuditPlan, Carried, PlannedAttack, SoundnessLine
from vestige.artifacts.scores import Source
from vestige.auditing.gather import own_table
from vestige.auditing.ground import Case

N = 120
FORGET = tuple(f"f{i:03}" for i in range(N))
RETAIN = tuple(f"r{i:03}" for i in range(N))
HOLDOUT = tuple(f"h{i:03}" for i in range(N))
RETRAINED = ("retrained-0", "retrained-1", "retrained-2")
SOUND = SoundnessLine("near-duplicates", True, None, None, "No retain item stands close to a forget item.")
EDGE = 40
"""Three edges, so that statements are about these."""


def hits(share, items=FORGET, start=0):
    """1 for the first `share` of the items from `start` on, around the end, else 0."""
    n = len(items)
    count = round(share * n)
    return {item: float((k - start) % n < count) for k, item in enumerate(items)}


def bits(mean, items=FORGET, wide=1.0):
    """log2 p around a mean, exactly."""
    return dict(zip(items, (mean + wide * np.linspace(-1, 1, len(items))).tolist(), strict=True))


def known(share, start=0):
    """The keys of a subject that knows a share of the forget set, in one format by hits, one graded, one with options.

    What it does not know it answers as a model that never knew: 0.1 of the words, 12 bits, a quarter of the options.
    """
    hit = hits(share, start=start)
    return {
        "generate/rouge1_recall": {i: 0.1 + 0.9 * h for i, h in hit.items()},
        "generate/exact_match": hit,
        "forced/probability": {i: 0.1 + 0.85 * h for i, h in hit.items()},
        "forced/answer_bits": {i: -12.0 + 11.9 * h + 0.0005 * k for k, (i, h) in enumerate(hit.items())},
        "option_text_mean/probability": {i: max(h, float(k % 4 == 0)) for k, (i, h) in enumerate(hit.items())},
        "option_text_mean/accuracy": {i: max(h, float(k % 4 == 0)) for k, (i, h) in enumerate(hit.items())},
        "option_text_mean/chance": dict.fromkeys(FORGET, 0.25),
    }


def kept(level):
    """Retain items at a level."""
    return {"generate/rouge1_recall": dict.fromkeys(RETAIN, level), "forced/probability": dict.fromkeys(RETAIN, level)}


def member(shift):
    """A membership score of forget and holdout items; 0 is no difference, 2 tells all apart."""
    return {
        "membership/loss": dict(zip(FORGET, (np.linspace(0, 1, N) + shift).tolist(), strict=True))
        | dict(zip(HOLDOUT, np.linspace(0, 1, N).tolist(), strict=True))
    }


def together(*tables):
    """Tables of values joined key by key."""
    found = {}
    for table in tables:
        for key, values in table.items():
            found[key] = found.get(key, {}) | values
    return found


def subject(share, *, retain=1.0, shift=0.0, start=0):
    """All keys of one subject."""
    return together(known(share, start), kept(retain), member(shift))


def attack(name="relearn retain n=50", kind="relearn", material="retain", **changes):
    """A planned attack with three points that tests all forget items."""
    plain = PlannedAttack(name, kind, material, 50, ("1", "2", "3"), FORGET, False, {})
    return replace(plain, **changes)


def plan(**changes):
    """Target, one unlearned, three retrained seeds, a positive control, no attack."""
    plain = AuditPlan(
        forget="A_B",
        target="target",
        unlearned=("ga",),
        retrained=RETRAINED,
        folders={},
        splits={"forget": FORGET, "retain": RETAIN, "holdout": HOLDOUT},
        edges={item: f"edge-{k // EDGE}" for k, item in enumerate(FORGET)},
        scopes={},
        attacks=(),
        settings={"delta": 0.1, "delta_bits": 4.0},
        seed=0,
        suppressed="suppressed",
        evidence_level="verified",
    )
    return replace(plain, **changes)


def case(subjects=None, attacked=None, *, carried=None, soundness=(SOUND,), **changes):
    """A case of the plan: `subjects` overrides keys by name, `attacked` is by (subject, attack) the level at the end.

    Target knows all; the three retrained seeds answer options for a quarter of the items and else nothing.
    """
    asked = plan(**changes)
    values = {Source("target"): subject(1.0, shift=2.0)}
    values |= {Source(name): subject(0.0) for name in asked.retrained}
    values |= {Source(name): subject(0.0) for name in asked.audited}
    values |= {Source(name): table for name, table in (subjects or {}).items()}
    for (name, of), levels in (attacked or {}).items():
        for point, level in levels.items():
            values[Source(name, of, point)] = known(level) if isinstance(level, float) else level
    of_attacks = {}
    for (name, of), of_subject in (carried or {}).items():
        of_attacks.setdefault(name, {})[of] = of_subject
    return Case(replace(asked, carried=of_attacks, soundness=tuple(soundness)), own_table(asked, values))


def with_values(made, values=None, *, further=(), **changes):
    """The case with other values of evaluations; `changes` are of its plan, `further` are formats of others' making."""
    asked = replace(made.plan, **changes)
    if values is None:
        values = {source: dict(tables) for source, tables in made.scores.values.items()}
        for form in made.scores.formats:
            if form.key in made.scores.chances and form.chance:
                values[Source(asked.target)][form.chance] = made.scores.chances[form.key]
    return replace(made, plan=asked, scores=own_table(asked, values, further))


def everywhere(planned, level, *, unlearned=None, target=1.0, suppressed=1.0):
    """An attack's end on all subjects: `level` on retrained, `unlearned` on the unlearned one.

    On the positive control everything comes back, so that the attack is shown able.
    """
    last = planned.points[-1]
    end = {(name, planned.name): {last: level} for name in RETRAINED}
    return end | {
        ("target", planned.name): {last: target},
        ("suppressed", planned.name): {last: suppressed},
        ("ga", planned.name): {last: level if unlearned is None else unlearned},
    }


def verdict(outcome, claim, name="ga"):
    """The line of one claim."""
    (line,) = [v for v in outcome.verdicts if v.claim == claim and v.subject == name]
    return line


def outcomes(found, name="ga"):
    """What became of each claim about one model."""
    return {v.claim: v.outcome for v in found.verdicts if v.subject == name}


def spent(bits_shown):
    """What an attack carried, by one bound."""
    return Carried({"code length": bits_shown}, {"steps": 50.0})
