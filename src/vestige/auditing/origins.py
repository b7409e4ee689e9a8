"""The origin of an audit's models, from their files alone: training records and weights.

This module reads no answers. `auditing.control_checks` draws the conclusions for the controls.

All models use the target's tokeniser, so that they differ only in weights.

A folder's tokeniser, decoder or chat template can swap, capitalise, space out or cut the forgotten names, so that the
model gets a different question. So every model with the target's vocabulary uses the target's tokeniser and template.
If its own files produce other tokens for any question, an unlearned model is scored both ways, in two rows, and a claim
passes only if it passes in both. A model with another vocabulary can only use its own tokeniser, and none of its claims
passes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, sqrt
from typing import TYPE_CHECKING

from vestige.artifacts.audits import AuditOutcome, AuditPlan, EvidenceLevel, Outcome, VerdictLine
from vestige.artifacts.layout import AuditFolder, EvalFolder, RunFolder, SubjectFolder
from vestige.artifacts.records import SubjectSpec, read_finished, read_records, read_spec
from vestige.auditing.request import AuditedModel, AuditRequest, free_name, model_settings
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.core.store import read_sealed, write_sealed
from vestige.core.text import (
    Names,
    NumberByName,
    NumberMapping,
    Sentences,
    TextByName,
    TextMapping,
    grouped,
    listed,
    one_line,
)
from vestige.data.corpus import NamedSplits, everything
from vestige.models.address import is_address

if TYPE_CHECKING:
    from vestige.models.load import LoadedModel
    from vestige.models.prompts import Prompter


_MADE_ANEW = "builtin:tiny"
"""The prefix of models that are created from scratch. Two models with this prefix share no initial model."""

_NEXT_TO, _NEXT_TO_ASKED_OTHERWISE = 0.001, 0.01
"""Below these shares of the distance to the next control, a subject counts as having the target's weights.

