"""Verdicts in others' forms: what each says is what was judged, and hostile names act in none of them."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
import yaml
from huggingface_hub import parse_eval_result_entries
from synthetic_audit import hostile, outcome, write_audit
from typer.testing import CliRunner

from vestige.artifacts.exports import ModelFacts, card, eee, hub_results, junit, without_paths
from vestige.artifacts.verdicts import WORDS
from vestige.cli.app import app
from vestige.core.errors import InputError
from vestige.core.files import replacing

FACTS = ModelFacts("org/model", "d" * 64, "1.0", {"<b>target</b>": "e" * 64})
WHEN = datetime.fromtimestamp(1_700_000_000, tz=UTC)
EEE = json.loads((Path(__file__).parent / "eval.schema.json").read_text(encoding="utf-8"))
"""Every Eval Ever's published schema (evaleval/every_eval_ever at 9bce413, MIT)."""


@pytest.mark.parametrize("found", [outcome(), hostile()], ids=["plain", "hostile"])
def test_every_verdict_is_in_every_form_and_no_sign_of_it_acts(found):
    (suite,) = ElementTree.fromstring(junit([found]))
    kinds = {"failure": "fails", "skipped": "inconclusive"}
    cases = [(c.get("name"), kinds[c[0].tag] if len(c) else "holds") for c in suite.findall("testcase")]
    assert cases == [(v.claim, v.outcome) for v in found.verdicts]
    assert int(suite.get("failures")) == sum(v.outcome == "fails" for v in found.verdicts)
    strict = ElementTree.fromstring(junit([found], fail_open=True))[0]
    assert (int(strict.get("failures")), strict.get("skipped")) == (
        sum(v.outcome != "holds" for v in found.verdicts),
        "0",
    )
    assert len(strict.findall("*/failure")) == int(strict.get("failures"))
    for subject in {v.subject for v in found.verdicts}:
        own = [v for v in found.verdicts if v.subject == subject]
        page = card([found], subject, FACTS)
        rows = [line for line in page.splitlines() if line.startswith("| ")][2:]
        assert [re.split(r"(?<!\\)\|", row)[2].strip() for row in rows] == [WORDS[v.outcome] for v in own]
        assert not re.search(r"(?<!\\)[<\[]|\x1b|\u202e", page)
        record = json.loads(json.dumps(eee(found, subject, FACTS, WHEN), allow_nan=False))
        jsonschema.validate(record, EEE)
        levels = [r for r in record["evaluation_results"] if r["metric_config"]["score_type"] == "levels"]
        names = levels[0]["metric_config"]["level_names"]
        assert [names[r["score_details"]["score"]] for r in levels] == [WORDS[v.outcome] for v in own]
        assert len(record["evaluation_results"]) == sum(1 + len(v.evidence) for v in own)
        entries = parse_eval_result_entries(yaml.safe_load(hub_results(found, subject, FACTS, "org/data", WHEN)))
        decided = [v for v in own if v.decides in v.evidence]
        assert [e.value for e in entries] == [v.evidence[v.decides].value for v in decided]
        for entry, v in zip(entries, decided, strict=True):
            assert (entry.dataset_id, entry.date) == ("org/data", "2023-11-14T22:13:20+00:00")
            assert f": {WORDS[v.outcome]}; " in entry.notes
            assert not re.search(r"[^a-zA-Z0-9._=-]|\x1b|\u202e", entry.task_id)


def test_what_xml_cannot_hold_is_left_out_of_it():
    found = replace(outcome(), forget="a\x00\ufffe\ud800]]>&<b")
    assert ElementTree.fromstring(junit([found]))[0].get("name") == "a··\N{MIDDLE DOT}]]>&<b"


def test_the_command_writes_one_file_and_refuses_what_it_does_not_know(tmp_path):
    write_audit(tmp_path, outcome())
    ended = CliRunner().invoke(app, ["export", str(tmp_path), "--to", "junit", "--json"])
    (path,) = json.loads(ended.stdout)
    assert ElementTree.parse(path).getroot().tag == "testsuites"
    for run, to in ((tmp_path, "pdf"), (tmp_path / "none", "junit"), (tmp_path, "hf")):
        assert isinstance(CliRunner().invoke(app, ["export", str(run), "--to", to]).exception, InputError)


def test_of_a_baseline_only_what_got_worse_fails(tmp_path):
    found = outcome()
    failing = [v for v in found.verdicts if v.outcome == "fails"]
    worse = {(found.forget, failing[0].subject, failing[0].claim)}
    (suite,) = ElementTree.fromstring(junit([found], worse=worse))
    assert (suite.get("failures"), len(suite.findall("*/failure"))) == ("1", 1)
    assert "no worse than in the baseline" in suite.find("*/skipped").get("message")
    write_audit(tmp_path, found)
    ended = CliRunner().invoke(app, ["export", str(tmp_path), "--to", "junit", "--baseline", str(tmp_path), "--json"])
    (path,) = json.loads(ended.stdout)
    assert ElementTree.parse(path).getroot()[0].get("failures") == "0"


def test_paths_are_cut_and_names_stay():
    text = r"r0 (/home/ann/a b/r0.json), ~/x/y.json, ../up.json, C:\logs\z.json, of org/model at https://host/a and/or"
    assert without_paths(text) == "r0 (a b/r0.json), y.json, up.json, z.json, of org/model at https://host/a and/or"


@pytest.mark.slow
def test_the_command_says_where_everything_is(run):
    done = CliRunner().invoke(app, ["report", str(run)])
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [f"report: {run / 'report.html'}", f"2 tables in {run / 'tables'}"]


@pytest.mark.slow
def test_as_json_it_is_one_document_with_every_file(run):
    done = CliRunner().invoke(app, ["report", str(run), "--json"])
    told = json.loads(done.stdout)
    assert told["report"] == str(run / "report.html")
    assert sorted(told["tables"]) == sorted(str(p) for p in (run / "tables").iterdir())


@pytest.mark.slow
def test_one_report_is_written_at_a_time(run, monkeypatch):
    monkeypatch.setitem(replacing.__wrapped__.__kwdefaults__, "patience_seconds", 0.0)
    with replacing(run / "report.html", patience_seconds=0):
        done = CliRunner().invoke(app, ["report", str(run)])
    assert isinstance(done.exception, InputError)
    assert "another command is running" in str(done.exception)
