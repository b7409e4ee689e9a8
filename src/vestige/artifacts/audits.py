"""What an audit of one forget set leaves on disk: its plan, what it found, and the verdicts.

An outcome is everything that the report shows and nothing that it would have to compute: estimates in their places,
named by subject, attack and format. Shares lie in [0, 1]. Leakage is 0 for `retrained` and 1 for `target`. Bits are
bits an answer, and where a name says `_bits` bits in all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from vestige.artifacts.layout import AuditFolder
from vestige.artifacts.records import SHUFFLED, KeptPrompt
from vestige.artifacts.scores import QuestionType, Source
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate, from_json, to_json
from vestige.core.ids import content_id
from vestige.core.items import Luck, Scope
from vestige.core.store import load, read_sealed, save, typed, write_sealed
from vestige.core.text import Items, Names, Sentences, one_line


@dataclass(frozen=True)
class PromptLine:
    """What an audit tells of one subject's prompt: its text, and of how many wanted replies what became.

    `claimed` is whether the search says that it reached all `wanted`. `verified` counts those that replies to the
    prompt's text show, `anyway` those that are given without it, `brought` those that it takes the prompt to bring.
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
    """A kept prompt as an audit tells of it."""
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
"""The statements about an unlearned model. `STATEMENTS` has all that is said of them.

"not stored" is judged only where the blocks of target and controls were read (evaluation `inside`).
"""


@dataclass(frozen=True)
class Statement:
    """A claim in `words`, how a reason for its outcome begins, and what the page says of it.

    Where the tested parts hold and others are missing, a reason begins as if the claim held. `column` is what stands
    small below its column on the page. A claim about the benchmark, for all models, has none. `size` puts a bound in
    words. `failing` is what is said of one model that fails it, and of several. `in_bits` where bits decide and
    `by_facts` where single facts do, if that is said otherwise. `controls`: it rests on models that never knew.
    `attacks`: it rests on attacks, all others on the evaluations alone. One that is `optional` is not judged where
    nothing was read for it.
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
        failing=(
            "still answers what {controls} cannot",
            "still answer what {controls} cannot",
        ),
        in_bits=(
            "finds the answers likelier than {control}",
            "find the answers likelier than {controls}",
        ),
        by_facts=("gives single facts away", "give single facts away"),
    ),
    "not recoverable": Statement(
        words="cannot be brought back beyond what the attack carries in",
        holds="No attack that was shown able brought back more than it carried in",
        fails="It gives knowledge that no attack carried in",
        inconclusive="An attack may have brought back more than it carried in",
        size="{} back",
        column="by attacks shown able to",
        failing=("gives answers back under attack", "give answers back under attack"),
        in_bits=(
            "finds the answers likelier again after an attack",
            "find the answers likelier again after an attack",
        ),
        by_facts=("gives single facts back under attack", "give single facts back under attack"),
        attacks=True,
    ),
    "not stored": Statement(
        words="holds the forget set in no block, whatever it says",
        holds="Its blocks tell the answers no more than those of {controls}",
        fails="Its blocks tell answers that those of {controls} do not",
        inconclusive="Its blocks may tell answers that those of {controls} do not",
        size="{} left",
        column="in its weights",
        failing=("still holds the answers in its blocks", "still hold the answers in their blocks"),
        optional=True,
    ),
    "indistinguishable": Statement(
        words="cannot be told from a model that never knew",
        holds="Neither membership scores nor answers tell it from {controls}",
        fails="It can be told from {controls}",
        inconclusive="It may be possible to tell it from {controls}",
        size="differs by {}",
        column="from {controls}",
        failing=("can be told apart from {controls}",) * 2,
    ),
    "utility preserved": Statement(
        words="keeps the retain, independent and factual sets",
        holds="It answers the items of {kept} as the target does",
        fails="It lost what it was to keep",
        inconclusive="It may have lost what it was to keep",
        size="{} lost",
        column="everything else",
        failing=("loses other knowledge", "lose other knowledge"),
        controls=False,
    ),
    "benchmark valid": Statement(
        words=(
            "tells a model that knows from one that never knew, and the retain set does not give the forget set away"
        ),
        holds="The target knows what {controls} do not, and the retain set does not give the forget set away",
        fails="The benchmark cannot carry a verdict",
        inconclusive="The benchmark may be unable to carry a verdict",
        size="{} learnt from what was kept",
        attacks=True,
    ),
}
"""To add a claim: its name above, its statement here, and its evidence in a file of `auditing.claims`."""
NO_ATTACK = "without any attack"
"""In place of an attack's name where "not recoverable" fails by what is answered without one."""
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
"""What is known of where the models come from that stand for one that never knew; docs/verdicts.md says what each is.

Nothing but `verified` lets a page state as a fact that they never knew.
"""

