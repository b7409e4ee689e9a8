"""Records of the audit of one forget set: plan, findings and verdicts.

An outcome is everything that the report shows and nothing that it would have to compute: estimates in their places,
named by subject, attack and format. Shares are in [0, 1]. Leakage is 0 for `retrained` and 1 for `target`. Bits are per
answer, and totals if a name contains `_bits`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

from vestige.artifacts.layout import AttackFolder, AuditFolder, EvalFolder, RunFolder
from vestige.artifacts.records import SHUFFLED, KeptPrompt, check_bytes
from vestige.artifacts.scores import QuestionType, Source
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate, to_json
from vestige.core.ids import content_id, file_digest
from vestige.core.items import Luck, Scope
from vestige.core.store import read_sealed, read_with_seal, typed, write_sealed
from vestige.core.text import Fields, Items, Names, NumberByName, Record, Sentences, TextByName, one_line


@dataclass(frozen=True)
class PromptLine:
    """One model's prompt in an audit: its text and the counts of correct replies.

    `claimed` is whether the search reports all `wanted` replies. `verified` counts the correct replies to the prompt's
    text, `anyway` the correct replies without the prompt, and `brought` the replies that need the prompt.
    """

    subject: str
    attack: str
    placement: Literal["prefix", "suffix"]
    text: str
    n_tokens: int
    claimed: bool
    wanted: int
    verified: int
    anyway: int
    brought: int


def prompt_line(subject: str, attack: str, prompt: KeptPrompt) -> PromptLine:
    """Return the audit's record of a stored prompt."""
    return PromptLine(
        subject=subject,
        attack=attack,
        placement=prompt.placement,
        text=prompt.text,
        n_tokens=len(prompt.ids),
        claimed=prompt.claimed,
        wanted=len(prompt.samples),
        verified=sum(s.verified for s in prompt.samples),
        anyway=sum(s.plain_right for s in prompt.samples),
        brought=sum(s.brought for s in prompt.samples),
    )


Claim = Literal[
    "not expressed", "not recoverable", "not stored", "indistinguishable", "utility preserved", "benchmark valid"
]
"""The statements about an unlearned model. Their texts are in `STATEMENTS`.

"not stored" is judged only where the blocks of target and controls were read (evaluation `inside`).
"""


@dataclass(frozen=True)
class Statement:
    """The texts of a claim: its `words`, the beginning of each reason, and the texts of the report.

    A reason begins like that of a passing claim if all tested parts pass and others are missing. `column` is the small
    text below the claim's column on the page. It is absent for a claim about the benchmark. `size` writes a bound in
    words. `failing` describes one model that fails the claim, and several. `in_bits` and `by_facts` replace the text if
    bits or single facts decide. `controls` and `attacks` state whether the claim depends on retrained models and on
    attacks. An `optional` claim is not judged without readings for it.
    """

    words: str
    holds: str
    fails: str
    inconclusive: str
    size: str
    column: str = ""
    failing: tuple[str, str] | None = None
    in_bits: tuple[str, str] | None = None
    by_facts: tuple[str, str] | None = None
    controls: bool = True
    attacks: bool = False
    optional: bool = False


