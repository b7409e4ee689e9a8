"""How often a verdict is wrong, and how often it is given: counted over simulated audits, without models.

`python -m benchmarks.power` prints the tables of docs/verdicts.md (`--json`: one object a cell). Every verdict comes
from the functions that the audit calls; only the scores are drawn. The world they are drawn from:

- A question that `retrained` sees is out of reach (p = 0) with the share `unreachable`, else guessed with p from
  beta(3, 3). A seed shifts the log-odds of all of them by a normal amount of standard deviation `shift`. These figures
  are those of five `retrained` seeds of the tiny model on 120 held-out questions about 6 contracts (docs/verdicts.md).
- Questions come in edges of twenty. A subject with the true leakage L knows each question of edge e with probability
  L_e, beta distributed about L with the intraclass correlation `icc` (forgetting takes hold of an edge or does not:
  assumed, not measured); what it does not know it answers as one more seed of `retrained` would. `target` knows all.
- With fewer than 5 edges a verdict is about these edges: all of them have L itself.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vestige.metrics.contrasts import Sample, worst_case
from vestige.metrics.gains import Controls, excess, leakage, split
from vestige.metrics.intervals import LEAST_CLUSTERS
from vestige.metrics.verdicts import Evidence, Outcome, Thresholds, not_recovered, stays_below

EDGE = 20
RESAMPLES = 2_000
MARGINS = (0.05, 0.1, 0.2)
MARGINS_BITS = (1.0, 2.0, 4.0)
POWER, ERROR = 0.8, 0.05
DEFAULTS = Thresholds(scope="such")
"""The scope `these` has its own benchmark (`benchmarks.planted`)."""

Scores = Float[np.ndarray, " N"]


class World(NamedTuple):
    """What scores are drawn from; see the module's docstring."""

    name: str
    unreachable: float
    shift: float
    icc: float


TINY = World("tiny", unreachable=0.7, shift=0.13, icc=0.1)
WORLDS = (
    TINY,
    World("nothing to guess", unreachable=1.0, shift=0.0, icc=0.1),
    World("unsteady seeds", unreachable=0.7, shift=0.4, icc=0.1),
    World("edges apart", unreachable=0.7, shift=0.13, icc=0.3),
)


@dataclass(frozen=True)
class Row:
    """One cell: the shares of `draws` audits that came out `holds` and `fails`; the rest was inconclusive.

    `truth` is the true leakage (recovery, bits) and `margin` the one that the verdict was given at. `covered` is the
    share of intervals that held the truth.
    """

    bench: str
    world: str
    n: int
    controls: int
    truth: float
    margin: float
    rule: str
    holds: float
    fails: float
    covered: float
    draws: int


class Cell(NamedTuple):
    """What is to be simulated: `bench` names the function of BENCHES that does it."""

    bench: str
    world: World
    n: int
    controls: int
    truth: float


class Audit(NamedTuple):
    """One simulated audit: the verdict at each margin by each rule, and whether the interval held the truth."""

    outcomes: dict[tuple[str, float], Outcome]
    covered: bool


def chances(world: World, n: int, rng: np.random.Generator) -> Scores:
    """What a model that never knew answers each question right with, before its seed."""
    found: Scores = np.where(rng.random(n) < world.unreachable, 0.0, rng.beta(3, 3, n))
    return found


def ignorant(p: Scores, world: World, rng: np.random.Generator) -> Scores:
    """The hits of one seed that never knew."""
    odds = p / (1 - p) * np.exp(world.shift * rng.normal())
    hits: Scores = (rng.random(len(p)) < odds / (1 + odds)).astype(float)
    return hits


