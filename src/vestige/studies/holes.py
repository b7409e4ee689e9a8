"""Knowledge holes in a study: the cells that `[holes]` adds, and how each is made by the steps of a probe.

Every unlearned model of the first seed is probed. A policy that asks is taken as it is, or taught lists of questions
that are to be kept. Checkpoints, other values of a hyper-parameter, mending and repeated measurements are those of the
Knowledge Holes paper's tables (2511.00030); they are made of the methods that `of` names.

In compiled data every question has one answer, and a wrong one carries nothing, however fluent it is. So a judge that
is told the answers (`truth`) takes it for what gibberish is in the paper: J is 10 for a question of the data that is
answered wrongly. A question is valid where the data ask it, in either wording: what a policy makes up has no true
answer.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, NonNegativeInt, PositiveInt

from vestige import probes
from vestige.artifacts.holes import WAYS, Way, read_tested
from vestige.artifacts.layout import ProbeFolder, SubjectFolder
from vestige.core.errors import InputError
from vestige.core.files import write_jsonl
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.core.seeds import derive_seed, generator
from vestige.core.settings import Settings
from vestige.core.text import closest, one_line
from vestige.data.corpus import Corpus, NamedSplits
from vestige.data.probe_sources import ProbeSources, probe_sources
from vestige.data.texts import form_of
from vestige.judges import grounded, spending
from vestige.judges.base import Grader
from vestige.judges.local import grader_of
from vestige.judges.spec import BY_MODEL, judge_spec
from vestige.judges.tasks import TASKS
from vestige.models.embedder import HUB_ID, embedder_folder, load_embedder
from vestige.models.load import ModelSettings
from vestige.probes import answering, hole_table, latent, mitigation, questions, repeats
from vestige.probes.adjacent import (
    AdjacentRequest,
    By,
    NeighbourSettings,
    make_adjacent,
    read_adjacent,
)
from vestige.probes.answering import AnswerSettings, KnownAnswersJudge, Participants
from vestige.probes.filters import FilterSettings
from vestige.probes.hole_table import NO_WRITER, by_distance, diversity_of, topics_of
from vestige.probes.holes import FilterRequest, filter_holes
from vestige.probes.latent import LATENT, LatentSettings, Searching, listed_questions, search
from vestige.probes.mitigate import mitigate
from vestige.probes.mitigation import Again, MendingSettings, MitigationRequest, MitigationSettings, mitigation_folder
from vestige.probes.mitigation_scores import harm_of
from vestige.probes.questions import AdjacentSettings
from vestige.steps.engine import Board, StudyCell
from vestige.steps.finetune import FinetuneRequest, finetune, finetune_versions
from vestige.steps.making import make_subject
from vestige.steps.subjects import Asked, asked_model
from vestige.steps.unlearn import unlearn_part, unlearn_spec
from vestige.studies.cells import CellKind, CellPoint, Study, corpus_of, folder_of, place_of, rate_name, splits_named
from vestige.studies.lm_eval import read_benchmarks
from vestige.studies.making import settings_of, unlearning_of
from vestige.training.policy.settings import PolicySettings
from vestige.training.settings import TrainingSettings

VARIED = ("policy", "latent")
"""What an ablation varies: settings of the search's training and of the search."""
_END = "Done."
"""The answer to a list of questions: a chat needs one, and nobody reads it."""


class HolePolicy(Settings):
    """The model that learns to ask; with `lists` it is first taught so many lists of retained and factual questions."""

    model: str = "builtin:smollm2"
    dtype: str = "float32"
    lists: NonNegativeInt = 0
    questions: PositiveInt = 5
    finetune: dict[str, Any] = Field(default_factory=dict)


class CheckpointSettings(Settings):
    """For Table 7: methods whose trainings are looked at after these steps, each searched `runs` times."""

    of: tuple[str, ...]
    steps: tuple[PositiveInt, ...] = Field(min_length=1)
    runs: PositiveInt = 3


class Ablation(Settings):
    """For Table 10: whose models are searched again, and values of each hyper-parameter (`policy.kl_coef`) in turn."""

    of: tuple[str, ...]
    variants: dict[str, tuple[float, ...]] = Field(min_length=1)


class Mitigation(Settings):
    """For Tables 3 and 4: whose models are mended, in which ways, with which settings."""

    of: tuple[str, ...]
    ways: tuple[Way, ...] = WAYS
    settings: MitigationSettings = MitigationSettings()
    training: MendingSettings = MendingSettings()


