"""One table of scores, a row for each answer of a model to a question, becomes a run that is judged as any other.

Whoever asked the models, in whatever language, brings the scores; the same plan, judgement and files come of them as of
an audit's own answers, so that a verdict can be given again at other margins. docs/logs.md says what each column holds.
Shares lie in [0, 1], bits are log2 of the answer's probability, and of an `order` only larger and smaller counts.
"""

import math
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from vestige.artifacts.audits import AskedPlace, AuditOutcome, AuditPlan, Format, PlannedAttack, write_plan
from vestige.artifacts.layout import RunFolder, SubjectFolder
from vestige.artifacts.records import SubjectSpec, Summary, write_collected, write_scores, write_spec, write_summary
from vestige.auditing.formats import FORMATS
from vestige.auditing.gather import GIVEN
from vestige.auditing.ground import BITS_KEY
from vestige.auditing.measures import kept_key
from vestige.auditing.membership import PREFIX
from vestige.auditing.run import judge_plan
from vestige.auditing.settings import AuditSettings
from vestige.core.errors import InputError
from vestige.core.files import locked, write_json, write_jsonl, write_text
from vestige.core.ids import content_id, slug
from vestige.core.items import ForgetSet
from vestige.core.settings import read_toml, to_toml
from vestige.core.store import SCHEMA
from vestige.core.text import closest, one_line
from vestige.data.tables import read_table
from vestige.metrics.verdicts import Thresholds

VERSION = 1
"""Of how a table becomes item scores."""
COMMAND = "judge"
"""What run.toml names a run of scores by."""
EVAL = "table"
"""What the evaluation is called whose scores a table brings."""

COLUMNS: Mapping[str, str] = {
    "model": "the name of the model",
    "role": "target, retrained, unlearned, or placebo (a model that surely still knows)",
    "split": "forget (the default), retain, independent, factual, or holdout",
    "item": "the id of the question",
    "fact": "the id of the fact that it asks for, where several questions ask for one",
    "wording": "which wording of the question this is, where `item` names the fact",
    "format": "how it was asked and scored; `score` by default",
    "attack": "the attack after which it was asked; empty: the model as it is",
    "score": "a number",
    "unit": "share (in [0, 1], the default), bits (log2 of the answer's probability), or order (membership)",
    "chance": "what guessing scores on this question, in the unit of the score",
    "group": "the contract, person or other group that the fact belongs to",
    "question": "the text that was asked, to be shown",
    "answer": "the true answer, to be shown",
    "reply": "what the model said, to be shown",
}
"""The columns of a table of scores; all but model, role, item and score may be left out."""
NEEDED = ("model", "role", "item", "score")
SPLITS = ("forget", "retain", "independent", "factual", "holdout")
UNITS = ("share", "bits", "order")
ROLES: Mapping[str, str] = {
    "target": "target",
    "retrained": "retrained",
    "unlearned": "unlearned",
    "placebo": "suppressed",
}
"""The roles of a table, and what they are called in a run."""
UNSEEN = (
    "The weights of no model were seen, only scores: that each model is what it is called, that all were asked alike, "
    "and that the retrained models never saw the forget set, is as whoever made the scores says."
)
NOTHING_ASKED: Mapping[str, Any] = {
    "evals": (),
    "forms": (),
    "relearn": (),
    "quantize": (),
    "in_context": (),
    "suppress": False,
}
"""Of the settings of an audit those that ask and attack models, which a table takes the place of."""
_OWN = {form.name: form for form in FORMATS}


class Scored(NamedTuple):
    """One row: what one model scored on one question, and where that stands."""

    model: str
    role: str
    item: str
    score: float
    split: str = "forget"
    fact: str = ""
    format: str = "score"
    attack: str = ""
    unit: str = "share"
    chance: float | None = None
    group: str = ""
    question: str = ""
    answer: str = ""
    reply: str = ""


