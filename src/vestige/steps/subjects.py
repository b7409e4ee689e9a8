"""Subjects from anywhere: a folder that Vestige made, or any model, whose digests are then taken from its weights."""

from dataclasses import dataclass
from pathlib import Path

from vestige.artifacts.layout import SubjectFolder, own_folder
from vestige.artifacts.records import SubjectSpec, read_spec
from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.settings import closest
from vestige.models.load import LoadedModel, ModelSettings, load
from vestige.steps.evaluate import Subject, finished_subject
from vestige.steps.finetune import model_identity
from vestige.steps.making import Made, read_done, same_subject, same_weights

ROLES = ("base", "target", "retrained", "unlearned")
"""What a subject can be in a run."""


@dataclass(frozen=True)
class Origin:
    """The digest of a model's weights, and the model that its history began with."""

    weights: str
    model: str


def weights_of(settings: ModelSettings, *, read: bool = True) -> Origin:
    """Where a model comes from: from its folder if Vestige made it, else by loading it once.

    With `read` False the weights of a model from elsewhere stay unread, and have no digest.
    """
    folder = own_folder(settings.model)
    if folder is None:
        return Origin(load(settings).digest() if read else "", settings.model)
    made = read_done(folder)
    if made is None:
        raise InputError(f"{folder.path} holds no finished model; run the command that was making it again")
    return Origin(made.weights, read_spec(folder.spec).model)


def own_dtype(model: str) -> str | None:
    """The number format that Vestige made the model in; None for a model from elsewhere."""
    folder = own_folder(model)
    return None if folder is None else str(read_spec(folder.spec).settings.get("dtype", "float32"))


def load_checked(settings: ModelSettings, digest: str, what: str) -> LoadedModel:
    """The model in the number format that is asked for; refused unless its weights have the digest.

    The digest of what Vestige made is that of the format it was made in. So for another the files are read twice: as
    they were made, on the CPU, and as asked for.
    """
    made_in = own_dtype(settings.model) or settings.dtype
    if made_in == settings.dtype:
        loaded = load(settings)
        same_weights(loaded, digest, what)
        return loaded
    same_weights(load(settings.model_copy(update={"dtype": made_in, "device": "cpu"})), digest, what)
    return load(settings)


def refuse_template(settings: ModelSettings, folder: SubjectFolder) -> None:
    """What Vestige made is asked in the chat template that it was trained with."""
    if settings.chat_template:
        raise InputError(f"{folder.path} was made with a chat template of its own; leave --chat-template out")


def any_subject(
    settings: ModelSettings,
    output_dir: str | None,
    *,
    role: str = "base",
    name: str = "",
    dtype: str | None = None,
) -> Subject:
    """The subject to evaluate; evidence about a model from elsewhere needs a folder of its own.

    `role` says what a model from elsewhere is in the run; one that Vestige made knows its own,
    and is asked in the number format it was made in: another `dtype` is refused.
    """
    if role not in ROLES:
        raise InputError(f"no role {role!r}; {closest(role, list(ROLES))}")
    folder = own_folder(settings.model)
    if folder is not None:
        found = finished_subject(folder, device=settings.device, trust_remote_code=settings.trust_remote_code)
        own = own_dtype(settings.model)
        if dtype is not None and dtype != own:
            raise InputError(f"{folder.path} was made in {own} and is asked in it, not in {dtype}; leave --dtype out")
        refuse_template(settings, folder)
        return found if output_dir is None else _elsewhere(found, Path(output_dir))
    if output_dir is None:
        raise InputError(f"{settings.model} was not made by Vestige; say with --output-dir where the evidence goes")
    loaded = load(settings)
    identity = model_identity(settings)
    called = name or Path(settings.model).name
    spec = SubjectSpec(
        subject=role,
        name=called,
        model=settings.model,
        method=called if role == "unlearned" else "",
        forget="",
        seed=0,
        settings_id=content_id(identity),
        settings=identity,
        data="",
        parent="",
        version=1,
    )
    made = Made(loaded.digest(), loaded.prompter.digest, 0, "made elsewhere")
    held = [loaded]
    # The model that is there is given once; whoever asks again gets one of its own, since an attack changes it.
    return _elsewhere(
        Subject(SubjectFolder(Path(output_dir)), spec, made, lambda: held.pop() if held else load(settings)),
        Path(output_dir),
    )


def _elsewhere(subject: Subject, output_dir: Path) -> Subject:
    folder = SubjectFolder(output_dir)
    # Before anything is asked of it; what the folder is of is written with the first evidence (`announce`).
    same_subject(folder, subject.spec)
    return Subject(folder, subject.spec, subject.made, subject.load, elsewhere=True)