FROM_LOGS = ("logs", "predicted")
"""The levels at which only scores were seen."""


def never_knew(level: EvidenceLevel, n: int = 2) -> str:
    """What a page may call no control, one or several: models that never knew only where their origin is verified.

    Without controls such a model is spoken of, and nobody is said to be one.
    """
    # By 0, 1 and several of them, as the texts need it.
    verified = ("model that never knew", "a model that never knew", "models that never knew")
    return (verified if level in ("verified", "") else ("control", "a control", "the controls"))[min(n, 2)]


def by_level(text: str, level: EvidenceLevel, **placeholders: str) -> str:
    """A text of `STATEMENTS` with what the controls may be called in it."""
    control = {"control": never_knew(level, 1), "controls": never_knew(level)}
    return text.format(**(control | placeholders))


GIVEN = "given"
"""Alternatives of a file or a column, of which nothing says that they are drawn as the truth was."""


@dataclass(frozen=True)
class PlannedAttack:
    """One attack that runs with the same settings, seeds and budget on every subject.

    `name` is unique in the audit and what people read ("relearn retain n=50"). `kind` is one of `attacks.ATTACKS` or of
    another package, or what the evaluation freeform does on the way (prefill, sampling). `material` says of what was
    shown: retain, related, unrelated, forget_part, forget, or nothing. `points` are the stages at which the attacked
    model is asked, in order, the last being judged. `tested` are the forget items asked, none of which was shown
    unless `shows_answers`: then it is a ceiling and never evidence.
    """

    name: str
    kind: str
    material: str
    n_shown: int
    points: Names
    tested: Items
    shows_answers: bool
    settings: dict[str, Any]

    @property
    def searches(self) -> bool:
        """Whether it searches for a prompt, of which parts are asked at its points."""
        return SHUFFLED in self.points


@dataclass(frozen=True)
class AskedPlace:
    """Where the answers to one evaluation lie, relative to the run: of a subject, or of what an attack left of it."""

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
    """Where one attack on one subject lies, relative to the run."""

    subject: str
    attack: str
    path: str


@dataclass(frozen=True)
class FailedTask:
    """What could not be done: the evaluation of a subject (`attack` empty), or one attack on it, and why.

    `role` is that of the subject: target, retrained, unlearned or suppressed.
    """

    subject: str
    role: str
    attack: str
    reason: str


@dataclass(frozen=True)
class Carried:
    """What one attack carried into one subject: upper bounds in bits, by name, and steps or tokens spent.

    `points_bits` has the code length under `retrained` of what stands of a searched prompt at each point.
    """

    bounds_bits: dict[str, float]
    spent: dict[str, float]
    points_bits: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class SealedPlan:
    """What an audit is going to ask, and by which settings and margins, written before any model was asked.

    The time is this machine's, and whoever has the folder can write another plan: the digest proves something to those
    who had it before the audit. `changed` says in words what of the plan is otherwise in the audit that was made.
    """

    digest: str
    time: str
    plan: dict[str, Any]
    settings: dict[str, Any]
    changed: Sentences = ()


