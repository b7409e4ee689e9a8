"""Probing as a step: adjacent questions, searches for prompts, and which of both are holes, each kept in its folder.

A part that is done is not done again; a folder that holds the part with other settings is refused. What was asked of a
model or paid for to a judge is on the disk before it is used.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from vestige.artifacts.holes import (
    Attempt,
    Candidate,
    HoleTable,
    candidates_of,
    read_attempts,
    read_rows,
    read_table,
    write_tested,
)
from vestige.artifacts.layout import ProbeFolder, own_folder
from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.artifacts.records import SCHEMA, read_versioned
from vestige.core.errors import InputError
from vestige.core.files import drop_torn_line, locked, write_json, write_jsonl
from vestige.core.ids import changed_keys, content_id
from vestige.core.items import Item
from vestige.data.corpus import NamedSplits
from vestige.data.dataset import Dataset
from vestige.judges.base import Judge, Writer
from vestige.judges.server import ServerSettings
from vestige.judges.spending import Limits
from vestige.judges.tasks import LONGEST_TEXT, TASKS
from vestige.models.embedder import Embedder
from vestige.models.load import LoadedModel, ModelSettings, load
from vestige.probes.adjacent import adjacent
from vestige.probes.answering import AnswerSettings, LocalAnswerer, ServerAnswerer
from vestige.probes.baselines import PARAPHRASE, RANDOM, paraphrase, random_sampling
from vestige.probes.filters import ADJACENT, Actors, FilterSettings, filter_candidates
from vestige.probes.hole_table import holes_and_table
from vestige.probes.kept_answers import KeptAnswers
from vestige.probes.latent import LATENT, Cast, LatentSettings, OnIteration, probe
from vestige.probes.neighbours import NeighbourSettings, neighbour_questions
from vestige.probes.questions import Adjacent, AdjacentQuestion, AdjacentSettings, as_they_are, plain, source_text
from vestige.steps.evaluate import finished_subject, loaded_subject
from vestige.steps.making import LOCK_SECONDS
from vestige.steps.subjects import own_dtype
from vestige.training.policy.settings import PolicySettings
from vestige.training.policy.updates import Policy

VERSION = 1
"""Part of every identity; raised when the code would find something else."""
BASELINES = {RANDOM: random_sampling, PARAPHRASE: paraphrase}
SEARCHES = (LATENT, *BASELINES)
FIXED = ("target", "unlearned", "forget")
"""What must stay the same in a folder where candidates are tested again."""
By = Literal["graph", "offline"] | Writer


@dataclass(frozen=True)
class Asked:
    """A model that takes part, with the digest of its weights."""

    loaded: LoadedModel
    weights: str

    def answers(self, settings: AnswerSettings, folder: ProbeFolder) -> KeptAnswers:
        """The model as somebody who is asked, with what it said kept on the disk."""
        identity = {"weights": self.weights, "prompts": self.loaded.prompter.digest, **settings.identity()}
        return KeptAnswers(LocalAnswerer(self.loaded, settings), folder.answers, identity)


@dataclass(frozen=True)
class Served:
    """A model on a server that takes part. Nobody knows its weights, so its address and name stand for them."""

    server: ServerSettings
    limits: Limits

    @property
    def weights(self) -> str:
        """What the model is known by."""
        return f"{self.server.model} at {self.server.url}"

    def answers(self, settings: AnswerSettings, folder: ProbeFolder) -> ServerAnswerer:
        """The model as somebody who is asked; what it said is kept on the disk."""
        return ServerAnswerer(self.server, folder.answers / "served", settings, self.limits)


@dataclass(frozen=True)
class Grader:
    """The judge, and all of it that can change a verdict."""

    judge: Judge
    identity: Mapping[str, Any]


class KeptQuestion(NamedTuple):
    """An adjacent question as it lies on the disk: of the forget or of the retain set."""

    of: Literal["forget", "retain"]
    question: AdjacentQuestion


@dataclass(frozen=True)
class AdjacentRequest:
    """Of which items adjacent questions are made, and how: from the graph, from templates, or by a language model."""

    splits: NamedSplits
    dataset: Dataset | None
    by: By
    settings: AdjacentSettings
    neighbours: NeighbourSettings
    seed: int


@dataclass(frozen=True)
class SearchRequest:
    """Which search is made, by which policy, and who is asked and judges."""

    source: str
    policy: ModelSettings
    policy_settings: PolicySettings
    settings: LatentSettings
    unlearned: Asked | Served
    answers: AnswerSettings
    grader: Grader
    embedder: Embedder
    seed: int
    on_iteration: OnIteration = field(default=lambda iteration: None)


@dataclass(frozen=True)
class FilterRequest:
    """Whose holes are looked for among the candidates, against which forget set, and by which judge."""

    forget: tuple[Item, ...]
    target: Asked | Served
    unlearned: Asked | Served
    placebos: Mapping[str, Asked | Served]
    answers: AnswerSettings
    grader: Grader
    embedder: Embedder
    embedder_weights: str
    settings: FilterSettings
    seed: int
    on_stage: Callable[[str], None] = field(default=lambda stage: None)


def asked_model(settings: ModelSettings, *, dtype: str | None = None) -> Asked:
    """A model from anywhere; one that Vestige made has the weights, and the format, that it was finished with.

    `dtype` is the number format that was asked for, if any: another than that of Vestige's own is refused.
    """
    folder = own_folder(settings.model)
    if folder is None:
        loaded = load(settings)
        return Asked(loaded, loaded.digest())
    own = own_dtype(settings.model)
    if dtype is not None and dtype != own:
        raise InputError(f"{folder.path} was made in {own} and is asked in it, not in {dtype}; leave --dtype out")
    subject = finished_subject(folder, device=settings.device, trust_remote_code=settings.trust_remote_code)
    return Asked(loaded_subject(subject), subject.made.weights)


def make_adjacent(folder: ProbeFolder, request: AdjacentRequest) -> list[KeptQuestion]:
    """The adjacent questions of both sets, in the folder; made unless they are there."""
    with locked(folder.lock, patience_seconds=LOCK_SECONDS):
        identity = _adjacent_identity(request)
        if _is_there(folder, "adjacent", identity):
            return read_adjacent(folder)
        made = adjacent_of(request)
        rows = [{"of": of, "question": asdict(q)} for of, found in made.items() for q in found.questions]
        write_jsonl(folder.adjacent, rows)
        _put_down(folder, "adjacent", identity, {of: _counts(found) for of, found in made.items()})
        return read_adjacent(folder)


def adjacent_of(request: AdjacentRequest) -> dict[str, Adjacent]:
    """The adjacent questions of the forget set, and the retain set's own questions as they are."""
    return {"forget": _near(request), "retain": as_they_are(request.splits.splits.get("retain", ()))}


