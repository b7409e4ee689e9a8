"""What is asked of an audit: which models in which roles, about which items, with which evaluations.

All models of an audit are asked and attacked in the same way, so what one behind an address cannot be asked is left out
of all (`within_reach`), and said.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from vestige.artifacts.layout import own_folder
from vestige.artifacts.records import read_spec
from vestige.auditing.settings import AuditSettings, Form, Material, MemberScore
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.core.seeds import generator
from vestige.core.settings import Settings
from vestige.core.text import one_line
from vestige.data.corpus import NamedSplits, everything
from vestige.data.facts import cloze_of
from vestige.data.loaders import Pack, Published
from vestige.evals import EVALS
from vestige.judges.spec import LeakJudgeSettings
from vestige.models.address import address, is_address, shown_address

if TYPE_CHECKING:
    from vestige.attacks.planning import Attack
    from vestige.evals.base import InAudit
    from vestige.evals.freeform import FreeformSettings
    from vestige.models.load import LoadedModel, ModelSettings


Role = Literal["target", "unlearned", "retrained", "suppressed"]
ROLES: tuple[Role, ...] = ("target", "retrained", "unlearned", "suppressed")


@dataclass(frozen=True)
class AuditedModel:
    """One model of the audit: its name there, and where it is (a folder of Vestige, or any model).

    `model` is "" of the positive control that the audit makes itself.
    """

    name: str
    role: Role
    model: str


@dataclass(frozen=True)
class AuditRequest:
    """Which models are audited for which forget set.

    `splits` hold what is asked (`limited` cuts them) and what attacks may show. `dtype` and `chat_template` are for
    models from elsewhere; Vestige's own have theirs. `verify` distrusts what is stored (`any_subject`).
    `untested` says in sentences what whoever asks leaves out; `wanted` are the settings before that, where they differ.
    `published` are figures that the target must show before anything else is asked.
    """

    models: tuple[AuditedModel, ...]
    splits: NamedSplits
    settings: AuditSettings
    seed: int = 0
    device: str = "auto"
    dtype: str = "float32"
    trust_remote_code: bool = False
    chat_template: str = ""
    verify: bool = False
    untested: tuple[str, ...] = ()
    wanted: AuditSettings | None = None
    published: tuple[Pack, Published] | None = None

    def names(self, role: Role) -> tuple[str, ...]:
        """The names of the models in one role, in their order."""
        return tuple(m.name for m in self.models if m.role == role)


class Question(NamedTuple):
    """One evaluation of an audit: its settings, and the ids of the items it asks (None: all)."""

    eval: str
    settings: Settings
    only: frozenset[str] | None
    n_items: int


def named_models(
    target: str, unlearned: Sequence[str], retrained: Sequence[str], suppressed: str | None = None
) -> tuple[AuditedModel, ...]:
    """The models with names of their own, a number behind it where several would have the same.

    What Vestige made is called by its method or as it was called when it was made; any other by its folder.
    """
    given: list[tuple[Role, str]] = [("target", target), *(("retrained", m) for m in retrained)]
    given += [("unlearned", m) for m in unlearned] + ([("suppressed", suppressed)] if suppressed else [])
    models: list[AuditedModel] = []
    for role, model in given:
        called = _called(model)
        taken = {m.name for m in models}
        name = next(n for n in (called, *(f"{called} {k}" for k in range(2, len(given) + 2))) if n not in taken)
        models.append(AuditedModel(name, role, model))
    return tuple(models)


def numbered(models: Sequence[AuditedModel]) -> tuple[str, ...]:
    """In a sentence each, which model a name stands for, where several would have had the same; else none."""
    called = {m.name: _called(m.model) for m in models}
    shared = {name for name, own in called.items() if name != own}
    first = {called[name] for name in shared}
    return tuple(f"{m.name} is {m.model}" for m in models if m.name in shared | first)


def _called(model: str) -> str:
    folder = own_folder(model)
    if folder is None:
        return address(model).model if is_address(model) else Path(model).expanduser().name or model
    spec = read_spec(folder.spec)
    if spec.name == f"retrained {spec.forget}":
        return f"retrained without {spec.forget}, seed {spec.seed}"
    return spec.method or spec.name


def check_request(request: AuditRequest) -> None:
    """Refuse what no verdict can come of."""
    if len(request.names("target")) != 1:
        raise InputError(f"an audit has one target, and {len(request.names('target'))} were given; name one")
    if len(request.names("suppressed")) > 1:
        raise InputError("an audit has one positive control, and several were given as suppressed; name one")
    if not request.names("unlearned"):
        raise InputError("no unlearned model was given, so there is nothing to audit; name one with --unlearned")
    _check_models(request.models)
    splits = request.splits.splits
    if not splits.get("forget"):
        raise InputError(f"the forget set {one_line(request.splits.forget, width=60)!r} holds no items")
    both = {i.id for i in splits["forget"]} & {i.id for i in splits.get("retain", ())}
    if both:
        raise InputError(
            f"{len(both)} items of the forget set {one_line(request.splits.forget, width=60)!r} are in the retain set "
            "too; give a retain set without them"
        )
    if not splits.get("retain"):
        raise InputError("there is no retain set to measure lost knowledge on; give one with --data or --retain")
    if not request.settings.evals:
        raise InputError("evals is empty, so nothing would be asked; name at least one, such as qa")
    _look_for_models(request)
    for model in request.models:
        _same_forget_set(model, request.splits)


def _same_forget_set(model: AuditedModel, splits: NamedSplits) -> None:
    """Refuse a model of Vestige that left out or forgot other items than those that are audited."""
    own = own_folder(model.model)
    if own is None or not (spec := read_spec(own.spec)).forgotten:
        return
    asked = [i.id for i in splits.splits["forget"]]
    strange = spec.not_forgotten(asked)
    known = model.role == "target"
    if strange == (len(asked) if known else 0):
        return
    names = one_line(" and ".join(one.name for one in spec.forgotten), width=120)
    what = f"the forget set {one_line(splits.forget, width=60)!r}"
    raise InputError(
        f"{one_line(model.model, width=120)} is given as the target and was made without {names}, of which "
        f"{len(asked) - strange} questions are in {what}; give the model that knows them"
        if known
        else f"{one_line(model.model, width=120)} was made without {names}, and {strange} of the {len(asked)} "
        f"questions of {what} are not among them; audit what it forgot, or give a model that forgot this"
        + ("; or name the same columns as when it was made (--edge-key)" if strange == len(asked) else "")
    )


def _check_models(models: Sequence[AuditedModel]) -> None:
    seen: dict[str, AuditedModel] = {}
    names: dict[str, AuditedModel] = {}
    for model in models:
        own = own_folder(model.model)
        path = Path(model.model).expanduser() if own is None else own.path
        where = str(path.resolve()) if path.exists() else shown_address(model.model)
        if where in seen:
            raise InputError(
                f"the model {one_line(model.model, width=120)} was given twice, as {seen[where].role} and as "
                f"{model.role}; an audit compares different models"
            )
        if model.name in names:
            raise InputError(f"two models are called {one_line(model.name, width=60)!r}; give each a name of its own")
        seen[where] = names[model.name] = model


def model_settings(request: AuditRequest, model: AuditedModel) -> "ModelSettings":
    """How a model is loaded; the chat template that is asked for is that of models from elsewhere."""
    from vestige.models.load import ModelSettings

    return ModelSettings(
        model=model.model,
        device=request.device,
        dtype=request.dtype,
        trust_remote_code=request.trust_remote_code,
        chat_template="" if own_folder(model.model) else request.chat_template,
    )


def _look_for_models(request: AuditRequest) -> None:
    """Before an hour is spent on the others: is every model there, whole, and with weights that are read?"""
    from vestige.models.load import look_for

    for model in request.models:
        own = own_folder(model.model)
        if own is not None and not own.done.is_file():
            raise InputError(
                f"{one_line(str(own.path), width=200)} holds no finished model; run the command that was making it "
                "again"
            )
        look_for(model_settings(request, model))


def limited(splits: NamedSplits, most: int, *, seed: int) -> NamedSplits:
    """The splits, each item once, and at most `most` of each but the forget set, drawn by `seed`, in their order."""
    kept: dict[str, tuple[Item, ...]] = {}
    for name, given in splits.splits.items():
        items = tuple({i.id: i for i in given}.values())
        if name == "forget" or len(items) <= most:
            kept[name] = items
            continue
        drawn = generator(seed, "asked", name).permutation(len(items))[:most]
        kept[name] = tuple(items[n] for n in sorted(drawn.tolist()))
    return replace(splits, splits=kept)


def not_asked_for(settings: AuditSettings) -> tuple[str, ...]:
    """In a sentence the evaluations and attacks there are that the settings leave out; none if they leave out none."""
    out = [f"the evaluation {name}" for name in EVALS if name not in settings.evals]
    out += [
        f"the form {form}" for form in get_args(Form) if "freeform" in settings.evals and form not in settings.forms
    ]
    out += [f"relearning on {name} items" for name in get_args(Material) if name not in settings.relearn]
    out += [f"weights of {bits} bits" for bits in (8, 4) if bits not in settings.quantize]
    if "memory" in settings.evals:
        scores = get_args(MemberScore)
        out += [f"the membership score {name}" for name in scores if name not in settings.membership]
    out += [] if settings.in_context else ["facts before the question"]
    out += [] if settings.gcg else ["a searched suffix"]
    out += [] if settings.prefix else ["a searched prefix"]
    return (f"not asked for: {', '.join(out)}",) if out else ()


class Questions(NamedTuple):
    """The evaluations that are made of every model, and in sentences what cannot be asked of this data."""

    asked: tuple[Question, ...]
    left_out: tuple[str, ...]


def questions_of(request: AuditRequest) -> Questions:
    """What is asked; looked at before any model is loaded, so that nothing fails for want of options or examples."""
    shown = limited(request.splits, request.settings.kept_items, seed=request.seed)
    found: list[Question] = []
    left_out: list[str] = []
    for name in dict.fromkeys(request.settings.evals):
        settings, why = _settings(name, request, shown)
        left_out += why
        if settings is not None:
            only = _only(name, settings, request, shown)
            n = len(everything([shown])) if only is None else len(only)
            found.append(Question(name, settings, only, n))
    if not found:
        raise InputError(f"none of the evaluations can be made of this data: {'; '.join(left_out)}")
    return Questions(tuple(found), tuple(left_out))


def _only(name: str, settings: Settings, request: AuditRequest, shown: NamedSplits) -> frozenset[str] | None:
    """The items that an evaluation is asked about, as it says itself; None for all."""
    from vestige.evals import find_eval
    from vestige.evals.base import audit_of
    from vestige.steps.evaluate import view_of

    evaluation = find_eval(name)
    asked = audit_of(evaluation).items
    if asked == "all":
        return None
    if asked == "some":
        fewer = limited(shown, request.settings.memory_items, seed=request.seed)
        return frozenset(i.id for i in everything([fewer]))
    if asked == "asked":
        return frozenset(evaluation.asked(everything([shown]), (view_of(shown),), settings))
    return frozenset(i.id for i in shown.splits["forget"])


def _settings(name: str, request: AuditRequest, shown: NamedSplits) -> tuple[Settings | None, list[str]]:
    """The settings of one evaluation for this data; None where no forget item can be asked so, and why."""
    from vestige.evals import find_eval
    from vestige.evals.freeform import FreeformSettings

    evaluation = find_eval(name)
    asked = request.settings
    own = {"max_new_tokens": asked.max_new_tokens, "forms": asked.forms, "gradient_norm": asked.gradient_norm}
    own |= {name: getattr(asked, name) for name in ("options", "alternatives", *LeakJudgeSettings.model_fields)}
    own |= {"too_few": "leave_out", "items": asked.acr_items, "seed": request.seed}
    values = {k: v for k, v in own.items() if k in evaluation.SETTINGS.model_fields}
    settings = evaluation.SETTINGS.build(values, where=f"settings of the evaluation {name}")
    why: list[str] = []
    if isinstance(settings, FreeformSettings):
        settings, why = _forms(settings, shown)
        if not settings.forms:
            return None, why
    if "options" in values and "options" in asked.model_fields_set:
        _enough_options(name, settings, asked.options, shown)
    reason = _unaskable(name, settings, shown)
    return (None, [*why, reason]) if reason else (settings, why)


def _enough_options(name: str, settings: Settings, options: int, shown: NamedSplits) -> None:
    """Refuse a number of options that was set and that leaves out most of the forget items which fewer would ask."""

    def count(n: int) -> int:
        return len(_asked_of(name, settings.model_copy(update={"options": n}), shown)[0])

    can, most = count(options), count(2)
    if 2 * can >= most:
        return
    enough = next(n for n in range(options - 1, 1, -1) if count(n) == most)
    raise InputError(
        f"options = {options}: of the {most} forget items that {name} can ask, {can} have so many answers to offer; "
        f"{enough} is the most that all of them have, so set options to {enough} or fewer"
    )


def _forms(settings: "FreeformSettings", shown: NamedSplits) -> tuple["FreeformSettings", list[str]]:
    """`freeform` without the forms that this data has no questions for."""
    from vestige.evals.freeform import asked
    from vestige.steps.evaluate import view_of

    forms, why = list(settings.forms), []
    if "paraphrase" in forms and not any(i.paraphrase for i in shown.splits["forget"]):
        forms.remove("paraphrase")
        why.append("no forget item has a paraphrase, so none was asked in other words")
    try:
        asked(everything([shown]), (view_of(shown),), settings)
    except InputError as error:
        if "few_shot" not in forms:
            raise
        forms.remove("few_shot")
        why.append(f"nothing was asked after examples: {error}")
    if "cloze" in forms and all(cloze_of(i).whole for i in shown.splits["forget"]):
        why.append("no forget item has wrong answers that set a fact apart, so cloze asks for the whole answer of each")
    return settings.model_copy(update={"forms": tuple(forms)}), why


def _unaskable(name: str, settings: Settings, shown: NamedSplits) -> str:
    """Why no forget item can be asked in this evaluation; empty where one can."""
    asked, reasons = _asked_of(name, settings, shown)
    if asked:
        return ""
    return f"{name} was not asked, since no forget item can be{f': an item {reasons[0]}' if reasons else ''}"


def _asked_of(name: str, settings: Settings, shown: NamedSplits) -> tuple[list[object], list[str]]:
    """What is asked about forget items, and why the others cannot be."""
    from vestige.data.mcq import Unasked
    from vestige.evals import find_eval
    from vestige.steps.evaluate import view_of

    drawn: Mapping[str, object] = find_eval(name).asked(everything([shown]), (view_of(shown),), settings)
    forget = [drawn.get(i.id) for i in shown.splits["forget"]]
    asked = [d for d in forget if d is not None and not isinstance(d, Unasked)]
    return asked, sorted({d.reason for d in forget if isinstance(d, Unasked)})


def beyond_context(request: AuditRequest, attack: "Attack", questions: Sequence[Question]) -> str:
    """Why a model cannot read the questions with the facts before them; empty where all that lie on this disk can.

    Their tokenisers are asked, and no weights are read.
    """
    if not attack.facts:
        return ""
    from vestige.evals import find_eval
    from vestige.models.load import ModelSettings, outline
    from vestige.steps.attack import as_asked, asked_by

    asked = asked_by(attack)
    items, view = as_asked(attack, asked, request.splits.forget)
    for model in request.models:
        if not Path(model.model).expanduser().is_dir():
            continue
        try:
            read = outline(ModelSettings(model=model.model, trust_remote_code=request.trust_remote_code), finite=False)
        except InputError:
            continue  # Said of the model itself when it is loaded.
        for question in questions:
            evaluation = find_eval(question.eval)
            every = evaluation.asked(items, (view,), question.settings)
            put = [every[item.id] for item in asked.values() if item.id in every]
            try:
                for look in ("to_read", "check_length"):
                    getattr(evaluation, look, lambda *_: None)(read, put, question.settings)
            except InputError as error:
                return f"with its facts {error}"
    return ""


def within_reach(request: AuditRequest) -> AuditRequest:
    """The request without what models behind addresses cannot be asked, which `untested` then says.

    Each server is asked once what it is able to do.
    """
    from vestige.attacks import ATTACKS
    from vestige.attacks.planning import find_attack
    from vestige.evals import find_eval
    from vestige.evals.base import audit_of
    from vestige.models.load import load

    served = {m.name: load(model_settings(request, m)) for m in request.models if is_address(m.model)}
    if not served:
        return request
    settings = request.settings
    changes: dict[str, Any] = {n: () for n in ATTACKS if getattr(settings, n, ()) and find_attack(n).weights}
    gone = [find_attack(name).weights for name in changes]
    asked = {one: find_attack(one.split()[0]).weights for one in settings.further}
    changes["further"] = tuple(one for one, weights in asked.items() if not weights)
    gone += [weights for weights in asked.values() if weights]
    needed = {name: audit_of(find_eval(name)) for name in settings.evals}
    gone += [needed[name].called or name for name in _of(needed, "distributions")]
    untested = [_left_out(list(served), "without weights and whole next-token distributions", gone)]
    evals = [name for name in settings.evals if needed[name].needs != "distributions"]
    if mute := [name for name, found in served.items() if not found.engine.scores]:
        scored = [needed[name].called or name for name in _of(needed, "scores")]
        untested.append(_left_out(mute, "whose server scores no answers", scored))
        untested.append(f"{_names(mute)}: forced answers and bits are not read, since the server scores no answers")
        evals = [name for name in evals if needed[name].needs != "scores"]
    forms = settings.forms
    if chats := [name for name, found in served.items() if not found.engine.prefills]:
        forms = tuple(form for form in forms if form != "prefilled")
        prefilled = ["prefilled answers"] if "prefilled" in settings.forms and "freeform" in evals else []
        untested.append(_left_out(chats, "asked by chat messages alone", prefilled))
    (target,) = request.names("target")
    if target in served and settings.suppress and not request.names("suppressed"):
        changes["suppress"] = False
        untested.append(
            f"no positive control could be made of {_names([target])}, which is behind an address, so that no attack "
            "has shown that it could find anything; give one with --suppressed"
        )
    untested += [_may_have_changed(name, found) for name, found in served.items()]
    values = {**settings.model_dump(), **changes, "evals": tuple(evals), "forms": forms}
    return replace(
        request,
        settings=settings.build(values, where="settings of the audit"),
        untested=(*request.untested, *(said for said in untested if said)),
        wanted=settings,
    )


def _of(needed: "Mapping[str, InAudit]", what: str) -> list[str]:
    """The evaluations that need this of a model, in the order of the table."""
    order = {name: place for place, name in enumerate(EVALS)}
    return sorted((n for n, own in needed.items() if own.needs == what), key=lambda n: order.get(n, len(order)))


def _names(names: Sequence[str]) -> str:
    return ", ".join(one_line(name, width=60) for name in names)


def _left_out(names: Sequence[str], why: str, what: Sequence[str]) -> str:
    """That something was tried on no model, for the sake of these; "" where there is nothing."""
    if not what:
        return ""
    return f"not tried on any model, since {_names(names)} is behind an address, {why}: {', '.join(what)}"


def _may_have_changed(name: str, found: "LoadedModel") -> str:
    """Whoever serves a model can serve another one under the same address."""
    told = found.provenance()
    server = f" (the server says {one_line(told['server'], width=80)!r})" if told["server"] else ""
    return (
        f"{_names([name])} was asked at {one_line(found.name, width=120)}{server} on "
        f"{datetime.now(UTC).date().isoformat()}; its replies to fixed questions have the fingerprint "
        f"{told['fingerprint'][:12]}, its weights were not seen, and what is served there may have changed since"
    )