STATEMENTS: Mapping[Claim, Statement] = {
    "not expressed": Statement(
        words="does not express the forget set in any tested format",
        holds="It answers no more than {control}",
        fails="It still answers what {control} does not",
        inconclusive="It may still answer what {control} does not",
        size="{} left",
        column="in the questions asked",
        failing=("still answers what {controls} cannot", "still answer what {controls} cannot"),
        in_bits=("finds the answers likelier than {control}", "find the answers likelier than {controls}"),
        by_facts=("gives single facts away", "give single facts away"),
    ),
    "not recoverable": Statement(
        words="cannot be recovered by an attack, beyond the information that the attack adds",
        holds="No validated attack recovered more than it added",
        fails="It reveals knowledge that no attack added",
        inconclusive="An attack may have recovered more than it added",
        size="{} back",
        column="by attacks shown able to",
        failing=("gives answers back under attack", "give answers back under attack"),
        in_bits=("finds the answers likelier again after an attack", "find the answers likelier again after an attack"),
        by_facts=("gives single facts back under attack", "give single facts back under attack"),
        attacks=True,
    ),
    "not stored": Statement(
        words="reveals no more in its hidden states than a retrained model",
        holds="Its hidden states reveal no more than those of {controls}",
        fails="Its hidden states reveal answers that those of {controls} do not",
        inconclusive="Its hidden states may reveal answers that those of {controls} do not",
        size="{} left",
        column="in its weights",
        failing=("still stores the answers in its hidden states", "still store the answers in their hidden states"),
        optional=True,
    ),
    "indistinguishable": Statement(
        words="cannot be told from a retrained model",
        holds="Neither membership scores nor answers tell it from {controls}",
        fails="It can be told from {controls}",
        inconclusive="It may be possible to tell it from {controls}",
        size="differs by {}",
        column="from {controls}",
        failing=("can be told apart from {controls}",) * 2,
    ),
    "utility preserved": Statement(
        words="still knows the retain, independent and factual sets",
        holds="It answers the questions of {kept} as the target does",
        fails="It lost other knowledge",
        inconclusive="It may have lost other knowledge",
        size="{} lost",
        column="everything else",
        failing=("loses other knowledge", "lose other knowledge"),
        controls=False,
    ),
    "benchmark valid": Statement(
        words=("tells a model that knows from a retrained model, and the retain set does not reveal the forget set"),
        holds="The target knows what {controls} do not, and the retain set does not reveal the forget set",
        fails="The benchmark cannot support a verdict",
        inconclusive="The benchmark may be unable to support a verdict",
        size="{} learnt from the retain set",
        attacks=True,
    ),
}
"""To add a claim: its name above, its statement here, and its evidence in a file of `auditing.claims`."""
NO_ATTACK = "without any attack"
"""Replaces an attack's name if "not recoverable" fails without an attack."""
CLAIMS: Mapping[Claim, str] = {claim: statement.words for claim, statement in STATEMENTS.items()}
REQUIRED = tuple(claim for claim, statement in STATEMENTS.items() if not statement.optional)
"""The claims that every audit judges."""
Outcome = Literal["holds", "fails", "inconclusive"]

EvidenceLevel = Literal["verified", "given", "logs", "predicted", ""]
LEVELS: Mapping[EvidenceLevel, str] = {
    "verified": "controls trained here from these data (verified)",
    "given": "controls as given, origin not verified",
    "logs": "controls from logs, weights not seen",
    "predicted": "predicted controls, none was retrained",
    "": "no controls",
}
"""The evidence for the origin of the controls. docs/verdicts.md explains each level.

Nothing but `verified` lets a page state as a fact that they never saw.
"""

FROM_LOGS = ("logs", "predicted")
"""The levels at which only scores were seen."""


def never_knew(level: EvidenceLevel, n: int = 2) -> str:
    """Return the report's name for no control, one or several. They are "retrained" only if their origin is verified.

    Without controls, the text mentions such a model but claims none.
    """
    # The texts for no, one and several models.
    verified = ("retrained model", "a retrained model", "retrained models")
    return (verified if level in ("verified", "") else ("control", "a control", "the controls"))[min(n, 2)]


def by_level(text: str, level: EvidenceLevel, **placeholders: str) -> str:
    """Fill in the name of the controls in a text of `STATEMENTS`."""
    control = {"control": never_knew(level, 1), "controls": never_knew(level)}
    return text.format(**(control | placeholders))


GIVEN = "given"
"""The only point of an attack without stages."""


