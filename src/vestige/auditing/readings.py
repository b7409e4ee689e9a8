"""How the models of an audit read its questions: the weights are asked, and not the tokeniser that came with them.

A folder's tokeniser, decoder or chat template can swap, capitalise, space out or cut the forgotten names, so that the
model is asked about something else. So every model with the target's vocabulary is asked through the target's tokeniser
and template. If its own files make other tokens of any question, an unlearned model is asked both ways, in two rows,
and a claim holds in neither unless it holds in both. A model with another vocabulary can be asked in its own way alone,
and none of its claims holds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vestige.artifacts.audits import AuditOutcome, AuditPlan, Outcome, VerdictLine
from vestige.artifacts.layout import EvalFolder, RunFolder
from vestige.artifacts.records import read_records
from vestige.auditing.request import AuditedModel, AuditRequest, model_settings
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.core.text import Sentences, one_line
from vestige.data.corpus import everything
from vestige.models.address import is_address

if TYPE_CHECKING:
    from vestige.models.load import LoadedModel
    from vestige.models.prompts import Prompter

_OWN = "its own tokeniser"
_RANK = {"fails": 0, "inconclusive": 1, "holds": 2}
_UNLIKELY_NATS = -20.0
"""Below this a greedy reply cannot be, if its text has the tokens that the tokeniser makes of it."""
_MOST_CONTRADICTIONS = 0.02
_NEAR = 0.01


@dataclass(frozen=True)
class Readings:
    """What is known of how models are asked.

    Attributes:
        pairs: The name of each second row, asked through the model's own files, and the name of the first.
        open: A sentence by the name of each model of which no claim may hold.
        told: Sentences that stand above the table.
    """

    pairs: dict[str, str]
    open: dict[str, str]
    told: Sentences


def asked_alike(request: AuditRequest) -> tuple[AuditRequest, Readings]:
    """Have every model asked through the target's tokeniser and template where its vocabulary is the target's.

    Only configs, tokenisers and templates are read here, and no weights.

    Args:
        request: An audit that `check_request` has accepted.

    Returns:
        The request with the models as they are asked, and what differs between their files.

    Raises:
        InputError: The target's own tokeniser or template drops or rewrites a question of the audit.
    """
    from vestige.models.load import outline

    readings = Readings({}, {}, ())
    if is_address(request.target.model):
        return request, readings
    items = everything([request.limited])
    target = outline(model_settings(request, request.target), finite=False)
    target.prompter.check_questions(_texts(items))
    models: list[AuditedModel] = []
    told: list[str] = []
    for model in request.models:
        models.append(model)
        if model.role == "target" or not model.model or is_address(model.model):
            continue
        try:
            own = outline(model_settings(request, model), finite=False)
        except InputError:
            # `check_request` has looked for it; what remains is told by the task that loads it.
            continue
        if own.prompter.digest == target.prompter.digest:
            continue
        name = one_line(model.name, width=60)
        if not _has_vocabulary(own, target):
            readings.open[model.name] = f"{name} has another vocabulary than the target, and its own tokeniser asked it"
            told.append(
                f"{name} has another vocabulary than the target. It was asked through its own tokeniser and template, "
                "which nothing verifies, so no claim about it holds."
            )
            continue
        models[-1] = replace(model, through_target=True)
        others, refused = _differences(own.prompter, target.prompter, items)
        if not others:
            told.append(
                f"{name} brings other tokeniser files than the target. They make the same tokens of all {len(items)} "
                "questions, and it was asked through the target's."
            )
            continue
        first = f"{name} brings another tokeniser or template: {others} of {len(items)} questions get other tokens"
        if refused:
            told.append(f"{first} or are rewritten ({refused}). It was asked through the target's alone.")
        elif model.role == "unlearned":
            twin = AuditedModel(_free_name(model.name, request), "unlearned", model.model)
            readings.pairs[twin.name] = model.name
            models.append(twin)
            told.append(f"{first}. It was asked both ways, and a claim holds only if it holds both ways.")
        else:
            told.append(f"{first}. It was asked through the target's.")
    return replace(request, models=tuple(models)), replace(readings, told=tuple(told))


def _texts(items: Sequence[Item]) -> Iterator[str]:
    for item in items:
        yield item.question
        if item.paraphrase:
            yield item.paraphrase


def _has_vocabulary(own: "LoadedModel", target: "LoadedModel") -> bool:
    """Whether the model reads every token of the target as the same token. It may have others besides."""
    vocabulary, of_target = own.tokenizer.get_vocab(), target.tokenizer.get_vocab()
    if own.prompter.rows <= max(of_target.values()):
        return False
    return all(vocabulary.get(token) == number for token, number in of_target.items())


def _differences(own: "Prompter", target: "Prompter", items: Sequence[Item]) -> tuple[int, str]:
    """How many questions get other tokens than the target's, and the first error where its own files rewrite one."""
    others, refused = 0, ""
    for item in items:
        expected = _tokens(target, item)
        try:
            differs = _tokens(own, item) != expected
        except InputError as error:
            differs, refused = True, refused or str(error)
        others += differs
    if not refused:
        try:
            own.check_questions(_texts(items))
        except InputError as error:
            refused = str(error)
    return others, refused


