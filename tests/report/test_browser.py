"""The report in a real browser: is it drawn, does it answer to hands, and does nothing hostile run?"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from chromium import Page, wanted
from synthetic_run import ANSI, HOSTILE, LONG, OVERRIDE, SCRIPT

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not wanted(), reason="no Chromium is installed")]

CHOOSE = """(([part, name, value]) => {
  const box = [...document.querySelectorAll(`#${part} [name]`)].find((b) => b.getAttribute("name") === name);
  if (box.type === "checkbox") box.click();
  else { box.value = value; box.dispatchEvent(new Event(box.type === "search" ? "input" : "change")); }
})"""


@pytest.fixture
def page(browser: Page, run: Path) -> Page:
    browser.events.clear()
    browser.resize(1440, 900)
    browser.open(run / "report.html")
    return browser


def choose(page: Page, part: str, name: str, value: str = "") -> None:
    page.run(f"{CHOOSE}({json.dumps([part, name, value])})")
    page.settle()


def test_the_page_asks_for_nothing_but_itself_and_complains_of_nothing(page, run):
    assert page.requests() == [(run / "report.html").resolve().as_uri()]
    assert page.complaints() == []


def test_a_complaint_would_be_noticed(browser, tmp_path):
    browser.events.clear()
    broken = tmp_path / "broken.html"
    broken.write_text(
        "<html data-drawn='true'><meta http-equiv='Content-Security-Policy' content=\"default-src 'none'\">"
        "<script>window.pwned=1</script><img src='http://127.0.0.1:9/x'></html>",
        encoding="utf-8",
    )
    browser.open(broken)
    assert browser.run("window.pwned ?? null") is None
    assert any("Content Security Policy" in c for c in browser.complaints())


def test_hostile_replies_are_shown_as_text_and_nothing_runs(page, run):
    before = {tag: page.count(tag) for tag in ("script", "img", "a:not(.where a)", "style", "iframe")}
    page.run("window.alert = () => { window.pwned = 1; }")
    choose(page, "items", "Contract", "A_C2")
    replies = page.texts(".reply-text")
    assert SCRIPT in replies
    assert HOSTILE[1] in replies
    assert ANSI.replace("\x1b", "U+001B").replace("\x07", "U+0007") in replies
    assert OVERRIDE.replace("\u202e", "U+202E").replace("\u2066", "U+2066").replace("\u2069", "U+2069") in replies
    assert {tag: page.count(tag) for tag in before} == before
    assert before["img"] == 0
    assert page.run("document.title") == "What is left of A_B and A_C – Vestige"
    page.keeps_hostile_text_unseen()


def test_a_very_long_reply_is_cut_and_opens_on_demand(page):
    choose(page, "items", "Contract", "A_C2")
    assert page.texts(".more") == [f"… all {len(LONG):,} characters"]
    assert max(map(len, page.texts(".reply-text"))) < 400
    page.run("document.querySelector('.more').click()")
    assert max(map(len, page.texts(".reply-text"))) == len(LONG + "less")
    assert page.run("document.documentElement.scrollWidth <= innerWidth")


def test_the_first_screen_has_the_picture_of_all_models(page):
    place = "document.querySelector('#tradeoff figure').getBoundingClientRect().bottom"
    assert page.run(place) <= 900
    assert "Only vestige audit gives verdicts." in page.texts(".standfirst")[0]


def test_the_trade_off_shows_every_model_once_with_a_label(page):
    assert page.count("#tradeoff svg") == 2
    assert page.count("#tradeoff .mark") == 12
    labels = page.texts("#tradeoff figure:first-child .label")
    assert sorted(labels) == ["DPO", "GA", "IDK + GD", "KL", "retrained", "target"]
    boxes = page.run(
        "[...document.querySelectorAll('#tradeoff figure:first-child .label')].map((e) => {"
        "const b = e.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; })"
    )
    for i, (left, top, right, bottom) in enumerate(boxes):
        for other in boxes[:i]:
            assert right <= other[0] or left >= other[2] or bottom - 3 <= other[1] or top >= other[3] - 3


def test_the_table_of_numbers_filters_and_sorts(page):
    whole = int(page.texts("#table .found")[0].split(" of ")[1].split()[0].replace(",", ""))
    for name, value in (("Questions", "forget"), ("Model", "GA"), ("Measure", "\0")):
        choose(page, "table", name, value)
    n = int(page.texts("#table .found")[0].split()[0])
    assert 0 < n < whole
    assert set(page.texts("#table tbody th bdi")) == {"GA"}
    for downwards in (True, False):
        page.run("document.querySelectorAll('#table thead button')[5].click()")
        values = [float(t.split()[0].replace("−", "-")) for t in page.texts("#table tbody td:nth-child(6)")]
        assert values == sorted(values, reverse=downwards)
    assert page.texts("#table thead [aria-sort=ascending] button") == ["Value↑"]
    assert page.complaints() == []


def test_a_link_shows_its_number_and_the_code_beside_it_gives_that_number(page, run):
    shown = {}
    for metric in ("rouge1_recall", "probability"):
        form = "generate" if metric.startswith("rouge") else "forced"
        page.run(f"location.hash = 'cell=' + encodeURIComponent('edge:A_B|DPO|retain|{form}||{metric}')")
        page.settle()
        (value,) = page.texts("#table tr:has(+ .drawer) td b")
        (code,) = page.texts("#table .drawer code:not(li code)")
        done = subprocess.run([sys.executable, "-c", code], cwd=run, capture_output=True, text=True, check=True)
        shown[metric] = (value, f"{float(done.stdout):.2f}")
        (path,) = page.texts("#table .drawer li code")
        assert (run / path).is_file()
    assert len({told for told, _ in shown.values()}) == 2
    assert all(told == computed for told, computed in shown.values())
    page.run("location.hash = 'cell=%E0%A4%A'")
    assert page.complaints() == []


def test_a_link_shows_one_question_with_all_models_and_a_table_is_written_as_csv(page):
    choose(page, "items", "Split", "forget")
    n_models = page.run("document.querySelector('[name=\"Unlearned by\"]').options.length - 1")
    (link, *_) = page.run("[...document.querySelectorAll('.item .where a')].map((a) => a.hash)")
    page.run(f"location.hash = {json.dumps(link)}")
    page.wait_for("document.querySelectorAll('.item').length === 1")
    assert page.count(".item .reply") >= n_models + 2
    page.run("URL.createObjectURL = (blob) => { window.wrote = blob.text(); return 'blob:none'; }")
    page.run("HTMLAnchorElement.prototype.click = () => {}")
    page.run("[...document.querySelectorAll('#table .copy')].find((b) => b.textContent === 'CSV').click()")
    head, first, *_ = page.run("window.wrote").split("\r\n")
    assert head == "Model,Questions,Asked as,After,Measure,value,low,high,n,unit"
    assert len(first.split(",")) == 10


def test_words_that_the_stated_answer_has_not_are_marked(page):
    choose(page, "items", "Contract", "E1_F1")
    assert page.texts(".reply.role-target mark") == []
    choose(page, "items", "Contract", "A_B")
    perfect = "[...document.querySelectorAll('.reply')].filter((r) => r.querySelector('b').textContent === '1.00')"
    right = page.run(f"{perfect}.flatMap((r) => [...r.querySelectorAll('mark')]).length")
    assert right == 0
    assert page.count(".reply.role-retrained mark") > 20


def test_the_items_filter_by_split_text_and_difference_and_turn_pages(page):
    assert page.texts("#items .found") == ["440 of 440 questions"]
    assert page.count("#items .item") == 25
    page.run("[...document.querySelectorAll('#items .pages button')].at(-1).click()")
    assert page.texts("#items .pages span") == ["page 2 of 18"]
    choose(page, "items", "Split", "forget")
    assert page.texts("#items .found") == ["20 of 440 questions"]
    choose(page, "items", "differs from target")
    differing = int(page.texts("#items .found")[0].split()[0])
    assert 0 < differing < 20
    choose(page, "items", "Text", "no such words")
    assert page.texts("#items .found") == ["0 of 440 questions"]
    choose(page, "items", "Text", "UNIT PRICE")
    assert all("unit price" in q for q in page.texts("#items .question"))


def test_refused_empty_and_truncated_replies_are_marked(page):
    choose(page, "items", "Contract", "A_C2")
    assert {"empty", "truncated"} <= set(page.texts(".marks .chip"))
    choose(page, "items", "Contract", "A_B")
    choose(
        page,
        "items",
        "Unlearned by",
        page.run("[...document.querySelectorAll('#items option')].find((o) => o.textContent === 'IDK + GD').value"),
    )
    assert "refused" in page.texts(".marks .chip")


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (1280, "dark")])
def test_the_page_fits_every_width_and_both_schemes(page, width, scheme):
    page.resize(width, 850, scheme)
    page.settle()
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert page.count("#tradeoff .label") == 12
    assert page.complaints() == []


def test_every_method_can_stand_beside_the_anchors(page):
    choose(page, "items", "Unlearned by", "every")
    assert page.texts("#items .item:first-child .reply .kicker bdi") == [
        *("target", "DPO", "GA", "IDK + GD", "KL", "retrained")
    ]