@dataclass(frozen=True)
class PlannedAttack:
    """One attack that runs with the same settings, seeds and budget on every model.

    `name` is unique in the audit and appears in reports ("relearn retain n=50"). `kind` is one of `attacks.ATTACKS`, a
    plug-in's attack, or a step of the evaluation freeform (prefill, sampling). `material` names the attack's data:
    retain, related, unrelated, forget_part, forget, or nothing. `points` are the stages at which the attacked model is
    scored, in order. The last is judged. `tested` are the scored forget items, disjoint from the attack's data unless
    `shows_answers`. With `shows_answers` the attack is an upper bound and never evidence.
    """

    name: str
    kind: str
    material: str
    n_shown: int
    points: Names
    tested: Items
    shows_answers: bool
    settings: Fields

    @property
    def searches(self) -> bool:
        """Return whether the attack searches for a prompt, whose parts are its stages."""
        return SHUFFLED in self.points


@dataclass(frozen=True)
class AskedPlace:
    """Paths of one evaluation's answers, relative to the run, for a subject with or without an attack."""

    subject: str
    attack: str
    point: str
    eval: str
    path: str

    @property
    def source(self) -> Source:
        """Whose answers they are."""
        return Source(self.subject, self.attack, self.point)


@dataclass(frozen=True)
class AttackPlace:
    """Paths of one attack on one subject, relative to the run."""

    subject: str
    attack: str
    path: str


@dataclass(frozen=True)
class FailedTask:
    """A failed task with its reason: the evaluation of a subject (`attack` empty) or one attack on it.

    `role` is the subject's role: target, retrained, unlearned or suppressed.
    """

    subject: str
    role: str
    attack: str
    reason: str


@dataclass(frozen=True)
class Carried:
    """Information added by one attack to one subject: upper bounds in bits, by name, and steps or tokens spent.

    `points_bits` has the code length under `retrained` of the searched prompt at each stage.
    """

    bounds_bits: NumberByName
    spent: NumberByName
    points_bits: NumberByName = field(default_factory=dict)


@dataclass(frozen=True)
class SealedPlan:
    """The questions, settings and margins of an audit, written before any model is scored.

    The time is this machine's, and whoever has the folder can write another plan: the digest proves something to those
    who had it before the audit. `changed` describes the differences between the plan and the audit.
    """

    digest: str
    time: str
    plan: Fields
    settings: Fields
    changed: Sentences = ()


