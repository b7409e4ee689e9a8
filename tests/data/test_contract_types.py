"""Contract types: the built-in two, one of a person's own, and mistakes named with file and key."""

import pytest

from vestige.core.errors import InputError
from vestige.data.contract_type import Integer, contract_types
from vestige.data.dataset import compile_dataset
from vestige.data.graph import Edge, build_graph


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