The shortest tuning of a tiny model moved its weights by 0.02 of the distance between two trainings.
"""


@dataclass(frozen=True)
class Origins:
    """The origin of an audit's models, by name, including `target`.

    `parts` are the digests of each model's weights, tokeniser and template, `target_digest` the digest of the whole
    target.
    """

    target: str
    specs: Mapping[str, SubjectSpec]
    parts: Mapping[str, TextMapping]
    target_digest: str = ""

    @classmethod
    def read(cls, run: RunFolder, folders: TextMapping, target: str) -> "Origins":
        """Read the origins from folders with paths relative to the run."""
        subjects = {name: SubjectFolder(run.path / folder) for name, folder in folders.items()}
        done = {name: read_finished(subject.done, "digest", "model") for name, subject in subjects.items()}
        specs = {name: read_spec(subject.spec) for name, subject in subjects.items()}
        return cls(target, specs, {name: record["model"] for name, record in done.items()}, done[target]["digest"])

    def evidence_level(self, retrained: Sequence[str], splits: NamedSplits) -> tuple[EvidenceLevel, Sentences]:
        """Return the joint level of evidence for the controls, and a sentence on unverified controls with the reasons.

        A control is verified if the training record, stored with its weights and their digest, states that Vestige
        trained it on this audit's data without the forget set, from the target's initial model.
        """
        by_why = grouped(retrained, lambda name: _unverified(self.specs[name], self.specs[self.target], splits))
        by_why.pop("", None)
        if not by_why:
            return ("verified" if retrained else ""), ()
        reasons = "; ".join(f"{listed(names)}: {why}" for why, names in by_why.items())
        return "given", (f"The origin of these controls is not verified: {reasons}.",)

    def unchanged(self, unlearned: Sequence[str], apart: Mapping[str, NumberMapping]) -> tuple[Names, Sentences]:
        """Return the subjects whose weights are the target's own, and a sentence about them.

        `apart` are distances of weights by two names. If the target is closest by far, the subject has the target's
        weights with a little noise. A different tokeniser or chat template makes that likelier.
        """
        parts = self.parts[self.target]
        others = [x for name, x in apart.get(self.target, {}).items() if name not in unlearned]
        same = []
        for name in unlearned:
            own = self.parts[name]
            asked_alike = all(own.get(part) == parts.get(part) for part in ("tokenizer", "template"))
            limit = (_NEXT_TO if asked_alike else _NEXT_TO_ASKED_OTHERWISE) * min(others, default=0.0)
            # An edit of one tensor, which may be the whole unlearning, also has distance 0 (`models.distances`).
            is_near = 0 < apart.get(self.target, {}).get(name, limit) < limit
            if own["weights"] == parts["weights"] or is_near:
                same.append(name)
        if not same:
            return (), ()
        has, it = ("has", "it answers") if len(same) == 1 else ("have", "they answer")
        return tuple(same), (
            f"{listed(same)} {has} the target's own weights, in which nothing was forgotten: what {it} otherwise comes "
            "from the chat template, the tokeniser or the config.",
        )

    def asked_otherwise(self) -> Iterator[str]:
        """Return a sentence for each model with another tokeniser or chat template than the target."""
        for part, label in (("tokenizer", "tokeniser"), ("template", "chat template")):
            of_target = self.parts[self.target][part]
            if names := [name for name, parts in self.parts.items() if parts[part] != of_target]:
                yield (
                    f"Asked through another {label} than the target: {listed(names)}; what differs between their "
                    f"answers may come from the {label} and not from the weights."
                )

    def retrained_among(self, unlearned: Sequence[str]) -> Names:
        """The subjects that were trained without the forget set."""
        specs = {name: self.specs[name] for name in unlearned}
        return tuple(name for name, spec in specs.items() if spec.subject == "retrained" or spec.method == "retrain")

    def made_from_others(self, unlearned: Sequence[str]) -> Iterator[str]:
        """Yield a sentence for each subject whose initial model was not the target.

        External models do not record their initial weights, and a model trained from scratch has no target.
        """
        begun_with = ("", self.target_digest)
        retrained = self.retrained_among(unlearned)
        strangers = [name for name in unlearned if self.specs[name].parent not in begun_with and name not in retrained]
        if strangers:
            yield (
                f"Made from another model than the target ({listed([self.target])}) that this audit compares with: "
                f"{listed(strangers)}; what differs between the two targets counts as lost, left or brought back."
            )

    def other_recipes(self, retrained: Sequence[str]) -> TextByName:
        """Return a clause for each control whose recipe differs from the target's, if Vestige trained both.

        Seed and data are meant to differ. Threads and memory change only rounding.
        """
        settings = {name: spec.settings if spec.data else {} for name, spec in self.specs.items()}
        differences = {}
        for name in retrained:
            pairs = {n: (settings[name].get(n), v) for n, v in settings[self.target].items() if n in settings[name]}
            clauses = [
                f"{n} {one_line(str(its), width=40)} and not {one_line(str(targets), width=40)}"
                for n, (its, targets) in pairs.items()
                if n not in _NO_RECIPE and its != targets
            ]
            if clauses:
                differences[name] = ", ".join(clauses)
        return differences

    def copied_controls(self, models: Sequence[str], retrained: Sequence[str]) -> TextByName:
        """Return the controls that have the weights of another model of the audit, each with a sentence.

        A copied control shows no variation between trainings, and a copy of the target or a subject is no control: the
        audit continues without it. A copy is detected by its weights, whatever its template or settings.
        """
        first: TextByName = {}
        sentences: TextByName = {}
        for name in (*models, *(name for name in retrained if name in self.parts)):
            same = first.setdefault(self.parts[name]["weights"], name)
            if same != name and name in retrained:
                sentences[name] = (
                    f"{listed([name])} is left out as a control: its weights are those of {listed([same])}, as when a "
                    "training is repeated without another --seed."
                )
        return sentences

    def distances(self, folder: AuditFolder, models: TextMapping) -> tuple[dict[str, NumberByName], Sentences]:
        """Return the distances between the models' weights by two names, and sentences on uncompared models.

        `models` maps names to folders, the target first. Distances between known weights are not computed again.
        """
        local = {name: model for name, model in models.items() if not is_address(model)}
        sentences = []
        if away := [name for name in models if name not in local]:
            sentences.append(
                f"The weights of {listed(away)} were not seen, so that nothing but answers tells copies apart."
            )
        # Two models have only one distance, which has no reference.
        if len(local) < 3:
            return {}, tuple(sentences)
        # Comparing models reads gigabytes, so the distances of known weights are stored.
        weights = {name: self.parts[name]["weights"] for name in local}
        if folder.apart.exists() and (stored := read_sealed(folder.apart, "weights", "apart"))["weights"] == weights:
            return stored["apart"], tuple(sentences)
        from vestige.models.distances import squared_distances

        try:
            squares = squared_distances(list(local.values())).tolist()
        except InputError as error:
            return {}, (*sentences, f"The weights of the models were not compared with each other: {error}.")
        if odd := [name for name, x in zip(local, squares[0], strict=True) if not isfinite(x)]:
            sentences.append(f"The weights of {listed(odd)} are of another shape than the target's, and not compared.")
        apart = {
            name: {partner: sqrt(x) for partner, x in zip(local, row, strict=True) if partner != name and isfinite(x)}
            for name, row in zip(local, squares, strict=True)
        }
        apart = {name: to_others for name, to_others in apart.items() if to_others}
        write_sealed(folder.apart, {"weights": weights, "apart": apart})
        return apart, tuple(sentences)


_NO_RECIPE = frozenset(("model", "micro_batch_size", "token_budget", "gradient_checkpointing", "bucket", "threads"))
"""Settings that change how a computation is batched and not the training data. `model` is compared by its digest."""


def _unverified(spec: SubjectSpec, target: SubjectSpec, splits: NamedSplits) -> str:
    """Return why a control is not known to be trained without the forget set, or ""."""
    if not spec.data:
        return "Vestige did not train it"
    if spec.subject != "retrained" and spec.method != "retrain":
        return f"its record says that it is {one_line(spec.subject, width=40)}, not retrained"
    if not spec.forgotten or spec.not_forgotten([i.id for i in splits.splits["forget"]]):
        return "its record does not say that it left out all of the forget set"
    if spec.data not in splits.taught_without:
        return "it was trained on other data than this audit's without the forget set"
    # With another initial model, it would differ from the target by everything that its pretraining taught.
    if not spec.model.startswith(_MADE_ANEW) and (not target.parent or spec.parent != target.parent):
        return "nothing says that its training began with the model that the target's began with"
    return ""


_OWN = "its own tokeniser"
_RANK = {"fails": 0, "inconclusive": 1, "holds": 2}
_UNLIKELY_NATS = -20.0
"""A greedy reply below this log-probability is impossible if its tokens are the tokeniser's tokens of its text."""
_MOST_CONTRADICTIONS = 0.02
_NEAR = 0.01


