"""Forecast of an audit before it starts: its questions, trainings, cost and statistical power."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from vestige.artifacts.audits import Claim
from vestige.auditing.gather import FORMATS
from vestige.auditing.recovery import relearns_retained
from vestige.auditing.request import AuditRequest, Question, check_request, within_reach
from vestige.auditing.run import (
    after_an_attack,
    attacked_models,
    attacks_of_freeform,
    plan_audit,
    suppression,
    with_control,
)
from vestige.auditing.settings import QUICK_OPEN, QUICK_SAID
from vestige.core.errors import InputError
from vestige.core.items import QUESTION_FORMS
from vestige.core.text import Fields, Names, Sentences, TextByName
from vestige.data.facts import facts_of
from vestige.metrics.intervals import PRIOR, PRIOR_BITS, PRIOR_GRADED, TYPICAL, TYPICAL_BITS, Noise
from vestige.metrics.planning import (
    ADVISED_CONTROLS,
    POWER,
    Design,
    Requirement,
    cheapest_together,
    describe_needed,
    joint_hold_rate,
    least_given_away,
    least_shown,
    needed,
    unsuspected,
)
from vestige.metrics.verdicts import Margins, Thresholds


@dataclass(frozen=True)
class TaskCost:
    """One task on one model: the items shown, the training steps, and the questions over all points.

    `passes` is the maximum number of single texts in a prompt search, `models` the maximum number of attacked models,
    and `least` their number if every unlearned model fails without an attack.
    """

    task: str
    shown: int
    steps: int
    questions: int
    passes: int = 0
    models: int = 1
    least: int = 0


@dataclass(frozen=True)
class AuditForecast:
    """The tasks of each model, the tests that are not tried with reasons, and the cost in a sentence.

    `control_steps` is the maximum number of steps for the positive control. `published` is the number of questions for
    the published figures that the target must reproduce first.
    """

    n_models: int
    each: tuple[TaskCost, ...]
    untested: Sentences
    control_steps: int = 0
    published: int = 0

    @property
    def n_questions(self) -> int:
        """The maximum number of questions to all models."""
        return sum(row.models * row.questions for row in self.each) + self.published

    @property
    def least_questions(self) -> int:
        """The number of questions to all models if no unlearned model has to be attacked."""
        return sum(row.least * row.questions for row in self.each) + self.published

    @property
    def n_steps(self) -> int:
        """The number of training steps on all models and the positive control."""
        return sum(row.models * row.steps for row in self.each) + self.control_steps

    @property
    def n_passes(self) -> int:
        """The maximum number of passes of prompt searches over all models."""
        return sum(row.models * row.passes for row in self.each)

    @property
    def said(self) -> str:
        """The cost in a sentence."""
        all_of_it = f"{self.n_models} models: {self.n_questions} questions and {self.n_steps} training steps in all"
        if self.least_questions < self.n_questions:
            all_of_it += f" at most, and {self.least_questions} questions if every model fails by its answers alone"
        if self.control_steps:
            all_of_it += f", at most {self.control_steps} of these to make a positive control"
        if self.n_passes:
            all_of_it += f", and at most {self.n_passes} passes of searches for prompts"
        return all_of_it

    def as_json(self) -> Fields:
        """Return all values as JSON."""
        sums = ("n_questions", "least_questions", "n_steps", "n_passes")
        return {**asdict(self), **{name: getattr(self, name) for name in sums}}


def forecast_audit(request: AuditRequest) -> AuditForecast:
    """Return the tasks of `run_audit` if every model can read its prompts. Loads no model and no torch."""
    from vestige.attacks.planning import attack_of

    check_request(request, whole=False)
    request = within_reach(request)
    request = with_control(plan_audit(request, contexts=False))
    n = len(request.models)
    rows = [TaskCost(f"evaluate by {q.eval}", 0, 0, q.n_items, models=n, least=n) for q in request.questions]
    # The plain relearning on retained items is always run on the controls.
    plain = next((a for a in request.attacks if relearns_retained(a.plan)), None)
    for attack in request.attacks:
        plan, kind = attack.plan, attack_of(attack.plan)
        after = after_an_attack(request.questions, plan.kind)
        questions = len(after) * len(plan.points) * len(plan.tested)
        retrained, unlearned, control = (request.names(role) for role in ("retrained", "unlearned", "suppressed"))
        models, least = 0, len(retrained) if attack is plain else 0
        if request.settings.all_attacks:
            models = least = n
        elif retrained:
            models = len(attacked_models(plan, request.target.name, retrained, unlearned, control))
        steps = kind.training_steps(plan)
        rows.append(TaskCost(plan.name, plan.n_shown, steps, questions, kind.passes(plan), models, least))
    n_published = 0
    if request.published is not None:
        from vestige.steps.evaluate import published_requests

        evaluations = published_requests(*request.published, request.seed)
        n_published = sum(len(e.settings.build_questions(e.items, e.views)) for e in evaluations)
    steps = 0 if all(m.model for m in request.models) else suppression(request, "", "").n_steps
    return AuditForecast(len(request.models), tuple(rows), request.untested, steps, n_published)


MOVED = 0.6
"""The assumed variance of the changes by an attack without gain, relative to the variance of the earlier answers."""
UNSTEADY = 9.0
"""In the second column of a plan, tau^2 is this multiple of the tiny model's, and at least a twentieth of sigma^2."""
_SHARES = {
    "words": (0.058, 0.83),
    "forced": (0.027, 0.75),
    "options a token": (0.0123, 0.535),
    "options": (0.0322, 0.80),
}
"""The variance sigma^2 of a fact, and the target's excess over its controls, for the tiny model (docs/verdicts.md)."""
_BITS, _PLACEMENTS, _AUC = 20.0, 0.015, 4e-4
"""The variance sigma^2 of bits and of placements, and tau^2 of an AUC, for the tiny model."""
NO_HOLDOUT = "Indistinguishable cannot pass without items that no model was taught: give --holdout."
_GAP_BITS = 20.0
"""The target's excess over its controls in bits per answer, for the tiny model."""
_CONTROLS = (2, 3, 5, 10)
SINGLES: Claim = "not expressed"
"""The claim that a suspected single fact often keeps from passing. After attacks this is rare (docs/findings)."""


