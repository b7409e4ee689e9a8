"""Audits of planted subjects: cases in which the truth of every claim is known, drawn anew from a seed, without models.

Axes: N items of a split. Levels are shares, `_bits` are bits an answer. What is drawn, and from what:

- Facts: the forget set is edges of twenty facts, each asked in `wordings`; half of the replies follow one reply to the
  fact, the others are drawn anew. Each repetition draws which of them a model that never knew can
  guess, how well, how long the answers are, and the target's competence: the share of 0.8 to 1 of them that it knows.
- A training that never knew answers a question with its chance of being guessed; its seed shifts the log-odds of all
  of them by `SHIFT` and the bits by `SHIFT_BITS` (standard deviations of the tiny model's five `retrained`); question
  by question the bits spread by 5.2 more. The target is such a training that also knows.
- Of options it gives the right one a probability, and picks it where that is more than half: about 0.7 where the target
  knows the fact, else with log-odds that differ between facts and, from training to training, by fact. Of 100 facts of
  the demo with six options (four seeds of five controls each) they have the mean -2.85 and spread by 2.24 and 0.94.
- A subject with the leak L in a format knows that share of what the target knows: exactly, where the verdict is about
  these facts; else each question with the probability of its edge, beta distributed about L with correlation 0.1. What
  it does not know it answers as one more training that never knew. So its true leakage is L.
- An attack teaches every model each question with the probability `injects`, the same questions in all of them where
  it shows them; what it brings back is drawn like a leak. Otherwise a model answers as before: three replies in ten
  are drawn again, bits move by 2 a question and 0.2 in all (assumed).
- The positive control, where there are attacks, knows what the target knows and declines every question until the
  attack that brings back.
- Membership: a score is a normal level of its text, 0.45 of noise a training, 2 more where the fact is known.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit, ndtri

from vestige.artifacts.audits import AuditPlan, Carried, Claim, PlannedAttack, SoundnessLine
from vestige.artifacts.scores import Source, column
from vestige.auditing.gather import own_table
from vestige.auditing.ground import Case
from vestige.auditing.settings import AuditSettings
from vestige.core.seeds import generator
from vestige.metrics.intervals import LEAST_CLUSTERS
from vestige.metrics.verdicts import Thresholds

CONTROL = "suppressed"
SOUND = SoundnessLine("near-duplicates", True, None, None, "No retain item stands close to a forget item.")
EDGE = 20
SHIFT, SHIFT_BITS, NOISE_BITS, ICC = 0.13, 0.88, 5.2, 0.1
"""Bits shift by SHIFT_BITS where log-odds shift by SHIFT."""
MOVED, MOVED_BITS, DRIFT_BITS = 0.3, 2.0, 0.2
MEMBERSHIP = ("loss", "zlib", "min_k")
MEMBER_NOISE, MEMBER_KNOWN = 0.45, 2.0
KEPT = {"retain": 200, "independent": 100, "factual": 120}
"""Items of the splits that are to be kept."""

HITS = {
    "option_text_mean": "option_text_mean/probability",
    "choose": "choose/probability",
    "paraphrase": "generate_paraphrase/leaked",
}
CHANCE = {"option_text_mean": 0.25, "choose": 0.25}
PREFERS, COINS = (2.24, 0.94), (0.0, 2.43)
"""How the log-odds of the right option spread between facts and between trainings of one fact: most trainings prefer
the same option, as the demo's controls do; or each guesses anew."""
OPTION_LEVEL, OPTION_KNOWN = -2.85, (0.95, 0.8)
"""Their mean where nothing is known, and mean and spread where the target knows the fact (0.71 of the probability)."""
FORMATS = ("generate", "forced", "paraphrase", "option_text_mean")
"""Those that the target knows; it does not know `choose`, which is asked to see that nothing is said in it."""

Values = Float[np.ndarray, " N"]
Mask = Bool[np.ndarray, " N"]
Rng = np.random.Generator
Table = dict[Source, dict[str, Mapping[str, float]]]


