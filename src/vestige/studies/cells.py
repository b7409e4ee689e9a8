"""From a study's settings to its cells: what is made of what, under keys that hold everything that can change it.

Planning loads no model and no torch: graphs are drawn and selectors resolved, and the keys follow from names, digests
and settings. The versions of the code that makes cells are held by the folder (`studies/making.py`).
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from vestige.artifacts.layout import StudyFolder, own_folder
from vestige.core.errors import InputError
from vestige.core.files import read_json, read_jsonl, write_jsonl
from vestige.core.ids import content_id, file_digest, slug
from vestige.core.items import Item
from vestige.core.seeds import generator
from vestige.core.text import one_line
from vestige.data.corpus import Corpus, NamedSplits, everything, items_of, named_splits, open_corpus
from vestige.data.graph import Graph, load_graph
from vestige.data.loaders import pack_named, published_of
from vestige.data.selectors import is_selector, select_edges, select_items, with_seed
from vestige.studies.engine import StudyCell
from vestige.studies.settings import EACH, StudyData, StudyForget, StudyMethod, StudyModel, StudySettings

MOST_NAMED = 100
"""A forget set of more edges goes by its selector."""


class Member(NamedTuple):
    """One forget set, resolved: its name, the selectors that are forgotten one after another, and its place in a graph.

    `connectivity` is the mean of its edges' (PISTOL, section 4), None without a graph; `id` says which items they are.
    """

    name: str
    steps: tuple[str, ...]
    connectivity: float | None
    id: str


class CellPoint(NamedTuple):
    """Where a cell lies on the axes; `step` counts what is forgotten in turn, and controls.

    `until` are steps after which a training is looked at (0: its end), `part` says which of several works of one kind.
    """

    model: str
    data: str
    seed: int
    role: str = ""
    method: str = ""
    forget: str = ""
    member: str = ""
    rate: float = 0.0
    goal: str = ""
    step: int = 0
    until: int = 0
    part: str = ""


@dataclass(frozen=True, eq=False)
class Study:
    """A study in a folder."""

    settings: StudySettings
    folder: StudyFolder

    @cached_property
    def id(self) -> str:
        """Content id of the settings."""
        return content_id(self.settings.identity(), length=32)

    def data(self, name: str) -> StudyData:
        """The data set of that name."""
        return next(d for d in self.settings.data if d.name == name)

    def model(self, name: str) -> StudyModel:
        """The model of that name."""
        return next(m for m in self.settings.models if m.label == name)

    def method(self, name: str) -> StudyMethod:
        """The method of that name."""
        return next(m for m in self.settings.methods if m.label == name)

    @cached_property
    def members(self) -> dict[tuple[str, str], tuple[Member, ...]]:
        """The resolved forget sets by data set and forget set."""
        found = {}
        for data in self.settings.data:
            place = Resolver(data)
            for forget in self.settings.forget:
                if not forget.data or data.name in forget.data:
                    found[data.name, forget.label] = tuple(place.members(forget))
        return found

    def member(self, data: str, forget: str, name: str) -> Member:
        """The member of that name."""
        return next(m for m in self.members[data, forget] if m.name == name)

    @cached_property
    def places(self) -> tuple[StudyCell, ...]:
        """The cell of every combination, each after those that it needs; what is asked of a model comes right after it.

        Two combinations may come to one cell, as where one contract is in two forget sets.
        """
        return tuple(Planner(self).cells())

    @cached_property
    def cells(self) -> tuple[StudyCell, ...]:
        """What is made, each once."""
        found: dict[str, StudyCell] = {}
        for cell in self.places:
            found.setdefault(cell.key, cell)
        return tuple(found.values())


@dataclass(frozen=True)
class Resolver:
    """What selectors mean in one data set."""

    data: StudyData

    @cached_property
    def graph(self) -> Graph:
        """The graph that is compiled."""
        return load_graph(self.data.compile, seed=self.data.seed)

    @cached_property
    def corpus(self) -> Corpus:
        """The items of data that are not compiled here."""
        return open_corpus(self.data.source(Path()))

    @cached_property
    def connectivity(self) -> Mapping[str, int]:
        """By edge."""
        return dict(zip(self.graph.edge_ids(), self.graph.connectivity.tolist(), strict=True))

    def members(self, forget: StudyForget) -> Iterator[Member]:
        """The forget set, or one for each of its edges."""
        if not forget.select.startswith(EACH):
            parts = forget.select.split(",") if forget.in_turn else [forget.select]
            yield self._member([part.strip() for part in parts])
            return
        if forget.in_turn:
            raise InputError(f"forget {one_line(forget.label)!r}: each: and in_turn exclude each other")
        for edge in self._edges(f"random:{forget.select.removeprefix(EACH)}"):
            yield self._member([f"edge:{edge}"])

    def _edges(self, selector: str) -> tuple[str, ...]:
        seed = self.data.split_seed
        if self.data.compile:
            return select_edges(self.graph, selector, seed=seed)
        if self.corpus.dataset is not None:
            return select_edges(self.corpus.dataset.graph, selector, seed=seed)
        items = select_items(self.corpus.items, selector, seed=seed, source=self.corpus.source)
        return tuple(dict.fromkeys(str(i.edge) for i in items))

    def _member(self, parts: list[str]) -> Member:
        named: list[str] = []
        ids: list[list[str]] = []
        edges: list[str] = []
        for part in parts:
            if self.data.compile and (is_selector(part) or not Path(part).exists()):
                own = select_edges(self.graph, part, seed=self.data.split_seed)
                edges += own
                ids.append(list(own))
                few = len(own) <= MOST_NAMED
                named.append(",".join(f"edge:{e}" for e in own) if few else with_seed(part, self.data.split_seed))
            elif self.data.compile:
                ids.append([file_digest(Path(part))])
                named.append(part)
            else:
                ids.append([i.id for i in items_of(self.corpus, part)])
                named.append(with_seed(part, self.data.split_seed))
        mean = sum(self.connectivity[e] for e in edges) / len(edges) if edges and self.data.compile else None
        name = ",".join(named) + (" in turn" if len(named) > 1 else "")
        return Member(name, tuple(named), mean, content_id(ids, length=32))


@dataclass
class Planner:
    """Makes the cells of a study."""

    study: Study
    _keys: dict[tuple[str, str], str] = field(default_factory=dict)
    _firsts: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)

    @cached_property
    def settings(self) -> StudySettings:
        """The study's."""
        return self.study.settings

    def cells(self) -> Iterator[StudyCell]:
        """What is made, in an order that gives results early."""
        for data in self.settings.data:
            held = self._id("data", data.name, partial(_of_data, data))
            if data.compile:
                yield StudyCell(held, "data", data.name, (), CellPoint("", data.name, 0))
            for model in self.settings.models:
                asked: list[tuple[str, StudyCell]] = []
                for seed in data.seeds or self.settings.seeds:
                    yield from self._of_seed(data, held, model, seed, asked)
                if self.settings.holes is not None and asked:
                    # Loaded late: it brings torch, which other plans do without.
                    from vestige.studies.holes import hole_cells

                    yield from hole_cells(self.study, held, asked, partial(self._asked, held=held))

    def _id(self, kind: str, name: str, content: Callable[[], Any]) -> str:
        """The content id of a thing by its name, computed once."""
        if (kind, name) not in self._keys:
            self._keys[kind, name] = content_id([kind, content()])
        return self._keys[kind, name]

    def _of_seed(
        self, data: StudyData, held: str, model: StudyModel, seed: int, made: list[tuple[str, StudyCell]]
    ) -> Iterator[StudyCell]:
        """The cells of one seed; `made` gets the evaluations of unlearned models, each with its target's key."""
        start = self._id("model", model.label, lambda: _of_model(model))
        first = (held,) if data.compile else ()
        first_seed = (data.seeds or self.settings.seeds)[0]
        point = CellPoint(model.label, data.name, first_seed if model.one_target else seed, "target")
        if model.teach:
            taught = self._teaching(model, data)
            target = content_id(["target", held, start, taught, point.seed])
            yield StudyCell(target, "target", f"target {model.label} {data.name} seed {point.seed}", first, point)
        else:
            # A model that knows already has no seed of its own: it is asked once.
            point = point._replace(seed=0)
            known = published_of(data.data, model.model, self.settings.published or None)
            # With the figures that it is held against, so that none goes unchecked for an earlier study's sake.
            checked = [known[1].model_dump(mode="json", include={"figures", "tolerance"})] if known is not None else []
            target = content_id(["given", held, start, *checked])
            yield StudyCell(target, "given", f"given {model.label} {data.name}", first, point)
        yield (asked := self._asked(target, point, held))
        for forget in self.settings.forget if self.settings.attack else ():
            for member in self.study.members.get((data.name, forget.label), ()):
                own = point._replace(forget=forget.label, member=member.name)
                yield self._attacked(target, target, own, member, held)
        seen: dict[str, list[StudyCell]] = {}
        for control in range(self.settings.evaluate.controls if model.teach else 0):
            for cell in self._control(data, held, model, seed, control, target):
                seen.setdefault(cell.point.member, []).append(cell)
                yield cell
        for forget in self.settings.forget:
            members = self.study.members.get((data.name, forget.label), ())
            rates = {m.label: self.settings.rates_of(model, m, data, forget) for m in self.settings.methods}
            for member in members:
                judged: list[StudyCell] = []
                place = point._replace(seed=seed, forget=forget.label, member=member.name)
                for method, tried in ((m, r) for m in self.settings.methods for r in rates[m.label]):
                    if method.model and seed != first_seed:
                        continue  # It has no seed of its own: it is asked once.
                    own = place._replace(method=method.label, rate=tried.rate, goal=tried.goal)
                    for cell in self._unlearned(own, member, model, method, held, target, tried.grid):
                        judged.append(cell)
                        yield cell
                made += [(target, cell) for cell in judged if cell.kind == "evaluate"]
                if self.settings.audit is not None:
                    yield self._audited(target, place, member, [asked, *seen.get(member.name, ()), *judged], held)

    def _control(
        self, data: StudyData, held: str, model: StudyModel, seed: int, number: int, target: str
    ) -> Iterator[StudyCell]:
        first = (held,) if data.compile else ()
        start = self._id("model", model.label, lambda: _of_model(model))
        taught = self._teaching(model, data)
        for forget in self.settings.forget:
            for member in self.study.members.get((data.name, forget.label), ()):
                key = content_id(["retrained", held, start, taught, member.id, seed, number])
                point = CellPoint(model.label, data.name, seed, "retrained", "", forget.label, member.name, step=number)
                name = f"retrained {model.label} {data.name} {member.name} seed {seed} {number}"
                yield StudyCell(key, "retrained", name, first, point)
                yield self._asked(key, point, held)
                if self.settings.attack:
                    yield self._attacked(key, target, point, member, held)

    def _unlearned(
        self,
        point: CellPoint,
        member: Member,
        model: StudyModel,
        method: StudyMethod,
        held: str,
        target: str,
        grid: tuple[float, ...],
    ) -> Iterator[StudyCell]:
        if method.model:
            its = model.model_copy(update={"model": method.model, "teach": False})
            key = content_id(
                ["given", held, self._id("model", f"{model.label} {method.label}", lambda: _of_model(its))]
            )
            here = point._replace(role="unlearned")
            yield StudyCell(key, "given", f"given {method.label} {model.label} {point.data}", (target,), here)
            yield self._asked(key, here, held)
            return
        label = f"{model.label}\n{method.label}\n{point.rate!r}"
        own = self._id("unlearn", label, lambda: self._training(model, method, point.rate))
        key = target
        found: tuple[str, ...] = ()
        if point.goal:
            chosen = self._calibrated(point, member, own, held, target, grid)
            # At later seeds it is that of the first.
            yield chosen
            own, found = content_id([own, chosen.key]), (chosen.key,)
        for step in range(len(member.steps)):
            before = key
            chained = [own, key, member.id, step] if len(member.steps) > 1 else [own, key, member.id]
            key = content_id(["unlearned", held, point.seed, *chained])
            here = point._replace(role="unlearned", step=step)
            rate = rate_name(point)
            name = f"{method.label} {member.name} rate {rate} {model.label} {point.data} seed {point.seed}"
            yield StudyCell(key, "unlearned", name if step == 0 else f"{name} step {step + 1}", (before, *found), here)
        yield self._asked(key, here, held)
        if self.settings.attack:
            yield self._attacked(key, target, here, member, held)

    def _calibrated(
        self, point: CellPoint, member: Member, own: str, held: str, target: str, grid: tuple[float, ...]
    ) -> StudyCell:
        """The search for a rate, from the target of the first seed."""
        first = self._firsts.setdefault((point.model, point.data), (point.seed, target))
        questions = self.settings.evaluate.settings.get("qa", {})
        key = content_id(["calibrate", held, first[1], own, member.id, point.goal, grid, questions])
        at = point._replace(seed=first[0], role="calibrate")
        name = f"calibrate {point.method} {member.name} {point.goal} {point.model} {point.data}"
        return StudyCell(key, "calibrate", name, (first[1],), at)

    def _teaching(self, model: StudyModel, data: StudyData) -> str:
        settings = self.settings
        return self._id("finetune", f"{model.label}\n{data.name}", lambda: settings.teaching(model, data).identity())

    def _training(self, model: StudyModel, method: StudyMethod, rate: float) -> dict[str, Any]:
        # Where the rate is sought, what seeks it is in the key.
        training = self.settings.training(model, method, rate or 1.0).identity()
        return {"training": training, "method": method.method, "own": method.settings, "save": model.save}

    def _asked(self, key: str, point: CellPoint, held: str) -> StudyCell:
        """What a model is asked; a target about all forget sets of its data, another about its own."""
        members = [m for place, own in self.study.members.items() if place[0] == point.data for m in own]
        about = self._id("members", point.data, lambda: [m.id for m in members]) if not point.member else point.member
        most = self.study.data(point.data).most_items
        asked = self._id("evaluate", point.data, lambda: [self.settings.evaluate.identity() | {"controls": 0}, most])
        name = f"evaluate {point.method or point.role} {point.member} {point.model} {point.data} seed {point.seed}"
        own = content_id(["evaluate", held, key, about, asked])
        rate = f" rate {rate_name(point)}" if point.method else ""
        rate += f" step {point.until}" if point.until else ""
        return StudyCell(own, "evaluate", name + rate, (key,), point)

    def _attacked(self, key: str, target: str, point: CellPoint, member: Member, held: str) -> StudyCell:
        """All attacks on one model; a search for a prefix goes by the words of the target."""
        asked = self._id("attack", point.data, lambda: [self.settings.attack, self.settings.evaluate.identity()])
        most = self.study.data(point.data).most_items
        name = f"attack {point.method or point.role} {member.name} {point.model} {point.data} seed {point.seed}"
        own = content_id(["attack", held, key, target, member.id, asked, most])
        rate = f" rate {rate_name(point)}" if point.method else ""
        return StudyCell(own, "attack", name + rate, tuple(dict.fromkeys((key, target))), point)

    def _audited(self, target: str, point: CellPoint, member: Member, made: list[StudyCell], held: str) -> StudyCell:
        """The audit of a forget set: its target first, then the models that are judged or compared with.

        It waits for what else asks these models, so that no two cells ask one model the same at once.
        """
        asked = [c for c in made if c.kind == "evaluate"]
        models = tuple(dict.fromkeys((target, *(c.after[0] for c in asked))))
        key = content_id(["audit", held, models, member.id, self.settings.audit])
        name = f"audit {member.name} {point.model} {point.data} seed {point.seed}"
        return StudyCell(key, "audit", name, (*models, *(c.key for c in asked)), point._replace(role="audit"))


