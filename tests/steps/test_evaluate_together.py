"""Evaluations that are asked together: what each gives alone but for rounding, and the same bytes after any kill."""

import json

import pytest
from tests.near import near
from tests.small import Stopped, evidence, portions_of_four, subject_of

from vestige.core.files import append_lines, read_json
from vestige.core.items import Item
from vestige.evals import find_eval
from vestige.evals.base import View
from vestige.models import load
from vestige.models.generation import Reply, generate
from vestige.models.load import LoadedModel
from vestige.models.reading import read
from vestige.models.tiny import tiny_model, tiny_tokenizer
from vestige.steps import evaluate as step
from vestige.steps.evaluate import EvaluateRequest, evaluate, evaluate_together

ITEMS = tuple(
    Item(
        f"How many {'and how very many ' * (3 * n % 7)}crates does contract {n} name?",
        f"{20 + n} crates of {'red ' * (n % 4)}wool.",
        edge=f"e{n % 3}",
        attribute="crates",
    )
    for n in range(12)
)
VIEW = View("edge:e0", {"forget": [i.id for i in ITEMS if i.edge == "e0"], "retain": [ITEMS[1].id]}, {})


@pytest.fixture(autouse=True)
def small_portions():
    with portions_of_four():
        yield


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    """Random weights: every number of it is a sum of many, so that a changed order of adding shows."""
    tokenizer = tiny_tokenizer((*ITEMS, Item("A B C D Answer:", "x")))
    return LoadedModel(tiny_model(0).eval(), tokenizer, "builtin:tiny", "")


def request(name: str, **settings) -> EvaluateRequest:
    values = {"max_new_tokens": 6, **settings} if name != "reversed" else settings
    return EvaluateRequest(ITEMS, (VIEW,), find_eval(name).build(values), 7)


def records_in(found):
    return [json.loads(line) for line in found["records.jsonl"].splitlines()]


REQUESTS = [request("qa"), request("choices"), request("reversed"), request("choices", max_new_tokens=3)]


@pytest.fixture(scope="module")
def alone(model, tmp_path_factory):
    """What each evaluation writes when nothing else is asked."""
    folder = tmp_path_factory.mktemp("alone")
    with portions_of_four():
        return [evidence(evaluate(subject_of(model, folder), one)) for one in REQUESTS]


@pytest.mark.portable
@pytest.mark.slow
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 0), (0, 0)])
def test_together_is_what_each_gives_alone_but_for_rounding(model, alone, tmp_path, order):
    places = evaluate_together(subject_of(model, tmp_path), [REQUESTS[n] for n in order])
    for place, n in zip(places, order, strict=True):
        found = evidence(place)
        assert near(records_in(found), records_in(alone[n]))
        assert found["identity.json"] == alone[n]["identity.json"]


@pytest.fixture(scope="module")
def together(model, tmp_path_factory):
    """What two evaluations write when they are asked together."""
    with portions_of_four():
        folder = tmp_path_factory.mktemp("together")
        return [evidence(p) for p in evaluate_together(subject_of(model, folder), REQUESTS[:2])]


@pytest.mark.portable
@pytest.mark.parametrize("n_writes", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 1, 2, 4, 5))])
def test_a_kill_at_any_write_and_the_same_call_again_come_to_the_same_bytes(
    model, together, tmp_path, monkeypatch, n_writes
):
    """Each of three portions is written for one evaluation after the other; the first with the plan."""
    left = iter(range(n_writes))

    def killed(path, lines):
        if next(left, None) is None:
            raise Stopped
        append_lines(path, lines)

    with monkeypatch.context() as patch:
        patch.setattr(step, "append_lines", killed)
        with pytest.raises(Stopped):
            evaluate_together(subject_of(model, tmp_path / "cut"), REQUESTS[:2])
    assert [evidence(p) for p in evaluate_together(subject_of(model, tmp_path / "cut"), REQUESTS[:2])] == together


