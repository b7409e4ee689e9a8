"""Judgements on the disk, so that a run that was killed asks no judge twice, a local or grounded one neither.

But for rounding a judgement follows from the judge and the request, so it may stand for itself later. One that
failed is not kept: another day the judge may be able to.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vestige.core.files import append_lines, drop_torn_line, json_line, read_jsonl
from vestige.core.ids import content_id
from vestige.judges.base import Judge, Judgement, Request
from vestige.judges.tasks import find_task

VERSION = 2
"""Of the lines; those of another version are left where they are."""
PORTION = 64
"""Requests that are judged together and kept as one line, and more where they are about one question."""


@dataclass
class KeptJudge:
    """A judge that keeps what `inner` said in `folder`; `identity` is all of it that can change a verdict."""

    inner: Judge
    folder: Path
    identity: Mapping[str, Any]
    _kept: dict[str, Judgement] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The judge's."""
        return self.inner.name

    def judge(self, requests: Sequence[Request]) -> list[Judgement]:
        """One judgement each, in order; those that were kept are not asked for, and equal requests are asked once."""
        path = self.folder / f"{content_id({'version': VERSION, 'judge': dict(self.identity)})}.jsonl"
        if self._kept is None:
            drop_torn_line(path)
            portions = read_jsonl(path) if path.exists() else ()
            rows = (row for portion in portions for row in portion["judgements"])
            self._kept = {row["request"]: Judgement(row["score"], row["values"]) for row in rows}
        names = [_name(request) for request in requests]
        kept, failed = self._kept, dict[str, Judgement]()
        missing = {name: request for name, request in zip(names, requests, strict=True) if name not in kept}
        for portion in _portions(missing):
            judged = dict(zip(portion, self.inner.judge([missing[name] for name in portion]), strict=True))
            new = {name: found for name, found in judged.items() if found.score is not None}
            added = [{"request": name, "score": j.score, "values": dict(j.values)} for name, j in new.items()]
            append_lines(path, [json_line({"judgements": added})])
            kept |= new
            failed |= {name: found for name, found in judged.items() if found.score is None}
        return [kept.get(name) or failed[name] for name in names]


def _name(request: Request) -> str:
    """The digest of all of a request that can change its verdict, the task's wording among it."""
    return content_id({"request": asdict(request), "version": find_task(request.task).version}, length=32)


def _portions(requests: Mapping[str, Request]) -> list[list[str]]:
    """Requests in their order, cut where the question changes: a grounded judge answers each question itself, once."""
    portions: list[list[str]] = []
    question: str | None = None
    for name, request in requests.items():
        if not portions or (len(portions[-1]) >= PORTION and request.question != question):
            portions.append([])
        portions[-1].append(name)
        question = request.question
    return portions
