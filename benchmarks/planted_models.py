"""Audits of planted models: tables that are asked by the real evaluations, where `planted_cases` draws the scores.

Each repetition draws facts (which of ten places each answer is, and three wrong ones beside it), the target's
competence and all luck. The forget set is sixty questions about three contracts. A table cannot be trained, so that an
attack is a second table, and cannot copy from its prompt, so that no prefix is planted here.

`python -m benchmarks.planted_models` counts as `benchmarks.planted` does.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

from benchmarks.planted import Seen, counted, exam_table
from benchmarks.planted_tables import guesses, over_forgotten, refuses, suppressed
from vestige.artifacts.audits import AuditPlan, Carried, PlannedAttack
from vestige.artifacts.scores import Source
from vestige.auditing.gather import QA_FORCED, own_table
from vestige.auditing.ground import Case
from vestige.auditing.judge import judge
from vestige.auditing.settings import AuditSettings
from vestige.core.items import Item
from vestige.core.seeds import derive_seed, generator
from vestige.evals.base import View
from vestige.evals.choices import ChoicesSettings
from vestige.evals.freeform import FreeformSettings
from vestige.evals.qa import QASettings
from vestige.metrics.verdicts import Thresholds
from vestige.models.load import LoadedModel
from vestige.models.tiny import tiny_tokenizer

N_FORGET, N_RETAIN, EDGE, OPTIONS = 60, 80, 20, 4
RELEARN = "relearn retain n=50"
IDK = ("I do not know.", "That is not known to me.")
# Of one word each, so that no answer stands in another one.
PLACES = ("Berlin", "Paris", "Rome", "Oslo", "Lima", "Quito", "Athens", "Dublin", "Madrid", "Vienna")


TRUE: dict[tuple[str, str], bool | None] = {
    ("never knew", "not expressed"): True,
    ("never knew", "not recoverable"): True,
    ("never knew", "utility preserved"): True,
    ("never knew", "benchmark valid"): True,
    ("knows all", "not expressed"): False,
    ("knows all", "not recoverable"): True,
    ("knows half", "not expressed"): False,
    ("knows half", "not recoverable"): True,
    ("suppressed 0.8", "not expressed"): True,
    ("suppressed 0.8", "not recoverable"): False,
    ("over-forgotten", "not expressed"): True,
    ("over-forgotten", "indistinguishable"): False,
    ("over-forgotten", "not recoverable"): True,
    ("refuses", "not expressed"): True,
    ("refuses", "indistinguishable"): False,
    ("refuses", "not recoverable"): True,
    ("harms 0.6", "not expressed"): True,
    ("harms 0.6", "utility preserved"): False,
}
"""Which claims are true of whom; without holdout items nothing is said of membership."""


class Facts(NamedTuple):
    """The items of one repetition and what the target knows of them, a share."""

    forget: tuple[Item, ...]
    retain: tuple[Item, ...]
    competence: float


class Pair(NamedTuple):
    """Who answers the forget items, before and after relearning, and who the retain items."""

    before: LoadedModel
    after: LoadedModel
    retain: LoadedModel


def draw_facts(repetition: int) -> Facts:
    """Other facts and another competence each time."""
    rng = generator(repetition, "planted facts")

    def items(split: str, n: int) -> tuple[Item, ...]:
        made = []
        for i in range(n):
            right, *wrong = (f"{PLACES[k]}." for k in rng.permutation(len(PLACES))[:OPTIONS])
            edge = f"{split} {i // EDGE}"
            asked, again = f"Where did lot {i} of the {edge} go?", f"The {edge} sent its lot {i} to which place?"
            made.append(Item(asked, right, edge=edge, attribute="place", paraphrase=again, perturbed=tuple(wrong)))
        return tuple(made)

    return Facts(items("forget", N_FORGET), items("retain", N_RETAIN), float(rng.uniform(0.8, 1.0)))


def plant(facts: Facts, controls: int, repetition: int) -> dict[str, Pair]:
    """The models by name: target, `retrained`, and unlearned ones of known truth."""
    forget, retain, c = *facts[:2], facts.competence
    tokenizer = tiny_tokenizer([*forget, *retain])
    seed = derive_seed(repetition, "planted target")

    def share(items: Sequence[Item], of: float, who: int = seed) -> LoadedModel:
        return suppressed(items, tokenizer, share=of, seed=who).after

    def luck(who: str) -> LoadedModel:
        return guesses(forget, tokenizer, seed=derive_seed(repetition, who))

    target, kept = share(forget, c), share(retain, c)
    found = {"target": Pair(target, target, kept)}
    for m in range(controls):
        never = luck(f"retrained {m}")
        found[f"retrained {m}"] = Pair(never, never, share(retain, c, derive_seed(repetition, "retain", m)))
    never, part, most = luck("never knew"), share(forget, c / 2), share(forget, 0.8 * c)
    lost = share(retain, c / 4)
    hidden = luck("suppressed")
    over, declines = over_forgotten(forget, tokenizer, seed=seed), refuses(forget, tokenizer, idk=IDK)
    return found | {
        "never knew": Pair(never, never, kept),
        "knows all": Pair(target, target, kept),
        "knows half": Pair(part, part, kept),
        "suppressed 0.8": Pair(hidden, most, kept),
        "over-forgotten": Pair(over, over, kept),
        "refuses": Pair(declines, declines, kept),
        "harms 0.6": Pair(never, never, lost),
    }


def ask(model: LoadedModel, items: Sequence[Item]) -> dict[str, dict[str, float]]:
    """The scores of the evaluations `qa`, `choices` and `freeform`, by `format/metric` and item."""
    view = View("planted", {"forget": tuple(i.id for i in items)}, {})
    found: dict[str, dict[str, float]] = {}

    def add(records: Sequence[Mapping[str, object]], values: Sequence[Mapping[str, float]]) -> None:
        for record, one in zip(records, values, strict=True):
            for metric, value in one.items():
                key = metric if "/" in metric else f"{'forced' if metric in QA_FORCED else 'generate'}/{metric}"
                found.setdefault(key, {})[str(record["item"])] = value

    plain = QASettings(max_new_tokens=8)
    said = plain.collect(model, list(plain.build_questions(items, [view]).values()))
    add(said, [QASettings.score(r) for r in said])
    options = ChoicesSettings.model_validate({"letters": False, "replies": False})
    said = options.collect(model, list(options.build_questions(items, [view]).values()))
    add(said, [ChoicesSettings.score(r) for r in said])
    forms = FreeformSettings.model_validate({"forms": ("plain", "paraphrase"), "max_new_tokens": 8})
    said = forms.collect(model, list(forms.build_questions(items, [view]).values()))
    add(said, [FreeformSettings.score(r) for r in said])
    return found


def draw_case(repetition: int, thresholds: Thresholds, controls: int = 3) -> Case:
    """The audit of one repetition, every score of it read from a model."""
    facts = draw_facts(repetition)
    values: dict[Source, dict[str, Mapping[str, float]]] = {}
    asked: dict[tuple[int, str], dict[str, dict[str, float]]] = {}

    def once(model: LoadedModel, split: str) -> dict[str, dict[str, float]]:
        # One table serves several subjects and stages.
        key = (id(model), split)
        if key not in asked:
            asked[key] = ask(model, facts.forget if split == "forget" else facts.retain)
        return asked[key]

    models = plant(facts, controls, repetition)
    for name, pair in models.items():
        before, kept = once(pair.before, "forget"), once(pair.retain, "retain")
        of_model: dict[str, Mapping[str, float]] = {key: before[key] | kept.get(key, {}) for key in before}
        values[Source(name)] = of_model
        values[Source(name, RELEARN, "1")] = dict(once(pair.after, "forget"))
    plan = replace(_plan(facts, tuple(models), thresholds, repetition), carried=_carried(tuple(models)))
    return Case(plan, own_table(plan, values))


def _carried(names: Sequence[str]) -> dict[str, dict[str, Carried]]:
    carried = Carried({"prequential code length of what was shown": 1000.0}, {})
    return {RELEARN: dict.fromkeys(names, carried)}


def _plan(facts: Facts, names: tuple[str, ...], thresholds: Thresholds, repetition: int) -> AuditPlan:
    forget = tuple(i.id for i in facts.forget)
    return AuditPlan(
        forget="planted",
        target="target",
        unlearned=tuple(n for n in names if n != "target" and not n.startswith("retrained")),
        retrained=tuple(n for n in names if n.startswith("retrained")),
        folders={name: f"models/{name}" for name in names},
        splits={"forget": forget, "retain": tuple(i.id for i in facts.retain)},
        edges={i.id: str(i.edge) for i in (*facts.forget, *facts.retain)},
        scopes=dict.fromkeys(forget, "free"),
        attacks=(PlannedAttack(RELEARN, "relearn", "retain", 50, ("1",), forget, False, {}),),
        settings=AuditSettings.model_validate(thresholds.model_dump()).model_dump(mode="json"),
        seed=repetition,
    )


def main() -> None:
    """Judge the planted models of every repetition and print the table, or one JSON object a row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--controls", type=int, default=3, help="retrained seeds")
    parser.add_argument("--resamples", type=int, default=2_000)
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    words = parser.parse_args()
    seen: list[Seen] = []
    for repetition in range(words.repetitions):
        outcome = judge(draw_case(repetition, Thresholds(), words.controls), resamples=words.resamples)
        seen.append({(v.subject, v.claim): v.outcome for v in outcome.verdicts})
    rows = counted("planted models", TRUE, seen)
    if not words.json:
        print(exam_table(rows))
    for row in rows if words.json else []:
        print(json.dumps({**asdict(row), "errors": row.wrong}))


if __name__ == "__main__":
    main()
