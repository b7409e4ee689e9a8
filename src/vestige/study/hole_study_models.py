"""The models that a study of holes makes itself: a target taught contracts, a policy that asks, those that forget."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.artifacts.hole_study import HoleStudyFolder
from vestige.artifacts.layout import SubjectFolder
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.core.seeds import generator
from vestige.data.build import CompileSettings, compile_to_folder
from vestige.data.corpus import Corpus, NamedSplits, SourceSettings, named_splits, open_corpus
from vestige.data.factual import idk_answers
from vestige.probes.latent import listed_questions
from vestige.study.hole_study_request import COMPILE, POLICY, TARGET, HoleStudySettings, Making
from vestige.study.presets import TINY_FINETUNE, tiny_unlearning
from vestige.study.runner import Report, Task
from vestige.training.settings import UnlearningSettings

if TYPE_CHECKING:
    from vestige.steps.unlearn import UnlearnRequest

_TINY = "builtin:tiny"
_END = "Done."
"""The answer to a list of questions: a chat needs one, and nobody reads it."""
_WEIGHTS = {COMPILE: 1.0, TARGET: 90.0, POLICY: 85.0, "unlearn": 30.0}
"""Processor seconds on the machine that this was written on."""


def making_tasks(
    place: Path, settings: HoleStudySettings, *, checkpoints: Sequence[str], repeats: Sequence[str]
) -> list[Task]:
    """What makes the models: target, policy, those that forget, and the checkpoints and repeats that are wanted."""
    making = settings.making
    assert making is not None, "a study of models that are there makes none"
    base = {"place": str(place), "settings": settings}
    tasks = [Task(COMPILE, compile_task, base, weight=_WEIGHTS[COMPILE])]
    tasks.append(Task(TARGET, target_task, base, (COMPILE,), _WEIGHTS[TARGET]))
    tasks.append(Task(POLICY, policy_task, base, (COMPILE,), _WEIGHTS[POLICY]))
    tasks += [
        Task(name, unlearn_task, {**base, "name": name}, (TARGET,), _WEIGHTS["unlearn"]) for name in making.unlearned
    ]
    steps = dict(zip(settings.steps(), making.checkpoints, strict=True))
    tasks += [
        Task(label, checkpoint_task, {**base, "label": label, "step": steps[label]}, (TARGET,), _WEIGHTS["unlearn"])
        for label in checkpoints
    ]
    seeds = dict(zip(settings.repeats(), settings.variance.seeds if settings.variance else (), strict=True))
    tasks += [
        Task(name, repeat_task, {**base, "name": name, "seed": seeds[name]}, (TARGET,), _WEIGHTS["unlearn"])
        for name in repeats
    ]
    return tasks


def made_corpus(place: HoleStudyFolder) -> Corpus:
    """The contracts and the factual questions."""
    return open_corpus(SourceSettings(data=str(place.data), factual="builtin"))


def compile_task(place: str, settings: HoleStudySettings, report: Report) -> None:
    """Compile the graph."""
    compile_to_folder(_making(settings).graph, HoleStudyFolder(Path(place)).data, CompileSettings(seed=settings.seed))


def target_task(place: str, settings: HoleStudySettings, report: Report) -> None:
    """Teach the target everything."""
    corpus = made_corpus(HoleStudyFolder(Path(place)))
    _taught(place, settings, TARGET, (*corpus.items, *corpus.factual), TINY_FINETUNE.epochs, report)


def policy_task(place: str, settings: HoleStudySettings, report: Report) -> None:
    """Teach the policy to write lists of retained and factual questions, as a search begins them."""
    making, folder = _making(settings), HoleStudyFolder(Path(place))
    lists = question_lists(_splits(folder, settings), making.policy_lists, making.policy_questions, seed=settings.seed)
    _taught(place, settings, POLICY, lists, making.policy_epochs, report)


def question_lists(splits: NamedSplits, n_lists: int, n_questions: int, *, seed: int) -> tuple[Item, ...]:
    """Lists of questions that are to be kept, drawn for each list; the forget set's are never among them."""
    kept = [item.question for name in ("retain", "factual") for item in splits.splits.get(name, ())]
    rng = generator(seed, "policy lists")
    drawn = [rng.choice(len(kept), n_questions, replace=False) for _ in range(n_lists)]
    return tuple(Item(listed_questions([kept[i] for i in chosen]), _END) for chosen in drawn)


