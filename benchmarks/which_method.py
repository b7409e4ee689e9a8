"""Does any method pass every claim? Methods x rates by cheap scores, then an audit of what comes nearest to retraining.

`python -m benchmarks.which_method --folder runs/which --jobs 2` teaches the tiny model PISTOL's sample dataset 1, and
six models all but the demo's five contracts; forgets these by every method at three rates; and audits the settings
whose mean scores lie nearest to those of the six: by the greatest of the distances in ROUGE-1 and in forced answers on
the forget set, and of what is lost on the retain set. Five are the controls; the sixth is judged beside the methods
and should pass every claim. `grid.csv` has every setting, `verdicts.csv` every verdict. `--model builtin:smollm2
--device cuda` takes a model that was pretrained.

Stopped, the same command goes on. `--stage grid` may run several times at once, as where processes share a GPU;
`--stage audit` takes of the grid what is there.
"""

import argparse
import csv
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vestige.artifacts.audits import CLAIMS, VerdictLine
from vestige.artifacts.layout import StudyFolder
from vestige.auditing.request import AuditedModel, AuditRequest, check_request, within_reach
from vestige.auditing.run import conduct
from vestige.core.files import locked
from vestige.methods import METHODS
from vestige.steps.engine import Board
from vestige.studies.cells import CellPoint, Study, place_of, rate_name, splits_named
from vestige.studies.presets import TINY_AUDIT
from vestige.studies.results import PooledResults, ResultGroup
from vestige.studies.settings import StudySettings
from vestige.studies.studies import run

FORGET = "edge:A_B,edge:A_C,edge:A_C2,edge:B_D,edge:B_D2"
CONTROLS = 5
LONG = 24
"""Epochs of the methods that are also run for long: a quarter of a retraining's steps and more."""
OWN: Mapping[str, Mapping[str, Any]] = {
    "rmu": {"settings": {"alpha": 0.1}},
    "task_arithmetic": {"settings": {"scale": 3.0}},
    **{f"{method} long": {"method": method, "unlearn": {"epochs": LONG}} for method in ("gd", "npo_gd", "satimp")},
}
"""What differs from the defaults: settings that belong to a model as rates do (benchmarks/results/methods.md)."""
TIMES = {
    **dict.fromkeys(("idk_gd", "dpo", "llmu", "altpo", "satimp", "jensun", "gd long"), 2.5),
    **{"npo_gd long": 5.0, "satimp long": 10.0},
    **dict.fromkeys(("rmu", "rr"), 25.0),
}
"""At so many times the others' rates: bounded losses, long trainings, and those that train two or three products."""
SIZES: Mapping[str, Mapping[str, Any]] = {
    "builtin:tiny": {
        "finetune": {},
        "unlearn": {"epochs": 6, "lora_rank": 0},
        "rates": (2e-5, 4e-5, 8e-5),
        "audit": {},
    },
    "builtin:smollm2": {
        "finetune": {
            **{"epochs": 12, "batch_size": 16, "learning_rate": 2e-4, "lora_rank": 0, "bucket": True},
            **{"stop_when_exact": True, "precision": "bfloat16"},
        },
        "unlearn": {"epochs": 4, "lora_rank": 0, "precision": "bfloat16"},
        "rates": (2e-6, 5e-6, 1e-5),
        "audit": {"relearn_rate": 5e-5, "relearn_batch_size": 4, "relearn_epochs": 2, "kept_items": 200},
    },
}


class Setting(NamedTuple):
    """A method at a rate, where its model is, and its scores: `distance` is the greatest of the rest."""

    method: str
    rate: str
    folder: str
    forget_rouge: float
    forget_probability: float
    retain_rouge: float
    retain_probability: float
    distance: float


def study_of(words: argparse.Namespace) -> Study:
    """The grid as a study."""
    size = SIZES[words.model]
    methods = words.methods or [*(m for m in OWN if " " in m), *(m for m in METHODS if m not in ("none", "retrain"))]
    rates = words.rates or size["rates"]
    trial = {"epochs": words.epochs} if words.epochs else {}
    settings = {
        "name": "which",
        "seeds": [words.seed],
        "device": words.device,
        "data": [{"name": "sample1", "compile": "sample1", "seed": words.seed, "most_items": 100}],
        "models": [{"model": words.model}],
        "methods": [{"name": m, "method": m, **OWN.get(m, {})} for m in methods],
        "forget": [{"name": "five contracts", "select": FORGET}],
        "rates": [
            {"methods": [m], "values": [float(f"{TIMES.get(m, 1.0) * rate:.3g}") for rate in rates]} for m in methods
        ],
        "finetune": {**size["finetune"], **trial},
        "unlearn": {**size["unlearn"], **trial},
        "evaluate": {
            "controls": CONTROLS + 1,
            "splits": ["retain"],
            "settings": {"qa": {"max_new_tokens": TINY_AUDIT.max_new_tokens}},
        },
    }
    # As if read from TOML.
    study = StudySettings.build(json.loads(json.dumps(settings)), where="the grid")
    study.check()
    return Study(study, StudyFolder(words.folder))


