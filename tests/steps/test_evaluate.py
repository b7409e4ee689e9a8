"""Evaluating planted subjects: what is kept, what is asked again, and what is refused."""

import dataclasses
import json
from unittest import mock

import pytest
from tests.planted_tables import knows, knows_share, never_knew
from tests.small import SPEC, Stopped, evidence, portions_of_four, subject_of

from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.records import read_records, read_summary
from vestige.core.errors import InputError
from vestige.core.files import write_json
from vestige.core.items import Item
from vestige.data.loaders import Figure, Pack, Published
from vestige.evals.base import View
from vestige.evals.qa import QASettings
from vestige.models.tiny import tiny_tokenizer
from vestige.steps import evaluate as step
from vestige.steps.evaluate import EvaluateRequest, Subject, check_published, evaluate, finished_subject

ITEMS = tuple(
    Item(f"How many {'and how very many ' * (n % 3)}crates does contract {n} name?", f"{20 + n}.", edge=f"e{n % 3}")
    for n in range(12)
)
TOKENIZER = tiny_tokenizer(ITEMS)
FORGET = tuple(i for i in ITEMS if i.edge == "e0")
VIEW = View("edge:e0", {"forget": [i.id for i in FORGET], "retain": [i.id for i in ITEMS if i.edge != "e0"]}, {})
REQUEST = EvaluateRequest(ITEMS, (VIEW,), QASettings(max_new_tokens=8), seed=7)


@pytest.fixture(autouse=True)
def small_portions():
    with portions_of_four():
        yield


@pytest.fixture
def asked(monkeypatch) -> list[list[str]]:
    """The ids of the items that the model is asked, a list for each portion."""
    portions = []

    def collect(self, subject, items):
        portions.append([i.id for i in items])
        return real(self, subject, items)

    real = QASettings.collect
    monkeypatch.setattr(QASettings, "collect", collect)
    return portions


def not_loaded(subject: Subject) -> Subject:
    """The same subject, whose model must not be asked for."""

    def refuse():
        raise AssertionError("the model was loaded")

    return dataclasses.replace(subject, load=refuse)


@pytest.fixture
def subject(tmp_path) -> Subject:
    return subject_of(knows_share(ITEMS, TOKENIZER, share=0.5, seed=3), tmp_path / "subject")


def test_records_stand_in_the_order_of_the_items_and_the_summary_is_theirs(subject):
    place = evaluate(subject, REQUEST)
    records = read_records(place)
    assert [r["item"] for r in records] == [i.id for i in ITEMS]
    assert records == [REQUEST.settings.collect(subject.load(), [i])[0] for i in ITEMS]
    summary = read_summary(place.summary("edge:e0"))
    scores = [QASettings.score(r) for r in records]
    assert summary.results == QASettings.summarize(records, scores, VIEW, seed=7)
    assert (summary.subject, summary.forget) == (SPEC, "edge:e0")
    lines = [json.loads(line) for line in place.scores.read_text().splitlines()]
    assert lines == [{"item": r["item"], **s} for r, s in zip(records, scores, strict=True)]
    assert not place.unfinished.exists()


def test_a_published_figure_is_held_against_all_items_and_not_against_those_of_an_edge(subject, monkeypatch):
    own_edges = tuple(dataclasses.replace(item, edge=str(n)) for n, item in enumerate(ITEMS))
    monkeypatch.setattr(Pack, "items", lambda self, names: own_edges)
    settings = REQUEST.settings.model_dump()
    half = Figure(split="f", eval="qa", settings=settings, metric="generate/exact_match", value=0.5)
    row = Published(model="m", source="a table", tolerance=0.01, figures=(half,))
    check_published(subject, Pack(about="", data=("f",), splits={}), row, seed=7)


@pytest.fixture
def whole(subject, tmp_path, asked):
    """What an evaluation leaves that nothing stopped."""
    found = evidence(evaluate(subject_of(subject.load(), tmp_path / "unbroken"), REQUEST))
    asked.clear()
    return found


