"""Mending an unlearned model with the holes that a probe found in it, as a step in the folder of that probe.

One-shot: the unlearned model is tuned on prompts of the probe with the target's own answers. Iterative: the target is
unlearned anew with such prompts among what is to be kept, and probed anew, round after round. Probing Knowledge Holes
in Unlearned LLMs, 2511.00030, section 4.3. A mending that is done is not done again; a killed one goes on.
"""

from collections.abc import Sequence

from vestige.artifacts.holes import (
    MitigationTable,
    Sample,
    Tested,
    read_mitigation,
    read_samples,
    read_table,
    write_mitigation,
    write_samples,
)
from vestige.artifacts.layout import MitigationFolder, ProbeFolder
from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.artifacts.records import SCHEMA, read_rows
from vestige.core.errors import InputError
from vestige.core.files import locked, write_json
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.methods import build_method
from vestige.probes.mitigation import MitigationSettings, Picked, pick_adjacent, pick_latent, refuse_nothing
from vestige.probes.mitigation_scores import forget_samples
from vestige.steps.making import LOCK_SECONDS
from vestige.steps.mitigate_once import mend_once, rules
from vestige.steps.mitigate_request import MitigationRequest, taught_rows, untaught, with_answers
from vestige.steps.mitigate_rounds import mend_in_rounds
from vestige.steps.probe import candidates_in, forget_texts


def mitigate(folder: ProbeFolder, request: MitigationRequest) -> MitigationTable:
    """The table of one mending, in the folder of a finished probe; made, or gone on with, unless it is there."""
    tested = tested_in(folder)
    _refuse_anothers(folder, request)
    _refuse_unfit(request)
    identity = request.identity(tested)
    place = folder.mitigation(f"{request.way}-{content_id(identity)}")
    if place.table.exists():
        return read_mitigation(place)
    picked = picked_in(folder, request.forget_items, request.settings, tested, seed=request.seed)
    with locked(place.lock, patience_seconds=LOCK_SECONDS):
        watch = Stopwatch()
        write_json(place.asked, {"schema": SCHEMA, "identity": identity})
        samples = _with_answers(place, request, picked)
        picked = Picked(samples, (*picked.notes, *untaught(samples)))
        if request.again is None:
            table = mend_once(folder, place, request, picked)
        else:
            table = mend_in_rounds(folder, place, request, picked, tested)
        write_provenance(place.provenance, watch, **request.target.asked.loaded.provenance())
        write_mitigation(place, table, identity)
    return table


def mitigation_folder(folder: ProbeFolder, request: MitigationRequest) -> MitigationFolder:
    """Where the mending lies, or will."""
    return folder.mitigation(f"{request.way}-{content_id(request.identity(tested_in(folder)))}")


def tested_in(folder: ProbeFolder) -> list[Tested]:
    """What the probe in the folder came to; refused unless it is finished."""
    if not folder.summary.exists():
        raise InputError(f"{folder.path} holds no finished probe; run `vestige probe TARGET UNLEARNED` there first")
    return list(read_rows(folder.tested, Tested))


def picked_in(
    folder: ProbeFolder,
    forget: Sequence[Item],
    settings: MitigationSettings,
    tested: Sequence[Tested],
    *,
    seed: int,
) -> Picked:
    """Which prompts are used, held out and asked about; refused where there are none to use."""
    truths = {c.prompt: c.truth for c in candidates_in(folder)}
    adjacent, latent = pick_adjacent(tested, truths, settings, seed=seed), pick_latent(tested, settings, seed=seed)
    refuse_nothing(tested, [*adjacent.samples, *latent.samples], str(folder.path))
    samples = (*forget_samples(forget), *adjacent.samples, *latent.samples)
    return Picked(samples, (*adjacent.notes, *latent.notes))


def _with_answers(place: MitigationFolder, request: MitigationRequest, picked: Picked) -> tuple[Sample, ...]:
    if place.used.exists():
        return read_samples(place)
    request.on_stage("the target's own answers to the prompts that are used")
    loaded = request.target.asked.loaded
    samples = with_answers(loaded, picked.samples, request.settings.answer_tokens)
    taught_rows(samples, place.used)
    write_samples(place, samples)
    return samples


def _refuse_anothers(folder: ProbeFolder, request: MitigationRequest) -> None:
    """Refuse other models or another forget set than those that the probe was of."""
    _, theirs = read_table(folder)
    ours = {
        "target": request.target.asked.id,
        "unlearned": request.unlearned.asked.id,
        "forget": content_id(forget_texts(request.forget_items), length=32),
    }
    other = [name for name, value in ours.items() if theirs[name] != value]
    if other:
        words = {"target": "target", "unlearned": "unlearned model", "forget": "forget set"}
        raise InputError(
            f"the probe in {folder.path} was of another {' and another '.join(words[name] for name in other)}; name "
            "the folder of the probe of these, or what it was of"
        )


def _refuse_unfit(request: MitigationRequest) -> None:
    if (request.way == "iterative") != (request.again is not None):
        raise InputError("the way iterative needs a method by which the target is unlearned anew, and no other way one")
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
