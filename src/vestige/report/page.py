"""The page: one HTML file without network requests, which runs only its own script.

The content security policy admits one script and one style sheet, each by its SHA-256, and no string may become markup
(trusted types). Data is in a block that is never run. The first screen is plain HTML, readable without the script. The
template escapes names, and all other text enters as text nodes.

As data the page carries names, estimates, every answer once, and of each audit the levels along each
attack and the parts of each gain. Numbers are rounded to six significant digits; tables/ has them in full.

The page of `vestige compare`: differences, a curve of each score over the models, and each question with replies.
"""

import base64
import hashlib
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import chain
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from vestige.artifacts.audits import AuditOutcome
from vestige.artifacts.records import SHUFFLED
from vestige.artifacts.verdicts import sized
from vestige.core.estimates import Estimate
from vestige.core.text import Fields, Record, visible
from vestige.report.audit import (
    Colours,
    any_range,
    any_size,
    audit_block,
    groups_of,
    heat,
    heat_rules,
    spanned,
    why_no_evidence,
    with_interval,
)
from vestige.report.contents import DIGEST_TOLD, Contents, scores_digest
from vestige.report.evidence import EstimatePlace, GreedyReply, RunModel, forget_label, split_of
from vestige.report.holes import Probe, holes_block, holes_payload, placed
from vestige.report.words import (
    attack_name,
    format_name,
    group_said,
    headline,
    headline_of_several,
    interval,
    listed,
    method_name,
    named_values,
    number,
    per_cent,
    plain_number,
    provenance_lines,
    typeset,
)

_SCRIPTS = ("dom", "copy", "data", "tooltip", "tradeoff", "table", "paging", "items", "audit", "holes", "main")
_HOLE_SCRIPTS = ("dom", "tooltip", "paging", "holes", "holes_main")
_STYLES = ("report.css", "audit.css", "holes.css", "narrow.css")
"""After the colours: the rules for narrow screens are last, since they override others."""

# In a script element `<` could end it or open a comment, and U+2028 and U+2029 end lines in older scripts.
_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def render(contents: Contents) -> str:
    """The whole page of a run as text."""
    return _whole("page.html.j2", _SCRIPTS, payload(contents), sections(contents))


def render_holes(probe: Probe) -> str:
    """The whole page of a search for holes as text."""
    block = holes_block(probe)
    variables = {"headline": block["headline"], "block": block}
    return _whole("holes_page.html.j2", _HOLE_SCRIPTS, {"probes": [holes_payload(probe)]}, variables)


def render_static(template: str, scripts: Sequence[str], variables: Record) -> str:
    """A page that carries no data for its scripts, as text."""
    return _whole(template, scripts, {}, variables)


def _whole(template: str, scripts: Sequence[str], data: Any, variables: Record) -> str:
    body = "\n".join(page_file(f"{name}.js") for name in scripts)
    script = f'"use strict";\n(() => {{\n{body}}})();\n'
    style = page_file("colours.css") + heat_rules() + "\n".join(map(page_file, _STYLES))
    # Strict: a misspelt name in a template must not become empty text.
    environment = Environment(
        loader=FunctionLoader(page_file),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "visible": visible,
        "number": number,
        "plain_number": plain_number,
        "interval": interval,
        "any_size": any_size,
        "any_range": any_range,
        "with_interval": with_interval,
        "heat": heat,
        "listed": listed,
        "model": method_name,
        "attack": attack_name,
        "format_name": format_name,
        "groups_of": groups_of,
        "group_said": group_said,
        "named_values": named_values,
        "typeset": typeset,
        "per_cent": per_cent,
        "sized": sized,
        "placed": placed,
        "forget_label": forget_label,
        "made": made,
        "rounded": rounded,
        "spanned": spanned,
    }
    return environment.get_template(template).render(
        policy=_policy(script, style),
        # Markup: Vestige's own files, whose digests are in the policy, and JSON with all markup characters escaped.
        script=Markup(script),
        style=Markup(style),
        data=Markup(embedded(data)),
        **variables,
    )