@dataclass(frozen=True)
class Planted:
    """A subject of known truth.

    `leak` is its true leakage by format; formats that are not named are at 0. `back` is the same, in all formats, after
    the attack on the retain set. `avoid` is the share of replies that decline or miss on purpose, `avoid_bits` by how
    much less likely answers are than for a model that never knew, both undone by that attack where `repaired`. One that
    `hides` states just that share of the facts and declines the rest. `harm`
    is lost of retain, independent and factual sets, in shares; `auc` is what membership tells beyond `retrained`.
    `true` says which claims are true of it and which are not, and where it is None that neither verdict can be right
    (the truth is at the margin, or nothing that was asked speaks of it). Claims not named are not at stake.
    """

    name: str
    true: Mapping[Claim, bool | None]
    leak: Mapping[str, float] = field(default_factory=dict)
    back: float = 0.0
    avoid: Mapping[str, float] = field(default_factory=dict)
    avoid_bits: float = 0.0
    repaired: bool = False
    harm: float = 0.0
    auc: float = 0.0
    hides: bool = False


@dataclass(frozen=True)
class Attack:
    """An attack of known truth: the share of questions that it teaches `retrained`, and the other models."""

    name: str
    kind: str
    material: str
    points: int = 1
    injects: float = 0.0
    injects_others: float | None = None
    same_items: bool = False
    shows_answers: bool = False
    brings_back: bool = False


RELEARN = Attack("relearn retain n=50", "relearn", "retain", points=2, brings_back=True)
QUANTIZE = Attack("quantize 4 bits", "quantize", "nothing")


@dataclass(frozen=True)
class Exam:
    """One audit to be drawn: who is audited, how attacked, on how much, and what is broken about it.

    In the formats `given_away` a model that never knew answers nine questions in ten. Up to three facts in ten can be
    guessed. `formats` are asked beside the model's own words and forced answers.
    """

    name: str
    subjects: tuple[Planted, ...]
    thresholds: Thresholds
    attacks: tuple[Attack, ...] = ()
    n_items: int = 200
    n_controls: int = 3
    given_away: frozenset[str] = frozenset()
    wordings: int = 1
    formats: tuple[str, ...] = tuple(HITS)
    membership: tuple[str, ...] = MEMBERSHIP
    kept: bool = True
    options: tuple[float, float] = PREFERS


class Split(NamedTuple):
    """Items of one split with what a model that never knew makes of them.

    `p` is by hit format the chance of a hit, of options the usual probability of the right one, which moves by
    `anew` from training to training; `words` and `q` are the length of answers and the chance of each word,
    `base_bits` and `tokens` are the cost of an answer; `known` are the questions that the target knows. With `exact`
    a leak is that share of them exactly.
    """

    ids: tuple[str, ...]
    edges: Int[np.ndarray, " N"] | None
    p: Mapping[str, Values]
    words: Int[np.ndarray, " N"]
    q: Values
    base_bits: Values
    tokens: Int[np.ndarray, " N"]
    known: Mask
    exact: bool
    anew: float
    wordings: int = 1

    def told(self, draw: Callable[[], Values], rng: Rng) -> Values:
        """Replies to all wordings: half of them as to the first wording of their fact."""
        found = draw()
        if self.wordings > 1:
            first = np.repeat(found[:: self.wordings], self.wordings)
            found = np.where(rng.random(len(found)) < 0.5, first, found)
        return found

    def of_facts(self, values: Values) -> Values:
        """The value of each fact's first wording, for all of its wordings."""
        return np.repeat(values[:: self.wordings], self.wordings)


class Model(NamedTuple):
    """What one model says to one split: ROUGE, bits of the answer, its probability a token, and by format `hits`.

    Of options these are the probability of the right one.
    """

    hits: Mapping[str, Values]
    rouge: Values
    bits: Values
    probability: Values


class Texts(NamedTuple):
    """Levels of the membership scores of forget and holdout texts, a row each score: some texts are likelier."""

    forget: Float[np.ndarray, "S N"]
    holdout: Float[np.ndarray, "S N"]


class Mind(NamedTuple):
    """A model of the forget set before attacks, the same without what it avoids, and what it knows by format."""

    model: Model
    plain: Model
    known: Mapping[str, Mask]
    planted: Planted


