"""Mending an unlearned model with the holes that a probe found in it, in the folder of that probe.

One-shot: the unlearned model is tuned on prompts of the probe with the target's own answers. `gd` is cross-entropy on
those answers, `kl` the divergence from the target's distributions at their tokens. Harm or what remains of the forget
set, and the quality of used and held-out prompts, are measured at every checkpoint, and the checkpoint that is kept is
probed anew (Probing Knowledge Holes in Unlearned LLMs, 2511.00030, section 4.3, Tables 3 and 8).

Iterative: round after round the target is unlearned anew, keeping what the last round's probe had found. What is to be
kept in round r are `n_latent` prompts found against the model of round r - 1 and, the same in every round, `n_adjacent`
adjacent prompts, all with the target's own answers, and `n_retain` items of the retain set (Tables 4 and 9). Round 0 is
the unlearned model that the probe was of.

A mending that is done is not done again; a killed one goes on.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from vestige import losses
from vestige.artifacts.holes import (
    LATENT_BEFORE,
    LATENT_HELD_OUT,
    LATENT_USED,
    KeptModel,
    MitigationRow,
    MitigationTable,
    PolicySample,
    ScoredAnswer,
    Tested,
    read_mitigation,
    read_samples,
    read_table,
    write_mitigation,
)
from vestige.artifacts.layout import MitigationFolder, ProbeFolder, SubjectFolder, own_folder
from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.artifacts.records import SubjectSpec, read_spec, read_trajectory
from vestige.core.errors import InputError
from vestige.core.files import locked, write_json, write_jsonl
from vestige.core.ids import content_id
from vestige.core.items import Item, items_digest
from vestige.core.store import SCHEMA
from vestige.methods import build_method
from vestige.models.load import LoadedModel
from vestige.probes.holes import forget_texts
from vestige.probes.mitigation import (
    VERSION,
    MitigationRequest,
    Picked,
    measured_otherwise,
    pick_latent,
    picked_in,
    retained,
    rules,
    tested_in,
)
from vestige.probes.mitigation_scores import (
    Scorer,
    means,
    new_latent,
    probe_anew,
    row_of,
    score_of,
    taught_rows,
    untaught,
    with_answers,
)
from vestige.steps.making import Made, Saving, make_subject, shown_model
from vestige.steps.subjects import Asked, asked_model, load_checked, own_dtype
from vestige.steps.unlearn import UnlearnRequest, unlearn
from vestige.training.adapters import add_lora, merge_lora
from vestige.training.batching import FinetunePlan, RowSource
from vestige.training.batching import row_of as training_row
from vestige.training.checkpoints import Checkpoints, Finetune, TrainingJob
from vestige.training.loop import Hooks, Progress, TrainingEnd, train
from vestige.training.reference import references
from vestige.training.step import Needs, Step
from vestige.training.trajectory import POLICY, Trajectory


def mitigate(folder: ProbeFolder, request: MitigationRequest) -> MitigationTable:
    """The table of one mending, in the folder of a finished probe; made, or gone on with, unless it is there."""
    tested = tested_in(folder)
    _refuse_unfit(request)
    _refuse_anothers(folder, request)
    identity = request.identity(tested)
    mending = folder.mitigation(f"{request.way}-{content_id(identity)}")
    if mending.table.exists():
        return read_mitigation(mending)
    picked = picked_in(folder, request.forget_items, request.settings, tested, seed=request.who.seed)
    with locked(mending.lock):
        watch = Stopwatch()
        write_json(mending.asked, {"schema": SCHEMA, "identity": identity})
        samples = _with_answers(mending, request, picked)
        picked = Picked(samples, (*picked.notes, *untaught(samples)))
        if request.again is None:
            table = mend_once(folder, mending, request, picked)
        else:
            table = mend_in_rounds(folder, mending, request, picked, tested)
        write_provenance(mending.provenance, watch, **request.who.target.loaded.provenance())
        write_mitigation(mending, table, identity)
    return table


def _with_answers(mending: MitigationFolder, request: MitigationRequest, picked: Picked) -> tuple[PolicySample, ...]:
    if mending.used.exists():
        return read_samples(mending)
    request.on_stage("the target's own answers to the prompts that are used")
    loaded = request.who.target.loaded
    samples = with_answers(loaded, picked.samples, request.settings.answer_tokens)
    taught_rows(samples, mending.used)
    write_jsonl(mending.used, map(asdict, samples))
    return samples


def _refuse_anothers(folder: ProbeFolder, request: MitigationRequest) -> None:
    """Refuse other models or another forget set than those that the probe was of."""
    _, probed = read_table(folder)
    requested = {
        "target": request.who.target.id,
        "unlearned": request.who.unlearned.id,
        "forget": content_id(forget_texts(request.forget_items), length=32),
    }
    different = [name for name, value in requested.items() if probed[name] != value]
    if different:
        words = {"target": "target", "unlearned": "unlearned model", "forget": "forget set"}
        raise InputError(
            f"the probe in {folder.path} was of another {' and another '.join(words[name] for name in different)}; "
            "name the folder of the probe of these, or what it was of"
        )


def _refuse_unfit(request: MitigationRequest) -> None:
    if (request.way == "iterative") != (request.again is not None):
        raise InputError("the way iterative needs a method that unlearns the target again; other ways take no method")
    for model in (request.who.target, request.who.unlearned):
        if not model.loaded.here:
            raise InputError(f"{model.name} is behind an address, and mending needs the weights; name a model's folder")
    again = request.again
    if again is None:
        rules(request.settings)
        return
    if request.searching is None or not request.searching.sources:
        raise InputError("the way iterative searches each round's model for new holes; name a search, such as latent")
    method = build_method(again.method, again.method_settings)
    if "retain" not in method.needs.splits:
        raise InputError(
            f"method {again.method!r} reads no retain set, so nothing can be added to it; take one that does, such as "
            "npo_gd"
        )


@dataclass(frozen=True)
class Imitate:
    """KL(target || policy) on the answers' positions of `train`, mean over the tokens of the effective batch."""

    needs: ClassVar[Needs] = Needs(distributions=frozenset({"train"}))

    def terms(self, step: Step) -> dict[str, Float[Tensor, ""]]:
        policy, target = step.policy_distributions("train"), step.reference_distributions("train")
        return {"train": losses.kl(policy.logp, target.logp, policy.mask, n_tokens=policy.n_tokens)}


