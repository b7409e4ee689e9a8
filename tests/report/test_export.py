"""Verdicts in others' forms: what each says is what was judged, and hostile names act in none of them."""

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from synthetic_audit import hostile, outcome, write_audit
from typer.testing import CliRunner

from vestige.artifacts.exports import ModelFacts, card, eee, junit
from vestige.cli.app import app
from vestige.core.errors import InputError

FACTS = ModelFacts("org/model", "d" * 64, "1.0")


@pytest.mark.parametrize("found", [outcome(), hostile()], ids=["plain", "hostile"])
def test_every_verdict_is_in_every_form_and_no_sign_of_it_acts(found):
    (suite,) = ElementTree.fromstring(junit([found]))
    said = {"failure": "fails", "skipped": "inconclusive"}
    cases = [(c.get("name"), said[c[0].tag] if len(c) else "holds") for c in suite.findall("testcase")]
    assert cases == [(v.claim, v.outcome) for v in found.verdicts]
    assert int(suite.get("failures")) == sum(v.outcome == "fails" for v in found.verdicts)
    for subject in {v.subject for v in found.verdicts}:
        own = [v for v in found.verdicts if v.subject == subject]
        page = card([found], subject, FACTS)
        rows = [line for line in page.splitlines() if line.startswith("| ")][2:]
        assert [re.split(r"(?<!\\)\|", row)[2].strip() for row in rows] == [v.outcome for v in own]
        assert not re.search(r"(?<!\\)[<\[]|\x1b|\u202e", page)
        record = json.loads(json.dumps(eee(found, subject, FACTS, "1700000000"), allow_nan=False))
        levels = [r for r in record["evaluation_results"] if r["metric_config"]["score_type"] == "levels"]
        names = levels[0]["metric_config"]["level_names"]
        assert [names[r["score_details"]["score"]] for r in levels] == [v.outcome for v in own]
        assert len(record["evaluation_results"]) == sum(1 + len(v.evidence) for v in own)


def test_what_xml_cannot_hold_is_left_out_of_it():
    found = replace(outcome(), forget="a\x00\ufffe\ud800]]>&<b")
    assert ElementTree.fromstring(junit([found]))[0].get("name") == "a··\N{MIDDLE DOT}]]>&<b"


def test_the_command_writes_one_file_and_refuses_what_it_does_not_know(tmp_path):
    write_audit(tmp_path, outcome())
    ended = CliRunner().invoke(app, ["export", str(tmp_path), "--to", "junit", "--json"])
    (path,) = json.loads(ended.stdout)
    assert ElementTree.parse(path).getroot().tag == "testsuites"
    for run, to in ((tmp_path, "pdf"), (tmp_path / "none", "junit")):
        assert isinstance(CliRunner().invoke(app, ["export", str(run), "--to", to]).exception, InputError)
