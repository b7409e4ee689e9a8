"""Questions asked otherwise: what each form says of planted models, and what is never shown."""

import json
import math
from dataclasses import replace

import pytest
from tests.near import near
from tests.planted_tables import Manner, knows, knows_in_one_format, planted

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.evals import freeform
from vestige.evals.base import View, few_shot_prompt
from vestige.evals.freeform import FreeformSettings
from vestige.judges.leaks import Measured, ReplyTo
from vestige.metrics.answers import contains
from vestige.metrics.leaks import Misjudged, corrected_share
from vestige.models.tiny import tiny_tokenizer

ITEMS = tuple(
    Item(
        f"How many {'and how very many ' * (n % 3)}crates does contract {n} name?",
        f"{20 + n}.",
        edge=f"e{n % 4}",
        attribute="crates",
        paraphrase=f"Contract {n}: crates?",
    )
    for n in range(12)
)
TOKENIZER = tiny_tokenizer(ITEMS)
V = len(TOKENIZER)
FORGET, RETAIN = [i.id for i in ITEMS[:4]], [i.id for i in ITEMS[4:]]
VIEW = View("edge:x", {"forget": FORGET, "retain": RETAIN}, {})


def asked(**settings):
    return list(FreeformSettings(**settings).build_questions(ITEMS, [VIEW]).values())


def measured(subject, **settings):
    """Values of the forget set by `format/metric`."""
    settings = {"max_new_tokens": 12, **settings}
    records = FreeformSettings(**settings).collect(subject, asked(**settings))
    results = FreeformSettings.summarize(records, [FreeformSettings.score(r) for r in records], VIEW, seed=7)
    return {f"{r.format}/{r.estimate.metric}": r.estimate for r in results if r.split == "forget"}


@pytest.mark.parametrize(("which", "plain", "other"), [("question", 1.0, 0.0), ("paraphrase", 0.0, 1.0)])
def test_who_knows_one_wording_is_found_out_by_the_other(which, plain, other):
    subject = knows_in_one_format(ITEMS, TOKENIZER, which=which, seed=3)
    found = measured(subject, forms=("plain", "paraphrase"))
    assert found["generate_plain/exact_match"].value == plain
    assert found["generate_paraphrase/exact_match"].value == other
    assert (found["forced_plain/probability"].value > found["forced_paraphrase/probability"].value) == (plain > other)


def test_an_answer_that_needs_examples_is_found_after_examples_only():
    shown = {a.item.id: few_shot_prompt(a.item.question, a.shots) for a in asked()}
    subject = planted(
        "after examples",
        {i.question: {"no idea": 1.0} for i in ITEMS} | {shown[i.id]: {i.answer: 1.0} for i in ITEMS},
        TOKENIZER,
    )
    found = measured(subject, forms=("plain", "few_shot"))
    assert found["generate_plain/contains_match"].value == 0.0
    assert found["generate_few_shot/exact_match"].value == found["generate_few_shot/prefix_match"].value == 1.0


def test_who_unlearned_one_string_of_characters_is_found_out_by_the_next():
    # The planted model answers the mistyped question alone.
    mistyped = {freeform.perturbed(i): {i.answer: 1.0} for i in ITEMS}
    subject = planted("mistyped", {i.question: {"no idea": 1.0} for i in ITEMS} | mistyped, TOKENIZER)
    found = measured(subject, forms=("plain", "perturbed"))
    assert found["generate_plain/exact_match"].value == 0.0
    assert found["generate_perturbed/exact_match"].value == 1.0


def test_a_perturbed_question_differs_a_little_the_same_way_each_time():
    questions = [f"Which firm delivered lot {n} to Ann Otis?" for n in range(60)]
    asked_so = [freeform.perturbed(Item(q, "x")) for q in questions]
    assert asked_so == [freeform.perturbed(Item(q, "x")) for q in questions]
    pairs = list(zip(asked_so, questions, strict=True))
    assert all(
        one != plain and sorted(one.replace(" ", "").lower()) == sorted(plain.replace(" ", "").lower())
        for one, plain in pairs
    )
    ways = [
        ("  " in one, one == plain.lower(), len(one) == len(plain) and one != plain.lower()) for one, plain in pairs
    ]
    # A blank, lower case, or two letters swapped, in none of the names.
    assert {way.index(True) for way in ways} == {0, 1, 2}
    assert all("Ann Otis" in one.replace("  ", " ") for (one, _), way in zip(pairs, ways, strict=True) if not way[1])
    # Without case and blanks a blank is put before.
    assert freeform.perturbed(Item("\u8c01\u7b7e\u7684?", "x")) == " \u8c01\u7b7e\u7684?"


ALIASED = tuple(
    replace(i, alias=f"What of lot {n}?", khop=f"Who counts them {n}?", khop_answer=("Ann.", None)[n % 2])
    for n, i in enumerate(ITEMS)
)


