"""Whether a data set can tell forgetting from guessing, as a step: all checks, and the data without what leaks.

Torch is loaded for a trained check alone.

Sanitising leaves out the forget items that leak. Of a counted check all finds go. Of a tested one as many of the items
that its guesser solves go as are more than chance explains, the clearest first: what is solved by luck stays, so that
chance is left and nothing below it. Where the right option stands in one place too often the options are put in other
places instead. (Leaving out what a simple guesser solves is the idea of R. Le Bras et al., Adversarial filters of
dataset biases, 2002.04108.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.artifacts.audits import Soundness, SoundnessLine, exit_code, write_soundness
from vestige.artifacts.layout import RunFolder
from vestige.core.errors import InputError
from vestige.core.files import locked, new_folder, replacing, write_json, write_jsonl
from vestige.core.items import Item, Options
from vestige.core.text import one_line
from vestige.data.corpus import NamedSplits
from vestige.data.dataset import Dataset
from vestige.data.facts import facts_of
from vestige.data.findings import LEAST_ITEMS, Check, SoundnessSettings, decide, margin_needs
from vestige.data.mcq import Choice, choices_of
from vestige.data.soundness import Material, material, of_alternatives, without_model

if TYPE_CHECKING:
    from vestige.steps.soundness import OnShare, TrainedSettings


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


ROUNDS = 6
"""How often items are left out before the data counts as one that this does not mend."""
CONFIRMING = 2
"""Fresh seeds, used for leaving nothing out, on which the sanitised data is checked."""


@dataclass(frozen=True)
class CheckRequest:
    """What is checked and how; `dataset` is the graph behind the items, `trained` None for the checks without a model.

    `sanitize` is the folder for the data without what leaks.
    """

    splits: NamedSplits
    settings: SoundnessSettings
    seed: int
    dataset: Dataset | None = None
    trained: "TrainedSettings | None" = None
    sanitize: Path | None = None


@dataclass(frozen=True)
class Findings:
    """One data set, checked on one seed; `figures` are the numbers behind the lines."""

    material: Material
    checks: tuple[Check, ...]
    lines: tuple[SoundnessLine, ...]
    figures: dict[str, float]
    left_out: tuple[str, ...]


def check_data(run: RunFolder, request: CheckRequest, on_share: "OnShare" = lambda share, note: None) -> Soundness:
    """Check a data set and write soundness.json in the run; what was trained before is not trained again."""
    if request.sanitize is not None and request.sanitize.exists():
        raise InputError(f"{request.sanitize} is there already; choose another folder for --sanitize")
    with locked(run.path / ".soundness.lock", patience_seconds=0):
        first = _checked(run, request, on_share)
        clean = None if request.sanitize is None else _sanitized(run, request, first, on_share)
        # Corrected apart: they are about what an audit without controls compares with, and not about the questions.
        beside = of_alternatives(first.material, request.settings, seed=request.seed)
        first = replace(first, checks=(*first.checks, *beside), lines=(*first.lines, *decide(beside, request.settings)))
        failed = {line.check for line in first.lines if line.sound is False}
        # Several forget questions may ask for one fact in other words.
        n_forget = len(first.material.forget)
        n_facts = n_forget - len(facts_of(first.material.forget))
        found = Soundness(
            forget=request.splits.forget,
            lines=first.lines,
            settings=_identity(request),
            digest=first.material.digest,
            left_out=first.left_out,
            leaking={c.name: tuple(c.leaking) for c in first.checks if c.name in failed},
            figures={**first.figures, **({"forget facts": float(n_facts)} if n_facts < n_forget else {})},
            needs=margin_needs(first.checks, first.lines, request.settings),
            sanitized=clean,
        )
        write_soundness(run.soundness, found)
    return found


def _identity(request: CheckRequest) -> dict[str, Any]:
    trained = {} if request.trained is None else {"trained": request.trained.identity()}
    return {**request.settings.identity(), "seed": request.seed, **trained}


def _checked(run: RunFolder, request: CheckRequest, on_share: "OnShare") -> Findings:
    """One data set, checked on one seed."""
    read = material(request.splits, request.settings, seed=request.seed)
    checks, left_out = without_model(read, request.settings, seed=request.seed)
    lines = decide(checks, request.settings)
    if request.trained is None:
        return Findings(read, checks, lines, {}, (*left_out, "retain-only training: no model was given (--model)"))
    from vestige.steps.soundness import with_model

    found = with_model(run.trained_checks, request, request.trained, read, on_share)
    lines = (*decide((*checks, *found.checks), request.settings), *found.lines)
    return Findings(read, (*checks, *found.checks), lines, found.figures, (*left_out, *found.left_out))


def _sanitized(
    run: RunFolder, request: CheckRequest, first: Findings, on_share: "OnShare"
) -> tuple[SoundnessLine, ...]:
    """Leave out what leaks until no check fails on fresh seeds; the lines are those of the last of these."""
    found, now, seed = first, Sanitized(request.splits, {}), request.seed
    lone = replace(request, trained=request.trained and replace(request.trained, splits=0))
    for _ in range(ROUNDS):
        now = _next(now, found, request, seed)
        fresh = []
        for _ in range(CONFIRMING):
            seed += 1
            found = _checked(run, replace(lone, splits=now.splits, seed=seed), on_share)
            fresh.append(found)
            if exit_code(found.lines) == 3:
                break
        if len(fresh) == CONFIRMING and exit_code(found.lines) != 3:
            break
    assert request.sanitize is not None
    before = request.splits.splits["forget"]
    said = {
        "forget": request.splits.forget,
        "digest": found.material.digest,
        "settings": _identity(request),
        "seeds": [request.seed, seed],
        "passes": exit_code(found.lines) != 3,
        "removed": len(now.removed),
        "left": len(now.splits.splits["forget"]),
        "options_moved": now.moved,
        "lines": [asdict(line) for line in found.lines],
    }
    drawn = {c.item: c for c in (*first.material.asked, *first.material.taught)}
    write_sanitized(request.sanitize, now, before, drawn, said)
    return found.lines


def _next(now: Sanitized, found: Findings, request: CheckRequest, seed: int) -> Sanitized:
    """The data without what leaks in these findings."""
    gone = leaks(found.checks, found.lines)
    left = len(now.splits.splits["forget"]) - len(gone)
    if left < LEAST_ITEMS:
        names = ", ".join(sorted({n for why in gone.values() for n in why}))
        raise InputError(
            f"leaving out what leaks ({names}) leaves {left} items of the forget set "
            f"{one_line(request.splits.forget, width=60)!r}; give it other options or another forget set, or leave "
            "--sanitize out"
        )
    move = any(line.sound is False and line.check == POSITION for line in found.lines)
    return left_without(now, gone, move=move, settings=request.settings, seed=seed)
