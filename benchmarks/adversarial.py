"""Adversarial tables: what somebody could leave out of, copy into or hide in scores so that a leak passes.

`python -m benchmarks.adversarial --audits N` prints the table of docs/reliability.md. Every model that is judged knows
a fifth of the facts or more, so that no verdict "pass" on "not expressed" is right. Axes: N facts.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks import options
from vestige.artifacts.verdicts import WORDS
from vestige.auditing.ground import Case
from vestige.auditing.judge import judge
from vestige.auditing.table import columns_of, plan_of, read_scores, score_table
from vestige.core.errors import InputError
from vestige.core.seeds import generator
from vestige.core.text import Fields

N = 100
CONTROLS = 5
BITS = "bits"
FORMS = ("match", "rougeL", "probability", "options", BITS)
WHOSE = ("sub", "full", "never 2")
Values = np.ndarray
Scores = dict[str, Values]
Rows = list[Fields]
Draw = Callable[[np.random.Generator], Rows]
"""Draws the table of one audit."""


class World:
    """Facts of which a fifth can be guessed, asked in own words (hits), by overlap, by probability and by options."""

    def __init__(self, rng: np.random.Generator) -> None:
        """Draw the facts."""
        self.rng = rng
        self.guessed = np.where(rng.random(N) < 0.2, rng.beta(2, 4, N), 0.0)
        self.level = rng.normal(-2.5, 1.8, N)
        self.bits = rng.gamma(2, 11, N)

    def never(self) -> Scores:
        """A training that never knew."""
        rng = self.rng
        hit = rng.random(N) < self.guessed
        option = 1 / (1 + np.exp(-(self.level + 0.9 * rng.normal(size=N))))
        return {
            "match": hit * 1.0,
            "rougeL": np.clip(0.25 + 0.08 * rng.normal(size=N) + 0.5 * hit, 0, 1),
            "probability": np.clip(0.15 + 0.06 * rng.normal(size=N) + 0.4 * hit, 0, 1),
            "options": option,
            "bits": -np.maximum(0.2, self.bits + 5.2 * rng.normal(size=N)),
        }

    def knowing(self, scores: Scores, facts: Values) -> Scores:
        """The same model, did it know these facts too."""
        known = {"match": np.ones(N), "rougeL": np.full(N, 0.95), "probability": np.full(N, 0.9)}
        known["options"] = np.clip(0.75 + 0.1 * self.rng.normal(size=N), 0, 1)
        known["bits"] = -0.05 - self.rng.exponential(0.4, N)
        return {name: np.where(facts, np.maximum(values, known[name]), values) for name, values in scores.items()}

    def some(self, share: float) -> Values:
        """So many facts, drawn."""
        facts = np.zeros(N, dtype=bool)
        facts[self.rng.permutation(N)[: round(share * N)]] = True
        return facts


@dataclass
class Table:
    """The models of one table by name, with their roles, and the questions without a score."""

    world: World
    models: dict[str, tuple[str, Scores]]
    missing: dict[str, Values]
    formats: tuple[str, ...] = FORMS
    names: dict[str, Callable[[int], str]] | None = None

    def rows(self) -> Rows:
        """The rows of the table."""
        rows = []
        for name, (role, scores) in self.models.items():
            named = (self.names or {}).get(name, "q{}".format)
            lacks = self.missing.get(name, np.zeros(N, dtype=bool))
            for form in self.formats:
                for n in np.flatnonzero(~lacks).tolist():
                    chance = 0.25 if form == "options" else None
                    score = float(scores[form][n])
                    rows.append(_row(name, role, named(n), score, form, chance))
        return rows


def _row(model: str, role: str, item: str, score: float, form: str, chance: float | None) -> Fields:
    row: Fields = {"model": model, "role": role, "item": item, "score": score, "format": form, "chance": chance}
    return {**row, "unit": "bits"} if form == BITS else row


def planted(
    rng: np.random.Generator, known: float, *, contaminated: float = 0.0, apart: bool = False
) -> tuple[Table, Values]:
    """A target, five controls and one model that knows a share of the facts, and which these are.

    Controls know some of these facts, or each as many others (`apart`).
    """
    world = World(rng)
    facts = world.some(known)
    shared = facts & (np.cumsum(facts) <= round(contaminated * N))
    models = {"full": ("target", world.knowing(world.never(), np.ones(N, dtype=bool)))}
    for n in range(CONTROLS):
        own = world.some(contaminated) if apart else shared
        models[f"never {n}"] = ("retrained", world.knowing(world.never(), own))
    models["sub"] = ("unlearned", world.knowing(world.never(), facts))
    return Table(world, models, {}), facts


def missing(known: float, whose: str, *, at_random: bool = False) -> Draw:
    """The known questions (or as many at random) have no score of one model."""

    def make(rng: np.random.Generator) -> Rows:
        table, facts = planted(rng, known)
        table.missing[whose] = table.world.some(known) if at_random else facts
        return table.rows()

    return make


def further_subject(known: float) -> Draw:
    """Another unlearned model was asked none of what the first one knows."""

    def make(rng: np.random.Generator) -> Rows:
        table, facts = planted(rng, known)
        table.models["other"] = ("unlearned", table.world.never())
        table.missing["other"] = facts
        return table.rows()

    return make


def contaminated(share: float, *, forms: tuple[str, ...] = (), apart: bool = False) -> Draw:
    """Controls and model know the same facts, or each its own."""

    def make(rng: np.random.Generator) -> Rows:
        table, _ = planted(rng, max(share, 0.2), contaminated=share, apart=apart)
        table.formats = forms or table.formats
        return table.rows()

    return make


def siblings(known: float, noise: float) -> Draw:
    """Model and controls are copies of one hidden model that knows, each with small noise."""

    def make(rng: np.random.Generator) -> Rows:
        table, facts = planted(rng, known)
        hidden = table.world.knowing(table.world.never(), facts)

        def copy() -> Scores:
            copied = {
                k: v if k == "match" else np.clip(v + noise * rng.normal(size=N), 0, 1) for k, v in hidden.items()
            }
            return {**copied, BITS: np.minimum(hidden[BITS] + 20 * noise * rng.normal(size=N), -0.01)}

        for name, (role, _) in table.models.items():
            if role != "target":
                table.models[name] = (role, copy())
        return table.rows()

    return make


def masking(known: float, forms: tuple[str, ...]) -> Draw:
    """The model is wrong on purpose on all that it does not know."""

    def make(rng: np.random.Generator) -> Rows:
        table, facts = planted(rng, known)
        role, scores = table.models["sub"]
        wrong = {name: np.where(facts, values, -60.0 * (name == BITS)) for name, values in scores.items()}
        table.models["sub"] = (role, wrong)
        table.formats = forms
        return table.rows()

    return make


def renamed(known: float, whose: str) -> Draw:
    """One model's known questions stand under other names."""

    def make(rng: np.random.Generator) -> Rows:
        table, facts = planted(rng, known)
        table.names = {whose: lambda n: f"q{n} " if facts[n] else f"q{n}"}
        return table.rows()

    return make


