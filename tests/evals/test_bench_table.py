"""The table of benchmarks: means, groups, and differences question by question."""

import json
from dataclasses import replace

import pytest

from vestige.artifacts.bench import (
    BenchFolder,
    BenchItem,
    ResultFolder,
    TaskRun,
    read_bench,
    read_run,
    write_run,
    write_table,
)
from vestige.core.errors import InputError
from vestige.metrics.intervals import wilson
from vestige.steps.bench import Contestant, Wanted, bench_table

ALONE = (Wanted("t", ("t",)),)


def run_of(task, values, *, metric="acc", bounds=(0.0, 1.0), clusters=None, **changes):
    names = clusters or [""] * len(values)
    items = tuple(
        BenchItem(n, f"content {n}", {} if v is None else {metric: v}, None, c)
        for n, (v, c) in enumerate(zip(values, names, strict=True))
    )
    return replace(TaskRun(task, "1.0", 0, items, {metric: "share"}, {metric: bounds}), **changes)


def table(*models, lines=ALONE):
    contestants = [Contestant(name, f"w-{name}", {r.task: r for r in runs}) for name, runs in models]
    return bench_table(contestants, lines, seed=0)


def test_a_number_is_the_mean_and_its_difference_is_over_pairs():
    first, second = table(("a", [run_of("t", [1, 1, 0, 0])]), ("b", [run_of("t", [1, 0, 0, None])]))
    # a: 2 of 4, b: 1 of 3; of the three common questions b lost one: (0 - 1 + 0) / 3.
    assert (first.value.value, first.n, first.difference) == (0.5, 4, None)
    assert (first.value.low, first.value.high) == wilson(2, 4)[:2]
    assert (second.value.value, second.n) == (pytest.approx(1 / 3), 3)
    assert (second.difference.value, second.difference.n) == (pytest.approx(-1 / 3), 3)
    assert -1 <= second.difference.low < -1 / 3 < second.difference.high <= 1
    assert (second.digest, second.version, second.task, second.metric) == ("w-b", "1.0", "t", "acc")


def test_a_group_is_the_mean_over_all_questions_of_its_parts_and_says_how_many_it_has():
    lines = (Wanted("g", ("p", "q"), of_parts=5), Wanted("p", ("p",), part_of="g"))
    whole, part = table(("a", [run_of("p", [1, 1, 1]), run_of("q", [0])]), lines=lines)
    # 3 of 4 questions, and not the mean of 1 and 0.
    assert (whole.value.value, whole.n, whole.parts, whole.of_parts) == (0.75, 4, ("p", "q"), 5)
    assert (part.value.value, part.part_of) == (1.0, "g")


def test_turns_of_one_conversation_are_a_cluster():
    scores, names = [1.0, 1.0, 9.0, 9.0] * 6, [str(n // 2) for n in range(24)]
    (clustered,) = table(("a", [run_of("t", scores, bounds=(1.0, 10.0), clusters=names)]))
    (alone,) = table(("a", [run_of("t", scores, bounds=(1.0, 10.0))]))
    assert clustered.value.high - clustered.value.low > 1.2 * (alone.value.high - alone.value.low)
    assert "12 clusters" in clustered.value.interval


def test_questions_that_changed_in_between_are_not_compared():
    other = run_of("t", [1, 0])
    other = replace(other, items=(other.items[0], replace(other.items[1], content="another")))
    with pytest.raises(InputError, match="question 1 of t was another when a was asked"):
        table(("a", [run_of("t", [1, 0])]), ("b", [other]))


def test_what_nothing_was_measured_of_has_no_line_and_one_unbounded_score_no_interval():
    assert table(("a", [run_of("t", [None, None], failures={"timeout": 2})])) == ()
    (row,) = table(("a", [run_of("t", [3.0], bounds=None)]))
    assert str(row.value) == "3.00 [no interval], n = 1"


def test_a_result_without_an_interval_is_null_in_json_empty_in_csv_and_read_as_it_was(tmp_path):
    folder = BenchFolder(tmp_path)
    results = table(("a", [run_of("t", [3.0], bounds=None)]))
    write_table(folder, results)
    assert json.loads(folder.table.read_text())["results"][0]["value"]["low"] is None
    assert folder.csv.read_text().splitlines()[1].startswith("a,w-a,t,acc,3.0,,,1,")
    assert read_bench(folder) == results


def test_a_result_is_read_as_it_was_written_and_a_changed_one_is_refused(tmp_path):
    place, run = ResultFolder(tmp_path / "r"), run_of("t", [1, None], failures={"timeout": 1}, left_out=("bleu",))
    write_run(place, run)
    assert read_run(place) == run
    place.items.write_text(place.items.read_text().replace('"acc": 1', '"acc": 0'))
    with pytest.raises(InputError, match=r"items.jsonl was changed after it was written"):
        read_run(place)


def test_the_table_is_written_for_programs_and_spreadsheets(tmp_path):
    folder = BenchFolder(tmp_path)
    results = table(("=a", [run_of("t", [1, 0])]), ("b", [run_of("t", [1, 1])]))
    write_table(folder, results)
    assert read_bench(folder) == results
    header, first, second = folder.csv.read_text().splitlines()
    # A model's name is no formula.
    assert first.startswith("'=a,w-=a,t,acc,0.5,")
    assert dict(zip(header.split(","), second.split(","), strict=True))["difference"] == "0.5"
