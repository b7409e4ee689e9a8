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
from typing import ClassVar, NamedTuple

from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from vestige import losses
from vestige.artifacts.holes import (
    LATENT_BEFORE,
    LATENT_HELD_OUT,
    LATENT_USED,
    KeptModel,
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
from vestige.steps.making import Saving, make_subject, shown_model
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
    _refuse_unfit(folder, request)
    identity = request.identity(tested)
    mending = folder.mitigation(f"{request.way}-{content_id(identity)}")
    if mending.table.exists():
        return read_mitigation(mending)
    picked = picked_in(folder, request.forget_items, request.settings, tested, seed=request.who.seed)
    with locked(mending.lock):
        watch = Stopwatch()
        write_json(mending.asked, {"schema": SCHEMA, "identity": identity})
        samples = _taught(mending, request, picked.samples, "the target's own answers to the prompts that are used")
        # Before hours of scoring: without answers nothing could be trained on.
        taught_rows(samples, mending.used)
        table = _in_rounds(folder, mending, request, Picked(samples, (*picked.notes, *untaught(samples))), tested)
        # Before the table, by which a mending is known to be done.
        write_provenance(mending.provenance, watch, **request.who.target.loaded.provenance())
        write_mitigation(mending, table, identity)
    return table


def _refuse_unfit(folder: ProbeFolder, request: MitigationRequest) -> None:
    """Refuse other models or another forget set than the probe was of, and a way that cannot be gone."""
    again, (_, probed) = request.again, read_table(folder)
    if (request.way == "iterative") != (again is not None):
        raise InputError("the way iterative needs a method that unlearns the target again; other ways take no method")
    for model in (request.who.target, request.who.unlearned):
        if not model.loaded.here:
            raise InputError(f"{model.name} is behind an address, and mending needs the weights; name a model's folder")
    if again is None:
        rules(request.settings)
    else:
        if request.searching is None or not request.searching.sources:
            raise InputError(
                "the way iterative searches each round's model for new holes; name a search, such as latent"
            )
        if "retain" not in build_method(again.method, again.method_settings).needs.splits:
            raise InputError(
                f"method {again.method!r} reads no retain set, so nothing can be added to it; take one that does, "
                "such as npo_gd"
            )
    requested = {
        "target": (request.who.target.id, "target"),
        "unlearned": (request.who.unlearned.id, "unlearned model"),
        "forget": (content_id(forget_texts(request.forget_items), length=32), "forget set"),
    }
    different = [words for name, (value, words) in requested.items() if probed[name] != value]
    if different:
        raise InputError(
            f"the probe in {folder.path} was of another {' and another '.join(different)}; name the folder of the "
            "probe of these, or what it was of"
        )


def _taught(
    folder: MitigationFolder, request: MitigationRequest, samples: tuple[PolicySample, ...], stage: str
) -> tuple[PolicySample, ...]:
    """The samples with the target's own answers, which are kept in the folder."""
    if not folder.used.exists():
        request.on_stage(stage)
        answered = with_answers(request.who.target.loaded, samples, request.settings.answer_tokens)
        write_jsonl(folder.used, map(asdict, answered))
    return read_samples(folder)


@dataclass(frozen=True)
class Imitate:
    """KL(target || policy) on the answers' positions of `train`, mean over the tokens of the effective batch."""

    needs: ClassVar[Needs] = Needs(distributions=frozenset({"train"}))

    def terms(self, step: Step) -> dict[str, Float[Tensor, ""]]:
        policy, target = step.policy_distributions("train"), step.reference_distributions("train")
        return {"train": losses.kl(policy.logp, target.logp, policy.mask, n_tokens=policy.n_tokens)}


class _Round(NamedTuple):
    """A model that a round made, and the scored answers of it or of its checkpoints, by step or round."""

    model: Asked
    folder: KeptModel
    kept_at: int
    scored: Mapping[int, tuple[ScoredAnswer, ...]]
    notes: tuple[str, ...] = ()


def _in_rounds(
    probe: ProbeFolder, mending: MitigationFolder, request: MitigationRequest, picked: Picked, tested: list[Tested]
) -> MitigationTable:
    """The table of a mending of the model whose probe came to `tested`; a one-shot mending is one round of another."""
    once, seed = request.again is None, request.who.seed
    samples, notes, last = picked.samples, list(picked.notes), request.who.unlearned
    scorer, first = Scorer(mending, request, samples), "unlearned" if once else "round 0"
    models_before = {"target": request.who.target.loaded, first: last.loaded}
    # Judgements are kept in the order in which they are asked for.
    before_any = {name: scorer.of(name, models_before[name]) for name in (models_before if once else [first, "target"])}
    target_scores, base = before_any["target"], before_any[first]
    sets = {}
    if not once:
        if differs := measured_otherwise(probe, request):
            notes.append(f"Round 0 has no D_LP new: the probe had another {' and another '.join(differs)} than this.")
        else:
            sets = new_latent(tested, (), request)
    rows = [row_of("target", 0, target_scores, seed=seed), row_of(first, 0, base, seed=seed, sets=sets)]
    models: list[KeptModel] = []
    for number in range(1, 2 if once else request.settings.rounds + 1):
        folder = mending if once else mending.round(number)
        if number > 1:
            # The adjacent prompts and the forget set stay; what searches found is the last round's.
            latent = pick_latent(tested, request.settings, seed=seed)
            same = [s for s in samples if s.set not in (LATENT_USED, LATENT_HELD_OUT)]
            stage = f"round {number}: the target's own answers to {len(latent.samples)} prompts"
            samples = _taught(folder, request, (*same, *latent.samples), stage)
            if not any(s.set == LATENT_USED for s in samples):
                notes.append(f"The searches of round {number - 1} found nothing to add, so there is no round {number}.")
                break
            notes += [f"Round {number}: {note}" for note in (*latent.notes, *untaught(samples))]
        if once:
            result, before = _tuned(mending, request, scorer, means(target_scores)), None
        else:
            used = tuple(s for s in samples if s.set == LATENT_USED)
            scores_before = Scorer(folder, request, used).of("before", last.loaded) if used else ()
            before = score_of(scores_before, seed=seed)
            result = _unlearned_anew(folder, request, samples, number)
        tested = probe_anew(probe, folder, request, result.model) if request.searching else []
        new = new_latent(tested, samples, request)
        for at, scored in result.scored.items():
            is_kept = at == result.kept_at
            sets = {**new, **({LATENT_BEFORE: before} if before else {})} if is_kept else {}
            arm = request.way if once else f"round {number}"
            rows.append(row_of(arm, at, scored, kept=is_kept, seed=seed, sets=sets, base=base))
        models.append(result.folder)
        notes += result.notes
        if once and request.searching and not new:
            notes.append("No prompt that the new search found passed the filters, so there is no D_LP new.")
        last = result.model
    sizes = {s.set: sum(t.set == s.set for t in picked.samples) for s in picked.samples}
    return MitigationTable(request.way, tuple(rows), sizes, tuple(models), tuple(notes))


def _tuned(
    mending: MitigationFolder, request: MitigationRequest, scorer: Scorer, target_scores: Mapping[str, float]
) -> _Round:
    """UNLEARNED tuned on what is taught, with every checkpoint that was scored; resumes, or is there already."""
    subject, rows = SubjectFolder(mending.subject), taught_rows(scorer.samples, mending.used)
    unlearned = request.who.unlearned
    name = unlearned.settings.model
    source = own_folder(name)
    made_by = read_spec(source.spec) if source else None
    dtype = own_dtype(name) or unlearned.settings.dtype
    spec = SubjectSpec.of(
        "unlearned",
        f"{made_by.name if made_by else shown_model(name)} mended by {request.way}",
        made_by.model if made_by else name,
        {
            "dtype": dtype,
            **request.training.over(len(rows)).identity(),
            "way": request.way,
            # The folder's name is the content id of the whole request, judge and search among it.
            "mending": mending.path.name,
            # The divergence is from it, and which checkpoint is kept may hang on what it scores.
            "target": request.who.target.id,
        },
        method=f"mended_{request.way}",
        forget=request.splits.forget,
        seed=request.who.seed,
        data=items_digest(rows),
        parent=unlearned.id,
        version=VERSION,
        forgotten=made_by.forgotten if made_by else (request.splits.resolved,),
    )
    facts = {
        "mended": shown_model(name),
        "target_digest": request.who.target.id,
        "taught_items": {"n": len(rows), "digest": items_digest(rows)},
    }

    def build() -> tuple[LoadedModel, TrainingEnd]:
        return _train(subject, request, scorer, rows, target_scores)

    trained = make_subject(subject, spec, build, saving=Saving(facts))
    chosen = trained.chosen
    assert chosen is not None, "a training with a trajectory keeps a checkpoint"
    tuned = asked_model(unlearned.settings.model_copy(update={"model": str(subject.path)}))
    steps = [point.step for point in read_trajectory(subject.trajectory) if point.model == POLICY]
    return _Round(
        tuned,
        KeptModel(f"{request.way}, step {chosen.step}", mending.subject.name, trained.digest.id),
        chosen.step,
        {step: scorer.of(f"step {step}", tuned.loaded, gone=True) for step in steps},
        () if chosen.met else (f"{chosen.why[0].upper()}{chosen.why[1:]}.",),
    )


def _train(
    subject: SubjectFolder,
    request: MitigationRequest,
    scorer: Scorer,
    items: tuple[Item, ...],
    target_scores: Mapping[str, float],
) -> tuple[LoadedModel, TrainingEnd]:
    unlearned, target, seed = request.who.unlearned, request.who.target, request.who.seed
    dtype = own_dtype(unlearned.settings.model) or unlearned.settings.dtype
    settings = unlearned.settings.model_copy(update={"dtype": dtype})
    student = load_checked(settings, unlearned.id, "the unlearned model")
    training = request.training.over(len(items))
    rows = [training_row(student.prompter.encode(i.question, i.answer), loss_on=training.loss_on) for i in items]
    sources: RowSource = {"train": rows.__getitem__}
    plan = FinetunePlan(len(rows), training.batch_size, seed)
    objective = Imitate() if request.way == "kl" else Finetune()
    cached = {}
    if isinstance(objective, Imitate):
        # By content: two vocabularies of one size may give one id to different tokens.
        if target.loaded.tokenizer.get_vocab() != student.tokenizer.get_vocab():
            raise InputError(
                "target and unlearned model have different vocabularies, so their distributions cannot be compared; "
                "mend by gd"
            )
        # Computed once: the target would otherwise have to stay in memory beside the student.
        cached = references(target.loaded.model, objective.needs, plan, sources, training)
    if training.lora_rank:
        add_lora(student.model, training, seed)
    job = TrainingJob(
        objective=objective,
        rows=sources,
        plan=plan,
        settings=training,
        seed=seed,
        references=cached,
        checkpoints=Checkpoints(subject.checkpoints),
        log=subject.training_log,
    )
    step = 0

    def score(model: PreTrainedModel) -> Mapping[str, float]:
        model.eval()
        # Another with the same weights, so that how it is read is looked up at each point anew, as after a restart.
        return means(scorer.of(f"step {step}", replace(student, weights=model)))

    def look(now: Progress, model: PreTrainedModel) -> str | None:
        nonlocal step
        step = now.step
        return watched.look(now, model)

    # What the target scores is handed in, so that the model which stands in its place is not asked.
    controls = {"target": target_scores}
    watched = Trajectory(rules(request.settings), score, subject.trajectory, subject.checkpoints, controls)
    watched.begin(student.model, {})
    outcome = train(student.model, job, Hooks(on_step=request.on_step, stop=look))
    outcome = replace(outcome, chosen=watched.restore(student.model))
    merge_lora(student.model)
    student.model.eval()
    return student, outcome


def _unlearned_anew(
    folder: MitigationFolder, request: MitigationRequest, samples: tuple[PolicySample, ...], number: int
) -> _Round:
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
    model = asked_model(target.settings.model_copy(update={"model": str(folder.subject)}))
    saved = KeptModel(f"round {number}", f"rounds/{number}/{folder.subject.name}", model.id)
    return _Round(model, saved, number, {number: Scorer(folder, request, samples).of(f"round {number}", model.loaded)})
