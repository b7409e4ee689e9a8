"""What the evaluation says of models of known behaviour, and that it is what is true of them."""

import dataclasses
import json
import math

import pytest
from tests.near import near
from tests.planted_tables import (
    Manner,
    known_ids,
    knows,
    knows_in_one_format,
    knows_share,
    never_knew,
    planted,
    refuses,
)

from vestige.core.estimates import to_json
from vestige.core.items import Item
from vestige.evals.base import View
from vestige.evals.qa import QASettings
from vestige.models.tiny import tiny_tokenizer

# Digits and the full stop are tokens of their own: three to an answer.
TOKENS = 3
ITEMS = tuple(
    Item(
        f"How many {'and how very many ' * (n % 3)}crates does contract {n} name?",
        f"{20 + n}.",
        edge=f"e{n % 6}",
        attribute="crates",
        paraphrase=f"Contract {n}: crates?",
    )
    for n in range(12)
)
TOKENIZER = tiny_tokenizer(ITEMS)
V = len(TOKENIZER)
IDK = ("I don't know the answer to that.", "I'm not sure.")
MANNER = Manner(confidence=0.8, chance=0.1)
FORGET, RETAIN = ITEMS[:6], ITEMS[6:]
EVERYTHING = View(
    "edge:x",
    {"forget": [i.id for i in FORGET], "retain": [i.id for i in RETAIN]},
    {
        i.id: scope
        for i, scope in zip(FORGET, ["entailed", "guessable", "guessable", "free", "free", "free"], strict=True)
    },
)


def measured(subject, items=ITEMS, view=EVERYTHING, **settings):
    """Estimates by (split, scope, metric)."""
    records = QASettings(**settings).collect(subject, items)
    results = QASettings.summarize(records, [QASettings.score(r) for r in records], view, seed=7)
    return {(r.split, r.scope, r.estimate.metric): r.estimate for r in results}


def values(found, split="forget", scope="all"):
    return {metric: e.value for (s, c, metric), e in found.items() if (s, c) == (split, scope)}


def test_who_knows_scores_one_everywhere_and_its_confidence():
    found = values(measured(knows(ITEMS, TOKENIZER, manner=MANNER)))
    # Geometric mean of .8 three times, and 3 log2 .8 = -.965784 bits.
    assert found == {
        "rouge1_recall": 1.0,
        "rougeL_recall": 1.0,
        "exact_match": 1.0,
        "mrr": 1.0,
        "top_hit": 1.0,
        "share_empty": 0.0,
        "share_truncated": 0.0,
        "share_refused": 0.0,
        "probability": pytest.approx(0.8, abs=1e-5),
        "answer_bits": pytest.approx(-0.965784, abs=1e-5),
    }


def test_who_never_knew_says_other_numbers_and_has_the_bits_of_its_chance():
    found = measured(never_knew(ITEMS, TOKENIZER, seed=3, manner=MANNER))
    for split in ("forget", "retain"):
        shown = values(found, split)
        assert shown["exact_match"] == shown["rouge1_recall"] == shown["share_refused"] == shown["share_empty"] == 0.0
        # log2 .1 + 3 log2 .8 = -3.321928 - .965784, whichever token tells the two replies apart.
        assert shown["answer_bits"] == pytest.approx(-4.287712, abs=1e-5)
        # That token has rank 2 and the others rank 1: (1/2 + 1 + 1) / 3.
        assert shown["mrr"] == pytest.approx(2.5 / 3)


def test_who_refuses_is_counted_as_refusing_and_not_as_empty():
    found = values(measured(refuses(ITEMS, TOKENIZER, idk=IDK, manner=MANNER)))
    assert (found["share_refused"], found["share_empty"], found["share_truncated"]) == (1.0, 0.0, 0.0)
    assert found["exact_match"] == found["rouge1_recall"] == 0.0
    # One of the V - 1 tokens that share .2, then two of V equal ones, with the middle ranks of 2..V and 1..V.
    assert found["answer_bits"] == pytest.approx(math.log2(0.2 / (V - 1)) - 2 * math.log2(V), abs=1e-4)
    assert found["mrr"] == pytest.approx((2 / (2 + V) + 2 * 2 / (1 + V)) / 3)
    assert found["top_hit"] == 0.0


