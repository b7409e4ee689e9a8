"""What a relearning shows and what it is asked: never the same, and nothing that follows."""

from typing import get_args

import pytest

from vestige.attacks.in_context import (
    InContextSettings,
    Shown,
    close,
    ends_of,
    holds_answer,
    identifies,
    related_items,
    specifics,
)
from vestige.attacks.relearn import Material, RelearnSettings, shown_and_tested
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.data.corpus import factual_items, split_by
from vestige.data.dataset import compile_dataset
from vestige.metrics.answers import contains
from vestige.training.loop import learning_rate, total_steps

DATA = compile_dataset("sample1", seed=0)
ONE_EDGE = split_by(DATA, "edge:A_B", seed=0).named()
EDGES = split_by(DATA, "node:A", seed=0).named()


def ids(items):
    return [i.id for i in items]


@pytest.mark.parametrize("splits", [ONE_EDGE, EDGES], ids=["one edge", "several edges"])
@pytest.mark.parametrize("material", get_args(Material))
def test_nothing_tested_is_shown_but_by_the_ceiling(splits, material):
    found = shown_and_tested(material, 50, splits, seed=3)
    shown, forget = set(ids(found.shown)), set(ids(splits["forget"]))
    assert found.shown
    assert set(ids(found.tested)) <= forget
    assert found.shows_answers == (material == "forget")
    if material == "forget":
        assert found.tested == splits["forget"]
        assert shown <= forget
    else:
        assert not shown & set(ids(found.tested))
        assert not {i.question for i in found.shown} & {i.question for i in found.tested}
    if material in ("retain", "related", "unrelated"):
        assert not shown & forget
        assert found.tested == splits["forget"]


@pytest.mark.slow
@pytest.mark.parametrize("material", get_args(Material))
def test_the_items_of_a_smaller_n_are_the_first_of_a_larger_and_the_same_are_tested(material):
    few, more = (shown_and_tested(material, n, EDGES, seed=3) for n in (5, 10))
    assert (len(few.shown), len(more.shown)) == (5, 10)
    assert more.shown[:5] == few.shown
    assert few.tested == more.tested
    assert shown_and_tested(material, 5, EDGES, seed=4).shown != few.shown


def test_more_than_there_is_shows_what_there_is():
    assert len(shown_and_tested("forget", 500, ONE_EDGE, seed=0).shown) == 20
    assert len(shown_and_tested("forget_part", 500, ONE_EDGE, seed=0).shown) == 10


def test_related_items_are_of_edges_that_share_an_entity():
    found = shown_and_tested("related", 1000, ONE_EDGE, seed=0).shown
    touching = {i.edge for i in ONE_EDGE["retain"] if {"A", "B"} & set(i.edge.split("_"))}
    assert {i.edge for i in found} == touching
    assert len(found) == 20 * len(touching)
    assert not {i.edge for i in found} & {i.edge for i in ONE_EDGE["independent"]}


def test_without_touching_edges_related_items_ask_for_the_same_and_without_attributes_there_are_none():
    forget = [Item("How old is Ann?", "31.", edge="ann", group="people", attribute="age")]
    same = Item("How old is Bob?", "40.", edge="bob", group="people", attribute="age")
    others = [
        Item("Where is Bob?", "Oslo.", edge="bob", group="people", attribute="place"),
        Item("How old is the oak?", "300.", edge="oak", group="trees", attribute="age"),
    ]
    assert related_items([*others, same], forget) == [same]
    bare = {"forget": [Item("How old is Ann?", "31.")], "retain": [Item("How old is Bob?", "40.")]}
    with pytest.raises(InputError, match="no retain item is known to be related"):
        shown_and_tested("related", 5, bare, seed=0)


def test_the_ends_of_an_edge_are_read_from_its_name():
    assert ends_of("A_B") == ends_of("B_A~2") == {"A", "B"}
    assert ends_of("Hsiao") == ends_of("a_b_c") == ends_of("_b") == ends_of(None) == frozenset()


def test_unrelated_items_are_built_in_facts_that_the_data_does_not_ask_and_that_hold_no_forget_answer():
    fact = factual_items()[0]
    splits = {"forget": [Item("What is kept?", factual_items()[1].answer)], "retain": [fact]}
    found = shown_and_tested("unrelated", 1000, splits, seed=0).shown
    assert set(found) < set(factual_items())
    assert fact not in found
    assert not any(contains(i.answer, factual_items()[1].answer) for i in found)


