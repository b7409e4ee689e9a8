"""The demo from several seeds: does the retrained model pass each time, and do verdicts contradict each other?

`python -m benchmarks.demo_seeds --seeds 0 1 2 --runs runs/seeds` runs what is not there yet, one demo after another
with two processes each, and prints a Markdown table of what all of them decided; `--rejudge` judges what is there anew.
`--stored` judges "not stored" of every model, and of each retrained one against the others, by which it must hold.
A seed is that of the data, of every training and of every draw, so that no two demos share more than the graph.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import options
from vestige.api.selection import DemoSettings
from vestige.artifacts.audits import CLAIMS, AuditOutcome, read_outcome, read_plan
from vestige.artifacts.layout import RunFolder
from vestige.auditing.claims import decide
from vestige.auditing.claims.not_stored import of_blocks
from vestige.auditing.formats import read_stored
from vestige.auditing.gather import read_table_of
from vestige.auditing.ground import Case
from vestige.auditing.groups import parts_of
from vestige.auditing.judge import lay
from vestige.auditing.run import rejudge
from vestige.experiments.demo import run_demo
from vestige.metrics.intervals import RESAMPLES
from vestige.report import build_report

SIGNS = {"holds": "H", "fails": "F", "inconclusive": "."}


def main() -> None:
    """Run the demos and print what became of each claim, a letter a seed."""
    parser = options(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)))
    parser.add_argument("--runs", type=Path, default=Path("runs/seeds"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rejudge", action="store_true")
    parser.add_argument("--stored", action="store_true")
    words = parser.parse_args()
    found: dict[int, AuditOutcome] = {}
    for seed in words.seeds:
        run = RunFolder(words.runs / str(seed))
        if not run.audits():
            begun = time.monotonic()
            end = run_demo(run, DemoSettings(seed=seed), workers=words.workers)
            if end.failed:
                raise SystemExit("\n".join(f"seed {seed}: {name}: {error}" for name, error in end.failed.items()))
            build_report(run.path)
            print(f"seed {seed}: {time.monotonic() - begun:.0f} s", flush=True)
        elif words.rejudge:
            rejudge(run.path)
        (found[seed],) = (read_outcome(place) for place in run.audits())
    print("\n".join(table(list(found.values()))))
    if words.stored:
        counts = Counter(line for seed in words.seeds for line in stored(RunFolder(words.runs / str(seed))))
        print("\n".join(f"{model}: {outcome} {n}" for (model, outcome), n in sorted(counts.items())))


def stored(run: RunFolder) -> Iterator[tuple[str, str]]:
    """Each model with its outcome of "not stored"; each retrained one, "left out", with five others as its controls."""
    (folder,) = run.audits()
    plan = read_plan(folder)
    case = Case(plan, read_table_of(run, plan))
    never = [*plan.retrained, *plan.references]
    audited = [(name, plan.retrained) for name in plan.audited if name not in plan.references]
    left_out = [(name, tuple(other for other in never if other != name)[:5]) for name in never]
    for subject, controls in (*audited, *left_out):
        asked = replace(case, plan=replace(plan, unlearned=(subject,), retrained=controls, suppressed=""))
        ground = lay(asked, RESAMPLES)
        formats = read_stored(ground)
        evidence = of_blocks(ground, formats, parts_of(ground, formats), subject)
        if subject in never:
            name = "left out"
        elif subject == plan.suppressed:
            name = "suppressed"
        else:
            name = subject
        yield name, decide("not stored", subject, evidence, ground, formats).outcome


def table(outcomes: Sequence[AuditOutcome]) -> list[str]:
    """A row a model with a letter a seed: H holds, F fails, a full stop is open; then how many were decided."""
    rows = [f"| model | {' | '.join(CLAIMS)} |", "|" + " --- |" * (1 + len(CLAIMS))]
    of = [{(v.subject, v.claim): v.outcome for v in (*o.verdicts, *o.control)} for o in outcomes]
    models = list(dict.fromkeys(subject for own in of for subject, _ in own))
    said = {
        (model, claim): "".join(SIGNS[own[model, claim]] if (model, claim) in own else "-" for own in of)
        for model in models
        for claim in CLAIMS
    }
    rows += [f"| {model} | {' | '.join(said[model, claim] for claim in CLAIMS)} |" for model in models]
    judged = [[v.outcome != "inconclusive" for v in o.verdicts] for o in outcomes]
    clashes = [f"{m}, {c}" for (m, c), letters in said.items() if "H" in letters and "F" in letters]
    rows += ["", f"Decided, of the verdicts of each seed: {', '.join(f'{sum(one)} of {len(one)}' for one in judged)}."]
    return [*rows, f"Both held and failed, by seed: {'; '.join(clashes) or 'none'}."]


if __name__ == "__main__":
    main()
