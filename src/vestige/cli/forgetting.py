"""From the words that commands about forgetting share to what is asked of an unlearning."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.cli.asked import settings_from, split_method_settings
from vestige.cli.data_words import forgotten_by, say_notes
from vestige.core.errors import InputError
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus, NamedSplits, SourceSettings
    from vestige.models.load import ModelSettings
    from vestige.steps.controls import Recipe
    from vestige.steps.unlearn import UnlearnRequest


@dataclass(frozen=True)
class ForgetWords:
    """What was typed: method, forget set, items to keep, answers that decline to know, settings, seed.

    `base` is the model that a method which trains from the start begins with, where the target does not say so itself.
    """

    method: str
    forget: str
    retain: str | None
    reference: str | None
    idk: Path | None
    config: Path | None
    assignments: Sequence[str] | None
    seed: int
    base: str | None = None


@dataclass(frozen=True)
class Asked:
    """An unlearning, and the splits of its forget set."""

    unlearning: "UnlearnRequest"
    splits: "NamedSplits"


def asked_unlearning(
    target: "ModelSettings", source: "SourceSettings", words: ForgetWords, *, read: bool = True
) -> Asked:
    """What the words ask for; everything that can be wrong with them is said here, before anything is made.

    A model that began as `builtin:tiny` gets the settings that were found for it. With `read` False no weights are
    read, and what is asked for can be planned but not made.
    """
    from vestige.data.corpus import named_splits, open_corpus
    from vestige.data.factual import idk_answers, read_idk
    from vestige.methods import find_method
    from vestige.study.presets import tiny_unlearning
    from vestige.training.settings import UnlearningSettings

    find_method(words.method)
    own, others = split_method_settings(words.method, words.assignments)
    _refuse_anothers(words.method, others)
    corpus = open_corpus(source)
    before = forgotten_by(target.model)
    splits = say_notes(named_splits(corpus, words.forget, retain=words.retain, before=before))
    answers = idk_answers() if words.idk is None else read_idk(words.idk)

    from vestige.steps.subjects import origin_of
    from vestige.steps.unlearn import UnlearnRequest

    origin = origin_of(target, read=read)
    base = tiny_unlearning(words.method) if origin.model == "builtin:tiny" else {}
    recipe = _recipe(target, corpus, splits, words, others)
    frozen = None if words.reference is None else target.model_copy(update={"model": words.reference})
    unlearning = UnlearnRequest(
        target=target,
        target_digest=origin.digest,
        start=origin.model,
        method=words.method,
        method_settings=own,
        forget=splits.forget,
        forget_items=splits.splits["forget"],
        retain_items=splits.splits.get("retain", ()),
        idk=answers,
        training=UnlearningSettings()
        if recipe
        else settings_from(UnlearningSettings, words.config, others, defaults=base),
        seed=words.seed,
        reference=frozen,
        reference_digest="" if frozen is None else origin_of(frozen, read=read).digest,
        recipe=recipe,
        before=before,
    )
    return Asked(unlearning, splits)


def _refuse_anothers(method: str, assignments: Sequence[str]) -> None:
    """Say of a setting that carries another method's name whose it is."""
    from vestige.methods import METHODS, PRESETS

    for word in assignments:
        key = word.partition("=")[0].strip()
        owner = key.rpartition(".")[0]
        if owner in METHODS or owner in PRESETS:
            raise InputError(f"--set {one_line(key)} is a setting of {owner}, and the method is {method}; leave it out")


def rate_in_words(asked: "UnlearnRequest") -> str:
    """What is done, at which learning rate, and how to find one where nobody chose it for this model."""
    from vestige.methods import find_method
    from vestige.training.settings import UnlearningSettings

    what = f"unlearning by {asked.method}"
    if not find_method(asked.method).needs.splits:
        return f"{what}: nothing is trained"
    if asked.recipe is not None:
        return f"{what}: learning rate {asked.recipe.request.training.learning_rate:g}"
    rate = asked.training.learning_rate
    if rate != UnlearningSettings().learning_rate:
        return f"{what}: learning rate {rate:g}"
    return (
        f"{what}: learning rate {rate:g}, which is PISTOL's for LoRA on models of 7B; `vestige calibrate` finds one "
        "for this model"
    )


def _recipe(
    target: "ModelSettings", corpus: "Corpus", splits: "NamedSplits", words: ForgetWords, others: Sequence[str]
) -> "Recipe | None":
    """For a method that trains from the start, how: as the target was trained, or with --base by the settings given."""
    from vestige.methods import find_method
    from vestige.methods.base import FromStart
    from vestige.steps.controls import recipe_from, recipe_without
    from vestige.study.presets import TINY_FINETUNE
    from vestige.training.settings import TrainingSettings

    method = find_method(words.method)
    if not isinstance(method, FromStart):
        if words.base is not None:
            raise InputError(f"--base goes with a method that trains from the start, and {words.method} does not")
        return None
    if words.base is None:
        if others or words.config is not None:
            raise InputError(
                f"{words.method} trains as the target was trained, so its settings are the target's; leave --set and "
                "--config out, or name the model to begin with by --base"
            )
        return recipe_without(target, corpus, splits)
    own = TINY_FINETUNE.identity() if words.base == "builtin:tiny" else {}
    training = settings_from(TrainingSettings, words.config, others, defaults=own)
    base = target.model_copy(update={"model": words.base})
    return recipe_from(base, training, corpus, splits, seed=words.seed)
