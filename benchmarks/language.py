"""The tables of docs/findings/language.md, from the stored score of every question.

`python -m benchmarks.language` prints them without a model, in seconds. results/capitals.csv.gz comes from
`benchmarks.capitals`. results/pistol.csv.gz has ROUGE-1 of `vestige experiment pistol-q1`, `pistol-q2` and
`pistol-q3`, whose tables folder holds it as items.csv.gz. `training` tells the three taught targets apart.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

import vestige
from benchmarks import capitals, table
from vestige.core.text import Fields

RESULTS = Path(__file__).parent / "results"
MODELS = ("base", *capitals.UNLEARNED)
SCORES = ("free reply", "option by text", "option by letter", "probability")


def number(value: float, *, signed: bool = False) -> str:
    """A number with two digits and a true minus."""
    text = f"{value:+.2f}" if signed else f"{value:.2f}"
    return text.replace("-", "−")


def ranged(row: Any, value: str, *, signed: bool = False) -> str:
    """A number with its interval."""
    return f"{number(row[value], signed=signed)} [{number(row['low'])}, {number(row['high'])}]"


def chance(p: float) -> str:
    """A p-value."""
    if p < 0.001:
        return "< 0.001"
    return f"{p:.3f}"


def formats(found: Fields) -> str:
    """Each model in three formats, before any attack."""
    pooled = found["Scores"].set_index(["model", "split", "metric"])
    rows = []
    for model in MODELS:
        cells = [ranged(pooled.loc[model, "forget", name], "mean") for name in SCORES]
        rows.append([model, *cells, ranged(pooled.loc[model, "retain", "free reply"], "mean")])
    return table(["model", *SCORES, "kept: free reply"], rows)


def relearned(found: Fields) -> str:
    """Relearning on the kept capitals: forgotten ones beside those that the base model never named."""
    gains = found["Gains"].set_index(["attack", "model", "metric"])
    beyond = found["Gains beyond capitals that were never named"].set_index(["attack", "model", "metric"])
    rows = []
    for model in MODELS:
        # It changes no score, so it was not attacked.
        if ("retain", model, "free reply") not in gains.index:
            continue
        cells = [model]
        for name in ("free reply", "option by text", "probability"):
            for attack in ("retain", "retain" + capitals.UNKNOWN):
                gain = gains.loc[attack, model, name]
                cells.append(f"{number(gain['before'])} to {number(gain['after'])}")
            cells.append(ranged(beyond.loc["retain", model, name], "beyond", signed=True))
        rows.append(cells)
    columns = ["model"]
    for name in ("free reply", "option by text", "probability"):
        columns += [f"{name}, forgotten", "never named", "beyond"]
    return table(columns, rows)


def prefixes(found: Fields) -> str:
    """A searched prefix at several lengths, and with its tokens shuffled."""
    scores = found["The prefix cut short"].set_index("model")
    rows = []
    for attack, models in scores[scores["attack"] != ""].groupby("attack", sort=False):
        base, unlearned = models.loc["base"], models.loc["NPO-GD 1e-4"]
        cells = [base["free reply"], base["option by text"], unlearned["free reply"], unlearned["option by text"]]
        rows.append([str(attack).removeprefix("prefix n=7, "), *map(number, cells)])
    columns = ["length", "base: free reply", "base: option by text", "NPO-GD: free reply", "NPO-GD: option by text"]
    return table(columns, rows)


def holes(found: Fields) -> str:
    """Lost answers to adjacent questions, beside two benchmarks."""
    lost = found["Lost harmless knowledge"].set_index(["questions", "model"])
    rows = []
    for model in (*MODELS[1:], "placebo"):
        if ("adjacent", model) not in lost.index:
            continue
        row = lost.loc["adjacent", model]
        cells = [model, number(row["after"]), f"{row['down']:.0f}", f"{row['up']:.0f}"]
        cells += [ranged(row, "lost", signed=True), chance(row["p"])]
        for name in ("MMLU", "TruthfulQA"):
            cells.append(ranged(lost.loc[name, model], "lost", signed=True))
        rows.append(cells)
    right = [lost.loc[name, "placebo"]["base"] for name in ("adjacent", "MMLU", "TruthfulQA")]
    columns = ["model", f"adjacent, base {number(right[0])}", "holes", "gained", "lost", "p"]
    return table([*columns, f"lost of MMLU, base {number(right[1])}", f"of TruthfulQA, {number(right[2])}"], rows)


def contracts(scores: Any) -> str:
    """PISTOL, question 1: a well-connected contract beside another, after each training of the target."""
    scores = scores[scores["set"].isin(["AB", "AC"])]
    # Differences are the second set less the first.
    scores = scores.sort_values(["method", "rate", "set"], ascending=[True, True, False])
    forgotten = scores[scores["split"] == "forget"]
    key = ["method", "rate"]
    each = forgotten.groupby([*key, "training", "set"])["value"].mean().map(number)
    kept = scores[scores["split"] == "retain"].groupby([*key, "set"])["value"].mean().map(number)
    pairs: Any = vestige.pool(forgotten, by=key, compare="set", match="attribute").set_index(key)
    rows = []
    for method, rate in pairs.index:
        cells = [f"{method} {rate}".strip()]
        for training in (1, 2, 3):
            place = (method, rate, training)
            cells.append(f"{each[(*place, 'AB')]}, {each[(*place, 'AC')]}" if (*place, "AB") in each.index else "")
        cells.append(f"{kept[method, rate, 'AB']}, {kept[method, rate, 'AC']}")
        cells.append(ranged(pairs.loc[method, rate], "difference", signed=True))
        rows.append(cells)
    columns = ["method, rate", "first: AB, AC", "second: AB, AC", "third: AB, AC", "kept after AB, AC"]
    return table([*columns, "AB − AC of all trainings"], rows)


def sizes(scores: Any) -> str:
    """PISTOL, question 2: three contracts beside one, and the same retained questions after both."""
    kept = scores[(scores["training"] == 2) & (scores["split"] == "retain") & scores["set"].isin(["AC", "AC AC2 AC3"])]
    kept = kept[kept["method"] != "target"].sort_values(["method", "rate", "set"])
    key = ["method", "rate"]
    pairs: Any = vestige.pool(kept, by=key, compare="set").set_index(key)
    means = kept.groupby([*key, "set"])["value"].mean().map(number)
    rows = []
    for place, pair in pairs.iterrows():
        cells = [means[(*place, name)] for name in ("AC", "AC AC2 AC3")]
        rows.append([" ".join(place), *cells, ranged(pair, "difference", signed=True), chance(pair["p_holm"])])
    return table(["method, rate", "kept after one contract", "after three", "difference", "p (Holm)"], rows)


def types(scores: Any) -> str:
    """PISTOL, question 3: contracts of both types, which hang together with nothing that is forgotten."""
    both = scores[scores["set"].isin(["AC", "An"])]
    key = ["set", "method", "rate"]
    means = both.groupby([*key, "split"])["value"].mean().unstack().dropna()
    trainings = both.groupby(key)["training"].nunique()
    rows = []
    for place, row in means.iterrows():
        cells = [number(row[name]) for name in ("forget", "independent_sales", "independent_employment")]
        rows.append([" ".join(map(str, place)).strip(), f"{trainings[place]}", *cells])
    return table(["set, method, rate", "trainings", "forgotten", "sales (7)", "employment (10)"], rows)


def pages() -> Iterator[tuple[str, str]]:
    """Each table with its title."""
    found = capitals.tables(pd.read_csv(RESULTS / "capitals.csv.gz"))
    yield "formats", formats(found)
    yield "relearned", relearned(found)
    yield "prefixes", prefixes(found)
    yield "holes", holes(found)
    scores = pd.read_csv(RESULTS / "pistol.csv.gz", keep_default_na=False, dtype={"rate": str})
    yield "contracts", contracts(scores)
    yield "sizes", sizes(scores)
    yield "types", types(scores)


if __name__ == "__main__":
    for title, text in pages():
        print(f"{title}\n\n{text}\n")
