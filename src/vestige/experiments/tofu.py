"""TOFU (2401.06121) as OpenUnlearning reports it (docs/repro.md): forget01, 05 and 10 by six methods.

Its table has one training each. Here there are three, with intervals. Its IdkDPO and RMU differ: our `dpo` has no
retain term, and our `rmu` trains three blocks instead of all weights. Forget quality and model utility are of one model
(`vestige audit`).
"""

from collections.abc import Mapping

from vestige.data.corpus import SourceSettings
from vestige.experiments.inconclusive import TINY_METHODS
from vestige.experiments.lab import Arguments, Lab, Values
from vestige.experiments.tables import Comparison, Report

MODELS = {"Llama-3.2-1B": "meta-llama/Llama-3.2-1B-Instruct"}
SETTINGS: Mapping[str, Values] = {
    "ga": {},
    "gd": {},
    "dpo": {},
    "npo_gd": {},
    "simnpo": {"beta": 4.5, "forget_weight": 0.125, "retain_weight": 1.0},
    "rmu": {"layer": 7, "steering": 2.0, "alpha": 1.0},
}
"""The weights of its configurations (d3d7cf9)."""
TINY_RATES = {"dpo": 1e-4, "simnpo": 2e-5}
TRAINING = {"batch_size": 32, "warmup_epochs": 1.0, "weight_decay": 0.01, "learning_rate": 1e-5, "lora_rank": 0}


def tofu(lab: Lab) -> Report:
    """Every forget set by every method, next to a model that was retrained without it."""
    data = SourceSettings(data="pack:tofu")
    sets = {"forget01": "forget01", "forget05": "forget05", "forget10": "forget10"}
    taught: Arguments = {**TRAINING, "epochs": 5, **lab.full}
    unlearning: Arguments = {**TRAINING, "epochs": 10, **lab.full}
    evals: Arguments = {"qa": {}, "memory": {"replies": False}}
    if lab.cpu:
        # One, two and four of 20 contracts represent 2, 10 and 20 of 200 authors.
        data = lab.data("sample1")
        sets = {"5 %": "random:1#0", "10 %": "random:2#0", "20 %": "random:4#0"}
        taught, unlearning = dict(lab.reading), dict(lab.reading)
        evals["qa"] = {"max_new_tokens": 32}
    lab.controls = max(lab.controls, 1)
    for label, model in lab.named(MODELS).items():
        for seed in lab.repeats:
            how = {"model": model, "data": data, **taught}
            target = lab.target(seed=seed, **how)
            for name, forget in sets.items():
                asked = {"data": data, "forget": forget, "evals": evals, "splits": ["retain", "factual"]}
                asked["most_items"] = lab.most_items or 400
                columns = {"model": label, "set": name, "seed": seed, "rate": ""}
                lab.ask(target, {**columns, "method": "target"}, **asked)
                lab.ask_controls(columns, how, asked)
                for method in lab.chosen(list(SETTINGS)):
                    own: Arguments = {**unlearning, "method_settings": SETTINGS[method]}
                    if lab.cpu:
                        rate = TINY_RATES.get(method, 5e-5)
                        own = {**unlearning, "learning_rate": rate, **TINY_METHODS.get(method, {})}
                    unlearned = lab.unlearn(target, method, data=data, forget=forget, seed=seed, **own)
                    lab.ask(unlearned, {**columns, "method": method, "rate": f"{own['learning_rate']:g}"}, **asked)
    metrics = ("memory.memory/truth_ratio_score", "memory.memory/probability", "qa.rougeL_recall")
    # Is its best row the best?
    pairs = tuple(Comparison("method", other, "npo_gd") for other in ("ga", "gd", "simnpo", "rmu"))
    return Report("", metrics, ("forget", "forget:free", "retain", "factual"), pairs, ranked=metrics)