def stopped(subject, after):
    def stop(done, of):
        if done == after:
            raise Stopped

    with pytest.raises(Stopped):
        evaluate(subject, REQUEST, stop)


@pytest.mark.parametrize("after", [4, 8, 12])
def test_what_was_interrupted_ends_as_if_it_had_not_been(subject, whole, asked, after):
    stopped(subject, after)
    n_before = len(asked)
    place = evaluate(subject, REQUEST)
    assert n_before == after // 4
    # Every item once, over both runs.
    assert sorted(i for portion in asked for i in portion) == sorted(i.id for i in ITEMS)
    assert evidence(place) == whole


@pytest.mark.parametrize("cut", [1, 200])
def test_a_line_that_was_cut_short_costs_its_portion_and_no_more(subject, whole, tmp_path, asked, cut):
    stopped(subject, 8)
    (unfinished,) = tmp_path.glob("subject/evals/*/unfinished.jsonl")
    unfinished.write_bytes(unfinished.read_bytes()[:-cut])
    second = asked[-1]
    asked.clear()
    place = evaluate(subject, REQUEST)
    # The second portion is asked again whole, in the batch that it always has; the first is kept.
    assert asked[0] == second
    assert [len(portion) for portion in asked] == [4, 4]
    assert evidence(place) == whole


def test_a_crash_between_records_and_their_mark_asks_nothing_again(subject, whole, tmp_path, asked):
    with mock.patch.object(step, "write_provenance", side_effect=Stopped), pytest.raises(Stopped):
        evaluate(subject, REQUEST)
    (records,) = tmp_path.glob("subject/evals/*/records.jsonl")
    records.write_text("of another run\n")
    place = evaluate(subject, REQUEST)
    assert len(asked) == 3
    assert evidence(place) == whole
    assert not place.unfinished.exists()


def test_progress_is_told_after_each_portion(subject):
    told = []
    evaluate(subject, REQUEST, lambda done, of: told.append((done, of)))
    assert told == [(4, 12), (8, 12), (12, 12)]


def test_a_finished_evaluation_is_summed_up_again_without_the_model(subject):
    place = evaluate(subject, REQUEST)
    before = evidence(place)
    place.scores.unlink()
    place.summary("edge:e0").unlink()
    assert evaluate(not_loaded(subject), REQUEST) == place
    assert evidence(place) == before


def test_what_is_as_it_was_is_not_summed_up_again_and_any_other_byte_or_code_is(subject, monkeypatch):
    place, calls = evaluate(subject, REQUEST), []
    monkeypatch.setattr(
        QASettings,
        "summarize",
        lambda *args, seed, inner=QASettings.summarize: calls.append(1) or inner(*args, seed=seed),
    )
    before = evidence(place)
    evaluate(not_loaded(subject), REQUEST)
    assert calls == []
    summary = place.summary("edge:e0")
    summary.write_text(summary.read_text().replace('"version": ', '"version":  '))
    evaluate(not_loaded(subject), REQUEST)
    evaluate(not_loaded(subject), dataclasses.replace(REQUEST, seed=REQUEST.seed + 1))
    monkeypatch.setattr(step, "code_digest", lambda: "other code")
    evaluate(not_loaded(subject), REQUEST)
    assert len(calls) == 3
    assert {name: text for name, text in evidence(place).items() if name != "collected.json"} == {
        name: text for name, text in before.items() if name != "collected.json"
    }


def test_another_forget_set_is_summed_up_from_the_same_records(subject):
    place = evaluate(subject, REQUEST)
    records = place.records.read_bytes()
    other = View("edge:e1", {"forget": [i.id for i in ITEMS if i.edge == "e1"]}, {})
    again = evaluate(not_loaded(subject), dataclasses.replace(REQUEST, views=(VIEW, other)))
    assert again == place
    assert place.records.read_bytes() == records
    assert [read_summary(p).forget for p in place.summaries()] == ["edge:e0", "edge:e1"]


