"""The trained check of a data set: what a model that never saw the forget set says after it was taught the retain set.

For each seed three models are asked the forget questions by the texts of their options (`option_text_mean`): the base,
the base taught the retain items, and the base taught unrelated items for as many steps. `data.soundness.gains` says
what follows. Questions about parties that nobody was told of are asked too: a gain that comes through the parties does
not survive there. Random splits of the same size show how common leaks are in this data.

Models are not kept. What stays of each are the options' log-probabilities (nats, a token's mean), one file a model in
`trained/`, named by everything that can change them. A training that was stopped goes on.
"""

import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vestige.artifacts.audits import SoundnessLine
from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.records import SCHEMA, read_versioned
from vestige.core.errors import InputError
from vestige.core.files import locked, write_json
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.core.seeds import derive_seed
from vestige.data.corpus import NamedSplits, without
from vestige.data.dataset import Dataset
from vestige.data.mcq import Choice
from vestige.data.soundness.checks import Material, material
from vestige.data.soundness.findings import Check
from vestige.data.soundness.gains import STRANGERS, Answers, Models, split_leaks, splits_check, taught_check
from vestige.data.soundness.random_splits import random_split
from vestige.data.soundness.settings import LEAST_ITEMS, SoundnessSettings
from vestige.data.soundness.strangers import with_strangers
from vestige.models.load import LoadedModel, ModelSettings
from vestige.models.options import score_options
from vestige.steps.finetune import FinetuneRequest, finetune_spec, starting_model, teach
from vestige.steps.making import LOCK_SECONDS
from vestige.training.settings import TrainingSettings

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


class TrainedFindings(NamedTuple):
    """The tested checks, the line about random splits, the numbers behind them, and what does not apply."""

    checks: tuple[Check, ...]
    lines: tuple[SoundnessLine, ...]
    figures: dict[str, float]
    left_out: tuple[str, ...]


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
        with locked(self.folder / "work" / f"{name}.lock", patience_seconds=LOCK_SECONDS):
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


@dataclass(frozen=True)
class Asked:
    """What is checked: the splits as they were asked for, what is read of them, and their graph if there is one."""

    splits: NamedSplits
    material: Material
    dataset: Dataset | None
    seed: int


def with_model(
    folder: Path, asked: Asked, trained: TrainedSettings, settings: SoundnessSettings, on_share: OnShare
) -> TrainedFindings:
    """The trained check of one split, and of random splits of its size."""
    found = asked.material
    bench = _bench(folder, found, trained)
    strangers = () if asked.dataset is None else with_strangers(found.asked, asked.dataset, asked.seed)
    strangers = strangers if len(strangers) >= LEAST_ITEMS else ()
    told = _told(on_share, 2 * trained.seeds + trained.splits)
    models = list(_of_each_seed(bench, found, (*found.asked, *strangers), asked.seed, told))
    n = len(found.asked)
    check, figures = taught_check(found.asked, [m.cut(0, n) for m in models], settings, asked.seed)
    checks, left_out, lines = [check], [], []
    if strangers:
        others = [m.cut(n, n + len(strangers)) for m in models]
        check, more = taught_check(strangers, others, settings, asked.seed, name=STRANGERS)
        checks.append(check)
        figures |= more
    else:
        left_out.append(f"{STRANGERS}: the data has no graph that says which names are those of parties")
    if trained.splits:
        p_values = list(_of_each_split(bench, asked, settings, told))
        line, more = splits_check(p_values, settings)
        lines.append(line)
        figures |= more
    shutil.rmtree(folder / "work", ignore_errors=True)
    return TrainedFindings(tuple(checks), tuple(lines), figures, tuple(left_out))


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


def _of_each_split(
    bench: Bench, asked: Asked, settings: SoundnessSettings, told: Callable[[str], None]
) -> Iterator[float]:
    """The p-value of each random split; the seed of its training is its own."""
    for number in range(bench.trained.splits):
        own = derive_seed(asked.seed, "soundness of a random split", number)
        drawn = material(random_split(asked.splits, seed=own), settings, seed=own)
        if len(drawn.asked) < LEAST_ITEMS:
            raise InputError(
                f"{len(drawn.asked)} items of a random split can be asked with options, and {LEAST_ITEMS} are needed; "
                "give the retain items wrong answers too, or take --splits 0"
            )
        base = bench.base(drawn.asked, own)
        taught = bench.taught(drawn.retain, bench.steps(drawn.retain), drawn.asked, own)
        told(f"random split {number + 1}")
        yield split_leaks(drawn.asked, Models(base, taught, base), settings, own)
