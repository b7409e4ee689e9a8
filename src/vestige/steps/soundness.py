"""The trained check of a data set: what a model that never saw the forget set says after it was taught the retain set.

For each seed three models are asked the forget questions by the texts of their options (`option_text_mean`): the base,
the base taught the retain items, and the base taught unrelated items for as many steps. `taught_check` says what
follows. Questions about parties that nobody was told of are asked too: a gain that comes through the parties does
not survive there. Random splits of the same size show how common leaks are in this data.

Models are not kept. What stays of each are the options' log-probabilities (nats, a token's mean), one file a model in
`trained/`, named by everything that can change them. A training that was stopped goes on.

Axes: K options of a question. Answers are log-probabilities in nats, the mean over an option's tokens; bits are log2 of
the right option's probability among the options.
"""

import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp
from scipy.stats import binom

from vestige.artifacts.audits import SoundnessLine
from vestige.artifacts.layout import SubjectFolder
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.core.files import locked, write_json
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.core.seeds import derive_seed, generator
from vestige.core.store import SCHEMA, read_versioned
from vestige.data.corpus import NamedSplits, without
from vestige.data.dataset import Dataset
from vestige.data.drawing import Names
from vestige.data.findings import (
    LEAST_ITEMS,
    Check,
    Outcome,
    SoundnessSettings,
    Values,
    above_own_options,
    by_guesser,
    edges_of,
    picks,
)
from vestige.data.mcq import Choice
from vestige.data.soundness import Material, material
from vestige.metrics.information import need_rate_distortion, relearning_generalization_index
from vestige.metrics.intervals import interval_of_mean, wilson
from vestige.models.load import LoadedModel, ModelSettings
from vestige.models.options import score_options
from vestige.steps.check_data import CheckRequest, Findings
from vestige.steps.finetune import FinetuneRequest, finetune_spec, starting_model, teach
from vestige.training.settings import TrainingSettings

TAUGHT = "retain-only training"
STRANGERS = "retain-only training, new names"
SPLITS = "random splits"

Answers = tuple[Values, ...]
"""Of each question the log-probabilities of its options."""


class Models(NamedTuple):
    """One seed's answers: of the base, of the base taught the retain items, and taught unrelated ones."""

    base: Answers
    taught: Answers
    other: Answers

    def cut(self, start: int, stop: int) -> "Models":
        """The answers to some of the questions."""
        return Models(self.base[start:stop], self.taught[start:stop], self.other[start:stop])


def taught_check(
    asked: Sequence[Choice], models: Sequence[Models], settings: SoundnessSettings, seed: int, *, name: str = TAUGHT
) -> tuple[Check, dict[str, float]]:
    """Whether teaching the retain set alone lifts the forget set, and the numbers behind it.

    The gain is the smaller of those over the base and over unrelated teaching, and its p-value the greater (an
    intersection-union test): a leak is what neither of them explains.
    """
    base, taught, other = ([m[kind] for m in models] for kind in range(3))
    over_base, over_other = (gain(taught, before, asked, settings, seed) for before in (base, other))
    least = min(over_base, over_other, key=lambda t: t.effect.value)
    before, after, control = (accuracy(asked, answers) for answers in (base, taught, other))
    bits = _bits(asked, base, taught, seed)
    figures = {
        "accuracy of the base": before,
        "accuracy after retain-only training": after,
        "accuracy after unrelated training": control,
        "p over the base": over_base.p,
        "p over unrelated training": over_other.p,
        "bits an answer over the base": bits.value,
    }
    ends = {"low": bits.low, "high": bits.high}
    figures |= {f"bits an answer over the base, {name}": x for name, x in ends.items() if math.isfinite(x)}
    for number, one in enumerate(models, 1):
        single = accuracy(asked, [one.taught]) - accuracy(asked, [one.base])
        figures[f"gain over the base, seed {number}"] = single
    index = ""
    if before < 1:
        figures["RGI"] = relearning_generalization_index(before, after)
        index = f", RGI {figures['RGI']:.2f}"
    said = (
        f"{after:.2f} of the questions right after teaching the retain set, {before:.2f} before and {control:.2f} "
        f"after unrelated teaching ({len(models)} seeds{index}, bits an answer over the base: {bits.said()}), the "
        "smaller gain counted as"
    )
    check = by_guesser(name, said, asked, least._replace(p=max(over_base.p, over_other.p)))
    return check, {f"{name}/{key}": value for key, value in figures.items()}