class Noises(NamedTuple):
    """The variation between trainings: by format in shares, in bits, and in membership scores."""

    shares: Mapping[str, Noise]
    bits: Noise | None
    membership: tuple[Noise, float] | None = None


class CountedAttack(NamedTuple):
    """An attack that counts: the share of facts it is tested on, its formats, and whether it shows retain items."""

    items: float
    formats: Names
    bits: bool
    retain: bool


@dataclass(frozen=True)
class ClaimPower:
    """The power of an audit for one claim.

    All of `quantities` must pass. `hold` is the probability that perfect unlearning passes, and `unsteady` is that
    probability for trainings with more variance. `leakage` and `bits` are the smallest amounts that fail the claim in
    80 % of audits.
    """

    claim: Claim
    quantities: int
    holds: float
    unsteady: float
    leakage: float | None = None
    bits: float | None = None


@dataclass(frozen=True)
class AuditPower:
    """The power of an audit with these facts, wordings, controls and margins.

    `holds` is the probability that perfect unlearning passes all claims, and `by_controls` gives it for other numbers
    of controls. `needed` lists single changes that would raise it to 80 % ("" if no single change does). `given_away`
    is the number of facts that fail a claim if one model states them and no control does (None with fewer than three
    controls). The claims in `cannot_hold` lack required evidence, so neither they nor all claims together can pass.
    """

    facts: int
    wordings: float
    controls: int
    formats: Names
    attacks: int
    margins: Margins
    margins_bits: Margins
    claims: tuple[ClaimPower, ...]
    holds: float
    unsteady: float
    by_controls: dict[int, float]
    needed: str
    given_away: int | None
    untested: Sentences
    cannot_hold: Names = ()