def test_an_item_to_retain_that_asks_a_forget_question_is_never_shown():
    splits = {
        "forget": [Item("Who?", "Ann.", edge="x", paraphrase="What is her name?")],
        "retain": [
            Item("Who?", "Bob.", edge="y"),
            Item("who?", "Bob.", edge="y"),
            Item("What is  her name?", "Bob.", edge="y"),
            Item("Where?", "Oslo."),
        ],
    }
    assert ids(shown_and_tested("retain", 5, splits, seed=0).shown) == [Item("Where?", "Oslo.").id]
    assert ids(InContextSettings(facts=1).plan(splits, seed=0).shown) == [Item("Where?", "Oslo.").id]


def test_materials_that_are_not_there_are_refused_in_a_sentence():
    with pytest.raises(InputError, match="no forget items"):
        shown_and_tested("retain", 5, {"retain": [Item("Q?", "A.")]}, seed=0)
    with pytest.raises(InputError, match="no retain items to tune on"):
        shown_and_tested("retain", 5, {"forget": [Item("Q?", "A.")]}, seed=0)
    with pytest.raises(InputError, match="the 1 forget items cannot be split"):
        shown_and_tested("forget_part", 5, {"forget": [Item("Q?", "A.")]}, seed=0)


TOLD = (2, 1, 2, 0, 2)


@pytest.mark.parametrize("seed", range(5))
def test_a_part_of_one_edge_is_closed_over_the_texts_of_all_that_any_n_would_show(seed):
    whole, few = (shown_and_tested("forget_part", n, ONE_EDGE, seed=seed) for n in (20, 3))
    texts = [text for i in whole.shown for text in (i.question, i.answer)]
    assert few.tested == whole.tested
    for item in whole.tested:
        assert not any(contains(text, item.answer) for text in texts)
    asked = {i.attribute for i in whole.tested}
    # Both names stand in every question, and the date in two.
    assert not asked & {"seller_name", "customer_name"}
    assert {"seller_name", "customer_name"} <= {i.attribute for i in whole.shown}
    total = {"quantity", "unit_price", "total_price"}
    told = {i.attribute for i in whole.shown} & total
    # Of the total, its price and its number each follows from the two others; which are shown hangs on the seed.
    assert len(told) == TOLD[seed]
    if len(told) >= 2:
        assert not asked & total
    dropped = len(ONE_EDGE["forget"]) - len(whole.shown) - len(whole.tested)
    expected = f"{dropped} held-out forget items follow from those shown and are not asked" if dropped else ""
    assert whole.note == expected


def test_of_several_edges_whole_ones_are_held_out():
    found = shown_and_tested("forget_part", 1000, EDGES, seed=0)
    shown, tested = ({i.edge for i in part} for part in (found.shown, found.tested))
    assert not shown & tested
    edges = {i.edge for i in EDGES["forget"]}
    assert len(shown) == len(edges) // 2
    # All items of the edges that are shown; of the others those that do not name or place A, whom all have in common.
    assert len(found.shown) == 20 * len(shown)
    assert shown | tested == edges
    address = next(i.answer for i in ONE_EDGE["forget"] if i.attribute == "customer_address")
    assert any(i.answer == address for i in EDGES["forget"])
    assert not any(i.answer == address for i in found.tested)


def sold(attribute, answer, edge="A_B"):
    return Item(f"What was the {attribute} of {edge}?", answer, edge=edge, group="sales", attribute=attribute)


def test_a_total_follows_from_quantity_and_price_and_each_of_them_from_the_other_two():
    three = [sold("quantity", "4."), sold("unit_price", "62."), sold("total_price", "248.")]
    for hidden in three:
        beside = tuple(i for i in three if i is not hidden)
        assert Shown(beside).gives_away(hidden)
        assert not any(Shown((one,)).gives_away(hidden) for one in beside)
    elsewhere = tuple(sold(i.attribute, i.answer, edge="A_C") for i in three[:2])
    assert not Shown(elsewhere).gives_away(three[2])


