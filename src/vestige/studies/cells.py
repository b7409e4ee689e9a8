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
from vestige.core.files import read_json
from vestige.core.ids import content_id, file_digest, slug
from vestige.core.items import Item
from vestige.core.plugins import brought
from vestige.core.seeds import generator
from vestige.core.text import one_line
from vestige.data.corpus import Corpus, NamedSplits, everything, items_of, named_splits, open_corpus, without
from vestige.data.graph import Graph, load_graph
from vestige.data.loaders import pack_named, published_of
from vestige.data.selectors import is_selector, select_edges, select_items, with_seed
from vestige.judges.spec import judge_spec
from vestige.steps.engine import StudyCell
from vestige.studies.settings import (
    EACH,
    RateChoice,
    StudyData,
    StudyForget,
    StudyMethod,
    StudyModel,
    StudySettings,
)

KINDS = {
    "data": "vestige.studies.making:DATA",
    "target": "vestige.studies.making:TAUGHT",
    "retrained": "vestige.studies.making:TAUGHT",
    "given": "vestige.studies.making:GIVEN",
    "calibrate": "vestige.studies.making:CALIBRATED",
    "unlearned": "vestige.studies.making:UNLEARNED",
    "evaluate": "vestige.studies.making:EVALUATED",
    "attack": "vestige.studies.making:ATTACKED",
    "audit": "vestige.studies.making:AUDITED",
    "policy": "vestige.studies.holes:HOLES",
    "checkpoint": "vestige.studies.holes:HOLES",
    "probe": "vestige.studies.holes:HOLES",
    "repeat": "vestige.studies.holes:HOLES",
    "mitigate": "vestige.studies.holes:HOLES",
}
"""Where the `CellKind` of each kind is. By name, since planning imports nothing that makes cells."""
_HOLE_CELLS = "vestige.studies.holes:hole_cells"
LEFT_OUT = "left_out"
"""The split of what a data set with `retain` neither forgets nor names: asked where `evaluate.splits` says so."""
MOST_NAMED = 100
"""A forget set of more edges goes by its selector."""


class CellKind(NamedTuple):
    """What makes the cells of one kind, and the versions of the code that decides what they hold, by name."""

    make: Callable[["Study", StudyCell], Mapping[str, Any]]
    versions: Callable[["Study"], Mapping[str, int]]
    check: Callable[["Study"], object] = lambda _: None
    """Refuses what would fail only after something has been trained."""


def cell_kind(name: str) -> CellKind:
    """The kind of that name; loads its module."""
    kind: CellKind = brought("kind of cell", name, KINDS[name])
    return kind


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
        members = {}
        for data in self.settings.data:
            resolver = Resolver(data)
            for forget in self.settings.forget:
                if not forget.data or data.name in forget.data:
                    members[data.name, forget.label] = tuple(resolver.members(forget))
        return members

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
        # Of cells with one key the first is made; reversed, it is the one that stays.
        by_key = {cell.key: cell for cell in reversed(self.places)}
        return tuple(by_key[key] for key in dict.fromkeys(cell.key for cell in self.places))


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

    def members(self, forget: StudyForget) -> Iterator[Member]:
        """The forget set, or one for each of its edges."""
        if not forget.select.startswith(EACH):
            parts = forget.select.split(",") if forget.in_turn else [forget.select]
            yield self._member([part.strip() for part in parts])
            return
        if forget.in_turn:
            raise InputError(f"forget {one_line(forget.label)!r}: each: and in_turn exclude each other")
        # One selector draws them, so that no edge comes twice.
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
        selectors: list[str] = []
        ids: list[list[str]] = []
        edges: list[str] = []
        seed = self.data.split_seed
        for part in parts:
            name, content = with_seed(part, seed), []
            if not self.data.compile:
                content = [i.id for i in items_of(self.corpus, part)]
            elif is_selector(part) or not Path(part).exists():
                content = list(select_edges(self.graph, part, seed=seed))
                edges += content
                # By its edges, so that two selectors of the same edges are one forget set, made once.
                if len(content) <= MOST_NAMED:
                    name = ",".join(f"edge:{edge}" for edge in content)
            else:
                name, content = part, [file_digest(Path(part))]
            selectors.append(name)
            ids.append(content)
        mean = sum(self.graph.connectivity[e] for e in edges) / len(edges) if edges else None
        name = ",".join(selectors) + (" in turn" if len(selectors) > 1 else "")
        return Member(name, tuple(selectors), mean, content_id(ids, length=32))


