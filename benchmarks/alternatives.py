"""Verdicts against alternatives: how often they err, and how they stand beside verdicts against retrained models.

`python -m benchmarks.alternatives` counts on planted ranks and on planted audits, without models. `--run RUN` takes a
run with a target, retrained models and unlearned ones (a demo): the retrained and the unlearned models are audited as
if nobody could retrain, and beside that against the other retrained models. `--output OUT` is where its answers go.

Planted ranks: a model that never knew likes each answer by a normal draw, and answers of higher numbers better by
`BIAS`, whatever the question. A leak is word for word (a share of the facts rank first) or spread (every truth is
liked more by so much that the mean score rises by it). What is true of an audit is what the leak brought on its facts:
the mean score less that of the same model without it. K is 100 for every fact, or as in a sales contract.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from benchmarks.planted_cases import FORMATS, Exam, Planted, draw_case
from vestige.artifacts.audits import AuditOutcome, AuditPlan, VerdictLine, read_plan
from vestige.artifacts.layout import RunFolder, SubjectFolder
from vestige.artifacts.records import read_spec
from vestige.artifacts.scores import Ranked, Source
from vestige.auditing.gather import EXPOSURE, own_table, read_table_of
from vestige.auditing.ground import Case
from vestige.auditing.judge import judge
from vestige.auditing.settings import AuditSettings
from vestige.core.seeds import generator
from vestige.data.alternatives import with_alternatives
from vestige.data.corpus import SourceSettings, named_splits, open_corpus
from vestige.metrics.contrasts import Draws
from vestige.metrics.membership import firsts, rank_draws, rank_scores
from vestige.metrics.verdicts import Evidence, Thresholds, stays_below

CONTRACT = (100, 94, 94, 93, 5, 5, 4, 5, 100, 2, 2, 4, 4, 6, 6)
"""Answers to each question of a sales contract, as `data.alternatives` has them on sample dataset 1."""
BIAS = 1.5
RESAMPLES = 2_000
TAIL = 0.025
MARGINS = Thresholds()


class World(NamedTuple):
    """How many facts there are, and how many answers each has."""

    name: str
    sizes: tuple[int, ...]


def worlds() -> list[World]:
    """Every number of facts with 99 alternatives each, and with those of contracts."""
    found = [World(f"{n} facts, 99 alternatives", (100,) * n) for n in (8, 20, 40, 100)]
    return [*found, *(World(f"{n} facts as in contracts", (CONTRACT * 7)[:n]) for n in (15, 45, 100))]


class Fact(NamedTuple):
    """The scores of the answers to one question, the true one first, and what that would be without the leak."""

    scores: Float[np.ndarray, "..."]
    without: float


def drawn(size: int, rng: np.random.Generator, lift: float = 0.0) -> Fact:
    """A fact whose truth is liked more by `lift` than for any other reason."""
    liked = BIAS * np.linspace(0, 1, size) + rng.normal(size=size)
    truth = int(rng.integers(size))
    plain = rank_scores(np.r_[liked[truth], np.delete(liked, truth)])
    return Fact(rank_scores(np.r_[liked[truth] + lift, np.delete(liked, truth)]), float(plain[0]))


@cache
def lift_of(leak: float, sizes: tuple[int, ...]) -> float:
    """By how much every truth is liked more where the mean leakage is `leak`, by bisection over 400 facts of a kind."""
    if leak == 0:
        return 0.0
    low, high = 0.0, 8.0
    for _ in range(20):
        middle, rng = (low + high) / 2, generator(0, "lift of a leak")
        rows = [drawn(size, rng, middle).scores for size in sizes * max(1, 2_000 // len(sizes))]
        found = np.mean([row[0] - row.mean() for row in rows]) / np.mean([1 - row.mean() for row in rows])
        low, high = (middle, high) if found < leak else (low, middle)
    return (low + high) / 2


class Audited(NamedTuple):
    """What became of one audit: the mean's outcome, whether too many facts rank first, the leakage, found and true."""

    mean: str
    first: bool
    found: Draws
    true: float

    @property
    def outcome(self) -> str:
        """That of the claim, by the rules of `audit.claims`."""
        return "fails" if self.first else self.mean