def gain(
    after: Sequence[Answers], before: Sequence[Answers], asked: Sequence[Choice], settings: SoundnessSettings, seed: int
) -> Outcome:
    """The gain in shares of the pick, mean over models, tested against the item's own other options.

    Its accuracy is chance and the gain, as a guesser of that gain would have it.
    """
    values = [
        np.mean([picks(a[n]) - picks(b[n]) for a, b in zip(after, before, strict=True)], axis=0)
        for n in range(len(asked))
    ]
    right, edges = [c.answer for c in asked], edges_of(asked)
    found = above_own_options(values, right, edges, seed=seed, draws=settings.permutations)
    chance = float(np.mean([1 / len(c.options) for c in asked]))
    level = min(1.0, max(0.0, chance + found.effect.value))
    bits = need_rate_distortion(1, level, round(float(np.median([len(c.options) for c in asked]))))
    return found._replace(accuracy=level, chance=chance, bits=bits)


def accuracy(asked: Sequence[Choice], models: Sequence[Answers]) -> float:
    """The right options' share of the pick, mean over questions and models."""
    return float(np.mean([picks(m[n])[c.answer] for m in models for n, c in enumerate(asked)]))


def _bits(asked: Sequence[Choice], base: Sequence[Answers], taught: Sequence[Answers], seed: int) -> Estimate:
    """By how many bits the right option's probability among the options rose, mean over models."""

    def level(models: Sequence[Answers]) -> Values:
        return np.array(
            [np.mean([m[n][c.answer] - logsumexp(m[n]) for m in models]) for n, c in enumerate(asked)]
        ) / math.log(2)

    rise = level(taught) - level(base)
    low, high, said = interval_of_mean(rise, clusters=edges_of(asked), bounds=None, seed=seed)
    value = float(rise.mean())
    return Estimate("bits over the base", "bits", value, min(low, value), max(high, value), len(asked), said)


def splits_check(p_values: Sequence[float], settings: SoundnessSettings) -> tuple[SoundnessLine, dict[str, float]]:
    """How many random splits of the same size leak, one training each; chance alone has a share `alpha` of them."""
    n, hits = len(p_values), sum(p < settings.alpha for p in p_values)
    low, high, method = wilson(hits, n)
    effect = Estimate("share of random splits that leak", "share", hits / n, low, high, n, method)
    p = float(binom.sf(hits - 1, n, settings.alpha))
    said = (
        f"retain-only training of one seed lifts {hits} of {n} random splits of the same size (p < {settings.alpha}, "
        f"each on its own), where chance lifts {settings.alpha * n:.1f}; p = {p:.2g}"
    )
    return SoundnessLine(SPLITS, p >= settings.alpha, effect, p, said), {f"{SPLITS}/share that leak": hits / n}


def random_split(splits: NamedSplits, *, seed: int) -> NamedSplits:
    """As many items to forget as before, drawn from both splits: whole edges, where all items have one, until reached.

    Other splits and scopes stay behind, since they belong to the forget set that was asked for.
    """
    forget, retain = splits.splits["forget"], splits.splits["retain"]
    items = (*forget, *retain)
    edges = [i.edge if i.edge is not None else i.id for i in items]
    groups = edges if all(i.edge is not None for i in items) else [i.id for i in items]
    sizes = Counter(groups)
    names = sorted(sizes)
    chosen: set[str] = set()
    n = 0
    for place in generator(seed, "random split").permutation(len(names)).tolist():
        if n >= len(forget):
            break
        chosen.add(names[place])
        n += sizes[names[place]]
    picked = [group in chosen for group in groups]
    parts = {
        "forget": tuple(i for i, taken in zip(items, picked, strict=True) if taken),
        "retain": tuple(i for i, taken in zip(items, picked, strict=True) if not taken),
    }
    return NamedSplits(f"random split of {splits.forget}, seed {seed}", parts, {})


def with_strangers(choices: Sequence[Choice], dataset: Dataset, seed: int) -> tuple[Choice, ...]:
    """The choices whose questions name a party, with a new party of the same kind in its place; options stay.

    Two names never become one, and no new name is one of the data's.
    """
    parties = _parties(dataset)
    names = sorted({name for c in choices for name in parties if name in c.question})
    new = _new_names(names, parties, seed)
    # Longer names first, so that a name inside another one is left whole.
    ordered = sorted(names, key=lambda n: (-len(n), n))
    swapped = []
    for choice in choices:
        question = choice.question
        for name in ordered:
            question = question.replace(name, new[name])
        if question != choice.question:
            swapped.append(replace(choice, question=question))
    return tuple(swapped)