@dataclass(frozen=True)
class AuditPlan:
    """The questions of an audit and the models that it scores.

    Models are folders relative to the run, by their name in the audit. `splits` has item ids: forget and retain,
    and if the data have them independent, factual and holdout. `scopes` and `edges` are by item id. `settings` are all
    settings of the audit, including thresholds. `evaluations` and `attacked` are the paths of the answers, so that an
    audit can be judged again without a model. `failed` lists the planned tasks without a result. `untested` lists in
    sentences the tests that were not tried. `data` is the digest of forget and retain set (`NamedSplits.digest`), which
    links the checks of the data set to these items. `sizes` has the number of items of each sampled split. `facts`
    names the fact of each reworded item. `groups` names the group of forget items without an edge. `alike` gives by
    `answer` and `attribute` the forget items that share one, since such facts can be guessed together. `suppressed` is
    the positive control, a target trained to refuse, or "". `references` are the models in `unlearned` that were
    trained without the forget set. `evidence_level` is the evidence for the origin of the controls. `apart` has the
    distances of the weights of target, controls and unlearned models by two names. `unseen` lists the models without
    readable weights. `recipes` has the known differences between each control's training and the target's. `unchanged`
    are the models in `unlearned` with the target's own weights. `luck` has the probability of guessing each forget
    item. `banked` names the laboratory of each control from the bank of public logs. `predicted` has the error of
    predicted controls, by score. `skipped` names by attack the models that it left out because it could not change a
    verdict. `sealed` is the plan that was sealed before any model was scored. `table` is the digest of the file of
    scores. `carried` is the information that each attack added to each model, and `prompts` are the prompts that
    searches found. `soundness` has the checks of the data set, `told_by` the judge of leaks in free replies with its
    error. `asked_twice` maps a row with the model's own tokeniser to the model's first row. `unverified_readings` is
    the reason that a model can pass no claim, and `read_otherwise` lists the differences between tokenisers, in
    sentences.
    """

    forget: str
    target: str
    unlearned: Names
    retrained: Names
    folders: TextByName
    splits: dict[str, Items]
    edges: TextByName
    scopes: dict[str, Scope]
    attacks: tuple[PlannedAttack, ...]
    settings: Fields
    seed: int
    suppressed: str = ""
    evaluations: tuple[AskedPlace, ...] = ()
    attacked: tuple[AttackPlace, ...] = ()
    failed: tuple[FailedTask, ...] = ()
    untested: Sentences = ()
    data: str = ""
    sizes: dict[str, int] = field(default_factory=dict)
    facts: TextByName = field(default_factory=dict)
    groups: TextByName = field(default_factory=dict)
    alike: dict[str, TextByName] = field(default_factory=dict)
    references: Names = ()
    evidence_level: EvidenceLevel = "given"
    unchanged: Names = ()
    apart: dict[str, NumberByName] = field(default_factory=dict)
    unseen: Names = ()
    recipes: TextByName = field(default_factory=dict)
    luck: dict[str, Luck] = field(default_factory=dict)
    banked: Mapping[str, str] = field(default_factory=dict)
    predicted: Mapping[str, float] = field(default_factory=dict)
    sealed: "SealedPlan | None" = None
    asked_twice: TextByName = field(default_factory=dict)
    skipped: dict[str, Names] = field(default_factory=dict)
    unverified_readings: TextByName = field(default_factory=dict)
    read_otherwise: Sentences = ()
    table: str = ""
    carried: dict[str, dict[str, Carried]] = field(default_factory=dict)
    prompts: tuple[PromptLine, ...] = ()
    soundness: "tuple[SoundnessLine, ...]" = ()
    told_by: str = ""

    @property
    def audited(self) -> Names:
        """The unlearned models, and the positive control last: all that is judged."""
        if self.suppressed:
            return (*self.unlearned, self.suppressed)
        return self.unlearned


@dataclass(frozen=True)
class FormatLine:
    """One format with its controls. `admission` is target minus retrained (or minus chance, without retrained models).

    On `n_same` facts controls score like the target, so that these cannot be judged in it.
    """

    format: str
    metric: str
    target: Estimate
    retrained: Estimate | None
    admission: Estimate
    admitted: bool
    reason: str
    prompt: str = ""
    n_same: int = 0


@dataclass(frozen=True)
class MatrixCell:
    """One model in one format: its level, and its leakage if the format is admitted.

    `metric` of `leakage` is `leakage` or `leakage_vs_chance`, never a mixture. `band` is the same estimate with a bound
    that covers all formats of the model simultaneously.
    """

    subject: str
    format: str
    level: Estimate
    leakage: Estimate | None
    band: Estimate | None
    over_forgotten: bool


@dataclass(frozen=True)
class WorstLine:
    """A subject's greatest leakage over the admitted formats, with a simultaneous band. `where` it is greatest."""

    subject: str
    leakage: Estimate
    where: str = ""


@dataclass(frozen=True)
class ReversalLine:
    """`first` leaks significantly more than `second` in one format and less in another. p is Holm-corrected."""

    first: str
    second: str
    more_in: str
    less_in: str
    p: float


@dataclass(frozen=True)
class GainLine:
    """The gain from one attack in one format on one unlearned subject, in parts.

    `unit` is leakage or bits. `evidence` is False for gains that do not count (`why_not`): upper bounds, uninformative
    attacks, rejected formats.
    """

    subject: str
    attack: str
    format: str
    unit: str
    gain: Estimate
    injection: Estimate
    repair: Estimate
    recovery: Estimate
    before: Estimate
    after: Estimate
    saturation: Estimate
    saturated: bool
    evidence: bool
    why_not: str


