"""How often the checks of a data set raise a false alarm, and how often they find a leak that was planted.

`python -m benchmarks.soundness` prints the table of docs/data.md (`--json`: one object a row). Data sets are
random: made-up names, six attributes, answers drawn anew for each item, so that nothing says which option is right;
then one leak is planted in a share of the forget items. No model is loaded.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from vestige.core.items import Item, Options
from vestige.data.corpus import NamedSplits
from vestige.data.findings import SoundnessSettings, decide
from vestige.data.soundness import material, without_model

SETTINGS = SoundnessSettings(permutations=2_000)
CONSONANTS, VOWELS = list("bcdfghjklmnprstvz"), list("aeiou")
ATTRIBUTES = ("employer", "birthplace", "favourite dish", "first school", "ship", "instrument")


@dataclass(frozen=True)
class Row:
    """The share of `draws` data sets of `n` forget items in which a check failed, and in which the one meant did.

    `cannot_tell` is the share of those without a failure in which some check was left open.
    """

    bench: str
    leak: str
    share: float
    n: int
    options: str
    draws: int
    alarms: float
    found: float
    cannot_tell: float
    most_often: str


def word(rng: np.random.Generator, syllables: int = 3) -> str:
    """A made-up word."""
    return "".join(rng.choice(CONSONANTS) + rng.choice(VOWELS) for _ in range(syllables))


def random_items(n: int, rng: np.random.Generator, *, given: bool) -> list[Item]:
    """Items in edges of six, one an attribute; with options of the data's own, or wrong answers beside the answer."""
    items = []
    for number in range(n):
        attribute = ATTRIBUTES[number % len(ATTRIBUTES)]
        name = f"{word(rng).capitalize()} {word(rng).capitalize()}"
        texts = [f"{word(rng, int(rng.integers(2, 5))).capitalize()} {word(rng)}" for _ in range(4)]
        right = int(rng.integers(4))
        item = Item(
            f"What is the {attribute} of {name}?",
            texts[right],
            edge=f"e{number // len(ATTRIBUTES)}",
            group="people",
            attribute=attribute,
            options=Options(tuple(texts), right) if given else None,
            perturbed=() if given else tuple(t for k, t in enumerate(texts) if k != right),
        )
        items.append(item)
    return items


def with_answer(item: Item, answer: str, wrong: Sequence[str], place: int = 0) -> Item:
    """The item with another answer and other wrong ones."""
    if item.options is None:
        return replace(item, answer=answer, perturbed=tuple(wrong))
    texts = [*wrong[:place], answer, *wrong[place:]]
    return replace(item, answer=answer, options=Options(tuple(texts), place))


def wrong_of(item: Item) -> list[str]:
    """The wrong answers beside the right one."""
    if item.options is None:
        return list(item.perturbed)
    return [t for k, t in enumerate(item.options.texts) if k != item.options.right]


Planted = tuple[list[Item], list[Item]]
Plant = Callable[[list[Item], list[Item], set[int], np.random.Generator], Planted]


def copy_items(forget: list[Item], retain: list[Item], which: set[int], rng: np.random.Generator) -> Planted:
    """Forget questions stand in the retain set with other capitals and punctuation."""
    copies = [replace(forget[n], question=f"{forget[n].question.upper()[:-1]} ?", edge="copies") for n in sorted(which)]
    return forget, [*retain, *copies]


def styled_answers(forget: list[Item], retain: list[Item], which: set[int], rng: np.random.Generator) -> Planted:
    """Right answers have an ending of their own, in retain and forget alike."""

    def styled(item: Item) -> Item:
        place = 0 if item.options is None else item.options.right
        wrong = [f"{w}{word(rng, 1)}" for w in wrong_of(item)]
        return with_answer(item, f"{item.answer}um", wrong, place)

    return [styled(i) if n in which else i for n, i in enumerate(forget)], [styled(i) for i in retain]


LEAKS: dict[str, tuple[Plant, str]] = {
    "copied items": (copy_items, "copied questions"),
    "right options with a style": (styled_answers, "options alone"),
}


def planted(leak: str, share: float, n: int, rng: np.random.Generator, *, given: bool) -> NamedSplits:
    """A random data set, three retain items for each forget item, with the leak in a share of the forget items."""
    forget, retain = random_items(n, rng, given=given), random_items(3 * n, rng, given=given)
    retain = [replace(i, edge=f"r{i.edge}") for i in retain]
    if leak:
        which = set(rng.choice(n, round(share * n), replace=False).tolist())
        forget, retain = LEAKS[leak][0](forget, retain, which, rng)
    return NamedSplits("planted", {"forget": tuple(forget), "retain": tuple(retain)}, {})


def measure(leak: str, share: float, n: int, draws: int, *, given: bool, seed: int = 0) -> Row:
    """One row: `draws` data sets, checked one by one."""
    alarms = found = left_open = 0
    names: Counter[str] = Counter()
    for draw in range(draws):
        rng = np.random.default_rng([seed, draw, n])
        read = material(planted(leak, share, n, rng, given=given), SETTINGS, seed=draw)
        lines = decide(without_model(read)[0], SETTINGS)
        failed = [line.check for line in lines if line.sound is False]
        names.update(failed)
        alarms += bool(failed)
        found += bool(leak) and LEAKS[leak][1] in failed
        left_open += not failed and any(line.sound is None for line in lines)
    often = ", ".join(f"{name} {count / draws:.3f}" for name, count in names.most_common(3))
    form = "given" if given else "beside the answer"
    rates = (alarms / draws, found / draws, left_open / draws)
    return Row("soundness", leak or "none", share if leak else 0.0, n, form, draws, *rates, often)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--draws", type=int, default=400, help="data sets without a leak")
    parser.add_argument("--planted", type=int, default=50, help="data sets for each planted leak")
    asked = parser.parse_args()
    cells: list[tuple[str, float, int, int, bool]] = [
        *(("", 0.0, n, asked.draws, given) for n in (20, 60, 120) for given in (False, True)),
        *((leak, share, 60, asked.planted, True) for leak in LEAKS for share in (0.25, 0.5)),
    ]
    for leak, share, n, draws, given in cells:
        row = measure(leak, share, n, draws, given=given)
        if asked.json:
            print(json.dumps(asdict(row)), flush=True)
        else:
            print(
                f"{row.leak:28} {row.share:4} n={row.n:<4} {row.options:18} alarms {row.alarms:.3f} found "
                f"{row.found:.3f} cannot tell {row.cannot_tell:.3f}  {row.most_often}",
                flush=True,
            )


if __name__ == "__main__":
    main()
