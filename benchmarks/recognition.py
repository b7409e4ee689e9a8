"""How often a leak is seen and how often one is seen where there is none: `python -m benchmarks.recognition DIR`.

DIR holds TOFU's forget10_perturbed.json, retain_perturbed.json and idontknow.jsonl. Half of the authors served to
choose the numbers of `metrics.leaks`; the other half did not. Replies to a question:

- true rewording: the paraphrased answer; where the fact is given, which is cut out of that paraphrase, the answer
- false rewording: the perturbed answers, which say other values in the words of the paraphrase. Where wrong answers are
  known, the one that is the reply is not among them
- other author, same author: answers to other questions. Many of the same author's state the fact again
- nothing said: the question; TOFU's lines of not knowing, by themselves and before the question; the paraphrase
  denied; the answer in a list beside all wrong ones

--curve shows other thresholds.
PISTOL's sample dataset 1 follows: short values, none of which was looked at.
"""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks import options
from vestige.core.files import read_jsonl
from vestige.core.items import Item
from vestige.data.dataset import compile_dataset
from vestige.data.facts import cloze_of
from vestige.metrics.answers import contains
from vestige.metrics.leaks import LEAK, leak_score

_FILES = ("forget10_perturbed.json", "retain_perturbed.json")
_BY_AUTHOR = 20
_SHORT_FACT = 5
_OTHERS = 3
_ALARMS = (0.01, 0.02, 0.03, 0.05, 0.1)

Row = tuple[str, Item, Sequence[str]]
"""A reply, the item it replies to, and the wrong answers that are known."""
Scored = Callable[[Sequence[Row]], Sequence[float]]
KINDS = ("true rewording", "false rewording", "other author", "same author")
NOTHING = ("question", "not knowing", "not knowing and the question", "denied", "listed")


def authors(folder: Path) -> list[list[Item]]:
    """The items of each author, who has twenty in a row."""
    found = []
    for name in _FILES:
        items = [
            Item(
                row["question"],
                row["answer"],
                paraphrased_answer=row["paraphrased_answer"],
                perturbed=tuple(row["perturbed_answer"]),
            )
            for row in read_jsonl(folder / name)
        ]
        found += [items[n : n + _BY_AUTHOR] for n in range(0, len(items), _BY_AUTHOR)]
    random.Random(0).shuffle(found)
    return found


def by_words(*, fact: bool = False, wrong: bool = False) -> Scored:
    """`leak_score`, with the fact that the cloze leaves out, and beside wrong answers or without."""

    def scored(rows: Sequence[Row]) -> list[float]:
        return [
            leak_score(
                reply,
                item.answer,
                question=item.question,
                fact=cloze_of(item).fact if fact else None,
                wrong=others if wrong else (),
            )
            for reply, item, others in rows
        ]

    return scored


def whole_string(rows: Sequence[Row]) -> list[float]:
    """The rule of before: the whole answer stands in the reply."""
    return [float(contains(reply, item.answer)) for reply, item, _ in rows]


def replies(
    half: Sequence[Sequence[Item]], keep: Callable[[Item], bool], lines: Sequence[str], *, fact: bool
) -> dict[str, list[Row]]:
    """Every kind of reply to the items that are kept."""
    rng = random.Random(1)
    kinds: dict[str, list[Row]] = {kind: [] for kind in (*KINDS, *NOTHING)}
    for author in half:
        elsewhere = [i for other in half if other is not author for i in other]
        for item in filter(keep, author):
            reworded, wrong = item.answer if fact else str(item.paraphrased_answer), item.perturbed
            line = rng.choice(lines)
            told = {
                "true rewording": [reworded],
                "other author": [i.answer for i in rng.sample(elsewhere, _OTHERS)],
                "same author": [i.answer for i in rng.sample([i for i in author if i != item], _OTHERS)],
                "question": [item.question],
                "not knowing": [line],
                "not knowing and the question": [f"{line} {item.question}"],
                "denied": [f"It is not true that {reworded}"],
                "listed": [" Or: ".join([*wrong[:2], reworded, *wrong[2:]])],
            }
            for kind, texts in told.items():
                kinds[kind] += [(text, item, wrong) for text in texts]
            kinds["false rewording"] += [(text, item, [w for w in wrong if w != text]) for text in wrong]
    return kinds


def table(of_all: Sequence[Sequence[Item]], lines: Sequence[str], ways: dict[str, Scored], *, curve: bool) -> None:
    """A line for each way and half; with `curve` also what is seen at other shares of false alarms."""
    for label, half in (("tuned on", of_all[::2]), ("held out", of_all[1::2])):
        for name, scored in ways.items():
            fact = "fact" in name
            keep = _short if fact else (lambda _: True)
            found = {k: np.array(scored(rows)) for k, rows in replies(half, keep, lines, fact=fact).items()}
            shares = " | ".join(f"{100 * (scores >= LEAK).mean():.1f} %" for scores in found.values())
            print(f"| {name}, {label} | {len(found['question'])} | {shares} |", flush=True)
            if curve:
                true, false = (found[kind] for kind in KINDS[:2])
                seen = [f"{(true > np.quantile(false, 1 - a)).mean():.1%} at {a:.0%}" for a in _ALARMS]
                print(f"  seen at a share of false rewordings: {', '.join(seen)}")


def _short(item: Item) -> bool:
    gap = cloze_of(item)
    return not gap.whole and len(gap.fact.split()) <= _SHORT_FACT


def pistol(ways: dict[str, Scored]) -> None:
    """Short values: each answer in a sentence, other values in it, and answers to other questions."""
    items, rng = compile_dataset("sample1", seed=0).items, random.Random(1)
    for name, scored in ways.items():
        said: dict[str, list[Row]] = {"own": [], "other values": [], "other questions": []}
        for item in items:
            wrong = [w for w in item.perturbed if not contains(w, item.answer) and not contains(item.answer, w)]
            said["own"].append((f"As far as I know it was {item.answer}", item, wrong))
            said["other values"] += [
                (f"As far as I know it was {w}", item, [o for o in wrong if o != w]) for w in wrong
            ]
            others = [i for i in rng.sample(items, 2 * _OTHERS) if i.attribute != item.attribute][:_OTHERS]
            said["other questions"] += [(i.answer, item, wrong) for i in others if not contains(i.answer, item.answer)]
        shares = [f"{k} {(np.array(scored(rows)) >= LEAK).mean():.1%} of {len(rows)}" for k, rows in said.items()]
        print(f"PISTOL, {name}: {', '.join(shares)}", flush=True)


def main() -> None:
    """Print the tables."""
    parser = options(__doc__)
    parser.add_argument("folder", type=Path, help="folder of TOFU's files")
    parser.add_argument("--curve", action="store_true", help="also what is seen at other shares of false alarms")
    parser.add_argument("--ways", help="only these lines, apart by commas")
    asked = parser.parse_args()
    ways: dict[str, Scored] = {
        "whole string": whole_string,
        "answer": by_words(),
        "answer beside wrong ones": by_words(wrong=True),
        "fact of at most 5 words": by_words(fact=True, wrong=True),
    }
    if asked.ways:
        ways = {name: ways[name] for name in asked.ways.split(",")}
    lines = (asked.folder / "idontknow.jsonl").read_text().splitlines()
    print(f"| sought, authors | questions | {' | '.join((*KINDS, *NOTHING))} |")
    print(f"| --- | --- | {' | '.join('---' for _ in (*KINDS, *NOTHING))} |")
    table(authors(asked.folder), lines, ways, curve=asked.curve)
    pistol({name: way for name, way in ways.items() if "fact" not in name})


if __name__ == "__main__":
    main()
