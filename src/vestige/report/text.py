"""The commands' output for people, and as JSON for programs. Texts of models and data are hostile.

Forecasts and plans come from rooms above this one, and are read by their fields.
"""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from decimal import ROUND_CEILING, Decimal
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.core.estimates import Estimate, to_json
from vestige.core.text import TextMapping, TextTuple, grouped, one_line

if TYPE_CHECKING:
    from vestige.artifacts.audits import AuditOutcome, FactLine, Soundness
    from vestige.artifacts.holes import HoleRow, HoleTable, Placebo
    from vestige.artifacts.records import KeptPrompt, Summary

_MOST_FACTS = 10


def print_results(summary: "Summary") -> None:
    """Print one subject's estimates, one per row, by split. Estimates of single edges are omitted."""
    by_split: dict[str, list[list[str]]] = {}
    results = [r for r in summary.results if not r.split.startswith("edge:")]
    # The usual metrics come first in each split, the rest in the order of measurement.
    results.sort(key=lambda r: r.estimate.metric not in ("exact_match", "rouge1_recall"))
    for r in results:
        split = r.split if r.scope == "all" else f"{r.split}, {r.scope}"
        by_split.setdefault(split, []).append([split, r.format, r.estimate.metric, str(r.estimate)])
    of = "" if summary.forget in summary.splits else f", forget set {summary.forget}"
    heads = ["split", "format", "metric", "estimate"]
    print_table(f"{summary.subject.name}{of}", heads, [*chain(*by_split.values())], no_wrap=heads[2:])


def print_table(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], *, no_wrap: Sequence[str] = ()
) -> None:
    """Print one table. Titles and cells may be hostile text."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(one_line(title)))
    for head in heads:
        table.add_column(Text(one_line(head)), no_wrap=head in no_wrap)
    for row in rows:
        table.add_row(*(Text(one_line(cell, width=300)) for cell in row))
    Console().print(table)


def print_json(value: Any) -> None:
    """Print the result as JSON for programs."""
    plain = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    print(json.dumps(plain, indent=2))


def counted(counts: Mapping[str, int]) -> str:
    """Return counts, as in `3 empty, 1 cut short`."""
    return ", ".join(f"{n:,} {noun}" for noun, n in counts.items())


def print_summaries(outcomes: "Sequence[AuditOutcome]") -> None:
    """Print for each forget set the number of models that pass, and the others' failed claims."""
    from vestige.artifacts.audits import FROM_LOGS
    from vestige.artifacts.verdicts import logs_said
    from vestige.report.words import method_name, models_said, next_steps, submitted

    for outcome in outcomes:
        lead = f"{outcome.forget}: " if len(outcomes) > 1 else ""
        if outcome.evidence_level in FROM_LOGS:
            answer, next_step = logs_said(outcome)
            # Names may be long, but the next step must stay complete.
            print(one_line(f"{lead}{answer}", width=198 - len(next_step)), next_step)
            continue
        states = {subject: _state(outcome, subject) for subject in outcome.audited}
        note = " (retrained, should pass)"
        judged = [f"{name}{note * (name in outcome.references)} {state}" for name, state in states.items()]
        own = submitted(outcome)
        passed = sum(states[subject] == "PASS" for subject in own)
        surplus = f"; and {len(judged) - _MOST_MODELS} more" if len(judged) > _MOST_MODELS else ""
        if judged:
            lead += f"{passed} of {len(own)} {models_said(outcome)[:-1]}{'s' * (len(own) != 1)} passed: "
            lead += f"{'; '.join(judged[:_MOST_MODELS])}{surplus}"
        steps = next_steps(outcome)
        for name in [name for name, state in states.items() if state.startswith("OPEN")][:_MOST_MODELS]:
            print(one_line(f"next: {method_name(name)}: {steps[name]}", width=400))
        print(one_line(lead, width=2000))


