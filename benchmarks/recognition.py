"""How often a leak is seen and how often one is seen where there is none: `python -m benchmarks.recognition DIR`.

DIR holds TOFU's forget10_perturbed.json and retain_perturbed.json. Half of the authors served to choose the one number
of `metrics.leaks` that was chosen; the other half did not. Replies to a question:

- true rewording: the paraphrased answer; where the fact is given, which is cut out of that paraphrase, the answer
- false rewording: the perturbed answers, which say other values in the words of the paraphrase
- other author, same author: answers to other questions. Many of the same author's state the fact again.
"""

import argparse
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from vestige.core.files import read_jsonl
from vestige.core.items import Item
from vestige.data.cloze import cloze_of
from vestige.metrics.answers import contains
from vestige.metrics.leaks import LEAK, leak_score

_FILES = ("forget10_perturbed.json", "retain_perturbed.json")
_BY_AUTHOR = 20
_SHORT_FACT = 5
_OTHERS = 3

Seen = Callable[[str, Item], bool]


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


def whole_string(reply: str, item: Item) -> bool:
    """The rule of before: the whole answer stands in the reply."""
    return contains(reply, item.answer)


def by_answer(reply: str, item: Item) -> bool:
    """Without a fact."""
    return leak_score(reply, item.answer, question=item.question) >= LEAK


def by_fact(reply: str, item: Item) -> bool:
    """With the fact that the cloze leaves out."""
    return leak_score(reply, item.answer, question=item.question, fact=cloze_of(item).fact) >= LEAK


def row(name: str, half: Sequence[Sequence[Item]], seen: Seen, keep: Callable[[Item], bool], *, fact: bool) -> str:
    """One line of the table."""
    rng = random.Random(1)
    kinds: dict[str, list[bool]] = {"true": [], "false": [], "other": [], "same": []}
    for author in half:
        elsewhere = [i for other in half if other is not author for i in other]
        for item in filter(keep, author):
            kinds["true"].append(seen(item.answer if fact else str(item.paraphrased_answer), item))
            kinds["false"] += [seen(text, item) for text in item.perturbed]
            kinds["other"] += [seen(i.answer, item) for i in rng.sample(elsewhere, _OTHERS)]
            kinds["same"] += [seen(i.answer, item) for i in rng.sample([i for i in author if i != item], _OTHERS)]
    shares = " | ".join(f"{100 * sum(found) / len(found):.1f} %" for found in kinds.values())
    return f"| {name} | {len(kinds['true'])} | {shares} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of TOFU's files")
    of_all = authors(parser.parse_args().folder)
    print("| sought, authors | questions | true rewording seen | false rewording | other author | same author |")
    print("| --- | --- | --- | --- | --- | --- |")
    for label, half in (("tuned on", of_all[::2]), ("held out", of_all[1::2])):
        print(row(f"whole string, {label}", half, whole_string, lambda _: True, fact=False))
        print(row(f"answer beyond the question, {label}", half, by_answer, lambda _: True, fact=False))
        print(row(f"fact, {label}", half, by_fact, lambda i: not cloze_of(i).whole, fact=True))
        print(row(f"fact of at most 5 words, {label}", half, by_fact, _short, fact=True), flush=True)


def _short(item: Item) -> bool:
    gap = cloze_of(item)
    return not gap.whole and len(gap.fact.split()) <= _SHORT_FACT


if __name__ == "__main__":
    main()