def read_adjacent(folder: ProbeFolder) -> list[KeptQuestion]:
    """The adjacent questions in the folder; none where none were made."""
    return list(read_rows(folder.adjacent, KeptQuestion)) if folder.adjacent.exists() else []


def search(folder: ProbeFolder, request: SearchRequest) -> list[Attempt]:
    """All attempts of one search, which begins from the adjacent questions; made, or gone on with, in the folder."""
    questions: dict[str, str] = {}
    for kept in read_adjacent(folder):
        questions.setdefault(plain(kept.question.question), kept.question.question)
    if not questions:
        raise InputError(f"{folder.path} holds no adjacent questions to begin from; run `vestige probe adjacent` first")
    place = folder.search(request.source)
    with locked(place.lock, patience_seconds=LOCK_SECONDS):
        model = asked_model(request.policy)
        identity = _search_identity(request, model, list(questions.values()))
        _refuse_another(place, "search", identity)
        _put_down(place, "search", identity, {})
        drop_torn_line(place.attempts)
        made = read_attempts(place)
        if (
            request.source in BASELINES
            and len(made) == request.settings.n_iterations * request.policy_settings.n_rollouts
        ):
            return made
        policy = Policy.of(model.loaded.model, request.policy_settings, seed=request.seed)
        asked = request.unlearned.answers(request.answers, place)
        cast = Cast(policy, model.loaded.tokenizer, asked, request.grader.judge, request.embedder)
        begun = cast, list(questions.values()), request.settings
        if request.source == LATENT:
            made = probe(*begun, seed=request.seed, folder=place, on_iteration=request.on_iteration)
        else:
            made = BASELINES[request.source](*begun, seed=request.seed, folder=place)
    return made


def candidates_in(folder: ProbeFolder) -> list[Candidate]:
    """What may be a hole: the adjacent questions of the forget set, then what each search found (D_RL)."""
    adjacent_ones = [
        Candidate(kept.question.question, ADJACENT, kept.question.source_id, kept.question.answer)
        for kept in read_adjacent(folder)
        if kept.of == "forget"
    ]
    found = [candidate for place in folder.searches() for candidate in candidates_of(read_attempts(place))]
    return [*adjacent_ones, *found]


def forget_texts(items: Sequence[Item]) -> list[str]:
    """What of the forget set prompts are held against."""
    return [source_text(item, LONGEST_TEXT) for item in items]


