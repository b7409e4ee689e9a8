"""The parts of the page that are plain HTML: the answer with its tables, and what was run.

Everything here is text and numbers for the template, which escapes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vestige.core.estimates import Estimate
from vestige.report.audit_sections import audit_block
from vestige.report.contents import Contents, Finding, pooled
from vestige.report.evidence import PANELS, Cell, Subject, forget_label
from vestige.report.first_screen import models_audited
from vestige.report.holes_sections import holes_block
from vestige.report.verdict_words import question
from vestige.report.words import listed, named_values, provenance_lines


@dataclass(frozen=True)
class Column:
    """A column of the answer's table: title, n where all rows share it, and anchor.

    `anchor` is the level of the model that the column is read against: retrained on the forget set, else
    target.
    """

    title: str
    n: str
    anchor: Estimate | None
    never: bool


@dataclass(frozen=True)
class Row:
    """A model's row: estimates by column."""

    label: str
    css: str
    cells: tuple[Estimate | None, ...]


@dataclass(frozen=True)
class Answer:
    """What plain questions about one forget set still bring out."""

    label: str
    selector: str
    sentence: str
    dispute: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


def sections(contents: Contents) -> dict[str, Any]:
    """The template's variables."""
    evidence = contents.evidence
    return {
        "run_name": evidence.name,
        "headline": headline(contents),
        "models": sorted({s.spec.model for s in evidence.subjects}),
        "facts": _facts(contents),
        "audits": [audit_block(i, o, contents.colours, contents.parties) for i, o in enumerate(contents.audits)],
        "probes": [holes_block(probe) for probe in contents.probes],
        "answers": [_answer(contents, finding) for finding in contents.findings],
        "missing": (*evidence.missing, *contents.unjudged),
        "no_graph": contents.no_graph,
        "left_out": contents.drawing.left_out if contents.drawing else 0,
        "drawn": len(contents.drawing.edges) if contents.drawing else 0,
        "settings": named_values(evidence.settings),
        "provenance": provenance_lines(evidence.provenance),
        "subjects": [_made(s, len(evidence.subjects) <= DETAILED) for s in evidence.subjects],
    }


def headline(contents: Contents) -> str:
    """The question that the page answers, or what it shows where nothing was audited."""
    if len(contents.audits) > 1:
        return models_audited(contents.audits)
    if contents.audits:
        (outcome,) = contents.audits
        edges = next((f.edges for f in contents.forget_sets if f.forget == outcome.forget), None)
        n_edges = len(edges) if edges and contents.edges else None
        return question(outcome, n_edges, forget_label(outcome.forget, contents.parties))
    names = [forget_label(f, contents.parties) for f in contents.evidence.forgets]
    if not names:
        return "Nothing has been forgotten in this run yet"
    if len(names) > 3:
        return f"What is left of {len(names)} forget sets"
    return f"What is left of {listed(names)}"


def _facts(contents: Contents) -> list[str]:
    provenance, roles = contents.evidence.provenance, [s.spec.subject for s in contents.evidence.subjects]
    facts = []
    if not contents.audits:
        n = roles.count("unlearned")
        facts += [f"{n} unlearned model{'s' if n != 1 else ''}", f"{len(contents.answers.asked):,} questions"]
        facts += [f"{len(contents.edges):,} contracts"] if contents.edges else []
        version = provenance.get("versions", {}).get("vestige")
        facts += [f"Vestige {version}"] if version else []
    if "times" in provenance:
        facts.append(str(provenance["times"].get("started", ""))[:10])
    return facts


def _answer(contents: Contents, finding: Finding) -> Answer:
    of = contents.evidence.of
    subjects = [s for role in ("target", "retrained", "unlearned") for s in of(role, finding.forget)]
    panels = [(t, c) for _, t, c in PANELS if any(c in s.results[finding.forget] for s in subjects)]
    return Answer(
        label=forget_label(finding.forget, contents.parties),
        selector=finding.forget,
        sentence=_sentence(contents, finding),
        dispute=next(f.dispute for f in contents.forget_sets if f.forget == finding.forget),
        columns=tuple(_column(t, c, finding, subjects) for t, c in panels),
        rows=tuple(_row(contents, finding, s, [c for _, c in panels]) for s in subjects),
    )


def _column(title: str, cell: Cell, finding: Finding, subjects: Sequence[Subject]) -> Column:
    found = [(s, s.results[finding.forget][cell]) for s in subjects if cell in s.results[finding.forget]]
    counts = {e.n for _, e in found}
    role = "retrained" if cell.split == "forget" else "target"
    return Column(
        title=title,
        n=str(counts.pop()) if len(counts) == 1 else "",
        anchor=pooled([e for s, e in found if s.spec.subject == role]),
        never=role == "retrained",
    )


def _row(contents: Contents, finding: Finding, subject: Subject, cells: Sequence[Cell]) -> Row:
    results = subject.results[finding.forget]
    colour = contents.colours.get(subject.label, 0) % 8
    return Row(
        label=subject.label,
        css=f"method-{colour}" if subject.spec.subject == "unlearned" else f"role-{subject.spec.subject}",
        cells=tuple(results.get(c) for c in cells),
    )


def _sentence(contents: Contents, finding: Finding) -> str:
    if not contents.evidence.of("unlearned", finding.forget):
        return "No unlearned model has been evaluated on it yet."
    return "Not judged: these are its questions as they stand, and vestige audit gives verdicts."


DETAILED = 40
"""A run of more models has their settings and versions in their folders only."""


def _made(subject: Subject, detailed: bool) -> dict[str, Any]:
    done, provenance = subject.done or {}, subject.provenance or {}
    spec = subject.spec
    return {
        "label": subject.label,
        "role": spec.subject,
        "forget": forget_label(spec.forget) if spec.forget else "",
        "seed": spec.seed,
        "steps": done.get("steps", ""),
        "stopped": done.get("stopped", "not finished"),
        "loss": _rounded(done.get("loss"), ".4g"),
        "seconds": _rounded(provenance.get("times", {}).get("wall_seconds"), ".1f"),
        "digest": str(done.get("digest", "")),
        "path": subject.path,
        "details": _details(subject) if detailed else [],
    }


def _details(subject: Subject) -> list[tuple[str, str]]:
    done, provenance, spec = subject.done or {}, subject.provenance or {}, subject.spec
    return [
        ("folder", subject.path),
        ("name", spec.name),
        ("model", spec.model),
        ("settings id", spec.settings_id),
        ("training items", spec.data),
        ("digest", str(done.get("digest", "")) or "none yet"),
        ("started from", spec.parent or "the model itself"),
        ("code version", str(spec.version)),
        ("answers", subject.answers.path.name if subject.answers else "none yet"),
        *((f"setting {k}", v) for k, v in named_values(spec.settings)),
        *provenance_lines(provenance),
    ]


def _rounded(x: Any, form: str) -> str:
    return format(x, form).replace("-", "−") if isinstance(x, int | float) else ""