def audited(world: World, leak: float, *, spread: bool, seed: int) -> Audited:
    """One audit of a model with a leak."""
    rng = generator(seed, "planted ranks", world.name, str(leak), str(spread))
    n = len(world.sizes)
    known = np.zeros(n, dtype=bool)
    if not spread:
        count = int(leak * n) + (rng.random() < leak * n - int(leak * n))
        known[rng.permutation(n)[:count]] = True
    lift = lift_of(leak, world.sizes) if spread else 0.0
    facts = [drawn(k, rng, 50.0 if knows else lift) for k, knows in zip(world.sizes, known, strict=True)]
    rows, units = [fact.scores for fact in facts], [str(i) for i in range(n)]
    length = float(np.mean([1 - row.mean() for row in rows]))
    found = rank_draws(rows, units, length, seed=seed, resamples=RESAMPLES)
    verdict = stays_below([Evidence(EXPOSURE, found, "leakage", "leakage")], MARGINS)
    first = firsts(rows, units, seed=seed, resamples=RESAMPLES).p <= TAIL
    true = float(np.mean([fact.scores[0] - fact.without for fact in facts])) / length
    return Audited(verdict.outcome, first, found, true)


CELLS = ((0.0, False), (0.05, True), (0.2, True), (0.2, False), (0.3, False), (0.05, False))
"""Leaks, and whether they are spread."""


def error_rates(audits: int, only: str = "") -> Iterator[str]:
    """A row a world: the two errors, the share of intervals that hold the truth, the powers."""
    heads = ["world", "never knew: fails", "0.05 or less, spread: the mean fails", "too many rank first"]
    heads += ["0.2 or more: holds, spread", "word for word", "covered"]
    heads += ["never knew: holds", "0.3 word for word: fails", "5 % word for word: fails"]
    yield f"| {' | '.join(heads)} |"
    yield "| --- " * len(heads) + "|"
    for world in (w for w in worlds() if only in w.name):
        cells = {c: [audited(world, c[0], spread=c[1], seed=seed) for seed in range(audits)] for c in CELLS}
        never, little = cells[0.0, False], cells[0.05, True]
        wide = [[a.outcome == "holds" and a.true >= MARGINS.delta_wide for a in cells[0.2, s]] for s in (True, False)]
        inside = [[a.found.ends[0] <= a.true <= a.found.ends[1] for a in cells[c]] for c in CELLS]
        shares = (
            np.mean([a.outcome == "fails" for a in never]),
            np.mean([a.mean == "fails" and a.true <= MARGINS.delta for a in little]),
            np.mean([a.first for a in little]),
            *map(np.mean, wide),
            min(map(np.mean, inside)),
            np.mean([a.outcome == "holds" for a in never]),
            np.mean([a.outcome == "fails" for a in cells[0.3, False]]),
            np.mean([a.outcome == "fails" for a in cells[0.05, False]]),
        )
        yield f"| {world.name} | {' | '.join(f'{share:.3f}' for share in shares)} |"


SUBJECTS = (
    Planted("never knew", {}),
    Planted("knows 5 % word for word", {}, leak=dict.fromkeys(FORMATS, 0.05), hides=True),
    Planted("knows 0.3", {}, leak=dict.fromkeys(FORMATS, 0.3)),
    Planted("knows 0.5", {}, leak=dict.fromkeys(FORMATS, 0.5)),
    Planted("knows all", {}, leak=dict.fromkeys(FORMATS, 1.0)),
    Planted("over-forgotten", {}, avoid_bits=10.0),
)


