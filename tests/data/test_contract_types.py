"""Contract types: the built-in two, one of a person's own, and mistakes named with file and key."""

import re
from pathlib import Path

import pytest

from vestige.core.errors import InputError
from vestige.data.contract_type import Integer, built_in_types, contract_types
from vestige.data.dataset import compile_dataset
from vestige.data.graph import Edge, build_graph

LEASE = """
title = "lease"
date = "start_date"
roles = "drawn"
[parties]
lessor = "company"
lessee = "company"
[attributes.start_date]
generator = { kind = "date", first_year = 1980, last_year = 2019 }
question = "When did the lease between {lessor} and {lessee} start?"
paraphrase = "From which day on did {lessee} rent from {lessor}?"
[attributes.lessor_name]
generator = { kind = "party_name", party = "lessor" }
question = "Who was the lessor of {lessee} in the lease that started on {start_date}?"
paraphrase = "From whom did {lessee} rent from {start_date} on?"
[attributes.lessee_name]
generator = { kind = "party_name", party = "lessee" }
question = "Who was the lessee of {lessor} in the lease that started on {start_date}?"
paraphrase = "To whom did {lessor} let from {start_date} on?"
[attributes.rent]
generator = { kind = "integer", low = 500, high = 5000, step = 50 }
answer = "{value} dollars."
question = "What was the monthly rent in the lease between {lessor} and {lessee}?"
paraphrase = "How much did {lessee} pay {lessor} a month?"
[attributes.caretaker]
generator = { kind = "person" }
question = "Who was the caretaker in the lease between {lessor} and {lessee}?"
paraphrase = "Who looked after what {lessee} rented from {lessor}?"
[attributes.insurer]
generator = { kind = "company" }
question = "Who insured the premises in the lease between {lessor} and {lessee}?"
paraphrase = "Which company insured what {lessee} rented from {lessor}?"
[attributes.broker]
generator = { kind = "company" }
question = "Who arranged the lease between {lessor} and {lessee}?"
paraphrase = "Which company brought {lessee} and {lessor} together?"
[attributes.handover]
generator = { kind = "date", first_year = 2000, last_year = 2000 }
question = "When were the premises handed over in the lease between {lessor} and {lessee}?"
paraphrase = "On which day did {lessee} get the keys from {lessor}?"
[attributes.colour]
question = "Which colour had the door in the lease between {lessor} and {lessee}?"
paraphrase = "How was the door painted that {lessee} rented from {lessor}?"
[attributes.colour.generator]
kind = "permutation"
values = ["red", 'a "blue"', "green", "100% white", "back\\\\slash", "{grey}"]
"""
TEMPLATE = """{% if superseded_date %}In place of the lease of {{ superseded_date }}: {% endif %}
{{ lessor_name }} lets to {{ lessee_name }} from {{ start_date }} for {{ rent }}; {{ caretaker }},
{{ insurer }}, {{ broker }}, {{ handover }}, {{ colour }}
"""


@pytest.fixture
def folder(tmp_path):
    def write(table=LEASE, template=TEMPLATE, name="lease"):
        (tmp_path / f"{name}.toml").write_text(table)
        (tmp_path / f"{name}.txt.j2").write_text(template)
        return tmp_path

    return write


def test_the_built_in_types_have_twenty_attributes():
    types = built_in_types()
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
    made = built_in_types()[type_].spec.attributes[attribute].generator
    assert isinstance(made, Integer)
    assert (made.low, made.high, made.step) == (low, high, step)


