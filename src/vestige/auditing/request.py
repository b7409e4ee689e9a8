"""The request of an audit: models with roles, items, and evaluations.

All models get the same questions and attacks, so a test that a served model cannot take is dropped for all
(`within_reach`) and listed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from vestige.artifacts.layout import own_folder
from vestige.artifacts.records import SubjectSpec, read_spec
from vestige.auditing.settings import AuditSettings, Material, MemberScore
from vestige.core.errors import InputError
from vestige.core.items import QUESTION_FORMS, ItemTuple
from vestige.core.seeds import generator
from vestige.core.text import Fields, Names, Sentences, folded, has_thought, listed, one_line
from vestige.data.corpus import NamedSplits, everything
from vestige.data.facts import cloze_of
from vestige.data.loaders import Pack, Published
from vestige.data.mcq import Unasked
from vestige.evals import EVALS, find_eval
from vestige.evals.base import Evaluation, view_of
from vestige.judges.spec import LeakJudgeSettings
from vestige.models import Reading
from vestige.models.address import address, is_address, shown_address
from vestige.models.places import look_there

if TYPE_CHECKING:
    from vestige.attacks.planning import Attack
    from vestige.evals.freeform import FreeformSettings
    from vestige.models.load import LoadedModel, ModelSettings


Role = Literal["target", "unlearned", "retrained", "suppressed"]
ROLES: tuple[Role, ...] = ("target", "retrained", "unlearned", "suppressed")


@dataclass(frozen=True)
class AuditedModel:
    """One model of the audit: its name and its place (a folder of Vestige, or any model).

    `model` is "" for the positive control that the audit makes itself. `through_target` uses the target's tokeniser and
    chat template (`auditing.origins`).
    """

    name: str
    role: Role
    model: str
    through_target: bool = False


@dataclass(frozen=True)
class AuditRequest:
    """The models and the forget set of an audit.

    `splits` contains the questions (`limited` reduces them) and the items for attacks. `read` sets how models are
    loaded: its template, base and tokeniser apply to external models only. `verify` reads all stored files again
    (`any_subject`). `untested` has sentences on omitted tests, and `settings_before` the settings before any were
    omitted. `published` are figures that the target must reproduce before the audit starts. With `store`, answers of
    target and controls are taken from earlier audits and stored for later ones. `questions` and `attacks` are the same
    for every model (`run.plan_audit`).
    """

    models: tuple[AuditedModel, ...]
    splits: NamedSplits
    settings: AuditSettings
    seed: int = 0
    read: Reading = field(default_factory=Reading)
    verify: bool = False
    untested: Sentences = ()
    settings_before: AuditSettings | None = None
    published: tuple[Pack, Published] | None = None
    store: bool = False
    questions: "tuple[Question, ...]" = ()
    attacks: "tuple[Attack, ...]" = ()

    def names(self, role: Role) -> Names:
        """Return the names of the models in one role, in their order."""
        return tuple(m.name for m in self.models if m.role == role)

    @property
    def in_order(self) -> "list[AuditedModel]":
        """Return all models, role by role."""
        return sorted(self.models, key=lambda model: ROLES.index(model.role))

    @property
    def target(self) -> AuditedModel:
        """Return the model before unlearning."""
        (target,) = (m for m in self.models if m.role == "target")
        return target

    @property
    def limited(self) -> NamedSplits:
        """Return the sampled items. Questions and attacks share them, so that they have the same options."""
        return limited(self.splits, self.settings.kept_items, seed=self.seed)


class Question(NamedTuple):
    """One evaluation of an audit: its settings, and the ids of the items it asks (None: all)."""

    eval: str
    settings: Evaluation
    only: frozenset[str] | None
    n_items: int


def named_models(
    target: str, unlearned: Sequence[str], retrained: Sequence[str], suppressed: str | None = None
) -> tuple[AuditedModel, ...]:
    """Return the models with unique names: a number is added if several would have the same.

    An unlearned or external model has its folder's name, as does a copy of a target in another role. Another Vestige
    model has the name from its creation.
    """
    roles: list[tuple[Role, str]] = [("target", target), *(("retrained", m) for m in retrained)]
    roles += [("unlearned", m) for m in unlearned] + ([("suppressed", suppressed)] if suppressed else [])
    models: list[AuditedModel] = []
    for role, model in roles:
        models.append(AuditedModel(free_name(_base_name(model, role), models), role, model))
    return tuple(models)


def free_name(name: str, models: Iterable[AuditedModel]) -> str:
    """The name, with a number if one of the models has it."""
    taken = {folded(model.name) for model in models}
    candidate, number = name, 2
    while folded(candidate) in taken:
        candidate, number = f"{name} {number}", number + 1
    return candidate


def numbered(models: Sequence[AuditedModel]) -> Sentences:
    """List in sentences the models behind shortened names, if several would share one."""
    base_names = {m.name: _base_name(m.model, m.role) for m in models}
    shared = {name for name, base_name in base_names.items() if name != base_name}
    # The first model of a name gets no number, so the list mentions it as well.
    first = {base_names[name] for name in shared}
    return tuple(f"{m.name} is {m.model}" for m in models if m.name in shared | first)


def _base_name(model: str, role: Role) -> str:
    folder = own_folder(model)
    if folder is None:
        if is_address(model):
            return address(model).model
        return Path(model).expanduser().name or model
    spec, given = read_spec(folder.spec), folder.path.name
    name = spec.method or spec.name
    # A submitted model keeps the name that its user gave it. Vestige's own folders are npo-0 or rate-1e-05.
    if role == "unlearned" and not given.startswith((name, "rate-")):
        return given
    # A target in another role was changed by somebody, and only its folder distinguishes the two.
    if spec.subject == "target" and role != "target":
        return given
    if name == f"retrained {spec.forget}":
        return f"retrained without {spec.forget}, seed {spec.seed}"
    return name


def check_request(request: AuditRequest, *, whole: bool = True) -> None:
    """Reject a request that cannot lead to a verdict. Unless `whole`, the models' files are not read."""
    if len(request.names("target")) != 1:
        raise InputError(f"an audit has one target, not {len(request.names('target'))}. Name one")
    if len(request.names("suppressed")) > 1:
        raise InputError("an audit has one positive control (suppressed), not several. Name one")
    if not request.names("unlearned"):
        raise InputError("the audit has no unlearned model. Name one with --unlearned")
    by_place: dict[str, AuditedModel] = {}
    for model in request.models:
        folder = own_folder(model.model)
        path = Path(model.model).expanduser() if folder is None else folder.path
        # Two spellings of one folder, or of one address, are one model.
        earlier = by_place.setdefault(str(path.resolve()) if path.exists() else shown_address(model.model), model)
        if earlier is not model:
            raise InputError(
                f"the model {one_line(model.model, width=120)} appears twice, as {earlier.role} and as "
                f"{model.role}. An audit compares different models. Name it once"
            )
        if [folded(m.name) for m in request.models].count(folded(model.name)) > 1:
            raise InputError(f"two models have the name {one_line(model.name, width=60)!r}. Give each its own name")
    splits = request.splits.splits
    forget_name = f"the forget set {one_line(request.splits.forget, width=60)!r}"
    if not splits.get("forget"):
        raise InputError(f"{forget_name} has no items. Choose a forget set with items")
    both = {i.id for i in splits["forget"]} & {i.id for i in splits.get("retain", ())}
    if both:
        raise InputError(
            f"{len(both)} items of {forget_name} are in the retain set too. Give a retain set without them"
        )
    if not splits.get("retain"):
        raise InputError("there is no retain set to measure lost knowledge. Name it with --data or --retain")
    if not request.settings.evals:
        raise InputError("evals is empty. Name at least one, such as qa")
    # All models are checked before an hour is spent on one: each exists, is complete and has readable weights.
    for model in request.models:
        folder = own_folder(model.model)
        if folder is not None and not folder.done.is_file():
            raise InputError(
                f"{one_line(str(folder.path), width=200)} holds no finished model. Run the command that was making it "
                "again"
            )
        if not whole:
            look_there(model.model)
            continue
        from vestige.models.load import look_for

        look_for(model_settings(request, model))
    forget_ids = [i.id for i in splits["forget"]]
    for model in request.models:
        if folder := own_folder(model.model):
            _same_forget_set(model, read_spec(folder.spec), forget_ids, forget_name)