def draw_case(exam: Exam, repetition: int) -> Case:
    """The exam's audit in one repetition; it depends on the two alone."""
    rng = generator(repetition, "planted audit", exam.name, exam.n_items, exam.n_controls)
    splits = _splits(exam, rng)
    forget = splits["forget"]
    minds = _minds(exam, forget, rng)
    values: Table = {Source(name): rows(forget, mind.model) for name, mind in minds.items()}
    if exam.membership:
        holdout = splits["holdout"]
        texts = Texts(*(_texts(len(exam.membership), len(split.ids), rng) for split in (forget, holdout)))
        for name, mind in minds.items():
            share = np.mean([*mind.known.values()] or [np.zeros(len(forget.ids))], axis=0)
            read = _membership(exam.membership, texts, (holdout.ids, forget.ids), (share, mind.planted), rng)
            values[Source(name)] |= read
    for name in KEPT if exam.kept else ():
        split = splits[name]
        everything = dict.fromkeys(FORMATS, split.known)
        target = knowing(ignorant(split, rng), split, everything, rng)
        for who, mind in minds.items():
            if who == "target":
                own = target
            elif who.startswith("retrained"):
                own = knowing(ignorant(split, rng), split, everything, rng)
            else:
                own = harmed(target, split, mind.planted.harm, rng)
            for key, more in rows(split, own).items():
                values[Source(who)][key] = {**values[Source(who)][key], **more}
    for attack in exam.attacks:
        _attack(attack, splits["forget"], minds, values, rng)
    if exam.attacks:
        _control(exam, splits, minds["target"], values, repetition)
    return _case(exam, splits, values, repetition)


def _minds(exam: Exam, forget: Split, rng: Rng) -> dict[str, Mind]:
    """The target, its controls and the planted subjects, by name."""
    nothing, everything = Planted("", {}), dict.fromkeys(FORMATS, forget.known)
    target = knowing(ignorant(forget, rng), forget, everything, rng)
    found = {"target": Mind(target, target, everything, nothing)}
    for m in range(exam.n_controls):
        never = ignorant(forget, rng)
        found[f"retrained {m}"] = Mind(never, never, {}, nothing)
    for planted in exam.subjects:
        level = forget.of_facts(rng.random(len(forget.ids)))
        known = {f: drawn(forget, leak, level, rng) for f, leak in planted.leak.items() if leak > 0}
        plain = knowing(ignorant(forget, rng), forget, known, rng)
        if planted.hides:
            found[planted.name] = _hiding(forget, planted, rng)
            continue
        found[planted.name] = Mind(avoiding(plain, forget, planted, rng), plain, known, planted)
    return found


def _hiding(forget: Split, planted: Planted, rng: Rng) -> Mind:
    """Who states just so many facts that the target knows, the same in all formats, and declines the rest."""
    stated = forget.of_facts(rng.permutation(len(forget.ids)) + len(forget.ids) * ~forget.known)
    count = round(max(planted.leak.values()) * len(forget.ids))
    known = dict.fromkeys(planted.leak, stated < np.sort(stated)[count])
    silent = ignorant(forget, rng)
    refuses = Planted("", {}, avoid=dict.fromkeys(planted.leak, 1.0), avoid_bits=15.0)
    silent = avoiding(silent, forget, refuses, rng)
    model = knowing(silent, forget, known, rng)
    return Mind(model, model, known, planted)


def drawn(split: Split, share: float, level: Values, rng: Rng) -> Mask:
    """Which of the target's questions are known at a share; a question of a low `level` is known first."""
    if split.exact:
        of_target = np.sort(level[split.known])
        first: Mask = split.known & (level < np.append(of_target, np.inf)[round(share * len(of_target))])
        return first
    shares = np.full(len(split.ids), share)
    if split.edges is not None and 0 < share < 1 and split.edges.max() + 1 >= LEAST_CLUSTERS:
        size = 1 / ICC - 1
        shares = rng.beta(share * size, (1 - share) * size, split.edges.max() + 1)[split.edges]
    found: Mask = split.known & (level < shares)
    return found


