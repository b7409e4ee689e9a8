"""An audit's verdicts as others read them: JUnit, a model card, Every Eval Ever, Hugging Face's results.

These functions only read outcomes and model facts. Names, selectors and reasons are untrusted text and are escaped.
Names, selectors and reasons are others' text and act nowhere.
"""

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple
from xml.etree import ElementTree

import yaml

from vestige.artifacts.audits import CLAIMS, AuditOutcome, VerdictLine
from vestige.artifacts.verdicts import WORDS, bound_said, sized
from vestige.core.ids import slug
from vestige.core.text import Fields, one_line, sentence

EEE_SCHEMA = "0.3.0"
"""The version of Every Eval Ever's schema (eval.schema.json) that `eee` fulfils."""

# From bad to good: a verdict's score is its position here.
_LEVELS = ("fail", "inconclusive", "pass")
# XML 1.0 cannot represent the other characters, not even as references.
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# The colon and @ are included because bare addresses become links and names mentions. $ begins a formula.
_MARKS = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~&:@$])")


class ModelFacts(NamedTuple):
    """The facts of a judged model: its public name, the digest of its weights or scores, and Vestige's version."""

    id: str
    digest: str
    version: str
    compared: Mapping[str, str] = {}
    """The digests of the models that it was compared with, by name."""
    served: bool = False
    """Return whether the model was served at an address."""
    seen: bool = True
    """Whether the weights were there, and not only scores."""


_PATH = re.compile(r"(?<![\w:/<.])(?:~|\.{0,2}|[A-Za-z]:)(?:[/\\][^\s/\\:,;'\"()]+)+")


def without_paths(text: str) -> str:
    """The text with the last part alone of every local path.

    Example:
        >>> without_paths("r0 (/home/ann/logs/r0.json), of org/model, lacks 3")
        'r0 (r0.json), of org/model, lacks 3'
    """
    return _PATH.sub(lambda path: re.split(r"[/\\]", path[0])[-1], text)


def shareable(outcome: AuditOutcome) -> AuditOutcome:
    """The outcome without local paths, for what leaves the machine."""
    lines = tuple(replace(v, reason=without_paths(v.reason)) for v in outcome.verdicts)
    return replace(outcome, verdicts=lines, untested=tuple(without_paths(text) for text in outcome.untested))


def junit(
    outcomes: Sequence[AuditOutcome], *, fail_open: bool = False, worse: Collection[tuple[str, str, str]] | None = None
) -> str:
    """Return one suite per forget set and one test case per claim about a model. An open claim is skipped.

    Args:
        outcomes: The outcomes.
        fail_open: An open claim fails too, so that who reads this file alone is as strict as who wants exit code 0.
        worse: Forget set, model and claim of the verdicts that are worse than in a baseline. Only these fail.

    Returns:
        The XML.
    """
    root = ElementTree.Element("testsuites", name="vestige audit")
    for outcome in outcomes:
        lines = outcome.verdicts
        failing = set()
        for v in lines:
            open_too = fail_open and v.outcome == "inconclusive"
            if (v.outcome == "fails" or open_too) if worse is None else (outcome.forget, v.subject, v.claim) in worse:
                failing.add((v.subject, v.claim))
        failed = len(failing)
        amounts = {"failures": str(failed), "skipped": str(sum(v.outcome != "holds" for v in lines) - failed)}
        # There are no errors: an untested claim is not a test case, and is listed in system-out.
        attributes = {"name": _xml(outcome.forget), "tests": str(len(lines)), "errors": "0", **amounts}
        suite = ElementTree.SubElement(root, "testsuite", attributes)
        for line in lines:
            case = ElementTree.SubElement(suite, "testcase", classname=_xml(line.subject), name=_xml(line.claim))
            if line.outcome != "holds":
                kind = "failure" if (line.subject, line.claim) in failing else "skipped"
                parts = [bound_said(outcome, line), line.reason]
                if worse is not None and kind == "skipped":
                    parts.append(f"{WORDS[line.outcome]}, no worse than in the baseline")
                message = _xml("; ".join(part for part in parts if part))
                ElementTree.SubElement(case, kind, message=message)
        ElementTree.SubElement(suite, "system-out").text = _xml("\n".join(("Untested:", *outcome.untested)), width=None)
    ElementTree.indent(root)
    # With text output, `tostring` writes no declaration.
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _xml(text: str, *, width: int | None = 500) -> str:
    """Return the part of a text that XML 1.0 can represent, on one line of at most `width` characters."""
    lines = [text] if width is not None else text.split("\n")
    return _NO_XML.sub("·", "\n".join(one_line(line, width=width or 500) for line in lines))


