"""MUSE (2407.06460): criteria 1 (verbatim), 2 (knowledge), 4 (utility), 5 (larger sets) and 6 (one after another).

Criterion 3, privacy leakage, is `vestige audit --holdout`. The prompt of a text is its first half. MUSE cuts by tokens.
Task vectors are the method `task_arithmetic`. WHP is not here. It takes the first epoch that knows no more than the
retrained model: `--goal` finds a rate for a goal instead.
"""

from typing import Any

from vestige.data.corpus import SourceSettings
from vestige.experiments.lab import Arguments, Lab
from vestige.experiments.pistol import AC3
from vestige.experiments.tables import Comparison, Report

MODELS = {"News": "muse-bench/MUSE-News_target"}
"""The paper's target, which needs the tokeniser of meta-llama/Llama-2-7b-hf in its folder."""
METHODS = ("ga", "gd", "kl", "npo", "npo_gd", "npo_kl")
"""Its GA, GA with GDR and with KLR, and NPO with both."""
TRAINING = {
    "epochs": 10,
    "batch_size": 32,
    "schedule": "constant",
    "warmup_epochs": 0.0,
    "lora_rank": 0,
    "learning_rate": 1e-5,
}


def muse(lab: Lab) -> Report:
    """Forget sets of growing size by each method, on a CPU also one after another."""
    data = SourceSettings(data="pack:muse")
    sets = {"one fold": ["forget_1"], "two folds": ["forget_2"], "four folds": ["forget_4"]}
    unlearning: Arguments = {**TRAINING, **lab.full}
    evals: Arguments = {"memory": {}}
    pairs = [Comparison("set", "one fold", "four folds", splits=["retain"])]
    if lab.cpu:
        data = lab.data("sample1")
        sets = {"one": ["edge:A_C"], "three": [AC3], "three in turn": AC3.split(",")}
        unlearning = {"learning_rate": 5e-5, **lab.reading}
        evals = {"memory": {"max_new_tokens": 32}}
        pairs = [Comparison("set", "one", "three", splits=["retain"]), Comparison("set", "three", "three in turn")]
    for label, model in lab.named(MODELS).items():
        for seed in lab.repeats:
            target: Any = model
            if lab.tiny(model):
                target = lab.target(model=model, data=data, seed=seed, **lab.reading)
            for name, parts in sets.items():
                asked = {"data": data, "forget": ",".join(parts), "evals": evals, "splits": ["retain"]}
                asked["most_items"] = lab.most_items or 100
                columns = {"model": label, "set": name, "seed": seed, "rate": ""}
                lab.ask(target, {**columns, "method": "target"}, **asked)
                for method in lab.chosen(METHODS):
                    unlearned = target
                    for part in parts:
                        unlearned = lab.unlearn(unlearned, method, data=data, forget=part, seed=seed, **unlearning)
                    rate = f"{unlearning['learning_rate']:g}"
                    lab.ask(unlearned, {**columns, "method": method, "rate": rate}, **asked)
    metrics = ("memory.memory/verbatim", "memory.memory/knowledge")
    pairs.append(Comparison("method", "ga", "npo_gd"))
    return Report("", metrics, ("forget", "forget:free", "retain"), tuple(pairs), ranked=metrics)
