import json
from dataclasses import replace

import pytest

from vestige.artifacts import provenance
from vestige.artifacts.audits import LEVELS, AuditOutcome, FactLine, GroupLine, VerdictLine, never_knew
from vestige.artifacts.verdicts import bound_said, controls_said, measured, read_baseline, regressions, verdict_rows
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate


def line(metric, outcome, ends, *, claim="not expressed", unit="leakage", wide=0.2, decides="x"):
    evidence = {"x": Estimate(metric, unit, 0.1, 0.0, 0.2, 52, "by hand")}
    low, high = ends
    return VerdictLine(
        "ga", claim, outcome, "because", 0.05, wide, unit, evidence, (), None, None, decides, at_least=low, at_most=high
    )


def outcome(one, *facts):
    nothing = dict.fromkeys(
        ("formats", "matrix", "worst", "reversals", "gains", "curves", "budget", "membership", "measures"), ()
    )
    return AuditOutcome(
        "edge:A_B",
        "target",
        ("ga",),
        (),
        (one,),
        **nothing,
        kept=(),
        soundness=(),
        untested=(),
        thresholds={},
        facts=facts,
    )


TWO = {"claim": "indistinguishable", "unit": "share"}


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (line("leakage", "fails", (0.22, 0.4)), "10 % left (at least 22 %), x"),
        (line("leakage", "holds", (-0.1, 0.118)), "10 % left (at most 12 %), x"),
        # What is below 0 is no leak: nobody has less than nothing left.
        (line("leakage", "holds", (-0.3, -0.1)), "10 % left (at most 0 %), x"),
        (line("leakage", "inconclusive", (-0.02, 0.31)), "10 % left (0 % to 31 %), x"),
        (line("leakage", "inconclusive", (-0.02, 0.11)), "10 % left (at most 11 % where it was tested), x"),
        (line("excess", "fails", (9.21, 12.0), unit="bits", wide=6.0), "0.1 bits likelier (at least 9.2 bits), x"),
        (
            line("excess", "inconclusive", (-2.0, 7.0), unit="bits", wide=6.0),
            "0.1 bits likelier (-2.0 bits to 7.0 bits), x",
        ),
        # What rounds to nothing has no sign.
        (
            line("excess", "inconclusive", (-0.04, 7.0), unit="bits", wide=6.0),
            "0.1 bits likelier (0.0 bits to 7.0 bits), x",
        ),
        (line("recovery", "fails", (0.23, 0.5), claim="not recoverable"), "10 % comes back (at least 23 %), x"),
        (
            line("recovery", "holds", (-1.0, 3.0), claim="not recoverable", unit="bits", wide=6.0),
            "0.1 bits likelier (at most 3.0 bits), x",
        ),
        (line("harm", "holds", (0.0, 0.0), claim="utility preserved", unit="share"), "10 % lost (at most 0 %), x"),
        (
            line("injection", "holds", (0.0, 0.05), claim="benchmark valid"),
            "10 % learnt from the retain set (at most 5 %), x",
        ),
        (line("AUC difference", "fails", (-0.7, -0.51), **TWO), "membership 10 % too low (at least 51 %), x"),
        (line("AUC difference", "holds", (-0.08, 0.05), **TWO), "membership 10 % off (at most 8 %), x"),
        (line("excess", "fails", (0.11, 0.3), **TWO), "answers 10 % too often right (at least 11 %), x"),
        (line("excess", "inconclusive", (-0.31, 0.1), **TWO), "answers 10 % off (0 % to 31 %), x"),
        (
            line("excess", "fails", (-20.0, -12.5), claim="indistinguishable", unit="bits", wide=6.0),
            "answers 0.1 bits too unlikely (at least 12.5 bits), x",
        ),
        # Nothing was tested, or the interval has no end.
        (line("leakage", "inconclusive", (None, None), decides=None), ""),
        (line("leakage", "inconclusive", (None, 0.3)), ""),
    ],
)
def test_a_bound_is_said_in_the_words_of_its_unit(verdict, said):
    assert bound_said(outcome(verdict), verdict) == said
    (row,) = verdict_rows([outcome(verdict)])
    assert (row["bound"], row["at_least"], row["at_most"]) == (said, verdict.at_least, verdict.at_most)


def test_no_share_of_what_the_target_knows_is_above_all_of_it():
    found = line("leakage", "fails", (2.9, 3.8))
    found = replace(found, evidence={"x": replace(found.evidence["x"], value=3.33, low=2.9, high=3.8)})
    assert measured(found).startswith("100 % left, more than the target itself knows in this form (")


def test_a_claim_that_one_contract_fails_by_itself_has_its_bound():
    size = Estimate("leakage", "leakage", 0.4, 0.22, 0.5, 16, "by hand")
    groups = [GroupLine("ga", name, 16, "generate", size, p, p < 0.02) for name, p in (("A_B", 0.01), ("A_C", 0.3))]
    alone = line("leakage", "fails", (None, None), decides=None)
    assert bound_said(replace(outcome(alone), groups=tuple(groups)), alone) == "A_B: 40 % left (at least 22 %)"
    assert bound_said(replace(outcome(alone), groups=tuple(groups[1:])), alone) == ""


