"""What else was lost: how much lower the subject scores than the target on what it was to keep.

The statement is about these two models: no training is drawn again, so no seeds are counted. In the scope `these` it is
about the items of the split: where all were asked the loss is a number, and where a part of them was, only the others
are unknown (arms times sqrt(1 - share asked), the correction for a finite population).
"""

import math
from dataclasses import replace
from typing import NamedTuple

from vestige.artifacts.audits import KeptLine
from vestige.auditing.ground import Ground
from vestige.auditing.scores import Source
from vestige.metrics.contrasts import Draws, Quantity, mean_draws
from vestige.metrics.verdicts import Evidence

SPLITS = ("retain", "independent", "factual")
KEYS = (("generate", "generate/rouge1_recall"), ("forced", "forced/probability"))


class Losses(NamedTuple):
    """The harms of one subject, what could not be told of them and why, and what was not asked of it."""

    harms: tuple[Evidence, ...]
    left_out: tuple[str, ...]
    missing: tuple[str, ...]


class Kept(NamedTuple):
    """The lines, and the losses by unlearned subject."""

    lines: tuple[KeptLine, ...]
    losses: dict[str, Losses]
    untested: tuple[str, ...]


def read_kept(ground: Ground) -> Kept:
    """Target less subject in every split that there is."""
    there = [split for split in SPLITS if ground.plan.splits.get(split)]
    lines: list[KeptLine] = []
    losses = {subject: _losses(ground, subject, there, lines) for subject in ground.plan.audited}
    absent = [split for split in SPLITS if split not in there]
    untested = (f"There are no items of the splits: {', '.join(absent)}.",) if absent else ()
    return Kept(tuple(lines), losses, untested)


def _losses(ground: Ground, subject: str, splits: list[str], lines: list[KeptLine]) -> Losses:
    plan = ground.plan
    harms, left_out, missing = [], [], []
    for split in splits:
        for form, key in KEYS:
            if not ground.has(Source(plan.target), key):
                continue
            name = f"{split}, {form}"
            items = ground.scores.common([Source(plan.target), Source(subject)], key, plan.splits[split])
            if not items:
                missing.append(f"{name}: not asked of target and subject")
                continue
            unknown, harm = _harm(ground, name, key, (subject, items))
            if unknown:
                left_out.append(unknown)
                continue
            harms.append(harm)
            lines.append(KeptLine(subject, split, form, harm.draws.estimate("harm", "share")))
    return Losses(tuple(harms), tuple(left_out), tuple(missing))


def _harm(ground: Ground, name: str, key: str, asked: tuple[str, tuple[str, ...]]) -> tuple[str, Evidence]:
    """The harm, and where the target itself does not know the split, a sentence: nothing can be lost there."""
    subject, items = asked
    target = ground.scores.of(Source(ground.plan.target), key, items)
    values = ground.scores.of(Source(subject), key, items)
    drawn = _loss(ground, name, items, Quantity(target, values[None], (-1.0, 1.0)))
    least = ground.thresholds.admission
    unknown = ""
    if float(target.mean()) <= least:
        unknown = f"{name}: the target scores {target.mean():.2f} itself, not above {least:g}: there is nothing to keep"
    return unknown, Evidence(name, drawn, "harm", "share")


def _loss(ground: Ground, name: str, items: tuple[str, ...], quantity: Quantity) -> Draws:
    """The loss over the items that were asked, as a statement about those of the split, or about items like them."""
    split = name.partition(",")[0]
    drawn = mean_draws(quantity, ground.sample(items, "kept", fixed=False), None, name=name, trained=False)
    there = ground.plan.sizes.get(split, 0)
    if ground.thresholds.scope == "such" or there < len(items):
        return drawn
    unknown = math.sqrt(1 - len(items) / there)
    said = "all items asked" if not unknown else f"{drawn.method}, {len(items)} of {there} items asked"
    low, high = (drawn.value + unknown * (end - drawn.value) for end in (drawn.low, drawn.high))
    return replace(drawn, low=low, high=high, method=said, item_error=unknown * drawn.item_error)
