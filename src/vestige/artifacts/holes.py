"""What probing finds, and what of it lies on disk: attempts, prompts that were tested, holes, and their table.

A hole is a valid prompt that the target answers well, the unlearned model answers badly, and the forget set does not
answer (Knowledge Holes, 2511.00030, section 3). J is the reward 0..10, higher for a worse answer; c its part 0..9.
Quality scores are 1..10, higher for a better answer. Shares lie in [0, 1].
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from vestige.artifacts.layout import ProbeFolder
from vestige.artifacts.records import SCHEMA, read_versioned
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.core.files import read_jsonl, write_json, write_jsonl

LATENT_J = 10.0
"""The J of an attempt that belongs to D_RL: a valid question that got gibberish."""


@dataclass(frozen=True)
class Attempt:
    """One prompt that a search tried on the unlearned model, with what became of it.

    `source` names the search ("latent", "random", "paraphrase"), `seed` the prompt that it began with. Where the judge
    gave no verdict, `failure` says why and `valid`, `gibberish`, `c` and `j` are None.
    """

    id: str
    iteration: int
    source: str
    seed: str
    prompt: str
    answer: str
    valid: bool | None
    gibberish: bool | None
    c: int | None
    j: float | None
    failure: str
    novelty: Mapping[str, float]
    reward: float


@dataclass(frozen=True)
class Candidate:
    """A prompt that may show a hole.

    `origin` is what it was made from, `truth` the true answer where the data hold it.
    """

    prompt: str
    source: str
    origin: str = ""
    truth: str = ""


@dataclass(frozen=True)
class Tested:
    """What became of a candidate.

    `dropped` is the reason why it was not tested, "" where both models were asked anew: only then are there scores.
    An answer is None where none came, a score where there was none to judge or the judge gave none.
    """

    id: str
    prompt: str
    source: str
    origin: str
    dropped: str
    target_answer: str | None = None
    unlearned_answer: str | None = None
    target_score: float | None = None
    unlearned_score: float | None = None
    placebo_answers: Mapping[str, str | None] = field(default_factory=dict)
    placebo_scores: Mapping[str, float | None] = field(default_factory=dict)
    hole: bool = False


@dataclass(frozen=True)
class Hole:
    """One hole, with the answers and scores by which it was confirmed, and the group of holes that it belongs to."""

    id: str
    prompt: str
    source: str
    target_answer: str
    unlearned_answer: str
    target_score: float
    unlearned_score: float
    group: str


@dataclass(frozen=True)
class Placebo:
    """Holes that are none: the prompts asked of `name` as if it were the unlearned model.

    `rate` is the share of prompts that looked like a hole, and `excess` that of the unlearned model less it, over the
    prompts judged on all three sides; None where there is none. `n_same` answers are word for word the target's: where
    all are, as with greedy answers, the placebo shows nothing.
    """

    name: str
    rate: Estimate
    excess: Estimate | None
    n_same: int


@dataclass(frozen=True)
class HoleRow:
    """One source's prompts, tested by fresh answers of both models: the form of the paper's Table 1.

    `n` prompts were tested and `n_judged` of them judged on both sides; the estimates are over those. `before` and
    `after` are mean scores of target and unlearned, `change` the mean of after minus before, `lowest_*` the shares at
    the lowest score, `holes` the share that are holes.
    """

    source: str
    n: int
    n_judged: int
    before: Estimate
    after: Estimate
    change: Estimate
    lowest_before: Estimate
    lowest_after: Estimate
    holes: Estimate
    placebos: tuple[Placebo, ...]


@dataclass(frozen=True)
class Diversity:
    """How different the prompts tested of one source are: Vendi / n, and 1 - avgSelfBLEU, which one prompt has not."""

    n: int
    vendi_share: float
    distinct_ngrams: float | None


@dataclass(frozen=True)
class HoleGroup:
    """Holes about one thing, named by the terms that tell it from the others."""

    name: str
    n: int


@dataclass(frozen=True)
class HoleTable:
    """All that came of testing candidates; `dropped` counts those not tested, by source and reason.

    `failures` counts what the judge could not judge, by stage and name of the failure. `selection` says in words what
    was kept of each source for being as diverse as the adjacent prompts. `n_distinct_holes` counts holes of all sources
    that are no near-duplicates of each other. Calls are prompts asked while testing, those of a search not among them.
    `naming` says in words how the groups came by their names; "" in a table of before there were two ways.
    """

    rows: tuple[HoleRow, ...]
    dropped: Mapping[str, Mapping[str, int]]
    failures: Mapping[str, Mapping[str, int]]
    diversity: Mapping[str, Diversity]
    groups: tuple[HoleGroup, ...]
    selection: Mapping[str, str]
    n_holes: int
    n_distinct_holes: int
    target_calls: int
    unlearned_calls: int
    naming: str = ""


@dataclass(frozen=True)
class MapPoint:
    """One prompt that was tested, at its place in the picture; `group` is "" where it is no hole."""

    id: str
    x: float
    y: float
    group: str
    source: str
    hole: bool


@dataclass(frozen=True)
class HoleMap:
    """The prompts that were tested, in two dimensions: near each other where their embeddings are alike.

    `shown` is the share of the embeddings' variance that lies in the picture: of 0.2, four fifths of what tells two
    prompts apart are not to be seen, so that prompts which lie together need not be alike.
    """

    points: tuple[MapPoint, ...]
    shown: float


T = TypeVar("T")


def read_rows(path: Path, kind: type[T]) -> Iterator[T]:
    """The records of one kind in a file of JSON Lines; a line that is none is an InputError with its number."""
    adapter = TypeAdapter(kind)
    for number, row in enumerate(read_jsonl(path), 1):
        try:
            yield adapter.validate_python(row)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise InputError(f"{path}, record {number}: {where or 'the record'}: {first['msg']}") from error


def read_attempts(folder: ProbeFolder) -> list[Attempt]:
    """All attempts of a search, in their order; none where there was no search."""
    return list(read_rows(folder.attempts, Attempt)) if folder.attempts.exists() else []


def candidates_of(attempts: Iterable[Attempt]) -> list[Candidate]:
    """D_RL: the attempts with J = 10, each prompt once."""
    found: dict[str, Candidate] = {}
    for a in attempts:
        if a.j == LATENT_J:
            found.setdefault(a.prompt, Candidate(a.prompt, a.source, a.seed))
    return list(found.values())


def write_tested(
    folder: ProbeFolder,
    tested: Iterable[Tested],
    holes: Iterable[Hole],
    table: HoleTable,
    identity: Mapping[str, Any],
    *,
    hole_map: HoleMap | None = None,
) -> None:
    """Write what came of testing; the summary, last, says by being there that all is whole."""
    folder.summary.unlink(missing_ok=True)
    folder.map.unlink(missing_ok=True)
    write_jsonl(folder.tested, map(asdict, tested))
    write_jsonl(folder.holes, map(asdict, holes))
    if hole_map is not None:
        write_json(folder.map, {"schema": SCHEMA, "map": asdict(hole_map)})
    write_json(folder.summary, {"schema": SCHEMA, "identity": dict(identity), "table": asdict(table)})


def read_table(folder: ProbeFolder) -> tuple[HoleTable, dict[str, Any]]:
    """The table, with the identity of what it was made from."""
    stored = read_versioned(folder.summary, "identity", "table")
    try:
        return TypeAdapter(HoleTable).validate_python(stored["table"]), stored["identity"]
    except ValidationError as error:
        raise InputError(f"{folder.summary} is damaged; delete it and run the same command again") from error


def read_holes(folder: ProbeFolder) -> list[Hole]:
    """The holes that were confirmed, in the order in which their prompts were found."""
    return list(read_rows(folder.holes, Hole))


def read_tested(folder: ProbeFolder) -> list[Tested]:
    """What became of each candidate, in the order in which they were found."""
    return list(read_rows(folder.tested, Tested))


def read_map(folder: ProbeFolder) -> HoleMap | None:
    """The picture of what was tested; None in a folder of before there was one."""
    if not folder.map.exists():
        return None
    try:
        return TypeAdapter(HoleMap).validate_python(read_versioned(folder.map, "map")["map"])
    except ValidationError as error:
        raise InputError(
            f"{folder.map} is damaged; delete it and summary.json and run the same command again"
        ) from error
