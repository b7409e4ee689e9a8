"""How often the judge of an audit tells the truth: counted over audits of planted subjects, without models.

`python -m benchmarks.planted --file COUNTS` makes the tables of docs/findings/planted.md. Every verdict is that of
`audit.judge`; `planted_cases` draws the scores and says what is true, `planted_exams` has the audits. A verdict errs
where it says `holds` of what is false (an effect of the wide margin or more) or `fails` of what is true (one of the
narrow margin or less); of what lies between neither is wrong. Where nothing that was asked speaks of a claim, either is
an error. The bars: at most 5 % errors, and the stated powers.

A full count takes hours of one processor. So counts are appended to a file, a line a batch, and add up: the same
command goes on where it was, `--minutes` stops it, `--table` prints what there is. `--audits 20 --only NAME` is quick.

`--cost 4000` judges one audit of so many facts, ten controls, ten methods and ten attacks, and prints what that takes.
"""

import json
import resource
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import options, planted_exams
from benchmarks.planted_cases import FORMATS, HITS, QUANTIZE, RELEARN, Attack, Exam, Planted, draw_case
from benchmarks.planted_exams import ALL_FIVE, checks, exams, powers
from vestige.artifacts.audits import REQUIRED
from vestige.artifacts.scores import Source
from vestige.auditing.forecast import SINGLES, CountedAttack, Noises, joint, wanted_by_claim
from vestige.auditing.gather import FORMATS as AUDITED
from vestige.auditing.ground import Case
from vestige.auditing.judge import judge
from vestige.metrics.intervals import PRIORS, Kind, Noise, likely, wilson
from vestige.metrics.planning import Design, Requirement, failed, joint_hold_rate, unsuspected
from vestige.metrics.verdicts import Thresholds

ERRORS, BESIDE = 0.05, 0.05
RESAMPLES = 1_000
BATCH = 20
"""Audits between two looks at the clock."""


@dataclass(frozen=True)
class Row:
    """What became of one claim about one subject, or of one check, in `audits` audits from number `first` on.

    `true` is what holds of it: the claim is `true`, `false`, or `neither` verdict can be right. A check counts as
    `holds` where it came out as planted and as `fails` where it did not.
    """

    exam: str
    subject: str
    claim: str
    true: str
    holds: int
    fails: int
    inconclusive: int
    audits: int
    first: int = 0

    @property
    def wrong(self) -> int:
        """Verdicts that are not true."""
        return {"true": self.fails, "false": self.holds, "neither": self.holds + self.fails}[self.true]

    @property
    def right(self) -> int | None:
        """True verdicts; None where there is none to be had."""
        return {"true": self.holds, "false": self.fails}.get(self.true)


Seen = dict[tuple[str, str], str]
"""What one audit said, by subject and claim or check."""


def sit(exam: Exam, repetition: int) -> Seen:
    """One audit of the exam, judged."""
    outcome = judge(draw_case(exam, repetition), resamples=RESAMPLES)
    verdicts = {(v.subject, str(v.claim)): str(v.outcome) for v in outcome.verdicts}
    for planted in exam.subjects:
        own = {verdicts[planted.name, claim] for claim in REQUIRED}
        if "fails" in own:
            whole = "fails"
        elif own == {"holds"}:
            whole = "holds"
        else:
            whole = "inconclusive"
        verdicts[planted.name, ALL_FIVE] = whole
    seen = {key: verdicts[key] for key in truth(exam) if key in verdicts}
    return seen | {(c.subject, c.said): "holds" if c.seen(outcome) else "fails" for c in checks(exam.name)}


def truth(exam: Exam) -> dict[tuple[str, str], bool | None]:
    """What is true of each subject, and every check."""
    true = {(p.name, str(claim)): true for p in exam.subjects for claim, true in p.true.items()}
    true |= {(p.name, ALL_FIVE): True for p in exam.subjects if dict(p.true) == planted_exams.ALL}
    return true | {(check.subject, check.said): True for check in checks(exam.name)}


def counted(name: str, true: Mapping[tuple[str, str], bool | None], seen: Sequence[Seen], first: int = 0) -> list[Row]:
    """The outcomes against the truth, a row each."""
    rows = []
    for (subject, claim), is_true in true.items():
        outcomes = [one[subject, claim] for one in seen]
        holds, fails, undecided = (outcomes.count(what) for what in ("holds", "fails", "inconclusive"))
        said = "neither" if is_true is None else str(is_true).lower()
        rows.append(Row(name, subject, claim, said, holds, fails, undecided, len(seen), first))
    return rows