def foresee_audit(request: AuditRequest) -> AuditPower:
    """Predict the power of an audit of these data. Only the number of controls matters (5 if there are none)."""
    is_quick = QUICK_SAID in request.untested
    request, thresholds = plan_audit(request, contexts=False), request.settings.of_gap(_GAP_BITS)
    if thresholds.scope == "population":
        raise InputError("a plan predicts verdicts about these facts only. Leave scope=population out")
    splits = request.splits.splits
    judged = [i for i in splits["forget"] if request.splits.scopes.get(i.id, "free") == "free"]
    # If the retain set reveals every answer, all items are judged, as in `ground.judged_items`.
    ids = {i.id for i in judged or splits["forget"]}
    # A fact is identified by its first wording, as in the judgement.
    leads = facts_of(request.limited.splits["forget"])
    first = {i: leads.get(i, i) for i in ids}
    facts = len(set(first.values()))
    # Without controls, the forecast assumes the recommended number.
    design = Design(facts, len(request.names("retrained")) or ADVISED_CONTROLS, len(ids) / facts)
    steady = _typical(request.questions, len(splits.get("holdout", ())), len(ids))
    tries = [
        CountedAttack(
            len({first[i] for i in plan.tested if i in ids}) / facts,
            tuple(steady.shares),
            True,
            relearns_retained(plan),
        )
        for plan in (attack.plan for attack in request.attacks)
        if not plan.shows_answers
    ]
    for _ in attacks_of_freeform(request):
        tries.append(CountedAttack(1.0, ("generate_plain",), False, False))
    # An attack decides nothing if the retain set reveals all facts that it is tested on.
    tries = [attempt for attempt in tries if attempt.items > 0]
    requirements = wanted_by_claim(steady, tries, thresholds)
    unsteady = wanted_by_claim(_unsteady(steady), tries, thresholds)

    def shown(noise: Noise | None, margin: float) -> float | None:
        if noise is None:
            return None
        # Each format is a test, and is corrected for the others.
        return least_shown(Requirement(noise, margin), design, tests=len(requirements["not expressed"]))

    # A leak can be in any format, so the format with the least power decides.
    worst = max(steady.shares.values(), key=lambda noise: noise.fact / noise.ruler**2)
    effects = shown(worst, thresholds.delta), shown(steady.bits, thresholds.delta_bits)
    without = () if splits.get("holdout") else (NO_HOLDOUT,)
    never: tuple[Claim, ...] = ("indistinguishable",) if without else ()
    if is_quick:
        never = QUICK_OPEN
    every = {*requirements, *never}

    def holds(quantities: Sequence[Requirement], claims: Collection[Claim] = every, of: Design = design) -> float:
        """Return the probability that all quantities pass. It is 0 if one of the `claims` cannot pass."""
        if not set(never).isdisjoint(claims):
            return 0.0
        rate = joint_hold_rate(quantities, of)
        if SINGLES in claims:
            rate *= unsuspected(of.controls)
        return rate

    claims = tuple(
        ClaimPower(
            claim,
            len(quantities),
            holds(quantities, [claim]),
            holds(unsteady[claim], [claim]),
            *(effects if claim == "not expressed" else ()),
        )
        for claim, quantities in requirements.items()
    )
    whole = joint(requirements)
    whole_holds = holds(whole)
    ways = ""
    if not never and whole_holds < POWER:
        ways = describe_needed(needed(whole, design, singles=True), design) or cheapest_together(whole, design)
    return AuditPower(
        facts=facts,
        wordings=design.wordings,
        controls=design.controls,
        formats=tuple(steady.shares),
        attacks=len(tries),
        margins=thresholds.margins("leakage"),
        margins_bits=thresholds.margins("bits"),
        claims=claims,
        holds=whole_holds,
        unsteady=holds(joint(unsteady)),
        by_controls={m: holds(whole, of=design._replace(controls=m)) for m in _CONTROLS},
        needed=ways,
        given_away=least_given_away(design.controls),
        untested=(*without, *request.untested),
        cannot_hold=never,
    )


