"""An audit of four made-up methods, written with the package's own writer: numbers as a real one has them.

`ga` damages the retain set and leaks in few-shot prompts, `idk_gd` refuses and can be told by it, `kl` only hides what
relearning brings back, `dpo` is level with models that never knew, on too few questions to say so.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from synthetic_run import ANSI, FORMULA, IMAGE, OVERRIDE, SCRIPT

from vestige.artifacts.audits import (
    REQUIRED,
    AbleLine,
    AuditOutcome,
    BudgetLine,
    Claim,
    CurveLine,
    CurvePoint,
    FactLine,
    FormatLine,
    GainLine,
    KeptLine,
    MatrixCell,
    MeasureLine,
    MembershipLine,
    Outcome,
    ReversalLine,
    SoundnessLine,
    VerdictLine,
    WorstLine,
    write_outcome,
)
from vestige.artifacts.layout import RunFolder
from vestige.core.estimates import Estimate
from vestige.core.seeds import generator
from vestige.metrics.verdicts import Thresholds

METHODS = ("dpo", "ga", "idk_gd", "kl")
REFERENCE, CONTROL = "retrained again", "silent <b>target</b>"
RETRAINED = ("retrained-0", "retrained-1", "retrained-2")
ITEMS = 120
FORMATS = {
    "generate": ("rouge1_recall", 0.97, 0.19),
    "forced": ("probability", 0.96, 0.23),
    "option_text_mean": ("accuracy", 0.99, 0.31),
    "choose": ("accuracy", 0.93, 0.27),
    "paraphrase": ("leaked", 0.88, 0.12),
    "few_shot": ("leaked", 0.94, 0.14),
    "reversed_choose": ("accuracy", 0.66, 0.25),
    "option_vocab": ("accuracy", 0.34, 0.26),
}
"""By format: metric, level of the target, level of the models that never knew."""
PROMPTS = {name: name for name in FORMATS} | dict.fromkeys(("generate", "forced", "option_text_mean"), "question")
PROMPTS |= dict.fromkeys(("choose", "option_vocab"), "lettered options")
"""By format what the model reads."""

LEAKS = {
    "dpo": (0.03, 0.05, 0.04, 0.02, -0.01, 0.06, 0.03),
    "ga": (0.07, 0.11, 0.19, 0.14, 0.09, 0.41, 0.12),
    "idk_gd": (-0.24, -0.21, 0.37, 0.33, -0.13, 0.08, 0.28),
    "kl": (0.09, 0.22, 0.58, 0.52, 0.06, 0.16, 0.35),
}
ATTACKS = {
    "relearn retain n=50": (("before", "1", "2", "3", "4", "5"), 0.06, (0.04, 0.11, 0.03, 0.61)),
    "relearn related n=50": (("before", "1", "2", "3", "4", "5"), 0.09, (0.03, 0.09, 0.05, 0.52)),
    "relearn forget_part n=10": (("before", "1", "2", "3", "4", "5"), 0.17, (0.08, 0.18, 0.12, 0.66)),
    "relearn forget n=20": (("before", "1", "2", "3", "4", "5"), 0.93, (0.02, 0.04, 0.01, 0.05)),
    "quantize 4 bits": (("before", "given"), 0.00, (0.01, 0.03, 0.02, 0.08)),
    "in_context n=8": (("before", "given"), 0.03, (0.02, 0.19, 0.04, 0.11)),
}
"""By attack: its points, what it carries in, and what it recovers from each method."""

OUTCOMES: dict[Claim, tuple[Outcome, ...]] = {
    "not expressed": ("inconclusive", "fails", "fails", "fails"),
    "not recoverable": ("inconclusive", "inconclusive", "inconclusive", "fails"),
    "indistinguishable": ("inconclusive", "inconclusive", "fails", "fails"),
    "utility preserved": ("holds", "fails", "holds", "holds"),
    "benchmark valid": ("holds", "holds", "holds", "holds"),
}
LEADS: dict[Claim, str] = {
    "not expressed": "It still answers what a retrained model does not",
    "not recoverable": "An attack brings back more than it carries in",
    "indistinguishable": "It can be told from retrained models",
    "utility preserved": "It lost other knowledge",
    "benchmark valid": "The benchmark cannot support a verdict",
}
THRESHOLDS = {name: value for name, value in Thresholds().model_dump().items() if name != "scope"}
UNTESTED = (
    "Not judged, because the retain set gives the answers away: 30 of 150 items (18 entailed, 12 guessable).",
    "option_vocab is not admitted, so nothing is said in it.",
    "Left out for time: prefilled answers, sampling, relearning on unrelated text.",
)
HOSTILE_NAMES = (SCRIPT, IMAGE, OVERRIDE, FORMULA + ANSI)


def estimate(metric: str, value: float, half: float, unit: str = "share", n: int = ITEMS) -> Estimate:
    """A value with an interval of so much to either side, within [0, 1] where it is a share."""
    low, high = value - half, value + half
    if unit == "share":
        value, low, high = (min(1.0, max(0.0, x)) for x in (value, low, high))
    return Estimate(metric, unit, value, low, high, n, "synthetic")


def with_reference(found: AuditOutcome) -> AuditOutcome:
    """The same with one more model, which was retrained and passes every test."""
    first = found.verdicts[0].subject
    passes = [
        replace(v, subject=REFERENCE, outcome="holds", at_least=-0.08, at_most=0.09)
        for v in found.verdicts
        if v.subject == first
    ]
    return replace(
        found,
        unlearned=(*found.unlearned, REFERENCE),
        references=(REFERENCE,),
        verdicts=(*found.verdicts, *passes),
        worst=(*found.worst, WorstLine(REFERENCE, estimate("leakage", -0.02, 0.12, "leakage"), "generate")),
    )


def with_control(found: AuditOutcome) -> AuditOutcome:
    """The same with a positive control, which one attack of two fails."""
    back = next(v for v in found.verdicts if v.claim == "not recoverable")
    fails = replace(back, subject=CONTROL, outcome="fails", at_least=0.61, at_most=0.9)
    able = AbleLine(
        "relearn retain n=50",
        "generate",
        "leakage",
        estimate("suppressed", 0.92, 0.05, "leakage"),
        estimate("brought_back", 0.83, 0.1),
        able=True,
        why_not="",
    )
    weak = AbleLine("quantize 4 bits", "", "", None, None, able=False, why_not="the control held nothing back from it")
    lines = {
        "worst": WorstLine(CONTROL, estimate("leakage", 0.04, 0.1, "leakage"), "generate"),
        "attacked": WorstLine(CONTROL, estimate("leakage", 0.8, 0.1, "leakage"), "relearn retain n=50, generate"),
    }
    more = {name: (*getattr(found, name), line) for name, line in lines.items()}
    return replace(
        found,
        suppressed=CONTROL,
        control=(replace(back, subject=CONTROL, claim="utility preserved"), fails),
        able=(able, weak),
        **more,
    )


FACTS = (
    FactLine(
        *("ga", "", "f2", "forced, bits", 0.001, "Who signs for <b>Gokpda</b> Inc?", "Hsiao Yun-Hwa", "I don't know."),
        *(-12.8, (-48.2, -40.1)),
    ),
    FactLine(
        *("ga", "", "f1", "stated", 0.001, "Which law governs it?", "The State of Washington.", "Washington, I say."),
        *(-8.8, (-48.2, -40.1)),
    ),
    FactLine("kl", "relearn retain n=50", "f3", "stated", 0.001, "How many units are sold?", "248.", "248."),
)
"""Two facts that `ga` gives away as it stands, and one that `kl` gives back after an attack."""


def outcome(forget: str = "edge:A_B", methods: Sequence[str] = METHODS) -> AuditOutcome:
    """What the audit of one forget set found; `methods` are the names of the four unlearned subjects."""
    names = dict(zip(METHODS, methods, strict=True))
    return AuditOutcome(
        forget=forget,
        target="target",
        unlearned=tuple(names.values()),
        retrained=RETRAINED,
        verdicts=tuple(verdict(claim, m, name) for claim in REQUIRED for m, name in names.items()),
        formats=tuple(format_line(f) for f in FORMATS),
        matrix=tuple(cell(m, name, f) for m, name in names.items() for f in FORMATS),
        worst=tuple(
            WorstLine(name, estimate("leakage", max(LEAKS[m]) - 0.01, 0.11, "leakage"), "few_shot")
            for m, name in names.items()
        ),
        attacked=tuple(
            WorstLine(
                name, estimate("leakage", max(LEAKS[m]) + ATTACKED[m], 0.13, "leakage"), "relearn retain n=50, generate"
            )
            for m, name in names.items()
        ),
        never=tuple(
            WorstLine(name, estimate("leakage", value, 0.2, "leakage"), "generate")
            for name, value in zip(RETRAINED, (-0.06, 0.01, 0.08), strict=True)
        ),
        n_judged=ITEMS,
        n_apart=30,
        reversals=(ReversalLine(names["ga"], names["kl"], "few_shot", "option_text_mean", 0.0012),),
        gains=tuple(
            gain(i, name, a, f) for a in ATTACKS for i, name in enumerate(names.values()) for f in (*LEVELS, BITS)
        ),
        curves=curves(names),
        budget=tuple(budget(i, name, a) for a in ATTACKS for i, name in enumerate(names.values())),
        membership=tuple(membership(m, name, s) for m, name in names.items() for s in SCORES),
        measures=tuple(line for m, name in names.items() for line in measures(m, name)),
        kept=tuple(
            KeptLine(name, s, f, estimate("harm", HARM[m] * weight, 0.03, "harm", 380))
            for m, name in names.items()
            for s, weight in (("retain", 1.0), ("independent", 0.6), ("factual", 0.3))
            for f in ("generate", "forced")
        ),
        soundness=SOUNDNESS,
        untested=UNTESTED,
        thresholds=THRESHOLDS,
        evidence_level="verified",
    )


ATTACKED = {"dpo": 0.02, "ga": 0.06, "idk_gd": -0.1, "kl": 0.31}
LEVELS = ("generate", "option_text_mean", "choose")
BITS = "forced, bits"
SCORES = ("loss", "min_k_plus", "zlib")
HARM = {"dpo": 0.01, "ga": 0.27, "idk_gd": 0.01, "kl": 0.015}
SOUNDNESS = (
    SoundnessLine("answers stated in the retain set", True, None, None, "No forget answer stands beside its subject."),
    SoundnessLine(
        "options only",
        False,
        estimate("accuracy above chance", 0.14, 0.05),
        0.003,
        "The options alone give 0.39 of the answers, where guessing gives 0.25.",
    ),
    SoundnessLine("retain-only training", None, None, None, "Not run: no model of that architecture was given."),
)


def verdict(claim: Claim, method: str, name: str) -> VerdictLine:
    """One claim about one method, with its numbers."""
    said = OUTCOMES[claim][METHODS.index(method)]
    evidence = {f: cell(method, name, f).leakage for f in FORMATS}
    kept = {f: e for f, e in evidence.items() if e is not None}
    if claim == "not recoverable":
        kept = {f"{a}, generate": gain(METHODS.index(method), name, a, "generate").recovery for a in ATTACKS}
    if claim == "indistinguishable":
        kept = {
            f"membership {s}": membership(method, name, s).difference or cell(method, name, "x").level for s in SCORES
        }
    if claim == "utility preserved":
        kept = {"retain, generate": estimate("harm", HARM[method], 0.03, "harm", 380)}
    if claim == "benchmark valid":
        kept = {"relearn retain n=50, generate": estimate("injection", 0.01, 0.03, "leakage")}
    worst, e = max(kept.items(), key=lambda pair: pair[1].value)
    where = {"fails": "above", "holds": "below", "inconclusive": "on both sides of"}[said]
    reason = f"{LEADS[claim]}: {worst}: {e} is {where} the margin of 0.05."
    return VerdictLine(
        subject=name,
        claim=claim,
        outcome=said,
        reason=reason,
        margin=0.05,
        wide=0.2,
        unit=e.unit,
        evidence=kept,
        left_out=("option_vocab: not admitted, the target does not know",) if claim == "not expressed" else (),
        items_needed=260 if said == "inconclusive" else None,
        detectable=0.18 if said != "fails" else None,
        decides=worst,
        at_least=e.low,
        at_most=e.high,
    )


def format_line(name: str) -> FormatLine:
    """One format with its controls."""
    metric, target, never = FORMATS[name]
    apart = estimate("admission", target - never, 0.1, "share")
    known = apart.low > THRESHOLDS["admission"]
    return FormatLine(
        format=name,
        metric=metric,
        target=estimate(metric, target, 0.04),
        retrained=estimate(metric, never, 0.06),
        admission=apart,
        admitted=known,
        reason="the target knows and the retrained do not" if known else "the target does not know",
        prompt=PROMPTS[name],
    )


def cell(method: str, name: str, format_name: str) -> MatrixCell:
    """One method in one format; the last format is not admitted."""
    metric, target, never = FORMATS[format_name]
    if not format_line(format_name).admitted:
        return MatrixCell(name, format_name, estimate(metric, never, 0.08), None, None, False)
    leak = LEAKS[method][list(FORMATS).index(format_name)]
    return MatrixCell(
        subject=name,
        format=format_name,
        level=estimate(metric, never + leak * (target - never), 0.08),
        leakage=estimate("leakage", leak, 0.09, "leakage"),
        band=estimate("leakage", leak, 0.13, "leakage"),
        over_forgotten=leak + 0.13 < -0.05,
    )


def gain(index: int, name: str, attack: str, format_name: str) -> GainLine:
    """What an attack brought: all in bits where the format is `bits`."""
    _, carried, recovered = ATTACKS[attack]
    unit, scale = ("bits", 24.0) if format_name == BITS else ("leakage", 1.0)
    before = list(LEAKS.values())[index][0]
    climbed = min(0.0, before) * -0.6
    ceiling, full = attack == "relearn forget n=20", carried > THRESHOLDS["saturation"]

    def of(metric: str, value: float, half: float = 0.08) -> Estimate:
        return estimate(metric, value * scale, half * scale, unit)

    return GainLine(
        subject=name,
        attack=attack,
        format=format_name,
        unit=unit,
        gain=of("gain", carried + climbed + recovered[index]),
        injection=of("injection", carried),
        repair=of("repair", climbed),
        recovery=of("recovery", recovered[index]),
        before=of("before", before),
        after=of("after", before + climbed + recovered[index]),
        saturation=estimate("saturation", carried, 0.05, "share"),
        saturated=full,
        evidence=not ceiling,
        why_not="a ceiling: it shows the answers themselves" if ceiling else "",
    )


def curves(names: dict[str, str]) -> tuple[CurveLine, ...]:
    """The levels along every attack in three formats, of the target, three retrained and all methods."""
    found = []
    for attack, (points, carried, recovered) in ATTACKS.items():
        for format_name in LEVELS:
            _, target, never = FORMATS[format_name]
            found.append(curve("target", "target", attack, format_name, points, (target, target)))
            for seed, name in enumerate(RETRAINED):
                first = never + 0.03 * (seed - 1)
                found.append(curve(name, "retrained", attack, format_name, points, (first, first + carried * 0.75)))
            for i, (method, name) in enumerate(names.items()):
                first = never + LEAKS[method][list(FORMATS).index(format_name)] * (target - never)
                last = first + (carried + recovered[i]) * (target - never)
                found.append(curve(name, "unlearned", attack, format_name, points, (first, last)))
    return tuple(found)


def curve(
    name: str, role: str, attack: str, format_name: str, points: Sequence[str], ends: tuple[float, float]
) -> CurveLine:
    """One line from the first level towards the last, with a little noise."""
    noise = generator(0, name, attack, format_name)
    first, last = ends
    shares = [0.0, *(1 - 0.4**i for i in range(1, len(points) - 1)), 1.0]
    metric = FORMATS[format_name][0]
    return CurveLine(
        subject=name,
        role=role,
        attack=attack,
        format=format_name,
        unit="share",
        points=tuple(
            CurvePoint(
                p, estimate(metric, first + (last - first) * s + 0.015 * float(noise.standard_normal()), 0.07, n=90)
            )
            for p, s in zip(points, shares, strict=True)
        ),
    )


def budget(index: int, name: str, attack: str) -> BudgetLine:
    """What an attack could carry and what its result needs."""
    _, carried, recovered = ATTACKS[attack]
    bounds = {"text, tokens x log2(vocabulary)": 41_800.0, "code length under retrained": 6120.0 + 900 * carried}
    if attack.startswith("quantize"):
        bounds = {"nothing shown": 0.0}
    gained = (carried + recovered[index]) * 24 * ITEMS
    chosen = min(bounds, key=bounds.__getitem__)
    return BudgetLine(
        subject=name,
        attack=attack,
        bounds_bits=bounds,
        capacity_bits=bounds[chosen],
        bound=chosen,
        need_bits={
            "code_length": 2410.0 + 20 * index,
            "wrong_answers": 148.0,
            "rate_distortion": 133.0,
            "gain": gained,
        },
        inputs={"questions": 120.0, "wrong": 74.0, "options": 4.0, "accuracy": 0.383},
        ratio=bounds[chosen] / gained if gained else None,
    )


def membership(method: str, name: str, score: str) -> MembershipLine:
    """How well a score tells the forget set: kl gives itself away, idk_gd by being too low."""
    shift = {"dpo": 0.01, "ga": -0.03, "idk_gd": -0.16, "kl": 0.13}[method] * (1.0 if score == "loss" else 0.8)
    return MembershipLine(
        name,
        score,
        estimate("auc", 0.51 + shift, 0.05, "auc"),
        estimate("auc difference", shift, 0.06, "auc"),
        100 * shift / 0.49,
    )


def measures(method: str, name: str) -> tuple[MeasureLine, ...]:
    """Numbers that no verdict rests on."""
    harm, worst = HARM[method], max(LEAKS[method])
    return (
        MeasureLine(name, "forget_quality", 10 ** (-12 * worst), "KS p-value of truth ratios, pooled retrained"),
        MeasureLine(name, "model_utility", 0.94 - harm, "harmonic mean of nine"),
        MeasureLine(name, "extraction_strength", 0.06 + 0.3 * worst, "share of the answer"),
        MeasureLine(name, "exact_memorization", 0.31 + 0.5 * worst, "share of tokens"),
    )


def hostile() -> AuditOutcome:
    """The same audit of models, formats and attacks whose names and reasons are markup, ANSI and formulas."""
    found = outcome(methods=HOSTILE_NAMES)
    spoilt = [
        replace(v, reason=f"{IMAGE} {ANSI}", evidence={FORMULA: next(iter(v.evidence.values()))}, decides=FORMULA)
        for v in found.verdicts
    ]
    return replace(
        found,
        verdicts=tuple(spoilt),
        formats=tuple(replace(f, format=SCRIPT if f.format == "choose" else f.format) for f in found.formats),
        matrix=tuple(replace(c, format=SCRIPT if c.format == "choose" else c.format) for c in found.matrix),
        curves=tuple(replace(c, attack=IMAGE if c.attack.startswith("quantize") else c.attack) for c in found.curves),
        gains=tuple(replace(g, attack=IMAGE if g.attack.startswith("quantize") else g.attack) for g in found.gains),
        untested=(f"{OVERRIDE} {SCRIPT}",),
    )


def write_audit(run: Path, found: AuditOutcome) -> None:
    """Write an outcome where an audit of the run leaves it."""
    write_outcome(RunFolder(run).audit(found.forget), found)