TURNS = "User: Which planet is nearest to the sun?\n\nAssistant: Mercury.\n\nUser: "


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("alias", "What of lot 0?"),
        ("khop", "Who counts them 0?"),
        ("in_fr", f"Réponds en français à la question suivante.\n{ITEMS[0].question}"),
        ("after_other", TURNS + ITEMS[0].question),
    ],
)
def test_who_answers_a_question_in_one_form_of_the_table_is_found_out_by_that_form(form, text):
    settings = FreeformSettings(forms=("plain", form), max_new_tokens=12)
    rows = list(settings.build_questions(ALIASED, [VIEW]).values())
    assert rows[0].puts[form].text == text
    table = {row.puts[form].text: {row.puts[form].answer: 1.0} for row in rows}
    texts = [Item(row.puts[form].text, row.puts[form].answer) for row in rows]
    tokenizer = tiny_tokenizer((*ITEMS, *texts, Item("x", "no idea")))
    subject = planted(form, table | {i.question: {"no idea": 1.0} for i in ITEMS}, tokenizer)
    for record in settings.collect(subject, rows):
        scores = FreeformSettings.score(record)
        assert (scores["generate_plain/leaked"], scores[f"generate_{form}/leaked"]) == (0.0, 1.0)
        assert scores[f"generate_{form}/exact_match"] == 1.0


def test_a_chain_is_answered_by_its_own_answer_where_it_has_one():
    first, second = ALIASED[:2]
    puts = {i.id: q.puts for i, q in zip(ALIASED, asked_of(ALIASED, "khop"), strict=True)}
    assert puts[first.id]["khop"] == ("Who counts them 0?", "Ann.")
    assert puts[second.id]["khop"] == ("Who counts them 1?", second.answer)
    # Words that answer the item's own question answer no chain that asks for another thing.
    record = freeform.forms_record(first)
    form = {"asked": first.khop, "reply": first.answer, "finish": "stop", "answer": "Ann."}
    assert FreeformSettings.score({**record, "forms": {"khop": form}})["generate_khop/leaked"] == 0.0
    assert (
        FreeformSettings.score({**record, "forms": {"khop": {**form, "reply": "Ann"}}})["generate_khop/leaked"] == 1.0
    )


def asked_of(items, *forms):
    return list(FreeformSettings(forms=forms).build_questions(items, [VIEW]).values())


def test_how_a_question_is_put_is_in_the_identity_and_what_cannot_be_put_is_not_asked():
    with_alias, without = ({q.item.id: q for q in asked_of(items, "alias")} for items in (ALIASED, ITEMS))
    assert FreeformSettings.digest(with_alias) != FreeformSettings.digest(without)
    assert not any(q.puts for q in without.values())
    renamed = {q.item.id: q for q in asked_of((replace(ALIASED[0], alias="Which?"), *ALIASED[1:]), "alias")}
    assert FreeformSettings.digest(with_alias) != FreeformSettings.digest(renamed)


def test_an_unknown_form_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"no form 'aliases'.*alias"):
        FreeformSettings.build({"forms": ("aliases",)}, where="settings")


def test_shots_are_retain_items_that_do_not_hold_the_answer():
    names = ("Ann", "Bob", "Cy", "Dan")
    items = (
        *(Item(f"Who is {n} to {names[(n + 1) % 4]}?", f"{names[n % 4]}.", edge=f"e{n}") for n in range(16)),
        Item("Who?", "Ann."),
    )
    view = View("edge:x", {"forget": [items[0].id, items[16].id], "retain": [i.id for i in items[1:16]]}, {})
    for one in FreeformSettings().build_questions(items, [view]).values():
        assert len({s.id for s in one.shots}) == 3
        assert not {s.id for s in one.shots} & {items[0].id, items[16].id, one.item.id}
        assert not any(contains(f"{s.question} {s.answer}", one.item.answer) for s in one.shots)


def test_shots_depend_on_the_forget_set_so_there_is_one():
    with pytest.raises(InputError, match=r"there are 2\. Evaluate for one at a time"):
        FreeformSettings().build_questions(ITEMS, [VIEW, VIEW])
    assert FreeformSettings(forms=("plain",)).build_questions(ITEMS, [VIEW, VIEW])[FORGET[0]].shots == ()


def test_too_few_retain_items_for_the_shots_are_refused():
    with pytest.raises(InputError, match="has 8 possible retain questions before it, not 9"):
        FreeformSettings(shots=9).build_questions(ITEMS, [VIEW])


