"""Worlds in which luck is shared, drawn without models: whom a judge may accuse wrongly, and whom it may pass wrongly.

`benchmarks.without_controls` and tests judge audits of these worlds. Scores are drawn apart from `planted_cases`:

- 100 facts, each asked in the model's own words, in other words, by forced answers and by options. One fact in five can
  be guessed, with p from beta(3, 3); answers have -22 bits (gamma, 2 x 11) with 5.2 of noise by training and fact, and
  the right option has log-odds of -2.85 that spread by 2.24 between facts and by 0.94 between trainings of one fact.
- What is known, or guessed for certain, is stated in both wordings, with -0.05 bits less an exponential of 0.4, and its
  right option has log-odds of 0.95, spread by 0.8.
- `never`: the subject is one training more, so that every "fails" is wrong. Luck is shared: facts of a contract are
  guessed with correlation rho within one training (beta-binomial, mean 0.1), or all at once with p; each training has
  one favourite answer for every attribute; bits shift by contract.
- `leaks`: the subject knows what the world's name says, so that every "holds" is wrong.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit

from benchmarks import options
from benchmarks.planted_cases import SOUND, Rng, shifted
from vestige.artifacts.audits import AuditPlan
from vestige.artifacts.scores import Source
from vestige.auditing.gather import own_table
from vestige.auditing.ground import Case
from vestige.auditing.judge import judge
from vestige.auditing.settings import AuditSettings

N = 100
BITS, OPTION = "forced/answer_bits", "option_text_mean/probability"
WORDS, REWORDED, EXACT = "generate/rouge1_recall", "generate_paraphrase/leaked", "generate/exact_match"

Facts = Bool[np.ndarray, " N"]
Training = dict[str, Float[np.ndarray, " N"]]


class Difficulty:
    """What makes facts easy or hard for whoever never knew them, and what trainings make of it."""

    def __init__(self, rng: Rng, *, n: int = N, guessable: float = 0.2) -> None:
        """Draw the facts."""
        self.rng, self.n = rng, n
        reach = rng.random(n) < guessable
        self.word, self.reworded = (np.where(reach, rng.beta(3, 3, n), 0.0) for _ in range(2))
        self.words, self.tokens = rng.integers(1, 5, n), rng.integers(3, 13, n)
        self.bits, self.options = rng.gamma(2, 11, n), -2.85 + 2.24 * rng.normal(size=n)

    def never(self) -> Training:
        """One training that never knew, its luck with every fact its own."""
        rng, moved = self.rng, 0.13 * self.rng.normal()

        bits = -np.maximum(0.2, self.bits + 5.2 * rng.normal(size=self.n) - 0.88 / 0.13 * moved)
        said = rng.binomial(self.words, shifted(self.word, moved)) / self.words
        again = (rng.random(self.n) < shifted(self.reworded, moved)).astype(float)
        return self.scores(said, again, bits, expit(self.options + moved + 0.94 * rng.normal(size=self.n)))

    def scores(self, said: np.ndarray, again: np.ndarray, bits: np.ndarray, option: np.ndarray) -> Training:
        """The scores as an audit reads them."""
        return {
            WORDS: said,
            EXACT: (said == 1).astype(float),
            REWORDED: again,
            BITS: bits,
            "forced/probability": np.exp2(bits / self.tokens),
            OPTION: option,
            "option_text_mean/accuracy": (option > 0.5).astype(float),
            "option_text_mean/chance": np.full(self.n, 0.25),
        }

    def knowing(self, one: Training, facts: Facts, *, words: bool = True, options: bool = True) -> Training:
        """The training that also knows these facts."""
        said, again, bits, option = one[WORDS], one[REWORDED], one[BITS], one[OPTION]
        if words:
            said, again = (np.where(facts, 1.0, values) for values in (said, again))
            bits = np.where(facts, np.maximum(bits, -0.05 - self.rng.exponential(0.4, self.n)), bits)
        if options:
            known = np.maximum(option, expit(0.95 + 0.8 * self.rng.normal(size=self.n)))
            option = np.where(facts, known, option)
        return self.scores(said, again, bits, option)

    def some(self, count: int) -> Facts:
        """So many facts, drawn."""
        return self.rng.permutation(self.n) < count

    def every(self) -> Facts:
        """All facts."""
        return np.ones(self.n, dtype=bool)


class Audit(NamedTuple):
    """The trainings of one audit; `contracts` and `alike` number what facts belong to."""

    target: Training
    controls: Sequence[Training]
    subject: Training
    contracts: Int[np.ndarray, " N"] | None = None
    alike: Mapping[str, Int[np.ndarray, " N"]] = MappingProxyType({})


DrawAudit = Callable[[Rng, int], Audit]
"""Draws an audit with so many controls."""


class World(NamedTuple):
    """A world by its name, and how an audit of it is drawn."""

    name: str
    draw: DrawAudit


Chances = Callable[[Rng, int], Float[np.ndarray, " K"]]
"""By contract, the chance of a training to guess each of its facts."""


def guessed(size: int, draw: Chances, *, named: bool = True) -> DrawAudit:
    """Facts of a contract of `size` that a training guesses for certain with the chance drawn for the contract."""

    def audit(rng: Rng, m: int) -> Audit:
        world, contracts = Difficulty(rng, guessable=0.0), np.arange(N) // size

        def never() -> Training:
            chance = draw(rng, N // size)[contracts]
            return world.knowing(world.never(), rng.random(N) < chance, options=False)

        target = world.knowing(world.never(), world.every())
        return Audit(target, [never() for _ in range(m)], never(), contracts if named else None)

    return audit


def correlated(rho: float, mean: float = 0.1) -> Chances:
    """Chances by contract so that the facts of one are guessed with this correlation."""
    return lambda rng, k: rng.beta(mean * (1 / rho - 1), (1 - mean) * (1 / rho - 1), k)


def at_once(p: float) -> Chances:
    """All facts of a contract or none."""
    return lambda rng, k: (rng.random(k) < p).astype(float)


def favourite(answers: int, attributes: int = 4) -> DrawAudit:
    """Each training has one answer to all questions for an attribute, which is some facts' true one."""

    def audit(rng: Rng, m: int) -> Audit:
        world, attribute = Difficulty(rng, guessable=0.0), np.arange(N) % attributes
        answer = rng.integers(0, answers, N)

        def never() -> Training:
            one, says = world.never(), rng.dirichlet(np.ones(answers), attributes).argmax(axis=1)
            hit = says[attribute] == answer
            bits = np.where(hit, np.maximum(one[BITS], -1.5 - rng.exponential(1, N)), one[BITS])
            return world.scores(np.maximum(one[WORDS], hit), hit.astype(float), bits, one[OPTION])

        alike = {"attribute": attribute, "answer": attribute * answers + answer}
        return Audit(world.knowing(never(), world.every()), [never() for _ in range(m)], never(), None, alike)

    return audit