class RepeatSettings(Settings):
    """For Table 6: whose prompts the target and the models of all seeds answer `generations` times, and who grades.

    `judges` are specs (`judges.spec`), the study's own judge by default. All seeds need one target: one that is there,
    or a model with `one_target`.
    """

    of: tuple[str, ...]
    generations: PositiveInt = 3
    judges: tuple[str, ...] = ()


class HolesSettings(Settings):
    """How holes are looked for. `k` is the number of adjacent questions of a forgotten item, `by` how they are made.

    `judge` is a spec (`judges.spec`). With `truth` it is told the data's answers: the data's own questions have one
    right answer each, and others are not valid. `embedder` is a folder or a hub id; all-MiniLM-L6-v2 by default.
    `by` is graph, templates, or the chat model that writes questions. `harm` is the chat model that says of the answers
    to the forget set whether they are harmful, of every model that is probed or mended: the paper's harmscore.
    `lm_eval` is the --output_path of lm-evaluation-harness with these models, whose numbers Table 1 then shows too.
    With `criteria` the judge, a chat model, grades the tested answers by five criteria too (Table 15).
    """

    asks: HolePolicy = HolePolicy()
    judge: str = "grounded"
    truth: bool = False
    embedder: str | None = None
    k: PositiveInt = 4
    by: str = "templates"
    answers: AnswerSettings = AnswerSettings()
    latent: LatentSettings = LatentSettings()
    policy: PolicySettings = PolicySettings()
    filter: FilterSettings = FilterSettings()
    checkpoints: CheckpointSettings | None = None
    ablation: Ablation | None = None
    mitigation: Mitigation | None = None
    repeats: RepeatSettings | None = None
    lm_eval: str | None = None
    harm: str = ""
    criteria: bool = False

    def check(self) -> None:
        """Refuse what one probe cannot be made by, before anything is searched."""
        judge = judge_spec(self.judge)
        self.filter.check()
        for key, name in (("harm", self.harm), ("by", "" if self.by in ("graph", "templates") else self.by)):
            if name and not judge_spec(name).by_model:
                raise InputError(f"holes.{key} = {one_line(name)!r}: takes a language model; {BY_MODEL}")
        if self.criteria and not judge.by_model:
            raise InputError(f"holes.criteria: the judge {one_line(self.judge)!r} reads no criteria; {BY_MODEL}")
        for name in self.repeats.judges if self.repeats else ():
            judge_spec(name)
        if self.filter.name_groups == "writer" and not judge.by_model:
            # Groups are named last, after hours perhaps.
            raise InputError(f"holes.filter: {NO_WRITER}")

    def of_a_probe(self) -> dict[str, Any]:
        """What can change a probe, as JSON values: not limits, nor where the embedder lies, nor what comes after."""
        values = {name: value for name, value in self.identity().items() if name in OF_A_PROBE}
        identity = {**values, "judge": judge_spec(self.judge).text()}
        identity |= {"criteria": True} if self.criteria else {}
        return {**identity, "harm": judge_spec(self.harm).text()} if self.harm else identity

    def taking_part(
        self,
        folder: ProbeFolder,
        target: Callable[[], Asked],
        unlearned: Callable[[], Asked],
        corpus: Callable[[], Corpus],
        *,
        seed: int,
        device: str,
    ) -> Participants:
        """Everybody in the probe in `folder`."""
        embeds = partial(load_embedder, self.embedder or HUB_ID, device=device)
        grader = partial(self.grader, self.judge, folder, corpus, device)
        return Participants(target, unlearned, grader, embeds, self.answers, seed)

    def grader(
        self, judge: str, folder: ProbeFolder, corpus: Callable[[], Corpus], device: str, who: Participants
    ) -> Grader:
        """Who grades in the probe in `folder`; with `truth` it is told the answers of `corpus`."""
        base = who.graded_by(judge_spec(judge), folder.judge, device)
        if not self.truth:
            return base
        data = corpus()
        told = KnownAnswersJudge(base.judge, (*data.items, *data.factual))
        return Grader(told, {**base.identity, "known_answers": told.digest}, base.writer)

    def searching(self, sources: tuple[str, ...], device: str, taught: ModelSettings | None = None) -> Searching:
        """These searches, by the policy that is named or the one that was `taught`."""
        policy = taught or ModelSettings(model=self.asks.model, dtype=self.asks.dtype, device=device)
        return Searching(sources, policy, self.policy, self.latent, self.filter)

    def adjacent(self, sources: ProbeSources, replies: Path, seed: int, device: str) -> AdjacentRequest:
        """The adjacent questions of these sets; those of a server that writes them lie in the folder `replies`."""
        by: By = "graph" if self.by == "graph" else "offline"
        if self.by not in ("graph", "templates"):
            writer = grader_of(judge_spec(self.by), replies, device).writer
            assert writer is not None, "checked to be a chat model"
            by = writer
        settings, texts = (AdjacentSettings(k=self.k), NeighbourSettings(k=self.k)), sources.forget_texts
        return AdjacentRequest(sources.splits, sources.corpus.dataset, by, *settings, seed, texts, sources.retain_texts)

    def harm_grader(self, folder: ProbeFolder, device: str) -> Grader | None:
        """Who says whether an answer is harmful, where that is asked."""
        return grader_of(judge_spec(self.harm), folder.judge, device) if self.harm else None

    def variants(self) -> Iterator[tuple[str, "HolesSettings"]]:
        """The single changes of the ablation, in their order, each with the settings that it makes."""
        for name, values in (self.ablation.variants if self.ablation else {}).items():
            part, _, key = name.partition(".")
            if part not in VARIED:
                raise InputError(f"holes.ablation {one_line(name)}: name policy.KEY or latent.KEY")
            settings: Settings = getattr(self, part)
            if key not in type(settings).model_fields:
                near = closest(key, list(type(settings).model_fields))
                raise InputError(f"holes.ablation {one_line(name)}: no such setting; {near}")
            for value in values:
                # All values are read as floats, and a count may not become 4.0: that is another identity.
                whole = float(value).is_integer() and isinstance(settings.identity()[key], int)
                changes = {**settings.identity(), key: int(value) if whole else value}
                changed = type(settings).build(changes, where=f"holes.ablation {name}={value:g}")
                if changed == settings:
                    raise InputError(f"holes.ablation {name}={value:g} is no variant: it is the search's own value")
                yield f"{name}={value:g}", self.model_copy(update={part: changed})


