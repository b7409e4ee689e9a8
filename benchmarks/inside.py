"""What a model's blocks hold, and what attacks get out of it.

`python -m benchmarks.inside attacks --runs runs/attacks --seeds 0 1` makes for each seed the demo's target, its models
that never knew, a target taught to keep silent and one after RMU (`--after` others), attacks them all, and prints what
each attack brings on facts that it was not led by: the mean probability of an answer after less before. What is there
is not made again.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from scipy.special import stdtrit

from benchmarks import options
from vestige.api.requests import attack as attack_request
from vestige.api.selection import tiny_unlearning
from vestige.artifacts.layout import RunFolder, SubjectFolder
from vestige.artifacts.records import read_scores
from vestige.attacks.ablate import AblateSettings
from vestige.attacks.in_context import InContextSettings
from vestige.attacks.planning import AttackSettings
from vestige.attacks.quantize import QuantizeSettings
from vestige.attacks.relearn import RelearnSettings
from vestige.auditing.run import suppressed
from vestige.core.files import read_json
from vestige.data.corpus import NamedSplits
from vestige.evals.qa import QASettings
from vestige.experiments.demo import Demo, DemoSettings
from vestige.models.load import ModelSettings
from vestige.steps.attack import attack_evaluations, run_attack
from vestige.steps.controls import suppress
from vestige.steps.evaluate import evaluate_together, finished_subject, requests_of
from vestige.steps.runner import run_tasks
from vestige.steps.unlearn import unlearn, unlearn_request, unlearn_spec
from vestige.training.settings import UnlearningSettings

_RELEARN = partial(RelearnSettings, items=30, epochs=1, rank=0)
ATTACKS: dict[str, AttackSettings] = {
    "relearn, retained": _RELEARN(material="retain"),
    "relearn, half of the forgotten": _RELEARN(material="forget_part"),
    "quantize 8 bits": QuantizeSettings(bits=8),
    "quantize 4 bits": QuantizeSettings(bits=4),
    "quantize nf4": QuantizeSettings(bits="nf4"),
    "ablate": AblateSettings(),
    "in-context (few-shot), 3 facts": InContextSettings(facts=3),
}
EVALS = {"qa": QASettings(max_new_tokens=4)}
AFTER = {
    # As in its paper: steered to well beyond the usual length (12 in the block that is read), what is kept held: 0.96
    # is left of it. An alpha of 0.1 and the default length forget as much in half of the steps, and leave 0.41.
    "rmu": ({"epochs": 40, "learning_rate": 2e-3}, {"steering": 30.0, "alpha": 30.0}),
    "npo_gd": ({"learning_rate": 1e-4}, {}),
    "satimp": ({"learning_rate": 2e-4}, {}),
    **dict.fromkeys(("gd", "idk_gd", "dpo"), ({}, {})),
}
"""What is attacked after unlearning: the settings of its training, and its method's own."""


def main() -> None:
    """Attack the models of the demo and print the table."""
    parser = options(__doc__)
    parser.add_argument("part", choices=["attacks"])
    parser.add_argument("--runs", type=Path, default=Path("runs/attacks"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--controls", type=int, default=5, help="Models that never knew, for each seed.")
    parser.add_argument("--only", nargs="+", default=list(ATTACKS), choices=list(ATTACKS))
    parser.add_argument("--after", nargs="+", default=["rmu"], choices=list(AFTER), help="Methods to attack after.")
    words = parser.parse_args()
    gains: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for seed in words.seeds:
        for role, attack, measured in attacked(
            RunFolder(words.runs / str(seed)), seed, words.controls, words.only, words.after
        ):
            gains.setdefault((attack, role), []).append(measured)
            print(seed, role, attack, *(f"{x:.3f}" for x in measured), flush=True)
    roles = list(dict.fromkeys(role for _, role in gains))
    print("\n| attack | CPU-s a model | " + " | ".join(roles) + " | silent, by CPU-s |")
    print("| --- |" * (len(roles) + 3))
    for attack in words.only:
        seconds = float(np.mean([m[2] for role in roles for m in gains[attack, role]]))
        brought = [mean_text([after - before for before, after, _ in gains[attack, role]]) for role in roles]
        silent = float(np.mean([after - before for before, after, _ in gains[attack, "silent"]]))
        print(f"| {attack} | {seconds:.1f} | {' | '.join(brought)} | {silent / seconds:.3f} |")


def mean_text(gains: list[float]) -> str:
    """The mean with its 95 % interval over models (Student's t), or all values where they are fewer than four."""
    if len(gains) < 4:
        return ", ".join(f"{gain:+.3f}" for gain in gains)
    half = stdtrit(len(gains) - 1, 0.975) * np.std(gains, ddof=1) / len(gains) ** 0.5
    return f"{np.mean(gains):+.3f} [{np.mean(gains) - half:+.3f}, {np.mean(gains) + half:+.3f}], n = {len(gains)}"


def attacked(
    run: RunFolder, seed: int, controls: int, attacks: list[str], methods: list[str]
) -> Iterator[tuple[str, str, tuple[float, float, float]]]:
    """The role of each model, each attack, and the mean probability before and after it with its processor seconds."""
    demo = Demo(run, DemoSettings(seed=seed, controls=controls, reference=False))
    tasks = [t for t in demo.tasks() if t.name in ("compile", "target") or t.name.startswith("retrained")]
    run_tasks(tasks, workers=1)
    audit = demo.audit(demo.settings.forget[0])
    models = {"target": run.control("target")}
    models["silent"], request = suppressed(run, audit)
    suppress(models["silent"], request)
    models |= {method: unlearned(run, audit.splits, seed, method) for method in methods}
    models |= {m.name: SubjectFolder(Path(m.model)) for m in audit.models if m.role == "retrained"}
    for name, folder in models.items():
        subject = finished_subject(folder, device="cpu")
        (before,) = evaluate_together(subject, requests_of(audit.splits, EVALS, seed, audit.splits.splits["forget"]))
        for label in attacks:
            made = attack_request(ATTACKS[label], audit.splits, EVALS, seed=seed)
            place = run_attack(subject, made)
            originals = read_json(place.asked)
            ((_, after),) = attack_evaluations(place, made).items()
            levels = [{r["item"]: r["probability"] for r in read_scores(e)} for e in (before, after)]
            tested = {originals[item]: p for item, p in levels[1].items() if item in originals}
            pair = [float(np.mean(list(of.values()))) for of in ({i: levels[0][i] for i in tested}, tested)]
            seconds = read_json(place.provenance)["times"]["cpu_seconds"]
            yield "never knew" if name.startswith("retrained") else name, label, (pair[0], pair[1], seconds)


def unlearned(run: RunFolder, splits: NamedSplits, seed: int, method: str) -> SubjectFolder:
    """The target after unlearning."""
    trained, own = AFTER[method]
    target = ModelSettings(model=str(run.control("target").model), device="cpu")
    training = UnlearningSettings.build(trained).over(tiny_unlearning(method))
    request = unlearn_request(target, splits, method, lambda _: training, method_settings=own, seed=seed)
    folder = run.cell(request.name, unlearn_spec(request).id)
    unlearn(folder, request)
    return folder


if __name__ == "__main__":
    main()