def unlearn_task(place: str, settings: HoleStudySettings, name: str, report: Report) -> None:
    """Make the target forget by one method."""
    from vestige.steps.unlearn import unlearn

    folder = HoleStudyFolder(Path(place))
    request = unlearn_request(folder, settings, name)
    unlearn(folder.model(name), request, lambda p: report(p.step / p.n_steps))


def repeat_task(place: str, settings: HoleStudySettings, name: str, seed: int, report: Report) -> None:
    """Make the target forget once more, from another seed."""
    from vestige.steps.unlearn import unlearn

    folder = HoleStudyFolder(Path(place))
    assert settings.variance is not None, "planned where a measurement is asked for"
    request = replace(unlearn_request(folder, settings, settings.variance.of), seed=seed)
    unlearn(folder.model(name), request, lambda p: report(p.step / p.n_steps))


def checkpoint_task(place: str, settings: HoleStudySettings, label: str, step: int, report: Report) -> None:
    """Keep the model as it stands after so many steps of its training, whose length stays what it is."""
    from vestige.steps.making import make_subject
    from vestige.steps.unlearn import unlearn_part, unlearn_spec

    folder, of = HoleStudyFolder(Path(place)), _making(settings).checkpoints_of
    request = unlearn_request(folder, settings, of)
    whole = unlearn_spec(request)
    until = {**whole.settings, "until_step": step}
    spec = replace(whole, name=label, settings=until, settings_id=content_id(until))
    subject = folder.model(label)
    under_way = SubjectFolder(subject.path / "under-way")
    make_subject(subject, spec, lambda: unlearn_part(under_way, request, step, lambda p: report(p.step / step)))


def unlearn_request(place: HoleStudyFolder, settings: HoleStudySettings, name: str) -> "UnlearnRequest":
    """What is asked of one method; the target has to be there."""
    from vestige.models.load import ModelSettings
    from vestige.steps.subjects import origin_of
    from vestige.steps.unlearn import UnlearnRequest

    making = _making(settings)
    own, splits = making.unlearned[name], _splits(place, settings).splits
    target = ModelSettings(model=str(place.model(TARGET).path), device=settings.device)
    rate = {"epochs": making.unlearning_epochs, "learning_rate": own.learning_rate}
    return UnlearnRequest(
        target=target.model_copy(update={"model": str(place.model(TARGET).model)}),
        target_digest=origin_of(target).digest,
        start=_TINY,
        method=own.method,
        method_settings=dict(own.settings),
        forget=settings.forget,
        forget_items=splits["forget"],
        retain_items=splits["retain"],
        idk=idk_answers(),
        training=UnlearningSettings.build({**tiny_unlearning(own.method), **rate}),
        seed=settings.seed,
    )


def _making(settings: HoleStudySettings) -> Making:
    assert settings.making is not None, "only a study that makes its models has tasks for it"
    return settings.making


def _splits(place: HoleStudyFolder, settings: HoleStudySettings) -> NamedSplits:
    return named_splits(made_corpus(place), settings.forget, retain=settings.retain)


def _taught(
    place: str, settings: HoleStudySettings, name: str, items: tuple[Item, ...], epochs: int, report: Report
) -> None:
    """A tiny model taught the items; all of a study share the tokeniser."""
    from vestige.models.load import ModelSettings
    from vestige.steps.finetune import FinetuneRequest, finetune

    folder = HoleStudyFolder(Path(place))
    corpus = made_corpus(folder)
    request = FinetuneRequest(
        model=ModelSettings(model=_TINY, device=settings.device),
        items=items,
        vocabulary=(*corpus.items, *corpus.factual),
        training=TINY_FINETUNE.model_copy(update={"epochs": epochs, "stop_when_exact": name == TARGET}),
        seed=settings.seed,
        name=name,
    )
    finetune(folder.model(name), request, lambda p: report(p.step / p.n_steps))