def _same_forget_set(model: AuditedModel, spec: SubjectSpec, forget_ids: Sequence[str], forget_name: str) -> None:
    """Reject a model of Vestige that left out or forgot other items than the audited ones."""
    # A target must know all forget items, whatever else its training left out, and other models must know none.
    n, strange, is_target = len(forget_ids), spec.not_forgotten(forget_ids), model.role == "target"
    if not spec.forgotten or strange == (n if is_target else 0):
        return
    names = one_line(" and ".join(forget_set.name for forget_set in spec.forgotten), width=120)
    raise InputError(
        f"{one_line(model.model, width=120)} is the target and was made without {names}, and "
        f"{n - strange} of these questions are in {forget_name}. Give the model that knows the forget set"
        if is_target
        else f"{one_line(model.model, width=120)} was made without {names}, but not without {strange} of the {n} "
        f"questions of {forget_name}. Audit its own forget set, or give a model that forgot this one"
        + (". Or name the same columns as when it was made (--edge-key)" if strange == n else "")
    )


def model_settings(request: AuditRequest, model: AuditedModel) -> "ModelSettings":
    """Return how a model is loaded. The chat template in the request applies to external models."""
    from vestige.models.load import settings_of

    read = request.read
    if own_folder(model.model) is not None:
        # Models made by Vestige have their own template, base and tokeniser.
        read = replace(read, chat_template="", base="", tokenizer="")
    return settings_of(model.model, read)