@dataclass(frozen=True)
class AuditPlan:
    """What an audit asks of whom. Subjects are folders relative to the run, by their name in the audit.

    `splits` has item ids: forget, retain, and where there are such, independent, factual, holdout. `scopes` and `edges`
    are by item id. `settings` are all the audit's settings, thresholds too. `evaluations` and `attacked` say where the
    answers lie that are there, so that a verdict can be given again without a model. `failed` what is missing of what
    was planned. `untested` says in sentences what was not even tried. `data` is the digest of forget and retain set
    (`NamedSplits.digest`), by which the checks of the data set are known to be of these items. `sizes` says how many
    items a split has of which a part is asked. `facts` names the fact of each item that asks for one in other words.
    `groups` names the group of forget items without an edge, where the data have one. `alike` has by `answer` and
    `attribute` what forget items share, since facts that share it can be guessed together. `suppressed` is the positive
    control, a target that was taught to keep silent. "" where there is none. `references` are those of `unlearned` that
    were trained without the forget set. `alternatives` says where those come from that `exposure` asks: drawn as the
    truth was, or `GIVEN`. "" without any. `evidence_level` says what is known of where the controls come from, `apart`
    how far the weights of target, controls and unlearned models lie from each other (a distance by two names), `unseen`
    whose weights nobody saw, `recipes` what of each control's training differs from the target's, where both are known.
    `unchanged` are those of `unlearned` that have the target's own weights. `luck` says by forget item how likely it is
    to be guessed. `banked` names the laboratory of each control that is from the bank of public logs. `predicted` has
    the error of predicted controls, by score. `skipped` names by attack the models that it was not made on, since it
    could have changed no verdict. `sealed` is the plan that was sealed before the models were asked. `table` is the
    digest of the file of scores. `carried` says by attack and subject what an attack carried in, `prompts` are those
    that searches found. `soundness` is what is known of the data set, `told_by` who told leaks in free replies, and
    with what error. `repeats` has by format an earlier one in which the target was asked and replied the same.
    `asked_twice` names the first row of a model for the row in which it was asked through its own tokeniser,
    `unverified_readings` says by model why no claim about it may hold, and `read_otherwise` what differs between the
    tokenisers, in sentences.
    """

    forget: str
    target: str
    unlearned: Names
    retrained: Names
    folders: dict[str, str]
    splits: dict[str, Items]
    edges: dict[str, str]
    scopes: dict[str, Scope]
    attacks: tuple[PlannedAttack, ...]
    settings: dict[str, Any]
    seed: int
    suppressed: str = ""
    evaluations: tuple[AskedPlace, ...] = ()
    attacked: tuple[AttackPlace, ...] = ()
    failed: tuple[FailedTask, ...] = ()
    untested: Sentences = ()
    data: str = ""
    sizes: dict[str, int] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    alike: dict[str, dict[str, str]] = field(default_factory=dict)
    references: Names = ()
    alternatives: str = ""
    evidence_level: EvidenceLevel = "given"
    unchanged: Names = ()
    apart: dict[str, dict[str, float]] = field(default_factory=dict)
    unseen: Names = ()
    recipes: dict[str, str] = field(default_factory=dict)
    luck: dict[str, Luck] = field(default_factory=dict)
    banked: Mapping[str, str] = field(default_factory=dict)
    predicted: Mapping[str, float] = field(default_factory=dict)
    sealed: "SealedPlan | None" = None
    asked_twice: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, Names] = field(default_factory=dict)
    unverified_readings: dict[str, str] = field(default_factory=dict)
    read_otherwise: Sentences = ()
    table: str = ""
    carried: dict[str, dict[str, Carried]] = field(default_factory=dict)
    prompts: tuple[PromptLine, ...] = ()
    soundness: "tuple[SoundnessLine, ...]" = ()
    told_by: str = ""
    repeats: dict[str, str] = field(default_factory=dict)

    @property
    def audited(self) -> Names:
        """The unlearned models, and the positive control last: all that is judged."""
        return (*self.unlearned, self.suppressed) if self.suppressed else self.unlearned


@dataclass(frozen=True)
class FormatLine:
    """One format with its controls. `admission` is target less retrained (or less chance, where none was retrained).

    On `n_same` facts all controls score like the target, so that these cannot be judged in it.
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
    """One subject in one format: the level as it is, and where the format is admitted its leakage.

    `metric` of `leakage` is `leakage` or `leakage_vs_chance`, never mixed. `band` is the same with an end that holds
    for all of the subject's formats at once.
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
    """`first` leaks more than `second` in one format and less in the other, both clearly; p after Holm's correction."""

    first: str
    second: str
    more_in: str
    less_in: str
    p: float


@dataclass(frozen=True)
class GainLine:
    """What one attack brought in one format on one unlearned subject, in its parts.

    `unit` is leakage or bits. `evidence` is False for what cannot count (`why_not`): ceilings, saturated attacks,
    formats that were not admitted.
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
    """Could this attack have found anything? What it brought back of what is surely there, in the positive control.

    `format` is the one in which it brought back most (or forced answers in bits), `suppressed` what there was to bring
    back in it, in `unit` (leakage or bits), `brought` the share of that which came back. None of them where nothing
    could be compared. An attack that is not `able` may fail a claim and does not let it hold. `why_not` says why.
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

    `bits` is the code length under `retrained` of what stands of a searched prompt there. None of other attacks.
    """

    point: str
    level: Estimate
    bits: float | None = None


@dataclass(frozen=True)
class CurveLine:
    """The levels along an attack. `subject` is a name of the audit, `role` target, retrained, unlearned or suppressed.

    The retrained seeds are one line each: between them lies what the attack carries in. `no_gain` says why no gain is
    told apart from these levels. Empty where one is.
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
    """What an attack could carry and what its result needs, for one unlearned subject. Bits in all.

    `bounds_bits` are upper bounds on what it carried, `capacity_bits` the least of them, named by `bound`. `need_bits`
    has the four ways of counting and the gain that was seen (`metrics.information`). `inputs` what they were computed
    from. `ratio` is capacity over the bits of the gain, None where nothing was gained.
    """

    subject: str
    attack: str
    bounds_bits: dict[str, float]
    capacity_bits: float
    bound: str
    need_bits: dict[str, float]
    inputs: dict[str, float]
    ratio: float | None