@pytest.mark.parametrize(("which", "asked", "other"), [("question", 1.0, 0.0), ("paraphrase", 0.0, 1.0)])
def test_who_knows_in_one_format_is_found_out_by_the_other(which, asked, other):
    subject = knows_in_one_format(ITEMS, TOKENIZER, which=which, seed=3)
    reworded = tuple(dataclasses.replace(i, question=i.paraphrase) for i in ITEMS)
    seen = View("edge:x", {"forget": [i.id for i in reworded]}, {})
    assert values(measured(subject))["exact_match"] == asked
    assert values(measured(subject, reworded, seen))["exact_match"] == other


def test_who_knows_a_share_scores_that_share():
    subject = knows_share(ITEMS, TOKENIZER, share=0.5, seed=3, manner=MANNER)
    records = QASettings().collect(subject, ITEMS)
    assert {r["item"] for r in records if QASettings.score(r)["exact_match"] == 1} == known_ids(
        ITEMS, share=0.5, seed=3
    )
    found = measured(subject, view=View("all", {"forget": [i.id for i in ITEMS]}, {}))
    estimate = found["forget", "all", "exact_match"]
    assert (estimate.value, estimate.n) == (0.5, 12)
    assert estimate.low < 0.5 < estimate.high
    # Six answers at 3 log2 .8 and six with log2 .1 more.
    assert found["forget", "all", "answer_bits"].value == pytest.approx(-0.965784 - 3.321928 / 2, abs=1e-5)


def test_a_reply_that_runs_into_the_bound_is_truncated_and_not_exact():
    found = values(measured(knows(ITEMS, TOKENIZER, manner=MANNER), max_new_tokens=2))
    assert (found["share_truncated"], found["exact_match"]) == (1.0, 1.0)  # "20" is "20." without its full stop
    found = values(measured(knows(ITEMS, TOKENIZER, manner=MANNER), max_new_tokens=1))
    assert (found["share_truncated"], found["exact_match"]) == (1.0, 0.0)
    assert found["probability"] == pytest.approx(0.8, abs=1e-5)  # reading the answer needs no reply


def test_each_odd_reply_is_counted_once_in_its_share():
    odd = {0: "", 1: IDK[0], 2: "no " * 60, 3: "21."}
    table = {i.question: {odd.get(n, i.answer): 1.0} for n, i in enumerate(ITEMS)}
    found = values(measured(planted("odd", table, TOKENIZER), max_new_tokens=40))
    # Of six: one empty, one refusal, one too long, one wrong, two right.
    shares = {m: round(6 * found[m]) for m in ("share_empty", "share_refused", "share_truncated", "exact_match")}
    assert shares == {"share_empty": 1, "share_refused": 1, "share_truncated": 1, "exact_match": 2}


@pytest.mark.portable
def test_half_an_answer_has_half_the_rouge():
    # "The State of New York" has 5 words, of which the reply has the, State, of: 3 / 5, in the same order.
    item = Item("Which law governs?", "The State of New York.")
    subject = planted("law", {item.question: {"The State of California.": 1.0}}, tiny_tokenizer([item]))
    scores = QASettings.score(QASettings().collect(subject, [item])[0])
    assert (scores["rouge1_recall"], scores["rougeL_recall"], scores["exact_match"]) == (0.6, 0.6, 0.0)


def test_an_answer_in_another_script_has_no_rouge_and_is_not_counted_as_zero():
    items = (Item("Где?", "Москва"), *ITEMS[:1])
    subject = planted("script", {i.question: {i.answer: 1.0} for i in items}, tiny_tokenizer(items))
    found = measured(subject, items, View("x", {"forget": [i.id for i in items]}, {}))
    assert found["forget", "all", "exact_match"].n == 2
    assert (found["forget", "all", "rouge1_recall"].n, found["forget", "all", "rouge1_recall"].value) == (1, 1.0)


def test_estimates_are_over_the_items_of_their_place():
    found = measured(knows(ITEMS, TOKENIZER))
    sizes = {(split, scope): found[split, scope, m].n for split, scope, m in found if m == "exact_match"}
    assert sizes == {
        ("forget", "all"): 6,
        ("retain", "all"): 6,
        ("forget", "entailed"): 1,
        ("forget", "guessable"): 2,
        ("forget", "free"): 3,
        **{(f"edge:e{n}", "all"): 2 for n in range(6)},
    }