def added(rows: Iterable[Row]) -> list[Row]:
    """One row for each exam, subject and claim; batches of the same audits are refused."""
    sums: dict[tuple[str, str, str], Row] = {}
    for row in sorted(rows, key=lambda r: r.first):
        key = row.exam, row.subject, row.claim
        before = sums.get(key)
        if before is None:
            sums[key] = row
            continue
        if row.first != before.first + before.audits:
            raise ValueError(f"{row.exam}: audits from {row.first} on, where {before.first + before.audits} is next")
        counts = {
            what: getattr(row, what) + getattr(before, what) for what in ("holds", "fails", "inconclusive", "audits")
        }
        sums[key] = replace(before, **counts)
    return list(sums.values())


def parts(only: Sequence[str]) -> list[tuple[str, Exam]]:
    """Every audit with its part, or those whose part or name contains one of `only`."""
    found = [("power", bar.exam) for bar in powers()]
    found += [("exams", exam) for exam in exams(100, 5, Thresholds())]
    return [(part, e) for part, e in found if not only or any(word in f"{part}: {e.name}" for word in only)]


def count(chosen: Sequence[tuple[str, Exam]], audits: int, file: Path | None, until: float) -> Iterator[Row]:
    """Sit what is missing of every exam; a batch's rows are written to the file before they are yielded."""
    there = {row.exam: row.first + row.audits for row in added(read(file))} if file is not None else {}
    for _, exam in chosen:
        done = there.get(exam.name, 0)
        while done < audits and time.monotonic() < until:
            batch = range(done, min(done + BATCH, audits))
            rows = counted(exam.name, truth(exam), [sit(exam, n) for n in batch], batch.start)
            append(file, rows)
            yield from rows
            done = batch.stop


def append(file: Path | None, rows: Sequence[Row]) -> None:
    """Add a batch to what was counted before."""
    if file is not None:
        with file.open("a") as out:
            out.writelines(json.dumps(asdict(row)) + "\n" for row in rows)


def read(file: Path | None) -> list[Row]:
    """The batches that were counted before."""
    if file is None or not file.exists():
        return []
    return [Row(**json.loads(line)) for line in file.read_text().splitlines()]


def share(hits: int, n: int) -> str:
    """As in `0.03 [0.02, 0.05]`, by Wilson's interval."""
    low, high, _ = wilson(hits, n)
    return f"{hits / n:.3f} [{low:.3f}, {high:.3f}]"


def _marked(row: Row) -> str:
    """The share of errors, and in bold what is beyond the bar."""
    said = share(row.wrong, row.audits)
    if row.wrong <= ERRORS * row.audits:
        return said
    return f"**{said}**"


def noise_of(case: Case, key: str, kind: Kind) -> Noise:
    """How the controls of a case vary in one score."""
    facts, never = case.plan.splits["forget"], [Source(one) for one in case.plan.retrained]
    rows, target = case.scores.rows(never, key, facts), case.scores.of(Source("target"), key, facts)
    ruler = 1.0 if kind == "bits" else float((target - rows.mean(axis=0)).mean())
    prior = PRIORS[kind].scaled(target, rows) if kind == "graded" else PRIORS[kind]
    return Noise(*likely(rows, rows[0] - rows[1], 0.0), ruler, None if kind == "bits" else 1.0, prior)


def foreseen(exam: Exam) -> dict[str, float]:
    """How often the plan of `vestige audit --plan` expects true verdicts, were its assumptions those of the exam.

    sigma^2, tau^2 and the gap of each format are read from thirty controls on two hundred facts, in eight drawings;
    formats vary independently here.
    """
    keys = {"generate": "generate/rouge1_recall", "forced": "forced/probability"} | HITS
    counted = {form.hits for form in AUDITED}
    many = replace(exam, n_items=200, n_controls=30, wordings=1, attacks=(), subjects=())
    design, margins = Design(exam.n_items, exam.n_controls, exam.wordings), exam.thresholds
    tries = [CountedAttack(1.0, FORMATS, True, attack is RELEARN) for attack in exam.attacks]
    seen: dict[str, list[float]] = {}
    for repetition in range(8):
        case = draw_case(many, repetition)
        shares = {form: noise_of(case, keys[form], "hits" if keys[form] in counted else "graded") for form in FORMATS}
        noises = Noises(shares, noise_of(case, "forced/answer_bits", "bits"))
        wanted = wanted_by_claim(noises, tries, margins)
        for claim, own in (*wanted.items(), (ALL_FIVE, joint(wanted))):
            rate = joint_hold_rate(own, design, together=0.0)
            if claim in (SINGLES, ALL_FIVE):
                rate *= unsuspected(exam.n_controls)
            seen.setdefault(str(claim), []).append(rate)
        for form, share in ((f, s) for p in exam.subjects for f, s in p.leak.items() if not p.hides):
            power = failed(Requirement(shares[form], margins.delta), design, share, tests=len(FORMATS) + 1)
            seen.setdefault(form, []).append(power)
    return {what: float(np.mean(found)) for what, found in seen.items()}