def settings_of(study: Study) -> list[Setting]:
    """The target, the retrained models, and every setting that was trained to its end, the nearest to these first."""
    results = PooledResults(study)
    places = {(p.method, rate_name(p)): place_of(study, key) for key, p in _made(study, "unlearned")}
    by_group = {(group.method, group.rate): means(results, group) for group in results.groups}
    target, never = by_group.pop(("target", "")), by_group.pop(("retrained", ""))
    settings = [Setting._make([name, "", "", *of, 0.0]) for name, of in (("target", target), ("retrained", never))]
    trained = []
    for (method, rate), scores in by_group.items():
        away = [abs(scores[i] - never[i]) for i in (0, 1)] + [target[i] - scores[i] for i in (2, 3)]
        trained.append(Setting._make([method, rate, str(places[method, rate]), *scores, max(away)]))
    return settings + sorted(trained, key=lambda one: one.distance)


def means(results: PooledResults, group: ResultGroup) -> list[float]:
    """ROUGE-1 and the probability of the answer on the forget set, then both on the retain set."""
    answered = [pair for of_seed in results.asked[group].values() for pair in of_seed.items()]
    return [
        float(
            np.mean([results.by_item(a, "qa")[i.id][metric] for m, a in answered for i in results.items(group, m, s)])
        )
        for s in ("forget", "retain")
        for metric in ("rouge1_recall", "probability")
    ]


def _made(study: Study, kind: str) -> Iterator[tuple[str, CellPoint]]:
    done = Board(study.folder.state).status().done
    return ((c.key, c.point) for c in study.cells if c.kind == kind and c.key in done)


def to_audit(settings: Sequence[Setting], n: int) -> list[Setting]:
    """The `n` nearest, two of a method at most."""
    of_method: dict[str, list[Setting]] = {}
    for one in settings:
        of_method.setdefault(one.method, []).append(one)
    return sorted((one for ones in of_method.values() for one in ones[:2]), key=lambda one: one.distance)[:n]


def audit(study: Study, chosen: Sequence[Setting], words: argparse.Namespace) -> tuple[VerdictLine, ...]:
    """The verdicts on the settings and on the sixth retrained model."""
    point = next(p for _, p in _made(study, "retrained"))
    controls = {p.step: str(place_of(study, key)) for key, p in _made(study, "retrained")}
    (target,) = (str(place_of(study, key)) for key, _ in _made(study, "target"))
    models = [AuditedModel("target", "target", target)]
    models += [AuditedModel(f"retrained {n + 1}", "retrained", controls[n]) for n in range(CONTROLS)]
    models += [AuditedModel("retrained", "unlearned", controls[CONTROLS])]
    models += [AuditedModel(f"{one.method} {one.rate}", "unlearned", one.folder) for one in chosen]
    request = AuditRequest(
        tuple(models),
        replace(splits_named(study, point), forget=point.member),
        TINY_AUDIT.model_copy(update=dict(SIZES[words.model]["audit"])),
        words.seed,
        device=words.device,
    )
    check_request(request)
    with locked(study.folder.lock):
        return conduct(study.folder, within_reach(request), workers=words.jobs).outcome.verdicts


def write_rows(path: Path, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])


def main() -> None:
    """Fill the grid, audit the nearest settings in growing numbers, and write the tables after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/which"))
    parser.add_argument("--tables", type=Path, help="where the tables go; the folder by default")
    parser.add_argument("--model", choices=list(SIZES), default="builtin:tiny")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--methods", nargs="*", help="these; by default all, and some for long")
    parser.add_argument("--rates", type=float, nargs="*")
    parser.add_argument("--epochs", type=int, help="of every training, for a trial")
    parser.add_argument("--stage", choices=["grid", "audit", "all"], default="all")
    parser.add_argument("--audited", type=int, nargs="*", default=[8, 18], help="how many settings, in turn")
    words = parser.parse_args()
    study, tables = study_of(words), words.tables or words.folder
    tables.mkdir(parents=True, exist_ok=True)
    if words.stage != "audit":
        begun = time.monotonic()
        for name, reason in run(study, jobs=words.jobs if words.device == "cpu" else None).items():
            print(f"failed: {name}: {reason}", flush=True)
        print(f"grid: {time.monotonic() - begun:.0f} s", flush=True)
    settings = settings_of(study)
    write_rows(tables / "grid.csv", Setting._fields, [one._replace(folder="") for one in settings])
    for n in words.audited if words.stage != "grid" else ():
        begun = time.monotonic()
        verdicts = audit(study, to_audit(settings[2:], n), words)
        write_rows(tables / "verdicts.csv", VERDICT, [[getattr(v, name) for name in VERDICT] for v in verdicts])
        print(f"audit of {n}: {time.monotonic() - begun:.0f} s", *table(verdicts), sep="\n", flush=True)


VERDICT = ("subject", "claim", "outcome", "reason")


def table(verdicts: Sequence[VerdictLine]) -> list[str]:
    """A row a model, a column a claim."""
    outcomes = {(v.subject, v.claim): v.outcome for v in verdicts}
    rows = [f"| model | {' | '.join(CLAIMS)} |", "|" + " --- |" * (1 + len(CLAIMS))]
    for subject in dict.fromkeys(v.subject for v in verdicts):
        rows.append(f"| {subject} | {' | '.join(outcomes.get((subject, claim), '') for claim in CLAIMS)} |")
    return rows


if __name__ == "__main__":
    main()