def edge_levels(level: float, world: World, n: int, rng: np.random.Generator) -> Scores:
    """By question, the probability that its edge is known with, the mean being `level`."""
    edges = -(-n // EDGE)
    if level in (0.0, 1.0) or world.icc == 0 or edges < LEAST_CLUSTERS:
        return np.full(n, level)
    size = 1 / world.icc - 1
    levels: Scores = np.repeat(rng.beta(level * size, (1 - level) * size, edges), EDGE)[:n]
    return levels


@cache
def sample_of(n: int) -> Sample:
    """The resamples of n questions, shared by all audits of that size."""
    edges = tuple(f"edge {i // EDGE}" for i in range(n)) if n > EDGE else None
    return Sample(tuple(f"{i:05}" for i in range(n)), edges, seed=0, resamples=RESAMPLES)


def naive(subject: Scores, controls: Controls, margin: float) -> Outcome:
    """The usual way, for comparison: one control, the normal interval over items."""
    apart, gap = subject - controls.retrained[0], float((controls.target - controls.retrained[0]).mean())
    arm = 1.96 * float(apart.std(ddof=1)) / len(apart) ** 0.5
    low, high = (float(apart.mean()) - arm) / gap, (float(apart.mean()) + arm) / gap
    return "fails" if low > margin else "holds" if high < margin else "inconclusive"


def at(margin: float) -> Thresholds:
    """One number as both margins, in shares and in bits."""
    wide = {"delta_wide": min(margin, 0.99), "delta_bits": margin, "delta_wide_bits": margin}
    return DEFAULTS.model_copy(update={"delta": min(margin, 0.99), **wide})


def one_format(cell: Cell, rng: np.random.Generator) -> Audit:
    """Leakage in one format; in one world by the usual way and by never deciding too."""
    controls, subjects = _formats(cell, rng, [cell.truth])
    drawn = leakage(subjects[0], controls[0])
    low, high = drawn.ends
    outcomes: dict[tuple[str, float], Outcome] = {}
    for margin in MARGINS:
        outcomes["ours", margin] = stays_below([Evidence("", drawn, "leakage", "leakage")], at(margin)).outcome
        if (cell.world, cell.controls) == (TINY, 3):
            outcomes["items only, one control", margin] = naive(subjects[0], controls[0], margin)
            outcomes["always inconclusive", margin] = "inconclusive"
    return Audit(outcomes, low <= cell.truth <= high)


def three_formats(cell: Cell, rng: np.random.Generator) -> Audit:
    """Leakage in three formats, of which the first leaks and the others do not; the band of the worst one."""
    controls, subjects = _formats(cell, rng, [cell.truth, 0.0, 0.0])
    drawn = [leakage(subject, one) for subject, one in zip(subjects, controls, strict=True)]
    evidence = [Evidence(str(i), one, "leakage", "leakage") for i, one in enumerate(drawn)]
    outcomes = {("ours", margin): stays_below(evidence, at(margin)).outcome for margin in MARGINS}
    _, (low, high, _) = worst_case(drawn)
    return Audit(outcomes, low <= cell.truth <= high)


def one_attack(cell: Cell, rng: np.random.Generator) -> Audit:
    """Recovery by an attack that also carries in: every model, `retrained` too, learns a fifth of what it lacks.

    Of what the subject still knows, a fifth would have come by injection, so it knows `truth` / 0.8.
    """
    p = chances(cell.world, cell.n, rng)
    known = rng.random(cell.n) < edge_levels(cell.truth / 0.8, cell.world, cell.n, rng)
    first = np.stack([ignorant(p, cell.world, rng) for _ in range(cell.controls)])
    before = ignorant(p, cell.world, rng)
    taught = rng.random((cell.controls + 1, cell.n)) < 0.2
    last, after = np.maximum(first, taught[1:]), np.maximum(np.maximum(before, taught[0]), known)
    controls = Controls("", np.ones(cell.n), first, sample_of(cell.n), DEFAULTS.prior("hits"))
    gain = split("", before, after, controls, last)
    outcomes = {("ours", m): not_recovered([gain], at(m)).outcome for m in MARGINS}
    low, high = gain.recovery.ends
    return Audit(outcomes, low <= cell.truth <= high)


def bits(cell: Cell, rng: np.random.Generator) -> Audit:
    """Excess in bits: answers of -22 bits (sd 27 by item, 5.2 by seed and item, 0.88 by seed), as the tiny model's."""
    n, level = cell.n, -22 + 27 * rng.normal(size=cell.n)
    models = [level + 5.2 * rng.normal(size=n) + 0.88 * rng.normal() for _ in range(cell.controls + 1)]
    spread = edge_levels(0.5, cell.world, n, rng) * 2
    subject = models[0] + cell.truth * spread
    prior = DEFAULTS.prior("graded")
    drawn = excess(subject, Controls("bits", np.zeros(n), np.stack(models[1:]), sample_of(n), prior, "bits"))
    evidence = [Evidence("", drawn, "excess", "bits")]
    low, high = drawn.ends
    return Audit({("ours", m): stays_below(evidence, at(m)).outcome for m in MARGINS_BITS}, low <= cell.truth <= high)


def _formats(cell: Cell, rng: np.random.Generator, truths: Sequence[float]) -> tuple[list[Controls], list[Scores]]:
    prior, sample = DEFAULTS.prior("hits"), sample_of(cell.n)
    controls, subjects = [], []
    for i, truth in enumerate(truths):
        p = chances(cell.world, cell.n, rng)
        never = np.stack([ignorant(p, cell.world, rng) for _ in range(cell.controls)])
        known = rng.random(cell.n) < edge_levels(truth, cell.world, cell.n, rng)
        subjects.append(np.maximum(ignorant(p, cell.world, rng), known))
        controls.append(Controls(f"format {i}", np.ones(cell.n), never, sample, prior))
    return controls, subjects


BENCHES: dict[str, Callable[[Cell, np.random.Generator], Audit]] = {
    "one format": one_format,
    "three formats": three_formats,
    "one attack": one_attack,
    "bits": bits,
}
SIZES = (20, 40, 60, 100, 200, 400, 800)
FEWER = (60, 100, 200, 400)
EFFECTS = (0.2, 0.3, 0.5)
EFFECTS_BITS = (4.0, 8.0)
"""What `fails` is to be given at in 80 % of audits."""

SHOWN = ("one format", "ours")
"""The part and the rule of which every cell is printed."""

TRUTHS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)