def power_table(rows: Sequence[Row]) -> str:
    """Markdown: what whole audits decide, beside the bar and what a plan expects."""
    there = {(row.exam, row.claim): row for row in rows}
    lines = ["| audit | claim | true verdict | the other | bar | by plan |", "| --- " * 6 + "|"]
    for bar in powers():
        expected = foreseen(bar.exam) if bar.planned and any(row.exam == bar.exam.name for row in rows) else {}
        for claim in (*REQUIRED, ALL_FIVE) if bar.claim == ALL_FIVE else (bar.claim,):
            row = there.get((bar.exam.name, claim))
            if row is None:
                continue
            if row.right is None:
                met = "met" if not row.holds else "**missed**"
                lines.append(
                    f"| {bar.exam.name} | {claim} | it never holds | {row.holds} of {row.audits} | 0, {met} | |"
                )
                continue
            least = bar.share if claim == bar.claim else None
            other = there.get((bar.beside, claim))
            if other is not None and other.right is not None:
                least = other.right / other.audits - BESIDE
            said = "" if least is None else f"{least:.2f}, {'met' if row.right >= least * row.audits else '**missed**'}"
            right = f"{'holds' if row.true == 'true' else 'fails'} {share(row.right, row.audits)}"
            plan = expected.get(claim if row.true == "true" else next(iter(bar.exam.subjects[0].leak), ""))
            by_plan = "" if plan is None else f"{plan:.2f}"
            lines.append(f"| {bar.exam.name} | {claim} | {right} | {row.wrong} of {row.audits} | {said} | {by_plan} |")
    return "\n".join(lines)


def exam_table(rows: Sequence[Row]) -> str:
    """Markdown, with what errs too often in bold."""
    lines = ["| audit | subject | claim | true | holds / fails / open | errors |", "| --- " * 6 + "|"]
    for r in rows:
        counts = f"{r.holds} / {r.fails} / {r.inconclusive}"
        lines.append(f"| {r.exam} | {r.subject} | {r.claim} | {r.true} | {counts} | {_marked(r)} |")
    return "\n".join(lines)


class Cost(NamedTuple):
    """What one audit took to be judged: processor seconds, and the most memory (MB) before and after."""

    facts: int
    controls: int
    methods: int
    attacks: int
    cpu_seconds: float
    drawn_mb: float
    most_mb: float


def cost(facts: int, controls: int = 10, methods: int = 10, attacks: int = 10) -> Cost:
    """Draw and judge one audit of this size."""
    case, drawn, began = draw_case(large(facts, controls, methods, attacks), 1), _most_mb(), time.process_time()
    judge(case)
    return Cost(facts, controls, methods, attacks, time.process_time() - began, drawn, _most_mb())


def large(facts: int, controls: int, methods: int, attacks: int) -> Exam:
    """An audit of this size: methods leak 0, 10, 20 or 30 % in every format, and the first attack brings back."""
    subjects = [
        Planted(f"method {n}", {}, leak=dict.fromkeys(FORMATS, n % 4 / 10) if n % 4 else {}) for n in range(methods)
    ]
    materials = ("retain", "related", "unrelated", "forget_part")
    tried = [
        replace(QUANTIZE, name=f"quantize {n} bits")
        if n % 4 == 3
        else Attack(f"relearn {materials[n % 4]} n={n}", "relearn", materials[n % 4], points=3, brings_back=n == 0)
        for n in range(attacks)
    ]
    return Exam("large", tuple(subjects), Thresholds(), tuple(tried), n_items=facts, n_controls=controls)


def _most_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Sit the exams that are missing, and print the tables of all that there are."""
    parser = options(__doc__)
    parser.add_argument("--audits", type=int, default=400, help="audits of each kind")
    parser.add_argument("--only", action="append", default=[], help="part or name that contains this; may be repeated")
    parser.add_argument("--file", type=Path, help="counts are appended here and add up")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--table", action="store_true", help="count nothing, print the tables of the file")
    parser.add_argument("--cost", type=int, metavar="FACTS", help="judge one large audit and print what that takes")
    words = parser.parse_args()
    if words.cost is not None:
        print(json.dumps(cost(words.cost)._asdict()))
        return
    chosen, until = parts(words.only), time.monotonic() + 60 * words.minutes
    new = [] if words.table else list(count(chosen, words.audits, words.file, until))
    rows = added(read(words.file)) if words.file is not None else added(new)
    for part, table in (("power", power_table), ("exams", exam_table)):
        names = {exam.name for own, exam in chosen if own == part}
        if mine := [row for row in rows if row.exam in names]:
            print(f"{table(mine)}\n")


if __name__ == "__main__":
    main()
