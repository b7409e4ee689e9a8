"""The audit's part of the page in a real browser: verdicts first, curves, gains, tooltips, hostile names."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from chromium import Page, wanted
from synthetic_audit import ATTACKS, METHODS, SCRIPT, estimate, hostile, outcome, write_audit
from synthetic_run import write_run

from vestige.artifacts.audits import CurvePoint
from vestige.report import build_report
from vestige.report.words import attack_name

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not wanted(), reason="no Chromium is installed")]


@pytest.fixture
def page(browser: Page, audited: Path) -> Page:
    browser.events.clear()
    browser.resize(1280, 800)
    browser.open(audited / "report.html")
    return browser


def choose_format(page: Page, number: int) -> None:
    page.run(
        "(() => { const box = document.querySelector('#recovery-0 select');"
        f" box.value = '{number}'; box.dispatchEvent(new Event('change')); }})()"
    )
    page.settle()


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (1440, 900)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_first_screen_holds_the_answer_all_verdicts_and_the_margins(page, width, height, scheme):
    page.resize(width, height, scheme)
    bottoms = page.run(
        "['.answer-sentence', '.verdicts', '.audit > .reading']"
        ".map((s) => document.querySelector(s).getBoundingClientRect().bottom)"
    )
    assert max(bottoms) <= height - 16, "fonts differ between machines: leave room"
    assert len(page.texts(".verdicts a.verdict")) == 16
    assert len(page.texts(".benchmark a.verdict")) == 1
    assert page.complaints() == []


def test_the_page_asks_for_nothing_and_complains_of_nothing(page, audited):
    assert page.requests() == [(audited / "report.html").resolve().as_uri()]
    assert page.complaints() == []


def test_a_verdict_tells_its_reason_on_focus_and_leads_to_it(page):
    page.run("document.querySelectorAll('.verdicts tbody tr')[3].querySelector('a').focus()")
    told = page.texts(".tooltip")[0]
    assert told.startswith("KL: not expressed")
    assert "failIt still answers" in told
    anchor = page.run("document.querySelectorAll('.verdicts tbody tr')[3].querySelector('a').hash")
    assert page.texts(f"{anchor} bdi") == ["KL"]


def test_every_cell_of_the_heat_map_stands_in_its_column(browser, tmp_path):
    run, found = tmp_path / "run", outcome()
    write_run(run)
    first = next(g for g in found.gains if g.unit != "bits")
    gains = tuple(g for g in found.gains if (g.subject, g.attack) != (first.subject, first.attack))
    write_audit(run, replace(found, gains=gains))
    browser.open(build_report(run))
    assert browser.count(".heat-map td.none") > 0
    shown = "[...document.querySelectorAll('.heat-map td')].map((c) => getComputedStyle(c).display)"
    assert set(browser.run(shown)) == {"table-cell"}


def test_a_cell_of_the_heat_map_tells_its_interval_and_leads_to_its_number(page):
    page.run("document.querySelector('.heat-map td.heat a').focus({ preventScroll: true })")
    told = page.texts(".tooltip")[0]
    assert told.replace("\N{NO-BREAK SPACE}", " ") == (
        "DPO, written answerleakage0.03 [−0.06, 0.12], n = 120level0.21 [0.13, 0.29], n = 120"
        "with all formats at once0.03 [−0.10, 0.16], n = 120"
    )
    for number in (0, 30, 90):
        key = page.run(f"document.querySelectorAll('.heat-map a')[{number}].hash")
        whole = page.run(f"document.querySelectorAll('.heat-map a')[{number}].textContent")
        page.run(f"location.hash = {json.dumps(key)}")
        page.settle()
        (value,) = page.texts("#table tr:has(+ .drawer) td b")
        assert round(100 * float(value.replace("−", "-"))) == int(whole.replace("−", "-"))
        assert "vestige audit --rejudge" in page.texts("#table .drawer code")[0]


def test_every_attack_has_curves_of_all_methods_against_the_band_of_what_it_carries_in(page):
    assert page.texts(".attacks figcaption strong") == [attack_name(a) for a in ATTACKS]
    for place in ("polygon.carried", ".curve-group.role-target"):
        assert page.run(f"document.querySelectorAll('.attacks {place}').length") == len(ATTACKS)
    assert page.run("document.querySelectorAll('.attacks .curve-group').length") == len(ATTACKS) * (len(METHODS) + 1)
    assert page.run("document.querySelectorAll('.attacks figure.ceiling').length") == 1
    page.run("document.querySelectorAll('.attacks figure')[0].querySelectorAll('.curve-group')[4].focus()")
    last = next(c for c in outcome().curves if (c.subject, c.attack) == ("kl", "relearn retain n=50")).points[-1]
    told = page.texts(".tooltip")[0]
    assert told.startswith("KLbefore")
    assert f"5{last.level.value:.2f} [{last.level.low:.2f}, {last.level.high:.2f}], n = 90" in told


def test_the_curve_of_a_method_that_gives_it_back_ends_above_the_band(page):
    ends = page.run(
        "(() => { const f = document.querySelector('.attacks figure');"
        " const band = f.querySelector('.carried').getBoundingClientRect();"
        " const dots = [...f.querySelectorAll('.curve-group circle')].map((c) => c.getBoundingClientRect().top);"
        " return [band.top, band.bottom, ...dots]; })()"
    )
    top, bottom, _, _, idk_gd, kl = ends
    assert kl < top
    assert idk_gd > bottom


def test_a_searched_prompt_has_its_shuffled_level_beside_the_curve_and_says_why_no_gain_is_told(browser, tmp_path):
    run = write_run(tmp_path / "demo", forgets=("edge:A_B",))
    found = outcome()
    first, why = found.curves[0].attack, "on its tested items the target exceeds retrained by only 0.10"
    lines = [c for c in found.curves if c.attack == first]
    curves = [
        replace(c, no_gain=why, points=(*c.points, CurvePoint("shuffled", estimate("rouge1_recall", 0.3, 0.1), 150.0)))
        for c in lines
    ]
    write_audit(run, replace(found, curves=tuple(curves), gains=()))
    browser.resize(1280, 800)
    browser.open(build_report(run))
    # One open mark a model: the target, three retrained and four methods.
    assert len(browser.texts("#recovery-0 .curve-group.mixed circle")) == 8
    ticks = browser.texts("#recovery-0 svg text.tick")
    assert "shuffled" in ticks
    assert ticks.index("before") < ticks.index("5")
    ends = browser.run(
        "['.curve-group:not(.mixed) circle', '.mixed circle'].map((s) =>"
        " [...document.querySelectorAll('#recovery-0 ' + s)].map((e) => Number(e.getAttribute('cx'))))"
    )
    assert max(ends[0]) < min(ends[1])
    assert browser.texts("#recovery-0 .remark") == [f"No gain is told from these levels: {why}."]


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (1280, "dark")])
def test_the_audit_fits_every_width_and_both_schemes(page, width, scheme):
    page.resize(width, 850, scheme)
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert page.run("[...document.querySelectorAll('.verdicts td')].every((c) => c.scrollWidth <= c.clientWidth + 1)")
    assert page.complaints() == []


def test_everything_that_tells_can_be_reached_by_keyboard(page):
    assert page.run("[...document.querySelectorAll('[data-tell]')].every((e) => e.tabIndex === 0)")
    assert page.run("document.querySelectorAll('[data-tell]').length") > 100


def test_hostile_names_are_text_and_nothing_runs(browser, tmp_path):
    run = write_run(tmp_path / "demo", hostile=False, forgets=("edge:A_B",))
    write_audit(run, hostile())
    build_report(run)
    browser.events.clear()
    browser.resize(1280, 800)
    browser.open(run / "report.html")
    assert SCRIPT in browser.texts(".verdicts th bdi")
    for mark in range(0, browser.run("document.querySelectorAll('[data-tell]').length"), 7):
        browser.run(f"document.querySelectorAll('[data-tell]')[{mark}].focus({{ preventScroll: true }})")
    for number in range(4):
        choose_format(browser, number)
    browser.run(f"location.hash = 'cell=' + encodeURIComponent({json.dumps(f'edge:A_B|{SCRIPT}||generate|left')})")
    browser.settle()
    assert browser.texts("#table .drawer pre") != []
    assert browser.run("document.querySelectorAll('img, script, iframe').length") == 2
    browser.keeps_hostile_text_unseen()


AXE = os.environ.get("AXE", "")
"""The file axe.min.js of axe-core."""


@pytest.mark.skipif(not AXE, reason="AXE names no axe.min.js")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("audit", [True, False])
def test_axe_finds_nothing(browser, audited, run, scheme, audit):
    browser.resize(1280, 800, scheme)
    browser.open((audited if audit else run) / "report.html")
    browser.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    browser.run(f"{Path(AXE).read_text(encoding='utf-8')}; 1")
    told = "(r) => r.violations.map((v) => [v.id, v.impact, v.nodes[0].html.slice(0, 200)])"
    assert browser.run(f"axe.run(document, {{ resultTypes: ['violations'] }}).then({told})") == []