@dataclass
class _Read:
    """What the rows say, gathered: values by model, attack, key and item; texts by model, attack and item."""

    values: dict[tuple[str, str], dict[str, dict[str, float]]] = field(default_factory=dict)
    texts: dict[tuple[str, str], dict[str, dict[str, str]]] = field(default_factory=lambda: defaultdict(dict))
    roles: dict[str, str] = field(default_factory=dict)
    splits: dict[str, str] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    chances: set[str] = field(default_factory=set)
    about: dict[str, dict[str, str]] = field(default_factory=lambda: {"fact": {}, "group": {}, "question": {}})


def read_scores(table: Any) -> list[Scored]:
    """The rows of a table: a file, a list of mappings, or what Arrow reads as a table, such as a DataFrame."""
    if isinstance(table, str | PathLike):
        read = read_table(Path(table))
        placed = [(f"{read.source}, {row.place}", row.values) for row in read.rows]
    elif isinstance(table, Sequence) and all(isinstance(row, Mapping) for row in table):
        placed = [(f"row {n}", row) for n, row in enumerate(table, 1)]
    else:
        try:
            rows = pa.table(table).to_pylist()
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InputError(
                f"the table is {type(table).__name__}, which is none ({one_line(str(error), width=200)}); give a file, "
                "a list of dicts, or a DataFrame"
            ) from error
        placed = [(f"row {n}", row) for n, row in enumerate(rows, 1)]
    if not placed:
        raise InputError("the table of scores holds no rows")
    return [_scored(place, row) for place, row in placed]


def _scored(place: str, row: Mapping[str, Any]) -> Scored:
    unknown = next((name for name in row if name not in COLUMNS), None)
    if unknown is not None:
        hint = closest(str(unknown), list(COLUMNS))
        raise InputError(f"{place}: no column of a table of scores is called {one_line(str(unknown))!r}; {hint}")
    text = {name: _text(place, name, row.get(name)) for name in COLUMNS if name not in ("score", "chance")}
    for name in NEEDED:
        if row.get(name) in (None, ""):
            raise InputError(f"{place}: the column {name} is empty, and it needs {COLUMNS[name]}")
    wording = text.pop("wording")
    text["fact"] = text["fact"] or (text["item"] if wording else "")
    text["item"] = f"{text['item']} ({wording})" if wording else text["item"]
    for name in ("split", "format", "unit"):
        text[name] = text[name] or str(Scored._field_defaults[name])
    chance = None if row.get("chance") in (None, "") else _number(place, "chance", row["chance"])
    return Scored(**text, score=_number(place, "score", row["score"]), chance=chance)


def _text(place: str, name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, str | int | float):
        return str(value)
    raise InputError(f"{place}: the column {name} holds {type(value).__name__}, and it needs {COLUMNS[name]}")