def test_another_model_in_the_same_folder_has_evidence_of_its_own(subject, tmp_path):
    first = evaluate(subject, REQUEST)
    before = evidence(first)
    other = subject_of(never_knew(ITEMS, TOKENIZER, seed=3), tmp_path / "subject")
    second = evaluate(other, REQUEST)
    assert second.path != first.path
    assert evidence(first) == before
    exact = [
        next(
            r.estimate.value
            for r in read_summary(p.summary("edge:e0")).results
            if (r.split, r.estimate.metric) == ("retain", "exact_match")
        )
        for p in (first, second)
    ]
    assert exact[0] > 0.0 == exact[1]


@pytest.mark.parametrize(
    "change",
    [
        {"items": ITEMS[:-1], "views": ()},
        {"items": ITEMS[::-1]},
        {"settings": QASettings(max_new_tokens=9)},
        {"items": tuple(dataclasses.replace(i, group="other") for i in ITEMS)},
        {"items": tuple(dataclasses.replace(i, attribute="other") for i in ITEMS)},
    ],
    ids=["items", "order", "bound", "group", "attribute"],
)
def test_what_can_change_a_record_is_another_evaluation(subject, change):
    assert evaluate(subject, dataclasses.replace(REQUEST, **change)).path != evaluate(subject, REQUEST).path


@pytest.mark.parametrize(("part", "named"), [("template", "the chat template"), ("weights", "the weights")])
def test_a_model_that_changed_since_the_folder_was_finished_is_refused(subject, part, named):
    digest = dataclasses.replace(subject.made.digest, **{part: "other"})
    changed = dataclasses.replace(subject, made=dataclasses.replace(subject.made, digest=digest))
    with pytest.raises(InputError, match=f"is not the model that it was. It differs in {named}"):
        evaluate(changed, REQUEST)
    assert not list(subject.folder.path.glob("evals/*/collected.json"))


def test_the_seed_of_the_resamples_changes_no_record(subject):
    place = evaluate(subject, REQUEST)
    records, summary = place.records.read_bytes(), place.summary("edge:e0").read_bytes()
    assert evaluate(not_loaded(subject), dataclasses.replace(REQUEST, seed=8)) == place
    assert place.records.read_bytes() == records
    assert place.summary("edge:e0").read_bytes() != summary


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("records.jsonl", None, "was changed after it was written. Delete"),
        ("records.jsonl", ('"finish": "stop"', '"finish": "length"'), "was changed after it was written. Delete"),
        ("collected.json", ('"schema": 3', '"schema": 0'), r"collected\.json: made by another version of Vestige"),
    ],
)
def test_what_is_gone_or_was_changed_is_refused_with_the_way_out(subject, name, change, said):
    place = evaluate(subject, REQUEST)
    summary, path = place.summary("edge:e0").read_bytes(), place.path / name
    if change is None:
        path.unlink()
    else:
        path.write_text(path.read_text().replace(*change, 1))
    with pytest.raises(InputError, match=said):
        evaluate(subject, REQUEST)
    assert place.summary("edge:e0").read_bytes() == summary


def test_a_subject_of_another_version_is_refused(tmp_path):
    folder = SubjectFolder(tmp_path)
    write_json(folder.done, {"schema": 0, "steps": 1, "stopped": "x"})
    with pytest.raises(InputError, match=r"done\.json: made by another version of Vestige"):
        finished_subject(folder)


def test_a_subject_that_is_not_finished_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no finished model"):
        finished_subject(SubjectFolder(tmp_path))


def test_no_items_are_refused_before_anything_is_loaded_or_written(subject):
    with pytest.raises(InputError, match="no items to evaluate on"):
        evaluate(not_loaded(subject), dataclasses.replace(REQUEST, items=()))
    assert not subject.folder.path.exists()


def test_a_view_of_items_that_were_not_asked_is_refused(tmp_path):
    subject = subject_of(knows(ITEMS, TOKENIZER), tmp_path)
    with pytest.raises(InputError, match="have no record"):
        evaluate(subject, dataclasses.replace(REQUEST, items=FORGET))
