"""Capitals that SmolLM2 names: forgotten by NPO, NPO-GD and RMU, asked in three formats, relearned, prompted.

`python -m benchmarks.capitals COUNTRYINFO FOLDER` makes the tables of docs/findings/language.md. COUNTRYINFO is the
folder `countryinfo/data` of the package countryinfo 1.0.1. The command continues where it was interrupted: each step
has a folder of its own below FOLDER. FOLDER/records.csv.gz has the score of every question. Those of the page are
results/capitals.csv.gz, and `benchmarks.language` makes its tables from them. results/capitals.json names the countries
whose capital the model gave, and the 60 of them that are forgotten. Another 60, which it did not name, are the control
of the attacks.

Lost harmless knowledge is looked for in further questions about the 60 countries, and in `--benchmark NAME=FILE`, any
multiple-choice data that Vestige reads. A training on the kept capitals alone is the placebo. `--conversations FILE`
and `--judge` add MT-Bench's questions with their grades.
"""

import itertools
import json
import os
import random
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import binomtest

import vestige
from benchmarks import options
from vestige import Relearn, SourceSettings, Training
from vestige.attacks.planning import find_attack
from vestige.core.text import Fields
from vestige.experiments.mt_bench import mt_bench
from vestige.experiments.tables import as_markdown, write

MODEL = "builtin:smollm2"
EVALS: Fields = {
    "qa": {"max_new_tokens": 16},
    "choices": {},
    "freeform": {"forms": ["plain"], "max_new_tokens": 24},
}
SHOWN = {
    "freeform.generate_plain/leaked": "free reply",
    "choices.option_text_sum/accuracy": "option by text",
    "choices.choose/accuracy": "option by letter",
    "freeform.forced_plain/probability": "probability",
}
UNKNOWN = ", unknown capitals"
"""Marks the attacks on capitals that the base model never named."""
PRECISION: Any = "bfloat16"
"""Number format of matrix products in training."""
ANSWER_TOKENS = 256
"""Longest answer in a conversation."""
PAIRED = ("free reply", "option by text", "option by letter")
"""The scores that are 0 or 1, for exact tests."""
UNLEARNED: dict[str, tuple[str, Fields, Fields]] = {
    "NPO 3e-5": ("npo", {}, {"epochs": 5, "learning_rate": 3e-5, "lora_rank": 8}),
    "NPO-GD 1e-4": ("npo_gd", {}, {"epochs": 5, "learning_rate": 1e-4, "lora_rank": 8}),
    "RMU 1e-4": ("rmu", {}, {"epochs": 3, "learning_rate": 1e-4, "lora_rank": 0}),
    "LLMU 1e-4": ("llmu", {}, {"epochs": 5, "learning_rate": 1e-4, "lora_rank": 8}),
    "RMU 1e-3, alpha 1": ("rmu", {"alpha": 1.0}, {"epochs": 3, "learning_rate": 1e-3, "lora_rank": 0}),
}
"""Name, method, its settings, and the training."""


def capitals(source: Path) -> list[Fields]:
    """A question for each country, with three capitals of its region as wrong answers.

    A country whose capital bears its name is left out.
    """
    rows: dict[str, Fields] = {}
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


def adjacent(source: Path, codes: Collection[str]) -> list[Fields]:
    """Questions about the continent, the people, the currency and the domain of these countries.

    America is left out as a continent, which replies part in two.
    """
    rows = []
    for path in sorted(source.glob("*.json")):
        country = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(country.get("ISO"), dict) or country["ISO"]["alpha2"] not in codes:
            continue
        name = country["name"]
        asked = {
            f"What are the people of {name} called?": country.get("demonym"),
            f"What is the three-letter code of the currency of {name}?": (country.get("currencies") or [None])[0],
            f"What is the internet domain of {name}?": (country.get("tld") or [None])[0],
        }
        if country["region"] != "Americas":
            asked[f"On which continent is {name}?"] = country["region"]
        for question, answer in asked.items():
            if answer:
                rows.append({"question": question, "answer": answer, "edge": country["ISO"]["alpha2"]})
    return rows


def exact_test(first: Any, second: Any) -> dict[str, float]:
    """McNemar's exact test of paired scores: how many rose and fell from first to second, and p."""
    up, down = int((second > first).sum()), int((second < first).sum())
    # Without a difference p is 1.
    return {"up": up, "down": down, "p": binomtest(up, max(1, up + down)).pvalue}


def interval(values: Any) -> dict[str, float]:
    """The ends of a bootstrap's 95 % interval of the mean."""
    return dict(zip(("low", "high"), np.quantile(means(values, 0), [0.025, 0.975]), strict=True))