@dataclass(frozen=True)
class _Ground:
    """What the cells of one seed stand on: a model and the keys of its data, weights and target."""

    data: StudyData
    data_key: str
    model: StudyModel
    model_key: str
    target: str
    point: CellPoint
    """The target's."""

    @property
    def after(self) -> tuple[str, ...]:
        """What a training needs: the data, where they are compiled."""
        return (self.data_key,) if self.data.compile else ()


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
            data_key = self._id("data", data.name, partial(_data_content, data))
            if data.compile:
                yield StudyCell(data_key, "data", data.name, (), CellPoint("", data.name, 0))
            for model in self.settings.models:
                unlearned: list[tuple[str, StudyCell]] = []
                for seed in data.seeds or self.settings.seeds:
                    yield from self._cells_of_seed(data, data_key, model, seed, unlearned)
                if self.settings.holes is not None and unlearned:
                    # Loaded late: it brings torch, which other plans do without.
                    hole_cells = brought("planner", "holes", _HOLE_CELLS)
                    yield from hole_cells(self.study, data_key, unlearned, partial(self._evaluate, data_key=data_key))

    def _id(self, kind: str, name: str, content: Callable[[], Any]) -> str:
        """The content id of a thing by its name, computed once."""
        if (kind, name) not in self._keys:
            self._keys[kind, name] = content_id([kind, content()])
        return self._keys[kind, name]

    def _members(self, data: str, forget: StudyForget) -> tuple[Member, ...]:
        return self.study.members.get((data, forget.label), ())

    def _cells_of_seed(
        self,
        data: StudyData,
        data_key: str,
        model: StudyModel,
        seed: int,
        unlearned: list[tuple[str, StudyCell]],
    ) -> Iterator[StudyCell]:
        """The cells of one seed; `unlearned` gets the evaluations of unlearned models, each with its target's key."""
        first_seed = (data.seeds or self.settings.seeds)[0]
        model_key = self._id("model", model.label, lambda: _model_content(model))
        point = CellPoint(model.label, data.name, first_seed if model.one_target else seed, "target")
        ground = _Ground(data, data_key, model, model_key, "", point)
        if model.teach:
            target = content_id(["target", data_key, model_key, self._teaching(ground), point.seed])
            yield StudyCell(
                target, "target", f"target {model.label} {data.name} seed {point.seed}", ground.after, point
            )
        else:
            # A model that knows already has no seed of its own: it is asked once.
            point = point._replace(seed=0)
            figures = published_of(data.data, model.model, self.settings.published or None)
            # With the figures that it is held against, so that none goes unchecked for an earlier study's sake.
            checks = [figures[1].model_dump(mode="json", include={"figures", "tolerance"})] if figures else []
            target = content_id(["given", data_key, model_key, *checks])
            yield StudyCell(target, "given", f"given {model.label} {data.name}", ground.after, point)
        ground = replace(ground, target=target, point=point)
        yield (answers := self._evaluate(target, point, data_key))
        if self.settings.attack:
            for forget in self.settings.forget:
                for member in self._members(data.name, forget):
                    at = point._replace(forget=forget.label, member=member.name)
                    yield self._attack(target, ground, at, member)
        controls: dict[str, list[StudyCell]] = {}
        for number in range(self.settings.evaluate.controls if model.teach else 0):
            for cell in self._control(ground, seed, number):
                controls.setdefault(cell.point.member, []).append(cell)
                yield cell
        for forget in self.settings.forget:
            members = self._members(data.name, forget)
            # Refused here where no rate fits, even if the forget set has no member.
            rates = {m.label: self.settings.rates_of(model, m, data, forget) for m in self.settings.methods}
            for member in members:
                judged: list[StudyCell] = []
                at = point._replace(seed=seed, forget=forget.label, member=member.name)
                for method in self.settings.methods:
                    if method.model and seed != first_seed:
                        continue  # It has no seed of its own: it is asked once.
                    for rate in rates[method.label]:
                        of_method = at._replace(method=method.label, rate=rate.rate, goal=rate.goal)
                        for cell in self._unlearn(ground, of_method, member, method, rate):
                            judged.append(cell)
                            yield cell
                unlearned += [(target, cell) for cell in judged if cell.kind == "evaluate"]
                if self.settings.audit is not None:
                    yield self._audit(ground, at, member, [answers, *controls.get(member.name, ()), *judged])

    def _control(self, ground: _Ground, seed: int, number: int) -> Iterator[StudyCell]:
        model, data = ground.model.label, ground.data.name
        for forget in self.settings.forget:
            for member in self._members(data, forget):
                content = [ground.data_key, ground.model_key, self._teaching(ground), member.id, seed, number]
                key = content_id(["retrained", *content])
                point = CellPoint(model, data, seed, "retrained", "", forget.label, member.name, step=number)
                name = f"retrained {model} {data} {member.name} seed {seed} {number}"
                yield StudyCell(key, "retrained", name, ground.after, point)
                yield self._evaluate(key, point, ground.data_key)
                if self.settings.attack:
                    yield self._attack(key, ground, point, member)

    def _unlearn(
        self, ground: _Ground, point: CellPoint, member: Member, method: StudyMethod, rate: RateChoice
    ) -> Iterator[StudyCell]:
        model, data_key, point = ground.model, ground.data_key, point._replace(role="unlearned")
        if method.model:
            weights = model.model_copy(update={"model": method.model, "teach": False})
            model_key = self._id("model", f"{model.label} {method.label}", lambda: _model_content(weights))
            key = content_id(["given", data_key, model_key])
            name = f"given {method.label} {model.label} {point.data}"
            yield StudyCell(key, "given", name, (ground.target,), point)
            yield self._evaluate(key, point, data_key)
            return
        label = f"{model.label}\n{method.label}\n{point.rate!r}"
        training = self._id("unlearn", label, lambda: self._training(model, method, point.rate))
        # Each step forgets from the model of the step before, so that its key holds the keys of all before it.
        key, needs = ground.target, tuple[str, ...]()
        if point.goal:
            calibration = self._calibrate(ground, point, member, training, rate.grid)
            # At later seeds it is that of the first.
            yield calibration
            training, needs = content_id([training, calibration.key]), (calibration.key,)
        for step in range(len(member.steps)):
            before = key
            chain = [training, key, member.id, *([step] if len(member.steps) > 1 else [])]
            key = content_id(["unlearned", data_key, point.seed, *chain])
            point = point._replace(step=step)
            name = _title(point) + (f" after {step}" if step else "")
            yield StudyCell(key, "unlearned", name, (before, *needs), point)
        yield self._evaluate(key, point, data_key)
        if self.settings.attack:
            yield self._attack(key, ground, point, member)

    def _calibrate(
        self, ground: _Ground, point: CellPoint, member: Member, training: str, grid: tuple[float, ...]
    ) -> StudyCell:
        """The search for a rate, from the target of the first seed."""
        # Seeds come in order, so the first that asks is the study's first.
        seed, target = self._firsts.setdefault((point.model, point.data), (point.seed, ground.target))
        questions = self.settings.evaluate.settings.get("qa", {})
        key = content_id(["calibrate", ground.data_key, target, training, member.id, point.goal, grid, questions])
        name = f"calibrate {point.method} {member.name} {point.goal} {point.model} {point.data}"
        return StudyCell(key, "calibrate", name, (target,), point._replace(seed=seed, role="calibrate"))

    def _teaching(self, ground: _Ground) -> str:
        model, data = ground.model, ground.data
        settings = self.settings
        return self._id("finetune", f"{model.label}\n{data.name}", lambda: settings.teaching(model, data).identity())

    def _training(self, model: StudyModel, method: StudyMethod, rate: float) -> dict[str, Any]:
        # Where the rate is sought, what seeks it is in the key.
        training = self.settings.training(model, method, rate or 1.0).identity()
        rules, judge = self.settings.trajectory, self.settings.trajectory.get("harm_judge")
        watched = {"trajectory": {**rules, "harm_judge": judge_spec(judge).text() if judge else ""}} if rules else {}
        return {"training": training, "method": method.method, "own": method.settings, "save": model.save, **watched}

    def _evaluate(self, key: str, point: CellPoint, data_key: str) -> StudyCell:
        """What a model is asked; a target about all forget sets of its data, another about its own."""
        members = [m.id for (data, _), of_set in self.study.members.items() if data == point.data for m in of_set]
        # Another forget set makes other questions, so a target is asked anew when one is added.
        about = point.member or self._id("members", point.data, lambda: members)
        most = self.study.data(point.data).most_items
        questions = [self.settings.evaluate.identity() | {"controls": 0}, most]
        content = ["evaluate", data_key, key, about, self._id("evaluate", point.data, lambda: questions)]
        return StudyCell(content_id(content), "evaluate", f"evaluate {_title(point)}", (key,), point)

    def _attack(self, key: str, ground: _Ground, point: CellPoint, member: Member) -> StudyCell:
        """All attacks on one model; a search for a prefix goes by the words of the target."""
        target, most = ground.target, ground.data.most_items
        questions = self._id("attack", point.data, lambda: [self.settings.attack, self.settings.evaluate.identity()])
        content = ["attack", ground.data_key, key, target, member.id, questions, most]
        # An attack on the target itself waits for one cell and not twice for it.
        needs = tuple(dict.fromkeys((key, target)))
        return StudyCell(content_id(content), "attack", f"attack {_title(point)}", needs, point)

    def _audit(self, ground: _Ground, point: CellPoint, member: Member, cells: list[StudyCell]) -> StudyCell:
        """The audit of a forget set: its target first, then the models that are judged or compared with.

        It waits for what else asks these models, so that no two cells ask one model the same at once.
        """
        answers = [c for c in cells if c.kind == "evaluate"]
        models = tuple(dict.fromkeys((ground.target, *(c.after[0] for c in answers))))
        key = content_id(["audit", ground.data_key, models, member.id, self.settings.audit])
        name = f"audit {member.name} {point.model} {point.data} seed {point.seed}"
        return StudyCell(key, "audit", name, (*models, *(c.key for c in answers)), point._replace(role="audit"))


