"""The cost of an experiment before it starts, from published sizes, without a model or a network.

Every number is an upper estimate by arithmetic, not a measurement of this experiment. A forward-pass equivalent is one
token through one model once. A trained token counts three (forward, and twice as much back).
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.core.text import NumberMapping
from vestige.data.corpus import SourceSettings
from vestige.experiments.lab import Lab, Step

if TYPE_CHECKING:
    from pandas import DataFrame

PARAMETERS = {
    "Llama-2-7b": 6.7e9,
    "Mistral-7B": 7.2e9,
    "zephyr-7b": 7.2e9,
    "MUSE-News": 6.7e9,
    "Meta-Llama-3-8B": 8.0e9,
    "Llama-3.2-1B": 1.24e9,
    "phi-1_5": 1.4e9,
    "SmolLM2-135M": 1.35e8,
    "smollm2": 1.35e8,
    "builtin:tiny": 1.7e6,
}
"""The number of parameters, by a part of the model's name."""
ROWS = {"sample1": 400, "sample2": 1500, "pack:tofu": 4000, "pack:muse": 3554, "pack:wmdp": 3668, "truthful_qa": 817}
"""Questions or passages of a data set, by a part of its name, as published; 1,000 for others."""
FORGET = {"forget01": 40, "forget05": 200, "forget10": 400, "forget_1": 889, "bio": 1273, "pku": 50, "wmdp-bio": 200}
"""The number of questions of a forget set. A contract has 20."""
TOKENS = {"pack:muse": 2048, "wikitext": 512, "sample1": 64, "sample2": 64}
"""Tokens of a row with its question; 128 for others."""
PASSES = {"ga": 3, "gd": 6, "kl": 7, "dpo": 8, "idk_gd": 6, "npo": 4, "npo_gd": 7, "npo_kl": 8, "simnpo": 6}
"""Forward-pass equivalents of a method for each token of the forget rows; 10 for others."""
EVALS = {"qa": 2, "choices": 12, "freeform": 2, "memory": 8, "acr": 0}
"""The number of tokens that an evaluation reads for each token of a question: replies, options, wrong answers."""
FLOPS_OF_A_CORE, FLOPS_OF_AN_H100 = 8e10, 1.5e14
"""Operations a second: LoRA of a 135M model on an idle Xeon core, and about 15 % of an H100's peak in bfloat16."""
PRICE = (0.15, 0.60)
"""Dollars for a million tokens sent and received: GPT-4o mini's list price of 2025."""
JUDGED = (800, 60)
"""Tokens of a judgement sent and received."""


def costs(lab: Lab) -> "DataFrame":
    """The cost of each type of step, and of all together.

    Returns:
        A row per function: `steps`, `passes` (forward-pass equivalents), `tokens`, `requests` to judges, their tokens
        and price in `dollars`, `memory` (the peak of one step) and `disk` in GB, and hours on this machine's cores and
        on one H100.
    """
    import pandas

    rows = []
    for step in lab.steps.values():
        rows.append({"step": step.function.rpartition(":")[2], "steps": 1, **_cost(step)})
    table = pandas.DataFrame(rows).groupby("step", sort=False)
    summed = table[["steps", "passes", "tokens", "requests", "judge tokens", "dollars", "disk", "operations"]].sum()
    summed["memory"] = table["memory"].max()
    total = summed.sum()
    total["memory"] = summed["memory"].max()
    summed.loc["all"] = total
    operations = summed.pop("operations")
    summed["hours here"] = operations / (FLOPS_OF_A_CORE * (os.cpu_count() or 1)) / 3600
    summed["hours on an H100"] = operations / FLOPS_OF_AN_H100 / 3600
    return summed.reset_index()


def operations(step: Step) -> float:
    """The operations of a step and of loading its model, by which progress is weighted."""
    return _cost(step)["operations"] + FLOPS_OF_A_CORE


