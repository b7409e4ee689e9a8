"""Variance in a probe's folder: who is asked how often, what a kill costs, and what is refused."""

from collections import Counter
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from vestige.artifacts import holes
from vestige.artifacts.holes import read_variance
from vestige.artifacts.layout import ProbeFolder
from vestige.core.errors import InputError
from vestige.core.files import read_jsonl, write_jsonl
from vestige.judges.base import Judgement
from vestige.judges.tasks import CRITERIA
from vestige.metrics import intervals
from vestige.probes.answering import AnswerSettings, Grader, KeptAnswers, Participants
from vestige.probes.variance import VarianceRequest, count_variance, probed_answers, variance

PROMPTS = {"Why do owls hoot?": "adjacent", "Who made the kettle?": "latent"}
NOTHING = holes.HoleTable((), {}, {}, {}, (), {}, 0, 0, 0, 0)


@dataclass
class Speaker:
    """A model that says its word and the seed it was asked at; nothing to what it is `dumb` to."""

    word: str
    dumb: str = ""
    asked: list[str] = field(default_factory=list)
    # The device stands in the provenance.
    loaded: object = field(default_factory=lambda: SimpleNamespace(provenance=lambda: {"device": "cpu"}))

    @property
    def id(self):
        return f"weights of {self.word}"

    @property
    def name(self):
        return self.word

    n_calls = 0

    def answer(self, prompts, *, seed):
        self.asked += prompts
        return [None if p == self.dumb else f"{self.word} {seed}" for p in prompts]


@dataclass
class Words:
    """Grades an answer by its first word; breaks off at its `breaks`-th call; knows the truths it was shown."""

    grades: dict[str, float]
    breaks: int = 0
    requests: list = field(default_factory=list)
    calls: int = 0
    name: str = "words"

    def judge(self, requests):
        self.calls += 1
        if self.calls == self.breaks:
            raise KeyboardInterrupt
        self.requests += requests
        return [self._one(r) for r in requests]

    def _one(self, request):
        grade = self.grades.get(request.answer.split()[0])
        if grade is None:
            return Judgement(None, failure="unreadable")
        return Judgement(grade, dict.fromkeys(CRITERIA, grade) if request.task == "criteria" else {})


def kept(who, settings, folder):
    return KeptAnswers(who, folder.answers, {"weights": who.id, **settings.identity()})


@pytest.fixture(autouse=True)
def speakers(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 200)
    monkeypatch.setattr("vestige.probes.variance.answerer", kept)


@pytest.fixture
def folder(tmp_path):
    return probed_in(tmp_path / "probe")


def probed_in(path):
    """The folder of a finished probe that tested two prompts, one of them with a known truth, and dropped a third."""
    folder = ProbeFolder(path)
    question = {"question": "Why do owls hoot?", "keyword": "owls", "source_id": "o", "answer": "to be heard"}
    write_jsonl(folder.adjacent, [{"of": "forget", "question": question}])
    tested = [holes.Tested(f"id{n}", p, source, "o", "") for n, (p, source) in enumerate(PROMPTS.items())]
    tested.append(holes.Tested("id2", "Mu?", "latent", "o", "not valid"))
    identity = {"target": "weights of good", "unlearned": "weights of bad", "answers": {"temperature": 0.5}}
    holes.write_tested(folder, tested, [], NOTHING, identity)
    return folder


def asking(judges, *, dumb="", generations=2, names=("bad", "worse"), criteria=False):
    models, target = {name: Speaker(name, dumb=dumb) for name in names}, Speaker("good")
    nobody = lambda *_: None  # noqa: E731
    return VarianceRequest(
        Participants(lambda: target, nobody, nobody, nobody, AnswerSettings(temperature=0.5), 0),
        unlearned={name: (lambda model=model: model) for name, model in models.items()},
        judges={
            name: (lambda judge=judge, name=name: Grader(judge, {"judge": name})) for name, judge in judges.items()
        },
        generations=generations,
        criteria=criteria,
    )


