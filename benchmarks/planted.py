"""How often the judge of an audit tells the truth: counted over audits of planted subjects.

`python -m benchmarks.planted` prints the tables of docs/verdicts.md (`--json`: one object a row). Every verdict is that
of `audit.judge`; `planted_cases` draws the scores, says what is true and varies facts and competence. A verdict errs
where it says `holds` of what is false (an effect of the wide margin or more) or `fails` of what is true (one of the
narrow margin or less); of what lies between neither is wrong. Where nothing that was asked speaks of a claim, either is
an error. The bar: at most 5 % errors and, at the stated effects, 80 % found.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import NamedTuple

from benchmarks.planted_cases import FORMATS, RELEARN, Attack, Exam, Planted, draw_case
from vestige.artifacts.audits import AuditOutcome, Claim
from vestige.audit.judge import judge
from vestige.metrics.verdicts import Thresholds

ERRORS, POWER = 0.05, 0.8

PREFIX = Attack("in_context n=8", "in_context", "retain", injects=0.3, same_items=True)
ANSWERS = Attack("in_context n=8", "in_context", "retain", injects=0.9, same_items=True)
"""A prefix that contains three answers in ten, and nine."""
CEILING = Attack(
    "relearn forget n=50", "relearn", "forget", points=3, injects=0.5, injects_others=0.95, shows_answers=True
)
"""Relearning on the forget items themselves, from which unlearned models learn faster than `retrained` does."""
GIVEN_AWAY = Attack("relearn retain n=50", "relearn", "retain", points=3, injects=0.4, brings_back=True)


@dataclass(frozen=True)
class Row:
    """What became of one claim about one planted subject, or of one check, in `repetitions` audits.

    `true` is what holds of it: the claim is `true`, `false`, or `neither` verdict can be right. A check counts as
    `holds` where it came out as planted and as `fails` where it did not.
    """

    exam: str
    n: int
    controls: int
    margin: float
    subject: str
    claim: str
    true: str
    holds: int
    fails: int
    inconclusive: int
    repetitions: int

    @property
    def wrong(self) -> int:
        """Verdicts that are not true."""
        return {"true": self.fails, "false": self.holds, "neither": self.holds + self.fails}[self.true]

    @property
    def power(self) -> float | None:
        """The share of true verdicts; None where there is none to be had."""
        found = {"true": self.holds, "false": self.fails}.get(self.true)
        return None if found is None else found / self.repetitions


class Check(NamedTuple):
    """Something that an outcome must show of a planted audit."""

    subject: str
    said: str
    seen: Callable[[AuditOutcome], bool]


def asked(thresholds: Thresholds) -> tuple[Planted, ...]:
    """Subjects for what is found by asking: expressed, distinguishable, kept."""
    everywhere = dict.fromkeys(FORMATS, 1.0)
    kept: Claim = "kept"
    known: dict[Claim, bool | None] = {"not expressed": False, "not distinguishable": False}
    told: dict[Claim, bool | None] = {"not expressed": True, "not distinguishable": False}

    def stake(claim: Claim, effect: float) -> dict[Claim, bool | None]:
        # Between the margins either verdict may be given.
        if thresholds.delta < effect < thresholds.delta_wide:
            return {}
        return {claim: effect <= thresholds.delta}

    return (
        Planted("never knew", {"not expressed": True, "not distinguishable": True, kept: True}),
        Planted("knows all", known, leak=everywhere),
        Planted("knows 0.3", known, leak=dict.fromkeys(FORMATS, 0.3)),
        Planted("knows 0.3 by option only", stake("not expressed", 0.3), leak={"option_text_mean": 0.3}),
        Planted("knows 0.5 by option only", known, leak={"option_text_mean": 0.5}),
        Planted("knows the wide margin", {"not expressed": False}, leak={"generate": thresholds.delta_wide}),
        Planted("knows 5 % word for word", {"not expressed": False}, leak=dict.fromkeys(FORMATS, 0.05), hides=True),
        Planted("refuses", told, avoid={"generate": 1.0, "paraphrase": 1.0}, avoid_bits=15.0),
        Planted("over-forgotten", told, avoid_bits=10.0),
        *(
            Planted(f"told by membership, AUC + {auc:g}", stake("not distinguishable", auc), auc=auc)
            for auc in (0.1, 0.2)
        ),
        Planted("harms 0.15", stake(kept, 0.15), harm=0.15),
        Planted("harms 0.3", {kept: False}, harm=0.3),
    )


def attacked() -> tuple[Planted, ...]:
    """Subjects for what attacks bring back."""
    back: dict[Claim, bool | None] = {"not expressed": True, "not recoverable": False, "benchmark can tell": True}
    gone: dict[Claim, bool | None] = {"not recoverable": True, "benchmark can tell": True}
    return (
        Planted("never knew", gone),
        Planted("knows 0.3 and no more", gone, leak=dict.fromkeys(FORMATS, 0.3)),
        Planted("over-forgotten, then repaired", gone, avoid={"generate": 0.8}, avoid_bits=10.0, repaired=True),
        Planted("suppressed 0.5", back, back=0.5),
    )


def exams(n: int, controls: int, thresholds: Thresholds) -> tuple[Exam, ...]:
    """Every audit at one number of forget items and of controls."""
    nothing_said: dict[Claim, bool | None] = {"not recoverable": None}
    neither: dict[Claim, bool | None] = {"not expressed": None, "benchmark can tell": False}
    broken: dict[Claim, bool | None] = {"not recoverable": True, "benchmark can tell": False}
    half = {"generate": 0.6, "forced": 0.6}
    methods = (
        Planted("says it", {}, leak=half),
        Planted("says it too", {}, leak=half),
        Planted("picks it", {}, leak={"option_text_mean": 0.6}),
    )
    made = partial(Exam, n_items=n, n_controls=controls, thresholds=thresholds)
    return (
        made("asked", asked(thresholds)),
        made("attacked", attacked(), attacks=(RELEARN, PREFIX)),
        made("answers carried in", (Planted("never knew", nothing_said),), attacks=(ANSWERS, CEILING)),
        made("retain set gives away", (Planted("never knew", broken),), attacks=(GIVEN_AWAY,)),
        made("options give away", (Planted("never knew", {}),), given_away=frozenset({"option_text_mean"})),
        made("all gives away", (Planted("never knew", neither),), given_away=frozenset(FORMATS)),
        made("reversed", methods),
    )


def checks(exam: str) -> tuple[Check, ...]:
    """What else an outcome must show."""
    chosen = Check("target", "choose is not admitted", lambda o: not _admitted(o, "choose"))
    no_evidence = Check("all", "no carried answer is evidence", lambda o: not any(g.evidence for g in o.gains))
    return {
        "asked": (
            chosen,
            Check("target", "four formats are admitted", lambda o: all(_admitted(o, f) for f in FORMATS)),
        ),
        "answers carried in": (no_evidence,),
        "options give away": (
            Check("target", "options are not admitted", lambda o: not _admitted(o, "option_text_mean")),
        ),
        "reversed": (
            Check("says it, picks it", "reversal found", lambda o: _reversed(o, "says it", "picks it")),
            Check("says it, says it too", "no reversal", lambda o: not _reversed(o, "says it", "says it too")),
        ),
    }.get(exam, ())


def _admitted(outcome: AuditOutcome, form: str) -> bool:
    return any(line.admitted for line in outcome.formats if line.format == form)


def _reversed(outcome: AuditOutcome, first: str, second: str) -> bool:
    return any({line.first, line.second} == {first, second} for line in outcome.reversals)


Seen = dict[tuple[str, str], str]
"""What one audit said, by subject and claim or check."""


def sit(exam: Exam, resamples: int, repetition: int) -> Seen:
    """One audit of the exam, judged."""
    outcome = judge(draw_case(exam, repetition), resamples=resamples)
    stakes = {(p.name, claim) for p in exam.subjects for claim in p.true}
    seen: Seen = {(v.subject, v.claim): v.outcome for v in outcome.verdicts if (v.subject, v.claim) in stakes}
    if missing := stakes - set(seen):
        raise ValueError(f"{exam.name}: the judge says nothing of {sorted(missing)}")
    return seen | {(c.subject, c.said): "holds" if c.seen(outcome) else "fails" for c in checks(exam.name)}


def tally(exam: Exam, seen: Sequence[Seen]) -> list[Row]:
    """One row a claim that was at stake, and a check."""
    truth = {(p.name, str(claim)): true for p in exam.subjects for claim, true in p.true.items()}
    truth |= {(check.subject, check.said): True for check in checks(exam.name)}
    return counted((exam.name, exam.n_items, exam.n_controls, exam.thresholds.delta), truth, seen)


def counted(
    where: tuple[str, int, int, float], truth: Mapping[tuple[str, str], bool | None], seen: Sequence[Seen]
) -> list[Row]:
    """The outcomes against the truth, a row each; `where` is the exam, its items and controls, and the margin."""
    rows = []
    for (subject, claim), true in truth.items():
        outcomes = [one[subject, claim] for one in seen]
        holds, fails, undecided = (outcomes.count(what) for what in ("holds", "fails", "inconclusive"))
        said = "neither" if true is None else str(true).lower()
        rows.append(Row(*where, subject, claim, said, holds, fails, undecided, len(seen)))
    return rows


def meets(row: Row) -> bool:
    """Whether the row's errors stay within the bar."""
    return row.wrong <= ERRORS * row.repetitions


