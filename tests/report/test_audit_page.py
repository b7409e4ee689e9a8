import json
import math
import re
from dataclasses import replace
from types import SimpleNamespace
from urllib.parse import unquote

import pytest
from reading import Elements, colours_of, inert, words
from synthetic_audit import (
    CONTROL,
    FACTS,
    IMAGE,
    METHODS,
    REFERENCE,
    SCRIPT,
    UNTESTED,
    estimate,
    hostile,
    outcome,
    with_control,
    with_reference,
    write_audit,
)
from synthetic_run import write_run
from test_page import contrast

from vestige.artifacts.audits import (
    REQUIRED,
    AskedPlace,
    AuditPlan,
    FactLine,
    FailedTask,
    GroupLine,
    PromptLine,
    StoredLine,
    write_plan,
)
from vestige.artifacts.layout import EvalFolder, RunFolder
from vestige.artifacts.records import write_collected
from vestige.artifacts.verdicts import WORDS, stored_said
from vestige.core.estimates import Estimate
from vestige.report.audit import HOTTEST, audit_block, heat, steps_of
from vestige.report.build import build_bundle
from vestige.report.contents import plain_outcome, read_contents
from vestige.report.evidence import AskedItem
from vestige.report.page import audit_payload, render
from vestige.report.text import print_verdicts
from vestige.report.words import attack_name, headline, interval, number, per_cent, plain_sentence

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(audited):
    return (audited / "report.html").read_text(encoding="utf-8")


def seen(value):
    """What a template reads, by its names."""
    if isinstance(value, dict):
        return SimpleNamespace(**{name: seen(x) for name, x in value.items()})
    return tuple(map(seen, value)) if type(value) in (list, tuple) else value


def block_of(found, *parties):
    return seen(audit_block(0, found, {}, *parties))


def page_of(tmp_path, found):
    """The page of a run of one forget set with this audit."""
    run = write_run(tmp_path / "demo", hostile=False, forgets=("edge:A_B",))
    write_audit(run, found)
    return render(read_contents(RunFolder(run)))


def part(page, start, end):
    return page[page.index(f'id="{start}"') : page.index(f'id="{end}"')]


def test_the_first_screen_answers_without_the_script(page):
    first = words(part(page, "answer", "why-0"))
    assert "None of the four models is shown to have forgotten the contract A_B. Three have not." in first
    assert "GA, IDK + GD and KL still answer what retrained models cannot; KL gives" in first
    assert "GAgradient ascent" in first
    assert "120 facts that nothing else gives away4 models3 controls trained here from" in first
    # Three of them read one bare question, and one that the target does not know counts as no way to ask.
    assert "5 kinds of prompt, 8 readings of the answers5 attacks" in first
    # Sixteen verdicts in the order of the table, each a word beside its sign, then that on the benchmark.
    cells = re.findall(r'class="verdict (\w+)" href="#(why-0-\d-\d)".*?<use href="#sign-(\w+)"/></svg>(\w+)</a>', page)
    assert len(cells) == len(METHODS) * (len(REQUIRED) - 1) + 1
    assert all(css == sign and said == WORDS[css] for css, _, sign, said in cells)
    assert [said for _, _, _, said in cells[4:8]] == ["fail", "inconclusive", "inconclusive", "fail"]
    assert all(f'id="{anchor}"' in page for _, anchor, _, _ in cells)
    plain = first.replace("\N{NARROW NO-BREAK SPACE}", " ")
    assert "Pass: each test surely shows less than 20 % (6 bits, 64 times as likely), which can" in plain
    assert "No earlier judgement is recorded" in first
    assert "The attacks: not known, because none was tried on a model that hides the facts." in first
    assert all(plain_sentence(sentence, {}) in first for sentence in UNTESTED)


def plain(text):
    return text.replace("\N{NARROW NO-BREAK SPACE}", " ").replace("\N{NO-BREAK SPACE}", " ")


