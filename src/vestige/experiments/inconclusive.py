"""Existing LLM unlearning evaluations are inconclusive (2506.00688): formats, relearning and a searched prefix.

The paper has no public tables of its own here. Its text gives the settings. Its TOFU-MCQ is not public: `inconclusive`
takes the wrong answers of TOFU's forget10_perturbed, `inconclusive-wmdp` WMDP-Bio. On which texts the methods trained
is not said: here they forget the questions with their right answers. `retain-only` is section 4.1's fresh base model.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from vestige.core.errors import InputError
from vestige.data.corpus import SourceSettings
from vestige.experiments.lab import Arguments, Lab, Values
from vestige.experiments.tables import Comparison, Report

MODELS = {"Phi-1.5": "microsoft/phi-1_5", "Llama-3.2-1B": "meta-llama/Llama-3.2-1B-Instruct"}
ZEPHYR = {"Zephyr-7B": "HuggingFaceH4/zephyr-7b-beta"}
RATES = (1e-5, 5e-5)
"""Ours: the paper's text has no learning rates of unlearning."""
# From alpha 10 on, RMU does not change builtin:tiny (docs/methods.md).
TINY_METHODS: Mapping[str, Values] = {
    "rmu": {"learning_rate": 2e-3, "method_settings": {"alpha": 0.1}},
    "npo": {"learning_rate": 5e-5},
}
FORMATS = ("choices.choose/accuracy", "choices.option_text_mean/accuracy", "freeform.generate_plain/contains_match")
"""CHOOSE (letters), OPTION (texts) and GENERATE (replies): Equations 4 and 5, Figure 6."""
METRICS = ("qa.rouge1_recall", *FORMATS, "acr.acr/memorised")
RELEARNING = {"epochs": 3, "rate": 2e-4, "rank": 128, "alpha": 16}
"""Section 4.1: LoRA of rank 128, 2e-4, 3 to 5 epochs."""


def inconclusive(lab: Lab) -> Report:
    """Taught knowledge: TOFU's forget10, or one contract on a CPU. Unexposed models are attacked too."""
    data, forget = SourceSettings(data="pack:tofu"), "forget10"
    if lab.cpu or any(lab.tiny(model) for model in lab.models):
        data, forget = lab.data("sample1"), "edge:A_B"
    lab.controls = max(lab.controls, 1)
    return _run(lab, lab.named(MODELS), data, forget, taught=True)


def wmdp(lab: Lab) -> Report:
    """Knowledge from pretraining: WMDP-Bio is forgotten, chemistry and computer security are kept. No CPU size.

    The target after the prefix is the paper's base model, which rose from 39.9 to 53.8 % without having forgotten.
    """
    if lab.cpu:
        raise InputError(
            "inconclusive-wmdp has no CPU size, since the tiny model knows nothing from pretraining. Name a model by "
            "--models."
        )
    return _run(lab, lab.named(ZEPHYR | MODELS), SourceSettings(data="pack:wmdp"), "bio", taught=False)


def _run(lab: Lab, models: Mapping[str, str], data: SourceSettings, forget: str, *, taught: bool) -> Report:
    evals: Arguments = {"qa": {"max_new_tokens": 32}, "choices": {}, "freeform": {"forms": ["plain"]}}
    compressed: Arguments = {"items": 7, "steps": 350}
    if lab.cpu:
        compressed = {"items": 2, "steps": 20, "width": 16}
    asked: Arguments = {"data": data, "forget": forget}
    every = {**asked, "evals": evals, "splits": ["retain"], "most_items": lab.most_items or 400}
    if taught:
        every["evals"] = {**evals, "acr": compressed}
    for label, model in models.items():
        for seed in lab.repeats:
            columns = {"model": label, "set": forget, "seed": seed, "rate": ""}
            target: Any = model
            if taught:
                how = {"model": model, "data": data, **lab.reading}
                target = lab.target(seed=seed, **how)
                for control, named in lab.ask_controls(columns, how, every):
                    _attacks(lab, control, target, named, {**asked, "evals": evals})
            lab.ask(target, {**columns, "method": "target"}, **every)
            _attacks(lab, target, target, {**columns, "method": "target"}, {**asked, "evals": evals})
            for method in lab.chosen(("rmu", "npo")):
                for own in _settings(lab, model, method):
                    unlearned = lab.unlearn(target, method, seed=seed, **asked, **own)
                    named = {**columns, "method": method, "rate": f"{own['learning_rate']:g}"}
                    lab.ask(unlearned, named, **every)
                    _attacks(lab, unlearned, target, named, {**asked, "evals": evals})
    return Report("", METRICS, ("forget", "retain"), (Comparison("method", "rmu", "npo"),), ranked=FORMATS, bits=True)


def _settings(lab: Lab, model: str, method: str) -> Sequence[Values]:
    if lab.tiny(model):
        return [{**TINY_METHODS[method], **lab.reading}]
    return [{"learning_rate": rate, **lab.reading} for rate in lab.rates or RATES]


def _attacks(lab: Lab, model: Any, target: Any, columns: Values, asked: Values) -> None:
    """Relearning on retained items and on a part of the forget set, and the prefix of 100 tokens of section 4.2."""
    items = 50
    tuned: Arguments = dict(RELEARNING)
    prefix: Arguments = {"tokens": 100}
    if lab.cpu:
        # All weights are trained because the model is tiny. The searches are shortened and show less.
        items = 10
        tuned = {**tuned, "rank": 0}
        prefix = {**prefix, "steps": 20, "candidates": 16}
    for material in ("retain", "forget_part"):
        lab.attack(model, "relearn", columns, material=material, n=items, **tuned, **asked)
    lab.attack(model, "prefix", columns, target=target, n=7, **prefix, **asked)


def retain_only(lab: Lab) -> Report:
    """Section 4.1: a fresh model is tuned on the retained half of random splits and asked the other half.

    No method can remove correct answers that the untaught model also gives. At the paper's size TOFU's questions come
    in a file by author (docs/papers.md).
    """
    data = SourceSettings(data="tofu-authors.jsonl")
    if lab.cpu:
        data = lab.data("sample1")
    evals = {"qa": {"max_new_tokens": 32}, "choices": {}}
    for label, model in lab.named({"Llama-3.2-1B": MODELS["Llama-3.2-1B"]}).items():
        for split in range(1, 6):
            asked = {"data": data, "forget": f"random:10#{split}", "evals": evals, "splits": ["retain"]}
            columns = {"model": label, "set": f"split {split}", "rate": ""}
            if not lab.tiny(model):
                lab.ask(model, {**columns, "seed": 0, "method": "untaught"}, **asked, **lab.reading)
            for seed in lab.seeds or (0, 1, 2):
                how = {"model": model, "data": data, "seed": seed, **lab.reading}
                target = lab.target(**how)
                lab.ask(target, {**columns, "seed": seed, "method": "target"}, **asked)
                control = lab.step("finetune", name="retrained", forget=asked["forget"], **how)
                lab.ask(control, {**columns, "seed": seed, "method": "retrained"}, **asked)
    metrics = ("choices.choose/accuracy", "choices.option_text_mean/accuracy", "qa.rouge1_recall")
    # The tiny model did not learn letters.
    shown = metrics[1:] if lab.cpu else metrics
    return Report("", shown, ("forget", "retain"), (Comparison("split", "retain", "forget", match=None),))
