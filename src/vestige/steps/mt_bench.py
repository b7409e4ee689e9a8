"""MT-bench as a step: answers kept conversation by conversation, judgements kept one by one, paid for once.

What a server could not judge for now is counted, and asked again when the same command is run again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, cast

from vestige.artifacts.bench import BenchFolder, ResultFolder, TaskRun, read_run, write_run
from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.artifacts.records import SCHEMA
from vestige.core.files import append_lines, drop_torn_line, json_line, read_jsonl, write_json
from vestige.core.ids import content_id
from vestige.data.mt_bench import TURNS, Conversation
from vestige.evals.mt_bench import TASK, Answered, MtBenchSettings, answer, scored, turns_of
from vestige.judges.base import Failure, Judgement
from vestige.judges.mt_bench import VERSION as JUDGE_VERSION
from vestige.judges.mt_bench import Turn, TurnJudge
from vestige.models.finite import finite_logits
from vestige.steps.probe import Asked

VERSION = 2
"""Part of every identity; raised when the code would ask something else."""
PORTION = 8
"""Conversations between two looks at the disk: the most that a kill can cost."""
FOR_NOW: frozenset[Failure] = frozenset({"rate limited", "server error", "timeout", "connection", "limit", "garbage"})
"""Failures of an exchange, which another attempt may mend."""

Progress = Callable[[int, int], None]
"""Is told how many there are, and of how many."""


@dataclass(frozen=True)
class TurnGrader:
    """The judge, all of it that can change a rating, and whether it rates by likeness to the first model."""

    judge: TurnJudge
    identity: Mapping[str, Any]
    by_likeness: bool = False


@dataclass(frozen=True)
class MtBenchRequest:
    """Which conversations are held, how, and who rates them; the judge is loaded after the models have answered."""

    conversations: tuple[Conversation, ...]
    settings: MtBenchSettings
    grader: Callable[[], TurnGrader]


class Held(NamedTuple):
    """One model's conversations."""

    model: str
    answered: tuple[Answered, ...]


def hold(folder: BenchFolder, asked: Asked, request: MtBenchRequest, on_portion: Progress) -> Held:
    """What the model said in every conversation; asked only for what is not there yet."""
    identity = {
        "version": VERSION,
        "model": asked.id,
        "settings": request.settings.model_dump(mode="json", exclude={"per_category"}),
    }
    place = folder.result(asked.id, f"{TASK}_answers", content_id(identity, length=12))
    if not place.asked.exists():
        write_json(place.asked, {"schema": SCHEMA, **identity})
    # But for rounding an answer does not depend on which other conversations are held: more can be held later.
    rows = (row for portion in _lines(place.answers) for row in portion["held"])
    kept = {row["of"]: Answered(row["id"], tuple(row["answers"])) for row in rows}
    missing = [c for c in request.conversations if _content(c) not in kept]
    watch = Stopwatch()
    for start in range(0, len(missing), PORTION):
        portion = missing[start : start + PORTION]
        with finite_logits(asked.loaded):
            answers = answer(asked.loaded, portion, request.settings)
        found = dict(zip(map(_content, portion), answers, strict=True))
        append_lines(place.answers, [json_line({"held": [{"of": of, **asdict(one)} for of, one in found.items()]})])
        kept |= found
        on_portion(len(kept), len(request.conversations))
    if missing:
        write_provenance(place.provenance, watch, **asked.loaded.provenance())
    return Held(asked.id, tuple(kept[_content(c)] for c in request.conversations))


def _content(conversation: Conversation) -> str:
    return content_id([conversation.id, conversation.category, *conversation.turns])


def rate(
    folder: BenchFolder, held: Held, first: Held, request: MtBenchRequest, grader: TurnGrader, on_portion: Progress
) -> TaskRun:
    """The ratings of one model's conversations; the judge is asked only for what is not there yet."""
    own: Sequence[Answered | None] = first.answered if grader.by_likeness else [None] * len(held.answered)
    identity = {
        "version": [VERSION, JUDGE_VERSION],
        "judge": dict(grader.identity),
        "conversations": [asdict(c) for c in request.conversations],
        "answers": [asdict(one) for one in held.answered],
        "own": [None if one is None else asdict(one) for one in own],
    }
    place = folder.result(held.model, TASK, content_id(identity, length=12))
    if place.done.exists():
        return read_run(place)
    write_json(place.asked, {"schema": SCHEMA, "judge": dict(grader.identity)})
    pairs = zip(request.conversations, held.answered, own, strict=True)
    turns = [turn for conversation, said, theirs in pairs for turn in turns_of(conversation, said, theirs)]
    watch = Stopwatch()
    judged = _judged(place, turns, grader.judge, on_portion)
    by_conversation = [judged[i : i + TURNS] for i in range(0, len(judged), TURNS)]
    run = scored(request.conversations, held.answered, by_conversation)
    if not FOR_NOW & set(run.failures):
        write_provenance(place.provenance, watch)
        write_run(place, run)
    return run


def _judged(
    place: ResultFolder, turns: Sequence[Turn | None], judge: TurnJudge, on_portion: Progress
) -> list[Judgement]:
    kept = {row["number"]: _judgement(row) for row in _lines(place.judged)}
    # An answer that the model never gave, since it could not read what came before, is "not judged".
    kept |= {n: Judgement(None, failure="not judged") for n, turn in enumerate(turns) if turn is None}
    missing = [(n, turn) for n, turn in enumerate(turns) if turn is not None and n not in kept]
    for start in range(0, len(missing), PORTION * TURNS):
        portion = missing[start : start + PORTION * TURNS]
        found = dict(zip((n for n, _ in portion), judge.judge([turn for _, turn in portion]), strict=True))
        whole = {n: j for n, j in found.items() if j.failure not in FOR_NOW}
        append_lines(place.judged, [json_line(_row(n, judgement)) for n, judgement in whole.items()])
        kept |= found
        on_portion(len(kept), len(turns))
    return [kept[n] for n in range(len(turns))]


def _row(number: int, judgement: Judgement) -> dict[str, Any]:
    return {"number": number, "score": judgement.score, "failure": judgement.failure, "text": judgement.text}


def _judgement(row: Mapping[str, Any]) -> Judgement:
    return Judgement(row["score"], failure=cast(Failure, row["failure"]), text=row["text"])


def _lines(path: Any) -> Iterator[dict[str, Any]]:
    drop_torn_line(path)
    return read_jsonl(path) if path.exists() else iter(())