def test_every_figure_on_the_first_screen_is_one_of_the_outcomes():
    found = with_reference(replace(outcome(), facts=FACTS))
    screen = block_of(found).screen
    # A retrained model that was given as unlearned stays among the models.
    assert ([row.label for row in screen.rows], screen.controls) == ([*METHODS, REFERENCE], ())
    lines = {(s, step.css): e for step in steps_of(found) for s, e in step.levels.items()}
    assert {kind for _, kind in lines} == {"usual", "left", "after"}
    for row in screen.rows:
        marks = {m.kind: m for m in row.marks}
        assert marks.keys() == {kind for subject, kind in lines if subject == row.label}
        for kind, mark in marks.items():
            e = lines[row.label, kind]
            assert mark.words.startswith(per_cent(e.value))
            assert f"{number(e.value)} {interval(e)}" in mark.tell
        for cell in row.cells:
            assert cell is not None
            (v,) = (v for v in found.verdicts if (v.subject, v.claim) == (row.label, cell.claim))
            assert cell.outcome == v.outcome
            assert cell.expected == (True if row.label == REFERENCE else None)
    ((names, benchmark),) = screen.benchmark
    assert (names, benchmark.outcome) == ((), "holds")


@pytest.mark.parametrize(
    ("claim", "what", "low", "high", "unit", "said"),
    [
        ("not expressed", "fails", 0.456, 0.6, "leakage", "50 % left (at least 46 %)"),
        ("not expressed", "holds", -0.2, -0.1, "leakage", "50 % left (at most 0 %)"),
        ("not recoverable", "inconclusive", 0.04, 0.31, "leakage", "50 % comes back (4 % to 31 %)"),
        (
            "not recoverable",
            "inconclusive",
            -0.04,
            0.1,
            "leakage",
            "50 % comes back (at most 10 % where it was tested)",
        ),
        ("not recoverable", "holds", 0.1, 3.5, "bits", "0.5 bits likelier (at most 3.5 bits)"),
        ("not recoverable", "fails", 9.1, 13.5, "bits", "0.5 bits likelier (at least 9.1 bits)"),
        ("indistinguishable", "fails", -0.51, -0.4, "share", "membership 50 % too low (at least 40 %)"),
        ("indistinguishable", "holds", -0.14, 0.06, "share", "membership 50 % off (at most 14 %)"),
        ("indistinguishable", "inconclusive", -0.3, -0.02, "share", "membership 50 % off (2 % to 30 %)"),
        ("indistinguishable", "inconclusive", -1.16, 0.2, "share", "membership 50 % off (0 % to 100 %)"),
        ("utility preserved", "fails", 0.07, 0.2, "share", "50 % lost (at least 7 %)"),
    ],
)
def test_a_cell_has_one_estimate_and_its_bound_in_per_cent(claim, what, low, high, unit, said):
    found = outcome()
    wide = 6.0 if unit == "bits" else 0.2
    metrics = dict(zip(REQUIRED, ("leakage", "recovery", "AUC difference", "harm"), strict=False))
    evidence = {"generate": estimate(metrics[claim], 0.5, 0.1)}
    change = {"outcome": what, "at_least": low, "at_most": high, "unit": unit, "wide": wide, "decides": "generate"}
    change["evidence"] = evidence
    verdicts = [replace(v, **change) if (v.subject, v.claim) == ("ga", claim) else v for v in found.verdicts]
    (row,) = (r for r in block_of(replace(found, verdicts=tuple(verdicts))).screen.rows if r.label == "ga")
    (cell,) = (cell for cell in row.cells if cell and cell.claim == claim)
    assert (plain(cell.bound), cell.where) == (said, "generate")