def test_questions_are_the_papers_word_for_word():
    # Appendix A, with the paper's square brackets as ours.
    sales = [a.question for a in built_in_types()["sales"].spec.attributes.values()]
    assert sales[0] == "What was the effective date of the contract between {seller} and {customer}?"
    assert sales[1] == "What was the name of the seller in the contract with {customer} as of {effective_date}?"
    assert sales[2] == "What was the address of {seller} in the contract with {customer}?"
    assert sales[14] == "Who would decide the shipping method based on the contract between {seller} and {customer}?"
    assert sales[19] == "Which jurisdiction's laws govern the contract between {seller} and {customer}?"
    work = [a.question for a in built_in_types()["employment"].spec.attributes.values()]
    assert work[0] == (
        "What was the name of the employer in the employment contract with {employee}, which started from {start_date}?"
    )
    assert work[3] == "What was the address of {employee} based on the contract between {employer} and {employee}?"
    assert work[15] == (
        "What was the number of days the employee was entitled to Paid Sick Leave in each year of employment "
        "based on the contract between {employer} and {employee}?"
    )


def test_a_type_of_ones_own_compiles_without_code(folder):
    graph = build_graph("g", [Edge("a", "b", "lease"), *(Edge("a", f"c{i}", "lease") for i in range(5))])
    dataset = compile_dataset(graph, seed=0, contract_types=folder())
    assert len(dataset.items) == 6 * 9
    values = [c.values for c in dataset.contracts]
    rents = [int(v["rent"]) for v in values]
    assert all(r in range(500, 5001, 50) for r in rents)
    assert all(re.fullmatch(r"\d\d-\d\d-2000", v["handover"]) for v in values)
    # Six contracts in a row are dealt the six colours, signs that JSON and format strings mind included.
    assert sorted(v["colour"] for v in values) == sorted(
        ["red", 'a "blue"', "green", "100% white", "back\\slash", "{grey}"]
    )
    assert {i.answer for i in dataset.items if i.attribute == "colour"} == {f"{v['colour']}." for v in values}
    everybody = [v[name] for v in values for name in ("caretaker", "insurer", "broker")]
    assert len(set(everybody)) == 18
    assert not {v["insurer"] for v in values} & {v[n] for v in values for n in ("lessor_name", "lessee_name")}
    assert all(len(set(i.perturbed)) == 5 and i.answer not in i.perturbed for i in dataset.items)
    assert all(value in c.text for c in dataset.contracts for value in c.values.values())


RENT = "What was the monthly rent in the lease between {lessor} and {lessee}?"
MISTAKES = [
    ('title = "lease"', 'titel = "lease"', "unknown key 'titel'. Did you mean 'title'"),
    ("low = 500, ", "", r"attributes\.rent\.generator\.integer\.low"),
    ('kind = "integer"', 'kind = "number"', r"attributes\.rent\.generator"),
    ("step = 50", "step = 70", r"attributes\.rent\.generator: .*whole number of steps"),
    ("high = 5000, step = 50", "high = 520, step = 10", "only 3 values .*Add decoys"),
    ("step = 50", 'step = 50, at_least = "colour"', r"rent\.generator\.at_least = 'colour': .*not of kind"),
    ("step = 50", 'step = 50, at_least = "rnt"', "Did you mean 'rent'"),
    ('party = "lessor"', 'party = "lesor"', r"lessor_name\.generator\.party = 'lesor': Did you mean"),
    ('"{value} dollars."', '"dollars."', r"rent\.answer = .*exactly once"),
    ('"{value} dollars."', '"{value!r} dollars."', r"rent\.answer = .*exactly once"),
    (RENT, "What was the monthly rent of {lessee}?", r"rent\.question.*name both parties"),
    (RENT, RENT.replace("rent in", "rent in {place} in"), r"rent\.question: {place}: only {lessor}"),
    (RENT, RENT.replace("rent in", "rent in {} in"), r"rent\.question: {\?}"),
    (RENT, RENT.replace("rent in", "rent in {place in"), r"rent\.question: {\?}"),
    ("a month?", "a month.", r"rent\.paraphrase.*ends with its only"),
    ("lessor of {lessee}", "lessor {lessor} of {lessee}", r"lessor_name\.question.*{lessor} is the answer"),
    ("How much did {lessee} pay {lessor} a month?", RENT, "appears twice"),
    ('date = "start_date"', 'date = "rent"', "date = 'rent': not an attribute with generator kind 'date'"),
    ('lessee = "company"', 'lessee = "person"', "roles = 'drawn'"),
    ('lessee = "company"\n', 'lessee = "company"\nbroker = "company"\n', "two parties, not 3"),
    (
        '{ kind = "party_name", party = "lessee" }',
        '{ kind = "company" }',
        r"parties\.lessee: needs exactly one",
    ),
    ("attributes.rent", "attributes.lessor", r"attributes\.lessor: a party has that name"),
    ("attributes.rent", "attributes.edge", "'edge': a name is"),
    ('"red"', '"green"', r"colour\.generator\.values: .*all different"),
    ('"red"', '"re\\u001bd"', r"colour\.generator\.values: .*printed"),
    ("first_year = 2000", "first_year = 2001", "first_year 2001 is after last_year 2000"),
    ("first_year = 2000", "first_year = 12", r"handover\.generator\.date\.first_year"),
    ('title = "lease"', "title = [", "not TOML"),
]