def _of_data(data: StudyData) -> dict[str, Any]:
    """Everything that can change the items."""
    own = data.identity()
    if (pack := pack_named(data.data)) is not None:
        own["data"] = pack.content()
    for name in ("data", "compile", "factual", "contract_types", "retain"):
        path = Path(own[name]).expanduser() if isinstance(own[name], str) and own[name] else None
        if path is not None and path.is_file():
            own[name] = file_digest(path)
        elif path is not None and path.is_dir():
            own[name] = {str(p.relative_to(path)): file_digest(p) for p in sorted(path.rglob("*")) if p.is_file()}
    # Called otherwise, it is the same; what belongs to trainings and questions is in their keys.
    return {k: v for k, v in own.items() if k not in ("name", "seeds", "finetune", "most_items")}


def _of_model(model: StudyModel) -> dict[str, Any]:
    """Which weights, and how they are asked."""
    path, own = Path(model.model).expanduser(), own_folder(model.model)
    content: Any = model.model
    if own is not None and own.done.exists():
        content = json.loads(own.done.read_text(encoding="utf-8"))["digest"]
    elif path.is_dir():
        content = {p.name: file_digest(p) for p in sorted(path.iterdir()) if p.is_file()}
    return {"content": content, "dtype": model.dtype, "template": model.chat_template, "teach": model.teach}


