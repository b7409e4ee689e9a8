"""Resolve names and values to questions and settings. Nothing here loads torch."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from pydantic import Field, PositiveInt
from pydantic_core import to_jsonable_python

from vestige.artifacts.records import forgotten_by
from vestige.attacks import ATTACKS, known_attacks
from vestige.auditing.settings import QUICK, AuditSettings, Bits, Material, check_quick
from vestige.core.errors import InputError
from vestige.core.items import FormName
from vestige.core.seeds import generator
from vestige.core.settings import Settings
from vestige.core.text import Fields, Record, TextTuple, closest, one_line
from vestige.data.corpus import (
    Corpus,
    NamedSplits,
    items_of,
    named_splits,
    refuse_not_found,
    refuse_nothing_kept,
    undivided,
    without,
)
from vestige.evals import find_eval
from vestige.evals.base import Evaluation
from vestige.metrics.verdicts import Thresholds
from vestige.training.settings import TrainingSettings, UnlearningSettings

if TYPE_CHECKING:
    from vestige.attacks.planning import AttackSettings

Evals: TypeAlias = Sequence[str | Evaluation] | Mapping[str, Record]
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
"""The training of builtin:tiny, by which it learns sample dataset 1 and the factual questions completely."""
TINY_RATES = {"ga": 3e-5, "gd": 5e-5, "kl": 5e-5, "idk_gd": 1e-4, "dpo": 1e-4, "rr": 4e-3}
"""Learning rates of builtin:tiny for one contract of 20 questions and 20 epochs, one a method."""
DEMO_RATES = {"ga": 5e-5, "gd": 5e-5, "kl": 5e-5, "idk_gd": 1e-4, "dpo": 2e-4}
"""The learning rates for the demo's three contracts and 6 epochs."""

PISTOL_METHODS = ("ga", "gd", "kl", "dpo")
"""The four methods that PISTOL compares (2406.16810, section 5.3)."""

TINY_AUDIT = AuditSettings(
    evals=("qa", "choices", "freeform", "memory", "inside"),
    # Prefilled answers recover 7 % of the positive control's knowledge, and by luck up to 25 % for retrained models:
    # five controls cannot bound that, so the form would only leave "not recoverable" open.
    forms=("plain", "sampled"),
    relearn=("retain", "forget_part"),
    relearn_items=(30,),
    relearn_epochs=1,
    relearn_rate=2e-4,
    relearn_rank=0,
    relearn_rates=(),
    quantize=(4,),
    ablate=(),
    in_context=(),
    options=6,
    membership=("loss", "min_k", "zlib"),
    max_new_tokens=32,
)
"""The demo's audit of the tiny model: relearning trains all weights, for one epoch.

At this rate relearning does not damage the target's knowledge: of the knowledge that the positive control hides, 30
items of the forget set recover 0.70 [0.52, 0.93] in bits (at 5e-4 and 6 epochs 0.42, and at most 0.55 by retained
items).

Left out for time: relearning on related and unrelated items and on the forget set itself, facts before the question,
rounding to 8 bits, which changes nothing, and the reversed question. Useless here: other wordings, examples before the
question and statements with a gap, which the target was not trained to read, and the membership scores min_k_plus and
reference, which separate five controls so badly that no model could match them.
"""