def diluted(known: float, times: int) -> Draw:
    """What the model does not know stands in the table several times, as further questions."""

    def make(rng: np.random.Generator) -> Rows:
        table, facts = planted(rng, known)
        rows = table.rows()
        copies = [row for row in rows if not facts[int(row["item"][1:])]]
        return rows + [{**row, "item": f"{row['item']} {k}"} for k in range(times) for row in copies]

    return make


def copied_control(known: float) -> Draw:
    """All controls are the model itself under other names, by hits alone."""

    def make(rng: np.random.Generator) -> Rows:
        table, _ = planted(rng, known)
        table.formats = ("match",)
        for n in range(CONTROLS):
            table.models[f"never {n}"] = ("retrained", table.models["sub"][1])
        return table.rows()

    return make


def without_controls(known: float) -> Draw:
    """Chance stands for the controls, and the model is wrong on purpose on the rest."""

    def make(rng: np.random.Generator) -> Rows:
        _, facts = planted(rng, known)
        picks = {"full": np.ones(N), "sub": facts * 1.0}
        return [
            _row(name, role, f"q{n}", float(picks[name][n]), "picks", 0.25)
            for name, role in (("full", "target"), ("sub", "unlearned"))
            for n in range(N)
        ]

    return make


def cases() -> Iterator[tuple[str, Draw]]:
    """Every case by name."""
    for known in (0.2, 0.4, 0.7):
        for whose in WHOSE:
            yield f"{known:.0%} known, without a score of {whose}", missing(known, whose)
        yield f"{known:.0%} known, a further model was not asked them", further_subject(known)
    for whose in WHOSE:
        yield f"30% known, 30% at random without a score of {whose}", missing(0.3, whose, at_random=True)
        yield f"30% known, renamed in the rows of {whose}", renamed(0.3, whose)
    for apart, whose in ((False, "by all controls too"), (True, "of each control's own")):
        for share in (0.05, 0.1, 0.2, 0.3, 0.4, 0.6):
            yield f"{max(share, 0.2):.0%} known, {share:.0%} {whose}", contaminated(share, apart=apart)
        for form in FORMS[:4]:
            yield f"30% known, 30% {whose}, {form} alone", contaminated(0.3, forms=(form,), apart=apart)
    for noise in (0.001, 0.01, 0.02, 0.05, 0.1):
        yield f"30% known, all are siblings (noise {noise:g})", siblings(0.3, noise)
    for forms in [(form,) for form in FORMS[:3]] + [FORMS]:
        yield f"20% known, wrong on the rest on purpose, {', '.join(forms)}", masking(0.2, forms)
    for times in (2, 6):
        yield f"20% known, the rest asked {times + 1} times", diluted(0.2, times)
    for known in (0.3, 0.5):
        yield f"{known:.0%} known, controls are the model itself (hits)", copied_control(known)
    yield "30% known, options, chance for controls, the rest wrong on purpose", without_controls(0.3)


def verdict(rows: Rows) -> str:
    """What is said of "not expressed"; `refused` where the table is."""
    try:
        table = score_table(columns_of(read_scores(rows)))
        outcome = judge(Case(plan_of(table, forget="the forget set"), table))
    except InputError:
        return "refused"
    (line,) = [v for v in outcome.verdicts if (v.subject, v.claim) == ("sub", "not expressed")]
    return WORDS[line.outcome]


def main() -> None:
    """Print the table."""
    parser = options(__doc__)
    parser.add_argument("--audits", type=int, default=5, help="tables of each kind")
    audits = parser.parse_args().audits
    print("| table | fail | inconclusive | refused | pass |\n| --- | --- | --- | --- | --- |")
    for number, (name, make) in enumerate(cases()):
        counts: dict[str, Counter[str]] = {}
        for audit in range(audits):
            # The table in benchmarks/results/adversarial.md rests on this order.
            rows = make(generator(number, audit, "adversarial"))  # type: ignore[arg-type]
            for kind, in_bits in ((name, False), (f"bits alone, {name}", True)):
                of_kind = [row for row in rows if (row["format"] == BITS) == in_bits]
                if of_kind:
                    counts.setdefault(kind, Counter())[verdict(of_kind)] += 1
        for kind, counted in counts.items():
            columns = [str(counted[word]) for word in ("fail", "inconclusive", "refused", "pass")]
            print(f"| {kind} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main()