TARGET, UNLEARNED = "target", "unlearned"
"""The rows that a mending is compared with."""


def mend_once(
    origin: ProbeFolder, mending: MitigationFolder, request: MitigationRequest, picked: Picked
) -> MitigationTable:
    """The table of a one-shot mending in `place`, of the probe in `origin`."""
    scorer, seed = Scorer(mending, request, picked.samples), request.who.seed
    before = {
        TARGET: scorer.of(TARGET, request.who.target.loaded),
        UNLEARNED: scorer.of(UNLEARNED, request.who.unlearned.loaded),
    }
    trained = mended(mending, request, scorer, means(before[TARGET]))
    rows = [row_of(name, 0, scored, kept=False, seed=seed) for name, scored in before.items()]
    subject, chosen = SubjectFolder(mending.subject), trained.chosen
    assert chosen is not None, "a training with a trajectory keeps a checkpoint"
    repaired = asked_model(request.who.unlearned.settings.model_copy(update={"model": str(subject.path)}))
    retested = probe_anew(origin, mending, request, repaired) if request.searching else []
    new = new_latent(retested, picked.samples, request)
    for step in (point.step for point in read_trajectory(subject.trajectory) if point.model == POLICY):
        kept = step == chosen.step
        scored = scorer.of(_called(step), repaired.loaded, gone=True)
        rows.append(
            row_of(request.way, step, scored, kept=kept, seed=seed, sets=new if kept else None, base=before[UNLEARNED])
        )
    notes = picked.notes if chosen.met else (*picked.notes, f"{chosen.why[0].upper()}{chosen.why[1:]}.")
    if request.searching and not new:
        notes = (*notes, "No prompt that the new search found passed the filters, so there is no D_LP new.")
    model = KeptModel(f"{request.way}, step {chosen.step}", mending.subject.name, trained.digest.id)
    sizes = {s.set: sum(t.set == s.set for t in picked.samples) for s in picked.samples}
    return MitigationTable(request.way, tuple(rows), sizes, (model,), notes)


