"""Adjacent questions of a forget set, made once in the probe's folder, and retained questions.

Of texts templates or a language model make them (`questions`). Retained questions are taken as they are. For graphs of
contracts they are questions about other contracts, by their distance from a forgotten one: two contracts are at
distance 1 if they share a party, at distance 2 if a third shares one with each, and so on. Parallel contracts are at
distance 1. They are the data's own, so that their true answers are known. Questions whose answers a forgotten contract
states as well (the address of a shared party) are dropped: to forget them is no hole.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from vestige.artifacts.holes import is_there, put_down
from vestige.artifacts.layout import ProbeFolder
from vestige.core.errors import InputError
from vestige.core.files import locked, write_jsonl
from vestige.core.ids import content_id
from vestige.core.items import Item, ItemTuple
from vestige.core.seeds import generator, shuffled
from vestige.core.store import read_rows
from vestige.data.contracts import contract_types
from vestige.data.corpus import BEFORE, ProbeSources
from vestige.data.dataset import Dataset, Known, known_from, scope_of
from vestige.data.graph import Graph, check_edges
from vestige.judges.base import Writer
from vestige.probes import VERSION
from vestige.probes.questions import (
    ASKING_VERSION,
    Adjacent,
    AdjacentQuestion,
    AdjacentSettings,
    QuestionDesk,
    Source,
    adjacent,
    as_they_are,
    plain,
    source_text,
)

STATED = "the forget set states it"
SAME, OTHER = "same attribute", "other attribute"


DISTANCES = (1, 2)
"""Distances in the graph at which contracts are taken."""


def neighbour_questions(
    dataset: Dataset,
    forget: Sequence[str],
    *,
    k: int,
    seed: int,
    before: Sequence[str] = (),
    distances: Sequence[int] = DISTANCES,
) -> Adjacent:
    """Up to k questions of each item of the forgotten edges. The seed and the item choose which.

    In turn, for each distance: one that asks for the same attribute of another contract, one for another attribute.
    Edges in `before` are excluded: their loss is no hole.
    """
    check_edges(dataset.graph, forget)
    if not forget:
        raise InputError(f"{dataset.graph.name}: no forgotten edge to look around. Name at least one")
    around = _Around(dataset, frozenset((*forget, *before)), max(distances))
    desk = QuestionDesk(())
    for edge in dict.fromkeys(forget):
        steps = around.edges_from(edge)
        for item in dataset.items_of_edge.get(edge, ()):
            cells = []
            for distance in distances:
                for relation in (SAME, OTHER):
                    cells.append(around.admitted(desk, item, distance, relation, steps.get(distance, ()), seed))
            n = 0
            while cells and n < k:
                # A copy is iterated because exhausted cells are removed.
                for cell in tuple(cells):
                    if n < k and next(cell, None) is None:
                        cells.remove(cell)
                    elif n < k:
                        n += 1
            desk.short(k - n)
    return desk.result()


def contract_distances(graph: Graph, edges: Sequence[str], *, farthest: int | None = None) -> dict[str, int]:
    """Return the steps from the nearest of these edges to each reachable edge, and 0 for these edges."""
    distances: dict[str, int] = {}
    frontier, steps = {*edges}, 0
    while frontier and (farthest is None or steps <= farthest):
        # The graph's order is used: the order of the set differs between processes and would change the draws.
        distances |= dict.fromkeys((edge for edge in graph.edges if edge in frontier), steps)
        nodes = frozenset[str]().union(*(graph.edges[edge].pair for edge in frontier))
        # Parallel contracts share both parties, and are one step away like any other.
        frontier = {name for name, edge in graph.edges.items() if nodes & edge.pair} - distances.keys()
        steps += 1
    return distances


@dataclass(frozen=True)
class _Around:
    """The neighbourhood of forgotten contracts."""

    dataset: Dataset
    forget: frozenset[str]
    farthest: int

    @cached_property
    def _stated(self) -> Known:
        """Return the forgotten contracts' statements about entities."""
        contracts = (c for c in self.dataset.contracts if c.edge in self.forget)
        return known_from(contracts)

    def edges_from(self, edge: str) -> dict[int, list[str]]:
        """The retained edges by their distance from one."""
        edges: dict[int, list[str]] = {}
        for name, distance in contract_distances(self.dataset.graph, [edge], farthest=self.farthest).items():
            if name not in self.forget:
                edges.setdefault(distance, []).append(name)
        return edges

    def admitted(
        self, desk: QuestionDesk, source: Item, distance: int, relation: str, edges: Sequence[str], seed: int
    ) -> Iterator[AdjacentQuestion]:
        """Yield questions of these edges for the source's attribute of its type, or for another, in random order.

        Each is checked only when requested, so that unused questions are not counted.
        """
        items = []
        for edge in edges:
            for item in self.dataset.items_of_edge.get(edge, ()):
                # Items without an attribute have nothing in common, so they count as different.
                same = source.attribute is not None and (item.group, item.attribute) == (source.group, source.attribute)
                if same == (relation == SAME):
                    items.append(item)
        for index in shuffled(generator(seed, "neighbour", source.id, distance, relation), len(items)).tolist():
            item = items[index]
            contract = self.dataset.contract_of.get(str(item.edge))
            # If a contract's content is unknown, nothing shows that a forgotten one states the same.
            if (
                contract is not None
                and item.attribute is not None
                and scope_of(item, contract, self._stated) == "entailed"
            ):
                desk.drop(STATED)
                continue
            keyword = self.shared(source, item)
            question = AdjacentQuestion(source.id, keyword, item.question, distance, item.answer, relation)
            if desk.admit(question):
                yield question

    def shared(self, source: Item, item: Item) -> str:
        """Return the entities that connect two contracts, or otherwise the other contract's, as contracts name them."""
        source_edge, edge = (self.dataset.graph.edges[str(i.edge)] for i in (source, item))
        ends = [edge.first, edge.second]
        nodes = [node for node in ends if node in source_edge.pair] or ends
        return " and ".join(self._name(str(item.edge), node) for node in nodes)

    def _name(self, edge: str, label: str) -> str:
        contract = self.dataset.contract_of.get(edge)
        if contract is None:
            return label
        type_ = contract_types()[contract.type]
        role = next((role for role, node in contract.parties.items() if node == label), None)
        if role is None:
            return label
        return contract.values[type_.name_of[role]]