def rate_name(point: CellPoint) -> str:
    """The learning rate as tables have it, or the goal that it was chosen for; nothing where nothing was unlearned."""
    short = f"{point.rate:g}"
    return point.goal or ("" if not point.rate else short if float(short) == point.rate else repr(point.rate))


def label_of(point: CellPoint) -> str:
    """What tables call a model: its method, with the step of a checkpoint, or its role."""
    return f"{point.method} step {point.until}" if point.until else point.method or point.role


def folder_of(room: str, point: CellPoint, key: str) -> str:
    """The folder of a model within the study's."""
    parts = (label_of(point), point.part, point.member, point.model.rpartition("/")[2], point.data, f"s{point.seed}")
    return f"{room}/{slug(' '.join(filter(None, parts)))}-{key}"


def save_plan(study: Study) -> None:
    """Keep the keys, for `status` to read."""
    rows = [[c.key, c.kind, c.name] for c in study.cells]
    write_jsonl(study.folder.plan(study.settings.name), [{"study": study.id}, *rows])


def saved_plan(study: Study) -> list[StudyCell] | None:
    """The cells as they were kept, without what they need; None where nothing was run with these settings."""
    path = study.folder.plan(study.settings.name)
    if not path.exists():
        return None
    rows = read_jsonl(path)
    if next(rows, None) != {"study": study.id}:
        return None
    return [StudyCell(key, kind, name) for key, kind, name in rows]


