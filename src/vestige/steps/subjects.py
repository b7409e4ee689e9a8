"""Subjects from anywhere: a folder that Vestige made, or any model, whose digest is then taken."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vestige.artifacts.layout import OtherModelError, SubjectFolder, check_files, digests_of, own_folder
from vestige.artifacts.records import ROLES, SubjectSpec, read_spec
from vestige.core.errors import InputError
from vestige.core.text import closest
from vestige.models.address import address, is_address, shown_address
from vestige.models.folders import tokenizer_digest
from vestige.models.load import LoadedModel, ModelSettings, asked_through, load, outline, places_of
from vestige.steps.evaluate import Subject, finished_subject, loaded_subject
from vestige.steps.finetune import model_identity
from vestige.steps.making import Made, read_done, same_model, same_subject, stored_done


@dataclass(frozen=True)
class Origin:
    """The digest of a model, and the model that its history began with."""

    digest: str
    model: str


def origin_of(settings: ModelSettings) -> Origin:
    """Return a model's origin: from its folder if Vestige made it, otherwise by loading it once."""
    folder = own_folder(settings.model)
    if folder is None:
        return Origin(load(settings).digest().id, settings.model)
    saved = read_done(folder)
    if saved is None:
        raise InputError(f"{folder.path} holds no finished model. Run the command that was making it again")
    return Origin(saved.digest.id, read_spec(folder.spec).model)


def own_dtype(model: str) -> str | None:
    """The number format that Vestige made the model in. None for a model from elsewhere."""
    folder = own_folder(model)
    if folder is None:
        return None
    return str(read_spec(folder.spec).settings.get("dtype", "float32"))


def load_checked(settings: ModelSettings, digest: str, role: str) -> LoadedModel:
    """Return the model in the requested number format. Refused unless it has the digest.

    A Vestige model's digest belongs to its original format. So for another the files are read twice: as they were made,
    on the CPU, and as asked for.
    """
    folder, made_in = own_folder(settings.model), own_dtype(settings.model) or settings.dtype
    saved = None if folder is None else read_done(folder)
    # The folder contains the parts of the digest, so the error can name the differences.
    expected = saved.digest if saved is not None and saved.digest.id == digest else digest
    if made_in == settings.dtype:
        loaded = load(settings)
        same_model(loaded, expected, role)
        return loaded
    same_model(load(settings.model_copy(update={"dtype": made_in, "device": "cpu"})), expected, role)
    return load(settings)


def _own_subject(settings: ModelSettings, dtype: str | None, *, verify: bool = False) -> Subject | None:
    """Return a Vestige model, in its original number format and template. None of a model from elsewhere."""
    folder = own_folder(settings.model)
    if folder is None:
        return None
    trusted, stored_dtype = settings.trust_remote_code, own_dtype(settings.model)
    subject = finished_subject(folder, device=settings.device, trust_remote_code=trusted, verify=verify)
    if dtype is not None and dtype != stored_dtype:
        raise InputError(
            f"{folder.path} was made in {stored_dtype} and keeps it, so --dtype {dtype} does not apply. Leave it out"
        )
    if settings.chat_template:
        # The model uses the template that it was trained with.
        raise InputError(f"{folder.path} was made with a chat template of its own. Leave --chat-template out")
    return subject


