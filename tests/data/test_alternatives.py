"""Alternatives are drawn as the truth was: by its generator, as new to the data, not to be told from it by looks."""

import json
from dataclasses import replace

import pytest

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.data.alternatives import with_alternatives
from vestige.data.corpus import Corpus, NamedSplits, SourceSettings, named_splits, open_corpus
from vestige.data.findings import SoundnessSettings, decide
from vestige.data.soundness import material, of_alternatives

SETTINGS = SoundnessSettings(permutations=2_000)


@pytest.fixture(scope="module")
def compiled(folder1):
    return open_corpus(SourceSettings(data=str(folder1)))


@pytest.fixture(scope="module")
def drawn(compiled):
    return with_alternatives(compiled, named_splits(compiled, "edge:A_B,edge:A_C,edge:B_D"))


def by_attribute(splits, edge="A_B"):
    return {i.attribute: i for i in splits.splits["forget"] if i.edge == edge}


def test_alternatives_are_of_the_kind_of_the_truth_and_of_its_form(compiled, drawn):
    found = by_attribute(drawn)
    contract = compiled.dataset.contract_of["A_B"].values
    assert all(i.answer not in i.alternatives for i in found.values())
    assert all(len(set(i.alternatives)) == len(i.alternatives) <= 99 for i in found.values())
    assert found["shipping_payer"].alternatives in (("Seller.",), ("Customer.",))
    assert set(found["interest_rate"].alternatives) < {f"{n}%." for n in range(1, 6)}
    least = int(contract["payment_days"])
    assert {int(a[:-1]) for a in found["penalty_days"].alternatives} < set(range(least, 31, 5))
    assert len(found["effective_date"].alternatives) == len(found["delivery_address"].alternatives) == 99
    # The total follows from price and quantity, and A and B have other contracts that name them.
    for attribute in ("total_price", "seller_name", "customer_address"):
        assert found[attribute].alternatives == ()
    assert any("the answer follows from other facts of the contract" in said for said in drawn.told)
    assert any("the rest of the data states the name or address" in said for said in drawn.told)
    assert drawn.drawn == {i.id for i in drawn.splits["forget"] if i.alternatives}


def test_alternatives_are_as_new_to_the_data_as_the_truth(compiled, drawn):
    stated = "\n".join(f"{i.question} {i.answer} {i.perturbed}" for i in (*compiled.items, *compiled.dataset.holdout))
    taught = {(i.group, i.attribute, i.answer) for i in drawn.splits["retain"]}
    for item in drawn.splits["forget"]:
        if item.attribute == "delivery_address":
            assert not any(a.rstrip(".") in stated for a in item.alternatives)
        for alternative in item.alternatives:
            known = [(item.group, item.attribute, answer) in taught for answer in (item.answer, alternative)]
            assert known[0] == known[1]


def test_the_same_party_is_one_fact_in_all_its_contracts(compiled):
    whole = with_alternatives(compiled, named_splits(compiled, "node:A"))
    own = [
        i for i in whole.splits["forget"] if i.alternatives and i.attribute in ("seller_address", "customer_address")
    ]
    pairs = {(i.answer, i.alternatives) for i in own}
    assert len(pairs) == len({i.answer for i in own}) < len(own)


def test_the_same_data_give_the_same_alternatives_and_fewer_are_the_first_of_more(compiled, drawn):
    splits = named_splits(compiled, "edge:A_B,edge:A_C,edge:B_D")
    assert with_alternatives(compiled, splits) == drawn
    few = by_attribute(with_alternatives(compiled, splits, n=9))
    assert few["good"].alternatives == by_attribute(drawn)["good"].alternatives[:9]


def told(splits):
    lines = decide(of_alternatives(material(splits, SETTINGS, seed=0)), SETTINGS)
    return {line.check: line.p for line in lines}


@pytest.mark.slow
def test_drawn_alternatives_cannot_be_told_from_the_truth_and_wrong_answers_can(compiled):
    edges = ",".join(f"edge:{edge}" for edge in list(compiled.dataset.graph.edges)[::2])
    splits = with_alternatives(compiled, named_splits(compiled, edges))
    # As if they had been given: those that were drawn are not checked again.
    assert of_alternatives(material(splits, SETTINGS, seed=0)) == ()
    p = told(replace(splits, drawn=frozenset()))
    assert "alternatives: looks" in p
    assert min(p.values()) > 0.05
    # Wrong answers come from other contracts and from lists of values that are never true.
    forget = tuple(replace(i, alternatives=i.perturbed) for i in splits.splits["forget"])
    assert min(told(replace(splits, splits={**splits.splits, "forget": forget}, drawn=frozenset())).values()) < 0.05


