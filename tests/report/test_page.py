import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from reading import Elements, bytes_of, colours_of, inert, words
from synthetic_audit import outcome, write_audit
from synthetic_run import HOSTILE, LONG, SCRIPT, items, spec, write_run, write_subject

from vestige.artifacts.layout import RunFolder
from vestige.report import build_report
from vestige.report.contents import read_contents
from vestige.report.page import embedded, payload, render


@pytest.fixture(scope="module")
def page(run):
    return (run / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def elements(page):
    return Elements(page)


@pytest.mark.slow
def test_the_same_run_gives_the_same_bytes(run, audited, tmp_path):
    first = bytes_of(run)
    assert {name.split(".")[-1] for name in first} == {"html", "csv"}
    build_report(run)
    assert bytes_of(run) == first
    # In another process, so that neither hash seeds nor caches take part, from a run of the same name.
    twin = write_run(tmp_path / "demo", forgets=("edge:A_B",))
    write_audit(twin, outcome())
    code = f"import pathlib, vestige.report as r; r.build_report(pathlib.Path({str(twin)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONHASHSEED": "7"})
    assert bytes_of(twin) == bytes_of(audited)


def test_the_policy_admits_exactly_the_one_script_and_the_one_style_sheet(elements):
    policy = next(a["content"] for t, a in elements.found if a.get("http-equiv") == "Content-Security-Policy")
    scripts, styles = elements.contents("script")[1:], elements.contents("style")

    def source(text):
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    assert len(scripts) == len(styles) == 1
    assert policy.split("; ") == [
        "default-src 'none'",
        f"script-src {source(scripts[0])}",
        f"style-src {source(styles[0])}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]


def test_no_element_loads_links_out_or_acts(page):
    inert(page)


def test_our_own_script_makes_no_markup_from_strings_and_asks_nothing(elements):
    script = elements.contents("script")[-1]
    sinks = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function"
    requests = r"fetch\(|XMLHttp|WebSocket|import\(|https?://(?!www\.w3\.org/2000/svg)"
    assert not re.search(f"{sinks}|{requests}", script)


def test_the_data_block_holds_no_markup_and_all_replies(elements, page):
    block = elements.contents("script")[0]
    assert not set("<>&\u2028\u2029") & set(block)
    assert block.isascii()
    texts = json.loads(block)["items"]["texts"]
    assert set(HOSTILE) <= set(texts)
    assert SCRIPT not in page
    assert LONG in page


def test_embedded_json_reads_back_as_it_was():
    value = {"</script>": ["\u2028", "&amp;", "\ud800", "<!--", 1.5, None]}
    assert json.loads(embedded(value)) == value
    assert "<" not in embedded(value)


def test_the_first_screen_answers_without_the_script(page):
    said = words(page)
    assert "What is left of A_B and A_C" in said
    assert "Only vestige audit gives verdicts." in said


@pytest.mark.slow
def test_names_that_are_markup_stay_names(tmp_path):
    name = "<b_onclick=alert(1)>&amp;\u202e"
    run = RunFolder(write_run(tmp_path / "demo", forgets=("edge:A_B",)))
    own = replace(spec("unlearned", "edge:A_B", "ga"), method=name)
    write_subject(run.control("hostile"), own, items(), ["edge:A_B"])
    page = render(read_contents(run))
    assert "&lt;b_onclick=alert(1)&gt;&amp;amp;‹U+202E›" in page
    assert "<b_" not in page
    assert "\u202e" not in page


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    bright, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_the_contrast_that_accessibility_asks_for(scheme):
    colours = colours_of(scheme)
    for ground in ("paper", "panel", "faint"):
        for text in ("ink", "muted", "never", "good", "warn", "bad"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    for colour in (*(colours[f"method-{n}"] for n in range(8)), colours["lost"]):
        assert contrast(colour, colours["paper"]) >= 4.5, colour


def test_of_very_many_replies_the_page_carries_those_of_the_forget_sets_first_and_says_so(run, monkeypatch):
    contents = read_contents(RunFolder(run))
    forget = {i for f in contents.forget_sets for i, split in f.split.items() if split == "forget"}
    assert contents.shown == contents.answers.questions
    n = len(contents.evidence.subjects)
    for room in (len(forget) + 30, 10):
        monkeypatch.setattr("vestige.report.contents.REPLIES_SHOWN", n * room + n - 1)
        fewer = read_contents(RunFolder(run))
        ids = [a.id for a in fewer.shown]
        assert (len(ids), len(set(ids) & forget)) == (room, min(room, len(forget)))
        items = payload(fewer)["items"]
        assert (len(items["rows"]), items["asked"]) == (room, len(contents.answers.questions))
        assert {len(own) for own in items["replies"] if own is not None} == {room}
    monkeypatch.setattr("vestige.report.page.TEXT_SHOWN", 50_000)
    texts = payload(contents)["items"]["texts"]
    assert max(map(len, texts)) < 300
    assert any("99,8" in t and t.endswith("more characters in tables/items.csv)") for t in texts)