def filter_holes(folder: ProbeFolder, request: FilterRequest) -> HoleTable:
    """The table of holes among the candidates in the folder; made unless it is there.

    With more candidates, other settings or another judge it is made anew, from answers that are there already.
    """
    candidates = candidates_in(folder)
    if not candidates:
        raise InputError(
            f"{folder.path} holds no prompts that could be holes; run `vestige probe adjacent` or `vestige probe "
            "latent` there first"
        )
    with locked(folder.lock, patience_seconds=LOCK_SECONDS):
        identity = _filter_identity(request, candidates)
        if folder.summary.exists():
            table, theirs = read_table(folder)
            if content_id(theirs) == content_id(identity):
                return table
        fixed = {key: identity[key] for key in FIXED}
        _refuse_another(folder, "holes", fixed)
        _put_down(folder, "holes", fixed, {})
        watch = Stopwatch()
        embed = request.embedder.embed
        actors = Actors(
            request.target.answers(request.answers, folder),
            request.unlearned.answers(request.answers, folder),
            request.grader.judge,
            embed,
            {name: who.answers(request.answers, folder) for name, who in request.placebos.items()},
        )
        filtered = filter_candidates(
            candidates,
            forget_texts(request.forget),
            actors,
            request.settings,
            seed=request.seed,
            on_stage=request.on_stage,
        )
        holes, table = holes_and_table(filtered, request.settings, embed, seed=request.seed)
        write_provenance(folder.provenance, watch, device=str(request.embedder.model.device))
        write_tested(folder, filtered.tested, holes, table, identity)
    return table


def _near(request: AdjacentRequest) -> Adjacent:
    forget = request.splits.splits["forget"]
    if request.by == "graph":
        if request.dataset is None:
            raise InputError("the data has no graph to look for neighbours in; make the questions offline")
        edges = sorted({item.edge for item in forget if item.edge is not None})
        return neighbour_questions(request.dataset, edges, request.neighbours, seed=request.seed)
    background = [source_text(i, request.settings.most_characters) for i in request.splits.splits.get("retain", ())]
    return adjacent(forget, request.settings, by=request.by, seed=request.seed, background=background)


def _counts(found: Adjacent) -> dict[str, Any]:
    """What is kept of the making beside the questions."""
    counts = {"n": len(found.questions), "n_sources": found.n_sources}
    return {**counts, "dropped": found.dropped, "failures": found.failures, "spend": asdict(found.spend)}


def _adjacent_identity(request: AdjacentRequest) -> dict[str, Any]:
    by_graph = request.by == "graph"
    return {
        "version": VERSION,
        "by": request.by if isinstance(request.by, str) else request.by.name,
        "forget": content_id([i.id for i in request.splits.splits["forget"]], length=32),
        "retain": content_id([i.id for i in request.splits.splits.get("retain", ())], length=32),
        "settings": (request.neighbours if by_graph else request.settings).identity(),
        "seed": request.seed,
    }


def _search_identity(request: SearchRequest, policy: Asked, seeds: Sequence[str]) -> dict[str, Any]:
    return {
        "version": VERSION,
        "source": request.source,
        "policy": policy.weights,
        "policy_settings": request.policy_settings.identity(),
        "settings": request.settings.identity(),
        "unlearned": request.unlearned.weights,
        "answers": request.answers.identity(),
        "judge": dict(request.grader.identity),
        "seeds": content_id(list(seeds), length=32),
        "seed": request.seed,
    }


def _filter_identity(request: FilterRequest, candidates: Sequence[Candidate]) -> dict[str, Any]:
    return {
        "version": VERSION,
        "target": request.target.weights,
        "unlearned": request.unlearned.weights,
        "placebos": {name: who.weights for name, who in request.placebos.items()},
        "answers": request.answers.identity(),
        "judge": dict(request.grader.identity),
        "tasks": {name: TASKS[name].version for name in ("validity", "quality", "overlap")},
        "embedder": request.embedder_weights,
        "settings": request.settings.identity(),
        "forget": content_id(forget_texts(request.forget), length=32),
        "candidates": content_id([asdict(c) for c in candidates], length=32),
        "seed": request.seed,
    }


def _is_there(folder: ProbeFolder, part: str, identity: Mapping[str, Any]) -> bool:
    """Whether the part is done; another one in its place is refused."""
    _refuse_another(folder, part, identity)
    return folder.asked(part).exists()


def _refuse_another(folder: ProbeFolder, part: str, identity: Mapping[str, Any]) -> None:
    if not folder.asked(part).exists():
        return
    theirs = read_versioned(folder.asked(part), "identity")["identity"]
    # Both as they come from the disk, where a tuple is a list.
    if content_id(theirs) != content_id(dict(identity)):
        changed = ", ".join(changed_keys(dict(identity), theirs)) or "the form of its values"
        raise InputError(
            f"{folder.path} holds the part {part!r} made otherwise (it differs in {changed}); choose another "
            "--output-dir or delete this one"
        )


def _put_down(folder: ProbeFolder, part: str, identity: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    write_json(folder.asked(part), {"schema": SCHEMA, "identity": dict(identity), "found": dict(found)})