def _state(outcome: "AuditOutcome", subject: str) -> str:
    # A failing claim decides, even if others are open.
    lines = [v for v in outcome.verdicts if v.subject == subject]
    failed = [v.claim for v in lines if v.outcome == "fails"]
    undecided = [v.claim for v in lines if v.outcome != "holds"]
    if failed:
        return f"FAIL ({', '.join(failed)})"
    if undecided:
        return f"OPEN ({', '.join(undecided)})"
    return "PASS"


_MOST_MODELS = 12


def print_verdicts(
    outcomes: "Sequence[AuditOutcome]", run: Path, *, why: bool = False, report: Path | None = None
) -> None:
    """Every claim about every unlearned model and the control with its verdict and bound, a table a forget set.

    First come answers reproduced word for word, copies of the target, and rejected controls. With `why` it adds the
    reason for each verdict, the attacks' ability, and the missing tests. The last line names the models that pass.
    """
    from vestige.artifacts.audits import CLAIMS, never_knew
    from vestige.artifacts.layout import RunFolder
    from vestige.artifacts.verdicts import (
        BOUNDS_SAID,
        UNCHANGED,
        bound_said,
        controls_said,
        percentage,
        reversal_said,
        stored_said,
        tested_said,
        verdict_word,
    )
    from vestige.report.contents import people_of, plain_outcome, verbatim_of
    from vestige.report.words import people_said, reasoning_only

    # The words are those of the page.
    for outcome in (plain_outcome(outcome, {}) for outcome in outcomes):
        target = "" if outcome.target == "target" else f", target {outcome.target}"
        folder = RunFolder(run).audit(outcome.forget)
        verbatim = verbatim_of(RunFolder(run), folder)
        forgotten = people_said(people_of(RunFolder(run), folder)) or outcome.forget
        first = [f"{subject} {words}" for subject, words in verbatim.items()]
        first += [f"{subject} {UNCHANGED}." for subject in outcome.unchanged]
        for text in (*first, *reasoning_only(outcome), *outcome.warnings):
            print(one_line(text, width=1000))
        verdicts = (*outcome.verdicts, *outcome.control)
        rows, reasons = [], []
        for subject in dict.fromkeys(v.subject for v in verdicts):
            lines = {v.claim: v for v in verdicts if v.subject == subject}
            name = subject
            if subject == outcome.suppressed:
                name += " (control)"
            elif subject in outcome.references:
                name += " (retrained, should pass)"
            # A separate heading: next to the claims it would leave no room for the numbers in 80 columns.
            rows.append([name, "", ""])
            for line in (lines[claim] for claim in CLAIMS if claim in lines):
                # An untested claim has no bound, and its reason explains why.
                rows.append([f"  {line.claim}", verdict_word(outcome, line), bound_said(outcome, line) or line.reason])
                reasons.append(f"{name}, {line.claim}: {line.reason}")
        heads = ["model and claim", "verdict", "what is shown"]
        print_table(f"{forgotten}: verdicts{target}", heads, rows, no_wrap=heads[1:2])
        print(f"tested: {tested_said(outcome)}")
        print(f"evidence level: {controls_said(outcome)}")
        for reversal in outcome.reversals:
            print(reversal_said(reversal))
        print(BOUNDS_SAID)
        facts = [fact_in_words(fact) for fact in outcome.facts[:_MOST_FACTS]]
        if len(outcome.facts) > _MOST_FACTS:
            facts.append(f"and {len(outcome.facts) - _MOST_FACTS} more, in the report")
        _print_list(f"Single facts that no {never_knew(outcome.evidence_level, 0)} gives away:", facts)
        _print_list("Each contract or person, with intervals that hold all of them at once:", groups_in_words(outcome))
        if not why:
            notes = f", and {len(outcome.untested)} notes on what was not tested" if outcome.untested else ""
            words = shlex.join(["vestige", "audit", "--why", "--output-dir", one_line(str(run), width=500)])
            print(f"`{words}` prints the reasons{notes}; all numbers are in report.html and verdicts.json.")
            continue
        _print_list("Reasons:", reasons)
        _print_list(
            "What relearning on a part of the facts brought back of the others:",
            [
                f"{s.subject}: {stored_said(s) or 'too uncertain for a number of facts'}; recalls "
                f"{percentage(s.recalled)} after {s.attack}, controls at most {percentage(max(s.controls))}"
                for s in outcome.stored
            ],
        )
        _print_list(
            "Could the attacks have found anything? What they brought of what the control held back:",
            [
                f"{a.attack}: yes: {a.brought.said()} in {a.format}"
                if a.able and a.brought
                else f"{a.attack}: no: {a.why_not}"
                for a in outcome.able
            ],
        )
        untested = [line for line in outcome.untested if line not in outcome.warnings]
        _print_list("What was not tested, and what to know of the rest:", untested)
    if report is not None:
        print(f"report: {report}")
    print_summaries(outcomes)