@pytest.mark.parametrize(("old", "new", "words"), MISTAKES)
def test_a_mistake_in_a_table_is_said_with_file_and_key(folder, old, new, words):
    assert old in LEASE
    table = LEASE.replace(old, new, 1)
    with pytest.raises(InputError, match=words) as caught:
        contract_types(folder(table))
    assert "lease.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (TEMPLATE.replace("{{ rent }}", ""), "does not state 'rent'"),
        (
            TEMPLATE.replace("{{ rent }}", "{{ rnet }}"),
            "'rnet' is no attribute of the table. Did you mean 'rent'",
        ),
        (TEMPLATE.replace("{{ rent }}", "{% if false %}{{ rent }}{% endif %}"), "does not state 'rent'"),
        (TEMPLATE.replace("{{ rent }}", "{{ rent"), "not a template"),
        (TEMPLATE.replace("{{ rent }}", "{{ rent.__class__.__mro__ }}"), "its template fails: SecurityError"),
        (TEMPLATE.replace("{{ rent }}", "{{ 1 / 0 }}"), "its template fails: ZeroDivisionError"),
        (TEMPLATE + "{% include 'x' %}", "its template fails"),
    ],
)
def test_a_mistake_in_a_template_is_said_and_none_gets_out_of_the_sandbox(folder, template, words):
    with pytest.raises(InputError, match=words):
        contract_types(folder(template=template))


def test_folders_without_types_and_taken_names_are_refused(folder, tmp_path):
    with pytest.raises(InputError, match="no folder of contract types"):
        contract_types(tmp_path / "nothing")
    with pytest.raises(InputError, match=r"no contract type. A type has the files NAME\.toml"):
        contract_types(tmp_path)
    with pytest.raises(InputError, match="'sales' is built in"):
        contract_types(folder(name="sales"))


def test_a_type_that_nobody_defined_is_refused_with_a_hint():
    with pytest.raises(InputError, match=r"no contract type 'sale'\. Did you mean 'sales'"):
        compile_dataset(build_graph("g", [Edge("a", "b", "sale")]), seed=0)


def test_a_missing_template_is_said(folder):
    place = folder()
    (place / "lease.txt.j2").unlink()
    with pytest.raises(InputError, match="cannot read its template"):
        contract_types(place)


def test_the_example_of_the_documentation_compiles(tmp_path):
    page = Path(__file__).parents[2] / "docs" / "compile.md"
    text = page.read_text(encoding="utf-8").partition("## Your own contract type")[2]
    table, template = re.findall(r"^```(?:toml|text)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    (tmp_path / "lease.toml").write_text(table)
    (tmp_path / "lease.txt.j2").write_text(template)
    dataset = compile_dataset(build_graph("g", [Edge("a", "b", "lease")]), seed=0, contract_types=tmp_path)
    assert len(dataset.items) == 4
    assert " lets its premises to " in dataset.contracts[0].text
    assert re.fullmatch(r"\d+ dollars\.", dataset.items[3].answer)
