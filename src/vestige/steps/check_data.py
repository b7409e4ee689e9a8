"""Whether a data set can tell forgetting from guessing, as a step: all checks, and the data without what leaks.

Torch is loaded for a trained check alone.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.artifacts.audits import SoundnessLine
from vestige.artifacts.layout import RunFolder
from vestige.artifacts.soundness import Soundness, exit_code, write_soundness
from vestige.core.errors import InputError
from vestige.core.files import locked
from vestige.core.items import Item
from vestige.core.text import one_line
from vestige.data.corpus import NamedSplits
from vestige.data.dataset import Dataset
from vestige.data.facts import facts_of
from vestige.data.soundness.checks import Material, material, of_alternatives, without_model
from vestige.data.soundness.findings import Check, decide, margin_needs
from vestige.data.soundness.sanitize import POSITION, Sanitized, leaks, left_without, write_sanitized
from vestige.data.soundness.settings import LEAST_ITEMS, SoundnessSettings

if TYPE_CHECKING:
    from vestige.steps.soundness import OnShare, TrainedSettings

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
class _Found:
    """One data set, checked on one seed."""

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
        first = _checked(run, request, request.splits, request.seed, on_share)
        clean = None if request.sanitize is None else _sanitized(run, request, first, on_share)
        # Corrected apart: they are about what an audit without controls compares with, and not about the questions.
        beside = of_alternatives(first.material, request.settings, seed=request.seed)
        first = replace(first, checks=(*first.checks, *beside), lines=(*first.lines, *decide(beside, request.settings)))
        found = Soundness(
            forget=request.splits.forget,
            lines=first.lines,
            settings=_identity(request),
            digest=first.material.digest,
            left_out=first.left_out,
            leaking=_leaking(first),
            figures={**first.figures, **_counted_facts(first.material.forget)},
            needs=margin_needs(first.checks, first.lines, request.settings),
            sanitized=clean,
        )
        write_soundness(run.soundness, found)
    return found


def _counted_facts(forget: Sequence[Item]) -> dict[str, float]:
    """How many facts the forget questions ask for, where some ask for one in other words."""
    facts = len(forget) - len(facts_of(forget))
    return {"forget facts": float(facts)} if facts < len(forget) else {}


def _identity(request: CheckRequest) -> dict[str, Any]:
    trained = {} if request.trained is None else {"trained": request.trained.identity()}
    return {**request.settings.identity(), "seed": request.seed, **trained}


def _leaking(found: _Found) -> dict[str, tuple[str, ...]]:
    """The items of every failed check."""
    failed = {line.check for line in found.lines if line.sound is False}
    return {c.name: tuple(c.leaking) for c in found.checks if c.name in failed}


def _checked(run: RunFolder, request: CheckRequest, splits: NamedSplits, seed: int, on_share: "OnShare") -> _Found:
    read = material(splits, request.settings, seed=seed)
    checks, left_out = without_model(read, request.settings, seed=seed)
    lines: tuple[SoundnessLine, ...] = ()
    figures: dict[str, float] = {}
    if request.trained is None:
        left_out = (*left_out, "retain-only training: no model was given (--model)")
    else:
        from vestige.steps.soundness import Asked, with_model

        asked = Asked(splits, read, request.dataset, seed)
        trained = with_model(run.trained_checks, asked, request.trained, request.settings, on_share)
        checks, lines, figures = (*checks, *trained.checks), trained.lines, trained.figures
        left_out = (*left_out, *trained.left_out)
    return _Found(read, checks, (*decide(checks, request.settings), *lines), figures, left_out)


def _sanitized(run: RunFolder, request: CheckRequest, first: _Found, on_share: "OnShare") -> tuple[SoundnessLine, ...]:
    """Leave out what leaks until no check fails on fresh seeds; the lines are those of the last of these."""
    found, now, seed = first, Sanitized(request.splits, {}), request.seed
    lone = replace(request, trained=request.trained and replace(request.trained, splits=0))
    for _ in range(ROUNDS):
        now = _next(now, found, request, seed)
        fresh = []
        for _ in range(CONFIRMING):
            seed += 1
            found = _checked(run, lone, now.splits, seed, on_share)
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


def _next(now: Sanitized, found: _Found, request: CheckRequest, seed: int) -> Sanitized:
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