By = Literal["graph", "offline"] | Writer


class KeptQuestion(NamedTuple):
    """A stored adjacent question of the forget set or of the retain set."""

    of: Literal["forget", "retain"]
    question: AdjacentQuestion


@dataclass(frozen=True)
class AdjacentRequest:
    """The source of adjacent questions: the graph, templates, or a language model.

    Retained texts get questions too, at most `retain_k` each. Retained questions are taken as they are.
    """

    sources: ProbeSources
    by: By
    settings: AdjacentSettings
    seed: int
    retain_k: int = 2

    @property
    def splits(self) -> Mapping[str, ItemTuple]:
        """The items by split."""
        return self.sources.splits.splits


def make_adjacent(folder: ProbeFolder, request: AdjacentRequest) -> list[KeptQuestion]:
    """The adjacent questions of both sets, in the folder. Made unless they are there."""
    with locked(folder.lock):
        identity = _adjacent_identity(request)
        if is_there(folder, "adjacent", identity):
            return read_adjacent(folder)
        by_set = adjacent_of(request)
        rows, counts = [], {}
        for of, adjacents in by_set.items():
            rows += [{"of": of, "question": asdict(question)} for question in adjacents.questions]
            counts[of] = {"n": len(adjacents.questions), "dropped": adjacents.dropped, "failures": adjacents.failures}
        write_jsonl(folder.adjacent, rows)
        put_down(folder, "adjacent", identity, counts)
        return read_adjacent(folder)


def adjacent_of(request: AdjacentRequest) -> dict[str, Adjacent]:
    """The adjacent questions of the forget set, and the retain set's own questions as they are, or near its texts."""
    by, seed, sources = request.by, request.seed, request.sources
    most, items, texts = request.settings.most_characters, request.splits.get("retain", ()), sources.retain_texts
    kept = as_they_are(items)
    if by == "graph":
        dataset = sources.corpus.dataset
        if dataset is None or texts:
            whose = "retained texts have" if dataset else "the data has"
            raise InputError(f"{whose} no graph to look for neighbours in. Make the questions offline")
        forget, before = _edges(request, "forget"), _edges(request, BEFORE)
        around = neighbour_questions(dataset, forget, k=request.settings.k, seed=seed, before=before)
        return {"forget": around, "retain": kept}
    retained: tuple[Source, ...] = (*items, *texts)
    background = [source_text(source, most) for source in retained]
    near = adjacent(sources.forget, request.settings, by=by, seed=seed, background=background)
    if texts:
        settings = request.settings.model_copy(update={"k": request.retain_k})
        forgotten = [source_text(source, most) for source in sources.forget]
        kept = adjacent(texts, settings, by=by, seed=seed, background=forgotten)
    return {"forget": near, "retain": kept}


def _edges(request: AdjacentRequest, name: str) -> list[str]:
    return sorted({item.edge for item in request.splits.get(name, ()) if item.edge is not None})


def read_adjacent(folder: ProbeFolder) -> list[KeptQuestion]:
    """Return the adjacent questions in the folder, or None if there are none."""
    if folder.adjacent.exists():
        return list(read_rows(folder.adjacent, KeptQuestion))
    return []


def beginnings_in(folder: ProbeFolder) -> list[str]:
    """The questions that a search begins from: all adjacent ones, each once. A folder without any is refused."""
    questions: dict[str, str] = {}
    for entry in read_adjacent(folder):
        questions.setdefault(plain(entry.question.question), entry.question.question)
    if not questions:
        raise InputError(f"{folder.path} holds no adjacent questions to begin from. Run `vestige probe` first")
    return list(questions.values())


def _adjacent_identity(request: AdjacentRequest) -> dict[str, Any]:
    by, before, texts = request.by, request.splits.get(BEFORE, ()), request.sources.retain_texts
    retained: tuple[Source, ...] = (*request.splits.get("retain", ()), *texts)
    identity = {
        "version": VERSION,
        "by": by if isinstance(by, str) else by.name,
        "forget": content_id([source.id for source in request.sources.forget], length=32),
        "retain": content_id([source.id for source in retained], length=32),
        "settings": {"k": request.settings.k, "distances": [*DISTANCES]}
        if by == "graph"
        else request.settings.identity(),
        "seed": request.seed,
    }
    # The value is stored only if it is used: a setting that changes no question must not make a folder incompatible.
    if texts:
        identity["retain_k"] = request.retain_k
    if before:
        identity["before"] = content_id([item.id for item in before], length=32)
    if not isinstance(by, str):
        identity["words"] = ASKING_VERSION
    return identity
