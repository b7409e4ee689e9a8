"""How a subject's folder is filled: identity first, weights, and last the mark that it is whole."""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from vestige.artifacts.layout import Files, SubjectFolder, check_files, digests_of, note_seen
from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.artifacts.records import SubjectSpec, read_finished, read_spec, write_finished, write_spec
from vestige.core.errors import InputError, NotFinite
from vestige.core.files import locked, new_folder, write_text
from vestige.core.store import OR_FRESH, refuse_another
from vestige.core.text import Fields, Record
from vestige.models.folders import ModelDigest, quietly
from vestige.models.forward import on_threads
from vestige.models.load import LoadedModel, places_of
from vestige.models.places import is_adapter
from vestige.training.adapters import Adapter, save_adapter
from vestige.training.checkpoints import Checkpoints
from vestige.training.loop import TrainingEnd
from vestige.training.parallel import ALONE, World
from vestige.training.stopping import ChosenStep


@dataclass(frozen=True)
class Made:
    """A finished subject: its digest, steps trained, why training stopped.

    `chosen` is the stored checkpoint, if there was a trajectory to choose from. `files` are the digests of the files
    that the model is read from. `seen` states that they are as they were when this machine last took the digest.
    """

    digest: ModelDigest
    steps: int
    stopped: str
    chosen: ChosenStep | None = None
    files: Files = field(default_factory=dict, compare=False)
    seen: bool = field(default=True, compare=False)


Form = Literal["merged", "adapter"]
"""The form of a saved model: a complete model, or a LoRA adapter for its base."""


def pick_form(name: str) -> Form:
    """The form of that name."""
    if name not in ("merged", "adapter"):
        raise InputError(f"save must be merged or adapter, and is {name!r}")
    if name == "adapter":
        return "adapter"
    return "merged"


@dataclass
class Saving:
    """The settings for writing a finished model: `facts` go into its card, under their names.

    For a model stored as an adapter, the builder puts it here before the merge.
    """

    facts: Record = field(default_factory=dict)
    form: Form = "merged"
    adapter: Adapter | None = None


def read_done(folder: SubjectFolder, *, verify: bool = False) -> Made | None:
    """Return the record of a finished model, or None if it is unfinished.

    Raise InputError if the model's files changed since: by size, times and inode, and by digest if these differ or with
    `verify`.
    """
    saved = stored_done(folder)
    if saved is None:
        return None
    return replace(saved, seen=check_files(folder, saved.files, verify=verify))


def stored_done(folder: SubjectFolder) -> Made | None:
    """Return a folder's record of its finished subject, whatever the model's files are now."""
    if not folder.done.exists():
        return None
    stored = read_finished(folder.done, "model", "steps", "stopped", "files")
    chosen = ChosenStep(**stored["chosen"]) if stored.get("chosen") else None
    try:
        digest = ModelDigest(**stored["model"])
    except TypeError as error:
        raise InputError(f"{folder.done} does not say which model it is of. Make the model again") from error
    return Made(digest, stored["steps"], stored["stopped"], chosen, stored["files"], seen=False)


def write_done(folder: SubjectFolder, saved: Made, **facts: Any) -> None:
    """Say that the subject is finished, and which model it is."""
    stored = {name: value for name, value in asdict(saved).items() if name != "seen"}
    stored = {"digest": saved.digest.id, "model": stored.pop("digest"), **stored}
    write_finished(folder.done, {**stored, **facts})
    if saved.seen:
        note_seen(folder, saved.files)


def same_subject(folder: SubjectFolder, spec: SubjectSpec) -> None:
    """Reject a folder that belongs to another subject, and list the differences."""
    if not folder.spec.exists():
        return
    refuse_another(folder.path, "subject", _one_by_one(spec), _one_by_one(read_spec(folder.spec)), out=OR_FRESH)


def _one_by_one(spec: SubjectSpec) -> Fields:
    """Return the fields of a spec, with each setting under its own name for error messages."""
    values = asdict(spec)
    settings = values.pop("settings")
    return values | {f"settings.{name}": value for name, value in settings.items()}


def same_model(loaded: LoadedModel, digest: ModelDigest | str, role: str, weights: str = "") -> None:
    """Reject a model that differs from the expected one, and list the differences.

    `weights` is the digest of its weights where their files are as they were when this machine took it (`seen.json`).
    """
    loaded.digest(weights).refuse_other(digest, f"{role}, {loaded.name},", loaded.advice)


