"""All contents of the tables and the page, read once.

The estimates of a forget set are plotted with the displayed answers and the controls. It has a mean and an envelope,
and no verdict: only the audit computes verdicts.

The contracts of a run: their ids and the names of their parties.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from vestige.artifacts.audits import AuditOutcome, FactLine, VerdictLine, checked_places, read_outcome, read_plan
from vestige.artifacts.layout import AuditFolder, EvalFolder, RunFolder
from vestige.artifacts.records import read_records
from vestige.core.errors import InputError
from vestige.core.files import open_input, read_json
from vestige.core.ids import file_digest
from vestige.core.text import TextByName, TextMapping, TextTuple
from vestige.metrics.answers import normalised
from vestige.report.evidence import (
    AskedItem,
    EstimatePlace,
    ForgetView,
    RunAnswers,
    RunEvidence,
    forget_label,
    forget_parts,
    forget_set,
    greedy_rouge,
    read_answers,
    read_evidence,
)
from vestige.report.holes import Probe, read_probe
from vestige.report.words import method_name, plain_sentence


@dataclass(frozen=True)
class NamedEdge:
    """A contract. `name` has both parties as in the data, such as `Gokpda Inc and Oradfa Corp`, `names` each party.

    Names that the data do not have are empty.
    """

    id: str
    name: str = ""
    names: tuple[str, str] = ("", "")


def read_edges(run: RunFolder) -> tuple[NamedEdge, ...]:
    """The run's contracts, from the compiler's table with the columns edge, first and second. None without a table."""
    path = run.edges
    if not path.exists():
        return ()
    _check_compiled(run)
    names = _party_names(run)
    edges = []
    with io.TextIOWrapper(open_input(path), encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        try:
            for row in reader:
                first, second = row["first"], row["second"]
                if not (row["edge"] and first and second):
                    raise ValueError("an edge without an id or a party")
                parties = names.get(first, ""), names.get(second, "")
                # A name needs both parties: half of one would read as another contract.
                name = " and ".join(parties) if all(parties) else ""
                edges.append(NamedEdge(row["edge"], name, parties))
        except (KeyError, TypeError, ValueError, csv.Error) as error:
            raise InputError(
                f"{path}, line {reader.line_num}: not a row of the compiler's table ({error}). Compile the data again"
            ) from error
    return tuple(edges)


def _check_compiled(run: RunFolder) -> None:
    """Reject a table of edges or a graph that was changed after it was compiled."""
    manifest = run.data / "manifest.json"
    stored = read_json(manifest) if manifest.exists() else {}
    files = stored.get("files") if isinstance(stored, dict) else None
    for path in (run.edges, run.graph):
        noted = files.get(path.name) if isinstance(files, dict) else None
        if isinstance(noted, dict) and path.exists() and file_digest(path) != noted.get("sha256"):
            raise InputError(f"{path} was changed after it was compiled. Compile the data again.")


def _party_names(run: RunFolder) -> dict[str, str]:
    """Return the parties' names by id, as far as the data set's graph has names."""
    if not run.graph.exists():
        return {}
    graph = read_json(run.graph)
    try:
        return {node["id"]: node["name"] for node in graph["nodes"] if isinstance(node.get("name"), str)}
    except (TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{run.graph}: the graph has no nodes. Compile the data again") from error


REPLIES_SHOWN = 20_000
"""Replies that the page carries; tables/items.csv has all."""


@dataclass(frozen=True)
class Contents:
    """A run, read.

    `audits` and `probes` are those that are done. A run may have none. `sources` has for each audit the evaluations
    that it was judged by: subject, attack, folder and the beginning of the digest of its scores. `verbatim` has for
    each audit the forgotten answers that models reproduce word for word. `people` has for each audit the number of
    facts to be forgotten by person. `unjudged` names in sentences the models that audits leave out.
    """

    evidence: RunEvidence
    answers: RunAnswers
    forget_sets: tuple[ForgetView, ...]
    edges: tuple[NamedEdge, ...]
    audits: tuple[AuditOutcome, ...]
    sources: tuple[list[list[str]], ...]
    verbatim: tuple[TextTuple, ...]
    people: tuple[dict[str, int], ...]
    unjudged: TextTuple
    probes: tuple[Probe, ...]

    @cached_property
    def shown(self) -> tuple[AskedItem, ...]:
        """The questions whose answers the page carries, in their order: all, up to REPLIES_SHOWN replies.

        Otherwise it displays as many as that allows: the forget sets' items first, each evenly spaced.
        """
        questions = self.answers.questions
        most = max(1, REPLIES_SHOWN // max(1, len(self.evidence.subjects)))
        if len(questions) <= most:
            return questions
        forget = {item for f in self.forget_sets for item, split in f.split.items() if split == "forget"}
        chosen: set[int] = set()
        for forgotten in (True, False):
            places = [i for i, question in enumerate(questions) if (question.id in forget) == forgotten]
            room = min(most - len(chosen), len(places))
            # The choice is evenly spaced, since the first ones would all be of the first contracts.
            chosen |= {places[k * len(places) // room] for k in range(room)}
        return tuple(question for i, question in enumerate(questions) if i in chosen)

    @cached_property
    def parties(self) -> TextByName:
        """Return the parties' names by contract, if the data has names."""
        return {edge.id: edge.name for edge in self.edges if edge.name}

    @cached_property
    def in_words(self) -> tuple[AuditOutcome, ...]:
        """Return the audits in the page's words: plain sentences, and each leaked fact with its question."""
        questions = {question.id: question for question in self.answers.questions}
        return tuple(plain_outcome(outcome, self.parties, questions) for outcome in self.audits)

    @cached_property
    def leading(self) -> tuple[str, str, str]:
        """Return the format, attack and metric for the page's comparison of models: the most revealing form.

        Without an audit it is the overlap of written answers, so it is where the other form was not asked of all.
        """
        written = greedy_rouge("all")[2:]
        for outcome in self.audits:
            metrics = {line.format: line.metric for line in outcome.formats}
            for form in forms_by_leakage(outcome):
                measure = (form, "", metrics[form])
                needed = {EstimatePlace(split, "all", *measure) for split in ("forget", "retain")}
                models = self.evidence.of("unlearned", outcome.forget)
                # All models or none: a picture without some of them would look complete.
                if models and all(needed <= model.results[outcome.forget].keys() for model in models):
                    return measure
        return written

    @cached_property
    def more_telling(self) -> str:
        """Return the format that reveals more than the leading one, but lacks scores for some models."""
        for outcome in self.audits:
            forms = forms_by_leakage(outcome)
            if forms and forms[0] != self.leading[0]:
                return forms[0]
        return ""

    @cached_property
    def colours(self) -> dict[str, int]:
        """A number for each method label, the same throughout the run."""
        labels = sorted({s.label for s in self.evidence.subjects if s.spec.subject == "unlearned"})
        return {label: number for number, label in enumerate(labels)}


