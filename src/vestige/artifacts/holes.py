"""Records of probing and their files: attempts, tested prompts, holes and their tables.

A hole is a valid prompt that the target answers well, the unlearned model answers badly, and the forget set does not
answer (Knowledge Holes, 2511.00030, section 3). J is the reward 0..10, higher for a worse answer; c its part 0..9.
Quality scores are 1..10, higher for a better answer. Shares are in [0, 1].
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from vestige.artifacts.layout import ProbeFolder
from vestige.core.estimates import Estimate, to_json
from vestige.core.files import write_json, write_jsonl
from vestige.core.store import AGAIN, SCHEMA, read_rows, read_versioned, refuse_another, typed, unsealed, write_sealed
from vestige.core.text import Fields, NumberMapping, Record, TextMapping

LEARNING = "latent"
"""The search whose policy learns."""
LATENT_J = 10.0
"""The J of an attempt that belongs to D_RL: a valid question that got gibberish."""


@dataclass(frozen=True)
class Attempt:
    """One prompt that a search tried on the unlearned model, with its result.

    `source` names the search ("latent", "random"), `seed` the prompt that it began with. Without a
    verdict of the judge, `failure` gives the reason and `valid`, `gibberish`, `c` and `j` are None.
    """

    id: str
    iteration: int
    source: str
    seed: str
    prompt: str
    answer: str = ""
    valid: bool | None = None
    gibberish: bool | None = None
    c: int | None = None
    j: float | None = None
    failure: str = ""
    novelty: NumberMapping = field(default_factory=dict)
    reward: float = 0.0


@dataclass(frozen=True)
class HoleCandidate:
    """A prompt that may show a hole.

    `origin` is the source text, `truth` the true answer if the data has it.
    """

    prompt: str
    source: str
    origin: str = ""
    truth: str = ""


@dataclass(frozen=True)
class Tested:
    """The result of testing a candidate.

    `dropped` is the reason that it was not tested, or "" if both models answered again. Only then are there scores. A
    missing answer is None, and so is the score of an answer that is missing or was not graded.
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
class Placebo:
    """False holes: the prompts answered by `name` instead of the unlearned model.

    `rate` is the share of prompts that looked like a hole. `excess` is the unlearned model's rate minus the placebo's,
    over the prompts judged on all three sides, or None without such prompts. `n_same` answers equal the target's word
    for word. If all do, as with greedy answers, the placebo shows nothing.
    """

    name: str
    rate: Estimate
    excess: Estimate | None
    n_same: int


@dataclass(frozen=True)
class HoleRow:
    """The prompts of one source, tested by new answers of both models: the form of the paper's Table 1.

    `n` prompts were tested, and `n_judged` prompts were judged on both sides. The estimates are over those. `before`
    and `after` are mean scores of target and unlearned, `change` the mean of after minus before, `lowest_*` the shares
    at the lowest score, `holes` the share that are holes.
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


def estimates_of(row: HoleRow) -> list[Estimate]:
    """Return every number of a source's row, and then the numbers of its placebos."""
    answers = [row.before, row.after, row.change, row.lowest_before, row.lowest_after, row.holes]
    return answers + [e for p in row.placebos for e in (p.rate, p.excess) if e is not None]


@dataclass(frozen=True)
class Diversity:
    """The diversity of the tested prompts of one source: Vendi / n, and 1 - avgSelfBLEU, which needs two prompts.

    `to_adjacent` is the mean cosine of a search's prompts to the nearest adjacent question, tested or not. Near 1, the
    search repeats the adjacent questions. It is None without questions to compare.
    """

    n: int
    vendi_share: float
    distinct_ngrams: float | None
    to_adjacent: float | None = None


@dataclass(frozen=True)
class HoleTable:
    """The results of testing candidates. `dropped` counts untested candidates, by source and reason.

    `failures` counts the judge's failures by stage and name. `selection` describes for each source the selection of
    prompts that are as diverse as the adjacent prompts. `n_distinct_holes` counts holes of all sources without
    near-duplicates. Calls are the prompts of the test, without the prompts of a search.
    """

    rows: tuple[HoleRow, ...]
    dropped: Mapping[str, Mapping[str, int]]
    failures: Mapping[str, Mapping[str, int]]
    diversity: Mapping[str, Diversity]
    selection: TextMapping
    n_holes: int
    n_distinct_holes: int
    target_calls: int
    unlearned_calls: int


HOLE_FIELDS = ("id", "prompt", "source", "target_answer", "unlearned_answer", "target_score", "unlearned_score")
"""The fields of a confirmed hole in holes.jsonl: the answers and scores that confirmed it."""


def read_attempts(folder: ProbeFolder) -> list[Attempt]:
    """Return all attempts of a search, in order. None without a search."""
    if folder.attempts.exists():
        return list(read_rows(folder.attempts, Attempt))
    return []


def candidates_of(attempts: Iterable[Attempt]) -> list[HoleCandidate]:
    """D_RL: the attempts with J = 10, each prompt once.

    Prompts of a learning policy come from the state of their iteration and depend on each other through it. Those of a
    baseline by the seed that they began with.
    """
    candidates: dict[str, HoleCandidate] = {}
    for a in attempts:
        if a.j == LATENT_J:
            origin = f"{a.source}, iteration {a.iteration}" if a.source == LEARNING else a.seed
            candidates.setdefault(a.prompt, HoleCandidate(a.prompt, a.source, origin))
    return list(candidates.values())


def write_tested(folder: ProbeFolder, tested: Sequence[Tested], table: HoleTable, identity: Record) -> None:
    """Write the results of testing. The summary comes last and marks the folder as complete."""
    # The summary is deleted first: after a kill, an old summary must not be next to new records.
    folder.summary.unlink(missing_ok=True)
    write_jsonl(folder.tested, map(asdict, tested))
    write_jsonl(folder.holes, ({name: getattr(t, name) for name in HOLE_FIELDS} for t in tested if t.hole))
    # What the page shows was not changed since.
    write_sealed(folder.summary, {"identity": identity, "table": to_json(table)}, [folder.tested, folder.holes])


def read_table(folder: ProbeFolder) -> tuple[HoleTable, Fields]:
    """Read the table, with the identity of its inputs."""
    stored = unsealed(folder.summary, read_versioned(folder.summary, "identity", "table"))
    return typed(folder.summary, HoleTable, stored["table"], remedy=AGAIN), stored["identity"]


def read_tested(folder: ProbeFolder) -> list[Tested]:
    """Read the result of each candidate, in the order of the search."""
    return list(read_rows(folder.tested, Tested))


def is_there(folder: ProbeFolder, part: str, identity: Record) -> bool:
    """Whether the part is done. A folder that holds the part with another identity is rejected."""
    if not folder.asked(part).exists():
        return False
    stored = read_versioned(folder.asked(part), "identity")["identity"]
    refuse_another(
        folder.path, f"part {part!r}", identity, stored, out="choose another --output-dir or delete this one"
    )
    return True


def put_down(folder: ProbeFolder, part: str, identity: Record, record: Record) -> None:
    """Write the identity of a part and the notes on its origin."""
    write_json(folder.asked(part), {"schema": SCHEMA, "identity": dict(identity), "found": dict(record)})