def wanted_by_claim(
    noises: Noises, attacks: Sequence[CountedAttack], thresholds: Thresholds
) -> dict[Claim, list[Requirement]]:
    """Return the required tests of each claim except `utility preserved`."""
    wide, bits = thresholds.delta_wide, thresholds.delta_wide_bits
    apart = [Requirement(noise._replace(ruler=1.0), wide, both=True) for noise in noises.shares.values()]
    if noises.membership is not None:
        apart.append(Requirement(noises.membership[0], wide, True, noises.membership[1]))
    requirements: dict[Claim, list[Requirement]] = {
        "not expressed": [Requirement(noise, wide) for noise in noises.shares.values()],
        "not recoverable": [],
        "indistinguishable": apart,
        "benchmark valid": [],
    }
    if noises.bits is not None:
        requirements["not expressed"].append(Requirement(noises.bits, bits))
        requirements["indistinguishable"].append(Requirement(noises.bits, bits, both=True))
    for attack in attacks:
        moved = [_moved(noises.shares[f]) for f in attack.formats if f in noises.shares]
        requirements["not recoverable"] += [Requirement(noise, wide, items=attack.items) for noise in moved]
        if attack.retain:
            fixed = [noise._replace(trained=False) for noise in moved]
            requirements["benchmark valid"] += [Requirement(noise, wide, items=attack.items) for noise in fixed]
        if attack.bits and noises.bits is not None:
            requirements["not recoverable"].append(Requirement(_moved(noises.bits), bits, items=attack.items))
    return {claim: quantities for claim, quantities in requirements.items() if quantities}


def joint(requirements: Mapping[Claim, Sequence[Requirement]]) -> list[Requirement]:
    """Return the tests behind all claims. The excess in shares is omitted: it is leakage in another unit."""
    return [
        quantity
        for quantities in requirements.values()
        for quantity in quantities
        if not (quantity.both and quantity.noise.width is not None)
    ]


def _moved(noise: Noise) -> Noise:
    return noise._replace(fact=MOVED * noise.fact, common=MOVED * noise.common)


def _typical(questions: Sequence[Question], n_holdout: int, n_forget: int) -> Noises:
    """Return the variation between trainings of the tiny model in these formats."""
    kinds: TextByName = {}
    for question in questions:
        if question.eval == "qa":
            kinds |= {"generate": "words", "forced": "forced"}
        elif question.eval == "choices":
            kinds |= {"option_text_mean": "options a token", "option_text_sum": "options"}
        elif question.eval == "freeform":
            chosen = [form for form in question.settings.model_dump()["forms"] if QUESTION_FORMS[form].words]
            kinds |= {"generate_plain" if form == "plain" else form: "words" for form in chosen}
    if not kinds:
        raise InputError("no evaluation asks for answers, so nothing can be planned. Add qa")
    graded, shares = {form.name for form in FORMATS if form.graded}, {}
    for name, kind in kinds.items():
        fact, ruler = _SHARES[kind]
        # The tiny model's target exceeds its controls equally in all facts, so each fact has the mean gap.
        prior = PRIOR_GRADED._replace(pair=ruler) if name in graded else PRIOR
        shares[name] = Noise(fact, TYPICAL * fact, ruler, 1.0, prior)
    bits = Noise(_BITS, TYPICAL_BITS * _BITS, 1.0, None, PRIOR_BITS) if "forced" in kinds else None
    membership = None
    if n_holdout and any(question.eval == "memory" for question in questions):
        # An AUC averages over both kinds of items, which is like N being their sum (auditing.measures).
        both = n_forget + n_holdout
        membership = Noise(_PLACEMENTS * both**2 / (n_forget * n_holdout), _AUC, 1.0, None, PRIOR), both / n_forget
    return Noises(shares, bits, membership)


def _unsteady(noises: Noises) -> Noises:
    def more(noise: Noise) -> Noise:
        return noise._replace(common=max(UNSTEADY * noise.common, noise.fact / 20))

    bits = None if noises.bits is None else more(noises.bits)
    membership = noises.membership
    if membership is not None:
        # An AUC has no minimum share of sigma^2 because it is one value for all items.
        noise, items = membership
        membership = noise._replace(common=UNSTEADY * noise.common), items
    return Noises({name: more(noise) for name, noise in noises.shares.items()}, bits, membership)