@dataclass(frozen=True)
class Readings:
    """The facts about the models' tokenisers.

    Attributes:
        pairs: The name of each second row, scored through the model's own files, and the name of the first.
        open: A sentence by the name of each model that can pass no claim.
        notes: Sentences for the top of the table.
    """

    pairs: TextByName
    open: TextByName
    notes: Sentences


def asked_alike(request: AuditRequest) -> tuple[AuditRequest, Readings]:
    """Make all models use the target's tokeniser and template, if they have the target's vocabulary.

    Only configs, tokenisers and templates are read here, not weights.

    Args:
        request: An audit that `check_request` has accepted.

    Returns:
        Return the request with the models' tokenisers resolved, and the differences between their files.

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
    notes: list[str] = []
    for model in request.models:
        models.append(model)
        if model.role == "target" or not model.model or is_address(model.model):
            continue
        try:
            own = outline(model_settings(request, model), finite=False)
        except InputError:
            # `check_request` has already looked for it. The task that loads it reports the rest.
            continue
        name = one_line(model.name, width=60)
        if own.prompter.max_tokens < target.prompter.max_tokens:
            readings.open[model.name] = (
                f"{name} reads {own.prompter.max_tokens} tokens and the target {target.prompter.max_tokens}, so its "
                "replies may be cut"
            )
        if own.prompter.digest == target.prompter.digest:
            continue
        if not _has_vocabulary(own, target):
            readings.open[model.name] = f"{name} has another vocabulary than the target, and its own tokeniser asked it"
            notes.append(
                f"{name} has another vocabulary than the target. It was asked through its own tokeniser and template, "
                "which nothing verifies, so no claim about it holds."
            )
            continue
        models[-1] = replace(model, through_target=True)
        others, refused = _differences(own.prompter, target.prompter, items)
        if not others:
            notes.append(
                f"{name} brings other tokeniser files than the target. They make the same tokens of all {len(items)} "
                "questions, and it was asked through the target's."
            )
            continue
        first = f"{name} brings another tokeniser or template: {others} of {len(items)} questions get other tokens"
        if refused:
            notes.append(f"{first} or are rewritten ({refused}). It was asked through the target's alone.")
        elif model.role == "unlearned":
            twin = AuditedModel(free_name(f"{model.name}, {_OWN}", request.models), "unlearned", model.model)
            readings.pairs[twin.name] = model.name
            models.append(twin)
            notes.append(f"{first}. It was asked both ways, and a claim holds only if it holds both ways.")
        else:
            notes.append(f"{first}. It was asked through the target's.")
    return replace(request, models=tuple(models)), replace(readings, notes=tuple(notes))


def _texts(items: Sequence[Item]) -> Iterator[str]:
    for item in items:
        yield item.question
        if item.paraphrase:
            yield item.paraphrase


def _has_vocabulary(own: "LoadedModel", target: "LoadedModel") -> bool:
    """Whether the model reads every token of the target as the same token. It may have others as well."""
    vocabulary, of_target = own.tokenizer.get_vocab(), target.tokenizer.get_vocab()
    if own.prompter.rows <= max(of_target.values()):
        return False
    return all(vocabulary.get(token) == number for token, number in of_target.items())


def _differences(own: "Prompter", target: "Prompter", items: Sequence[Item]) -> tuple[int, str]:
    """Count the questions with other tokens than the target's. Return the first one that its own files rewrite."""
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
    """Return the tokens of a question with its answer, and of its other wording."""
    tokens = [prompter.encode(item.question, item.answer).ids]
    if item.paraphrase:
        tokens.append(prompter.prompt(item.paraphrase))
    return tokens