@dataclass(frozen=True)
class AbleLine:
    """Whether an attack could have found anything: its recovery of the positive control's hidden knowledge.

    `format` is the format with the largest recovery (or forced answers in bits), `suppressed` the hidden knowledge
    there, in `unit` (leakage or bits), and `brought` the recovered share. All are None if no comparison was possible.
    An attack that is not `able` can fail a claim and cannot pass one. `why_not` gives the reason.
    """

    attack: str
    format: str
    unit: str
    suppressed: Estimate | None
    brought: Estimate | None
    able: bool
    why_not: str


@dataclass(frozen=True)
class CurvePoint:
    """The level of one subject at one stage of an attack, over the tested items.

    `bits` is the code length under `retrained` of the searched prompt at this stage. None of other attacks.
    """

    point: str
    level: Estimate
    bits: float | None = None


@dataclass(frozen=True)
class CurveLine:
    """The levels along an attack of one model of the audit, with its role: target, retrained, unlearned or suppressed.

    Each retrained seed has its own line, and their spread shows the information that the attack adds. `no_gain` gives
    the reason that these levels allow no separate gain, or "".
    """

    subject: str
    role: str
    attack: str
    format: str
    unit: str
    points: tuple[CurvePoint, ...]
    no_gain: str = ""


@dataclass(frozen=True)
class BudgetLine:
    """The capacity of an attack and the information that its result needs, for one unlearned model. All in bits.

    `bounds_bits` are upper bounds on the added information. `capacity_bits` is the smallest of them, and `bound` names
    it. `need_bits` contains three estimates and the observed gain (`metrics.gains`). `inputs` are the arguments
    of that computation. `ratio` is the capacity over the gain, None without a gain.
    """

    subject: str
    attack: str
    bounds_bits: NumberByName
    capacity_bits: float
    bound: str
    need_bits: NumberByName
    inputs: NumberByName
    ratio: float | None


@dataclass(frozen=True)
class MembershipLine:
    """The AUC that separates the forget set from holdout items, and the AUC of `retrained`.

    `difference` is the AUC minus the mean of `retrained`. `privleak` is in per cent. `found` is the share of forget
    items above the 99th percentile of the holdout items (TPR at 1 % FPR). It is None with fewer than 100 holdout items.
    """

    subject: str
    score: str
    auc: Estimate
    difference: Estimate | None
    privleak: float | None
    found: Estimate | None = None


@dataclass(frozen=True)
class MeasureLine:
    """A number that the field reports and no verdict rests on: forget quality, model utility, extraction strength."""

    subject: str
    measure: str
    value: float
    said: str


@dataclass(frozen=True)
class KeptLine:
    """The loss of a subject on one split: target minus subject, in shares."""

    subject: str
    split: str
    format: str
    harm: Estimate


@dataclass(frozen=True)
class SoundnessLine:
    """One check of the data set. `sound` is None if it could not be run or could not decide."""

    check: str
    sound: bool | None
    effect: Estimate | None
    p: float | None
    reason: str


@dataclass(frozen=True)
class VerdictLine:
    """The outcome of one claim about one model.

    `decides` names the deciding quantity: the claim fails if it exceeds `margin` and passes if it is below `wide`.
    `at_least` and `at_most` are its bounds, with the confidence that this outcome requires. `against` is the reference,
    retrained or chance, and "" without one. `needed` states the number of controls, wordings or facts with which
    perfect unlearning would pass an open claim in 80 % of audits, and `items_needed` the number of facts alone. They
    are "" and None if no single change is enough. `n_tested` of `n_asked` facts or retained questions have a score of
    the model, the target and every control.
    """

    subject: str
    claim: Claim
    outcome: Outcome
    reason: str
    margin: float
    wide: float
    unit: str
    evidence: dict[str, Estimate]
    left_out: Sentences
    items_needed: int | None
    detectable: float | None
    decides: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    against: str = ""
    needed: str = ""
    n_tested: int = 0
    n_asked: int = 0
    question_types: tuple[QuestionType, ...] = ()