def groups_in_words(outcome: "AuditOutcome") -> list[str]:
    """Return sentences on contracts and persons, the strongest evidence first. The report has all."""
    from vestige.report.words import group_said

    rows = sorted(outcome.groups, key=lambda g: (not g.exceeds, g.p))
    margin = ", above the margin"
    lines = [
        f"{g.group} ({g.n_facts} facts), {g.subject}: {group_said(g)}{margin * g.exceeds}" for g in rows[:_MOST_FACTS]
    ]
    if len(rows) > _MOST_FACTS:
        return [*lines, f"and {len(rows) - _MOST_FACTS} more, in the report"]
    return lines


def _print_list(title: str, lines: Sequence[str]) -> None:
    """Print a title and one line per text, which may be hostile. Print nothing without texts."""
    if lines:
        print(title)
    for line in lines:
        print(f"- {one_line(line, width=1000)}")


def fact_in_words(fact: "FactLine") -> str:
    """Return a sentence on a single fact: the prompt, and the model's reply, favoured option, or likelier answer."""
    from vestige.report.words import attack_name, format_name

    after = f" after {attack_name(fact.attack)}" if fact.attack else ""
    bits = ""
    if fact.bits is not None and fact.never is not None:
        low, high = fact.never
        bits = f" ({fact.bits:.1f} bits; controls: {low:.1f} to {high:.1f})"
    reply = f"replies {fact.reply!r}" if fact.reply else ""
    if "stated" in fact.by:
        words = f": {reply}{bits}" if reply else bits
    else:
        # An answer can be the best option and still be unlikely.
        among = "favours this answer among the options" if "option" in fact.by or "choose" in fact.by else ""
        likelier = "finds this answer likelier than any control does"
        words = f": {among or likelier}: {fact.answer!r}{bits}{f', and {reply}' if reply else ''}"
    return f"{fact.subject}{after}, {format_name(fact.by)}: {fact.question or fact.item}{words}"


def print_audit(
    run: Path, outcomes: "Sequence[AuditOutcome]", failed: TextMapping, *, why: bool, as_json: bool
) -> None:
    """Print the verdicts, and where the report is."""
    from vestige.artifacts.layout import RunFolder
    from vestige.artifacts.verdicts import verdict_rows
    from vestige.report.contents import verbatim_of

    folder = RunFolder(run)
    if not as_json:
        return print_verdicts(outcomes, run, why=why, report=folder.report)
    print_json(
        {
            "report": str(folder.report),
            "verdicts": verdict_rows(outcomes),
            "untested": {outcome.forget: list(outcome.untested) for outcome in outcomes},
            "verbatim": {outcome.forget: verbatim_of(folder, folder.audit(outcome.forget)) for outcome in outcomes},
            "failed": dict(failed),
        }
    )


