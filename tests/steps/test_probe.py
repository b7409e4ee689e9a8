"""Probing in a folder: what is there is not done again, and a killed test of candidates goes on to the same bytes."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from tests.probed import ITEMS, NEAR, SOURCES, Silence, make_probed

from vestige.artifacts.layout import ProbeFolder
from vestige.core.errors import InputError
from vestige.data.corpus import NamedSplits
from vestige.data.dataset import compile_dataset
from vestige.judges.base import Grader
from vestige.models import load
from vestige.models.embedder import load_embedder
from vestige.models.load import ModelSettings
from vestige.probes.adjacent import AdjacentRequest, make_adjacent, read_adjacent
from vestige.probes.answering import AnswerSettings, Participants
from vestige.probes.holes import FilterRequest, FilterSettings, candidates_in, filter_holes
from vestige.probes.questions import AdjacentSettings
from vestige.steps.subjects import asked_model


@pytest.fixture(scope="module")
def probed(tmp_path_factory):
    return make_probed(tmp_path_factory.mktemp("probed"))


@pytest.fixture(scope="module")
def request_(probed):
    models = {name: asked_model(ModelSettings(model=str(probed / name))) for name in ("target", "unlearned")}
    embedder = load_embedder(str(probed / "embedder"), device="cpu")
    who = Participants(
        lambda: models["target"],
        lambda: models["unlearned"],
        lambda _: Grader(Silence(), {}),
        lambda: embedder,
        AnswerSettings(max_tokens=3),
        0,
    )
    return FilterRequest(who, ITEMS[:3], FilterSettings(alike=1.0))


def graded(request, judge, writer=None):
    """The same request with another judge."""
    return replace(request, who=replace(request.who, take_grader=lambda _: Grader(judge, {}, writer)))


@pytest.fixture
def generated(monkeypatch):
    """How many prompts were given to a model."""
    count, generate = [], load.generate

    def counted(model, prompts, **more):
        count.extend(prompts)
        return generate(model, prompts, **more)

    monkeypatch.setattr(load, "generate", counted)
    return count


def test_adjacent_questions_are_made_once(tmp_path):
    folder = ProbeFolder(tmp_path)
    made = make_adjacent(folder, NEAR)
    assert [k.of for k in made] == ["forget"] * 6 + ["retain"] * 3
    assert {k.question.question for k in made[6:]} == {i.question for i in ITEMS[3:]}
    before = folder.adjacent.stat().st_mtime_ns
    assert make_adjacent(folder, NEAR) == made == read_adjacent(folder)
    assert folder.adjacent.stat().st_mtime_ns == before
    found = json.loads(folder.asked("adjacent").read_text())["found"]
    assert (found["forget"]["n"], found["retain"]["n"]) == (6, 3)
    with pytest.raises(InputError, match="differs in seed"):
        make_adjacent(folder, replace(NEAR, seed=1))
    with pytest.raises(InputError, match="no graph"):
        make_adjacent(ProbeFolder(tmp_path / "graph"), replace(NEAR, by="graph"))


def test_a_killed_test_goes_on_to_the_same_bytes_and_asks_no_model_twice(tmp_path, request_, generated):
    whole, broken = ProbeFolder(tmp_path / "whole"), ProbeFolder(tmp_path / "broken")
    for folder in (whole, broken):
        make_adjacent(folder, NEAR)
    table = filter_holes(whole, request_)
    # 6 prompts: the target's first, fresh and placebo answers, and the unlearned model's.
    assert (len(generated), table.target_calls, table.unlearned_calls) == (24, 18, 6)
    assert (table.n_holes, len(whole.holes.read_text().splitlines())) == (6, 6)
    generated.clear()
    with pytest.raises(KeyboardInterrupt):
        filter_holes(broken, graded(request_, Silence(breaks=4)))
    assert not broken.summary.exists()
    assert len(generated) == 24
    filter_holes(broken, request_)
    assert len(generated) == 24
    for name in ("tested.jsonl", "holes.jsonl", "summary.json"):
        assert (broken.path / name).read_bytes() == (whole.path / name).read_bytes()


def test_new_candidates_and_settings_are_tested_from_what_is_kept(tmp_path, request_, generated):
    folder = ProbeFolder(tmp_path)
    make_adjacent(folder, NEAR)
    judge = Silence()
    first = filter_holes(folder, graded(request_, judge))
    n = judge.calls
    assert filter_holes(folder, graded(request_, judge)) == first
    assert judge.calls == n
    generated.clear()
    strict = request_.settings.model_copy(update={"unlearned_at_most": 0.5})
    assert filter_holes(folder, replace(request_, settings=strict)).n_holes == 0
    assert generated == []
    place = folder.search("latent")
    place.path.mkdir(parents=True)
    attempt = {"id": "a", "iteration": 1, "source": "latent", "seed": "s", "prompt": "Why do owls hoot?", "answer": ""}
    judged = {"valid": True, "gibberish": True, "c": 0, "j": 10.0, "failure": "", "novelty": {}, "reward": 0.0}
    place.attempts.write_text(json.dumps(attempt | judged) + "\n")
    assert [c.source for c in candidates_in(folder)] == ["adjacent"] * 6 + ["latent"]
    assert filter_holes(folder, request_).n_holes == 7
    # Of the new prompt alone: three answers of the target, one of the unlearned model.
    assert len(generated) == 4
    who = request_.who
    swapped = replace(who, take_target=who.take_unlearned, take_unlearned=who.take_target)
    with pytest.raises(InputError, match="differs in target, unlearned"):
        filter_holes(folder, replace(request_, who=swapped))


def test_a_folder_without_candidates_is_refused(tmp_path, request_):
    with pytest.raises(InputError, match="Run `vestige probe`"):
        filter_holes(ProbeFolder(tmp_path), request_)


def test_questions_from_the_graph_bring_their_true_answers_to_the_judge(tmp_path):
    dataset = compile_dataset("chain:6", seed=0)
    edge = dataset.items[0].edge
    forget = tuple(i for i in dataset.items if i.edge == edge)
    retain = tuple(i for i in dataset.items if i.edge != edge)
    splits = NamedSplits(f"edge:{edge}", {"forget": forget, "retain": retain}, {})
    folder = ProbeFolder(tmp_path)
    sources = replace(SOURCES, corpus=replace(SOURCES.corpus, dataset=dataset), splits=splits)
    make_adjacent(folder, AdjacentRequest(sources, "graph", AdjacentSettings(k=2), 0))
    candidates = candidates_in(folder)
    answers = {i.question: i.answer for i in retain}
    assert candidates
    assert {c.prompt: c.truth for c in candidates} == {c.prompt: answers[c.prompt] for c in candidates}
    assert {c.origin for c in candidates} <= {i.id for i in forget}
    assert max(Counter(c.origin for c in candidates).values()) == 2