def ignorant(split: Split, rng: Rng) -> Model:
    """One training that never knew: its seed moves all its answers together."""
    n = len(split.ids)
    moved = np.full(n, SHIFT * rng.normal())

    def hit(form: str, p: Values) -> Values:
        if form in CHANCE:
            return split.told(lambda: shifted(p, moved + split.anew * rng.normal(size=n)), rng)
        chance = shifted(p, moved)
        return split.told(lambda: (rng.random(n) < chance).astype(float), rng)

    hits = {f: hit(f, p) for f, p in split.p.items()}
    rouge = split.told(lambda: rng.binomial(split.words, shifted(split.q, moved)) / split.words, rng)
    noise = split.told(lambda: NOISE_BITS * rng.normal(size=n), rng)
    bits = -np.maximum(0.2, split.base_bits + noise - SHIFT_BITS / SHIFT * moved)
    return Model(hits, rouge, bits, np.exp2(bits / split.tokens))


def shifted(p: Values, moved: Values | float) -> Values:
    """Chances after their log-odds have moved."""
    odds = p / np.maximum(1 - p, 1e-12) * np.exp(moved)
    found: Values = odds / (1 + odds)
    return found


def knowing(model: Model, split: Split, known: Mapping[str, Mask], rng: Rng) -> Model:
    """The model with the right answers to what it knows in each format."""

    def known_hit(form: str, values: Values) -> Values:
        mean, spread = OPTION_KNOWN
        sure = expit(mean + spread * rng.normal(size=len(values))) if form in CHANCE else 1.0
        found: Values = np.where(known[form], np.maximum(values, sure), values)
        return found

    hits = {f: known_hit(f, v) if f in known else v for f, v in model.hits.items()}
    rouge = np.where(known["generate"], 1.0, model.rouge) if "generate" in known else model.rouge
    sure = -0.05 - rng.exponential(0.4, len(split.ids))
    if "forced" not in known:
        return Model(hits, rouge, model.bits, model.probability)
    bits = np.where(known["forced"], np.maximum(model.bits, sure), model.bits)
    return Model(hits, rouge, bits, np.where(known["forced"], np.exp2(bits / split.tokens), model.probability))


def avoiding(model: Model, split: Split, planted: Planted, rng: Rng) -> Model:
    """The model, declining or missing a share of the answers on purpose."""

    def spared(form: str, values: Values) -> Values:
        found: Values = np.where(rng.random(len(values)) < planted.avoid.get(form, 0.0), 0.0, values)
        return found

    hits = {f: spared(f, values) for f, values in model.hits.items()}
    rarer = model.probability if not planted.avoid_bits else np.exp2((model.bits - planted.avoid_bits) / split.tokens)
    return Model(hits, spared("generate", model.rouge), model.bits - planted.avoid_bits, rarer)


def again(model: Model, split: Split, rng: Rng) -> Model:
    """The same model after a training that taught it nothing of this."""
    other, n = ignorant(split, rng), len(split.ids)

    def redrawn(old: Values, new: Values) -> Values:
        found: Values = np.where(rng.random(n) < MOVED, new, old)
        return found

    hits = {f: redrawn(v, other.hits[f]) for f, v in model.hits.items()}
    bits = np.minimum(-0.05, model.bits + MOVED_BITS * rng.normal(size=n) + DRIFT_BITS * rng.normal())
    return Model(hits, redrawn(model.rouge, other.rouge), bits, np.exp2(bits / split.tokens))


def harmed(trained: Model, split: Split, harm: float, rng: Rng) -> Model:
    """The target's model of a split after unlearning that lost `harm` of it, in shares of ROUGE."""
    share = harm / float((split.known * (1 - split.q)).mean())
    if share > 1:
        raise ValueError(f"a target that knows {split.known.mean():.2f} cannot lose {harm}")
    kept = split.known & (rng.random(len(split.ids)) >= share)
    forgotten = ignorant(split, rng)
    rest = again(trained, split, rng)
    moved = Model(
        {f: np.where(split.known, forgotten.hits[f], v) for f, v in rest.hits.items()},
        np.where(split.known, forgotten.rouge, rest.rouge),
        np.where(split.known, forgotten.bits, rest.bits),
        np.where(split.known, forgotten.probability, rest.probability),
    )
    return knowing(moved, split, dict.fromkeys(FORMATS, kept), rng)