def print_plan(foreseen: Any, forget: str, *, as_json: bool) -> None:
    """Print the power of an audit, for people or as one JSON document."""
    from vestige.artifacts.verdicts import percentage

    if as_json:
        return print_json(foreseen)
    rows = [[c.claim, str(c.quantities), percentage(c.holds), percentage(c.unsteady)] for c in foreseen.claims]
    rows.append(["all of them", "", percentage(foreseen.holds), percentage(foreseen.unsteady)])
    for row in rows:
        # All claims together cannot pass if one of them cannot.
        if foreseen.cannot_hold and row[0] in ("all of them", *foreseen.cannot_hold):
            row[2:] = ["cannot pass", "cannot pass"]
    first = next(line for line in foreseen.claims if line.claim == "not expressed")
    of = "of what the target knows, in one form of question"
    leaks = [f"{percentage(first.leakage)} {of}"] if first.leakage is not None else []
    if first.bits is not None:
        leaks.append(f"{first.bits:.0f} bits an answer")
    controls = ", ".join(f"{m}: {percentage(share)}" for m, share in foreseen.by_controls.items())
    margins, bits = foreseen.margins, foreseen.margins_bits
    wordings = f"{foreseen.wordings:.2g} wording{'' if foreseen.wordings == 1 else 's'}"
    lines = [
        f"plan for {one_line(forget, width=60)}: {foreseen.facts} facts in {wordings} each, {foreseen.controls} "
        f"controls, {len(foreseen.formats)} forms of question, {foreseen.attacks} attacks",
        f"A claim fails if a leak is shown above {percentage(margins.narrow)} ({bits.narrow:g} bits an answer), and "
        f"passes if every leak is shown below {percentage(margins.wide)} ({bits.wide:g} bits). If the target knows "
        "more than 30 bits of an answer, the margins in bits grow in proportion.",
    ]
    after = [
        "the least leak that 80 % of such audits would show: "
        f"{', or '.join(leaks) or 'none, if it is in one form of question alone'}",
        "single facts cannot be tested, which takes three controls"
        if foreseen.given_away is None
        else f"facts revealed by this model alone that are enough to fail a claim: {foreseen.given_away}",
        "" if foreseen.cannot_hold else f"all of these claims pass, by number of controls: {controls}",
        f"to bring this to 80 %: {foreseen.needed}" if foreseen.needed else "",
        "not predicted: utility preserved, which needs the models, and not stored",
        "assumed: trainings vary like those of the built-in tiny model, most of which prefer the same options. If each "
        "prefers others, multiple choice decides less, and the audit reports it (docs/verdicts.md).",
    ]
    print("\n".join(lines))
    heads = ["claim", "numbers tested", "a perfect unlearning passes in", "if seeds vary more"]
    print_table("", heads, rows)
    for sentence in (*filter(None, after), *foreseen.untested):
        print(one_line(sentence, width=500))


def print_audit_forecast(forecast: Any, forget: str, names: Sequence[str], *, as_json: bool) -> None:
    """Print the tasks of an audit with their cost. `names` say which folder each numbered name is."""
    if as_json:
        return print_json(forecast.as_json())
    # Passes belong to prompt searches, which most audits do not run.
    heads = {"task": "task", "shown": "items shown", "steps": "training steps"}
    if forecast.n_passes:
        heads |= {"passes": "passes, at most"}
    heads |= {"questions": "questions asked", "models": "models, at most"}
    rows = [[str(getattr(row, name)) for name in heads] for row in forecast.each]
    print_table(f"audit of {forget}: {forecast.n_models} models, each row for one", list(heads.values()), rows)
    first = (f"published figures: {forecast.published} questions to the target",) if forecast.published else ()
    for sentence in (*first, *names, *forecast.untested, forecast.said):
        print(one_line(sentence, width=500))


METRICS = ("rouge1_recall", "exact_match", "contains_match", "leaked", "probability", "answer_bits", "accuracy")
"""The metrics in the table of an attack. The rest is in the evidence."""