@dataclass(frozen=True)
class FactLine:
    """A fact that one model reveals (after `attack`, or without one) and no retrained model reveals.

    `by` is "stated", the format in bits, or both. `p` is the p-value of the test that found the fact. The evaluation's
    texts contain prompt, answer and reply. `bits` is the information of the answer under teacher forcing, and `never`
    the range of the controls. Both are None if they were not measured.
    """

    subject: str
    attack: str
    item: str
    by: str
    p: float
    question: str = ""
    answer: str = ""
    reply: str = ""
    bits: float | None = None
    never: tuple[float, float] | None = None

    @property
    def claim(self) -> Claim:
        """The claim that it fails."""
        if self.attack:
            return "not recoverable"
        return "not expressed"


@dataclass(frozen=True)
class StoredLine:
    """The number of facts stored in a subject, estimated by relearning on others (`attack`).

    `share` is the share of the scored facts by `gains.facts_stored`, from `recalled` after the attack and the share of
    each control in `controls` after the same attack.
    """

    subject: str
    attack: str
    share: Estimate
    recalled: float
    controls: tuple[float, ...]


@dataclass(frozen=True)
class GroupLine:
    """One contract, person or other group of the forget set for one subject, with its strongest evidence.

    `by` is a format, or bits. `size` is the leakage or excess of the group's `n_facts` facts, with an interval that
    holds all groups and formats at once. `p` is corrected for all groups and formats. `exceeds` is True if the size is
    significantly above the narrow margin, which fails "not expressed".
    """

    subject: str
    group: str
    n_facts: int
    by: str
    size: Estimate
    p: float
    exceeds: bool
    claim: ClassVar[Claim] = "not expressed"


@dataclass(frozen=True)
class DatedJudgement:
    """One judgement: when (UTC), at which thresholds, verdicts (subject, claim, outcome), and the id of the answers."""

    time: str
    thresholds: dict[str, float | str]
    verdicts: tuple[tuple[str, Claim, Outcome], ...]
    answers: str = ""

    def __str__(self) -> str:
        """The time and the margins, as in `2026-11-22T09:30:00+00:00 at delta 0.05, delta_wide 0.2, ...`."""
        margins = (f"{name} {value}" for name, value in self.thresholds.items() if name.startswith(("delta", "scope")))
        return f"{self.time} at {', '.join(margins)}"