def mended(
    mending_folder: MitigationFolder, request: MitigationRequest, scorer: Scorer, target_scores: Mapping[str, float]
) -> Made:
    """The mended subject; resumes, and does nothing when it is there."""
    subject, rows = SubjectFolder(mending_folder.subject), taught_rows(scorer.samples, mending_folder.used)
    # The folder's name is the content id of the whole request, judge and search among it.
    spec = mended_spec(request, rows, scorer.folder.path.name)
    facts = {
        "mended": shown_model(request.who.unlearned.settings.model),
        "target_digest": request.who.target.id,
        "taught_items": {"n": len(rows), "digest": items_digest(rows)},
    }

    def build() -> tuple[LoadedModel, TrainingEnd]:
        return _train(subject, request, scorer, rows, target_scores)

    return make_subject(subject, spec, build, saving=Saving(facts))


def mended_spec(request: MitigationRequest, rows: tuple[Item, ...], mending: str) -> SubjectSpec:
    """The identity of the mended model; `mending` is the name of its mending, with the id of all that it hangs on."""
    unlearned = request.who.unlearned
    source = own_folder(unlearned.settings.model)
    settings = {
        "dtype": own_dtype(unlearned.settings.model) or unlearned.settings.dtype,
        **request.training.over(len(rows)).identity(),
        "way": request.way,
        "mending": mending,
        # The divergence is from it, and which checkpoint is kept may hang on what it scores.
        "target": request.who.target.id,
    }
    return SubjectSpec.of(
        "unlearned",
        f"{read_spec(source.spec).name if source else shown_model(unlearned.settings.model)} mended by {request.way}",
        read_spec(source.spec).model if source else unlearned.settings.model,
        settings,
        method=f"mended_{request.way}",
        forget=request.splits.forget,
        seed=request.who.seed,
        data=items_digest(rows),
        parent=unlearned.id,
        version=VERSION,
        forgotten=read_spec(source.spec).forgotten if source else (request.splits.resolved,),
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
        return means(self.scorer.of(_called(self.step), replace(self.student, weights=model)))


def _train(
    subject: SubjectFolder,
    request: MitigationRequest,
    scorer: Scorer,
    items: tuple[Item, ...],
    target_scores: Mapping[str, float],
) -> tuple[LoadedModel, TrainingEnd]:
    unlearned = request.who.unlearned
    dtype = own_dtype(unlearned.settings.model) or unlearned.settings.dtype
    settings = unlearned.settings.model_copy(update={"dtype": dtype})
    student = load_checked(settings, unlearned.id, "the unlearned model")
    job = _job(subject, request, student, items)
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


def _job(
    subject: SubjectFolder, request: MitigationRequest, student: LoadedModel, items: tuple[Item, ...]
) -> TrainingJob:
    """What is trained on what; the model is given its adapters."""
    training = request.training.over(len(items))
    rows = [training_row(student.prompter.encode(i.question, i.answer), loss_on=training.loss_on) for i in items]
    sources: RowSource = {"train": rows.__getitem__}
    plan = FinetunePlan(len(rows), training.batch_size, request.who.seed)
    objective = Imitate() if request.way == "kl" else Finetune()
    cached = {}
    if isinstance(objective, Imitate):
        target = request.who.target
        if target.loaded.tokenizer.get_vocab() != student.tokenizer.get_vocab():
            raise InputError(
                "target and unlearned model have different vocabularies, so their distributions cannot be compared; "
                "mend by gd"
            )
        cached = references(target.loaded.model, objective.needs, plan, sources, training)
    if training.lora_rank:
        add_lora(student.model, training, request.who.seed)
    return TrainingJob(
        objective=objective,
        rows=sources,
        plan=plan,
        settings=training,
        seed=request.who.seed,
        references=cached,
        checkpoints=Checkpoints(subject.checkpoints),
        log=subject.training_log,
    )


def _called(step: int) -> str:
    return f"step {step}"


def mend_in_rounds(
    origin: ProbeFolder, mending: MitigationFolder, request: MitigationRequest, picked: Picked, tested: list[Tested]
) -> MitigationTable:
    """The table of an iterative mending in `place`, of the probe in `origin`, which came to `tested`."""
    seed, samples, notes = request.who.seed, picked.samples, list(picked.notes)
    target, last = request.who.target, request.who.unlearned
    first = Scorer(mending, request, samples)
    new_prompts, base = new_latent(tested, (), request), first.of("round 0", last.loaded)
    if differs := measured_otherwise(origin, request):
        new_prompts = {}
        notes.append(f"Round 0 has no D_LP new: the probe had another {' and another '.join(differs)} than this.")
    rows = [
        row_of("target", 0, first.of("target", target.loaded), kept=False, seed=seed),
        row_of("round 0", 0, base, kept=False, seed=seed, sets=new_prompts),
    ]
    models: list[KeptModel] = []
    for number in range(1, request.settings.rounds + 1):
        if number > 1:
            next_round = _of_round(mending, request, samples, tested, number)
            if not any(s.set == LATENT_USED for s in next_round.samples):
                notes.append(f"The searches of round {number - 1} found nothing to add, so there is no round {number}.")
                break
            samples, notes = next_round.samples, [*notes, *(f"Round {number}: {note}" for note in next_round.notes)]
        mended = _unlearned_anew(mending.round(number), request, samples)
        row, tested = _scored(origin, mending, request, samples, (last, mended), number, base)
        rows.append(row)
        models.append(KeptModel(f"round {number}", f"rounds/{number}/{mending.subject.name}", mended.id))
        last = mended
    sizes = {s.set: sum(t.set == s.set for t in picked.samples) for s in picked.samples}
    return MitigationTable(request.way, tuple(rows), sizes, tuple(models), tuple(notes))


def _of_round(
    mending: MitigationFolder,
    request: MitigationRequest,
    samples: tuple[PolicySample, ...],
    tested: list[Tested],
    number: int,
) -> Picked:
    """The prompts of a round: the adjacent ones and the forget set stay, the latent ones are the last probe's."""
    latent, folder = pick_latent(tested, request.settings, seed=request.who.seed), mending.round(number)
    same = [s for s in samples if s.set not in (LATENT_USED, LATENT_HELD_OUT)]
    if folder.used.exists():
        answered = read_samples(folder)
    else:
        request.on_stage(f"round {number}: the target's own answers to {len(latent.samples)} prompts")
        loaded, most = request.who.target.loaded, request.settings.answer_tokens
        answered = with_answers(loaded, (*same, *latent.samples), most)
        write_jsonl(folder.used, map(asdict, answered))
    return Picked(answered, (*latent.notes, *untaught(answered)))


def _unlearned_anew(folder: MitigationFolder, request: MitigationRequest, samples: tuple[PolicySample, ...]) -> Asked:
    """The target made to forget once more, with the round's prompts among what it keeps."""
    recipe, target = request.again, request.who.target
    assert recipe is not None, "only an iterative mending unlearns anew"
    retain = retained(request.splits.splits.get("retain", ()), samples, request.settings.n_retain, request.who.seed)
    source, name = own_folder(target.settings.model), target.settings.model
    dtype = own_dtype(name) or target.settings.dtype
    request_ = UnlearnRequest(
        target=target.settings.model_copy(update={"dtype": dtype}),
        target_digest=target.id,
        start=read_spec(source.spec).model if source else name,
        method=recipe.method,
        method_settings=recipe.method_settings,
        forget=request.splits.forget,
        forget_items=request.forget_items,
        retain_items=(*taught_rows(samples, folder.used), *retain),
        idk=recipe.idk,
        training=recipe.training,
        seed=request.who.seed,
        trajectory=recipe.trajectory,
    )
    request.on_stage(f"unlearning anew by {recipe.method}")
    unlearn(SubjectFolder(folder.subject), request_, on_step=request.on_step)
    return asked_model(target.settings.model_copy(update={"model": str(folder.subject)}))


def _scored(
    origin: ProbeFolder,
    mending: MitigationFolder,
    request: MitigationRequest,
    samples: tuple[PolicySample, ...],
    models: tuple[Asked, Asked],
    number: int,
    base: tuple[ScoredAnswer, ...],
) -> tuple[MitigationRow, list[Tested]]:
    """The row of a round and what the new probe of its model came to; `models` are the last round's, its own."""
    (last, mended), folder, seed = models, mending.round(number), request.who.seed
    latent = tuple(s for s in samples if s.set == LATENT_USED)
    before = score_of(Scorer(folder, request, latent).of("before", last.loaded), seed=seed) if latent else None
    scored = Scorer(folder, request, samples).of(f"round {number}", mended.loaded)
    tested = probe_anew(origin, folder, request, mended)
    sets = new_latent(tested, samples, request) | ({LATENT_BEFORE: before} if before else {})
    return row_of(f"round {number}", number, scored, kept=True, seed=seed, sets=sets, base=base), tested