def plan() -> list[Cell]:
    """Every cell: one format in the tiny world in full, the rest at fewer sizes and with three controls."""
    cells = [Cell("one format", TINY, n, m, t) for n in SIZES for m in (1, 3, 5) for t in TRUTHS]
    cells += [Cell("one format", w, n, 3, t) for w in WORLDS[1:] for n in FEWER for t in TRUTHS]
    for bench in ("three formats", "one attack"):
        cells += [Cell(bench, TINY, n, 3, t) for n in FEWER for t in TRUTHS]
    cells += [Cell("bits", TINY, n, m, t) for n in FEWER for m in (1, 3, 5) for t in (0.0, *MARGINS_BITS, 8.0)]
    return cells


def simulate(cell: Cell, draws: int) -> list[Row]:
    """The cell's rows, one a margin and rule. What is drawn depends on the cell alone."""
    audit = BENCHES[cell.bench]
    worlds = [world.name for world in WORLDS]
    rng = np.random.default_rng(
        [list(BENCHES).index(cell.bench), worlds.index(cell.world.name), cell.n, cell.controls, int(cell.truth * 100)]
    )
    found = [audit(cell, rng) for _ in range(draws)]
    covered = sum(one.covered for one in found) / draws
    rows = []
    for rule, margin in found[0].outcomes:
        outcomes = [one.outcomes[rule, margin] for one in found]
        holds, fails = (outcomes.count(what) / draws for what in ("holds", "fails"))
        head = (cell.bench, cell.world.name, cell.n, cell.controls, cell.truth, margin)
        rows.append(Row(*head, rule, holds, fails, covered, draws))
    return rows


def meets(rows: Sequence[Row], margin: float, effect: float) -> tuple[bool, str]:
    """Whether the rows of one rule, size and number of controls meet the bar at a margin, and where not, why.

    False `holds` at a truth of the margin and above, false `fails` at the margin and below: at most 5 % each. Power:
    `holds` at 0 and `fails` at `effect`, at least 80 % each.
    """
    at = {row.truth: row for row in rows if row.margin == margin}
    wrong_holds, wrong_fails = errors(list(at.values()))
    short = []
    if wrong_holds > ERROR:
        short.append(f"false holds {wrong_holds:.3f}")
    if wrong_fails > ERROR:
        short.append(f"false fails {wrong_fails:.3f}")
    if at[0.0].holds < POWER:
        short.append(f"holds at 0 {at[0.0].holds:.2f}")
    if at[effect].fails < POWER:
        short.append(f"fails at {effect:g} {at[effect].fails:.2f}")
    return not short, "; ".join(short) or "meets"


