"""What a terminal of a given width shows: tables of estimates, and lists of names with what is said of them."""

import dataclasses
import re
from types import SimpleNamespace

import pytest
from tests.small import SPEC

from vestige.artifacts.audits import FactLine, GroupLine
from vestige.artifacts.records import Result, Summary
from vestige.cli.setup import in_columns
from vestige.core.estimates import Estimate
from vestige.methods.listing import listed
from vestige.report.text import fact_in_words, groups_in_words, print_results

SPLITS = ("forget", "retain", "independent", "independent_employment", "factual")
METRICS = ("exact_match", "share_truncated", "rouge1_recall")


def summary(*, few: tuple[str, str] = ("", "")) -> Summary:
    """Each split has 240 items, but for `few`, of which only 9 have that split's metric."""
    results = tuple(
        Result(
            split, "all", "generate", "", Estimate(m, "share", 0.42, 0.36, 0.48, 9 if (split, m) == few else 240, "w")
        )
        for split in SPLITS
        for m in METRICS
    )
    return Summary(
        "qa", 1, dataclasses.replace(SPEC, subject="target", name="target", method=""), "edge:A_B", {}, results
    )


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_there_is_one_table_in_which_no_metric_or_number_is_cut(monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", str(width))
    print_results(summary())
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= width
    words = shown.replace("│", " ").replace("┃", " ").split()
    assert set(METRICS) <= set(words)
    assert width < 80 or set(SPLITS) <= set(words)
    assert shown.count("0.42 [0.36, 0.48]") == len(SPLITS) * len(METRICS)
    assert shown.count("forget set edge:A_B") == 1
    # Once a split, at its head.
    assert shown.count("n = 240") == len(SPLITS)


def test_where_splits_stand_below_one_another_only_those_metrics_are_shown_that_they_have(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    whole = summary()
    apart = Result("forget_vs_holdout", "all", "membership_loss", "", Estimate("auc", "share", 0.7, 0.6, 0.8, 240, "w"))
    print_results(dataclasses.replace(whole, results=(*whole.results, apart)))
    *splits, last = re.split("├.*┤", capsys.readouterr().out)
    assert [("auc" in t, "rouge1_recall" in t) for t in splits] == [(False, True)] * len(SPLITS)
    assert ("auc" in last, "rouge1_recall" in last) == (True, False)


def test_estimates_of_one_split_with_several_n_say_their_own(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    print_results(summary(few=("retain", "rouge1_recall")))
    shown = capsys.readouterr().out
    assert shown.count("0.42 [0.36, 0.48], n = 9 ") == 1
    assert shown.count("0.42 [0.36, 0.48], n = 240") == len(METRICS) - 1


def test_a_list_keeps_within_the_width_with_later_lines_under_the_first():
    rows = [row._asdict() for row in listed()]
    lines = in_columns(rows, 100).splitlines()
    assert max(map(len, lines)) <= 100
    names = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert names == [row["name"] for row in rows]
    indent = 2 + max(map(len, names))
    assert all(line[: indent - 1].strip() == "" for line in lines if line.startswith(" "))
    # Nothing is lost in wrapping.
    told = " ".join(" ".join(lines).split())
    assert all(row["about"] in told and row["paper"] in told for row in rows)


def test_what_is_favoured_among_options_is_not_called_likely():
    fact = FactLine("ga", "", "i", "option_text_mean", 0.001, "How many?", "4661.", "4644.", -24.4, (-41.5, -35.3))
    assert fact_in_words(fact) == (
        "ga, choice of an option (per token): How many?: favours this answer among the options: '4661.' (-24.4 bits; "
        "controls: -41.5 to -35.3), and replies '4644.'"
    )
    assert "finds this answer likelier than any control does: '4661.'" in fact_in_words(
        dataclasses.replace(fact, by="forced, bits")
    )


def test_every_person_has_a_line_those_first_that_fail():
    def line(group, value, unit, exceeds):
        size = Estimate("leakage", unit, value, value - 0.2, value + 0.1, 4, "t")
        return GroupLine("ga", group, 4, "generate", size, 0.001 if exceeds else 0.9, exceeds)

    groups = (
        line("Ann", 0.25, "leakage", False),
        line("Zo\u00eb", 0.95, "leakage", True),
        line("Bo", 3.0, "bits", False),
    )
    assert groups_in_words(SimpleNamespace(groups=groups)) == [
        "Zo\u00eb (4 facts), ga: 95 % left (75 % to 100 %), written answer, above the margin",
        "Ann (4 facts), ga: 25 % left (5 % to 35 %), written answer",
        "Bo (4 facts), ga: 3.0 bits likelier (2.8 bits to 3.1 bits), written answer",
    ]
    many = groups_in_words(SimpleNamespace(groups=groups * 4))
    assert (len(many), many[-1]) == (11, "and 2 more, in the report")