def test_contracts_that_another_generator_drew_have_none(compiled):
    data = compiled.dataset
    contract = replace(data.contracts[0], values={**data.contracts[0].values, "good": "Zeppelins"})
    other = replace(compiled, dataset=replace(data, contracts=(contract, *data.contracts[1:])))
    found = with_alternatives(other, named_splits(other, "edge:A_B"))
    assert not any(i.alternatives for i in found.splits["forget"])
    assert any("nothing says how the answers were drawn" in said for said in found.told)


def own_data(tmp_path, rows):
    path = tmp_path / "qa.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return open_corpus(SourceSettings(data=str(path)))


ROWS = [
    {"question": "Who wrote the Heron?", "answer": "Ann Lee.", "alternatives": ["Bo Kay.", "ann lee", "Cy Dow."]},
    {"question": "Who wrote the Stork?", "answer": "Cy Dow.", "alternatives": ["Ed Fox.", "Gil Hay."]},
    {"question": "Where does Cy Dow live?", "answer": "In Rome."},
]


def split(corpus: Corpus, n: int) -> NamedSplits:
    return NamedSplits("own", {"forget": corpus.items[:n], "retain": corpus.items[n:]}, {})


def test_given_alternatives_that_state_the_truth_or_are_taught_elsewhere_are_left_out(tmp_path):
    corpus = own_data(tmp_path, ROWS)
    found = with_alternatives(corpus, split(corpus, 2))
    # The truth in other letters goes, and so does who stands in the retain set; of him nothing can be asked so.
    assert [i.alternatives for i in found.splits["forget"]] == [("Bo Kay.",), ()]
    assert found.told == (
        "no alternatives for 1 of 2 forget questions: the rest of the data states the answer, so that it is known from "
        "there",
    )
    assert found.drawn == frozenset()


def test_what_models_were_taught_counts_also_where_it_is_not_to_be_kept(tmp_path):
    corpus = own_data(tmp_path, ROWS)
    kept = NamedSplits("own", {"forget": corpus.items[1:2], "retain": corpus.items[:1]}, {})
    assert with_alternatives(corpus, kept).splits["forget"][0].alternatives == ()


def test_a_file_of_alternatives_is_matched_by_its_questions_and_goes_before_the_column(tmp_path):
    corpus = own_data(tmp_path, ROWS)
    path = tmp_path / "other.jsonl"
    path.write_text(
        '{"question": "who wrote the  HERON?", "alternatives": ["Ivo Jay.", "Kim Lod."]}\n', encoding="utf-8"
    )
    found = with_alternatives(corpus, split(corpus, 1), str(path))
    assert found.splits["forget"][0].alternatives == ("Ivo Jay.", "Kim Lod.")
    path.write_text('{"question": "Who painted it?", "alternatives": ["Ivo Jay."]}\n', encoding="utf-8")
    with pytest.raises(InputError, match="has alternatives to no question of the forget set"):
        with_alternatives(corpus, split(corpus, 1), str(path))
    path.write_text('{"question": "Who painted it?", "answer": "Ivo Jay."}\n', encoding="utf-8")
    with pytest.raises(InputError, match="no column 'alternatives'"):
        with_alternatives(corpus, split(corpus, 1), str(path))
    row = '{"question": "Who wrote the Heron?", "alternatives": ["Ivo Jay."]}\n'
    path.write_text(row + row, encoding="utf-8")
    with pytest.raises(InputError, match="is asked in an earlier row"):
        with_alternatives(corpus, split(corpus, 1), str(path))


def test_questions_without_alternatives_are_told(tmp_path):
    corpus = Corpus("own", SourceSettings(data="own"), (), (), None)
    splits = NamedSplits("own", {"forget": (Item("Who?", "Ann."),), "retain": (Item("What?", "Tea."),)}, {})
    found = with_alternatives(corpus, splits)
    assert found.told == (
        "no alternatives for 1 of 1 forget questions: nothing says how the answers were drawn; give alternatives",
    )