def means(values: Any, seed: int) -> Any:
    """The means of 10,000 resamples."""
    draws = np.random.default_rng(seed).integers(len(values), size=(10_000, len(values)))
    return values[draws].mean(axis=1)


def scores(results: Any, **columns: Any) -> pd.DataFrame:
    """The score of each question, with the columns that tell its model and attack."""
    frame: pd.DataFrame = results.items()
    frame = frame[frame["metric"].isin(SHOWN) & frame["split"].isin(["forget", "retain"])]
    return frame.assign(metric=frame["metric"].map(SHOWN), part="scores", **columns)


def attacked(results: Any, **columns: Any) -> pd.DataFrame:
    """The scores of the tested questions before the attack and after its last point."""
    frame = scores(results, **columns).assign(part="attacks")
    frame = frame[(frame["split"] == "forget") & frame["attack"].isin(["", frame["attack"].iloc[-1]])]
    frame["stage"] = np.where(frame["attack"] == "", "before", "after")
    return frame


def cut_short(result: Any, **columns: Any) -> pd.DataFrame:
    """The scores of the tested questions at each length of a prefix, and the bits that it carries and they need."""
    frame = result.items()
    frame = frame[frame["split"] == "forget"]
    missing = frame[(frame["attack"] == "") & (frame["metric"] == "qa.answer_bits")]["value"]
    bits = {"bits carried": min(result.spent["bounds_bits"].values()), "bits needed": -float(missing.sum())}
    shown = frame[frame["metric"].isin(SHOWN)]
    shown = shown.assign(metric=shown["metric"].map(SHOWN))
    rows = [{"attack": "", "metric": name, "value": value} for name, value in bits.items()]
    both: pd.DataFrame = pd.concat([shown, pd.DataFrame(rows)])
    return both.assign(part="prefix", **columns)


def gains(frame: pd.DataFrame) -> pd.DataFrame:
    """Score after less score before, by question."""
    keys = ["model", "attack", "metric", "item"]
    wide = frame.pivot(index=keys, columns="stage", values="value").reset_index()
    return wide.assign(gain=wide["after"] - wide["before"])


def beyond_unknown(gained: pd.DataFrame) -> pd.DataFrame:
    """Each model's gain for capitals to forget, less its gain for capitals that the base model never named.

    `p` is that of the gain for the latter. The groups hold different questions, so each is resampled by itself.
    """
    rows = []
    for (attack, model, metric), group in gained.groupby(["attack", "model", "metric"], sort=False):
        never = gained.query("attack == @attack + @UNKNOWN and model == @model and metric == @metric")
        if never.empty:
            continue
        known, unknown = group["gain"].to_numpy(), never["gain"].to_numpy()
        low, high = np.quantile(means(known, 0) - means(unknown, 1), [0.025, 0.975])
        row = {"attack": attack, "model": model, "metric": metric, "known": known.mean(), "unknown": unknown.mean()}
        row |= {"p": exact_test(never["before"], never["after"])["p"], "beyond": known.mean() - unknown.mean()}
        rows.append({**row, "low": low, "high": high})
    return pd.DataFrame(rows)


def exact_tests(frame: pd.DataFrame) -> pd.DataFrame:
    """McNemar's exact test between any two models, of the questions to forget, at the first seed."""
    rows = []
    frame = frame[(frame["split"] == "forget") & (frame["seed"] == 0) & frame["metric"].isin(PAIRED)]
    for metric, group in frame.groupby("metric", sort=False):
        wide = group.pivot(index="item", columns="model", values="value")
        for first, second in itertools.combinations(wide.columns, 2):
            means = {"of first": wide[first].mean(), "of second": wide[second].mean()}
            test = exact_test(wide[first], wide[second])
            rows.append({"metric": metric, "first": first, "second": second, **means, **test})
    tests = pd.DataFrame(rows)
    # Two metrics turn a pair round where both tell it apart after Bonferroni, in opposite directions.
    tests["p times tests"] = np.minimum(1.0, tests["p"] * len(tests))
    return tests


def losses(frame: pd.DataFrame) -> pd.DataFrame:
    """Each model beside the base on the same harmless questions: right before and after, holes, and the exact test."""
    rows = []
    for name, group in frame.groupby("questions", sort=False):
        wide = group.pivot(index="item", columns="model", values="value")
        for model in wide.columns.drop("base"):
            lost = (wide["base"] - wide[model]).to_numpy()
            row = {"questions": name, "model": model, "base": wide["base"].mean(), "after": wide[model].mean()}
            # A hole is a fall.
            row |= {"lost": lost.mean(), **interval(lost), **exact_test(wide["base"], wide[model])}
            rows.append({**row, "asked": len(lost)})
    return pd.DataFrame(rows)


