"""The page of a search for holes: it claims no more than its placebos allow, and nothing in it acts."""

import json
import re
from dataclasses import replace

import pytest
from chromium import find_chromium
from reading import bytes_of, inert, table, words
from synthetic_holes import asked, candidates, write_probe
from synthetic_run import HOSTILE, IMAGE, SCRIPT, write_run

from vestige.artifacts.layout import ProbeFolder
from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.store import write_sealed
from vestige.metrics import intervals
from vestige.report import build_report
from vestige.report.holes import headline, read_probe, sentence, standing


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = write_probe(tmp_path_factory.mktemp("probed") / "holes", candidates())
    build_report(path)
    return path


@pytest.fixture(scope="module")
def page(folder):
    return (folder / "report.html").read_text(encoding="utf-8")


def first_screen(page):
    return words(page, " ")


def test_the_same_search_gives_the_same_bytes(folder):
    first = bytes_of(folder)
    assert list(first) == ["report.html", "tables/hole_sources.csv", "tables/holes.csv"]
    build_report(folder)
    assert bytes_of(folder) == first


def test_the_first_screen_answers_without_the_script(page):
    words = first_screen(page)
    # Of the 13 one is by a source that is not beyond its placebo.
    assert "12 knowledge holes in 37 prompts tested, and 1 more suspected" in words
    # Adjacent: one hole, and one false hole, of 20.
    assert "1 of 20 prompts is a hole" in words
    assert "no holes beyond false ones" in words
    # Latent: 12 of 16 judged, no false one; 1 more was not judged.
    assert "12 of 16 prompts are holes; a share of 0.75 [" in words
    assert "1 of 17 prompts tested were not judged on both sides" in words
    # 12 scores of 1 and 4 of 8: (12 + 32) / 16 = 2.75, before (12 x 9 + 4 x 8) / 16 = 8.75.
    assert "Mean quality: 8.75 before, 2.75 after (−6.00 [" in words
    assert "target knows unlearned npo judge: grounded" in words
    assert "13 holes" in words
    assert "2 not valid" in words
    assert "not whether an answer is true" in words


@pytest.mark.parametrize(
    ("found", "verdict", "said"),
    [
        ([asked(f"q{n}", "latent", 9.0, 8.0) for n in range(30)], "none", "No knowledge holes in 30 prompts tested"),
        (
            # 2 holes and 1 false one: 0.03 beyond, in an interval that holds 0.
            [asked(f"q{n}", "latent", 9.0, 1.0 if n < 2 else 8.0, placebo=1.0 if n > 28 else 9.0) for n in range(30)],
            "chance",
            "2 suspected holes in 30 prompts tested, not shown to be more than chance makes",
        ),
        ([asked(f"q{n}", "latent", 9.0, 1.0) for n in range(30)], "beyond", "30 knowledge holes in 30 prompts tested"),
        (
            [replace(asked("q", "latent", 9.0, 1.0), placebo_answers={"target at another seed": "It is so."})],
            "unknown",
            "1 suspected hole in 1 prompt tested",
        ),
    ],
)
def test_what_may_be_said_follows_from_the_placebo(found, verdict, said, tmp_path, monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 200)
    probe = read_probe(ProbeFolder(write_probe(tmp_path / "holes", found)))
    assert standing(probe, probe.table.rows[0]) == verdict
    assert headline(probe) == said
    words = "".join(span.text for span in sentence(probe, probe.table.rows[0]))
    assert ("no placebo says how many" in words) == (verdict == "unknown")
    assert ("which may be none" in words) == (verdict == "chance")


def test_no_element_loads_links_out_or_acts_and_hostile_text_stays_text(page):
    elements = inert(page)
    block = elements.contents("script")[0]
    assert not set("<>&\u2028\u2029") & set(block)
    assert set(HOSTILE[:3]) <= {row["unlearned"][0] for row in json.loads(block)["probes"][0]["rows"] if "hole" in row}
    assert SCRIPT not in page
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", page)


