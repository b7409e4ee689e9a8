"""Other evaluations than `qa` through the same step: one folder each, resumed, and never given another's numbers."""

import dataclasses

import pytest
from tests.planted_tables import knows, knows_share
from tests.small import SPEC, portions_of_four, subject_of

from vestige.artifacts.layout import RunFolder
from vestige.artifacts.records import read_summary, result_rows, write_spec
from vestige.core.items import Item
from vestige.evals import EVALS, find_eval
from vestige.evals.base import View
from vestige.models.tiny import tiny_tokenizer
from vestige.report.evidence import read_evidence
from vestige.steps import evaluate as step
from vestige.steps.evaluate import EvaluateRequest, Subject, evaluate

ITEMS = tuple(
    Item(
        f"How many {'and how very many ' * (n % 3)}crates does contract {n} name?",
        f"{20 + n}.",
        edge=f"e{n % 3}",
        group="sales",
        attribute="crates",
        paraphrase=f"Contract {n}: crates?",
    )
    for n in range(12)
)
TOKENIZER = tiny_tokenizer((*ITEMS, Item("A B C D Answer:", "x")))
FORGET = [i.id for i in ITEMS if i.edge == "e0"]
VIEW = View("edge:e0", {"forget": FORGET, "retain": [i.id for i in ITEMS if i.edge != "e0"]}, {})
QUICK = {
    "qa": {"max_new_tokens": 8},
    "choices": {"max_new_tokens": 8},
    "freeform": {"max_new_tokens": 8, "samples": 2},
    "memory": {"max_new_tokens": 8, "gradient_norm": True},
}


@pytest.fixture(autouse=True)
def small_portions():
    with portions_of_four():
        yield


def request(name: str, **settings) -> EvaluateRequest:
    values = {**QUICK.get(name, {}), **settings}
    return EvaluateRequest(ITEMS, (VIEW,), find_eval(name).build(values), 7)


@pytest.fixture
def subject(tmp_path) -> Subject:
    return subject_of(knows_share(ITEMS, TOKENIZER, share=0.5, seed=3), tmp_path / "run/cells/npo")


def test_items_with_other_wrong_answers_are_another_evaluation(subject):
    first = evaluate(subject, request("choices"))
    others = tuple(dataclasses.replace(i, perturbed=("1.", "2.", "3.")) for i in ITEMS)
    assert evaluate(subject, dataclasses.replace(request("choices"), items=others)).path != first.path
    # They are nothing to `qa`, whose records would be the same.
    plain = evaluate(subject, request("qa"))
    assert evaluate(subject, dataclasses.replace(request("qa"), items=others)).path == plain.path


@pytest.mark.slow
def test_no_two_evaluations_put_a_number_in_the_same_place(subject):
    # A planted table has no embeddings and no blocks: these have own tests.
    names = [name for name in EVALS if name not in ("acr", "inside")]
    places = [
        {(r["split"], r["scope"], r["format"], r["attack"], r["metric"]) for r in result_rows([read_summary(path)])}
        for name in names
        for path in evaluate(subject, request(name)).summaries()
    ]
    assert len(places) == len(names)
    assert len(set.union(*places)) == sum(map(len, places))


def test_a_run_with_several_evaluations_is_still_reported_by_its_answers(subject, tmp_path):
    for name in ("qa", "choices"):
        evaluate(subject, request(name))
    step.write_done(subject.folder, subject.made)
    write_spec(subject.folder.spec, SPEC)
    (shown,) = read_evidence(RunFolder(tmp_path / "run")).subjects
    assert shown.answers is not None
    assert shown.answers.path.name.startswith("qa-")
    assert {cell.format for cell in shown.results["edge:e0"]} >= {"generate", "forced", "choose", "option_text_sum"}


def test_who_knows_all_is_found_to_know_in_text_and_not_by_letters(tmp_path):
    place = evaluate(subject_of(knows(ITEMS, TOKENIZER), tmp_path), request("choices"))
    found = {
        r.format: r.estimate.value
        for r in read_summary(place.summary("edge:e0")).results
        if (r.split, r.estimate.metric) == ("forget", "accuracy")
    }
    assert {form: round(value, 3) for form, value in found.items()} == {
        "choose": 0.25,
        "option_vocab": round(1 / len(TOKENIZER), 3),
        "option_text_sum": 1.0,
        "option_text_mean": 1.0,
        "generate_option": 1.0,
    }
