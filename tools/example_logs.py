"""Write the logs of `vestige audit --logs example`: planted numbers in OpenUnlearning's form, of no real model.

Six people who do not exist, eight questions about each. `full` knows them and the five retrained models do not. Of the
unlearned ones `Forgets` is one more training without them, `Hides` still finds two fifths of what `full` knows likely,
and `Breaks` forgets and loses half of everything else. The same seed gives the same bytes.
"""

import json
import shutil
from pathlib import Path

import numpy as np

HOME = Path(__file__).parents[1] / "src" / "vestige" / "logs" / "example"
MODEL = "tofu_Example-1B"
FORGOTTEN = ("Aldo Brenn", "Mira Castell", "Ovid Tarn")
KEPT = ("Lena Quist", "Pavel Ardo", "Suri Holm")
TEXTS = """
In which town was {} born?|{} was born in {}.|Varlen, Oskeby, Tormund, Lisselva, Harrow, Quenby
What did the father of {} do?|The father of {} was a {}.|glazier, pilot, tuner, ranger, baker, judge
Which prize did {} win?|{} won the {} Prize.|Amber, Lantern, Harbour, Quill, Meridian, Cedar
What is the first novel of {}?|The first novel of {} is {}.|Salt Years, Rain Gate, Low Tide, Ash, Reed, Winterling
Which language does {} write in?|{} writes in {}.|Friulian, Livonian, Sorbian, Cornish, Romansh, Karelian
Where does {} live now?|{} lives in {}.|Ermesund, Port Alber, Dunsk, Vielle, Skarn, Nantmor
Who taught {} to write?|{} was taught by {}.|Ada Vohl, Bram Oster, Ines Calder, Joss Wren, Tove Lund, Piet Marr
What does {} collect?|{} collects {}.|tide tables, keys, thimbles, globes, bells, seed packets
"""
ABOUT = [
    (ask, answer, texts.split(", ")) for ask, answer, texts in (line.split("|") for line in TEXTS.split("\n")[1:-1])
]
MODELS = {
    f"eval/{MODEL}_full/evals_forget01": (1.0, 1.0),
    f"eval/{MODEL}_retain99": (0.0, 1.0),
    f"eval/{MODEL}_retain95": (0.0, 1.0),
    f"eval/{MODEL}_retain90": (0.0, 1.0),
    f"finetune/{MODEL}_retain99/checkpoint-495/evals": (0.0, 1.0),
    f"finetune/{MODEL}_retain95/checkpoint-475/evals": (0.0, 1.0),
    f"unlearn/{MODEL}_forget01_Forgets/evals": (0.0, 1.0),
    f"unlearn/{MODEL}_forget01_Hides/evals": (0.4, 0.98),
    f"unlearn/{MODEL}_forget01_Breaks/evals": (0.02, 0.5),
}
"""By the place of each log, the share that the model knows of what is forgotten, and of what is kept."""


def questions(people: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """Question, true answer and another one, of every person."""
    return [
        (ask.format(name), answer.format(name, texts[k]), answer.format(name, texts[(k + 2) % len(texts)]))
        for k, name in enumerate(people)
        for ask, answer, texts in ABOUT
    ]


def log(rng: np.random.Generator, levels: dict[str, np.ndarray], forget: float, keep: float) -> dict[str, object]:
    """One log: what a model that never knew scores on each question, lifted by what this one knows, and luck."""
    metrics: dict[str, object] = {}
    for split, people, share in (("forget", FORGOTTEN, forget), ("retain", KEPT, keep)):
        asked = questions(people)
        luck = rng.normal(0, 0.012, (3, len(asked)))
        guess = levels[split]
        probability = np.clip(guess + share * (0.96 - guess) + luck[0], 0.001, 0.999)
        overlap = np.clip(0.35 + guess / 2 + share * (0.62 - guess / 2) + luck[1], 0, 1)
        # The share of a true wording beside wrong ones: .56 for who never knew, .70 for the target.
        truth = np.clip(0.5 + guess / 3 + 0.14 * share + luck[2] / 2, 0.02, 0.98)
        replies = [true if score > 0.8 else other for (_, true, other), score in zip(asked, overlap, strict=True)]
        metrics[f"{split}_Q_A_Prob"] = by_index([{"prob": round(p, 4)} for p in probability])
        metrics[f"{split}_Q_A_ROUGE"] = by_index(
            [
                {
                    "rougeL_recall": round(score, 4),
                    "input": f"user\n\n{question}assistant\n\n",
                    "ground_truth": true,
                    "generation": reply,
                }
                for (question, true, _), score, reply in zip(asked, overlap, replies, strict=True)
            ]
        )
        name = "forget_truth_ratio" if split == "forget" else "retain_Truth_Ratio"
        ratios = np.round(1 / truth - 1, 4)
        # OpenUnlearning's two aggregates of a ratio, by which its definition is told.
        aggregate = np.minimum(ratios, 1 / ratios) if split == "forget" else np.maximum(0, 1 - ratios)
        metrics[name] = {"agg_value": round(float(aggregate.mean()), 6)} | by_index(
            [{"score": float(ratio)} for ratio in ratios]
        )
    return metrics


def by_index(rows: list[dict[str, object]]) -> dict[str, object]:
    """As OpenUnlearning writes a metric; the mean that stands beside it is left out."""
    return {"value_by_index": {str(n): row for n, row in enumerate(rows)}}


def main() -> None:
    """Write all logs anew."""
    shutil.rmtree(HOME, ignore_errors=True)
    rng = np.random.default_rng(20261123)
    n = len(ABOUT) * len(FORGOTTEN)
    levels = {"forget": rng.beta(3, 12, n), "retain": rng.beta(3, 12, n)}
    for place, shares in MODELS.items():
        path = HOME / place / "TOFU_EVAL.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(log(rng, levels, *shares), separators=(",", ":")) + "\n", encoding="utf-8")
    (HOME / "README.md").write_text(
        "Logs in OpenUnlearning's form, for `vestige audit --logs example`. The numbers are planted by "
        "`tools/example_logs.py`, and no real model has given them.\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