def limited(splits: NamedSplits, most: int, *, seed: int) -> NamedSplits:
    """Return the splits without duplicates, all but the forget set limited to `most` items drawn by `seed`."""
    limits: dict[str, ItemTuple] = {}
    for name, split in splits.splits.items():
        items = tuple({i.id: i for i in split}.values())
        if name == "forget" or len(items) <= most:
            limits[name] = items
            continue
        # The sample depends on the seed alone, so all evaluations and attacks of an audit have the same items.
        order = generator(seed, "asked", name).permutation(len(items))[:most]
        limits[name] = tuple(items[n] for n in sorted(order.tolist()))
    return replace(splits, splits=limits)


def not_asked_for(settings: AuditSettings) -> Sentences:
    """List in a sentence the available evaluations and attacks that the settings leave out. Empty if there are none."""
    evaluations = [name for name in EVALS if name not in settings.evals]
    forms = [form for form in QUESTION_FORMS if "freeform" in settings.evals and form not in settings.forms]
    # One name covers all languages, of which there are many.
    named_forms = [form for form in forms if not form.startswith("in_")]
    if named_forms != forms:
        named_forms.append("other languages")
    scores: list[str] = []
    if "memory" in settings.evals:
        scores = [name for name in get_args(MemberScore) if name not in settings.membership]
    groups = {
        "the evaluations {}": evaluations,
        "the forms {}": named_forms,
        "relearning on items of {}": [name for name in get_args(Material) if name not in settings.relearn],
        "weights of {} bits": [str(bits) for bits in (8, 4) if bits not in settings.quantize],
        "the membership scores {}": scores,
    }
    # Each kind has its own sentence, so that no list is cut off.
    out = [words.format(", ".join(names)) for words, names in groups.items() if names]
    if "nf4" not in settings.quantize:
        out.append("weights in NF4")
    out += [words for name, words in _OFF.items() if not getattr(settings, name)]
    if out:
        return (f"not asked for: {'; '.join(out)}",)
    return ()


_OFF = {
    "ablate": "directional ablation",
    "in_context": "facts before the question",
    "gcg": "a searched suffix",
    "prefix": "a searched prefix",
}
"""The texts for attacks, by their setting."""


class AuditQuestions(NamedTuple):
    """The evaluations of every model, and sentences on unsupported evaluations."""

    evaluations: tuple[Question, ...]
    left_out: Sentences


def questions_of(request: AuditRequest) -> AuditQuestions:
    """Return the evaluations that these data allow. No model is loaded, so missing options or examples fail early."""
    splits = request.limited
    questions: list[Question] = []
    left_out: list[str] = []
    for name in dict.fromkeys(request.settings.evals):
        settings, why = _settings(name, request, splits)
        left_out += why
        if settings is not None:
            only = _only(settings, request, splits)
            n = len(everything([splits])) if only is None else len(only)
            questions.append(Question(name, settings, only, n))
    if not questions:
        raise InputError(f"none of the evaluations can be made of this data: {'. '.join(left_out)}")
    return AuditQuestions(tuple(questions), tuple(left_out))


def _only(settings: Evaluation, request: AuditRequest, splits: NamedSplits) -> frozenset[str] | None:
    """Return the items of an evaluation by its own selection. None for all."""
    scope = settings.audit.items
    if scope == "all":
        return None
    if scope == "asked":
        return frozenset(_questions_by_item(settings, splits))
    if scope == "some":
        splits = limited(splits, request.settings.memory_items, seed=request.seed)
        return frozenset(i.id for i in everything([splits]))
    return frozenset(i.id for i in splits.splits["forget"])