class DemoSettings(Settings):
    """The data, forget sets, methods and audits of the demo.

    Each control is trained from its own seed. The names from `evals` on are audit settings. Without evals there is no
    audit.
    """

    graph: str = "sample1"
    """The graph to compile."""
    seed: int = 0
    """Seed of everything random."""
    forget: TextTuple = Field(default=("edge:A_B,edge:A_C,edge:A_C2,edge:B_D,edge:B_D2",), min_length=1)
    """Forget sets."""
    methods: TextTuple = Field(default=PISTOL_METHODS, min_length=1)
    """Methods to compare."""
    factual: bool = False
    """Add the built-in factual questions."""
    epochs: PositiveInt = TINY_FINETUNE.epochs
    """Epochs of fine-tuning."""
    controls: PositiveInt = 5
    """Models trained without each forget set."""
    reference: bool = True
    """Judge one more retrained model as if it had been unlearned: every claim should pass."""
    unlearning_epochs: PositiveInt = 6
    """Epochs of unlearning."""
    max_new_tokens: PositiveInt = TINY_AUDIT.max_new_tokens
    """Longest reply, in tokens."""
    evals: TextTuple = TINY_AUDIT.evals
    """Evaluations to run on every model."""
    forms: tuple[FormName, ...] = TINY_AUDIT.forms
    """Forms of free questions."""
    relearn: tuple[Material, ...] = TINY_AUDIT.relearn
    """The material of relearning."""
    relearn_items: tuple[PositiveInt, ...] = TINY_AUDIT.relearn_items
    """The number of items."""
    relearn_epochs: PositiveInt = TINY_AUDIT.relearn_epochs
    """Epochs of relearning."""
    quantize: tuple[Bits, ...] = TINY_AUDIT.quantize
    """The number of bits per weight after rounding. nf4 has its own 16 levels."""
    in_context: tuple[PositiveInt, ...] = TINY_AUDIT.in_context
    """The number of retained items to show before the question."""

    def audit(self) -> AuditSettings:
        """Return the audit's settings: the tiny model's, with the demo's changes."""
        changes = {name: value for name, value in self if name in AuditSettings.model_fields}
        return AuditSettings.build({**TINY_AUDIT.model_dump(), **changes})


SAMPLES = 7
"""The default number of forget items for a prompt search, from 2506.00688."""


def tiny_unlearning(method: str) -> UnlearningSettings:
    """The defaults of an unlearning of builtin:tiny: all weights are trained, at the rate of `TINY_RATES`."""
    if method in TINY_RATES:
        return UnlearningSettings(lora_rank=0, learning_rate=TINY_RATES[method])
    return UnlearningSettings(lora_rank=0)


def training_settings(model: str, training: TrainingSettings | None) -> TrainingSettings:
    """Return the training settings for a model that starts as `model`."""
    defaults = TrainingSettings()
    if model.startswith(TINY):
        defaults = TINY_FINETUNE
    return (training or TrainingSettings()).over(defaults)


def questions(
    corpus: Corpus, forget: str | None, retain: str | None = None, *, models: Iterable[str] = ()
) -> NamedSplits:
    """Return the items by split if `forget` is forgotten, without items that one of the models forgot before.

    Without `forget`, all items are one split.
    """
    if forget is not None:
        before = tuple(dict.fromkeys(chain.from_iterable(map(forgotten_by, models))))
        return named_splits(corpus, forget, retain=retain, before=before)
    if retain is not None:
        raise InputError("--retain needs a forget set. Add --forget")
    return undivided(corpus)


def fewer(corpus: Corpus, splits: NamedSplits, names: Sequence[str] | None, most: int | None) -> NamedSplits:
    """Limit the forget set and the named splits to `most` questions of each kind.

    `most` questions with a contract or person are drawn, and `most` without. The draw depends on the data alone, so
    that all models and forget sets share the same questions.
    """
    limited = dict(splits.splits)
    if names is not None:
        limited = {name: items for name, items in limited.items() if name == "forget" or name in names}
    if most is not None:
        chosen: set[str] = set()
        whole = (*corpus.items, *corpus.factual)
        for about_somebody in (True, False):
            candidates = [item for item in whole if (item.edge is not None) is about_somebody]
            order = generator(corpus.settings.split_seed, "asked", str(about_somebody)).permutation(len(candidates))
            chosen |= {candidates[place].id for place in order[:most].tolist()}
        for name, items in limited.items():
            if name != "forget":
                limited[name] = tuple(item for item in items if item.id in chosen)
    return replace(splits, splits={name: items for name, items in limited.items() if items})


def evaluations(evals: Evals, *, max_new_tokens: int | None = None) -> dict[str, Evaluation]:
    """The settings of each evaluation by its name.

    `max_new_tokens` goes to every evaluation with a setting of that name that does not set it itself.
    """
    if not evals:
        raise InputError("evals is empty. Choose from `vestige list evals`")
    found: dict[str, Evaluation] = {}
    for entry in evals:
        if isinstance(entry, Evaluation):
            found[entry.name] = entry
            continue
        kind = find_eval(entry)
        values: Fields = {}
        if max_new_tokens is not None and "max_new_tokens" in kind.model_fields:
            values["max_new_tokens"] = max_new_tokens
        if isinstance(evals, Mapping):
            values |= evals[entry]
        found[entry] = kind.build(values, where=f"settings of the evaluation {entry}")
    return found