def forms_by_leakage(outcome: AuditOutcome) -> list[str]:
    """The forms of question, the one in which most is left of the unlearned models together first."""
    leaks: dict[str, list[float]] = {}
    for cell in outcome.matrix:
        if cell.leakage is not None and cell.subject in outcome.unlearned:
            leaks.setdefault(cell.format, []).append(cell.leakage.value)
    return sorted(leaks, key=lambda form: sum(leaks[form]) / len(leaks[form]), reverse=True)


def plain_outcome(
    outcome: AuditOutcome, parties: TextMapping, questions: Mapping[str, AskedItem] = MappingProxyType({})
) -> AuditOutcome:
    """`outcome` with `plain_sentence` applied to its sentences. Facts without a text take the one in `questions`.

    An attack may store no record of its own answers, so the outcome has only the id of a fact.
    """
    parts = forget_parts(outcome.forget)
    # A list of a hundred selectors would hide the sentence around it.
    contracts = len(parts) > 1 and parts[0] in parties
    forgotten = f"these {len(parts)} contracts" if contracts else forget_label(outcome.forget, parties)

    def plain(text: str) -> str:
        return plain_sentence(text.replace(outcome.forget, forgotten), parties)

    def with_text(line: FactLine) -> FactLine:
        item = questions.get(line.item)
        if line.question or item is None:
            return line
        return replace(line, question=item.question, answer=item.answer)

    def verdict(v: VerdictLine) -> VerdictLine:
        return replace(
            v,
            reason=plain(v.reason),
            left_out=tuple(map(plain, v.left_out)),
            evidence={plain(name): e for name, e in v.evidence.items()},
            decides=v.decides and plain(v.decides),
        )

    return replace(
        outcome,
        verdicts=tuple(map(verdict, outcome.verdicts)),
        control=tuple(map(verdict, outcome.control)),
        untested=tuple(map(plain, outcome.untested)),
        warnings=tuple(map(plain, outcome.warnings)),
        formats=tuple(replace(f, reason=plain(f.reason)) for f in outcome.formats),
        able=tuple(replace(line, why_not=plain(line.why_not)) for line in outcome.able),
        facts=tuple(map(with_text, outcome.facts)),
    )


def read_contents(run: RunFolder, *, verify: bool = False) -> Contents:
    """Read a run for the report. With `verify` the files of its models too."""
    evidence = read_evidence(run, verify=verify)
    answers = read_answers(evidence.subjects)
    forget_sets = tuple(forget_set(evidence, answers, f) for f in evidence.forgets)
    audits, sources, verbatim, people = [], [], [], []
    for folder in run.audits():
        audits.append(read_outcome(folder))
        people.append(people_of(run, folder))
        places = checked_places(run, folder) if folder.plan.exists() else ()
        # An attack is asked at several points, of which the last one is judged.
        last = {(p.subject, p.attack, p.eval): p for p in places}.values()
        digests = [scores_digest(EvalFolder(run.path / p.path))[:DIGEST_TOLD] for p in last]
        sources.append([[p.subject, p.attack, p.path, digest] for p, digest in zip(last, digests, strict=True)])
        verbatim.append(tuple(f"{method_name(name)} {words}" for name, words in verbatim_of(run, folder).items()))
    # Models of a search are identified by digest. A digest that two of them share gives no name.
    labels = [(s.digest, s.label) for s in evidence.subjects]
    times = Counter(digest for digest, _ in labels)
    names = {digest: label for digest, label in labels if digest and times[digest] == 1}
    return Contents(
        evidence=evidence,
        answers=answers,
        forget_sets=forget_sets,
        edges=read_edges(run),
        audits=tuple(audits),
        sources=tuple(sources),
        verbatim=tuple(verbatim),
        people=tuple(people),
        unjudged=tuple(_unjudged(run, evidence)),
        probes=tuple(read_probe(folder, names) for folder in run.probes()),
    )


