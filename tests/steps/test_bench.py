"""Benchmarks in a folder: found by weights, asked once, gone on with after a stop."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from vestige.artifacts.bench import BenchFolder, BenchItem, TaskRun, read_bench
from vestige.core.errors import InputError
from vestige.data.bench_rows import Conversation, LocalData
from vestige.evals.harness import Asked as AskedTask
from vestige.evals.harness import HarnessSettings
from vestige.evals.mt_bench import Answered, MtBenchSettings
from vestige.judges.base import Judgement
from vestige.metrics import intervals
from vestige.models.load import ModelSettings
from vestige.steps import bench as step
from vestige.steps.bench import BenchRequest, Entrant, MtBenchRequest, TurnGrader, bench
from vestige.steps.subjects import Asked

GROUPS = {"t": AskedTask("t", ("t",), False), "g": AskedTask("g", ("g_a", "g_b"), True)}
CONVERSATIONS = tuple(Conversation(str(n), "math", (f"q{n}", f"r{n}"), ("x", "y")) for n in range(20))


class Catalogue:
    def asked(self, name):
        return GROUPS[name]

    def task(self, name, rows):
        return rows


@pytest.fixture
def asked(monkeypatch):
    """Which model was asked which task, and which conversations; there is no harness here."""
    log = []

    def run_task(subject, name, task, settings, *, bars):
        log.append((subject.name, name))
        value = float(subject.name == "good")
        items = tuple(BenchItem(n, f"{name} {n}", {"acc": value}, None) for n in range(settings.limit or 4))
        return TaskRun(name, "1.0", 0, items, {"acc": "share"}, {"acc": (0.0, 1.0)})

    def answer(subject, conversations, settings):
        log.append((subject.name, len(conversations)))
        return [Answered(c.id, (f"{subject.name} {c.id}", "b")) for c in conversations]

    monkeypatch.setattr(intervals, "RESAMPLES", 50)
    monkeypatch.setattr(step, "Catalogue", Catalogue)
    monkeypatch.setattr(step, "run_task", run_task)
    monkeypatch.setattr(step, "harness_version", lambda: "0")
    monkeypatch.setattr(step, "answer", answer)
    return log


def entrant(name, weights=None):
    model = SimpleNamespace(dtype="float32", register_forward_hook=lambda *_, **__: SimpleNamespace(remove=bool))
    loaded = SimpleNamespace(name=name, model=model, provenance=dict, here=True)
    return Entrant(name, lambda: Asked(loaded, weights or f"weights of {name}", ModelSettings(model=name)))


@dataclass
class Judge:
    """Rates by the length of the last answer; fails at the calls in `faults`, breaks off at those in `breaks`."""

    faults: tuple[int, ...] = ()
    breaks: tuple[int, ...] = ()
    name: str = "judge"
    seen: list = field(default_factory=list)
    calls: int = 0

    def judge(self, turns):
        self.calls += 1
        if self.calls in self.breaks:
            raise KeyboardInterrupt
        if self.calls in self.faults:
            return [Judgement(None, failure="server error") for _ in turns]
        self.seen += turns
        return [Judgement(float(min(10, len(turn.said[-1])))) for turn in turns]


def held(judge, *, by_likeness=False):
    grader = TurnGrader(judge, {"judge": "j"}, by_likeness)
    return BenchRequest(mt_bench=MtBenchRequest(CONVERSATIONS, MtBenchSettings(), lambda: grader))


def test_a_result_belongs_to_weights_and_settings_and_to_no_name(asked, tmp_path):
    folder, request = BenchFolder(tmp_path), BenchRequest(tasks=("t",))
    first = bench(folder, [entrant("good"), entrant("bad")], request)
    assert [(r.model, r.value.value) for r in first.results] == [("good", 1), ("bad", 0)]
    assert first.results[1].difference.value == -1
    assert asked == [("good", "t"), ("bad", "t")]
    assert bench(folder, [entrant("good"), entrant("bad")], request) == first
    # Other weights under the name of the first are asked anew; the same weights under another name are not.
    assert bench(folder, [entrant("good", "unlearned")], request).results[0].digest == "unlearned"
    assert bench(folder, [entrant("renamed", "weights of bad")], request).results[0].value.value == 0
    assert asked == [("good", "t"), ("bad", "t"), ("good", "t")]
    limited = replace(request, settings=HarnessSettings(limit=2))
    assert bench(folder, [entrant("bad")], limited).results[0].n == 2
    assert len(asked) == 4
    assert read_bench(folder)[0].n == 2


def test_a_group_whose_files_are_there_in_part_says_so(asked, tmp_path):
    (tmp_path / "g_b.jsonl").write_text('{"q": 1}\n')
    request = BenchRequest(tasks=("g",), data=LocalData((tmp_path,)))
    found = bench(BenchFolder(tmp_path / "out"), [entrant("good")], request)
    assert [(r.task, r.parts, r.of_parts, r.part_of) for r in found.results] == [
        ("g", ("g_b",), 2, ""),
        ("g_b", (), 0, "g"),
    ]
    assert found.notes == ("g: 1 of its 2 parts have data, and the rest is left out",)
    with pytest.raises(InputError, match=r"no data of t where --task-data points; call a file t.jsonl"):
        bench(BenchFolder(tmp_path / "out"), [entrant("good")], replace(request, tasks=("t",)))
    # The file's content is part of what a result is found by.
    (tmp_path / "g_b.jsonl").write_text('{"q": 2}\n')
    bench(BenchFolder(tmp_path / "out"), [entrant("good")], request)
    assert asked == [("good", "g_b"), ("good", "g_b")]


def test_a_stopped_mt_bench_goes_on_and_pays_for_nothing_twice(asked, tmp_path):
    folder, judge = BenchFolder(tmp_path), Judge(breaks=(2,))
    with pytest.raises(KeyboardInterrupt):
        bench(folder, [entrant("good")], held(judge))
    assert len(judge.seen) == 16
    found = bench(folder, [entrant("good")], held(judge))
    # 20 conversations of two turns, held in portions of 8 and judged once each.
    assert asked == [("good", 8), ("good", 8), ("good", 4)]
    assert len(judge.seen) == len(set(judge.seen)) == 40
    score = next(r for r in found.results if r.metric == "score")
    # "good 0" to "good 9" have 6 letters and "good 10" to "good 19" 7; every second answer has 1.
    assert (score.value.value, score.n) == (pytest.approx((10 * 6 + 10 * 7 + 20) / 40), 40)
    assert "20 clusters" in score.value.interval
    # Fewer conversations are among those that were held.
    few = held(judge)
    bench(folder, [entrant("good")], replace(few, mt_bench=replace(few.mt_bench, conversations=CONVERSATIONS[:3])))
    assert len(asked) == 3


def test_what_a_server_failed_at_is_counted_and_asked_again(asked, tmp_path):
    folder, judge = BenchFolder(tmp_path), Judge(faults=(1,))
    found = bench(folder, [entrant("good")], held(judge))
    score = next(r for r in found.results if r.metric == "score")
    assert (score.n, score.failures) == (24, {"server error": 16})
    assert found.notes == ("good, mt_bench: without a value: 16 server error, of 40",)
    again = bench(folder, [entrant("good")], held(judge))
    assert next(r for r in again.results if r.metric == "score").n == 40
    assert again.notes == ()
    assert len(judge.seen) == len(set(judge.seen)) == 40


def test_a_judge_by_likeness_compares_with_the_first_and_does_not_rate_it(asked, tmp_path):
    judge = Judge()
    found = bench(BenchFolder(tmp_path), [entrant("good"), entrant("bad")], held(judge, by_likeness=True))
    assert {r.model for r in found.results} == {"bad"}
    assert [turn.own for turn in judge.seen[:3]] == ["good 0", "b", "good 1"]
    assert judge.seen[1].said == ("q0", "bad 0", "r0", "b")
    assert judge.seen[1].references == ("x", "y")
    # Who reads the table must not take it for a score of MT-bench.
    assert found.notes[0].startswith("mt_bench: by likeness to the answers of good, which shows what was lost")


def test_what_cannot_be_asked_is_refused_before_a_model_is_loaded(asked, tmp_path):
    folder = BenchFolder(tmp_path)
    never = Entrant("a", lambda: pytest.fail("a model was loaded"))
    with pytest.raises(InputError, match="nothing is asked for"):
        bench(folder, [never], BenchRequest())
    with pytest.raises(InputError, match="a model is given twice"):
        bench(folder, [never, never], BenchRequest(tasks=("t",)))