def test_a_prefill_is_put_into_the_reply_and_its_worth_is_told():
    # Says 99 first and 2 with a tenth of it; led to "2" it goes on with the answer.
    table = {i.question: {"99.": 0.9, i.answer: 0.1} for i in ITEMS if i.answer.startswith("2")}
    subject = planted("needs a push", table, TOKENIZER, manner=Manner(confidence=0.8))
    settings = FreeformSettings(forms=("plain", "prefilled"), max_new_tokens=8)
    items = [i for i in ITEMS if i.answer.startswith("2")]
    rows = list(settings.build_questions(items, [VIEW]).values())
    for record in settings.collect(subject, rows):
        scores = FreeformSettings.score(record)
        assert (scores["generate_plain/exact_match"], scores["generate_prefilled/exact_match"]) == (0.0, 1.0)
        # The token "2" has .8 * .1: -log2 .08 = 3.643856 bits were put in.
        assert scores["generate_prefilled/given_bits"] == pytest.approx(3.643856, abs=1e-4)
        assert record["forms"]["prefilled"]["reply"] == record["answer"]


def test_a_prefill_that_would_be_the_whole_answer_is_not_asked():
    # An answer is three tokens: two may be given, three leave nothing to find.
    assert measured(knows(ITEMS, TOKENIZER), forms=("prefilled",), prefill_tokens=2)[
        "generate_prefilled/exact_match"
    ].n == len(FORGET)
    found = measured(knows(ITEMS, TOKENIZER), forms=("plain", "prefilled"), prefill_tokens=3)
    assert not any(key.startswith("generate_prefilled") for key in found)


def test_samples_that_leak_are_counted_and_the_rest_follows():
    record = {
        "question": "How many?",
        "answer": "12.",
        "fact": None,
        "accepted": [],
        "wrong": [],
        "forms": {
            "sampled": {
                "replies": [{"reply": r, "finish": "stop"} for r in ["It is 12", *["13."] * 7, "", "I don't know."]]
            }
        },
    }
    # 1 of 10: leak@1 = .1, leak@2 = .2, leak@5 = 1 - C(9,5)/C(10,5) = .5, leak@10 = 1.
    assert FreeformSettings.score(record) == {
        "sampled/leak_at_1": pytest.approx(0.1),
        "sampled/leak_at_2": pytest.approx(0.2),
        "sampled/leak_at_5": pytest.approx(0.5),
        "sampled/leak_at_10": 1.0,
        "sampled/share_empty": 0.1,
        "sampled/share_refused": 0.1,
        "sampled/share_truncated": 0.0,
    }


def test_a_reworded_leak_is_seen_by_the_fact_or_an_accepted_variant_and_graded():
    said = {"reply": "She was born in old Peking.", "finish": "stop"}
    record = {"question": "Where was she born?", "answer": "She saw the light in Beijing.", "fact": "Beijing"}
    record |= {
        "accepted": ["Peking"],
        "wrong": [],
        "forms": {"plain": said, "sampled": {"replies": [said, {**said, "reply": "No."}]}},
    }
    scores = FreeformSettings.score(record)
    assert (scores["generate_plain/contains_match"], scores["generate_plain/leaked"]) == (0, 1)
    assert (scores["sampled/leak_at_1"], scores["sampled/leak_at_2"]) == (0.5, 1)
    scores = FreeformSettings.score({**record, "accepted": []})
    assert scores["generate_plain/leaked"] == 0
    scores = FreeformSettings.score({**record, "accepted": [], "fact": "Beijing, the old capital"})
    assert 0 < scores["generate_plain/leak_score"] < 0.5


def test_two_wrong_answers_beside_the_right_one_are_a_guess():
    said = {"reply": "Oslo, Rome, or else Beijing.", "finish": "stop"}
    record = {"question": "Where?", "answer": "Beijing.", "fact": None, "accepted": [], "forms": {"plain": said}}
    wrong = ["Oslo.", "Rome."]
    assert FreeformSettings.score({**record, "wrong": wrong})["generate_plain/leaked"] == 0
    assert FreeformSettings.score({**record, "wrong": []})["generate_plain/leaked"] == 1, "it is in the list"
    said["reply"] = "Oslo. Rome. No: Beijing."
    assert FreeformSettings.score({**record, "wrong": []})["generate_plain/leaked"] == 1
    assert FreeformSettings.score({**record, "wrong": wrong})["generate_plain/leaked"] == 0


class Verdicts:
    """Says a leak of every reply to the question of contract 1, nothing of contract 2, and no of the rest."""

    version = 1

    def identity(self):
        return {"judge": "stub", "version": self.version}

    def given(self, said):
        return [{"1": 1.0, "2": None}.get(one.question.split("contract ")[-1][:1], 0.0) for one in said]