def _number(place: str, name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(
            f"{place}: the column {name} holds {one_line(repr(value))}, which is no number; leave such "
            "rows out if the question was not answered, and say so"
        )
    return number


def _gathered(rows: Iterable[Scored]) -> _Read:
    """The rows by model, key and item; what contradicts itself is refused by name."""
    read = _Read()
    for row in rows:
        _check(read, row)
        key = _key(row)
        table = read.values.setdefault((row.model, row.attack), {}).setdefault(key, {})
        if row.item in table:
            raise InputError(f"{_where(row)} has two scores; give one, or tell the questions apart by `wording`")
        table[row.item] = row.score
        if row.chance is not None:
            read.chances.add(row.format)
            read.values[row.model, row.attack].setdefault(_chance_key(row.format), {})[row.item] = row.chance
        texts = {name: text for name in ("question", "answer", "reply") if (text := getattr(row, name))}
        if texts:
            read.texts[row.model, row.attack].setdefault(row.item, {}).update(texts)
    return read


def _check(read: _Read, row: Scored) -> None:
    for column, value, allowed in (("role", row.role, ROLES), ("split", row.split, SPLITS), ("unit", row.unit, UNITS)):
        if value not in allowed:
            words = ", ".join(allowed)
            raise InputError(f"{_where(row)}: the {column} {one_line(value)!r} is not one; they are {words}")
    before = {
        "role": (read.roles.setdefault(row.model, row.role), row.role),
        "split": (read.splits.setdefault(row.item, row.split), row.split),
        **{
            column: (texts.setdefault(row.item, value), value)
            for column, texts in read.about.items()
            if (value := getattr(row, column))
        },
    }
    for column, (first, value) in before.items():
        if first != value:
            raise InputError(
                f"{_where(row)}: the {column} is {one_line(value)!r} here and {one_line(first)!r} in another row; one "
                "model has one role, and one item is one question"
            )
    # Bits of forced answers stand beside their probabilities.
    name = f"{row.format}, bits" if (row.format, row.unit) == ("forced", "bits") else row.format
    unit = read.units.setdefault(name, row.unit)
    if unit != row.unit:
        raise InputError(
            f"{_where(row)}: the format is scored in {row.unit} here and in {unit} elsewhere; give each unit a format "
            "of its own"
        )
    _check_values(row)


def _check_values(row: Scored) -> None:
    if row.unit == "bits" and row.format != "forced":
        raise InputError(f"{_where(row)}: bits are those of the true answer, in the format forced; call it that")
    for name, value in (("score", row.score), ("chance", row.chance)):
        if value is None:
            continue
        if not math.isfinite(value):
            raise InputError(f"{_where(row)}: the {name} is {value}, which is no number")
        if row.unit == "share" and not 0.0 <= value <= 1.0:
            raise InputError(
                f"{_where(row)}: the {name} {value:g} is no share, which lies in [0, 1]; divide it by "
                "its largest value, or give it another unit"
            )
        if row.unit == "bits" and value > 0.0:
            raise InputError(f"{_where(row)}: the {name} {value:g} is above 0, and bits are log2 of a probability")


def _where(row: Scored) -> str:
    parts = (row.model, row.attack, row.format, row.item)
    return ", ".join(one_line(part, width=60) for part in parts if part)


def _key(row: Scored) -> str:
    if row.unit == "order":
        return f"{PREFIX}{row.format}"
    if row.unit == "bits":
        return BITS_KEY
    if row.format in _OWN:
        return _OWN[row.format].key
    # That a model was asked what is kept says nothing of whether it was asked what is forgotten.
    return f"{row.format}/score" if row.split == "forget" else kept_key(row.format)


def _chance_key(name: str) -> str:
    return (_OWN[name].chance if name in _OWN else "") or f"{name}/chance"


def _formats(read: _Read) -> tuple[Format, ...]:
    """The formats of the table that are not Vestige's own; what is 0 or 1 throughout counts hits."""
    formats = []
    for name, unit in read.units.items():
        if unit != "share" or name in _OWN:
            continue
        key = f"{name}/score"
        both = (key, kept_key(name))
        values = {v for tables in read.values.values() for k in both for v in tables.get(k, {}).values()}
        counts = values <= {0.0, 1.0}
        chance = f"{name}/chance" if name in read.chances else ""
        formats.append(Format(name, key, key if counts or chance else "", chance, graded=not counts))
    return tuple(formats)


def judge_table(
    run: RunFolder,
    rows: Iterable[Scored],
    *,
    forget: str,
    margins: Mapping[str, Any] | None = None,
    source: str = "a table of scores",
    digests: Mapping[str, str] | None = None,
    untested: Sequence[str] = (),
) -> AuditOutcome:
    """Judge the models of one table; evidence, plan, outcome and verdicts lie in `run`.

    `forget` names the forget set, `margins` are `Thresholds`. `source` says where the scores are from, `digests` those
    of the models' own files by name where they are known; otherwise they are of the scores. `untested` says in
    sentences what could not be read.
    """
    with locked(run.lock):
        _claim(run, source)
        plan = _planned(run, _gathered(rows), forget, _settings(margins or {}), (source, digests or {}))
        plan = replace(plan, untested=(*plan.untested, *untested))
        write_plan(run.audit(forget), plan)
        return judge_plan(run, run.audit(forget), plan)


def _settings(margins: Mapping[str, Any]) -> AuditSettings:
    for name in margins:
        if name not in Thresholds.model_fields:
            hint = closest(name, list(Thresholds.model_fields))
            raise InputError(f"{one_line(name, width=40)} is no margin, and nothing else can be set of scores; {hint}")
    return AuditSettings.build({**NOTHING_ASKED, **margins}, where="margins of the judgement")


def _claim(run: RunFolder, source: str) -> None:
    """Take the folder for judgements of scores; one that holds a run of models is refused."""
    if run.settings.exists() and read_toml(run.settings).get("command") != COMMAND:
        raise InputError(f"{run.path} holds a run of another command; choose another folder for judgements of scores")
    write_text(run.settings, to_toml({"command": COMMAND, "scores": one_line(source, width=500)}))


def _planned(
    run: RunFolder, read: _Read, forget: str, settings: AuditSettings, origin: tuple[str, Mapping[str, str]]
) -> AuditPlan:
    """The plan of what the table holds; the models' folders are written."""
    _check_roles(read)
    _refuse_copies(read)
    names: dict[str, list[str]] = {role: [m for m, its in read.roles.items() if its == role] for role in ROLES}
    folders = {name: f"models/{slug(f'{forget} {name}')}" for name in read.roles}
    splits = {split: tuple(i for i, its in read.splits.items() if its == split) for split in SPLITS}
    splits = {split: items for split, items in splits.items() if items}
    evaluations = tuple(
        evaluation
        for name, folder in folders.items()
        for evaluation in _write_model(run, forget, (name, read.roles[name], folder), read, splits, origin)
    )
    return AuditPlan(
        forget=forget,
        target=names["target"][0],
        unlearned=tuple(names["unlearned"]),
        retrained=tuple(names["retrained"]),
        suppressed=next(iter(names["placebo"]), ""),
        folders=folders,
        splits=splits,
        edges={},
        scopes={},
        attacks=_attacks(read, splits["forget"]),
        settings=settings.identity(),
        seed=0,
        evaluations=evaluations,
        untested=(UNSEEN,),
        data=content_id([splits["forget"], splits.get("retain", ())], length=32),
        sizes={split: len(items) for split, items in splits.items()},
        facts=_facts(read, splits["forget"]),
        groups={item: group for item, group in read.about["group"].items() if read.splits[item] == "forget"},
        formats=_formats(read),
        evidence_level="logs",
    )


def _check_roles(read: _Read) -> None:
    names = {role: [one_line(m, width=60) for m, its in read.roles.items() if its == role] for role in ROLES}
    if len(names["target"]) != 1:
        many = f"has {len(names['target'])} ({', '.join(names['target'])})" if names["target"] else "has none"
        raise InputError(f"a judgement has one target, the model before unlearning, and the table {many}; give it one")
    if not names["unlearned"]:
        raise InputError("no model of the table is unlearned, so there is nothing to judge; give one this role")
    if len(names["placebo"]) > 1:
        raise InputError(f"a judgement has one placebo, and the table has {', '.join(names['placebo'])}; name one")
    if "forget" not in read.splits.values():
        raise InputError("no item of the table is in the split forget, so there is nothing to judge")
    if not names["retrained"] and not read.chances:
        raise InputError(
            "the table has neither a retrained model nor the column chance, so that nothing says what a model that "
            "never knew would score; give the scores of one as retrained"
        )


def _refuse_copies(read: _Read) -> None:
    """Two models with the same scores throughout are one, unless one number is all that they score."""
    seen: dict[str, str] = {}
    for (name, attack), tables in read.values.items():
        steady = all(len(set(table.values())) == 1 for key, table in tables.items() if not key.endswith("/chance"))
        if attack or steady:
            continue
        same = seen.setdefault(content_id(tables), name)
        if same != name:
            raise InputError(
                f"{one_line(name, width=60)} and {one_line(same, width=60)} have the same scores on every question, so "
                "they are one model, or one log under two names; leave one out"
            )


def _facts(read: _Read, forget: Sequence[str]) -> dict[str, str]:
    """By item the first that asks for the same fact."""
    first: dict[str, str] = {}
    leads = {item: first.setdefault(read.about["fact"].get(item, item), item) for item in forget}
    return {item: lead for item, lead in leads.items() if lead != item}


def _attacks(read: _Read, forget: Sequence[str]) -> tuple[PlannedAttack, ...]:
    """Each attack that the rows name; what it showed is not known, so that of no fact it is known to have shown it."""
    names = dict.fromkeys(attack for _, attack in read.values if attack)
    tested = {
        name: {
            i
            for (_, attack), tables in read.values.items()
            if attack == name
            for table in tables.values()
            for i in table
        }
        for name in names
    }
    return tuple(
        PlannedAttack(name, EVAL, "unknown", 0, (GIVEN,), tuple(i for i in forget if i in tested[name]), False, {})
        for name in names
    )


def _write_model(
    run: RunFolder,
    forget: str,
    model: tuple[str, str, str],
    read: _Read,
    splits: Mapping[str, tuple[str, ...]],
    origin: tuple[str, Mapping[str, str]],
) -> Iterator[AskedPlace]:
    """One model's folder, as an audit would have left it, with its scores in the place of evaluations."""
    (name, role, path), (source, digests) = model, origin
    folder = SubjectFolder(run.path / path)
    # What another table left under this name must not be taken for an answer of this one.
    shutil.rmtree(folder.path, ignore_errors=True)
    scores = {attack: tables for (model_name, attack), tables in read.values.items() if model_name == name}
    digest = digests.get(name) or content_id([[attack, tables] for attack, tables in scores.items()], length=64)
    forgotten = (ForgetSet(forget, tuple(sorted(splits["forget"])), ()),) if role in ("retrained", "unlearned") else ()
    spec = SubjectSpec.of(
        ROLES[role],
        name,
        source,
        {},
        method=name if role == "unlearned" else "",
        forget=forget if forgotten else "",
        data=digest,
        version=VERSION,
        forgotten=forgotten,
    )
    write_spec(folder.spec, spec)
    write_json(folder.done, {"schema": SCHEMA, "digest": digest, "files": {}})
    for attack, tables in scores.items():
        items = dict.fromkeys(item for table in tables.values() for item in table)
        texts = read.texts.get((name, attack), {})
        evaluation = folder.evaluation(EVAL, content_id([digest, attack, VERSION]))
        write_json(evaluation.identity, {"schema": SCHEMA, "eval": EVAL, "model": digest, "attack": attack})
        write_jsonl(evaluation.records, ({"item": item, **_shown(texts.get(item, {}))} for item in items))
        write_collected(evaluation, len(items))
        write_scores(evaluation, ({"item": i, **{k: t[i] for k, t in tables.items() if i in t}} for i in items))
        if not attack:
            scored = {split: tuple(item for item in ids if item in items) for split, ids in splits.items()}
            write_summary(evaluation, Summary(EVAL, VERSION, spec, forget, scored, ()))
        point = GIVEN if attack else ""
        yield AskedPlace(name, attack, point, EVAL, evaluation.path.relative_to(run.path).as_posix())


def _shown(texts: Mapping[str, str]) -> dict[str, str]:
    """A record has its three texts or none, as the list of single facts shows them together."""
    return {name: texts.get(name, "") for name in ("question", "answer", "reply")} if "reply" in texts else {}
