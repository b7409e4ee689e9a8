"""How a subject's folder is filled: identity first, weights, and last the mark that it is whole."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.artifacts.records import SCHEMA, SubjectSpec, read_spec, read_versioned, write_spec
from vestige.core.errors import InputError
from vestige.core.files import locked, new_folder, write_json, write_text
from vestige.core.ids import changed_keys
from vestige.models.load import LoadedModel
from vestige.training.checkpoints import Checkpoints
from vestige.training.loop import Outcome

LOCK_SECONDS = 10.0
"""How long to wait for another process before saying that it is in the way."""


@dataclass(frozen=True)
class Made:
    """A finished subject: the digests of its weights and of how it is asked, steps trained, why training stopped."""

    weights: str
    prompts: str
    steps: int
    stopped: str


def read_done(folder: SubjectFolder) -> Made | None:
    """What is known of a finished subject; None while it is not finished."""
    if not folder.done.exists():
        return None
    stored = read_versioned(folder.done, "weights", "prompts", "steps", "stopped")
    return Made(stored["weights"], stored["prompts"], stored["steps"], stored["stopped"])


def same_subject(folder: SubjectFolder, spec: SubjectSpec) -> None:
    """Refuse a folder that belongs to another subject, naming what differs."""
    if not folder.spec.exists():
        return
    ours, theirs = asdict(spec), asdict(read_spec(folder.spec))
    if ours == theirs:
        return
    changed = changed_keys(ours, theirs)
    if "settings" in changed:
        changed.remove("settings")
        changed += [f"settings.{k}" for k in changed_keys(ours["settings"], theirs["settings"])]
    raise InputError(
        f"{folder.path} holds another subject (it differs in {', '.join(changed)}); choose another folder or "
        "start over with --fresh"
    )


def same_weights(loaded: LoadedModel, digest: str, what: str) -> None:
    """Refuse a model whose weights are not those that were spoken of."""
    if loaded.digest() != digest:
        raise InputError(
            f"the weights of {what}, {loaded.name}, are not those that its folder was finished with; restore them, or "
            "make the model again with --fresh"
        )


def make_subject(folder: SubjectFolder, spec: SubjectSpec, build: Callable[[], tuple[LoadedModel, Outcome]]) -> Made:
    """The finished subject of `spec`: as it stands in `folder`, or made by `build`, which resumes by itself."""
    with locked(folder.lock, patience_seconds=LOCK_SECONDS):
        same_subject(folder, spec)
        if done := read_done(folder):
            Checkpoints(folder.checkpoints).clear()
            return done
        watch = Stopwatch()
        write_spec(folder.spec, spec)
        loaded, outcome = build()
        save_model(folder.model, loaded, spec)
        made = Made(loaded.digest(), loaded.prompter.digest, outcome.steps, outcome.stopped)
        write_provenance(folder.provenance, watch, revision=loaded.revision, device=str(loaded.model.device))
        write_json(folder.done, {"schema": SCHEMA, **asdict(made), "loss": outcome.loss})
        Checkpoints(folder.checkpoints).clear()
        return made


def save_model(path: Path, loaded: LoadedModel, spec: SubjectSpec) -> None:
    """Write a Hugging Face folder with safetensors, tokeniser and model card, whole or not at all."""
    with new_folder(path) as partial:
        loaded.model.save_pretrained(partial)
        loaded.tokenizer.save_pretrained(partial)
        write_text(partial / "README.md", model_card(spec))


def model_card(spec: SubjectSpec) -> str:
    """What the model is, in the hub's form. Names and settings stand in a block of JSON, where no mark-up acts."""
    made = {**asdict(spec), "model": shown_model(spec.model), "forget": shown_model(spec.forget)}
    return (
        "---\nlibrary_name: transformers\ntags:\n- unlearning\n- vestige\n---\n\n# A model of a Vestige run\n\n"
        "`subject` says what it is in its run: the model before training (base), the one that knows (target), one that "
        "never saw the forget set (retrained), or one that was made to forget it (unlearned, by `method`). `data` is "
        "the digest of the training items, `parent` that of the weights that training began with.\n\n"
        f"```json\n{json.dumps(made, indent=2)}\n```\n\n"
        "Whether a model has forgotten is for an audit to say: a low score on the forget questions alone does not "
        "show it.\n"
    )


def shown_model(name: str) -> str:
    """A model's or file's name without the folders of the machine it lay on."""
    return Path(name).name if Path(name).is_absolute() else name
