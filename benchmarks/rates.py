"""A grid that learning rates are chosen from: methods x rates x forget sets, on a finished demo's target.

`python -m benchmarks.rates --run runs/demo` prints a Markdown table (or `--json`, one object a cell); cells lie in
`<run>/rates` and are kept, so the same command goes on where it was stopped. A rate is chosen for a method by one
rule: the forget set's ROUGE-1 recall is below 0.5 for every forget set, and among those rates the worst retain score
is the best. Rates are chosen and shown on the same items, so the table says what the demo shows, and no more.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from vestige.artifacts.layout import RunFolder, SubjectFolder
from vestige.artifacts.records import Result, read_summary
from vestige.core.settings import read_toml
from vestige.experiments.demo import Demo, DemoSettings
from vestige.steps.runner import Report, Task, run_tasks

RATES = (1e-5, 2e-5, 3e-5, 5e-5, 1e-4, 2e-4, 3e-4)
METRIC = "rouge1_recall"
COLUMNS = (("forget", "all"), ("forget", "free"), ("retain", "all"), ("independent", "all"), ("factual", "all"))


def cell_task(run: str, settings: dict[str, Any], method: str, forget: str, rate: float, report: Report) -> None:
    """Unlearn at one rate and evaluate."""
    from vestige.steps.unlearn import unlearn

    demo = Demo(RunFolder(Path(run)), DemoSettings.build(settings))
    request = demo.unlearning(method, forget, rate=rate)
    folder = _cell(demo.run, method, forget, rate)
    unlearn(folder, request, lambda p: report(0.5 * p.step / p.n_steps))
    demo.evaluate_subject(folder, [forget], report)


def _cell(demo: RunFolder, method: str, forget: str, rate: float) -> SubjectFolder:
    return RunFolder(demo.path / "rates").cell(f"{method} {forget}", f"{rate:g}")


def measured(demo: RunFolder, asked: DemoSettings, methods: list[str]) -> list[dict[str, Any]]:
    """One row a cell: method, forget set, rate and the estimates of COLUMNS."""
    rows = []
    for method in methods:
        for forget in asked.forget:
            for rate in RATES:
                folder = _cell(demo, method, forget, rate)
                found = {
                    (r.split, r.scope): r
                    for place in folder.evaluations()
                    for r in read_summary(place.summary(forget)).results
                    if r.estimate.metric == METRIC
                }
                rows.append({"method": method, "forget": forget, "rate": rate, "found": found})
    return rows


def chosen(rows: list[dict[str, Any]], method: str) -> float | None:
    """The rate that the rule above chooses, if any."""
    worst: dict[float, float] = {}
    for rate in RATES:
        at = [r["found"] for r in rows if r["method"] == method and r["rate"] == rate]
        if all(f["forget", "all"].estimate.value < 0.5 for f in at):
            worst[rate] = min(f["retain", "all"].estimate.value for f in at)
    return max(worst, key=worst.__getitem__, default=None)


def main() -> None:
    """Fill the grid and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=Path("runs/demo"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--methods", nargs="*")
    parser.add_argument("--json", action="store_true")
    words = parser.parse_args()
    demo = RunFolder(words.run)
    asked = DemoSettings.build(read_toml(demo.settings), where=str(demo.settings))
    methods = words.methods or list(asked.methods)
    base = {"run": str(demo.path), "settings": asked.identity()}
    tasks = [
        Task(f"{m} {f} {r:g}", cell_task, {**base, "method": m, "forget": f, "rate": r})
        for m in methods
        for f in asked.forget
        for r in RATES
    ]
    failed = run_tasks(tasks, workers=words.workers)
    if failed:
        raise SystemExit("\n".join(f"{name}: {error}" for name, error in failed.items()))
    rows = measured(demo, asked, methods)
    if words.json:
        for row in rows:
            print(json.dumps({**row, "found": {"/".join(k): str(r.estimate) for k, r in row["found"].items()}}))
        return
    print("| method | forget | rate | " + " | ".join(f"{s}, {c}" for s, c in COLUMNS) + " | |")
    print("|" + " --- |" * (4 + len(COLUMNS)))
    for row in rows:
        mark = "chosen" if chosen(rows, row["method"]) == row["rate"] else ""
        values = " | ".join(_shown(row["found"].get(c)) for c in COLUMNS)
        print(f"| {row['method']} | {row['forget']} | {row['rate']:g} | {values} | {mark} |")


def _shown(result: Result | None) -> str:
    if result is None:
        return ""
    e = result.estimate
    return f"{e.value:.3f} [{e.low:.2f}, {e.high:.2f}]"


if __name__ == "__main__":
    main()