def test_places_on_the_strip_go_by_the_numbers():
    found = replace(outcome(), matrix=(), gains=())
    screen = block_of(found).screen
    assert screen.strip is not None
    zero, one = screen.strip.never, screen.strip.target
    for row, w in zip(screen.rows, found.attacked, strict=True):
        (after,) = row.marks
        for at, x in ((after.at, w.leakage.value), (after.low, w.leakage.low), (after.high, w.leakage.high)):
            assert at == pytest.approx(min(max(zero + x * (one - zero), 2.0), 98.0), abs=0.02)
    values = [line.leakage.value for line in found.never]
    assert screen.strip.band == pytest.approx([zero + x * (one - zero) for x in (min(values), max(values))], abs=0.02)
    # An infinite interval ends at the edge, and an arrow marks a value beyond it.
    far = replace(found.attacked[0], leakage=estimate("leakage", 0.1, math.inf, "leakage"))
    mark = block_of(replace(found, attacked=(far,))).screen.rows[0].marks[0]
    assert (mark.low, mark.high, mark.beyond) == (2.0, 98.0, "")
    far = replace(found.attacked[0], leakage=estimate("leakage", -0.63, 0.1, "leakage"))
    mark = block_of(replace(found, attacked=(far,))).screen.rows[0].marks[0]
    assert (mark.at, mark.beyond, plain(mark.words)) == (2.0, "left", "−63 % after attack")


def test_the_positive_control_stands_last_with_the_one_verdict_that_it_is_there_for(tmp_path):
    found = with_control(outcome())
    block = block_of(found)
    (control,) = block.screen.controls
    assert (control.label, control.control, [row.control for row in block.screen.rows]) == (CONTROL, True, [False] * 4)
    cells = {cell.claim: cell for cell in control.cells if cell}
    assert list(cells) == ["not recoverable"]
    assert (cells["not recoverable"].outcome, cells["not recoverable"].expected) == ("fails", True)
    assert [plain(m.words) for m in control.marks] == ["80 % after attack"]
    # It is no method: neither the question nor the answer speaks of it.
    assert "four models" in headline(found, 1)
    assert not any(CONTROL in span.text for span in block.screen.spans)
    page = page_of(tmp_path, found)
    assert all(f'{part}{cells["not recoverable"].anchor}"' in page for part in ('href="#', 'id="'))
    boxes = plain(words(part(page, "verdicts-0", "why-0")))
    assert "1 of 2 brought back at least half" in boxes
    assert "relearning on 50 retain items (83 %)" in boxes
    said = words(part(page, "able-0", "tradeoff"))
    assert "relearning on 50 retain items yes 0.83 [0.73, 0.93] written answer 0.92 [0.87, 0.97]" in said
    assert "4-bit weights no – – the control held nothing back from it" in said
    assert "silent &lt;b&gt;target" in page


def test_what_a_model_states_is_quoted_and_told_apart_from_what_it_only_finds_likelier(tmp_path):
    # What is only likelier is quoted nowhere: no reply gives it away.
    page = page_of(tmp_path, replace(outcome(), facts=FACTS))
    assert "Hsiao Yun-Hwa" not in page
    said = words(page)
    assert "states 1 of 120 facts that no control states; finds 1 more likelier than any control does." in said
    assert "(−8.80 bits; the controls: −48.2 to −40.1)" in said
    assert "KL: states 1 of 120 facts that no control states; all of these only after an attack." in said
    assert "It replies Washington, I say. (true: The State of Washington.) (−8.80 bits" in said
    assert "It replies 248. after relearning on 50 retain items" in said


def test_a_fact_without_a_text_takes_that_of_its_question_and_the_true_answer_is_told_from_a_reply(tmp_path):
    bare = FactLine("ga", "prefill", "i1", "stated", 0.01)
    asked = {"i1": AskedItem("i1", "Who sells?", "Oradfa Corp.", "A_B", "", "")}
    found = plain_outcome(replace(outcome(), facts=(*FACTS, bare)), {}, asked)
    (_, stated, _), _ = block_of(found).screen.given
    assert {(f.question, f.reply or f.answer) for f in stated} == {
        ("Who sells?", "Oradfa Corp."),
        ("Which law governs it?", "Washington, I say."),
    }
    page = page_of(tmp_path, replace(outcome(), facts=FACTS))
    assert page.count("(true: <q>") == 1


