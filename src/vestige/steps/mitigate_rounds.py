"""Iterative mending: round after round the target is unlearned anew, keeping what the last round's probe had found.

What is to be kept in round r are `n_latent` prompts found against the model of round r - 1 and, the same in every
round, `n_adjacent` adjacent prompts, all with the target's own answers, and `n_retain` items of the retain set
(2511.00030, Tables 4 and 9). Round 0 is the unlearned model that the probe was of.
"""

from vestige.artifacts.holes import (
    LATENT_BEFORE,
    LATENT_HELD_OUT,
    LATENT_USED,
    KeptModel,
    MitigationRow,
    MitigationTable,
    Sample,
    ScoredAnswer,
    Tested,
    read_samples,
    write_samples,
)
from vestige.artifacts.layout import MitigationFolder, ProbeFolder, SubjectFolder, own_folder
from vestige.artifacts.records import read_spec
from vestige.probes.mitigation import Picked, pick_latent, retained
from vestige.probes.mitigation_scores import row_of, score_of
from vestige.steps.mitigate_request import (
    MitigationRequest,
    Scorer,
    measured_otherwise,
    new_latent,
    probe_anew,
    taught_rows,
    untaught,
    with_answers,
)
from vestige.steps.probe import Asked, asked_model
from vestige.steps.subjects import own_dtype
from vestige.steps.unlearn import UnlearnRequest, unlearn


def mend_in_rounds(
    origin: ProbeFolder, place: MitigationFolder, request: MitigationRequest, picked: Picked, tested: list[Tested]
) -> MitigationTable:
    """The table of an iterative mending in `place`, of the probe in `origin`, which came to `tested`."""
    seed, samples, notes = request.seed, picked.samples, list(picked.notes)
    target, last = request.target.asked, request.unlearned.asked
    first = Scorer(place, request, samples)
    found, base = new_latent(tested, (), request), first.of("round 0", last.loaded)
    if differs := measured_otherwise(origin, request):
        found = {}
        notes.append(f"Round 0 has no D_LP new: the probe had another {' and another '.join(differs)} than this.")
    rows = [
        row_of("target", 0, first.of("target", target.loaded), kept=False, seed=seed),
        row_of("round 0", 0, base, kept=False, seed=seed, sets=found),
    ]
    models: list[KeptModel] = []
    for number in range(1, request.settings.rounds + 1):
        if number > 1:
            again = _of_round(place, request, samples, tested, number)
            if not any(s.set == LATENT_USED for s in again.samples):
                notes.append(f"The searches of round {number - 1} found nothing to add, so there is no round {number}.")
                break
            samples, notes = again.samples, [*notes, *(f"Round {number}: {note}" for note in again.notes)]
        mended = _unlearned_anew(place.round(number), request, samples)
        row, tested = _scored(origin, place, request, samples, (last, mended), number, base)
        rows.append(row)
        models.append(KeptModel(f"round {number}", f"rounds/{number}/{place.subject.name}", mended.id))
        last = mended
    sizes = {s.set: sum(t.set == s.set for t in picked.samples) for s in picked.samples}
    return MitigationTable(request.way, tuple(rows), sizes, tuple(models), tuple(notes))


def _of_round(
    place: MitigationFolder, request: MitigationRequest, samples: tuple[Sample, ...], tested: list[Tested], number: int
) -> Picked:
    """The prompts of a round: the adjacent ones and the forget set stay, the latent ones are the last probe's."""
    latent, folder = pick_latent(tested, request.settings, seed=request.seed), place.round(number)
    same = [s for s in samples if s.set not in (LATENT_USED, LATENT_HELD_OUT)]
    if folder.used.exists():
        found = read_samples(folder)
    else:
        request.on_stage(f"round {number}: the target's own answers to {len(latent.samples)} prompts")
        loaded, most = request.target.asked.loaded, request.settings.answer_tokens
        found = with_answers(loaded, (*same, *latent.samples), most)
        write_samples(folder, found)
    return Picked(found, (*latent.notes, *untaught(found)))


def _unlearned_anew(folder: MitigationFolder, request: MitigationRequest, samples: tuple[Sample, ...]) -> Asked:
    """The target made to forget once more, with the round's prompts among what it keeps."""
    again, target = request.again, request.target
    assert again is not None, "only an iterative mending unlearns anew"
    kept = retained(request.splits.splits.get("retain", ()), samples, request.settings.n_retain, request.seed)
    own, name = own_folder(target.settings.model), target.settings.model
    dtype = own_dtype(name) or target.settings.dtype
    asked = UnlearnRequest(
        target=target.settings.model_copy(update={"dtype": dtype}),
        target_digest=target.asked.id,
        start=read_spec(own.spec).model if own else name,
        method=again.method,
        method_settings=again.method_settings,
        forget=request.splits.forget,
        forget_items=request.forget_items,
        retain_items=(*taught_rows(samples, folder.used), *kept),
        idk=again.idk,
        training=again.training,
        seed=request.seed,
        trajectory=again.trajectory,
    )
    request.on_stage(f"unlearning anew by {again.method}")
    unlearn(SubjectFolder(folder.subject), asked, on_step=request.on_step)
    return asked_model(target.settings.model_copy(update={"model": str(folder.subject)}))


def _scored(
    origin: ProbeFolder,
    place: MitigationFolder,
    request: MitigationRequest,
    samples: tuple[Sample, ...],
    models: tuple[Asked, Asked],
    number: int,
    base: tuple[ScoredAnswer, ...],
) -> tuple[MitigationRow, list[Tested]]:
    """The row of a round and what the new probe of its model came to; `models` are the last round's, its own."""
    (last, mended), folder, seed = models, place.round(number), request.seed
    latent = tuple(s for s in samples if s.set == LATENT_USED)
    before = score_of(Scorer(folder, request, latent).of("before", last.loaded), seed=seed) if latent else None
    scored = Scorer(folder, request, samples).of(f"round {number}", mended.loaded)
    tested = probe_anew(origin, folder, request, mended)
    sets = new_latent(tested, samples, request) | ({LATENT_BEFORE: before} if before else {})
    return row_of(f"round {number}", number, scored, kept=True, seed=seed, sets=sets, base=base), tested