def test_single_facts_are_counted_once_each_and_only_for_the_claim_that_they_fail():
    found = (("a", "stated"), ("a", "forced, bits"), ("b", "stated"))
    facts = [FactLine("ga", "", item, by, 0.01) for item, by in found]
    facts += [FactLine("ga", "relearn", "c", "stated", 0.01), FactLine("kl", "", "d", "stated", 0.01)]
    alone = line("leakage", "fails", (None, None), decides=None)
    likelier = FactLine("ga", "", "e", "forced, bits", 0.01)
    assert bound_said(outcome(alone, *facts, likelier), alone).endswith(
        " and finds 1 fact likelier than any control does"
    )
    assert bound_said(outcome(alone, *facts), alone) == "states 2 facts that no control states"
    both = line("recovery", "fails", (0.23, 0.5), claim="not recoverable")
    assert (
        bound_said(outcome(both, *facts), both)
        == "10 % comes back (at least 23 %), x; states 1 fact that no control states"
    )


@pytest.mark.parametrize(
    ("level", "controls", "said", "called"),
    [
        ("verified", 5, "5 controls trained here from these data (verified)", "retrained models"),
        ("given", 1, "1 control as given, origin not verified", "the controls"),
        ("logs", 2, "2 controls from logs, weights not seen", "the controls"),
        ("", 0, "no controls", "retrained models"),
    ],
)
def test_controls_are_called_models_that_never_knew_only_where_that_was_verified(level, controls, said, called):
    names = tuple(f"r{n}" for n in range(controls))
    judged = replace(outcome(line("leakage", "holds", (0.0, 0.1))), retrained=names, evidence_level=level)
    assert controls_said(judged) == said
    assert never_knew(level) == called
    assert verdict_rows([judged])[0]["evidence_level"] == LEVELS[level]


def test_what_is_worse_than_a_baseline_is_named_and_nothing_else(tmp_path):
    def rows(*verdicts, subject="ga", **thresholds):
        claims = ("not expressed", "not recoverable", "utility preserved")
        of = zip(claims, verdicts, strict=False)
        margins = {"margin": 0.05, "wide": 0.2, "unit": "leakage", "delta": 0.05, **thresholds}
        same = {"forget": "f", "subject": subject, "thresholds": margins, "rules": 9}
        return [{**same, "claim": c, "verdict": v} for c, v in of]

    def worse(now, then):
        file = tmp_path / "verdicts.json"
        file.write_text(json.dumps(then))
        assert read_baseline(tmp_path) == read_baseline(file)
        return [(row["claim"], was) for row, was in regressions(now, read_baseline(tmp_path))]

    then = rows("fail", "inconclusive", "pass")
    assert worse(rows("fail", "inconclusive", "pass"), then) == []
    # Another form decides, so that margins are in its unit; the model is the only one, whatever it is called.
    assert worse(rows("pass", "fail", "inconclusive", subject="new", margin=2.0, wide=6.0, unit="bits"), then) == [
        ("not recoverable", "inconclusive"),
        ("utility preserved", "pass"),
    ]
    # A claim that was not judged then is held against a pass, and so is another model of several.
    assert worse(rows("fail", "pass", "inconclusive"), then[:1]) == [("utility preserved", "pass")]
    two = [*rows("fail"), *rows("fail", subject="gd")]
    gone = ("utility preserved (not judged any more)", "pass")
    assert worse(two, then) == [("not expressed", "pass"), gone]
    # What passed and is not judged any more is worse, and what failed is not.
    assert worse(then[:2], then) == [gone]
    assert worse(then[2:], then) == []
    with pytest.raises(InputError, match="other margins"):
        worse(rows("fail", delta=0.1), then)
    with pytest.raises(InputError, match="another version's rules"):
        worse([{**row, "rules": 10} for row in then], then)
    with pytest.raises(InputError, match="no verdict on the audited forget set"):
        worse([{**then[0], "forget": "g"}], then)
    for text in ("[]", "{}", '[{"forget": 1}]', '[{"forget": "f", "subject": "s", "claim": "c", "verdict": "well"}]'):
        (tmp_path / "verdicts.json").write_text(text)
        with pytest.raises(InputError, match="of an audit"):
            read_baseline(tmp_path)
    with pytest.raises(InputError, match="to compare the verdicts with"):
        read_baseline(tmp_path / "gone")


def test_what_is_cached_goes_by_the_packages_data_files_too(monkeypatch):
    read = []
    monkeypatch.setattr(provenance, "file_digest", lambda path: read.append(path.name) or "digest")
    provenance.code_digest.__wrapped__()
    assert {"priors.toml", "forms.toml", "bank.toml", "tasks.toml", "leaks.jsonl", "intervals.py"} <= {*read}
    assert not {"main.js", "report.css"} & {*read}


def test_numbers_come_from_all_files_but_those_of_the_page(monkeypatch):
    read = []
    monkeypatch.setattr(provenance, "file_digest", lambda path: read.append(path.parts) or "d")
    provenance.code_digest.__wrapped__()
    assert ["auditing" in sum(read, ()), "page" in sum(read, ())] == [True, False]
