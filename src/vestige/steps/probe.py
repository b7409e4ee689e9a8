"""Probing as a step: adjacent questions, searches for prompts, and which of both are holes, each kept in its folder.

A part that is done is not done again; a folder that holds the part with other settings is refused. What was asked of a
model or paid for to a judge is on the disk before it is used.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from vestige.artifacts.holes import (
    Attempt,
    Candidate,
    HoleTable,
    candidates_of,
    read_attempts,
    read_table,
    write_tested,
)
from vestige.artifacts.layout import ProbeFolder, own_folder
from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.core.errors import InputError
from vestige.core.files import drop_torn_line, locked
from vestige.core.ids import content_id
from vestige.judges.base import Judge, Writer
from vestige.judges.server import ServerSettings
from vestige.judges.spending import Amount, Limits, UnderWay, other_models
from vestige.judges.tasks import LONGEST_TEXT, TASKS
from vestige.models.embedder import Embedder
from vestige.models.load import LoadedModel, ModelSettings, load
from vestige.probes.answering import AnswerSettings, LocalAnswerer, ServerAnswerer
from vestige.probes.baselines import PARAPHRASE, RANDOM, paraphrase, random_sampling
from vestige.probes.filters import ADJACENT, Actors, FilterSettings, filter_candidates
from vestige.probes.hole_map import VERSION as MAP_VERSION
from vestige.probes.hole_map import hole_map
from vestige.probes.hole_table import check_naming, holes_and_table
from vestige.probes.kept_answers import KeptAnswers
from vestige.probes.latent import LATENT, Cast, LatentSettings, OnIteration, probe
from vestige.probes.naming import VERSION as NAMING_VERSION
from vestige.probes.questions import Source, source_text
from vestige.steps.evaluate import finished_subject, loaded_subject
from vestige.steps.making import LOCK_SECONDS
from vestige.steps.probe_adjacent import beginnings_in, read_adjacent
from vestige.steps.probe_parts import VERSION, put_down, refuse_another
from vestige.steps.subjects import own_dtype, refuse_template
from vestige.training.policy.settings import PolicySettings
from vestige.training.policy.updates import Policy

BASELINES = {RANDOM: random_sampling, PARAPHRASE: paraphrase}
SEARCHES = (LATENT, *BASELINES)
FIXED = ("target", "unlearned", "forget")
"""What must stay the same in a folder where candidates are tested again."""


@dataclass(frozen=True)
class Asked:
    """A model that takes part; `id` is its digest."""

    loaded: LoadedModel
    id: str

    @property
    def name(self) -> str:
        """What it was called."""
        return self.loaded.name

    def answers(self, settings: AnswerSettings, folder: ProbeFolder) -> KeptAnswers:
        """The model as somebody who is asked, with what it said kept on the disk."""
        identity = {"model": self.id, **settings.identity()}
        return KeptAnswers(LocalAnswerer(self.loaded, settings), folder.answers, identity)


@dataclass(frozen=True)
class Served:
    """A model on a server that takes part. Nobody knows its weights, so its address and name stand for them."""

    server: ServerSettings
    limits: Limits

    @property
    def name(self) -> str:
        """What it is called on its server."""
        return self.server.model

    @property
    def id(self) -> str:
        """What the model is known by."""
        return f"{self.server.model} at {self.server.url}"

    def answers(self, settings: AnswerSettings, folder: ProbeFolder) -> ServerAnswerer:
        """The model as somebody who is asked; what it said is kept on the disk."""
        return ServerAnswerer(self.server, folder.answers / "served", settings, self.limits)


@dataclass(frozen=True)
class Grader:
    """The judge, all of it that can change a verdict, and the language model in it, if that is what it is."""

    judge: Judge
    identity: Mapping[str, Any]
    writer: Writer | None = None


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
    """Whose holes are looked for among the candidates, against which forget set, and by which judge.

    `retain` is what is known to be kept, by which names are known to be the forget set's own.
    """

    forget: tuple[Source, ...]
    target: Asked | Served
    unlearned: Asked | Served
    placebos: Mapping[str, Asked | Served]
    answers: AnswerSettings
    grader: Grader
    embedder: Embedder
    embedder_digest: str
    settings: FilterSettings
    seed: int
    retain: tuple[Source, ...] = ()
    on_stage: Callable[[str], None] = field(default=lambda stage: None)


def asked_model(settings: ModelSettings, *, dtype: str | None = None) -> Asked:
    """A model from anywhere; one that Vestige made has the weights, and the format, that it was finished with.

    `dtype` is the number format that was asked for, if any: another than that of Vestige's own is refused.
    """
    folder = own_folder(settings.model)
    if folder is None:
        loaded = load(settings)
        return Asked(loaded, loaded.digest().id)
    own = own_dtype(settings.model)
    if dtype is not None and dtype != own:
        raise InputError(f"{folder.path} was made in {own} and is asked in it, not in {dtype}; leave --dtype out")
    refuse_template(settings, folder)
    subject = finished_subject(folder, device=settings.device, trust_remote_code=settings.trust_remote_code)
    return Asked(loaded_subject(subject), subject.made.digest.id)


def search(folder: ProbeFolder, request: SearchRequest) -> list[Attempt]:
    """All attempts of one search, which begins from the adjacent questions; made, or gone on with, in the folder."""
    questions = beginnings_in(folder)
    place = folder.search(request.source)
    with locked(place.lock, patience_seconds=LOCK_SECONDS):
        model = asked_model(request.policy)
        identity = _search_identity(request, model, questions)
        refuse_another(place, "search", identity)
        put_down(place, "search", identity, {})
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
        begun = cast, questions, request.settings
        if request.source == LATENT:
            made = probe(*begun, seed=request.seed, folder=place, on_iteration=request.on_iteration)
        else:
            made = BASELINES[request.source](*begun, seed=request.seed, folder=place, on_iteration=request.on_iteration)
    return made


def server_notes(folder: ProbeFolder) -> list[str]:
    """What servers, the judge's and models', did that the table does not show: who answered, and what was lost."""
    places = [folder.judge, *(place.answers / "served" for place in (folder, *folder.searches()))]
    notes = [note for place in places for note in other_models(place)]
    lost = Amount(*(sum(amounts) for amounts in zip(*(UnderWay(place).lost() for place in places), strict=True)))
    if lost.calls:
        notes.append(
            f"{lost.calls} requests to servers were under way when a run was killed and were sent again; they may have "
            f"been paid for twice: at most {lost.prompt_tokens + lost.completion_tokens:,} tokens"
        )
    return notes


def candidates_in(folder: ProbeFolder) -> list[Candidate]:
    """What may be a hole: the adjacent questions of the forget set, then what each search found (D_RL).

    A folder without any is refused.
    """
    adjacent_ones = [
        Candidate(kept.question.question, ADJACENT, kept.question.source_id, kept.question.answer)
        for kept in read_adjacent(folder)
        if kept.of == "forget"
    ]
    found = [candidate for place in folder.searches() for candidate in candidates_of(read_attempts(place))]
    if not (adjacent_ones or found):
        raise InputError(
            f"{folder.path} holds no prompts that could be holes; run `vestige probe adjacent` or `vestige probe "
            "latent` there first"
        )
    return [*adjacent_ones, *found]


def forget_texts(items: Sequence[Source]) -> list[str]:
    """What of a set prompts are held against."""
    return [source_text(item, LONGEST_TEXT) for item in items]


def filter_holes(folder: ProbeFolder, request: FilterRequest) -> HoleTable:
    """The table of holes among the candidates in the folder; made unless it is there.

    With more candidates, other settings or another judge it is made anew, from answers that are there already.
    """
    candidates = candidates_in(folder)
    check_naming(request.settings, request.grader.writer)
    with locked(folder.lock, patience_seconds=LOCK_SECONDS):
        identity = _filter_identity(request, candidates)
        if folder.summary.exists():
            table, theirs = read_table(folder)
            if content_id(theirs) == content_id(identity):
                return table
        fixed = {key: identity[key] for key in FIXED}
        refuse_another(folder, "holes", fixed)
        put_down(folder, "holes", fixed, {})
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
            retained=forget_texts(request.retain),
            seed=request.seed,
            on_stage=request.on_stage,
        )
        holes, table = holes_and_table(
            filtered, request.settings, embed, seed=request.seed, writer=request.grader.writer
        )
        picture = hole_map(filtered.tested, holes, embed)
        device = str(request.embedder.model.device)
        notes = server_notes(folder)
        write_provenance(folder.provenance, watch, device=device, models=_names(request), servers=notes)
        write_tested(folder, filtered.tested, holes, table, identity, hole_map=picture)
    return table


def _names(request: FilterRequest) -> dict[str, str]:
    """What the models were called; who they are, the identity says by their weights."""
    asked = {"target": request.target, "unlearned": request.unlearned, **request.placebos}
    return {role: who.name for role, who in asked.items()}


def _search_identity(request: SearchRequest, policy: Asked, seeds: Sequence[str]) -> dict[str, Any]:
    return {
        "version": VERSION,
        "source": request.source,
        "policy": policy.id,
        "policy_settings": request.policy_settings.identity(),
        "settings": request.settings.identity(),
        "unlearned": request.unlearned.id,
        "answers": request.answers.identity(),
        "judge": dict(request.grader.identity),
        "task": TASKS["reward"].version,
        "embedder": request.embedder.digest,
        "seeds": content_id(list(seeds), length=32),
        "seed": request.seed,
    }


def _filter_identity(request: FilterRequest, candidates: Sequence[Candidate]) -> dict[str, Any]:
    return {
        "version": VERSION,
        "target": request.target.id,
        "unlearned": request.unlearned.id,
        "placebos": {name: who.id for name, who in request.placebos.items()},
        "answers": request.answers.identity(),
        "judge": dict(request.grader.identity),
        "tasks": {name: TASKS[name].version for name in ("validity", "quality", "overlap")},
        **({"naming": NAMING_VERSION} if request.settings.name_groups == "writer" else {}),
        "embedder": request.embedder_digest,
        "map": MAP_VERSION,
        "settings": request.settings.identity(),
        "forget": content_id(forget_texts(request.forget), length=32),
        "retain": content_id(forget_texts(request.retain), length=32),
        "candidates": content_id([asdict(c) for c in candidates], length=32),
        "seed": request.seed,
    }