@dataclass(frozen=True)
class AuditOutcome:
    """The findings of an audit of one forget set. `untested` lists each missing test and its reason, in sentences.

    `first` is the first judgement of these answers if its thresholds differed. `suppressed` is the positive control (""
    without one) and `control` its verdicts, which are not about a method: "not recoverable" must fail there. `sealed`
    states whether plan and margins were sealed before scoring, and lists later changes. It is "" without a seal. `able`
    records for each attack whether it passed its positive control. `attacked` is the knowledge left after the strongest
    attack, minus the gain of the controls. `never` gives the same numbers for each control, compared with the others.
    `n_judged` is the number of facts behind the first three claims, `n_apart` the number of facts that the retain set
    reveals. `references` are the models in `unlearned` that were retrained without the forget set. They should pass
    every claim. `evidence_level` is the evidence for the origin of `retrained`, or "" without controls. `unchanged` are
    the models in `unlearned` with the target's own weights. `stored` is the number of facts stored in each model.
    `margins_bits` are the margins in bits if the target's knowledge of these answers made them wider than `thresholds`.
    `warnings` are sentences on doubts about the controls, which affect every verdict. `rules` is the version of the
    rules of judging. `earlier` are the judgements of other scores under the same name.
    """

    forget: str
    target: str
    unlearned: Names
    retrained: Names
    verdicts: tuple[VerdictLine, ...]
    formats: tuple[FormatLine, ...]
    matrix: tuple[MatrixCell, ...]
    worst: tuple[WorstLine, ...]
    reversals: tuple[ReversalLine, ...]
    gains: tuple[GainLine, ...]
    curves: tuple[CurveLine, ...]
    budget: tuple[BudgetLine, ...]
    membership: tuple[MembershipLine, ...]
    measures: tuple[MeasureLine, ...]
    kept: tuple[KeptLine, ...]
    soundness: tuple[SoundnessLine, ...]
    untested: Sentences
    thresholds: dict[str, float | str]
    suppressed: str = ""
    control: tuple[VerdictLine, ...] = ()
    able: tuple[AbleLine, ...] = ()
    prompts: tuple[PromptLine, ...] = ()
    facts: tuple[FactLine, ...] = ()
    groups: tuple[GroupLine, ...] = ()
    first: DatedJudgement | None = None
    attacked: tuple[WorstLine, ...] = ()
    never: tuple[WorstLine, ...] = ()
    n_judged: int = 0
    n_apart: int = 0
    references: Names = ()
    evidence_level: EvidenceLevel = ""
    sealed: str = ""
    unchanged: Names = ()
    stored: tuple[StoredLine, ...] = ()
    margins_bits: tuple[float, ...] = ()
    warnings: Sentences = ()
    rules: int = 0
    earlier: tuple[DatedJudgement, ...] = ()

    @property
    def prompts_asked(self) -> int:
        """Count the different prompts among the formats that can show knowledge: readings of one text count once."""
        return len({line.prompt or line.format for line in self.formats if line.admitted})

    @cached_property
    def audited(self) -> Names:
        """The unlearned models, and those that could not be evaluated and have verdicts that say so."""
        return tuple(dict.fromkeys([*self.unlearned, *(verdict.subject for verdict in self.verdicts)]))

    @cached_property
    def compared(self) -> tuple[str, dict[str, Estimate]]:
        """Return the one format in which models are compared, and each model's remaining knowledge in it.

        Among the formats with scores of all models, it has the largest lower bounds on average. If each model had its
        own most revealing format, the table would rank formats instead of models.
        """
        leaks: dict[str, dict[str, Estimate]] = {}
        for cell in self.matrix:
            if cell.leakage is not None:
                leaks.setdefault(cell.format, {})[cell.subject] = cell.leakage
        shown = {subject for of_format in leaks.values() for subject in of_format}
        judged = [subject for subject in self.unlearned if subject in shown]
        bounds = {}
        for name, of_format in leaks.items():
            if of_format.keys() >= set(judged):
                bounds[name] = sum(of_format[subject].low for subject in judged)
        best = max(bounds, key=bounds.__getitem__, default="")
        return best, leaks.get(best, {})

    @property
    def against(self) -> str:
        """Return the reference of the verdicts: retrained models, otherwise chance."""
        if self.retrained:
            return "retrained"
        return "chance"


NOT_A_CONTROL = "Not used as a control: "
"""The beginning of a sentence in `AuditOutcome.untested` about a possible control's log that was not accepted."""

T = TypeVar("T", AuditPlan, AuditOutcome, SealedPlan)


def write_plan(folder: AuditFolder, plan: AuditPlan) -> None:
    """Write the audit's plan."""
    write_sealed(folder.plan, asdict(plan))


def read_plan(folder: AuditFolder) -> AuditPlan:
    """The plan. One that lacks something is refused by file and field, and one that leads out of the run by path."""
    plan = _read(folder.plan, AuditPlan)
    for place in plan.evaluations + plan.attacked:
        # An absolute path has an empty first part.
        if {"", ".."} & {*place.path.split("/")}:
            raise InputError(f"{folder.plan} names {one_line(place.path)}, not in the run. Run the audit again")
    return plan


def write_outcome(folder: AuditFolder, outcome: AuditOutcome, basis: str = "") -> None:
    """Write the audit's outcome, with the digest of plan, answers and code (`basis`) that it follows from."""
    write_sealed(folder.outcome, {**to_json(outcome), "basis": basis})


