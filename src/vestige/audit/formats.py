"""The formats that knowledge is asked for in, and which of them can tell the target from a model that never knew.

Controls first: a format is admitted when target less `retrained` (less chance, where nothing was retrained) is clearly
above `Thresholds.admission`. Nothing is said of leakage in any other.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from vestige.artifacts.audits import FormatLine
from vestige.audit.ground import BITS_KEY, SHARE, Ground, shown
from vestige.audit.scores import Source
from vestige.core.estimates import Estimate
from vestige.metrics.contrasts import Draws, Quantity, mean_draws
from vestige.metrics.leakage import Controls, admission, admission_vs_chance
from vestige.metrics.pooling import interval_over_seeds
from vestige.metrics.verdicts import admitted

BITS = "forced, bits"
"""What is read in bits: the forced answers. It is admitted where the format `forced` is."""

_ALIKE = 0.5
"""A control nearer to the target than to the other controls is none."""

Unit = Literal["leakage", "leakage_vs_chance", "bits"]


class Format(NamedTuple):
    """`key` is read where there is a `retrained`, `hits` where there is chance only, or where `key` has no values.

    Graded scores (overlap, probability) have no known chance, since a model that never knew uses some of the right
    words; and overlap has no values in scripts that ROUGE does not read. `hits` is "" where there is nothing to count.
    `chance` is the key of what guessing scores on each item; "" is 0, as for an answer in the model's own words.
    """

    name: str
    key: str
    hits: str = ""
    chance: str = ""
    graded: bool = False


FORMATS = (
    Format("generate", "generate/rouge1_recall", hits="generate/exact_match", graded=True),
    Format("forced", "forced/probability", graded=True),
    Format("generate_plain", "generate_plain/leaked", hits="generate_plain/leaked"),
    Format("paraphrase", "generate_paraphrase/leaked", hits="generate_paraphrase/leaked"),
    Format("few_shot", "generate_few_shot/leaked", hits="generate_few_shot/leaked"),
    Format("cloze", "generate_cloze/leaked", hits="generate_cloze/leaked"),
    Format("generate_option", "generate_option/accuracy", hits="generate_option/accuracy"),
    Format("option_text_mean", "option_text_mean/accuracy", "option_text_mean/accuracy", "option_text_mean/chance"),
    Format("option_text_sum", "option_text_sum/accuracy", "option_text_sum/accuracy", "option_text_sum/chance"),
    Format("choose", "choose/accuracy", "choose/accuracy", "choose/chance"),
    Format("option_vocab", "option_vocab/accuracy", "option_vocab/accuracy", "choose/chance"),
    Format("reversed_choose", "reversed_choose/accuracy", "reversed_choose/accuracy", "reversed_choose/chance"),
    # Of few items, so that it can show that something is left, and hardly ever that nothing is.
    Format("acr", "acr/memorised", hits="acr/memorised"),
)


@dataclass(frozen=True)
class Scale:
    """One format (or bits) with its controls over its items; `retrained` names them, and is empty against chance."""

    name: str
    key: str
    unit: Unit
    items: tuple[str, ...]
    retrained: tuple[str, ...]
    controls: Controls


class Read(NamedTuple):
    """One format that was asked, and whether its scale may be used."""

    scale: Scale
    admission: Draws
    line: FormatLine


class Tested(NamedTuple):
    """The formats that were asked, bits where forced answers are admitted, and in sentences what could not be read."""

    reads: tuple[Read, ...]
    bits: Scale | None
    untested: tuple[str, ...]

    @property
    def scales(self) -> tuple[Scale, ...]:
        """Those that are admitted."""
        return tuple(read.scale for read in self.reads if read.line.admitted)

    @property
    def not_admitted(self) -> tuple[str, ...]:
        """Those that are not, each with its reason."""
        return tuple(f"{r.line.format}: not admitted, {r.line.reason}" for r in self.reads if not r.line.admitted)


def read_formats(ground: Ground) -> Tested:
    """Every format that the target was asked in, with its controls, and what could not be read and why."""
    reads: list[Read] = []
    untested: list[str] = []
    absent = []
    for form in FORMATS:
        if not any(ground.has(Source(ground.plan.target), key) for key in (form.key, form.hits)):
            absent.append(form.name)
            continue
        scale = _scale(ground, form, untested)
        if scale is not None:
            known = _admission(scale)
            reads.append(Read(scale, known, _line(ground, scale, known)))
    if absent:
        untested.append(f"Formats that were not asked: {', '.join(absent)}.")
    forced = any(read.scale.name == "forced" and read.line.admitted for read in reads)
    return Tested(tuple(reads), _bits(ground, untested) if forced else None, tuple(untested))


def unlike_controls(ground: Ground) -> dict[str, str]:
    """The `retrained` that answer like the target, by name, each with the format that tells and by how much.

    One stands more than half of the way from the other controls to the target, in a format in which these are clearly
    apart in means (by `admission`): it knows what it was to have never seen, or is another model than was meant.
    """
    plan = ground.plan
    found: dict[str, str] = {}
    for form in FORMATS:
        asked = [one for one in plan.retrained if ground.has(Source(one), form.key)]
        if not ground.has(Source(plan.target), form.key) or len(asked) < 2:
            continue
        items = ground.scores.common([Source(plan.target), *map(Source, asked)], form.key, ground.judged)
        if not items:
            continue
        knows = float(ground.scores.of(Source(plan.target), form.key, items).mean())
        means = {one: float(ground.scores.of(Source(one), form.key, items).mean()) for one in asked}
        for one, own in means.items():
            others = float(np.mean([mean for name, mean in means.items() if name != one]))
            if knows - others > ground.thresholds.admission and own - others > _ALIKE * (knows - others):
                said = f"in {form.name} it scores {own:.2f}, the target {knows:.2f} and the other controls {others:.2f}"
                found.setdefault(one, said)
    return found


def _scale(ground: Ground, form: Format, untested: list[str]) -> Scale | None:
    plan, against_chance = ground.plan, not ground.plan.retrained
    key = form.hits if against_chance or not ground.has(Source(plan.target), form.key) else form.key
    if not key:
        untested.append(
            f"The format {form.name} is left out, since no retrained control was given and what chance scores is not "
            "known."
        )
        return None
    asked = tuple(name for name in plan.retrained if ground.has(Source(name), key))
    if not against_chance and not asked:
        untested.append(f"The format {form.name} is left out, since no retrained model was asked in it.")
        return None
    items = _common(ground, key, asked, untested, form.name)
    if against_chance and form.chance:
        items = ground.scores.common([Source(plan.target)], form.chance, items)
    if not items:
        untested.append(f"The format {form.name} is left out, since no judged item was asked of all.")
        return None
    target = ground.scores.of(Source(plan.target), key, items)
    if not against_chance:
        rows = ground.scores.rows([Source(name) for name in asked], key, items)
    elif form.chance:
        rows = ground.scores.of(Source(plan.target), form.chance, items)[None]
    else:
        rows = np.zeros((1, len(items)))
    prior = ground.thresholds.prior(graded=form.graded and key == form.key)
    # What chance scores is known, so that there is no training to draw again: the questions are.
    sample = ground.sample(items, fixed=False) if against_chance else ground.sample(items)
    controls = Controls(form.name, target, rows, sample, prior)
    return Scale(form.name, key, "leakage_vs_chance" if against_chance else "leakage", items, asked, controls)


def _bits(ground: Ground, untested: list[str]) -> Scale | None:
    """Forced answers in bits; one item has no spread, so no interval."""
    plan = ground.plan
    asked = tuple(name for name in plan.retrained if ground.has(Source(name), BITS_KEY))
    if not asked or not ground.has(Source(plan.target), BITS_KEY):
        untested.append("Nothing is said in bits, which were not read on the target and a retrained model.")
        return None
    items = _common(ground, BITS_KEY, asked, untested, BITS)
    if len(items) < 2:
        said = f"{len(items)} judged item{'' if len(items) == 1 else 's'} asked of all"
        untested.append(f"Nothing is said in bits: there is {said}, and an interval needs two.")
        return None
    prior = ground.thresholds.prior(graded=True, bits=True)
    target = ground.scores.of(Source(plan.target), BITS_KEY, items)
    rows = ground.scores.rows([Source(name) for name in asked], BITS_KEY, items)
    return Scale(BITS, BITS_KEY, "bits", items, asked, Controls("bits", target, rows, ground.sample(items), prior))


def _common(ground: Ground, key: str, asked: tuple[str, ...], untested: list[str], name: str) -> tuple[str, ...]:
    """The judged items that have a value in target, controls and every unlearned subject that was asked."""
    plan = ground.plan
    unlearned = [one for one in plan.audited if ground.has(Source(one), key)]
    sources = [Source(one) for one in (plan.target, *asked, *unlearned)]
    items = ground.scores.common(sources, key, ground.judged)
    if items and len(items) < len(ground.judged):
        without, n = len(ground.judged) - len(items), len(ground.judged)
        untested.append(f"In the format {name}, {without} of {n} judged items have no value in one model or more.")
    missing = [one for one in plan.retrained if one not in asked]
    if missing and asked:
        untested.append(f"The format {name} was not asked of {', '.join(map(shown, missing))}.")
    return items


def exceeds_controls(ground: Ground, scale: Scale) -> bool:
    """Whether the target is clearly above its controls, as admits a format; in bits by more than the narrow margin."""
    if scale.unit != "bits":
        return admitted(_admission(scale), ground.thresholds)
    controls = scale.controls
    gap = Quantity(controls.target, controls.retrained, None)
    known = mean_draws(gap, controls.sample, controls.prior, name="bits", trained=False)
    return known.ends[0] > ground.thresholds.delta_bits


def _admission(scale: Scale) -> Draws:
    if scale.unit == "leakage_vs_chance":
        return admission_vs_chance(scale.controls)
    return admission(scale.controls)


def _line(ground: Ground, scale: Scale, known: Draws) -> FormatLine:
    controls, metric = scale.controls, scale.key.partition("/")[2]
    rows, sample = np.asarray(controls.retrained), controls.sample
    retrained = None
    if scale.unit == "leakage":
        interval = interval_over_seeds(rows, clusters=sample.clusters, bounds=SHARE, seed=sample.seed)
        retrained = Estimate(metric, "share", float(rows.mean()), *interval[:2], sample.n, interval.method)
    estimate = known.estimate("admission", "share")
    control = "retrained" if scale.unit == "leakage" else "chance"
    enough = admitted(known, ground.thresholds)
    needed = f"{ground.thresholds.admission:g}"
    reason = (
        f"the target exceeds {control} by {estimate}, all of it above {needed}"
        if enough
        else f"the target exceeds {control} by {estimate}, which is not clearly above {needed}"
    )
    return FormatLine(
        scale.name, metric, ground.level(controls.target, sample, metric), retrained, estimate, enough, reason
    )
