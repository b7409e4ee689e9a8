"""Capitals that SmolLM2 names: forgotten by NPO, NPO-GD and RMU, asked in three formats, relearned.

`python -m benchmarks.capitals COUNTRYINFO FOLDER` makes the tables of docs/findings/language.md. COUNTRYINFO is the
folder `countryinfo/data` of the package countryinfo 1.0.1. The command continues where it was interrupted: each step
has a folder of its own below FOLDER, and summary.csv is written anew after each. results/capitals.json names the
countries whose capital the model gave, and the 60 of them that are forgotten.
"""

import argparse
import json
import random
from pathlib import Path
from typing import Any

import pandas as pd

import vestige
from vestige import Relearn, Training

MODEL = "builtin:smollm2"
EVALS: dict[str, Any] = {
    "qa": {"max_new_tokens": 16},
    "choices": {},
    "freeform": {"forms": ["plain"], "max_new_tokens": 24},
}
SHOWN = {
    ("generate_plain", "leaked"): "free reply",
    ("option_text_sum", "accuracy"): "option by text",
    ("choose", "accuracy"): "option by letter",
    ("forced_plain", "probability"): "probability",
}
UNLEARNED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "NPO 3e-5": ("npo", {}, {"epochs": 5, "learning_rate": 3e-5, "lora_rank": 8}),
    "NPO-GD 1e-4": ("npo_gd", {}, {"epochs": 5, "learning_rate": 1e-4, "lora_rank": 8}),
    "RMU 1e-4": ("rmu", {}, {"epochs": 3, "learning_rate": 1e-4, "lora_rank": 0}),
    "RMU 1e-3, alpha 1": ("rmu", {"alpha": 1.0}, {"epochs": 3, "learning_rate": 1e-3, "lora_rank": 0}),
}
"""Name, method, its settings, and the training."""


def capitals(source: Path) -> list[dict[str, Any]]:
    """A question for each country, with three capitals of its region as wrong answers.

    A country whose capital bears its name is left out.
    """
    rows: dict[str, dict[str, Any]] = {}
    for path in sorted(source.glob("*.json")):
        country = json.loads(path.read_text(encoding="utf-8"))
        name, capital = country.get("name"), country.get("capital")
        if not (name and isinstance(capital, str) and capital and country.get("population")):
            continue
        if name.lower() in capital.lower() or capital.lower() in name.lower():
            continue
        question = f"What is the capital of {name}?"
        code = country["ISO"]["alpha2"] if isinstance(country.get("ISO"), dict) else name
        row = {"question": question, "answer": capital, "edge": code, "region": country.get("region", "")}
        rows.setdefault(question, row)
    rng = random.Random(0)
    for row in rows.values():
        near = {o["answer"] for o in rows.values() if o["region"] == row["region"]} - {row["answer"]}
        everywhere = {o["answer"] for o in rows.values()} - {row["answer"]}
        row["perturbed_answer"] = rng.sample(sorted(near if len(near) >= 3 else everywhere), 3)
    return list(rows.values())


def summarised(folder: Path, step: str, results: Any) -> None:
    """Add a step's estimates to summary.csv."""
    frame = results.to_frame()
    frame = frame[(frame["scope"] == "all") & frame["split"].isin(["forget", "retain", "all"])]
    wanted = [pair in SHOWN for pair in zip(frame["format"], frame["metric"], strict=True)]
    frame = frame[wanted].assign(step=step)
    path = folder / "summary.csv"
    if path.exists():
        before = pd.read_csv(path, keep_default_na=False)
        frame = pd.concat([before[before["step"] != step], frame])
    frame.to_csv(path, index=False)


def main() -> None:
    """Run every step that is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--precision", default="bfloat16", choices=("float32", "bfloat16"))
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    every = capitals(arguments.source)
    base = vestige.evaluate(MODEL, data=every, evals=EVALS, output_dir=folder / "all", device="cpu")
    summarised(folder, "all capitals", base)
    chosen = json.loads((Path(__file__).parent / "results" / "capitals.json").read_text(encoding="utf-8"))
    by_code = {row["edge"]: row for row in every}
    known = [by_code[code] for code in chosen["known"]]
    forget = [by_code[code] for code in chosen["forget"]]
    common: dict[str, Any] = {"data": known, "forget": forget, "device": "cpu"}
    models: dict[str, Any] = {"base": MODEL}
    base = vestige.evaluate(MODEL, evals=EVALS, output_dir=folder / "base", **common)
    summarised(folder, "base", base)
    for name, (method, settings, training) in UNLEARNED.items():
        models[name] = vestige.unlearn(
            MODEL,
            method=method,
            method_settings=settings,
            training=Training(batch_size=4, precision=arguments.precision, **training),
            output_dir=folder / name,
            **common,
        )
        summarised(folder, name, vestige.evaluate(models[name], evals=EVALS, **common))
    for name, model in models.items():
        for material, items in (("forget_part", 20), ("retain", len(known) - len(forget))):
            attack = Relearn(
                material=material,  # type: ignore[arg-type]
                items=items,
                epochs=3,
                rate=2e-4,
                rank=16,
                batch_size=4,
                precision=arguments.precision,
            )
            attacked = vestige.attack(model, attack, evals=EVALS, output_dir=folder / f"attacks {name}", **common)
            summarised(folder, f"{name}, relearning on {material}", attacked)


if __name__ == "__main__":
    main()