def grades(frame: pd.DataFrame) -> pd.DataFrame:
    """Each model's mean grade in both turns, and its loss on the answers that were graded for the base model too."""
    wide = frame.pivot(index=["questions", "item"], columns="model", values="value")
    rows = []
    for model in wide.columns.drop("base"):
        both = wide[["base", model]].dropna()
        by_question = both.groupby("item").mean()
        # Both turns of a conversation are drawn together.
        lost = (by_question["base"] - by_question[model]).to_numpy()
        row = {"model": model, "base": by_question["base"].mean(), "after": by_question[model].mean()}
        rows.append({**row, "lost": lost.mean(), **interval(lost), "graded": len(both), "asked": len(wide)})
    return pd.DataFrame(rows)


COLUMNS = ("part", "model", "seed", "questions", "attack_on", "attack", "stage", "split", "metric", "item", "value")


def tables(records: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The tables of the parts that the records have."""
    found = {}
    parts = {str(name): frame for name, frame in records.groupby("part", sort=False)}
    if "scores" in parts:
        found["Scores"] = vestige.pool(parts["scores"], by=("model", "split", "metric"))
        found["Exact tests between models"] = exact_tests(parts["scores"])
    if "harmless" in parts:
        found["Lost harmless knowledge"] = losses(parts["harmless"])
    if "conversations" in parts:
        found["Grades of conversations"] = grades(parts["conversations"])
    if "attacks" in parts:
        gained = gains(parts["attacks"].drop(columns="attack").rename(columns={"attack_on": "attack"}))
        by_attack = gained.groupby(["attack", "model", "metric"], sort=False)[["before", "after", "gain"]]
        found["Gains"] = by_attack.mean().reset_index()
        found["Gains beyond capitals that were never named"] = beyond_unknown(gained)
    if "prefix" in parts:
        # Each prefix is shown with its model, from the whole one down to none.
        by_length = parts["prefix"].fillna({"attack": ""}).groupby(["model", "attack", "metric"], sort=False)
        found["The prefix cut short"] = by_length["value"].mean().unstack().reset_index()
    return found


class Trial(NamedTuple):
    """The questions, the folder of the steps, and how models are trained."""

    folder: Path
    near: list[Fields]
    known: list[Fields]
    forget: list[Fields]
    unknown: list[Fields]
    records: list[pd.DataFrame]

    @property
    def common(self) -> Fields:
        """The data of every step about the capitals to forget."""
        return {"data": self.known, "forget": self.forget, "device": "cpu"}

    @property
    def kept(self) -> list[Fields]:
        """The questions that no method forgets."""
        return [row for row in self.known if row not in self.forget]

    def keep(self, frames: list[pd.DataFrame]) -> None:
        """Add the scores of a stage to the records, and print its tables, so that an interruption loses none."""
        frame = pd.concat(frames)
        self.records.append(frame)
        kept = pd.concat(self.records).reindex(columns=COLUMNS)
        kept.to_csv(self.folder / "records.csv.gz", index=False, compression={"method": "gzip", "mtime": 0})
        found = tables(kept[kept["part"].isin(frame["part"])])
        write(found, self.folder / "tables" / next(iter(found)))
        for title, table in found.items():
            print(f"\n{title}\n\n{as_markdown(table)}")


def unlearned(trial: Trial, seeds: int) -> Fields:
    """Train every method at every seed and ask the models. The base model and those of the first seed by name."""
    models: Fields = {"base": MODEL}
    base = vestige.evaluate(MODEL, evals=EVALS, output_dir=trial.folder / "base", **trial.common)
    asked = []
    for seed in range(seeds):
        asked.append(scores(base, model="base", seed=seed))
        for name, (method, settings, training) in UNLEARNED.items():
            place = name
            if seed:
                place = f"{name}, seed {seed}"
            model = vestige.unlearn(
                MODEL,
                method=method,
                method_settings=settings,
                seed=seed,
                training=Training(batch_size=4, precision=PRECISION, **training),
                output_dir=trial.folder / place,
                **trial.common,
            )
            models.setdefault(name, model)
            asked.append(scores(vestige.evaluate(model, evals=EVALS, **trial.common), model=name, seed=seed))
    trial.keep(asked)
    return models


def harmless(trial: Trial, models: Fields, benchmarks: list[str]) -> Any:
    """Ask harmless questions of every model and of the placebo, which learns the kept capitals alone.

    The placebo is returned.
    """
    training = Training(
        batch_size=4, precision=PRECISION, epochs=11, learning_rate=1e-4, lora_rank=8, weight_decay=0.01
    )
    placebo = vestige.finetune(
        MODEL, data=trial.kept, output_dir=trial.folder / "placebo", training=training, device="cpu"
    )
    asked: list[Any] = [("adjacent", trial.near, {"freeform": EVALS["freeform"]}, "freeform.generate_plain/leaked")]
    for pair in benchmarks:
        title, _, path = pair.partition("=")
        source = SourceSettings(data=path, limit="150")
        asked.append((title, source, {"choices": {}}, "choices.option_text_mean/accuracy"))
    found = []
    for name, model in {**models, "placebo": placebo}.items():
        place = trial.folder / "base" if name == "base" else None
        for title, data, evals, metric in asked:
            frame = vestige.evaluate(model, data=data, evals=evals, output_dir=place, device="cpu").items()
            found.append(frame[frame["metric"] == metric].assign(model=name, questions=title, part="harmless"))
    trial.keep(found)
    return placebo


def conversations(trial: Trial, models: Fields, questions: str, judge: str) -> None:
    """Ask the models MT-Bench's questions, and have both answers of each conversation graded."""
    found = []
    for name, model in models.items():
        folder = trial.folder / "mt-bench" / name
        mt_bench(os.fspath(model), questions, judge, folder, answer_tokens=ANSWER_TOKENS, device="cpu")
        frame = pd.read_json(folder / "grades.jsonl", lines=True)
        # The same question has the same number in every model's file.
        frame["item"] = frame.groupby("turn").cumcount()
        columns = {"turn": "questions", "grade": "value"}
        found.append(frame.rename(columns=columns).assign(model=name, part="conversations"))
    trial.keep(found)


def relearned(trial: Trial, models: Fields) -> None:
    """Relearn on some of the forgotten capitals and on the kept ones, and do the same for capitals never named."""
    # All that a model gains for capitals that it never named, the attack gave it.
    never = {"data": [*trial.unknown, *trial.kept], "forget": trial.unknown, "device": "cpu"}
    after = []
    for name, model in models.items():
        for material, items in (("forget_part", 20), ("retain", len(trial.kept))):
            attack = Relearn(
                material=material,  # type: ignore[arg-type]
                items=items,
                epochs=3,
                rate=2e-4,
                rank=16,
                batch_size=4,
                precision=PRECISION,
            )
            for which, data in (("", trial.common), (UNKNOWN, never)):
                place = trial.folder / f"attacks {name}{which}"
                result = vestige.attack(model, attack, evals=EVALS, output_dir=place, **data)
                after.append(attacked(result, model=name, attack_on=f"{material}{which}"))
    trial.keep(after)


def prefixed(trial: Trial, models: Fields, steps: int) -> None:
    """Search a prefix for the base model and for NPO-GD, and ask with it cut short."""
    prefix = find_attack("prefix").build({"items": 7, "tokens": 100, "steps": steps, "candidates": 16})
    for name in ("base", "NPO-GD 1e-4"):
        result = vestige.attack(
            models[name],
            prefix,
            target=MODEL,
            evals=EVALS,
            output_dir=trial.folder / f"attacks {name}",
            **trial.common,
        )
        trial.keep([cut_short(result, model=name)])


def main() -> None:
    """Run every step that is missing. Each stage writes its tables."""
    parser = options(__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each method")
    parser.add_argument("--prefix-steps", type=int, default=20, help="steps of the prefix search; 0 leaves it out")
    parser.add_argument("--benchmark", action="append", default=[], help="NAME=FILE of multiple-choice questions")
    parser.add_argument("--conversations", help="MT-Bench's questions")
    parser.add_argument("--judge", help="who grades the conversations, as for `vestige probe`")
    words = parser.parse_args()
    if words.conversations and not words.judge:
        parser.error("--conversations needs --judge.")
    every = capitals(words.source)
    chosen = json.loads((Path(__file__).parent / "results" / "capitals.json").read_text(encoding="utf-8"))
    by_code = {row["edge"]: row for row in every}
    forget = [by_code[code] for code in chosen["forget"]]
    never = [row for row in every if row["edge"] not in chosen["known"]]
    trial = Trial(
        folder=words.folder,
        near=adjacent(words.source, chosen["forget"]),
        known=[by_code[code] for code in chosen["known"]],
        forget=forget,
        unknown=random.Random(0).sample(never, len(forget)),
        records=[],
    )
    models = unlearned(trial, words.seeds)
    # It changes no score, so it is neither asked more nor attacked.
    del models["RMU 1e-4"]
    placebo = harmless(trial, models, words.benchmark)
    if words.conversations:
        conversations(trial, {**models, "placebo": placebo}, words.conversations, words.judge)
    relearned(trial, models)
    if words.prefix_steps:
        prefixed(trial, models, words.prefix_steps)


if __name__ == "__main__":
    main()