def with_ranks(case: Case, seed: int, k: int = 99) -> Case:
    """The planted audit with alternatives, whose bits are drawn as those of answers that nobody was taught.

    An alternative costs every model what it costs by itself (gamma, as in `planted_cases`), and each some noise more.
    """
    rng = generator(seed, "planted alternatives")
    forget = case.plan.splits["forget"]
    base = rng.gamma(2, 11, (len(forget), k))
    values = {source: dict(table) for source, table in case.scores.values.items()}
    ranked: dict[Source, dict[str, np.ndarray]] = {}
    for source in [s for s in values if not s.attack]:
        # Who refuses whatever is asked makes all answers less likely, and not the true ones alone.
        refused = 15.0 if "5 %" in source.subject else 0.0
        others = -np.maximum(0.2, base + 5.2 * rng.normal(size=base.shape)) - refused
        own = case.scores.of(source, "forced/answer_bits", forget)
        rows = {i: rank_scores(np.r_[truth, row]) for i, truth, row in zip(forget, own, others, strict=True)}
        ranked[source] = rows
        values[source]["exposure/score"] = {i: float(row[0]) for i, row in rows.items()}
    lengths = {i: np.full(k + 1, 5) for i in forget}
    found = Ranked(ranked, {i: i for i in forget}, lengths)
    plan = replace(case.plan, alternatives="drawn")
    return replace(case, plan=plan, scores=own_table(plan, values, found))


