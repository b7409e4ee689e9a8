"""One-shot mending: the unlearned model is tuned on prompts of its probe, with the target's own answers.

`gd` is cross-entropy on those answers, `kl` the divergence from the target's distributions at their tokens. Harm or
what remains of the forget set, and the quality of used and held-out prompts, are measured at every checkpoint, and the
checkpoint that is kept is probed anew (2511.00030, Tables 3 and 8).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from transformers import PreTrainedModel

from vestige.artifacts.holes import KeptModel, MitigationTable
from vestige.artifacts.layout import MitigationFolder, ProbeFolder, SubjectFolder, own_folder
from vestige.artifacts.records import SubjectSpec, read_spec
from vestige.core.errors import InputError
from vestige.core.files import read_jsonl
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.models.load import LoadedModel
from vestige.probes.mitigation import Imitate, MitigationSettings, Picked
from vestige.probes.mitigation_scores import means, row_of
from vestige.steps.finetune import items_digest
from vestige.steps.making import Made, Saving, make_subject, shown_model
from vestige.steps.mitigate_request import VERSION, MitigationRequest, Scorer, new_latent, probe_anew, taught_rows
from vestige.steps.probe import asked_model
from vestige.steps.subjects import load_checked, own_dtype
from vestige.training.adapters import add_lora, merge_lora
from vestige.training.batching import FinetunePlan, RowSource
from vestige.training.batching import row_of as training_row
from vestige.training.checkpoints import Checkpoints
from vestige.training.finetune import Finetune
from vestige.training.job import Job
from vestige.training.loop import Hooks, Outcome, Progress, train
from vestige.training.reference import references
from vestige.training.reference_cache import ReferenceCache
from vestige.training.trajectory import POLICY, Trajectory, TrajectorySettings

TARGET, UNLEARNED = "target", "unlearned"
"""The rows that a mending is compared with."""


def rules(settings: MitigationSettings) -> TrajectorySettings:
    """When the model is scored and which checkpoint is kept. Nothing stops early, as in the paper."""
    asked = {"every": settings.every, "choose": settings.choose, "stop_when": ()}
    return TrajectorySettings.build(asked, where="settings of mitigation")


def mend_once(
    origin: ProbeFolder, place: MitigationFolder, request: MitigationRequest, picked: Picked
) -> MitigationTable:
    """The table of a one-shot mending in `place`, of the probe in `origin`."""
    scorer, seed = Scorer(place, request, picked.samples), request.seed
    before = {
        TARGET: scorer.of(TARGET, request.target.asked.loaded),
        UNLEARNED: scorer.of(UNLEARNED, request.unlearned.asked.loaded),
    }
    made = mended(place, request, scorer, means(before[TARGET]))
    rows = [row_of(name, 0, scored, kept=False, seed=seed) for name, scored in before.items()]
    subject, chosen = SubjectFolder(place.subject), made.chosen
    assert chosen is not None, "a training with a trajectory keeps a checkpoint"
    asked = asked_model(request.unlearned.settings.model_copy(update={"model": str(subject.path)}))
    anew = probe_anew(origin, place, request, asked) if request.searching else []
    new = new_latent(anew, picked.samples, request)
    for step in _steps(subject):
        kept = step == chosen.step
        scored = scorer.of(_name(step), asked.loaded, gone=True)
        rows.append(
            row_of(request.way, step, scored, kept=kept, seed=seed, sets=new if kept else None, base=before[UNLEARNED])
        )
    notes = picked.notes if chosen.met else (*picked.notes, f"{chosen.why[0].upper()}{chosen.why[1:]}.")
    if request.searching and not new:
        notes = (*notes, "No prompt that the new search found passed the filters, so there is no D_LP new.")
    model = KeptModel(f"{request.way}, step {chosen.step}", place.subject.name, made.digest.id)
    sizes = {s.set: sum(t.set == s.set for t in picked.samples) for s in picked.samples}
    return MitigationTable(request.way, tuple(rows), sizes, (model,), notes)


def mended(
    place: MitigationFolder, request: MitigationRequest, scorer: Scorer, target_scores: Mapping[str, float]
) -> Made:
    """The mended subject; resumes, and does nothing when it is there."""
    subject, taught = SubjectFolder(place.subject), taught_rows(scorer.samples, place.used)
    spec = mended_spec(request, taught, scorer.folder.path.name)
    facts = {
        "mended": shown_model(request.unlearned.settings.model),
        "target_digest": request.target.asked.id,
        "taught_items": {"n": len(taught), "digest": items_digest(taught)},
    }

    def build() -> tuple[LoadedModel, Outcome]:
        return _train(subject, request, scorer, taught, target_scores)

    return make_subject(subject, spec, build, saving=Saving(facts))


def mended_spec(request: MitigationRequest, taught: tuple[Item, ...], mending: str) -> SubjectSpec:
    """The identity of the mended model; `mending` is the name of its mending, with the id of all that it hangs on."""
    unlearned = request.unlearned
    own = own_folder(unlearned.settings.model)
    settings = {
        "dtype": own_dtype(unlearned.settings.model) or unlearned.settings.dtype,
        **request.training.over(len(taught)).identity(),
        "way": request.way,
        "mending": mending,
        # The divergence is from it, and which checkpoint is kept may hang on what it scores.
        "target": request.target.asked.id,
    }
    return SubjectSpec(
        subject="unlearned",
        name=f"{read_spec(own.spec).name if own else shown_model(unlearned.settings.model)} mended by {request.way}",
        model=read_spec(own.spec).model if own else unlearned.settings.model,
        method=f"mended_{request.way}",
        forget=request.splits.forget,
        seed=request.seed,
        settings_id=content_id(settings),
        settings=settings,
        data=items_digest(taught),
        parent=unlearned.asked.id,
        version=VERSION,
        forgotten=read_spec(own.spec).forgotten if own else (request.splits.resolved,),
    )


@dataclass
class _Points:
    """The scoring of a model in training, under the name of its step."""

    scorer: Scorer
    student: LoadedModel
    step: int = 0

    def score(self, model: PreTrainedModel) -> Mapping[str, float]:
        model.eval()
        # Another with the same weights, so that how it is read is looked up at each point anew, as after a restart.
        return means(self.scorer.of(_name(self.step), replace(self.student, model=model)))


def _train(
    subject: SubjectFolder,
    request: MitigationRequest,
    scorer: Scorer,
    taught: tuple[Item, ...],
    target_scores: Mapping[str, float],
) -> tuple[LoadedModel, Outcome]:
    unlearned = request.unlearned
    dtype = own_dtype(unlearned.settings.model) or unlearned.settings.dtype
    settings = unlearned.settings.model_copy(update={"dtype": dtype})
    student = load_checked(settings, unlearned.asked.id, "the unlearned model")
    job = _job(subject, request, student, taught)
    points = _Points(scorer, student)
    # What the target scores is handed in, so that the model which stands in its place is not asked.
    controls = {"target": target_scores}
    watched = Trajectory(rules(request.settings), points.score, subject.trajectory, subject.checkpoints, controls)
    watched.begin(student.model, {})

    def look(now: Progress, model: PreTrainedModel) -> str | None:
        points.step = now.step
        return watched.look(now, model)

    outcome = train(student.model, job, Hooks(on_step=request.on_step, stop=look))
    outcome = replace(outcome, chosen=watched.restore(student.model))
    merge_lora(student.model)
    student.model.eval()
    return student, outcome


def _job(subject: SubjectFolder, request: MitigationRequest, student: LoadedModel, taught: tuple[Item, ...]) -> Job:
    """What is trained on what; the model is given its adapters."""
    training = request.training.over(len(taught))
    rows = [training_row(student.prompter.encode(i.question, i.answer), loss_on=training.loss_on) for i in taught]
    sources: RowSource = {"train": rows.__getitem__}
    plan = FinetunePlan(len(rows), training.batch_size, request.seed)
    objective = Imitate() if request.way == "kl" else Finetune()
    found = {}
    if isinstance(objective, Imitate):
        target = request.target.asked
        if target.loaded.tokenizer.get_vocab() != student.tokenizer.get_vocab():
            raise InputError(
                "target and unlearned model have different vocabularies, so their distributions cannot be compared; "
                "mend by gd"
            )
        cache = ReferenceCache(subject.checkpoints, target.id)
        found = references(target.loaded.model, objective.needs, plan, sources, training, cache=cache)
    if training.lora_rank:
        add_lora(student.model, training, request.seed)
    return Job(
        objective=objective,
        rows=sources,
        plan=plan,
        settings=training,
        seed=request.seed,
        references=found,
        checkpoints=Checkpoints(subject.checkpoints),
        log=subject.training_log,
    )


def _steps(subject: SubjectFolder) -> list[int]:
    return [line["step"] for line in read_jsonl(subject.trajectory) if line["model"] == POLICY]


def _name(step: int) -> str:
    return f"step {step}"