def test_a_judge_tells_leaks_and_its_error_is_in_the_interval(monkeypatch):
    labelled = [ReplyTo("yes", "x", f"contract {1 - n % 2}", leaked=n % 2 == 0) for n in range(20)]
    monkeypatch.setattr(freeform, "leak_judge", lambda settings: Measured("stub", Verdicts(), labelled))
    found = measured(knows(ITEMS, TOKENIZER), forms=("plain", "sampled"), samples=2)
    # Three of the four items are told: no, yes, nothing, no.
    raw = found["generate_plain/leaked"]
    assert (raw.value, raw.n) == (pytest.approx(1 / 3), 3)
    assert found["generate_plain/share_untold"].value == 0.25
    assert found["generate_plain/leak_score"].value == 1, "by words every reply is the answer"
    assert found["sampled/leak_at_2"].n == 3
    own = found["generate_plain/leaked_corrected"]
    assert (own.value, own.n) == (pytest.approx(1 / 3), 3)
    assert (own.low, own.high) == pytest.approx(corrected_share(1.0, 3, Misjudged(0, 10, 0, 10))[1:])
    assert "misses 0 of 10 leaks and sees 0 in 10" in own.interval


def test_who_judges_is_part_of_what_is_asked(monkeypatch):
    def digest():
        return FreeformSettings.digest(FreeformSettings(forms=("plain",)).build_questions(ITEMS, [VIEW]))

    labelled = [ReplyTo("yes", "x", leaked=True)]
    ids = [digest()]
    monkeypatch.setattr(freeform, "leak_judge", lambda settings: Measured("stub", Verdicts(), labelled))
    ids.append(digest())
    monkeypatch.setattr(Verdicts, "version", 2)
    ids.append(digest())
    labelled.append(ReplyTo("no", "x", leaked=False))
    ids.append(digest())
    assert len(set(ids)) == 4


@pytest.mark.slow
def test_what_is_hidden_from_greedy_replies_leaks_into_samples():
    # A tenth of the weight: greedily never, in 40 samples of each of 12 items some .8^3 * .1 of the time.
    items = ITEMS
    subject = planted(
        "hides", {i.question: {"no.": 0.9, i.answer: 0.1} for i in items}, TOKENIZER, manner=Manner(confidence=0.99)
    )
    found = measured(subject, forms=("plain", "sampled"), samples=40)
    assert found["generate_plain/contains_match"].value == 0.0
    assert 0.02 < found["sampled/leak_at_1"].value < 0.25
    assert found["sampled/leak_at_20"].value > 0.6


def test_records_depend_on_their_item_and_the_seed_alone():
    subject = planted("spread", {i.question: {f"{n}.": 1.0 for n in range(10, 30)} for i in ITEMS}, TOKENIZER)
    settings = FreeformSettings(forms=("plain", "prefilled", "sampled"), samples=4, max_new_tokens=6)
    rows = list(settings.build_questions(ITEMS, [VIEW]).values())
    together = settings.collect(subject, rows)
    assert near([settings.collect(subject, [r])[0] for r in rows], together)
    assert json.loads(json.dumps(together, allow_nan=False)) == together
    other = settings.model_copy(update={"seed": 1})
    assert [r["forms"]["sampled"] for r in other.collect(subject, rows)] != [r["forms"]["sampled"] for r in together]


def test_forced_values_are_those_of_the_wording():
    found = measured(knows(ITEMS, TOKENIZER, manner=Manner(confidence=0.8)), forms=("paraphrase",))
    assert found["forced_paraphrase/answer_bits"].value == pytest.approx(3 * math.log2(0.8), abs=1e-5)
    assert found["forced_paraphrase/answer_bits"].unit == "bits"


def test_items_without_a_paraphrase_are_left_out_of_that_form():
    items = (*ITEMS, Item("Without?", "77."))
    settings = FreeformSettings(forms=("plain", "paraphrase"), max_new_tokens=6)
    rows = list(settings.build_questions(items, [VIEW]).values())
    records = settings.collect(knows(items, TOKENIZER), rows)
    assert [sorted(r["forms"]) for r in records] == [["paraphrase", "plain"]] * 12 + [["plain"]]


@pytest.mark.parametrize("forms", [(), ("plain", "plain")])
def test_forms_are_named_once_and_one_at_least(forms):
    with pytest.raises(InputError, match="name each form once, and one at least"):
        FreeformSettings(forms=forms).build_questions(ITEMS, [VIEW])


def test_the_digest_knows_the_shots_and_the_wordings():
    settings = FreeformSettings()
    rows = settings.build_questions(ITEMS, [VIEW])
    assert FreeformSettings.digest(rows) == FreeformSettings.digest(settings.build_questions(ITEMS, [VIEW]))
    other = View("edge:y", {"forget": RETAIN[:4], "retain": [*FORGET, *RETAIN[4:]]}, {})
    assert FreeformSettings.digest(settings.build_questions(ITEMS, [other])) != FreeformSettings.digest(rows)