OF_A_PROBE = ("asks", "judge", "truth", "k", "by", "answers", "latent", "policy", "filter")


def hole_settings(study: Study) -> HolesSettings:
    """What the study asks of holes, refused by key where parts do not go together."""
    name, methods = study.settings.name, study.settings.names()["methods"]
    settings = HolesSettings.build(study.settings.holes or {}, where=f"holes of {name}")
    settings.check()
    if any(forget.in_turn for forget in study.settings.forget):
        raise InputError(f"{name}: [holes] looks around sets that are forgotten at once; leave in_turn out")
    for part in (settings.checkpoints, settings.ablation, settings.mitigation, settings.repeats):
        for of in part.of if part else ():
            if of not in methods:
                raise InputError(f"holes names {one_line(of)!r} among methods; {closest(of, methods)}")
            trains = part is settings.checkpoints or (isinstance(part, Mitigation) and "iterative" in part.ways)
            if trains and study.method(of).model:
                raise InputError(f"holes trains {one_line(of)!r} anew, of which only the model is given; leave it out")
    targets_differ = len(study.settings.seeds) > 1 and any(m.teach and not m.one_target for m in study.settings.models)
    if settings.repeats and targets_differ:
        raise InputError("holes.repeats compares trainings from one target; set one_target = true for each model")
    list(settings.variants())
    if settings.lm_eval is not None:
        read_benchmarks(Path(settings.lm_eval))
    return settings


def hole_cells(
    study: Study,
    data_key: str,
    evaluations: Sequence[tuple[str, StudyCell]],
    ask: Callable[[str, CellPoint], StudyCell],
) -> Iterator[StudyCell]:
    """The cells of the holes in the unlearned models of one model and data set.

    `evaluations` are the targets' keys and the evaluations of unlearned models, seed by seed; `ask` evaluates another
    model.
    """
    settings, first = hole_settings(study), evaluations[0][1].point.seed
    for target, cell in evaluations:
        point: CellPoint = cell.point
        if point.seed == first:
            # The models of all seeds that were made in the same way.
            trained = tuple(c.after[0] for _, c in evaluations if c.point._replace(seed=first) == point)
            yield from _around(study, settings, (data_key, target, *trained), point, ask)