def any_subject(
    settings: ModelSettings,
    output_dir: str | None,
    *,
    role: str = "base",
    name: str = "",
    dtype: str | None = None,
    verify: bool = False,
    through: ModelSettings | None = None,
) -> Subject:
    """Return the subject to evaluate. Evidence about an external model needs a separate folder.

    `role` is an external model's role in the run. A Vestige model has its own role and number format: another `dtype`
    is rejected. `verify` reads all files of the model, and lets evaluations query a part of the stored answers again.
    `through` names a model whose tokeniser and chat template replace those in the subject's own folder.
    """
    if role not in ROLES:
        raise InputError(f"there is no role {role!r}. {closest(role, list(ROLES))}")
    subject = _own_subject(settings, dtype, verify=verify)
    if subject is not None:
        if through is not None:
            subject = _own_through(subject, through)
        if output_dir is None:
            return subject
        folder = SubjectFolder(Path(output_dir))
        same_subject(folder, subject.spec)
        # The paths are absolute, since the evidence is elsewhere.
        files = {str((subject.folder.path / name).resolve()): digest for name, digest in subject.made.files.items()}
        return replace(subject, folder=folder, made=replace(subject.made, files=files), elsewhere=True)
    if output_dir is None:
        raise InputError(f"{settings.model} was not made by Vestige. Name the folder of the evidence with --output-dir")
    if is_address(settings.model) and dtype is not None:
        raise InputError(f"{shown_address(settings.model)} answers in its server's number format. Leave --dtype out")
    spec = _outside_spec(settings, role, name, through)
    evidence = SubjectFolder(Path(output_dir))
    # The check comes before any question. The folder's identity is written with the first evidence (`announce`).
    same_subject(evidence, spec)
    template = Path(settings.chat_template).expanduser()
    places = places_of(settings.model, settings.base, settings.tokenizer)
    if template.is_file():
        places.append(template)
    loaded = list[LoadedModel]()

    def read() -> LoadedModel:
        if through is None:
            return load(settings)
        return asked_through(load(settings), through)

    saved = _known(evidence, places, verify=verify)
    if saved is None:
        # This machine does not have its digest yet, so the model is loaded to compute it.
        loaded.append(read())
        saved = Made(loaded[0].digest(), 0, "made elsewhere", files=digests_of(evidence, places))

    # The loaded model is returned once. Later calls load a new one, since an attack changes it.
    def load_it() -> LoadedModel:
        if loaded:
            return loaded.pop()
        return read()

    return Subject(evidence, spec, saved, load_it, elsewhere=True, verify=verify)


def _outside_spec(settings: ModelSettings, role: str, name: str, through: ModelSettings | None) -> SubjectSpec:
    """The identity of a model that Vestige did not make: a folder, a hub id or an address."""
    if is_address(settings.model):
        to = address(settings.model)
        identity = {**to.identity_of_asking, "dtype": "the server's", "chat_template": settings.chat_template}
        label, source = name or to.model, to.shown
    else:
        identity = model_identity(settings)
        if through is not None:
            identity["asked_through"] = outline(through, finite=False).prompter.digest
        label, source = name or Path(settings.model).name, settings.model
    return SubjectSpec.of(role, label, source, identity, method=label if role == "unlearned" else "")


def _own_through(subject: Subject, through: ModelSettings) -> Subject:
    """Return a subject made by Vestige with the tokeniser and chat template of another model."""
    reader = outline(through, finite=False)
    tokenizer, template = tokenizer_digest(reader.tokenizer), reader.prompter.template_digest
    spec = replace(subject.spec, settings={**subject.spec.settings, "asked_through": reader.prompter.digest})
    made = replace(subject.made, digest=replace(subject.made.digest, tokenizer=tokenizer, template=template))
    return replace(subject, spec=spec, made=made, load=lambda: asked_through(subject.load(), through))


def _known(evidence: SubjectFolder, places: Sequence[Path], *, verify: bool) -> Made | None:
    """Return the folder's record of the model in these places, if it is unchanged since."""
    saved = stored_done(evidence)
    if saved is None or list(saved.files) != [str(path.resolve()) for path in places]:
        return None
    try:
        digests = check_files(evidence, saved.files, verify=verify)
    except OtherModelError:
        return None
    if digests:
        return replace(saved, seen=True)
    return None


@dataclass(frozen=True)
class Asked:
    """A participating model. `id` is its digest, and `settings` load another one with the same weights."""

    loaded: LoadedModel
    id: str
    settings: ModelSettings

    @property
    def name(self) -> str:
        """Return its name."""
        return self.loaded.name


def asked_model(settings: ModelSettings, *, dtype: str | None = None) -> Asked:
    """A model from anywhere. One that Vestige made has the weights, and the format, that it was finished with.

    `dtype` is the requested number format, if any: a Vestige model accepts only its own.
    """
    subject = _own_subject(settings, dtype)
    if subject is None:
        loaded = load(settings)
        return Asked(loaded, loaded.digest().id, settings)
    return Asked(loaded_subject(subject), subject.made.digest.id, settings)