def audit_settings(
    settings: AuditSettings | None,
    margins: Thresholds | None,
    *,
    attacks: "Sequence[AttackSettings | str] | None" = None,
    quick: bool = False,
    suppressed: bool = False,
) -> tuple[AuditSettings, TextTuple]:
    """Return the settings of an audit, and sentences on the limits of a quick audit.

    `attacks` replaces the default attacks. An attack given by name alone gets its settings from `settings` or the
    defaults.
    """
    current = settings or AuditSettings()
    if margins is not None:
        current = _with_margins(current, margins)
    chosen = [name for name in AuditSettings.model_fields if name in current.model_fields_set]
    if quick:
        explicit = [("--attacks", attacks), ("--suppressed", suppressed)]
        untested = check_quick([*chosen, *(option for option, value in explicit if value)])
        return current.over(AuditSettings.build(QUICK)), untested
    if attacks is None:
        return current, ()
    return _only(current, chosen, attacks), ()


def _with_margins(current: AuditSettings, margins: Thresholds) -> AuditSettings:
    """Return the settings with these margins and all other values unchanged."""
    return AuditSettings.build({**current.explicit(), **margins.explicit()}, where="settings of the audit")


def _only(built: AuditSettings, chosen: Collection[str], attacks: "Sequence[AttackSettings | str]") -> AuditSettings:
    """The settings with these attacks and no others."""
    names: list[str] = []
    lines: list[str] = []
    for attack in attacks:
        line = attack
        if not isinstance(line, str):
            line = attack_line(line)
        name, _, words = line.strip().partition(" ")
        name = name.replace("-", "_")
        if name not in known_attacks():
            raise InputError(f"--attacks names {one_line(name)!r}. {closest(name, list(known_attacks()))}")
        if words:
            lines.append(f"{name} {words}")
        else:
            names.append(name)
    counted = [name for name in ATTACKS if name in type(built).model_fields]
    # A setting of an attack that is not run would suggest that it was tried.
    unused = [name for name in chosen if name in counted and name not in names]
    unused += [f"--further {one_line(line)!r}" for line in built.further if line.split()[0] not in names]
    if unused:
        raise InputError(f"{unused[0]} is a setting of an attack that --attacks leaves out. Add the attack there")
    values, defaults = built.explicit(), dict(type(built)())
    for name in counted:
        size = getattr(built, name) or defaults[name] or (SAMPLES,)
        values[name] = size if name in names else ()
    started = [line.split()[0] for line in built.further]
    named = [name for name in names if name not in (*counted, *started)]
    return built.build({**values, "further": (*built.further, *named, *lines)}, where="settings of the audit")


def attack_line(attack: "AttackSettings") -> str:
    """Return an attack as `NAME KEY=VALUE ...`, its form in the settings of an audit."""
    words = [attack.kind]
    for name in sorted(attack.model_fields_set):
        value = json.dumps(to_jsonable_python(getattr(attack, name)), ensure_ascii=False, separators=(",", ":"))
        if " " in value:
            raise InputError(f"{attack.kind}: {name} = {one_line(value)} contains a blank. Give a value without blanks")
        words.append(f"{name}={value}")
    return " ".join(words)


def audit_questions(
    corpus: Corpus, forget: str, models: Iterable[str], retain: str | None = None, holdout: str | None = None
) -> NamedSplits:
    """Return the questions of an audit of `models`: one retain set for all, without items that any model forgot.

    `holdout` is a file of items outside all training data.
    """
    splits = questions(corpus, forget, retain, models=models)
    refuse_not_found(corpus, splits, retain)
    refuse_nothing_kept(corpus, splits)
    if holdout is None:
        return splits
    items = items_of(corpus, holdout)
    learnt = [*chain.from_iterable(rows for name, rows in splits.splits.items() if name != "holdout")]
    new = {item.id for item in without(items, learnt)}
    shared = next((item for item in items if item.id not in new), None)
    if shared is not None:
        raise InputError(
            f"the question {one_line(shared.question, width=60)!r} is in the holdout file and in another split. "
            "Remove it from the holdout file"
        )
    return replace(splits, splits={**splits.splits, "holdout": items})