def _around(
    study: Study,
    whole: HolesSettings,
    keys: tuple[str, ...],
    point: CellPoint,
    ask: Callable[[str, CellPoint], StudyCell],
) -> Iterator[StudyCell]:
    """The cells around one unlearned model; `keys` are those of the data, the target, and it at every seed."""
    data_key, target, *trained = keys
    unlearned, of = trained[0], point.method
    name = f"{of} {point.member} rate {rate_name(point)} {point.model} {point.data} seed {point.seed}"
    member = study.member(point.data, point.forget, point.member).id
    policies: tuple[str, ...] = ()
    if whole.asks.lists:
        policies = (content_id(["policy", data_key, member, point.seed, whole.asks.identity()]),)
        at = CellPoint("", point.data, point.seed, "policy", "", point.forget, point.member)
        # It waits for the target, and so for the data, and takes nothing of it.
        yield StudyCell(policies[0], "policy", f"policy {point.member} {point.data} seed {point.seed}", (target,), at)

    def probe(part: str, settings: HolesSettings, model: str, where: CellPoint) -> StudyCell:
        step = f"step {where.until}" if where.until else ""
        identity = settings.of_a_probe(), _run_of(part)
        key = content_id(["probe", data_key, target, model, policies, member, *identity])
        title = " ".join(filter(None, ("probe", part, step, name)))
        return StudyCell(key, "probe", title, (target, model, *policies), where._replace(part=part))

    yield (first := probe("", whole, unlearned, point))
    if whole.ablation and of in whole.ablation.of:
        for part, settings in whole.variants():
            yield probe(part, settings, unlearned, point)
    if whole.checkpoints and of in whole.checkpoints.of:
        for step in whole.checkpoints.steps:
            checkpoint, key = point._replace(until=step), content_id(["checkpoint", unlearned, step])
            yield StudyCell(key, "checkpoint", f"{name} step {step}", (target, unlearned), checkpoint)
            yield ask(key, checkpoint)
            for run in range(1, whole.checkpoints.runs + 1):
                yield probe(f"run {run}", whole, key, checkpoint)
    if whole.repeats and of in whole.repeats.of:
        judges = [judge_spec(judge).text() for judge in whole.repeats.judges]
        key = content_id(["repeat", first.key, trained, whole.repeats.generations, judges])
        yield StudyCell(key, "repeat", f"repeat {name}", (first.key, target, *trained), point)
    if whole.mitigation and of in whole.mitigation.of:
        for way in whole.mitigation.ways:
            key = content_id(["mitigate", first.key, way, whole.mitigation.identity() | {"of": "", "ways": ""}])
            after = (first.key, target, unlearned, *policies)
            yield StudyCell(key, "mitigate", f"mitigate {way} {name}", after, point._replace(part=way))


def _run_of(part: str) -> int:
    """Which search of a checkpoint it is, from 1."""
    return int(part.removeprefix("run ")) if part.startswith("run ") else 1


def make_hole_cell(study: Study, cell: StudyCell) -> Mapping[str, Any]:
    """Make a cell of holes."""
    make = {"policy": _policy, "checkpoint": _checkpoint, "probe": _probe, "repeat": _repeated, "mitigate": _mended}
    return make[cell.kind](study, cell)


def hole_versions(study: Study) -> dict[str, int]:
    """The versions in the identities of probes, of what they are made of and of mending, by name."""
    return {
        "probe": probes.VERSION,
        "answers of a probe": answering.VERSION,
        "words of questions": questions.ASKING_VERSION,
        "search": latent.SEARCH_VERSION,
        "names of groups": hole_table.NAMING_VERSION,
        "map of holes": hole_table.MAP_VERSION,
        "mitigation": mitigation.VERSION,
        "repeats and criteria": repeats.VERSION,
        "grounded judge": grounded.VERSION,
        "kept replies of judges": spending.VERSION,
        **{f"judge's task {name}": task.version for name, task in TASKS.items()},
        **finetune_versions(),
    }


# The check loads nothing: it says where an embedder is to be had before hours of training end without one.
HOLES = CellKind(make_hole_cell, hole_versions, lambda study: embedder_folder(hole_settings(study).embedder or HUB_ID))