def _tokens(prompter: "Prompter", item: Item) -> list[tuple[int, ...]]:
    """The tokens of a question with its answer, and of its other wording."""
    tokens = [prompter.encode(item.question, item.answer).ids]
    if item.paraphrase:
        tokens.append(prompter.prompt(item.paraphrase))
    return tokens


def _free_name(name: str, request: AuditRequest) -> str:
    taken = {model.name for model in request.models}
    candidate, number = f"{name}, {_OWN}", 2
    while candidate in taken:
        candidate, number = f"{name}, {_OWN} {number}", number + 1
    return candidate


def verified_readings(run: RunFolder, plan: AuditPlan, readings: Readings) -> AuditPlan:
    """The plan with what is known of how its models were asked, replies that contradict themselves among it."""
    contradicting = contradictions(run, plan)
    told = [*readings.told, *(f"{why}." for why in contradicting.values()), *near_the_target(plan)]
    unverified = {name: why for name, why in {**readings.open, **contradicting}.items() if name in plan.unlearned}
    return replace(plan, asked_twice=readings.pairs, unverified_readings=unverified, read_otherwise=tuple(told))


def near_the_target(plan: AuditPlan) -> list[str]:
    """In a sentence each, the models whose weights are all but the target's.

    A digest sees only exact copies. So a distance to the target below 1/100 of that of the nearest control is named.
    """
    from_target = plan.apart.get(plan.target, {})
    to_controls = [from_target[name] for name in plan.retrained if name in from_target]
    if not to_controls:
        return []
    sentences = []
    for name in plan.unlearned:
        if name in plan.unchanged or name not in from_target:
            continue
        share = from_target[name] / min(to_controls)
        if share < _NEAR:
            sentences.append(
                f"{one_line(name, width=60)} has the target's weights but for a change of {share:.2%} of the distance "
                "to the nearest control."
            )
    return sentences


def contradictions(run: RunFolder, plan: AuditPlan) -> dict[str, str]:
    """The models whose replies contradict the likelihood of the same text, in a sentence by name.

    A greedy reply that is the stated answer, letter for letter, cannot be a text that the model finds all but
    impossible. If it is, the decoder writes what the model did not say.

    Args:
        run: The run, with the answers of the models as they are.
        plan: Says where the answers lie.

    Returns:
        A sentence for each model with two such replies or more that are over 2 % of its verbatim ones.
    """
    sentences = {}
    for place in plan.evaluations:
        if place.attack or place.eval != "qa":
            continue
        verbatim, impossible = 0, 0
        for record in read_records(EvalFolder(run.path / place.path)):
            if "logp" not in record or record["reply"] != record["answer"].strip():
                continue
            verbatim += 1
            if record["reply_ids"] != record["answer_ids"] and sum(record["logp"]) < _UNLIKELY_NATS:
                impossible += 1
        if impossible >= 2 and impossible > _MOST_CONTRADICTIONS * verbatim:
            sentences[place.subject] = (
                f"{one_line(place.subject, width=60)}: {impossible} of {verbatim} verbatim replies are texts that the "
                "model itself finds all but impossible, so its tokeniser writes what the model did not say"
            )
    return sentences


def with_readings(outcome: AuditOutcome, plan: AuditPlan) -> AuditOutcome:
    """The outcome in which no claim holds that rests on a reading nobody can verify.

    Of a model that was asked both ways, each claim has the worse outcome of the two in both rows.
    """
    lines = {(line.subject, line.claim): line for line in outcome.verdicts}
    for subject, why in plan.unverified_readings.items():
        for (name, claim), line in tuple(lines.items()):
            if name == subject and line.outcome == "holds":
                lines[name, claim] = _opened(line, why)
    for second, first in plan.asked_twice.items():
        for (name, claim), line in tuple(lines.items()):
            partner = lines.get((second if name == first else first, claim))
            if name in (first, second) and partner is not None and _RANK[partner.outcome] < _RANK[line.outcome]:
                why = (
                    f"asked as {one_line(partner.subject, width=80)}, {partner.reason[:1].lower()}{partner.reason[1:]}"
                )
                lines[name, claim] = _opened(line, why.rstrip("."), partner.outcome)
    warnings = tuple(dict.fromkeys((*plan.read_otherwise, *outcome.warnings)))
    untested = tuple(dict.fromkeys((*plan.read_otherwise, *outcome.untested)))
    return replace(outcome, verdicts=tuple(lines.values()), warnings=warnings, untested=untested)


def _opened(line: VerdictLine, why: str, outcome: Outcome = "inconclusive") -> VerdictLine:
    reason = f"{line.reason.rstrip('.')}, but {why}."
    return replace(line, outcome=outcome, reason=reason, left_out=(*line.left_out, why))