def errors(rows: Sequence[Row]) -> tuple[float, float]:
    """The greatest share of false `holds`, and of false `fails`, among rows of one rule."""
    return (
        max(row.holds for row in rows if row.truth >= row.margin),
        max(row.fails for row in rows if row.truth <= row.margin),
    )


def main() -> None:
    """Simulate every cell and print the tables, or one JSON object a row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", choices=sorted(BENCHES), help="one part only")
    parser.add_argument("--draws", type=int, default=10_000, help="audits a cell")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    words = parser.parse_args()
    cells = [cell for cell in plan() if words.bench in (None, cell.bench)]
    rows: list[Row] = []
    with ProcessPoolExecutor(words.workers) as pool:
        for found in pool.map(simulate, cells, [words.draws] * len(cells)):
            rows += found
            if words.json:
                for row in found:
                    print(json.dumps(asdict(row)), flush=True)
    if not words.json:
        print(f"{summary(rows)}\n\n{cells_table([r for r in rows if (r.bench, r.rule) == SHOWN])}")


def summary(rows: Sequence[Row]) -> str:
    """Markdown: for each part, world, number of controls, margin and rule its errors, and from which n on it has power.

    Errors are the worst of all n and truths. `holds` is for the truth 0, `fails` for the stated effects.
    """
    head = ("part", "world", "controls", "margin", "rule", "false holds", "false fails", "covered", "holds from n")
    lines = [f"| {' | '.join(head)} | fails from n |", "| --- " * (len(head) + 1) + "|"]
    for key in dict.fromkeys((r.bench, r.world, r.controls, r.margin, r.rule) for r in rows):
        mine = [r for r in rows if (r.bench, r.world, r.controls, r.margin, r.rule) == key]
        effects = EFFECTS_BITS if key[0] == "bits" else EFFECTS
        wrong_holds, wrong_fails = errors(mine)
        fails = ", ".join(f"{e:g}: {_least(mine, e, 'fails')}" for e in effects if e > key[3])
        covered = f"{min(r.covered for r in mine):.3f}" if key[4] == "ours" else ""
        where = " | ".join(f"{x:g}" if isinstance(x, float) else str(x) for x in key)
        held = _least(mine, 0.0, "holds")
        lines.append(f"| {where} | {wrong_holds:.3f} | {wrong_fails:.3f} | {covered} | {held} | {fails} |")
    return "\n".join(lines)


def _least(rows: Sequence[Row], truth: float, outcome: str) -> str:
    """The least n from which on the outcome comes with the power, or `none` with the power at the greatest n."""
    powers = {r.n: r.holds if outcome == "holds" else r.fails for r in rows if r.truth == truth}
    enough = [n for n in powers if all(power >= POWER for m, power in powers.items() if m >= n)]
    return str(min(enough)) if enough else f"none ({powers[max(powers)]:.2f} at {max(powers)})"


def cells_table(rows: Sequence[Row]) -> str:
    """Markdown: `holds / fails` by world, controls, margin, n and true leakage."""
    truths = sorted({r.truth for r in rows})
    lines = [
        f"| world | controls | margin | n |{''.join(f' {t:g} |' for t in truths)}",
        "| --- | --- | --- | --- |" + " --- |" * len(truths),
    ]
    for key in dict.fromkeys((r.world, r.controls, r.margin, r.n) for r in rows):
        at = {r.truth: r for r in rows if (r.world, r.controls, r.margin, r.n) == key}
        cells = "".join(f" {at[t].holds:.3f} / {at[t].fails:.3f} |" for t in truths)
        lines.append(f"| {key[0]} | {key[1]} | {key[2]:g} | {key[3]} |{cells}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
