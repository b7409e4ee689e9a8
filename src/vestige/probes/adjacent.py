"""Adjacent questions of a forget set, made once in the folder of the probe, and of what is kept.

Of texts templates or a language model make them (`questions`); of graphs of contracts they are questions about other
contracts (`neighbours`). Retained questions are taken as they are.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from vestige.artifacts.holes import is_there, put_down
from vestige.artifacts.layout import ProbeFolder
from vestige.artifacts.records import read_rows
from vestige.core.errors import InputError
from vestige.core.files import locked, write_jsonl
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.data.corpus import NamedSplits
from vestige.data.dataset import Dataset
from vestige.data.passages import Passage
from vestige.judges.base import Writer
from vestige.probes import VERSION
from vestige.probes.neighbours import NeighbourSettings, neighbour_questions
from vestige.probes.questions import (
    ASKING_VERSION,
    Adjacent,
    AdjacentQuestion,
    AdjacentSettings,
    Source,
    adjacent,
    as_they_are,
    plain,
    source_text,
)
from vestige.steps.making import LOCK_SECONDS

By = Literal["graph", "offline"] | Writer


class KeptQuestion(NamedTuple):
    """An adjacent question as it lies on the disk: of the forget or of the retain set."""

    of: Literal["forget", "retain"]
    question: AdjacentQuestion


@dataclass(frozen=True)
class AdjacentRequest:
    """Of what adjacent questions are made, and how: from the graph, from templates, or by a language model.

    A forget set of texts is `forget_texts`, beside which the splits have none. Of retained texts questions are made
    too, at most `retain_k` of each; retained questions are taken as they are.
    """

    splits: NamedSplits
    dataset: Dataset | None
    by: By
    settings: AdjacentSettings
    neighbours: NeighbourSettings
    seed: int
    forget_texts: tuple[Passage, ...] = ()
    retain_texts: tuple[Passage, ...] = ()
    retain_k: int = 2

    @property
    def forget(self) -> tuple[Source, ...]:
        """What is forgotten."""
        return self.forget_texts or self.splits.splits["forget"]

    @property
    def retain(self) -> tuple[Item, ...]:
        """The retained questions."""
        return self.splits.splits.get("retain", ())


def make_adjacent(folder: ProbeFolder, request: AdjacentRequest) -> list[KeptQuestion]:
    """The adjacent questions of both sets, in the folder; made unless they are there."""
    with locked(folder.lock, patience_seconds=LOCK_SECONDS):
        identity = _adjacent_identity(request)
        if is_there(folder, "adjacent", identity):
            return read_adjacent(folder)
        made = adjacent_of(request)
        rows = [{"of": of, "question": asdict(q)} for of, found in made.items() for q in found.questions]
        write_jsonl(folder.adjacent, rows)
        put_down(
            folder,
            "adjacent",
            identity,
            {
                of: {
                    "n": len(found.questions),
                    **{name: getattr(found, name) for name in ("n_sources", "dropped", "failures")},
                    "spend": asdict(found.spend),
                }
                for of, found in made.items()
            },
        )
        return read_adjacent(folder)


def adjacent_of(request: AdjacentRequest) -> dict[str, Adjacent]:
    """The adjacent questions of the forget set, and the retain set's own questions as they are, or near its texts."""
    return {
        "forget": _near(request),
        "retain": _near_kept(request) if request.retain_texts else as_they_are(request.retain),
    }


def read_adjacent(folder: ProbeFolder) -> list[KeptQuestion]:
    """The adjacent questions in the folder; none where none were made."""
    return list(read_rows(folder.adjacent, KeptQuestion)) if folder.adjacent.exists() else []


def beginnings_in(folder: ProbeFolder) -> list[str]:
    """The questions that a search begins from: all adjacent ones, each once. A folder without any is refused."""
    questions: dict[str, str] = {}
    for kept in read_adjacent(folder):
        questions.setdefault(plain(kept.question.question), kept.question.question)
    if not questions:
        raise InputError(f"{folder.path} holds no adjacent questions to begin from; run `vestige probe adjacent` first")
    return list(questions.values())


def _near(request: AdjacentRequest) -> Adjacent:
    if request.by == "graph":
        if request.dataset is None:
            raise InputError("the data has no graph to look for neighbours in; make the questions offline")
        edges = sorted({item.edge for item in request.splits.splits["forget"] if item.edge is not None})
        return neighbour_questions(request.dataset, edges, request.neighbours, seed=request.seed)
    background = _texts(request, (*request.retain, *request.retain_texts))
    return adjacent(request.forget, request.settings, by=request.by, seed=request.seed, background=background)


def _near_kept(request: AdjacentRequest) -> Adjacent:
    if request.by == "graph":
        raise InputError("retained texts have no graph to look for neighbours in; make the questions offline")
    settings = request.settings.model_copy(update={"k": request.retain_k})
    background = _texts(request, request.forget)
    return adjacent(request.retain_texts, settings, by=request.by, seed=request.seed, background=background)


def _texts(request: AdjacentRequest, sources: Sequence[Source]) -> list[str]:
    return [source_text(source, request.settings.most_characters) for source in sources]


def _adjacent_identity(request: AdjacentRequest) -> dict[str, Any]:
    by_graph = request.by == "graph"
    return {
        "version": VERSION,
        "by": request.by if isinstance(request.by, str) else request.by.name,
        "forget": content_id([i.id for i in request.forget], length=32),
        "retain": content_id([*(i.id for i in request.retain), *(t.id for t in request.retain_texts)], length=32),
        "settings": (request.neighbours if by_graph else request.settings).identity(),
        "seed": request.seed,
        **({"retain_k": request.retain_k} if request.retain_texts else {}),
        **({} if isinstance(request.by, str) else {"words": ASKING_VERSION}),
    }