@pytest.mark.parametrize(
    ("sentence", "plain"),
    [
        (
            "leakage in option_text_sum is 0.52; of A_C alone",
            "leakage in choice of an option is 0.52; of X and Y (A_C) alone",
        ),
        ("relearn retain n=30, forced, bits", "relearning on 30 retain items, probability of the answer (bits)"),
        ("it was forced to choose A_C2", "it was forced to choose A_C2"),
        ("5 of the 9 items asked after prefill", "5 of the 9 items asked after started answers"),
    ],
)
def test_sentences_of_an_audit_keep_no_internal_names(sentence, plain):
    assert plain_sentence(sentence, {"A_C": "X and Y"}) == plain


def test_the_first_screen_and_the_reasons_say_how_many_facts_are_stored(tmp_path, capsys):
    line = StoredLine(
        "ga", "relearn forget_part n=50", Estimate("stored", "share", 0.34, 0.27, 0.41, 100, ""), 0.4, (0.1,)
    )
    found = replace(outcome(), matrix=(), gains=(), attacked=(), stored=(line,))
    told = "relearning others brought back about 34 of 100 facts (at least 27)"
    assert told in words(page_of(tmp_path / "alone", found))
    # Beside a larger number it would read as if less were left.
    less = replace(line, share=replace(line.share, value=0.05, low=0.0, high=0.1))
    assert "brought back about" not in words(page_of(tmp_path / "less", replace(outcome(), stored=(less,))))
    print_verdicts([found], tmp_path, why=True)
    assert f"- ga: {told}; recalls 40 % after relearn forget_part n=50, controls at most 10" in capsys.readouterr().out
    print_verdicts([with_reference(found)], tmp_path)
    assert capsys.readouterr().out.splitlines()[-1].startswith("0 of 4 unlearned models passed: ")
    # 0 to 60 facts of 100 is no number of facts.
    assert stored_said(replace(line, share=replace(line.share, low=-0.1, high=0.6))) == ""


def test_contracts_stand_by_model_the_worst_first_with_what_says_most_against_each():
    shares, bits = estimate("leakage", 0.7, 0.2), estimate("excess", 9.0, 3.0, unit="bits")
    told = (
        GroupLine("ga", "A_B", 20, "generate", estimate("leakage", 0.0, 0.1), 0.8, False),
        GroupLine("ga", IMAGE, 18, "forced, bits", bits, 0.001, True),
        GroupLine("kl", "A_B", 20, "generate", shares, 0.3, False),
    )
    grid = block_of(replace(outcome(), groups=told), {"A_B": "Gokpda Inc and Lxdnmp Ltd"}).groups
    assert [row.label for row in grid.rows] == [IMAGE, "Gokpda Inc and Lxdnmp Ltd (A_B)"]
    assert [head.title for head in grid.heads] == ["GA", "KL"]
    assert grid.rows[0].cells[0].notes == ("probability of the answer (bits)", "above the margin")
    assert (grid.rows[0].cells[0].value, grid.rows[0].cells[1].value) == ("9.00 bits", "–")
    assert grid.rows[1].cells[1].css.startswith("heat ")


def test_the_heat_map_has_every_model_stage_and_format_and_leads_to_the_numbers(page):
    matrix = part(page, "leakage-0", "recovery-0")
    found = outcome()
    gains = [g for g in found.gains if g.unit != "bits"]
    leaks = [c for c in found.matrix if c.leakage]
    assert matrix.count('class="heat ') == len(leaks) + len(gains)
    keys = [unquote(key).split("|") for key in re.findall(r'href="#cell=([^"]*)"', matrix)]
    assert sorted(key[1:4] for key in keys) == sorted(
        [[c.subject, "", c.format] for c in leaks] + [[g.subject, g.attack, g.format] for g in gains]
    )
    (cell,) = re.findall(r'href="#cell=edge%3AA_B%7Ckl%7C%7Coption_text_mean%7Cleft" data-tell="([^"]*)">58<', matrix)
    assert "0.58 [0.49,\N{NO-BREAK SPACE}0.67], n = 120" in cell
    said = words(matrix)
    assert "choice by letter (whole vocabulary) (the target does not know)." in said
    assert "GA leaks more than KL in after examples and less in choice of an option (per token) (p = 0.0012)." in said
    # What shows the answers themselves, or lifts everybody, is no evidence.
    assert matrix.count("<small>no evidence</small>") == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("hot", ["hot", "cold"])