def _questions_by_item(settings: Evaluation, splits: NamedSplits) -> Mapping[str, object]:
    """Return an evaluation's questions by item."""
    return settings.build_questions(everything([splits]), (view_of(splits),))


def _settings(name: str, request: AuditRequest, splits: NamedSplits) -> tuple[Evaluation | None, list[str]]:
    """Return the settings of one evaluation for this data. They are None, with the reason, if no forget item fits."""
    from vestige.evals.freeform import FreeformSettings

    kind, audit = find_eval(name), request.settings
    offered = {name: getattr(audit, name) for name in (*_PASSED_ON, *LeakJudgeSettings.model_fields)}
    offered |= {"too_few": "leave_out", "items": audit.acr_items, "seed": request.seed}
    values = {k: v for k, v in offered.items() if k in kind.model_fields}
    settings = kind.build(values, where=f"settings of the evaluation {name}")
    why: list[str] = []
    if isinstance(settings, FreeformSettings):
        settings, why = _forms(settings, splits)
        if not settings.forms:
            return None, why
    # The default number of options is lowered if answers are few. A requested number is not.
    if "options" in values and "options" in audit.model_fields_set:
        _enough_options(settings, audit.options, splits)
    askable, reasons = _askable(settings, splits)
    if not askable:
        why.append(f"{name} was not asked, since no forget item can be{f': an item {reasons[0]}' if reasons else ''}")
    return settings if askable else None, why


_PASSED_ON = ("max_new_tokens", "forms", "gradient_norm", "options")
"""Settings of an audit that evaluations have under the same name."""


def _enough_options(settings: Evaluation, options: int, splits: NamedSplits) -> None:
    """Reject a requested number of options that excludes most of the forget items which fewer options would allow."""

    def count(n: int) -> int:
        return _askable(settings.model_copy(update={"options": n}), splits)[0]

    can, most = count(options), count(2)
    if 2 * can >= most:
        return
    # Two options are always possible, so such a number exists.
    enough = next(n for n in range(options - 1, 1, -1) if count(n) == most)
    raise InputError(
        f"options = {options}: of the {most} forget items that {settings.name} can ask, {can} have that many answers "
        f"to offer. Set options to {enough} or fewer"
    )


def _forms(settings: "FreeformSettings", splits: NamedSplits) -> tuple["FreeformSettings", list[str]]:
    """Return `freeform` without the forms that this data has no questions for."""
    forms, why = list(settings.forms), []
    for name in settings.forms:
        form = QUESTION_FORMS[name]
        # The forms are checked by item, since an evaluation rejects all of its forms if one has no question.
        if form.put and not any(form.texts(i) for i in splits.splits["forget"]):
            forms.remove(name)
            why.append(f"no forget item has {form.lacking}, so none was asked in the form {name} ({form.words})")
    try:
        _questions_by_item(settings, splits)
    except InputError as error:
        if "few_shot" not in forms:
            raise
        forms.remove("few_shot")
        why.append(f"nothing was asked after examples: {error}")
    if "cloze" in forms and all(cloze_of(i).whole for i in splits.splits["forget"]):
        why.append("no forget item has wrong answers that set a fact apart, so cloze asks for the whole answer of each")
    return settings.model_copy(update={"forms": tuple(forms)}), why


def _askable(settings: Evaluation, splits: NamedSplits) -> tuple[int, list[str]]:
    """Count the forget items that an evaluation supports, and give the reason for the others."""
    questions = _questions_by_item(settings, splits)
    forget = [q for i in splits.splits["forget"] if (q := questions.get(i.id)) is not None]
    reasons = {q.reason for q in forget if isinstance(q, Unasked)}
    return sum(not isinstance(q, Unasked) for q in forget), sorted(reasons)


def beyond_context(request: AuditRequest, attack: "Attack", questions: Sequence[Question]) -> str:
    """Return why a model cannot read the questions with the facts before them. Empty if all local models can.

    This check needs their tokenisers but no weights.
    """
    if not attack.facts:
        return ""
    from vestige.models.load import outline
    from vestige.steps.attack import as_asked, asked_by

    tested = asked_by(attack)
    items, view = as_asked(attack, tested, request.splits.forget)
    for model in request.models:
        # The check downloads nothing from the hub or a server.
        if not Path(model.model).expanduser().is_dir():
            continue
        try:
            read = outline(model_settings(request, model), finite=False)
        except InputError:
            continue  # Loading the model reports the error.
        for question in questions:
            every = question.settings.build_questions(items, (view,))
            put = [every[item.id] for item in tested.values() if item.id in every]
            try:
                question.settings.refuse_too_long(read, put)
            except InputError as error:
                return f"with its facts {error}"
    return ""