def card(outcomes: Sequence[AuditOutcome], subject: str, facts: ModelFacts) -> str:
    """Return Markdown for the model card of a judged model: verdicts, bounds, margins, missing tests and digest."""
    markdown = ["## Unlearning audit", ""]
    markdown += [f"Audited with Vestige {_plain(facts.version)}. {_identified(facts)}", ""]
    if facts.compared:
        markdown += ["Compared with:", "", *(f"- {_plain(name)}: `{d}`" for name, d in facts.compared.items()), ""]
    for outcome in (o for o in outcomes if any(v.subject == subject for v in o.verdicts)):
        lines = [v for v in outcome.verdicts if v.subject == subject]
        markdown += [f"### Forget set {_plain(outcome.forget)}", "", "| The model | verdict | bound | margins |"]
        markdown += ["| --- | --- | --- | --- |"]
        for v in lines:
            margins = f"fails above {sized(v.margin, v.unit)}, passes below {sized(v.wide, v.unit)}"
            cells = (CLAIMS[v.claim], WORDS[v.outcome], bound_said(outcome, v), margins)
            markdown.append(f"| {' | '.join(map(_plain, cells))} |")
        markdown += ["", *(f"- {_plain(v.claim)}: {_plain(sentence(v.reason))}" for v in lines), ""]
        markdown += ["Not tested:", "", *(f"- {_plain(text)}" for text in outcome.untested), ""]
    return "\n".join(markdown)


def _identified(facts: ModelFacts) -> str:
    """Return the sentence that identifies the judged model."""
    if not facts.seen:
        return f"No weights were seen, only scores. Digest of the scores: `{facts.digest}`."
    if facts.served:
        return "Digest of the audited model: unknown, since the model was asked behind an address."
    return f"Digest of the audited model: `{facts.digest}`."


def _plain(text: str) -> str:
    """Escape untrusted text for Markdown: no links, no markup, no table columns."""
    return _MARKS.sub(r"\\\1", one_line(text, width=500))


UNKNOWN = "unknown"
"""The organisation in a model's public name if the user gave none."""


def eee(outcome: AuditOutcome, subject: str, facts: ModelFacts, when: datetime) -> Fields:
    """The record of one model and forget set. `when` it was judged."""
    timestamp = str(int(when.timestamp()))
    lines = [v for v in outcome.verdicts if v.subject == subject]
    results = [result for v in lines for result in (_level(outcome, v), *_measured(outcome, v))]
    deployment = "unknown"
    if facts.seen:
        deployment = "externally_managed" if facts.served else "self_deployed"
    digest = {"digest": facts.digest} if facts.seen and not facts.served else {}
    if not facts.seen:
        digest = {"digest_of_scores": facts.digest}
    name = one_line(subject, width=200)
    organisation = facts.id.partition("/")[0]
    developer = {} if organisation == UNKNOWN else {"developer": organisation}
    return {
        "schema_version": EEE_SCHEMA,
        "evaluation_id": f"vestige-audit/{name}/{timestamp}",
        "retrieved_timestamp": timestamp,
        # The schema requires the evaluator, which a run does not know.
        "source_metadata": {
            "source_name": "vestige audit",
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
            "additional_details": {"untested": json.dumps(list(outcome.untested), ensure_ascii=False)},
        },
        "eval_library": {"name": "vestige", "version": facts.version},
        "model_info": {
            "name": name,
            "id": facts.id,
            **developer,
            "additional_details": {
                "deployment_type": deployment,
                "model_availability": "unknown",
                **digest,
                "target": one_line(outcome.target, width=200),
            },
        },
        "evaluation_results": results,
    }