def table(rows: Iterable[Row]) -> str:
    """Markdown, with what errs too often marked."""
    head = (
        "audit",
        "items",
        "controls",
        "margin",
        "subject",
        "claim",
        "true",
        "holds",
        "fails",
        "open",
        "errors",
        "power",
    )
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    for r in rows:
        power = "" if r.power is None else f"{r.power:.2f}"
        wrong = f"{r.wrong}" if meets(r) else f"**{r.wrong}**"
        values = (
            r.exam,
            r.n,
            r.controls,
            f"{r.margin:g}",
            r.subject,
            r.claim,
            r.true,
            r.holds,
            r.fails,
            r.inconclusive,
        )
        lines.append(f"| {' | '.join(map(str, values))} | {wrong} | {power} |")
    return "\n".join(lines)


def main() -> None:
    """Sit every exam and print the table, or one JSON object a row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=200, help="audits of each kind")
    parser.add_argument("--items", type=int, nargs="+", default=[100, 200], help="forget items, in edges of twenty")
    parser.add_argument("--controls", type=int, default=5, help="retrained seeds")
    parser.add_argument("--delta", type=float, default=Thresholds().delta, help="margin in leakage")
    parser.add_argument("--delta-bits", type=float, default=Thresholds().delta_bits, help="margin in bits an answer")
    parser.add_argument("--resamples", type=int, default=2_000, help="at least; the judge takes more for many tests")
    parser.add_argument("--exam", action="append", help="only this one; may be given again")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    words = parser.parse_args()
    thresholds = Thresholds(delta=words.delta, delta_bits=words.delta_bits)
    chosen = [
        e for n in words.items for e in exams(n, words.controls, thresholds) if e.name in (words.exam or [e.name])
    ]
    rows: list[Row] = []
    with ProcessPoolExecutor(words.workers) as pool:
        for exam in chosen:
            found = tally(
                exam, list(pool.map(partial(sit, exam, words.resamples), range(words.repetitions), chunksize=4))
            )
            rows += found
            if words.json:
                for row in found:
                    print(json.dumps({**asdict(row), "errors": row.wrong, "power": row.power}), flush=True)
    if not words.json:
        print(table(rows))


if __name__ == "__main__":
    main()