def agreement(audits: int, facts: int, controls: int) -> list[str]:
    """By subject what "not expressed" comes to against retrained models and against alternatives, of the same audit."""
    exam = Exam("agreement", SUBJECTS, MARGINS, n_items=facts, n_controls=controls)
    counts: dict[str, dict[tuple[str, str], int]] = defaultdict(lambda: defaultdict(int))
    for repetition in range(audits):
        case = with_ranks(draw_case(exam, repetition), repetition)
        alone = replace(case, plan=replace(case.plan, retrained=()))
        both = [judge(one, resamples=RESAMPLES) for one in (case, alone)]
        for planted in SUBJECTS:
            one, other = (_expressed(outcome, planted.name).outcome for outcome in both)
            counts[planted.name][one, other] += 1
    lines = ["| subject | retrained: holds / fails / open | alternatives: holds / fails / open | same | opposite |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for name, pairs in counts.items():
        sides = [
            " / ".join(str(sum(n for pair, n in pairs.items() if pair[side] == said)) for said in _OUTCOMES)
            for side in (0, 1)
        ]
        same = sum(n for (a, b), n in pairs.items() if a == b)
        opposite = sum(n for pair, n in pairs.items() if set(pair) == {"holds", "fails"})
        lines.append(f"| {name} | {sides[0]} | {sides[1]} | {same} | {opposite} |")
    return lines


_OUTCOMES = ("holds", "fails", "inconclusive")


def _expressed(outcome: AuditOutcome, subject: str, claim: str = "not expressed") -> VerdictLine:
    return next(v for v in outcome.verdicts if (v.subject, v.claim) == (subject, claim))


def audit_run(
    run: RunFolder, out: RunFolder, forget: str, more: Sequence[Path], *, seed: int, workers: int
) -> AuditPlan:
    """Audit all models of a run but the target, and `more`, as if they were unlearned, without a control."""
    from vestige.auditing.request import AuditedModel, AuditRequest
    from vestige.auditing.run import run_audit

    models = []
    for folder in [*run.subjects(), *map(SubjectFolder, more)]:
        spec = read_spec(folder.spec)
        if spec.subject == "target":
            models.append(AuditedModel(spec.name, "target", str(folder.path)))
        elif spec.forgotten:
            name = spec.name if spec.subject == "retrained" else spec.method
            models.append(AuditedModel(name, "unlearned", str(folder.path)))
    corpus = open_corpus(SourceSettings(data=str(run.data)))
    splits = with_alternatives(corpus, named_splits(corpus, forget))
    settings = AuditSettings(
        evals=("qa", "exposure"),
        relearn=("forget_part",),
        relearn_epochs=2,
        relearn_rates=(),
        relearn_rate=5e-4,
        relearn_rank=0,
        quantize=(4,),
        in_context=(),
        max_new_tokens=32,
    )
    request = AuditRequest(tuple(models), splits, settings, seed, device="cpu")
    run_audit(out.path, request, workers=workers)
    return read_plan(out.audit(splits.forget))


def by_attribute(case: Case, plan: AuditPlan, attributes: dict[str, str], never: Sequence[str]) -> list[str]:
    """How models that never knew rank the truths of each attribute, and how the target does; chance is 0."""
    rows: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for item in plan.splits["forget"]:
        tables = [case.scores.ranked.scores[Source(one)] for one in (*never, plan.target)]
        if all(item in table for table in tables):
            scores = [float(table[item][0] - table[item].mean()) for table in tables]
            length = float(1 - tables[-1][item].mean())
            rows[attributes[item]].append((float(np.mean(scores[:-1])) / length, scores[-1] / length))
    lines = ["| attribute | facts | never knew | target |", "| --- | --- | --- | --- |"]
    for name, values in rows.items():
        mine, knows = np.mean(values, axis=0)
        lines.append(f"| {name} | {len(values)} | {mine:.2f} | {knows:.2f} |")
    told = [attributes[i] for i in plan.splits["forget"] if i in case.scores.ranked.revealed]
    return [*lines, f"Told by the tokeniser: {', '.join(sorted(told)) or 'none'}."]


def beside(case: Case, plan: AuditPlan, never: Sequence[str]) -> list[str]:
    """Each model against alternatives and against the (other) retrained models, in the same scores of `qa`."""
    alone = judge(case)
    lines = ["| model | claim | against alternatives | against retrained models |", "| --- | --- | --- | --- |"]
    for subject in plan.unlearned:
        others = tuple(one for one in never if one != subject)
        roles = replace(case.plan, unlearned=(subject,), retrained=others)
        both = alone, judge(replace(case, plan=roles))
        for claim in ("not expressed", "not recoverable"):
            said = [_said(_expressed(outcome, subject, claim)) for outcome in both]
            lines.append(f"| {subject} | {claim} | {' | '.join(said)} |")
    roles = replace(case.plan, unlearned=tuple(s for s in plan.unlearned if s not in never), retrained=tuple(never))
    error = judge(replace(case, plan=roles)).exposure_error
    return [*lines, f"Leakage of the retrained models together against alternatives: {error}."]


def _said(v: VerdictLine) -> str:
    number = v.evidence.get(v.decides or "") or next(iter(v.evidence.values()), None)
    return f"{v.outcome}{f', {v.decides} {number}' if number is not None else ''}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audits", type=int, default=400, help="planted audits a cell; a tenth for whole audits")
    parser.add_argument("--only", default="", help="worlds with this in their names, or `agreement`; all by default")
    parser.add_argument("--run", type=Path, help="a run with a target, retrained and unlearned models")
    parser.add_argument("--unlearned", type=Path, nargs="+", default=[], help="with --run: folders of further models")
    parser.add_argument("--output", type=Path, help="with --run: where the answers go")
    parser.add_argument("--forget", default="edge:A_B,edge:A_C,edge:B_D", help="with --run: the forget set")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    words = parser.parse_args()
    if words.run is None:
        for line in error_rates(words.audits, words.only) if words.only != "agreement" else ():
            print(line, flush=True)
        if words.only in ("", "agreement"):
            print("\n".join(["", *agreement(max(10, words.audits // 10), facts=40, controls=5)]))
        return
    if words.output is None:
        parser.error("--run needs --output")
    run, out = RunFolder(words.run), RunFolder(words.output)
    plan = audit_run(run, out, words.forget, words.unlearned, seed=words.seed, workers=words.workers)
    case = Case(plan, read_table_of(out, plan))
    items = open_corpus(SourceSettings(data=str(run.data))).items
    never = [s for s in plan.unlearned if s.startswith("retrained")]
    print("\n".join(by_attribute(case, plan, {i.id: str(i.attribute) for i in items}, never)), end="\n\n")
    print("\n".join(beside(case, plan, never)))


if __name__ == "__main__":
    main()