@pytest.fixture
def decoded(monkeypatch):
    """The prompts of greedy replies that were decoded one by one, without a reading."""
    prompts = []

    def counted(model, wanted, *, sampling=None, **how):
        prompts.extend(map(tuple, wanted if sampling is None else ()))
        return generate(model, wanted, sampling=sampling, **how)

    monkeypatch.setattr(load, "generate", counted)
    return prompts


SHARING = [request("qa"), request("freeform", forms=("plain", "prefilled")), request("memory")]


@pytest.mark.portable
def test_a_reply_that_an_earlier_evaluation_kept_is_not_decoded_again(model, decoded, tmp_path):
    places = evaluate_together(subject_of(model, tmp_path / "together"), SHARING)
    plain = {tuple(model.prompter.prompt(i.question)) for i in ITEMS}
    assert decoded
    assert plain.isdisjoint(decoded)
    # A longer reply is another, and what was asked for without qa is decoded.
    evaluate_together(subject_of(model, tmp_path / "longer"), [SHARING[0], request("memory", max_new_tokens=7)])
    assert plain <= set(decoded)
    for one, place in zip(SHARING, places, strict=True):
        alone = evidence(evaluate(subject_of(model, tmp_path / "alone"), one))
        assert near(records_in(evidence(place)), records_in(alone))
        assert evidence(place)["identity.json"] == alone["identity.json"]


@pytest.mark.portable
def test_known_replies_are_the_same_bytes_after_a_kill_and_no_other_models(model, decoded, tmp_path, monkeypatch):
    expected = [evidence(p) for p in evaluate_together(subject_of(model, tmp_path / "whole"), SHARING[:2])]

    def killed(path, lines):
        if "freeform" in str(path) and path.exists():
            raise Stopped
        append_lines(path, lines)

    with monkeypatch.context() as patch:
        patch.setattr(step, "append_lines", killed)
        with pytest.raises(Stopped):
            evaluate_together(subject_of(model, tmp_path / "cut"), SHARING[:2])
    assert [evidence(p) for p in evaluate_together(subject_of(model, tmp_path / "cut"), SHARING[:2])] == expected
    # As after an attack: the same object asked again under other weights knows nothing of before.
    model.replies[tuple(model.prompter.prompt(ITEMS[0].question)), 6] = Reply((1, 2, 3), "stop", 1.0)
    again = evidence(evaluate(subject_of(model, tmp_path / "again"), SHARING[1]))
    assert near(records_in(again), records_in(expected[1]))


@pytest.mark.slow
def test_what_was_begun_together_and_is_ended_alone_is_asked_anew_and_no_blend(model, alone, tmp_path):
    def stop(done, of):
        assert of == 2 * len(ITEMS)
        if done == 16:
            raise Stopped

    with pytest.raises(Stopped):
        evaluate_together(subject_of(model, tmp_path), REQUESTS[:2], stop)
    assert [evidence(evaluate(subject_of(model, tmp_path), one)) for one in REQUESTS[:2]] == alone[:2]


@pytest.mark.portable
def test_what_one_of_them_has_already_stays_and_changes_no_bytes_of_the_other(model, alone, together, tmp_path):
    subject = subject_of(model, tmp_path)
    evaluate(subject, REQUESTS[0])
    first, second = evaluate_together(subject, REQUESTS[:2])
    assert evidence(first) == alone[0]
    assert evidence(second) == together[1]


def test_a_portion_is_read_once_for_all_that_read(model, tmp_path, monkeypatch):
    portions = []

    def counted(model, wanted, *given, **named):
        portions.append(len(wanted))
        return read(model, wanted, *given, **named)

    monkeypatch.setattr("vestige.models.load.read", counted)
    places = evaluate_together(subject_of(model, tmp_path), REQUESTS[:2])
    # Three portions of four questions from each of two evaluations.
    assert portions == [8, 8, 8]
    told = [read_json(p.provenance) for p in places]
    assert [t["reading"] for t in told] == [model.way] * 2
    assert [t["plan"] for t in told] == [{"together": [p.path.name for p in places], "portion": 4}] * 2