@pytest.mark.parametrize(
    ("shown", "hidden", "given"),
    [
        # The answer stands in a question, or in an answer.
        (Item("Who wrote to Ann Lee?", "Bob."), Item("Who was written to?", "Ann Lee."), True),
        (Item("Who met?", "Ann Lee and Bob."), Item("Who was met?", "Bob."), True),
        # As a whole word only.
        (Item("How many?", "15."), Item("How few?", "5."), False),
        # All its names and dates do, in other words.
        (Item("Did Ann Lee come on 04-01-2009?", "No."), Item("Who?", "It was Ann Lee, on 04-01-2009."), True),
        (Item("Did Ann Lee come?", "No."), Item("Who?", "It was Ann Lee, on 04-01-2009."), False),
        # A name that the item's own question holds says nothing of its answer.
        (Item("What did Ann Lee do?", "Nothing."), Item("What is Ann Lee's trade?", "Ann Lee is a baker."), False),
    ],
)  # fmt: skip
def test_what_follows_from_a_shown_text(shown, hidden, given):
    assert Shown((shown,)).gives_away(hidden) is given


def test_from_another_edge_only_what_identifies_counts():
    told = Shown((sold("seller_address", "632 Oak Way."), sold("shipping_payer", "Customer.")))
    assert told.gives_away(sold("customer_address", "632 Oak Way.", edge="A_C"))
    assert not told.gives_away(sold("shipping_payer", "Customer.", edge="A_C"))
    assert told.gives_away(sold("shipping_decider", "Customer."))
    assert [identifies(t) for t in ("5", "Customer", "248", "4661", "Ann Lee", "04-01-2009")] == [
        False, False, False, True, True, True,
    ]  # fmt: skip


def test_names_dates_and_amounts_are_found_in_an_answer():
    assert specifics("The seller was Ann Lee of Oslo, on 04-01-2009 for 3,500 dollars.") == [
        "Ann Lee", "Oslo", "04-01-2009", "3,500",
    ]  # fmt: skip
    assert specifics("Microphones.") == ["Microphones"]
    assert specifics("Nobody knows. He left. 'They' said so: Ann's.") == ["Ann"]
    assert specifics("Nobody knows the St. Gallen road.") == ["St"]


def test_closing_keeps_the_order_and_says_what_went():
    items = [Item("A?", "Bob."), Item("B?", "Ann Lee."), Item("C?", "Carl.")]
    assert close(items, [Item("Who is Ann Lee?", "Carl.")]) == ([items[0]], [items[1], items[2]])


def test_an_item_that_asks_what_is_shown_in_other_words_is_given_away():
    shown = [Item("In which town is it?", "There.", edge="x")]
    told = Item("Where is it?", "Oslo.", edge="y", paraphrase="in which town is it?")
    assert close([told, Item("Why?", "Oslo.", edge="y")], shown)[1] == [told]


def test_an_item_holds_an_answer_in_its_texts_or_by_asking_the_same():
    item = Item("Where is it?", "Oslo.", paraphrase="In which town is it?")
    assert holds_answer(Item("Who lives in Oslo?", "Ann."), item)
    assert holds_answer(Item("Where is Ann?", "In Oslo, Norway."), item)
    assert holds_answer(Item("in which town is IT?", "Bergen."), item)
    assert not holds_answer(Item("Where is Ann?", "Bergen."), item)
    assert not holds_answer(Item("Where is Ann?", "Bergen."), Item("What?", "..."))


def test_the_papers_schedule_rises_for_five_hundredths_and_falls_to_nothing():
    training = RelearnSettings().training(n_items=50)
    steps = total_steps(training, steps_per_epoch=50)
    # 3 epochs of 50 single items; 5 % of 150 is 7.5, rounded up to 8.
    assert steps == 150
    rates = [learning_rate(training, k, steps_per_epoch=50) for k in range(steps)]
    assert rates[:2] == [2e-4 / 8, 2e-4 * 2 / 8]
    assert max(rates) == rates[7] == rates[8] == 2e-4
    assert rates[149] == pytest.approx(2e-4 / 142)
    assert (training.lora_rank, training.lora_alpha, training.lora_dropout) == (128, 16, 0.0)
    assert (training.batch_size, training.weight_decay, training.loss_on) == (1, 0.01, "answer")
    assert training.lora_targets == "all"