def verified_readings(run: RunFolder, plan: AuditPlan, readings: Readings) -> AuditPlan:
    """Return the plan with the facts about tokenisers, including replies that contradict their probabilities."""
    contradicting = contradictions(run, plan)
    notes = [*readings.notes, *(f"{why}." for why in contradicting.values()), *near_the_target(plan)]
    unverified = {name: why for name, why in {**readings.open, **contradicting}.items() if name in plan.unlearned}
    return replace(plan, asked_twice=readings.pairs, unverified_readings=unverified, read_otherwise=tuple(notes))


def near_the_target(plan: AuditPlan) -> list[str]:
    """Return a sentence for each model whose weights are almost the target's.

    A digest detects exact copies only. A distance to the target below 1/100 of the nearest control's distance is
    therefore reported.
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


def contradictions(run: RunFolder, plan: AuditPlan) -> TextByName:
    """Return a sentence for each model whose replies contradict the likelihood of the same text.

    A greedy reply that equals the stated answer letter for letter cannot be a text with almost no probability. If it
    is, the decoder writes a text that the model did not produce.

    Args:
        run: The run with the models' answers.
        plan: The plan with the location of the answers.

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
    """Return the outcome in which no claim passes that rests on an unverifiable reading.

    For a model with two rows, each claim has the worse outcome in both rows.
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
