"""How often the bounds of the scope `these` hold, and how often they decide: counted over audits that are only drawn.

`python -m benchmarks.planted_bounds` prints the tables of docs/findings/planted.md (`--json`: one object a cell).
The variance is that of `metrics.intervals`, of thousands of audits at once. What scores are drawn from:

- A model that never knew cannot guess a fact, or guesses it with p from beta(3, 3); `guessable` is the share of these.
  A seed shifts the log-odds of all by `shift` and those of a contract (twenty facts) by `contract` more (standard
  deviations). Of several wordings of a fact, half follow one guess. A score is the share of wordings answered.
- Graded scores (probabilities, overlaps, truth shares): the target exceeds by `gap` (beta, or all facts about alike)
  what who never knew scores; a seed moves one fact by t(4) noise with the standard deviation `noise`, which itself
  differs between facts (log-normal, 0.7), and all facts by `shift` of that. Short answers are hits, read as graded.
- Bits: answers of -22 bits (27 by fact), 5.2 of noise by seed and fact with the tails of t(4), `shift` by seed.
- A subject is one more training, lifted by L of the way to the target at each fact (in bits by L), so that its true
  leakage is L. For `covered` and power at 0.3 it instead knows that share of the facts whole.

`wrong holds` are those at a true leakage of the wide margin, `wrong fails` those at the narrow one.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from benchmarks import options
from vestige.metrics.contrasts import BOUND
from vestige.metrics.intervals import LEVEL, Kind, spread
from vestige.metrics.verdicts import Thresholds

CONTRACT = 20
LEFT, LEFT_BITS = 0.3, 12.0
"""What is to be called failed: the share of the facts that is known, or bits."""

Table = Float[np.ndarray, "B T N"]
Ends = Float[np.ndarray, " B"]


class World(NamedTuple):
    """What scores are drawn from; see the module's docstring. In bits `guessable` and `contract` are not used.

    With `noise` 0 graded scores are those of short answers, hits that are read as graded.
    """

    name: str
    guessable: float = 0.3
    shift: float = 0.13
    contract: float = 0.0
    wordings: int = 1
    bits: bool = False
    graded: bool = False
    noise: float = 0.0
    gap: float = 1.0

    @property
    def kind(self) -> Kind:
        """How the scores are read."""
        if self.bits:
            return "bits"
        if self.graded:
            return "graded"
        return "hits"


WORLDS = (
    World("steady"),
    World("steady, 3 wordings", wordings=3),
    World("steady, 5 wordings", wordings=5),
    World("nothing to guess", guessable=0.0),
    World("a tenth to guess", guessable=0.1),
    World("half to guess", guessable=0.5),
    World("unsteady", shift=0.4),
    World("unsteady, half to guess, 3 wordings", guessable=0.5, shift=0.4, wordings=3),
    World("very unsteady, half to guess, 5 wordings", guessable=0.5, shift=0.8, wordings=5),
    World("by contract", contract=0.8),
    World("by contract, half to guess, 3 wordings", guessable=0.5, contract=0.8, wordings=3),
    # The noise, gap and shift (the root of tau^2 / sigma^2) of real trainings (metrics/priors.toml), and beyond them.
    World("probability", graded=True, noise=0.015, gap=0.8, shift=0.12),
    World("overlap", graded=True, noise=0.06, gap=0.55, shift=0.06),
    World("truth share", graded=True, noise=0.018, gap=0.1, shift=0.12),
    World("truth share, unsteady", graded=True, noise=0.022, gap=0.1, shift=0.28),
    World("overlap, unsteady", graded=True, noise=0.06, gap=0.4, shift=0.28),
    World("short answers", graded=True),
    World("short answers, nothing to guess", graded=True, guessable=0.0),
    World("short answers, half to guess, unsteady", graded=True, guessable=0.5, shift=0.4),
    World("bits", shift=0.88, bits=True),
    World("bits, unsteady", shift=2.6, bits=True),
)
FACTS, CONTROLS = (8, 20, 40, 100, 400), (1, 2, 3, 5, 10)


@dataclass(frozen=True)
class Row:
    """One cell: shares of `audits`."""

    world: str
    facts: int
    controls: int
    wrong_holds: float
    wrong_fails: float
    covered: float
    holds: float
    fails: float
    audits: int


def trainings(world: World, audits: int, facts: int, n: int, rng: np.random.Generator) -> tuple[Table, Table]:
    """The scores of n trainings that never knew, and each fact's mean over trainings (T is then 1).

    Those of graded scores with noise are not kept within a range: their mean over trainings is then known.
    """
    shift = world.shift * rng.standard_normal((audits, n, 1))
    if world.noise:
        own = world.noise * np.exp(0.7 * rng.standard_normal((audits, 1, facts)) - 0.7**2)
        noise = own / 2**0.5 * rng.standard_t(4, (audits, n, facts))
        level = 0.2 * rng.random((audits, 1, facts))
        return level + noise + world.noise * shift, level
    if world.bits:
        level = -22 + 27 * rng.standard_normal((audits, 1, facts))
        # t(4) has the variance 2.
        noise = 5.2 / 2**0.5 * rng.standard_t(4, (audits, n, facts))
        return level + noise + shift, level
    p = np.where(rng.random((audits, 1, facts)) < world.guessable, rng.beta(3, 3, (audits, 1, facts)), 0.0)
    if world.contract:
        own = world.contract * rng.standard_normal((audits, n, -(-facts // CONTRACT)))
        shift = shift + np.repeat(own, CONTRACT, axis=2)[..., :facts]
    odds = p / (1 - p)

    def guessed(moved: Float[np.ndarray, "..."]) -> Table:
        found: Table = odds * np.exp(moved) / (1 + odds * np.exp(moved))
        return found

    q = guessed(shift)
    first, scores = rng.random((audits, n, facts)) < q, np.zeros((audits, n, facts))
    for _ in range(world.wordings):
        again = rng.random((audits, n, facts)) < q
        scores += np.where(rng.random((audits, n, facts)) < 0.5, first, again) if world.wordings > 1 else again
    # The mean over seeds by Gauss and Hermite's rule.
    wide = float(np.hypot(world.shift, world.contract))
    at, weight = np.polynomial.hermite_e.hermegauss(9)
    mean: Table = sum(w * guessed(np.array(wide * x)) for x, w in zip(at, weight / weight.sum(), strict=True))
    return scores / world.wordings, mean


def simulate(world: World, facts: int, controls: int, audits: int) -> Row:
    """One cell; what is drawn depends on the cell alone."""
    rng = np.random.default_rng([WORLDS.index(world), facts, controls])
    never, mean = trainings(world, audits, facts, controls + 1, rng)
    guess, control, mean = never[:, 0], never[:, 1:], mean[:, 0]
    narrow, wide = Thresholds().margins("bits" if world.bits else "leakage")
    prior = Thresholds().prior(world.kind)
    # A small mean gap is a small one of every fact, or a large one of some.
    target = np.ones((1, 1)) if not world.noise else mean + world.gap * rng.gamma(1.0, 1.0, (audits, facts))
    above = target - control.mean(axis=1)
    pair = np.sqrt((above**2).mean(axis=1)) if world.graded else 1.0

    def bounds(subject: Float[np.ndarray, "B N"], tail: float = (1 - LEVEL) / 2) -> tuple[Ends, Ends]:
        apart = subject - control.mean(axis=1)
        ruler = np.ones(audits) if world.bits else above.mean(axis=1)
        found = spread(control, apart, prior, width=None if world.bits else pair)
        arm = stdtrit(found.df, 1 - tail) * np.sqrt(found.variance * (1 + 1 / controls))
        return (apart.mean(axis=1) - arm) / ruler, (apart.mean(axis=1) + arm) / ruler

    def lifted(level: float) -> Float[np.ndarray, "B N"]:
        gap = 1.0 if world.bits else target - guess
        raised: Float[np.ndarray, "B N"] = guess + level * gap
        return raised

    covered = []
    for level in (0.0, narrow, wide):
        low, high = bounds(lifted(level))
        covered.append(np.mean((low <= level) & (level <= high)))
        held = _share((bounds(lifted(level), 1 - BOUND)[1] < wide) & (low <= narrow))
        if level == 0:
            holds = held
        elif level == narrow:
            wrong_fails = _share(low > narrow)
        else:
            wrong_holds = held
    if world.bits:
        low, high = bounds(guess + LEFT_BITS)
        covered.append(np.mean((low <= LEFT_BITS) & (high >= LEFT_BITS)))
    else:
        known = rng.permuted(np.tile(np.arange(facts) < round(LEFT * facts), (audits, 1)), axis=1)
        low, high = bounds(np.where(known, target, guess))
        truth = (known * (target - mean)).mean(axis=1) / (target - mean).mean(axis=1)
        covered.append(np.mean((low <= truth) & (truth <= high)))
    fails = _share(low > narrow)
    return Row(world.name, facts, controls, wrong_holds, wrong_fails, float(min(covered)), holds, fails, audits)


def _share(hits: Float[np.ndarray, " B"]) -> float:
    return float(np.mean(hits))


def summary(rows: Sequence[Row]) -> str:
    """Markdown: by world and number of controls the worst errors over all numbers of facts, and power by these."""
    lines = [
        "| world | controls | wrong holds | wrong fails | covered | holds at 0 | fails at 0.3 (12 bits) |",
        "| --- " * 7 + "|",
    ]
    for key in dict.fromkeys((r.world, r.controls) for r in rows):
        mine = [r for r in rows if (r.world, r.controls) == key]
        worst = f"{max(r.wrong_holds for r in mine):.3f} | {max(r.wrong_fails for r in mine):.3f}"
        power = [" ".join(f"{getattr(r, what):.2f}" for r in mine) for what in ("holds", "fails")]
        lines.append(
            f"| {key[0]} | {key[1]} | {worst} | {min(r.covered for r in mine):.3f} | {power[0]} | {power[1]} |"
        )
    return "\n".join(lines)


def grid(audits: int, worlds: Iterable[World] = WORLDS) -> Iterable[Row]:
    """Every cell of the stated grid; of 400 facts half as many audits."""
    for world in worlds:
        for controls in CONTROLS:
            for facts in FACTS:
                yield simulate(world, facts, controls, audits // 2 if facts > 100 else audits)


def main() -> None:
    """Count every cell and print the table, or one JSON object a cell."""
    parser = options(__doc__, as_json=True)
    parser.add_argument("--audits", type=int, default=2_000, help="audits a cell")
    words = parser.parse_args()
    rows = []
    for row in grid(words.audits):
        rows.append(row)
        if words.json:
            print(json.dumps(asdict(row)), flush=True)
    if not words.json:
        print(f"facts in the columns of power: {', '.join(map(str, FACTS))}\n\n{summary(rows)}")


if __name__ == "__main__":
    main()