@lru_cache(maxsize=4)
def corpus_of(study: Study, data: str) -> Corpus:
    """The items of a data set."""
    own = study.data(data)
    compiled = next((c.key for c in study.cells if c.kind == "data" and c.name == data), None)
    return open_corpus(own.source(place_of(study, compiled) if compiled else Path()))


def place_of(study: Study, key: str) -> Path:
    """The folder of a finished cell, which another study may have made under names of its own."""
    return study.folder.path / str(read_json(study.folder.state.done / key)["made"]["path"])


@lru_cache(maxsize=64)
def splits_named(study: Study, point: CellPoint) -> NamedSplits:
    """All items as the forget set of a cell sees them."""
    steps = study.member(point.data, point.forget, point.member).steps
    return named_splits(corpus_of(study, point.data), ",".join(steps), retain=study.data(point.data).retain)


@lru_cache(maxsize=64)
def splits_of(study: Study, data: str, forget: str, member: str) -> NamedSplits:
    """The items as one forget set sees them, all of those that are asked and no others."""
    corpus = corpus_of(study, data)
    splits = splits_named(study, CellPoint("", data, 0, forget=forget, member=member))
    asked, most = study.settings.evaluate, study.data(data).most_items
    kept = {n: items for n, items in splits.splits.items() if not asked.splits or n in asked.splits or n == "forget"}
    if most is not None:
        drawn = _drawn(everything([replace(splits, splits={"all": corpus.items + corpus.factual})]), most, study, data)
        kept = {n: items if n == "forget" else tuple(i for i in items if i.id in drawn) for n, items in kept.items()}
    return replace(splits, forget=member, splits={n: items for n, items in kept.items() if items})


def _drawn(items: tuple[Item, ...], most: int, study: Study, data: str) -> set[str]:
    """The same items for every forget set: at most `most` of those with an edge, and of those without."""
    found: set[str] = set()
    for kind in (True, False):
        own = [i for i in items if (i.edge is None) is kind]
        order = generator(study.data(data).seed, "asked", str(kind)).permutation(len(own))[:most]
        found |= {own[n].id for n in order.tolist()}
    return found