def print_attack(found: Any, *, note: str, as_json: bool) -> None:
    """Print the tested items' results before and at each stage of the attack, and its injection."""
    attack, spent, prompt, folder = found.attack, found.spent, found.prompt, found.evidence[0]
    assert attack is not None
    by_point = grouped(found.levels, itemgetter(0))
    levels = {point: _results(summary for _, summary in pairs) for point, pairs in by_point.items()}
    if as_json:
        document = {"attack": asdict(attack.plan), "evidence": str(folder), **spent, "notes": attack.notes}
        if prompt is not None:
            document |= {"prompt": asdict(prompt)}
        shown = {point: {k: to_json(e) for k, e in at.items()} for point, at in levels.items()}
        return print_json({**document, "levels": shown})
    places = {}
    for point in levels:
        places[point] = point.replace("given", "after")
        if prompt is not None and point in prompt.points:
            # Each part of the prompt has the bits that it can carry.
            places[point] = f"{point}, {bits_at_most(prompt.points[point].bits)}"
        elif attack.plan.kind == "relearn" and point != "before":
            places[point] = f"epoch {point}"
    rows = []
    for key in levels["before"]:
        rows += [[key, places[point], level[key].said()] for point, level in levels.items()]
    title = f"{attack.plan.name}: {len(attack.tested)} forget items, 95 % intervals"
    heads = ["format/metric", "when" if prompt is None else "of the prompt", "estimate"]
    print_table(title, heads, rows, no_wrap=heads)
    if prompt is not None:
        print("\n".join(said_of(prompt)))
    for sentence in attack.notes:
        print(sentence)
    for name, bits in spent["bounds_bits"].items():
        print(f"information added: at most {bits_at_most(bits)} ({name})")
    print(note)
    print(f"evidence in {folder}")


def _results(summaries: "Iterable[Summary]") -> "dict[str, Estimate]":
    """The estimates over the tested items, by `format/metric`."""
    return {
        f"{r.format}/{r.estimate.metric}": r.estimate
        for summary in summaries
        for r in summary.results
        if (r.split, r.scope) == ("forget", "all") and r.estimate.metric in METRICS
    }


def at_most(bits: float) -> str:
    """An upper bound rounded up, so that it stays one: below 10 to a tenth, above to a whole."""
    # Decimal is used because 0.1 as a float is slightly more than a tenth, and would be rounded up to 0.2.
    rounded = Decimal(str(bits)).quantize(Decimal("0.1" if bits < 10 else "1"), ROUND_CEILING)
    return f"{int(rounded) if rounded == int(rounded) else rounded:,}"


def bits_at_most(bits: float) -> str:
    """Return the same with its unit, as in `1 bit` or `0.4 bits`."""
    amount = at_most(bits)
    return f"{amount} bit{'' if amount == '1' else 's'}"


def said_of(prompt: "KeptPrompt") -> TextTuple:
    """The prompt in lines for a terminal. Its text comes from a model's vocabulary, so it is hostile."""
    n, verified = len(prompt.samples), sum(s.verified for s in prompt.samples)
    claimed = "all" if prompt.claimed else "not all"
    altered = sum(not s.same_tokens for s in prompt.samples)
    spent = ", ".join(f"{amount:,} {name.replace('_', ' ')}" for name, amount in prompt.spent.items())
    lines = [
        f"{prompt.placement} of {len(prompt.ids):,} token{'s' * (len(prompt.ids) != 1)}: "
        f"{one_line(prompt.text, width=1000)!r}",
        f"loss {prompt.loss:.3f} after {prompt.steps:,} step{'s' * (prompt.steps != 1)} "
        f"(ended: {prompt.ended}); spent: {spent}",
        f"claimed by the search: {claimed} of its {n:,} sample{'s' * (n != 1)}; "
        f"verified by replies to its text: {verified} of {n}",
    ]
    plain, brought = sum(s.plain_right for s in prompt.samples), sum(s.brought for s in prompt.samples)
    lost = sum(s.plain_right and not s.verified for s in prompt.samples)
    by_it, with_it = (f"{k} {'is' if k == 1 else 'are'}" for k in (brought, lost))
    lines.append(f"without the prompt: {plain} of {n} already; so {by_it} brought by it, and {with_it} lost with it")
    lines += [
        f"{one_line(s.question, width=60)!r}: wanted {one_line(s.wanted, width=60)!r}, with the prompt "
        f"{one_line(s.replied, width=60)!r}, without it {one_line(s.plain, width=60)!r}"
        for s in prompt.samples
    ]
    if altered:
        lines.append(f"in {altered} of {n} samples the text is read as other tokens than the search scored")
    if prompt.seen_bits is None:
        lines.append("the search saw the target's inner states besides answers. Their information has no bound here")
    return tuple(lines)