def embedded(value: Any) -> str:
    """Return `value` as JSON for a script element: only ASCII, without markup characters."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


def _policy(script: str, style: str) -> str:
    # The data address is for an empty icon: without it, a browser would request /favicon.ico.
    return (
        f"default-src 'none'; script-src {_source(script)}; style-src {_source(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _source(content: str) -> str:
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def page_file(name: str) -> str:
    """A template, style sheet or script of the page."""
    return (files("vestige.report") / "page" / name).read_text(encoding="utf-8")


TEXT_SHOWN = 1_500_000
"""Characters of replies from which on the page carries their beginnings only."""
_SPLITS = ("forget", "retain", "independent")
_SCOPES = ("free", "guessable", "entailed")


def payload(contents: Contents) -> Fields:
    """The data of the page, as JSON values. Models and forget sets are represented by their list index."""
    subjects = contents.evidence.subjects
    splits: set[str] = set()
    scopes: set[str] = set()
    # Format, attack and metric of every estimate, in order of appearance, with the unit.
    measures: dict[tuple[str, str, str], str] = {}
    for subject in subjects:
        for places in subject.results.values():
            for place, estimate in places.items():
                splits.add(place.split)
                scopes.add(place.scope)
                measures.setdefault(place[2:], estimate.unit)
    # The order is that of the menus: the usual splits, further ones, contracts in the table's order, unknown ones.
    order = [*_SPLITS, *sorted(s for s in splits - {*_SPLITS} if not s.startswith("edge:"))]
    order += [*(f"edge:{e.id}" for e in contents.edges), *sorted(splits)]
    return {
        "forgets": [
            {
                "index": i,
                "selector": f.forget,
                "label": forget_label(f.forget, contents.parties),
                "scope": f.scope,
                "edges": None if f.edges is None else sorted(f.edges),
                "subjects": [n for n, s in enumerate(subjects) if f.forget in s.results],
                "splits": [split_of(item, f) for item in contents.shown],
            }
            for i, f in enumerate(contents.forget_sets)
        ],
        "subjects": [
            {"label": method_name(s.label), "role": s.spec.subject, "colour": contents.colours.get(s.label)}
            for s in subjects
        ],
        "splits": [s for s in dict.fromkeys(order) if s in splits],
        "scopes": [scope for scope in _SCOPES if scope in scopes],
        "measures": [
            {"format": f, "attack": a, "metric": m, "unit": u, "asked": format_name(f), "after": attack_name(a)}
            for (f, a, m), u in measures.items()
        ],
        "leading": list(measures).index(contents.leading) if contents.leading in measures else -1,
        **_results(contents, {measure: i for i, measure in enumerate(measures)}),
        "run": contents.evidence.name,
        "wholeSplits": sorted(set(chain.from_iterable(chain.from_iterable(s.views.values() for s in subjects)))),
        "contracts": [[edge.id, edge.name] for edge in contents.edges if edge.name],
        "items": _items(contents),
        "audits": [
            audit_payload(outcome, contents.colours) | {"sources": sources}
            for outcome, sources in zip(contents.in_words, contents.sources, strict=True)
        ],
        "probes": [holes_payload(probe) for probe in contents.probes],
    }


def _results(contents: Contents, measures: dict[tuple[str, str, str], int]) -> Fields:
    """The estimates, each with the place of the evaluation that it was made from.

    Those of single contracts are carried in the leading measure alone. tables/results.csv has the others.
    """
    places: dict[tuple[str, str], int] = {}
    evals: list[list[str]] = []
    rows: list[list[Any]] = []
    for i, forget in enumerate(contents.evidence.forgets):
        for j, subject in enumerate(contents.evidence.subjects):
            for cell, e in subject.results.get(forget, {}).items():
                if cell.split.startswith("edge:") and cell[2:] != contents.leading:
                    continue
                folder = subject.made_of[forget, cell]
                path = f"{subject.path}/evals/{folder.path.name}"
                index = places.setdefault((path, forget), len(evals))
                if index == len(evals):
                    evals.append([path, folder.summary(forget).name, scores_digest(folder)[:DIGEST_TOLD]])
                rows.append([i, j, cell.split, cell.scope, measures[cell[2:]], *_estimate(e), index])
    return {"results": rows, "evals": evals}


def _items(contents: Contents) -> Fields:
    answers, items = contents.answers, contents.shown
    texts: dict[str, int] = {}

    def packed(reply: GreedyReply) -> list[Any]:
        # Models that learned the answers give equal replies, so each text is stored once.
        text = texts.setdefault(reply.text, len(texts))
        odd = [int(x) for x in (reply.refused, reply.empty, reply.truncated)]
        return [text, _digits(reply.rouge), _digits(reply.probability), *odd]

    replies = []
    for subject in contents.evidence.subjects:
        by_item = answers.replies.get(subject.path)
        replies.append(None if by_item is None else [packed(by_item[i.id]) if i.id in by_item else None for i in items])
    bodies = list(texts)
    if sum(map(len, bodies)) >= TEXT_SHOWN:
        most = max(200, TEXT_SHOWN // len(bodies))
        where = "more characters in tables/items.csv"
        bodies = [t if len(t) <= most else f"{t[:most]}… ({len(t) - most:,} {where})" for t in bodies]
    return {
        "rows": [dict(vars(i)) for i in items],
        "replies": replies,
        "texts": bodies,
        "asked": len(answers.questions),
    }


def audit_payload(outcome: AuditOutcome, palette: Mapping[str, int]) -> Fields:
    """Return the data of one audit. Subjects, attacks and formats are represented by their list index."""
    colours = Colours(outcome, palette)
    formats = list(dict.fromkeys((line.format, line.unit == "bits") for line in outcome.curves))
    subjects = list(dict.fromkeys(line.subject for line in outcome.curves))
    # For each attack, its points in order, and whether it searched for a prompt: its points are then shares.
    attacks: dict[str, list[str]] = {}
    searched: set[str] = set()
    curves = []
    for line in outcome.curves:
        points = attacks.setdefault(line.attack, [])
        line_points, mixed = [], None
        for p in line.points:
            searched |= {line.attack} if p.bits is not None else set()
            numbers = [*_estimate(p.level), _digits(p.bits)]
            if p.point == SHUFFLED:
                # This is not a share of the prompt, so it is next to the line.
                mixed = numbers
                continue
            if p.point not in points:
                points.append(p.point)
            line_points.append([points.index(p.point), *numbers])
        form = formats.index((line.format, line.unit == "bits"))
        places = [subjects.index(line.subject), list(attacks).index(line.attack), form]
        curves.append([*places, line_points, mixed, line.no_gain])
    along = "shares of the searched prompt, from its first token"
    roles = {**dict.fromkeys(outcome.retrained, "retrained"), outcome.target: "target"}
    return {
        "forget": outcome.forget,
        "label": forget_label(outcome.forget),
        "subjects": [
            {"name": method_name(s), "role": roles.get(s, "unlearned"), "css": colours.css(s)} for s in subjects
        ],
        "attacks": [
            {"name": attack_name(a), "mark": why_no_evidence(outcome, a)}
            | {"along": along if a in searched else "", "points": points}
            for a, points in attacks.items()
        ],
        "formats": [{"name": format_name(name), "bits": bits} for name, bits in formats],
        "curves": curves,
        **_cells(outcome, colours),
    }


def _cells(outcome: AuditOutcome, colours: Colours) -> Fields:
    """Every number of the audit in one form: subject, attack, format and quantity as places in `words`, the estimate.

    `shown` has the page's words by index, and `css` the subjects' colours.
    """
    cells: list[tuple[str, str, str, str, Estimate]] = []
    for c in outcome.matrix:
        if c.leakage:
            cells.append((c.subject, "", c.format, "left", c.leakage))
        cells.append((c.subject, "", c.format, "level", c.level))
    for g in outcome.gains:
        parts = {"left": g.after, "brought back": g.recovery, "taught by the attack": g.injection}
        parts |= {"climbed back to the controls": g.repair, "gain": g.gain}
        cells += [(g.subject, g.attack, g.format, name, e) for name, e in parts.items()]
    cells += [(k.subject, "", k.format, f"lost of {k.split}", k.harm) for k in outcome.kept]
    cells += [(m.subject, "", m.score, "membership AUC", m.auc) for m in outcome.membership]
    named = dict.fromkeys(chain.from_iterable(names for *names, _ in cells))
    words = {word: i for i, word in enumerate(named)}
    # A dict keeps the order, which differs between processes for a set.
    subjects = dict.fromkeys(s for s, *_ in cells)
    return {
        "words": list(words),
        "shown": [method_name(w) if w in subjects else format_name(attack_name(w)) for w in words],
        "css": {words[s]: colours.css(s) for s in subjects},
        "cells": [[*map(words.get, names), *_estimate(e), e.unit] for *names, e in cells],
    }


def _estimate(e: Estimate) -> list[float | None]:
    return [*map(_digits, (e.value, e.low, e.high)), e.n]


def _digits(x: float | None) -> float | None:
    if x is None or math.isinf(x):
        return None
    return float(f"{x:.6g}")


def sections(contents: Contents) -> Fields:
    """The template's variables."""
    evidence, (form, _, metric) = contents.evidence, contents.leading
    disputes = [forget_set.dispute for forget_set in contents.forget_sets if forget_set.dispute]
    # With an audit, they are on its first screen.
    unjudged = () if contents.audits else contents.unjudged
    return {
        "run_name": evidence.name,
        "headline": page_headline(contents),
        "title": page_title(contents),
        "leading": f"{format_name(form)}, {metric.replace('_', ' ')}",
        "more_telling": contents.more_telling and format_name(contents.more_telling),
        "models": sorted({s.spec.model for s in evidence.subjects}),
        "facts": _facts(contents),
        "audits": [
            audit_block(i, outcome, contents.colours, contents.parties, contents.verbatim[i], contents.people[i])
            for i, outcome in enumerate(contents.in_words)
        ],
        "probes": [holes_block(probe) for probe in contents.probes],
        "missing": [*evidence.missing, *disputes, *unjudged],
        "unjudged": contents.unjudged,
        "shown": {"tradeoff": _compared(contents), "answers": bool(contents.answers.questions)},
        "settings": named_values(evidence.settings),
        "provenance": provenance_lines(evidence.provenance),
        "subjects": evidence.subjects,
        "detailed": len(evidence.subjects) <= DETAILED,
    }