def test_ink_can_be_read_on_the_hottest_cell(scheme, hot):
    colours = colours_of(scheme)
    pairs = [(int(colours[hot][i : i + 2], 16), int(colours["paper"][i : i + 2], 16)) for i in (1, 3, 5)]
    mixed = "#" + "".join(f"{round(HOTTEST * a + (1 - HOTTEST) * b):02x}" for a, b in pairs)
    assert contrast(colours["ink"], mixed) >= 4.5


def test_ceilings_and_saturated_attacks_are_named_in_the_budget(page):
    budget = part(page, "budget-0", "run")
    said = words(budget)
    # Of six attacks one shows the answers, to four models.
    assert said.count("never evidence: a ceiling: it shows the answers themselves") == 4
    assert "saturated in generate, option_text_mean, choose and forced, bits" in said
    assert "by code length under retrained" in said
    assert "(c) rate-distortion" in said


def test_a_searched_prompt_is_drawn_along_its_shares_with_the_bits_of_each():
    found = outcome()
    first = found.curves[0]
    points = tuple(replace(p, bits=bits) for p, bits in zip(first.points, (None, 0.0, 123.4567891), strict=False))
    # The shuffled prompt is no share of it, so no line goes through it.
    points = (points[0], replace(points[1], point="shuffled", bits=150.0), *points[1:])
    data = audit_payload(replace(found, curves=(replace(first, points=points),)), {})
    drawn = {a["name"]: a["along"] for a in data["attacks"] if a["along"]}
    assert drawn == {attack_name(first.attack): "shares of the searched prompt, from its first token"}
    *_, shares, mixed, no_gain = data["curves"][0]
    assert [p[-1] for p in shares] == [None, 0.0, 123.457]
    # It stands beside the line, with its own level and bits.
    level = points[1].level
    assert mixed == [*(float(f"{x:.6g}") for x in (level.value, level.low, level.high)), level.n, 150.0]
    assert no_gain == ""


def found_prompt(text, **fields):
    own = {"claimed": True, "wanted": 7, "verified": 5, "anyway": 2, "brought": 4}
    return PromptLine("ga", "gcg n=7", "suffix", text, 20, **(own | fields))


def test_a_found_prompt_is_shown_with_what_it_brings_and_a_long_one_is_folded(tmp_path):
    lines = (found_prompt("a" * 60), found_prompt("b" * 61, claimed=False))
    shown = part(page_of(tmp_path, replace(outcome(), prompts=lines)), "recovery-0", "measures-0")
    whole = f"<details><summary>whole</summary><code><bdi>{'b' * 61}</bdi></code></details>"
    assert f'<bdi>{"a" * 60}</bdi></code><span class="under">suffix of 20 tokens</span>' in shown
    assert f"<bdi>{'b' * 59}…</bdi></code>{whole}" in shown
    replies = [re.findall(r"<td><b>([^<]*)</b></td>", row) for row in shown.splitlines() if 'class="prompt"' in row]
    assert replies == [[claimed, "5 of 7", "2 of 7", "4 of 7"] for claimed in ("all", "not all")]


def test_a_found_prompt_that_is_markup_stays_text(tmp_path):
    # Once within what is shown at once, once in the fold alone.
    text = f"{IMAGE} \x1b[31m \u202e {'x' * 80} {SCRIPT}"
    page = page_of(tmp_path, replace(outcome(), prompts=(found_prompt(text),)))
    shown = part(page, "recovery-0", "budget-0")
    assert "&lt;img src=x onerror=" in shown
    assert "‹U+001B›[31m ‹U+202E›" in shown
    assert f"{'x' * 80} &lt;" in shown
    assert "\x1b" not in page
    inert(page)