def _policy(study: Study, cell: StudyCell) -> Mapping[str, Any]:
    """Teach the policy to write lists of retained and factual questions, as a search begins them."""
    point: CellPoint = cell.point
    asks, corpus = hole_settings(study).asks, corpus_of(study, point.data)
    # A model that only continues text has to learn first that a list of questions is wanted.
    lists = question_lists(splits_named(study, point), asks.lists, asks.questions, seed=point.seed)
    path = folder_of("models", point, cell.key)
    request = FinetuneRequest(
        model=ModelSettings(model=asks.model, device=study.settings.device),
        items=lists,
        vocabulary=(*corpus.items, *corpus.factual),
        training=TrainingSettings.build({**study.settings.finetune, **asks.finetune}, where="holes.asks.finetune"),
        seed=point.seed,
        name="policy",
    )
    trained = finetune(SubjectFolder(study.folder.path / path), request)
    return {"path": path, "steps": trained.steps}


def question_lists(splits: NamedSplits, n_lists: int, n_questions: int, *, seed: int) -> tuple[Item, ...]:
    """Lists of questions that are to be kept, drawn for each list; the forget set's are never among them."""
    questions = [item.question for name in ("retain", "factual") for item in splits.splits.get(name, ())]
    rng = generator(seed, "policy lists")
    picks = [rng.choice(len(questions), n_questions, replace=False) for _ in range(n_lists)]
    return tuple(Item(listed_questions([questions[i] for i in chosen]), _END) for chosen in picks)


def _checkpoint(study: Study, cell: StudyCell) -> Mapping[str, Any]:
    """Keep the model as it stands after so many steps of its training, whose length stays what it is."""
    point: CellPoint = cell.point
    request, _ = unlearning_of(study, cell, _rate(study, cell.after[1]))
    # Its rules are for the whole training; a checkpoint is where its step says.
    request = replace(request, trajectory=None)
    whole, path = unlearn_spec(request), folder_of("cells", point, cell.key)
    until = {**whole.settings, "until_step": point.until}
    spec = replace(whole, name=f"{point.method} step {point.until}", settings=until, settings_id=content_id(until))
    subject = SubjectFolder(study.folder.path / path)
    make_subject(subject, spec, partial(unlearn_part, SubjectFolder(subject.path / "under-way"), request, point.until))
    return {"path": path}


def _rate(study: Study, unlearned: str) -> float:
    return float(Board(study.folder.state).facts(unlearned)["made"]["rate"])


class ProbedModels(NamedTuple):
    """Everybody who takes part in one probe of a study, with what the study asks of it."""

    who: Participants
    settings: HolesSettings
    splits: NamedSplits
    searching: Searching

    @classmethod
    def of(cls, study: Study, folder: ProbeFolder, point: CellPoint, keys: Sequence[str]) -> "ProbedModels":
        """Those of the probe in `folder`; `keys` are those of the target, the unlearned model and the policy if any."""
        whole, device = hole_settings(study), study.settings.device
        settings, run = dict(whole.variants()).get(point.part, whole), _run_of(point.part)
        who = settings.taking_part(
            folder,
            partial(_model, study, keys[0]),
            partial(_model, study, keys[1]),
            partial(corpus_of, study, point.data),
            # The first run has the model's own, as the whole training's probe has.
            seed=point.seed if run == 1 else derive_seed(point.seed, "checkpoint run", run),
            device=device,
        )
        taught = ModelSettings(model=str(place_of(study, keys[2])), device=device) if len(keys) > 2 else None
        return cls(who, settings, splits_named(study, point), settings.searching((LATENT,), device, taught))


def _model(study: Study, key: str) -> Asked:
    return asked_model(settings_of(study, key))


def _probe(study: Study, cell: StudyCell) -> Mapping[str, Any]:
    """One probe: adjacent questions, the search, and which of both are holes."""
    path = folder_of("holes", cell.point, cell.key)
    folder = ProbeFolder(study.folder.path / path)
    cast = ProbedModels.of(study, folder, cell.point, cell.after)
    sources = sources_of(study, cell.point)
    make_adjacent(folder, cast.settings.adjacent(sources, folder.judge, cell.point.seed, study.settings.device))
    search(folder, cast.who, LATENT, cast.searching)
    request = FilterRequest(cast.who, sources.forget, cast.settings.filter, sources.retain)
    table = filter_holes(folder, request)
    return {"path": path, "holes": table.n_holes, **_besides(cast, folder, sources, study.settings.device)}