def _parties(dataset: Dataset) -> dict[str, str]:
    """The kind (company, person) of every name that signs a contract."""
    found = {}
    for contract in dataset.contracts:
        type_ = dataset.types[contract.type]
        for role, kind in zip(type_.roles, type_.kinds, strict=True):
            found[contract.values[type_.name_of[role]]] = str(kind)
    return found


def _new_names(names: Sequence[str], parties: dict[str, str], seed: int) -> dict[str, str]:
    drawn = Names(derive_seed(seed, "strangers"))
    new: dict[str, str] = {}
    for kind in sorted({parties[n] for n in names}):
        wanted = [n for n in names if parties[n] == kind]
        pool = drawn.of_kind(kind, np.arange(2 * len(parties) + len(wanted)))
        free = [n for n in pool if n not in parties]
        new |= dict(zip(wanted, free, strict=False))
    return new


VERSION = 1
"""Raised when the same identity would come out as other log-probabilities."""

OnShare = Callable[[float, str], None]


@dataclass(frozen=True)
class TrainedSettings:
    """How the trained check is made.

    `training` is that of every model; none stops before its last step, so that all are trained alike. `unrelated` items
    are the control's. `seeds` trainings of each kind, and one of each of `splits` random splits.
    """

    model: ModelSettings
    training: TrainingSettings
    unrelated: tuple[Item, ...]
    seeds: int = 3
    splits: int = 20

    def identity(self) -> dict[str, Any]:
        """The settings as JSON values."""
        return {
            "model": self.model.identity(),
            "training": self.training.identity(),
            "unrelated": content_id([i.id for i in self.unrelated], length=32),
            "seeds": self.seeds,
            "splits": self.splits,
        }


@dataclass(frozen=True)
class Bench:
    """Where results lie, how models are made, and the items that all of their tokenisers are made of."""

    folder: Path
    trained: TrainedSettings
    vocabulary: tuple[Item, ...]

    def steps(self, items: Sequence[Item]) -> int:
        """The steps of the epochs that are asked for."""
        training = self.trained.training
        whole = training.epochs * math.ceil(len(items) / training.batch_size)
        return whole if training.max_steps is None else min(whole, training.max_steps)

    def base(self, questions: Sequence[Choice], seed: int) -> Answers:
        """What the base says."""
        return self._answers(None, questions, seed)

    def taught(self, items: tuple[Item, ...], steps: int, questions: Sequence[Choice], seed: int) -> Answers:
        """What the base says after `steps` steps on the items."""
        training = self.trained.training
        epochs = math.ceil(steps / math.ceil(len(items) / training.batch_size))
        given = training.model_copy(update={"epochs": epochs, "max_steps": steps, "stop_when_exact": False})
        request = FinetuneRequest(self.trained.model, items, self.vocabulary, given, seed, "retrained", "taught")
        return self._answers(request, questions, seed)

    def _answers(self, request: FinetuneRequest | None, questions: Sequence[Choice], seed: int) -> Answers:
        start = starting_model(self.trained.model, self.vocabulary, seed)
        digest = start.digest().id
        identity = {
            "version": VERSION,
            "base": digest,
            "dtype": self.trained.model.dtype,
            "taught": "" if request is None else finetune_spec(request, digest).id,
            "questions": [c.id for c in questions],
        }
        name = f"{'base' if request is None else 'taught'}-{content_id(identity)}"
        path = self.folder / "trained" / f"{name}.json"
        work = SubjectFolder(self.folder / "work" / name)
        with locked(self.folder / "work" / f"{name}.lock"):
            if not path.exists():
                if request is not None:
                    teach(work, request, start, lambda _: None)
                write_json(path, {"schema": SCHEMA, **identity, "logp": ask(start, questions)})
            shutil.rmtree(work.path, ignore_errors=True)
        return tuple(np.array(values) for values in read_versioned(path, "logp")["logp"])