def test_scopes_tell_apart_who_knows_what_the_retain_set_gives_away():
    # Knows what is entailed or can be guessed (items 0 to 2), and of the rest (3 to 5) one in three.
    table = {i.question: {i.answer if n in (0, 1, 2, 4) else "99.": 1.0} for n, i in enumerate(ITEMS)}
    found = measured(planted("scopes", table, TOKENIZER))
    shown = {scope: found["forget", scope, "exact_match"].value for scope in ("entailed", "guessable", "free", "all")}
    assert shown == {"entailed": 1.0, "guessable": 1.0, "free": pytest.approx(1 / 3), "all": pytest.approx(4 / 6)}


def test_items_of_one_edge_are_clustered_and_items_without_an_edge_are_not():
    found = measured(knows_share(ITEMS, TOKENIZER, share=0.5, seed=3))
    assert "6 clusters" in found["forget", "all", "exact_match"].interval
    # The items of one edge are no sample of edges.
    assert "cluster" not in found["edge:e0", "all", "exact_match"].interval
    loose = tuple(dataclasses.replace(i, edge=None) for i in ITEMS)
    seen = View("all", {"forget": [i.id for i in loose]}, {})
    found = measured(knows(loose, TOKENIZER), loose, seen)
    assert not any("cluster" in e.interval for e in found.values())
    assert {split for split, _, _ in found} == {"forget"}


def test_results_say_in_which_format_they_were_asked():
    records = QASettings().collect(knows(ITEMS, TOKENIZER), ITEMS)
    results = QASettings.summarize(records, [QASettings.score(r) for r in records], EVERYTHING, seed=7)
    forced = {r.estimate.metric for r in results if r.format == "forced"}
    assert forced == {"probability", "answer_bits", "mrr", "top_hit"}
    assert {r.format for r in results} == {"forced", "generate"}
    assert {r.attack for r in results} == {""}


def test_a_record_holds_all_that_a_later_metric_could_want():
    subject = knows(ITEMS, TOKENIZER, manner=MANNER)
    (record,) = QASettings().collect(subject, ITEMS[4:5])
    item, encoded = ITEMS[4], subject.prompter.encode(ITEMS[4].question, ITEMS[4].answer)
    ln = math.log(0.8)
    assert record == {
        "item": item.id,
        "question": item.question,
        "answer": "24.",
        "edge": "e4",
        "group": None,
        "attribute": "crates",
        "reply": "24.",
        "finish": "stop",
        "reply_ids": list(encoded.answer_ids),
        "margin": pytest.approx(ln - math.log(0.2 / (V - 1)), abs=1e-5),
        "answer_ids": list(encoded.answer_ids),
        "logp": pytest.approx([ln] * TOKENS, abs=1e-5),
        "ranks": [1.0] * TOKENS,
        "end_logp": pytest.approx(ln, abs=1e-5),
        "end_rank": 1.0,
    }


@pytest.mark.portable
def test_a_record_depends_on_its_item_alone_but_for_rounding():
    subject = never_knew(ITEMS, TOKENIZER, seed=3)
    together = QASettings().collect(subject, ITEMS)
    assert near([QASettings().collect(subject, [i])[0] for i in ITEMS], together)


def test_summing_up_needs_the_records_alone_and_gives_the_same_bytes_again():
    # Ids of stored answers are made from these values: those of earlier versions stay known.
    assert QASettings().identity() == {"max_new_tokens": 64, "pistol": False}
    records = QASettings().collect(never_knew(ITEMS, TOKENIZER, seed=3), ITEMS)
    stored = json.loads(json.dumps(records, allow_nan=False))

    def summed(rows, seed):
        results = QASettings.summarize(rows, [QASettings.score(r) for r in rows], EVERYTHING, seed=seed)
        return json.dumps([to_json(r) for r in results], allow_nan=False)

    assert summed(stored, 7) == summed(records, 7)
    assert summed(stored, 8) != summed(records, 7)  # another seed draws other resamples
    assert stored == records  # and nothing of the records was changed