def test_every_model_answers_each_prompt_in_each_generation_and_every_judge_grades_it_once(folder):
    first, second = Words({"good": 9, "bad": 3, "worse": 1}), Words({"good": 8, "bad": 4, "worse": 2})
    request = asking({"a": first, "b": second})
    request.judges["b"] = lambda: Grader(second, {"judge": "b"}, told=False)
    table = variance(folder, request)
    # 2 prompts of 3 models in 2 generations.
    assert (len(first.requests), len(second.requests), len(request.who.target.asked)) == (12, 12, 4)
    assert {r.truth for r in first.requests if "owls" in r.question} == {"to be heard"}
    assert {r.truth for r in first.requests if "kettle" in r.question} == {r.truth for r in second.requests} == {""}
    kept = list(read_jsonl(folder.variance.answers))
    assert Counter((a["model"], a["generation"]) for a in kept) == dict.fromkeys(
        [(m, g) for m in ("target", "bad", "worse") for g in (0, 1)], 2
    )
    # Each model has seeds of its own, one a generation, so that no two answers are the same draw.
    assert len({a["answer"].split()[1] for a in kept}) == 6
    assert [(r.source, r.judge) for r in table.rows] == [(s, j) for s in ("adjacent", "latent") for j in "ab"]
    assert (table.rows[0].before.mean, table.rows[0].after.mean, table.rows[1].after.mean) == (9, 2, 3)
    assert (table.models, table.probed, table.generations) == (("bad", "worse"), "bad", 2)
    assert read_variance(folder.variance)[0] == table
    assert count_variance(folder, request) == (4, 8, 24)


def test_a_killed_measurement_asks_and_pays_for_nothing_twice_and_ends_at_the_same_bytes(folder, tmp_path):
    grades = {"good": 9.0, "bad": 3.0, "worse": 1.0}
    whole = probed_in(tmp_path / "whole")
    table = variance(whole, asking({"a": Words(grades), "b": Words(grades)}))
    with pytest.raises(KeyboardInterrupt):
        variance(folder, asking({"a": Words(grades), "b": Words(grades, breaks=1)}))
    assert not folder.variance.summary.exists()
    first, second = Words(grades), Words(grades)
    again = asking({"a": first, "b": second})
    assert variance(folder, again) == table
    assert (first.requests, len(second.requests), again.who.target.asked) == ([], 12, [])
    for name in ("answers.jsonl", "summary.json"):
        assert (folder.variance.path / name).read_bytes() == (whole.variance.path / name).read_bytes()
    # With one generation more, what is new alone is asked and judged.
    more = asking({"a": first}, generations=3)
    assert variance(folder, more).rows[0].after.n_runs == 6
    assert (len(more.who.target.asked), len(first.requests)) == (2, 6)


def test_what_was_not_answered_or_not_judged_is_counted_and_never_a_grade(folder):
    judge = Words({"good": 9, "bad": 3})
    table = variance(folder, asking({"a": judge}, dumb="Why do owls hoot?"))
    assert table.rows == ()
    # To owls neither unlearned model has an answer; to the kettle one has, which the judge cannot read.
    assert table.unjudged == {"adjacent": {"a": {"no answer": 4}}, "latent": {"a": {"unreadable": 2}}}


def test_criteria_are_asked_for_beside_quality(folder):
    judge = Words({"good": 5, "bad": 2, "worse": 1})
    row, _ = variance(folder, asking({"a": judge}, criteria=True)).rows
    assert Counter(r.task for r in judge.requests) == {"quality": 12, "criteria": 12}
    assert {(c.n_before, c.n_after, c.before, c.after) for c in row.criteria} == {(2, 4, 5, 1.5)}


def test_another_target_equal_models_and_an_unfinished_probe_are_refused(folder, tmp_path):
    request = asking({"a": Words({})})
    with pytest.raises(InputError, match="made with another target"):
        variance(folder, replace(request, who=replace(request.who, take_target=lambda: Speaker("other"))))
    with pytest.raises(InputError, match="twin is the same model as bad"):
        variance(folder, replace(request, unlearned={"bad": lambda: Speaker("bad"), "twin": lambda: Speaker("bad")}))
    with pytest.raises(InputError, match="no finished probe"):
        variance(ProbeFolder(tmp_path / "empty"), request)
    with pytest.raises(InputError, match="needs an unlearned model"):
        variance(folder, replace(request, unlearned={}))
    limited = SimpleNamespace(name="poor", judge=lambda requests: [Judgement(None, failure="limit") for _ in requests])
    with pytest.raises(InputError, match="limits of the judge poor are used up"):
        variance(folder, replace(request, judges={"a": lambda: Grader(limited, {})}))
    assert probed_answers(folder) == AnswerSettings(temperature=0.5)