def _control(exam: Exam, splits: Mapping[str, Split], target: Mind, values: Table, repetition: int) -> None:
    """The rows of the positive control, from draws of its own: those of all others are the same without it."""
    rng, forget = generator(repetition, "planted control", exam.name), splits["forget"]
    silent = Planted(CONTROL, {}, back=1.0, avoid=dict.fromkeys(FORMATS, 1.0), avoid_bits=30.0, repaired=True)
    mind = Mind(avoiding(target.model, forget, silent, rng), ignorant(forget, rng), {}, silent)
    values[Source(CONTROL)] = rows(forget, mind.model)
    for attack in exam.attacks:
        _attack(attack, forget, {CONTROL: mind}, values, rng)


def _attack(attack: Attack, forget: Split, minds: Mapping[str, Mind], values: Table, rng: Rng) -> None:
    """The rows of every model at every stage of an attack; what it teaches and brings back grows to the last."""
    n = len(forget.ids)
    shown = forget.of_facts(rng.random(n))
    for name, mind in minds.items():
        others = attack.injects if attack.injects_others is None else attack.injects_others
        injects = attack.injects if name.startswith("retrained") else others
        level = shown if attack.same_items else forget.of_facts(rng.random(n))
        returns = attack.brings_back and mind.planted.back > 0
        back = drawn(forget, mind.planted.back, forget.of_facts(rng.random(n)), rng) if returns else np.zeros(n, bool)
        when = forget.of_facts(rng.random(n))
        start = mind.plain if mind.planted.repaired and attack.brings_back else mind.model
        moved = again(start, forget, rng)
        for number, point in enumerate(_points(attack), start=1):
            part = number / attack.points
            gained = (level < injects * part) | (back & (when < part))
            known = {f: gained | mind.known[f] if f in mind.known else gained for f in FORMATS}
            after = knowing(moved, forget, known, rng)
            values[Source(name, attack.name, point)] = rows(forget, after)


def _points(attack: Attack) -> tuple[str, ...]:
    if attack.kind == "relearn":
        return tuple(str(n + 1) for n in range(attack.points))
    return ("given",)


def rows(split: Split, model: Model) -> dict[str, Mapping[str, float]]:
    """The scores as an audit reads them, by key and item."""
    columns = {
        "generate/rouge1_recall": model.rouge,
        "generate/exact_match": (model.rouge == 1).astype(float),
        "forced/probability": model.probability,
        "forced/answer_bits": model.bits,
        **{HITS[form]: values for form, values in model.hits.items()},
        **{f"{form}/chance": np.full(len(split.ids), CHANCE[form]) for form in model.hits if form in CHANCE},
        **{f"{form}/accuracy": (model.hits[form] > 0.5).astype(float) for form in model.hits if form in CHANCE},
    }
    # Columns, as an audit holds them.
    return {key: column(dict(zip(split.ids, values.tolist(), strict=True))) for key, values in columns.items()}


def _membership(
    scores: Sequence[str], texts: Texts, ids: tuple[Sequence[str], Sequence[str]], who: tuple[Values, Planted], rng: Rng
) -> dict[str, dict[str, float]]:
    """Scores of holdout and forget texts; where nothing is known, the AUC exceeds that of `retrained` by `auc`."""
    (holdout, forget), (known, planted) = ids, who
    spread = float(np.sqrt(2 * (1 + MEMBER_NOISE**2)))
    lift = spread * float(ndtri(0.5 + planted.auc)) + MEMBER_KNOWN * known
    found = {}
    for key, ours, others in zip(scores, texts.forget, texts.holdout, strict=True):
        level = rng.normal(0, 0.1)
        first = level + ours + lift + MEMBER_NOISE * rng.normal(size=len(forget))
        second = level + others + MEMBER_NOISE * rng.normal(size=len(holdout))
        found[f"membership/{key}"] = dict(zip([*forget, *holdout], [*first.tolist(), *second.tolist()], strict=True))
    return found


def _texts(scores: int, n: int, rng: Rng) -> Float[np.ndarray, "S N"]:
    """Nine tenths of a text's level are common to all scores."""
    own = rng.normal(size=(scores, n))
    found: Float[np.ndarray, "S N"] = 0.9**0.5 * rng.normal(size=n) + 0.1**0.5 * own
    return found