def _title(point: CellPoint) -> str:
    """How a cell about one model is called."""
    rate = f" rate {rate_name(point)}" if point.method else ""
    step = f" step {point.until}" if point.until else ""
    label = point.method or point.role
    return f"{label} {point.member} {point.model} {point.data} seed {point.seed}{rate}{step}"


def _data_content(data: StudyData) -> dict[str, Any]:
    """Everything that can change the items."""
    # Called otherwise, it is the same; what belongs to trainings and questions is in their keys.
    content = data.model_dump(mode="json", exclude={"name", "seeds", "finetune", "most_items"})
    if (pack := pack_named(data.data)) is not None:
        content["data"] = pack.content()
    for name in ("data", "compile", "factual", "contract_types", "retain"):
        value = content[name]
        path = Path(value).expanduser() if isinstance(value, str) and value else None
        if path is not None and path.is_file():
            content[name] = file_digest(path)
        elif path is not None and path.is_dir():
            files = (p for p in sorted(path.rglob("*")) if p.is_file())
            content[name] = {str(p.relative_to(path)): file_digest(p) for p in files}
    return content


def _model_content(model: StudyModel) -> dict[str, Any]:
    """Which weights, and how they are asked."""
    path, subject = Path(model.model).expanduser(), own_folder(model.model)
    content: Any = model.model
    if subject is not None and subject.done.exists():
        content = json.loads(subject.done.read_text(encoding="utf-8"))["digest"]
    elif path.is_dir():
        # A folder of weights may be replaced under its name; a hub id is taken to stay what it is.
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