def _compared(contents: Contents) -> bool:
    """Whether a model has scores of forget and retain set in the measure that the page compares models by."""
    for forget_set in contents.forget_sets:
        forget = EstimatePlace("forget", forget_set.scope, *contents.leading)
        retain = EstimatePlace("retain", "all", *contents.leading)
        for subject in contents.evidence.subjects:
            results = subject.results.get(forget_set.forget, {})
            if forget in results and retain in results:
                return True
    return False


def page_title(contents: Contents) -> str:
    """The page's name in a browser: its headline, and that margins were changed once the answers had been seen."""
    rejudged = any(outcome.first is not None for outcome in contents.audits)
    return f"{page_headline(contents)}{' (judged again at other margins)' if rejudged else ''}"


def page_headline(contents: Contents) -> str:
    """Return the answer in a sentence, or the page's content without an audit."""
    if len(contents.audits) > 1:
        return headline_of_several(contents.audits)
    if contents.audits:
        (outcome,) = contents.audits
        edges = next((f.edges for f in contents.forget_sets if f.forget == outcome.forget), None)
        n_edges = len(edges) if edges and contents.edges else None
        return headline(outcome, n_edges, forget_label(outcome.forget, contents.parties), contents.people[0])
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
        facts += [f"{n} unlearned model{'s' if n != 1 else ''}", f"{len(contents.answers.questions):,} questions"]
        if contents.edges:
            facts.append(f"{len(contents.edges):,} contracts")
        version = provenance.get("versions", {}).get("vestige")
        if version:
            facts.append(f"Vestige {version}")
    if "times" in provenance:
        facts.append(str(provenance["times"].get("started", ""))[:10])
    return facts