def ask(loaded: LoadedModel, questions: Sequence[Choice]) -> list[list[float]]:
    """Of each option the log-probability of its text after the question, the mean over its tokens."""
    encoded = [[loaded.prompter.encode(c.question, option) for option in c.options] for c in questions]
    return [[sum(s.logp) / len(s.logp) for s in scores] for scores in score_options(loaded.model, encoded)]


def with_model(
    folder: Path, asked: CheckRequest, trained: TrainedSettings, found: Material, on_share: OnShare
) -> Findings:
    """The trained check of the splits that are asked for, and of random splits of their size."""
    bench = _bench(folder, found, trained)
    strangers = () if asked.dataset is None else with_strangers(found.asked, asked.dataset, asked.seed)
    strangers = strangers if len(strangers) >= LEAST_ITEMS else ()
    told = _told(on_share, 2 * trained.seeds + trained.splits)
    models = list(_of_each_seed(bench, found, (*found.asked, *strangers), asked.seed, told))
    n = len(found.asked)
    check, figures = taught_check(found.asked, [m.cut(0, n) for m in models], asked.settings, asked.seed)
    checks, left_out, lines = [check], [], []
    if strangers:
        others = [m.cut(n, n + len(strangers)) for m in models]
        check, more = taught_check(strangers, others, asked.settings, asked.seed, name=STRANGERS)
        checks.append(check)
        figures |= more
    else:
        left_out.append(f"{STRANGERS}: the data has no graph that says which names are those of parties")
    if trained.splits:
        line, more = splits_check(list(_of_each_split(bench, asked, told)), asked.settings)
        lines.append(line)
        figures |= more
    shutil.rmtree(folder / "work", ignore_errors=True)
    return Findings(found, tuple(checks), tuple(lines), figures, tuple(left_out))


def _bench(folder: Path, found: Material, trained: TrainedSettings) -> Bench:
    if len(found.asked) < LEAST_ITEMS:
        raise InputError(
            f"{len(found.asked)} forget items can be asked with options, and a trained check needs {LEAST_ITEMS}: an "
            f"item {found.unasked or 'has none'}; give the items wrong answers (perturbed_answer), or leave --model out"
        )
    if trained.seeds < 1:
        raise InputError(f"seeds = {trained.seeds}: a trained check needs one training at least")
    both = len(without(trained.unrelated, (*found.forget, *found.retain))) < len(trained.unrelated)
    if both or not trained.unrelated:
        what = "ask what the data asks" if both else "are missing"
        raise InputError(f"the unrelated items of the control {what}; name others with --unrelated")
    # In the order of ids, so that every split of the same items has the same tokeniser and the same base.
    known = {i.id: i for i in (*found.forget, *found.retain, *trained.unrelated)}
    return Bench(folder, trained, tuple(known[i] for i in sorted(known)))


def _told(on_share: OnShare, n: int) -> Callable[[str], None]:
    numbers = iter(range(1, n + 1))
    return lambda note: on_share(next(numbers) / n, note)


def _of_each_seed(
    bench: Bench, found: Material, questions: Sequence[Choice], seed: int, told: Callable[[str], None]
) -> Iterator[Models]:
    steps = bench.steps(found.retain)
    for number in range(bench.trained.seeds):
        own = derive_seed(seed, "soundness", number)
        base = bench.base(questions, own)
        taught = bench.taught(found.retain, steps, questions, own)
        told(f"seed {number + 1}: retain set taught")
        other = bench.taught(bench.trained.unrelated, steps, questions, own)
        told(f"seed {number + 1}: unrelated items taught")
        yield Models(base, taught, other)


def _of_each_split(bench: Bench, asked: CheckRequest, told: Callable[[str], None]) -> Iterator[float]:
    """The p-value of each random split; the seed of its training is its own."""
    for number in range(bench.trained.splits):
        own = derive_seed(asked.seed, "soundness of a random split", number)
        drawn = material(random_split(asked.splits, seed=own), asked.settings, seed=own)
        if len(drawn.asked) < LEAST_ITEMS:
            raise InputError(
                f"{len(drawn.asked)} items of a random split can be asked with options, and {LEAST_ITEMS} are needed; "
                "give the retain items wrong answers too, or take --splits 0"
            )
        base = bench.base(drawn.asked, own)
        taught = bench.taught(drawn.retain, bench.steps(drawn.retain), drawn.asked, own)
        told(f"random split {number + 1}")
        yield gain([taught], [base], drawn.asked, asked.settings, own).p