def print_holes(table: "HoleTable") -> None:
    """Print the table. Names of sources and placebos may be hostile text."""
    rows = []
    for row in table.rows:
        for e in (row.before, row.after, row.change, row.lowest_before, row.lowest_after, row.holes):
            rows.append([f"{row.source}, {row.n} tested", e.metric, str(e)])
    if rows:
        print_table("fresh answers: quality 1 to 10, 95 % intervals", ["source", "measure", "estimate"], rows)
    else:
        print("no prompt was left to test and judge; docs/holes.md says why (What counts as a hole)")
    for row in table.rows:
        for placebo in row.placebos:
            print(_placebo_in_words(row, placebo))
    for source, dropped in table.dropped.items():
        if dropped:
            print(f"{one_line(source)}, not tested: {counted(dropped)}")
    for source, words in table.selection.items():
        print(f"{one_line(source)}: {words}")
    for stage, failures in table.failures.items():
        print(f"not judged, {stage}: {counted(failures)}")
    for source, spread in table.diversity.items():
        words = f"{one_line(source)}: {spread.n} prompts tested, Vendi / n {spread.vendi_share:.2f}"
        if spread.distinct_ngrams is not None:
            words += f", 1 - avgSelfBLEU {spread.distinct_ngrams:.2f}"
        near = spread.to_adjacent
        print(words + ("" if near is None else f", cosine to the nearest adjacent question {near:.2f}"))
    print(
        f"{table.n_holes} holes, {table.n_distinct_holes} of them different; testing asked the target "
        f"{table.target_calls:,} and the unlearned model {table.unlearned_calls:,} prompts"
    )


def _placebo_in_words(row: "HoleRow", placebo: "Placebo") -> str:
    """Return the rate of false holes. A placebo with the target's exact words has no information."""
    name, rate = one_line(placebo.name), placebo.rate
    if placebo.n_same == rate.n:
        return f"{row.source}: the answers of the placebo ({name}) are the target's word for word, so it shows nothing"
    beyond = "" if placebo.excess is None else f"; beyond these {placebo.excess.said()}"
    return f"{row.source}: false holes, of the placebo ({name}): {rate.said()} of {rate.n}{beyond}"


def print_soundness(soundness: "Soundness", output_dir: Path) -> None:
    """Print the checks of a data set."""
    rows = []
    for line in soundness.lines:
        verdict = {True: "passes", False: "fails", None: "cannot tell"}[line.sound]
        effect = "" if line.effect is None else str(line.effect)
        rows.append([line.check, verdict, effect, "" if line.p is None else f"{line.p:.2g}"])
    heads = ["check", "", "effect", "p"]
    print_table(f"{soundness.forget}: can this data set tell?", heads, rows, no_wrap=heads)
    for line in soundness.lines:
        if line.sound is not True:
            print(f"{line.check}: {one_line(line.reason, width=600)}")
    if soundness.needs:
        print(soundness.needs)
    for sentence in soundness.left_out:
        print(f"does not apply: {one_line(sentence, width=300)}")
    print(f"result in {output_dir / 'soundness.json'}")