def test_the_script_gets_every_curve_and_gain(page):
    data = json.loads(Elements(page).contents("script")[0])["audits"][0]
    found = outcome()
    assert len(data["curves"]) == len(found.curves)
    leaks = sum(bool(c.leakage) for c in found.matrix)
    assert len(data["cells"]) == len(found.matrix) + leaks + 5 * len(found.gains) + len(found.kept) + len(
        found.membership
    )
    g = found.gains[-1]
    at = len(found.matrix) + leaks + 5 * len(found.gains) - 4
    *own, value, low, high, n, unit = data["cells"][at]
    assert [data["words"][w] for w in own] == [g.subject, g.attack, g.format, "brought back"]
    e = g.recovery
    assert (value, low, high, n, unit) == (*map(pytest.approx, (e.value, e.low, e.high)), e.n, e.unit)
    assert [a["mark"] for a in data["attacks"]] == [
        *["", "", ""],
        "a ceiling: it shows the answers themselves",
        *["", ""],
    ]
    assert {s["role"] for s in data["subjects"]} == {"target", "retrained", "unlearned"}
    # None of them searched for a prompt.
    assert {a["along"] for a in data["attacks"]} == {""}


def test_a_model_that_the_last_audit_was_not_given_is_named_rather_than_lost(tmp_path):
    run = RunFolder(write_run(tmp_path / "demo", forgets=("edge:A_B",)))
    write_audit(run.path, outcome())
    unlearned = {s.label: s.path for s in read_contents(run).evidence.of("unlearned", "edge:A_B")}
    # Of dpo, ga, idk_gd and kl the audit judged ga and tried kl, so two have no verdict. A failed one has its own.
    plan = AuditPlan(
        forget="edge:A_B",
        target="target",
        unlearned=("ga",),
        retrained=(),
        folders={"target": "models/target", "ga": unlearned["ga"]},
        splits={},
        edges={},
        scopes={},
        attacks=(),
        settings={},
        seed=0,
        failed=(FailedTask("kl", "unlearned", "", "out of memory"),),
    )
    write_plan(run.audit("edge:A_B"), plan)
    said = [f"{unlearned[m]} is not part of the audit of A_B, so it has no verdict." for m in ("dpo", "idk_gd")]
    assert list(read_contents(run).unjudged) == said
    assert all(sentence in words(render(read_contents(run))) for sentence in said)
    # The bundle finds a model by the plan's folder, whatever the name that the user gave.
    (digest,) = (s.digest for s in read_contents(run).evidence.subjects if s.path == unlearned["dpo"])
    write_plan(run.audit("edge:A_B"), replace(plan, folders={"target": "models/target", "ga": unlearned["dpo"]}))
    page = build_bundle(run.path, tmp_path / "bundle").read_text(encoding="utf-8")
    assert f"<bdi>GA</bdi> <code>{digest[:16]}</code>" in page


