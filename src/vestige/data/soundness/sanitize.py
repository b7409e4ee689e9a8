"""A data set without the forget items that leak, and what went and why.

Of a counted check all finds go. Of a tested one as many of the items that its guesser solves go as are more than chance
explains, the clearest first: what is solved by luck stays, so that chance is left and nothing below it. Where the right
option stands in one place too often the options are put in other places instead. (Leaving out what a simple guesser
solves is the idea of R. Le Bras et al., Adversarial filters of dataset biases, 2002.04108.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vestige.artifacts.audits import SoundnessLine
from vestige.core.files import new_folder, replacing, write_json, write_jsonl
from vestige.core.items import Item, Options
from vestige.data.corpus import NamedSplits
from vestige.data.mcq import Choice, choices_of
from vestige.data.soundness.findings import Check
from vestige.data.soundness.settings import SoundnessSettings

POSITION = "position of the right option"


@dataclass(frozen=True)
class Sanitized:
    """The splits that are left, the reasons by the id of each item that went, and whether options were moved."""

    splits: NamedSplits
    removed: Mapping[str, tuple[str, ...]]
    moved: bool = False


def leaks(checks: Sequence[Check], lines: Sequence[SoundnessLine]) -> dict[str, tuple[str, ...]]:
    """The forget items to leave out, with the checks that say so."""
    failed = {line.check for line in lines if line.sound is False}
    found: dict[str, list[str]] = {}
    for check in checks:
        if check.name in failed and check.name != POSITION:
            for item in list(check.leaking)[: check.surplus]:
                found.setdefault(item, []).append(check.name)
    return {item: tuple(names) for item, names in found.items()}


def left_without(
    now: Sanitized, gone: Mapping[str, tuple[str, ...]], *, move: bool, settings: SoundnessSettings, seed: int
) -> Sanitized:
    """The data without these items; with `move`, the options of the others are put where places are balanced."""
    splits = dict(now.splits.splits)
    splits["forget"] = tuple(i for i in splits["forget"] if i.id not in gone)
    if move:
        splits["forget"] = _moved(splits["forget"], settings, seed)
    removed = dict(now.removed)
    for item, names in gone.items():
        removed[item] = (*removed.get(item, ()), *names)
    return Sanitized(replace(now.splits, splits=splits), removed, now.moved or move)


def _moved(items: Sequence[Item], settings: SoundnessSettings, seed: int) -> tuple[Item, ...]:
    drawn = choices_of(items, replace(settings.drawing(seed), place="balanced"))
    return tuple(
        replace(i, options=replace(i.options, texts=c.options, right=c.answer))
        if i.options is not None and isinstance(c := drawn[i.id], Choice)
        else i
        for i in items
    )


def write_sanitized(
    out: Path, clean: Sanitized, before: Sequence[Item], drawn: Mapping[str, Choice], said: Mapping[str, Any]
) -> None:
    """Write forget.jsonl, retain.jsonl, data.jsonl (both together), removed.jsonl and what was done.

    Items that have no wrong answers of their own get those that were `drawn` for the checks, since a file has no graph
    to draw from. Other splits stay as they were and are not written. Options are left out of data.jsonl where only one
    of the two has them: a file has them for all of its questions or for none.
    """
    forget, retain = (tuple(_asked(i, drawn) for i in clean.splits.splits[name]) for name in ("forget", "retain"))
    by_id, gone = {i.id: i for i in before}, list(clean.removed.items())
    with replacing(out, patience_seconds=0), new_folder(out) as partial:
        write_jsonl(partial / "forget.jsonl", rows(forget))
        write_jsonl(partial / "retain.jsonl", rows(retain))
        write_jsonl(partial / "data.jsonl", rows((*forget, *retain)))
        write_jsonl(
            partial / "removed.jsonl",
            (
                {"id": i, "split": "forget", "checks": list(names), **row}
                for (i, names), row in zip(gone, rows([by_id[i] for i, _ in gone]), strict=True)
            ),
        )
        write_json(partial / "sanitized.json", {"schema": 1, **said})


def _asked(item: Item, drawn: Mapping[str, Choice]) -> Item:
    choice = drawn.get(item.id)
    if item.options is not None or item.perturbed or choice is None:
        return item
    return replace(item, perturbed=tuple(t for n, t in enumerate(choice.options) if n != choice.answer))


def rows(items: Sequence[Item]) -> list[dict[str, Any]]:
    """The items as rows that `load_items` reads, all in one form.

    Questions of several right answers are written as TruthfulQA is on the hub, others with the right option's number.
    """
    if any(i.options is None for i in items):
        return [{**_beside(i), "answer": i.answer} for i in items]
    several = any(i.options is not None and i.options.also_right for i in items)
    return [{**_beside(i), **_given(i.options, several)} for i in items if i.options is not None]


def _beside(item: Item) -> dict[str, Any]:
    """`attribute` is kept for people; the loader has no column for it."""
    kept = {
        "question": item.question,
        "edge": item.edge,
        "group": item.group,
        "attribute": item.attribute,
        "paraphrase": item.paraphrase,
        "paraphrased_answer": item.paraphrased_answer,
        "fact": item.fact,
        "accepted": list(item.accepted) or None,
        "perturbed_answer": list(item.perturbed) or None,
    }
    return {name: value for name, value in kept.items() if value is not None}


def _given(options: Options, several: bool) -> dict[str, Any]:
    texts = list(options.texts)
    if not several:
        return {"choices": texts, "answer": options.right}
    labels = [int(n == options.right) for n in range(len(texts))]
    more = list(options.also_right)
    return {
        "mc1_targets": {"choices": texts, "labels": labels},
        "mc2_targets": {"choices": [*texts, *more], "labels": [*labels, *([1] * len(more))]},
    }