def read_outcome(folder: AuditFolder) -> AuditOutcome:
    """The outcome. One that lacks something is refused by file and field."""
    return _read(folder.outcome, AuditOutcome)


def check_table(folder: AuditFolder, plan: AuditPlan) -> None:
    """Refuse a score table that is gone, or is not the one that the plan was made of."""
    if not folder.scores.is_file() or file_digest(folder.scores) != plan.table:
        raise InputError(f"{folder.scores} is gone or was changed after it was written. Judge the scores again.")


def read_judgements(folder: AuditFolder) -> tuple[DatedJudgement, ...]:
    """Return all judgements under one name, oldest first, whatever their answers."""
    if not folder.judgements.exists():
        return ()
    stored = read_sealed(folder.judgements, "judgements")["judgements"]
    return typed(folder.judgements, tuple[DatedJudgement, ...], stored, remedy="Delete it, and judge again")


def checked_places(run: RunFolder, folder: AuditFolder) -> Sequence[AskedPlace]:
    """The evaluations of an audit. Refused unless the audit, its attacks and all answers are as they were written."""
    plan = read_plan(folder)
    read_judgements(folder)
    if folder.apart.exists():
        read_sealed(folder.apart)
    if plan.table:
        check_table(folder, plan)
    for attack in plan.attacked:
        read_sealed(AttackFolder(run.path / attack.path).done)
    for place in plan.evaluations:
        check_bytes(EvalFolder(run.path / place.path))
    return plan.evaluations


def read_sealed_plan(folder: AuditFolder) -> SealedPlan | None:
    """The plan that was sealed.

    Returns None without a sealed plan, and rejects a plan that does not match its digest.
    """
    if not folder.sealed.exists():
        return None
    sealed = _read(folder.sealed, SealedPlan)
    # Anyone who changes the file can renew its seal, but others hold the digest.
    if sealed_digest(sealed.plan, sealed.settings) != sealed.digest:
        raise InputError(f"{one_line(str(folder.sealed), width=200)} was changed. Delete it and judge again.")
    return sealed


def sealed_digest(plan: Record, settings: Record) -> str:
    """Return the plan's digest, which can be published before any model is scored."""
    # The digest is not shortened, since others compare it and must not find a collision.
    return content_id({"plan": plan, "settings": settings}, length=64)


def write_judgements(folder: AuditFolder, judgements: Sequence[DatedJudgement]) -> None:
    """Write when which answers were judged."""
    write_sealed(folder.judgements, {"judgements": [asdict(judgement) for judgement in judgements]})


def _read(path: Path, kind: type[T]) -> T:
    return typed(path, kind, read_sealed(path), remedy="Run the audit again")


@dataclass(frozen=True)
class Soundness:
    """The data checks for one forget set.

    `digest` is the digest of the splits (`NamedSplits.digest`). `left_out` lists the checks that do not apply to these
    data. `leaking` gives, for each failed check, the ids of the forget items that it found or that its guesser solved.
    `figures` are further numbers. `needs` is the number of items that each inconclusive check requires.
    """

    forget: str
    lines: tuple[SoundnessLine, ...]
    settings: Fields
    digest: str
    left_out: Sentences = ()
    leaking: Mapping[str, Items] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    needs: str = ""


def exit_code(lines: tuple[SoundnessLine, ...]) -> int:
    """Return 0 if every check passed, 3 if one failed, and 4 if none failed and one is inconclusive."""
    # A failed check takes priority over an open one.
    if any(line.sound is False for line in lines):
        return 3
    # Without any check the data are not shown to be sound.
    if not lines or any(line.sound is None for line in lines):
        return 4
    return 0


def read_soundness(path: Path) -> Soundness:
    """Read the results of the checks. A file that lacks something is refused by file and field."""
    return typed(path, Soundness, read_with_seal(path), remedy="Run vestige check-data again")
