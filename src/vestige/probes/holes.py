"""The holes of a probe's folder: candidates, their test, the table, and the forecast of the cost.

A folder that holds the test with other models or another forget set is refused. A model's answer or a judge's paid
reply is on the disk before its use.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from vestige.artifacts.holes import (
    Candidate,
    HoleTable,
    candidates_of,
    is_there,
    put_down,
    read_attempts,
    read_table,
    write_tested,
)
from vestige.artifacts.layout import ProbeFolder
from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.core.errors import InputError
from vestige.core.files import locked
from vestige.core.ids import content_id
from vestige.judges.spending import ServerReplies
from vestige.judges.tasks import LONGEST_TEXT, TASKS
from vestige.probes import VERSION
from vestige.probes.adjacent import read_adjacent
from vestige.probes.answering import Participants, answerer
from vestige.probes.filters import ADJACENT, Actors, FilterSettings, filter_candidates
from vestige.probes.hole_table import holes_and_table
from vestige.probes.questions import Source, source_text
from vestige.steps.subjects import Asked

FIXED = ("target", "unlearned", "forget")
"""The settings that must stay the same in a folder if candidates are tested again."""


@dataclass(frozen=True)
class FilterRequest:
    """Whose holes are looked for among the candidates, and against which forget set.

    `retain` is the known retain set, which decides the names that occur only in the forget set.
    """

    who: Participants
    forget: tuple[Source, ...]
    settings: FilterSettings
    retain: tuple[Source, ...] = ()
    placebos: Mapping[str, Asked] = field(default_factory=dict)
    on_stage: Callable[[str], None] = field(default=lambda stage: None)


def server_notes(folder: ProbeFolder) -> list[str]:
    """Which other model the judge's server answered with."""
    replies = ServerReplies(folder.judge)
    replies.update()
    return replies.other_models()


def candidates_in(folder: ProbeFolder) -> list[Candidate]:
    """Return the candidates: the adjacent questions of the forget set, then each search's findings (D_RL).

    A folder without any is refused.
    """
    candidates = []
    for entry in read_adjacent(folder):
        if entry.of == "forget":
            asked = entry.question
            candidates.append(Candidate(asked.question, ADJACENT, asked.source_id, asked.answer))
    for search_folder in folder.searches():
        candidates += candidates_of(read_attempts(search_folder))
    if not candidates:
        raise InputError(f"{folder.path} holds no prompts that could be holes. Run `vestige probe` there first")
    return candidates


def forget_texts(items: Sequence[Source]) -> list[str]:
    """Return the texts of a set for the comparison with prompts."""
    return [source_text(item, LONGEST_TEXT) for item in items]


def filter_holes(folder: ProbeFolder, request: FilterRequest) -> HoleTable:
    """The table of holes among the candidates in the folder. Made unless it is there.

    With more candidates, other settings or another judge it is made anew, from answers that are there already.
    """
    candidates = candidates_in(folder)
    with locked(folder.lock):
        identity = _filter_identity(request, candidates)
        if folder.summary.exists():
            table, stored = read_table(folder)
            if content_id(stored) == content_id(identity):
                return table
        fixed = {key: identity[key] for key in FIXED}
        # For its refusal alone: that these are there already is no reason to stop.
        is_there(folder, "holes", fixed)
        put_down(folder, "holes", fixed, {})
        watch = Stopwatch()
        embed = request.who.embedder.embed
        actors = Actors(
            answerer(request.who.target, request.who.answers, folder),
            answerer(request.who.unlearned, request.who.answers, folder),
            request.who.grader.judge,
            embed,
            {name: answerer(model, request.who.answers, folder) for name, model in request.placebos.items()},
        )
        filtered = filter_candidates(
            candidates,
            forget_texts(request.forget),
            actors,
            request.settings,
            retained=forget_texts(request.retain),
            seed=request.who.seed,
            on_stage=request.on_stage,
        )
        holes, table = holes_and_table(filtered, request.settings, embed, seed=request.who.seed)
        device = str(request.who.embedder.model.device)
        notes = server_notes(folder)
        # What the models were called; who they are, the identity says by their weights.
        asked = {"target": request.who.target, "unlearned": request.who.unlearned, **request.placebos}
        names = {role: model.name for role, model in asked.items()}
        write_provenance(folder.provenance, watch, device=device, models=names, servers=notes)
        write_tested(folder, filtered.tested, holes, table, identity)
    return table


def _filter_identity(request: FilterRequest, candidates: Sequence[Candidate]) -> dict[str, Any]:
    return {
        "version": VERSION,
        "target": request.who.target.id,
        "unlearned": request.who.unlearned.id,
        "placebos": {name: model.id for name, model in request.placebos.items()},
        "answers": request.who.answers.identity(),
        "judge": dict(request.who.grader.identity),
        "tasks": {name: TASKS[name].version for name in ("validity", "quality", "overlap")},
        "embedder": request.who.embedder.digest,
        "settings": request.settings.identity(),
        "forget": content_id(forget_texts(request.forget), length=32),
        "retain": content_id(forget_texts(request.retain), length=32),
        "candidates": content_id([asdict(c) for c in candidates], length=32),
        "seed": request.who.seed,
    }