def hub_results(outcome: AuditOutcome, subject: str, facts: ModelFacts, dataset: str, when: datetime) -> str:
    """Return the YAML of `.eval_results/`: the deciding quantity of each claim. Other claims are in the card only.

    `dataset` is the hub's id of the benchmark.
    """
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    entries, date = [], when.astimezone(UTC).isoformat(timespec="seconds")
    # The hub only accepts numbers, so a claim that facts decide is in the card.
    for v in (v for v in outcome.verdicts if v.subject == subject and v.decides in v.evidence):
        estimate = v.evidence[str(v.decides)]
        notes = (
            f"vestige {facts.version} audit, forget set {outcome.forget}: {WORDS[v.outcome]}; {estimate} "
            f"({bound_said(outcome, v)}; fails above {sized(v.margin, v.unit)}, passes below {sized(v.wide, v.unit)})"
        )
        task = slug(f"{outcome.forget} {v.claim}")
        entries.append(EvalResultEntry(dataset, task, estimate.value, date=date, notes=one_line(notes, width=500)))
    return str(yaml.safe_dump(eval_result_entries_to_yaml(entries), sort_keys=False))


def _level(outcome: AuditOutcome, v: VerdictLine) -> Fields:
    """The verdict itself."""
    levels: Fields = {"score_type": "levels", "level_names": list(_LEVELS), "has_unknown_level": False}
    margins = {"margin": f"{v.margin:g}", "wide": f"{v.wide:g}", "unit": v.unit}
    details = {"bound": bound_said(outcome, v), "reason": one_line(v.reason, width=500), "against": v.against}
    return {
        **_of(outcome, v, "verdict"),
        "metric_config": {
            "evaluation_description": CLAIMS[v.claim],
            "metric_id": "vestige.verdict",
            "lower_is_better": False,
            **levels,
            "additional_details": margins,
        },
        "score_details": {"score": _LEVELS.index(WORDS[v.outcome]), "details": details},
    }


def _measured(outcome: AuditOutcome, v: VerdictLine) -> list[Fields]:
    """The quantities that the verdict rests on."""
    results = []
    for name, e in v.evidence.items():
        observed = [end for end in (e.value, e.low, e.high) if math.isfinite(end)]
        if e.unit != "bits":
            observed += [0.0, 1.0]
        config = {
            "metric_id": f"vestige.{e.metric}",
            "metric_unit": e.unit,
            "lower_is_better": v.claim != "benchmark valid",
            "score_type": "continuous",
            # The format requires a range. Leakage can be below 0 and above 1, and bits are unbounded.
            "min_score": min(observed),
            "max_score": max(observed),
        }
        uncertainty: Fields = {"num_samples": e.n}
        # JSON has no infinity, which means that the items do not determine an end.
        if math.isfinite(e.low) and math.isfinite(e.high):
            ends = {"lower": e.low, "upper": e.high, "confidence_level": 0.95, "method": e.interval}
            uncertainty["confidence_interval"] = ends
        details = {"decides": str(name == v.decides).lower()}
        score = {"score": e.value, "details": details, "uncertainty": uncertainty}
        results.append({**_of(outcome, v, name), "metric_config": config, "score_details": score})
    return results


def _of(outcome: AuditOutcome, v: VerdictLine, name: str) -> Fields:
    data = {"dataset_name": one_line(outcome.forget, width=200), "source_type": "other"}
    title = f"{v.claim}: {one_line(name, width=120)}"
    return {"evaluation_result_id": title, "evaluation_name": title, "source_data": data}