def people_of(run: RunFolder, folder: AuditFolder) -> dict[str, int]:
    """The number of facts to be forgotten by person. Empty if a forgotten item names nobody, or if it names contracts.

    The column `person` of the user's data is the edge of an item. Compiled data have a graph or scopes.
    """
    if not folder.plan.exists():
        return {}
    plan = read_plan(folder)
    names = plan.groups
    if not plan.scopes and not run.graph.exists():
        names = {**plan.edges, **plan.groups}
    forget = plan.splits.get("forget", ())
    if any(item not in names for item in forget):
        return {}
    facts = dict.fromkeys((names[item], plan.facts.get(item, item)) for item in forget)
    return dict(Counter(person for person, _ in facts))


def _unjudged(run: RunFolder, evidence: RunEvidence) -> list[str]:
    """The unlearned models of the run that its last audit of their forget set was not given.

    An audit with other models takes the place of the one before it: without this, a verdict could vanish unseen.
    """
    notes = []
    for folder in run.audits():
        if folder.plan.exists():
            plan = read_plan(folder)
            judged, failed = {*plan.folders.values()}, {task.subject for task in plan.failed}
            notes += [
                f"{subject.path} is not part of the audit of {forget_label(plan.forget)}, so it has no verdict."
                for subject in evidence.of("unlearned", plan.forget)
                if subject.path not in judged and subject.label not in failed
            ]
    return notes


def verbatim_of(run: RunFolder, folder: AuditFolder) -> TextByName:
    """Return the models that reproduce forgotten answers word for word, clearly more often than any control.

    This needs no verdict: a reply with the answer is reported even without controls. The result is by model, such as
    `says 3 of 8 answers word for word; the controls guess at most 1.`
    """
    if not folder.plan.exists():
        return {}
    plan = read_plan(folder)
    forget = {*plan.splits.get("forget", ())}
    stated: dict[str, set[str]] = {}
    for evaluation in plan.evaluations:
        # After an attack, the words may come from the attack.
        if evaluation.attack or evaluation.eval not in WRITTEN:
            continue
        for record in read_records(EvalFolder(run.path / evaluation.path)):
            item, answer = record.get("item"), record.get("answer")
            if item in forget and isinstance(answer, str) and any(_says(r, answer) for r in _replies(record)):
                stated.setdefault(evaluation.subject, set()).add(item)
    controls = [len(stated.get(name, ())) for name in plan.retrained]
    comparison = "no control was given, so nothing shows how many a retrained model would say"
    if controls:
        comparison = "no control guesses one"
    if any(controls):
        comparison = f"the controls guess at most {max(controls)}"
    # Among unexposed models one guesses most: a lead of a few answers is luck.
    least = max(controls) + _CLEARLY_MORE * len(forget) if controls else 0
    return {
        name: f"says {len(stated[name]):,} of {len(forget):,} answers word for word; {comparison}."
        for name in plan.unlearned
        if name not in plan.references and len(stated.get(name, ())) > least
    }


_CLEARLY_MORE = 0.05
"""The lead over all controls, as a share of the answers, for a warning at the top."""


def _says(reply: str, answer: str) -> bool:
    """Whether the answer occurs in the reply as separate words, regardless of case and spaces."""
    words = re.escape(normalised(answer))
    # The pattern avoids \b, which needs a letter at the edge: an answer may begin or end with a sign, as `$5` does.
    return bool(words) and re.search(rf"(?<!\w){words}(?!\w)", normalised(reply)) is not None


WRITTEN = ("qa", "freeform")
"""The evaluations whose records contain replies in the model's own words."""


def _replies(value: Any) -> Iterator[str]:
    """Yield every reply in a record, including samples, but not those that began with the given answer."""
    if isinstance(value, Mapping):
        if isinstance(value.get("reply"), str):
            yield value["reply"]
        for key, part in value.items():
            if key != "prefilled":
                yield from _replies(part)
    elif isinstance(value, list):
        for part in value:
            yield from _replies(part)


DIGEST_TOLD = 16
"""Displayed characters of a digest: enough to distinguish files."""


def scores_digest(folder: EvalFolder) -> str:
    """The SHA-256 of an evaluation's scores, which were checked as it was read. "" where it has none of its own."""
    if not folder.scores.exists():
        return ""
    return file_digest(folder.scores)