@lru_cache(maxsize=4)
def corpus_of(study: Study, data: str) -> Corpus:
    """The items of a data set."""
    compiled = next((c.key for c in study.cells if c.kind == "data" and c.name == data), None)
    return open_corpus(study.data(data).source(place_of(study, compiled) if compiled else Path()))


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
    corpus, most = corpus_of(study, data), study.data(data).most_items
    whole = splits_named(study, CellPoint("", data, 0, forget=forget, member=member))
    names = study.settings.evaluate.splits
    if LEFT_OUT in names:
        rest = without(corpus.items, [i for items in whole.splits.values() for i in items])
        whole = replace(whole, splits={**whole.splits, LEFT_OUT: rest})
    splits = {n: items for n, items in whole.splits.items() if not names or n in names or n == "forget"}
    if most is not None:
        sample = _drawn(everything([replace(whole, splits={"all": corpus.items + corpus.factual})]), most, study, data)
        splits = {
            n: items if n == "forget" else tuple(i for i in items if i.id in sample) for n, items in splits.items()
        }
    return replace(whole, forget=member, splits={n: items for n, items in splits.items() if items})


def _drawn(items: tuple[Item, ...], most: int, study: Study, data: str) -> set[str]:
    """The same items for every forget set: at most `most` of those with an edge, and of those without."""
    ids: set[str] = set()
    for kind in (True, False):
        candidates = [i for i in items if (i.edge is None) is kind]
        # From the data's seed: every model and every forget set has to be asked the same questions.
        order = generator(study.data(data).seed, "asked", str(kind)).permutation(len(candidates))[:most]
        ids |= {candidates[n].id for n in order.tolist()}
    return ids
