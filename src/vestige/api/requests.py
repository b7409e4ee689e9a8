"""The requests for the steps, built from names and settings. The public functions and the demo build them here.

Nothing is trained or asked here. Weights are read only where a digest needs them.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from pydantic_core import to_jsonable_python

from vestige.api.inputs import Reading
from vestige.artifacts.layout import own_folder
from vestige.artifacts.records import forgotten_by
from vestige.attacks import ATTACKS, known_attacks
from vestige.attacks.planning import AttackSettings, check_kind
from vestige.auditing.request import AuditedModel, AuditRequest
from vestige.auditing.settings import QUICK, AuditSettings, check_quick
from vestige.core.errors import InputError
from vestige.core.seeds import generator
from vestige.core.text import closest, one_line
from vestige.data.alternatives import with_alternatives
from vestige.data.corpus import (
    Corpus,
    NamedSplits,
    items_of,
    left_out,
    named_splits,
    read_idk,
    refuse_not_found,
    refuse_nothing_kept,
    undivided,
    without,
)
from vestige.data.findings import SoundnessSettings
from vestige.data.loaders import published_of
from vestige.evals import find_eval
from vestige.evals.base import Evaluation
from vestige.judges.base import Grader
from vestige.judges.local import grader_of
from vestige.judges.spec import BY_MODEL, judge_spec
from vestige.methods import find_method
from vestige.methods.base import FromStart
from vestige.metrics.verdicts import Thresholds
from vestige.models.load import ModelSettings
from vestige.steps.attack import AttackRequest
from vestige.steps.check_data import CheckRequest
from vestige.steps.controls import Recipe, recipe_from, recipe_without
from vestige.steps.evaluate import Subject
from vestige.steps.finetune import FinetuneRequest
from vestige.steps.making import pick_form
from vestige.steps.subjects import any_subject, load_checked, origin_of, own_dtype
from vestige.steps.trajectory import TrajectoryRequest, ValidationSettings, answered_trajectory
from vestige.steps.unlearn import UnlearnRequest, unlearn_request
from vestige.training.settings import TrainingSettings, UnlearningSettings
from vestige.training.trajectory import TrajectorySettings

Evals: TypeAlias = Sequence[str | Evaluation] | Mapping[str, Mapping[str, Any]]
"""Evaluations: names, settings of an evaluation, or settings by name."""
TINY = "builtin:tiny"
TINY_FINETUNE = TrainingSettings(
    epochs=40,
    batch_size=16,
    learning_rate=1.5e-3,
    schedule="one_cycle",
    warmup_epochs=4.0,
    weight_decay=0.01,
    loss_on="all",
    bucket=True,
    stop_when_exact=True,
    lora_rank=0,
)
"""How builtin:tiny is taught: it learns sample dataset 1 and the factual questions to the last answer."""
TINY_RATES = {"ga": 3e-5, "gd": 5e-5, "kl": 5e-5, "idk_gd": 1e-4, "dpo": 1e-4, "rr": 4e-3}
"""Learning rates of builtin:tiny for one contract of 20 questions and 20 epochs, one a method."""
SAMPLES = 7
"""On how many forget items a prompt is searched where nobody says: the number of 2506.00688."""


def tiny_unlearning(method: str) -> UnlearningSettings:
    """The defaults of an unlearning of builtin:tiny: all weights are trained, at the rate of `TINY_RATES`."""
    if method in TINY_RATES:
        return UnlearningSettings(lora_rank=0, learning_rate=TINY_RATES[method])
    return UnlearningSettings(lora_rank=0)


def model_settings(model: str, read: Reading, *, as_made: bool = False) -> ModelSettings:
    """How a model is read; with `as_made` in the number format that Vestige made it in, if `read` names none."""
    dtype = read.dtype
    if dtype is None and as_made:
        dtype = own_dtype(model)
    return ModelSettings(
        model=model,
        dtype=dtype or "float32",
        device=read.device,
        trust_remote_code=read.trust_remote_code,
        chat_template=read.chat_template,
        base=read.base,
        tokenizer=read.tokenizer,
    )


def questions(
    corpus: Corpus, forget: str | None, retain: str | None = None, *, models: Iterable[str] = ()
) -> NamedSplits:
    """The items by split when `forget` is forgotten, less what any of the models forgot before.

    Without `forget` everything is one split.
    """
    if forget is not None:
        before = tuple(dict.fromkeys(chain.from_iterable(map(forgotten_by, models))))
        return named_splits(corpus, forget, retain=retain, before=before)
    if retain is not None:
        raise InputError("--retain goes with --forget; without it everything is one split")
    return undivided(corpus)


def finetuning(
    model: ModelSettings,
    corpus: Corpus,
    splits: NamedSplits | None,
    training: TrainingSettings | None,
    *,
    name: str | None = None,
    seed: int = 0,
    factual: bool = False,
    save: str = "merged",
    imitate: str | None = None,
) -> FinetuneRequest:
    """A training on the answers of all items; with `splits` on all but their forget set; the factual ones on request.

    What `training` does not set has the defaults of builtin:tiny, or PISTOL's for any other model.
    """
    if factual and not corpus.factual:
        raise InputError("the factual questions are to be trained on, and there are none; name them with --factual")
    imitated, digest = None, ""
    if imitate is not None:
        other = model.model_copy(update={"model": imitate})
        digest = origin_of(other).digest
        imitated = partial(load_checked, other, digest, "the model to imitate")
    items = (*(left_out(corpus, splits) if splits else corpus.items), *(corpus.factual if factual else ()))
    sets = (*forgotten_by(model.model), *([splits.resolved] if splits else []))
    return FinetuneRequest(
        model=model,
        items=items,
        # One tokeniser for all models of a data set.
        vocabulary=(*corpus.items, *corpus.factual),
        training=training_settings(model.model, training),
        seed=seed,
        role="retrained" if splits else "target",
        name=name or (f"retrained {splits.forget}" if splits else "target"),
        forget=splits.forget if splits else "",
        save=pick_form(save),
        imitated=imitated,
        imitated_digest=digest,
        # What the model is taught now is no longer forgotten.
        forgotten=tuple(rest for rest in dict.fromkeys(forget_set.less(items) for forget_set in sets) if rest.items),
    )


def training_settings(model: str, training: TrainingSettings | None) -> TrainingSettings:
    """How answers are taught to a model that begins as `model`."""
    defaults = TINY_FINETUNE if model.startswith(TINY) else TrainingSettings()
    return (training or TrainingSettings()).over(defaults)


def unlearning(
    target: ModelSettings,
    corpus: Corpus,
    splits: NamedSplits,
    method: str,
    chosen: TrainingSettings | None,
    *,
    retain: str | None = None,
    base: str | None = None,
    method_settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    reference: str | None = None,
    idk: Path | None = None,
    save: str = "merged",
) -> UnlearnRequest:
    """An unlearning of the forget set of `splits` by one method.

    What `chosen` does not set has PISTOL's defaults, or the rates that were found for builtin:tiny. A method that
    trains from the start repeats the target's training, or begins with the model `base`. `retain` is what the splits
    were read with.
    """
    recipe = _recipe(target, corpus, splits, method, chosen, base, seed)
    refuse_not_found(corpus, splits, retain)

    def training(start: str) -> UnlearningSettings:
        defaults = tiny_unlearning(method) if start.startswith(TINY) else UnlearningSettings()
        return (chosen or UnlearningSettings()).over(defaults)

    return unlearn_request(
        target,
        splits,
        method,
        training,
        method_settings=method_settings,
        seed=seed,
        reference=reference,
        idk=None if idk is None else read_idk(idk),
        recipe=recipe,
        save=save,
    )


def _recipe(
    target: ModelSettings,
    corpus: Corpus,
    splits: NamedSplits,
    name: str,
    chosen: TrainingSettings | None,
    base: str | None,
    seed: int,
) -> Recipe | None:
    """How a method that trains from the start trains: as the target was trained, or from `base` by the settings."""
    if not isinstance(find_method(name), FromStart):
        if base is not None:
            raise InputError(f"--base goes with a method that trains from the start, and {name} does not; leave it out")
        return None
    if base is not None:
        # Read as the target is: device, number format and template are the caller's choice for both.
        start = target.model_copy(update={"model": base})
        return recipe_from(start, training_settings(base, chosen), corpus, splits, seed=seed)
    # A model that was trained otherwise than the target is no control of it.
    if chosen is not None and chosen.model_fields_set:
        names = ", ".join(sorted(chosen.model_fields_set))
        raise InputError(
            f"{name} trains as the target was trained, so its settings are the target's; leave {names} "
            "out, or name the model to begin with by --base"
        )
    return recipe_without(target, corpus, splits)


def trajectory(
    target: ModelSettings,
    splits: NamedSplits,
    rules: TrajectorySettings | None,
    validation: ValidationSettings | None,
    *,
    retrained: str | None = None,
    seed: int = 0,
    harm: Grader | None = None,
) -> TrajectoryRequest | None:
    """How an unlearning is scored along the way; None if nothing asks for it.

    The conditions to stop in `rules` add to the default ones. `retrained` is a model that never saw the forget set,
    `harm` the judge of harm.
    """
    if not (rules or validation or retrained or harm):
        return None
    defaults = TrajectorySettings()
    watch = rules or defaults
    if "stop_when" in watch.model_fields_set:
        # Added to the defaults, which end a training that has broken down: alone they would replace these.
        watch = watch.model_copy(update={"stop_when": (*defaults.stop_when, *watch.stop_when)})
    control = None
    if retrained is not None:
        model = target.model_copy(update={"model": retrained})
        control = (model, origin_of(model).digest)
    judge = None if harm is None else (harm.judge, harm.identity)
    checked = validation or ValidationSettings()
    return answered_trajectory(watch, checked, splits, seed=seed, retrained=control, harm=judge)


def harm_grader(judge: str, replies: Path, device: str) -> Grader | None:
    """The chat model that grades harm, if one is named; its replies are kept in the folder `replies`."""
    if not judge:
        return None
    spec = judge_spec(judge)
    if not spec.by_model:
        raise InputError(f"--harm-judge {spec.name} cannot say whether an answer is harmful; {BY_MODEL}")
    return grader_of(spec, replies, device)


def fewer(corpus: Corpus, splits: NamedSplits, names: Sequence[str] | None, most: int | None) -> NamedSplits:
    """The forget set and the splits of these names, of which at most `most` questions of each kind are asked.

    Of the questions with a contract or person `most` are drawn, and as many of those without. The draw depends on the
    data alone, so that every model and forget set is asked the same questions.
    """
    kept = dict(splits.splits)
    if names is not None:
        kept = {name: items for name, items in kept.items() if name == "forget" or name in names}
    if most is not None:
        drawn: set[str] = set()
        whole = (*corpus.items, *corpus.factual)
        for about_somebody in (True, False):
            candidates = [item for item in whole if (item.edge is not None) is about_somebody]
            order = generator(corpus.settings.split_seed, "asked", str(about_somebody)).permutation(len(candidates))
            drawn |= {candidates[place].id for place in order[:most].tolist()}
        for name, items in kept.items():
            if name != "forget":
                kept[name] = tuple(item for item in items if item.id in drawn)
    return replace(splits, splits={name: items for name, items in kept.items() if items})


def evaluations(evals: Evals, *, max_new_tokens: int | None = None, pistol: bool = False) -> dict[str, Evaluation]:
    """The settings of each evaluation by its name.

    `max_new_tokens` and `pistol` go to every evaluation with a setting of that name that does not set it itself.
    """
    if not evals:
        raise InputError("evals names no evaluation, so nothing would be asked; see `vestige list evals`")
    found: dict[str, Evaluation] = {}
    for entry in evals:
        if isinstance(entry, Evaluation):
            found[entry.name] = entry
            continue
        kind = find_eval(entry)
        values: dict[str, Any] = {}
        if max_new_tokens is not None and "max_new_tokens" in kind.model_fields:
            values["max_new_tokens"] = max_new_tokens
        if pistol and "pistol" in kind.model_fields:
            values["pistol"] = True
        if isinstance(evals, Mapping):
            values |= evals[entry]
        found[entry] = kind.build(values, where=f"settings of the evaluation {entry}")
    return found


def subject(
    model: str, read: Reading, output_dir: str | None, *, role: str = "base", name: str = "", verify: bool = False
) -> Subject:
    """The model that is asked; evidence about one from elsewhere goes to `output_dir`."""
    settings = model_settings(model, read)
    return any_subject(settings, output_dir, role=role, name=name, dtype=read.dtype, verify=verify)


def guide(model: str, read: Reading, output_dir: str | None) -> Subject:
    """The target that leads a search for a prefix; its record is kept beside the evidence, if it is from elsewhere."""
    elsewhere = output_dir is not None and own_folder(model) is None
    return subject(model, read, f"{output_dir}/target" if elsewhere else None, role="target")


def attack(
    settings: AttackSettings,
    splits: NamedSplits,
    evals: Mapping[str, Evaluation],
    *,
    seed: int = 0,
    guide: Callable[[], Subject] | None = None,
    start: Path | None = None,
) -> AttackRequest:
    """A planned attack and the evaluations around it; what the data do not allow for is refused.

    `guide` gives the target that leads a search for a prefix, `start` is the folder of an attack whose prompt it begins
    with.
    """
    if settings.guided != (guide is not None):
        raise InputError(
            "only a prefix search takes a target, and it needs one: the prefix is searched to bring the target's words"
        )
    planned = settings.plan(splits.splits, seed=seed)
    check_kind(settings, planned.plan)
    # Only now, since the target is loaded.
    leader = None if guide is None else guide()
    return AttackRequest(planned, evals, splits.forget, seed, guide=leader, start=start)


def audit_settings(
    settings: AuditSettings | None,
    margins: Thresholds | None,
    *,
    attacks: Sequence[AttackSettings | str] | None = None,
    quick: bool = False,
    suppressed: bool = False,
) -> tuple[AuditSettings, tuple[str, ...]]:
    """The settings of an audit, and in sentences what a quick one cannot decide.

    With `attacks` those alone are made. A name alone is made as `settings` say, or by default.
    """
    asked = settings or AuditSettings()
    if margins is not None:
        asked = _with_margins(asked, margins)
    chosen = [name for name in AuditSettings.model_fields if name in asked.model_fields_set]
    if quick:
        given = [("--attacks", attacks), ("--suppressed", suppressed)]
        untested = check_quick([*chosen, *(option for option, value in given if value)])
        return asked.over(AuditSettings.build(QUICK)), untested
    if attacks is None:
        return asked, ()
    return _only(asked, chosen, attacks), ()


def _with_margins(asked: AuditSettings, margins: Thresholds) -> AuditSettings:
    """The settings at these margins, which keep what else was set."""
    values = {name: getattr(margins, name) for name in margins.model_fields_set}
    given = {name: getattr(asked, name) for name in asked.model_fields_set}
    return AuditSettings.build({**given, **values}, where="settings of the audit")


def _only(built: AuditSettings, chosen: Collection[str], attacks: Sequence[AttackSettings | str]) -> AuditSettings:
    """The settings with these attacks and no others."""
    names: list[str] = []
    lines: list[str] = []
    for attack in attacks:
        line = attack if isinstance(attack, str) else attack_line(attack)
        name, _, words = line.strip().partition(" ")
        name = name.replace("-", "_")
        if name not in known_attacks():
            raise InputError(f"--attacks names {one_line(name)!r}; {closest(name, list(known_attacks()))}")
        if words:
            lines.append(f"{name} {words}")
        else:
            names.append(name)
    counted = [name for name in ATTACKS if name in type(built).model_fields]
    # Set and not made, it would look as if it had been tried.
    unused = [name for name in chosen if name in counted and name not in names]
    unused += [f"--further {one_line(line)!r}" for line in built.further if line.split()[0] not in names]
    if unused:
        raise InputError(f"{unused[0]} is of an attack that --attacks leaves out; add it there")
    values, defaults = dict(built), dict(type(built)())
    for name in counted:
        values[name] = (values[name] or defaults[name] or (SAMPLES,)) if name in names else ()
    started = [line.split()[0] for line in built.further]
    named = [name for name in names if name not in (*counted, *started)]
    return built.build({**values, "further": (*built.further, *named, *lines)}, where="settings of the audit")


def attack_line(attack: AttackSettings) -> str:
    """An attack as `NAME KEY=VALUE ...`, the form in which the settings of an audit hold it."""
    words = [attack.kind]
    for name in sorted(attack.model_fields_set):
        value = json.dumps(to_jsonable_python(getattr(attack, name)), ensure_ascii=False, separators=(",", ":"))
        if " " in value:
            raise InputError(f"{attack.kind}: {name} = {one_line(value)} holds a blank, which an audit cannot take")
        words.append(f"{name}={value}")
    return " ".join(words)


def audit_questions(
    corpus: Corpus,
    forget: str,
    models: Iterable[str],
    settings: AuditSettings,
    retain: str | None = None,
    holdout: str | None = None,
    alternatives: str | None = None,
) -> NamedSplits:
    """What an audit of `models` asks: one retain set for all, without what any of them forgot besides.

    `holdout` is a file of items that no model was taught, `alternatives` one of other answers to the forget questions.
    """
    splits = questions(corpus, forget, retain, models=models)
    refuse_not_found(corpus, splits, retain)
    splits = with_alternatives(corpus, splits, alternatives, n=settings.alternatives)
    refuse_nothing_kept(corpus, splits)
    if holdout is None:
        return splits
    items = items_of(corpus, holdout)
    learnt = [*chain.from_iterable(rows for name, rows in splits.splits.items() if name != "holdout")]
    new = {item.id for item in without(items, learnt)}
    shared = next((item for item in items if item.id not in new), None)
    if shared is not None:
        raise InputError(
            f"the question {one_line(shared.question, width=60)!r} is in the holdout file and in another split; a "
            "holdout item is one that no model was taught"
        )
    return replace(splits, splits={**splits.splits, "holdout": items})


def audit(
    models: Sequence[AuditedModel],
    corpus: Corpus,
    forget: str,
    settings: AuditSettings,
    read: Reading,
    *,
    retain: str | None = None,
    holdout: str | None = None,
    alternatives: str | None = None,
    published: str | None = None,
    seed: int = 0,
    verify: bool = False,
    untested: tuple[str, ...] = (),
) -> AuditRequest:
    """An audit of models, the target first; `read` says how those from elsewhere are read.

    If the data are a pack, the target must show the figures `published` of a model, by default of its name.
    """
    paths = [model.model for model in models]
    return AuditRequest(
        models=tuple(models),
        splits=audit_questions(corpus, forget, paths, settings, retain, holdout, alternatives),
        settings=settings,
        # Of the target alone: the others were made from it, and have no published figures.
        published=published_of(corpus.settings.data, paths[0], published),
        device=read.device,
        dtype=read.dtype or "float32",
        trust_remote_code=read.trust_remote_code,
        chat_template=read.chat_template,
        base=read.base,
        tokenizer=read.tokenizer,
        seed=seed,
        verify=verify,
        untested=untested,
    )


def data_check(
    corpus: Corpus,
    forget: str,
    checks: SoundnessSettings | None,
    *,
    retain: str | None = None,
    alternatives: str | None = None,
    seed: int = 0,
) -> CheckRequest:
    """A check of a data set seen from one forget set."""
    # The check sees the alternatives that an audit would be given.
    splits = with_alternatives(corpus, named_splits(corpus, forget, retain=retain), alternatives)
    refuse_nothing_kept(corpus, splits)
    return CheckRequest(splits, checks or SoundnessSettings(), seed)