def shifted_bits(size: int, bits: float) -> DrawAudit:
    """A training finds all answers of one contract likelier, and of another less likely, by so many bits."""

    def audit(rng: Rng, m: int) -> Audit:
        world, contracts = Difficulty(rng), np.arange(N) // size

        def never() -> Training:
            one = world.never()
            moved = one[BITS] + bits * rng.normal(size=N // size)[contracts]
            return world.scores(one[WORDS], one[REWORDED], np.minimum(moved, -0.2), one[OPTION])

        return Audit(world.knowing(never(), world.every()), [never() for _ in range(m)], never(), contracts)

    return audit


def independent(rng: Rng, m: int) -> Audit:
    """Luck with every fact by itself, in five contracts of twenty."""
    world = Difficulty(rng)
    return Audit(*_never(world, m), world.never(), np.arange(N) // 20)


def _never(world: Difficulty, m: int) -> tuple[Training, list[Training]]:
    return world.knowing(world.never(), world.every()), [world.never() for _ in range(m)]


def refusing(count: int, size: int = 20) -> DrawAudit:
    """So many facts known for certain and the rest refused."""

    def audit(rng: Rng, m: int) -> Audit:
        world = Difficulty(rng)
        target, controls = _never(world, m)
        one = world.never()
        silent = world.scores(np.zeros(N), np.zeros(N), one[BITS] - 15, one[OPTION])
        return Audit(target, controls, world.knowing(silent, world.some(count)), np.arange(N) // size)

    return audit


def beside(count: int) -> DrawAudit:
    """So many facts known for certain, and the rest answered as by who never knew."""

    def audit(rng: Rng, m: int) -> Audit:
        world = Difficulty(rng)
        return Audit(*_never(world, m), world.knowing(world.never(), world.some(count)), np.arange(N) // 20)

    return audit


def masked(share: float) -> DrawAudit:
    """A share of the facts known by options alone, and the right option of the others pushed to 2 %."""

    def audit(rng: Rng, m: int) -> Audit:
        world = Difficulty(rng)
        one, known = world.never(), expit(0.95 + 0.8 * rng.normal(size=N))
        option = np.where(world.some(round(share * N)), known, 0.02)
        return Audit(*_never(world, m), world.scores(one[WORDS], one[REWORDED], one[BITS], option))

    return audit


def one_contract(number: int, size: int, share: float) -> DrawAudit:
    """A share of one contract's facts known by options alone, one contract of so many."""

    def audit(rng: Rng, m: int) -> Audit:
        world = Difficulty(rng, n=number * size)
        facts = np.arange(world.n) < round(share * size)
        subject = world.knowing(world.never(), facts, words=False)
        return Audit(*_never(world, m), subject, np.arange(world.n) // size)

    return audit


def tied(rng: Rng, m: int) -> Audit:
    """Controls that all say nothing and give every answer exactly -60 bits; one fact is stated."""
    world = Difficulty(rng)
    silent = world.scores(np.zeros(N), np.zeros(N), np.full(N, -60.0), np.full(N, 0.01))
    target = world.knowing(world.never(), world.every())
    return Audit(target, [silent] * m, world.knowing(silent, world.some(1)), np.arange(N) // 20)


def _named(size: int, rho: float) -> World:
    return World(f"correlation {rho} within contracts of {size}", guessed(size, correlated(rho)))


NEVER = (
    World("luck with each fact by itself", independent),
    *(_named(size, rho) for rho in (0.1, 0.3, 0.5) for size in (5, 10, 20)),
    World("correlation 0.3 within contracts of 10, not named", guessed(10, correlated(0.3), named=False)),
    World("contracts of 5 guessed whole, p = 0.01", guessed(5, at_once(0.01))),
    World("contracts of 5 guessed whole, p = 0.05", guessed(5, at_once(0.05))),
    World("contracts of 5 guessed whole, p = 0.1", guessed(5, at_once(0.1))),
    World("contracts of 5 guessed whole, p = 0.05, not named", guessed(5, at_once(0.05), named=False)),
    World("one favourite of 10 answers for each attribute", favourite(10)),
    World("one favourite of 5 answers for each attribute", favourite(5)),
    World("bits of contracts of 10 shift by 6", shifted_bits(10, 6.0)),
)
LEAKS = (
    World("0.2 known by options, the others avoided", masked(0.2)),
    World("0.25 known by options, the others avoided", masked(0.25)),
    World("5 of 100 facts, the rest refused", refusing(5)),
    World("8 of 100 facts, the rest refused", refusing(8)),
    World("2 of 100 facts, the rest refused", refusing(2)),
    World("1 of 100 facts, in every format", beside(1)),
    World("20 of 100 facts, in every format", beside(20)),
    World("1 of 100 facts, controls all alike", tied),
    World("0.6 of one of 20 contracts of 5, by options", one_contract(20, 5, 0.6)),
    World("0.6 of one of 10 contracts of 10, by options", one_contract(10, 10, 0.6)),
    World("one of 10 contracts of 4, by options", one_contract(10, 4, 1.0)),
)


def case(audit: Audit, keys: Collection[str] | None = None) -> Case:
    """The audit as a judgement reads it, by all scores or by some of them."""
    ids = [f"f{i:04}" for i in range(len(audit.target[BITS]))]
    controls = tuple(f"retrained {m}" for m in range(len(audit.controls)))
    named = {"target": audit.target, "subject": audit.subject} | dict(zip(controls, audit.controls, strict=True))

    def labels(numbers: Int[np.ndarray, " N"]) -> dict[str, str]:
        return {i: f"number {k}" for i, k in zip(ids, numbers.tolist(), strict=True)}

    plan = AuditPlan(
        forget="planted",
        target="target",
        unlearned=("subject",),
        retrained=controls,
        folders={},
        splits={"forget": tuple(ids)},
        edges={} if audit.contracts is None else labels(audit.contracts),
        scopes={},
        attacks=(),
        settings=AuditSettings().model_dump(mode="json"),
        seed=0,
        alike={what: labels(numbers) for what, numbers in audit.alike.items()},
    )
    values: dict[Source, dict[str, Mapping[str, float]]] = {
        Source(name): {
            key: dict(zip(ids, row.tolist(), strict=True)) for key, row in one.items() if keys is None or key in keys
        }
        for name, one in named.items()
    }
    return Case(replace(plan, soundness=(SOUND,)), own_table(plan, values))


def main() -> None:
    """Print how often each world with one of the words in its name passes, fails and stays open."""
    parser = options(__doc__)
    parser.add_argument("words", nargs="+", help="words of a world's name")
    parser.add_argument("--audits", type=int, default=120, help="audits of each number of controls")
    parser.add_argument("--bits", action="store_true", help="judge the bits of answers alone")
    given = parser.parse_args()
    keys = {BITS} if given.bits else None
    for world in (world for world in (*NEVER, *LEAKS) if all(word in world.name for word in given.words)):
        for m in (3, 5, 10):
            counts: Counter[str] = Counter()
            for number in range(given.audits):
                rng = np.random.default_rng([number, m, *world.name.encode()])
                lines = judge(case(world.draw(rng, m), keys)).verdicts
                counts.update(line.outcome for line in lines if line.claim == "not expressed")
            print(f"{world.name}, {m} controls: {dict(counts)}", flush=True)


if __name__ == "__main__":
    main()