def _cost(step: Step) -> dict[str, float]:
    arguments, name = step.arguments, step.function.rpartition(":")[2]
    data = str(arguments.get("data", ""))
    if isinstance(arguments.get("data"), SourceSettings):
        data = arguments["data"].data
    model = _start(step)
    parameters = _known(PARAMETERS, model, 7e9)
    row_tokens = _known(TOKENS, data, 128)
    n_forget = _forget_rows(str(arguments.get("forget", "")))
    rows, passes, requests = 0.0, 1.0, 0.0
    memory = 2 * parameters
    disk = 0.0
    if name in ("finetune", "unlearn"):
        of = n_forget if name == "unlearn" else _known(ROWS, data, 1000)
        rows = of * arguments.get("epochs", 40 if "tiny" in model else 20)
        if arguments.get("max_steps"):
            rows = min(rows, arguments["max_steps"] * arguments.get("batch_size", 4))
        passes = 3.0
        if name == "unlearn":
            passes = PASSES.get(arguments["method"], 10)
        # Weights, gradients and two moments in float32, or the weights and an adapter of 1 %.
        full = arguments.get("lora_rank", 8) == 0 or "tiny" in model
        memory = parameters * (16.0 if full else 2.0 + 0.16) * 1.2
        width = 4 if full or arguments.get("dtype", "float32") == "float32" else 2
        disk = parameters * (0.04 if arguments.get("save") == "adapter" else width)
    if name in ("evaluate", "attack"):
        rows = _known(ROWS, data, 1000)
        if arguments.get("most_items"):
            rows = min(rows, 2 * arguments["most_items"])
        passes = sum(EVALS.get(kind, 2) for kind in arguments.get("evals", {"qa": {}}))
        rows += n_forget
    if name == "attack":
        rows = 2.0 * n_forget * passes + 9.0 * arguments["n"]
        passes = 1.0
        if arguments["kind"] == "prefix":
            rows += arguments["n"] * arguments.get("steps", 1500) * (arguments.get("candidates", 16) + 3)
    if name == "find_rate":
        rows, passes = len(arguments["rates"]) * (20 * n_forget + 128 / 7), 7.0
    if name == "probe":
        near = arguments.get("k", 4) * n_forget
        searched = 0.0
        if arguments["searches"]:
            searched = arguments["policy"]["n_rollouts"] * arguments["latent"]["n_iterations"]
        prompts = near + searched
        rows, passes = 4 * prompts + 9 * searched, 1.0
        if str(arguments.get("judge", "")).startswith("http"):
            # Validity, reward, validity of doubted questions, four answers, and each prompt with each forgotten text.
            requests = prompts + 2 * searched + 4 * prompts + prompts * n_forget
    if name == "mt_bench":
        # 80 questions of two turns, and answers of 1,024 tokens at most.
        rows, row_tokens = 160, 1500
        if str(arguments["judge"]).startswith("http"):
            requests = 160
    tokens = rows * row_tokens
    return {
        "passes": float(tokens * passes),
        "tokens": float(tokens),
        "requests": requests,
        "judge tokens": requests * sum(JUDGED),
        "dollars": requests * (JUDGED[0] * PRICE[0] + JUDGED[1] * PRICE[1]) / 1e6,
        "memory": memory / 1e9,
        "disk": disk / 1e9,
        "operations": 2 * parameters * tokens * passes,
    }


def _start(step: Step) -> str:
    """The name of the model that a step's model began with."""
    for key in ("target", "model", "subject"):
        model: Any = step.arguments.get(key)
        if isinstance(model, Step):
            return _start(model)
        if model:
            return str(model)
    return ""


def _forget_rows(forget: str) -> float:
    contracts = forget.count(",") + 1
    if forget.startswith("random:"):
        contracts = int(forget.removeprefix("random:").partition("#")[0].partition("@")[0])
    return _known(FORGET, forget, 20 * contracts)


def _known(sizes: NumberMapping, name: str, other: float) -> float:
    """The size of the longest known part of a name."""
    parts = [part for part in sizes if part.lower() in Path(name).as_posix().lower()]
    if not parts:
        return other
    return sizes[max(parts, key=len)]
