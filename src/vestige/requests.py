"""From what people name to what a step is asked for: requests are built here and nowhere else.

`vestige.api`, the commands and the studies call these functions. Settings come as mappings by name; an InputError says
which is wrong. Nothing is trained or asked here, and weights are read only where a digest needs them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

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
from vestige.judges.base import Judge
from vestige.judges.local import grader_of
from vestige.judges.spec import BY_MODEL, judge_spec
from vestige.methods import find_method
from vestige.methods.base import FromStart
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


def tiny_unlearning(method: str) -> dict[str, Any]:
    """In what unlearning builtin:tiny differs from PISTOL's settings: all weights, and the rate of `TINY_RATES`."""
    return {"lora_rank": 0, **({"learning_rate": TINY_RATES[method]} if method in TINY_RATES else {})}


def model_settings(model: str, read: Mapping[str, Any], *, as_made: bool = False) -> ModelSettings:
    """How a model is read; `as_made` in the number format that Vestige made it in, where `read` names none."""
    dtype = own_dtype(model) if as_made else None
    return ModelSettings.build({**({"dtype": dtype} if dtype else {}), **read, "model": model})


def questions(
    corpus: Corpus, forget: str | None, retain: str | None = None, *, models: Iterable[str] = ()
) -> NamedSplits:
    """The items by split when `forget` is forgotten, less what any of the models forgot before.

    Without `forget` everything is one split.
    """
    if forget is not None:
        before = tuple(dict.fromkeys(earlier for model in models for earlier in forgotten_by(model)))
        return named_splits(corpus, forget, retain=retain, before=before)
    if retain is not None:
        raise InputError("--retain goes with --forget; without it everything is one split")
    return undivided(corpus)