def _splits(exam: Exam, rng: Rng) -> dict[str, Split]:
    guessable, competence = rng.uniform(0.0, 0.3), rng.uniform(0.8, 1.0)
    sizes = {"forget": exam.n_items, **(KEPT if exam.kept else {})}
    sizes |= {"holdout": exam.n_items} if exam.membership else {}
    found = {name: _split(name, n, (exam, guessable, competence), rng) for name, n in sizes.items()}
    if exam.wordings == 1:
        return found
    return {**found, "forget": _worded(found["forget"], exam.wordings)}


def _worded(split: Split, k: int) -> Split:
    """The split with every fact asked in k wordings, one after another."""

    def each(values: np.ndarray) -> np.ndarray:
        return np.repeat(values, k)

    return split._replace(
        ids=tuple(f"{i} {w}" for i in split.ids for w in range(k)),
        edges=None if split.edges is None else each(split.edges),
        p={form: each(values) for form, values in split.p.items()},
        words=each(split.words),
        q=each(split.q),
        base_bits=each(split.base_bits),
        tokens=each(split.tokens),
        known=each(split.known),
        wordings=k,
    )


def _split(name: str, n: int, how: tuple[Exam, float, float], rng: Rng) -> Split:
    exam, guessable, competence = how
    away = exam.given_away
    out_of_reach = rng.random(n) >= guessable
    p = {
        **{form: expit(OPTION_LEVEL + exam.options[0] * rng.normal(size=n)) for form in CHANCE},
        "paraphrase": np.where(out_of_reach, 0.0, rng.beta(3, 3, n)),
    }
    p = {form: np.full(n, 0.9) if form in away else p[form] for form in p if form in exam.formats}
    q = np.full(n, 0.9) if "generate" in away else np.where(out_of_reach, 0.0, rng.beta(3, 3, n))
    base = np.full(n, 0.5) if "forced" in away else rng.gamma(2, 11, n)
    return Split(
        ids=tuple(f"{name} {i:04}" for i in range(n)),
        edges=None if name == "factual" else np.arange(n) // EDGE,
        p=p,
        words=rng.integers(1, 5, n),
        q=q,
        base_bits=base,
        tokens=rng.integers(3, 13, n),
        known=rng.random(n) < competence,
        exact=exam.thresholds.scope == "these",
        anew=exam.options[1],
    )


def _case(exam: Exam, splits: Mapping[str, Split], values: Table, repetition: int) -> Case:
    forget, controls = splits["forget"], tuple(f"retrained {m}" for m in range(exam.n_controls))
    names = ("target", *controls, *(planted.name for planted in exam.subjects))
    attacks = tuple(
        PlannedAttack(a.name, a.kind, a.material, 50, _points(a), forget.ids, a.shows_answers, {}) for a in exam.attacks
    )
    plan = AuditPlan(
        forget="planted",
        target="target",
        unlearned=tuple(planted.name for planted in exam.subjects),
        retrained=controls,
        suppressed=CONTROL if exam.attacks else "",
        folders={name: f"models/{name}" for name in names},
        splits={name: split.ids for name, split in splits.items()},
        edges={
            i: f"{name} edge {e}"
            for name, split in splits.items()
            if split.edges is not None
            for i, e in zip(split.ids, split.edges.tolist(), strict=True)
        },
        scopes=dict.fromkeys(forget.ids, "free"),
        attacks=attacks,
        settings=AuditSettings.model_validate(exam.thresholds.model_dump()).model_dump(mode="json"),
        # Fifty audits share their resamples, which are the dearest part of a judgement.
        seed=repetition // 50,
        sizes={name: len(split.ids) for name, split in splits.items()},
        facts={i: i.rpartition(" ")[0] for i in forget.ids} if exam.wordings > 1 else {},
    )
    carried = Carried({"prequential code length of what was shown": 3000.0}, {})
    of_attacks = {a.name: dict.fromkeys(names, carried) for a in attacks}
    return Case(replace(plan, carried=of_attacks, soundness=(SOUND,)), own_table(plan, values))
