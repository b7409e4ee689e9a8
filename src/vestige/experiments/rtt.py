"""Do unlearning methods remove information from weights (Deeb & Roger, 2410.08827)?

Some facts are retrained, others tested. The paper recovers 88 % of knowledge from pretraining, and far less of the
fine-tuned random birthdays. Its RIA and its optimizer Lion are not here, so rates are ours. The paper retrains on four
of five splits, this experiment on half.
"""

from vestige.data.corpus import SourceSettings
from vestige.experiments.inconclusive import TINY_METHODS
from vestige.experiments.lab import Arguments, Lab
from vestige.experiments.tables import Comparison, Report

MODELS = {"Llama-3-8B": "meta-llama/Meta-Llama-3-8B"}
METHODS = ("gd", "rmu", "npo_gd")
RATES = (1e-6, 1e-5)


def rtt(lab: Lab) -> Report:
    """Relearning on a part of the forget set, for targets, unlearned models, and controls that never saw."""
    # docs/papers.md makes the file from the paper's repository; five splits of ten are forgotten.
    data, forget = SourceSettings(data="birthdays.jsonl"), "edge:0,edge:1,edge:2,edge:3,edge:4"
    taught: Arguments = {"epochs": 15, "batch_size": 4, "learning_rate": 1e-5, "lora_rank": 0, **lab.full}
    unlearning: Arguments = {"batch_size": 4, "lora_rank": 0, **lab.full}
    attack: Arguments = {"n": 314, "rate": 1e-6}
    evals: Arguments = {"choices": {}}
    if lab.cpu:
        data, forget = lab.data("sample1"), "random:4#0"
        taught, unlearning, attack = dict(lab.reading), dict(lab.reading), {"n": 40, "rate": 2e-4}
        evals = {"qa": {"max_new_tokens": 32}, "choices": {}}
    attack |= {"material": "forget_part", "epochs": 6, "rank": 0, "batch_size": 4}
    asked = {"data": data, "forget": forget, "evals": evals}
    every = {**asked, "splits": ["retain"], "most_items": lab.most_items or 157}
    lab.controls = max(lab.controls, 1)
    for label, model in lab.named(MODELS).items():
        for seed in lab.seeds or (0, 1, 2):
            columns = {"model": label, "set": "four contracts" if lab.cpu else "five splits", "seed": seed, "rate": ""}
            how = {"model": model, "data": data, **taught}
            target = lab.target(seed=seed, **how)
            lab.ask(target, {**columns, "method": "target"}, **every)
            lab.attack(target, "relearn", {**columns, "method": "target"}, **attack, **asked)
            for control, named in lab.ask_controls(columns, how, every):
                lab.attack(control, "relearn", named, **attack, **asked)
            for method in lab.chosen(METHODS):
                for rate in lab.rates or RATES:
                    own: Arguments = {**unlearning, "learning_rate": rate}
                    if lab.cpu:
                        own = {**unlearning, "learning_rate": 5e-5, **TINY_METHODS.get(method, {})}
                    unlearned = lab.unlearn(target, method, data=data, forget=forget, seed=seed, **own)
                    named = {**columns, "method": method, "rate": f"{own['learning_rate']:g}"}
                    lab.ask(unlearned, named, **every)
                    lab.attack(unlearned, "relearn", named, **attack, **asked)
                    if lab.cpu:
                        break
    metrics = ("choices.choose/accuracy", "choices.option_text_mean/accuracy", "qa.rouge1_recall", "qa.mrr")
    pairs = tuple(Comparison("method", "gd", other) for other in ("rmu", "npo_gd"))
    return Report("", metrics, ("forget", "retain"), pairs, ranked=metrics[:2])