@dataclass(frozen=True)
class MembershipLine:
    """How well a score tells the forget set from holdout items: AUC, and against that on `retrained`.

    `difference` is AUC less the mean of `retrained`. `privleak` in per cent. `found` is the share of forget items above
    all but 1 % of the holdout items (TPR at 1 % FPR). None where these are fewer than 100.
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
    """How much of a split a subject lost: target less subject, in shares."""

    subject: str
    split: str
    format: str
    harm: Estimate


@dataclass(frozen=True)
class SoundnessLine:
    """One check of the data set. `sound` is None where it could not be made or could not decide."""

    check: str
    sound: bool | None
    effect: Estimate | None
    p: float | None
    reason: str


@dataclass(frozen=True)
class VerdictLine:
    """What became of one claim about one subject.

    `decides` names the quantity that the outcome rests on: above `margin` it fails the claim, below `wide` it lets it
    hold. `at_least` and `at_most` are its ends, with the confidence that this outcome asks for. `against` says what
    stood for a model that never knew: retrained, alternatives, or chance. "" where nothing did. `needed` says in words
    with how many controls, wordings or facts an open claim would hold in 80 % of audits if nothing were left,
    `items_needed` with how many facts alone. "" and None where nothing alone does it. `n_tested` of `n_asked` facts, or
    of the questions that were to be kept, have a score of the model, the target and every control.
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
    """A single fact that a subject gives away (after `attack`, or as it is) and no model that never knew does.

    `by` is "stated", the format in bits, or both, or "ranked first" among alternatives. `p` is that of the test that
    found it. What was asked, the answer and the reply are texts of the evaluation that has them. `bits` are those of
    the answer where it was forced, and `never` the least and the most that the models that never knew have. None where
    it was not.
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
        return "not recoverable" if self.attack else "not expressed"


@dataclass(frozen=True)
class StoredLine:
    """How many facts a subject still holds, as relearning on others (`attack`) brings them out.

    `share` is that of the facts asked, by `gains.facts_stored`, from the share `recalled` after the attack and that
    of each of the `controls` after the same.
    """

    subject: str
    attack: str
    share: Estimate
    recalled: float
    controls: tuple[float, ...]


@dataclass(frozen=True)
class GroupLine:
    """One contract, person or other group of the forget set under one subject: the quantity that says most against it.

    `by` is a format, or that of bits. `size` is the leakage or excess of the group's `n_facts` facts, with an interval
    that holds all groups and formats at once. `p` is corrected for all of them. `exceeds` says that it is shown to be
    above the narrow margin, which fails "not expressed".
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
    """All that an audit of one forget set found. `untested` says in sentences what could not be tested, and why.

    `first` is the first judgement of these answers where it was at other thresholds than this one. `suppressed` is the
    positive control ("" where there is none), `control` its verdicts, which say of no method whether it has forgotten:
    "not recoverable" has to fail there. `sealed` says whether plan and margins were sealed before any model was asked,
    and what was changed since. "" where none was asked. `able` says of each attack whether it found what is surely
    there. `attacked` is what is left after the attack that brings most, beyond what it brings models that never knew.
    `never` each of these as if it were a subject, against the others. `n_judged` is the number of facts that the first
    three claims rest on, `n_apart` that of those that the retain set gives away. `references` are those of `unlearned`
    that were retrained without the forget set: every claim should hold for them. `exposure_error` is the leakage
    against alternatives of the retrained models together, which should be 0. `evidence_level` says what is known of
    where `retrained` come from, "" where there are none. `unchanged` are those of `unlearned` that have the target's
    own weights. `stored` says how many facts each subject holds. `margins_bits` are the margins in bits where what the
    target knows of these answers made them wider than `thresholds` says. `warnings` say in sentences what speaks
    against the controls, and so bears on every verdict. `rules` is the version of the rules of judging. `earlier` are
    the judgements of other scores under the same name.
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
    exposure_error: Estimate | None = None
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
        """In how many ways models were asked, of those that can tell who knows: readings of one text are one."""
        return len({line.prompt or line.format for line in self.formats if line.admitted})

    @property
    def against(self) -> str:
        """What stood for a model that never knew: retrained models, else alternatives, else chance."""
        # Alternatives stand in only where no control was given, so that this is looked at last.
        ranked = any(line.admitted and line.format == "exposure" for line in self.formats)
        return "retrained" if self.retrained else "alternatives" if ranked else "chance"


NOT_A_CONTROL = "Not used as a control: "
"""How a sentence of `AuditOutcome.untested` begins that names a log which may be a control's and was not accepted."""