def within_reach(request: AuditRequest) -> AuditRequest:
    """Return the request without the tests that served models cannot take, listed in `untested`.

    Each server is asked for its abilities once.
    """
    from vestige.attacks import ATTACKS
    from vestige.attacks.planning import find_attack

    if not any(is_address(model.model) for model in request.models):
        return request
    from vestige.models.load import load

    served: Fields = {m.name: load(model_settings(request, m)) for m in request.models if is_address(m.model)}
    settings = request.settings
    changes: Fields = {n: () for n in ATTACKS if getattr(settings, n, ()) and find_attack(n).weights}
    gone = [find_attack(name).weights for name in changes]
    # An entry is `NAME KEY=VALUE ...`: the name comes before the settings.
    further = {attack: find_attack(attack.split()[0]).weights for attack in settings.further}
    changes["further"] = tuple(attack for attack, weights in further.items() if not weights)
    gone += filter(None, further.values())
    parts = {name: find_eval(name).audit for name in settings.evals}
    # The order is that of the table. Evaluations of other packages come last.
    in_order = sorted(parts, key=lambda name: [*EVALS, name].index(name))

    def labels(need: str) -> list[str]:
        return [parts[name].label or name for name in in_order if parts[name].needs == need]

    untested = [
        _left_out(list(served), "without weights and whole next-token distributions", [*gone, *labels("distributions")])
    ]
    # A test that one model cannot take is dropped for all, because verdicts compare all models in the same formats.
    needs = {"distributions"}
    if mute := [name for name, model in served.items() if not model.engine.scores]:
        untested.append(_left_out(mute, "whose server scores no answers", labels("scores")))
        untested.append(f"{listed(mute)}: how likely answers are is not read, since the server scores none")
        needs.add("scores")
    evals = tuple(name for name, part in parts.items() if part.needs not in needs)
    for name, model in served.items():
        # A reasoning model may leak in its trace alone, and its answer may begin after the longest reply of the others.
        if has_thought(" ".join(model.fingerprint)) and "reasoning" not in evals:
            evals = (*evals, "reasoning")
            untested.append(f"{listed([name])} reasons before it answers, so every model is asked `reasoning` too")
    forms = settings.forms
    if chats := [name for name, model in served.items() if not model.engine.prefills]:
        prefilled = ["prefilled answers"] if "prefilled" in forms and "freeform" in evals else []
        # A chat server closes the assistant's turn, so a reply cannot be prefilled.
        forms = tuple(form for form in forms if form != "prefilled")
        untested.append(_left_out(chats, "asked by chat messages alone", prefilled))
    target = request.target.name
    if target in served and settings.suppress and not request.names("suppressed"):
        changes["suppress"] = False
        untested.append(
            f"no positive control could be made of {listed([target])}, which is behind an address, so that no attack "
            "has shown that it could find anything; give one with --suppressed"
        )
    untested.append(_may_have_changed(served))
    values = {**settings.explicit(), **changes, "evals": evals, "forms": forms}
    return replace(
        request,
        settings=settings.build(values, where="settings of the audit"),
        untested=(*request.untested, *filter(None, untested)),
        settings_before=settings,
    )


def _left_out(names: Sequence[str], why: str, untried: Sequence[str]) -> str:
    """Return a sentence about a test that is dropped for all because of these models, or ""."""
    if not untried:
        return ""
    are = "is" if len(names) == 1 else "are"
    return f"not tried on any model, since {listed(names)} {are} behind an address, {why}: {', '.join(untried)}"


def _may_have_changed(served: "Mapping[str, LoadedModel]") -> str:
    """Return the warning that a server can replace its model under the same address."""
    each, names = [], dict[str, list[str]]()
    for name, model in served.items():
        record = model.provenance()
        server = f" (the server says {one_line(record['server'], width=80)!r})" if record["server"] else ""
        each.append(f"{listed([name])} at {one_line(model.name, width=120)}{server}, {record['fingerprint'][:12]}")
        names.setdefault(record["fingerprint"], []).append(name)
    alike = "".join(f"; nothing there tells {listed(same)} apart" for same in names.values() if len(same) > 1)
    return (
        f"asked behind an address on {datetime.now(UTC).date().isoformat()}, each with the fingerprint of its replies "
        f"to fixed questions: {'; '.join(each)}{alike}. No weights were seen, and what is served may change"
    )