def test_names_that_are_markup_stay_names(tmp_path):
    path = write_probe(tmp_path / "holes", candidates()[-10:])
    hostile = json.dumps(f"{IMAGE}\u202e")
    for name in ("summary.json", "tested.jsonl", "holes.jsonl"):
        text = (path / name).read_text(encoding="utf-8")
        for word in ("latent", "target at another seed", "not valid"):
            text = text.replace(json.dumps(word), hostile)
        (path / name).write_text(text, encoding="utf-8")
    summary = path / "summary.json"
    write_sealed(summary, {part: json.loads(summary.read_text())[part] for part in ("identity", "table")})
    provenance = {"command": IMAGE, "models": {"target": IMAGE, "unlearned": IMAGE}, "times": {"started": IMAGE}}
    (path / "provenance.json").write_text(json.dumps(provenance))
    page = build_report(path).read_text(encoding="utf-8")
    inert(page)
    assert "<img" not in page
    # Source, placebo, reason and both models: each is there, spelt out.
    assert page.count("&lt;img src=x") >= 7
    assert "\u202e" not in page
    assert "‹U+202E›" in table(path, "hole_sources.csv")[0]["source"]


def test_the_tables_hold_every_hole_and_the_form_of_table_1(folder):
    first, *others = table(folder, "holes.csv")
    assert len(others) == 12
    assert first["prompt"] == "Where is harbour 0?"
    assert (first["target_score"], first["unlearned_score"]) == ("9.0", "2.0")
    adjacent, latent = table(folder, "hole_sources.csv")
    assert (adjacent["verdict"], adjacent["false_holes_value"]) == ("no holes beyond false ones", "0.05")
    assert (latent["holes_value"], latent["holes_n"], latent["tested"]) == ("0.75", "16", "17")


def test_a_folder_with_groups_of_an_earlier_version_is_still_read(tmp_path):
    path = write_probe(tmp_path / "holes", candidates())
    summary = json.loads((path / "summary.json").read_text())
    del summary["files"], summary["seal"]
    summary["schema"] = 2
    summary["table"] |= {"naming": "named by their terms", "groups": [{"name": "harbour", "n": 13, "by_source": {}}]}
    (path / "summary.json").write_text(json.dumps(summary))
    (path / "provenance.json").unlink()
    page = build_report(path).read_text(encoding="utf-8")
    assert "target aaaaaaaaaaaa" in first_screen(page)


def test_a_search_that_is_not_finished_is_refused_with_the_way_out(tmp_path):
    (tmp_path / "asked-adjacent.json").write_text("{}")
    with pytest.raises(InputError, match=r"no finished search for holes\. Run `vestige probe` there first"):
        build_report(tmp_path)


@pytest.mark.slow
def test_a_run_shows_its_holes_under_the_labels_of_its_models(tmp_path):
    run = write_run(tmp_path / "demo", hostile=False, forgets=("edge:A_B",))
    cell = next(p for p in (run / "cells").iterdir() if p.name.startswith("dpo"))
    write_probe(run / "holes", candidates(), unlearned=content_id(cell.name, length=64))
    page = build_report(run).read_text(encoding="utf-8")
    assert '<section id="holes-0"' in page
    assert "unlearned dpo" in first_screen(page)
    assert (run / "tables" / "holes.csv").exists()


@pytest.mark.slow
@pytest.mark.skipif(find_chromium() is None, reason="no Chromium is installed")
def test_in_a_browser_the_holes_are_listed_and_searched_and_nothing_runs(folder, browser):
    for width in (1280, 420):
        browser.resize(width, 900)
        browser.open(folder / "report.html")
        assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.count(".hole-list .item") == 13
    search = "document.querySelector('.hole-list input[type=search]')"
    browser.run(f"{search}.value = 'harbour 0'; {search}.dispatchEvent(new Event('input'))")
    # The adjacent question, and the first of the latent ones: "Which harbour 0? ...".
    assert browser.count(".hole-list .item") == 2
    browser.keeps_hostile_text_unseen()