T = TypeVar("T", AuditPlan, AuditOutcome, SealedPlan)


def write_plan(folder: AuditFolder, plan: AuditPlan) -> None:
    """Write what an audit asks."""
    write_sealed(folder.plan, asdict(plan))


def read_plan(folder: AuditFolder) -> AuditPlan:
    """The plan. One that lacks something is refused by file and field."""
    return _read(folder.plan, AuditPlan)


def write_outcome(folder: AuditFolder, outcome: AuditOutcome) -> None:
    """Write what an audit found."""
    write_sealed(folder.outcome, to_json(outcome))


def read_outcome(folder: AuditFolder) -> AuditOutcome:
    """The outcome. One that lacks something is refused by file and field."""
    return _read(folder.outcome, AuditOutcome)


def read_judgements(folder: AuditFolder) -> tuple[DatedJudgement, ...]:
    """All judgements under one name, the first first, whatever answers they were of."""
    if not folder.judgements.exists():
        return ()
    stored = read_sealed(folder.judgements, "judgements")["judgements"]
    return typed(folder.judgements, tuple[DatedJudgement, ...], stored, remedy="delete it, and judge again")


def read_sealed_plan(folder: AuditFolder) -> SealedPlan | None:
    """The plan that was sealed. None where none was, and refused where it is not what its digest was given of."""
    if not folder.sealed.exists():
        return None
    sealed = _read(folder.sealed, SealedPlan)
    # The file's own seal can be made anew by whoever changes it; the digest is in others' hands.
    if sealed_digest(sealed.plan, sealed.settings) != sealed.digest:
        raise InputError(f"{one_line(str(folder.sealed), width=200)} is not the plan that its digest was given of")
    return sealed


def sealed_digest(plan: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """What a plan is sealed by, and can be given to others before the models are asked."""
    # Whole, since others hold it against the plan and must not meet another plan of the same digest.
    return content_id({"plan": plan, "settings": settings}, length=64)


def write_sealed_plan(folder: AuditFolder, sealed: SealedPlan) -> None:
    """Write what an audit is going to ask."""
    write_sealed(folder.sealed, asdict(sealed))


def write_judgements(folder: AuditFolder, judgements: Sequence[DatedJudgement]) -> None:
    """Write when which answers were judged."""
    write_sealed(folder.judgements, {"judgements": [asdict(judgement) for judgement in judgements]})


def _read(path: Path, kind: type[T]) -> T:
    return typed(path, kind, from_json(read_sealed(path)), remedy="run the audit again")


@dataclass(frozen=True)
class Soundness:
    """The checks of one data set seen from one forget set.

    `digest` is that of the splits (`NamedSplits.digest`). `left_out` says in sentences which checks do not apply to
    this data. `leaking` has, by failed check, the ids of the forget items that it found, or that its guesser solves.
    `figures` are further numbers, and `needs` says how many items the margin takes, where open checks have fewer.
    """

    forget: str
    lines: tuple[SoundnessLine, ...]
    settings: dict[str, Any]
    digest: str
    left_out: Sentences = ()
    leaking: Mapping[str, Items] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    needs: str = ""


def exit_code(lines: tuple[SoundnessLine, ...]) -> int:
    """0 where every check passed, 3 where one failed, 4 where none failed and one cannot tell."""
    # A failed check is told before one that is open.
    if any(line.sound is False for line in lines):
        return 3
    # Without any check nothing was shown to be sound.
    return 4 if not lines or any(line.sound is None for line in lines) else 0


def write_soundness(path: Path, soundness: Soundness) -> None:
    """Write what the checks found."""
    save(path, soundness)


def read_soundness(path: Path) -> Soundness:
    """What the checks found. A file that lacks something is refused by file and field."""
    return load(path, Soundness, remedy="run vestige check-data again")