@contextlib.contextmanager
def claimed(folder: SubjectFolder, spec: SubjectSpec) -> Iterator[None]:
    """The folder belongs to the subject from here on, unless it is refused before anything was trained.

    Then new files are removed, so that the rejected settings do not block the folder. The caller must hold its lock.
    """
    before = {p.name for p in folder.path.iterdir()}
    write_spec(folder.spec, spec)
    try:
        yield
    except NotFinite:
        raise
    except InputError:
        log = folder.training_log.relative_to(folder.path)
        # A line in the log means that training has begun, and the folder belongs to the subject.
        if not any(folder.path.rglob(str(log))) and folder.spec.name not in before:
            for path in [p for p in folder.path.iterdir() if p.name not in before]:
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            if before == {folder.lock.name}:
                folder.lock.unlink()
        raise


def make_subject(
    folder: SubjectFolder,
    spec: SubjectSpec,
    build: Callable[[], tuple[LoadedModel, TrainingEnd]],
    world: World = ALONE,
    saving: Saving | None = None,
) -> Made:
    """The finished subject of `spec`: unchanged in `folder`, or made by `build`, which resumes by itself.

    All processes of `world` build together. The leading one alone looks at the folder and writes there. Rejects a
    folder with the model in another form than the one in `saving`.
    """
    # The number of threads also affects the computations before and after training.
    threads = on_threads(int(spec.settings.get("threads", 1)))
    if not world.leads:
        if not world.agreed(False):
            with threads:
                build()
            world.wait()
        return _seen_by_all(folder, read_done(folder), world)
    saving = saving or Saving()
    with locked(folder.lock):
        same_subject(folder, spec)
        saved = read_done(folder)
        # The other processes wait for the decision whether to build anything.
        if not world.agreed(saved is not None) or saved is None:
            watch = Stopwatch()
            with claimed(folder, spec), threads:
                loaded, outcome = build()
            save_model(folder.model, loaded, spec, saving)
            files = digests_of(folder, places_of(str(folder.model)))
            saved = Made(loaded.digest(), outcome.steps, outcome.stopped, outcome.chosen, files)
            write_provenance(folder.provenance, watch, revision=loaded.revision, **loaded.provenance())
            # The mark of a finished model comes last. Checkpoints are deleted only after it, since they are needed
            # until then.
            write_done(folder, saved, loss=outcome.loss)
            world.wait()
        Checkpoints(folder.checkpoints).clear()
        _seen_by_all(folder, saved, world)
    if is_adapter(folder.model) != (saving.form == "adapter"):
        raise InputError(
            f"{folder.path} contains the model in another form than {saving.form!r}. Choose another folder or start "
            "over with --fresh"
        )
    return saved


def _seen_by_all(folder: SubjectFolder, saved: Made | None, world: World) -> Made:
    """Return the result, if every process sees it.

    Otherwise all processes raise the error, so that the first one reports it.
    """
    if world.summed({"seen": float(saved is not None)})["seen"] < world.size or saved is None:
        raise InputError(
            f"{folder.path} is not the same folder for all processes. Take one on a file system they share"
        )
    return saved


def save_model(path: Path, loaded: LoadedModel, spec: SubjectSpec, saving: Saving) -> None:
    """Write a Hugging Face folder with safetensors, tokeniser and model card, whole or not at all.

    An adapter is written in peft's form. It names the model that it belongs to.
    """
    with new_folder(path) as partial:
        if saving.adapter is None:
            with quietly():
                loaded.model.save_pretrained(partial)
        else:
            save_adapter(partial, saving.adapter)
        loaded.tokenizer.save_pretrained(partial)
        write_text(partial / "README.md", model_card(spec, saving))


def model_card(spec: SubjectSpec, saving: Saving) -> str:
    """Return the model's card in the hub's format. Names and settings are in a block of JSON, where no mark-up acts."""
    sets = [{"name": shown_model(s.name), "n": len(s.items), "edges": s.edges} for s in spec.forgotten]
    facts = {**asdict(spec), "model": shown_model(spec.model), "forget": shown_model(spec.forget), "forgotten": sets}
    facts |= saving.facts
    library = "peft"
    if saving.adapter is None:
        library = "transformers"
    return (
        f"---\nlibrary_name: {library}\ntags:\n- unlearning\n- vestige\n---\n\n# A model of a Vestige run\n\n"
        "`subject` says what it is in its run: the model before training (base), the one that knows (target), one that "
        "never saw the forget set (retrained), or one that was made to forget it (unlearned, by `method`). `data` is "
        "the digest of the training items, `parent` that of the model that training began with.\n\n"
        f"```json\n{json.dumps(facts, indent=2)}\n```\n\n"
        "## What an audit found\n\nNothing yet: when this card was written the model had not been audited. Whether it "
        "has forgotten is for an audit to say: a low score on the forget questions alone does not show it.\n"
    )


def shown_model(name: str) -> str:
    """Return a model's or file's name without the local folders."""
    if Path(name).is_absolute():
        return Path(name).name
    return name