DETAILED = 40
"""A run of more models has their settings and versions in their folders only."""


def made(subject: RunModel) -> list[tuple[str, str]]:
    """The origin of a model: its settings, versions and digests."""
    spec = subject.spec
    return [
        ("folder", subject.path),
        ("name", spec.name),
        ("model", spec.model),
        ("settings id", spec.settings_id),
        ("training items", spec.data),
        ("digest", subject.digest or "none yet"),
        ("started from", spec.parent or "the model itself"),
        ("code version", str(spec.version)),
        ("answers", subject.answers.path.name if subject.answers else "none yet"),
        *named_values({f"setting {name}": value for name, value in spec.settings.items()}),
        *provenance_lines(subject.provenance),
    ]


def rounded(x: Any, form: str) -> str:
    """Return a number in that format, or ""."""
    if isinstance(x, int | float):
        return format(x, form).replace("-", "−")
    return ""


MOST_QUESTIONS = 1_000
"""The number of questions on the page. Those with the largest score differences come first."""
_WIDTH, _HEIGHT = 560, 150


def render_comparison(
    rows: Sequence[Any],
    questions: Sequence[Any],
    verdicts: Sequence[Record],
    heads: Sequence[str],
    cells: Sequence[Sequence[str]],
    paths: Sequence[str],
    common: str,
) -> str:
    """The page as text.

    Args:
        rows: The differences, as `auditing.compare` has them.
        questions: The questions, each with `task`, `score`, `question`, `scores` and `replies` by model.
        verdicts: The rows of verdicts.json of each audit, with their `model`.
        heads: The names of the columns.
        cells: The texts of each row, by `heads`.
        paths: The logs, for the command.
        common: The model that all others are compared with, or "".
    """
    curves: dict[str, list[tuple[str, float]]] = {}
    for row in rows:
        title = f"{row.score} on {row.task}"
        # Each model of several audits has its own curve.
        if not common:
            title += f", from {row.first}"
        points = curves.setdefault(title, [(row.first, row.mean_first)])
        points.append((row.model, row.mean_model))
    models = list(dict.fromkeys(name for points in curves.values() for name, _ in points))
    than = "in the first audit"
    if common:
        than = f"those of {common}"
    lower = sum(row.finding == "lower" for row in rows)
    higher = sum(row.finding == "higher" for row in rows)
    variables = {
        "headline": f"{lower} of {len(rows)} scores are lower than {than}, {higher} higher.",
        "verdicts": verdicts,
        "heads": heads,
        "rows": [(row.finding, texts) for row, texts in zip(rows, cells, strict=True)],
        "models": models,
        "curves": [_curve(title, points, models) for title, points in curves.items()],
        "questions": questions[:MOST_QUESTIONS],
        "unlisted": len(questions) - len(questions[:MOST_QUESTIONS]),
        "command": shlex.join(["vestige", "compare", *paths]),
    }
    return render_static("compare.html.j2", ("dom", "copy", "compare"), variables)


def _curve(title: str, points: Sequence[tuple[str, float]], models: Sequence[str]) -> dict[str, Any]:
    """The means of the models in their order, placed in a picture of fixed size. Numbers are places in `models`."""
    values = [value for _, value in points]
    # Shares have the same scale in all pictures.
    low, high = min(0.0, *values), max(1.0, *values)
    span = high - low
    step = (_WIDTH - 40) / max(1, len(points) - 1)
    marks = []
    for n, (name, value) in enumerate(points):
        place = (round(20 + n * step, 1), round(_HEIGHT - 30 - (value - low) / span * (_HEIGHT - 60), 1))
        marks.append(
            {"name": name, "value": number(value), "x": place[0], "y": place[1], "number": models.index(name) + 1}
        )
    return {"title": title, "marks": marks, "width": _WIDTH, "height": _HEIGHT}
