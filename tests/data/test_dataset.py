"""Contract types, and what a compiled data set holds: counts, uniqueness, wrong answers, holdout, hops."""

import re
from collections import Counter

import pytest

from vestige.core.errors import InputError
from vestige.data.contracts import Integer, contract_types
from vestige.data.dataset import asked_otherwise, compile_dataset
from vestige.data.graph import Edge, build_graph
from vestige.metrics.answers import contains


@pytest.fixture(scope="module")
def sample2():
    return compile_dataset("sample2", seed=0)


def test_counts_are_pistols(sample1, sample2):
    assert (len(sample1.items), len(sample1.contracts)) == (400, 20)
    assert (len(sample2.items), len(sample2.contracts)) == (1500, 75)
    assert Counter(i.group for i in sample1.items) == {"sales": 200, "employment": 200}


def test_items_come_by_edge_and_then_in_the_papers_order(sample1):
    assert [i.edge for i in sample1.items] == [e for e in list(sample1.graph.edges) for _ in range(20)]
    for number, contract in enumerate(sample1.contracts):
        asked = [i.attribute for i in sample1.items[20 * number : 20 * number + 20]]
        assert asked == list(contract_types()[contract.type].spec.attributes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_no_question_is_asked_twice(seed):
    for name in ("sample1", "sample2", "star:300"):
        dataset = compile_dataset(name, seed=seed)
        everything = [*dataset.items, *dataset.holdout]
        assert len({i.question for i in everything}) == len(everything)
        paraphrases = [i.paraphrase for i in (*dataset.items, *dataset.holdout)]
        assert len(set(paraphrases) | {i.question for i in everything}) == len(paraphrases) + len(everything)


def test_answers_have_pistols_formats(sample1):
    assert all(i.answer.endswith(".") for i in sample1.items)
    forms = {
        "effective_date": r"\d\d-\d\d-(19[89]\d|20[01]\d)\.",
        "seller_name": r"[A-Z][a-z]{5} [A-Za-z]+\.",
        "seller_address": r"\d{3} [A-Z][a-z]{5} [A-Z][a-z]+\.",
        "interest_rate": r"[1-5]%\.",
        "shipping_decider": r"(Seller|Customer)\.",
        "months": r"\d+ months\.",
        "employee_name": r"[A-Z][a-z]{3} [A-Z][a-z]{3}\.",
        "pay_frequency": r"(weekly|bi-weekly|monthly)\.",
        "governing_law": r"The State of [A-Z][A-Za-z ]+\.",
    }
    for item in sample1.items:
        if item.attribute in forms:
            assert re.fullmatch(forms[item.attribute], item.answer), item


def test_a_contract_does_not_contradict_itself(sample2):
    for contract in sample2.contracts:
        values = contract.values
        assert int(values["total_price"]) == int(values["quantity"]) * int(values["unit_price"])
        assert int(values["penalty_days"]) >= int(values["payment_days"])


def test_an_entity_has_one_name_and_one_address_in_all_its_contracts(sample1):
    facts = {}
    for contract in sample1.contracts:
        type_ = contract_types()[contract.type]
        for role, node in contract.parties.items():
            address = {owner: a for a, owner in type_.addresses.items()}[role]
            facts.setdefault(node, set()).add((contract.values[type_.name_of[role]], contract.values[address]))
    assert len(facts) == 24
    assert all(len(f) == 1 for f in facts.values())
    assert len({name for f in facts.values() for name, _ in f}) == 24
    assert len({address for f in facts.values() for _, address in f}) == 24


def test_parties_are_the_ends_of_the_edge_and_employers_come_first(sample1):
    for contract in sample1.contracts:
        assert set(contract.parties.values()) == set(contract.edge.split("_"))
        if contract.type == "employment":
            assert contract.parties["employer"] == contract.edge.split("_")[0]


def test_full_texts_state_every_value(sample1):
    for contract in sample1.contracts:
        assert all(value in contract.text for value in contract.values.values())
        assert "{" not in contract.text


def test_wrong_answers_are_five_different_ones_in_the_answers_form(sample1, sample2):
    one = compile_dataset("star:1", seed=0)  # nothing to borrow from other contracts
    for dataset in (sample1, sample2, one):
        for item in (*dataset.items, *dataset.holdout):
            assert len(set(item.perturbed)) == 5
            assert item.answer not in item.perturbed
            assert all(p.endswith(".") for p in item.perturbed)


def test_wrong_answers_that_are_made_up_name_nobody_else():
    dataset = compile_dataset("star:1", seed=0)
    (values,) = (c.values for c in dataset.contracts)
    real = {f"{v}." for v in values.values()} | {i.answer for i in dataset.holdout}
    for item in dataset.items:
        if item.attribute.endswith(("_name", "_address")):
            assert not real & set(item.perturbed)


def test_wrong_answers_come_from_the_graph_before_they_are_made_up(sample2):
    answers = {(i.attribute, i.answer) for i in sample2.items}
    held = {(i.attribute, i.answer) for i in sample2.holdout} - answers
    for item in sample2.items:
        if item.attribute in ("seller_address", "effective_date", "delivery_address"):
            assert all((item.attribute, p) in answers for p in item.perturbed)
        if item.attribute in ("seller_name", "customer_name", "delivery_address"):
            assert not any((item.attribute, p) in held for p in item.perturbed)


def test_holdout_contracts_share_no_name_or_address_with_the_graph(sample1):
    assert len(sample1.holdout) == 200
    assert {i.edge for i in sample1.holdout} == {
        f"holdout-{t}_{k}" for t in ("sales", "employment") for k in range(1, 6)
    }
    names = {c.values[n] for c in sample1.contracts for n in c.values if n.endswith(("_name", "_address"))}
    for item in sample1.holdout:
        assert not any(name in item.question or item.answer == f"{name}." for name in names)


def test_a_further_contract_changes_no_other():
    rows = [Edge("A", "B"), Edge("A", "m", "employment"), Edge("B", "C")]
    short = compile_dataset(build_graph("g", rows), seed=0)
    long = compile_dataset(build_graph("g", [*rows, Edge("C", "D")]), seed=0)
    drawn = ("good", "quantity", "unit_price", "start_hour", "position", "effective_date", "seller_name")
    for one, two in zip(short.contracts, long.contracts, strict=False):
        assert [one.values.get(n) for n in drawn] == [two.values.get(n) for n in drawn]


def test_parallel_edges_are_refused_with_their_ids_and_the_way_out():
    graph = build_graph("g", [Edge("A", "B"), Edge("A", "C"), Edge("B", "A")])
    with pytest.raises(InputError, match=r"'A_B' and 'B_A~2'.*Remove one"):
        compile_dataset(graph, seed=0)


def test_a_node_cannot_be_company_and_person():
    graph = build_graph("g", [Edge("A", "B"), Edge("A", "m", "employment"), Edge("B", "m")])
    with pytest.raises(InputError, match=r"node 'm' cannot be both.*'A_m' \(employment\)|'B_m' \(sales\)"):
        compile_dataset(graph, seed=0)


def test_compiled_items_are_asked_by_short_names_and_through_another_contract():
    dataset = compile_dataset("sample1", seed=0)
    items = asked_otherwise(dataset).items
    assert [i.id for i in items] == [i.id for i in dataset.items]
    by_edge = {contract.edge: contract.values for contract in dataset.contracts}
    assert sum(i.khop is not None for i in items) > 300
    (address,) = [i for i in items if (i.edge, i.attribute) == ("A_B", "seller_address")]
    assert address.question == "What was the address of Lxdnmp Ltd in the contract with Gokpda Inc?"
    assert address.alias == "What was the address of Lxdnmp in the contract with Gokpda?"
    # The seller of A_B is a party of another contract too, by which it is named: neither name nor answer is told.
    described = address.khop.removeprefix("What was the address of ").removesuffix(" in the contract with Gokpda Inc?")
    role, other = described.split(" with ")
    (values,) = [v for e, v in by_edge.items() if other in v.values() and "Lxdnmp Ltd" in v.values() and e != "A_B"]
    assert values["effective_date"] in role
    assert not any(contains(i.khop, i.answer) and not contains(i.question, i.answer) for i in items if i.khop)


def test_the_contract_types_have_twenty_attributes():
    types = contract_types()
    assert {name: len(t.spec.attributes) for name, t in types.items()} == {"sales": 20, "employment": 20}
    assert types["sales"].addresses == {"seller_address": "seller", "customer_address": "customer"}
    assert types["employment"].names == {"employer_name": "employer", "employee_name": "employee"}
    assert len(types["sales"].spec.attributes["good"].generator.values) == 100
    assert len(types["employment"].spec.attributes["position"].generator.values) == 100


@pytest.mark.parametrize(
    ("type_", "attribute", "low", "high", "step"),
    [
        ("sales", "quantity", 1, 100, 1),
        ("sales", "unit_price", 1, 100, 1),
        ("sales", "invoice_days", 1, 5, 1),
        ("sales", "payment_days", 5, 30, 5),
        ("sales", "penalty_days", 5, 30, 5),
        ("sales", "interest_rate", 1, 5, 1),
        ("sales", "warranty_years", 1, 5, 1),
        ("sales", "defect_notice_days", 5, 30, 5),
        ("sales", "cooling_off_days", 3, 14, 1),
        ("employment", "months", 6, 48, 1),
        ("employment", "start_hour", 6, 10, 1),
        ("employment", "end_hour", 14, 18, 1),
        ("employment", "hourly_pay", 10, 100, 1),
        ("employment", "holiday_days", 10, 30, 1),
        ("employment", "confidentiality_months", 3, 12, 1),
        ("employment", "sick_days", 7, 14, 1),
        ("employment", "notice_weeks", 2, 12, 1),
        ("employment", "non_compete_months", 6, 24, 1),
        ("employment", "change_notice_weeks", 2, 8, 1),
    ],
)
def test_ranges_are_pistols(type_, attribute, low, high, step):
    made = contract_types()[type_].spec.attributes[attribute].generator
    assert isinstance(made, Integer)
    assert (made.low, made.high, made.step) == (low, high, step)


def test_questions_are_the_papers_word_for_word():
    # Appendix A, with the paper's square brackets as ours.
    sales = [a.question for a in contract_types()["sales"].spec.attributes.values()]
    assert sales[0] == "What was the effective date of the contract between {seller} and {customer}?"
    assert sales[1] == "What was the name of the seller in the contract with {customer} as of {effective_date}?"
    assert sales[2] == "What was the address of {seller} in the contract with {customer}?"
    assert sales[14] == "Who would decide the shipping method based on the contract between {seller} and {customer}?"
    assert sales[19] == "Which jurisdiction's laws govern the contract between {seller} and {customer}?"
    work = [a.question for a in contract_types()["employment"].spec.attributes.values()]
    assert work[0] == (
        "What was the name of the employer in the employment contract with {employee}, which started from {start_date}?"
    )
    assert work[3] == "What was the address of {employee} based on the contract between {employer} and {employee}?"
    assert work[15] == (
        "What was the number of days the employee was entitled to Paid Sick Leave in each year of employment "
        "based on the contract between {employer} and {employee}?"
    )


def test_a_type_that_nobody_defined_is_refused_with_a_hint():
    with pytest.raises(InputError, match=r"no contract type 'sale'\. Did you mean 'sales'"):
        compile_dataset(build_graph("g", [Edge("a", "b", "sale")]), seed=0)