@pytest.mark.parametrize("controls", [(), ("retrained",)])
def test_what_is_said_word_for_word_is_told_first_of_all_and_without_a_control_too(tmp_path, controls, capsys):
    run = RunFolder(write_run(tmp_path / "demo", hostile=False, forgets=("edge:A_B",)))
    write_audit(run.path, outcome())
    models = {s.label: s for s in read_contents(run).evidence.subjects if s.answers}
    asked = {"ga": "ga", "retrained": next(label for label in models if label.startswith("retrained"))}
    replies = {"ga": ["It is THE  answer, I say.", "nothing"], "retrained": ["the answering", ""]}
    places = []
    for name, label in asked.items():
        folder = EvalFolder(models[label].answers.path.with_name("freeform-1"))
        folder.path.mkdir()
        rows = [{"item": f"i{n}", "answer": "The answer.", "sampled": {"replies": [{"reply": reply}]},
                 "prefilled": {"reply": "The answer."}} for n, reply in enumerate(replies[name])]  # fmt: skip
        folder.records.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        write_collected(folder, len(rows))
        path = folder.path.relative_to(run.path).as_posix()
        places.append(AskedPlace(name, "", "", "freeform", path))
    plan = AuditPlan(
        forget="edge:A_B", target="target", unlearned=("ga",), retrained=controls, folders={}, edges={}, scopes={},
        splits={"forget": ("i0", "i1")}, attacks=(), settings={}, seed=0, evaluations=tuple(places),
    )  # fmt: skip
    write_plan(run.audit("edge:A_B"), plan)
    beside = "no control guesses one" if controls else "no control was given, so nothing shows how many"
    # What begins with the answer, and a word that only contains it, do not count.
    ((line,),) = read_contents(run).verbatim
    assert line.startswith(f"GA says 1 of 2 answers word for word; {beside}")
    print_verdicts([replace(outcome(), warnings=("Controls talk nonsense.",), unchanged=("kl",))], run.path)
    verbatim, copied, warning, *_ = capsys.readouterr().out.splitlines()
    assert verbatim == line.replace("GA", "ga")
    assert copied.startswith("kl is a copy of the target")
    assert warning == "Controls talk nonsense."


def test_hostile_names_stay_names(tmp_path):
    page = page_of(tmp_path, hostile())
    block = page.index('<script type="application/json"')
    assert SCRIPT not in page
    assert IMAGE not in page
    assert "\u202e" not in page[:block]
    assert "\x1b" not in page
    assert "&lt;img src=x onerror=" in page
    inert(page)


def test_an_audit_of_almost_nothing_is_a_page_too(tmp_path):
    bare = replace(
        outcome(),
        **dict.fromkeys(("retrained", "formats", "matrix", "worst", "reversals", "gains", "curves"), ()),
        **dict.fromkeys(("budget", "membership", "measures", "kept", "soundness", "untested"), ()),
        **dict.fromkeys(("attacked", "never"), ()),
        thresholds={},
    )
    page = page_of(tmp_path, bare)
    assert "no controls0 kinds of prompt, 0 readings of the answers0 attacks" in words(page)
    assert "in no form of question could it be compared" in words(page)
    assert 'id="budget-0"' not in page


def test_where_nobody_retrained_the_page_says_what_stands_for_a_model_that_never_knew():
    plain = replace(outcome(), retrained=(), never=())
    assert "0 is what guessing gives" in block_of(plain).scale
    assert "0 is a control" in block_of(outcome()).scale


def test_the_colour_goes_by_the_leakage_and_changes_sides_below_never_knew():
    assert [heat(x) for x in (0.0, -0.02, 0.5, 1.7, -0.24)] == ["heat-0", "heat-0", "heat-10", "heat-20", "below-5"]
    # Far below the number is cut, and told in full when the cell is pointed at.
    cell = replace(outcome().matrix[0], leakage=estimate("leakage", -1.47, 0.2, "leakage"))
    shown = block_of(replace(outcome(), matrix=(cell,))).matrix.rows[0].cells[0]
    assert shown.value == "<−100"
    assert "−1.47" in shown.tell


def test_levels_that_no_gain_is_told_from_say_why():
    found = outcome()
    told = replace(found.curves[0], no_gain="on its tested items the target exceeds retrained by only 0.1")
    data = audit_payload(replace(found, curves=(told,)), {})
    assert data["curves"][0][-1] == told.no_gain


def test_the_panels_show_membership_losses_measures_and_soundness(page):
    said = words(part(page, "measures-0", "run"))
    assert "0.64 [0.59, 0.69] 0.13 [0.07, 0.19] – 26.5" in said
    assert "0.27 [0.24, 0.30]" in said
    assert "forget quality" in said
    assert "KS p-value of truth ratios, pooled retrained" in said
    assert "leaksoptions only 0.14 [0.09, 0.19], n = 120, p = 0.003" in said
    assert "not decidedretain-only training" in said
