"""Build the requests for the steps from names and settings, for the public functions and the demo.

This module trains nothing and queries no model. It reads weights only to compute a digest.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from vestige.api.selection import TINY, tiny_unlearning, training_settings
from vestige.artifacts.layout import own_folder
from vestige.artifacts.records import forgotten_by
from vestige.attacks.planning import AttackSettings, check_kind
from vestige.core.errors import InputError
from vestige.data.corpus import Corpus, NamedSplits, left_out, refuse_not_found
from vestige.data.tables import text_lines
from vestige.evals.base import Evaluation
from vestige.judges.base import Grader
from vestige.judges.local import grader_of
from vestige.judges.spec import BY_MODEL, judge_spec
from vestige.methods import find_method
from vestige.methods.base import FromStart
from vestige.models import Reading
from vestige.models.load import ModelSettings, settings_of
from vestige.steps.attack import AttackRequest
from vestige.steps.controls import Recipe, recipe_from, recipe_without
from vestige.steps.evaluate import Subject
from vestige.steps.finetune import FinetuneRequest
from vestige.steps.making import pick_form
from vestige.steps.subjects import any_subject, load_checked, origin_of, own_dtype
from vestige.steps.trajectory import TrajectoryRequest, ValidationSettings, answered_trajectory
from vestige.steps.unlearn import UnlearnRequest, unlearn_request
from vestige.training.settings import TrainingSettings, UnlearningSettings
from vestige.training.stopping import TrajectorySettings


def model_settings(model: str, read: Reading, *, as_made: bool = False) -> ModelSettings:
    """Return how to read a model. With `as_made`, keep the number format of its making, unless `read` names one."""
    if as_made:
        read = replace(read, dtype=read.dtype or own_dtype(model))
    return settings_of(model, read)


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
    """Build a training on the answers of all items. With `splits`, leave out their forget set.

    Factual questions are included on request. Settings missing from `training` get the defaults of builtin:tiny, or
    PISTOL's for any other model.
    """
    if factual and not corpus.factual:
        raise InputError("there are no factual questions to train on. Name them with --factual")
    imitated, digest = None, ""
    if imitate is not None:
        teacher = model.model_copy(update={"model": imitate})
        digest = origin_of(teacher).digest
        imitated = partial(load_checked, teacher, digest, "the model to imitate")
    items, sets, role, forget = corpus.items, [*forgotten_by(model.model)], "target", ""
    if splits is not None:
        items, role, forget = left_out(corpus, splits), "retrained", splits.forget
        sets.append(splits.resolved)
    if factual:
        items += corpus.factual
    # Items that the model learns now are no longer forgotten.
    forgotten = dict.fromkeys(forget_set.less(items) for forget_set in sets)
    return FinetuneRequest(
        model=model,
        items=items,
        # All models of a data set share one tokeniser.
        vocabulary=(*corpus.items, *corpus.factual),
        training=training_settings(model.model, training),
        seed=seed,
        role=role,
        name=name or f"{role} {forget}".rstrip(),
        forget=forget,
        save=pick_form(save),
        imitated=imitated,
        imitated_digest=digest,
        forgotten=tuple(rest for rest in forgotten if rest.items),
    )


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
    idk: str | None = None,
    save: str = "merged",
) -> UnlearnRequest:
    """An unlearning of the forget set of `splits` by one method.

    Settings missing from `chosen` get PISTOL's defaults, or the tuned rates for builtin:tiny. A method that trains from
    the start repeats the target's training, or begins with the model `base`. `retain` is the selection used to read the
    splits.
    """
    recipe = _recipe(target, corpus, splits, method, chosen, base, seed)
    refuse_not_found(corpus, splits, retain)
    answers = None
    if idk is not None:
        answers = tuple(text_lines(Path(idk)))

    def training(start: str) -> UnlearningSettings:
        defaults = UnlearningSettings()
        if start.startswith(TINY):
            defaults = tiny_unlearning(method)
        return (chosen or UnlearningSettings()).over(defaults)

    return unlearn_request(
        target,
        splits,
        method,
        training,
        method_settings=method_settings,
        seed=seed,
        idk=answers,
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
    """Return the training of a method that starts anew: the target's own, or from `base` with the settings."""
    if not isinstance(find_method(name), FromStart):
        if base is not None:
            raise InputError(f"--base is for methods that train from the start, and {name} does not. Leave it out")
        return None
    if base is not None:
        # The caller's device, number format and template apply to both.
        start = target.model_copy(update={"model": base})
        return recipe_from(start, training_settings(base, chosen), corpus, splits, seed=seed)
    # A model with another recipe than the target is not a control for it.
    if chosen is not None and chosen.model_fields_set:
        names = ", ".join(sorted(chosen.model_fields_set))
        raise InputError(
            f"{name} trains as the target was trained, so its settings are the target's. Leave {names} "
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
    """Return how to score an unlearning while it trains. None if nothing asks for it.

    The conditions in `rules` add to the default ones. `retrained` is a model that never saw the forget set, and `harm`
    the judge of harm.
    """
    if not (rules or validation or retrained or harm):
        return None
    defaults = TrajectorySettings()
    watch = rules or defaults
    if "stop_when" in watch.model_fields_set:
        # The rules are added to the defaults, which end a failed training.
        watch = watch.model_copy(update={"stop_when": (*defaults.stop_when, *watch.stop_when)})
    control = None
    if retrained is not None:
        model = target.model_copy(update={"model": retrained})
        control = (model, origin_of(model).digest)
    judge = None
    if harm is not None:
        judge = (harm.judge, harm.identity)
    checked = validation or ValidationSettings()
    return answered_trajectory(watch, checked, splits, seed=seed, retrained=control, harm=judge)


def harm_grader(judge: str, replies: Path, device: str) -> Grader | None:
    """Return the chat model that grades harm, if configured. Its replies are kept in the folder `replies`."""
    if not judge:
        return None
    spec = judge_spec(judge)
    if not spec.by_model:
        raise InputError(f"--harm-judge {spec.name} cannot detect harmful answers. {BY_MODEL}")
    return grader_of(spec, replies, device)


def subject(
    model: str, read: Reading, output_dir: str | None, *, role: str = "base", name: str = "", verify: bool = False
) -> Subject:
    """Return the model to evaluate. Evidence about one from elsewhere goes to `output_dir`."""
    settings = model_settings(model, read)
    return any_subject(settings, output_dir, role=role, name=name, dtype=read.dtype, verify=verify)


def guide(model: str, read: Reading, output_dir: str | None) -> Subject:
    """Return the target that guides a search for a prefix. The record of an external target is next to the evidence."""
    folder = None
    if output_dir is not None and own_folder(model) is None:
        folder = f"{output_dir}/target"
    return subject(model, read, folder, role="target")


def attack(
    settings: AttackSettings,
    splits: NamedSplits,
    evals: Mapping[str, Evaluation],
    *,
    seed: int = 0,
    guide: Callable[[], Subject] | None = None,
) -> AttackRequest:
    """Build a planned attack with the evaluations before and after it. Refuse requests that the data do not support.

    `guide` gives the target that guides a search for a prefix.
    """
    if settings.guided != (guide is not None):
        raise InputError(
            "only a prefix search takes a target, and it needs one. Give --target with it, and leave it out elsewhere"
        )
    planned = settings.plan(splits.splits, seed=seed)
    check_kind(settings, planned.plan)
    request = AttackRequest(planned, evals, splits.forget, seed)
    if guide is None:
        return request
    # Only now, because this loads the target.
    return replace(request, guide=guide())