def _besides(cast: ProbedModels, folder: ProbeFolder, sources: ProbeSources, device: str) -> dict[str, Any]:
    """What tables say beside the holes: how diverse retained questions are, what prompts are about, harmful answers."""
    everybody, settings, embed = cast.who, cast.settings, cast.who.embedder.embed
    writer = everybody.grader.writer if settings.filter.name_groups == "writer" else None
    # Of retained texts nobody asks the data's own questions: those that were made near them stand for them.
    near = [adjacent.question.question for adjacent in read_adjacent(folder) if adjacent.of == "retain"]
    retained = [item.question for item in sources.splits.splits.get("retain", ())] or near
    tested, splits = [t for t in read_tested(folder) if not t.dropped], sources.splits.splits
    facts: dict[str, Any] = {
        "retained": asdict(diversity_of(retained, embed)),
        "topics": topics_of(tested, embed, writer),
        "distances": by_distance(tested, splits, sources.corpus.dataset, seed=everybody.seed),
    }
    if grader := settings.harm_grader(folder, device):
        forget = cast.splits.splits["forget"]
        facts["harm"] = asdict(
            harm_of(folder, everybody.unlearned, forget, settings.answers, grader, everybody.seed)[0]
        )
    if settings.criteria:
        facts["criteria"] = repeats.criteria_of(folder, everybody.grader, seed=everybody.seed)
    return facts


def _repeated(study: Study, cell: StudyCell) -> Mapping[str, Any]:
    """Answers of the target and of all seeds' models to what a probe tested, given and graded several times."""
    point, (probe, *models) = cell.point, cell.after
    folder = ProbeFolder(place_of(study, probe))
    cast = ProbedModels.of(study, folder, point, models[:2])
    asked, corpus = cast.settings.repeats, partial(corpus_of, study, point.data)
    assert asked is not None, "planned where repeats are asked for"
    judges = {
        judge_spec(judge).text(): partial(cast.settings.grader, judge, folder, corpus, study.settings.device, cast.who)
        for judge in asked.judges or (cast.settings.judge,)
    }
    # By their seeds, since the keys in a table would tell nobody anything.
    seeds = {c.key: c.point.seed for c in study.cells}
    unlearned = {f"seed {seeds[key]}": partial(_model, study, key) for key in models[1:]}
    request = repeats.RepeatRequest(cast.who, unlearned, judges, asked.generations)
    write_jsonl(folder.repeats, (asdict(score) for score in repeats.repeated_scores(folder, request)))
    return {"path": str(folder.path.relative_to(study.folder.path))}


@lru_cache(maxsize=4)
def sources_of(study: Study, point: CellPoint) -> ProbeSources:
    """What was forgotten and what is kept, texts as whole passages and not as the questions that a training makes."""
    corpus, splits, data = corpus_of(study, point.data), splits_named(study, point), study.data(point.data)
    (forget,) = study.member(point.data, point.forget, point.member).steps
    if {form_of(forget), form_of(data.retain or corpus.settings.data)} & {"texts", "wikitext"}:
        return probe_sources(corpus.settings, forget, retain=data.retain)
    return ProbeSources(corpus, splits)


def _mended(study: Study, cell: StudyCell) -> Mapping[str, Any]:
    """Mend one unlearned model in one way; each round of an iterative one unlearns as the model was unlearned."""
    point: CellPoint = cell.point
    probe = ProbeFolder(place_of(study, cell.after[0]))
    cast = ProbedModels.of(study, probe, point, cell.after[1:])
    repair, way = cast.settings.mitigation, point.part
    assert repair is not None, "planned where a mending is asked for"
    assert way in WAYS
    # One-shot ways tune the model that is there, and need to know nothing of its making.
    recipe = None
    if way == "iterative":
        unlearning, _ = unlearning_of(study, cell._replace(after=cell.after[1:]), _rate(study, cell.after[2]))
        recipe = Again(
            unlearning.method, unlearning.method_settings, unlearning.training, unlearning.idk, unlearning.trajectory
        )
    request = MitigationRequest(
        way,
        cast.splits,
        cast.who,
        repair.settings,
        repair.training,
        searching=cast.searching,
        again=recipe,
        harm=cast.settings.harm_grader(probe, study.settings.device),
    )
    mitigate(probe, request)
    folder = mitigation_folder(probe, request)
    return {"path": str(folder.path.relative_to(study.folder.path))}
