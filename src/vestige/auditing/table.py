"""From one table of scores to a run that is judged as any other: its plan, its models' folders, its verdicts.

The same plan, judgement and files come of the scores as of an audit's own answers, so that a verdict can be given again
at other margins.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vestige.artifacts.audits import GIVEN, AuditOutcome, AuditPlan, PlannedAttack
from vestige.artifacts.layout import RunFolder
from vestige.artifacts.scores import ScoreTable
from vestige.auditing.ground import Case
from vestige.auditing.judge import judge
from vestige.auditing.predicted import PredictedControls
from vestige.auditing.run import judge_plan, write_scores
from vestige.auditing.scored import ROLES, SPLITS, QuestionScore, Unfit, score_table
from vestige.auditing.settings import AuditSettings
from vestige.core.errors import InputError
from vestige.core.files import locked, write_text
from vestige.core.ids import content_id
from vestige.core.settings import read_toml, to_toml
from vestige.core.text import Items, Sentences, closest, listed, one_line
from vestige.metrics.verdicts import Thresholds

COMMAND = "judge"
"""What run.toml names a run of scores by."""
EVAL = "table"
"""What an attack is called of which a table brings the scores."""

UNSEEN = (
    "The weights of no model were seen, only scores: that each model is what it is called, that all were asked alike, "
    "and that the retrained models never saw the forget set, is as whoever made the scores says."
)
NOTHING_ASKED: Mapping[str, Any] = {
    "evals": (),
    "forms": (),
    "relearn": (),
    "quantize": (),
    "ablate": (),
    "in_context": (),
    "suppress": False,
}
"""Of the settings of an audit those that ask and attack models, which a table takes the place of."""


def judge_table(
    run: RunFolder,
    rows: Iterable[QuestionScore],
    *,
    forget: str,
    margins: Mapping[str, Any] | None = None,
    source: str = "a table of scores",
    untested: Sequence[str] = (),
    banked: Mapping[str, str] | None = None,
    predicted: PredictedControls | None = None,
) -> AuditOutcome:
    """Judge the models of one table. The scores, the plan, the outcome and the verdicts lie in `run`.

    Args:
        run: Where all of it lies.
        rows: The scores.
        forget: The name of the forget set.
        margins: `Thresholds` by name.
        source: Where the scores are from.
        untested: In sentences, what could not be read.
        banked: The laboratories of controls from the bank, by name.
        predicted: How the controls were predicted, where none was retrained.
    """
    run.refuse_others_files()
    with locked(run.lock):
        if run.settings.exists() and read_toml(run.settings).get("command") != COMMAND:
            raise InputError(
                f"{run.path} holds a run of another command; choose another folder for judgements of scores"
            )
        table = score_table(rows)
        plan = plan_of(table, forget=forget, margins=margins, untested=untested, banked=banked)
        if predicted is not None:
            plan = replace(plan, evidence_level="predicted", predicted=dict(predicted.errors))
        write_text(run.settings, to_toml({"command": COMMAND, "scores": one_line(source, width=500)}))
        plan = write_scores(run, plan, table)
        return judge_plan(run, run.audit(forget), plan)


def judge_scores(table: ScoreTable, margins: Mapping[str, Any] | None = None) -> AuditOutcome:
    """The outcome of a score table, at these margins (`Thresholds` by name). Nothing is read or written besides."""
    plan = plan_of(table, forget="the forget set", margins=margins)
    return judge(Case(plan, table))


def plan_of(
    table: ScoreTable,
    *,
    forget: str,
    margins: Mapping[str, Any] | None = None,
    untested: Sequence[str] = (),
    banked: Mapping[str, str] | None = None,
) -> AuditPlan:
    """What the table says was asked of whom.

    Measurements of the forget set that no unlearned model has are taken out of the table.

    Raises:
        InputError: A role is missing, or one model stands under two names.
    """
    names = _names_by_role(table)
    notes = (*_refuse_copies(table), *_drop_unasked(table))
    splits: dict[str, Items] = {split: items for split in SPLITS if (items := table.items(split))}
    facts, groups = _facts_and_groups(table, splits["forget"])
    return AuditPlan(
        forget=forget,
        target=names["target"][0],
        unlearned=tuple(names["unlearned"]),
        retrained=tuple(names["retrained"]),
        suppressed=next(iter(names["placebo"]), ""),
        folders={},
        splits=splits,
        edges={},
        scopes={},
        attacks=_attacks(table, splits["forget"]),
        settings=settings_of(margins or {}).identity(),
        seed=0,
        untested=(UNSEEN, *untested, *notes),
        data=content_id([splits["forget"], splits.get("retain", ())], length=32),
        sizes={split: len(items) for split, items in splits.items()},
        facts=facts,
        groups=groups,
        evidence_level="logs",
        banked=banked or {},
    )


def _facts_and_groups(table: ScoreTable, forget: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """By question the first one that asks for the same fact, and the group that it is of."""
    first: dict[str, str] = {}
    facts: dict[str, str] = {}
    groups: dict[str, str] = {}
    for item in forget:
        question = table.questions[item]
        lead = first.setdefault(question.fact or item, item)
        if lead != item:
            facts[item] = lead
        if question.group:
            groups[item] = question.group
    return facts, groups


def settings_of(margins: Mapping[str, Any]) -> AuditSettings:
    """The settings of an audit that asks nothing, at these margins. Anything else is refused by name."""
    for name in margins:
        if name not in Thresholds.model_fields:
            hint = closest(name, list(Thresholds.model_fields))
            raise InputError(f"{one_line(name, width=40)} is no margin, and nothing else can be set of scores; {hint}")
    return AuditSettings.build({**NOTHING_ASKED, **margins}, where="margins of the judgement")


def _names_by_role(table: ScoreTable) -> dict[str, list[str]]:
    """The models in each role. Refused where they cannot be judged."""
    names: dict[str, list[str]] = {role: [m for m, its in table.roles.items() if its == role] for role in ROLES}
    if len(names["target"]) != 1:
        many = f"has {len(names['target'])} ({listed(names['target'])})" if names["target"] else "has none"
        raise InputError(f"a judgement has one target, the model before unlearning, and the table {many}; give it one")
    if not names["unlearned"]:
        raise InputError("no model of the table is unlearned, so there is nothing to judge; give one this role")
    if len(names["placebo"]) > 1:
        raise InputError(f"a judgement has one placebo, and the table has {listed(names['placebo'])}; name one")
    if not table.items("forget"):
        raise InputError("no item of the table is in the split forget, so there is nothing to judge")
    if not names["retrained"] and not table.chances:
        raise InputError(
            "the table has neither a retrained model nor the column chance, so that nothing says what a model that "
            "never knew would score; give the scores of one as retrained"
        )
    return names


def _refuse_copies(table: ScoreTable) -> Sentences:
    """Refuse a control with the scores of another model throughout, and say in a sentence which subjects are alike.

    Two trainings may well give the same hits, or nothing at all, but not the same graded scores. Of one that is
    unlearned a copy, or one that differs in nothing from the target, takes nothing from the others.
    """
    scores: dict[str, dict[str, object]] = {}
    graded: set[str] = set()
    for (model, attack, _), tables in table.values.items():
        if attack:
            continue
        for name, of_model in tables.items():
            pairs = {item: str(score) for item, score in of_model.items()}
            scores.setdefault(model, {})[name] = pairs
            if len(set(pairs.values())) > 2:
                graded.add(model)
    first: dict[str, str] = {}
    alike = []
    for name in (name for name in scores if name in graded):
        same = first.setdefault(content_id(scores[name]), name)
        if same == name:
            continue
        both = f"{one_line(name, width=60)} and {one_line(same, width=60)} have the same scores on every question"
        if "retrained" in (table.roles[name], table.roles[same]):
            raise Unfit(name, f"{both}, so they are one model, or one log under two names; leave one out.")
        alike.append(f"{both}.")
    return tuple(alike)


def _drop_unasked(table: ScoreTable) -> Sentences:
    """Take out the measurements of the forget set that no unlearned model has, and say in a sentence which these are.

    What only controls were asked is no part of what was tested: without this it would keep every claim open.
    """
    forget = set(table.items("forget"))
    asked: set[str] = set()
    unlearned: set[str] = set()
    for source, tables in table.values.items():
        asked |= {name for name, scores in tables.items() if not forget.isdisjoint(scores)}
        if table.roles[source.subject] == "unlearned":
            unlearned |= set(tables)
    dropped = sorted(asked - unlearned)
    for source, tables in table.values.items():
        table.values = {**table.values, source: {name: its for name, its in tables.items() if name not in dropped}}
    table.formats = tuple(form for form in table.formats if form.name not in dropped)
    return (f"No unlearned model has these scores of the forget set: {listed(dropped)}.",) if dropped else ()


def _attacks(table: ScoreTable, forget: Sequence[str]) -> tuple[PlannedAttack, ...]:
    """Each attack that the rows name. What it showed is not known, so that of no fact it is known to have shown it."""
    tested: dict[str, set[str]] = {}
    for source, tables in table.values.items():
        if source.attack:
            tested.setdefault(source.attack, set()).update(*tables.values())
    return tuple(
        # Nobody says what it showed, so that it counts as one that showed no answers.
        PlannedAttack(name, EVAL, "unknown", 0, (GIVEN,), tuple(i for i in forget if i in items), False, {})
        for name, items in tested.items()
    )