def finetuning(
    model: ModelSettings,
    corpus: Corpus,
    splits: NamedSplits | None,
    settings: Mapping[str, Any] | TrainingSettings,
    *,
    name: str | None = None,
    seed: int = 0,
    factual: bool = False,
    save: str = "merged",
    imitate: str | None = None,
) -> FinetuneRequest:
    """A training on the answers of all items; with `splits` on all but their forget set; the factual ones on request.

    `settings` are those of `TrainingSettings`, whole or by name: builtin:tiny has defaults of its own, everything else
    PISTOL's.
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
        training=settings if isinstance(settings, TrainingSettings) else training_settings(model.model, settings),
        seed=seed,
        role="retrained" if splits else "target",
        name=name or (f"retrained {splits.forget}" if splits else "target"),
        forget=splits.forget if splits else "",
        save=pick_form(save),
        imitated=imitated,
        imitated_digest=digest,
        # What the model is taught now is no longer forgotten.
        forgotten=tuple(dict.fromkeys(rest for rest in (forget_set.less(items) for forget_set in sets) if rest.items)),
    )


def training_settings(model: str, settings: Mapping[str, Any]) -> TrainingSettings:
    """How answers are taught to a model that begins as `model`."""
    return TrainingSettings.build({**(TINY_FINETUNE.identity() if model.startswith(TINY) else {}), **settings})


def unlearning(
    target: ModelSettings,
    corpus: Corpus,
    splits: NamedSplits,
    method: str,
    settings: Mapping[str, Any],
    *,
    retain: str | None = None,
    base: str | None = None,
    method_settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    reference: str | None = None,
    idk: Path | None = None,
    save: str = "merged",
    read: bool = True,
) -> UnlearnRequest:
    """An unlearning of the forget set of `splits` by one method.

    `settings` are those of `UnlearningSettings`; a target that began as builtin:tiny has the rates that were found for
    it. A method that trains from the start repeats the target's training, or begins with the model `base`. `retain`
    is what the splits were read with. With `read` False no weights are read: enough for a plan.
    """
    recipe = _recipe(target, corpus, splits, method, settings, base, seed)
    refuse_not_found(corpus, splits, retain)

    def training(start: str) -> UnlearningSettings:
        return UnlearningSettings.build({**(tiny_unlearning(method) if start.startswith(TINY) else {}), **settings})

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
        read=read,
    )


def _recipe(
    target: ModelSettings,
    corpus: Corpus,
    splits: NamedSplits,
    name: str,
    settings: Mapping[str, Any],
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
        return recipe_from(start, training_settings(base, settings), corpus, splits, seed=seed)
    # A model that was trained otherwise than the target is no control of it.
    if settings:
        raise InputError(
            f"{name} trains as the target was trained, so its settings are the target's; leave {', '.join(settings)} "
            "out, or name the model to begin with by --base"
        )
    return recipe_without(target, corpus, splits)


def trajectory(
    target: ModelSettings,
    splits: NamedSplits,
    settings: Mapping[str, Any],
    validation: Mapping[str, Any],
    *,
    retrained: str | None = None,
    seed: int = 0,
    harm: tuple[Judge, Mapping[str, Any]] | None = None,
) -> TrajectoryRequest | None:
    """How an unlearning is scored along the way; None if nothing asks for it.

    `settings` are those of `TrajectorySettings`, whose conditions to stop add to the default ones, and `validation`
    those of `ValidationSettings`. `retrained` is a model that never saw the forget set, `harm` the judge of harm.
    """
    if not (settings or validation or retrained or harm):
        return None

    # Added to the defaults, which end a training that has broken down: alone they would replace these.
    stop = (*TrajectorySettings().stop_when, *settings.get("stop_when", ()))
    watch = TrajectorySettings.build({**settings, "stop_when": stop})
    checked = ValidationSettings.build(validation, where="settings of trajectory")
    control = None
    if retrained is not None:
        model = target.model_copy(update={"model": retrained})
        control = (model, origin_of(model).digest)
    return answered_trajectory(watch, checked, splits, seed=seed, retrained=control, harm=harm)


def watched(
    target: ModelSettings,
    splits: NamedSplits,
    rules: Mapping[str, Any],
    folder: Path,
    read: Mapping[str, Any],
    *,
    seed: int,
) -> TrajectoryRequest | None:
    """How an unlearning into `folder` is scored along the way, from one mapping of all settings.

    The keys are those of `TrajectorySettings` and `ValidationSettings`; `harm_judge` is a chat model that grades harm.
    """
    named = dict(rules)
    judge = named.pop("harm_judge", "")
    settings = {name: named.pop(name) for name in list(named) if name in TrajectorySettings.model_fields}
    harm = None
    if judge:
        spec = judge_spec(str(judge))
        if not spec.by_model:
            raise InputError(f"harm_judge is {one_line(str(judge))!r}, which is no language model. {BY_MODEL}")
        grader = grader_of(spec, folder / "train" / "judge", str(read.get("device", "auto")))
        harm = grader.judge, grader.identity
    return trajectory(target, splits, settings, named, seed=seed, harm=harm)


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


def evaluations(evals: Sequence[str] | Mapping[str, Mapping[str, Any]], **shared: Any) -> dict[str, Evaluation]:
    """The settings of each evaluation by its name; `shared` go to every one that has a setting of that name."""
    by_name: Mapping[str, Mapping[str, Any]] = evals if isinstance(evals, Mapping) else {name: {} for name in evals}
    if not evals:
        raise InputError("evals names no evaluation, so nothing would be asked; see `vestige list evals`")
    kinds = {name: find_eval(name) for name in by_name}
    return {
        name: kind.build(
            {**{key: value for key, value in shared.items() if key in kind.model_fields}, **by_name[name]},
            where=f"settings of the evaluation {name}",
        )
        for name, kind in kinds.items()
    }


def subject(
    model: str,
    read: Mapping[str, Any],
    output_dir: str | None,
    *,
    role: str = "base",
    name: str = "",
    verify: bool = False,
) -> Subject:
    """The model that is asked; evidence about one from elsewhere goes to `output_dir`."""
    return any_subject(
        model_settings(model, read), output_dir, role=role, name=name, dtype=read.get("dtype"), verify=verify
    )


def guide(model: str, read: Mapping[str, Any], output_dir: str | None) -> Subject:
    """The model whose words an attack is to bring; what it is stands beside the evidence, if it is from elsewhere."""
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
    settings: Mapping[str, Any], *, attacks: str | None = None, quick: bool = False, suppressed: bool = False
) -> tuple[AuditSettings, tuple[str, ...]]:
    """The settings of an audit, and in sentences what a quick one cannot decide.

    With `attacks`, a list by commas, those alone are made: each as set, or by default, or on `SAMPLES` items.
    """
    where = "settings of the audit"
    if quick:
        clashing = [name for name, value in (("--attacks", attacks), ("--suppressed", suppressed)) if value]
        untested = check_quick([*settings, *clashing])
        return AuditSettings.build({**QUICK, **settings}, where=where), untested
    built = AuditSettings.build(settings, where=where)
    return (built if attacks is None else _only(built, settings, attacks)), ()


def _only(built: AuditSettings, settings: Mapping[str, Any], attacks: str) -> AuditSettings:
    """The settings with the attacks of the list and no others."""
    names = [name.strip().replace("-", "_") for name in attacks.split(",")]
    unknown = next((name for name in names if name not in known_attacks()), None)
    if unknown is not None:
        raise InputError(f"--attacks names {one_line(unknown)!r}; {closest(unknown, list(known_attacks()))}")
    counted = [name for name in ATTACKS if name in type(built).model_fields]
    # Set and not made, it would look as if it had been tried.
    unused = [name for name in settings if name in counted and name not in names]
    unused += [f"--further {one_line(line)!r}" for line in built.further if line.split()[0] not in names]
    if unused:
        raise InputError(f"{unused[0]} is of an attack that --attacks leaves out; add it there")
    values, defaults = built.model_dump(), type(built)().model_dump()
    sizes = {name: (values[name] or defaults[name] or (SAMPLES,)) if name in names else () for name in counted}
    started = [line.split()[0] for line in built.further]
    further = (*built.further, *(name for name in names if name not in (*counted, *started)))
    return built.build({**values, **sizes, "further": further}, where="settings of the audit")


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
    learnt = [item for name, rows in splits.splits.items() if name != "holdout" for item in rows]
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
    read: Mapping[str, Any],
    *,
    retain: str | None = None,
    holdout: str | None = None,
    alternatives: str | None = None,
    published: str | None = None,
    **how: Any,
) -> AuditRequest:
    """An audit of models, the target first; `read` says how those from elsewhere are read.

    Of a pack the target must show the figures `published` of a model, by default of its name. `how` are the request's
    `seed`, `verify` and what was left `untested`.
    """
    paths = [model.model for model in models]
    return AuditRequest(
        models=tuple(models),
        splits=audit_questions(corpus, forget, paths, settings, retain, holdout, alternatives),
        settings=settings,
        # Of the target alone: the others were made from it, and have no published figures.
        published=published_of(corpus.settings.data, paths[0], published),
        **model_settings(paths[0], read).model_dump(exclude={"model"}),
        **how,
    )


def data_check(
    corpus: Corpus,
    forget: str,
    settings: Mapping[str, Any],
    *,
    retain: str | None = None,
    alternatives: str | None = None,
    seed: int = 0,
) -> CheckRequest:
    """A check of a data set seen from one forget set; `settings` are those of `SoundnessSettings`."""
    # The check sees the alternatives that an audit would be given.
    splits = with_alternatives(corpus, named_splits(corpus, forget, retain=retain), alternatives)
    refuse_nothing_kept(corpus, splits)
    return CheckRequest(splits, SoundnessSettings.build(settings), seed)
